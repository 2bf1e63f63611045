"""Intrinsics: exact where IEEE says so, within their documented error elsewhere."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import pytest

from tensorc.codegen.llvm import assembly
from tensorc.dtypes import dtype
from tensorc.errors import ExpressionError, UnsupportedError
from tensorc.ir import Call, Var, parse, select
from tensorc.ir.intrinsic import TABLE, call
from tensorc.target import Target
from tests.codegen.jit import assert_same, check, edge_values, elementwise, pairs, run

FLOATS = ("float32", "float64", "float16", "bfloat16")
EXACT = ("sqrt", "floor", "ceil", "trunc", "round", "nearbyint", "abs", "isnan", "isfinite", "isinf")

INEXACT = sorted(
    name
    for name, intrinsic in TABLE.items()
    if name not in EXACT and not intrinsic.reduces and not intrinsic.native and intrinsic.kinds == ("float",)
)
# x86-64 has neither FMA nor rounding instructions, x86-64-v2 no FMA; both run here.
TARGETS = {name: Target("cpu", mcpu=name) for name in ("x86-64", "x86-64-v2", "x86-64-v3")}
IDS = tuple(TARGETS)


@pytest.mark.parametrize("lanes", (1, 8))
@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("name", EXACT)
def test_exact(name, kind, lanes):
    values = np.resize(edge_values(kind), 24)
    out = "bool" if name.startswith("is") else kind
    check(elementwise(lambda x: call(name, x), out, kind, count=24, lanes=lanes), values)


@pytest.mark.parametrize("lanes", (1, 8))
@pytest.mark.parametrize("kind", ("int8", "int64", "uint16"))
def test_abs_of_integers(kind, lanes):
    values = np.resize(edge_values(kind), 24)
    check(elementwise(lambda x: call("abs", x), kind, kind, count=24, lanes=lanes), values)


@pytest.mark.parametrize("lanes", (1, 8))
@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("name", INEXACT)
def test_close_to_numpy(name, kind, lanes):
    intrinsic = TABLE[name]
    generator = np.random.default_rng(1)
    low, high = {"acosh": (1, 4), "asin": (-1, 1), "acos": (-1, 1), "atanh": (-0.9, 0.9)}.get(name, (0.1, 4))
    inputs = [generator.uniform(low, high, 64).astype(dtype(kind).numpy) for _ in range(intrinsic.arity)]
    if name == "ldexp":
        inputs[1] = np.rint(inputs[1])
    out = np.zeros(64, dtype(kind).numpy)
    run(
        elementwise(
            lambda *x: call(name, *x), kind, *[kind] * intrinsic.arity, count=64, lanes=lanes
        ),
        *inputs,
        out,
    )
    expected = intrinsic.meaning(*[array.astype(np.float64) for array in inputs])
    eps = {"float32": 2.0**-23, "float64": 2.0**-52, "float16": 2.0**-10, "bfloat16": 2.0**-7}[kind]
    np.testing.assert_allclose(out.astype(np.float64), expected, rtol=4 * eps, atol=eps)


@pytest.mark.parametrize("target", (*IDS, "x86-64-v4", "neoverse-n1"))
@pytest.mark.parametrize("kind", ("float32", "float64"))
def test_nothing_is_called(kind, target):
    ours = [one for one in TABLE.items() if "float" in one[1].kinds and not (one[1].reduces or one[1].whole)]
    names = [name for name, _ in ours]

    def everything(x):
        calls = [call(name, *[x] * TABLE[name].arity) for name in names if name != "float_bits"]
        return sum([select(result, x, 0) if result.dtype.is_bool else result for result in calls], x)

    lanes = 16 if kind == "float32" else 8
    text = assembly(elementwise(everything, kind, kind, count=lanes, lanes=lanes), Target("cpu", mcpu=target))
    called = set(re.findall(r"^\s+(?:callq?|bl|jmp)\s+\*?([A-Za-z]\w*)", text, re.MULTILINE))
    assert {name for name in called if not name.startswith("tensorc_")} == set()


@pytest.mark.parametrize("lanes", (1, 8))
@pytest.mark.parametrize("kind", FLOATS)
def test_nextafter(kind, lanes):
    a, b = pairs(edge_values(kind), 8)
    out = np.zeros_like(a)
    run(elementwise(lambda x, y: call("nextafter", x, y), kind, kind, kind, count=len(a), lanes=lanes), a, b, out)
    with np.errstate(all="ignore"):
        expected = np.nextafter(a, b)
    bits = f"u{a.dtype.itemsize}"
    same = (out.view(bits) == expected.view(bits)) | (np.isnan(out) & np.isnan(expected))
    assert (same | (a == b) & (out == b)).all()


@pytest.mark.parametrize("lanes", (1, 8))
@pytest.mark.parametrize("kind", ("float16", "float32", "float64"))
def test_bits(kind, lanes):
    values = np.resize(edge_values(kind), 24)
    unsigned = f"uint{8 * values.itemsize}"
    bits = check(elementwise(lambda x: call("float_bits", x), unsigned, kind, count=24, lanes=lanes), values)
    np.testing.assert_array_equal(bits, values.view(unsigned))
    back = check(elementwise(lambda x: call("bits_float", x), kind, unsigned, count=24, lanes=lanes), bits)
    np.testing.assert_array_equal(back.view(unsigned), bits)


@pytest.mark.parametrize("target", IDS)
@pytest.mark.parametrize("kind", ("int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"))
@pytest.mark.parametrize("name", ("popcount", "clz"))
def test_bits_of_integers(name, kind, target):
    values = np.resize(edge_values(kind), 24)
    check(
        elementwise(lambda x: call(name, x), kind, kind, count=24, lanes=8), values, target=TARGETS[target]
    )


@pytest.mark.parametrize("lanes", (1, 4))
@pytest.mark.parametrize("kind", ("int8", "uint8", "int32", "int64", "uint64"))
@pytest.mark.parametrize("name", ("truncdiv", "truncmod"))
def test_division_toward_zero(name, kind, lanes):
    a, b = pairs(edge_values(kind), 4)
    check(elementwise(lambda x, y: call(name, x, y), kind, kind, kind, count=len(a), lanes=lanes), a, b)


def test_bits_of_8_make_no_float():
    with pytest.raises(ExpressionError, match="bits_float takes 16, 32 or 64 bits, not uint8"):
        call("bits_float", Var("x", "uint8"))


@pytest.mark.parametrize("target", IDS)
@pytest.mark.parametrize("kind", ("float32", "float64"))
def test_fma_rounds_once(kind, target):
    generator = np.random.default_rng(4)
    count = 4096
    numpy = dtype(kind).numpy
    a, b = (np.ldexp(generator.uniform(-1, 1, count), generator.integers(-30, 30, count)).astype(numpy) for _ in "ab")
    c = -(a * b) * generator.choice([1, 1 + 2.0**-20, 0.5, 2.0**-12, 2.0**-40, 2.0**60], count).astype(numpy)
    edges = edge_values(kind)
    a[:729], b[:729] = np.resize(np.repeat(edges, len(edges)), 729), np.resize(edges, 729)
    out = np.zeros_like(a)
    function = elementwise(lambda x, y, z: call("fma", x, y, z), kind, kind, kind, kind, count=count, lanes=8)
    run(function, a, b, c, out, target=TARGETS[target])
    with np.errstate(all="ignore"):
        expected = [fraction_fma(float(x), float(y), float(z), numpy) for x, y, z in zip(a, b, c)]
    assert_same(out, np.array(expected, numpy))


def fraction_fma(a: float, b: float, c: float, kind: np.dtype) -> float:
    plain = a * b + c
    if not np.isfinite(plain):
        return plain
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if kind == np.float64:
        return float(exact)
    near = np.float32(float(exact))  # rounded twice: its neighbours may be nearer
    if not np.isfinite(near):
        return float(near)
    candidates = [near, np.nextafter(near, np.float32(-np.inf)), np.nextafter(near, np.float32(np.inf))]
    finite = [value for value in candidates if np.isfinite(value)]
    return min(finite, key=lambda value: (abs(Fraction(float(value)) - exact), value.view(np.int32) & 1))


@pytest.mark.parametrize("lanes", (2, 5, 16, 32))
@pytest.mark.parametrize("kind", (*FLOATS, "int8", "int32", "int64", "uint8"))
@pytest.mark.parametrize("name", ("reduce_add", "reduce_mul", "reduce_min", "reduce_max"))
def test_reductions(name, kind, lanes):
    values = np.arange(lanes) % 3 - 1
    if name == "reduce_mul":
        values = np.where(np.arange(lanes) < 6, values + 2, 1)
    values = values.astype(dtype(kind).numpy)
    function = parse(f"""
function f(a: {kind}[{lanes}], out b: {kind}[1])
  b[0] = {name}(a[ramp(0, 1, {lanes})])
""")
    check(function, values)


@pytest.mark.parametrize("place", (0, 3, 15))
@pytest.mark.parametrize("name", ("reduce_min", "reduce_max"))
def test_reductions_propagate_nan(name, place):
    values = np.arange(16, dtype=np.float32)
    values[place] = np.nan
    function = parse(f"""
function f(a: float32[16], out b: float32[1])
  b[0] = {name}(a[ramp(0, 1, 16)])
""")
    assert np.isnan(check(function, values)).all()


@pytest.mark.parametrize("name", ("reduce_and", "reduce_or"))
@pytest.mark.parametrize("values", ([0] * 8, [1] * 8, [0, 1] * 4))
def test_reductions_of_bools(name, values):
    function = parse(f"""
function f(a: bool[8], out b: bool[1])
  b[0] = {name}(a[ramp(0, 1, 8)])
""")
    check(function, np.array(values, bool))


def test_an_unknown_intrinsic_is_refused():
    function = elementwise(
        lambda v: Call("warp_shuffle", (v,), v.dtype), "float32", "float32", count=1
    )
    with pytest.raises(
        UnsupportedError, match="'warp_shuffle': the LLVM code generator has no implementation"
    ):
        run(function, np.zeros(1, np.float32), np.zeros(1, np.float32))
