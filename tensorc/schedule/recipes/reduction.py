"""Reductions without reuse: sums, norms, pooling, matrix-vector products; all limited by memory.

Where the data is contiguous along an axis of the output, that axis becomes vectors and each keeps its accumulators;
where it is contiguous along the reduction, the reduction becomes vectors of partial results that combine at the end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tensorc.schedule.knobs import Knobs
from tensorc.schedule.locate import find_block
from tensorc.schedule.recipes.access import Axis, Group, Pattern
from tensorc.schedule.recipes.parallel import share, worth_threads
from tensorc.schedule.schedule import LoopRef, Schedule
from tensorc.target import Target

ACCUMULATORS = 4  # vectors in flight: enough to hide the latency of an addition
ROWS = 8  # that a pass over long rows takes together, so that partial results come and go once for so many terms
SIDE_BY_SIDE = 4  # results that share the loads of an operand, where loads are the limit and not memory
LONG = 1024  # bytes of a row from which on it is walked along: the next one is on another page
UNKNOWN_EXTENT = 256


@dataclass(frozen=True, slots=True)
class Plan:
    """`axis` becomes vectors of `lanes` elements, `vectors` of them side by side; `parallel`: share the outer loops.

    With `rows`, so many terms are added in one pass over `block` vectors of results, which stay in the level-1 cache.
    `beside` is an axis of which several results are reduced together, as they share an operand. With `parts`, the first
    reduction is done in so many parts, each with a result of its own, for threads to share where results are few.
    """

    axis: str | None
    lanes: int
    vectors: int
    parallel: bool
    rows: int = 0
    block: int = 0
    beside: str | None = None
    parts: int = 0


def matches(pattern: Pattern) -> bool:
    """Whether the block reduces at all."""
    return bool(pattern.reduce)


def decide(group: Group, knobs: Knobs, target: Target, threads: int) -> Plan:
    """Choose the axis for vectors by how the loads walk memory; touches no IR."""
    pattern = group.main
    axis = _vector_axis(pattern)
    lanes = target.lanes(pattern.itemsize)
    extent = 1 if axis is None else axis.extent or UNKNOWN_EXTENT
    while lanes > 1 and lanes // 2 >= extent:
        lanes //= 2
    most = max(1, min(ACCUMULATORS, extent // lanes))
    vectors = knobs.choice("vectors", (1, 2, 4, 8, 16), default=1 << (most.bit_length() - 1))
    own = [a for a in pattern.axes if a.kind != "ordered"]
    work = math.prod(a.extent or UNKNOWN_EXTENT for a in own) * pattern.cost / lanes
    parallel = knobs.choice("parallel", (True, False), default=worth_threads(work, threads))
    rows = knobs.choice("rows", (0, 4, ROWS, 2 * ROWS), default=ROWS) if _walks_rows(pattern, axis) else 0
    shared = _shares_operand(pattern, axis)
    near = all(load.size is not None and load.size * load.itemsize <= target.l2 for load in pattern.loads)
    beside = shared if shared is not None and knobs.choice("beside", (True, False), default=near) else None
    block = target.l1 // (2 * lanes * pattern.store.itemsize)
    if parallel:
        block = min(block, -(-extent // (2 * lanes * threads)))
    block = max(1, min(block, -(-extent // lanes)))
    parts = _parts(pattern, axis, threads)
    count = knobs.choice("parts", parts, default=0) if len(parts) > 1 else 0
    return Plan(axis.name if axis else None, lanes, vectors, parallel and threads > 1, rows, block, beside, count)


def _parts(pattern: Pattern, axis: Axis | None, threads: int) -> tuple[int, ...]:
    """The numbers of parts that a reduction may have, where there are fewer results than threads."""
    results = math.prod([each.extent or UNKNOWN_EXTENT for each in pattern.spatial])
    extent = pattern.reduce[0].extent
    if results >= threads or axis is None or axis.kind != "reduce" or not pattern.is_box or extent is None:
        return (0,)
    return (0, *[count for count in (threads, 2 * threads, 4 * threads) if extent % count == 0 and count < extent])


def _shares_operand(pattern: Pattern, axis: Axis | None) -> str | None:
    """The innermost axis of the result whose neighbours read one long operand in common, beside one of their own."""
    last = pattern.spatial[-1] if pattern.spatial else None
    if axis is None or axis.kind != "reduce" or last is None or not pattern.is_box:
        return None
    if (last.extent or UNKNOWN_EXTENT) < 2 * SIDE_BY_SIDE or (axis.extent or UNKNOWN_EXTENT) * pattern.itemsize < LONG:
        return None
    along = [last.name in load.axes for load in pattern.loads if axis.name in load.axes]
    return last.name if any(along) and not all(along) else None


def _walks_rows(pattern: Pattern, axis: Axis | None) -> bool:
    """Whether many long rows are combined element by element."""
    if axis is None or axis.kind != "spatial" or any(each.within for each in pattern.axes):
        return False
    last = pattern.reduce[-1]
    extent, terms = axis.extent or UNKNOWN_EXTENT, last.extent or UNKNOWN_EXTENT
    rows = [load for load in pattern.loads if load.stride(axis.name) == 1 and last.name in load.axes]
    return bool(rows) and terms >= 4 * ROWS and extent * min(load.itemsize for load in rows) >= LONG


def apply(s: Schedule, group: Group, plan: Plan) -> None:
    """Perform the plan with schedule steps."""
    pattern = group.main
    block = pattern.block
    loops = dict(zip([axis.name for axis in pattern.axes], pattern.loops(s)))
    spatial = [loops[axis.name] for axis in pattern.spatial]
    if plan.parts:
        first = pattern.reduce[0].name
        part, loops[first] = s.split(loops[first], factors=(plan.parts, None))
        block = s.rfactor(part).name
        spatial.append(part)
    reduce = [loops[axis.name] for axis in pattern.reduce]
    first_reduce = reduce[0]
    if plan.axis is not None:
        loop = loops[plan.axis]
        if plan.rows:
            spatial = _walk_rows(s, plan, loop, spatial, reduce)
            first_reduce = reduce[0]
        elif loop in spatial:
            at = spatial.index(loop)
            outer, vector, lane = s.split(loop, factors=(None, plan.vectors, plan.lanes))
            spatial[at] = outer
            s.reorder(*spatial[at:], *reduce, vector, lane)
            s.unroll(vector)
            s.vectorize(lane)
        else:
            at = reduce.index(loop)
            reduce[at], lane = s.split(loop, factors=(None, plan.vectors * plan.lanes))
            first_reduce = reduce[0]
            inner = [*reduce[at:], lane] if at < len(reduce) - 1 else []
            if plan.beside is not None:
                spatial[-1], row = s.split(spatial[-1], factors=(None, SIDE_BY_SIDE))
                inner = [*reduce, row, lane]
                s.unroll(row)
            if inner:
                s.reorder(*inner)
            s.vectorize(lane)
    if plan.parallel and spatial:
        share(s, spatial)
    if find_block(s.function, block).node.init is not None:
        init = s.decompose_reduction(block, first_reduce)
        if plan.rows:
            s.vectorize(s.loops(init)[-1])


def _walk_rows(s: Schedule, plan: Plan, loop: LoopRef, spatial: list[LoopRef], reduce: list[LoopRef]) -> list[LoopRef]:
    """Some rows at a time along blocks of results; the loops around the reduction are returned."""
    at = spatial.index(loop)
    block, vector, lane = s.split(loop, factors=(None, plan.block, plan.lanes))
    rows, row = s.split(reduce[-1], factors=(None, plan.rows))
    outer = [*spatial[:at], *spatial[at + 1 :], block]
    reduce[-1] = rows
    s.reorder(*outer, *reduce, vector, row, lane)
    s.unroll(row)
    s.vectorize(lane)
    return outer


def _may_be_lanes(axis: Axis, pattern: Pattern) -> bool:
    """Whether an axis may become the innermost one: no extent that depends on it, or on one after it, moves
    out, and lanes may reduce if they are to."""
    if axis.kind == "reduce" and not pattern.has_lanes:
        return False
    later = pattern.axes[pattern.axes.index(axis) :]
    names = {each.name for each in later}
    return axis.kind != "ordered" and not any(names & each.within for each in pattern.axes)


def _vector_axis(pattern: Pattern) -> Axis | None:
    """The axis along which most loads are contiguous and fewest are gathered; an axis of the output wins over an equal
    one of the reduction, unless it is shorter than a vector would like."""

    def score(axis: Axis) -> tuple:
        contiguous = sum(load.stride(axis.name) == 1 for load in pattern.loads)
        broken = sum(load.stride(axis.name) not in (0, 1) for load in pattern.loads)
        stored = pattern.store.stride(axis.name) == 1
        roomy = min(axis.extent or UNKNOWN_EXTENT, 16)
        return (roomy > 1, contiguous - broken + 0.5 * stored - (2 if roomy < 8 else 0), roomy)

    axes = [axis for axis in pattern.axes if axis.extent != 1 and _may_be_lanes(axis, pattern)]
    return max(axes, key=score, default=None)
