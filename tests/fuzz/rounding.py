"""Values with a bound of how far rounding may have moved them, and what operations make of both.

Floats are in extended precision. Where a bound is 0 the value is known bit for bit, but for the sign
of a zero; where it is infinite, nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import ml_dtypes
import numpy as np

from tensorc.dtypes import DType
from tensorc.ir import expr as ir
from tensorc.ir.intrinsic import TABLE

WIDE = np.longdouble
EXACT = WIDE(0)
UNKNOWN = WIDE("inf")
ULPS = {"exp": 2, "log": 2}  # of an intrinsic's result; the others 4
_COMPARE = {
    ir.EQ: np.equal, ir.NE: np.not_equal, ir.LT: np.less, ir.LE: np.less_equal,
    ir.GT: np.greater, ir.GE: np.greater_equal,
}  # fmt: skip
_PLAIN = {
    ir.Add: np.add, ir.Sub: np.subtract, ir.Mul: np.multiply, ir.Div: np.divide,
    ir.Min: np.minimum, ir.Max: np.maximum, ir.FloorDiv: np.floor_divide, ir.Mod: np.remainder,
    ir.BitAnd: np.bitwise_and, ir.BitOr: np.bitwise_or, ir.BitXor: np.bitwise_xor,
    ir.And: np.logical_and, ir.Or: np.logical_or,
}  # fmt: skip
_WHOLE = ("floor", "ceil", "trunc", "round", "nearbyint")


@dataclass(frozen=True)
class Value:
    value: np.ndarray
    error: np.ndarray  # 0 or more; of integers and bools 0 or infinite


@dataclass(frozen=True)
class Limits:
    """What finfo says of a float type, as numbers."""

    eps: np.longdouble
    max: np.longdouble
    tiny: np.longdouble
    smallest_subnormal: np.longdouble
    nmant: int
    minexp: int


@cache
def limits(dtype: DType) -> Limits:
    info = ml_dtypes.finfo(dtype.numpy)
    ends = (info.eps, info.max, info.tiny, info.smallest_subnormal)
    return Limits(*map(WIDE, ends), int(info.nmant), int(info.minexp))


def narrowed(value, dtype: DType) -> np.ndarray:
    """Floats rounded once to a type, the nearest and of two the even one, in extended precision."""
    value = np.asarray(value, WIDE)
    if dtype.bits > 16:
        return value.astype(dtype.numpy).astype(WIDE)
    info = limits(dtype)
    exponent = np.maximum(np.frexp(value)[1] - 1, info.minexp) - info.nmant
    whole = np.ldexp(np.rint(np.ldexp(value, -exponent)), exponent)
    whole = np.where(abs(whole) > info.max, np.copysign(UNKNOWN, whole), whole)
    return np.where(np.isfinite(value), whole, value)


def binary(cls: type, a: Value, b: Value, dtype: DType, contracts: bool) -> Value:
    """An operation on operands of a type; where it `contracts`, a product may go into a sum unrounded."""
    if cls in _COMPARE:
        return _compare(cls, a, b, dtype)
    if not dtype.is_float:
        return Value(_integer(cls, a.value, b.value, dtype), _either(a.error, b.error))
    value = _PLAIN[cls](a.value, b.value)
    if cls in (ir.Min, ir.Max):
        return Value(value, np.maximum(a.error, b.error))
    if cls is ir.Mul:
        error = _times(a.error, abs(b.value) + b.error) + _times(b.error, abs(a.value))
        if contracts:
            return _rounded(value, error, dtype)
    elif cls is ir.Div:
        error = _quotient_error(a, b, value)
    else:
        error = a.error + b.error
    native = _PLAIN[cls](*[x.value.astype(_computed_in(dtype)) for x in (a, b)])
    return _rounded(value, error, dtype, narrowed(native, dtype))


def _computed_in(dtype: DType) -> type:
    return np.float32 if dtype.bits == 16 else dtype.numpy.type


def _rounded(value, error, dtype: DType, native=None) -> Value:
    """A result with the error of one rounding; `native` is the result in its own precision, which
    holds where the operands are exact and nothing else may be computed instead."""
    narrow = narrowed(value, dtype)
    info = limits(dtype)
    is_same = (narrow == value) | np.isnan(value)
    more = np.where(is_same, 0, abs(value) * info.eps / 2 + info.smallest_subnormal)
    more = np.where(np.isinf(narrow) & np.isfinite(value), UNKNOWN, more)
    if native is None:
        return Value(value, error + more)
    is_exact = error == 0
    return Value(np.where(is_exact, native, value), np.where(is_exact, 0, error + more))


def spread(found: Value, shape: tuple[int, ...]) -> Value:
    """The value over a shape."""
    error = np.broadcast_to(known(found.error), shape)
    return Value(np.broadcast_to(found.value, shape), error)


def reduced(cls: type, terms: Value, axes: tuple[int, ...], dtype: DType) -> Value:
    value, error = terms.value, terms.error
    if not dtype.is_float:
        if cls in (ir.Min, ir.Max):
            start = dtype.max if cls is ir.Min else dtype.min
            result = _PLAIN[cls].reduce(value, axes, initial=start)
        else:
            result = _PLAIN[cls].reduce(value, axes, dtype=dtype.numpy)
        return Value(result, np.max(error, axes, initial=0))
    if cls in (ir.Min, ir.Max):
        start = UNKNOWN if cls is ir.Min else -UNKNOWN
        result = _PLAIN[cls].reduce(value, axes, initial=start)
        return Value(result, np.max(error, axes, initial=0))
    return (_sum if cls is ir.Add else _product)(value, error, axes, dtype)


def _sum(value, error, axes: tuple[int, ...], dtype: DType) -> Value:
    """In any order: exact where all terms are whole multiples of one small enough power of two."""
    info = limits(dtype)
    finite = np.isfinite(value)
    size = np.sum(np.where(finite, abs(value), 0), axes)
    count = int(np.prod([value.shape[axis] for axis in axes]))
    is_exact = np.zeros(size.shape, bool)
    for scale in (0, 4, 12):
        scaled = np.ldexp(np.where(finite, value, 0), scale)
        is_whole = np.all(scaled == np.rint(scaled), axes)
        is_exact |= is_whole & (np.ldexp(size, scale) <= WIDE(2) ** (info.nmant + 1))
    is_special = ~np.all(finite, axes)
    rounding = count * (info.eps / 2) * 1.01 * (size + np.sum(error, axes))
    rounding = np.where(is_exact | is_special, 0, rounding)
    rounding = np.where(size > info.max, UNKNOWN, rounding)
    return Value(np.sum(value, axes), np.sum(error, axes) + rounding)


def _product(value, error, axes: tuple[int, ...], dtype: DType) -> Value:
    info = limits(dtype)
    size = np.prod(abs(value), axes)
    greatest = np.prod(np.maximum(abs(value) + error, 1), axes)
    least = np.prod(np.minimum(np.where(value == 0, 1, abs(value)), 1), axes)
    count = int(np.prod([value.shape[axis] for axis in axes]))
    is_whole = np.all(value == np.rint(value), axes) & (greatest < WIDE(2) ** (info.nmant + 1))
    mantissa, _ = np.frexp(value)
    is_power = np.all((abs(mantissa) == 0.5) | (mantissa == 0), axes)
    spread = np.prod(abs(value) + error, axes) - size
    rounding = count * info.eps * np.prod(abs(value) + error, axes)
    rounding = np.where(is_whole | is_power, 0, rounding + info.smallest_subnormal)
    is_tame = (greatest < info.max) & (least > info.tiny) & (spread < UNKNOWN)
    total = np.where(is_tame, spread + rounding, UNKNOWN)
    is_nan = np.any(np.isnan(value), axes) & np.all(error == 0, axes)
    return Value(np.prod(value, axes), np.where(is_nan, 0, total))


def chosen(condition: Value, a: Value, b: Value) -> Value:
    error = np.where(condition.value, a.error, b.error)
    error = np.where(condition.error > 0, UNKNOWN, error)
    return Value(np.where(condition.value, a.value, b.value), error)


def _compare(cls: type, a: Value, b: Value, dtype: DType) -> Value:
    value = _COMPARE[cls](a.value, b.value)
    both = known(a.error + b.error)
    if dtype.is_float:
        return Value(value, np.where((both > 0) & ~(abs(a.value - b.value) > both), UNKNOWN, 0))
    return Value(value, both)


def converted(found: Value, source: DType, target: DType) -> Value:
    """A cast."""
    value, error = found.value, found.error
    if target.is_bool:
        if source.is_float:
            error = np.where((error > 0) & (abs(value) <= error), UNKNOWN, 0)
        return Value(value != 0, error)
    if target.is_float:
        narrow = narrowed(value, target)
        return _rounded(value, error, target, narrow) if source.is_float else Value(narrow, error)
    if not source.is_float:
        return Value(value.astype(target.numpy), error)
    whole = _saturated(value, target)
    turns = (_saturated(value - error, target) != whole) | (
        _saturated(value + error, target) != whole
    )
    return Value(whole, np.where((error > 0) & turns, UNKNOWN, 0))


def _saturated(value, target: DType) -> np.ndarray:
    whole = np.trunc(np.where(np.isnan(value), 0, value))
    inside = np.clip(whole, WIDE(target.min), WIDE(target.max))
    return inside.astype(target.numpy)


def _integer(cls: type, a, b, dtype: DType) -> np.ndarray:
    if cls in (ir.ShiftLeft, ir.ShiftRight):
        inside = (b >= 0) & (b < dtype.bits)
        amount = np.where(inside, b, 0).astype(dtype.numpy)
        if cls is ir.ShiftLeft:
            return np.where(inside, np.left_shift(a, amount), dtype.numpy.type(0))
        sign = np.right_shift(a, dtype.numpy.type(dtype.bits - 1)) if dtype.is_signed else a * 0
        return np.where(inside, np.right_shift(a, amount), sign)
    return _PLAIN[cls](a, b)


def called(name: str, args: list[Value], source: DType, dtype: DType) -> Value:
    """An intrinsic on operands of the type `source`; the result is a `dtype`."""
    if not source.is_float:
        return _of_integers(name, args, source, dtype)
    if len(args) == 3:
        return _fused(*args, dtype)
    if len(args) == 2:
        return _of_two(name, *args, dtype)
    x, error = args[0].value, args[0].error
    meaning: Callable = TABLE[name].meaning
    if name == "float_bits":  # those of a NaN and of a zero are not followed
        bits = x.astype(source.numpy).view(dtype.numpy)
        return Value(bits, np.where((error > 0) | np.isnan(x) | (x == 0), UNKNOWN, 0))
    if name in ("isnan", "isinf", "isfinite"):
        return Value(meaning(x), np.where(error == 0, 0, UNKNOWN))
    value = np.asarray(meaning(x), WIDE)
    around = np.zeros(value.shape, WIDE)
    if np.any(error):
        around = _around(name, meaning, x, error, value)
    if name in _WHOLE or name == "abs":
        return Value(value, around)
    if name == "sqrt":
        native = narrowed(np.sqrt(x.astype(_computed_in(dtype))), dtype)
        return _rounded(value, around, dtype, native)
    if name == "rsqrt":
        around = np.where(x == 0, UNKNOWN, around)
    return Value(value, around + _ulps(name, value, dtype))


def _around(name: str, meaning: Callable, x, error, value) -> np.ndarray:
    """How far a function changes where its operand does by its error."""
    if name in ("sin", "cos", "abs"):
        return error
    around = np.maximum(abs(meaning(x + error) - value), abs(meaning(x - error) - value))
    if name == "tan":
        around = 2 * around + np.where(error > 0.1, UNKNOWN, 0)
    around = np.where(np.isinf(error), UNKNOWN, around)  # of what may as well be a NaN, tanh is more than 1 off
    return np.where(error == 0, 0, known(around))


def _of_integers(name: str, args: list[Value], source: DType, dtype: DType) -> Value:
    error = args[0].error
    for other in args[1:]:
        error = _either(error, other.error)
    if name == "bits_float":
        bits = np.array(args[0].value)
        return Value(bits.view(dtype.numpy).astype(WIDE), error)
    found = np.asarray(TABLE[name].meaning(*[each.value for each in args]))
    if found.dtype == object:
        found = np.asarray(found & ((1 << source.bits) - 1), object).astype(f"u{source.bytes}")
    return Value(found.astype(dtype.numpy), error)


def _of_two(name: str, a: Value, b: Value, dtype: DType) -> Value:
    is_exact = (a.error == 0) & (b.error == 0)
    meaning = TABLE[name].meaning
    if name == "nextafter":
        narrow = [x.value.astype(dtype.numpy) for x in (a, b)]
        return Value(np.asarray(meaning(*narrow)).astype(WIDE), np.where(is_exact, 0, UNKNOWN))
    if name == "ldexp":
        value = meaning(a.value, b.value.astype(np.float64))
        exact = np.where(is_exact, 0, UNKNOWN)
        return _rounded(value, exact, dtype, narrowed(value, dtype))
    value = np.asarray(meaning(a.value, b.value), WIDE)
    if name == "copysign":  # the sign of a zero is not followed
        unsure = (b.error > 0) | (b.value == 0) | np.isnan(b.value)
        return Value(value, np.where(unsure, UNKNOWN, a.error))
    if name == "fmod":
        return Value(value, np.where(is_exact, 0, UNKNOWN))
    if name in ("hypot", "logaddexp"):  # they change no more than their operands do
        error = a.error + b.error + _ulps(name, value, dtype)
        if name == "logaddexp":  # a sum of the greater operand and a logarithm, which may cancel
            error = error + limits(dtype).eps * np.where(np.isfinite(value), np.maximum(abs(a.value), abs(b.value)), 0)
        return Value(value, np.where(is_exact | np.isfinite(value), error, UNKNOWN))
    is_zero = (a.value == 0) & ((b.value < 0) | (b.value == 0))
    return Value(value, np.where(is_exact & ~is_zero, _ulps(name, value, dtype), UNKNOWN))


def _fused(a: Value, b: Value, c: Value, dtype: DType) -> Value:
    error = _times(a.error, abs(b.value) + b.error) + _times(b.error, abs(a.value)) + c.error
    plain = [each.value.astype(np.float64) for each in (a, b, c)]
    value = np.asarray(TABLE["fma"].meaning(*plain), WIDE)
    if dtype.bits == 64:
        return Value(value, np.where(error == 0, 0, known(error) + abs(value) * limits(dtype).eps))
    return _rounded(value, error, dtype)


def _ulps(name: str, value, dtype: DType) -> np.ndarray:
    info, count = limits(dtype), ULPS.get(name, 4)
    most = info.max * (1 - count * info.eps)
    error = count * (abs(value) * info.eps + info.smallest_subnormal)
    error = np.where(np.isfinite(value), error, 0)
    return np.where(np.isfinite(value) & (abs(value) > most), UNKNOWN, error)


def _quotient_error(a: Value, b: Value, value) -> np.ndarray:
    size = abs(b.value)
    error = np.where(
        a.error + b.error == 0, 0, (a.error + _times(b.error, abs(value))) / (size - b.error)
    )
    is_unsure = (size <= b.error) & ~((b.value == 0) & (a.value == 0) & (a.error + b.error == 0))
    return np.where(is_unsure, UNKNOWN, error)  # also a / 0: the sign of the zero is not followed


def _times(error, factor) -> np.ndarray:
    return np.where(error == 0, 0, error * factor)


def _either(a, b) -> np.ndarray:
    """The error of what is either right or unknown, from two such operands."""
    return np.where((a > 0) | (b > 0), UNKNOWN, 0)


def known(error) -> np.ndarray:
    return np.where(np.isnan(error), UNKNOWN, error)
