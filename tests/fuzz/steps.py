"""Random steps of a schedule: any that is legal, whether it makes sense or not."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType

from tensorc.arith import Domain, bounds
from tensorc.errors import ScheduleError
from tensorc.ir.expr import Expr, Load, Var, index
from tensorc.ir.function import Function
from tensorc.ir.stmt import Block, For, Stmt
from tensorc.ir.walk import rewrite, substmts, variables, walk
from tensorc.schedule import Schedule
from tensorc.schedule.locate import all_blocks
from tensorc.schedule.scopes import function_at
from tensorc.schedule.trace import IN_BLOCKS
from tests.fuzz import data_steps, loop_steps, nests

# The least and the greatest value of variables, and of the elements of inputs, by name.
Known = Mapping[str, tuple[int, int]]
NOTHING: Known = MappingProxyType({})
DRAWS = 30
UNDO = 0.04  # of the plans, after which some steps are taken back
MOST_INSTANCES = 8000  # of all blocks, those that a tail skips included
# What is rarely legal later on, when nests are no longer as they were lowered.
FIRST = ("rolling_buffer", "decompose_padding", "pad_einsum", "reverse_compute_inline", "split")
# How often each kind of step is drawn where it can be made; those that rarely can, more often.
MAKERS = {**loop_steps.MAKERS, **data_steps.MAKERS, **nests.MAKERS}


@dataclass(frozen=True)
class Attempt:
    """A step that was tried: its name (of a split, with its tail), and how that ended."""

    name: str
    is_accepted: bool
    problem: str = ""  # what is wrong with how it was refused


def random_steps(
    s: Schedule, rng: random.Random, count: int, known: Known = NOTHING
) -> Iterator[Attempt]:
    """Try random steps on a schedule, one after the other: `count` plans of one step or some that
    need one another. Loops get kinds in the later half."""
    tried: Counter[str] = Counter()
    seen = [s.show()]  # before the first step here, and after each
    for number in range(count):
        for primitive, args in _plan(s, rng, tried, 2 * number < count):
            attempt = _try(s, primitive, args, known)
            if attempt is None:
                break
            tried[primitive] += 1
            yield attempt
            if not attempt.is_accepted:
                break
            seen.append(s.show())
        if rng.random() < UNDO and len(seen) > 1:
            yield _undo(s, rng.randint(1, min(3, len(seen) - 1)), seen)


def _undo(s: Schedule, steps: int, seen: list[str]) -> Attempt:
    """Take steps back, and look whether the nest is as it was then."""
    s.undo(steps)
    del seen[-steps:]
    return Attempt("undo", True, "" if s.show() == seen[-1] else "undo made another nest than there was")


def _try(s: Schedule, primitive: str, args: tuple, known: Known) -> Attempt | None:
    """Make a step; None where it is legal, but makes more than can be run in a moment."""
    name = f"{primitive} {args[2]}" if primitive == "split" else primitive
    trial, text = s.copy(), s.show()
    try:
        trial.perform(primitive, args)
    except ScheduleError:
        is_untouched = trial.function is s.function and trial.trace is s.trace and s.show() == text
        return Attempt(name, False, "" if is_untouched else f"{name} was refused after it began")
    if instances(trial.function, known) > MOST_INSTANCES:
        return None
    s.become(trial)
    return Attempt(name, True)


def instances(function: Function, known: Known = NOTHING) -> int:
    """How often the blocks of a function are reached at most, given the ranges of its variables and data."""
    domain = Domain()
    for var in {each for p in function.params for extent in p.shape for each in variables(extent)}:
        if var.name in known:
            domain = _bound(domain, var, known)
    return _reached(function.body, domain, known)


def _reached(stmt: Stmt, domain: Domain, known: Known) -> int:
    match stmt:
        case For(var, start, extent):
            (start, extent), domain = _of_data((start, extent), domain, known)
            most = bounds(extent, domain).hi
            times = MOST_INSTANCES if most is None else max(0, most)
            return times and times * _reached(stmt.body, domain.bind(var, start, extent), known)
        case Block(iters=iters, init=init, body=body):
            for it in iters:
                domain = domain.bind(it.var, 0, it.extent)
            parts = [body] if init is None else [init, body]
            return max(1, sum([_reached(part, domain, known) for part in parts]))
        case _:
            return sum([_reached(each, domain, known) for each in substmts(stmt)])


def _of_data(parts: tuple[Expr, ...], domain: Domain, known: Known) -> tuple[list[Expr], Domain]:
    """Expressions with a variable for each element of data, and a domain that has their ranges."""
    elements: dict[Expr, Var] = {}

    def rule(e: Expr) -> Expr | None:
        if type(e) is not Load or e.buffer.name not in known:
            return None
        return elements.setdefault(e, Var(e.buffer.name, e.dtype))

    found = [rewrite(part, rule) for part in parts]
    for var in elements.values():
        domain = _bound(domain, var, known)
    return found, domain


def _bound(domain: Domain, var: Var, known: Known) -> Domain:
    lo, hi = known[var.name]
    return domain.bind(var, index(lo), index(hi - lo + 1))


def _within(s: Schedule, rng: random.Random) -> Schedule | None:
    """Now and then a schedule of what a block does that holds blocks: its steps are steps of this one."""
    inner = [b.name for block in all_blocks(s.function) for b in walk(block) if type(b) is Block and b is not block]
    if not inner or rng.random() < 0.4:
        return None
    with suppress(ScheduleError):
        return Schedule(function_at(s.function, "block", rng.choice(inner)))
    return None


def _plan(
    s: Schedule, rng: random.Random, tried: Counter[str], is_early: bool
) -> list[tuple[str, tuple]]:
    """A step, or some that need one another; of the kinds that can be made here, one that was not
    tried often; none if nothing is found in some draws."""
    names = [name for name in MAKERS if not is_early or name not in loop_steps.KINDS]
    if not tried and rng.random() < 0.6:
        names = list(FIRST)
    within = _within(s, rng)
    if within is not None:
        s = within
        names = [name for name in names if name in IN_BLOCKS or rng.random() < 0.1]
    weights = [MAKERS[name][0] / (1 + tried[name]) ** 2 for name in names]
    for _ in range(DRAWS):
        name = rng.choices(names, weights)[0]
        block = rng.choice(s.blocks()).name
        loops = [loop.name for loop in s.loops(block)]
        if not loops and name not in data_steps.WITHOUT_LOOPS:
            continue
        try:
            found = MAKERS[name][1](s, rng, block, loops)
        except ScheduleError:  # of a step that it would start with
            continue
        if found is not None:
            return found if type(found) is list else [found]
    return []
