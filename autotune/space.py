"""The space of a function's schedules: what its recipes ask, and every answer they take."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from typing import Any

import numpy as np

from autotune.record import Candidate
from autotune.roofline import Cost, cost
from tensorc.errors import ScheduleError
from tensorc.ir.function import Function
from tensorc.ir.printer import show
from tensorc.schedule import Planned, Planner, Schedule, outlines
from tensorc.schedule.knobs import Decisions
from tensorc.schedule.recipes.custom import Recipe, registered
from tensorc.target import Target

SMALL = 16  # factors up to which all are tried, for register tiles
SHARED = "parallel"  # the knobs that tell what threads share
ALGORITHM = "algorithm"  # the knobs that ask for another one
ROUND = 0.6  # how often factors that leave no rest are drawn
FEW = 48  # factors of one loop that are tried at most


@dataclass(frozen=True, slots=True)
class Question:
    """What a recipe asked: a choice among `options`, or, where these are none, for a loop of `extent` the factors
    besides the first of `parts`."""

    name: str
    default: Any
    options: tuple[Any, ...] = ()
    extent: int = 1
    parts: int = 1

    @property
    def is_split(self) -> bool:
        return not self.options

    @property
    def is_settled(self) -> bool:
        """Whether there is one answer only."""
        return len(self.options) == 1 or (self.is_split and self.parts == 1)

    def takes(self, answer: Any) -> bool:
        """Whether an answer is one that the recipe may be given."""
        if not self.is_split:
            return answer in self.options
        is_list = isinstance(answer, (tuple, list)) and len(answer) == self.parts - 1
        return is_list and all(type(factor) is int and factor > 0 for factor in answer)

    def answers(self) -> Iterator[Any]:
        """All answers that are tried, the default first."""
        values = product(*[self.factors(place) for place in range(self.parts - 1)])
        yield self.default
        yield from [each for each in (values if self.is_split else self.options) if each != self.default]

    def factors(self, place: int) -> tuple[int, ...]:
        """What is tried for one factor of a split, in order."""
        return _factors(self.extent, self.default[place])

    def round_factors(self, place: int) -> tuple[int, ...]:
        """Those that leave no rest, or fit vectors and lines of caches."""
        found = self.factors(place)
        return tuple([n for n in found if self.extent % n == 0 or n & (n - 1) == 0])


@cache
def _factors(extent: int, default: int) -> tuple[int, ...]:
    """Small numbers, divisors, powers of two, three times such, and what is near the default."""
    most = extent if default <= extent else 2 * default
    found = {*range(1, min(most, SMALL) + 1), default, extent}
    found |= {step << n for step in (1, 3) for n in range(most.bit_length())}
    found |= {default - 1, default + 1, 2 * default, default // 2, -(-extent // 2), -(-extent // 3)}
    found |= {n for n in range(1, math.isqrt(extent) + 1) if extent % n == 0}
    found |= {extent // n for n in range(1, math.isqrt(extent) + 1) if extent % n == 0}
    kept = sorted([n for n in found if 0 < n <= most])
    while len(kept) > FEW:  # every second one of those that are neither small nor the default
        far = [n for n in kept if n > SMALL and n not in (default, extent)]
        kept = [n for n in kept if n not in far[::2]]
    return tuple(kept)


class Asked:
    """Knobs that answer with what is given, and otherwise as `answer` does; `questions` remembers what was asked.

    What is given but would be refused is answered anew.
    """

    def __init__(self, given: Decisions, answer: Callable[[Question], Any]) -> None:
        self._given = given
        self._answer = answer
        self.decisions: dict[str, Any] = {}
        self.questions: dict[str, Question] = {}

    def split(self, name: str, extent: int, parts: int, default: Sequence[int]) -> tuple[int, ...]:
        return self.ask(Question(name, tuple(default), (), extent, parts))

    def choice(self, name: str, options: Sequence[Any], default: Any) -> Any:
        return self.ask(Question(name, default, tuple(options)))

    def ask(self, question: Question) -> Any:
        """The answer to a question."""
        name = question.name
        is_given = name in self._given and question.takes(self._given[name])
        answer: Any = self._given[name] if is_given else self._answer(question)
        if question.is_split:
            answer = tuple(answer)
        self.decisions[name] = answer
        self.questions[name] = question
        return answer


@dataclass(frozen=True, slots=True)
class Draft:
    """A plan: its decisions, the questions that they answer, and what the model says of each of its nests, if that is
    known."""

    decisions: Mapping[str, Any]
    questions: Mapping[str, Question]
    costs: tuple[Cost, ...] = ()

    @property
    def cycles(self) -> float:
        """By the model; 0 where that says nothing."""
        return sum([each.cycles for each in self.costs])

    @property
    def key(self) -> tuple[tuple[str, Any], ...]:
        return tuple(sorted(self.decisions.items()))


class Space:
    """The schedules of an unscheduled function for a target and a number of threads.

    `own` are the user's recipes, by default those that are registered; `constants` names parameters that hold the same
    at every call. Other algorithms, such as Winograd's, which round more, belong to it only where `allows_algorithms`.
    """

    def __init__(
        self,
        function: Function,
        target: Target,
        threads: int,
        constants: Collection[str] = (),
        own: Sequence[Recipe] | None = None,
        allows_algorithms: bool = False,
    ) -> None:
        self.function, self.target, self.threads = function, target, threads
        self._closed = [*[SHARED][threads > 1 :], *[ALGORITHM][allows_algorithms:]]
        self._planner = Planner(function, target, threads, registered() if own is None else own, constants)
        self._questions: dict[str, Question] = {}  # that were asked by recipes which have to be run
        self._costs: dict[Hashable, Cost | None] = {}  # the planner keeps the groups

    @property
    def is_plannable(self) -> bool:
        """Whether drafts are plans: no user's recipe has to be run to know what it asks."""
        return self._planner.is_plannable

    @cached_property
    def is_foreseen(self) -> bool:
        """Whether drafts come with what the model says of them: all recipes tell what comes of their plans."""
        default = self.draft()
        return default is not None and bool(default.costs)

    def draft(self, given: Decisions | None = None, answer: Callable[[Question], Any] | None = None) -> Draft | None:
        """The plan by what is given and otherwise answered, by default as the recipes would; None where the recipes
        refuse it."""
        asked = Asked(given or {}, self._answering(answer or by_default))
        try:
            if not self._planner.is_plannable:
                return self._guess(asked)
            plans = self._planner.plans(asked)
        except ScheduleError:
            return None
        costs = [self._cost(plan, asked.decisions) for plan in plans]
        known = tuple([each for each in costs if each is not None])
        return Draft(asked.decisions, asked.questions, known if len(known) == len(costs) else ())

    def _guess(self, asked: Asked) -> Draft:
        """The draft of a recipe that has to be run for its questions: those that it is known to ask."""
        if not self._questions:
            self._planner.schedule(asked)
            self._questions.update(asked.questions)
        for question in self._questions.values():
            asked.ask(question)
        return Draft(asked.decisions, asked.questions)

    def _cost(self, plan: Planned, decisions: Decisions) -> Cost | None:
        """What the model says of a nest; most groups have few different plans."""
        prefix = f"{plan.group.main.block}."
        own = (id(plan.group), *[answer for name, answer in decisions.items() if name.startswith(prefix)])
        if own not in self._costs:
            outline = plan.outline(self.target, self.threads)
            self._costs[own] = None if outline is None else cost(outline, self.target, self.threads)
        return self._costs[own]

    def _answering(self, answer: Callable[[Question], Any]) -> Callable[[Question], Any]:
        """Without other threads, what they share is no question; nor are algorithms that are not allowed."""
        return lambda asked: asked.default if asked.name.rpartition(".")[2] in self._closed else answer(asked)

    def schedule(self, decisions: Decisions) -> Schedule:
        """The schedule of these decisions. Raises ScheduleError where the recipes refuse them."""
        return self._planner.schedule(Asked(decisions, by_default))

    def candidate(self, decisions: Decisions, origin: str = "default") -> Candidate | None:
        """The schedule of these decisions, of which the recipes take what they ask for; None where they refuse it."""
        found = self.scheduled(decisions, origin)
        return None if found is None else found[0]

    def scheduled(self, decisions: Decisions, origin: str = "default") -> tuple[Candidate, Draft] | None:
        """The same, with the draft that came of it: where recipes do not tell what comes of a plan, the model now says
        what it finds."""
        asked = Asked(decisions, by_default)
        try:
            scheduled = self._planner.schedule(asked)
        except ScheduleError:
            return None
        finally:
            self._questions.update(asked.questions)
        function = scheduled.function
        if self.is_foreseen:
            draft = self.draft(asked.decisions)
            costs = () if draft is None else draft.costs
        else:
            costs = tuple([cost(each, self.target, self.threads) for each in outlines(function)])
        candidate = Candidate(asked.decisions, show(function), origin)
        return candidate, Draft(asked.decisions, asked.questions, costs)

    def drafts(self) -> Iterator[Draft]:
        """Every plan of the space, the default first: finite, but often too many."""
        answers: list[tuple[str, list[Any]]] = []  # what is left to be answered to each question, in order
        while True:
            given = {name: left[0] for name, left in answers}
            known = set(given)

            def first(question: Question, known: set[str] = known) -> Any:
                if question.name not in known:
                    known.add(question.name)
                    answers.append((question.name, list(question.answers())))
                return question.default

            found = self.draft(given, first)
            if found is not None:
                yield found
            while answers and len(answers[-1][1]) == 1:
                answers.pop()
            if not answers:
                return
            del answers[-1][1][0]


def by_default(question: Question) -> Any:
    return question.default


class Sampler:
    """Draws answers: `near` is how often one near the default."""

    def __init__(self, rng: np.random.Generator, near: float = 0.0) -> None:
        self._rng = rng
        self._near = near

    def __call__(self, question: Question) -> Any:
        is_near = self._rng.random() < self._near
        if not question.is_split:
            return question.default if is_near else _one(self._rng, question.options)
        return self.beside(question, question.default) if is_near else self._factors(question)

    def _factors(self, question: Question) -> tuple[int, ...]:
        fits = math.prod(question.default) <= question.extent
        for _ in range(8):
            drawn = tuple([_one(self._rng, self._values(question, n)) for n in range(question.parts - 1)])
            if not fits or math.prod(drawn) <= question.extent:
                break
        return drawn

    def _values(self, question: Question, place: int) -> tuple[int, ...]:
        return question.round_factors(place) if self._rng.random() < ROUND else question.factors(place)

    def beside(self, question: Question, answer: Any) -> Any:
        """Another answer, near one."""
        if not question.is_split:
            return _one(self._rng, [each for each in question.options if each != answer] or [answer])
        if not answer:
            return answer
        place = int(self._rng.integers(len(answer)))
        values = self._values(question, place)
        at = min(range(len(values)), key=lambda n: abs(values[n] - answer[place]))
        step = int(_one(self._rng, (-3, -2, -1, -1, 1, 1, 2, 3)))
        moved = [*answer]
        moved[place] = values[min(max(at + step, 0), len(values) - 1)]
        return tuple(moved)


def _one(rng: np.random.Generator, values: Sequence[Any]) -> Any:
    return values[int(rng.integers(len(values)))]
