"""Reductions: their axes, their node in an expression that is being written, and the reducers."""

from __future__ import annotations

from dataclasses import field

from tensorc.dtypes import DType, int64
from tensorc.errors import ExpressionError
from tensorc.ir.expr import Add, Const, Expr, Max, Min, Mul, as_expr, const, node, sub
from tensorc.te.tensor import Axis, Tensor, check_extent, check_name

# reducer -> how two partial results combine, and the value that changes nothing
COMBINE = {"sum": Add, "prod": Mul, "min": Min, "max": Max}
_IDENTITY = {
    "sum": lambda dtype: 0,
    "prod": lambda dtype: 1,
    "min": lambda dtype: dtype.max,
    "max": lambda dtype: dtype.min,
}


def identity(reducer: str, dtype: DType) -> Const:
    """The value that a reduction starts from: 0, 1, the largest, the smallest of the dtype."""
    return const(_IDENTITY[reducer](dtype), dtype)


@node
class Reduce(Expr):
    """`value` combined over `axes`; it lives only until `compute` makes a stage of it."""

    reducer: str
    value: Expr
    axes: tuple[Axis, ...]
    dtype: DType = field(init=False, repr=False)

    def __post_init__(self):
        object.__setattr__(self, "dtype", self.value.dtype)

    @property
    def operands(self) -> tuple[Expr, ...]:
        return (self.value,)

    def with_operands(self, operands: tuple[Expr, ...]) -> Reduce:
        return Reduce(self.reducer, operands[0], self.axes)


def reduce_axis(extent, name: str | None = None) -> Axis:
    """An iterator to reduce over: 0 .. extent - 1, or lo .. hi - 1 for a pair (lo, hi).

    An axis without a name is called "k", with a suffix where that is taken. Raises ExpressionError
    for an extent that is negative or no integer.
    """
    is_named = name is not None
    name = "k" if name is None else check_name("reduce_axis", name)
    start = 0
    if isinstance(extent, (tuple, list)):
        start, extent = _from_range(name, extent)
    return Axis(name, check_extent(f"reduce_axis {name!r}", extent), start, True, is_named)


def _from_range(name: str, pair) -> tuple[int, int | Expr]:
    """The start and the extent of the range (lo, hi)."""
    what = f"reduce_axis {name!r}"
    if len(pair) != 2:
        raise ExpressionError(f"{what}: a range has two ends, (lo, hi), not {len(pair)}")
    lo = _end(what, "lower", pair[0])
    if isinstance(pair[1], Expr) and type(pair[1]) is not Const:
        return lo, sub(pair[1], lo)
    hi = _end(what, "upper", pair[1])
    if hi < lo:
        raise ExpressionError(f"{what}: the range ({lo}, {hi}) ends before it starts")
    return lo, hi - lo


def _end(what: str, which: str, value) -> int:
    value = value.value if type(value) is Const else value
    if isinstance(value, Expr):
        raise ExpressionError(f"{what}: the {which} end is an expression, not an integer constant")
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ExpressionError(f"{what}: the {which} end {value!r} is not an integer")
    value = value.__index__()
    if not int64.min <= value <= int64.max:
        raise ExpressionError(f"{what}: the {which} end {value} does not fit int64")
    return value


def sum(expr, axis=None) -> Reduce:
    """The sum over one reduce axis or a tuple of them; of float16 and bfloat16, in float32."""
    return _reduce("sum", expr, axis)


def prod(expr, axis=None) -> Reduce:
    """The product over one reduce axis or a tuple of them; of float16 and bfloat16, in float32."""
    return _reduce("prod", expr, axis)


def min(expr, axis=None) -> Reduce:
    """The smallest value over one reduce axis or a tuple of them; NaN if there is one."""
    return _reduce("min", expr, axis)


def max(expr, axis=None) -> Reduce:
    """The largest value over one reduce axis or a tuple of them; NaN if there is one."""
    return _reduce("max", expr, axis)


def _reduce(reducer: str, expr, axis) -> Reduce:
    what = f"te.{reducer}"
    axes = _check_axes(reducer, axis)
    if isinstance(expr, Tensor):
        raise ExpressionError(
            f"{what}: the value is tensor {expr.name!r} itself; index it, {expr.name}[...]"
        )
    value = as_expr(expr)
    if value.dtype.is_bool:
        raise ExpressionError(f"{what}: the value is bool; cast it to a number")
    return Reduce(reducer, value, axes)


def _check_axes(reducer: str, axis) -> tuple[Axis, ...]:
    what = f"te.{reducer}"
    hint = f"; for two values use te.{reducer}imum" if reducer in ("min", "max") else ""
    if axis is None:
        raise ExpressionError(f"{what}: it reduces over axes, and axis= is missing{hint}")
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    if not axes:
        raise ExpressionError(f"{what}: axis is empty; give at least one te.reduce_axis")
    for one in axes:
        if not isinstance(one, Axis):
            given = f"a {one.dtype} expression" if isinstance(one, Expr) else repr(one)
            raise ExpressionError(f"{what}: axis is {given}, not a te.reduce_axis{hint}")
        if not one.is_reduce:
            raise ExpressionError(
                f"{what}: axis {one.name!r} is an axis of the result, not a te.reduce_axis{hint}"
            )
        if axes.count(one) > 1:
            raise ExpressionError(
                f"{what}: axis {one.name!r} is given twice; each axis is reduced once"
            )
    return axes
