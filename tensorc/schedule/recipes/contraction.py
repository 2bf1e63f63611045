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
from dataclasses import replace

from tensorc.errors import ScheduleError
from tensorc.ir.function import Function
from tensorc.schedule.knobs import Knobs
from tensorc.schedule.recipes import dots, groups, nests
from tensorc.schedule.recipes.access import Access, Axis, Group, Pattern
from tensorc.schedule.recipes.columns import (
    are_alone,
    choose_columns,
    column_axis,
    depth_axis,
    product_of,
    row_axis,
)
from tensorc.schedule.recipes.nests import Plan
from tensorc.schedule.recipes.parallel import worth_threads
from tensorc.schedule.recipes.tiles import best_tile, depth_block, size
from tensorc.schedule.schedule import Schedule
from tensorc.target import Target

PACK_REUSE = 4  # tiles of rows that must share a panel before packing it pays
REREAD = 3  # panels that read an operand before converting it once, into memory, pays
BLOCKS = (2, 4, 8, 16, 32)  # steps that a block of rows or columns may have
NARROWEST = 4  # lanes of a vector
UNROLLS = (1, 2, 4)  # steps of the innermost reduction in the code of a tile
MOST_VECTORS = 256  # of a tile: past the registers of any target, and each is code of its own


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
        strays = strays and by_rows.is_constant
        by_rows = by_rows if knobs.choice("pack_rows", (True, False), default=strays) else None
    product = product_of(pattern, column, target, by_rows)
    row_count, lanes = product.rows, product.lanes
    if lanes >= 2 * NARROWEST:  # columns that do not fill whole registers may fill halves
        lanes = knobs.choice("lanes", (lanes, lanes // 2), default=lanes)
        product = replace(product, lanes=lanes)
    width = columns.chunk or size(column)
    found = best_tile(replace(product, columns=width), target)
    default = (found.rows, found.vectors)
    rows, vectors = knobs.split("tile", max(row_count, -(-width // lanes)), 3, default=default)
    if rows * vectors > MOST_VECTORS:
        problem = f"{rows} rows of {vectors} vectors are more than the {MOST_VECTORS} vectors of a tile"
        raise ScheduleError(f"knob '{pattern.block}.tile': {problem}")
    width = vectors * lanes
    last = depth_axis(pattern)
    row_bytes = (columns.chunk or width) * pattern.itemsize
    block = depth_block(last, product.depth, row_bytes, target, is_even=columns.chunk is not None)
    (depth,) = knobs.split("depth", size(last), 2, default=(block,))
    height = _block(knobs, "height", row_count, rows)
    breadth = None if columns.chunk is not None else _block(knobs, "breadth", size(column), width)
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
    around = knobs.choice("around", ("panels", "rows"), default="panels")
    if around == "rows" and breadth is None and columns.chunk is None:
        ways, share = ("rows", "none"), "rows"  # panels are no tasks there
    made = group.prologue if pack and operand is not None and operand.wide is None else None
    made = made if made is not None and operand is not None and made.store.buffer == operand.buffer else None
    buffers = [load.buffer for load in pattern.loads]
    if pack and operand is not None and not is_constant and buffers.count(operand.buffer) > 1:
        ways, share = ("rows", "none"), "rows"  # each panel would be more than its columns
    parallel = knobs.choice("parallel", ways, default=share if worth_threads(work, threads) else "none")
    reduce = _order(pattern, knobs)
    steps = depth if reduce[-1] == last.name else size(next(a for a in pattern.reduce if a.name == reduce[-1]))
    unroll = knobs.choice("unroll", tuple([n for n in UNROLLS if n == 1 or steps % n == 0]), default=1)
    last_block = depth if last.extent is None or depth < last.extent else None
    is_whole = group.epilogue is not None and last_block is None  # no sum is left to be added to
    through = is_whole and knobs.choice("epilogue", (True, False), default=True)
    return Plan(
        columns=columns,
        row=row.name if row else None,
        outer=tuple([axis.name for axis in outer]),
        reduce=reduce,
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
        height=height,
        breadth=breadth,
        panels_inside=around == "rows",
        unroll=unroll,
    )


def taken(group: Group, plan: Plan | dots.Plan) -> frozenset[str]:
    """The other blocks of the group that a plan is for as well."""
    if isinstance(plan, dots.Plan):
        return frozenset()
    found = (group.epilogue if plan.epilogue else None, plan.made)
    return frozenset([each.block for each in found if each is not None])


def _by_rows(pattern: Pattern, row: Axis | None, wide: list[Access]) -> Access | None:
    """The operand that has the rows, if it can be laid out by them."""
    found = [load for load in pattern.loads if row and row.name in load.axes and load not in wide]
    buffers = [load.buffer for load in pattern.loads]
    if row is None or len(found) != 1 or found[0].plain.count(row.name) != 1:
        return None
    return found[0] if buffers.count(found[0].buffer) == 1 else None


def _block(knobs: Knobs, name: str, extent: int, step: int) -> int | None:
    """How much of an axis a block around others has: some steps, or, by default, all of it."""
    options = (0, *[count for count in BLOCKS if count * step < extent])
    count = knobs.choice(name, options, default=0) if len(options) > 1 else 0
    return count * step if count else None


def _order(pattern: Pattern, knobs: Knobs) -> tuple[str, ...]:
    """The reduction axes in the order of their loops: one of them may be the innermost instead."""
    names = [axis.name for axis in pattern.reduce]
    moving = [axis.name for axis in pattern.reduce if axis.extent != 1]
    if len(moving) < 2:
        return tuple(names)
    innermost = knobs.choice("innermost", tuple(moving), default=moving[-1])
    return tuple(names) if innermost == moving[-1] else (*[n for n in names if n != innermost], innermost)


def _converted(
    pattern: Pattern, column: Axis, packed: Sequence[Access | None], panels: int
) -> tuple[Access, ...]:
    """The narrow operands that every panel of columns reads again: each is converted once, then."""
    if panels < REREAD:
        return ()
    done = {access.buffer for access in packed if access is not None}
    others = [a for a in pattern.loads if column.name not in a.axes and a.buffer not in done]
    return tuple({a.buffer: a for a in others if a.wide is not None}.values())


def apply(s: Schedule, group: Group, plan: Plan | dots.Plan) -> None:
    """Perform the plan with schedule steps."""
    if isinstance(plan, dots.Plan):
        dots.apply(s, plan)
    else:
        nests.apply(s, group, plan)
