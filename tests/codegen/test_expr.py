"""Every operation, scalar and vector, at the edges: the compiled answer is the interpreter's."""

from __future__ import annotations

import numpy as np
import pytest

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
    cast,
    index,
)
from tensorc.target import Target
from tests.codegen.jit import assert_same, check, edge_values, elementwise, pairs, run

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
    from tensorc.ir import interpret, seq

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
    from tensorc.ir import interpret, seq

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
