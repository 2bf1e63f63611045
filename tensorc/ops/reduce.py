"""Sums and other reductions over dimensions, what is normalised by them, and cumulative sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensorc import te
from tensorc.errors import ExpressionError
from tensorc.ir.expr import Expr
from tensorc.ops.checks import (
    check_axes,
    check_axis,
    check_is_tensor,
    check_vectors,
    compute,
    number,
    put,
)
from tensorc.te import Tensor

Axes = int | Sequence[int] | None


def sum(data: Tensor, axis: Axes = None, keepdims: bool = False, name: str = "sum") -> Tensor:
    """The sums of `data`, of any shape, over the dimensions `axis`: one, several or all of them. They are left out of
    the result's shape, or with `keepdims` of extent 1.

    Raises ExpressionError for an axis that `data` does not have.
    """
    return _reduced("sum", te.sum, data, axis, keepdims, name)


def max(data: Tensor, axis: Axes = None, keepdims: bool = False, name: str = "max") -> Tensor:
    """The largest elements of `data` over the dimensions `axis`; the shape is that of `sum`."""
    return _reduced("max", te.max, data, axis, keepdims, name)


def min(data: Tensor, axis: Axes = None, keepdims: bool = False, name: str = "min") -> Tensor:
    """The smallest elements of `data` over the dimensions `axis`; the shape is that of `sum`."""
    return _reduced("min", te.min, data, axis, keepdims, name)


def argmax(data: Tensor, axis: int = -1, keepdims: bool = False, name: str = "argmax") -> Tensor:
    """The positions along dimension `axis` of the largest elements, int64: of equal ones the first."""
    check_is_tensor(f"argmax {name!r}", "data", data)
    check_axis(f"argmax {name!r}", data, axis)
    return _reduced("argmax", te.argmax, data, axis, keepdims, name)


def mean(data: Tensor, axis: Axes = None, keepdims: bool = False, name: str = "mean") -> Tensor:
    """The means of `data`, of floats, over the dimensions `axis`; the shape is that of `sum`."""
    total = _reduced("mean", te.sum, data, axis, keepdims, f"{name}_sum")
    count: Expr | int = 1
    for dimension in check_axes(f"mean {name!r}", data, axis):
        count = data.shape[dimension] * count
    return compute(total.shape, lambda *i: total[i] / number(count, data.dtype), name=name)


def norm(data: Tensor, axis: Axes = None, keepdims: bool = False, name: str = "norm") -> Tensor:
    """The square roots of the sums of squares of `data`, of floats, over the dimensions `axis`; the shape is that of
    `sum`."""
    squares = _reduced("norm", te.sum, data, axis, keepdims, f"{name}_sum", term=lambda x: x * x)
    return compute(squares.shape, lambda *i: te.sqrt(squares[i]), name=name)


def softmax(data: Tensor, axis: int = -1, name: str = "softmax") -> Tensor:
    """exp(x) over its sum along dimension `axis`, for `data` of floats and of any shape, relative to the largest
    element, so that nothing overflows."""
    what = f"softmax {name!r}"
    check_is_tensor(what, "data", data)
    at = check_axis(what, data, axis)
    without = lambda i: i[:at] + i[at + 1 :]
    top = _reduced("softmax", te.max, data, at, False, f"{name}_max")
    part = compute(data.shape, lambda *i: te.exp(data[i] - top[without(i)]), name=f"{name}_exp")
    total = _reduced("softmax", te.sum, part, at, False, f"{name}_sum")
    return compute(data.shape, lambda *i: part[i] / total[without(i)], name=name)


def layer_norm(
    data: Tensor, gamma: Tensor, beta: Tensor, axis: int = -1, epsilon: float = 1e-5, name: str = "layer_norm"
) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta for `data` of floats and of any shape, its mean and variance
    along dimension `axis`; `gamma` and `beta` are vectors of that extent.

    Raises ExpressionError where they are not, or have another dtype.
    """
    what = f"layer_norm {name!r}"
    at = check_vectors(what, data, axis, gamma=gamma, beta=beta)
    count = number(data.shape[at], data.dtype)
    without = lambda i: i[:at] + i[at + 1 :]
    total = _reduced("layer_norm", te.sum, data, at, False, f"{name}_sum")
    average = compute(total.shape, lambda *i: total[i] / count, name=f"{name}_mean")
    k = te.reduce_axis(data.shape[at], name="k")

    def square(*i):
        away = data[put(i, (at,), (k,))] - average[i]
        return te.sum(away * away, axis=k)

    squares = compute(total.shape, square, name=f"{name}_squares")
    scale = compute(total.shape, lambda *i: te.rsqrt(squares[i] / count + epsilon), name=f"{name}_scale")

    def element(*i):
        row = without(i)
        return (data[i] - average[row]) * scale[row] * gamma[i[at]] + beta[i[at]]

    return compute(data.shape, element, name=name)


def rms_norm(data: Tensor, weight: Tensor, axis: int = -1, epsilon: float = 1e-5, name: str = "rms_norm") -> Tensor:
    """x / sqrt(mean of squares + epsilon) * weight for `data` of floats and of any shape, the mean along dimension
    `axis`; `weight` is a vector of that extent.

    Raises ExpressionError where it is not, or has another dtype.
    """
    what = f"rms_norm {name!r}"
    at = check_vectors(what, data, axis, weight=weight)
    count = number(data.shape[at], data.dtype)
    squares = _reduced("rms_norm", te.sum, data, at, False, f"{name}_squares", term=lambda x: x * x)
    scale = compute(squares.shape, lambda *i: te.rsqrt(squares[i] / count + epsilon), name=f"{name}_scale")
    return compute(data.shape, lambda *i: data[i] * scale[i[:at] + i[at + 1 :]] * weight[i[at]], name=name)


def cumsum(data: Tensor, axis: int = -1, name: str = "cumsum") -> Tensor:
    """The sums of the elements of `data`, of any shape, up to each place along dimension `axis`, in order.

    Raises ExpressionError where that extent is the number 0.
    """
    what = f"cumsum {name!r}"
    check_is_tensor(what, "data", data)
    at = check_axis(what, data, axis)
    if data.shape[at] == 0:
        raise ExpressionError(f"{what}: {data.name!r} has no element along axis {at}, of which there must be a first")
    before = lambda i: (*i[:at], i[at] - 1, *i[at + 1 :])
    first = compute((*data.shape[:at], 1, *data.shape[at + 1 :]), lambda *i: data[i], name=f"{name}_first")
    state = te.placeholder(data.shape, data.dtype, name=f"{name}_state")
    step = compute(data.shape, lambda *i: state[before(i)] + data[i], name=f"{name}_step")
    total = te.scan(first, step, state, name=name, axis=at)
    assert isinstance(total, Tensor)  # of one state
    return total


def _reduced(
    operator: str,
    reducer: Callable,
    data: Tensor,
    axis: Axes,
    keepdims: bool,
    name: str,
    term: Callable[[Expr], Expr] = lambda x: x,
) -> Tensor:
    what = f"{operator} {name!r}"
    check_is_tensor(what, "data", data)
    axes = check_axes(what, data, axis)
    over = [te.reduce_axis(data.shape[dimension], name=f"k{n or ''}") for n, dimension in enumerate(axes)]
    kept = [dimension for dimension in range(data.ndim) if dimension not in axes]
    if not over:
        return compute(data.shape, lambda *i: term(data[i]), name=name)

    def element(*i):
        rest = [i[dimension] for dimension in kept] if keepdims else i
        return reducer(term(data[put(rest, axes, over)]), axis=tuple(over))

    if keepdims:
        return compute([1 if d in axes else e for d, e in enumerate(data.shape)], element, name=name)
    return compute(tuple([data.shape[dimension] for dimension in kept]), element, name=name)
