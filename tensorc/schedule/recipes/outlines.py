"""The outline of each recipe's plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

from tensorc.ir.expr import Var
from tensorc.ir.function import Function
from tensorc.ir.stmt import Block, For, Stmt
from tensorc.ir.walk import substmts, variables
from tensorc.schedule.locate import constant
from tensorc.schedule.recipes import contraction, dots, elementwise, reduction, stencil
from tensorc.schedule.recipes.access import Group, Pattern, pattern
from tensorc.schedule.recipes.columns import GATHERED, depth_axis
from tensorc.schedule.recipes.outline import Copy, Level, Outline, inner, lanes, level
from tensorc.schedule.recipes.tiles import UNKNOWN_EXTENT, size
from tensorc.schedule.regions import buffers_written
from tensorc.target import Target

PLAIN = 1.0  # cycles to copy a vector that lies as it is wanted
TURNED = 3.0  # the same of one that is turned on the way
SINGLE = 16.0  # the same of one whose elements are moved one by one
KINDS = {"unrolled": "tile", "vectorized": "lanes"}  # loops that become part of a register tile


def outline(recipe: Any, group: Group, plan: Any, target: Target, threads: int) -> Outline | None:
    """The nest that a built-in recipe makes of a plan; None where it is not foreseen."""
    make = _OUTLINES.get(recipe) if isinstance(recipe, ModuleType) else None
    return None if make is None else make(group, plan, target, threads)


def outlines(function: Function) -> list[Outline]:
    """The nests of a scheduled function, as they are: for recipes that do not tell beforehand what comes of a plan."""
    internal = frozenset([buffer.name for buffer in function.allocs])
    return [_as_scheduled(block, around, internal) for block, around in _nests(function.body, ())]


def _nests(stmt: Stmt, around: tuple[For, ...]) -> Iterator[tuple[Block, tuple[For, ...]]]:
    """The blocks that write, with the loops around them."""
    match stmt:
        case For():
            yield from _nests(stmt.body, (*around, stmt))
        case Block() if buffers_written(stmt):
            yield stmt, around
        case _:
            for inside in substmts(stmt):
                yield from _nests(inside, around)


def _as_scheduled(block: Block, around: tuple[For, ...], internal: frozenset[str]) -> Outline:
    """Of buffers that are internal, and laid out anew, it is taken that they lie as they are read."""
    found, names = pattern(block), dict[Var, str]()
    for it in block.iters:
        names.update({var: it.var.name for var in variables(it.binding) if var not in names})
    levels = []
    for loop in around:
        kind, trips = KINDS.get(loop.kind, "serial"), constant(loop.extent) or UNKNOWN_EXTENT
        levels.append(Level(names.get(loop.var, loop.var.name), trips, 1, kind))
    wide = math.prod([int(each.trips) for each in levels if each.kind == "lanes"])
    tasks = math.prod([each.trips for each, loop in zip(levels, around) if loop.kind == "parallel"])
    reduces = frozenset([axis.name for axis in found.reduce])
    operations = max(1.0, found.cost / 2 if reduces else found.cost)
    own = [load for load in found.loads if load.buffer in internal]
    made = frozenset([load.buffer for load in own if len(load.strides) < len(load.axes)])
    return Outline(
        block.name, tuple(levels), found.store, found.loads, wide, operations, reduces, made, tasks=int(tasks)
    )


def _contraction(
    group: Group, plan: contraction.Plan | dots.Plan, target: Target, threads: int
) -> Outline:
    if isinstance(plan, dots.Plan):
        return _dots(plan, target, threads)
    columns, pattern = plan.columns, plan.columns.pattern
    width, extents = plan.vectors * plan.lanes, _extents(pattern)
    last, wide = depth_axis(pattern).name, plan.wide
    depth = [] if plan.depth is None else [level(last, extents[last], plan.depth)]
    reduce = [Level(name, plan.depth if plan.depth and name == last else extents[name]) for name in plan.reduce]
    outer = {name: Level(name, extents[name]) for name in plan.outer}
    tile = [inner(plan.column, plan.vectors, plan.lanes), lanes(plan.column, plan.lanes)]
    height: list[Level] = []
    if plan.row is not None:
        rows, outer[plan.row] = _blocked(plan.row, extents[plan.row], plan.height, plan.rows, 1)
        height += rows
        tile.insert(0, inner(plan.row, plan.rows))
    whole = columns.chunk or plan.breadth
    breadth, panel = _blocked(plan.column, extents[plan.column], whole, width, plan.lanes)
    apart = [each for each in outer.values() if columns.chunk is not None and each.axis in wide.axes]
    rest = [each for each in outer.values() if each not in apart]
    shared = (height[0] if height else _longest(rest)) if plan.parallel == "rows" else None
    first = [] if shared is None or height else [shared]
    rest = [each for each in rest if each is not shared]
    inside = [*rest, panel] if plan.panels_inside else [panel, *rest]
    loops = [*apart, *breadth, *depth, *height, *first, *inside]
    ways = _longest([*apart, *breadth]) or panel
    tasks = 1.0 if plan.parallel == "none" else ways.trips if shared is None else shared.trips
    packed = [each.buffer for each in (plan.packed, plan.by_rows) if each is not None]
    packed += [wide.buffer] if columns.chunk is not None or columns.is_once else []
    return Outline(
        pattern.block,
        (*loops, *reduce, *tile),
        pattern.store,
        pattern.loads,
        plan.lanes,
        max(1.0, pattern.cost / 2),
        frozenset(plan.reduce),
        frozenset(packed),
        tuple(_copies(plan, extents, target)),
        max(1, int(tasks)),
    )


def _blocked(axis: str, extent: int, block: int | None, step: int, grain: int) -> tuple[list[Level], Level]:
    """The loop over blocks of an axis, if it goes in such, and that over steps in one."""
    if block is None or block >= extent:
        return [], level(axis, extent, step, grain)
    return [level(axis, extent, block, grain)], level(axis, block, step, grain)


def _copies(plan: contraction.Plan, extents: dict[str, int], target: Target) -> Iterable[Copy]:
    """What packing moves; what is constant costs nothing."""
    columns, wide = plan.columns, plan.wide
    if columns.chunk is not None:
        yield Copy(math.prod([extents[name] for name in wide.axes]), wide.itemsize, GATHERED)
    elif plan.packed is not None and not plan.packed.is_constant:
        packed = plan.packed
        is_turned = packed.stride(plan.column) not in (0, 1)
        turns = any(packed.stride(name) == 1 for name in extents)
        cycles = PLAIN if not is_turned else TURNED if turns else SINGLE
        elements = packed.size or math.prod([extents[name] for name in packed.axes])
        yield Copy(elements, packed.itemsize, cycles)
    if plan.by_rows is not None and not plan.by_rows.is_constant:
        rows = plan.by_rows
        again = 1 if plan.breadth is None else -(-extents[plan.column] // plan.breadth)
        elements = (rows.size or math.prod([extents[name] for name in rows.axes])) * again
        yield Copy(elements, rows.itemsize, TURNED if rows.stride(plan.row or "") == 1 else SINGLE)
    for access in plan.converted:
        yield Copy(access.size or math.prod([extents[name] for name in access.axes]), access.itemsize, PLAIN)


def _dots(plan: dots.Plan, target: Target, threads: int) -> Outline:
    pattern, extents = plan.pattern, _extents(plan.pattern)
    tiled = (plan.row, plan.column)
    outer = [Level(a.name, extents[a.name]) for a in pattern.spatial if a.name not in tiled]
    rows = level(plan.row, extents[plan.row], plan.rows)
    reduce = [Level(a.name, extents[a.name]) for a in pattern.reduce if a.name != plan.axis]
    depth = level(plan.axis, extents[plan.axis], plan.lanes)
    tile = [inner(plan.row, plan.rows), inner(plan.column, extents[plan.column]), lanes(plan.axis, plan.lanes)]
    copies = () if plan.turned is None else (Copy(plan.turned.size or 1, plan.turned.itemsize, SINGLE),)
    packed = frozenset() if plan.turned is None else frozenset([plan.turned.buffer])
    tasks = int(math.prod([each.trips for each in (*outer, rows)])) if plan.parallel else 1
    levels = (*outer, rows, *reduce, depth, *tile)
    names = frozenset([axis.name for axis in pattern.reduce])
    return Outline(
        pattern.block, levels, pattern.store, pattern.loads, plan.lanes, max(1.0, pattern.cost / 2), names,
        packed, copies, max(1, tasks),
    )  # fmt: skip


def _stencil(group: Group, plan: stencil.Plan, target: Target, threads: int) -> Outline:
    pattern, extents = group.main, _extents(group.main)
    outer: list[Level] = []
    tile: list[Level] = []
    for name in plan.outer:
        rows = plan.rows if name == plan.row else 1
        outer.append(level(name, extents[name], rows))
        tile += [inner(name, rows)] if rows > 1 else []
    outer.append(level(plan.column, extents[plan.column], plan.lanes, plan.lanes))
    if plan.beside is not None:
        outer.append(level(plan.beside, extents[plan.beside], plan.across))
        tile.append(inner(plan.beside, plan.across))
    taps = [Level(name, extents[name]) for name in plan.taps]
    copies: list[Copy] = []
    if group.prologue is not None and not plan.edges:
        made = group.prologue.store
        near = plan.place is not None
        copies.append(Copy(made.size or 1, made.itemsize if near else 2 * made.itemsize, PLAIN))
    tasks: float = plan.parts or math.prod([each.trips for each in outer[:-1]])
    return Outline(
        pattern.block, (*outer, *taps, *tile, lanes(plan.column, plan.lanes)), pattern.store, pattern.loads,
        plan.lanes, max(1.0, pattern.cost / 2), frozenset(plan.taps), frozenset(), tuple(copies),
        max(1, int(tasks)) if plan.parallel else 1,
    )  # fmt: skip


def _reduction(group: Group, plan: reduction.Plan, target: Target, threads: int) -> Outline:
    pattern, extents = group.main, _extents(group.main)
    spatial = {axis.name: Level(axis.name, extents[axis.name]) for axis in pattern.spatial}
    reduce = {axis.name: Level(axis.name, extents[axis.name]) for axis in pattern.reduce}
    tile: list[Level] = []
    if plan.axis is not None:
        group_of = spatial if plan.axis in spatial else reduce
        wide = plan.lanes * (plan.block if plan.rows else plan.vectors)
        group_of[plan.axis] = level(plan.axis, extents[plan.axis], wide, plan.lanes)
        if plan.rows:
            last = pattern.reduce[-1].name
            reduce[last] = level(last, extents[last], plan.rows)
            tile.append(inner(last, plan.rows))
        else:
            tile.append(inner(plan.axis, plan.vectors, plan.lanes))
        if plan.beside is not None:
            spatial[plan.beside] = level(plan.beside, extents[plan.beside], reduction.SIDE_BY_SIDE)
            tile.insert(0, inner(plan.beside, reduction.SIDE_BY_SIDE))
        tile.append(lanes(plan.axis, plan.lanes))
    along = [Level(plan.axis, plan.block, plan.lanes)] if plan.rows and plan.axis is not None else []
    tasks = math.prod([each.trips for each in spatial.values()]) * max(1, plan.parts) if plan.parallel else 1.0
    return Outline(
        pattern.block, (*spatial.values(), *reduce.values(), *along, *tile), pattern.store, pattern.loads,
        plan.lanes, max(1, pattern.cost), frozenset(reduce), tasks=max(1, int(tasks)),
    )  # fmt: skip


def _elementwise(group: Group, plan: elementwise.Plan, target: Target, threads: int) -> Outline:
    pattern, extents = group.main, _extents(group.main)
    levels = [Level(axis.name, extents[axis.name]) for axis in pattern.spatial]
    if not levels:
        return Outline(pattern.block, (), pattern.store, pattern.loads, 1, max(1, pattern.cost), frozenset())
    run = levels[len(levels) - plan.fused :]
    outer = levels[: len(levels) - plan.fused]
    last, count = run[-1].axis, math.prod([int(each.trips) for each in run])
    one = level(last, count, plan.lanes, plan.lanes)
    step = target.lanes(pattern.itemsize)
    tile = [inner(last, max(1, plan.lanes // step), step)] if plan.lanes > step else []
    tasks = one.trips / plan.grain if not outer else math.prod([each.trips for each in outer])
    return Outline(
        pattern.block, (*outer, one, *tile, lanes(last, min(step, plan.lanes))), pattern.store, pattern.loads,
        min(step, plan.lanes), max(1, pattern.cost), frozenset(), tasks=max(1, int(tasks)) if plan.parallel else 1,
    )  # fmt: skip


def _extents(pattern: Pattern) -> dict[str, int]:
    return {axis.name: size(axis) for axis in pattern.axes}


def _longest(levels: Iterable[Level]) -> Level | None:
    return max(levels, key=lambda each: each.trips, default=None)


_OUTLINES: dict[ModuleType, Callable[..., Outline]] = {
    contraction: _contraction,
    stencil: _stencil,
    reduction: _reduction,
    elementwise: _elementwise,
}
