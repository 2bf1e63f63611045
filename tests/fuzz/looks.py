"""What random steps look at in a schedule, to be made where they may be legal."""

from __future__ import annotations

from tensorc.ir.expr import Buffer, Load
from tensorc.ir.stmt import Block, Store
from tensorc.ir.walk import all_exprs, walk
from tensorc.schedule import Schedule
from tensorc.schedule.locate import all_blocks, all_loops
from tensorc.schedule.regions import own_buffers


def node(s: Schedule, name: str) -> Block:
    return next(block for block in all_blocks(s.function) if block.name == name)


def reads(block: Block) -> set[Buffer]:
    return {e.buffer for e in all_exprs(block) if type(e) is Load} - own_buffers(block)


def writes(block: Block) -> set[Buffer]:
    return {stmt.buffer for stmt in walk(block) if type(stmt) is Store} - own_buffers(block)


def buffers(block: Block) -> list[str]:
    """The names of the buffers that a block touches."""
    return sorted(each.name for each in reads(block) | writes(block))


def is_spatial(block: Block) -> bool:
    return block.init is None and all(it.kind == "spatial" for it in block.iters)


def inner(s: Schedule) -> list[str]:
    """The blocks whose results stay inside the function."""
    allocs = set(s.function.allocs)
    return [block.name for block in all_blocks(s.function) if writes(block) & allocs]


def loops_of_kind(s: Schedule, kind: str) -> list[str]:
    return [loop.var.name for loop in all_loops(s.function) if loop.kind == kind]
