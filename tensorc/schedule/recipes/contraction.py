"""Contractions: matrix products, convolutions and their kin, blocked for registers and caches.

The nest for C(i, j) += A(i, k) * B(k, j), outermost first: blocks of k; panels of columns j, each packed just before
its use so that it stays in the level-2 cache; tiles of rows i; k; and a register tile of accumulators. The sizes
follow Low et al., "Analytical Modeling Is Enough for High-Performance BLIS" (TOMS 2016), with one difference: cores of
today feed their registers from the level-2 cache at full speed, so the panel of B lives there while A streams.

Operands that are constant are laid out before all of that, whole, in the order in which the tiles read them: B by
panels of columns, A by the rows of a tile. Where these copies depend on nothing else, no call makes them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from tensorc.errors import ScheduleError
from tensorc.ir.function import Function
from tensorc.schedule.knobs import Knobs
from tensorc.schedule.recipes import dots, groups
from tensorc.schedule.recipes.access import Access, Axis, Group, Pattern
from tensorc.schedule.recipes.columns import (
    Columns,
    are_alone,
    choose_columns,
    column_axis,
    depth_axis,
    fill,
    gathered,
    join,
    join_results,
    product_of,
    row_axis,
)
from tensorc.schedule.recipes.parallel import share, worth_threads
from tensorc.schedule.recipes.tiles import UNKNOWN_EXTENT, best_tile, depth_block, size
from tensorc.schedule.schedule import BlockRef, LoopRef, Schedule
from tensorc.target import Target

PACK_REUSE = 4  # tiles of rows that must share a panel before packing it pays
REREAD = 3  # panels that read an operand before converting it once, into memory, pays
TRANSPOSED = (4, 8, 16)  # lanes by lanes that are turned in registers
UNROLLED = 256  # operations of an epilogue that may be repeated for a tile, instead of looped over
AHEAD = 64  # steps of the reduction that the rows of a tile are fetched before their use
MOST_VECTORS = 256  # of a tile: past the registers of any target, and each is code of its own


@dataclass(frozen=True, slots=True)
class Plan:
    """`rows` x `vectors` x `lanes` is the register tile, `depth` the block of the last reduction axis.

    `columns` tells which axes became the columns, and whether the operand is gathered for chunks of them. `packed` is
    the operand that is copied into panels otherwise, `by_rows` a constant one that is copied into the rows of tiles,
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

    @property
    def column(self) -> str:
        return self.columns.axis.name

    @property
    def wide(self) -> Access:
        """The first operand that has the columns."""
        return next(load for load in self.columns.pattern.loads if self.column in load.axes)


def matches(pattern: Pattern) -> bool:
    """Whether two operands are each reused along an axis that the other one has, so that a tile saves loads."""
    spatial = {axis.name for axis in pattern.spatial if axis.extent != 1}
    column = column_axis(pattern)
    if not pattern.reduce or column is None or not pattern.is_box:
        return False
    used = [load.axes & spatial for load in pattern.loads]
    if not any(column.name in axes for axes in used):
        return False
    return any(a - b and b - a for a in used for b in used)


def reuse(pattern: Pattern, buffer: str) -> int:
    """How many results each vector of an operand goes into; 0 where it is not read in vectors."""
    load, column = next(load for load in pattern.loads if load.buffer == buffer), column_axis(pattern)
    if column is None or column.name not in load.axes:
        return 0
    return math.prod([size(axis) for axis in pattern.spatial if axis.name not in load.axes])


def producer(function: Function, main: Pattern, others: Sequence[Pattern]) -> Pattern | None:
    """The one among other blocks that makes what is packed, if just the contraction reads it: it may as well be made
    in panels."""
    column = column_axis(main)
    wide = [load for load in main.loads if column is not None and column.name in load.axes]
    return groups.producer(function, main, wide[0].buffer, others) if len(wide) == 1 else None


def decide(group: Group, knobs: Knobs, target: Target, threads: int) -> Plan | dots.Plan:
    """Choose the tile, the blocks and the threads from the extents and the target; touches no IR."""
    column = column_axis(group.main)
    assert column is not None  # `matches` has seen to it
    if dots.fits(group.main, column, target) and are_alone(group.main, column):
        default = "depth" if dots.pays(group.main, column, target) else "columns"
        if knobs.choice("vectors", ("columns", "depth"), default=default) == "depth":
            return dots.decide(group.main, column, knobs, target, threads)
    return _by_columns(group, knobs, target, threads)


def _by_columns(group: Group, knobs: Knobs, target: Target, threads: int) -> Plan:
    columns = choose_columns(group.main, knobs, target, group.is_alone)
    pattern, column = columns.pattern, columns.axis
    wide = [load for load in pattern.loads if column.name in load.axes]
    row = row_axis(pattern, column)
    by_rows = _by_rows(pattern, row, wide)
    if by_rows is not None:  # rows that are walked through one by one are streams enough for the processor as they are
        strays = [by_rows.stride(axis.name) for axis in pattern.reduce if axis.extent != 1][-1:] != [1]
        by_rows = by_rows if knobs.choice("pack_rows", (True, False), default=strays) else None
    product = product_of(pattern, column, target, by_rows)
    row_count, lanes = product.rows, product.lanes
    width = columns.chunk or size(column)
    found = best_tile(replace(product, columns=width), target)
    default = (found.rows, found.vectors)
    rows, vectors = knobs.split("tile", row_count, 3, default=default)
    if rows * vectors > MOST_VECTORS:
        problem = f"{rows} rows of {vectors} vectors are more than the {MOST_VECTORS} vectors of a tile"
        raise ScheduleError(f"knob '{pattern.block}.tile': {problem}")
    width = vectors * lanes
    last = depth_axis(pattern)
    row_bytes = (columns.chunk or width) * pattern.itemsize
    block = depth_block(last, product.depth, row_bytes, target, is_even=columns.chunk is not None)
    (depth,) = knobs.split("depth", size(last), 2, default=(block,))
    outer = [axis for axis in pattern.spatial if axis not in (column, row)]
    reuse = row_count * math.prod([size(axis) for axis in outer if axis.name not in wide[0].axes])
    operand = wide[0] if len(wide) == 1 and wide[0].plain.count(column.name) == 1 else None
    fits = operand is not None and operand.stride(column.name) == 1 and size(column) <= width
    is_shared = reuse >= PACK_REUSE * rows
    is_constant = operand is not None and operand.is_constant
    pays = operand is not None and (is_shared or is_constant) and not fits
    pack = operand is not None and knobs.choice("pack", (True, False), default=pays)
    panels = -(-size(column) // width)
    if columns.chunk is not None:
        apart = [size(axis) for axis in outer if axis.name in wide[0].axes]
        panels = max(-(-size(column) // columns.chunk), *apart, 1)
    share = "columns" if panels >= 4 * threads or panels * rows > reuse else "rows"
    work = math.prod(map(size, pattern.axes)) / lanes
    ways: tuple[str, ...] = ("columns", "rows", "none")
    made = group.prologue if pack and operand is not None and operand.wide is None else None
    made = made if made is not None and operand is not None and made.store.buffer == operand.buffer else None
    buffers = [load.buffer for load in pattern.loads]
    if pack and operand is not None and not is_constant and buffers.count(operand.buffer) > 1:
        ways, share = ("rows", "none"), "rows"  # each panel would be more than its columns
    parallel = knobs.choice("parallel", ways, default=share if worth_threads(work, threads) else "none")
    last_block = depth if last.extent is None or depth < last.extent else None
    is_whole = group.epilogue is not None and last_block is None  # no sum is left to be added to
    through = is_whole and knobs.choice("epilogue", (True, False), default=True)
    return Plan(
        columns=columns,
        row=row.name if row else None,
        outer=tuple([axis.name for axis in outer]),
        reduce=tuple([axis.name for axis in pattern.reduce]),
        lanes=lanes,
        vectors=vectors,
        rows=rows,
        depth=last_block,
        packed=operand if pack else None,
        made=made,
        parallel=parallel if threads > 1 else "none",
        converted=_converted(pattern, column, [wide[0] if pack or columns.chunk else None, by_rows], panels),
        epilogue=through,
        by_rows=by_rows,
        widens=is_shared or not is_constant,
    )


def taken(group: Group, plan: Plan | dots.Plan) -> frozenset[str]:
    """The other blocks of the group that a plan is for as well."""
    if isinstance(plan, dots.Plan):
        return frozenset()
    found = (group.epilogue if plan.epilogue else None, plan.made)
    return frozenset([each.block for each in found if each is not None])


def _by_rows(pattern: Pattern, row: Axis | None, wide: list[Access]) -> Access | None:
    """The constant operand that has the rows, if it can be laid out by them."""
    found = [load for load in pattern.loads if row and row.name in load.axes and load not in wide and load.is_constant]
    buffers = [load.buffer for load in pattern.loads]
    if row is None or len(found) != 1 or found[0].plain.count(row.name) != 1:
        return None
    return found[0] if buffers.count(found[0].buffer) == 1 else None


def _converted(
    pattern: Pattern, column: Axis, packed: Sequence[Access | None], panels: int
) -> tuple[Access, ...]:
    """The narrow operands that every panel of columns reads again: each is converted once, then."""
    if panels < REREAD:
        return ()
    done = {access.buffer for access in packed if access is not None}
    others = [a for a in pattern.loads if column.name not in a.axes and a.buffer not in done]
    return tuple({a.buffer: a for a in others if a.wide is not None}.values())


@dataclass(frozen=True, slots=True)
class _Nest:
    """The loops of a contraction besides the columns: `tile` are those of the register tile."""

    outer: dict[str, LoopRef]
    blocks: list[LoopRef]
    reduce: list[LoopRef]
    tile: list[LoopRef]


def apply(s: Schedule, group: Group, plan: Plan | dots.Plan) -> None:
    """Perform the plan with schedule steps."""
    if isinstance(plan, dots.Plan):
        dots.apply(s, plan)
        return
    pattern = plan.columns.pattern
    if plan.columns.joined is not None:
        _join(s, group, plan, plan.columns.joined)
    copy = gathered(s, plan.columns) if plan.columns.chunk is not None else None
    if plan.columns.is_once:
        _gather_once(s, plan)
    rows = _lay_by_rows(s, plan, plan.by_rows) if plan.by_rows is not None else None
    loops = dict(zip([axis.name for axis in pattern.axes], pattern.loops(s)))
    parts = _by_panels(s, plan, loops) if copy is None else _by_chunks(s, plan, loops, copy)
    task, last, reduce = parts
    if plan.parallel != "none" and task is not None:
        s.parallel(task)
    s.decompose_reduction(pattern.block, reduce[0])
    if copy is not None and _runs_through(pattern):
        reduce = [s.fuse(*reduce)]
    if rows is not None:
        _fetch(s, rows, reduce)
    if plan.epilogue and group.epilogue is not None:
        finish(s, plan.lanes, group.epilogue, last)


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
    """Cut the rows into tiles, and the depth into blocks."""
    outer, tile = {name: loops[name] for name in plan.outer}, []
    if plan.row is not None:
        outer[plan.row], row = s.split(loops[plan.row], factors=(None, plan.rows))
        tile.append(row)
    reduce, blocks = {name: loops[name] for name in plan.reduce}, []
    if plan.depth is not None:
        name = depth_axis(plan.columns.pattern).name
        depth, reduce[name] = s.split(reduce[name], factors=(None, plan.depth))
        blocks.append(depth)
    return _Nest(outer, blocks, [*reduce.values()], tile)


def _by_panels(
    s: Schedule, plan: Plan, loops: dict[str, LoopRef]
) -> tuple[LoopRef, LoopRef, list[LoopRef]]:
    """Blocks of the depth, panels of columns, rows: the loop for tasks, the last one outside the tile, and the
    reduction."""
    panel, vector, lane = s.split(loops[plan.column], factors=(None, plan.vectors, plan.lanes))
    nest = _cut(s, plan, loops)
    outer = [*nest.outer.values()]
    shared = _longest(s, outer) if plan.parallel == "rows" else None
    outer = [*([] if shared is None else [shared]), panel, *[loop for loop in outer if loop is not shared]]
    s.reorder(*nest.blocks, *outer, *nest.reduce, *nest.tile, vector, lane)
    _tile(s, [*nest.tile, vector], lane)
    _convert(s, plan)
    if plan.packed is not None:
        if plan.packed.is_constant:
            _pack(s, plan, plan.packed, None, whole=True)
        else:
            place = panel if shared is None else nest.blocks[0] if nest.blocks else None
            _pack(s, plan, plan.packed, place, whole=shared is not None)
    return panel if shared is None else shared, outer[-1], nest.reduce


def _by_chunks(
    s: Schedule, plan: Plan, loops: dict[str, LoopRef], copy: BlockRef
) -> tuple[LoopRef | None, LoopRef, list[LoopRef]]:
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
    s.reorder(*around, *nest.blocks, column, *outer, *nest.reduce, *nest.tile)
    fill(s, copy, columns, [*around, *nest.blocks][-1], plan.lanes, is_shared=shared is not None)
    if plan.parallel == "columns":  # as long as the columns are not cut: chunks are apart at a glance
        s.parallel(longest)
    panel, vector, lane = s.split(column, factors=(None, plan.vectors, plan.lanes))
    outer = [*([] if shared is None else [shared]), panel, *[loop for loop in outer if loop is not shared]]
    s.reorder(*outer, *nest.reduce, *nest.tile, vector, lane)
    _tile(s, [*nest.tile, vector], lane)
    _convert(s, plan)
    return shared, outer[-1], nest.reduce


def _tile(s: Schedule, unrolled: list[LoopRef], lane: LoopRef) -> None:
    for loop in unrolled:
        s.unroll(loop)
    s.vectorize(lane)


def _runs_through(pattern: Pattern) -> bool:
    """Whether all reductions are one walk through the operands that are not gathered."""
    column = column_axis(pattern)
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


def _pack(s: Schedule, plan: Plan, packed: Access, place: LoopRef | None, whole: bool) -> None:
    """Copy the wide operand into panels as broad as the tile, so that the tile reads one contiguous stream."""
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
        if plan.parallel != "none":
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
    """Copy a constant operand so that the rows of a tile lie side by side."""
    rows, dim = plan.rows, access.plain.index(plan.row)
    copy = _copied(s, plan.columns.pattern.block, access)
    if copy is not None:
        rest = _rest(access, plan, dim)
        s.transform_layout(copy, copy.name, lambda *at: (at[dim] // rows, *[at[i] for i in rest], at[dim] % rows))
    return copy


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
