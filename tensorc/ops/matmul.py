"""Products of matrices and vectors. Operands share a dtype; `out_dtype` is what products are computed in and stored as:
by default the operands' own (half precision accumulates in float32), for int8 usually int32."""

from __future__ import annotations

from tensorc import te
from tensorc.dtypes import DType
from tensorc.ir.expr import Expr
from tensorc.ops.checks import check_extent, check_same_dtype, check_tensor, compute
from tensorc.te import Tensor


def matmul(
    a: Tensor,
    b: Tensor,
    transpose_a: bool = False,
    transpose_b: bool = False,
    out_dtype: DType | str | None = None,
    name: str = "matmul",
) -> Tensor:
    """The product of the matrices `a`, (m, k), and `b`, (k, n), of shape (m, n).

    A transposed operand is stored the other way round: `a` as (k, m), `b` as (n, k). Raises ExpressionError for
    operands of another rank, of extents k that differ, or of different dtypes.
    """
    what = f"matmul {name!r}"
    check_tensor(what, "a", a, "k m" if transpose_a else "m k")
    check_tensor(what, "b", b, "n k" if transpose_b else "k n")
    check_same_dtype(what, a, b)
    depth = a.shape[0 if transpose_a else 1]
    check_extent(what, b, 1 if transpose_b else 0, depth, f"what is summed over in {a.name!r}")
    k = te.reduce_axis(depth, name="k")

    def element(i, j):
        left = a[k, i] if transpose_a else a[i, k]
        right = b[j, k] if transpose_b else b[k, j]
        return te.sum(product(left, right, out_dtype), axis=k)

    shape = (a.shape[1 if transpose_a else 0], b.shape[0 if transpose_b else 1])
    return compute(shape, element, name=name)


def batch_matmul(
    a: Tensor,
    b: Tensor,
    transpose_a: bool = False,
    transpose_b: bool = False,
    out_dtype: DType | str | None = None,
    name: str = "batch_matmul",
) -> Tensor:
    """The products of the matrices in `a`, (batch, m, k), and in `b`, (batch, k, n), of shape (batch, m, n).

    A transposed operand is stored as (batch, k, m), or (batch, n, k). Raises ExpressionError for operands of another
    rank, of extents that differ, or of different dtypes.
    """
    what = f"batch_matmul {name!r}"
    check_tensor(what, "a", a, "batch k m" if transpose_a else "batch m k")
    check_tensor(what, "b", b, "batch n k" if transpose_b else "batch k n")
    check_same_dtype(what, a, b)
    check_extent(what, b, 0, a.shape[0], f"the batch of {a.name!r}")
    depth = a.shape[1 if transpose_a else 2]
    check_extent(what, b, 2 if transpose_b else 1, depth, f"what is summed over in {a.name!r}")
    k = te.reduce_axis(depth, name="k")

    def element(batch, i, j):
        left = a[batch, k, i] if transpose_a else a[batch, i, k]
        right = b[batch, j, k] if transpose_b else b[batch, k, j]
        return te.sum(product(left, right, out_dtype), axis=k)

    shape = (a.shape[0], a.shape[2 if transpose_a else 1], b.shape[1 if transpose_b else 2])
    return compute(shape, element, name=name)


def matvec(
    matrix: Tensor,
    vector: Tensor,
    transpose: bool = False,
    out_dtype: DType | str | None = None,
    name: str = "matvec",
) -> Tensor:
    """The product of `matrix`, (m, k), or with `transpose` (k, m), and `vector`, (k), of shape (m).

    Raises ExpressionError for operands of another rank, of extents k that differ, or of different dtypes.
    """
    what = f"matvec {name!r}"
    check_tensor(what, "matrix", matrix, "k m" if transpose else "m k")
    check_tensor(what, "vector", vector, "k")
    check_same_dtype(what, matrix, vector)
    depth = matrix.shape[0 if transpose else 1]
    check_extent(what, vector, 0, depth, f"what is summed over in {matrix.name!r}")
    k = te.reduce_axis(depth, name="k")

    def element(i):
        return te.sum(product(matrix[k, i] if transpose else matrix[i, k], vector[k], out_dtype), axis=k)

    return compute((matrix.shape[1 if transpose else 0],), element, name=name)


def transpose_batch_matmul(query: Tensor, key: Tensor, name: str = "transpose_batch_matmul") -> Tensor:
    """Attention scores without scale: `query`, (batch, m, heads, dim), and `key`, (batch, n, heads, dim), are
    transposed to matrices of each head, whose products have shape (batch, heads, m, n).

    Raises ExpressionError for operands of another rank, of extents that differ, or of different dtypes.
    """
    what = f"transpose_batch_matmul {name!r}"
    check_tensor(what, "query", query, "batch m heads dim")
    check_tensor(what, "key", key, "batch n heads dim")
    check_same_dtype(what, query, key)
    for dimension in (0, 2, 3):
        check_extent(what, key, dimension, query.shape[dimension], f"as in {query.name!r}")
    batch, m, heads, dim = query.shape
    n = key.shape[1]
    rows = compute((batch, heads, m, dim), lambda b, h, i, d: query[b, i, h, d], name=f"{name}_query")
    columns = compute((batch, heads, dim, n), lambda b, h, d, j: key[b, j, h, d], name=f"{name}_key")
    k = te.reduce_axis(dim, name="k")
    element = lambda b, h, i, j: te.sum(rows[b, h, i, k] * columns[b, h, k, j], axis=k)
    return compute((batch, heads, m, n), element, name=name)


def product(a: Expr, b: Expr, out_dtype: DType | str | None) -> Expr:
    """a * b, of operands that are cast first if a dtype is asked for."""
    return a * b if out_dtype is None else te.cast(a, out_dtype) * te.cast(b, out_dtype)
