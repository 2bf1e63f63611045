"""Stages that follow one another row by row, as those of a softmax or of a normalisation: each row goes through all of
them while it is in the cache.

The stages keep their recipes for what is left of each inside a row. Contractions stay apart: their tiles span rows.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tensorc.errors import ScheduleError
from tensorc.ir.expr import Buffer, Expr, Load, Var
from tensorc.ir.function import Function
from tensorc.ir.stmt import Block, For, Seq, Stmt, Store
from tensorc.ir.walk import all_exprs, uses, walk
from tensorc.schedule.knobs import Knobs
from tensorc.schedule.locate import all_blocks, constant, find_block
from tensorc.schedule.recipes import contraction
from tensorc.schedule.recipes.access import pattern
from tensorc.schedule.recipes.parallel import share, worth_threads
from tensorc.schedule.regions import buffers_written
from tensorc.schedule.schedule import LoopRef, Schedule
from tensorc.target import Target

UNKNOWN_EXTENT = 256
TASKS = 2  # rows a thread, at least: with fewer, the stages are better shared one by one


@dataclass(frozen=True, slots=True)
class Rows:
    """The stages `members`, in program order, and the `root` that reads them: `depth` loops go around all of them."""

    root: str
    members: tuple[str, ...]
    depth: int


def fuse(s: Schedule, knobs: Knobs, target: Target, threads: int, apart: Collection[str] = ()) -> list[Rows]:
    """Move the stages of each group into the loops over the rows of its root, but for blocks `apart`; the groups."""
    fused: list[Rows] = []
    for rows in _Stages(s.function, apart).groups():
        if knobs.choice(f"{rows.root}.rows", (True, False), default=_has_tasks(s, rows, target, threads)):
            loop = s.loops(rows.root)[rows.depth - 1]
            moved = [name for name in reversed(rows.members) if _moves(s, name, loop)]
            fused.append(Rows(rows.root, tuple(reversed(moved)), rows.depth))
    return fused


def share_rows(s: Schedule, rows: Rows, target: Target, threads: int) -> None:
    """Let threads share the rows of a group, where that pays."""
    if worth_threads(_cycles(s, rows, target), threads):
        share(s, s.loops(rows.root)[: rows.depth])


def _moves(s: Schedule, name: str, loop: LoopRef) -> bool:
    try:
        s.compute_at(name, loop)
    except ScheduleError:
        return False  # something between the two stands in the way
    return True


def _has_tasks(s: Schedule, rows: Rows, target: Target, threads: int) -> bool:
    extents = [s.extent(loop) or UNKNOWN_EXTENT for loop in s.loops(rows.root)[: rows.depth]]
    return math.prod(extents) >= TASKS * threads or not worth_threads(_cycles(s, rows, target), threads)


def _cycles(s: Schedule, rows: Rows, target: Target) -> float:
    """What a core needs for a group."""
    total = 0.0
    for name in (*rows.members, rows.root):
        block = find_block(s.function, name).node
        found = pattern(block)
        size = math.prod([constant(it.extent) or UNKNOWN_EXTENT for it in block.iters])
        total += size * max(1, found.cost) / target.lanes(found.itemsize)
    return total


@dataclass(frozen=True, slots=True)
class _Stage:
    """A block in loops of its own, which are its iterators; `at` is its place among the stages."""

    at: int
    block: Block
    writes: tuple[Buffer, ...]
    loads: tuple[Load, ...]

    @property
    def spatial(self) -> list[Var]:
        return [it.var for it in self.block.iters if it.kind == "spatial"]

    def extent(self, var: Var) -> Expr:
        return next(it.extent for it in self.block.iters if it.var is var)


class _Stages:
    """The stages of a function, and who writes and reads each buffer."""

    def __init__(self, function: Function, apart: Collection[str]) -> None:
        self.internal = set(function.allocs)
        self.writers: dict[Buffer, list[str]] = {}
        self.readers: dict[Buffer, list[str]] = {}
        for block in all_blocks(function):
            for buffer in buffers_written(block):
                self.writers.setdefault(buffer, []).append(block.name)
            for buffer in dict.fromkeys([e.buffer for e in all_exprs(block) if type(e) is Load]):
                self.readers.setdefault(buffer, []).append(block.name)
        self.free: dict[str, _Stage] = {}
        for at, block in enumerate(_alone(function.body)):
            if block.name not in apart and not contraction.matches(pattern(block)):
                loads = tuple([e for e in all_exprs(block) if type(e) is Load])
                self.free[block.name] = _Stage(at, block, buffers_written(block), loads)

    def groups(self) -> list[Rows]:
        """The groups, from the last stage backwards; each stage is in one at most."""
        found: list[Rows] = []
        for root in reversed([*self.free.values()]):
            if root.block.name not in self.free:
                continue
            depths = range(1, min(len(root.spatial), len(root.block.iters) - 1) + 1)
            groups = [(self._members(root, depth), depth) for depth in depths]
            members, depth = max(groups, key=lambda group: (len(group[0]), group[1]), default=((), 0))
            if members:
                found.append(Rows(root.block.name, members, depth))
                for name in (root.block.name, *members):
                    del self.free[name]
        return found

    def _members(self, root: _Stage, depth: int) -> tuple[str, ...]:
        """The stages that write, for each iteration of the first `depth` axes of the root, a row that is for it."""
        rows: dict[str, list[Var]] = {root.block.name: root.spatial[:depth]}
        members: list[_Stage] = []
        waiting = self._producers(root)
        while waiting:
            stage = waiting.pop(max(waiting))
            found = self._row(stage, rows)
            if found is not None:
                rows[stage.block.name] = found
                members.append(stage)
                waiting |= self._producers(stage)
        return tuple([stage.block.name for stage in reversed(members)])

    def _producers(self, stage: _Stage) -> dict[int, _Stage]:
        names = {name for load in stage.loads for name in self.writers.get(load.buffer, ())}
        found = [self.free[name] for name in names if name in self.free]
        return {other.at: other for other in found if other.at < stage.at}

    def _row(self, stage: _Stage, rows: dict[str, list[Var]]) -> list[Var] | None:
        """The iterators of a stage that run along the rows of those who read it; None if it does not belong there."""
        own = stage.block.name
        readers: set[str] = set()
        for buffer in stage.writes:
            if buffer not in self.internal or self.writers[buffer] != [own]:
                return None
            readers |= {*self.readers.get(buffer, ())} - {own}
        if not readers or not readers <= rows.keys():
            return None
        found = [_along(stage, self.free[name], rows[name]) for name in readers]
        return found[0] if all([each == found[0] for each in found]) else None


def _along(stage: _Stage, reader: _Stage, outer: list[Var]) -> list[Var] | None:
    """The iterators of a stage that a reader needs only one value of in each iteration of `outer`."""
    dims: set[tuple[int, ...]] = set()
    for load in reader.loads:
        if load.buffer in stage.writes:
            at = [[n for n, index in enumerate(load.indices) if uses(index, (var,))] for var in outer]
            if any([len(places) != 1 or load.indices[places[0]] is not var for places, var in zip(at, outer)]):
                return None
            dims.add(tuple([places[0] for places in at]))
    axes = stage.spatial  # in the order of the dimensions that are written
    if len(dims) != 1:
        return None
    found = [axes[dim] for dim in dims.pop()]
    return found if all([stage.extent(a) == reader.extent(b) for a, b in zip(found, outer)]) else None


def _alone(body: Stmt) -> Iterator[Block]:
    """The blocks that stand alone in loops which are their iterators, and write an element for each spatial one."""
    for nest in body.stmts if type(body) is Seq else (body,):
        loops: list[Var] = []
        while type(nest) is For:
            loops.append(nest.var)
            nest = nest.body
        if type(nest) is not Block or not loops or [it.binding for it in nest.iters] != loops:
            continue
        spatial = tuple([it.var for it in nest.iters if it.kind == "spatial"])
        kinds = {it.kind for it in nest.iters}
        if "ordered" not in kinds and all([stmt.indices == spatial for stmt in walk(nest) if type(stmt) is Store]):
            yield nest
