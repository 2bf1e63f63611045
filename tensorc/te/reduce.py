"""Reductions: their axes, their node in an expression that is being written, and what makes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from tensorc.dtypes import DType, int64
from tensorc.errors import ExpressionError
from tensorc.ir.expr import (
    Const,
    Expr,
    IfThenElse,
    as_expr,
    as_index,
    if_then_else,
    logical_and,
    logical_or,
    minimum,
    node,
    sub,
)  # fmt: skip
from tensorc.ir.walk import children
from tensorc.te.reducer import (
    ALL,
    ANY,
    ARGMAX,
    ARGMIN,
    MAX,
    MIN,
    PROD,
    SUM,
    Reducer,
    counted,
    from_functions,
    reduction,
)  # fmt: skip
from tensorc.te.tensor import Axis, Tensor, check_extent, check_name, described, is_integer


@node
class Reduce(Expr):
    """One of `values` combined over `axes`; it lives only until `compute` makes a stage of it.

    A reducer of tuples combines all values at once; `item` is the one that this node stands for.
    `init` holds what the reduction starts from, empty for the reducer's identity.
    """

    reducer: Reducer
    values: tuple[Expr, ...]
    axes: tuple[Axis, ...]
    init: tuple[Expr, ...] = ()
    item: int = 0
    dtype: DType = field(init=False, repr=False)

    def __post_init__(self):
        object.__setattr__(self, "dtype", self.values[self.item].dtype)

    @property
    def operands(self) -> tuple[Expr, ...]:
        return (*self.values, *self.init)

    def with_operands(self, operands: tuple[Expr, ...]) -> Reduce:
        count = len(self.values)
        return Reduce(self.reducer, operands[:count], self.axes, operands[count:], self.item)

    def at(self, item: int) -> Reduce:
        """The node of another value of the same reduction."""
        return Reduce(self.reducer, self.values, self.axes, self.init, item)

    def guarded(self, condition: Expr) -> Reduce:
        """The reduction with the identity for every term, and for `init`, outside of a condition."""
        identities = self.reducer.identity(tuple([value.dtype for value in self.values]))
        return self.with_operands(
            tuple([
                IfThenElse(condition, value, identity)
                for value, identity in zip(self.operands, (*identities, *identities))
            ])
        )  # fmt: skip


def free_axes(expr: Expr) -> set[Axis]:
    """The axes that an expression reads and does not reduce."""
    if isinstance(expr, Axis):
        return {expr}
    free: set[Axis] = set()
    for operand in children(expr):
        free |= free_axes(operand)
    if type(expr) is not Reduce:
        return free
    for axis in expr.axes:
        free |= free_axes(axis.extent) | free_axes(as_index(axis.start))
    return free - set(expr.axes)


def reduce_axis(extent, name: str | None = None) -> Axis:
    """An iterator to reduce over: 0 .. extent - 1, or lo .. hi - 1 for a pair (lo, hi).

    The ends may depend on iterators of the compute that the reduction stands in, on other reduce
    axes before it, and on data: `(start[i], start[i + 1])`. Where the range is empty, and be it that
    hi is less than lo, nothing is reduced. An axis without a name is called "k", with a suffix where
    that is taken. Raises ExpressionError for an extent that is negative or no integer.
    """
    is_named = name is not None
    name = "k" if name is None else check_name("reduce_axis", name)
    start: int | Expr = 0
    if isinstance(extent, (tuple, list)):
        start, extent = _from_range(name, extent)
    extent = check_extent(f"reduce_axis {name!r}", extent, varies=True)
    return Axis(name, extent, start, True, is_named)


def _from_range(name: str, pair) -> tuple[int | Expr, int | Expr]:
    """The start and the extent of the range (lo, hi)."""
    what = f"reduce_axis {name!r}"
    if len(pair) != 2:
        raise ExpressionError(f"{what}: a range has two ends, (lo, hi), not {len(pair)}")
    lo = _end(what, "lower", pair[0])
    hi = _end(what, "upper", pair[1])
    if isinstance(lo, Expr) or isinstance(hi, Expr):
        return lo, sub(hi, lo)
    if hi < lo:
        raise ExpressionError(f"{what}: the range ({lo}, {hi}) ends before it starts")
    return lo, hi - lo


def _end(what: str, which: str, value) -> int | Expr:
    value = value.value if type(value) is Const else value
    if isinstance(value, Expr):
        if value.dtype.name == "uint64":  # what no int64 is makes a range that is refused as too long, not an empty one
            return as_index(minimum(value, Const(int64.max, value.dtype)))
        if value.dtype.is_int:
            return as_index(value)
        raise ExpressionError(f"{what}: the {which} end is {value.dtype}, not an integer")
    if not is_integer(value):
        raise ExpressionError(f"{what}: the {which} end {value!r} is not an integer")
    value = value.__index__()
    if not int64.min <= value <= int64.max:
        raise ExpressionError(f"{what}: the {which} end {value} does not fit int64")
    return value


def sum(expr, axis=None, where=None, init=None) -> Reduce:
    """The sum over one reduce axis or a tuple of them; of float16 and bfloat16, in float32.

    As for every reducer, only terms for which the condition `where` holds count, and `init`, an
    expression without the axes, is what the reduction starts from.
    """
    return _reduce(SUM, expr, axis, where, init)


def prod(expr, axis=None, where=None, init=None) -> Reduce:
    """The product over one reduce axis or a tuple of them; of float16 and bfloat16, in float32."""
    return _reduce(PROD, expr, axis, where, init)


def min(expr, axis=None, where=None, init=None) -> Reduce:
    """The smallest value over one reduce axis or a tuple of them; NaN if there is one."""
    return _reduce(MIN, expr, axis, where, init)


def max(expr, axis=None, where=None, init=None) -> Reduce:
    """The largest value over one reduce axis or a tuple of them; NaN if there is one."""
    return _reduce(MAX, expr, axis, where, init)


def all(*conditions, axis=None, where=None, init=None) -> Expr:
    """Whether all conditions hold, every one being evaluated; with `axis`, one condition everywhere
    along one reduce axis or a tuple of them."""
    return _logic("te.all", ALL, logical_and, conditions, axis, where, init)


def any(*conditions, axis=None, where=None, init=None) -> Expr:
    """Whether any condition holds, every one being evaluated; with `axis`, one condition anywhere
    along one reduce axis or a tuple of them."""
    return _logic("te.any", ANY, logical_or, conditions, axis, where, init)


def argmin(expr, axis=None, where=None, init=None, value: bool = False):
    """The index of the smallest value: of the first NaN if there is one, of equals the smallest.

    An int64: the value of the reduce axis there, or for a tuple of axes the row-major position,
    counted from 0. With `value`, the pair (index, value), whose `init` is such a pair, too. Where
    no term counts (`where` never holds, or a symbolic axis is empty), the index is the largest
    int64.
    """
    return _best(ARGMIN, expr, axis, where, init, value)


def argmax(expr, axis=None, where=None, init=None, value: bool = False):
    """The index of the largest value, else as `argmin`."""
    return _best(ARGMAX, expr, axis, where, init, value)


def comm_reducer(fcombine, fidentity, name: str = "reduce") -> Callable:
    """A reducer of your own: `r(expr, axis=, where=, init=)`, where `expr` may be a tuple.

    `fcombine(x, y)` merges two partial results and must be associative and commutative;
    `fidentity(dtype)` gives the constant that changes nothing. For a tuple of n expressions x, y
    and what fcombine returns are tuples, fidentity takes n dtypes, and `r` returns n expressions,
    which may have different dtypes. Raises ExpressionError as `r` is called with what they do not
    fit.
    """
    check_name("comm_reducer", name)
    for what, function in (("fcombine", fcombine), ("fidentity", fidentity)):
        if not callable(function):
            raise ExpressionError(f"comm_reducer {name!r}: {what} {described(function)} is not callable")
    reducer = from_functions(fcombine, fidentity, name)

    def reduce(expr, axis=None, where=None, init=None):
        if not isinstance(expr, (tuple, list)):
            return _reduce(reducer, expr, axis, where, init, allow_bool=True)
        if not expr:
            raise ExpressionError(f"te.{name}: the tuple of values is empty")
        values = tuple([_value(f"te.{name}", each) for each in expr])
        axes = _check_axes(name, axis)
        first = _node(reducer, values, axes, where, init)
        return tuple([first.at(item) for item in range(len(values))])

    reduce.__name__ = reduce.__qualname__ = name
    return reduce


def _logic(what: str, reducer: Reducer, operation, conditions, axis, where, init) -> Expr:
    if axis is None:
        if where is not None or init is not None:
            raise ExpressionError(f"{what}: where= and init= belong to a reduction; give axis=")
        return operation(*conditions)
    if len(conditions) != 1:
        raise ExpressionError(
            f"{what}: it reduces one condition over axes, not {len(conditions)}; join them first"
        )
    value = _value(what, conditions[0])
    if not value.dtype.is_bool:
        raise ExpressionError(f"{what}: the value is {value.dtype}, not bool; compare it")
    return _node(reducer, (value,), _check_axes(reducer.name, axis), where, init)


def _best(reducer: Reducer, expr, axis, where, init, value: bool):
    what = f"te.{reducer.name}"
    axes = _check_axes(reducer.name, axis)
    term = _value(what, expr)
    _refuse_bool(what, term)
    for one in axes:
        if type(one.extent) is Const and one.extent.value == 0 and init is None:
            raise ExpressionError(
                f"{what}: axis {one.name!r} is empty, and there is no index to give; give init="
            )
    first = _node(reducer, (_position(axes), term), axes, where, init)
    return (first, first.at(1)) if value else first


def _position(axes: tuple[Axis, ...]) -> Expr:
    """The value of one axis, or the row-major position in several, counted from 0."""
    if len(axes) == 1:
        return axes[0]
    position: Expr = axes[0] - axes[0].start
    for axis in axes[1:]:
        position = position * axis.extent + (axis - axis.start)
    return position


def _reduce(reducer: Reducer, expr, axis, where, init, allow_bool: bool = False) -> Reduce:
    what = f"te.{reducer.name}"
    axes = _check_axes(reducer.name, axis)
    value = _value(what, expr)
    if not allow_bool:
        _refuse_bool(what, value)
    return _node(reducer, (value,), axes, where, init)


def _value(what: str, expr) -> Expr:
    if isinstance(expr, Tensor):
        raise ExpressionError(
            f"{what}: the value is tensor {expr.name!r} itself; index it, {expr.name}[...]"
        )
    return as_expr(expr)


def _refuse_bool(what: str, value: Expr) -> None:
    if value.dtype.is_bool:
        raise ExpressionError(f"{what}: the value is bool; cast it to a number")


def _node(reducer: Reducer, values: tuple[Expr, ...], axes, where, init) -> Reduce:
    what = f"te.{reducer.name}"
    dtypes = tuple([value.dtype for value in values])
    identities = reduction(reducer, dtypes).identities
    if where is not None:
        condition = _value(what, where)
        if not condition.dtype.is_bool:
            raise ExpressionError(f"{what}: where is {condition.dtype}, not a condition")
        values = tuple([if_then_else(condition, v, i) for v, i in zip(values, identities)])
    return Reduce(reducer, values, axes, () if init is None else _init(what, init, dtypes, axes))


def _init(what: str, init, dtypes: tuple[DType, ...], axes: tuple[Axis, ...]) -> tuple[Expr, ...]:
    given = tuple(init) if isinstance(init, (tuple, list)) else (init,)
    if len(given) != len(dtypes):
        raise ExpressionError(
            f"{what}: init has {counted(len(given))}, the reduction takes {counted(len(dtypes))}"
        )
    exprs = []
    for value, dtype in zip(given, dtypes):
        expr = value if isinstance(value, (Expr, Tensor)) else as_expr(value, dtype)
        expr = _value(what, expr)
        if expr.dtype is not dtype:
            raise ExpressionError(f"{what}: init is {expr.dtype}, the value {dtype}; cast it")
        own = free_axes(expr) & set(axes)
        if own:
            name = next(axis.name for axis in axes if axis in own)
            raise ExpressionError(
                f"{what}: init reads axis {name!r}; it is the value before the first term"
            )
        exprs.append(expr)
    return tuple(exprs)


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
            given = f"a {one.dtype} expression" if isinstance(one, Expr) else described(one)
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
