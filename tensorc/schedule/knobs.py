"""Knobs: the free decisions of a recipe, asked for as it runs; defaults, replay and search answer alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tensorc.errors import ScheduleError
from tensorc.ir.function import Function
from tensorc.schedule.trace import Trace
from tensorc.target import Target

Decisions = Mapping[str, Any]


class Knobs(Protocol):
    """What a recipe asks. Each answer is remembered under the knob's name in `decisions`."""

    decisions: dict[str, Any]

    def split(self, name: str, extent: int, parts: int, default: Sequence[int]) -> tuple[int, ...]:
        """Factors of a loop of `extent`, outermost first; the first one is implied and not among them, so `parts` - 1
        positive numbers are returned. They need not divide the extent."""
        ...

    def choice(self, name: str, options: Sequence[Any], default: Any) -> Any:
        """One of the options."""
        ...


class Defaults:
    """Answers with the recipe's own defaults, which come from an analytical model."""

    def __init__(self) -> None:
        self.decisions: dict[str, Any] = {}

    def split(self, name: str, extent: int, parts: int, default: Sequence[int]) -> tuple[int, ...]:
        self.decisions[name] = answer = tuple(default)
        return answer

    def choice(self, name: str, options: Sequence[Any], default: Any) -> Any:
        self.decisions[name] = default
        return default


class Replay:
    """Answers with recorded decisions; a knob that was not recorded gets its default.

    Raises ScheduleError, naming the knob, where a recorded decision is none that the recipe can take;
    `check_all_asked` does where no recipe asked for one.
    """

    def __init__(self, decisions: Decisions) -> None:
        self._recorded = dict(decisions)
        self.decisions: dict[str, Any] = {}

    def split(self, name: str, extent: int, parts: int, default: Sequence[int]) -> tuple[int, ...]:
        answer = self._recorded.get(name, default)
        if not isinstance(answer, (tuple, list)) or len(answer) != parts - 1 or not all(map(_is_factor, answer)):
            raise ScheduleError(f"knob {name!r}: {answer!r} are not {parts - 1} positive factors")
        self.decisions[name] = tuple(answer)
        return tuple(answer)

    def choice(self, name: str, options: Sequence[Any], default: Any) -> Any:
        answer = self._recorded.get(name, default)
        if answer not in options:
            raise ScheduleError(f"knob {name!r}: {answer!r} is none of {', '.join(map(repr, options))}")
        self.decisions[name] = answer
        return answer

    def check_all_asked(self) -> None:
        """Refuse what was recorded but never asked for, once all recipes have run."""
        unknown = [name for name in self._recorded if name not in self.decisions]
        if unknown:
            knobs = "knob" if len(unknown) == 1 else "knobs"
            there = ", ".join(map(str, self.decisions)) or "none"
            raise ScheduleError(f"{knobs} {', '.join(map(repr, unknown))}: no recipe asks for that; there are {there}")


def _is_factor(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


class ScheduleSource(Protocol):
    """Where tuned schedules come from: a tuning database is one, tuning on demand another."""

    def lookup(self, function: Function, target: Target, threads: int) -> Decisions | Trace | None:
        """For an unscheduled function and the threads that it may use: decisions for the recipes' knobs, a whole trace,
        or nothing."""
        ...
