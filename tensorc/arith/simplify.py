"""Simplification of expressions."""

from __future__ import annotations

from tensorc.arith.affine import accumulate, build, drop_zeros
from tensorc.arith.bounds import Domain, _bounds
from tensorc.dtypes import bool_, int64
from tensorc.ir.expr import (
    And, Compare, Const, Expr, FloorDiv, IfThenElse, Mod, Not, Or, Select, Var, _COMPARE,
    floordiv, logical_and, logical_not, logical_or, mod,
)  # fmt: skip
from tensorc.ir.walk import children, rebuild


def simplify(expr: Expr, domain: Domain = Domain()) -> Expr:
    """The canonical form of an expression; the same object if nothing changes."""
    new = _simplify(expr, domain)
    return expr if new == expr else new


def _simplify(expr, domain):
    if type(expr) is Const or (type(expr) is Var and expr not in domain.ranges):
        return expr
    if expr.dtype is int64:
        terms = {}
        constant = accumulate(expr, 1, terms, lambda e, s, t: _leaf(e, s, t, domain))
        return build(drop_zeros(terms), constant)
    expr = rebuild(expr, tuple([_simplify(e, domain) for e in children(expr)]))
    match expr:
        case And(a, b):
            return logical_and(a, b)
        case Or(a, b):
            return logical_or(a, b)
        case Not(a):
            return logical_not(a)
        case Select(Const(c), a, b) | IfThenElse(Const(c), a, b):
            return a if c else b
        case Compare(a, b) if a.dtype is int64:
            lo, hi = _bounds(a - b, domain)
            test = _COMPARE[type(expr).__name__]
            name = type(expr).__name__
            if lo is not None and hi is not None and lo == hi:
                return Const(test(lo, 0), bool_)
            if name in ("LT", "GE") and (hi is not None and hi < 0 or lo is not None and lo >= 0):
                return Const((hi is not None and hi < 0) == (name == "LT"), bool_)
            if name in ("GT", "LE") and (hi is not None and hi <= 0 or lo is not None and lo > 0):
                return Const((hi is not None and hi <= 0) == (name == "LE"), bool_)
            if name in ("EQ", "NE") and (hi is not None and hi < 0 or lo is not None and lo > 0):
                return Const(name == "NE", bool_)
    return expr


def _leaf(expr, scale, terms, domain):
    if type(expr) is not Var:
        expr = rebuild(expr, tuple([_simplify(e, domain) for e in children(expr)]))
    lo, hi = _bounds(expr, domain)
    if lo is not None and lo == hi:
        return lo * scale
    match expr:
        case FloorDiv(a, Const(c)) if c > 0:
            inner, constant = _parts(a)
            quotient = {t: s // c for t, s in inner.items() if s % c == 0}
            rest = build({t: s for t, s in inner.items() if s % c}, constant)
            lo, hi = _bounds(rest, domain)
            if lo is not None and hi is not None and lo // c == hi // c:
                for t, s in quotient.items():
                    terms[t] = terms.get(t, 0) + s * scale
                return lo // c * scale
        case Mod(a, Const(c)) if c > 0:
            inner, constant = _parts(a)
            rest = build({t: s for t, s in inner.items() if s % c}, constant)
            lo, hi = _bounds(rest, domain)
            if lo is not None and hi is not None and lo // c == hi // c:
                return accumulate(rest - lo // c * c, scale, terms, lambda e, s, t: t.__setitem__(e, t.get(e, 0) + s) or 0)
            expr = mod(rest, c)
    if type(expr) is FloorDiv:
        expr = floordiv(expr.a, expr.b)
    terms[expr] = terms.get(expr, 0) + scale
    return 0


def _parts(expr):
    from tensorc.arith.affine import linear

    return linear(expr)
