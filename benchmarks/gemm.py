"""Matrix products in float32: C(i, j) = sum of A(i, k) * B(k, j)."""

from __future__ import annotations

import numpy as np

from benchmarks.workload import Workload
from tensorc import te

SIZES = [
    (128, 128, 128),
    (256, 256, 256),
    (512, 512, 512),
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (1000, 1000, 1000),
    (1023, 1023, 1023),
    (128, 3072, 768),
]


def matmul(m: int, n: int, k: int) -> Workload:
    """A product of an m x k and a k x n matrix, by every peer."""

    def inputs():
        rng = np.random.default_rng(0)
        return [rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n))]

    def tensors():
        a = te.placeholder((m, k), "float32", name="A")
        b = te.placeholder((k, n), "float32", name="B")
        r = te.reduce_axis(k, name="k")
        return [a, b, te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")]

    def tvm_function():
        from tvm import te as tvm_te

        a = tvm_te.placeholder((m, k), name="A")
        b = tvm_te.placeholder((k, n), name="B")
        r = tvm_te.reduce_axis((0, k), name="k")
        c = tvm_te.compute((m, n), lambda i, j: tvm_te.sum(a[i, r] * b[r, j], axis=r), name="C")
        return tvm_te.create_prim_func([a, b, c])

    product = lambda a, b: a @ b
    peers = {"numpy": product, "torch": product, "jax": product, "tvm": tvm_function}
    return Workload(f"{m}x{n}x{k}", inputs, tensors, product, peers, terms=k)


WORKLOADS = {workload.name: workload for workload in (matmul(*size) for size in SIZES)}
