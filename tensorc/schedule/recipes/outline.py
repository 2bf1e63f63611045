"""What of a plan matters for the time that it takes: the nest that comes of it, in numbers, for models to judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorc.schedule.recipes.access import Access


@dataclass(frozen=True, slots=True)
class Level:
    """A loop: `trips` iterations, each of which goes on by `step` along an axis; the last one counts for what part of
    it is done. `kind` is "serial", "tile" for a loop that is unrolled into registers, or "lanes" for a vector."""

    axis: str
    trips: float
    step: int = 1
    kind: str = "serial"


@dataclass(frozen=True, slots=True)
class Copy:
    """`count` elements that are copied besides, in vectors; each of these takes `cycles`, from and to `size` bytes."""

    count: float
    itemsize: int
    cycles: float = 1.0


@dataclass(frozen=True, slots=True)
class Outline:
    """The nest of one block, outermost loop first.

    `lanes` results go in a vector, `operations` vector instructions of arithmetic make one; `reduces` are the axes
    along which results are added up. `packed` names buffers that lie in the order in which they are read, `tasks` is
    how many equal parts threads share, at least 1.
    """

    block: str
    levels: tuple[Level, ...]
    store: Access
    loads: tuple[Access, ...]
    lanes: int
    operations: float
    reduces: frozenset[str]
    packed: frozenset[str] = frozenset()
    copies: tuple[Copy, ...] = ()
    tasks: int = 1


def level(axis: str, extent: int, step: int = 1, grain: int = 1, kind: str = "serial") -> Level:
    """A loop over an axis by steps; a step that the extent fills partly counts for that part, rounded up to `grain`,
    and a quarter at least."""
    full, rest = divmod(extent, step)
    part = max(0.25, -(-rest // grain) * grain / step) if rest else 0.0
    return Level(axis, full + part, step, kind)


def inner(axis: str, count: int, step: int = 1) -> Level:
    """A loop that is unrolled into registers."""
    return Level(axis, count, step, "tile")


def lanes(axis: str, count: int) -> Level:
    return Level(axis, count, 1, "lanes")


def trips(levels: Sequence[Level], *kinds: str) -> float:
    """The iterations of all loops of these kinds together."""
    total = 1.0
    for each in levels:
        if each.kind in kinds:
            total *= each.trips
    return total
