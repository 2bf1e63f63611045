"""Reducers: how two partial results combine, and what a reduction starts from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tensorc.dtypes import DType
from tensorc.errors import ExpressionError
from tensorc.ir.expr import (
    Add,
    And,
    Const,
    Expr,
    Max,
    Min,
    Mul,
    Or,
    Var,
    as_expr,
    const,
    eq,
    logical_and,
    logical_not,
    logical_or,
    select,
)  # fmt: skip
from tensorc.ir.intrinsic import call
from tensorc.ir.walk import walk_expr

Values = tuple[Expr, ...]
INT64_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Reducer:
    """`combine` merges two partial results, `identity` gives the one that changes nothing.

    Partial results are tuples; of a reducer that is not of a tuple, of one element. Combining must
    be associative and commutative: schedules reorder it.
    """

    name: str
    combine: Callable[[Values, Values], Values]
    identity: Callable[[tuple[DType, ...]], tuple[Const, ...]]


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reducer at given dtypes: `combined` merges the variables `old` with the variables `new`."""

    name: str
    old: tuple[Var, ...]
    new: tuple[Var, ...]
    combined: tuple[Expr, ...]
    identities: tuple[Const, ...]


def reduction(reducer: Reducer, dtypes: tuple[DType, ...]) -> Reduction:
    """The reducer at these dtypes. Raises ExpressionError where its functions do not fit them."""
    old = tuple([Var(f"x{n}", dtype) for n, dtype in enumerate(dtypes)])
    new = tuple([Var(f"y{n}", dtype) for n, dtype in enumerate(dtypes)])
    combined = reducer.combine(old, new)
    return Reduction(reducer.name, old, new, combined, reducer.identity(dtypes))


def _of_operation(name: str, operation, identity: Callable[[DType], object]) -> Reducer:
    return Reducer(
        name,
        lambda x, y: (operation(x[0], y[0]),),
        lambda dtypes: (const(identity(dtypes[0]), dtypes[0]),),
    )


def _of_best(name: str, is_better: Callable[[Expr, Expr], Expr], worst) -> Reducer:
    """Pairs (index, value): the better value wins, a NaN before all; of equals, the first."""

    def combine(x: Values, y: Values) -> Values:
        ahead, equal = is_better(x[1], y[1]), eq(x[1], y[1])
        if x[1].dtype.is_float:
            is_nan = call("isnan", x[1])
            ahead = logical_or(ahead, is_nan)
            equal = logical_or(equal, logical_and(is_nan, call("isnan", y[1])))
        yields = select(equal, y[0] < x[0], logical_not(ahead))  # vectors take what is new by a mask
        return select(yields, y[0], x[0]), select(yields, y[1], x[1])

    def identity(dtypes: tuple[DType, ...]) -> tuple[Const, ...]:
        return const(INT64_MAX, dtypes[0]), const(worst(dtypes[1]), dtypes[1])

    return Reducer(name, combine, identity)


SUM = _of_operation("sum", Add, lambda dtype: 0)
PROD = _of_operation("prod", Mul, lambda dtype: 1)
MIN = _of_operation("min", Min, lambda dtype: dtype.max)
MAX = _of_operation("max", Max, lambda dtype: dtype.min)
ANY = _of_operation("any", Or, lambda dtype: False)
ALL = _of_operation("all", And, lambda dtype: True)
ARGMIN = _of_best("argmin", lambda a, b: a < b, lambda dtype: dtype.max)
ARGMAX = _of_best("argmax", lambda a, b: a > b, lambda dtype: dtype.min)


def from_functions(fcombine, fidentity, name: str) -> Reducer:
    """The reducer of a user's two functions; what they return is checked as they are called."""
    what = f"comm_reducer {name!r}"

    def combine(x: Values, y: Values) -> Values:
        result = fcombine(x[0], y[0]) if len(x) == 1 else fcombine(x, y)
        values = _as_tuple(what, "fcombine", result, len(x))
        dtypes = [var.dtype for var in x]
        checked = [_expression(what, "fcombine", v, d) for v, d in zip(values, dtypes)]
        for expr in checked:
            _check_closed(what, expr, {*x, *y})
        return tuple(checked)

    def identity(dtypes: tuple[DType, ...]) -> tuple[Const, ...]:
        values = _as_tuple(what, "fidentity", fidentity(*dtypes), len(dtypes))
        checked = [_expression(what, "fidentity", v, d) for v, d in zip(values, dtypes)]
        constants = tuple([expr for expr in checked if type(expr) is Const])
        if len(constants) < len(checked):
            raise ExpressionError(f"{what}: fidentity gives an expression that is no constant")
        return constants

    return Reducer(name, combine, identity)


def _as_tuple(what: str, function: str, result, count: int) -> tuple:
    values = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    if len(values) != count:
        raise ExpressionError(
            f"{what}: {function} gives {counted(len(values))}, the reduction takes {counted(count)}"
        )
    return values


def counted(number: int) -> str:
    """So many values, in words."""
    return "1 value" if number == 1 else f"{number} values"


def _expression(what: str, function: str, value, dtype: DType) -> Expr:
    try:
        expr = as_expr(value, dtype)
    except ExpressionError as error:
        raise ExpressionError(f"{what}: {function}: {error}") from None
    if expr.dtype is not dtype:
        raise ExpressionError(
            f"{what}: {function} gives {expr.dtype} where {dtype} is reduced; cast it"
        )
    return expr


def _check_closed(what: str, expr: Expr, own: set[Expr]) -> None:
    for inner in walk_expr(expr):
        if isinstance(inner, Var) and inner not in own:
            raise ExpressionError(
                f"{what}: fcombine reads {inner.name!r}; it may read its two arguments only"
            )
        if not isinstance(inner, Var) and hasattr(inner, "buffer"):
            raise ExpressionError(
                f"{what}: fcombine reads tensor {inner.buffer.name!r}; it may read its two "
                "arguments only"
            )
        if hasattr(inner, "axes"):
            raise ExpressionError(f"{what}: fcombine holds a reduction; it combines two values")
