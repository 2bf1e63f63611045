"""Cases run in processes of their own: a kernel that crashes or hangs ends only its worker."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Iterable, Iterator
from multiprocessing.connection import wait

from tests.fuzz.compare import Verdict, run
from tests.fuzz.programs import Case

SECONDS = 300.0  # that a case may take, on a machine that does other things besides
_context = multiprocessing.get_context("spawn")


def _serve(pipe) -> None:
    """Run cases until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["TENSORC_CACHE"] = "0"
    while (case := pipe.recv()) is not None:
        try:
            verdict = run(case, lambda known: pipe.send(("case", known)))
        except Exception:
            verdict = Verdict("fuzzer", traceback.format_exc())
        pipe.send(("verdict", verdict))


class Worker:
    """A process that runs one case at a time, and is replaced when it dies."""

    def __init__(self) -> None:
        self.case: Case | None = None
        self._start()

    def _start(self) -> None:
        self.pipe, theirs = _context.Pipe()
        self.process = _context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def begin(self, case: Case) -> None:
        self.case = case
        self.until = time.monotonic() + SECONDS
        self.pipe.send(case)

    def poll(self) -> Verdict | None:
        """The verdict, when there is one. `case` then holds the steps that were made, too."""
        if time.monotonic() > self.until:
            self._replace()
            return Verdict("hang", f"no answer within {SECONDS:.0f} seconds")
        try:
            while self.pipe.poll():
                what, value = self.pipe.recv()
                if what == "verdict":
                    return value
                self.case = value
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode or 0
            self._replace()
            name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
            return Verdict(f"crash by {name}", f"the process of the kernel ended by {name}")
        return None

    def run(self, case: Case) -> tuple[Case, Verdict]:
        """Run a case to its end."""
        self.begin(case)
        while (verdict := self.poll()) is None:
            wait([self.pipe], 1.0)
        return self.case or case, verdict

    def _replace(self) -> None:
        self.stop()
        self._start()

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def run_all(cases: Iterable[Case], jobs: int) -> Iterator[tuple[Case, Verdict]]:
    """Each case with its verdict, as they come, from `jobs` processes."""
    waiting = iter(cases)
    workers = [Worker() for _ in range(jobs)]
    try:
        busy = [worker for worker in workers if _begin_next(worker, waiting)]
        while busy:
            wait([worker.pipe for worker in busy], 1.0)
            for worker in tuple(busy):
                verdict = worker.poll()
                if verdict is not None:
                    assert worker.case is not None
                    yield worker.case, verdict
                    if not _begin_next(worker, waiting):
                        busy.remove(worker)
    finally:
        for worker in workers:
            worker.stop()


def _begin_next(worker: Worker, waiting: Iterator[Case]) -> bool:
    case = next(waiting, None)
    if case is not None:
        worker.begin(case)
    return case is not None
