"""Stages that follow one another row by row, as those of a softmax or of a normalisation: each row goes through all of
them while it is in the cache.

The stages keep their recipes for what is left of each inside a row. Contractions, whose tiles span rows, take part
where what they read besides is small, and then the rows go in blocks: so attention never has all scores in memory.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from tensorc.errors import ScheduleError
from tensorc.ir.expr import Buffer, Expr, Load, Var, is_const
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
    """The stages `members`, in program order, and the `root` that reads them: `depth` loops go around all of them.

    The innermost of these goes by blocks of rows where contractions are among them; `width` is then the most elements
    that a stage makes of a row.
    """

    root: str
    members: tuple[str, ...]
    depth: int
    width: int = 0


@dataclass(frozen=True, slots=True)
class Offer:
    """A group whose stages may share rows, and whether they do by default; where rows go in blocks, of which size."""

    rows: Rows
    is_default: bool
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """A group that is going to share rows, in blocks of `size` of them where that is given."""

    rows: Rows
    size: int | None = None


def offers(s: Schedule, target: Target, threads: int, apart: Collection[str] = ()) -> list[Offer]:
    """The groups of stages that may share rows, but for blocks `apart`."""
    found = _Stages(s.function, apart, 4 * target.l2).groups()
    return [Offer(each, _has_tasks(s, each, target, threads), _sizes(s, each, target)) for each in found]


def _sizes(s: Schedule, rows: Rows, target: Target) -> tuple[int, ...]:
    """The numbers of rows that a block may have, the default first."""
    if not rows.width:
        return ()
    count = s.extent(s.loops(rows.root)[rows.depth - 1])
    most = max(16, min(256, target.l2 // (4 * 4 * rows.width)))
    default = next((size for size in range(most, most // 2, -1) if count and count % size == 0), most)
    return (default, *[size for size in (16, 32, 64, 128, 256) if size != default])


def decide(found: Iterable[Offer], knobs: Knobs) -> Iterator[Plan]:
    """Choose which groups share rows, and how many; touches no IR."""
    for offer in found:
        root = offer.rows.root
        if knobs.choice(f"{root}.rows", (True, False), default=offer.is_default):
            sizes = offer.sizes
            yield Plan(offer.rows, knobs.choice(f"{root}.block", sizes, default=sizes[0]) if sizes else None)


def apply(s: Schedule, plans: Iterable[Plan]) -> list[Rows]:
    """Move the stages of each group into the loops over the rows of its root; the groups as they are then."""
    fused: list[Rows] = []
    for plan in plans:
        rows = plan.rows
        depth = rows.depth if plan.size is None else _block_rows(s, rows, plan.size)
        if depth:
            loop = s.loops(rows.root)[depth - 1]
            moved = [name for name in reversed(rows.members) if _moves(s, name, loop)]
            fused.append(Rows(rows.root, tuple(reversed(moved)), depth, rows.width))
    return fused


def _block_rows(s: Schedule, rows: Rows, size: int) -> int:
    """Let the rows of a group go in blocks; how many loops are around them then."""
    loop = s.loops(rows.root)[rows.depth - 1]
    count = s.extent(loop)
    if count is not None and count <= size:
        return rows.depth - 1
    s.split(loop, factors=(None, size))
    return rows.depth


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
        total += _size([it.extent for it in block.iters]) * max(1, found.cost) / target.lanes(found.itemsize)
    return total


def _size(extents: Iterable[Expr]) -> int:
    return math.prod([constant(extent) or UNKNOWN_EXTENT for extent in extents])


@dataclass(frozen=True, slots=True)
class _Stage:
    """A block in loops of its own, which are its iterators; `at` is its place among the stages."""

    at: int
    block: Block
    writes: tuple[Buffer, ...]
    loads: tuple[Load, ...]
    is_product: bool

    @property
    def spatial(self) -> list[Var]:
        return [it.var for it in self.block.iters if it.kind == "spatial"]

    @property
    def reduces(self) -> bool:
        return any(it.kind == "reduce" for it in self.block.iters)

    def extent(self, var: Var) -> Expr:
        return next(it.extent for it in self.block.iters if it.var is var)


class _Stages:
    """The stages of a function, and who writes and reads each buffer; `slim` are so many bytes that contractions may
    read again for each block of rows."""

    def __init__(self, function: Function, apart: Collection[str], slim: int) -> None:
        self.slim = slim
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
            if block.name not in apart:
                loads = tuple([e for e in all_exprs(block) if type(e) is Load])
                is_product = contraction.matches(pattern(block))
                self.free[block.name] = _Stage(at, block, buffers_written(block), loads, is_product)

    def groups(self) -> list[Rows]:
        """The groups, from the last stage backwards; each stage is in one at most."""
        found: list[Rows] = []
        for root in reversed([*self.free.values()]):
            if root.block.name not in self.free:
                continue
            depths = range(1, min(len(root.spatial), len(root.block.iters) - 1) + 1)
            groups = [self._group(root, depth) for depth in depths]
            best = max([group for group in groups if group], key=lambda g: (len(g.members), g.depth), default=None)
            if best is not None:
                found.append(best)
                for name in (best.root, *best.members):
                    del self.free[name]
        return found[::-1]

    def _group(self, root: _Stage, depth: int) -> Rows | None:
        """The group around `depth` axes of a root: with contractions if a sum of rows stands between, else without."""
        members = [self.free[name] for name in self._members(root, depth, True)]
        products = [stage for stage in (root, *members) if stage.is_product]
        if products and any(stage.reduces and not stage.is_product for stage in members):
            widths = [_size(map(each.extent, each.spatial[depth:])) for each in (root, *members)]
            return Rows(root.block.name, tuple([stage.block.name for stage in members]), depth, max(widths))
        names = () if root.is_product else self._members(root, depth, False)
        return Rows(root.block.name, names, depth) if names else None

    def _members(self, root: _Stage, depth: int, products: bool) -> tuple[str, ...]:
        """The stages that write, for each iteration of the first `depth` axes of the root, a row that is for it; with
        contractions or without."""
        outer = [var for var in root.spatial[:depth] if not is_const(root.extent(var), 1)]
        if not outer:
            return ()
        rows: dict[str, list[Var]] = {root.block.name: outer}
        members: list[_Stage] = []
        waiting = self._producers(root)
        if root.is_product and not self._is_slim(root, rows[root.block.name]):
            return ()
        while waiting:
            stage = waiting.pop(max(waiting))
            found = self._row(stage, rows)
            if found is None or (stage.is_product and not (products and self._is_slim(stage, found))):
                continue
            rows[stage.block.name] = found
            members.append(stage)
            waiting |= self._producers(stage)
        return tuple([stage.block.name for stage in reversed(members)])

    def _is_slim(self, stage: _Stage, outer: list[Var]) -> bool:
        """Whether what a contraction reads for all rows of a block is little: what does not go along the rows."""
        for load in dict.fromkeys(stage.loads):
            if load.buffer in stage.writes or any(uses(index, outer[-1:]) for index in load.indices):
                continue
            parts = [extent for index, extent in zip(load.indices, load.buffer.shape) if not uses(index, outer)]
            if _size(parts) * load.buffer.dtype.bytes > self.slim:
                return False
        return True

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
