"""Tensor intrinsics that need no instruction: small vector kernels for any machine, on tiles of any layout.

For each type and 2, 4 or 8 lanes, such as `dot.4.float32`: `dot` adds up products, `sum` numbers, `axpy` adds a
multiple of a row to a row, and `copy` copies one.
"""

from __future__ import annotations

from tensorc.intrinsics.tensor import declare

LANES = (2, 4, 8)
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def _declare(dtype: str, lanes: int) -> None:
    row, one, every = f"{dtype}[{lanes}]", f"{dtype}[]", f"ramp(0, 1, {lanes})"
    kinds = {
        "dot": (
            f"a: {row}, b: {row}, out c: {one}",
            "c[] = c[] + a[i] * b[i]",
            f"c[0] = c[0] + reduce_add(a[{every}] * b[{every}])",
        ),
        "sum": (f"a: {row}, out c: {one}", "c[] = c[] + a[i]", f"c[0] = c[0] + reduce_add(a[{every}])"),
        "axpy": (
            f"a: {one}, x: {row}, out y: {row}",
            "y[i] = y[i] + a[] * x[i]",
            f"y[{every}] = y[{every}] + broadcast(a[0], {lanes}) * x[{every}]",
        ),
        "copy": (f"x: {row}, out y: {row}", "y[i] = x[i]", f"y[{every}] = x[{every}]"),
    }
    for kind, (tiles, store, vectors) in kinds.items():
        head = f"function {kind}({tiles})\n"
        nest = f"{head}  for i in 0 .. {lanes}\n    {store}\n"
        declare(f"{kind}.{lanes}.{dtype}", nest, f"{head}  {vectors}\n", dense=False)


for _dtype in ("float32", "float64", *_INTEGERS):
    for _lanes in LANES:
        _declare(_dtype, _lanes)
