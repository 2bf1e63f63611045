"""Dot products of x86: VNNI on 8-bit and 16-bit integers, BF16, and PMADDWD."""

from __future__ import annotations

import numpy as np

from tensorc.intrinsics.dots import dot_instruction, dot_intrin
from tensorc.intrinsics.instructions import instruction

_MACHINE = "x86_64"
_VNNI = {
    128: (("avxvnni",), ("avx512vnni", "avx512vl")),
    256: (("avxvnni",), ("avx512vnni", "avx512vl")),
    512: (("avx512vnni",),),
}
_BF16 = {128: (("avx512bf16", "avx512vl"),), 256: (("avx512bf16", "avx512vl"),), 512: (("avx512bf16",),)}

for _bits in (128, 256, 512):
    _lanes = _bits // 32
    # Four products of uint8 and int8 a lane, exact: sums wrap as those of int32 do.
    dot_instruction(
        f"x86.vpdpbusd.{_bits}", _lanes, 4, "uint8", "int8", "int32",
        llvm=f"llvm.x86.avx512.vpdpbusd.{_bits}", machine=_MACHINE, features=_VNNI[_bits],
    )  # fmt: skip
    # Two products of int16 a lane, exact in the same way.
    dot_instruction(
        f"x86.vpdpwssd.{_bits}", _lanes, 2, "int16", "int16", "int32",
        llvm=f"llvm.x86.avx512.vpdpwssd.{_bits}", machine=_MACHINE, features=_VNNI[_bits],
    )  # fmt: skip
    # Two products of bfloat16 a lane, added one after the other, each time rounded to nearest even; numbers below
    # 2^-126 count as zero, on the way in and out.
    dot_instruction(
        f"x86.dpbf16ps.{_bits}", _lanes, 2, "bfloat16", "bfloat16", "float32",
        llvm=f"llvm.x86.avx512bf16.dpbf16ps.{_bits}", machine=_MACHINE, features=_BF16[_bits],
    )  # fmt: skip

_PMADD = {
    128: ("llvm.x86.sse2.pmadd.wd", ((),)),
    256: ("llvm.x86.avx2.pmadd.wd", (("avx2",),)),
    512: ("llvm.x86.avx512.pmaddw.d.512", (("avx512bw",),)),
}


def _pairs(x, y):
    return (x.astype(np.int64) * y.astype(np.int64)).reshape(-1, 2).sum(axis=1).astype(np.int32)


for _bits, (_llvm, _features) in _PMADD.items():
    _lanes = _bits // 32
    _name = f"x86.pmaddwd.{_bits}"
    _operand = f"int16x{2 * _lanes}"
    instruction(
        _name, (_operand, _operand), f"int32x{_lanes}", _pairs, llvm=_llvm, machine=_MACHINE, features=_features
    )
    _lane = f"ramp(0, 1, {_lanes})"
    _call = f"{_name}(repeat.{_lanes}(a[ramp(0, 1, 2)]), b[ramp(0, 1, {2 * _lanes})])"
    dot_intrin(_name, _lanes, 2, "int16", "int16", "int32", f"  c[{_lane}] = c[{_lane}] + {_call}\n")
