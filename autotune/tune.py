"""Tuning one function: propose, measure, learn, remember; and at the end the winners against each other."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import tensorc as tc
from autotune.data import values_of
from autotune.database import Database, Record
from autotune.measure import LocalRunner
from autotune.naming import block_names, renamed
from autotune.progress import Progress, progress_of
from autotune.record import Candidate, Measurement, Runner, Trial, Workload
from autotune.search import Exhaustive, Random, Search, Strategy
from autotune.space import Space
from tensorc import te
from tensorc.errors import TuningError
from tensorc.runtime import default_threads
from tensorc.schedule import Schedule
from tensorc.target import Target, as_target

SECONDS = 30.0
BATCH = 8  # candidates that are proposed at a time
FINALISTS = 3  # that are measured against the default at the end
FINAL_SECONDS = 2.0  # of the budget that are kept for it, at most a quarter
MARGIN = 0.005  # of its time, by which the default must be beaten

Runners = Callable[..., Any]  # of a workload and the values of its variables: a Runner that is a context manager


@dataclass(frozen=True)
class Result:
    """What came of a tuning.

    `decisions` name blocks as the tensors do; `seconds` and `default_seconds` are those of the schedule that was found
    and of the default, measured in alternation; the default itself is the result where nothing beats it. `history` has
    every trial in order; `is_interrupted` tells that Ctrl-C ended it, and the times are of single measurements then.
    """

    tensors: tuple[te.Tensor, ...]
    target: Target
    threads: int
    name: str
    workload: Workload
    decisions: Mapping[str, Any]
    seconds: float
    default_seconds: float
    history: tuple[Trial, ...]
    record: Record
    is_interrupted: bool = False

    @cached_property
    def kernel(self) -> tc.Kernel:
        """The function by the schedule that was found."""
        return tc.build(self.tensors, self.target, threads=self.threads, schedules=self.decisions, name=self.name)

    @cached_property
    def schedule(self) -> Schedule:
        """The schedule that was found, to read or to go on from."""
        return tc.default_schedule(
            self.tensors, self.target, threads=self.threads, schedules=self.decisions, name=self.name
        )

    @property
    def speedup(self) -> float:
        """The default's time over that of what was found."""
        return self.default_seconds / self.seconds

    @property
    def curve(self) -> list[tuple[float, float]]:
        """The best time so far, in seconds, after so many seconds of tuning: where it fell."""
        found: list[tuple[float, float]] = []
        for trial in self.history:
            if not found or trial.measurement.seconds < found[-1][1]:
                found.append((trial.at, trial.measurement.seconds))
        return [point for point in found if math.isfinite(point[1])]


def tune(
    tensors: Sequence[te.Tensor] | te.Tensor,
    target: Target | str | None = None,
    *,
    seconds: float | None = None,
    trials: int | None = None,
    database: Database | str | None = None,
    threads: int | None = None,
    sizes: Mapping[str, int] | None = None,
    seed: int = 0,
    search: str | Callable[..., Strategy] = "model",
    runner: Runners = LocalRunner,
    algorithms: bool = False,
    progress: bool | Progress = True,
    name: str = "main",
) -> Result:
    """Find a schedule that is quicker than the default one, by measuring; every answer is checked before its time
    counts.

    `tensors` are the arguments of the kernel, as `tc.build` takes them. The budget is so many `seconds` by the clock,
    or `trials`, whichever ends first, by default 30 s; it ends early where nothing more is to be gained. With a
    `database`, or the name of its file, what was measured is kept there, and the search starts from the best that it
    has for this function or others like it. `sizes` gives symbolic extents, by name, the values to measure with.
    `search` is "model", "random", "exhaustive", or what makes a strategy of a space and a seed; `runner` makes what
    measures, of a workload: `LocalRunner`, or a `RayRunner(...)`. With `algorithms`, those that round more, such as
    Winograd's, may be chosen. Ctrl-C ends it with what was found so far.

    Raises TuningError where nothing can be measured, and what `tc.build` raises for the tensors.
    """
    began = time.monotonic()
    limit = SECONDS if seconds is None and trials is None else seconds
    _check_budget(limit, trials)
    goal = _target(target, runner)
    count = default_threads() if threads is None else threads
    function = tc.schedule(tensors, name).function
    workload = Workload.of(function, goal, count)
    known = Database(database) if isinstance(database, str) else database
    tuning = _Tuning(workload, Space(workload.function, goal, count, allows_algorithms=algorithms), known, began, limit)
    warm = [record.decisions for record in tuning.known()]
    strategy = _strategy(search, tuning.space, seed, warm)
    told = progress_of(progress)
    told.start(function.name if name == "main" else name, limit, trials)
    try:
        with runner(workload, values_of(function, sizes or {})) as run:
            tuning.search(strategy, run, trials, told)
            record, first = tuning.finish(run)
    finally:
        told.stop()
    decisions = renamed(record.decisions, block_names(workload.function), block_names(function))
    given = (tensors,) if isinstance(tensors, te.Tensor) else tuple(tensors)
    return Result(
        given, goal, count, name, workload, decisions, record.measurement.seconds, first, tuple(tuning.history), record,
        tuning.is_interrupted,
    )  # fmt: skip


class _Tuning:
    """One tuning as it goes."""

    def __init__(
        self, workload: Workload, space: Space, database: Database | None, began: float, limit: float | None
    ) -> None:
        self.workload, self.space, self.database = workload, space, database
        self.began = began
        self.deadline = math.inf if limit is None else began + limit
        self.reserve = 0.0 if limit is None else min(FINAL_SECONDS, limit / 4)
        self.history: list[Trial] = []
        self.is_interrupted = False
        self._default: Candidate | None = None

    @property
    def best(self) -> float:
        return min([trial.measurement.seconds for trial in self.history], default=math.inf)

    @property
    def first(self) -> float:
        """The time of the default."""
        times = [t.measurement.seconds for t in self.history if t.candidate.origin == "default"]
        return times[0] if times else math.inf

    def known(self) -> list[Record]:
        """What the database has for this function, or for others like it."""
        if self.database is None:
            return []
        return self.database.best(self.workload, count=2) or self.database.nearest(self.workload)

    def search(self, strategy: Strategy, run: Runner, trials: int | None, told: Progress) -> None:
        """Measure what the strategy proposes, until the budget is spent or it is done."""
        try:
            while not strategy.is_done and self._has_time() and (trials is None or len(self.history) < trials):
                left = BATCH if trials is None else min(BATCH, trials - len(self.history))
                batch = strategy.propose(left)
                if not batch:
                    break
                with closing(run.measure(batch, self.best)) as found:  # type: ignore[type-var]
                    for number, measurement in found:
                        self._done(strategy, batch[number], measurement, getattr(run, "node", ""), told)
                        if not self._has_time():
                            break
        except KeyboardInterrupt:
            self.is_interrupted = True

    def finish(self, run: Runner) -> tuple[Record, float]:
        """The winner, and the default's time: the best against each other and the default, in alternation."""
        ran = sorted(
            [trial for trial in self.history if trial.measurement.samples], key=lambda t: t.measurement.seconds
        )
        default = next((t.candidate for t in self.history if t.candidate.origin == "default"), None)
        default = default or self.space.candidate({})
        if not ran or default is None:
            raise TuningError(self._failure())
        best = [trial.candidate for trial in ran if trial.candidate.text != default.text][:FINALISTS]
        found = None if self.is_interrupted else self._compared(run, [default, *best])
        if found is None or not found[0].samples:
            record = self._record(ran[0].candidate, ran[0].measurement, ran[0].at)
            return record, self.first
        times = [each.seconds for each in found]
        at = min(range(len(times)), key=times.__getitem__)
        at = at if times[at] < times[0] * (1 - MARGIN) else 0
        record = replace(self._record([default, *best][at], found[at], self._elapsed()), is_winner=True)
        if self.database is not None:
            self.database.add(replace(record, trace=self._trace(record.decisions)))
        return record, times[0]

    def _compared(self, run: Runner, candidates: Sequence[Candidate]) -> list[Measurement] | None:
        try:
            return run.compare(candidates)
        except KeyboardInterrupt:
            self.is_interrupted = True
            return None

    def _done(
        self, strategy: Strategy, candidate: Candidate, measurement: Measurement, node: str, told: Progress
    ) -> None:
        trial = Trial(candidate, measurement, self._elapsed(), node)
        self.history.append(trial)
        if self.database is not None:
            self.database.add(self._record(candidate, measurement, trial.at))
        strategy.tell(trial)
        failures = sum([not each.measurement.samples for each in self.history])
        told.trial(trial, len(self.history), failures, self.best, self.first)

    def _record(self, candidate: Candidate, measurement: Measurement, at: float) -> Record:
        return Record(self.workload, candidate.decisions, measurement, origin=candidate.origin, at=at)

    def _trace(self, decisions: Mapping[str, Any]) -> str:
        return self.space.schedule(decisions).trace.json()

    def _has_time(self) -> bool:
        return time.monotonic() < self.deadline - self.reserve

    def _elapsed(self) -> float:
        return time.monotonic() - self.began

    def _failure(self) -> str:
        failed = [trial.measurement for trial in self.history]
        if not failed:
            return "tune: the budget ended before anything was measured; give it more seconds"
        told = f"{failed[0].status}: {failed[0].reason}"
        return f"tune: none of {len(failed)} schedules could be measured, the first for this reason: {told}"


def _strategy(
    search: str | Callable[..., Strategy], space: Space, seed: int, warm: Sequence[Mapping[str, Any]]
) -> Strategy:
    if not isinstance(search, str):
        return search(space, seed)
    match search:
        case "model":
            return Search(space, seed, warm)
        case "random":
            return Random(space, seed)
        case "exhaustive":
            return Exhaustive(space)
    raise TuningError(f"search={search!r}: 'model', 'random' or 'exhaustive' is needed, or what makes a strategy")


def _check_budget(seconds: float | None, trials: int | None) -> None:
    if seconds is not None and not (isinstance(seconds, (int, float)) and 0 < seconds < math.inf):
        raise TuningError(f"seconds={seconds!r}: a positive number is needed")
    if trials is not None and not (type(trials) is int and trials > 0):
        raise TuningError(f"trials={trials!r}: a positive integer is needed")


def _target(target: Target | str | None, runner: Runners) -> Target:
    """The target that is meant: by default that of the machines that measure."""
    if target is None and hasattr(runner, "target"):
        return runner.target()
    goal = as_target(target)
    if runner is LocalRunner and not goal.is_host:
        raise TuningError(f"tune: code for {goal.mcpu} does not run here; a runner on such a machine is needed")
    return goal
