"""What a part of a function touches of a buffer: for each dimension the first and the last place,
symbolic in the loops outside that part and taken over the whole range of the loops inside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_fields

from tensorc.arith import Affine, IndexMap, affine
from tensorc.arith.spans import (
    Access,
    Span,
    accesses,
    block_domain,
    clamp,
    larger,
    relax,
    smaller,
    unite,
)
from tensorc.ir.expr import Buffer, Const, Expr, Load, Var, is_const
from tensorc.ir.function import Function
from tensorc.ir.stmt import Alloc, Block, BlockIter, For, Let, Seq, Stmt, Store
from tensorc.ir.walk import all_exprs, map_substmts, substitute, substmts, uses, walk, walk_expr
from tensorc.schedule.locate import (
    Place,
    all_blocks,
    blocks_below,
    constant,
    find_block,
    refuse,
    starts_at_zero,
    version_of,
)

__all__ = [
    "Access",
    "Span",
    "Spot",
    "accesses",
    "assumed",
    "block_domain",
    "buffers_read",
    "buffers_written",
    "clamp",
    "is_one_place_each",
    "keep_ranges",
    "larger",
    "loads",
    "own_buffers",
    "read_region",
    "readers",
    "refuse_late_writer",
    "relax",
    "smaller",
    "spots",
    "stores_always",
    "unite",
    "unknowns",
    "write_region",
    "writers",
]

_LARGE = 1 << 31


def read_region(place: Place, buffer: Buffer) -> tuple[Span, ...] | None:
    """What the loop or block at `place` loads of `buffer`, one span a dimension within the shape;
    None for nothing.

    The spans are over the loops around `place`: everything below it is taken as a whole.
    """
    return _region(place, buffer, lambda access: not access.is_store)


def write_region(place: Place, buffer: Buffer) -> tuple[Span, ...] | None:
    """What the loop or block at `place` stores to `buffer`; as `read_region`."""
    return _region(place, buffer, lambda access: access.is_store)


def _region(
    place: Place, buffer: Buffer, wanted: Callable[[Access], bool]
) -> tuple[Span, ...] | None:
    domain = place.domain()
    found = [access for access in accesses(place.node, buffer, domain) if wanted(access)]
    if not found:
        return None
    region = []
    for axis, extent in enumerate(buffer.shape):
        spans = [clamp(each.span(each.indices[axis]), extent, each.domain) for each in found]
        region.append(unite(spans, domain))
    return tuple(region)


def assumed(extents: Iterable[Expr]) -> tuple[int, ...]:
    """Extents as numbers, a large one for each symbolic one: a map that can be undone over a larger
    shape can be over a smaller one."""
    return tuple([constant(extent) or _LARGE for extent in extents])


def loads(stmt: Stmt, buffer: Buffer) -> int:
    """How many loads of `buffer` a statement holds."""
    return sum(type(e) is Load and e.buffer is buffer for e in all_exprs(stmt))


def buffers_read(stmt: Stmt) -> tuple[Buffer, ...]:
    """The buffers that a statement loads from, in order of the first load; none that live in it."""
    found = [e.buffer for e in all_exprs(stmt) if type(e) is Load]
    own = own_buffers(stmt)
    return tuple(dict.fromkeys([b for b in found if b not in own] if own else found))


def buffers_written(stmt: Stmt) -> tuple[Buffer, ...]:
    """The buffers that a statement stores to, in order of the first store; none that live in it."""
    found = [s.buffer for s in walk(stmt) if type(s) is Store]
    own = own_buffers(stmt)
    return tuple(dict.fromkeys([b for b in found if b not in own] if own else found))


def own_buffers(stmt: Stmt) -> frozenset[Buffer]:
    """The buffers that live in a statement, of which nothing outside knows."""
    return frozenset([b for s in walk(stmt) if type(s) is Alloc for b in s.buffers])


def stores_always(block: Block, buffer: Buffer) -> bool:
    """Whether each store to `buffer` in a block's body is made by each instance."""

    def is_sure(stmt: Stmt) -> bool:
        match stmt:
            case Store():
                return stmt.buffer is not buffer or stmt.mask is None
            case Let() | Seq() | Alloc():
                return all(map(is_sure, substmts(stmt)))
            case For(_, _, Const(extent)) if extent > 0:
                return is_sure(stmt.body)
            case Block(predicate=predicate) if is_const(predicate, True):
                return is_sure(stmt.body)
            case _:
                return buffer not in buffers_written(stmt)

    return is_sure(block.body)


@dataclass(frozen=True, slots=True)
class Spot:
    """A load or store in a block: its indices over the iterators of the block and over `loops`, those in
    its body that move it."""

    indices: tuple[Expr, ...]
    loops: tuple[For, ...]

    def is_same(self, other: Spot) -> bool:
        """Whether both are one place, but for the names of loops."""
        mine, others = self._ordered(), other._ordered()
        values = {loop.var: known.var for loop, known in zip(others, mine)}
        return (
            [loop.extent for loop in mine] == [loop.extent for loop in others]
            and tuple([substitute(each, values) for each in other.indices]) == self.indices
        )

    def _ordered(self) -> list[For]:
        """The loops, first those that are used first."""
        found = [e for each in self.indices for e in walk_expr(each)]
        order = {loop.var: next(i for i, e in enumerate(found) if e is loop.var) for loop in self.loops}
        return sorted(self.loops, key=lambda loop: order[loop.var])


def spots(block: Block, buffer: Buffer, is_store: bool) -> tuple[Spot, ...]:
    """The places of a buffer that a block loads or stores, those of blocks in it over its own iterators."""
    stmts = [stmt for part in (block.init, block.body) if part is not None for stmt in walk(part)]
    values: dict[Var, Expr] = {}
    for stmt in stmts:
        if type(stmt) is Block:
            values.update({it.var: substitute(it.binding, values) for it in stmt.iters})
    loops = [stmt for stmt in stmts if type(stmt) is For]
    if is_store:
        found = [s.indices for s in stmts if type(s) is Store and s.buffer is buffer]
    else:
        found = [e.indices for e in all_exprs(block) if type(e) is Load and e.buffer is buffer]
    spots = []
    for indices in found:
        over = tuple([substitute(each, values) for each in indices])
        moving = tuple([loop for loop in loops if any(uses(e, (loop.var,)) for e in over)])
        spots.append(Spot(over, moving))
    return tuple(spots)


def is_one_place_each(block: Block, spot: Spot) -> bool:
    """Whether different spatial points of a block store at different indices."""
    indices = spot.indices
    spatial = [it for it in block.iters if it.kind == "spatial"]
    if any(is_const(it.extent, 0) for it in spatial):  # there are no points
        return True
    if {it.var for it in spatial if not is_const(it.extent, 1)} <= set(indices):
        return True
    if not all(starts_at_zero(loop) and is_const(loop.extent) for loop in spot.loops):
        return False
    inputs, extents = unknowns(tuple(spatial), spot)
    own = {it.var for it in block.iters} | {stmt.var for stmt in walk(block) if isinstance(stmt, (For, Let))}
    return IndexMap(inputs, _from_start(indices, own)).is_injective(extents)


def _from_start(indices: Sequence[Expr], own: set[Var]) -> tuple[Expr, ...]:
    """Indices without the terms that are the same for all points of a block, whose own variables are given: without
    what a block around tells."""
    kept = []
    for form in map(affine, indices):
        terms = [term for term in form.terms if type(term[0]) is not Var or term[0] in own]
        kept.append(Affine(tuple(terms), form.constant).to_expr())
    return tuple(kept)


def unknowns(
    iters: tuple[BlockIter, ...], spot: Spot
) -> tuple[tuple[Var, ...], tuple[int, ...]]:
    """What tells an access of a block from others: its iterators, and the loops in its body."""
    inputs = (*[it.var for it in iters], *[loop.var for loop in spot.loops])
    return inputs, assumed([*[it.extent for it in iters], *[loop.extent for loop in spot.loops]])


def keep_ranges(stmt: Stmt, change: Callable[[Stmt], Stmt]) -> Stmt:
    """A statement in which `change` gives what blocks do another buffer, but not how far loops and iterators go.

    That is looked at before loops begin, where a copy that stands inside of one is not made yet: by the start of a
    reduction over nothing.
    """
    match stmt:
        case Block():
            new = change(stmt)
            assert type(new) is Block  # it is the same one with another buffer
            extents = [it.extent for it in stmt.iters]
            return replace_fields(
                new, iters=tuple([replace_fields(it, extent=e) for it, e in zip(new.iters, extents)])
            )
        case _ if substmts(stmt):
            return map_substmts(stmt, lambda inner: keep_ranges(inner, change))
        case _:
            return change(stmt)


def readers(function: Function, buffer: Buffer) -> tuple[Block, ...]:
    """The blocks that load from `buffer`, in program order."""
    return tuple([block for block in all_blocks(function) if loads(block, buffer)])


def writers(function: Function, buffer: Buffer) -> tuple[Block, ...]:
    """The blocks that store to `buffer`, in program order."""
    return tuple([block for block in all_blocks(function) if buffer in buffers_written(block)])


def refuse_late_writer(function: Function, block: Block, users: Sequence[Place], step: str) -> None:
    """Raise ScheduleError if a buffer that `block` reads may hold something else where it would run
    later, at `users`: written after it, or in later iterations of a loop that is not around those."""
    place = find_block(function, block.name)
    blocks = blocks_below(version_of(place).node)
    at = next(i for i, other in enumerate(blocks) if other is block)
    inputs = buffers_read(block)
    for later in blocks[at + 1 :]:
        for buffer in buffers_written(later):
            if buffer in inputs:
                reason = f"it reads {buffer.name!r}, which {later.name!r} changes after it"
                refuse(function, f"{step}: {reason}", later.name)
    kept = [[id(loop) for loop in user.loops] for user in users]
    left = next((x for x in place.loops if any(id(x) not in around for around in kept)), None)
    for other in blocks_below(left) if left is not None else ():
        for buffer in buffers_written(other):
            if buffer in inputs and other is not block and not gives_own_places(other, buffer):
                reason = f"it reads {buffer.name!r}, whose places {other.name!r} uses again in "
                refuse(function, f"{step}: {reason}later iterations", other.name)


def gives_own_places(block: Block, buffer: Buffer) -> bool:
    """Whether different points of a block have different places in a buffer, so that one that runs
    again writes what is there."""
    values: dict[Var, Expr] = {}
    loops: dict[Var, Expr] = {it.var: it.extent for it in block.iters if it.kind != "reduce"}
    for stmt in walk(block.body):
        if type(stmt) is For:
            loops[stmt.var] = stmt.extent
        elif type(stmt) is Block:
            values.update({it.var: substitute(it.binding, values) for it in stmt.iters})
    stores = [stmt for stmt in walk(block) if type(stmt) is Store and stmt.buffer is buffer]
    for store in stores:
        places = tuple([substitute(e, values) for e in store.indices])
        used = tuple([var for var in loops if any(uses(e, (var,)) for e in places)])
        moving = [it.var for it in block.iters if it.kind != "reduce" and not is_const(it.extent, 1)]
        if not set(moving) <= set(used):
            return False
        if not IndexMap(used, places).is_injective(assumed([loops[var] for var in used])):
            return False
    return True
