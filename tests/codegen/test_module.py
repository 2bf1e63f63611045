"""The machine code: the microkernel, what is exported, and code for other machines."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tensorc.codegen.llvm import assembly, compile, emit, optimize
from tensorc.ir import interpret, parse
from tensorc.target import Target
from tests.codegen.jit import elementwise, run

_TILE = """
function tile(A: float32[8, 64], B: float32[64, 48] align 64, out C: float32[8, 48])
  alloc acc: float32[384] @local
    for i in 0 .. 8 unrolled
      for v in 0 .. {vectors} unrolled
        acc[{at}] = broadcast(float32(0), {lanes})
    for k in 0 .. 64
      for i in 0 .. {rows} unrolled
        for v in 0 .. {vectors} unrolled
          acc[{at}] = acc[{at}] + broadcast(A[i * 64 + k], {lanes}) * B[{column}]
    for i in 0 .. 8 unrolled
      for v in 0 .. {vectors} unrolled
        C[{at}] = acc[{at}]
"""


def tile(lanes: int, rows: int, vectors: int):
    at = f"ramp(i * 48 + v * {lanes}, 1, {lanes})"
    column = f"ramp(k * 48 + v * {lanes}, 1, {lanes})"
    return parse(_TILE.format(lanes=lanes, rows=rows, vectors=vectors, at=at, column=column))


@pytest.mark.parametrize(
    ("mcpu", "lanes", "rows", "vectors", "register"),
    [
        ("znver4", 16, 8, 3, "zmm"),
        ("skylake-avx512", 16, 8, 3, "zmm"),
        ("x86-64-v3", 8, 6, 2, "ymm"),
    ],
)
def test_the_microkernel_stays_in_registers(mcpu, lanes, rows, vectors, register):
    text = assembly(tile(lanes, rows, vectors), Target("cpu", mcpu=mcpu))
    loop = _hottest_loop(text)
    assert len(re.findall(rf"vfmadd\d+ps\s.*%{register}", loop)) == rows * vectors
    assert "%rsp" not in loop and "%rbp" not in loop
    assert len(re.findall(rf"vmovaps\s+-?\d*\(%r\w+\S*\), %{register}", loop)) <= vectors
    assert not re.search(rf"%{register}\d+, -?\d*\(", loop), "a store in the loop"


def _hottest_loop(text: str) -> str:
    """The lines between the label of the loop with most FMAs and the jump to it."""
    loops = re.findall(r"^(\.LBB\w+):\n(.*?)\tj\w+\t\1$", text, re.DOTALL | re.MULTILINE)
    return max([body for _, body in loops], key=lambda body: body.count("vfmadd"))


def test_the_microkernel_is_right():
    function = tile(16, 8, 3)
    generator = np.random.default_rng(0)
    a = generator.integers(-8, 8, (8, 64)).astype(np.float32)
    b = generator.integers(-8, 8, (64, 48)).astype(np.float32)
    c = np.zeros((8, 48), np.float32)
    aligned = np.zeros(64 * 48 + 16, np.float32)
    aligned = aligned[-aligned.ctypes.data % 64 // 4 :][: b.size].reshape(b.shape)
    aligned[:] = b
    run(function, a, aligned, c)
    np.testing.assert_array_equal(c, a @ b)
    np.testing.assert_array_equal(interpret(function, a, b), c)


@pytest.mark.parametrize("kind", ("float16", "bfloat16"))
@pytest.mark.parametrize("mcpu", ("znver4", "x86-64-v3", "x86-64", "cortex-a72"))
def test_16_bit_floats_call_no_helpers(kind, mcpu):
    function = elementwise(lambda a, b: a * b + a, kind, kind, kind, count=64, lanes=16)
    text = assembly(function, Target("cpu", mcpu=mcpu))
    called = set(re.findall(r"\b(?:callq?|bl|jmp)\s+([A-Za-z_]\S*)", text))
    assert {name for name in called if not name.startswith(".L")} <= {"tensorc_elementwise.body"}


def test_only_the_entry_is_exported():
    function = parse("""
function f(a: float32[8], out b: float32[8])
  for i in 0 .. 8 parallel
    check a[i] < float32(9), i, "big"
    b[i] = a[i]
""")
    text = assembly(function, Target.host())
    assert re.findall(r"\.globl\s+(\S+)", text) == ["tensorc_f"]
    assert compile(function, Target.host(), flops=0, bytes=0).code.startswith(b"\x7fELF")


def test_optimize_gives_text_again():
    function = tile(16, 8, 3)
    before = emit(function, Target.host())
    after = optimize(before, Target.host())
    assert "alloca" in before and "alloca" not in after


@pytest.mark.parametrize("mcpu", ("cortex-a72", "neoverse-v1", "x86-64"))
def test_code_for_other_machines(mcpu):
    target = Target("cpu", mcpu=mcpu)
    assert compile(tile(16, 8, 3), target, flops=0, bytes=0).triple == target.triple
