"""Recipes of the user's own, which come before those that are built in for the groups that they accept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tensorc.errors import ScheduleError, TensorcError
from tensorc.schedule.knobs import Knobs
from tensorc.schedule.locate import restated
from tensorc.schedule.recipes.access import Group
from tensorc.schedule.schedule import Schedule
from tensorc.target import Target

_REGISTERED: list[Recipe] = []


@dataclass(frozen=True, slots=True, eq=False)
class Recipe:
    """A way to schedule the groups that `matches` accepts: `apply` alone, or with the plan that `decide` made.

    As a context manager, it is registered within the `with` statement only.
    """

    name: str
    matches: Callable[[Group], bool]
    apply: Callable[..., None]
    decide: Callable[[Group, Knobs, Target, int], Any] | None = None
    priority: int = 0

    def register(self) -> Recipe:
        """Let `tc.build` use it from now on, before others of the same priority; again is nothing new."""
        if self not in _REGISTERED:
            at = next((n for n, other in enumerate(_REGISTERED) if other.priority <= self.priority), len(_REGISTERED))
            _REGISTERED.insert(at, self)
        return self

    def unregister(self) -> None:
        """Let `tc.build` use it no more."""
        if self in _REGISTERED:
            _REGISTERED.remove(self)

    def __enter__(self) -> Recipe:
        return self.register()

    def __exit__(self, *failure: object) -> None:
        self.unregister()

    def accepts(self, group: Group) -> bool:
        """Whether it is for this group; what the predicate raises is told as an error of the recipe."""
        return bool(self._run(group, "matches", self.matches, group))

    def schedule(self, s: Schedule, group: Group, knobs: Knobs, target: Target, threads: int) -> None:
        """Schedule a group; what the recipe raises is told as an error of it."""
        if self.decide is None:
            self._run(group, "apply", self.apply, s, group, knobs, target, threads)
            return
        self._run(group, "apply", self.apply, s, group, self.plan(group, knobs, target, threads))

    def plan(self, group: Group, knobs: Knobs, target: Target, threads: int) -> Any:
        """What its `decide` plans for a group, None where there is none; told as `schedule` tells it."""
        return self.decide and self._run(group, "decide", self.decide, group, knobs, target, threads)

    def _run(self, group: Group, what: str, call: Callable, *args):
        try:
            return call(*args)
        except TensorcError as error:
            raise restated(f"recipe {self.name!r} on block {group.main.block!r}: {error}", error) from error
        except Exception as error:
            problem = f"its {what} raised {type(error).__name__}: {error}"
            raise ScheduleError(f"recipe {self.name!r} on block {group.main.block!r}: {problem}") from error


def recipe(
    matches: Callable[[Group], bool],
    *,
    decide: Callable[[Group, Knobs, Target, int], Any] | None = None,
    priority: int = 0,
    name: str | None = None,
    register: bool = True,
) -> Callable[[Callable[..., None]], Recipe]:
    """Make a recipe of a function, which `tc.build` then uses for the groups that `matches` accepts.

    The function is `apply(s, group, knobs, target, threads)`, which schedules the group by steps on `s` and asks
    `knobs` for what is open; with `decide(group, knobs, target, threads)`, which makes a plan without touching `s`, it
    is `apply(s, group, plan)`. Of several that accept a group, the one of highest `priority` is taken, of these the
    last registered. Without `register`, it is used only in a `with` statement. The recipe that takes the function's
    place can be taken back: `unregister()`.
    """
    if not callable(matches):
        raise ScheduleError(f"recipe: {matches!r} is no predicate; @tc.recipe(lambda group: ...) takes one")

    def make(apply: Callable[..., None]) -> Recipe:
        made = Recipe(name or apply.__name__, matches, apply, decide, priority)
        return made.register() if register else made

    return make


def registered() -> tuple[Recipe, ...]:
    """The recipes that are in use now, in the order in which they are tried."""
    return tuple(_REGISTERED)
