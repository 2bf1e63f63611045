"""Scalar functions for the bodies of definitions; literals adopt the dtype beside them."""

from __future__ import annotations

from collections.abc import Callable

from tensorc.dtypes import DType, int32, int64
from tensorc.dtypes import dtype as as_dtype
from tensorc.errors import ExpressionError, UnsupportedError
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
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cast",
    "cbrt",
    "ceil",
    "ceildiv",
    "clz",
    "const",
    "copysign",
    "cos",
    "cosh",
    "eq",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "exp10",
    "expm1",
    "floor",
    "floordiv",
    "floormod",
    "fma",
    "fmod",
    "ge",
    "gt",
    "hypot",
    "if_then_else",
    "isfinite",
    "isinf",
    "isnan",
    "ldexp",
    "le",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
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
    "nearbyint",
    "nextafter",
    "popcount",
    "pow",
    "power",
    "q_multiply_shift",
    "reinterpret",
    "round",
    "rsqrt",
    "select",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
    "truncdiv",
    "truncmod",
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
acos = _unary("acos", "The angle in radians, 0 to pi, that has this cosine; NaN outside -1 .. 1.")
acosh = _unary("acosh", "The inverse hyperbolic cosine; NaN below 1.")
asin = _unary("asin", "The angle in radians, -pi/2 to pi/2, that has this sine; NaN outside -1 .. 1.")
asinh = _unary("asinh", "The inverse hyperbolic sine.")
atan = _unary("atan", "The angle in radians, -pi/2 to pi/2, that has this tangent.")
atanh = _unary("atanh", "The inverse hyperbolic tangent; NaN outside -1 .. 1.")
cbrt = _unary("cbrt", "The cube root, also of negative numbers.")
ceil = _unary("ceil", "The smallest whole number that is not less, as a float.")
clz = _unary("clz", "How many bits of an integer are 0 above its highest 1; all for 0.")
cos = _unary("cos", "The cosine of radians.")
cosh = _unary("cosh", "The hyperbolic cosine.")
erf = _unary("erf", "The error function.")
erfc = _unary("erfc", "1 - erf(x), exact where that is small.")
exp = _unary("exp", "e**x.")
exp10 = _unary("exp10", "10**x.")
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
nearbyint = _unary("nearbyint", "As `round`.")
popcount = _unary("popcount", "How many bits of an integer are 1.")
round = _unary("round", "The nearest whole number, of two the even one, as a float.")
rsqrt = _unary("rsqrt", "1 / sqrt(x).")
sigmoid = _unary("sigmoid", "1 / (1 + e**-x).")
sin = _unary("sin", "The sine of radians.")
sinh = _unary("sinh", "The hyperbolic sine.")
sqrt = _unary("sqrt", "The square root; NaN for negative numbers.")
tan = _unary("tan", "The tangent of radians.")
tanh = _unary("tanh", "The hyperbolic tangent.")
trunc = _unary("trunc", "The whole part, as a float.")
atan2 = _binary("atan2", "The angle in radians, -pi to pi, of the point (x, y) = (b, a).")
copysign = _binary("copysign", "The magnitude of a with the sign of b.")
fmod = _binary("fmod", "The remainder of a / b with the sign of a.")
hypot = _binary("hypot", "sqrt(a * a + b * b) without overflow in between.")
logaddexp = _binary("logaddexp", "log(e**a + e**b) without overflow in between.")
nextafter = _binary("nextafter", "The next float after a on the way to b.")
pow = _binary("pow", "a**b of floats.")
truncdiv = _binary("truncdiv", "a / b of integers rounded toward 0; 0 where b is 0.")
truncmod = _binary("truncmod", "The remainder of `truncdiv`, with the sign of a.")
power = pow
floormod = mod


def fma(a, b, c) -> Expr:
    """a * b + c of floats, rounded once."""
    return call("fma", a, b, c)


def ldexp(x, exponent) -> Expr:
    """x * 2**exponent of a float and an integer, rounded once."""
    x, exponent = as_expr(x), as_expr(exponent)
    return call("ldexp", x, cast(exponent, x.dtype))


def ceildiv(a, b) -> Expr:
    """a / b of integers rounded up."""
    return -floordiv(-as_expr(a, _dtype_of(b)), b)


def reinterpret(x, dtype: DType | str) -> Expr:
    """The value of another dtype of as many bits that has the same bits; not of bool or bfloat16."""
    x, dtype = as_expr(x), as_dtype(dtype)
    for kind in (x.dtype, dtype):
        if kind.is_bool or kind.kind == "bfloat":
            raise UnsupportedError(f"reinterpret({x.dtype} as {dtype}): the bits of {kind} have no number")
    if x.dtype.bits != dtype.bits:
        raise ExpressionError(f"reinterpret({x.dtype} as {dtype}): {x.dtype.bits} bits are not {dtype.bits}")
    if x.dtype is dtype:
        return x
    bits = call("float_bits", x) if x.dtype.is_float else x
    return call("bits_float", bits) if dtype.is_float else cast(bits, dtype)


def q_multiply_shift(x, y, q: int, shift) -> Expr:
    """x * y * 2**(shift - q) of int32, rounded to nearest, a half up: a fixed-point product.

    `q` and `shift` are such that 0 < q - shift < 63; the product is exact in int64.
    """
    amount = as_expr(q) - shift
    product = cast(as_expr(x, int32), int64) * cast(as_expr(y, int32), int64)
    return cast((product + (as_expr(1) << (amount - 1))) >> amount, int32)
