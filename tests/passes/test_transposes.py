"""Tiles that are copied across are turned in registers, and hold the same."""

from __future__ import annotations

import numpy as np
import pytest

import tensorc as tc
from tensorc import te
from tensorc.ir import interpret, parse, show, verify
from tensorc.passes.pipeline import lower
from tensorc.passes.transposes import transpose_tiles

TYPES = ("int8", "uint16", "float16", "float32", "int32", "float64", "int64")
CPUS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")


def tile(size: int, value: str = "A[ramp(r, 16, 4)]", more: str = "") -> str:
    return f"""
function f(A: float32[256], B: float32[256], out C: float32[256])
  for i in 0 .. 256
    C[i] = float32(0.0)
  for r in 0 .. {size} unrolled{more}
    C[ramp(r * 16, 1, 4)] = {value}
"""


def turned(text: str) -> str:
    return show(transpose_tiles(parse(text)))


def test_rows_are_read_shuffled_and_stored():
    assert turned(tile(4)) == """\
function f(A: float32[256], B: float32[256], out C: float32[256])
  for i in 0 .. 256
    C[i] = float32(0.0)
  let r.0: float32x4 = A[ramp(0, 1, 4)]
    let r.1: float32x4 = A[ramp(16, 1, 4)]
      let r.2: float32x4 = A[ramp(32, 1, 4)]
        let r.3: float32x4 = A[ramp(48, 1, 4)]
          let r.4: float32x4 = interleave.low(r.0, r.2)
            let r.5: float32x4 = interleave.high(r.0, r.2)
              let r.6: float32x4 = interleave.low(r.1, r.3)
                let r.7: float32x4 = interleave.high(r.1, r.3)
                  let r.8: float32x4 = interleave.low(r.4, r.6)
                    let r.9: float32x4 = interleave.high(r.4, r.6)
                      let r.10: float32x4 = interleave.low(r.5, r.7)
                        let r.11: float32x4 = interleave.high(r.5, r.7)
                          C[ramp(0, 1, 4)] = r.8
                          C[ramp(16, 1, 4)] = r.9
                          C[ramp(32, 1, 4)] = r.10
                          C[ramp(48, 1, 4)] = r.11"""


@pytest.mark.parametrize(
    "value",
    [
        "A[ramp(r, 16, 4)]",
        "A[ramp(r + 3, 16, 4)] * float32x4(2.0) + B[ramp(r * 8, 1, 4)]",
        "max(A[ramp(r, 16, 4)], broadcast(B[r], 4)) + A[ramp(r, 16, 4)]",
    ],
)
def test_what_is_done_to_the_elements_is_done_to_the_rows(value):
    text = tile(4, value.replace("float32x4(2.0)", "broadcast(float32(2.0), 4)"))
    a, b = np.arange(256, dtype="f4"), np.arange(256, dtype="f4")[::-1].copy()
    assert "interleave" in turned(text)
    np.testing.assert_array_equal(interpret(transpose_tiles(parse(text)), a, b), interpret(parse(text), a, b))


@pytest.mark.parametrize(
    "text",
    [
        tile(3),  # no square
        tile(4, "A[ramp(r * 2, 16, 4)]"),  # the next element is not in the next iteration
        tile(4, "A[ramp(r, 16, 4)] + B[ramp(r, 16, 4)]"),  # of two
        tile(4, "C[ramp(r, 16, 4)]"),  # of itself
        tile(4, "A[ramp(r, r + 1, 4)]"),
        tile(4, "A[ramp(r, 1, 4)]"),
        tile(4).replace(" unrolled", ""),
        tile(4, "A[ramp(r, 16, 4)] mask ramp(r, 1, 4) < broadcast(5, 4)"),
    ],
)
def test_other_loops_stay(text):
    assert transpose_tiles(function := parse(text)) is function


def permuted(shape, dtype="float32"):
    X = te.placeholder(shape, dtype, name="X")
    return [X, te.compute((*shape[:-2], shape[-1], shape[-2]), lambda *i: X[(*i[:-2], i[-1], i[-2])], name="C")]


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (1, 1), (16, 16), (17, 33), (47, 100), (3, 40, 21)])
@pytest.mark.parametrize("dtype", TYPES)
def test_transposes_of_any_size(dtype, shape):
    x = np.random.default_rng(0).integers(0, 100, shape).astype(dtype)
    for cpu in CPUS:
        target = tc.Target("cpu", mcpu=cpu)
        if target.is_host:
            kernel = tc.build(permuted(shape, dtype), target, threads=1, cache=False)
            np.testing.assert_array_equal(kernel(x), x.swapaxes(-1, -2))
    flat = lower(kernel.function)
    verify(flat, "flat")
    np.testing.assert_array_equal(interpret(flat, x), x.swapaxes(-1, -2))


def test_symbolic_extents_and_threads():
    n, m = te.var("n"), te.var("m")
    kernel = tc.build(permuted((n, m)), threads=2, cache=False)
    assert "interleave" in kernel.source("flat")
    for shape in ((0, 3), (3, 0), (1, 1), (16, 32), (17, 33), (700, 900)):
        x = np.arange(shape[0] * shape[1], dtype="f4").reshape(shape)
        np.testing.assert_array_equal(kernel(x), x.T)


def test_the_elementwise_recipe_turns_tiles():
    s = tc.default_schedule(permuted((64, 48)), tc.Target("cpu", mcpu="x86-64-v3"), threads=1)
    assert s.trace.python().splitlines() == [
        'i0_0, i0_1 = s.split("C.i0", factors=(None, 8))',
        'i1_0, i1_1 = s.split("C.i1", factors=(None, 8))',
        "s.reorder(i1_0, i0_0, i0_1, i1_1)",
        "s.unroll(i0_1)",
        "s.vectorize(i1_1)",
    ]
    apart = tc.default_schedule(permuted((64, 48)), threads=1, schedules={"C.across": False})
    assert "unroll" not in apart.trace.python()


def test_a_transposed_operand_is_packed_by_tiles():
    A, B, k = te.placeholder((96, 64), name="A"), te.placeholder((200, 64), name="B"), te.reduce_axis(64, name="k")
    tensors = [A, B, te.compute((96, 200), lambda i, j: te.sum(A[i, k] * B[j, k], axis=k), name="C")]
    for mcpu in CPUS:
        target = tc.Target("cpu", mcpu=mcpu)
        kernel = tc.build(tensors, target, threads=1, cache=False)
        assert "interleave.low" in kernel.source("flat")
        if target.is_host:
            a = np.random.default_rng(0).integers(-3, 4, (96, 64)).astype("f4")
            b = np.random.default_rng(1).integers(-3, 4, (200, 64)).astype("f4")
            np.testing.assert_array_equal(kernel(a, b), a @ b.T)


def test_rows_are_not_read_where_elements_are_not():
    """A guard may be false for a part of a row only, and where it lies past the end of memory."""
    value = "if_then_else(r < 3, A[ramp(r, 16, 4)], B[ramp(0, 1, 4)])"
    assert "interleave" not in turned(tile(4, value))
    A = te.placeholder((32, 16), "int32", name="A")

    def shifted(i, j):
        return te.if_then_else(te.all(i >= 1, i < 17), A[31 - j, i - 1], 1)

    kernel = tc.build([A, te.compute((32, 16), shifted, name="C")], threads=1)
    assert "interleave" not in kernel.source("flat")
    a = np.arange(512, dtype="i4").reshape(32, 16)
    expected = np.ones((32, 16), "i4")
    expected[1:17] = a[31:15:-1].T
    assert np.array_equal(kernel(a), expected)
