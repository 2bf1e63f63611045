"""The table of intrinsics: for each name its arity, the dtypes that it takes, and its meaning in NumPy.

`intrinsics/` adds hardware instructions to it. Implementations belong to the code generators, looked up by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tensorc.dtypes import DType, bool_
from tensorc.dtypes import dtype as as_dtype
from tensorc.errors import ExpressionError
from tensorc.ir.expr import Call, Expr, as_expr, match_dtypes


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """A pure function on scalars, lane by lane on vectors.

    `kinds` are the dtype kinds that it takes ("float", "int", "bool"). `result` gives the dtype of the call from that
    of its first argument, by default the same. `meaning` computes it on NumPy arrays; `reduces` marks the horizontal
    reductions, which take a vector to a scalar; `native` marks what depends on the float type itself. All else on
    floats is computed in float64 and rounded once.

    `whole` marks what takes vectors as such: its `meaning` is one of arrays of the operands' lanes. A hardware
    instruction gives the very dtypes of its `operands`, which may differ.
    """

    name: str
    arity: int
    kinds: tuple[str, ...]
    meaning: Callable
    result: Callable[[DType], DType] = lambda dtype: dtype
    reduces: bool = False
    native: bool = False
    whole: bool = False
    operands: tuple[DType, ...] = ()

    def problem(self, dtypes: Sequence[DType]) -> str | None:
        """What is wrong with operands of these dtypes, None if nothing is."""
        if len(dtypes) != self.arity:
            return f"{self.name} takes {self.arity} operands, not {len(dtypes)}"
        if self.operands:
            wanted = ", ".join(map(str, self.operands))
            given = ", ".join(map(str, dtypes))
            return None if wanted == given else f"{self.name} takes {wanted}, not {given}"
        first = dtypes[0]
        if any(dtype is not first for dtype in dtypes):
            return f"the operands of {self.name} are {' and '.join(map(str, dtypes))}"
        kind = "float" if first.is_float else "bool" if first.is_bool else "int"
        return None if kind in self.kinds else f"{self.name} takes {' or '.join(self.kinds)}, not {first}"


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
    if intrinsic.operands:
        given = tuple([as_expr(arg) for arg in args])
        problem = intrinsic.problem([arg.dtype for arg in given])
        if problem is not None:
            raise ExpressionError(problem)
        return Call(name, given, intrinsic.result(given[0].dtype))
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


def _as_bits(dtype: DType) -> DType:
    return as_dtype(f"uint{dtype.bits}").with_lanes(dtype.lanes)


def _as_float(dtype: DType) -> DType:
    if dtype.bits == 8:
        raise ExpressionError(f"bits_float takes 16, 32 or 64 bits, not {dtype}")
    return as_dtype(f"float{dtype.bits}").with_lanes(dtype.lanes)


_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def _sigmoid(x):
    power = np.exp(-np.abs(x))
    return np.where(x < 0, power, 1) / (1 + power)


def _exact_fma(a, b, c) -> float:
    exact = Fraction(a) * Fraction(b) + Fraction(c) if all(map(math.isfinite, (a, b, c))) else 0
    if not exact:
        return a * b + c  # which tells the sign of a zero
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _unsigned(x):
    x = np.asarray(x)
    return x.view(f"u{x.dtype.itemsize}")


def _clz(x):
    bits = _unsigned(x)
    lengths = np.vectorize(int.bit_length, otypes=[np.int64])(bits.astype(object))
    return 8 * bits.dtype.itemsize - lengths


def _truncdiv(a: int, b: int) -> int:
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _truncmod(a: int, b: int) -> int:
    return 0 if b == 0 else a - _truncdiv(a, b) * b


def _on_integers(function: Callable[[int, int], int]) -> Callable:
    return np.vectorize(lambda a, b: function(int(a), int(b)), otypes=[object])


def _ldexp(x, n):
    whole = np.rint(np.clip(np.nan_to_num(n), -5000, 5000)).astype(np.int64)
    return np.where(np.isnan(n), n, np.ldexp(x, whole))


_OF_FLOATS: dict[str, Callable] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "exp10": lambda x: np.power(10.0, x),
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "cbrt": np.cbrt,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": _erf,
    "erfc": _erfc,
    "sigmoid": _sigmoid,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,
    "nearbyint": np.rint,
}
for _name, _meaning in _OF_FLOATS.items():
    register(Intrinsic(_name, 1, ("float",), _meaning))

_OF_TWO_FLOATS: dict[str, Callable] = {
    "pow": np.power,
    "fmod": np.fmod,
    "copysign": np.copysign,
    "atan2": np.arctan2,
    "hypot": np.hypot,
    "logaddexp": np.logaddexp,
    "ldexp": _ldexp,
}
for _name, _meaning in _OF_TWO_FLOATS.items():
    register(Intrinsic(_name, 2, ("float",), _meaning))

register(Intrinsic("fma", 3, ("float",), np.vectorize(_exact_fma, otypes=[np.float64])))
register(Intrinsic("nextafter", 2, ("float",), np.nextafter, native=True))
register(Intrinsic("abs", 1, ("float", "int"), np.abs))
for _name, _meaning in {"isnan": np.isnan, "isfinite": np.isfinite, "isinf": np.isinf}.items():
    register(Intrinsic(_name, 1, ("float",), _meaning, _as_bool))

# The bits of a float as an unsigned integer of its width, and back.
register(Intrinsic("float_bits", 1, ("float",), _unsigned, _as_bits, native=True))
register(Intrinsic("bits_float", 1, ("int",), lambda x: x.view(f"f{x.dtype.itemsize}"), _as_float))
register(Intrinsic("popcount", 1, ("int",), lambda x: np.bitwise_count(_unsigned(x))))
register(Intrinsic("clz", 1, ("int",), _clz))
register(Intrinsic("truncdiv", 2, ("int",), _on_integers(_truncdiv)))
register(Intrinsic("truncmod", 2, ("int",), _on_integers(_truncmod)))

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


def _repeat(times: int) -> Intrinsic:
    """A vector one time after the other: `repeat.2` of lanes a, b, c, d is a, b, c, d, a, b, c, d."""

    def result(dtype: DType) -> DType:
        if dtype.bits == 64:  # the lanes of indices are what the simplifier takes apart
            raise ExpressionError(f"repeat.{times} takes 8, 16 or 32 bits, not {dtype}")
        return dtype.with_lanes(dtype.lanes * times)

    kinds = ("float", "int")
    return Intrinsic(f"repeat.{times}", 1, kinds, lambda lanes: np.tile(lanes, times), result, whole=True)


for _times in (2, 4, 8, 16):
    register(_repeat(_times))


def _interleaved(a, b, half: int):
    both = np.stack([a, b], axis=-1).ravel()
    return both[half * len(a) : (half + 1) * len(a)]


# Of the lanes of two vectors in turn, a0 b0 a1 b1 ..., the first half and the second one.
register(Intrinsic("interleave.low", 2, ("float", "int"), lambda a, b: _interleaved(a, b, 0), whole=True))
register(Intrinsic("interleave.high", 2, ("float", "int"), lambda a, b: _interleaved(a, b, 1), whole=True))
