"""Loads and stores of every shape of index, masked and not; no other element is touched."""

from __future__ import annotations

import ctypes
import mmap
import re

import numpy as np
import pytest

from tensorc.codegen.llvm import assembly, emit
from tensorc.ir import parse
from tensorc.target import Target
from tests.codegen.jit import check, run

TARGETS = [
    pytest.param(target, id=target.mcpu)
    for target in (Target.host(), Target("cpu", mcpu="x86-64-v3"), Target("cpu", mcpu="x86-64"))
    if target.is_host
]
LANES = "ramp(0, 1, 16)"
KINDS = ("float32", "float64", "int8", "int16", "uint32", "int64", "float16", "bool")


def numbers(kind: str, count: int) -> np.ndarray:
    values = np.arange(1, count + 1)
    return values % 3 == 0 if kind == "bool" else values.astype(kind)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stride", (1, -1, 2, 3, 4, 5, -2, 100))
def test_strided_loads(kind, stride, target):
    base = 0 if stride > 0 else -stride * 15
    function = parse(f"""
function f(a: {kind}[{abs(stride) * 15 + 1}], out b: {kind}[16])
  b[ramp(0, 1, 16)] = a[ramp({base}, {stride}, 16)]
""")
    check(function, numbers(kind, abs(stride) * 15 + 1), target=target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stride", (1, -1, 2, 3, 4, 7))
def test_masked_loads_and_stores(kind, stride, target):
    base = 0 if stride > 0 else 15
    at, lanes = f"ramp({base}, {stride}, 16)", LANES
    function = parse(f"""
function f(a: {kind}[106], out b: {kind}[106])
  for n in 0 .. 106
    b[n] = a[105 - n]
  for n in 0 .. 2
    b[{at}] = a[{at}] mask({lanes} < broadcast(n * 9 + 2, 16)) mask {lanes} != broadcast(n, 16)
""")
    check(function, numbers(kind, 106), target=target)


def test_masked_access_stays_inside():
    page = 4096
    memory = mmap.mmap(-1, 2 * page)
    whole = np.frombuffer(memory, np.float32)
    address = whole.ctypes.data
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + page), page, 0) == 0
    a = whole[page // 4 - 5 : page // 4]
    a[:] = range(5)
    out = np.zeros(5, np.float32)
    lanes = LANES
    function = parse(f"""
function f(a: float32[5], out b: float32[5])
  b[{lanes}] = a[{lanes}] mask({lanes} < broadcast(5, 16)) mask {lanes} < broadcast(5, 16)
""")
    run(function, a, out)
    np.testing.assert_array_equal(out, a)
    ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + page), page, 3)


@pytest.mark.parametrize("target", TARGETS)
def test_gather_and_scatter(target):
    function = parse("""
function f(p: int64[16], q: int32[16], a: float32[16], out b: float32[16], out c: float32[16])
  b[p[ramp(0, 1, 16)]] = a[cast(int64x16, q[ramp(0, 1, 16)])]
  c[p[ramp(0, 1, 16)] // broadcast(4, 16)] = a[ramp(0, 1, 16)]
""")
    generator = np.random.default_rng(0)
    p, q = generator.permutation(16), generator.integers(0, 16, 16).astype(np.int32)
    a = numbers("float32", 16)
    b, c = np.zeros(16, np.float32), np.zeros(16, np.float32)
    run(function, p, q, a, b, c, target=target)
    expected = np.zeros(16, np.float32)
    expected[p] = a[q]
    np.testing.assert_array_equal(b, expected)
    last = np.zeros(16, np.float32)
    for lane in range(16):  # of lanes that meet, the last one stays
        last[p[lane] // 4] = a[lane]
    np.testing.assert_array_equal(c, last)


def test_sums_of_ramps_are_contiguous():
    lanes = LANES
    function = parse(f"""
function f(a: float32[64], out b: float32[64])
  for i in 0 .. 4
    b[{lanes} + broadcast(i * 16, 16)] = a[broadcast(i, 16) * broadcast(16, 16) + {lanes}]
""")
    check(function, numbers("float32", 64))
    assert "gather" not in assembly(function, Target.host())


def test_alignment_follows_from_the_index():
    text = """
function f(a: float32[64] align 64, out b: float32[64] align 32)
  for i in 0 .. 2
    b[ramp(i * 16 + {offset}, 1, 16)] = a[ramp(i * 32, 1, 16)]
"""

    def alignments(offset: int) -> list[str]:
        llvm = emit(parse(text.format(offset=offset)), Target.host())
        return re.findall(r"(load|store) <16 x float>.*align (\d+)$", llvm, re.MULTILINE)

    assert alignments(0) == [("load", "64"), ("store", "32")]
    assert alignments(3) == [("load", "64"), ("store", "4")]
    assert alignments(4) == [("load", "64"), ("store", "16")]


def test_a_broadcast_index_is_one_scalar_load():
    function = parse("""
function f(a: float32[4], out b: float32[64])
  for i in 0 .. 4
    b[ramp(i * 16, 1, 16)] = a[broadcast(i, 16)]
""")
    check(function, numbers("float32", 4))
    assert "gather" not in assembly(function, Target.host())


def test_strided_parameters_and_scalars():
    function = parse("""
function f(a: float32[n, m] strides [s, 1], out b: float32[n, m], k: int64)
  for i in 0 .. n
    for j in 0 .. m
      b[i * m + j] = a[i * s + j] + cast(float32, k)
""")
    whole = np.arange(35, dtype=np.float32).reshape(5, 7)
    out = np.zeros((5, 4), np.float32)
    run(function, whole, out, scalars=(5, 4, 7, 3))
    np.testing.assert_array_equal(out, whole[:, :4] + 3)


def test_masks_known_while_unrolling_vanish():
    function = parse("""
function f(a: float32[40], out b: float32[40])
  for i in 0 .. 3 unrolled
    b[ramp(i * 16, 1, 16)] = a[ramp(i * 16, 1, 16)] mask(ramp(i * 16, 1, 16) < broadcast(40, 16)) \
mask ramp(i * 16, 1, 16) < broadcast(40, 16)
""")
    check(function, numbers("float32", 40))
    text = emit(function, Target.host())
    assert text.count("call <16 x float> @llvm.masked.load") == 1
    assert text.count("load <16 x float>") == 2
