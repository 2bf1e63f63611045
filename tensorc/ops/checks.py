"""What the operators ask of their arguments, and the definition of tensors over named iterators."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence

from tensorc import te
from tensorc.dtypes import DType
from tensorc.errors import ExpressionError
from tensorc.ir.expr import Expr
from tensorc.ir.printer import show
from tensorc.te import Tensor

Extent = int | Expr


def check_tensor(what: str, name: str, tensor: Tensor, dimensions: str) -> None:
    """`tensor` must be one with these dimensions, a letter or a word each: "n h w c"."""
    check_is_tensor(what, name, tensor)
    words = dimensions.split()
    if tensor.ndim != len(words):
        raise ExpressionError(
            f"{what}: {name} {tensor.name!r} has {tensor.ndim} dimensions; give the {len(words)} "
            f"dimensions ({', '.join(words)})"
        )


def check_is_tensor(what: str, name: str, tensor: Tensor) -> None:
    if not isinstance(tensor, Tensor):
        raise ExpressionError(f"{what}: {name} is {tensor!r}, not a tensor")


def check_same_dtype(what: str, first: Tensor, *others: Tensor) -> None:
    for other in others:
        if other.dtype is not first.dtype:
            raise ExpressionError(
                f"{what}: {first.name!r} is {first.dtype}, {other.name!r} is {other.dtype}; cast one of them"
            )


def check_extent(what: str, tensor: Tensor, dimension: int, expected: Extent, why: str) -> None:
    """`why` says where the expected extent comes from, such as "the channels of 'x'"."""
    found = tensor.shape[dimension]
    if found != expected:
        raise ExpressionError(
            f"{what}: dimension {dimension} of {tensor.name!r} has extent {shown(found)}; it must be "
            f"{shown(expected)}, {why}"
        )


def check_at_least(what: str, name: str, value, least: int) -> int:
    """`value` as an int that is not less than `least`."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or isinstance(value, Expr):
        raise ExpressionError(f"{what}: {name} is {value!r}, not an integer")
    number = operator.index(value)
    if number < least:
        raise ExpressionError(f"{what}: {name} is {number}; it must be {least} or more")
    return number


def check_each(what: str, name: str, value, count: int, least: int) -> tuple[int, ...]:
    """One int for each of so many dimensions, from a tuple of them or one for all."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,) * count
    if len(values) != count:
        raise ExpressionError(f"{what}: {name} has {len(values)} numbers; give one, or {count}")
    return tuple([check_at_least(what, name, number, least) for number in values])


def check_axis(what: str, data: Tensor, axis) -> int:
    """A dimension of `data`, counted from its front; negative ones count from the end."""
    number = check_at_least(what, "axis", axis, -data.ndim)
    if number >= data.ndim:
        raise ExpressionError(f"{what}: axis {number} is none of the {data.ndim} dimensions of {data.name!r}")
    return number % data.ndim


def check_axes(what: str, data: Tensor, axis) -> tuple[int, ...]:
    """Dimensions of `data` in order, from one, several, or None for all."""
    if axis is None:
        return tuple(range(data.ndim))
    listed = axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = [check_axis(what, data, one) for one in listed]
    if len(set(axes)) < len(axes):
        raise ExpressionError(f"{what}: axis {axis!r} names a dimension twice")
    return tuple(sorted(axes))


def shown(extent: Extent) -> str:
    return show(extent) if isinstance(extent, Expr) else str(extent)


def number(extent: Extent, dtype: DType) -> Expr:
    """An extent as a value of a dtype, such as what a mean divides by."""
    return te.cast(extent, dtype) if isinstance(extent, Expr) else te.const(extent, dtype)


def compute(shape: Sequence[Extent], element: Callable[..., Expr], name: str) -> Tensor:
    """`te.compute` of one tensor."""
    made = te.compute(tuple(shape), element, name=name)
    assert isinstance(made, Tensor)  # the function returns one expression
    return made


def with_names(names: Sequence[str], element: Callable[[tuple[Expr, ...]], Expr]) -> Callable[..., Expr]:
    """A function of as many indices as there are names, which `element` takes as one tuple."""

    def at(*indices):
        return element(indices)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    at.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in names])  # type: ignore[attr-defined]
    return at


def put(indices: Sequence[Expr], axes: Sequence[int], values: Sequence) -> tuple:
    """`indices` with `values` put in so that they stand at `axes`."""
    result = list(indices)
    for axis, value in zip(axes, values):
        result.insert(axis, value)
    return tuple(result)


def check_vectors(what: str, data: Tensor, axis: int, **vectors: Tensor) -> int:
    """The dimension that `axis` names, along which each of the vectors must lie."""
    check_is_tensor(what, "data", data)
    at = check_axis(what, data, axis)
    for name, vector in vectors.items():
        check_tensor(what, name, vector, "extent")
        check_same_dtype(what, data, vector)
        check_extent(what, vector, 0, data.shape[at], f"as dimension {at} of {data.name!r}")
    return at
