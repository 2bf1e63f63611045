"""Identities that are exact for every value: of comparisons, of integers that wrap, of floats."""

from __future__ import annotations

import math

from tensorc.dtypes import bool_, float32, float64
from tensorc.ir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    Binary,
    Compare,
    Const,
    Div,
    Expr,
    FloorDiv,
    Max,
    Min,
    Mod,
    Mul,
    Sub,
    add,
    const,
    floordiv,
    maximum,
    minimum,
    mod,
    mul,
    sub,
)  # fmt: skip

HOLDS = {
    EQ: lambda a, b: a == b,
    NE: lambda a, b: a != b,
    LT: lambda a, b: a < b,
    LE: lambda a, b: a <= b,
    GT: lambda a, b: a > b,
    GE: lambda a, b: a >= b,
}


def by_ranges(expr: Compare, a, b) -> Expr | None:
    """A comparison of two numbers of which the ranges are known, where these settle it."""
    if None in a or None in b:
        return None
    if a[1] < b[0]:
        return Const(HOLDS[type(expr)](0, 1), bool_)
    if a[0] > b[1]:
        return Const(HOLDS[type(expr)](1, 0), bool_)
    if a[1] == b[0] and type(expr) in (LE, GT):
        return Const(type(expr) is LE, bool_)
    if a[0] == b[1] and type(expr) in (GE, LT):
        return Const(type(expr) is GE, bool_)
    return None


INTEGER = {Add: add, Sub: sub, Mul: mul, FloorDiv: floordiv, Mod: mod, Min: minimum, Max: maximum}


def of_wrapping(expr: Expr) -> Expr:
    """Identities of integers modulo a power of two."""
    match expr:
        case Sub(a, b) if a == b:  # x - x  ->  0
            return const(0, expr.dtype) if expr.dtype.lanes == 1 else expr
        case Min(a, b) | Max(a, b) if a == b:  # min(x, x)  ->  x
            return a
        case Add(Add(x, Const() as a), Const() as b):  # (x + a) + b  ->  x + (a + b)
            return add(x, add(a, b))
        case Mul(Mul(x, Const() as a), Const() as b):  # (x * a) * b  ->  x * (a * b)
            return mul(x, mul(a, b))
    return expr


def of_floats(expr: Binary) -> Expr:
    """Identities of IEEE numbers, and arithmetic on two literals; each with at most the one rounding it had."""
    match expr:
        case Mul(x, Const(1.0)) | Mul(Const(1.0), x) | Div(x, Const(1.0)):  # x * 1  ->  x
            return x
        case Sub(x, Const(0.0 as zero)) if math.copysign(1, zero) > 0:  # x - 0  ->  x, for x = -0 too
            return x
        case Add(x, Const(0.0 as zero)) if math.copysign(1, zero) < 0:  # x + -0  ->  x
            return x
        case Min(x, y) | Max(x, y) if x == y:  # min(x, x)  ->  x
            return x
        case Add(Const(a), Const(b)) | Sub(Const(a), Const(b)) | Mul(Const(a), Const(b)):
            return _folded(expr, a, b)
        case Div(Const(a), Const(b)) if b != 0:
            return _folded(expr, a, b)
    return expr


_FOLD = {Add: lambda a, b: a + b, Sub: lambda a, b: a - b, Mul: lambda a, b: a * b, Div: lambda a, b: a / b}


def _folded(expr: Binary, a: float, b: float) -> Expr:
    # double precision has more than twice float32's digits, so that rounding its results again is exact
    if expr.dtype is not float32 and expr.dtype is not float64:
        return expr
    value = _FOLD[type(expr)](a, b)
    return expr if math.isnan(value) else const(value, expr.dtype)
