"""Products of matrices and vectors, and attention."""

from __future__ import annotations

import numpy as np

from benchmarks.workload import Workload, expression, normal
from tensorc import ops


def matmul(m: int, n: int, k: int, transpose_a: bool = False, transpose_b: bool = False, name: str | None = None):
    """An m x k matrix by a k x n one, each stored the other way round if it is transposed."""
    shapes = ((k, m) if transpose_a else (m, k), (n, k) if transpose_b else (k, n))

    def product(a, b):
        return (a.T if transpose_a else a) @ (b.T if transpose_b else b)

    kind = "".join(["T" if flag else "N" for flag in (transpose_a, transpose_b)])
    return Workload(
        name or f"{m}x{n}x{k}" + ("" if kind == "NN" else f" {kind}"),
        normal(*shapes),
        expression(lambda a, b: ops.matmul(a, b, transpose_a, transpose_b), *shapes),
        product,
        {"numpy": product, "torch": product, "jax": product, "tvm": _tvm_matmul(m, n, k)} if kind == "NN"
        else {"numpy": product, "torch": product, "jax": product},
        terms=k,
    )  # fmt: skip


def _tvm_matmul(m: int, n: int, k: int):
    def function():
        from tvm import te

        a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
        r = te.reduce_axis((0, k), name="k")
        c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
        return te.create_prim_func([a, b, c])

    return function


def batch_matmul(b: int, m: int, n: int, k: int, name: str | None = None) -> Workload:
    shapes = ((b, m, k), (b, k, n))
    product = lambda a, b: a @ b
    peers = {"numpy": product, "torch": product, "jax": product}
    return Workload(
        name or f"batch {b}x{m}x{n}x{k}",
        normal(*shapes),
        expression(ops.batch_matmul, *shapes),
        product,
        peers,
        terms=k,
    )


def matvec(m: int, k: int, name: str) -> Workload:
    """A matrix stored by rows, by a vector."""
    product = lambda a, x: a @ x
    shapes = ((m, k), (k,))
    peers = {"numpy": product, "torch": product, "jax": product}
    return Workload(name, normal(*shapes), expression(ops.matvec, *shapes), product, peers, terms=k)


def scores(batch: int, seq: int, heads: int, dim: int, name: str) -> Workload:
    """Queries by keys, both transposed from (batch, seq, heads, dim)."""
    shapes = ((batch, seq, heads, dim), (batch, seq, heads, dim))

    def in_numpy(q, k):
        return q.transpose(0, 2, 1, 3) @ k.transpose(0, 2, 3, 1)

    def in_torch(q, k):
        return q.permute(0, 2, 1, 3) @ k.permute(0, 2, 3, 1)

    peers = {"numpy": in_numpy, "torch": in_torch, "jax": in_numpy}
    tensors = expression(ops.transpose_batch_matmul, *shapes)
    return Workload(name, normal(*shapes), tensors, in_numpy, peers, terms=dim)


def attention(batch: int, heads: int, seq: int, dim: int, causal: bool, name: str) -> Workload:
    """Softmax of scaled scores by values; operands are (batch, heads, seq, dim)."""
    shapes = ((batch, heads, seq, dim),) * 3

    def reference(q, k, v):
        s = q @ k.swapaxes(-1, -2) * dim**-0.5
        if causal:
            s = np.where(np.tri(seq, dtype=bool), s, -np.inf)
        e = np.exp(s - s.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True) @ v

    def in_torch(q, k, v):
        from torch.nn.functional import scaled_dot_product_attention

        return scaled_dot_product_attention(q, k, v, is_causal=causal)

    def in_jax(q, k, v):
        import jax
        import jax.numpy as jnp

        s = jnp.einsum("bhid,bhjd->bhij", q, k) * dim**-0.5
        if causal:
            s = jnp.where(jnp.tri(seq, dtype=bool), s, -jnp.inf)
        return jnp.einsum("bhij,bhjd->bhid", jax.nn.softmax(s), v)

    peers = {"numpy": reference, "torch": in_torch, "jax": in_jax}
    tensors = expression(lambda q, k, v: ops.attention(q, k, v, causal=causal), *shapes)
    return Workload(name, normal(*shapes), tensors, reference, peers, terms=seq)
