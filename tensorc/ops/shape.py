"""Elements at other places: padding and transposes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorc import te
from tensorc.errors import ExpressionError
from tensorc.ops.checks import Extent, check_at_least, check_axis, check_is_tensor, compute
from tensorc.te import Tensor

Padding = int | Sequence[int] | Sequence[tuple[int, int]]


def pad(data: Tensor, padding: Padding, value=0, name: str = "pad") -> Tensor:
    """`data`, of any shape, with elements `value` around it: `padding` is one number for all sides, or for each
    dimension a number or a pair (before, after).

    Raises ExpressionError for numbers that are negative, or not as many as there are dimensions.
    """
    what = f"pad {name!r}"
    check_is_tensor(what, "data", data)
    return pad_axes(data, dict(enumerate(check_padding(what, padding, data.ndim))), name, value)


def transpose(data: Tensor, axes: Sequence[int] | None = None, name: str = "transpose") -> Tensor:
    """`data` with its dimensions in another order: dimension d of the result is dimension `axes[d]` of it; by default
    all in reverse.

    Raises ExpressionError where `axes` does not name each dimension once.
    """
    what = f"transpose {name!r}"
    check_is_tensor(what, "data", data)
    order = tuple(reversed(range(data.ndim))) if axes is None else [check_axis(what, data, axis) for axis in axes]
    if sorted(order) != list(range(data.ndim)):
        raise ExpressionError(f"{what}: axes {tuple(order)} do not name each of the {data.ndim} dimensions once")
    places = [order.index(dimension) for dimension in range(data.ndim)]
    shape = tuple([data.shape[dimension] for dimension in order])
    return compute(shape, lambda *i: data[tuple([i[place] for place in places])], name=name)


def check_padding(what: str, padding: Padding, count: int) -> tuple[tuple[int, int], ...]:
    """The pairs (before, after) of so many dimensions."""
    listed = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,) * count
    if len(listed) != count:
        raise ExpressionError(f"{what}: padding has {len(listed)} entries; give one number, or {count} entries")
    pairs = []
    for each in listed:
        pair = tuple(each) if isinstance(each, (tuple, list)) else (each, each)
        if len(pair) != 2:
            raise ExpressionError(f"{what}: padding {pair} of a dimension is not a pair (before, after)")
        pairs.append((check_at_least(what, "padding", pair[0], 0), check_at_least(what, "padding", pair[1], 0)))
    return tuple(pairs)


def pad_axes(data: Tensor, padding: Mapping[int, tuple[Extent, Extent]], name: str, value=0) -> Tensor:
    """`data` with some dimensions padded; itself where there is nothing to add."""
    around = {dimension: pair for dimension, pair in padding.items() if pair != (0, 0)}
    if not around:
        return data
    shape = [extent + sum(around.get(dimension, (0, 0))) for dimension, extent in enumerate(data.shape)]

    def element(*indices):
        inner = list(indices)
        inside = []
        for dimension, (before, after) in around.items():
            inner[dimension] = indices[dimension] - before
            if before != 0:
                inside.append(indices[dimension] >= before)
            if after != 0:
                inside.append(indices[dimension] < data.shape[dimension] + before)
        return te.if_then_else(te.all(*inside), data[tuple(inner)], te.const(value, data.dtype))

    return compute(shape, element, name=name)
