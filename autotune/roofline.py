"""How long a nest takes, told by its outline: instructions, registers, caches and threads, each by its own limit.

The numbers are cycles of one core. They rank plans of one function; how far they are off is for measurements to say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tensorc.schedule.recipes.access import Access
from tensorc.schedule.recipes.outline import Level, Outline
from tensorc.target import Target

LOADS = 2  # vectors that are loaded in a cycle
LINE = 64  # bytes
CROSSING = 0.5  # of a cycle more for a vector of a row that lies anyhow between lines
SCATTERED = 1.0  # cycles for each element of a vector that is gathered
UNEVEN = 0.5  # of the time of a register more where part of it is never used
TORN = 6.0  # times that a vector of several registers takes of which the last is not full
SPILL = 1.5  # cycles for each register that is missing, in each step
LOOP = 1.0  # cycles of a loop's own in each iteration
ENTER = 25.0  # cycles to enter and leave a register tile
NEAR, MIDDLE, FAR = 1 / 48, 1 / 20, 1 / 6  # cycles for a byte from the level-2 cache, level 3 and memory
FULL = 0.8  # of a cache that is kept, beside what streams through it
WAKE = 20_000  # cycles to start the other threads


@dataclass(frozen=True, slots=True)
class Cost:
    """Cycles by each limit: multiply-adds and their like, loads, their latency, missing registers, loops and moving
    accumulators, traffic from the level-2 cache, from level 3 and from memory, copies. `share` is what one thread does
    of it."""

    arithmetic: float
    loads: float
    latency: float
    spills: float
    overhead: float
    near: float
    middle: float
    far: float
    copies: float
    share: float = 1.0

    @property
    def cycles(self) -> float:
        """What all of it takes: what overlaps counts once, and a little of the rest."""
        busy = max(self.arithmetic, self.latency)
        limits = sorted((busy + 0.2 * self.loads, self.loads, self.near, self.middle, self.far))
        total = limits[-1] + 0.3 * limits[-2] + 0.1 * limits[-3]
        work = total + self.spills + self.overhead + self.copies
        return work * self.share + (WAKE if self.share < 1 else 0)

    @property
    def parts(self) -> tuple[float, ...]:
        near = (self.near, self.middle, self.far)
        return (self.arithmetic, self.loads, self.latency, self.spills, self.overhead, *near, self.copies, self.share)


def cost(outline: Outline, target: Target, threads: int) -> Cost:
    """What the nest of an outline costs on a target."""
    levels = outline.levels
    tile = [each for each in levels if each.kind != "serial"]
    serial = [each for each in levels if each.kind == "serial"]
    steps = math.prod([each.trips for each in serial])
    vector = next((each.axis for each in tile if each.kind == "lanes"), None)
    accesses = (outline.store, *outline.loads)
    vectors = {id(access): _vectors(access, tile) for access in accesses}
    updates = math.prod([each.trips for each in tile if each.kind == "tile"])
    parts = _registers(outline.lanes, outline.store.itemsize, target)
    work = updates * outline.operations * parts / target.fma_per_cycle
    chain = target.fma_latency * updates / max(1.0, vectors[id(outline.store)]) if outline.reduces else 0.0
    streams = [(access, vectors[id(access)]) for access in outline.loads]
    loads = sum(count * _load(access, outline, vector, target) * parts for access, count in streams)
    held = max([count for access, count in streams if vector in access.axes], default=0.0)
    registers = (vectors[id(outline.store)] + min(held, 4.0)) * parts + 1
    missing = max(0.0, registers - target.vector_registers) if updates > 1 else 0.0
    runs = _runs(serial, outline.reduces)
    moved = runs * (ENTER + 2 * vectors[id(outline.store)] * parts) if outline.reduces else 0.0
    near, middle, far = _traffic(outline, target)
    copies = sum(_copied(copy.count, copy.itemsize, copy.cycles, target) for copy in outline.copies)
    return Cost(
        arithmetic=steps * work,
        loads=steps * loads / LOADS,
        latency=steps * chain,
        spills=steps * SPILL * missing,
        overhead=steps * LOOP / max(1.0, updates / 4) + moved,
        near=near,
        middle=middle,
        far=far,
        copies=copies,
        share=_share(outline.tasks, threads),
    )


def _registers(lanes: int, itemsize: int, target: Target) -> float:
    """The registers that a vector of so many lanes takes, or as many as it takes the time of."""
    size = lanes * itemsize
    if lanes & (lanes - 1) == 0 or size % target.vector_bytes == 0:
        return max(1.0, size / target.vector_bytes)
    return 1.0 + UNEVEN if size < target.vector_bytes else -(-size // target.vector_bytes) * TORN


def _vectors(access: Access, tile: Sequence[Level]) -> float:
    """The vectors, or elements that go to all lanes, of an access in a tile."""
    return math.prod([each.trips for each in tile if each.kind == "tile" and each.axis in access.axes])


def _load(access: Access, outline: Outline, vector: str | None, target: Target) -> float:
    """Loads that a vector of an access counts for."""
    if vector is None or vector not in access.axes or access.buffer in outline.packed:
        return 1.0
    step = access.stride(vector)
    if step == 1:
        is_wide = outline.lanes * access.itemsize >= target.vector_bytes
        return 1.0 + (CROSSING if is_wide else 0.0)
    return SCATTERED * LOADS * outline.lanes if step is None or step > 4 else 2.0 * step


def _runs(serial: Sequence[Level], reduces: frozenset[str]) -> float:
    """How often accumulators are taken up: once for all reductions that are innermost."""
    outer = [*serial]
    while outer and outer[-1].axis in reduces:
        outer.pop()
    return math.prod([each.trips for each in outer])


def _share(tasks: int, threads: int) -> float:
    """What the busiest of the threads does of equal tasks."""
    if tasks <= 1 or threads <= 1:
        return 1.0
    return math.ceil(tasks / threads) / tasks


def _copied(count: float, itemsize: int, cycles: float, target: Target) -> float:
    size = count * itemsize
    rate = NEAR if size < target.l2 else MIDDLE if size < (target.l3 or target.l2) else FAR
    return size / target.vector_bytes * cycles + 2 * size * rate


def _traffic(outline: Outline, target: Target) -> tuple[float, float, float]:
    """Cycles to move what each cache level does not hold: what a level is entered with again is moved again."""
    levels = outline.levels
    accesses = list({access.buffer: access for access in (*outline.loads, outline.store)}.values())
    sizes = [_footprints(access, outline) for access in accesses]
    found = []
    for room in (target.l1, target.l2, target.l3 or target.l2):
        depth = 0  # the outermost loop whose data stays in this level
        while depth < len(levels) and sum(each[depth] for each in sizes) > room * FULL:
            depth += 1
        moved = 0.0
        for access, each in zip(accesses, sizes):
            moved += each[depth] * _entries(access, levels[:depth], each, room)
        found.append(moved)
    return found[0] * NEAR, found[1] * MIDDLE, found[2] * FAR


def _entries(access: Access, outer: Sequence[Level], sizes: Sequence[float], room: float) -> float:
    """How often data is brought in: loops around that do not move it, and beside which it stays, count for nothing."""
    entries, stays = 1.0, True
    for place in range(len(outer) - 1, -1, -1):
        moves = outer[place].axis in access.axes
        stays = stays and not moves and sizes[place] < room * FULL / 4
        entries *= 1.0 if stays else outer[place].trips
    return entries


def _footprints(access: Access, outline: Outline) -> list[float]:
    """Bytes that an access touches in all iterations of the loops from each place inwards, whole lines."""
    levels = outline.levels
    spans = dict.fromkeys(access.axes, 1.0)
    is_packed = access.buffer in outline.packed
    found = [float(max(access.itemsize, LINE))]
    whole = float(access.size * access.itemsize) if access.size is not None else math.inf
    for each in reversed(levels):
        size = found[-1]
        if each.axis in spans:
            spans[each.axis] *= each.trips
            size = min(whole, _bytes(access, spans, is_packed))
        found.append(size)
    return found[::-1]


def _bytes(access: Access, spans: dict[str, float], is_packed: bool) -> float:
    count, run = 1.0, 1.0
    for dim in access.dims:
        reach = 1.0
        for name in dim:
            span = spans.get(name, 1.0)
            reach += span - 1.0
            if access.strides.get(name) == 1:
                run *= span
        count *= reach
    if is_packed:
        return max(LINE, count * access.itemsize)
    lines = max(LINE, run * access.itemsize) / (run * access.itemsize)
    return count * access.itemsize * lines
