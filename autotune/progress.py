"""What a tuning tells as it goes: the best so far, trials, failures and the time left."""

from __future__ import annotations

import sys
import time
from typing import Any, Protocol, TextIO

from autotune.record import Trial

EVERY = 2.0  # seconds between lines, where no bar can be drawn


class Progress(Protocol):
    """Told of each trial."""

    def start(self, name: str, seconds: float | None, trials: int | None) -> None: ...

    def trial(self, trial: Trial, number: int, failures: int, best: float, first: float) -> None:
        """Trial `number`, the `failures` among them, the `best` time and that of the default, in seconds."""
        ...

    def stop(self) -> None: ...


class Silent:
    """Tells nothing."""

    def start(self, name: str, seconds: float | None, trials: int | None) -> None: ...

    def trial(self, trial: Trial, number: int, failures: int, best: float, first: float) -> None: ...

    def stop(self) -> None: ...


class Lines:
    """A line now and then, for files and where rich is not installed."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._last = 0.0

    def start(self, name: str, seconds: float | None, trials: int | None) -> None:
        limits = [f"{seconds:g} s"] if seconds is not None else []
        limits += [f"{trials} trials"] if trials is not None else []
        print(f"tuning {name}: {', '.join(limits)}", file=self._file, flush=True)

    def trial(self, trial: Trial, number: int, failures: int, best: float, first: float) -> None:
        if time.monotonic() - self._last >= EVERY:
            self._last = time.monotonic()
            print(f"{trial.at:6.1f} s  {told(number, failures, best, first)}", file=self._file, flush=True)

    def stop(self) -> None: ...


class Bar:
    """A bar of rich, by the time that is left or the trials, whichever ends first."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        texts = [TextColumn(text) for text in ("{task.description}", "{task.fields[told]}")]
        columns = (texts[0], BarColumn(), texts[1], TimeElapsedColumn())
        self._bar = RichProgress(*columns, console=Console(stderr=True), transient=False)
        self._task: Any = None
        self._limits: tuple[float | None, int | None] = (None, None)

    def start(self, name: str, seconds: float | None, trials: int | None) -> None:
        self._limits = seconds, trials
        self._bar.start()
        self._task = self._bar.add_task(f"tuning {name}", total=1.0, told="compiling")

    def trial(self, trial: Trial, number: int, failures: int, best: float, first: float) -> None:
        seconds, trials = self._limits
        done = max(trial.at / seconds if seconds else 0.0, number / trials if trials else 0.0)
        left = f", {max(0.0, seconds - trial.at):.0f} s left" if seconds else ""
        self._bar.update(self._task, completed=min(1.0, done), told=told(number, failures, best, first) + left)

    def stop(self) -> None:
        self._bar.stop()


def told(number: int, failures: int, best: float, first: float) -> str:
    """How far a tuning is, in words."""
    ahead = f" ({first / best:.2f}x the default)" if best < float("inf") and first < float("inf") else ""
    failed = f", {failures} failed" if failures else ""
    return f"best {duration(best)}{ahead}, {number} trials{failed}"


def duration(seconds: float) -> str:
    """Seconds with three digits and a unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1 or unit == "us":
            return "none" if seconds == float("inf") else f"{seconds * scale:.3g} {unit}"
    raise AssertionError("the last unit fits all")


def progress_of(wanted: bool | Progress) -> Progress:
    """The bar where one can be drawn, else lines; nothing for False; or what was given."""
    if not isinstance(wanted, bool):
        return wanted
    if not wanted:
        return Silent()
    try:
        return Bar() if sys.stderr.isatty() else Lines(sys.stderr)
    except ImportError:
        return Lines(sys.stderr)
