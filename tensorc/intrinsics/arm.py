"""Dot products of AArch64: four products of 8-bit integers, or two of bfloat16, a lane."""

from __future__ import annotations

import numpy as np

from tensorc.intrinsics.dots import dot_instruction
from tensorc.intrinsics.instructions import instruction
from tensorc.intrinsics.tensor import declare

_MACHINE = "aarch64"
_FOUR = "v4i32.v16i8"

for _name, _a, _b, _total, _feature in (
    ("sdot", "int8", "int8", "int32", "dotprod"),
    ("udot", "uint8", "uint8", "uint32", "dotprod"),
    ("usdot", "uint8", "int8", "int32", "i8mm"),
):
    dot_instruction(
        f"arm.{_name}", 4, 4, _a, _b, _total,
        llvm=f"llvm.aarch64.neon.{_name}.{_FOUR}", machine=_MACHINE, features=((_feature,),),
    )  # fmt: skip

# A tile of 2 x 2 from rows of eight: c[i, j] += a[i, r] * b[j, r].
for _name, _a, _b, _total in (
    ("smmla", "int8", "int8", "int32"),
    ("ummla", "uint8", "uint8", "uint32"),
    ("usmmla", "uint8", "int8", "int32"),
):

    def _meaning(c, a, b):
        product = a.reshape(2, 8).astype(np.int64) @ b.reshape(2, 8).astype(np.int64).T
        return c + product.ravel().astype(c.dtype)

    _full = f"arm.{_name}"
    instruction(
        _full, (f"{_total}x4", f"{_a}x16", f"{_b}x16"), f"{_total}x4", _meaning,
        llvm=f"llvm.aarch64.neon.{_name}.{_FOUR}", machine=_MACHINE, features=(("i8mm",),),
    )  # fmt: skip
    _head = f"function mmla(a: {_a}[2, 8], b: {_b}[2, 8], out c: {_total}[2, 2])\n"
    _term = f"cast({_total}, a[i, r]) * cast({_total}, b[j, r])"
    _nest = f"  for i in 0 .. 2\n    for j in 0 .. 2\n      for r in 0 .. 8\n        c[i, j] = c[i, j] + {_term}\n"
    _tile = "c[ramp(0, 1, 4)]"
    _call = f"{_full}({_tile}, a[ramp(0, 1, 16)], b[ramp(0, 1, 16)])"
    declare(_full, _head + _nest, f"{_head}  {_tile} = {_call}\n")
