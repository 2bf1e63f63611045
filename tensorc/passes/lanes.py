"""Vectorized loops that reduce by more than one operation: each lane updates elements of its own.

    for k0 { for k1 in 0..8 vectorized { block C { C[i] = f(C[i], A[i, k0*8 + k1]) } } }
    ->  for l in 0..8 vectorized { L[l] = identity }
        for k0 { for k1 in 0..8 vectorized { block C { L[k1] = f(L[k1], A[i, k0*8 + k1]) } } }
        for l in 0..4 vectorized { L[l] = f(L[l], L[l + 4]) }   ... of 2, of 1
        C[i] = f(C[i], L[0])

where f is the reducer of the block, of one element or of several at once (`ir/reducer.py`). The lanes
live around the outermost reduce loop; loops of the result inside it index them as well. What has no
such form stays as it is, and runs serially. Operations such as + are left to `vectorize`.

Positions, as of `argmax`, are kept in as few bits as they need, and are not compared where lanes meet them in order
(`positions.py`); the first iteration then stands alone, as the lanes hold no position before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tensorc.arith import Domain, affine
from tensorc.dtypes import DType, int32
from tensorc.ir.empty import empty_condition
from tensorc.ir.expr import Buffer, Const, Expr, Load, Var, cast, eq, index, is_const, minimum, sub
from tensorc.ir.function import Function
from tensorc.ir.reducer import Update, update_of
from tensorc.ir.stmt import Block, BlockIter, For, Stmt, Store, seq
from tensorc.ir.walk import map_substmts, substitute, substitute_stmt, uses
from tensorc.passes.common import conjunction, conjuncts, direction, entry_domain, make_for, make_if
from tensorc.passes.positions import in_order, narrow_positions, narrowed, widened

MOST_BYTES = 8192  # of lanes around one loop; more are kept around an inner one


def reduce_in_lanes(function: Function) -> Function:
    """The function with lanes of their own for vectorized reduce loops."""
    allocs: list[Buffer] = []
    taken = {b.name for b in (*function.params, *function.allocs)}
    body = _visit(function.body, allocs, taken, entry_domain(function))
    return function.with_(body=body, allocs=(*function.allocs, *allocs)) if allocs else function


def _visit(stmt: Stmt, allocs: list[Buffer], taken: set[str], domain: Domain) -> Stmt:
    if type(stmt) is For:
        nest = _nest(stmt, domain)
        if nest is not None:
            return nest.stmt(allocs, taken)
        domain = domain.bind(stmt.var, stmt.start, stmt.extent)
    if type(stmt) is Block:
        return stmt
    return map_substmts(stmt, lambda inner: _visit(inner, allocs, taken, domain))


@dataclass(frozen=True, slots=True)
class _Nest:
    """A block in loops. `outer` stay as they are; of the `inner` ones, `tile` are loops of the result and
    `lane` is the vectorized one. `steady` are the conditions of the block that no reduce loop changes; `narrow` tells
    which elements lanes keep as int32."""

    block: Block
    update: Update
    outer: tuple[For, ...]
    inner: tuple[For, ...]
    tile: tuple[For, ...]
    lane: For
    steady: tuple[Expr, ...]
    narrow: tuple[bool, ...]

    def stmt(self, allocs: list[Buffer], taken: set[str]) -> Stmt:
        lanes = [
            self._buffer(e.buffer, int32 if narrow else e.dtype, taken)
            for e, narrow in zip(self.update.elements, self.narrow)
        ]
        allocs += lanes
        parts = (self._init(), self._start(lanes), self._main(lanes), self._end(lanes))
        return _around(self.outer, seq(*parts))

    def _buffer(self, buffer: Buffer, dtype: DType, taken: set[str]) -> Buffer:
        name, number = f"{buffer.name}.lanes", 0
        while name in taken:
            number += 1
            name = f"{buffer.name}.lanes{number}"
        taken.add(name)
        shape = [loop.extent for loop in (*self.tile, self.lane)]
        return Buffer(name, shape, dtype, alignment=64)

    def _init(self) -> Stmt:
        """What the block does at first, if any of this is the first."""
        if self.block.init is None:
            return seq()
        moving = [loop for loop in self.inner if loop not in self.tile]
        starts: dict[Var, Expr] = {loop.var: loop.start for loop in moving}
        first = [
            eq(substitute(it.binding, starts), 0) for it in self.block.iters if it.kind == "reduce"
        ]
        where = [substitute(c, starts) for c in conjuncts(self.block.predicate)]
        values = self._values()
        body = make_if(conjunction([*where, *first]), substitute_stmt(self.block.init, values))
        return self._for_each(body)

    def _start(self, lanes: Sequence[Buffer]) -> Stmt:
        lane = self.lane.var.copy()
        place = (*self._place(), lane)
        starts = [
            narrowed(const) if narrow else const
            for const, narrow in zip(self.update.identities, self.narrow)
        ]
        stores = [Store(b, place, start) for b, start in zip(lanes, starts)]
        return self._for_each(_vectors(lane, self.lane.extent, seq(*stores)))

    def _main(self, lanes: Sequence[Buffer]) -> Stmt:
        bindings = {it.var: it.binding for it in self.block.iters}
        moving = [loop for loop in self.inner if loop not in self.tile and loop is not self.lane]
        rest = in_order(self.update, moving, self.lane.var, bindings) if self._starts_at_once() else None
        if rest is None:
            return _around(self.inner, self._combining(lanes, self.update))
        first, others = self.inner[0], self.inner[1:]
        body = _around(others, self._combining(lanes, self.update))
        start = replace(first, extent=minimum(first.extent, 1), body=body)
        after = replace(first, start=first.start + 1, extent=sub(first.extent, 1))
        return seq(start, _renamed((after, *others), self._combining(lanes, rest)))

    def _starts_at_once(self) -> bool:
        """Whether the outermost loop has more than one iteration, and a lane that has any term has one in the first."""
        first = self.inner[0]
        if first is self.lane or first.kind != "serial" or is_const(first.extent, 1):
            return False
        conditions = [c for c in conjuncts(self.block.predicate) if uses(c, (first.var,))]
        return all(direction(c, first.var) < 0 for c in conditions)

    def _combining(self, lanes: Sequence[Buffer], update: Update) -> Stmt:
        """The block, which updates the lanes."""
        block, extra = self.block, []
        for loop in (*self.tile, self.lane):
            var = loop.var.copy()
            extra.append(BlockIter(var, loop.extent, "spatial", sub(loop.var, loop.start)))
        place = tuple([it.var for it in extra])
        terms = [cast(term, b.dtype) for term, b in zip(update.terms, lanes)]
        body = update.stmt([Load(b, place) for b in lanes], terms)
        iters = (*block.iters, *extra)
        return Block(block.name, iters, block.predicate, None, body, block.annotations)

    def _end(self, lanes: Sequence[Buffer]) -> Stmt:
        """Halves of the lanes combine until one is left, which updates the elements."""
        update, place = self.update, self._place()
        assert type(self.lane.extent) is Const  # `_nest` takes no other
        width: int = self.lane.extent.value
        parts: list[Stmt] = []
        while width > 1:
            half = (width + 1) // 2
            lane = self.lane.var.copy()
            mine = [Load(b, (*place, lane)) for b in lanes]
            other = [Load(b, (*place, lane + half)) for b in lanes]
            parts.append(_vectors(lane, index(width - half), update.stmt(mine, other)))
            width = half
        found = [Load(b, (*place, index(0))) for b in lanes]
        values = [
            widened(value, const) if narrow else value
            for value, const, narrow in zip(found, update.identities, self.narrow)
        ]
        last = update.stmt(update.elements, values)
        last = make_if(conjunction(self.steady), substitute_stmt(last, self._values()))
        return self._for_each(seq(*parts, last))

    def _values(self) -> dict[Var, Expr]:
        return {it.var: it.binding for it in self.block.iters if it.kind != "reduce"}

    def _place(self) -> tuple[Expr, ...]:
        return tuple([sub(loop.var, loop.start) for loop in self.tile])

    def _for_each(self, body: Stmt) -> Stmt:
        """The statement for each iteration of the loops of the result."""
        fresh = {loop.var: loop.var.copy() for loop in self.tile}
        body = substitute_stmt(body, fresh)
        for loop in reversed(self.tile):
            body = make_for(fresh[loop.var], loop.start, loop.extent, loop.kind, body)
        return body


def _around(loops: Sequence[For], body: Stmt) -> Stmt:
    for loop in reversed(loops):
        body = For(loop.var, loop.start, loop.extent, loop.kind, body, loop.annotations)
    return body


def _renamed(loops: Sequence[For], body: Stmt) -> Stmt:
    """The loops around a body, with variables of their own."""
    fresh = {loop.var: loop.var.copy() for loop in loops}
    own = [
        replace(loop, var=fresh[loop.var], start=substitute(loop.start, fresh), extent=substitute(loop.extent, fresh))
        for loop in loops
    ]
    return _around(own, substitute_stmt(body, fresh))


def _vectors(lane: Var, extent: Expr, body: Stmt) -> Stmt:
    return make_for(lane, index(0), extent, "vectorized", body)


def _nest(loop: For, domain: Domain) -> _Nest | None:
    """The nest from a loop inward, if it reduces in lanes and has this form."""
    loops: list[For] = []
    stmt: Stmt = loop
    while type(stmt) is For:
        loops.append(stmt)
        stmt = stmt.body
    lane = next((each for each in loops if each.kind == "vectorized"), None)
    if type(stmt) is not Block or lane is None or type(lane.extent) is not Const:
        return None
    kinds = [{it.kind for it in stmt.iters if uses(it.binding, (each.var,))} for each in loops]
    if kinds[loops.index(lane)] != {"reduce"} or any(len(k) > 1 or "ordered" in k for k in kinds):
        return None
    update = update_of(stmt)
    if update is None or update.operation is not None or not update.identities:
        return None
    for it in stmt.iters:
        domain = domain.bind(it.var, index(0), it.extent)
    return _placed(stmt, update, loops, kinds, lane, narrow_positions(update, domain))


def _placed(block: Block, update: Update, loops, kinds, lane: For, narrow: tuple[bool, ...]) -> _Nest | None:
    """The nest with its lanes around as many loops as there is room for."""
    assert type(lane.extent) is Const  # `_nest` takes no other
    lanes = lane.extent.value
    each = sum(e.dtype.bytes for e in update.elements) * lanes
    for at, kind in enumerate(kinds):
        if at > loops.index(lane):
            return None
        inner = tuple(loops[at:])
        tile = tuple([loop for loop, k in zip(inner, kinds[at:]) if "reduce" not in k])
        if "reduce" in kind and _fits(inner, tile, each):
            steady = _steady(block, inner, tile)
            if steady is None or (block.init is not None and not _is_first_at_start(block, inner, tile)):
                return None
            return _Nest(block, update, tuple(loops[:at]), inner, tile, lane, steady, narrow)
    return None


def _fits(inner: Sequence[For], tile: Sequence[For], size: int) -> bool:
    own = {loop.var for loop in inner}
    for loop in tile:
        if type(loop.extent) is not Const or loop.kind not in ("serial", "unrolled"):
            return False
        if uses(loop.start, own):
            return False
        size *= loop.extent.value
    return size <= MOST_BYTES


def _steady(block: Block, inner: Sequence[For], tile: Sequence[For]) -> tuple[Expr, ...] | None:
    """The conditions of the block that no reduce loop changes; None where one depends on both."""
    results = {loop.var for loop in tile}
    reducing = {loop.var for loop in inner} - results
    conditions = conjuncts(block.predicate)
    if any(uses(c, reducing) and uses(c, results) for c in conditions):
        return None
    return tuple([c for c in conditions if not uses(c, reducing)])


def _is_first_at_start(block: Block, inner: Sequence[For], tile: Sequence[For]) -> bool:
    """Whether the init runs in no iteration of the inner loops but the first of each."""
    if empty_condition(block) is not None:
        return False
    moving = {loop.var for loop in inner if loop not in tile}
    if any(not is_const(loop.start, 0) for loop in inner if loop not in tile):
        return False
    for it in block.iters:
        terms = affine(it.binding).terms if it.kind == "reduce" else ()
        if any(uses(atom, moving) and (type(atom) is not Var or scale <= 0) for atom, scale in terms):
            return False
    return True
