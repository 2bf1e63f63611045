"""Making one block of a loop and all below it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from tensorc.arith import Affine, Domain, affine, simplify
from tensorc.dtypes import bool_
from tensorc.ir.expr import Expr, Var, const, index, is_const
from tensorc.ir.function import Function
from tensorc.ir.reducer import without_identities
from tensorc.ir.stmt import Block, BlockIter, For, Stmt, annotate
from tensorc.ir.walk import map_substmts, substitute, substitute_stmt, uses
from tensorc.schedule.legality import kinds_using
from tensorc.schedule.locate import (
    Place,
    block_places,
    constant,
    find_loop,
    fresh,
    fresh_block,
    kind_text,
    loop_names,
    refuse,
    replace,
    starts_at_zero,
)
from tensorc.schedule.primitives.domains import reiterated

TRUE = const(True, bool_)
ORDERED = "ordered"  # the annotation of a block whose own loops run in order


def blockize(function: Function, loop: str) -> tuple[Function, str]:
    """Make one block of a loop and the loops and the block below it: a tile is then one instance.

    ``for io: for ii in 0..8: block C {i = io*8 + ii: C[i] = f(i)}``, loop ii
    ->  ``for io: block C_o {i = io: for ii in 0..8: block C {i_i: 8 = ii: C[i*8 + i_i] = f(i*8 + i_i)}}``

    The new block, <block>_o, has an iterator for each one that moves outside `loop` as well, which
    counts tiles; the loops from `loop` inward and the block, whose iterators count within a tile, are in
    it. Its init starts a whole tile, in loops and a block <block>_init of their own. Steps on the loops
    and blocks in it are made there. Returns the function and the new block's name.

    Requires: the loops from `loop` inward are serial, of constant extents, each of a single iterator,
    with one block and nothing else in them; they run over a whole tile of each iterator, whose
    extent is a number of tiles; the predicate of the block does not depend on them.

    Raises ScheduleError where one of these does not hold.
    """
    return block_of(function, loop, f"blockize(loop {loop!r})")


def block_of(function: Function, loop: str, step: str, advice: str = "") -> tuple[Function, str]:
    """As `blockize`, as a part of a step; `advice` is what else helps against tails."""
    at = find_loop(function, loop)
    place = _only_block(at, step)
    node: Block = place.node
    loops = place.loops[len(at.loops) :]
    _check_loops(place, loops, step, advice)
    tiles = [_tile(place, it, loops, step) for it in node.iters]

    domain = Domain()
    name = fresh_block(function, f"{node.name}_o")
    values: dict[Var, Expr] = {}
    outer: list[BlockIter] = []
    inner: list[BlockIter] = []
    for it, tile in zip(node.iters, tiles):
        value: Expr = index(0)
        if tile.count is not None:
            var = it.var.copy()
            outer.append(BlockIter(var, tile.count, it.kind, tile.outside))
            domain = domain.bind(var, 0, tile.count)
            value = var * tile.size
        # That tiles are reduced, or come in order, is true of the instances in a tile as well, be they one.
        if tile.count is None or not is_const(tile.inside) or it.kind != "spatial":
            var = Var(f"{it.var.name}_i")
            inner.append(BlockIter(var, index(tile.size), it.kind, tile.inside))
            domain = domain.bind(var, 0, tile.size)
            value = value + var
        values[it.var] = simplify(value, domain)
    body = reiterated(node.body, values, domain)
    init = None
    if node.init is not None:
        start = reiterated(node.init, values, domain)
        init = _start_nest(function, node, loops, inner, start, name)
    within = Block(node.name, tuple(inner), TRUE, None, body, node.annotations)
    notes = annotate(without_identities(node.annotations), "tensorize", None)  # those are of the inner block
    if any("ordered" in kinds_using(node, each.var) for each in loops):
        notes = annotate(notes, ORDERED, True)
    block = Block(name, tuple(outer), node.predicate, init, _nest(loops, within), notes)
    return replace(at, block), name


def _start_nest(
    function: Function,
    node: Block,
    loops: Sequence[For],
    inner: Sequence[BlockIter],
    start: Stmt,
    name: str,
) -> Stmt:
    """The loops and the block that start a tile."""
    kept = [each for each in loops if "reduce" not in kinds_using(node, each.var)]
    copies = _copies(function, kept, node.name, f"{name}_init")
    iters = [it for it in inner if it.kind != "reduce"]
    own = {it.var: it.var.copy() for it in iters}
    bound = tuple([
        BlockIter(own[it.var], it.extent, it.kind, substitute(it.binding, copies)) for it in iters
    ])  # fmt: skip
    block = Block(fresh_block(function, f"{node.name}_init"), bound, TRUE, None, substitute_stmt(start, own))
    return _nest([For(copies[e.var], e.start, e.extent, e.kind, e.body) for e in kept], block)


def dissolved(block: Block) -> Block:
    """A block with the blocks in it as plain statements, where they have neither a predicate nor an init."""
    domain = Domain()
    for it in block.iters:
        domain = domain.bind(it.var, 0, it.extent)
    init = None if block.init is None else _unblocked(block.init, domain)
    body = _unblocked(block.body, domain)
    return Block(block.name, block.iters, block.predicate, init, body, block.annotations)


def _unblocked(stmt: Stmt, domain: Domain) -> Stmt:
    if type(stmt) is For:
        domain = domain.bind(stmt.var, stmt.start, stmt.extent)
    stmt = map_substmts(stmt, lambda inner: _unblocked(inner, domain))
    if type(stmt) is not Block or stmt.init is not None or not is_const(stmt.predicate, True):
        return stmt
    return reiterated(stmt.body, {it.var: it.binding for it in stmt.iters}, domain)


def _only_block(at: Place, step: str) -> Place:
    places = block_places(at)
    inner = places[0].path[len(at.path) - 1 : -1] if len(places) == 1 else ()
    if not inner or any(type(stmt) is not For for stmt in inner):
        count = len(places)
        reason = f"the loop must hold one block and nothing else, it holds {count} blocks"
        if count == 1:
            reason = "the loop holds more than loops around one block"
        refuse(at.function, f"{step}: {reason}", at.node.var.name)
    return places[0]


def _check_loops(place: Place, loops: Sequence[For], step: str, advice: str) -> None:
    function, node = place.function, place.node
    for each in loops:
        name = each.var.name
        if each.kind != "serial":
            reason = f"loop {name!r} is {kind_text(each)}; do this while it is serial"
            refuse(function, f"{step}: {reason}", name)
        if constant(each.extent) in (None, 0) or not starts_at_zero(each):
            refuse(function, f"{step}: the range of loop {name!r} is not constant", name)
        users = [it.var.name for it in node.iters if uses(it.binding, (each.var,))]
        if len(users) != 1 and not (not users and is_const(each.extent, 1)):
            names = ", ".join(map(repr, users)) or "no iterator"
            refuse(function, f"{step}: loop {name!r} is one of {names}, not of a single one", name)
    inside = [each.var for each in loops]
    if uses(node.predicate, inside):
        reason = "the predicate of the block depends on the loops in it"
        refuse(function, f"{step}: {reason}; choose factors that divide{advice}", node.name)


@dataclass(frozen=True, slots=True)
class _Tile:
    """An iterator as ``outside * size + inside``; without a count, it does not move outside."""

    inside: Expr
    outside: Expr
    size: int
    count: Expr | None


def _tile(place: Place, it: BlockIter, loops: Sequence[For], step: str) -> _Tile:
    function, node = place.function, place.node

    def deny(reason: str) -> NoReturn:
        refuse(function, f"{step}: the iterator {it.var.name!r} {reason}", node.name)

    extents = {each.var: constant(each.extent) or 1 for each in loops}
    form = affine(it.binding)
    mine = [(atom, factor) for atom, factor in form.terms if uses(atom, extents)]
    rest = Affine(tuple([term for term in form.terms if term not in mine]), form.constant)
    size = 1
    for atom, factor in sorted(mine, key=lambda term: term[1]):
        extent = extents.get(atom) if type(atom) is Var else None
        if extent is None or (factor != size and extent != 1):
            deny("is not a sum of multiples of the loops that fills a tile")
        size *= extent
    if uses(it.extent, extents):
        deny("has an extent that changes in the loop")
    inside = Affine(tuple(mine), 0).to_expr()
    if any(factor % size for _, factor in rest.terms) or rest.constant % size:
        deny(f"does not move by whole tiles of {size} outside the loop")
    if not rest.terms and is_const(it.extent, size) and rest.constant == 0:
        return _Tile(inside, index(0), size, None)
    count = constant(it.extent)
    if size > 1 and (count is None or count % size):
        deny(f"is not a whole number of tiles of {size} long")
    outside = Affine(tuple([(a, f // size) for a, f in rest.terms]), rest.constant // size)
    whole = it.extent if size == 1 else index((count or 0) // size)
    return _Tile(inside, outside.to_expr(), size, whole)


def _copies(function: Function, loops: Sequence[For], old: str, new: str) -> dict[Var, Var]:
    """Variables of their own for a copy of loops."""
    taken = loop_names(function)
    found: dict[Var, Var] = {}
    for each in loops:
        found[each.var] = each.var.copy(fresh(f"{new}.{each.var.name.removeprefix(f'{old}.')}", taken))
        taken.add(found[each.var].name)
    return found


def _nest(loops: Sequence[For], body: Stmt) -> Stmt:
    for each in reversed(loops):
        body = For(each.var, each.start, each.extent, each.kind, body, each.annotations)
    return body
