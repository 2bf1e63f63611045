"""What became of a program, loop by loop: vectors, accumulators, spills, and why a loop is scalar."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Loop", "Nest", "Report"]


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop of the compiled program; vectorized loops are the lanes of those around them.

    `lanes` is the width of the widest vectors in the loop's own body, 1 if that is scalar, 0 if all
    it does is to run other loops. `reason` says why a loop is scalar, else it is empty.
    `accumulators` counts the registers with elements that the loop updates in place. `scattered`
    names buffers that its vectors access other than contiguously, and how. `instructions` and
    `spills` (stores and loads of registers that did not fit) are those of one iteration without
    inner loops, for loops that LLVM left as such; else they are None. `intrinsic` names the tensor
    intrinsic that does the work, or why the one of the schedule does not.
    """

    name: str
    extent: int | str
    kind: str
    depth: int
    lanes: int
    reason: str = ""
    accumulators: int = 0
    scattered: tuple[str, ...] = ()
    instructions: int | None = None
    spills: int | None = None
    intrinsic: str = ""

    @property
    def notes(self) -> str:
        """What there is to say in words."""
        return "; ".join([*self.scattered, *[words for words in (self.reason, self.intrinsic) if words]])


@dataclass(frozen=True, slots=True)
class Nest:
    """Loops that run together, and the stages of the definition that they compute, or else the
    buffers that they fill. `flops` and `bytes` are those of the stages as defined: each buffer
    once."""

    stages: tuple[str, ...]
    flops: int | str
    bytes: int | str
    loops: tuple[Loop, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """What a kernel is made of; `print(kernel.report())` shows it as a table. Texts in place of
    numbers are expressions over the kernel's scalars. `recipes` names for each block the recipe that
    scheduled it; there are none for a schedule by hand."""

    name: str
    target: str
    flops: int | str
    bytes: int | str
    nests: tuple[Nest, ...]
    recipes: tuple[tuple[str, str], ...] = ()

    @property
    def loops(self) -> tuple[Loop, ...]:
        """The loops of all nests, in the order in which they begin."""
        return tuple([loop for nest in self.nests for loop in nest.loops])

    @property
    def spills(self) -> int:
        """Spills in all loops, each counted once."""
        return sum([loop.spills or 0 for loop in self.loops])

    def loop(self, name: str) -> Loop:
        """The first loop of this name. Raises KeyError where there is none."""
        for loop in self.loops:
            if loop.name == name:
                return loop
        raise KeyError(name)

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [_HEAD]
        for nest in self.nests:
            if len(self.nests) > 1:
                work = f": {_work(nest.flops, nest.bytes)}" if nest.bytes else ""
                rows.append((f"{', '.join(nest.stages)}{work}",))
            rows += [_row(loop) for loop in nest.loops]
        widths = [max([len(row[column]) for row in rows if len(row) > 1]) for column in range(len(_HEAD))]
        lines = [f"{self.name} for {self.target}: {_work(self.flops, self.bytes)}"]
        for row in rows:
            lines.append("  ".join([cell.ljust(width) for cell, width in zip(row, widths)] if len(row) > 1 else row))
        if self.recipes:
            lines.append("scheduled by " + ", ".join([f"{recipe} ({block})" for block, recipe in self.recipes]))
        return "\n".join([line.rstrip() for line in lines])


_HEAD = ("loop", "extent", "kind", "vectors", "accumulators", "instructions", "spills", "")


def _row(loop: Loop) -> tuple[str, ...]:
    vectors = "" if not loop.lanes else "scalar" if loop.lanes == 1 else f"{loop.lanes} lanes"
    numbers = [loop.accumulators or "", *["" if n is None else n for n in (loop.instructions, loop.spills)]]
    name = "  " * loop.depth + loop.name
    return (name, str(loop.extent), loop.kind, vectors, *map(str, numbers), loop.notes)


def _work(flops: int | str, size: int | str) -> str:
    return f"{_scaled(flops, 'FLOP')}, {_scaled(size, 'B')}"


def _scaled(number: int | str, unit: str) -> str:
    """1.5 MFLOP; an expression as it is."""
    if isinstance(number, str):
        return f"{number} {unit}"
    for prefix, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= scale:
            return f"{number / scale:.3g} {prefix}{unit}"
    return f"{number} {unit}"
