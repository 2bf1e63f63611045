"""Moving a producer under a loop of its consumer, where it computes just what is needed there, and
a consumer under a loop of its producer, where it computes just what is ready there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TypeGuard

from tensorc.arith import Domain, IndexMap, can_prove, simplify
from tensorc.errors import ScheduleError
from tensorc.ir.expr import (
    GE,
    GT,
    LE,
    LT,
    Buffer,
    Expr,
    Load,
    Var,
    index,
    is_const,
    logical_and,
    minimum,
)
from tensorc.ir.function import Function
from tensorc.ir.stmt import Block, BlockIter, For, Seq, Stmt, Store, annotate, seq
from tensorc.ir.walk import all_exprs, replace_body, substmts, uses, walk
from tensorc.schedule.dependence import common_sequence, conflict, fills, meeting, position, refuse_early_start
from tensorc.schedule.legality import (
    check_only_blocks,
    conjuncts,
    is_init_first,
    is_injective,
    overlap,
    runs_on_whole_domain,
)
from tensorc.schedule.locate import (
    Place,
    all_blocks,
    bind_start,
    block_places,
    blocks_below,
    find_block,
    find_loop,
    fresh,
    loop_names,
    refuse,
    remove,
    replace,
)
from tensorc.schedule.regions import (
    Access,
    Span,
    Spot,
    accesses,
    block_domain,
    buffers_read,
    buffers_written,
    is_one_place_each,
    larger,
    loads,
    readers,
    refuse_late_writer,
    relax,
    smaller,
    spots,
    unite,
    unknowns,
    writers,
)


def compute_at(function: Function, block: str, loop: str) -> Function:
    """Move a producer under a loop, just before its first consumer there, over the part that is
    needed there.

    ``for i: T[i] = f(i)`` ... ``for io: for ii: C = g(T[io*8 + ii])``
    ->  ``for io: {for T.i in 0..8: T[io*8 + T.i] = f(...); for ii: C = g(...)}``

    The part is computed anew in each iteration of `loop`. There is one new loop, named
    <block>.<iterator>, for each iterator: spatial ones run over what the consumers below `loop`
    read, reduce ones over their whole range; a loop of extent 1 is left out. Where the part may
    reach over the domain's end, the block gets a predicate and the new loop is annotated ("tail",
    "mask").

    A block that writes several buffers computes what is needed of any of them.

    Requires: the block is complete (spatial, not reading what it writes) or a reduction with its
    init; each of its points has a place of its own in each buffer, which is internal, written by it
    alone, and read only below `loop`, where no reduction that starts from it may be empty; `loop` is
    not around the block already, nor vectorized; what the block reads is not written after it.

    Raises ScheduleError where one of these does not hold.
    """
    step = f"compute_at(block {block!r}, loop {loop!r})"
    source, target = find_block(function, block), find_loop(function, loop)
    places = _movable(function, source, step)
    _check_target(function, source, target, tuple(places), step)
    inside = Place(function, (*target.path, target.node.body))
    refuse_late_writer(function, source.node, [inside], step)
    _check_points(source, target, step)

    domain = inside.domain()
    needed = _needed(source.node, places, target.node, domain)
    function = remove(source)
    nest = _regenerate(source.node, needed, domain, loop_names(function))
    body = target.node.body
    stmts = body.stmts if type(body) is Seq else (body,)
    first = next(i for i, stmt in enumerate(stmts) if any(loads(stmt, buffer) for buffer in places))
    body = seq(*stmts[:first], nest, *stmts[first:])
    return replace(find_loop(function, loop), replace_body(target.node, body))


def reverse_compute_at(function: Function, block: str, loop: str) -> Function:
    """Move a consumer under a loop of its producer, to the end of its body, over the part that is
    ready there.

    ``for io: for ii: T[io*8 + ii] = f(...)`` ... ``for i: C[i] = g(T[i])``
    ->  ``for io: {for ii: T[io*8 + ii] = f(...); for C.i in 0..8: C[io*8 + C.i] = g(...)}``

    There is one new loop for each iterator, as after `compute_at`: a spatial one runs over what the
    blocks below `loop` have written of what it reads, others over their whole range, or if that is
    not ready over a part, too: then iterations of serial loops add up one after the other.

    Requires: the block is complete (spatial, not reading what it writes) or a reduction with its
    init, and stands after the nest of `loop` in the same sequence of statements; blocks below `loop`
    write something that it reads; what is ready in all iterations is the whole that it computed;
    whatever it reads is as it was: not written later, in the nest or before the block; and
    nothing between touches what it writes. `loop` is not vectorized.

    Raises ScheduleError where one of these does not hold.
    """
    step = f"reverse_compute_at(block {block!r}, loop {loop!r})"
    source, target = find_block(function, block), find_loop(function, loop)
    _check_own(source, step)
    shared = _check_later(source, target, step)
    _check_nest(target, shared, step)
    refusal: ScheduleError | None = None
    for kinds in (("spatial",), ("spatial", "reduce"))[: 1 + _is_sum(source.node)]:
        try:
            return _with_consumer(source, target, shared, kinds, step)
        except ScheduleError as error:
            refusal = refusal or error
    assert refusal is not None  # each way was refused, the first for a simpler reason
    raise refusal


def _is_sum(block: Block) -> bool:
    """Whether a block reduces, over something, from its init on."""
    reducing = [it for it in block.iters if it.kind == "reduce"]
    return bool(reducing) and all(is_const(it.extent) and it.extent.value > 0 for it in reducing)


def _with_consumer(
    source: Place, target: Place, shared: int, kinds: tuple[str, ...], step: str
) -> Function:
    """The function with the block at the end of the loop, over the part of its iterators of these
    kinds that is ready there."""
    function, block, loop = source.function, source.node, target.node.var.name
    domain = Place(function, (*target.path, target.node.body)).domain()
    needed = _ready(block, target.node, domain, kinds)
    if needed is None:
        reason = f"no block below {loop!r} writes what {block.name!r} reads"
        refuse(function, f"{step}: {reason}", loop)
    without = remove(source)
    nest = _regenerate(block, needed, domain, loop_names(without))
    target = find_loop(without, loop)
    body = seq(target.node.body, nest)
    new = replace(target, replace_body(target.node, body))
    _check_whole(source, find_block(new, block.name), shared, kinds, step)
    _check_moved(source, find_loop(new, loop), shared, step)
    return new


def _check_own(place: Place, step: str) -> None:
    """Refuse a block whose instances depend on one another."""
    block, function = place.node, place.function
    kinds = {it.kind for it in block.iters}
    reason = "the block is neither complete nor a reduction with its init"
    if "ordered" in kinds or ("reduce" in kinds and block.init is None):
        refuse(function, f"{step}: {reason}: its instances depend on those before", block.name)
    around = {loop.var for loop in place.loops}
    for it in block.iters:
        if uses(it.extent, around):
            reason = f"the extent of its iterator {it.var.name!r} depends on loops"
            refuse(function, f"{step}: {reason}", block.name)
    stores = [stmt for stmt in walk(block) if type(stmt) is Store]
    places = {(stmt.buffer, stmt.indices) for stmt in stores}
    for e in all_exprs(block):
        if type(e) is not Load or all(stmt.buffer is not e.buffer for stmt in stores):
            continue
        if block.init is None or (e.buffer, e.indices) not in places:
            reason = f"the block reads {e.buffer.name!r}, which it writes itself"
            refuse(function, f"{step}: {reason}", block.name)


def _check_later(source: Place, target: Place, step: str) -> int:
    """The position in both paths of the sequence that holds both nests, the block's after the
    loop's."""
    function, loop = source.function, target.node
    if any(stmt is loop for stmt in source.path):
        refuse(function, f"{step}: the block is under that loop already", loop.var.name)
    shared = common_sequence(source, target)
    if shared is None:
        refuse(function, f"{step}: the block and the loop never run together", loop.var.name)
    sequence = source.path[shared]
    at, own = [position(sequence, place.path[shared + 1]) for place in (target, source)]
    if own < at:
        reason = "the block runs before that loop; it can only move to one before it"
        refuse(function, f"{step}: {reason}", source.node.name)
    for stmt in source.path[shared + 1 : -1]:
        if type(stmt) not in (For, Seq):
            reason = "the block stands under a condition, which would be lost"
            refuse(function, f"{step}: {reason}", source.node.name)
    return shared


def _check_nest(target: Place, shared: int, step: str) -> None:
    """Refuse a loop that is vectorized, or not reached in every iteration around it."""
    for stmt in target.path[shared + 1 :]:
        if type(stmt) not in (For, Seq):
            reason = "the loop stands under a condition, where the block would not always run"
            refuse(target.function, f"{step}: {reason}", target.node.var.name)
    for loop in (*target.loops, target.node):
        if loop.kind == "vectorized":
            reason = f"loop {loop.var.name!r} is vectorized; move the block before vectorizing"
            refuse(target.function, f"{step}: {reason}", loop.var.name)
    check_only_blocks(step, target.up_to(target.path[shared + 1]))


def _ready(
    block: Block, loop: For, domain: Domain, kinds: tuple[str, ...]
) -> dict[Var, _Need] | None:
    """The part of each iterator of these kinds of a consumer that reads what is written below the
    loop; None if that is nothing. Iterators that run in full are left out."""
    iters = tuple([it for it in block.iters if it.kind in kinds])
    found: dict[Var, _Need] = {}
    inside = block_domain(block, Domain())
    some = False
    for buffer in buffers_read(block):
        stores = [a for a in accesses(loop.body, buffer, domain) if a.is_store]
        writes = list({(a.indices, a.predicate): a for a in stores}.values())
        some = some or bool(writes)
        reads: dict[tuple[Expr, ...], Spot] = {}
        for spot in spots(block, buffer, is_store=False):
            indices = tuple([simplify(each, inside) for each in spot.indices])
            reads[indices] = Spot(indices, spot.loops)
        for it in iters if writes else ():
            needs = [
                _need(access, it, _solve(spot, iters, access).get(it.var))
                for spot in reads.values()
                for access in writes
            ]
            if _are_known(needs):
                need = _unite(needs, domain)
                if it.var not in found or _is_less(need, found[it.var], domain):
                    found[it.var] = need
    return found if some else None


def _is_less(a: _Need, b: _Need, domain: Domain) -> bool:
    return can_prove(a.span.extent(domain) < b.span.extent(domain), domain)


def _check_whole(
    old: Place, new: Place, shared: int, kinds: tuple[str, ...], step: str
) -> None:
    """Refuse where the moved block may leave out a point that it computed before, in an iteration
    of the loops around both nests, or computes others, which may be in a gap between those."""
    domain = Place(old.function, old.path[: shared + 2]).domain()
    outer = _loops_around(old, shared)
    spans = [_spans(place, outer, domain, kinds) for place in (old, new)]
    _check_reduced(old, outer, step)
    iters = [it for it in new.node.iters if it.kind in kinds]
    values = [it.binding for it in iters]
    loops = new.loops[outer:]
    reducing = [it.binding for it in new.node.iters if it.kind != "spatial"]
    inside = new.domain()
    known = inside
    for it in iters:
        known = known.given(it.binding >= 0).given(it.binding < it.extent)
    is_whole = all(can_prove(part, known) for part in conjuncts(new.node.predicate))
    computed = [it.binding for it in old.node.iters if it.kind in kinds]
    is_whole = is_whole and fills(computed, old.loops[outer:], old.domain()) and runs_on_whole_domain(old)
    for loop in loops:
        is_bound = any(uses(value, (loop.var,)) for value in (*values, *reducing))
        is_whole = is_whole and (is_bound or can_prove(loop.extent >= 1, domain))
    for it, before, after in zip(iters, *spans):
        last = it.extent - 1
        is_whole = is_whole and before is not None and after is not None and (
            can_prove(after.lo <= larger(before.lo, index(0), domain), domain)
            and can_prove(after.hi >= smaller(before.hi, last, domain), domain)
        )  # fmt: skip
        if is_whole and not _is_within(before, after, it, domain):
            is_whole = False
    if "reduce" in kinds:
        at = new.up_to(loops[0]) if loops else new
        is_whole = is_whole and is_injective(values, loops, inside) and is_init_first(at, new)
    if not is_whole or not fills(values, loops, inside):
        reason = f"what {new.node.name!r} can compute in all iterations is not shown to be the whole"
        refuse(old.function, f"{step}: {reason} that it computes", old.node.name)


def _check_reduced(place: Place, outer: int, step: str) -> None:
    """Refuse a block that reduces over a part of its domain in the loops inside the first `outer`."""
    reducing = [it for it in place.node.iters if it.kind == "reduce"]
    loops, domain = place.loops[outer:], place.domain()
    is_whole = fills([it.binding for it in reducing], loops, domain)
    for it, span in zip(reducing, _spans(place, outer, domain, ("reduce",))):
        is_whole = is_whole and span is not None and (
            can_prove(span.lo <= 0, domain) and can_prove(span.hi >= it.extent - 1, domain)
        )  # fmt: skip
    if not is_whole:
        reason = f"block {place.node.name!r} reduces over a part of its domain there"
        refuse(place.function, f"{step}: {reason}; other blocks or loops do the rest", place.node.name)


def _is_within(before, after, it: BlockIter, domain: Domain) -> bool:
    """Whether all that is computed now, within the domain, was computed before."""
    lo, hi = larger(after.lo, index(0), domain), smaller(after.hi, it.extent - 1, domain)
    return can_prove(lo >= before.lo, domain) and can_prove(hi <= before.hi, domain)


def _loops_around(place: Place, shared: int) -> int:
    """How many loops are around the sequence at a position of a path."""
    return sum(type(stmt) is For for stmt in place.path[:shared])


def _spans(
    place: Place, outer: int, domain: Domain, kinds: tuple[str, ...]
) -> list[Span | None]:
    """The values of the iterators of some kinds, over all loops but the first `outer` ones."""
    inside = domain
    ranges: dict[Var, Span | None] = {}
    for loop in place.loops[outer:]:
        first = relax(loop.start, ranges, inside)
        last = relax(simplify(loop.start + loop.extent - 1, inside), ranges, inside)
        ranges[loop.var] = Span(first.lo, last.hi) if first and last else None
        inside = inside.bind(loop.var, loop.start, loop.extent)
    return [relax(it.binding, ranges, inside) for it in place.node.iters if it.kind in kinds]


def _check_moved(old: Place, target: Place, shared: int, step: str) -> None:
    """Refuse where the block, now at the end of the loop `target`, runs too early, or its iterations
    may not run side by side as those of the loops around it do."""
    function, name = old.function, old.node.name
    moved = find_block(target.function, name)
    after = [block for block in blocks_below(old.path[shared + 1]) if block.name != name]
    sequence = old.path[shared]
    top = next(
        i
        for i, stmt in enumerate(substmts(sequence))
        if any(type(s) is For and s.var is target.node.var for s in walk(stmt))
    )
    for stmt in substmts(sequence)[top + 1 : position(sequence, old.path[shared + 1])]:
        after.extend(blocks_below(stmt))
    loops = (*target.loops, target.node)[_loops_around(old, shared) :]
    below = block_places(target.up_to(loops[0]))
    order = [p.node.name for p in below]
    after += [p.node for p in below[order.index(name) + 1 :]]
    problem = meeting(after, [moved.node])
    if problem is not None:
        refuse(function, f"{step}: it would run before what it must follow: {problem}", name)
    for loop in loops:
        at = target.up_to(loop)
        places = block_places(at)
        number = [p.node.name for p in places].index(name)
        others = (*places[:number], *places[number + 1 :])
        problem = conflict(at, others, places[number : number + 1])
        if problem is not None:
            refuse(function, f"{step}: {problem}", loop.var.name)
        if loop.kind not in ("serial", "unrolled"):
            problem = overlap(at, places)
            if problem is not None:
                refuse(function, f"{step}: {problem}", loop.var.name)


def _movable(function: Function, place: Place, step: str) -> dict[Buffer, Spot]:
    """The buffers that a complete or reduction block writes, which stay inside the function, and where."""
    block = place.node

    def deny(reason: str):
        refuse(function, f"{step}: {reason}", mark=block.name)

    written = buffers_written(block)
    if not written:
        deny("the block writes no buffer")
    for buffer in written:
        if buffer in function.params:
            fix = "only a block whose result stays inside the function can move"
            deny(f"the block writes the output {buffer.name!r}; {fix}")
        others = [other.name for other in writers(function, buffer) if other is not block]
        if others:
            names = ", ".join(others)
            deny(f"{buffer.name!r} is also written by {names}; move the block before decomposing it")
    places: dict[Buffer, Spot] = {}
    for buffer in written:
        places[buffer], *more = spots(block, buffer, is_store=True)
        if not all(map(places[buffer].is_same, more)):
            deny("the block stores to several places, so what a part of it computes is not known")
    kinds = {it.kind for it in block.iters}
    if "ordered" in kinds or ("reduce" in kinds and block.init is None):
        reason = "its instances depend on those before"
        deny(f"the block is neither complete nor a reduction with its init: {reason}")
    around = {loop.var for loop in place.loops}
    for it in block.iters:
        if uses(it.extent, around):
            deny(f"the extent of its iterator {it.var.name!r} depends on other iterators")
    for buffer, spot in places.items():
        stores = [s.indices for s in walk(block) if type(s) is Store and s.buffer is buffer]
        own = [e for e in all_exprs(block) if type(e) is Load and e.buffer is buffer]
        if own and (block.init is None or any(e.indices not in stores for e in own)):
            deny(f"the block reads {buffer.name!r}, which it writes itself")
        if not is_one_place_each(block, spot):
            reason = f"different points of the block may be one place of {buffer.name!r}"
            deny(f"{reason}, as in a window")
    return places


def _check_points(source: Place, target: Place, step: str) -> None:
    """Refuse a block that does not run on a box of its points, of which a part could be any box."""
    around = {loop.var for loop in (*target.loops, target.node)}
    loops = [loop for loop in source.loops if loop.var not in around]
    values = [it.binding for it in source.node.iters if it.kind == "spatial"]
    if not fills(values, loops, source.domain()) or not runs_on_whole_domain(source):
        reason = f"{source.node.name!r} is not known to run on all points between the first and the last of them"
        refuse(source.function, f"{step}: {reason}", source.node.name)


def _check_target(
    function: Function, source: Place, target: Place, buffers: tuple[Buffer, ...], step: str
) -> None:
    """Refuse a loop that cannot take the block that writes these buffers."""
    loop = target.node
    if any(stmt is loop for stmt in source.path):
        refuse(function, f"{step}: the block is under that loop already", loop.var.name)
    for around in (*target.loops, loop):
        if around.kind == "vectorized":
            reason = f"loop {around.var.name!r} is vectorized; move the block before vectorizing"
            refuse(function, f"{step}: {reason}", around.var.name)
    if all(readers(function, buffer) in ((), (source.node,)) for buffer in buffers):
        names = " or ".join([repr(buffer.name) for buffer in buffers])
        refuse(function, f"{step}: nothing reads {names}", source.node.name)
    for buffer in buffers:
        _check_consumers(function, source, target, buffer, step)


def _check_consumers(
    function: Function, source: Place, target: Place, buffer: Buffer, step: str
) -> None:
    """Refuse a loop that not all readers of a buffer lie below, behind its writer."""
    loop = target.node
    consumers = [block for block in readers(function, buffer) if block is not source.node]
    below = blocks_below(loop)
    before = all_blocks(function)
    before = before[: next(i for i, block in enumerate(before) if block is source.node)]
    for consumer in consumers:
        if any(block is consumer for block in before):
            reason = f"{consumer.name!r} reads {buffer.name!r} before the block writes it"
            refuse(function, f"{step}: {reason}", consumer.name)
        if not any(block is consumer for block in below):
            reason = f"{consumer.name!r} reads {buffer.name!r} outside of that loop"
            refuse(function, f"{step}: {reason}; all consumers must be below it", consumer.name)
        refuse_early_start(Place(function, (*target.path, target.node.body)), consumer, buffer, step)
    if loads(function.body, buffer) > loads(loop.body, buffer) + loads(source.node, buffer):
        reason = f"the bounds of a loop outside of it read {buffer.name!r}"
        refuse(function, f"{step}: {reason}", loop.var.name)


@dataclass(frozen=True, slots=True)
class _Need:
    """What is needed of an iterator: a part of `span`, nothing past `limit` if there is one."""

    span: Span
    limit: Expr | None


def _needed(
    block: Block, places: dict[Buffer, Spot], loop: For, domain: Domain
) -> dict[Var, _Need]:
    """What the accesses below the loop need of spatial iterators; those in full are left out."""
    spatial = tuple([it for it in block.iters if it.kind == "spatial"])
    found: dict[Var, list[_Need | None]] = {it.var: [] for it in spatial}
    for buffer, spot in places.items():
        for access in accesses(loop.body, buffer, domain):
            values = _solve(spot, spatial, access)
            for it in spatial:
                found[it.var].append(_need(access, it, values.get(it.var)))
    return {var: _unite(needs, domain) for var, needs in found.items() if _are_known(needs)}


def _solve(spot: Spot, iters: tuple[BlockIter, ...], access: Access) -> dict[Var, Expr]:
    """The iterators whose instance touches, at a spot, the element that an access touches, where they
    are found.

    An iterator that is an index itself is read off; otherwise the map from iterators to the stored
    place is inverted, and the access put through it, so that a remapped buffer gives back plain
    indices: (k//512*512 + k%512) is k again.
    """
    found: dict[Var, Expr] = {}
    for stored, loaded in zip(spot.indices, access.indices):
        if type(stored) is Var:
            found.setdefault(stored, loaded)
    if not all(it.var in found for it in iters):
        inputs, extents = unknowns(iters, spot)
        inverse = IndexMap(inputs, spot.indices).inverse(extents)
        if inverse is not None:
            solved = zip(inputs, inverse.apply(access.indices, access.domain))
            found = {**dict(solved), **found}
    return found


def _need(access: Access, it: BlockIter, value: Expr | None) -> _Need | None:
    """What one access needs of an iterator; None for all of it."""
    span = None if value is None else access.span(value)
    if value is None or span is None:
        return None
    value = access.over_loops(value)
    for condition in conjuncts(access.predicate):
        # a < b gives value <= value + (b - 1 - a), which is a limit if it is fixed below the loop
        match condition:
            case LT(a, b) | GT(b, a):
                limit = simplify(value + b - 1 - a, access.domain)
            case LE(a, b) | GE(b, a):
                limit = simplify(value + b - a, access.domain)
            case _:
                continue
        if access.is_fixed(limit) and not can_prove(limit >= it.extent - 1, access.domain):
            return _Need(span, limit)
    return _Need(span, None)


def _are_known(needs: list[_Need | None]) -> TypeGuard[list[_Need]]:
    return None not in needs


def _unite(needs: list[_Need], domain: Domain) -> _Need:
    span = unite([need.span for need in needs], domain)
    limits = [need.span.hi if need.limit is None else need.limit for need in needs]
    limit = reduce(lambda a, b: larger(a, b, domain), limits)
    return _Need(span, None if can_prove(limit >= span.hi, domain) else limit)


def _regenerate(block: Block, needed: dict[Var, _Need], domain: Domain, taken: set[str]) -> Stmt:
    """The block under new loops that cover what is needed."""
    loops: list[tuple[Var, Expr, bool]] = []
    iters: list[BlockIter] = []
    conditions: list[Expr] = []
    inner = domain
    for it in block.iters:
        need, limits = needed.get(it.var), [it.extent - 1]
        start: Expr = index(0)
        extent = it.extent
        if need is not None:
            limits = limits if need.limit is None else [need.limit, *limits]
            start, extent = _range(need.span, limits, domain)
        binding, var = start, None
        if not is_const(extent, 1):
            var = Var(fresh(f"{block.name}.{it.var.name}", taken))
            taken.add(var.name)
            inner = bind_start(inner, var, index(0), extent, (var,) if it.kind == "reduce" else ())
            binding = simplify(start + var, inner)
        guards = []
        if not can_prove(start >= 0, domain):
            guards.append(simplify(binding >= 0, inner))
        for limit in limits:
            if not can_prove(start + extent - 1 <= limit, domain):
                guards.append(simplify(binding < limit + 1, inner))
        if var is not None:
            loops.append((var, extent, bool(guards)))
        conditions += guards
        iters.append(BlockIter(it.var, it.extent, it.kind, binding))
    predicate = logical_and(*conditions)
    nest: Stmt = Block(
        block.name, tuple(iters), predicate, block.init, block.body, block.annotations
    )
    for var, extent, is_masked in reversed(loops):
        notes = annotate((), "tail", "mask") if is_masked else ()
        nest = For(var, index(0), extent, "serial", nest, notes)
    return nest


def _range(span: Span, limits: list[Expr], domain: Domain) -> tuple[Expr, Expr]:
    """Start and extent of what is needed; a constant extent where it can be, with a predicate for
    the rest."""
    start = index(0) if can_prove(span.lo <= 0, domain) else span.lo
    extent, *cut = [simplify(last - start + 1, domain) for last in (span.hi, *limits)]
    known = [each for each in (extent, *cut) if is_const(each)]
    if not is_const(extent) and can_prove(span.hi <= limits[-1], domain):
        return start, extent
    if known:
        return start, min(known, key=lambda each: each.value)
    return start, cut[-1] if is_const(start) else simplify(minimum(extent, cut[-1]), domain)
