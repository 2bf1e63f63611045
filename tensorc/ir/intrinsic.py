"""The table of intrinsics: for each name its arity, the dtypes that it takes, and its meaning in NumPy.

`intrinsics/` adds hardware instructions to it. Implementations belong to the code generators, looked up by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tensorc.dtypes import DType, bool_
from tensorc.errors import ExpressionError
from tensorc.ir.expr import Call, Expr, as_expr, match_dtypes


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """A pure function on scalars, lane by lane on vectors.

    `kinds` are the dtype kinds that it takes ("float", "int", "bool"). `result` gives the dtype of the call from that
    of its first argument, by default the same. `meaning` computes it on NumPy arrays; `reduces` marks the horizontal
    reductions, which take a vector to a scalar.
    """

    name: str
    arity: int
    kinds: tuple[str, ...]
    meaning: Callable
    result: Callable[[DType], DType] = lambda dtype: dtype
    reduces: bool = False


TABLE: dict[str, Intrinsic] = {}


def register(intrinsic: Intrinsic) -> Intrinsic:
    """Add an intrinsic to the table; a name may be taken once."""
    if intrinsic.name in TABLE:
        raise ExpressionError(f"intrinsic {intrinsic.name!r} is registered already")
    TABLE[intrinsic.name] = intrinsic
    return intrinsic


def call(name: str, *args) -> Expr:
    """A checked call; literals adopt the dtype of the other arguments."""
    intrinsic = TABLE.get(name)
    if intrinsic is None:
        raise ExpressionError(f"intrinsic {name!r} is unknown")
    if len(args) != intrinsic.arity:
        raise ExpressionError(f"{name} takes {intrinsic.arity} arguments, not {len(args)}")
    operands = [as_expr(args[0])] if len(args) == 1 else list(match_dtypes(name, args[0], args[1]))
    operands += [match_dtypes(name, operands[0], arg)[1] for arg in args[2:]]
    dtype = operands[0].dtype
    kind = "float" if dtype.is_float else "bool" if dtype.is_bool else "int"
    if kind not in intrinsic.kinds:
        raise ExpressionError(f"{name} takes {' or '.join(intrinsic.kinds)}, not {dtype}; cast the operand")
    return Call(name, tuple(operands), intrinsic.result(dtype))


def _as_bool(dtype: DType) -> DType:
    return bool_.with_lanes(dtype.lanes)


def _as_scalar(dtype: DType) -> DType:
    return dtype.scalar


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


_OF_FLOATS: dict[str, Callable] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "tanh": np.tanh,
    "erf": lambda x: _erf(x).astype(np.asarray(x).dtype),
    "sigmoid": _sigmoid,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,
}
for _name, _meaning in _OF_FLOATS.items():
    register(Intrinsic(_name, 1, ("float",), _meaning))

register(Intrinsic("abs", 1, ("float", "int"), np.abs))
for _name, _meaning in {"isnan": np.isnan, "isfinite": np.isfinite, "isinf": np.isinf}.items():
    register(Intrinsic(_name, 1, ("float",), _meaning, _as_bool))
for _name, _meaning in {"pow": np.power, "fmod": np.fmod, "copysign": np.copysign}.items():
    register(Intrinsic(_name, 2, ("float",), _meaning))

_REDUCTIONS: tuple[tuple[str, tuple[str, ...], Callable], ...] = (
    ("reduce_add", ("float", "int"), np.sum),
    ("reduce_mul", ("float", "int"), np.prod),
    ("reduce_min", ("float", "int"), np.min),
    ("reduce_max", ("float", "int"), np.max),
    ("reduce_and", ("bool",), np.all),
    ("reduce_or", ("bool",), np.any),
)
for _name, _kinds, _meaning in _REDUCTIONS:
    register(Intrinsic(_name, 1, _kinds, _meaning, _as_scalar, reduces=True))
