"""Data types: one interned object a type, scalar or vector."""

from __future__ import annotations

from functools import cache

import numpy as np

from tensorc.errors import ExpressionError

__all__ = ["DType", "bool_", "dtype", "float32", "float64", "int32", "int64", "uint8"]

_KINDS = {
    "bool": ("bool", 8),
    "int8": ("int", 8),
    "int16": ("int", 16),
    "int32": ("int", 32),
    "int64": ("int", 64),
    "uint8": ("uint", 8),
    "uint16": ("uint", 16),
    "uint32": ("uint", 32),
    "uint64": ("uint", 64),
    "float16": ("float", 16),
    "bfloat16": ("bfloat", 16),
    "float32": ("float", 32),
    "float64": ("float", 64),
}


class DType:
    """A scalar type with a number of lanes; `dtype(name)` returns the one object for each.

    `bits` is the width in memory: a bool is one byte there and one bit in a register.
    """

    __slots__ = (
        "bits", "bytes", "is_bool", "is_float", "is_int", "is_signed", "is_uint", "kind", "lanes", "name",
    )  # fmt: skip

    def __init__(self, name: str, lanes: int):
        kind, bits = _KINDS[name]
        self.kind = kind
        self.bits = bits
        self.lanes = lanes
        self.bytes = bits // 8 * lanes
        self.name = name if lanes == 1 else f"{name}x{lanes}"
        self.is_bool = kind == "bool"
        self.is_float = kind in ("float", "bfloat")
        self.is_signed = kind == "int"
        self.is_uint = kind == "uint"
        self.is_int = kind in ("int", "uint")

    @property
    def scalar(self) -> DType:
        return self if self.lanes == 1 else dtype(self.name.rsplit("x", 1)[0])

    def with_lanes(self, lanes: int) -> DType:
        """The vector type of `lanes` elements of this scalar type."""
        if lanes == self.lanes:
            return self
        base = self.scalar.name
        return dtype(base if lanes == 1 else f"{base}x{lanes}")

    @property
    def min(self) -> int | float:
        """The smallest value: -inf for floats."""
        if self.is_float:
            return float("-inf")
        return -(1 << (self.bits - 1)) if self.is_signed else 0

    @property
    def max(self) -> int | float:
        """The largest value: inf for floats."""
        if self.is_float:
            return float("inf")
        if self.is_bool:
            return 1
        return (1 << (self.bits - self.is_signed)) - 1

    @property
    def numpy(self) -> np.dtype:
        """The NumPy type of one element."""
        return _numpy_dtype(self.scalar.name)

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self):
        return dtype, (self.name,)


@cache
def _numpy_dtype(name: str) -> np.dtype:
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


_INTERNED: dict[str, DType] = {}


def dtype(of) -> DType:
    """The DType for a name ("float32", "float32x16"; NumPy's "f4" and "single", too), a NumPy type, a Python type or a
    DType.

    Raises ExpressionError for a type that tensorc does not know.
    """
    if type(of) is DType:
        return of
    if isinstance(of, str) and of in _INTERNED:
        return _INTERNED[of]
    name = of if isinstance(of, str) else _name_of(of)
    base, lanes = _parse(name)
    if base not in _KINDS:
        base = _name_by_numpy(base)
    if base not in _KINDS:
        raise ExpressionError(f"dtype {name!r}: unknown; known are {', '.join(_KINDS)}")
    canonical = base if lanes == 1 else f"{base}x{lanes}"
    return _INTERNED.setdefault(canonical, DType(base, lanes))


def _parse(name: str) -> tuple[str, int]:
    base, x, lanes = name.rpartition("x")
    if x and lanes.isdigit() and int(lanes) > 0:
        return base, int(lanes)
    return name, 1


def _name_by_numpy(name: str) -> str:
    """What NumPy calls a type that it knows by several names, in the byte order of this machine."""
    try:
        known = np.dtype(name)
    except (TypeError, ValueError, SyntaxError):
        return name
    return known.name if known.isnative else name


def _name_of(of) -> str:
    try:
        if of is not None:  # float64 to NumPy
            return np.dtype(of).name
    except TypeError:
        pass
    raise ExpressionError(f"dtype {of!r}: not a name, a NumPy type or a tensorc dtype")


bool_ = dtype("bool")
int32 = dtype("int32")
int64 = dtype("int64")
uint8 = dtype("uint8")
float32 = dtype("float32")
float64 = dtype("float64")
