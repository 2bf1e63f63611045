"""NumPy's functions on expressions: what stands for them."""

from __future__ import annotations

__all__ = ["NAMES", "advice"]

NAMES = {  # of functions of te, by those of NumPy
    "absolute": "abs",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "bitwise_count": "popcount",
    "fabs": "abs",
    "float_power": "pow",
    "fmax": "maximum",
    "fmin": "minimum",
    "rint": "round",
    **{
        name: name
        for name in """
            cbrt ceil copysign cos cosh exp exp2 expm1 floor fmod hypot isfinite isinf isnan ldexp log log10 log1p log2
            logaddexp logical_and logical_not logical_or maximum minimum nextafter sin sinh sqrt tan tanh trunc
        """.split()
    },
}


def advice(name: str, method: str) -> str:
    """Why a ufunc cannot be called with an expression, and what can."""
    if method != "__call__":
        name, wanted = f"{name}.{method}", "use te.sum or its kin over a te.reduce_axis"
    elif name in NAMES:
        wanted = f"use te.{NAMES[name]}"
    else:
        wanted = "use the operators and the functions of te"
    return f"np.{name}: NumPy cannot compute with an expression; {wanted}"
