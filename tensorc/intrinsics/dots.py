"""The common form of dot-product instructions: each lane adds the products of a group of neighbours to its sum."""

from __future__ import annotations

import numpy as np

from tensorc.intrinsics.instructions import Features, instruction
from tensorc.intrinsics.tensor import declare


def dot_instruction(
    name: str, lanes: int, group: int, a: str, b: str, total: str, *, llvm: str, machine: str, features: Features
) -> None:
    """`total` x lanes plus the dot products of groups of `a` and `b`, as an instruction and as a tensor intrinsic.

    The tensor intrinsic is one row of a product of matrices, `c[j] += a[r] * b[j, r]`: a group of `a` is repeated for
    every lane.
    """

    def meaning(c, x, y):
        wide = np.float32 if total == "float32" else np.int64
        products = (x.astype(wide) * y.astype(wide)).reshape(lanes, group)
        return c + products.sum(axis=1).astype(c.dtype)

    operands = (f"{total}x{lanes}", f"{a}x{lanes * group}", f"{b}x{lanes * group}")
    instruction(name, operands, operands[0], meaning, llvm=llvm, machine=machine, features=features)
    lane, every = f"ramp(0, 1, {lanes})", f"ramp(0, 1, {lanes * group})"
    call = f"{name}(c[{lane}], repeat.{lanes}(a[ramp(0, 1, {group})]), b[{every}])"
    dot_intrin(name, lanes, group, a, b, total, f"  c[{lane}] = {call}\n")


def dot_intrin(name: str, lanes: int, group: int, a: str, b: str, total: str, body: str) -> None:
    """Register `c[j] += a[r] * b[j, r]` with the body of its implementation."""
    head = f"function dot(a: {a}[{group}], b: {b}[{lanes}, {group}], out c: {total}[{lanes}])\n"
    x, y = [_cast(dtype, total, place) for dtype, place in ((a, "a[r]"), (b, "b[j, r]"))]
    nest = f"  for j in 0 .. {lanes}\n    for r in 0 .. {group}\n      c[j] = c[j] + {x} * {y}\n"
    declare(name, head + nest, head + body)


def _cast(dtype: str, total: str, place: str) -> str:
    return place if dtype == total else f"cast({total}, {place})"
