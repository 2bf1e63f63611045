"""Iterators that a sum reads by their digits: the channels of grouped convolutions by group and place in it, the rows
of transposed ones by phase and step.

    C[c] += X[c // 32 * 16 + k] * W[k, c]   ->   C[g * 32 + m] += X[g * 16 + k] * W[k, g * 32 + m]

The digits become iterators of their own, by which accesses are plain again, so that a recipe for sums finds tiles.
"""

from __future__ import annotations

from collections.abc import Collection

from tensorc.arith import affine
from tensorc.errors import ScheduleError
from tensorc.ir.expr import Const, Expr, FloorDiv, Mod, Var
from tensorc.ir.stmt import Block
from tensorc.ir.walk import all_exprs
from tensorc.schedule.locate import all_blocks, constant
from tensorc.schedule.schedule import Schedule


def split_digits(s: Schedule, apart: Collection[str] = ()) -> None:
    """Give each digit that a sum reads an iterator of its own, where the number divides the extent; the blocks `apart`
    stay as they are."""
    for block in all_blocks(s.function):
        kinds = {it.kind for it in block.iters}
        bases = _bases(block) if block.name not in apart and "reduce" in kinds and "ordered" not in kinds else {}
        if bases:
            _split(s, block, bases)


def _split(s: Schedule, block: Block, bases: dict[Var, int]) -> None:
    def digits(*iters):
        result = []
        for it, value in zip(block.iters, iters):
            base = bases.get(it.var)
            result += [value] if base is None else [value // base, value % base]
        return tuple(result)

    try:
        s.transform_block_layout(block.name, digits)
    except ScheduleError:
        return  # it is no block in loops of its own


def _bases(block: Block) -> dict[Var, int]:
    """The spatial iterators that are divided by one number, and the number, which divides their extents."""
    extents = {it.var: it.extent for it in block.iters if it.kind == "spatial"}
    found: dict[Var, set[int]] = {}
    for e in all_exprs(block):
        match e:
            case FloorDiv(value, Const(number)) | Mod(value, Const(number)) if number > 1:
                var = _shifted(value, extents)
                if var is not None:
                    found.setdefault(var, set()).add(number)
    result: dict[Var, int] = {}
    for var, numbers in found.items():
        extent, number = constant(extents[var]) or 0, min(numbers)
        if len(numbers) == 1 and extent % number == 0 and number < extent:
            result[var] = number
    return result


def _shifted(expr: Expr, extents: dict[Var, Expr]) -> Var | None:
    """The iterator that an expression is, up to a constant."""
    terms = affine(expr).terms
    if len(terms) == 1 and terms[0][1] == 1 and type(terms[0][0]) is Var and terms[0][0] in extents:
        return terms[0][0]
    return None
