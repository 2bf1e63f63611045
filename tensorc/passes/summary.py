"""What the passes made of a scheduled function, loop by loop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeGuard

from tensorc.arith import simplify
from tensorc.ir.count import count
from tensorc.ir.expr import Broadcast, Buffer, Const, Expr, Load, Ramp, is_const
from tensorc.ir.function import Function
from tensorc.ir.printer import show
from tensorc.ir.stmt import Alloc, Block, For, Stmt, Store, annotation
from tensorc.ir.walk import all_exprs, exprs, substmts, uses, walk, walk_expr
from tensorc.passes.tensorize import NOTE, obstacle
from tensorc.passes.vectorize import SCALAR
from tensorc.report import Loop, Nest
from tensorc.target import Target


def summarize(origin: Function, scheduled: Function, flat: Function, target: Target) -> tuple[Nest, ...]:
    """The loops of a flat function, and what they compute of the definition `origin`."""
    reasons = _Reasons(scheduled)
    names = {buffer.name for buffer in (*scheduled.params, *scheduled.allocs)}
    groups: list[_Group] = []
    for stmt, locals_ in _outermost(flat.body, (), names):
        writes = {s.buffer.name for s in walk(stmt) if type(s) is Store} & names
        if not groups or groups[-1].writes.isdisjoint(writes):
            groups.append(_Group())
        groups[-1].writes |= writes
        _loops(stmt, 0, locals_, groups[-1].loops, reasons, target)
    _assign_stages(origin, groups)
    return tuple([_nest(origin, group) for group in groups if group.loops])


@dataclass(slots=True)
class _Group:
    """Statements of the flat function that run in a row and write buffers in common."""

    writes: set[str] = field(default_factory=set)
    loops: list[Loop] = field(default_factory=list)
    stages: list[Stmt] = field(default_factory=list)


def _outermost(stmt: Stmt, locals_: tuple[Buffer, ...], names: set[str]) -> Iterator[tuple[Stmt, tuple[Buffer, ...]]]:
    """The outermost loops and stores, with the local buffers of these names that live around each.

    What shares another buffer, accumulators, stays together.
    """
    if type(stmt) in (For, Store) or (type(stmt) is Alloc and not any(b.name in names for b in stmt.buffers)):
        yield stmt, locals_
        return
    if type(stmt) is Alloc:
        locals_ = (*locals_, *[buffer for buffer in stmt.buffers if buffer.scope == "local"])
    for inner in substmts(stmt):
        yield from _outermost(inner, locals_, names)


def _loops(
    stmt: Stmt, depth: int, locals_: tuple[Buffer, ...], found: list[Loop], reasons: _Reasons, target: Target
) -> None:
    if type(stmt) is Alloc:
        locals_ = (*locals_, *[buffer for buffer in stmt.buffers if buffer.scope == "local"])
    if _is_loop(stmt):
        found.append(_loop(stmt, depth, locals_, reasons, target))
        depth += 1
    for inner in substmts(stmt):
        _loops(inner, depth, locals_, found, reasons, target)


def _is_loop(stmt: Stmt) -> TypeGuard[For]:
    """Whether a statement is a loop in the machine code."""
    return type(stmt) is For and stmt.kind != "unrolled" and not is_const(stmt.extent, 1)


def _loop(loop: For, depth: int, locals_: tuple[Buffer, ...], reasons: _Reasons, target: Target) -> Loop:
    own = list(_own(loop.body))
    lanes = max([_lanes(store) for store in own], default=0)
    extent = loop.extent.value if type(loop.extent) is Const else show(loop.extent)
    return Loop(
        loop.var.name,
        extent,
        loop.kind,
        depth,
        lanes,
        reasons.of(loop) if lanes == 1 else "",
        sum([_registers(buffer, target) for buffer in locals_ if _is_updated(loop, buffer)]),
        tuple(dict.fromkeys([text for store in own for text in _scattered(store)])),
        intrinsic=reasons.intrinsic(loop, target) if own else "",
    )


def _own(stmt: Stmt) -> Iterator[Store]:
    """The stores in a body that no loop in it repeats."""
    if type(stmt) is Store:
        yield stmt
    elif not _is_loop(stmt):
        for inner in substmts(stmt):
            yield from _own(inner)


def _lanes(store: Store) -> int:
    return max([e.dtype.lanes for root in exprs(store) for e in walk_expr(root)])


def _is_updated(loop: For, buffer: Buffer) -> bool:
    """Whether a loop both reads and writes a buffer."""
    return any(type(s) is Store and s.buffer is buffer for s in walk(loop.body)) and any(
        type(e) is Load and e.buffer is buffer for e in all_exprs(loop.body)
    )


def _registers(buffer: Buffer, target: Target) -> int:
    """Registers that hold a local buffer: rows of its last axis, each in as many as it takes."""
    size = buffer.dtype.bytes
    for extent in buffer.shape:
        size *= extent.value if type(extent) is Const else 1
    return max(1, -(-size // target.vector_bytes))


def _scattered(store: Store) -> Iterator[str]:
    """How the vectors of a store are accessed other than contiguously."""
    accesses = [(store.buffer, store.indices)]
    accesses += [(e.buffer, e.indices) for root in exprs(store) for e in walk_expr(root) if type(e) is Load]
    for buffer, (index,) in accesses:
        if index.dtype.lanes > 1:
            step = _step(index)
            if step is None:
                yield f"{buffer.name} by places of its own in each lane"
            elif step not in (0, 1):
                yield f"{buffer.name} by steps of {step} elements"


def _step(index: Expr) -> int | None:
    match simplify(index):
        case Ramp(_, Const(step)):
            return step
        case Broadcast():
            return 0
        case _:
            return None


class _Reasons:
    """Why loops of a scheduled function are scalar."""

    def __init__(self, scheduled: Function):
        self.blocks: dict[str, list[tuple[Block, tuple[For, ...]]]] = {}
        self._collect(scheduled.body, ())

    def _collect(self, stmt: Stmt, loops: tuple[For, ...]) -> None:
        if type(stmt) is Block:
            for loop in loops:
                self.blocks.setdefault(loop.var.name, []).append((stmt, loops))
            return
        inside = (*loops, stmt) if type(stmt) is For else loops
        for inner in substmts(stmt):
            self._collect(inner, inside)

    def of(self, loop: For) -> str:
        """Why a loop is scalar."""
        obstacle = annotation(loop, SCALAR)
        if obstacle is not None:
            return f"no vectors: {obstacle}"
        found = self.blocks.get(loop.var.name, [])
        for block, loops in found:
            own = next(each for each in loops if each.var.name == loop.var.name)
            for it in block.iters:
                if it.kind == "ordered" and uses(it.binding, (own.var,)):
                    return f"block {block.name} takes its {it.var.name} in order, each after the one before"
        for block, loops in found:
            if not any(each.kind == "vectorized" for each in loops):
                return f"the schedule vectorizes no loop of block {block.name}"
        return "what vectors leave over, element by element" if found else "made by the passes for single elements"

    def intrinsic(self, loop: For, target: Target) -> str:
        """The tensor intrinsic of the block in a loop, or why it is not used."""
        for block, _ in self.blocks.get(loop.var.name, []):
            if annotation(block, NOTE) is not None:
                problem = obstacle(block, target)
                return f"by {annotation(block, NOTE)}" if problem is None else f"not by an intrinsic: {problem}"
        return ""


def _assign_stages(origin: Function, groups: list[_Group]) -> None:
    """Each stage to the group that writes its buffers; one that was inlined, to its readers'."""
    stages = [stmt for stmt, _ in _outermost(origin.body, (), set())]
    home: dict[str, _Group] = {}
    for stage in reversed(stages):
        writes = {s.buffer.name for s in walk(stage) if type(s) is Store}
        group = next((group for group in groups if not group.writes.isdisjoint(writes)), None)
        group = group or next((home[name] for name in writes if name in home), None)
        if group is None:
            continue
        group.stages.insert(0, stage)
        home.update({e.buffer.name: group for e in all_exprs(stage) if type(e) is Load})


def _nest(origin: Function, group: _Group) -> Nest:
    """The work of the stages as they are defined, each buffer once."""
    used = dict.fromkeys([b for stage in group.stages for b in _buffers(stage)])
    flops: int | Expr = 0
    for stage in group.stages:
        flops += count(origin.with_(body=stage))[0]
    size = count(origin.with_(params=tuple(used), body=group.stages[0]))[1] if group.stages else 0
    names = [s.name for stage in group.stages for s in walk(stage) if type(s) is Block]
    return Nest(tuple(names) or tuple(sorted(group.writes)), _number(flops), _number(size), tuple(group.loops))


def _buffers(stage: Stmt) -> list[Buffer]:
    loads = [e.buffer for e in all_exprs(stage) if type(e) is Load]
    return [*loads, *[s.buffer for s in walk(stage) if type(s) is Store]]


def _number(value: int | Expr) -> int | str:
    return value if isinstance(value, int) else show(simplify(value))
