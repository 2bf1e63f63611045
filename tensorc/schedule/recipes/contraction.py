"""Contractions: matrix products, convolutions and their kin, blocked for registers and caches.

The nest for C(i, j) += A(i, k) * B(k, j), outermost first: blocks of k; panels of columns j, each packed just before
its use so that it stays in the level-2 cache; tiles of rows i; k; and a register tile of accumulators. The sizes
follow Low et al., "Analytical Modeling Is Enough for High-Performance BLIS" (TOMS 2016), with one difference: cores of
today feed their registers from the level-2 cache at full speed, so the panel of B lives there while A streams.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from tensorc.errors import ScheduleError
from tensorc.ir.function import Function
from tensorc.schedule.knobs import Knobs
from tensorc.schedule.locate import all_blocks
from tensorc.schedule.recipes.access import Access, Axis, Group, Pattern
from tensorc.schedule.recipes.parallel import share, worth_threads
from tensorc.schedule.regions import buffers_read, buffers_written
from tensorc.schedule.schedule import BlockRef, LoopRef, Schedule
from tensorc.target import Target

VECTOR_LOAD = 0.2  # of a cycle that loading a vector of the panel takes from the multiply-adds beside it
BROADCAST = 0.08  # the same for an element of the other operand, in every lane
CROWDING = 0.5  # cycles for each row over WAYS whose elements fall into one set of the level-1 cache
WAYS = 8  # of the level-1 cache
TILE_OVERHEAD = 30  # cycles to enter and leave a tile, besides moving its accumulators in and out
PANEL_SHARE = 0.65  # of the level-2 cache for the packed panel; what streams past it needs little
PACK_REUSE = 4  # tiles of rows that must share a panel before packing it pays
REREAD = 3  # panels that read an operand before converting it once, into memory, pays
UNROLLED = 256  # operations of an epilogue that may be repeated for a tile, instead of looped over
MOST_VECTORS = 256  # of a tile: past the registers of any target, and each is code of its own
UNKNOWN_EXTENT = 1024  # what a symbolic extent is taken for


@dataclass(frozen=True, slots=True)
class Plan:
    """`rows` x `vectors` x `lanes` is the register tile, `depth` the block of the last reduction axis.

    `packed` is the operand that is copied into panels, `parallel` one of "columns", "rows" and "none". `converted` are
    operands that are cast once to the type they are computed in, instead of in each tile. With `epilogue`, results go
    through the group's epilogue tile by tile, as they are made.
    """

    column: str
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


def matches(pattern: Pattern) -> bool:
    """Whether two operands are each reused along an axis that the other one has, so that a tile saves loads."""
    spatial = {axis.name for axis in pattern.spatial if axis.extent != 1}
    column = _column(pattern)
    if not pattern.reduce or column is None or not pattern.is_box:
        return False
    used = [load.axes & spatial for load in pattern.loads]
    if not any(column.name in axes for axes in used):
        return False
    return any(a - b and b - a for a in used for b in used)


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
    is_whole = all([set(access.plain) == access.whole for access in (own[0], other.store, main.store)])
    in_order = main.store.plain == tuple([axis.name for axis in main.spatial])
    return is_whole and in_order and own[0].plain == other.store.plain == axes


def decide(group: Group, knobs: Knobs, target: Target, threads: int) -> Plan:
    """Choose the tile, the blocks and the threads from the extents and the target; touches no IR."""
    pattern = group.main
    column = _column(pattern)
    assert column is not None  # `matches` has seen to it
    wide = [load for load in pattern.loads if column.name in load.axes]
    row = _row(pattern, column, wide)
    lanes = target.lanes(pattern.itemsize)
    depth_total = math.prod(map(_size, pattern.reduce))
    row_count = _size(row) if row else 1
    streams = [load.stride(row.name) for load in pattern.loads if row and row.name in load.axes]
    crowded = any(stride and stride * pattern.itemsize % (target.l1 // WAYS) == 0 for stride in streams)
    default = _tile(row_count, _size(column), depth_total, lanes, crowded, target)
    rows, vectors = knobs.split("tile", row_count, 3, default=default)
    if rows * vectors > MOST_VECTORS:
        problem = f"{rows} rows of {vectors} vectors are more than the {MOST_VECTORS} vectors of a tile"
        raise ScheduleError(f"knob '{pattern.block}.tile': {problem}")
    width = vectors * lanes
    last = pattern.reduce[-1]
    depth = _depth(last, depth_total, width * pattern.itemsize, target)
    (depth,) = knobs.split("depth", _size(last), 2, default=(depth,))
    outer = [axis for axis in pattern.spatial if axis not in (column, row)]
    reuse = row_count * math.prod([_size(axis) for axis in outer if axis.name not in wide[0].axes])
    operand = wide[0] if len(wide) == 1 and wide[0].plain.count(column.name) == 1 else None
    fits = operand is not None and operand.stride(column.name) == 1 and _size(column) <= width
    pays = operand is not None and reuse >= PACK_REUSE * rows and not fits
    pack = operand is not None and knobs.choice("pack", (True, False), default=pays)
    panels = -(-_size(column) // width)
    share = "columns" if panels >= 4 * threads or panels * rows > reuse else "rows"
    work = math.prod(map(_size, pattern.axes)) / lanes
    ways: tuple[str, ...] = ("columns", "rows", "none")
    if pack and operand is not None and [load.buffer for load in pattern.loads].count(operand.buffer) > 1:
        ways, share = ("rows", "none"), "rows"  # each panel would be more than its columns
    parallel = knobs.choice("parallel", ways, default=share if worth_threads(work, threads) else "none")
    last_block = depth if last.extent is None or depth < last.extent else None
    is_whole = group.epilogue is not None and last_block is None  # no sum is left to be added to
    through = is_whole and knobs.choice("epilogue", (True, False), default=True)
    return Plan(
        column=column.name,
        row=row.name if row else None,
        outer=tuple([axis.name for axis in outer]),
        reduce=tuple([axis.name for axis in pattern.reduce]),
        lanes=lanes,
        vectors=vectors,
        rows=rows,
        depth=last_block,
        packed=operand if pack else None,
        parallel=parallel if threads > 1 else "none",
        converted=_converted(pattern, column, operand if pack else None, panels),
        epilogue=through,
    )


def _converted(pattern: Pattern, column: Axis, packed: Access | None, panels: int) -> tuple[Access, ...]:
    """The narrow operands that every panel of columns reads again: each is converted once, then."""
    if panels < REREAD:
        return ()
    others = [a for a in pattern.loads if column.name not in a.axes and (packed is None or a.buffer != packed.buffer)]
    return tuple({a.buffer: a for a in others if a.wide is not None}.values())


def apply(s: Schedule, group: Group, plan: Plan) -> None:
    """Perform the plan with schedule steps."""
    block = group.main.block
    loops = dict(zip([axis.name for axis in group.main.axes], group.main.loops(s)))
    panel, vector, lane = s.split(loops[plan.column], factors=(None, plan.vectors, plan.lanes))
    outer = [loops[name] for name in plan.outer]
    tile = [vector, lane]
    if plan.row is not None:
        row, row_in = s.split(loops[plan.row], factors=(None, plan.rows))
        outer.append(row)
        tile.insert(0, row_in)
    reduce = [loops[name] for name in plan.reduce]
    blocks: list[LoopRef] = []
    if plan.depth is not None:
        depth, reduce[-1] = s.split(reduce[-1], factors=(None, plan.depth))
        blocks.append(depth)
    shared = _longest(s, outer) if plan.parallel == "rows" else None
    outer = [*([] if shared is None else [shared]), panel, *[loop for loop in outer if loop is not shared]]
    s.reorder(*blocks, *outer, *reduce, *tile)
    for loop in tile[:-1]:
        s.unroll(loop)
    s.vectorize(lane)
    for access in plan.converted:
        _convert(s, block, plan, access)
    if plan.packed is not None:
        place = panel if shared is None else blocks[0] if blocks else None
        _pack(s, block, plan, plan.packed, place, whole=shared is not None)
    if plan.parallel != "none":
        s.parallel(panel if shared is None else shared)
    s.decompose_reduction(block, reduce[0])
    if plan.epilogue and group.epilogue is not None:
        _finish(s, plan, group.epilogue, outer[-1])


def _finish(s: Schedule, plan: Plan, epilogue: Pattern, place: LoopRef) -> None:
    """Let results go through the epilogue in a loop, as soon as they are made; it stays apart where it cannot."""
    with suppress(ScheduleError):
        s.reverse_compute_at(epilogue.block, place)
        loops = s.loops(epilogue.block)
        *outer, column = loops[loops.index(place) + 1 :]
        vector, lane = s.split(column, factors=(None, plan.lanes))
        s.vectorize(lane)
        loops = [*outer, vector]
        extents = [s.extent(loop) for loop in loops]
        if None not in extents and math.prod(extents) * epilogue.cost <= UNROLLED:
            for loop in loops:
                s.unroll(loop)


def _copied(s: Schedule, block: str, access: Access) -> BlockRef | None:
    """A copy of an operand; None where not all of it is known to be written, such as the states of a scan, which
    several blocks write."""
    try:
        return s.cache_read(block, access.buffer, dtype=access.wide)
    except ScheduleError:
        return None


def _convert(s: Schedule, block: str, plan: Plan, access: Access) -> None:
    """Read a copy of an operand in the type that it is computed in."""
    copy = _copied(s, block, access)
    if copy is None:
        return
    *outer, last = s.loops(copy)
    rest, lane = s.split(last, factors=(None, plan.lanes))
    s.vectorize(lane)
    if plan.parallel != "none":
        share(s, [*outer, rest])


def _pack(s: Schedule, block: str, plan: Plan, packed: Access, place: LoopRef | None, whole: bool) -> None:
    """Copy the wide operand into panels as broad as the tile, so that the tile reads one contiguous stream."""
    width = plan.vectors * plan.lanes
    dim = packed.plain.index(plan.column)
    copy = _copied(s, block, packed)
    if copy is None:
        return

    def panels(*indices):
        rest = indices[:dim] + indices[dim + 1 :]
        return (indices[dim] // width, *rest, indices[dim] % width)

    s.transform_layout(copy, copy.name, panels)
    if place is not None:
        s.compute_at(copy, place)
    # compute_at leaves out loops of extent 1, so the rest are told by their names.
    own = {loop.name: loop for loop in s.loops(copy) if loop.name.startswith(f"{copy.name}.")}
    column = own.pop(f"{copy.name}.{plan.column}", None)
    if column is None:
        return
    if whole:
        panel, vector, lane = s.split(column, factors=(None, plan.vectors, plan.lanes))
        s.reorder(panel, *own.values(), vector, lane)
        s.parallel(panel)
    else:
        vector, lane = s.split(column, factors=(None, plan.lanes))
        s.reorder(*own.values(), vector, lane)
    s.vectorize(lane)


def _size(axis: Axis) -> int:
    return UNKNOWN_EXTENT if axis.extent is None else axis.extent


def _column(pattern: Pattern) -> Axis | None:
    """The axis along which the output is contiguous: the one that becomes vectors."""
    for axis in reversed(pattern.spatial):
        if axis.extent != 1 and pattern.store.stride(axis.name) == 1:
            return axis
    return None


def _row(pattern: Pattern, column: Axis, wide: list[Access]) -> Axis | None:
    """The innermost axis along which the wide operands are reused: the one that the register tile spans."""
    candidates = [
        axis
        for axis in pattern.spatial
        if axis is not column and axis.extent != 1 and not any(axis.name in load.axes for load in wide)
    ]
    roomy = [axis for axis in candidates if _size(axis) >= 4]
    found = roomy or candidates
    return found[-1] if found else None


def _longest(s: Schedule, loops: list[LoopRef]) -> LoopRef | None:
    return max(loops, key=lambda loop: s.extent(loop) or UNKNOWN_EXTENT, default=None)


def _tile(rows: int, columns: int, depth: int, lanes: int, crowded: bool, target: Target) -> tuple[int, int]:
    """The (rows, vectors) of the register tile that the model finds quickest, tails included.

    `crowded`: the rows lie a multiple of the level-1 cache's way apart, so that they compete for one set of it.
    """
    room = target.vector_registers - 1  # one holds the broadcast element
    best = min(
        (
            (_cycles(rows, columns, depth, r, v, lanes, crowded, target), r, v)
            for r in range(1, min(rows, 14) + 1)
            for v in range(1, min(8, -(-columns // lanes)) + 1)
            if r * v + v <= room
        ),
        default=(0, 1, 1),
    )
    return best[1], best[2]


def _cycles(
    rows: int, columns: int, depth: int, r: int, v: int, lanes: int, crowded: bool, target: Target
) -> float:
    """Cycles for the whole product by tiles of r rows and v vectors."""
    full_rows, last_rows = divmod(rows, r)
    vectors = -(-columns // lanes)
    full_panels, last_vectors = divmod(vectors, v)
    total = 0.0
    for height, down in ((r, full_rows), (last_rows, last_rows > 0)):
        for breadth, across in ((v, full_panels), (last_vectors, last_vectors > 0)):
            if height and breadth:
                fma = max(height * breadth / target.fma_per_cycle, target.fma_latency)
                step = fma + VECTOR_LOAD * breadth + BROADCAST * height
                step += CROWDING * max(0, height - WAYS) if crowded else 0.0
                total += down * across * (depth * step + TILE_OVERHEAD + 2 * height * breadth)
    return total


def _depth(axis: Axis, total: int, row_bytes: int, target: Target) -> int:
    """The block of the last reduction axis that keeps a panel in its share of the level-2 cache: equal parts of it."""
    rest = total // max(1, _size(axis))
    most = max(64, int(target.l2 * PANEL_SHARE) // (row_bytes * max(1, rest)))
    parts = -(-_size(axis) // most)
    return max(1, -(-_size(axis) // max(1, parts)))
