"""Tensor intrinsics that need no instruction: small vector kernels for any machine, on tiles of any layout."""

from __future__ import annotations

from tensorc.intrinsics.tensor import declare

for _dtype in ("float32", "int32"):
    # The dot product of four neighbours: c += a[r] * b[r].
    _head = f"function dot(a: {_dtype}[4], b: {_dtype}[4], out c: {_dtype}[])\n"
    declare(
        f"dot.4.{_dtype}",
        f"{_head}  for r in 0 .. 4\n    c[] = c[] + a[r] * b[r]\n",
        f"{_head}  c[0] = c[0] + reduce_add(a[ramp(0, 1, 4)] * b[ramp(0, 1, 4)])\n",
        dense=False,
    )
    # Eight lanes of a sum of multiples: y[i] += a * x[i].
    _head = f"function axpy(a: {_dtype}[], x: {_dtype}[8], out y: {_dtype}[8])\n"
    _lanes = "ramp(0, 1, 8)"
    declare(
        f"axpy.8.{_dtype}",
        f"{_head}  for i in 0 .. 8\n    y[i] = y[i] + a[] * x[i]\n",
        f"{_head}  y[{_lanes}] = y[{_lanes}] + broadcast(a[0], 8) * x[{_lanes}]\n",
        dense=False,
    )
    # Four elements copied.
    _head = f"function copy(x: {_dtype}[4], out y: {_dtype}[4])\n"
    declare(
        f"copy.4.{_dtype}",
        f"{_head}  for i in 0 .. 4\n    y[i] = x[i]\n",
        f"{_head}  y[ramp(0, 1, 4)] = x[ramp(0, 1, 4)]\n",
        dense=False,
    )
