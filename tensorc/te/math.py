"""Scalar functions for the bodies of definitions; literals adopt the dtype beside them."""

from __future__ import annotations

from collections.abc import Callable

from tensorc.dtypes import DType
from tensorc.dtypes import dtype as as_dtype
from tensorc.ir.expr import (
    Cast,
    Const,
    Expr,
    as_expr,
    eq,
    floordiv,
    if_then_else,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
    mod,
    ne,
    select,
)
from tensorc.ir.expr import cast as ir_cast
from tensorc.ir.expr import const as ir_const
from tensorc.ir.intrinsic import call

__all__ = [
    "abs",
    "cast",
    "ceil",
    "const",
    "copysign",
    "cos",
    "eq",
    "erf",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "floordiv",
    "fmod",
    "ge",
    "gt",
    "if_then_else",
    "isfinite",
    "isinf",
    "isnan",
    "le",
    "log",
    "log1p",
    "log2",
    "log10",
    "logical_and",
    "logical_not",
    "logical_or",
    "lt",
    "max_value",
    "maximum",
    "min_value",
    "minimum",
    "mod",
    "ne",
    "pow",
    "round",
    "select",
    "sigmoid",
    "sin",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
]


def const(value, dtype: DType | str | None = None) -> Expr:
    """The literal `value`, by default int64, float32 or bool. It must fit; else ExpressionError."""
    return as_expr(value) if dtype is None else ir_const(value, dtype)


def cast(value, dtype: DType | str) -> Expr:
    """`value` converted to a dtype; a literal is converted at once.

    To float16 and bfloat16 this is a rounding, also of what has the type: such an expression is else
    computed in float32 as far as to where it is stored.
    """
    result = ir_cast(value, dtype)
    computed = result is value and result.dtype.is_float and result.dtype.bits == 16
    return Cast(result, result.dtype) if computed else result


def min_value(dtype: DType | str) -> Const:
    """The smallest value of a dtype: -inf for floats."""
    return ir_const(as_dtype(dtype).min, dtype)


def max_value(dtype: DType | str) -> Const:
    """The largest value of a dtype: inf for floats."""
    return ir_const(as_dtype(dtype).max, dtype)


def lt(a, b) -> Expr:
    """a < b, also where `a` is a number."""
    return as_expr(a, _dtype_of(b)) < b


def le(a, b) -> Expr:
    """a <= b, also where `a` is a number."""
    return as_expr(a, _dtype_of(b)) <= b


def gt(a, b) -> Expr:
    """a > b, also where `a` is a number."""
    return as_expr(a, _dtype_of(b)) > b


def ge(a, b) -> Expr:
    """a >= b, also where `a` is a number."""
    return as_expr(a, _dtype_of(b)) >= b


def _dtype_of(value) -> DType | None:
    return value.dtype if isinstance(value, Expr) else None


def _unary(name: str, doc: str) -> Callable[[object], Expr]:
    def function(x) -> Expr:
        return call(name, x)

    return _named(function, name, doc)


def _binary(name: str, doc: str) -> Callable[[object, object], Expr]:
    def function(a, b) -> Expr:
        return call(name, a, b)

    return _named(function, name, doc)


def _named(function: Callable, name: str, doc: str) -> Callable:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


abs = _unary("abs", "The absolute value of an integer or a float.")
ceil = _unary("ceil", "The smallest whole number that is not less, as a float.")
cos = _unary("cos", "The cosine of radians.")
erf = _unary("erf", "The error function.")
exp = _unary("exp", "e**x.")
exp2 = _unary("exp2", "2**x.")
expm1 = _unary("expm1", "e**x - 1, exact near 0.")
floor = _unary("floor", "The largest whole number that is not more, as a float.")
isfinite = _unary("isfinite", "Whether a float is neither NaN nor infinite.")
isinf = _unary("isinf", "Whether a float is infinite.")
isnan = _unary("isnan", "Whether a float is NaN.")
log = _unary("log", "The natural logarithm.")
log10 = _unary("log10", "The logarithm to base 10.")
log1p = _unary("log1p", "log(1 + x), exact near 0.")
log2 = _unary("log2", "The logarithm to base 2.")
round = _unary("round", "The nearest whole number, of two the even one, as a float.")
sigmoid = _unary("sigmoid", "1 / (1 + e**-x).")
sin = _unary("sin", "The sine of radians.")
sqrt = _unary("sqrt", "The square root; NaN for negative numbers.")
tan = _unary("tan", "The tangent of radians.")
tanh = _unary("tanh", "The hyperbolic tangent.")
trunc = _unary("trunc", "The whole part, as a float.")
copysign = _binary("copysign", "The magnitude of a with the sign of b.")
fmod = _binary("fmod", "The remainder of a / b with the sign of a.")
pow = _binary("pow", "a**b of floats.")
