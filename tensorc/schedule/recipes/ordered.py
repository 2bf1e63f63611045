"""Blocks that run in order: scans and updates. What is proved apart becomes lanes and tasks, the rest stays so."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tensorc.errors import ScheduleError
from tensorc.schedule.knobs import Knobs
from tensorc.schedule.recipes.access import Axis, Group, Pattern
from tensorc.schedule.recipes.parallel import worth_threads
from tensorc.schedule.schedule import LoopRef, Schedule
from tensorc.target import Target

UNKNOWN_EXTENT = 256
ROWS = 4  # side by side, where steps follow one another in memory: as many additions in flight


@dataclass(frozen=True, slots=True)
class Plan:
    """`axis` becomes vectors of `lanes` elements, if its iterations are apart; `parallel`: so do others for threads.

    With `rows`, memory runs on along the steps: each so many iterations of the axis go through all steps together.
    """

    axis: str | None
    lanes: int
    rows: int
    parallel: bool


def matches(pattern: Pattern) -> bool:
    """Whether some axis runs in order, and none reduces."""
    return not pattern.reduce and any(axis.kind == "ordered" for axis in pattern.axes)


def decide(group: Group, knobs: Knobs, target: Target, threads: int) -> Plan:
    """Choose the axis for vectors: one that does not run in order, and walks memory without a break; touches no IR."""
    pattern = group.main
    axis = max([a for a in pattern.axes if a.extent != 1], key=lambda a: _score(pattern, a), default=None)
    extent = 1 if axis is None else axis.extent or UNKNOWN_EXTENT
    lanes = target.lanes(pattern.itemsize)
    while lanes > 1 and lanes // 2 >= extent:
        lanes //= 2
    lanes = knobs.choice("lanes", (1, *[lanes << n for n in range(3)]), default=lanes)
    work = math.prod(a.extent or UNKNOWN_EXTENT for a in pattern.axes) * max(pattern.cost, 1) / lanes
    parallel = knobs.choice("parallel", (True, False), default=worth_threads(work, threads))
    steps = [a for a in pattern.axes if a.kind == "ordered" and pattern.store.stride(a.name) == 1]
    is_along = axis is not None and axis.kind != "ordered" and bool(steps)
    rows = knobs.choice("rows", (0, 1, 2, ROWS, 2 * ROWS), default=(ROWS if extent >= ROWS else 1) if is_along else 0)
    return Plan(axis.name if axis else None, lanes, rows, parallel and threads > 1)


def _score(pattern: Pattern, axis: Axis) -> tuple:
    contiguous = pattern.store.stride(axis.name) == 1
    return (axis.kind != "ordered", contiguous, min(axis.extent or UNKNOWN_EXTENT, 16), pattern.axes.index(axis))


def apply(s: Schedule, group: Group, plan: Plan) -> None:
    """Perform the plan with schedule steps, as far as they are legal."""
    pattern = group.main
    loops = dict(zip([axis.name for axis in pattern.axes], pattern.loops(s)))
    order = list(loops.values())
    if plan.axis is not None and plan.rows:
        loop = loops[plan.axis]
        others = [each for each in order if each is not loop]

        def rows(trial: Schedule) -> None:
            outer, row = trial.split(loop, factors=(None, plan.rows))
            trial.reorder(outer, *others, row)
            trial.unroll(row)
            order[:] = [outer, *others]

        _attempt(s, rows)
    elif plan.axis is not None and plan.lanes > 1:
        loop = loops[plan.axis]
        at = order.index(loop)

        def vectors(trial: Schedule) -> None:
            outer, lane = trial.split(loop, factors=(None, plan.lanes))
            if at < len(order) - 1:
                trial.reorder(outer, *order[at + 1 :], lane)
            trial.vectorize(lane)
            order[at] = outer

        _attempt(s, vectors)
    for loop in tuple(order) if plan.parallel else ():
        if s.extent(loop) != 1 and _attempt(s, partial(_share, loop=loop, order=order)):
            return


def _share(s: Schedule, loop: LoopRef, order: list[LoopRef]) -> None:
    """Make a loop the outermost one, and its iterations tasks."""
    before = order[: order.index(loop)]
    if before:
        s.reorder(loop, *before)
    s.parallel(loop)


def _attempt(s: Schedule, steps: Callable[[Schedule], None]) -> bool:
    """Perform steps if all of them are legal."""
    trial = s.copy()
    try:
        steps(trial)
    except ScheduleError:
        return False
    s.become(trial)
    return True
