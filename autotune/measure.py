"""Measuring on this machine: candidates are compiled in processes of their own, and run where nothing else does."""

from __future__ import annotations

import math
import os
import platform
import shutil
import tempfile
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from autotune.bench import Reply, Setup, key_of
from autotune.process import Worker, wait
from autotune.record import Candidate, Measurement, Workload
from tensorc.errors import TuningError

COMPILING = 30.0  # seconds that a candidate may be compiled
PREPARING = 120.0  # seconds to make the arguments and the right answer
PATIENCE = 100.0  # times the best that a call may take, within the limits
HASTE = 2.0  # seconds that a candidate has in any case
AHEAD = 4  # candidates for each compiling process that may wait for being measured
MOST_COMPILERS = 8


class LocalRunner:
    """Measures the candidates of a workload on this machine.

    `values` are those of the workload's variables, in the order of `data.variables_of`. A candidate is worth about
    `effort` seconds of calls, `cold` has the caches emptied before each of them; it may take `timeout` seconds, and a
    process of it `memory` bytes, by default what the machine has. Inputs are made by the `seed`.

    With threads to spare, candidates are compiled beside those that run, on the other cores. Raises TuningError where
    the workload itself cannot be run.
    """

    def __init__(
        self,
        workload: Workload,
        values: Sequence[int] = (),
        *,
        seed: int = 0,
        effort: float = 0.06,
        cold: bool = False,
        timeout: float = 10.0,
        memory: int | None = None,
        cores: Sequence[int] | None = None,
    ) -> None:
        cores = sorted(available_cores() if cores is None else cores)
        self.node = platform.node()
        self._timeout = timeout
        self._is_shared = workload.threads >= len(cores)  # cores both compile and run, in turn
        self.folder = tempfile.mkdtemp(prefix="tensorc-tuning-")
        self._finish = weakref.finalize(self, _finish, self.folder, workers := [])
        others = cores if self._is_shared else cores[: len(cores) - workload.threads]
        common: dict[str, Any] = {"values": tuple(values), "seed": seed, "effort": effort, "cold": cold}
        common["memory"] = _memory() if memory is None else memory
        setup = lambda own: Setup.of(workload, self.folder, **common, cores=tuple(own))
        own = cores if self._is_shared else cores[len(others) :]
        self._measurer = Worker(setup(own), {"TENSORC_NUM_THREADS": str(workload.threads)})
        self._compilers = [Worker(setup(others)) for _ in others[:MOST_COMPILERS]]
        workers += [self._measurer, *self._compilers]

    @property
    def pids(self) -> list[int]:
        """Of its processes, that in which candidates run first."""
        return [worker.pid for worker in (self._measurer, *self._compilers)]

    def __enter__(self) -> LocalRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes and remove their files; what was measured remains."""
        self._finish()

    def measure(self, candidates: Sequence[Candidate], best: float = math.inf) -> Iterator[tuple[int, Measurement]]:
        """The numbers of the candidates with what came of them, as they are done; nothing is timed while one is handed
        over."""
        batch = _Batch(candidates, self._compilers, AHEAD * len(self._compilers))
        try:
            while not batch.is_done:
                batch.advance()
                yield from batch.failures()
                number = batch.next(self._is_shared)
                if number is None:
                    wait(self._compilers)
                    continue
                limit = self._timeout if math.isinf(best) else min(self._timeout, max(HASTE, PATIENCE * best))
                found = batch.finished(number, self._measured(batch, candidates[number].text, best, limit))
                best = min(best, found.seconds)
                yield number, found
        finally:
            self._stop_busy()

    def compare(self, candidates: Sequence[Candidate]) -> list[Measurement]:
        """The candidates measured in alternation, so that what disturbs one disturbs all; those that fail are left out
        of it."""
        batch = _Batch(candidates, self._compilers, len(candidates))
        try:
            while not batch.is_compiled:
                batch.advance()
                wait(self._compilers)
            found = dict(batch.failures())
            numbers = [number for number in range(len(candidates)) if number not in found]
            keys = [key_of(candidates[number].text) for number in numbers]
            reply = self._run(None, self._timeout * (1 + len(keys)), do="compare", keys=keys)
            if reply["status"] != "ok":
                again = self.measure([candidates[number] for number in numbers])
                return _ordered(found | {numbers[place]: each for place, each in again})
            rounds = zip(numbers, reply["rounds"])
            return _ordered(found | {number: Measurement("ok", tuple(samples)) for number, samples in rounds})
        finally:
            self._stop_busy()

    def _measured(self, batch: _Batch, text: str, best: float, limit: float) -> Reply:
        """What comes of a compiled candidate. What fails after others ran may be their fault: it has another try."""
        request = {"do": "measure", "key": key_of(text), "best": None if math.isinf(best) else best}
        reply = self._run(batch, limit, **request)
        if reply["status"] in ("crashed", "wrong", "memory") and not self._is_first:
            self._measurer.stop()
            reply = self._run(batch, limit, **request)
        if reply["status"] == "wrong":
            self._measurer.stop()
        return reply

    def _run(self, batch: _Batch | None, seconds: float, **request: Any) -> Reply:
        """The answer of the process in which candidates run; those of the batch are compiled meanwhile."""
        self._is_first = self._measurer.is_new
        if self._is_first:
            reply = self._answer(batch, PREPARING, do="prepare")
            if reply["status"] != "ok":
                raise TuningError(f"the workload cannot be run: {reply['reason']}")
            self.reference = reply["reason"]
        return self._answer(batch, seconds, **request)

    def _answer(self, batch: _Batch | None, seconds: float, **request: Any) -> Reply:
        self._measurer.ask(seconds, **request)
        while (reply := self._measurer.reply()) is None:
            beside = [] if self._is_shared or batch is None else self._compilers
            if batch is not None and beside:
                batch.advance()
            wait([self._measurer, *beside])
        return reply

    def _stop_busy(self) -> None:
        """End what is under way: nobody waits for it any more."""
        for worker in (self._measurer, *self._compilers):
            if worker.is_busy:
                worker.stop()


class _Batch:
    """Candidates on their way through the compiling processes, of which `most` may wait for being measured."""

    def __init__(self, candidates: Sequence[Candidate], compilers: Sequence[Worker], most: int) -> None:
        self._most = most
        self._texts = [each.text for each in candidates]
        self._compilers = compilers
        self._waiting = deque(range(len(candidates)))
        self._compiling: dict[int, Worker] = {}
        self._ready: deque[int] = deque()
        self._seconds: dict[int, float] = {}
        self._failures: list[tuple[int, Measurement]] = []
        self._is_taken = False  # by turns: what is ready is run before more is compiled

    @property
    def is_compiled(self) -> bool:
        return not self._waiting and not self._compiling

    @property
    def is_done(self) -> bool:
        return self.is_compiled and not self._ready and not self._failures

    def advance(self) -> None:
        """Take what was compiled, and give more to those who have nothing to do."""
        for number, worker in [*self._compiling.items()]:
            reply = worker.reply()
            if reply is None:
                continue
            del self._compiling[number]
            self._seconds[number] = reply.get("compile", 0.0)
            if reply["status"] == "ok":
                self._ready.append(number)
            else:
                self._failures.append((number, _failure(reply, "compiling")))
        for worker in self._compilers:
            is_enough = len(self._ready) + len(self._compiling) >= self._most
            if worker.is_busy or is_enough or self._is_taken or not self._waiting:
                continue
            number = self._waiting.popleft()
            text = self._texts[number]
            worker.ask(COMPILING, do="compile", key=key_of(text), text=text)
            self._compiling[number] = worker

    def failures(self) -> list[tuple[int, Measurement]]:
        """The candidates that were not compiled, each once."""
        found, self._failures = self._failures, []
        return found

    def next(self, is_shared: bool) -> int | None:
        """A candidate that is to run now; where the cores are shared, none as long as others are compiled."""
        if not self._ready or (is_shared and self._compiling):
            return None
        number = self._ready.popleft()
        self._is_taken = is_shared and bool(self._ready)
        return number

    def finished(self, number: int, reply: Reply) -> Measurement:
        if reply["status"] != "ok":
            return _failure(reply, "running")
        return Measurement("ok", tuple(reply["samples"]), compile_seconds=self._seconds[number])


def _failure(reply: Reply, doing: str) -> Measurement:
    return Measurement(reply["status"], reason=f"{doing}: {reply['reason']}")


def _ordered(found: dict[int, Measurement]) -> list[Measurement]:
    return [found[number] for number in sorted(found)]


def available_cores() -> list[int]:
    """The numbers of the cores that this process may run on."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [*range(os.cpu_count() or 1)]


def _memory() -> int:
    """The bytes that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _finish(folder: str, workers: Sequence[Worker]) -> None:
    for worker in workers:
        worker.stop()
    shutil.rmtree(folder, ignore_errors=True)
