"""Parallel loops: tasks, captured values, shares of the workspace, failing checks."""

from __future__ import annotations

import numpy as np
import pytest

import tensorc as tc
from tensorc import te
from tensorc.codegen.llvm import compile
from tensorc.ir import parse
from tensorc.target import Target
from tests.codegen.jit import CheckFailed, run


@pytest.mark.parametrize("threads", (1, 2, 5))
def test_tasks_get_what_they_use(threads):
    function = parse("""
function f(a: float32[n, m], out b: float32[n, m], k: int64)
  alloc t: float32[64] @global
    for i in 0 .. 64
      t[i] = cast(float32, i * k)
    for o in 0 .. 2
      let scale: float32 = cast(float32, o + 1)
        for i in o .. n parallel
          alloc row: float32[64] @global
            alloc acc: float32[1] @local
              acc[0] = float32(0)
              for j in 0 .. m
                row[j] = a[i * m + j] * scale + t[j]
                acc[0] = acc[0] + row[j]
              for j in 0 .. m
                b[i * m + j] = row[j] + acc[0]
""")
    a = np.arange(7 * 10, dtype=np.float32).reshape(7, 10)
    b = np.zeros_like(a)
    run(function, a, b, scalars=(7, 10, 3), threads=threads)
    t = np.arange(10) * 3
    rows = [a * scale + t for scale in (1, 2)]
    first, second = [row + row.sum(axis=1, keepdims=True) for row in rows]
    np.testing.assert_array_equal(b, np.concatenate([first[:1], second[1:]]))


def test_the_artifact_tells_what_a_call_needs():
    function = parse("""
function f(a: float32[n, 16] strides [s, 1], out b: float64[n] align 64, k: int64)
  alloc t: float32[5] @global
    for i in 0 .. n parallel
      alloc x: float32[100] @global
        x[0] = a[i * s]
        b[i] = cast(float64, x[0])
""")
    artifact = compile(function, Target.host(), flops=12, bytes=34)
    assert (artifact.name, artifact.symbol, artifact.scalars) == ("f", "tensorc_f", ("n", "s", "k"))
    assert (artifact.workspace, artifact.thread_workspace, artifact.parallel) == (64, 448, True)
    assert (artifact.flops, artifact.bytes, artifact.kind) == (12, 34, "object")
    a, b = artifact.params
    assert (a.name, a.dtype, a.shape, a.strides, a.is_output, a.alignment) == (
        "a",
        "float32",
        ("n", 16),
        ("s", 1),
        False,
        4,
    )
    assert (b.shape, b.strides, b.is_output, b.alignment) == (("n",), None, True, 64)


def test_a_failing_task_fails_the_call():
    function = parse("""
function f(p: int64[n], out b: int64[n])
  for i in 0 .. n parallel
    check p[i] < 10, p[i], "p is too big"
    b[i] = p[i]
  for i in 0 .. n
    b[i] = b[i] + 1
""")
    b = np.zeros(6, np.int64)
    run(function, np.arange(6), b, scalars=(6,), threads=3)
    np.testing.assert_array_equal(b, np.arange(1, 7))
    with pytest.raises(CheckFailed) as caught:
        run(function, np.array([1, 2, 3, 11, 4, 12]), b, scalars=(6,), threads=3)
    assert caught.value.args[0] == "p is too big" and caught.value.args[1] in (11, 12)
    np.testing.assert_array_equal(b[:3], [1, 2, 3])  # the loop after it did not run


def chain(stages: int):
    """Sums of neighbours, sums of rows, and rows that data choose: stage by stage, none to be inlined."""
    X = te.placeholder((6, 40), "int64", name="X")
    at = te.placeholder((6,), "int64", name="at")
    T = X
    for number in range(stages):
        T = _stage(number, T, at)
    return [X, at, T]


def _stage(number: int, T, at):
    k = te.reduce_axis(40, name="k")
    match number % 3:
        case 0:
            body = lambda i, j: T[i, j] + T[5 - i, 39 - j]
        case 1:
            body = lambda i, j: te.sum(T[i, k], axis=k) - T[i, j] * 3
        case _:
            body = lambda i, j: T[at[i], j] + T[i, 39 - j]
    return te.compute((6, 40), body, name=f"S{number}")


def test_long_functions_are_made_of_parts():
    kernel = tc.build(chain(36), threads=1)
    assert kernel.source("llvm").count("define internal i32 @tensorc_main.part") >= 12
    short = tc.build(chain(3), threads=1)
    assert ".part" not in short.source("llvm")
    x = np.random.default_rng(0).integers(-9, 9, (6, 40))
    at = np.array([3, 3, 0, 5, 1, 2])
    t = x
    for number in range(36):
        if number % 3 == 0:
            t = t + t[::-1, ::-1]
        elif number % 3 == 1:
            t = t.sum(1, keepdims=True) - t * 3
        else:
            t = t[at] + t[:, ::-1]
    assert np.array_equal(kernel(x, at), t)
    with pytest.raises(tc.ArgumentError, match="index 6 of dimension 0"):
        kernel(x, np.array([3, 3, 0, 6, 1, 2]))
    assert np.array_equal(kernel(x, at), t)
    assert any(loop.name.startswith("S1") for nest in kernel.report().nests for loop in nest.loops)
