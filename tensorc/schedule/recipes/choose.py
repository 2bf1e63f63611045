"""The default schedule: inline what is cheap to repeat, then one recipe for each group of blocks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tensorc.errors import ScheduleError
from tensorc.ir.function import Function
from tensorc.schedule.knobs import Defaults, Knobs, Replay
from tensorc.schedule.legality import never_runs
from tensorc.schedule.locate import all_blocks, find_block
from tensorc.schedule.primitives.domains import own_loops
from tensorc.schedule.recipes import contraction, elementwise, groups, ordered, reduction, rows, stencil, winograd
from tensorc.schedule.recipes.access import Group, Pattern, pattern
from tensorc.schedule.recipes.custom import Recipe
from tensorc.schedule.recipes.digits import split_digits
from tensorc.schedule.recipes.inline import Fixed, inline_cheap
from tensorc.schedule.recipes.outline import Outline
from tensorc.schedule.recipes.outlines import outline
from tensorc.schedule.regions import buffers_written
from tensorc.schedule.schedule import Schedule
from tensorc.target import Target

RECIPES = (contraction, ordered, stencil, reduction, elementwise)  # the first that matches is taken


class Scoped:
    """Knobs of one group among several: each name is preceded by the group's."""

    def __init__(self, knobs: Knobs, prefix: str) -> None:
        self._knobs = knobs
        self._prefix = prefix
        self.decisions = knobs.decisions

    def split(self, name, extent, parts, default):
        return self._knobs.split(f"{self._prefix}.{name}", extent, parts, default)

    def choice(self, name, options, default):
        return self._knobs.choice(f"{self._prefix}.{name}", options, default)


def schedule_function(
    function: Function,
    target: Target,
    threads: int,
    knobs: Knobs | None = None,
    own: Sequence[Recipe] = (),
    constants: Collection[str] = (),
) -> Schedule:
    """Schedule an unscheduled nest by the recipes, the user's `own` first; `knobs` answers their questions, by default
    the models do. `constants` names parameters that hold the same at every call: what depends on them alone stays
    outside of all other loops, where `preparation.prepared` finds it.

    Raises ScheduleError where recorded decisions do not fit the recipes of this function.
    """
    return Planner(function, target, threads, own, constants).schedule(knobs or Defaults())


@dataclass(frozen=True, slots=True)
class Planned:
    """What is to become of a group: the plan of its recipe, a module or a user's."""

    group: Group
    recipe: Any
    plan: Any

    def outline(self, target: Target, threads: int) -> Outline | None:
        """The nest that comes of it, as far as it matters for time; None where the recipe does not tell."""
        return outline(self.recipe, self.group, self.plan, target, threads)


@dataclass(frozen=True, slots=True)
class _State:
    """The function after stages were moved together: the groups in the order in which they are scheduled, each with the
    number of loops over rows around it."""

    s: Schedule
    fused: tuple[rows.Rows, ...]
    groups: tuple[tuple[Group, int], ...]


class Planner:
    """Schedules one function, again and again, by different answers to the recipes' questions.

    What no answer changes is done once. Raises ScheduleError as `schedule_function` does.
    """

    def __init__(
        self,
        function: Function,
        target: Target,
        threads: int,
        own: Sequence[Recipe] = (),
        constants: Collection[str] = (),
    ) -> None:
        self.target, self.threads = target, threads
        self._inlined = Schedule(function)
        inline_cheap(self._inlined, constants)
        self._constants = constants
        self._recipes = own
        blocks = all_blocks(self._inlined.function)
        found = [each for each in map(winograd.recognize, blocks) if each is not None]
        taken = _chosen(_patterns(self._inlined, Fixed()), own) if own and found else {}
        self._convolutions = [each for each in found if each.block not in taken]
        self._starts: dict[tuple[str, ...], _Start] = {}
        self._own = self._start(("direct",) * len(self._convolutions)).own

    @property
    def is_plannable(self) -> bool:
        """Whether `plans` tells all: no user's recipe asks its questions only as it goes."""
        return all(recipe.decide is not None for recipe in self._own.values())

    def plans(self, knobs: Knobs) -> list[Planned]:
        """What `schedule` is going to do, as far as that is known before any step is taken: thousands of times a
        second. Where a step turns out to be illegal, `schedule` may ask more."""
        start, state = self._state(knobs)
        done = set(start.done)
        found: list[Planned] = []
        for group, depth in state.groups:
            name = group.main.block
            if name in done:
                continue
            own, asked = start.own.get(name), Scoped(knobs, name)
            threads = 1 if depth else self.threads
            recipe: Any = own or recipe_of(group.main)
            if own is not None:
                plan = own.plan(group, asked, self.target, threads)
            else:
                plan = recipe.decide(group, asked, self.target, threads)
            done |= {name, *_taken(recipe, group, plan)}
            found.append(Planned(group, recipe, plan))
        return found

    def schedule(self, knobs: Knobs) -> Schedule:
        """The schedule that comes of the answers."""
        start, state = self._state(knobs)
        s = state.s.copy()
        used = dict(start.done)
        for group, depth in state.groups:
            name = group.main.block
            if name in used:
                continue  # done with another one
            asked = Scoped(knobs, name)
            if name in start.own:
                start.own[name].schedule(s, group, asked, self.target, self.threads)
                used[name] = start.own[name].name
            else:
                used.update(_schedule(s, group, asked, self.target, 1 if depth else self.threads))
        for each in state.fused:
            rows.share_rows(s, each, self.target, self.threads)
        if isinstance(knobs, Replay):
            knobs.check_all_asked()
        s.recipes, s.decisions = MappingProxyType(used), MappingProxyType(knobs.decisions)
        return s

    def _state(self, knobs: Knobs) -> tuple[_Start, _State]:
        asked = [Scoped(knobs, each.block) for each in self._convolutions]
        algorithms = tuple([each.choice("algorithm", winograd.ALGORITHMS, default="direct") for each in asked])
        start = self._start(algorithms)
        return start, start.state(tuple(rows.decide(start.rows, knobs)))

    def _start(self, algorithms: tuple[str, ...]) -> _Start:
        if algorithms not in self._starts:
            s = self._inlined.copy()
            done: dict[str, str] = {}
            for found, algorithm in zip(self._convolutions, algorithms):
                if algorithm != "direct":
                    tile = winograd.ALGORITHMS[algorithm]
                    done |= dict.fromkeys(winograd.substitute(s, found, tile, self.target, self.threads), "winograd")
            self._starts[algorithms] = _Start(s, done, self.target, self.threads, self._recipes, self._constants)
        return self._starts[algorithms]


class _Start:
    """The function before the recipes' steps: `own` are the user's recipes by the blocks that they accept, `done` the
    blocks that are scheduled already, `rows` the stages that may be moved together."""

    def __init__(
        self,
        s: Schedule,
        done: dict[str, str],
        target: Target,
        threads: int,
        own: Sequence[Recipe],
        constants: Collection[str],
    ) -> None:
        self._s, self.done = s, done
        fixed = self._fixed = Fixed.of(s.function, constants)
        self.own = _chosen(self._left(fixed), own) if own else {}
        split_digits(s, self.own)
        patterns = self._patterns = self._left(fixed)
        free = [each for name, each in patterns.items() if name not in self.own]
        recipes = {main.block: recipe_of(main) for main in free}
        moving = [main for main in free if main.block not in fixed.blocks]
        tiled = [main for main in moving if recipes[main.block] in (contraction, stencil)]
        self._finished = {main.block: groups.epilogue(s.function, main, free) for main in tiled}
        through = {found.block for found in self._finished.values() if found is not None}
        makers = {contraction: contraction.producer, stencil: stencil.producer}
        fed = [main for main in tiled if main.block not in through]
        others = [each for each in moving if each.block not in through]
        self._made = {main.block: makers[recipes[main.block]](s.function, main, others) for main in fed}
        self._before = {found.block for found in self._made.values() if found is not None}
        windows = {name for name, found in self._made.items() if found is not None and recipes[name] is stencil}
        apart = {*done, *self.own, *through, *self._before, *windows, *fixed.blocks}
        self.rows = rows.offers(s, target, threads, apart)
        self._states: dict[tuple[rows.Plan, ...], _State] = {}

    def _left(self, fixed: Fixed) -> dict[str, Pattern]:
        return {name: each for name, each in _patterns(self._s, fixed).items() if name not in self.done}

    def state(self, plans: tuple[rows.Plan, ...]) -> _State:
        """What comes of moving stages together."""
        if plans not in self._states:
            self._states[plans] = self._fused(plans)
        return self._states[plans]

    def _fused(self, plans: Sequence[rows.Plan]) -> _State:
        s = self._s.copy()
        fused = rows.apply(s, plans)
        depths = {name: each.depth for each in fused for name in (each.root, *each.members)}
        found: list[tuple[Group, int]] = []
        for name in sorted(self._patterns, key=lambda name: name in self._before):  # those last, if they are left
            if name in self.own:
                found.append((Group(self._patterns[name]), 0))
            elif name in depths:
                main = _in_row(s, name, depths[name], self._fixed)
                found += [] if main is None else [(Group(main), depths[name])]
            else:
                made = self._made.get(name)
                group = Group(self._patterns[name], self._finished.get(name), made, _is_alone(s, name))
                found.append((group, 0))
        return _State(s, tuple(fused), tuple(found))


def _patterns(s: Schedule, fixed: Fixed) -> dict[str, Pattern]:
    """The patterns of the blocks for which there is something to choose: not of a single instance or of none, nor where
    all is looked at in order."""
    running = [block for block in all_blocks(s.function) if not never_runs(block)]
    blocks = [block for block in running if s.loops(block.name) and buffers_written(block)]
    return {block.name: pattern(block, constants=fixed.buffers) for block in blocks}


def _is_alone(s: Schedule, block: str) -> bool:
    """Whether the loops of a block are its own, so that its points may be counted in another way."""
    try:
        own_loops(find_block(s.function, block), "recipe")
    except ScheduleError:
        return False
    return True


def _chosen(patterns: dict[str, Pattern], own: Sequence[Recipe]) -> dict[str, Recipe]:
    """The user's recipes for the blocks that they accept."""
    found = {name: next((r for r in own if r.accepts(Group(each))), None) for name, each in patterns.items()}
    return {name: recipe for name, recipe in found.items() if recipe is not None}


def _schedule(s: Schedule, group: Group, knobs: Knobs, target: Target, threads: int) -> dict[str, str]:
    """Schedule a group by the recipe that matches; the blocks of it that are done, with the name of the recipe."""
    recipe = recipe_of(group.main)
    others = [other.block for other in (group.epilogue, group.prologue) if other is not None]
    before = {other: s.loops(other) for other in others}
    recipe.apply(s, group, recipe.decide(group, knobs, target, threads))
    name = recipe.__name__.rpartition(".")[2]
    done = {group.main.block: name}
    there = [block.name for block in s.blocks()]
    done.update({other: name for other in others if other not in there or s.loops(other) != before[other]})
    return done


def _taken(recipe: Any, group: Group, plan: Any) -> frozenset[str]:
    """The other blocks of a group that a plan is for as well."""
    return recipe.taken(group, plan) if recipe in (contraction, stencil) else frozenset()


def recipe_of(main: Pattern):
    """The first of the built-in recipes that matches."""
    return next(recipe for recipe in RECIPES if recipe.matches(main))


def _in_row(s: Schedule, block: str, depth: int, fixed: Fixed) -> Pattern | None:
    """What is left of a block inside the loops over rows."""
    loops = {loop.name: s.extent(loop) for loop in s.loops(block)[depth:]}
    return pattern(find_block(s.function, block).node, loops, fixed.buffers) if loops else None
