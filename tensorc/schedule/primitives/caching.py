"""Staging what a block reads or writes in a buffer of its own."""

from __future__ import annotations

from tensorc.arith import Domain
from tensorc.dtypes import bool_
from tensorc.ir.expr import Buffer, Const, Load, Var, index
from tensorc.ir.function import Function
from tensorc.ir.stmt import Block, BlockIter, For, Stmt, Store
from tensorc.ir.walk import map_substmts, replace_buffers, rewrite_exprs, walk
from tensorc.schedule.locate import (
    Place, all_blocks, blocks_below, find_block, fresh, fresh_block, fresh_buffer, insert_after, insert_before,
    loop_names, refuse, replace,
)  # fmt: skip
from tensorc.schedule.regions import accesses, buffers_read, buffers_written, loads, writers


def cache_read(function: Function, block: str, buffer: str | int, scope: str = "global") -> tuple[Function, str]:
    """Let a block read a copy of one of its inputs; `buffer` is a name, or an index of the block's reads.

    ``C[i] = f(B[i])``  ->  ``B_global[i] = B[i]`` just before the outermost loop of C; ``C[i] = f(B_global[i])``

    The copy has the shape of the buffer and is made by a new block of the copy's name, whose iterators are named as
    those that index the buffer in `block`. Other blocks go on reading the buffer itself. Returns the function and the
    new block's name.

    Requires: the block reads the buffer and does not write it, and no block in the same nest of loops writes it.

    Raises ScheduleError where one of these does not hold.
    """
    step = f"cache_read(block {block!r}, buffer {buffer!r})"
    place = find_block(function, block)
    source = _input(function, place.node, buffer, step)
    if source in buffers_written(place.node):
        refuse(function, f"{step}: the block writes {source.name!r} itself; use cache_write", block)
    nest = _outermost(place)
    for other in blocks_below(nest.node):
        if source in buffers_written(other):
            reason = f"{other.name!r}, in the same nest of loops, writes it; cache it before moving that block there"
            refuse(function, f"{step}: {reason}", other.name)
    if source in function.allocs and not any(_fills(w, source) for w in writers(function, source)):
        reason = "its layout may have gaps that nothing writes; cache it before changing its layout"
        refuse(function, f"{step}: {reason}", block)

    copy = _cache_of(function, source, scope)
    name = fresh_block(function, copy.name)
    changed = replace(place, _redirect_loads(place.node, source, copy))
    function = changed.with_(allocs=(*function.allocs, copy))
    nest_stmt = _copy_nest(function, name, source, copy, _iterator_names(place.node, source))
    return insert_before(_outermost(find_block(function, block)), nest_stmt), name


def cache_write(function: Function, block: str, scope: str = "global") -> tuple[Function, str]:
    """Let a block compute into a buffer of its own, which is copied to the block's output afterwards.

    ``C[i] = f(i)``  ->  ``C_global[i] = f(i)``; ``C[i] = C_global[i]`` just after the outermost loop of C

    The new buffer has the shape of the output, and a new block of its name makes the copy. A block that initialises
    the same output (by decompose_reduction) writes to the new buffer too. Returns the function and the new block's
    name.

    Requires: the block writes one buffer; it does not start from what that buffer held before; nothing else within or
    before its nest of loops reads the buffer.

    Raises ScheduleError where one of these does not hold.
    """
    step = f"cache_write(block {block!r})"
    place = find_block(function, block)
    target = _output(function, place.node, step)
    _check_written_alone(function, place, target, step)

    copy = _cache_of(function, target, scope)
    name = fresh_block(function, copy.name)
    names = _iterator_names(place.node, target)
    body = _redirect_writers(function.body, target, copy)
    function = function.with_(body=body, allocs=(*function.allocs, copy))
    nest = _copy_nest(function, name, copy, target, names)
    return insert_after(_outermost(find_block(function, block)), nest), name


def _input(function: Function, block: Block, buffer: str | int, step: str) -> Buffer:
    """The buffer that a block reads under a name, or as one of its reads by number."""
    inputs = buffers_read(block)
    if type(buffer) is int and 0 <= buffer < len(inputs):
        return inputs[buffer]
    for known in inputs:
        if known.name == buffer:
            return known
    names = ", ".join([repr(known.name) for known in inputs]) or "nothing"
    refuse(function, f"{step}: the block does not read that; it reads {names}", block.name)


def _fills(block: Block, buffer: Buffer) -> bool:
    """Whether a block has an instance for each element of the buffer."""
    extents = {it.var: it.extent for it in block.iters}
    return any(
        type(stmt) is Store
        and stmt.buffer is buffer
        and len(set(stmt.indices)) == len(stmt.indices)
        and tuple([extents.get(i) for i in stmt.indices]) == buffer.shape
        for stmt in walk(block)
    )


def _output(function: Function, block: Block, step: str) -> Buffer:
    """The one buffer that a block writes."""
    outputs = buffers_written(block)
    if len(outputs) != 1:
        names = ", ".join([repr(known.name) for known in outputs]) or "none"
        refuse(function, f"{step}: the block must write one buffer, it writes {names}", block.name)
    return outputs[0]


def _check_written_alone(function: Function, place: Place, target: Buffer, step: str) -> None:
    """Refuse where the copy after the nest would come too late for a reader, too early for a writer, or be incomplete."""
    blocks = all_blocks(function)
    last = blocks_below(_outermost(place).node)[-1]
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
            refuse(function, f"{step}: {block.name!r} starts from what {target.name!r} holds already", block.name)
        first = first and not writes


def _outermost(place: Place) -> Place:
    """The place of the outermost loop around a block, or of the block itself where there is none."""
    loops = place.loops
    return place.up_to(loops[0] if loops else place.node)


def _cache_of(function: Function, buffer: Buffer, scope: str) -> Buffer:
    name = fresh_buffer(function, f"{buffer.name}_{scope or 'cache'}")
    return Buffer(name, buffer.shape, buffer.dtype, scope or "global")


def _redirect_loads(block: Block, source: Buffer, copy: Buffer) -> Block:
    def on_load(e):
        return Load(copy, e.indices, e.mask) if type(e) is Load and e.buffer is source else None

    return rewrite_exprs(block, on_load)


def _redirect_writers(stmt: Stmt, target: Buffer, copy: Buffer) -> Stmt:
    """The statement whose blocks that write `target` write and read the copy instead."""
    if type(stmt) is Block:
        return replace_buffers(stmt, {target: copy}) if target in buffers_written(stmt) else stmt
    return map_substmts(stmt, lambda inner: _redirect_writers(inner, target, copy))


def _iterator_names(block: Block, buffer: Buffer) -> list[str]:
    """A name for each dimension: that of the one iterator which indexes it everywhere in the block, else ax<number>."""
    used = [access.indices for access in accesses(block, buffer, Domain())]
    names: list[str] = []
    for dim in range(len(buffer.shape)):
        indices = {indices[dim] for indices in used}
        index = indices.pop() if len(indices) == 1 else None
        name = index.name if type(index) is Var else f"ax{dim}"
        names.append(name if name not in names else f"ax{dim}")
    return names


def _copy_nest(function: Function, name: str, source: Buffer, target: Buffer, iterators: list[str]) -> Stmt:
    """Loops around a block that copies one buffer to another of the same shape."""
    taken = loop_names(function)
    loops, iters = [], []
    for iterator, extent in zip(iterators, source.shape):
        loop = Var(fresh(f"{name}.{iterator}", taken))
        taken.add(loop.name)
        loops.append(loop)
        iters.append(BlockIter(Var(iterator), extent, "spatial", loop))
    indices = tuple([it.var for it in iters])
    nest: Stmt = Block(name, tuple(iters), Const(True, bool_), None, Store(target, indices, Load(source, indices)))
    for loop, extent in zip(reversed(loops), reversed(source.shape)):
        nest = For(loop, index(0), extent, "serial", nest)
    return nest
