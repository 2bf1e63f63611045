"""Building the text of one LLVM function: blocks, values, scoped value numbering and hoisting.

The key of a numbered value is the text of its instruction, so equal instructions in a dominating
place are one value. A scope is a region that dominates what follows in it: the function, the way
into a loop, a loop's body, one side of a branch. An instruction that cannot fail is placed in the
outermost scope that knows its operands, which leaves little for LLVM to move.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field


class Value:
    """An operand: `ref` as it is written, the LLVM type, the depth of the scope that defines it.

    `const` is its number where that is known (integers and bools).
    """

    __slots__ = ("const", "depth", "ref", "typed")

    def __init__(self, ref: str, type: str, depth: int = 0, const: int | None = None):
        self.ref = ref
        self.typed = f"{type} {ref}"
        self.depth = depth
        self.const = const

    @property
    def type(self) -> str:
        return self.typed[: -len(self.ref) - 1]


@dataclass(slots=True)
class Block:
    """A label, the instructions so far, and the terminator."""

    label: str
    lines: list[str] = field(default_factory=list)
    terminator: str = ""


@dataclass(slots=True)
class Scope:
    """A region, and the block to which hoisted instructions go while the builder is deeper inside.

    `always` tells that the region runs whenever the one around it does, `written` what memory a
    loop writes.
    """

    block: Block
    always: bool
    written: Set = frozenset()
    keys: list[str] = field(default_factory=list)


class Builder:
    """Appends instructions to the current block of a function."""

    def __init__(self) -> None:
        self.block = Block("entry")
        self.blocks = [self.block]
        self.allocas: list[str] = []
        self.scopes = [Scope(self.block, True)]
        self.values: dict[str, Value] = {}
        self.counter = 0

    @property
    def depth(self) -> int:
        return len(self.scopes) - 1

    def name(self) -> str:
        """A fresh name for a value."""
        self.counter += 1
        return f"%v{self.counter}"

    def label(self, what: str) -> str:
        """A fresh label."""
        self.counter += 1
        return f"{what}.{self.counter}"

    def do(self, text: str) -> None:
        """Append an instruction without a result."""
        self.block.lines.append(text)

    def emit(self, text: str, type: str) -> Value:
        """Append an instruction with a result."""
        name = self.name()
        self.block.lines.append(f"{name} = {text}")
        return Value(name, type, len(self.scopes) - 1)

    def hoist(self, text: str, type: str, depth: int) -> Value:
        """The value of a pure instruction that cannot fail, placed in the scope at `depth`."""
        value = self.values.get(text)
        if value is not None:
            return value
        value = self.values[text] = self._place(text, type, depth)
        self.scopes[depth].keys.append(text)
        return value

    def _place(self, text: str, type: str, depth: int) -> Value:
        block = self.block if depth == len(self.scopes) - 1 else self.scopes[depth].block
        name = self.name()
        block.lines.append(f"{name} = {text}")
        return Value(name, type, depth)

    def pure(self, text: str, type: str, depth: int) -> Value:
        """As `hoist`, but no further out than where the current place is certain to be reached."""
        value = self.values.get(text)
        if value is not None:
            return value
        current = len(self.scopes) - 1
        while current > depth and self.scopes[current].always:
            current -= 1
        return self.hoist(text, type, current)

    def load(self, text: str, type: str, depth: int, memory: object, version: int) -> Value:
        """As `pure`, for a read of `memory`: `version` changes with each write to it."""
        key = f"{text} ;{version}"
        value = self.values.get(key)
        if value is not None:
            return value
        current = len(self.scopes) - 1
        while (
            current > depth
            and self.scopes[current].always
            and memory not in self.scopes[current].written
        ):
            current -= 1
        value = self.values[key] = self._place(text, type, current)
        self.scopes[current].keys.append(key)
        return value

    def start(self, label: str) -> None:
        """Begin a block; the one before must have its terminator."""
        self.block = Block(label)
        self.blocks.append(self.block)

    def end(self, terminator: str) -> None:
        """Give the current block its terminator."""
        self.block.terminator = terminator

    def enter(self, always: bool = False, written: Set = frozenset()) -> None:
        """Begin a region; the current block, still without its terminator, dominates it."""
        self.scopes[-1].block = self.block
        self.scopes.append(Scope(self.block, always, written))

    def leave(self) -> None:
        """End a region: what was numbered in it is forgotten."""
        for key in self.scopes.pop().keys:
            del self.values[key]

    def text(self) -> str:
        """The blocks of the function as text."""
        self.blocks[0].lines[:0] = self.allocas
        parts = []
        for block in self.blocks:
            parts.append(f"{block.label}:")
            parts.extend(block.lines)
            parts.append(block.terminator)
        return "\n".join(parts)
