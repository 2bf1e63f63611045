"""Decisions by the names of blocks in one function, told by those in another that is equal up to names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensorc.ir.function import Function
from tensorc.schedule.locate import all_blocks


def block_names(function: Function) -> tuple[str, ...]:
    """The names of a function's blocks, in their order."""
    return tuple([block.name for block in all_blocks(function)])


def renamed(decisions: Mapping[str, Any], old: Sequence[str], new: Sequence[str]) -> dict[str, Any]:
    """Decisions "block.knob" with the names `old` of blocks replaced by `new`, also where they begin the name of a
    block that a recipe makes, such as "block_products"."""
    found = {}
    for name, answer in decisions.items():
        block, dot, knob = name.rpartition(".")
        starts = [each for each in old if block == each or block.startswith(f"{each}_")]
        if starts:
            longest = max(starts, key=len)
            block = new[old.index(longest)] + block[len(longest) :]
        found[f"{block}{dot}{knob}"] = answer
    return found
