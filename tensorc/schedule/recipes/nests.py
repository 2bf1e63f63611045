"""The nest of a contraction's plan: blocks of columns, of the depth and of rows; panels, rows and register tiles.

Operands that are packed are copied just before their use, B by panels of columns, A by the rows of a tile; those that
are constant before all of it, whole.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass

from tensorc.errors import ScheduleError
from tensorc.schedule.recipes.access import Access, Group, Pattern
from tensorc.schedule.recipes.columns import (
    Columns,
    column_axis,
    depth_axis,
    fill,
    gathered,
    join,
    join_results,
)
from tensorc.schedule.recipes.parallel import share
from tensorc.schedule.recipes.tiles import UNKNOWN_EXTENT, size
from tensorc.schedule.schedule import BlockRef, LoopRef, Schedule

TRANSPOSED = (4, 8, 16)  # lanes by lanes that are turned in registers
UNROLLED = 256  # operations of an epilogue that may be repeated for a tile, instead of looped over
AHEAD = 64  # steps of the reduction that the rows of a tile are fetched before their use


@dataclass(frozen=True, slots=True)
class Plan:
    """`rows` x `vectors` x `lanes` is the register tile, `depth` the block of the longest reduction axis; `height` and
    `breadth` are those of the rows and the columns, where these go in blocks. `panels_inside`: the panels of a block go
    inside its rows, not around them. `reduce` are the reduction axes, outermost first, of which the innermost is
    unrolled by `unroll`.

    `columns` tells which axes became the columns, and whether the operand is gathered for chunks of them. `packed` is
    the operand that is copied into panels otherwise, `by_rows` one that is copied into the rows of tiles,
    `parallel` one of "columns", "rows" and "none". `converted` are operands that are cast once to the type they are
    computed in, instead of in each tile, and so is a packed one where `widens`. With `epilogue`, results go through the
    group's epilogue tile by tile, as they are made. `made` is the block that makes
    the packed operand itself, where there is one: then it makes it in panels, and nothing is copied.
    """

    columns: Columns
    row: str | None
    outer: tuple[str, ...]
    reduce: tuple[str, ...]
    lanes: int
    vectors: int
    rows: int
    depth: int | None
    packed: Access | None
    parallel: str
    converted: tuple[Access, ...] = ()
    epilogue: bool = False
    by_rows: Access | None = None
    widens: bool = True
    made: Pattern | None = None
    height: int | None = None
    breadth: int | None = None
    panels_inside: bool = False
    unroll: int = 1

    @property
    def column(self) -> str:
        return self.columns.axis.name

    @property
    def wide(self) -> Access:
        """The first operand that has the columns."""
        return next(load for load in self.columns.pattern.loads if self.column in load.axes)


@dataclass(frozen=True, slots=True)
class _Nest:
    """The loops of a contraction besides the columns: `depth` and `height` go around all others, by blocks, `tile` are
    those of the register tile."""

    outer: dict[str, LoopRef]
    depth: list[LoopRef]
    height: list[LoopRef]
    reduce: list[LoopRef]
    tile: list[LoopRef]


@dataclass(frozen=True, slots=True)
class _Made:
    """What is left to do with a nest: `task` is the loop that threads share, if that is still to be said, `last` the
    innermost one outside the reduction."""

    task: LoopRef | None
    last: LoopRef
    reduce: list[LoopRef]


def apply(s: Schedule, group: Group, plan: Plan) -> None:
    """Perform the plan with schedule steps."""
    pattern = plan.columns.pattern
    if plan.columns.joined is not None:
        _join(s, group, plan, plan.columns.joined)
    copy = gathered(s, plan.columns) if plan.columns.chunk is not None else None
    if plan.columns.is_once:
        _gather_once(s, plan)
    rows = _lay_by_rows(s, plan, plan.by_rows) if plan.by_rows is not None else None
    loops = dict(zip([axis.name for axis in pattern.axes], pattern.loops(s)))
    made = _by_panels(s, plan, loops, rows) if copy is None else _by_chunks(s, plan, loops, copy, rows)
    if plan.parallel != "none" and made.task is not None:
        s.parallel(made.task)
    reduce = made.reduce
    s.decompose_reduction(pattern.block, reduce[0])
    if copy is not None and _runs_through(pattern, plan):
        reduce = [s.fuse(*reduce)]
    if rows is not None and plan.by_rows is not None and plan.by_rows.is_constant:
        _fetch(s, rows, reduce)
    if plan.epilogue and group.epilogue is not None:
        finish(s, plan.lanes, group.epilogue, made.last)


def _join(s: Schedule, group: Group, plan: Plan, joined: tuple[str, str]) -> None:
    """Make one iterator of two, in the results and in the epilogue as well where that one may follow."""
    names = [axis.name for axis in group.main.axes]
    at = names.index(joined[0])
    width = size(group.main.axes[at + 1])
    join(s, group.main.block, at, width)
    if plan.epilogue and group.epilogue is not None:  # its axes are those of the results
        at = group.main.store.plain.index(joined[0])
        with suppress(ScheduleError):
            join(s, group.epilogue.block, at, width)
            join_results(s, group.main, at, width)


def _cut(s: Schedule, plan: Plan, loops: dict[str, LoopRef]) -> _Nest:
    """Cut the rows into tiles and blocks of them, and the depth into blocks."""
    outer, tile, height = {name: loops[name] for name in plan.outer}, [], []
    if plan.row is not None:
        if plan.height is None:
            outer[plan.row], row = s.split(loops[plan.row], factors=(None, plan.rows))
        else:
            tiles = max(1, plan.height // plan.rows)
            block, outer[plan.row], row = s.split(loops[plan.row], factors=(None, tiles, plan.rows))
            height.append(block)
        tile.append(row)
    reduce, depth = {name: loops[name] for name in plan.reduce}, []
    if plan.depth is not None:
        name = depth_axis(plan.columns.pattern).name
        block, reduce[name] = s.split(reduce[name], factors=(None, plan.depth))
        depth.append(block)
    inner = [*reduce.values()]
    if plan.unroll > 1:
        inner[-1], step = s.split(inner[-1], factors=(None, plan.unroll))
        tile.insert(0, step)
    return _Nest(outer, depth, height, inner, tile)


def _by_panels(s: Schedule, plan: Plan, loops: dict[str, LoopRef], rows: BlockRef | None) -> _Made:
    """Blocks of columns, of the depth and of rows, panels of columns, rows; or panels inside of these."""
    breadth: list[LoopRef] = []
    if plan.breadth is None:
        panel, vector, lane = s.split(loops[plan.column], factors=(None, plan.vectors, plan.lanes))
    else:
        panels = max(1, plan.breadth // (plan.vectors * plan.lanes))
        block, panel, vector, lane = s.split(loops[plan.column], factors=(None, panels, plan.vectors, plan.lanes))
        breadth.append(block)
    nest = _cut(s, plan, loops)
    outer = [*nest.outer.values()]
    shared = (nest.height[0] if nest.height else _longest(s, outer)) if plan.parallel == "rows" else None
    around = [*breadth, *nest.depth, *nest.height]
    if shared is not None and shared not in around:
        around.append(shared)
    outer = [loop for loop in outer if loop is not shared]
    inside = [*outer, panel] if plan.panels_inside else [panel, *outer]
    s.reorder(*around, *inside, *nest.reduce, *nest.tile, vector, lane)
    _tile(s, [*nest.tile, vector], lane)
    _convert(s, plan)
    task = shared or (breadth[0] if breadth else panel)
    before = [loop for loop in around if loop not in nest.height and loop is not shared]
    is_alone = bool(before) and task is before[0]  # each thread makes copies of its own
    if plan.packed is not None:
        is_once = plan.packed.is_constant
        at_panel = shared is None and not nest.height and not plan.panels_inside
        place = None if is_once else panel if at_panel else before[-1] if before else None
        _pack(s, plan, plan.packed, place, whole=is_once or not at_panel, is_shared=not is_alone)
    if rows is not None and plan.by_rows is not None and not plan.by_rows.is_constant:
        place = next(reversed([*before, *nest.height]), None)
        _fill_rows(s, plan, plan.by_rows, rows, place, is_shared=task not in around)
    return _Made(task, inside[-1] if inside else around[-1], nest.reduce)


def _by_chunks(
    s: Schedule, plan: Plan, loops: dict[str, LoopRef], copy: BlockRef, rows: BlockRef | None
) -> _Made:
    """The same where the operand is gathered: chunks of columns, blocks of the depth, of which each is gathered, panels
    and rows. There is no loop for tasks where the chunks are such."""
    columns = plan.columns
    chunk, column = s.split(loops[plan.column], factors=(None, columns.chunk))
    nest = _cut(s, plan, loops)
    around = [*[loop for name, loop in nest.outer.items() if name in plan.wide.axes], chunk]
    outer = [loop for loop in nest.outer.values() if loop not in around]
    shared = _longest(s, outer) if plan.parallel == "rows" else None
    longest = _longest(s, around) or chunk
    around = [longest, *[loop for loop in around if loop is not longest]]
    s.reorder(*around, *nest.depth, column, *outer, *nest.reduce, *nest.tile)
    fill(s, copy, columns, [*around, *nest.depth][-1], plan.lanes, is_shared=shared is not None)
    if plan.parallel == "columns":  # as long as the columns are not cut: chunks are apart at a glance
        s.parallel(longest)
    panel, vector, lane = s.split(column, factors=(None, plan.vectors, plan.lanes))
    outer = [loop for loop in outer if loop is not shared]
    outer = [*([] if shared is None else [shared]), *([*outer, panel] if plan.panels_inside else [panel, *outer])]
    s.reorder(*outer, *nest.reduce, *nest.tile, vector, lane)
    _tile(s, [*nest.tile, vector], lane)
    _convert(s, plan)
    if rows is not None and plan.by_rows is not None and not plan.by_rows.is_constant:
        _fill_rows(s, plan, plan.by_rows, rows, None, is_shared=plan.parallel != "none")
    return _Made(shared, outer[-1], nest.reduce)


def _tile(s: Schedule, unrolled: list[LoopRef], lane: LoopRef) -> None:
    for loop in unrolled:
        s.unroll(loop)
    s.vectorize(lane)


def _runs_through(pattern: Pattern, plan: Plan) -> bool:
    """Whether all reductions are one walk through the operands that are not gathered."""
    column = column_axis(pattern)
    if plan.unroll > 1 or plan.reduce != tuple([axis.name for axis in pattern.reduce]):
        return False
    extents = [axis.extent for axis in pattern.reduce]
    if column is None or len(extents) < 2 or None in extents:
        return False
    for load in pattern.loads:
        steps = [load.stride(axis.name) for axis in pattern.reduce]
        if column.name in load.axes:
            continue
        for step, extent, before in zip(steps[1:], extents[1:], steps):
            if step is None or extent is None or before != step * extent:
                return False
    return True


def finish(s: Schedule, lanes: int, epilogue: Pattern, place: LoopRef) -> None:
    """Let results go through the epilogue in a loop, as soon as they are made; it stays apart where it cannot."""
    with suppress(ScheduleError):
        s.reverse_compute_at(epilogue.block, place)
        loops = s.loops(epilogue.block)
        inside = loops[loops.index(place) + 1 :]
        if not inside:
            return
        *outer, column = inside
        vector, lane = s.split(column, factors=(None, lanes))
        s.vectorize(lane)
        loops = [*outer, vector]
        count = math.prod([s.extent(loop) or UNKNOWN_EXTENT for loop in loops])
        if count * epilogue.cost <= UNROLLED:
            for loop in loops:
                s.unroll(loop)


def _copied(s: Schedule, block: str, access: Access, widens: bool = True) -> BlockRef | None:
    """A copy of an operand, in the type that it is computed in where it `widens`; None where not all of it is known to
    be written, such as the states of a scan, which several blocks write."""
    try:
        return s.cache_read(block, access.buffer, dtype=access.wide if widens else None)
    except ScheduleError:
        return None


def _convert(s: Schedule, plan: Plan) -> None:
    """Read copies of operands in the type that they are computed in."""
    for access in plan.converted:
        copy = _copied(s, plan.columns.pattern.block, access)
        loops = [] if copy is None else s.loops(copy)
        if not loops:
            continue  # of a single element, too
        *outer, last = loops
        rest, lane = s.split(last, factors=(None, plan.lanes))
        s.vectorize(lane)
        if plan.parallel != "none":
            share(s, [*outer, rest])


def _pack(
    s: Schedule, plan: Plan, packed: Access, place: LoopRef | None, whole: bool, is_shared: bool
) -> None:
    """Copy the wide operand into panels as broad as the tile, so that the tile reads one contiguous stream: one panel,
    or the `whole` of what the loop `place` reads, by all threads where `is_shared`."""
    width = plan.vectors * plan.lanes
    dim = packed.plain.index(plan.column)
    made = None if plan.made is None else s.block(plan.made.block)
    copy = _copied(s, plan.columns.pattern.block, packed, plan.widens) if made is None else made
    if copy is None:
        return
    rest = _rest(packed, plan, dim)

    def panels(*at):
        return (at[dim] // width, *[at[i] for i in rest], at[dim] % width)

    s.transform_layout(copy, copy.name if made is None else packed.buffer, panels)
    if place is not None:
        try:
            s.compute_at(copy, place)
        except ScheduleError:
            if made is None:
                raise
            whole = False  # it stays where it was
    # compute_at leaves out loops of extent 1, so the rest are told by their names.
    own = {loop.name: loop for loop in s.loops(copy) if loop.name.startswith(f"{copy.name}.")}
    column_name = plan.column if plan.made is None else plan.made.axes[dim].name
    column = own.pop(f"{copy.name}.{column_name}", None)
    if column is None:
        return
    across = _across(packed, plan, own, s) if made is None else None
    rows = [s.split(across, factors=(None, plan.lanes))] if across is not None else []
    outer = [*[loop for loop in own.values() if loop is not across], *[row for row, _ in rows]]
    if whole:
        panel, vector, lane = s.split(column, factors=(None, plan.vectors, plan.lanes))
        s.reorder(panel, *outer, vector, *[row for _, row in rows], lane)
        if plan.parallel != "none" and is_shared:
            s.parallel(panel)
    else:
        vector, lane = s.split(column, factors=(None, plan.lanes))
        s.reorder(*outer, vector, *[row for _, row in rows], lane)
    for _, row in rows:
        s.unroll(row)
    s.vectorize(lane)


def _rest(packed: Access, plan: Plan, dim: int) -> list[int]:
    """The dimensions of an operand besides one, in the order of their loops where it is laid out once."""
    rest = [place for place in range(len(packed.plain)) if place != dim]
    order = [*plan.outer, plan.row, *plan.reduce]
    names = [packed.plain[place] for place in rest]
    if packed.is_constant and all(name in order for name in names):
        rest.sort(key=lambda place: order.index(packed.plain[place]))
    return rest


def _lay_by_rows(s: Schedule, plan: Plan, access: Access) -> BlockRef | None:
    """Copy an operand so that the rows of a tile lie side by side."""
    rows, dim = plan.rows, access.plain.index(plan.row)
    copy = _copied(s, plan.columns.pattern.block, access)
    if copy is not None:
        rest = _rest(access, plan, dim)
        s.transform_layout(copy, copy.name, lambda *at: (at[dim] // rows, *[at[i] for i in rest], at[dim] % rows))
    return copy


def _fill_rows(
    s: Schedule, plan: Plan, access: Access, copy: BlockRef, place: LoopRef | None, is_shared: bool
) -> None:
    """Make the copy by rows in the loop `place`, in vectors of what lies side by side."""
    if place is not None:
        s.compute_at(copy, place)
    own = {loop.name.rpartition(".")[2]: loop for loop in s.loops(copy) if loop.name.startswith(f"{copy.name}.")}
    along = [loop for name, loop in own.items() if access.stride(name) == 1 and s.extent(loop) != 1]
    others = [loop for loop in own.values() if loop not in along]
    if along:
        outer, lane = s.split(along[0], factors=(None, plan.lanes))
        s.reorder(*others, outer, lane)
        s.vectorize(lane)
        others = [*others, outer]
    if is_shared and plan.parallel != "none" and others:
        s.parallel(others[0])


def _fetch(s: Schedule, copy: BlockRef, reduce: list[LoopRef]) -> None:
    """Ask for the one stream that the rows of tiles are: processors run less far ahead in one than in several."""
    moving = [loop for loop in reduce if s.extent(loop) != 1]
    with suppress(ScheduleError):
        s.prefetch(moving[-1] if moving else reduce[-1], copy.name, offset=AHEAD)


def _gather_once(s: Schedule, plan: Plan) -> None:
    """Copy a constant operand whose columns do not lie side by side into panels."""
    width = plan.vectors * plan.lanes
    copy = gathered(s, plan.columns)
    if copy is not None:
        s.transform_layout(copy, copy.name, lambda *at: (at[-1] // width, *at[:-1], at[-1] % width))
        fill(s, copy, plan.columns, None, plan.lanes, is_shared=plan.parallel != "none")


def _across(packed: Access, plan: Plan, own: dict[str, LoopRef], s: Schedule) -> LoopRef | None:
    """The loop along which an operand lies in memory that is packed across, as a transposed one is: tiles of it are
    turned in registers."""
    if packed.stride(plan.column) in (0, 1) or plan.lanes not in TRANSPOSED:
        return None
    along = [loop for name, loop in own.items() if packed.stride(name.rpartition(".")[2]) == 1]
    return next((loop for loop in along if (s.extent(loop) or UNKNOWN_EXTENT) >= plan.lanes), None)


def _longest(s: Schedule, loops: list[LoopRef]) -> LoopRef | None:
    return max(loops, key=lambda loop: s.extent(loop) or UNKNOWN_EXTENT, default=None)
