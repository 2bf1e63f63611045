"""Which stages are inlined before recipes see them: those that are cheaper to repeat than to keep in memory."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tensorc.ir.expr import Buffer, Call, Cast, Const, Div, Expr, IfThenElse, Load, Var
from tensorc.ir.function import Function
from tensorc.ir.stmt import Block, Store
from tensorc.ir.walk import all_exprs, children, exprs, walk, walk_expr
from tensorc.schedule.locate import all_blocks, blocks_below
from tensorc.schedule.preparation import fixed_parts
from tensorc.schedule.recipes import contraction
from tensorc.schedule.recipes.access import pattern
from tensorc.schedule.regions import buffers_written
from tensorc.schedule.schedule import Schedule

LARGEST = 500  # nodes that inlining may add: values used twice, again and again, would double without end
CHEAP = 12  # operations that may be done again where a stage is read several times
REUSED = 64  # uses of an element by a contraction, from which on it had better be made once
DEEPEST = 200  # levels of an expression that grows by inlining: every pass recurses over it


@dataclass(frozen=True, slots=True)
class Fixed:
    """The blocks that depend on nothing but constants, and the names of buffers that hold the same at every call."""

    blocks: frozenset[str] = frozenset()
    buffers: frozenset[str] = frozenset()

    @staticmethod
    def of(function: Function, constants: Collection[str]) -> Fixed:
        if not constants:
            return Fixed()
        stmts, made = fixed_parts(function, constants)
        blocks = frozenset([block.name for stmt in stmts for block in blocks_below(stmt)])
        return Fixed(blocks, frozenset([*constants, *[buffer.name for buffer in made]]))


def inline_cheap(s: Schedule, constants: Collection[str] = ()) -> None:
    """Inline each elementwise stage whose repetition costs less than a trip through memory; one of constants costs
    nothing where it is, unless it makes more bytes of them."""
    accesses = _Accesses()
    fixed = Fixed.of(s.function, constants)
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
