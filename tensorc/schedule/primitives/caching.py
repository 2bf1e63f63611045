"""Staging what a block reads or writes in a buffer of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NoReturn

from tensorc.arith import Domain, can_prove, simplify
from tensorc.dtypes import DType, bool_
from tensorc.dtypes import dtype as as_dtype
from tensorc.errors import ExpressionError, ScheduleError
from tensorc.ir.expr import Buffer, Cast, Const, Expr, Load, Var, cast, index, is_const
from tensorc.ir.function import Function
from tensorc.ir.stmt import Block, BlockIter, For, If, Stmt, Store
from tensorc.ir.verifier import SCOPES
from tensorc.ir.walk import (
    map_substmts,
    replace_buffers,
    rewrite_exprs,
    uses,
    walk,
)
from tensorc.schedule.dependence import fills
from tensorc.schedule.legality import conjuncts, is_injective, is_reached
from tensorc.schedule.locate import (
    Place,
    blocks_below,
    constant,
    find_block,
    fresh,
    fresh_block,
    fresh_buffer,
    insert_after,
    insert_before,
    loop_names,
    refuse,
    replace,
    version_of,
)
from tensorc.schedule.primitives.nearby import copy_instances, copy_read, copy_written
from tensorc.schedule.regions import (
    Span,
    accesses,
    block_domain,
    buffers_read,
    buffers_written,
    keep_ranges,
    loads,
    relax,
    stores_always,
    writers,
)


def cache_read(
    function: Function,
    block: str,
    buffer: str | int,
    scope: str = "global",
    dtype: str | None = None,
    *,
    is_near: bool = False,
) -> tuple[Function, str]:
    """Let a block read a copy of one of its inputs: `buffer`, by name or by number of its reads.

    ``for i: C[i] = f(B[i])``
    ->  ``for i: B_global[i] = B[i]``, ``for i: C[i] = f(B_global[i])``

    The copy, <buffer>_<scope>, has the shape of the buffer. A new block of that name makes it just
    before the outermost loop of `block`; its iterators are named as those that index the buffer
    there. Other blocks go on reading the buffer itself. With `dtype`, the copy holds the elements as
    the block casts them, and the casts go: ``cast(float32, B[i])  ->  B_global[i]``. Returns the
    function and the new block's name.

    Requires: the block reads the buffer and does not write it; no block in the same nest of loops
    writes it; every element of it is written before, as far as it is internal; with `dtype`, the
    block casts each element that it reads to that.

    With `is_near`, the copy is always of no more than what the block reads, as where the function is what a block does.

    Raises ScheduleError where one of these does not hold.
    """
    step = f"cache_read(block {block!r}, buffer {buffer!r})"
    place = find_block(function, block)
    source = input_of(function, place.node, buffer, step)
    if source in buffers_written(place.node):
        refuse(function, f"{step}: the block writes {source.name!r} itself; use cache_write", block)
    refusal = _refusal_of_whole_read(place, source, step, is_near)

    copy = cache_of(function, source, scope, step)
    name = fresh_block(function, copy.name)
    if dtype is not None:
        copy = Buffer(copy.name, copy.shape, _dtype(function, dtype, step), copy.scope)
    node = _redirect_loads(place.node, source, copy)
    check_used(function, node, copy, source, step)
    if loads(node.body, source) or (node.init is not None and loads(node.init, source)):
        refuse(function, f"{step}: it reads {source.name!r} otherwise than cast to {dtype}", block)
    names = _iterator_names(place.node, source)
    changed = replace(place, node).with_(allocs=(*function.allocs, copy))
    if refusal is not None:
        return copy_read(place, changed, source, copy, name, names, refusal), name
    nest_stmt = _copy_nest(changed, name, source, copy, names)
    return insert_before(outermost(find_block(changed, block)), nest_stmt), name


def check_used(function: Function, stmt: Stmt, copy: Buffer, source: Buffer, step: str) -> None:
    """Refuse a copy that nothing would read: what tells how far loops go is read where it is."""
    if copy not in buffers_read(stmt) and copy not in buffers_written(stmt):
        refuse(function, f"{step}: {source.name!r} only tells there how far loops go, and is read as it is")


def cache_write(
    function: Function, block: str, scope: str = "global", buffer: str | int = 0
) -> tuple[Function, str]:
    """Let a block compute into a buffer of its own, which is copied to its output afterwards: `buffer`,
    by name or by number of its writes, where it writes several.

    ``for i: C[i] = f(i)``  ->  ``for i: C_global[i] = f(i)``, ``for i: C[i] = C_global[i]``

    The new buffer, <output>_<scope>, has the shape of the output. A new block of that name makes
    the copy just after the outermost loop of `block`. A block that initialises the same output (by
    decompose_reduction) writes to the new buffer too. Returns the function and the name of the new
    block.

    Where a block in the same nest of loops reads the output, or not all of it is written, the copy is
    of what is written, just after the outermost loop around `block` that no reader lies in, or that
    holds it alone.

    Requires: the block writes the buffer, all elements of it that are copied; it does not start from
    what that buffer held before; no block after it writes the buffer.

    Raises ScheduleError where one of these does not hold.
    """
    named = "" if type(buffer) is int and buffer == 0 else f", buffer {buffer!r}"
    step = f"cache_write(block {block!r}{named})"
    place = find_block(function, block)
    target = _output(function, place.node, buffer, step)
    refusal = _refusal_of_whole_write(place, target, step)

    copy = cache_of(function, target, scope, step)
    name = fresh_block(function, copy.name)
    names = _iterator_names(place.node, target)
    if refusal is not None:
        near = copy_written(place, target, copy, name, names, step)
        near = copy_instances(place, target, copy, name, step) if near is None else near
        if near is None:
            raise refusal
        return near, name
    version = version_of(place)
    function = replace(version, _redirect_writers(version.node, target, copy))
    function = function.with_(allocs=(*function.allocs, copy))
    nest = _copy_nest(function, name, copy, target, names)
    return insert_after(outermost(find_block(function, block)), nest), name


def _refusal_of_whole_read(
    place: Place, source: Buffer, step: str, is_near: bool
) -> ScheduleError | None:
    """Why a copy of the whole buffer before the nest of a block will not do; None if it will."""
    try:
        check_written_outside(place.function, place, source, step)
        refuse_unwritten(place, source, step)
        if is_near:
            refuse(place.function, f"{step}: what it reads of {source.name!r} is not known", place.node.name)
    except ScheduleError as error:
        return error
    return None


def _refusal_of_whole_write(place: Place, target: Buffer, step: str) -> ScheduleError | None:
    """Why a copy of the whole buffer after the nest of a block will not do; None if it will."""
    try:
        check_written_alone(place.function, place, target, step)
        refuse_gaps(place.function, target, step)
    except ScheduleError as error:
        return error
    return None


def input_of(function: Function, block: Block, buffer: str | int, step: str) -> Buffer:
    """The buffer that a block reads under a name, or as one of its reads by number."""
    inputs = buffers_read(block)
    if type(buffer) is int and 0 <= buffer < len(inputs):
        return inputs[buffer]
    for known in inputs:
        if known.name == buffer:
            return known
    names = ", ".join([repr(known.name) for known in inputs]) or "nothing"
    refuse(function, f"{step}: the block does not read that; it reads {names}", block.name)


def check_written_outside(function: Function, place: Place, source: Buffer, step: str) -> None:
    """Refuse a copy before a nest of loops in which the buffer is written."""
    for other in blocks_below(outermost(place).node):
        if source in buffers_written(other):
            reason = f"{other.name!r}, in the same nest of loops, writes it"
            fix = "cache it before moving that block there"
            refuse(function, f"{step}: {reason}; {fix}", other.name)


def refuse_gaps(function: Function, buffer: Buffer, step: str) -> None:
    """Refuse to copy a buffer that may have elements which nothing writes."""
    if buffer not in function.allocs:
        places = [find_block(function, block.name) for block in writers(function, buffer)]
        if any(_stores_everywhere(place.node, buffer) and is_run_whole(place) for place in places):
            return
        reason = f"not every element of {buffer.name!r} is known to be written"
        refuse(function, f"{step}: {reason}, and the others keep what they hold", buffer.name)
    for block in writers(function, buffer):
        if _stores_by_iterators(block, buffer) and is_run_whole(find_block(function, block.name)):
            return
    _refuse_gap(function, buffer, "", step)


def refuse_unwritten(place: Place, buffer: Buffer, step: str) -> None:
    """Refuse to copy a whole buffer before a block where it may have elements that are not written
    by then: those that nothing writes, or that a block behind does, such as a later step of a scan."""
    function = place.function
    if buffer in function.params and buffer not in function.outputs:
        return
    blocks = blocks_below(version_of(place).node)
    at = next(i for i, block in enumerate(blocks) if block is place.node)
    for block in blocks[:at]:
        is_whole = _stores_by_iterators(block, buffer) or _stores_everywhere(block, buffer)
        if is_whole and is_run_whole(find_block(function, block.name)):
            return
    later = [block.name for block in blocks[at:] if buffer in buffers_written(block)]
    if buffer in function.allocs or later:
        _refuse_gap(function, buffer, f" by then; {later[0]!r} writes it later" if later else "", step)


def _refuse_gap(function: Function, buffer: Buffer, more: str, step: str) -> NoReturn:
    reason = f"not every element of {buffer.name!r} is known to be written{more}"
    fix = "cache it before other steps on its layout and its writer"
    refuse(function, f"{step}: {reason}; {fix}", buffer.name)


def _stores_by_iterators(block: Block, buffer: Buffer) -> bool:
    """Whether a block has an instance for each element of the buffer."""
    extents: dict[Expr, Expr] = {it.var: it.extent for it in block.iters}
    return stores_always(block, buffer) and any(
        type(stmt) is Store
        and stmt.buffer is buffer
        and len(set(stmt.indices)) == len(stmt.indices)
        and tuple([extents.get(i) for i in stmt.indices]) == buffer.shape
        for stmt in walk(block)
    )


def _stores_everywhere(block: Block, buffer: Buffer) -> bool:
    """Whether the points of a block together write each element of a buffer."""
    domain = block_domain(block, Domain())
    loops = [For(it.var, index(0), it.extent, "serial", block.body) for it in block.iters]
    loops += [stmt for stmt in walk(block.body) if type(stmt) is For]
    ranges = {loop.var: Span(loop.start, loop.start + loop.extent - 1) for loop in loops}

    def is_whole(indices: Sequence[Expr], shape: Sequence[Expr]) -> bool:
        spans = [relax(each, ranges, domain) for each in indices]
        return fills(indices, loops, domain) and all(
            span is not None
            and can_prove(span.lo <= 0, domain)
            and can_prove(span.hi >= extent - 1, domain)
            for span, extent in zip(spans, shape)
        )

    # stores at constant places of some dimensions write everywhere together, each all of the others
    made: dict[tuple[int, ...], set[tuple[Expr, ...]]] = {}
    for store in walk(block):
        if type(store) is Store and store.buffer is buffer:
            fixed = tuple([axis for axis, at in enumerate(store.indices) if is_const(at)])
            moving = [axis for axis in range(len(store.indices)) if axis not in fixed]
            if is_whole([store.indices[axis] for axis in moving], [buffer.shape[axis] for axis in moving]):
                made.setdefault(fixed, set()).add(tuple([store.indices[axis] for axis in fixed]))
    counts = {fixed: math.prod([constant(buffer.shape[axis]) or 0 for axis in fixed]) for fixed in made}
    return stores_always(block, buffer) and any(len(places) == counts[fixed] for fixed, places in made.items())


def is_run_whole(place: Place) -> bool:
    """Whether the loops around a block meet each of its spatial points.

    They do where different iterations give different points, as many as the box around them has:
    then they fill it. How many that are is looked at outside of the loops, which may have no iteration.
    """
    inside, block = place.domain(), place.node
    if any(type(stmt) is If for stmt in place.path[len(version_of(place).path) :]):
        return False
    iters = [it for it in block.iters if it.kind == "spatial"]
    loops = [loop for loop in place.loops if any(uses(it.binding, (loop.var,)) for it in iters)]
    domain = place.up_to(loops[0]).domain() if loops else inside
    ranges = {loop.var: Span(loop.start, loop.start + loop.extent - 1) for loop in loops}
    relaxed = [relax(it.binding, ranges, domain) for it in iters]
    spans = [span for span in relaxed if span is not None]
    if len(spans) < len(relaxed):
        return False
    count, box = index(1), index(1)
    for loop in loops:
        count = count * loop.extent
    for span in spans:
        box = box * span.extent(domain)
    outside = {simplify(it.binding < it.extent, inside) for it in iters}
    return (
        is_reached(place, {loop.var for loop in loops})
        and simplify(count - box, domain) == index(0)
        and is_injective([it.binding for it in iters], loops, inside)
        and all(can_prove(span.lo <= 0, domain) for span in spans)
        and all(can_prove(span.hi >= it.extent - 1, domain) for span, it in zip(spans, iters))
        and all(
            is_const(part, True) or part in outside or simplify(part, inside) in outside
            for part in conjuncts(block.predicate)
        )
    )


def _output(function: Function, block: Block, buffer: str | int, step: str) -> Buffer:
    """The buffer that a block writes under a name, or as one of its writes by number."""
    outputs = buffers_written(block)
    if type(buffer) is int and 0 <= buffer < len(outputs):
        return outputs[buffer]
    for known in outputs:
        if known.name == buffer:
            return known
    names = ", ".join([repr(known.name) for known in outputs]) or "nothing"
    refuse(function, f"{step}: the block does not write that; it writes {names}", block.name)


def check_written_alone(function: Function, place: Place, target: Buffer, step: str) -> None:
    """Refuse where the copy after the nest is too late for a reader or too early for a writer, and
    where a writer starts from what the buffer holds."""
    blocks = blocks_below(version_of(place).node)
    last = blocks_below(outermost(place).node)[-1]
    at_block = next(i for i, block in enumerate(blocks) if block is place.node)
    at_copy = next(i for i, block in enumerate(blocks) if block is last)
    first = True
    for i, block in enumerate(blocks):
        writes, reads = target in buffers_written(block), loads(block, target) > 0
        if writes and i > at_block:
            refuse(function, f"{step}: {block.name!r} writes {target.name!r} after it", block.name)
        if reads and not writes and i <= at_copy:
            reason = f"{block.name!r} reads {target.name!r} before the nest of loops ends"
            refuse(function, f"{step}: {reason}, where the copy would be made", block.name)
        if writes and first and reads and block.init is None:
            reason = f"{block.name!r} starts from what {target.name!r} holds already"
            refuse(function, f"{step}: {reason}", block.name)
        first = first and not writes


def outermost(place: Place) -> Place:
    """The place of the outermost loop around a block, or of the block itself if there is none."""
    loops = place.loops
    return place.up_to(loops[0] if loops else place.node)


def cache_of(function: Function, buffer: Buffer, scope: str, step: str) -> Buffer:
    if scope and scope not in SCOPES:
        refuse(function, f"{step}: scope {scope!r} is unknown; known are {', '.join(SCOPES)}")
    name = fresh_buffer(function, f"{buffer.name}_{scope or 'cache'}")
    return Buffer(name, buffer.shape, buffer.dtype, scope or "global")


def _redirect_loads(block: Block, source: Buffer, copy: Buffer) -> Block:
    """Loads of the copy, which holds what is loaded or, where its type is another, what it is cast to."""

    def on_load(e: Expr) -> Expr | None:
        load: Expr | None = e
        if copy.dtype is not source.dtype:
            load = e.value if type(e) is Cast and e.dtype is copy.dtype else None
        if type(load) is Load and load.buffer is source:
            return Load(copy, load.indices, load.mask)
        return None

    new = keep_ranges(block, lambda stmt: rewrite_exprs(stmt, on_load))
    assert type(new) is Block  # with other loads
    return new


def _dtype(function: Function, name: str, step: str) -> DType:
    try:
        return as_dtype(name)
    except ExpressionError as error:
        refuse(function, f"{step}: {error}")


def _redirect_writers(stmt: Stmt, target: Buffer, copy: Buffer) -> Stmt:
    """The statement whose blocks that write `target` write and read the copy instead."""
    if type(stmt) is Block:
        return replace_buffers(stmt, {target: copy}) if target in buffers_written(stmt) else stmt
    return map_substmts(stmt, lambda inner: _redirect_writers(inner, target, copy))


def _iterator_names(block: Block, buffer: Buffer) -> list[str]:
    """A name for each dimension: the iterator's that indexes it everywhere in the block, if there
    is one, else ax<number>."""
    used = [access.indices for access in accesses(block, buffer, Domain())]
    names: list[str] = []
    for dim in range(len(buffer.shape)):
        indices = {indices[dim] for indices in used}
        index = indices.pop() if len(indices) == 1 else None
        name = index.name if type(index) is Var else f"ax{dim}"
        names.append(name if name not in names else f"ax{dim}")
    return names


def _copy_nest(
    function: Function, name: str, source: Buffer, target: Buffer, iterators: list[str]
) -> Stmt:
    """Loops around a block that copies one buffer to another of the same shape, and maybe wider elements."""
    indices = tuple(map(Var, iterators))
    body = Store(target, indices, cast(Load(source, indices), target.dtype))
    return spatial_nest(function, name, indices, source.shape, body)


def spatial_nest(
    function: Function, name: str, iterators: Sequence[Var], extents: Sequence[Expr], body: Stmt
) -> Stmt:
    """Serial loops around a block of spatial iterators, each bound to a loop of its own."""
    taken = loop_names(function)
    loops, iters = [], []
    for iterator, extent in zip(iterators, extents):
        loop = Var(fresh(f"{name}.{iterator.name}", taken))
        taken.add(loop.name)
        loops.append(loop)
        iters.append(BlockIter(iterator, extent, "spatial", loop))
    nest: Stmt = Block(name, tuple(iters), Const(True, bool_), None, body)
    for loop, extent in zip(reversed(loops), reversed(extents)):
        nest = For(loop, index(0), extent, "serial", nest)
    return nest
