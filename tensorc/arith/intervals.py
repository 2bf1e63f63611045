"""Interval arithmetic: the range of one operation from the ranges of its operands.

A range is a pair (lo, hi), both included; None is unbounded. int64 is taken as exact, so its ranges may be unbounded;
other integers wrap, so a range that leaves the type is the whole type.
"""

from __future__ import annotations

from collections.abc import Callable

from tensorc.dtypes import DType, int64
from tensorc.ir.expr import (
    Add,
    BitAnd,
    BitOr,
    BitXor,
    Call,
    Cast,
    Const,
    Expr,
    FloorDiv,
    Max,
    Min,
    Mod,
    Mul,
    Neg,
    ShiftLeft,
    ShiftRight,
    Sub,
)

Range = tuple["int | None", "int | None"]
RangeOf = Callable[[Expr], Range]
UNKNOWN: Range = (None, None)


def operation(expr: Expr, range_of: RangeOf) -> Range:
    """The range of an integer or bool expression by its outermost operation."""
    if type(expr) is Const:
        return int(expr.value), int(expr.value)
    rule = _RULES.get(type(expr))
    found = UNKNOWN if rule is None else rule(expr, range_of)
    if expr.dtype is not int64:
        return within(found, expr.dtype)
    lo, hi = found  # |x| and x // d leave int64 where x is its least value
    fits = type(expr) is Mul or ((lo is None or lo >= int64.min) and (hi is None or hi <= int64.max))
    return found if fits else UNKNOWN


def within(found: Range, dtype: DType) -> Range:
    """A range of exact results as one of the dtype: the whole dtype if any of them may wrap."""
    if dtype is int64:
        return found
    lo, hi = found
    least, most = int(dtype.min) if dtype.is_int else 0, int(dtype.max)
    if lo is None or hi is None or lo < least or hi > most:
        return least, most
    return found


def hull(a: Range, b: Range) -> Range:
    """The least range that holds both."""
    lo = None if a[0] is None or b[0] is None else min(a[0], b[0])
    hi = None if a[1] is None or b[1] is None else max(a[1], b[1])
    return lo, hi


def meet(a: Range, b: Range) -> Range:
    """What lies in both."""
    lo = a[0] if b[0] is None else b[0] if a[0] is None else max(a[0], b[0])
    hi = a[1] if b[1] is None else b[1] if a[1] is None else min(a[1], b[1])
    return ordered(lo, hi)


def ordered(lo: int | None, hi: int | None) -> Range:
    """The range between bounds; where they contradict one another, nothing is evaluated, and any range is right."""
    return (lo, lo) if lo is not None and hi is not None and hi < lo else (lo, hi)


def plus(a: Range, b: Range) -> Range:
    lo = None if a[0] is None or b[0] is None else a[0] + b[0]
    hi = None if a[1] is None or b[1] is None else a[1] + b[1]
    return lo, hi


def negative(a: Range) -> Range:
    return None if a[1] is None else -a[1], None if a[0] is None else -a[0]


def times(a: Range, b: Range) -> Range:
    """The products; an unbounded side of one operand is harmless only against a zero of the other."""
    if a == (0, 0) or b == (0, 0):
        return 0, 0
    (lo, hi), (least, most) = a, b
    if lo is not None and hi is not None and least is not None and most is not None:
        corners = (lo * least, lo * most, hi * least, hi * most)
        return min(corners), max(corners)
    if lo is not None and least is not None and lo >= 0 and least >= 0:
        return lo * least, None if hi is None or most is None else hi * most
    if _nonpositive(a):
        return negative(times(negative(a), b)) if _nonnegative(b) or _nonpositive(b) else UNKNOWN
    if _nonpositive(b):
        return negative(times(a, negative(b))) if _nonnegative(a) else UNKNOWN
    return UNKNOWN


def _nonnegative(a: Range) -> bool:
    return a[0] is not None and a[0] >= 0


def _nonpositive(a: Range) -> bool:
    return a[1] is not None and a[1] <= 0


def divided(a: Range, b: Range) -> Range:
    """The floors of quotients; x // 0 is 0."""
    (lo, hi), (least, most) = a, b
    if b == (0, 0):
        return 0, 0
    if least is not None and least >= 1:
        # the quotient grows with x, and shrinks in magnitude with a growing divisor
        low = None if lo is None else lo // least if lo < 0 else 0 if most is None else lo // most
        high = None if hi is None else hi // least if hi >= 0 else -1 if most is None else hi // most
        return low, high
    if most is not None and most <= -1:
        return divided(negative(a), negative(b))
    if lo is None or hi is None:
        return UNKNOWN
    largest = max(abs(lo), abs(hi))  # |x // d| <= |x| for every integer d
    return -largest, largest


def remainder(a: Range, b: Range) -> Range:
    """The remainders, which have the divisor's sign; x % 0 is 0."""
    (lo, hi), (least, most) = a, b
    if least is not None and least >= 0:
        if least == most and least > 0 and lo is not None and hi is not None and lo // least == hi // least:
            return lo % least, hi % least
        high = None if most is None else max(most - 1, 0)
        if lo is not None and lo >= 0 and hi is not None:
            high = hi if high is None else min(high, hi)
        return 0, high
    if most is not None and most <= 0:
        return negative(remainder(negative(a), negative(b)))
    if least is None or most is None:
        return UNKNOWN
    largest = max(abs(least), abs(most)) - 1
    return -largest, largest


def _cast(expr: Cast, range_of: RangeOf) -> Range:
    if expr.value.dtype.is_float:
        return UNKNOWN
    lo, hi = range_of(expr.value)
    least, most = int64.min, int64.max
    wraps = (lo is not None and lo < least) or (hi is not None and hi > most)
    return UNKNOWN if wraps else (lo, hi)


def _bit_and(expr: BitAnd, range_of: RangeOf) -> Range:
    # clearing bits of a nonnegative number makes it no larger, whatever the other operand
    highs = [hi for lo, hi in (range_of(expr.a), range_of(expr.b)) if lo is not None and lo >= 0 and hi is not None]
    return (0, min(highs)) if highs else UNKNOWN


def _bit_or(expr: BitOr | BitXor, range_of: RangeOf) -> Range:
    (lo_a, hi_a), (lo_b, hi_b) = range_of(expr.a), range_of(expr.b)
    if lo_a is None or lo_b is None or hi_a is None or hi_b is None or lo_a < 0 or lo_b < 0:
        return UNKNOWN
    return 0, (1 << max(hi_a, hi_b).bit_length()) - 1


def _shift_right(expr: ShiftRight, range_of: RangeOf) -> Range:
    lo, hi = range_of(expr.a)
    if type(expr.b) is not Const or expr.b.value < 0:
        return hull((lo, hi), (-1, 0)) if lo is not None and hi is not None else UNKNOWN
    by = expr.b.value
    return None if lo is None else lo >> by, None if hi is None else hi >> by


def _shift_left(expr: ShiftLeft, range_of: RangeOf) -> Range:
    if type(expr.b) is not Const:
        return UNKNOWN
    by = expr.b.value
    return times(range_of(expr.a), (1 << by, 1 << by)) if 0 <= by < expr.dtype.bits - 1 else UNKNOWN


def _call(expr: Call, range_of: RangeOf) -> Range:
    if expr.name != "abs":
        return UNKNOWN
    lo, hi = range_of(expr.args[0])
    if lo is None or hi is None:
        return UNKNOWN
    largest = max(abs(lo), abs(hi))
    return (0 if lo <= 0 <= hi else min(abs(lo), abs(hi))), largest


def _min(expr: Min, range_of: RangeOf) -> Range:
    a, b = range_of(expr.a), range_of(expr.b)
    return hull(a, b)[0], meet(a, b)[1]


def _max(expr: Max, range_of: RangeOf) -> Range:
    a, b = range_of(expr.a), range_of(expr.b)
    return meet(a, b)[0], hull(a, b)[1]


_RULES: dict[type, Callable[..., Range]] = {
    Add: lambda e, range_of: plus(range_of(e.a), range_of(e.b)),
    Sub: lambda e, range_of: plus(range_of(e.a), negative(range_of(e.b))),
    Mul: lambda e, range_of: times(range_of(e.a), range_of(e.b)),
    Neg: lambda e, range_of: negative(range_of(e.value)),
    FloorDiv: lambda e, range_of: divided(range_of(e.a), range_of(e.b)),
    Mod: lambda e, range_of: remainder(range_of(e.a), range_of(e.b)),
    Min: _min,
    Max: _max,
    Cast: _cast,
    BitAnd: _bit_and,
    BitOr: _bit_or,
    BitXor: _bit_or,
    ShiftLeft: _shift_left,
    ShiftRight: _shift_right,
    Call: _call,
}
