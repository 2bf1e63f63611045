"""Whether a step keeps the meaning of a nest: read off the bindings of blocks and the elements that
they touch.

What is not proved is refused: every answer here is "yes, always" or "not known".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tensorc.arith import Affine, Domain, affine, bounds, can_prove, simplify
from tensorc.ir.empty import starting_loops
from tensorc.ir.expr import (
    And,
    Buffer,
    Const,
    Expr,
    FloorDiv,
    Load,
    Min,
    Mod,
    Var,
    index,
    is_const,
    logical_and,
)  # fmt: skip
from tensorc.ir.reducer import update_of
from tensorc.ir.stmt import (
    Barrier,
    Block,
    BlockIter,
    Check,
    Evaluate,
    For,
    If,
    Let,
    Stmt,
    Store,
    While,
)  # fmt: skip
from tensorc.ir.walk import (
    all_exprs,
    exprs,
    substitute,
    substmts,
    uses,
    variables,
    walk,
    walk_expr,
)  # fmt: skip
from tensorc.schedule.locate import (
    Place,
    all_blocks,
    block_places,
    blocks_below,
    constant,
    refuse,
    starts_at_zero,
)  # fmt: skip
from tensorc.schedule.regions import Span, clamp, own_buffers, relax, stores_always

CONCURRENT = ("parallel", "thread")  # kinds of loops whose iterations run side by side, in no vectors


@dataclass(frozen=True, slots=True)
class Touch:
    """A load or store of a block, its indices over the loops around the block and over `local`, the
    loops and lets in its body; `domain` is what is known of the loops, `inner` are those in its
    body that move the indices."""

    block: Place
    domain: Domain
    local: frozenset[Var]
    buffer: Buffer
    indices: tuple[Expr, ...]
    is_store: bool
    inner: tuple[For, ...] = ()


# What a block writes that checks, and a block reads whose indices or ranges come from data: so the
# latter never runs before the former.
CHECKS = Buffer("checks", (1,), "bool")


def stored(block: Block) -> set[Buffer]:
    """The buffers that a block writes; `CHECKS` if it checks something."""
    stmts = [stmt for part in _parts(block) for stmt in walk(part)]
    found = {stmt.buffer for stmt in stmts if type(stmt) is Store} - own_buffers(block)
    return found | {CHECKS} if any(type(stmt) is Check for stmt in stmts) else found


def loaded(block: Block) -> set[Buffer]:
    """The buffers that a block reads, be it for the extents of its iterators; `CHECKS` if what it
    touches depends on data."""
    found = {expr.buffer for expr in all_exprs(block) if type(expr) is Load} - own_buffers(block)
    return found | {CHECKS} if _is_by_data(block) else found


def _parts(block: Block) -> tuple[Stmt, ...]:
    return (block.body,) if block.init is None else (block.init, block.body)


def _is_by_data(block: Block) -> bool:
    """Whether a place that the block touches, or how often it does, is loaded."""
    places = [it.extent for it in block.iters]
    for part in _parts(block):
        places += [index for s in walk(part) if type(s) is Store for index in s.indices]
        places += [index for e in all_exprs(part) if type(e) is Load for index in e.indices]
    return _loads(*places)


def is_plain(block: Block) -> bool:
    """Whether an instance may run again, at any time: it only writes values that no instance of
    the block reads."""
    return (
        block.init is None
        and all(it.kind == "spatial" for it in block.iters)
        and not stored(block) & loaded(block)
    )


def is_reduction(block: Block) -> bool:
    """Whether some iterator of the block reduces."""
    return any(it.kind == "reduce" for it in block.iters)


def iters_using(block: Block, var: Var) -> tuple[BlockIter, ...]:
    """The iterators of a block that a loop is bound to."""
    return tuple([it for it in block.iters if it.binding is var or uses(it.binding, (var,))])


def kinds_using(block: Block, var: Var) -> set[str]:
    """The kinds of the iterators that a loop is bound to."""
    return {it.kind for it in iters_using(block, var)}


# Which loops are told apart by the values of some expressions.


def is_injective(values: Iterable[Expr], loops: Sequence[For], domain: Domain) -> bool:
    """Whether iterations of `loops` with equal `values` are the same iteration, the loops around
    them being fixed."""
    moving = {loop.var for loop in loops if not _runs_once(loop, domain)}
    if not moving:
        return True
    known: set[Expr] = set()
    for value in values:
        known |= _digits(value, moving, domain)
    return _all_known(moving, known, domain)


def _runs_once(loop: For, domain: Domain) -> bool:
    """Whether a loop has one iteration at most."""
    most = bounds(loop.extent, domain).hi
    return most is not None and most <= 1


def _digits(value: Expr, moving: set[Var], domain: Domain) -> set[Expr]:
    """The terms of a value that it determines: all of them where each factor exceeds the range
    of the lesser terms."""
    form = affine(value)
    terms = sorted(
        [(abs(factor), i) for i, (atom, factor) in enumerate(form.terms) if uses(atom, moving)]
    )
    for position in range(1, len(terms)):
        lesser = Affine(tuple([form.terms[i] for _, i in terms[:position]]), 0)
        if not _is_narrower(lesser.to_expr(), terms[position][0], domain):
            return set()
    return {form.terms[i][0] for _, i in terms}


def _is_narrower(expr: Expr, width: int, domain: Domain) -> bool:
    """Whether all values of `expr` differ by less than `width`."""
    interval = bounds(expr, domain)
    return interval.lo is not None and interval.hi is not None and interval.hi - interval.lo < width


def _all_known(
    wanted: set[Var], known: set[Expr], domain: Domain, moving: set[Var] | None = None
) -> bool:
    """Whether the values `known` determine some of the variables that are `moving`, or all: `x // c` with
    `x % c` give x, and x its digits."""
    moving = wanted if moving is None else moving
    while not wanted <= known:
        found = {expr for expr in _recombined(known, domain) if expr not in known}
        for expr in tuple(found):
            found |= _digits(expr, moving, domain)
        if found <= known:
            return False
        known = known | found
    return True


def _recombined(known: set[Expr], domain: Domain) -> Iterator[Expr]:
    for expr in known:
        if type(expr) is Mod and simplify(FloorDiv(expr.a, expr.b), domain) in known:
            yield expr.a


# What the iterations of one loop touch.


def touches(
    places: Iterable[Place], buffers: Collection[Buffer] | None = None
) -> tuple[Touch, ...]:
    """The loads and stores of blocks, of these buffers only if they are given."""
    return tuple([touch for place in places for touch in _touches(place, buffers)])


def _touches(place: Place, wanted: Collection[Buffer] | None) -> Iterator[Touch]:
    block = place.node
    values = {it.var: it.binding for it in block.iters}
    domain = place.domain()

    def at(indices) -> tuple[Expr, ...]:
        return tuple([simplify(substitute(index, values), domain) for index in indices])

    own = own_buffers(block)

    def is_wanted(buffer: Buffer) -> bool:
        return (wanted is None or buffer in wanted) and buffer not in own

    for buffers, is_store in ((stored(block), True), (loaded(block), False)):
        if CHECKS in buffers and is_wanted(CHECKS):
            yield Touch(place, domain, frozenset(), CHECKS, (index(0),), is_store)
    for root in exprs(block):
        for expr in walk_expr(root):
            if type(expr) is Load and is_wanted(expr.buffer):
                yield Touch(place, domain, frozenset(), expr.buffer, expr.indices, False)
    for part in _parts(block):
        stmts = list(walk(part))
        for stmt in stmts:
            if type(stmt) is Block:
                values.update({it.var: substitute(it.binding, values) for it in stmt.iters})
        local = frozenset([stmt.var for stmt in stmts if isinstance(stmt, (For, Let))])
        inside = domain
        for stmt in stmts:
            if type(stmt) is For:
                start, extent = substitute(stmt.start, values), substitute(stmt.extent, values)
                inside = inside.bind(stmt.var, start, extent)
        loops = [stmt for stmt in stmts if type(stmt) is For]
        found = [(s.buffer, s.indices, True) for s in stmts if type(s) is Store]
        found += [(e.buffer, e.indices, False) for e in all_exprs(part) if type(e) is Load]
        for buffer, indices, is_store in found:
            if is_wanted(buffer):
                places = at(indices)
                inner = tuple([x for x in loops if any(uses(e, (x.var,)) for e in places)])
                yield Touch(place, inside, local, buffer, places, is_store, inner)


def check_iterations_apart(step: str, place: Place, places: Sequence[Place]) -> None:
    """Refuse where an iteration of the loop at `place` may touch what another one writes.

    Several iterations may write the same value to one element; that is not refused.
    """
    check_only_blocks(step, place)
    problem = overlap(place, places)
    if problem is not None:
        refuse(place.function, f"{step}: {problem}", place.node.var.name)


def overlap(place: Place, places: Sequence[Place]) -> str | None:
    """What an iteration of the loop at `place` may touch that another one writes; None if nothing."""
    places = [p for p in places if not never_runs(p.node)]
    writes = [stored(p.node) for p in places]
    reads = [loaded(p.node) for p in places]
    for buffer in dict.fromkeys([buffer for written in writes for buffer in written]):
        users = [p for p, w, r in zip(places, writes, reads) if buffer in w or buffer in r]
        if len(users) == 1 and is_plain(users[0].node):
            continue
        found = [touch for touch in touches(users) if touch.buffer is buffer]
        if len(users) == 1 and _touches_own(found) and _splits_domain(place, users[0]):
            continue
        if _is_private(place, buffer, users, found) or splits_buffer(place, _meeting(place, found)):
            continue
        message = (
            f"iterations of the loop may touch the same elements of buffer {buffer.name!r}, which"
        )
        writer = next(p.node.name for p in users if buffer in stored(p.node))
        return f"{message} block {writer!r} writes"
    return None


def never_runs(block: Block) -> bool:
    """Whether a block has no point; one without reduce points alone still runs its init."""
    extents = [it.extent for it in block.iters if it.kind == "spatial"]
    return any([type(extent) is Const and extent.value <= 0 for extent in extents])


def _meeting(place: Place, found: Sequence[Touch]) -> Sequence[Touch]:
    """The touches without the loads that, for what the loops around `place` are, lie apart from
    all that is stored: `S[t - 1, i]` beside `S[t, i]`."""
    writes = [touch for touch in found if touch.is_store]
    return [
        touch
        for touch in found
        if touch.is_store or not all(_never_meet(place, touch, write) for write in writes)
    ]


def _never_meet(place: Place, read: Touch, write: Touch) -> bool:
    fixed = {loop.var for loop in place.loops}
    for mine, other in zip(read.indices, write.indices):
        form = affine(mine - other)
        known = variables(mine) | variables(other)
        if not form.terms and form.constant != 0 and known <= fixed and not _loads(mine, other):
            return True
    return False


def _loads(*indices: Expr) -> bool:
    return any(type(e) is Load for expr in indices for e in walk_expr(expr))


def _touches_own(found: Sequence[Touch]) -> bool:
    """Whether an instance touches only one element: where it writes, it reads."""
    return all(touch.indices == found[0].indices for touch in found)


def _splits_domain(place: Place, user: Place) -> bool:
    """Whether different iterations run different spatial points of a block."""
    block, loop = user.node, place.node
    inner = [
        each
        for each in user.loops[len(place.loops) + 1 :]
        if "spatial" in kinds_using(block, each.var)
    ]
    values = [it.binding for it in block.iters if it.kind == "spatial"]
    return is_injective(values, (loop, *inner), _inside(user))


def _inside(place: Place) -> Domain:
    domain = place.domain()
    return domain if is_const(place.node.predicate) else domain.given(place.node.predicate)


def splits_buffer(
    place: Place, found: Sequence[Touch], around: frozenset[Var] = frozenset()
) -> bool:
    """Whether different iterations touch different parts of a buffer: in some dimensions every
    index is `sum of factor * term of the loop + rest`, with the same terms, and the rest stays
    in a window below the factors. The loops `around` the place count as if they were in it."""
    written = {touch.buffer for touch in found if touch.is_store}
    if any(e.buffer in written for touch in found for e in _loads_of(touch)):
        return False
    var = place.node.var
    if constant(place.node.extent) in (0, 1):
        return True
    domain = place.domain().bind(var, place.node.start, place.node.extent)
    known: set[Expr] = set()
    for dimension in range(len(found[0].indices)):
        known |= _slices(place, found, dimension, domain, around)
        if var in known:
            return True
    return bool(known) and _all_known({var}, known, domain)


def _loads_of(touch: Touch) -> list[Load]:
    return [e for expr in touch.indices for e in walk_expr(expr) if type(e) is Load]


def _slices(
    place: Place, found: Sequence[Touch], dimension: int, domain: Domain, around: frozenset[Var]
) -> set[Expr]:
    var, depth = place.node.var, len(place.loops) + 1
    windows: list[tuple[int, int]] = []
    shapes = set()
    for touch in found:
        inner = touch.local.union(around, [loop.var for loop in touch.block.loops[depth:]])
        form = affine(touch.indices[dimension])
        moving = tuple([term for term in form.terms if uses(term[0], (var,))])
        if any(uses(atom, inner) for atom, _ in moving):
            return set()
        rest = tuple(
            [term for term in form.terms if not uses(term[0], (var,)) and uses(term[0], inner)]
        )
        fixed = frozenset(form.terms) - set(moving) - set(rest)
        interval = bounds(Affine(rest, form.constant).to_expr(), touch.domain)
        if interval.lo is None or interval.hi is None:
            return set()
        windows.append((interval.lo, interval.hi))
        shapes.add((frozenset(moving), fixed))
    if len(shapes) != 1 or not moving:
        return set()
    width = max(hi for _, hi in windows) - min(lo for lo, _ in windows)
    return _wider_terms(moving, width, domain)


def _wider_terms(moving: Sequence[tuple[Expr, int]], width: int | None, domain: Domain) -> set[Expr]:
    """The terms, if each factor exceeds the window and the range of the lesser terms together."""
    for atom, factor in sorted(moving, key=lambda term: abs(term[1])):
        if width is None or abs(factor) <= width:
            return set()
        interval = bounds(atom, domain)
        if interval.lo is None or interval.hi is None:
            width = None
        else:
            width += abs(factor) * (interval.hi - interval.lo)
    return {atom for atom, _ in moving}


def _is_private(
    place: Place, buffer: Buffer, users: Sequence[Place], found: Sequence[Touch]
) -> bool:
    """Whether each iteration may have a copy of the buffer: nothing outside touches it, and all
    reads are covered."""
    if buffer not in place.function.allocs:
        return False
    below = {p.node.name for p in users}
    for block in all_blocks(place.function):
        if block.name not in below and (buffer in stored(block) or buffer in loaded(block)):
            return False
    return are_reads_covered(found)


# Values that pass between blocks within one iteration.


def are_reads_covered(found: Sequence[Touch]) -> bool:
    """Whether each load of one buffer reads what was stored in the same iteration of the loops
    around both.

    A block that accumulates reads its own element, which its `init` wrote, or an initialising block
    did.
    """
    writes = [touch for touch in found if touch.is_store]
    for read in found:
        if read.is_store or _is_own_element(read, writes):
            continue
        if not any(covers(write, read) for write in writes):
            return False
    return True


def _is_own_element(read: Touch, writes: Sequence[Touch]) -> bool:
    if read.block.node.init is None:
        return False
    own = [write for write in writes if write.block.node is read.block.node]
    return bool(own) and all(write.indices == read.indices for write in own)


def covers(write: Touch, read: Touch) -> bool:
    """Whether a store fills, before a load runs, all that the load reads, within an iteration of
    the loops that they share."""
    writer, reader = write.block, read.block
    shared = _shared_depth(writer, reader)
    if shared is None or not _is_before(writer, reader, shared):
        return False
    domain = Place(writer.function, writer.path[: shared + 2]).domain()
    written, needed = filled_box(write, shared), _ranges(read, shared)
    if written is None or needed is None:
        return False
    return all(
        _contains(outer, inner, extent, domain)
        for outer, inner, extent in zip(written, needed, write.buffer.shape)
    )


def filled_box(write: Touch, shared: int) -> tuple[Span, ...] | None:
    """The box, without holes, that a store fills within an iteration of the loops on its path up to
    the position `shared`; None where that is not known."""
    writer = write.block
    above = {stmt.var for stmt in writer.path[: shared + 1] if type(stmt) is For}
    if any(it.kind != "spatial" and uses(it.binding, above) for it in writer.node.iters):
        return None
    guards = any(type(stmt) in (If, While) for stmt in writer.path[shared + 1 :])
    if guards or not stores_always(writer.node, write.buffer):
        return None
    if not runs_on_whole_domain(writer) or not _is_dense(write, shared):
        return None
    moving = {var for e in write.indices for var in variables(e)}
    if not variables(writer.node.predicate) & above <= moving:
        return None  # an iteration past the end of an axis that does not tell where it stores, stores nothing
    if not (_is_bounded_by_buffer(write) or _is_one_to_one(write)):
        return None  # what such an iteration leaves out may be an element that others store
    if not is_reached(writer, above | _leading(write, shared)):
        return None
    return _ranges(write, shared)


def _leading(write: Touch, shared: int) -> set[Var]:
    """The loops within an iteration that, should they have none, leave the box empty, too: those that move an index
    in larger steps than the others together."""
    extents = {loop.var: constant(loop.extent) for loop in _inner_loops(write, shared)}
    found: set[Var] = set()
    for value in write.indices:
        terms = [(abs(factor), atom) for atom, factor in affine(value).terms if type(atom) is Var and atom in extents]
        for step, var in terms:
            reach = [(factor, extents[atom]) for factor, atom in terms if atom is not var]
            known = [factor * (extent - 1) for factor, extent in reach if extent]
            if len(known) == len(reach) and step > sum(known):
                found.add(var)
    return found


def _is_bounded_by_buffer(write: Touch) -> bool:
    """Whether what the predicate of a block leaves out lies outside the buffer: each iterator that it bounds is an
    index of its own, along a dimension of that length."""
    block, domain = write.block.node, write.block.domain()
    loose = [
        it
        for it in block.iters
        if not (can_prove(it.binding >= 0, domain) and can_prove(it.binding < it.extent, domain))
    ]
    own = [simplify(index, domain) for index in write.indices]
    return is_const(block.predicate, True) or all(
        any(each == simplify(it.binding, domain) and size == it.extent for each, size in zip(own, write.buffer.shape))
        for it in loose
    )


def _is_one_to_one(write: Touch) -> bool:
    """Whether an element tells whether the predicate holds where it would be stored: there are not two such places
    of which one is left out."""
    loops, domain = (*write.block.loops, *write.inner), write.block.domain()
    for loop in write.inner:
        domain = domain.bind(loop.var, loop.start, loop.extent)
    moving = {loop.var for loop in loops if not _runs_once(loop, domain)}
    known: set[Expr] = set()
    for value in write.indices:
        known |= _digits(value, moving, domain)
    return _all_known(moving & variables(write.block.node.predicate), known, domain, moving)


def is_reached(place: Place, but_for: Collection[Var] = ()) -> bool:
    """Whether none of the loops around a block is empty, except `but_for` some; a block that reduces
    over nothing starts before the loops that do not run."""
    known = {*but_for, *starting_loops(place.node)}
    return all(
        loop.var in known
        or (is_const(loop.extent) and loop.extent.value >= 1)
        or can_prove(loop.extent >= 1, place.up_to(loop).domain())
        for loop in place.loops
    )


def _shared_depth(a: Place, b: Place) -> int | None:
    """The position of the deepest node that both paths share; None for one and the same block."""
    depth = -1
    for x, y in zip(a.path, b.path):
        if x is not y:
            return depth
        depth += 1
    return None


def _is_before(a: Place, b: Place, shared: int) -> bool:
    node = a.path[shared]
    order = [id(stmt) for stmt in getattr(node, "stmts", ())]
    first, second = id(a.path[shared + 1]), id(b.path[shared + 1])
    return first in order and second in order and order.index(first) < order.index(second)


def runs_on_whole_domain(place: Place) -> bool:
    """Whether the predicate of a block only keeps its spatial iterators in their domain."""
    block, domain = place.node, place.domain()
    bounds_ = set()
    for it in block.iters:
        bounds_.add(simplify(it.binding < it.extent, domain))
        bounds_.add(simplify(it.binding >= 0, domain))
    return all(
        part in bounds_ or is_const(part, True) or simplify(part, domain) in bounds_
        for part in conjuncts(block.predicate)
    )


def simplified_predicate(block: Block, domain: Domain) -> Expr:
    """The predicate of a block, made simpler.

    Where it may reduce over nothing, what holds for its start is not left to what ends the reduction:
    `i < n and i + k < n` stays as it is.
    """
    reducing = starting_loops(block)
    if not reducing:
        return simplify(block.predicate, domain)
    parts = conjuncts(block.predicate)
    start = logical_and(*[part for part in parts if not uses(part, reducing)])
    end = logical_and(*[part for part in parts if uses(part, reducing)])
    return logical_and(simplify(start, domain), simplify(end, domain))


def conjuncts(condition: Expr) -> tuple[Expr, ...]:
    """The conditions that `condition` joins by `and`."""
    if type(condition) is And:
        return (*conjuncts(condition.a), *conjuncts(condition.b))
    return (condition,)


def _inner_loops(touch: Touch, shared: int) -> tuple[For, ...]:
    around = [stmt for stmt in touch.block.path[shared + 1 : -1] if type(stmt) is For]
    return (*around, *touch.inner)


def _ranges(touch: Touch, shared: int) -> tuple[Span, ...] | None:
    spans: dict[Var, Span] = {}
    domain = touch.domain
    lets = touch.local - {loop.var for loop in touch.inner}
    for loop in _inner_loops(touch, shared):
        if uses(loop.extent, spans) or not starts_at_zero(loop):
            return None
        if loop.var in touch.local and not is_const(loop.extent):
            return None
        spans[loop.var] = Span(index(0), simplify(loop.extent - 1, domain))
    found = []
    for expr in touch.indices:
        span = None if uses(expr, lets) else relax(expr, spans, domain)
        if span is None:
            return None
        found.append(span)
    return tuple(found)


def _is_dense(write: Touch, shared: int) -> bool:
    """Whether the stores leave no hole in the box of their ranges."""
    return fills_box(
        write.indices, {loop.var: loop.extent for loop in _inner_loops(write, shared)}
    )


def fills_box(values: Iterable[Expr], extents: Mapping[Var, Expr]) -> bool:
    """Whether loops of these extents, from 0, take the values over all places of the box around
    them: each value has loops of its own, whose factors do not jump over what the lesser ones
    reach. The start of parts of which the last is shifted, `min(4*i, E - 4)`, goes on by 4 at most."""
    taken: set[Expr] = set()
    for expr in values:
        terms = [_step(atom, factor, extents) for atom, factor in affine(expr).terms if uses(atom, extents)]
        own = {atom for _, atom, _ in terms}
        if any(type(atom) is not Var for atom in own) or own & taken or len(own) < len(terms):
            return False
        taken |= own
        if not _is_gapless(sorted(terms, key=lambda term: term[0]), extents):
            return False
    return True


def _step(atom: Expr, factor: int, extents: Mapping[Var, Expr]) -> tuple[int, Expr, bool]:
    """In which steps, at most, a term goes on, what moves it, and whether it ends before all of that is done."""
    if type(atom) is Min and not uses(atom.b, extents):
        terms = affine(atom.a).terms
        if len(terms) == 1 and type(terms[0][0]) is Var and terms[0][1] > 0:
            return abs(factor) * terms[0][1], terms[0][0], True
    return abs(factor), atom, False


def _is_gapless(terms, extents) -> bool:
    reach: int | None = 1
    for factor, var, is_capped in terms:
        if reach is None or factor > reach:
            return False
        extent = None if is_capped else constant(extents[var])
        reach = None if extent is None else reach + factor * (extent - 1)
    return True


def _contains(outer: Span, inner: Span, extent: Expr, domain: Domain) -> bool:
    if outer == inner:
        return True
    inner = clamp(inner, extent, domain)
    return _at_most(outer.lo, inner.lo, domain) and _at_most(inner.hi, outer.hi, domain)


def _at_most(a: Expr, b: Expr, domain: Domain) -> bool:
    return a == b or can_prove(a <= b, domain)


# Other orders of loops.


def check_order(step: str, place: Place, segment: Sequence[For], order: Sequence[For]) -> None:
    """Refuse where running the loops of `segment`, the first of them at `place`, in `order` may
    change the answer."""
    places = block_places(place)
    check_only_blocks(step, place)
    moved = _swapped(segment, order)
    _check_kinds(step, place, order)
    if any(constant(loop.extent) == 0 for loop in segment):
        return  # nothing runs in either order
    for p in places:
        _check_block_order(step, place, p, moved, len(places) > 1)
    if len(places) > 1:
        _check_block_pairs(step, place, places, moved)


def check_only_blocks(step: str, place: Place) -> None:
    """Refuse a nest with actions outside blocks, of which nothing is known."""
    for stmt in _actions(place.node):
        message = f"{type(stmt).__name__.lower()} statements outside blocks lie below"
        refuse(
            place.function, f"{step}: {message}; only blocks say what they do", place.node.var.name
        )


def _actions(stmt: Stmt) -> Iterator[Stmt]:
    if type(stmt) in (Store, While, Check, Barrier, Evaluate):
        yield stmt
    elif type(stmt) is not Block:
        for inner in substmts(stmt):
            yield from _actions(inner)


def _check_kinds(step: str, place: Place, order: Sequence[For]) -> None:
    kinds = [loop.kind for loop in order]
    inner = kinds[kinds.index("vectorized") :] if "vectorized" in kinds else []
    concurrent = next((kind for kind in inner if kind in CONCURRENT), None)
    if concurrent is not None:
        outer = order[kinds.index("vectorized")].var.name
        message = f"a {concurrent} loop would lie in the vectorized {outer!r}"
        refuse(place.function, f"{step}: {message}", outer)


def _swapped(segment: Sequence[For], order: Sequence[For]) -> tuple[tuple[For, For], ...]:
    """The pairs of loops whose order changes; a loop of one iteration does not count."""
    rank = {loop.var: i for i, loop in enumerate(order)}
    real = [loop for loop in segment if constant(loop.extent) not in (0, 1)]
    return tuple([
        (a, b) for i, a in enumerate(real) for b in real[i + 1 :] if rank[a.var] > rank[b.var]
    ])  # fmt: skip


def _check_block_order(step: str, place: Place, p: Place, moved, is_shared: bool) -> None:
    block = p.node
    kinds = {loop.var: kinds_using(block, loop.var) for pair in moved for loop in pair}
    for a, b in moved:
        for loop, other in ((a, b), (b, a)):
            if "ordered" in kinds[loop.var] and not _may_cross(place, p, (a, b)):
                refuse(
                    place.function,
                    f"{step}: loop {loop.var.name!r} runs block {block.name!r} in order; it must "
                    f"stay where it is relative to {other.var.name!r}, whose iterations may touch "
                    "the same elements",
                    loop.var.name,
                )
    reducing = [loop for pair in moved for loop in pair if "reduce" in kinds[loop.var]]
    if not reducing:
        return
    if is_shared:
        refuse(
            place.function,
            f"{step}: loop {reducing[0].var.name!r} reduces in block {block.name!r}, and other "
            "blocks run in the same iterations",
            reducing[0].var.name,
        )
    if block.init is not None and not is_init_first(place, p):
        refuse(
            place.function,
            f"{step}: in the new order the init of block {block.name!r} may not run first; "
            "decompose_reduction makes it a block of its own",
            reducing[0].var.name,
        )


def _may_cross(place: Place, p: Place, pair: tuple[For, For]) -> bool:
    """Whether two loops may change places though the block runs in order."""
    found = touches([p])
    return all(
        _is_split(place, (p,), pair, [touch for touch in found if touch.buffer is buffer])
        for buffer in stored(p.node)
    )


def _is_split(
    place: Place, places: Sequence[Place], pair: tuple[For, For], found: Sequence[Touch]
) -> bool:
    """Whether for one of two loops no iteration touches what another one writes, whatever the other
    loops from `place` inward are: then all that happens to an element keeps its order when the two
    change places."""
    inside = {loop.var for p in places for loop in p.loops[len(place.loops) :]}
    return any(
        splits_buffer(places[0].up_to(loop), found, frozenset(inside - {loop.var})) for loop in pair
    )


def is_init_first(place: Place, p: Place) -> bool:
    """Whether the init of a block runs first for each spatial point in any order of the loops
    from `place` inward: the reduce iterators are all 0 only in the first iteration of their
    loops, and the other loops meet a spatial point once."""
    block, domain = p.node, _inside(p)
    loops = [loop for loop in p.loops[len(place.loops) :] if not _runs_once(loop, domain)]
    spatial: list[For] = []
    reducing: list[For] = []
    for loop in loops:
        kinds = kinds_using(block, loop.var)
        if len(kinds) != 1:
            return False
        (reducing if kinds == {"reduce"} else spatial).append(loop)
    values = [it.binding for it in block.iters if it.kind == "spatial"]
    return is_zero_only_first(p, reducing) and is_injective(values, spatial, domain)


def is_zero_only_first(p: Place, loops: Sequence[For]) -> bool:
    """Whether the reduce iterators of a block are all 0 nowhere but in the first iteration of
    these loops, if they are so at all for what the loops around give them."""
    bindings = [it.binding for it in p.node.iters if it.kind == "reduce"]
    if not all(map(starts_at_zero, loops)):
        return False
    moving = {loop.var: index(0) for loop in loops}
    domain = p.domain()
    first = [simplify(substitute(binding, moving), domain) for binding in bindings]
    count = all(_is_counter(binding, moving) for binding in bindings)
    if count and all(can_prove(value >= 0, domain) for value in first):
        return True  # from below 0, which a predicate leaves out, they would be 0 in a later iteration
    return all(is_const(value, 0) for value in first) and is_injective(bindings, loops, _inside(p))


def _is_counter(binding: Expr, loops) -> bool:
    """Whether a binding is a sum of positive multiples of these loops, and of what does not
    depend on them."""
    return all(
        factor > 0 and type(atom) is Var if uses(atom, loops) else True
        for atom, factor in affine(binding).terms
    )


def _check_block_pairs(step: str, place: Place, places: Sequence[Place], moved) -> None:
    found = touches(places)
    for buffer in {touch.buffer: None for touch in found if touch.is_store}:
        of_buffer = [touch for touch in found if touch.buffer is buffer]
        users = {touch.block.node.name for touch in of_buffer}
        writers = {touch.block.node.name for touch in of_buffer if touch.is_store}
        if len(users) > 1 and not are_reads_covered(of_buffer):
            does = "read"
        elif len(writers) > 1 and not all(_is_split(place, places, pair, of_buffer) for pair in moved):
            does = "write over"
        else:
            continue
        refuse(
            place.function,
            f"{step}: the blocks {', '.join(map(repr, sorted(users)))} share buffer "
            f"{buffer.name!r}, and an iteration may {does} what another one wrote",
            place.node.var.name,
        )


# Lanes that reduce.


def accumulates(block: Block) -> bool:
    """Whether the block combines terms with elements by a reducer whose identity is known."""
    found = update_of(block)
    return found is not None and bool(found.identities)


def contains_kind(stmt: Stmt, kinds: tuple[str, ...]) -> For | None:
    """A loop of one of these kinds in a statement, blocks not entered."""
    if type(stmt) is For and stmt.kind in kinds:
        return stmt
    return next((s for s in walk(stmt) if type(s) is For and s.kind in kinds), None)


def all_plain(stmt: Stmt) -> Block | None:
    """The first block in a statement that is not plain, None if all are."""
    return next((block for block in blocks_below(stmt) if not is_plain(block)), None)
