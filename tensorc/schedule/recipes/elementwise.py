"""Elementwise blocks: each output element once, memory in order, one pass of vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tensorc.schedule.knobs import Knobs
from tensorc.schedule.recipes.access import Access, Axis, Group, Pattern
from tensorc.schedule.recipes.parallel import BYTES_PER_CYCLE, share, worth_threads
from tensorc.schedule.schedule import Schedule
from tensorc.target import Target

UNKNOWN_EXTENT = 1 << 16
WIDEST_TILE = 16  # lanes by lanes that are turned in registers
LIGHT = 8  # operations a body may have before several vectors at a time would press on the registers


@dataclass(frozen=True, slots=True)
class Plan:
    """The last `fused` axes are one loop, cut into vectors of `lanes`; `grain` elements of it make a thread's task;
    `stream` lets the stores go past the caches. With `across`, tiles of `lanes` by `lanes` over that axis and the last
    one are turned in registers, as what is read lies along it."""

    fused: int
    lanes: int
    parallel: bool
    grain: int
    stream: bool = False
    across: str | None = None


def matches(pattern: Pattern) -> bool:
    """Whether every instance writes an element of its own."""
    return not pattern.reduce


def decide(group: Group, knobs: Knobs, target: Target, threads: int) -> Plan:
    """Choose how many of the last axes are walked as one, and the vector; touches no IR."""
    pattern = group.main
    axes = pattern.spatial
    lanes = target.lanes(pattern.itemsize)
    across = _across(pattern, min(lanes, WIDEST_TILE))
    if across is not None and knobs.choice("across", (True, False), default=True):
        cycles = math.prod(map(_size, axes)) * max(pattern.cost, 4) / lanes
        parallel = knobs.choice("parallel", (True, False), default=worth_threads(cycles, threads))
        return Plan(1, min(lanes, WIDEST_TILE), parallel and threads > 1, 1, across=across)
    fused = _fusable(pattern, lanes)
    run = axes[len(axes) - fused :]
    is_known = all(axis.extent is not None for axis in run)
    extent = math.prod(map(_size, run)) if is_known else UNKNOWN_EXTENT
    default = lanes * (4 if pattern.cost <= LIGHT else 1)
    options = tuple(lanes * factor for factor in (1, 2, 4, 8))
    while default > lanes and default * 4 > extent:
        default //= 2
    lanes = knobs.choice("lanes", options, default=default)
    total = math.prod(map(_size, axes))
    traffic = total * sum(access.itemsize for access in (pattern.store, *pattern.loads))
    cycles = max(traffic / BYTES_PER_CYCLE, total * pattern.cost / target.lanes(pattern.itemsize))
    parallel = knobs.choice("parallel", (True, False), default=worth_threads(cycles, threads))
    tasks = 8 * threads
    grain = max(1, -(-extent // (lanes * tasks)))
    size = (pattern.store.size or 0) * pattern.store.itemsize
    stream = False
    if size > target.l2 and axes and pattern.store.stride(axes[-1].name) == 1 and not pattern.in_place:
        pays = size > (target.l3 or target.l2) and pattern.cost <= LIGHT
        stream = knobs.choice("stream", (True, False), default=pays)
    return Plan(fused, lanes, parallel and threads > 1, grain, stream)


def apply(s: Schedule, group: Group, plan: Plan) -> None:
    """Perform the plan with schedule steps."""
    loops = group.main.loops(s)
    if not loops:
        return
    if plan.across is not None:
        _turn(s, group.main, plan, plan.across)
        return
    outer, inner = loops[: len(loops) - plan.fused], loops[len(loops) - plan.fused :]
    loop = s.fuse(*inner) if len(inner) > 1 else inner[0]
    if plan.parallel and not outer:
        task, _, lane = s.split(loop, factors=(None, plan.grain, plan.lanes))
        s.parallel(task)
    else:
        _, lane = s.split(loop, factors=(None, plan.lanes))
        if plan.parallel:
            share(s, outer)
    s.vectorize(lane)
    if plan.stream:
        s.stream(group.main.block)


def _turn(s: Schedule, pattern: Pattern, plan: Plan, across: str) -> None:
    """Tile the two axes; along the last one, tiles follow one another outermost, so that reads run on in memory."""
    loops = dict(zip([axis.name for axis in pattern.spatial], pattern.loops(s)))
    row, column = loops.pop(across), loops.pop(pattern.spatial[-1].name)
    rows, row = s.split(row, factors=(None, plan.lanes))
    columns, lane = s.split(column, factors=(None, plan.lanes))
    order = [*loops.values(), columns, rows]
    s.reorder(*order, row, lane)
    s.unroll(row)
    s.vectorize(lane)
    if plan.parallel:
        share(s, order)


def _across(pattern: Pattern, size: int) -> str | None:
    """The axis along which what is read lies in memory, where that is not the one along which it is stored."""
    if len(pattern.spatial) < 2 or size < 4 or pattern.store.itemsize > 8 or not pattern.is_box:
        return None
    *others, last = pattern.spatial
    loads = [load for load in pattern.loads if load.stride(last.name) not in (0, 1)]
    if pattern.store.stride(last.name) != 1 or len(loads) != 1 or loads[0].is_guarded or _size(last) < size:
        return None
    found = [axis.name for axis in others if loads[0].stride(axis.name) == 1 and _size(axis) >= size]
    return found[0] if len(found) == 1 else None


def _size(axis: Axis) -> int:
    return UNKNOWN_EXTENT if axis.extent is None else axis.extent


def _fusable(pattern: Pattern, lanes: int) -> int:
    """How many of the last axes are walked as one: those along which memory runs on without a break.

    An access that a clamp or the like makes irregular ends the run if that is long enough for vectors already; if not,
    vectors of gathered elements beat no vectors.
    """
    axes = pattern.spatial
    fused = min(1, len(axes))
    while fused < len(axes):
        outer, inner = axes[len(axes) - fused - 1], axes[len(axes) - fused :]
        accesses = (pattern.store, *pattern.loads)
        if math.prod(map(_size, inner)) < lanes:
            accesses = tuple([a for a in accesses if None not in (a.stride(outer.name), a.stride(inner[0].name))])
        if not all(_runs_on(access, outer, inner) for access in accesses):
            break
        if inner[0].extent is None and pattern.positions & {outer.name, inner[0].name}:
            break  # positions would be divided by a number that is not known
        fused += 1
    return fused


def _runs_on(access: Access, outer: Axis, inner: tuple[Axis, ...]) -> bool:
    """Whether a step of `outer` moves the address as far as the whole run of the axes inside."""
    extent = inner[0].extent
    if len(inner) == 1 and extent is None:  # the two last dimensions as they are
        return access.plain[-2:] == (outer.name, inner[0].name) and inner[0].name in access.whole
    if outer.extent is None or extent is None or any(axis.extent is None for axis in inner):
        return False
    step, run = access.stride(outer.name), access.stride(inner[0].name)
    return step is not None and run is not None and step == run * extent
