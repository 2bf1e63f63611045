"""The values that move between the parts of the tuner: what is tuned, what was tried, what came of it.

All of them are text and numbers, so that they cross processes, machines and files without anything being executed.
"""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from tensorc.ir.function import Function
from tensorc.ir.parser import parse
from tensorc.ir.printer import show
from tensorc.target import Target, as_target

STATUSES = ("ok", "refused", "wrong", "crashed", "timeout", "memory")


@dataclass(frozen=True)
class Workload:
    """An unscheduled function, as canonical text, for a target and a number of threads."""

    text: str
    target: str
    threads: int

    @staticmethod
    def of(function: Function, target: Target | str | None, threads: int) -> Workload:
        """The workload of an unscheduled function; functions equal up to names give the same."""
        return Workload(show(function, canonical=True), as_target(target).text, threads)

    @cached_property
    def hash(self) -> str:
        """Of the text alone, in hexadecimal: what is computed, whatever computes it."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @cached_property
    def function(self) -> Function:
        return parse(self.text)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A schedule to be measured: what was decided, and the scheduled function as text.

    `origin` tells where the search had it from: "default", "database", "model", "evolved" or "random".
    """

    decisions: Mapping[str, Any]
    text: str
    origin: str = "default"


@dataclass(frozen=True, slots=True)
class Measurement:
    """What came of a candidate: `samples` are seconds of a call, where `status` is "ok"; else `reason` tells."""

    status: str
    samples: tuple[float, ...] = ()
    reason: str = ""
    compile_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """The median of the samples, infinite where there are none."""
        return statistics.median(self.samples) if self.samples else float("inf")

    @property
    def spread(self) -> float:
        """The interquartile range over the median."""
        if len(self.samples) < 2:
            return 0.0
        first, middle, third = statistics.quantiles(self.samples, n=4, method="inclusive")
        return (third - first) / middle


@dataclass(frozen=True, slots=True)
class Trial:
    """A measured candidate; `at` is when its measurement ended, in seconds since the tuning began."""

    candidate: Candidate
    measurement: Measurement
    at: float = 0.0
    node: str = field(default="")


class Runner(Protocol):
    """Measures candidates of one workload, on this machine or on others.

    A context manager: what it started ends with it. `best` is the shortest time so far, in seconds: a candidate that
    is surely slower may be abandoned early.
    """

    def measure(self, candidates: Sequence[Candidate], best: float) -> Iterator[tuple[int, Measurement]]:
        """The numbers of the candidates with what came of them, in the order in which they are done."""
        ...

    def compare(self, candidates: Sequence[Candidate]) -> list[Measurement]:
        """The candidates measured against each other, in alternation."""
        ...

    def close(self) -> None: ...
