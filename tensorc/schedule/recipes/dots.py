"""Contractions with few columns: a vector along the depth instead, as for dot products.

    C[i, 0..3] += A[i, k] * B[k, 0..3]   ->   C[i, j] += A[i, k..k+16] * B_global[j, k..k+16]

Three columns would fill three lanes of sixteen. Along the depth every lane works, and keeps a part of the sum; what is
lost is the time to add the parts up at the end, once for each result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tensorc.errors import ScheduleError
from tensorc.schedule.knobs import Knobs
from tensorc.schedule.recipes.access import Access, Axis, Pattern
from tensorc.schedule.recipes.parallel import share, worth_threads
from tensorc.schedule.recipes.tiles import size
from tensorc.schedule.schedule import Schedule
from tensorc.target import Target

SUM = 6  # cycles to add up the lanes of a result
LOAD = 0.5  # cycles to load a vector of a column
FAR_LOAD = 2.0  # the same where the columns do not fit the level-1 cache
ACCUMULATORS = 16  # vectors of partial sums, so many that additions do not wait for each other


@dataclass(frozen=True, slots=True)
class Plan:
    """`axis` of the depth becomes vectors of `lanes`; a tile is `rows` of axis `row` by all of the `column`s. `turned`
    is the operand that is copied so that it lies along the depth."""

    pattern: Pattern
    axis: str
    row: str
    column: str
    lanes: int
    rows: int
    turned: Access | None
    parallel: bool


def fits(pattern: Pattern, column: Axis, target: Target) -> bool:
    """Whether a contraction may be done so: less than a vector of columns, and a row of the other operand that is at
    least a vector long and lies along a reduction."""
    return _operands(pattern, column, target) is not None


def pays(pattern: Pattern, column: Axis, target: Target) -> bool:
    """Whether it takes fewer cycles than vectors that the columns do not fill."""
    depth, count = math.prod(map(size, pattern.reduce)), size(column)
    load = LOAD if count * depth * pattern.itemsize < target.l1 else FAR_LOAD
    step = 1 / target.fma_per_cycle + load / max(1, ACCUMULATORS // count)
    return count * (depth / target.lanes(pattern.itemsize) * step + SUM) < depth / target.fma_per_cycle


def decide(pattern: Pattern, column: Axis, knobs: Knobs, target: Target, threads: int) -> Plan:
    """Choose the tile and the threads; touches no IR."""
    found = _operands(pattern, column, target)
    assert found is not None
    deep, wide, row = found
    lanes, count = target.lanes(pattern.itemsize), size(column)
    most = max(1, min(size(row), ACCUMULATORS // count))
    (rows,) = knobs.split("rows", size(row), 2, default=(most,))
    if rows * count > 2 * target.vector_registers:
        raise ScheduleError(f"knob '{pattern.block}.rows': {rows} rows of {count} results are more than registers hold")
    axis = _depth(pattern, deep, lanes)
    assert axis is not None
    work = math.prod(map(size, pattern.axes)) / lanes
    parallel = knobs.choice("parallel", (True, False), default=worth_threads(work, threads))
    turned = None if wide.stride(axis.name) == 1 else wide
    return Plan(pattern, axis.name, row.name, column.name, lanes, rows, turned, parallel and threads > 1)


def _operands(pattern: Pattern, column: Axis, target: Target) -> tuple[Access, Access, Axis] | None:
    """The operand that lies along the depth, the one with the columns, and the rows."""
    lanes = target.lanes(pattern.itemsize)
    if not 0 < (column.extent or 0) < lanes or not pattern.has_lanes or len(pattern.loads) != 2:
        return None
    deep, wide = sorted(pattern.loads, key=lambda load: column.name in load.axes)
    if column.name in deep.axes or deep.buffer == wide.buffer or deep.wide is not None or wide.wide is not None:
        return None
    rows = [a for a in pattern.spatial if a.extent != 1 and a.name in deep.axes and a.name not in wide.axes]
    axis = _depth(pattern, deep, lanes)
    if not rows or axis is None or wide.is_guarded:
        return None
    is_laid_out = wide.stride(axis.name) == 1 or wide.plain.count(axis.name) == 1
    return (deep, wide, rows[-1]) if is_laid_out else None


def _depth(pattern: Pattern, deep: Access, lanes: int) -> Axis | None:
    """The reduction along which an operand lies."""
    axis = next((each for each in pattern.reduce if deep.stride(each.name) == 1), None)
    return axis if axis is not None and (axis.extent or 0) >= lanes else None


def apply(s: Schedule, plan: Plan) -> None:
    """Perform the plan with schedule steps."""
    pattern = plan.pattern
    loops = dict(zip([axis.name for axis in pattern.axes], pattern.loops(s)))
    outer = {axis.name: loops[axis.name] for axis in pattern.spatial}
    column = outer.pop(plan.column)
    outer[plan.row], row = s.split(loops[plan.row], factors=(None, plan.rows))
    depth, lane = s.split(loops[plan.axis], factors=(None, plan.lanes))
    reduce = [*[loops[axis.name] for axis in pattern.reduce if axis.name != plan.axis], depth]
    s.reorder(*outer.values(), *reduce, row, column, lane)
    for loop in (row, column):
        s.unroll(loop)
    s.vectorize(lane)
    if plan.turned is not None:
        _turn(s, plan, plan.turned)
    if plan.parallel:
        share(s, [*outer.values()])
    s.decompose_reduction(pattern.block, reduce[0])


def _turn(s: Schedule, plan: Plan, operand: Access) -> None:
    """Copy an operand so that it lies along the depth."""
    at, column, lanes = operand.plain.index(plan.axis), operand.plain.index(plan.column), plan.lanes
    copy = s.cache_read(plan.pattern.block, operand.buffer)

    def panels(*indices):
        rest = [index for dim, index in enumerate(indices) if dim not in (at, column)]
        return (*rest, indices[at] // lanes, indices[column], indices[at] % lanes)

    s.transform_layout(copy, copy.name, panels)
