"""Every operation, scalar and vector, at the edges: the compiled answer is the interpreter's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorc as tc
from tensorc import te
from tensorc.codegen.llvm import emit
from tensorc.dtypes import dtype
from tensorc.ir import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    BitAnd,
    BitOr,
    BitXor,
    Buffer,
    Div,
    FloorDiv,
    For,
    Function,
    Load,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    Ramp,
    ShiftLeft,
    ShiftRight,
    Store,
    Sub,
    Var,
    broadcast,
    cast,
    const,
    index,
    interpret,
    parse,
    seq,
)
from tensorc.target import Target
from tests.codegen.jit import assert_same, check, edge_values, elementwise, pairs, run
from tests.ir.programs import exprs

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
TARGETS = {
    "host": Target.host(),
    "baseline": Target("cpu", mcpu="x86-64"),
    "avx2": Target("cpu", mcpu="x86-64-v3"),
}
RUNNABLE = [pytest.param(t, id=name) for name, t in TARGETS.items() if t.is_host]
ARITHMETIC = (Add, Sub, Mul, FloorDiv, Mod, Min, Max, BitAnd, BitOr, BitXor, ShiftLeft, ShiftRight)
COMPARISONS = (EQ, NE, LT, LE, GT, GE)


def several(operations, kind: str, out: str, lanes: int, target: Target) -> None:
    """All operations of two operands in one function, on all pairs of edge values."""
    a, b = pairs(edge_values(kind), lanes)
    buffers = [Buffer(name, (len(a),), kind) for name in "ab"]
    outs = [Buffer(f"out{number}", (len(a),), out) for number, _ in enumerate(operations)]
    i = Var("i")
    at = (Ramp(i * lanes, index(1), lanes) if lanes > 1 else i,)
    loads = [Load(buffer, at) for buffer in buffers]
    stores = [Store(result, at, operation(*loads)) for result, operation in zip(outs, operations)]
    body = For(i, index(0), index(len(a) // lanes), "serial", seq(*stores))
    function = Function("several", (*buffers, *outs), tuple(outs), (), (), body)
    expected = interpret(function, a, b)
    actual = [np.empty_like(array) for array in expected]
    run(function, a, b, *actual, target=target)
    for operation, mine, right in zip(operations, actual, expected):
        try:
            assert_same(mine, right)
        except AssertionError as error:
            raise AssertionError(f"{operation.__name__}: {error}") from None


@pytest.mark.parametrize("lanes", (1, 8))
@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("target", RUNNABLE)
def test_integer_operations(kind, lanes, target):
    several(ARITHMETIC, kind, kind, lanes, target)


@pytest.mark.parametrize("lanes", (1, 5, 16))
@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("target", RUNNABLE)
def test_float_operations(kind, lanes, target):
    several((Add, Sub, Mul, Div, Min, Max), kind, kind, lanes, target)


@pytest.mark.parametrize("lanes", (1, 16))
@pytest.mark.parametrize("kind", (*INTEGERS, *FLOATS, "bool"))
def test_comparisons(kind, lanes):
    several(
        COMPARISONS[:2] if kind == "bool" else COMPARISONS, kind, "bool", lanes, TARGETS["host"]
    )


@pytest.mark.parametrize("lanes", (1, 16))
def test_logic(lanes):
    several((And, Or), "bool", "bool", lanes, TARGETS["host"])
    values = np.resize(edge_values("bool"), 16)
    check(elementwise(Not, "bool", "bool", count=16, lanes=lanes), values)


@pytest.mark.parametrize("lanes", (1, 8))
@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("source", (*INTEGERS, *FLOATS, "bool"))
def test_casts(source, lanes, target):
    values = np.resize(edge_values(source), 24)

    kinds = (*INTEGERS, *FLOATS, "bool")
    a = Buffer("a", (24,), source)
    outs = [Buffer(f"out_{kind}", (24,), kind) for kind in kinds]
    i = Var("i")
    at = (Ramp(i * lanes, index(1), lanes) if lanes > 1 else i,)
    body = seq(*[Store(out, at, cast(Load(a, at), out.dtype)) for out in outs])
    loop = For(i, index(0), index(24 // lanes), "serial", body)
    function = Function("casts", (a, *outs), tuple(outs), (), (), loop)
    expected = interpret(function, values)
    actual = [np.empty_like(array) for array in expected]
    run(function, values, *actual, target=target)
    for kind, mine, right in zip(kinds, actual, expected):
        try:
            assert_same(mine, right)
        except AssertionError as error:
            raise AssertionError(f"to {kind}: {error}") from None


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("kind", ("float16", "bfloat16"))
def test_every_16_bit_float(kind, target):
    bits = np.arange(1 << 16, dtype=np.uint16)
    values = bits.view(dtype(kind).numpy)
    wide = np.empty(len(bits), np.float32)
    widen = elementwise(lambda x: cast(x, "float32"), "float32", kind, count=len(bits), lanes=16)
    run(widen, values, wide, target=target)
    assert_same(wide, values.astype(np.float32))
    # Between, below and above each pair of neighbours: halfway cases round to even.
    ties = wide.view(np.uint32)[:, None] + np.array(
        [0, 1, 1 << 12, (1 << 12) + 1, 1 << 15], np.uint32
    )
    singles = ties.ravel().view(np.float32)
    narrow = np.empty(len(singles), values.dtype)
    back = elementwise(lambda x: cast(x, kind), kind, "float32", count=len(singles), lanes=16)
    run(back, singles, narrow, target=target)
    with np.errstate(all="ignore"):
        assert_same(narrow, singles.astype(values.dtype))


@pytest.mark.parametrize("divisor", (1, 2, 8, 7, -1, -2, -7, 0))
@pytest.mark.parametrize("kind", ("int8", "int32", "int64"))
@pytest.mark.parametrize("lanes", (1, 4))
def test_constant_divisors(kind, divisor, lanes):
    values = np.resize(edge_values(kind), 20)
    literal = broadcast(const(divisor, kind), lanes)

    def both(x):
        return FloorDiv(x, literal) ^ Mod(x, literal)

    check(elementwise(both, kind, kind, count=20, lanes=lanes), values)


def test_indices_that_cannot_be_negative_divide_without_a_correction():
    function = parse("""
function f(out b: int64[60])
  for i in 0 .. 60
    b[i] = (i + 3) // 7 + i % 5
  for i in 0 .. 10
    b[i] = b[i] + (i - 5) // 3 + (i - 5) % 3
""")
    check(function)
    text = emit(function, TARGETS["host"])
    assert (text.count("udiv"), text.count("urem"), text.count("sdiv")) == (1, 1, 1)


MASKS = (
    "{lanes} < broadcast({edge}, 16)",
    "broadcast({edge}, 16) <= {lanes}",
    "{lanes} + broadcast(n * 16, 16) < broadcast(n + {edge}, 16)",
    "broadcast({edge}, 16) - {lanes} > {lanes}",
    "broadcast({edge}, 16) >= broadcast(9, 16) - {lanes}",
)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("edge", (-3, 0, 1, 7, 15, 16, 17, 1 << 40))
def test_comparisons_of_lane_numbers(mask, edge):
    condition = mask.format(lanes="ramp(0, 1, 16)", edge=edge)
    check(
        parse(f"""
function f(out b: bool[48])
  for n in 0 .. 3
    b[ramp(n * 16, 1, 16)] = {condition}
""")
    )


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_random_expressions(data):
    i, j = Var("i"), Var("j")
    kind = data.draw(
        st.sampled_from((dtype("int32"), dtype("uint8"), dtype("int64"), dtype("bool")))
    )
    lanes = data.draw(st.sampled_from((1, 8)))
    out = Buffer("out", (3 * 4 * lanes,), kind)
    at = (i * 4 + j) * lanes
    value = data.draw(exprs(kind, (i, j), (), 4, lanes))
    store = Store(out, (Ramp(at, index(1), lanes) if lanes > 1 else at,), value)
    inner = For(j, index(0), index(4), data.draw(st.sampled_from(("serial", "unrolled"))), store)
    check(Function("f", (out,), (out,), (), (), For(i, index(0), index(3), "serial", inner)))


@pytest.mark.parametrize("target", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("source", ["float16", "float32", "float64"])
def test_vectors_of_floats_become_the_nearest_integers(source, target):
    sizes = [2.0**n for n in (7, 8, 15, 16, 31, 32, 63, 64)]
    powers = [sign * size + more for size in sizes for more in (-1, -0.5, 0, 1) for sign in (1, -1)]
    with np.errstate(over="ignore"):
        x = np.array([*powers, 0.0, -0.0, 0.9, -0.9, 1e30, -1e30, np.inf, -np.inf, np.nan] * 2).astype(source)
    A = te.placeholder(x.shape, source, name="A")
    B = te.compute(x.shape, lambda i: te.cast(A[i], target), name="B")
    low, high = np.iinfo(target).min, np.iinfo(target).max
    exact = [0 if np.isnan(v) else (high if v > 0 else low) if np.isinf(v) else int(v) for v in x]
    expected = np.array([min(max(v, low), high) for v in exact], target)
    assert np.array_equal(tc.build([A, B], threads=1)(x), expected)
