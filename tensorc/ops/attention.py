"""Attention, written as its plain stages: scores, softmax, weighted sum."""

from __future__ import annotations

from tensorc import te
from tensorc.ops.checks import check_extent, check_same_dtype, check_tensor, compute, number
from tensorc.ops.reduce import softmax
from tensorc.te import Tensor


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    causal: bool = False,
    scale: float | None = None,
    name: str = "attention",
) -> Tensor:
    """softmax(query * key^T * scale) * value for each head: `query`, (batch, heads, m, dim), `key`, (batch, heads, n,
    dim), and `value`, (batch, heads, n, width), give (batch, heads, m, width).

    `scale` is 1 / sqrt(dim) by default. With `causal`, query i sees the keys 0 to i only. Raises ExpressionError for
    operands of another rank, of extents that differ, or of different dtypes.
    """
    what = f"attention {name!r}"
    check_tensor(what, "query", query, "batch heads m dim")
    check_tensor(what, "key", key, "batch heads n dim")
    check_tensor(what, "value", value, "batch heads n width")
    check_same_dtype(what, query, key, value)
    for dimension in (0, 1, 3):
        check_extent(what, key, dimension, query.shape[dimension], f"as in {query.name!r}")
    for dimension in (0, 1, 2):
        check_extent(what, value, dimension, key.shape[dimension], f"as in {key.name!r}")
    batch, heads, m, dim = query.shape
    n, width = key.shape[2], value.shape[3]
    factor = scale if scale is not None else dim**-0.5 if isinstance(dim, int) else te.rsqrt(number(dim, query.dtype))
    k = te.reduce_axis(dim, name="k")
    dots = compute(
        (batch, heads, m, n),
        lambda b, h, i, j: te.sum(query[b, h, i, k] * key[b, h, j, k], axis=k),
        name=f"{name}_dots",
    )
    lowest = te.const(float("-inf"), query.dtype)

    def score(b, h, i, j):
        scaled = dots[b, h, i, j] * factor
        return te.select(j <= i, scaled, lowest) if causal else scaled

    scores = compute((batch, heads, m, n), score, name=f"{name}_scores")
    weights = softmax(scores, name=f"{name}_softmax")
    l = te.reduce_axis(n, name="l")
    element = lambda b, h, i, d: te.sum(weights[b, h, i, l] * value[b, h, l, d], axis=l)
    return compute((batch, heads, m, width), element, name=name)
