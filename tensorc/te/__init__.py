"""Tensor expressions: what a kernel computes, one function of the indices a tensor.

    A = te.placeholder((M, K), "float32", name="A")
    B = te.placeholder((K, N), "float32", name="B")
    k = te.reduce_axis(K, name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
"""

from tensorc.te.canonical import canonical_text
from tensorc.te.definition import compute
from tensorc.te.lower import lower
from tensorc.te.math import (
    abs, all, any, cast, ceil, const, copysign, cos, eq, erf, exp, exp2, expm1, floor, floordiv, fmod, ge, gt,
    if_then_else, isfinite, isinf, isnan, le, log, log1p, log2, log10, logical_and, logical_not, logical_or, lt,
    max_value, maximum, min_value, minimum, mod, ne, pow, round, select, sigmoid, sin, sqrt, tan, tanh, trunc,
)  # fmt: skip
from tensorc.te.reduce import max, min, prod, reduce_axis, sum
from tensorc.te.tensor import Tensor, placeholder, var

__all__ = [
    "Tensor", "abs", "all", "any", "canonical_text", "cast", "ceil", "compute", "const", "copysign", "cos", "eq",
    "erf", "exp", "exp2", "expm1", "floor", "floordiv", "fmod", "ge", "gt", "if_then_else", "isfinite", "isinf",
    "isnan", "le", "log", "log10", "log1p", "log2", "logical_and", "logical_not", "logical_or", "lower", "lt", "max",
    "max_value", "maximum", "min", "min_value", "minimum", "mod", "ne", "placeholder", "pow", "prod", "reduce_axis",
    "round", "select", "sigmoid", "sin", "sqrt", "sum", "tan", "tanh", "trunc", "var",
]  # fmt: skip
