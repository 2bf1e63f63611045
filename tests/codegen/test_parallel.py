"""Parallel loops: tasks, captured values, shares of the workspace, failing checks."""

from __future__ import annotations

import numpy as np
import pytest

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
