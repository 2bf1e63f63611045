"""How long a call takes: as many samples as it needs to be told from others, and no more."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tensorc.target import Target

FLOOR = 200e-6  # seconds of a sample: shorter calls are repeated
LEAST = 5  # samples
MOST = 50
FAR = 3.0  # times the best: two samples are enough
BEHIND = 1.15  # times the best: the shortest of `LEAST` samples settles it
EXACT = 0.005  # of the median: half of the confidence interval that is small enough
_SWEPT = 128 << 20  # bytes at most that are read to empty the caches

Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Effort:
    """About how many `seconds` of calls a candidate is worth; `cold` has the caches emptied before each call."""

    seconds: float = 0.06
    cold: bool = False


def sample(call: Call, effort: Effort, best: float = math.inf) -> list[float]:
    """Seconds of a call, again and again, until their median is known well enough, or known to be worse than `best`,
    or the time is up."""
    stop = time.perf_counter() + effort.seconds
    ready = _Ready(call, effort.cold)
    if ready.first > FAR * best and min(ready.first, again := ready.sample()) > FAR * best:
        return [ready.first, again]
    samples: list[float] = []
    while len(samples) < MOST:
        samples.append(ready.sample())
        if len(samples) >= 3 and time.perf_counter() > stop:
            break
        if len(samples) >= LEAST and (min(samples) > BEHIND * best or _error(samples) < EXACT):
            break
    return samples


def alternate(calls: Sequence[Call], effort: Effort) -> list[list[float]]:
    """The samples of several calls, taken in turn, until the time is up: `effort` holds for each of them."""
    stop = time.perf_counter() + effort.seconds * len(calls)
    ready = [_Ready(call, effort.cold) for call in calls]
    found: list[list[float]] = [[] for _ in calls]
    while len(found[0]) < 3 or (len(found[0]) < MOST and time.perf_counter() < stop):
        for each, samples in zip(ready, found):
            samples.append(each.sample())
    return found


def _error(samples: Sequence[float]) -> float:
    """Half of the interval in which the median is with a probability of 95 %, by the order of the samples, over it."""
    ordered, middle = sorted(samples), (len(samples) - 1) / 2
    reach = 0.98 * math.sqrt(len(samples))
    low, high = max(0, math.floor(middle - reach)), min(len(samples) - 1, math.ceil(middle + reach))
    return (ordered[high] - ordered[low]) / 2 / ordered[len(samples) // 2]


class _Ready:
    """A call that has run, and how often it is repeated in a sample; `first` are the seconds of one."""

    def __init__(self, call: Call, cold: bool) -> None:
        self._call, self._cold, self._count = call, cold, 1
        self.first = self.sample()
        while not cold and self.first * self._count < FLOOR / 2:
            self._count = math.ceil(FLOOR / max(self.first, FLOOR / (10 * self._count)))
            self.first = self.sample()

    def sample(self) -> float:
        if self._cold:
            _empty_caches()
        call, count = self._call, self._count
        start = time.perf_counter()
        for _ in range(count):
            call()
        return (time.perf_counter() - start) / count


_swept: list[np.ndarray] = []


def _empty_caches() -> None:
    """Read and write more than the last cache holds."""
    if not _swept:
        _swept.append(np.zeros(min(max(2 * Target.host().l3, 16 << 20), _SWEPT), np.uint8))
    _swept[0] += 1
