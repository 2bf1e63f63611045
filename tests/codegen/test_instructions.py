"""Hardware instructions, and vectors repeated, in machine code."""

from __future__ import annotations

import numpy as np
import pytest

import tensorc as tc
from tensorc import te
from tensorc.codegen import llvm
from tensorc.errors import ExpressionError, UnsupportedError
from tensorc.intrinsics import instruction, tensor_intrin
from tensorc.ir.intrinsic import call
from tensorc.ir.parser import parse
from tests.codegen.jit import check

PAIRS = """
function pairs(a: int16[8], b: int16[8], out c: int32[4])
  c[ramp(0, 1, 4)] = x86.pmaddwd.128(a[ramp(0, 1, 8)], b[ramp(0, 1, 8)])
"""
WIDE = """
function pairs(a: int16[16], b: int16[16], out c: int32[8])
  c[ramp(0, 1, 8)] = x86.pmaddwd.256(a[ramp(0, 1, 16)], b[ramp(0, 1, 16)])
"""


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("lanes", "times"), [(1, 4), (2, 2), (3, 4), (4, 16), (8, 2)])
def test_repeated_vectors(dtype, lanes, times):
    pytest.importorskip("ml_dtypes")
    whole = lanes * times
    place = "1" if lanes == 1 else f"ramp(1, 1, {lanes})"
    function = parse(
        f"function repeated(x: {dtype}[9], out y: {dtype}[{whole}])\n"
        f"  y[ramp(0, 1, {whole})] = repeat.{times}(x[{place}])\n"
    )
    x = np.arange(9).astype(function.params[0].dtype.numpy)
    np.testing.assert_array_equal(check(function, x), np.tile(x[1 : 1 + lanes], times))


def test_indices_are_not_repeated():
    with pytest.raises(ExpressionError, match=r"repeat.2 takes 8, 16 or 32 bits, not int64"):
        call("repeat.2", 3)


def test_an_instruction_that_the_target_lacks_is_named():
    function = parse(PAIRS)
    assert "pmaddwd" in llvm.assembly(function, tc.Target("cpu", mcpu="x86-64"))
    with pytest.raises(UnsupportedError) as caught:
        llvm.emit(parse(WIDE), tc.Target("cpu", mcpu="x86-64"))
    assert str(caught.value) == "instruction 'x86.pmaddwd.256': x86-64 lacks it; x86_64 with avx2 has it"


def test_ones_own_instruction():
    meaning = lambda a, b: (a.astype(int) + b + 1) >> 1
    kinds = ("uint8x16", "uint8x16")
    instruction(
        "own.pavgb", kinds, "uint8x16", meaning, llvm="llvm.x86.sse2.pavg.b", machine="x86_64", features=((),)
    )
    head = "function mean(a: uint8[16], b: uint8[16], out c: uint8[16])\n"
    lane = "ramp(0, 1, 16)"
    wide = "(cast(int32, a[i]) + cast(int32, b[i]) + int32(1)) >> int32(1)"
    tensor_intrin(
        "own.mean",
        f"{head}  for i in 0 .. 16\n    c[i] = cast(uint8, {wide})\n",
        f"{head}  c[{lane}] = own.pavgb(a[{lane}], b[{lane}])\n",
    )
    A, B = te.placeholder((64,), "uint8", name="A"), te.placeholder((64,), "uint8", name="B")
    one = te.const(1, "int32")
    both = lambda i: (te.cast(A[i], "int32") + te.cast(B[i], "int32") + one) >> one
    s = tc.schedule([A, B, te.compute((64,), lambda i: te.cast(both(i), "uint8"), name="C")])
    _, inner = s.split("C.i", (None, 16))
    s.tensorize(inner, "own.mean")
    kernel = tc.build(s, threads=1, cache=False)
    if kernel.artifact.triple.startswith("x86_64"):
        assert "pavgb" in kernel.source("asm")
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 256, (2, 64), np.uint8)
    np.testing.assert_array_equal(kernel(a, b), (a.astype(int) + b + 1) >> 1)
