"""Which blocks one recipe schedules together: what a result goes through next, and what makes an operand."""

from __future__ import annotations

from collections.abc import Sequence

from tensorc.ir.function import Function
from tensorc.schedule.locate import all_blocks
from tensorc.schedule.recipes.access import Pattern
from tensorc.schedule.regions import buffers_read, buffers_written


def epilogue(function: Function, main: Pattern, others: Sequence[Pattern]) -> Pattern | None:
    """The one among other blocks that takes each result of a contraction for itself, and is the only one to read it."""
    made = main.store.buffer
    blocks = all_blocks(function)
    reads = {block.name: {buffer.name for buffer in buffers_read(block)} for block in blocks}
    readers = [name for name in reads if made in reads[name] and name != main.block]
    found = next((each for each in others if [each.block] == readers), None)
    if found is None or any(made == buffer.name for buffer in function.params):
        return None
    names = [*reads]
    between = blocks[names.index(main.block) + 1 : names.index(found.block)]
    late = {buffer.name for block in between for buffer in buffers_written(block)}
    return found if _is_one_by_one(main, found) and not late & reads[found.block] else None


def _is_one_by_one(main: Pattern, other: Pattern) -> bool:
    """Whether a block takes the elements that another one makes as it goes along its own."""
    own = [load for load in other.loads if load.buffer == main.store.buffer]
    axes = tuple([axis.name for axis in other.axes])
    if other.in_place or len(own) != 1 or any(axis.kind != "spatial" for axis in other.axes):
        return False
    if len(axes) != len(main.spatial) or len(own[0].plain) != len(axes):
        return False
    single = [a.extent == b.extent == 1 for a, b in zip(main.spatial, other.axes)]  # read at 0, as of broadcast ones
    read = tuple([axis if name is None and one else name for name, axis, one in zip(own[0].plain, axes, single)])
    is_whole = all([set(access.plain) - {None} == access.whole for access in (own[0], other.store, main.store)])
    in_order = main.store.plain == tuple([axis.name for axis in main.spatial])
    return is_whole and in_order and read == other.store.plain == axes


def producer(function: Function, main: Pattern, buffer: str, others: Sequence[Pattern]) -> Pattern | None:
    """The one among other blocks that makes, element by element, a buffer that just one block reads."""
    if any(buffer == param.name for param in function.params):
        return None
    blocks = all_blocks(function)
    readers = [block.name for block in blocks if buffer in {each.name for each in buffers_read(block)}]
    writers = [block.name for block in blocks if buffer in {each.name for each in buffers_written(block)}]
    if readers != [main.block] or len(writers) != 1:
        return None
    found = next((each for each in others if each.block == writers[0]), None)
    if found is None or found.in_place or any(axis.kind != "spatial" for axis in found.axes):
        return None
    return found if found.store.plain == tuple([axis.name for axis in found.axes]) else None
