"""Functions of each element, and of an element and a vector's element that belongs to its column or channel."""

from __future__ import annotations

import math
from collections.abc import Callable

from tensorc import te
from tensorc.errors import ExpressionError
from tensorc.ir.expr import Expr
from tensorc.ops.checks import check_is_tensor, check_same_dtype, check_vectors, compute, shown
from tensorc.te import Tensor

SQRT_HALF = 0.5**0.5
SQRT_2_BY_PI = (2 / math.pi) ** 0.5


def elementwise(function: Callable[[Expr], Expr], data: Tensor, name: str = "elementwise") -> Tensor:
    """`function(x)` for each element x of `data`, of any shape: `ops.elementwise(te.exp, X)`."""
    check_is_tensor(f"elementwise {name!r}", "data", data)
    return compute(data.shape, lambda *i: function(data[i]), name=name)


def relu(data: Tensor, name: str = "relu") -> Tensor:
    """max(x, 0) for each element x of `data`, of any shape."""
    return elementwise(lambda x: te.maximum(x, te.const(0, x.dtype)), data, name)


def gelu(data: Tensor, approximate: str = "none", name: str = "gelu") -> Tensor:
    """x * Phi(x) for each element x of `data`, of any shape; Phi is the distribution function of the normal
    distribution. With `approximate="tanh"`, the usual formula by tanh in its place.

    Raises ExpressionError for any other word, and for elements that are no floats.
    """
    match approximate:
        case "none":
            return elementwise(lambda x: x * 0.5 * (te.erf(x * SQRT_HALF) + 1.0), data, name)
        case "tanh":
            inner = lambda x: (x + x * x * x * 0.044715) * SQRT_2_BY_PI
            return elementwise(lambda x: x * 0.5 * (te.tanh(inner(x)) + 1.0), data, name)
    raise ExpressionError(f"gelu {name!r}: approximate={approximate!r} is neither 'none' nor 'tanh'")


def add(a: Tensor, b: Tensor, name: str = "add") -> Tensor:
    """a + b, element by element; both have the same shape and dtype. Raises ExpressionError where they do not."""
    what = f"add {name!r}"
    check_is_tensor(what, "a", a)
    check_is_tensor(what, "b", b)
    check_same_dtype(what, a, b)
    if a.shape != b.shape:
        shapes = [f"({', '.join(map(shown, tensor.shape))})" for tensor in (a, b)]
        raise ExpressionError(f"{what}: {a.name!r} has shape {shapes[0]}, {b.name!r} has {shapes[1]}; they must agree")
    return compute(a.shape, lambda *i: a[i] + b[i], name=name)


def bias_add(data: Tensor, bias: Tensor, axis: int = -1, name: str = "bias_add") -> Tensor:
    """`data`, of any shape, with the vector `bias` added along dimension `axis`.

    Raises ExpressionError where `bias` is no vector of that extent, or has another dtype.
    """
    what = f"bias_add {name!r}"
    at = check_vectors(what, data, axis, bias=bias)
    return compute(data.shape, lambda *i: data[i] + bias[i[at]], name=name)


def scale_shift(data: Tensor, scale: Tensor, shift: Tensor, axis: int = -1, name: str = "scale_shift") -> Tensor:
    """`data * scale + shift` with vectors along dimension `axis`: what batch normalisation is at inference.

    Raises ExpressionError where they are no vectors of that extent, or have another dtype.
    """
    what = f"scale_shift {name!r}"
    at = check_vectors(what, data, axis, scale=scale, shift=shift)
    return compute(data.shape, lambda *i: data[i] * scale[i[at]] + shift[i[at]], name=name)
