"""Blocks become plain statements: iterators give way to loops, predicates and `init` to branches.

    block C { spatial i : n = io*8 + ii, reduce k : m = ko, where io*8 + ii < n, init S, T }
    ->  if io*8 + ii < n { if ko == 0 { S' }  T' }

Everything is simplified by what the loops around it tell; loops of one iteration, and branches and
loops that do nothing, disappear. Conditions that a loop does not change are tested outside it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from tensorc.arith import Domain, affine, bounds, simplify
from tensorc.ir.empty import start_empty_reductions
from tensorc.ir.expr import Buffer, Expr, Load, Var, eq, index, is_const, logical_and
from tensorc.ir.function import Function
from tensorc.ir.stmt import Alloc, Block, For, If, Let, Seq, Stmt, Store, annotation, seq
from tensorc.ir.walk import is_nest, is_sized, map_exprs, map_substmts, rewrite_stmts, substitute, variables
from tensorc.passes.common import NOTHING, as_update, entry_domain, make_for, make_if

Values = Mapping[Var, Expr]


def lower_blocks(function: Function) -> Function:
    """The function without blocks."""
    function = start_empty_reductions(function)
    sizes = {*function.scalars, *[v for p in function.params for e in p.shape for v in variables(e)]}
    found: dict[Buffer, None] = {}
    body = _without_buffers(function.body, sizes, found)
    function = function.with_(allocs=(*function.allocs, *found))
    return function.with_(body=specialize(body, {}, entry_domain(function)))


def _without_buffers(stmt: Stmt, sizes: Collection[Var], found: dict[Buffer, None]) -> Stmt:
    """A statement without the buffers that live in what a block does, where that is a nest of blocks: they are placed
    as others are, as near to their use and as small as can be."""
    if type(stmt) is For and stmt.kind in ("vectorized", "thread"):
        return stmt  # each lane or thread has its own
    stmt = map_substmts(stmt, lambda inner: _without_buffers(inner, sizes, found))
    if type(stmt) is not Block:
        return stmt
    nest = stmt.body
    if type(nest) is not Alloc or not is_nest(nest) or not is_sized(nest, sizes):
        return stmt
    found.update(dict.fromkeys(nest.buffers))
    return replace(stmt, body=nest.body)


def specialize(stmt: Stmt, values: Values, domain: Domain, fresh: bool = False) -> Stmt:
    """A statement with variables replaced, and simplified by what holds around it.

    `fresh` gives its loops new variables, so that the result may stand beside the original.
    """
    return _Specializer(fresh).visit(stmt, values, domain)


class _Specializer:
    def __init__(self, fresh: bool):
        self.fresh = fresh

    def visit(self, stmt: Stmt, values: Values, domain: Domain) -> Stmt:
        match stmt:
            case Store():
                return self._store(stmt, values, domain)
            case Seq(stmts):
                return seq(*[self.visit(s, values, domain) for s in stmts])
            case For():
                return self._loop(stmt, values, domain)
            case If(condition, then, orelse):
                return self._branch(
                    _change(condition, values, domain), then, orelse, values, domain
                )
            case Block():
                return self._block(stmt, values, domain)
            case Let(var, value, body):
                value = _change(value, values, domain)
                if not self.fresh:
                    return Let(var, value, self.visit(body, values, domain))
                copy = var.copy()
                return Let(copy, value, self.visit(body, {**values, var: copy}, domain))
            case _:
                stmt = map_exprs(stmt, lambda e: _change(e, values, domain))
                return map_substmts(stmt, lambda s: self.visit(s, values, domain))

    def _store(self, store: Store, values: Values, domain: Domain) -> Store:
        """An update stays one, since later passes know it by its form: of integers, `C * (A + 1)`
        would become `C*A + C`."""
        indices = tuple([_change(e, values, domain) for e in store.indices])
        mask = None if store.mask is None else _change(store.mask, values, domain)
        update = as_update(store)
        if update is None:
            value = _change(store.value, values, domain)
            return Store(store.buffer, indices, value, mask, store.stream)
        operation, term = update
        old = Load(store.buffer, indices, mask)
        value = operation(old, _change(term, values, domain))
        return Store(store.buffer, indices, value, mask, store.stream)

    def _loop(self, loop: For, values: Values, domain: Domain) -> Stmt:
        start = _change(loop.start, values, domain)
        extent = _change(loop.extent, values, domain)
        var = loop.var
        if is_const(extent, 1) and loop.kind != "thread" and annotation(loop, "tail") != "cut":
            return self.visit(loop.body, {**values, var: start}, domain)
        if is_const(extent) and extent.value <= 0:
            return NOTHING
        if self.fresh:
            var = var.copy()
            values = {**values, loop.var: var}
        body = self.visit(loop.body, values, domain.bind(var, start, extent))
        return make_for(var, start, extent, loop.kind, body, loop.annotations)

    def _branch(
        self, condition: Expr, then: Stmt, orelse: Stmt | None, values: Values, domain: Domain
    ) -> Stmt:
        if is_const(condition):
            taken = then if condition.value else orelse
            return NOTHING if taken is None else self.visit(taken, values, domain)
        then = self.visit(then, values, domain.given(condition))
        return make_if(
            condition, then, None if orelse is None else self.visit(orelse, values, domain)
        )

    def _block(self, block: Block, values: Values, domain: Domain) -> Stmt:
        condition = _change(block.predicate, values, domain)
        if is_const(condition, False):
            return NOTHING
        inner = domain if is_const(condition) else domain.given(condition)
        bound = {it.var: _change(it.binding, values, inner) for it in block.iters}
        values = {**values, **bound}
        body = self.visit(block.body, values, inner)
        if annotation(block, "stream"):
            body = rewrite_stmts(body, _streamed)
        if block.init is not None:
            first = logical_and(
                *[_is_first(bound[it.var], inner) for it in block.iters if it.kind == "reduce"]
            )
            body = seq(self._branch(first, block.init, None, values, inner), body)
        return make_if(condition, body)


def _change(expr: Expr, values: Values, domain: Domain) -> Expr:
    return simplify(substitute(expr, values), domain)


def _streamed(stmt: Stmt) -> Stmt | None:
    return replace(stmt, stream=True) if type(stmt) is Store else None


def _is_first(binding: Expr, domain: Domain) -> Expr:
    """binding == 0; where it is a sum of terms that are never negative, each of them is 0."""
    form = affine(binding)
    if form.constant == 0 and all(
        scale > 0 and _never_negative(atom, domain) for atom, scale in form.terms
    ):
        return logical_and(*[simplify(eq(atom, index(0)), domain) for atom, _ in form.terms])
    return simplify(eq(binding, index(0)), domain)


def _never_negative(expr: Expr, domain: Domain) -> bool:
    lo = bounds(expr, domain).lo
    return lo is not None and lo >= 0
