"""When threads pay, and over which loop."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from tensorc.schedule.schedule import LoopRef, Schedule

# Waking a second thread and sharing out the work costs a few microseconds, some ten thousand cycles; a share of less
# work than this per thread is not worth it.
CYCLES_PER_THREAD = 30_000
BYTES_PER_CYCLE = 6  # what one core streams from memory


def worth_threads(cycles: float, threads: int) -> bool:
    """Whether work of so many cycles is worth sharing among so many threads."""
    return threads > 1 and cycles > CYCLES_PER_THREAD * threads


def share(s: Schedule, loops: Sequence[LoopRef]) -> None:
    """Make tasks of nested loops, outermost first: of all of them in one, up to the first inner one of unknown extent,
    since what a division by an unknown number tells apart is not proved."""
    inner = takewhile(lambda loop: s.extent(loop) is not None, loops[1:])
    s.parallel(s.fuse(loops[0], *inner))
