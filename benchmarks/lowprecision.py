"""Matrix products of 8-bit integers into int32, and of bfloat16 into float32, by tensor intrinsics.

The schedule is written by hand and packs B in the kernel, as the libraries do. torch multiplies int8 by int8 (the same
bits, as these uint8 are below 128), and rounds its bfloat16 products to bfloat16. Fractions are of the float32 peak:
the instructions do four and two times that.
"""

from __future__ import annotations

import numpy as np

import tensorc as tc
from benchmarks.workload import Workload
from tensorc import te

SIZES = (512, 1024, 2048)
ROWS, VECTORS = 8, 2  # of the tile that stays in registers
LANES = 16
BLOCK = 256  # rows of A that stay in the cache


def product(size: int, a: str, b: str, c: str, group: int, intrin: str) -> tc.Schedule:
    """C(i, j) = sum of A(i, k) * B(k, j), tiles by an intrinsic that adds up `group` terms a lane."""
    A = te.placeholder((size, size), a, name="A")
    B = te.placeholder((size, size), b, name="B")
    r = te.reduce_axis(size, name="k")
    C = te.compute((size, size), lambda i, j: te.sum(te.cast(A[i, r], c) * te.cast(B[r, j], c), axis=r), name="C")
    s = tc.schedule([A, B, C])
    i, j, k = s.loops("C")
    packed = s.cache_read("C", "B")
    s.transform_layout(packed, "B_global", lambda k, n: (n // LANES, k // group, n % LANES, k % group))
    j0, j1, j2 = s.split(j, (None, VECTORS, LANES))
    k0, k1 = s.split(k, (None, group))
    block, i0, i1 = s.split(i, (None, BLOCK // ROWS, ROWS))
    s.reorder(block, j0, i0, k0, i1, j1, j2, k1)
    s.unroll(i1)
    s.unroll(j1)
    copy_k, copy_j = s.loops(packed)
    q0, q1 = s.split(copy_k, (None, group))
    n0, n1 = s.split(copy_j, (None, LANES))
    s.reorder(n0, q0, n1, q1)
    s.parallel(n0)
    s.unroll(n1)
    s.unroll(q1)
    s.decompose_reduction(s.tensorize(j2, intrin), k0)
    s.parallel(block)
    return s


def of_integers(size: int) -> Workload:
    def inputs():
        rng = np.random.default_rng(0)
        shape = (size, size)
        return [rng.integers(0, 128, shape, np.uint8), rng.integers(-128, 128, shape, np.int8)]

    def in_torch(a, b):
        import torch

        return torch._int_mm(a.view(torch.int8), b)

    tensors = lambda: product(size, "uint8", "int8", "int32", 4, "x86.vpdpbusd.512")
    return Workload(f"u8s8s32 {size}", inputs, tensors, lambda a, b: a @ b, {"torch": in_torch})


def of_bfloat16(size: int) -> Workload:
    def inputs():
        import ml_dtypes

        rng = np.random.default_rng(0)
        return [rng.standard_normal((size, size)).astype(ml_dtypes.bfloat16) for _ in range(2)]

    multiply = lambda a, b: a @ b
    tensors = lambda: product(size, "bfloat16", "bfloat16", "float32", 2, "x86.dpbf16ps.512")
    return Workload(f"bf16 {size}", inputs, tensors, multiply, {"torch": multiply}, terms=size, epsilon=2.0**-8)


WORKLOADS = {workload.name: workload for size in SIZES for workload in (of_integers(size), of_bfloat16(size))}
