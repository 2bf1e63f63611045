"""What is known of the values of index expressions at a place in a program."""

from __future__ import annotations

from dataclasses import dataclass

from tensorc.arith.affine import linear
from tensorc.dtypes import int64
from tensorc.ir.expr import (
    And, Const, EQ, Expr, FloorDiv, GE, GT, LE, LT, Max, Min, Mod, Select, IfThenElse, Var, as_index,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Interval:
    """The integers from `lo` to `hi`, both included; None is unbounded."""

    lo: int | None
    hi: int | None


class Domain:
    """What holds at a place in a program: the ranges of variables, and conditions. Immutable."""

    __slots__ = ("facts", "ranges")

    def __init__(self, ranges=None, facts=()):
        self.ranges = ranges or {}
        self.facts = facts

    def bind(self, var: Var, start: Expr | int, extent: Expr | int) -> Domain:
        """The domain in which `var` is one of start, start + 1, ... start + extent - 1."""
        start, extent = as_index(start), as_index(extent)
        lo = bounds(start, self).lo
        hi = bounds(start + extent - 1, self).hi
        return Domain({**self.ranges, var: (lo, hi)}, self.facts)

    def given(self, condition: Expr) -> Domain:
        """The domain in which the condition holds, too."""
        if type(condition) is And:
            return self.given(condition.a).given(condition.b)
        if not isinstance(condition, (LT, LE, GT, GE, EQ)) or condition.a.dtype is not int64:
            return self
        a, b = linear(condition.a), linear(condition.b)
        ranges = dict(self.ranges)
        terms = dict(a[0])
        for atom, scale in b[0].items():
            terms[atom] = terms.get(atom, 0) - scale
        terms = {t: s for t, s in terms.items() if s}
        if len(terms) == 1:
            (atom, scale), = terms.items()
            if abs(scale) == 1:
                value = (b[1] - a[1]) * scale
                lo, hi = ranges.get(atom, (None, None))
                cls = type(condition)
                if scale < 0:
                    cls = {LT: GT, GT: LT, LE: GE, GE: LE}.get(cls, cls)
                if cls in (LT, LE, EQ):
                    new = value - (cls is LT)
                    hi = new if hi is None else min(hi, new)
                if cls in (GT, GE, EQ):
                    new = value + (cls is GT)
                    lo = new if lo is None else max(lo, new)
                ranges[atom] = (lo, hi)
        return Domain(ranges, self.facts)


def bounds(expr: Expr, domain: Domain) -> Interval:
    """The least interval found that holds every value of an integer expression."""
    lo, hi = _bounds(expr, domain)
    return Interval(lo, hi)


def _bounds(expr, domain):
    terms, constant = linear(expr)
    lo = hi = constant
    for atom, scale in terms.items():
        a, b = _atom(atom, domain)
        if scale < 0:
            a, b = b, a
        lo = None if lo is None or a is None else lo + scale * a
        hi = None if hi is None or b is None else hi + scale * b
    return lo, hi


def _atom(atom, domain):
    known = domain.ranges.get(atom)
    if known is not None:
        return known
    match atom:
        case FloorDiv(x, Const(c)) if c > 0:
            lo, hi = _bounds(x, domain)
            return None if lo is None else lo // c, None if hi is None else hi // c
        case Mod(_, Const(c)) if c > 0:
            return 0, c - 1
        case Min(a, b):
            (la, ha), (lb, hb) = _bounds(a, domain), _bounds(b, domain)
            his = [h for h in (ha, hb) if h is not None]
            return (None if la is None or lb is None else min(la, lb)), min(his, default=None)
        case Max(a, b):
            (la, ha), (lb, hb) = _bounds(a, domain), _bounds(b, domain)
            los = [h for h in (la, lb) if h is not None]
            return max(los, default=None), (None if ha is None or hb is None else max(ha, hb))
        case Select(_, a, b) | IfThenElse(_, a, b):
            (la, ha), (lb, hb) = _bounds(a, domain), _bounds(b, domain)
            return (
                None if la is None or lb is None else min(la, lb),
                None if ha is None or hb is None else max(ha, hb),
            )
    return None, None
