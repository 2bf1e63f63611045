"""Hardware instructions as intrinsics of the IR: their operands, their meaning in NumPy, what LLVM calls them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tensorc.dtypes import DType
from tensorc.dtypes import dtype as as_dtype
from tensorc.ir.intrinsic import Intrinsic, register
from tensorc.target import Target

Features = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: `llvm` is its name there, `machine` the first part of the triples that have it.

    `features` are alternatives, each of which is all that a processor needs.
    """

    name: str
    llvm: str
    machine: str
    features: Features

    def runs_on(self, target: Target) -> bool:
        """Whether the processor has it."""
        return target.triple.startswith(self.machine) and any(
            all(target.has(feature) for feature in needed) for needed in self.features
        )


INSTRUCTIONS: dict[str, Instruction] = {}


def instruction(
    name: str,
    operands: Sequence[DType | str],
    result: DType | str,
    meaning: Callable,
    *,
    llvm: str,
    machine: str,
    features: Features,
) -> Instruction:
    """Add an instruction to the IR's table of intrinsics, under `name`.

    `operands` and `result` are vector dtypes, `meaning` a function of arrays of lanes that gives the array of the
    result's. Raises ExpressionError where the name is taken.
    """
    dtypes, kind = tuple([as_dtype(operand) for operand in operands]), as_dtype(result)
    register(Intrinsic(name, len(dtypes), (), meaning, lambda _: kind, whole=True, operands=dtypes))
    made = INSTRUCTIONS[name] = Instruction(name, llvm, machine, features)
    return made
