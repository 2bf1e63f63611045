"""Reading the machine code: what LLVM made of each loop."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tensorc.codegen.llvm.module import verbose_assembly
from tensorc.ir.function import Function
from tensorc.target import Target

_BLOCK = re.compile(r"^(?:\.?L?BB(\d+_\d+):|\s*(?:#|//|;) %bb\.\d+:)")
_NAME = re.compile(r"%\"?loop\.(.+)\.\d+\b")
_HEADER = re.compile(r"This (?:Inner )?Loop Header: Depth=\d")
_INSIDE = re.compile(r"in Loop: Header=BB(\d+_\d+)")
_SPILL = re.compile(r"-byte (?:Folded )?(?:Spill|Reload)")


@dataclass(slots=True)
class MachineLoop:
    """A loop in machine code, by the name of the loop in the IR; its counts are of one iteration,
    without the loops in it."""

    name: str
    instructions: int = 0
    spills: int = 0


def machine_loops(function: Function, target: Target) -> list[MachineLoop]:
    """The loops of a flat function's machine code, in the order of their first instructions."""
    return read_loops(verbose_assembly(function, target))


def read_loops(assembly: str) -> list[MachineLoop]:
    """The loops in assembler text, by the comments that LLVM writes at each block and spill."""
    loops: dict[str, MachineLoop] = {}
    block, current = "", None
    for line in assembly.splitlines():
        start = _BLOCK.match(line)
        if start:
            block, current = start[1] or "", None
            name = _NAME.search(line)
            label = name[1] if name else ""
        if current is None and block and _HEADER.search(line):
            current = loops[block] = MachineLoop(label)
        inside = _INSIDE.search(line)
        if inside:
            current = loops.setdefault(inside[1], MachineLoop(""))
        if current is not None and _is_instruction(line):
            current.instructions += 1
            current.spills += bool(_SPILL.search(line))
    return [loop for loop in loops.values() if loop.name]


def _is_instruction(line: str) -> bool:
    return line[:1] in "\t " and line.strip()[:1] not in ("", ".", "#", "/", ";")
