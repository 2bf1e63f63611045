"""What each operation of the IR computes on one lane, exactly as docs/ir.md says.

A lane is a bool, a Python int (of every integer type), a float64 of NumPy, or a float32 of NumPy
for the three narrower float types: an operation on float16 or bfloat16 is computed in float32 and
rounded once to its type.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from tensorc.dtypes import DType
from tensorc.errors import InternalError
from tensorc.ir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Binary,
    BitAnd,
    BitOr,
    BitXor,
    Div,
    FloorDiv,
    Max,
    Min,
    Mod,
    Mul,
    Or,
    ShiftLeft,
    ShiftRight,
    Sub,
    convert,
    wrap,
)
from tensorc.ir.intrinsic import TABLE

__all__ = [
    "as_array",
    "as_lanes",
    "conversion",
    "intrinsic",
    "lane",
    "negation",
    "operation",
    "poison",
    "whole_intrinsic",
]

Lane = Callable[..., Any]

_COMPARISONS = {
    EQ: operator.eq,
    NE: operator.ne,
    LT: operator.lt,
    LE: operator.le,
    GT: operator.gt,
    GE: operator.ge,
}
_BITWISE = {BitAnd: operator.and_, BitOr: operator.or_, BitXor: operator.xor}
_ARITHMETIC = {Add: operator.add, Sub: operator.sub, Mul: operator.mul, Div: operator.truediv}


def lane(value, dtype: DType):
    """A Python number as a lane of a dtype."""
    if dtype.is_bool:
        return bool(value)
    if dtype.is_int:
        return int(value)
    return np.float64(value) if dtype.bits == 64 else np.float32(value)


def poison(dtype: DType):
    """What stands in an output element that was never written."""
    return lane(float("nan") if dtype.is_float else dtype.max, dtype)


def as_lanes(array: np.ndarray, dtype: DType) -> list:
    """The elements of an array in row-major order."""
    flat = array.ravel()
    if not dtype.is_float:
        return flat.tolist()
    return list(flat if dtype.bits >= 32 else flat.astype(np.float32))


def as_array(lanes: list, dtype: DType) -> np.ndarray:
    """The lanes as one axis; those that are None are poison."""
    lanes = [poison(dtype) if value is None else value for value in lanes]
    if dtype.is_float and dtype.bits < 32:
        return np.array(lanes, np.float32).astype(dtype.numpy)
    return np.array(lanes, dtype.numpy)


@cache
def operation(cls: type[Binary], dtype: DType) -> Lane:
    """A binary operation on operands of a scalar dtype."""
    if cls in _COMPARISONS:
        return _COMPARISONS[cls]
    if cls is And:
        return lambda a, b: a and b
    if cls is Or:
        return lambda a, b: a or b
    if cls is Min:
        return _minimum
    if cls is Max:
        return _maximum
    if dtype.is_float:
        return _rounded(_ARITHMETIC[cls], dtype)
    if cls in _BITWISE:
        return _BITWISE[cls]
    if cls is FloorDiv:
        return lambda a, b: wrap(a // b, dtype) if b else 0
    if cls is Mod:
        return lambda a, b: a % b if b else 0
    if cls is ShiftLeft:
        return lambda a, b: wrap(a << b, dtype) if 0 <= b < dtype.bits else 0
    if cls is ShiftRight:
        return lambda a, b: a >> (b if 0 <= b < dtype.bits else dtype.bits)
    return _wrapped(_ARITHMETIC[cls], dtype)


def _minimum(a, b):
    return b if b < a or b != b else a


def _maximum(a, b):
    return b if b > a or b != b else a


def _wrapped(op: Lane, dtype: DType) -> Lane:
    low, high = dtype.min, dtype.max

    def run(a, b):
        result = op(a, b)
        return result if low <= result <= high else wrap(result, dtype)

    return run


def _rounded(op: Lane, dtype: DType) -> Lane:
    """`op`, which computes in the type of its lanes, with its result rounded to a dtype."""
    if dtype.bits >= 32:
        return op
    narrow = dtype.numpy.type
    return lambda *lanes: np.float32(narrow(op(*lanes)))


@cache
def negation(dtype: DType) -> Lane:
    return operator.neg if dtype.is_float else lambda a: wrap(-a, dtype)


@cache
def conversion(source: DType, target: DType) -> Lane:
    """A cast between scalar dtypes."""
    if target.is_bool:
        return lambda a: bool(a != 0)
    if target.is_int:
        return (
            (lambda a: convert(float(a), target))
            if source.is_float
            else lambda a: wrap(int(a), target)
        )
    if not source.is_float:
        return lambda a: _narrowed(convert(a, target), target)
    return lambda a: _narrowed(a, target)


def _narrowed(value, dtype: DType):
    """A float of any width rounded to a dtype, as a lane."""
    return lane(dtype.numpy.type(value), dtype)


@cache
def intrinsic(name: str, dtype: DType, result: DType) -> Lane:
    """An intrinsic on operands of a dtype: lanes, or for horizontal reductions the list of them.

    Floats are computed in float64 and rounded once: the answer is the nearest, or next to it.
    """
    entry = TABLE.get(name)
    if entry is None:
        raise InternalError(f"interpret: intrinsic {name!r} is unknown")
    wide = np.dtype(np.float64) if dtype.is_float and not entry.native else dtype.numpy
    operand = (lambda lanes: np.array(lanes, wide)) if entry.reduces else wide.type
    if result.is_float:
        return lambda *args: _narrowed(entry.meaning(*map(operand, args)), result)
    if result.is_bool:
        return lambda *args: bool(entry.meaning(*map(operand, args)))
    return lambda *args: wrap(int(entry.meaning(*map(operand, args))), result)


@cache
def whole_intrinsic(name: str, dtypes: tuple[DType, ...], result: DType) -> Lane:
    """An intrinsic that takes vectors as such: lists of lanes, or one lane for a scalar, to the list of lanes."""
    meaning = TABLE[name].meaning

    def run(*operands):
        given = [value if dtype.lanes > 1 else [value] for value, dtype in zip(operands, dtypes)]
        arrays = [as_array(value, dtype) for value, dtype in zip(given, dtypes)]
        return as_lanes(np.asarray(meaning(*arrays)).astype(result.numpy), result)

    return run
