"""Which blocks of a function make, use and hold what."""

from __future__ import annotations

from tensorc.ir.function import Function
from tensorc.ir.stmt import Block
from tensorc.ir.walk import walk
from tensorc.schedule.dependence import in_branches
from tensorc.schedule.legality import loaded, stored
from tensorc.schedule.locate import (
    Place,
    all_blocks,
    block_names,
    block_places,
    blocks_below,
    find_block,
    find_loop,
)


def producers(function: Function, block: str) -> tuple[str, ...]:
    """The other blocks that write what a block reads, before it or in a loop around both."""
    place = find_block(function, block)
    inputs = loaded(place.node)
    return tuple([p.node.name for p in _others(place, True) if stored(p.node) & inputs])


def consumers(function: Function, block: str) -> tuple[str, ...]:
    """The other blocks that read what a block writes, after it or in a loop around both."""
    place = find_block(function, block)
    outputs = stored(place.node)
    return tuple([p.node.name for p in _others(place, False) if loaded(p.node) & outputs])


def _others(place: Place, are_before: bool) -> list[Place]:
    """The places of the blocks that may run before a block, or after it; not those of versions that
    never run together with it."""
    function = place.function
    places = block_places(Place(function, (function.body,)))
    at = next(i for i, p in enumerate(places) if p.node is place.node)
    branches = in_branches(place)
    found = []
    for i, other in enumerate(places):
        is_apart = any(a is not b for a, b in zip(branches, in_branches(other)))
        in_loop = any(a is b for a in place.loops for b in other.loops)
        if i != at and not is_apart and ((i < at) == are_before or in_loop):
            found.append(other)
    return found


def child_blocks(function: Function, place: str) -> tuple[str, ...]:
    """The blocks below a loop, or those in the body of a block."""
    if place not in block_names(function):
        return tuple([block.name for block in blocks_below(find_loop(function, place).node)])
    node = find_block(function, place).node
    inner = [stmt for stmt in walk(node) if type(stmt) is Block and stmt is not node]
    return tuple([stmt.name for stmt in inner])


def output_blocks(function: Function) -> tuple[str, ...]:
    """The blocks that write outputs of the function."""
    outputs = set(function.outputs)
    return tuple([block.name for block in all_blocks(function) if stored(block) & outputs])
