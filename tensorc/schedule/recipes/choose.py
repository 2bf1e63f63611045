"""The default schedule: inline what is cheap to repeat, then one recipe for each group of blocks."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tensorc.errors import ScheduleError
from tensorc.ir.expr import Buffer, Call, Cast, Const, Div, Expr, IfThenElse, Load, Var
from tensorc.ir.function import Function
from tensorc.ir.stmt import Block, Store
from tensorc.ir.walk import all_exprs, children, exprs, walk, walk_expr
from tensorc.schedule.knobs import Defaults, Knobs, Replay
from tensorc.schedule.locate import all_blocks, blocks_below, find_block
from tensorc.schedule.preparation import fixed_parts
from tensorc.schedule.primitives.domains import own_loops
from tensorc.schedule.recipes import contraction, elementwise, groups, ordered, reduction, rows, stencil
from tensorc.schedule.recipes.access import Group, Pattern, pattern
from tensorc.schedule.recipes.custom import Recipe
from tensorc.schedule.recipes.digits import split_digits
from tensorc.schedule.regions import buffers_written
from tensorc.schedule.schedule import Schedule
from tensorc.target import Target

RECIPES = (contraction, ordered, stencil, reduction, elementwise)  # the first that matches is taken
LARGEST = 500  # nodes that inlining may add: values used twice, again and again, would double without end
CHEAP = 12  # operations that may be done again where a stage is read several times
REUSED = 64  # uses of an element by a contraction, from which on it had better be made once
DEEPEST = 200  # levels of an expression that grows by inlining: every pass recurses over it


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
    s = Schedule(function)
    knobs = knobs or Defaults()
    inline_cheap(s, constants)
    used: dict[str, str] = {}
    fixed = _Fixed.of(s.function, constants)
    chosen = _chosen(_patterns(s, fixed), own) if own else {}
    split_digits(s, chosen)
    patterns = _patterns(s, fixed)
    free = [each for name, each in patterns.items() if name not in chosen]
    recipes = {main.block: _recipe(main) for main in free}
    moving = [main for main in free if main.block not in fixed.blocks]
    tiled = [main for main in moving if recipes[main.block] in (contraction, stencil)]
    finished = {main.block: groups.epilogue(s.function, main, free) for main in tiled}
    through = {found.block for found in finished.values() if found is not None}
    makers = {contraction: contraction.producer, stencil: stencil.producer}
    fed = [main for main in tiled if main.block not in through]
    others = [each for each in moving if each.block not in through]
    made = {main.block: makers[recipes[main.block]](s.function, main, others) for main in fed}
    before = {found.block for found in made.values() if found is not None}
    windows = {name for name, found in made.items() if found is not None and recipes[name] is stencil}
    fused = rows.fuse(s, knobs, target, threads, {*chosen, *through, *before, *windows, *fixed.blocks})
    depths = {name: each.depth for each in fused for name in (each.root, *each.members)}
    for name in sorted(patterns, key=lambda name: name in before):  # those last, if they are left
        main = patterns[name]
        asked = Scoped(knobs, name)
        if name in used:
            continue  # done with another one
        if name in chosen:
            chosen[name].schedule(s, Group(main), asked, target, threads)
            used[name] = chosen[name].name
        elif name in depths:
            used.update(_schedule_row(s, name, depths[name], asked, target, fixed))
        else:
            group = Group(main, finished.get(name), made.get(name), _is_alone(s, name))
            used.update(_schedule(s, group, asked, target, threads))
    for each in fused:
        rows.share_rows(s, each, target, threads)
    if isinstance(knobs, Replay):
        knobs.check_all_asked()
    s.recipes, s.decisions = MappingProxyType(used), MappingProxyType(knobs.decisions)
    return s


@dataclass(frozen=True, slots=True)
class _Fixed:
    """The blocks that depend on nothing but constants, and the names of buffers that hold the same at every call."""

    blocks: frozenset[str] = frozenset()
    buffers: frozenset[str] = frozenset()

    @staticmethod
    def of(function: Function, constants: Collection[str]) -> _Fixed:
        if not constants:
            return _Fixed()
        stmts, made = fixed_parts(function, constants)
        blocks = frozenset([block.name for stmt in stmts for block in blocks_below(stmt)])
        return _Fixed(blocks, frozenset([*constants, *[buffer.name for buffer in made]]))


def _patterns(s: Schedule, fixed: _Fixed) -> dict[str, Pattern]:
    """The patterns of the blocks for which there is something to choose: not of a single instance, nor where all is
    looked at in order."""
    blocks = [block for block in all_blocks(s.function) if s.loops(block.name) and buffers_written(block)]
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
    recipe = _recipe(group.main)
    others = [other.block for other in (group.epilogue, group.prologue) if other is not None]
    before = {other: s.loops(other) for other in others}
    recipe.apply(s, group, recipe.decide(group, knobs, target, threads))
    name = recipe.__name__.rpartition(".")[2]
    done = {group.main.block: name}
    there = [block.name for block in s.blocks()]
    done.update({other: name for other in others if other not in there or s.loops(other) != before[other]})
    return done


def _recipe(main: Pattern):
    """The first of the recipes that matches."""
    return next(recipe for recipe in RECIPES if recipe.matches(main))


def _schedule_row(
    s: Schedule, block: str, depth: int, knobs: Knobs, target: Target, fixed: _Fixed
) -> dict[str, str]:
    """Schedule what is left of a block inside the loops over rows."""
    loops = {loop.name: s.extent(loop) for loop in s.loops(block)[depth:]}
    if not loops:
        return {}
    main = pattern(find_block(s.function, block).node, loops, fixed.buffers)
    return _schedule(s, Group(main), knobs, target, 1)


def inline_cheap(s: Schedule, constants: Collection[str] = ()) -> None:
    """Inline each elementwise stage whose repetition costs less than a trip through memory; one of constants costs
    nothing where it is, unless it makes more bytes of them."""
    accesses = _Accesses()
    fixed = _Fixed.of(s.function, constants)
    for name in [block.name for block in all_blocks(s.function)]:
        blocks = all_blocks(s.function)
        now = next(block for block in blocks if block.name == name)  # with what was inlined into it
        if name in fixed.blocks and not _is_spread(now, accesses):
            continue
        if _is_inlinable(s.function, now, blocks, accesses):
            s.compute_inline(name)


class _Accesses:
    """What each block loads and stores, found once for each."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Block, dict[Buffer, list[Load]], frozenset[Buffer]]] = {}

    def loads(self, block: Block) -> dict[Buffer, list[Load]]:
        return self._of(block)[1]

    def stores(self, block: Block) -> frozenset[Buffer]:
        return self._of(block)[2]

    def _of(self, block: Block) -> tuple[Block, dict[Buffer, list[Load]], frozenset[Buffer]]:
        known = self._known.get(id(block))
        if known is None:  # the block is kept, so that its id stays its own
            loads: dict[Buffer, list[Load]] = {}
            for e in all_exprs(block):
                if type(e) is Load:
                    loads.setdefault(e.buffer, []).append(e)
            known = self._known[id(block)] = (block, loads, frozenset(buffers_written(block)))
        return known


def _is_inlinable(function: Function, block: Block, blocks: tuple[Block, ...], accesses: _Accesses) -> bool:
    if block.init is not None or type(block.body) is not Store or any(it.kind != "spatial" for it in block.iters):
        return False
    buffer = block.body.buffer
    if buffer in function.params or tuple(it.var for it in block.iters) != block.body.indices:
        return False
    if sum(buffer in accesses.stores(other) for other in blocks) > 1:
        return False
    readers = [other for other in blocks if buffer in accesses.loads(other)]
    if not readers or buffer in accesses.loads(block):
        return False
    deepest = max([_depth(e) for reader in readers for inner in walk(reader) for e in exprs(inner)])
    if _depth(block.body.value) + deepest > DEEPEST:
        return False
    if any(it.kind == "reduce" for reader in readers for it in reader.iters):
        return _is_trivial(block.body.value) and not _is_reused(block.body, readers)
    found = [(reader.name, load) for reader in readers for load in accesses.loads(reader)[buffer]]
    if len(found) * sum(1 for _ in walk_expr(block.body.value)) > LARGEST:
        return False
    return _cost(block.body.value) * (len(set(found)) - 1) <= CHEAP


def _is_spread(block: Block, accesses: _Accesses) -> bool:
    """Whether a stage does little to what it reads, of which there are fewer bytes than it writes."""
    if type(block.body) is not Store or not _is_trivial(block.body.value):
        return False
    return sum(map(_bytes, accesses.loads(block))) < _bytes(block.body.buffer)


def _bytes(buffer: Buffer) -> int:
    return buffer.dtype.bytes * math.prod([extent.value for extent in buffer.shape if type(extent) is Const])


def _depth(value: Expr) -> int:
    return 1 + max([_depth(operand) for operand in children(value)], default=0)


def _is_trivial(value: Expr) -> bool:
    """Whether a value costs a reduction hardly more than the load that it replaces: one operation, no guard."""
    return _cost(value) <= 3 and not any(type(e) in (Call, IfThenElse) for e in walk_expr(value))


def _is_reused(made: Store, readers: Sequence[Block]) -> bool:
    """Whether arithmetic on vectors would be done again for each of many tiles of a contraction, which can pack its
    results; a factor that goes to all lanes is had for nothing beside the multiply-adds."""
    if all(type(e) in (Cast, Const, Load, Var) or not e.dtype.is_float for e in walk_expr(made.value)):
        return False
    patterns = [pattern(reader) for reader in readers if any(it.kind == "reduce" for it in reader.iters)]
    return any(contraction.matches(each) and contraction.reuse(each, made.buffer.name) >= REUSED for each in patterns)


def _cost(value: Expr) -> int:
    """Simple operations of floats; divisions and calls count as several."""
    weights = {Call: 20, Div: 5, Load: 0, Const: 0}
    return sum([weights.get(type(e), e.dtype.is_float) for e in walk_expr(value)])
