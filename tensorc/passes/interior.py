"""Loops over vectors whose body clamps or guards its indices get a second body for the interior.

    for x in 0..96 { for l in 0..16 vectorized: S(A[max(x*16 + l - 2, 0)]) }
    ->  for x in 0..96 { if x >= 1 { ... S'(A[x*16 + l - 2]) } else { ... S } }

A stencil's edges need the clamp; everywhere else it is decided, and what was a gather becomes a plain vector load. The
interior is the longest run of iterations, around the middle one, in which everything that the middle one decides is
proved to be decided alike.
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorc.arith import Domain, can_prove
from tensorc.ir.expr import Const, Expr, IfThenElse, Load, Max, Min, Select, Var, index, logical_and, logical_not
from tensorc.ir.function import Function
from tensorc.ir.stmt import For, If, Let, Stmt, Store
from tensorc.ir.walk import exprs, map_substmts, replace_body, substmts, uses, walk, walk_expr
from tensorc.passes.blocks import specialize
from tensorc.passes.common import conjuncts, entry_domain

FEW = 4  # a loop of so few iterations has no interior worth a second body


def split_interiors(function: Function) -> Function:
    """The function with a second body for the interior of each innermost loop over vectors that clamps or guards."""
    return function.with_(body=_visit(function.body, entry_domain(function)))


def _visit(stmt: Stmt, domain: Domain) -> Stmt:
    match stmt:
        case For(var, start, extent):
            if _is_over_vectors(stmt):
                return _split(stmt, domain)
            body = _visit(stmt.body, domain.bind(var, start, extent))
            return stmt if body is stmt.body else replace_body(stmt, body)
        case If(condition, then, orelse):
            inner = domain.given(condition)
            new = _visit(then, inner), None if orelse is None else _visit(orelse, domain)
            return stmt if new[0] is then and new[1] is orelse else If(condition, *new)
        case Let():
            return stmt
        case _:
            return map_substmts(stmt, lambda s: _visit(s, domain))


def _is_over_vectors(loop: For) -> bool:
    """Whether the loop has many iterations, and a vectorized loop in it that no other loop of many is around."""
    if loop.kind not in ("serial", "parallel") or type(loop.extent) is not Const or loop.extent.value <= FEW:
        return False
    below = [stmt for stmt in walk(loop.body) if type(stmt) is For]
    return any(stmt.kind == "vectorized" for stmt in below) and not any(
        stmt.kind in ("serial", "parallel") and not (type(stmt.extent) is Const and stmt.extent.value <= FEW)
        for stmt in below
    )


def _split(loop: For, domain: Domain) -> Stmt:
    if type(loop.start) is not Const or type(loop.extent) is not Const:
        return loop
    first, last = loop.start.value, loop.start.value + loop.extent.value
    middle = (first + last) // 2
    decided = [
        fact
        for condition, inner in _conditions(loop.body, domain, loop.var)
        if (fact := _decide(condition, inner, loop.var, middle)) is not None
    ]
    if not decided:
        return loop
    lo, hi = first, last
    for condition, inner in decided:
        lo = _search(middle, lo, lambda v: can_prove(condition, inner.bind(loop.var, v, middle + 1 - v)))  # noqa: B023
        hi = _search(middle, hi - 1, lambda v: can_prove(condition, inner.bind(loop.var, middle, v + 1 - middle))) + 1  # noqa: B023
    if (lo == first and hi == last) or hi - lo <= FEW:
        return loop
    interior = domain.bind(loop.var, lo, hi - lo)
    inside = specialize(loop.body, {}, interior, fresh=True)
    bounds = [loop.var >= index(lo)] if lo > first else []
    bounds += [loop.var < index(hi)] if hi < last else []
    return replace_body(loop, If(logical_and(*bounds), inside, loop.body))


def _conditions(stmt: Stmt, domain: Domain, var: Var) -> Iterator[tuple[Expr, Domain]]:
    """What the indices and guards in a statement ask about a loop's variable, with what is known there of others."""
    if type(stmt) is For:
        domain = domain.bind(stmt.var, stmt.start, stmt.extent)
    seen: dict[Expr, None] = {}
    for value in exprs(stmt):
        for e in walk_expr(value):
            match e:
                case Load(_, indices):
                    for each in indices:
                        seen.update(dict.fromkeys(_clamps(each)))
                case IfThenElse(condition) | Select(condition):
                    seen.update(dict.fromkeys(conjuncts(condition)))
    if type(stmt) is Store:
        for each in stmt.indices:
            seen.update(dict.fromkeys(_clamps(each)))
    for condition in seen:
        if uses(condition, (var,)) and not any(type(e) is Load for e in walk_expr(condition)):
            yield condition, domain
    for inner in substmts(stmt):
        yield from _conditions(inner, domain, var)


def _clamps(expr: Expr) -> list[Expr]:
    return [e.a <= e.b for e in walk_expr(expr) if isinstance(e, (Min, Max))]


def _decide(condition: Expr, domain: Domain, var: Var, at: int) -> tuple[Expr, Domain] | None:
    """The condition or its opposite, whichever is proved in iteration `at`."""
    here = domain.bind(var, at, 1)
    for fact in (condition, logical_not(condition)):
        if can_prove(fact, here):
            return fact, domain
    return None


def _search(good: int, limit: int, holds) -> int:
    """The value farthest from `good` toward `limit` for which `holds`, taken to be true of all values between."""
    if holds(limit):
        return limit
    while abs(limit - good) > 1:
        middle = (good + limit) // 2
        if holds(middle):
            good = middle
        else:
            limit = middle
    return good
