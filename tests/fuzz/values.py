"""The data of the fuzzer's inputs, by the kind of values that each asks for."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tensorc.dtypes import dtype as as_dtype
from tests.fuzz.programs import INTEGERS, Input, Program, extents

WILD = ("stray", "edges")  # kinds of values by which an index may be outside
_ENDS = (0, 1 << 31, 1 << 32, 1 << 61, 1 << 62, 3 << 61, (1 << 63) - 1, 1 << 63, 1 << 64)


def data(program: Program, each: Input, rng: np.random.Generator) -> np.ndarray:
    """Values of an input. Raises ValueError where there are none of its kind."""
    shape, dtype = extents(program, each.shape), as_dtype(each.dtype).numpy
    kind, _, text = each.values.partition(" ")
    if text:
        most = extents(program, (text,))[0]
        return np.asarray(_indices(kind, most, shape, rng)).astype(dtype)
    if each.dtype == "bool":
        return np.asarray(rng.integers(0, 2, shape).astype(bool))
    made = _integers if each.dtype in INTEGERS else _floats
    return np.asarray(made(kind, shape, dtype, rng)).astype(dtype)


def _indices(kind: str, most: int, shape, rng: np.random.Generator) -> np.ndarray:
    """Numbers of 0 .. most - 1, in order if "rising"; of those, some are "stray"."""
    if most < 1 and kind != "stray" and 0 not in shape:
        raise ValueError("there is no such index")
    found = rng.integers(0, max(most, 1), shape)
    if kind == "rising":
        return np.sort(found, axis=None).reshape(shape)
    if kind == "stray" and rng.random() < 0.5:
        beside = rng.choice([-1, most, most + 3, 99], shape)
        return np.where(rng.random(shape) < 0.1, beside, found)
    return found


def _integers(kind: str, shape, dtype: np.dtype, rng: np.random.Generator) -> np.ndarray:
    info = np.iinfo(dtype)
    if kind == "small":
        return rng.integers(max(info.min, -4), 5, shape)
    if kind == "edges":  # where arithmetic on them wraps into small numbers
        ends = np.array([end % (1 << 64) for end in _ENDS], np.uint64)
        near = rng.choice(ends, shape) + rng.integers(-3, 9, shape).astype(np.uint64)
        return np.where(rng.random(shape) < 0.5, near, rng.integers(0, 9, shape).astype(np.uint64))
    wide = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    odd = np.array(
        [info.min, info.max, info.min + 1, 0, 1, info.max // 2, max(info.min, -1)], dtype
    )
    return np.where(rng.random(shape) < 0.25, rng.choice(odd, shape), wide)


def _floats(kind: str, shape, dtype: np.dtype, rng: np.random.Generator) -> np.ndarray:
    if kind == "small":
        return rng.integers(-4, 5, shape)
    if kind == "powers":
        return np.ldexp(rng.choice([-1.0, 1.0], shape), rng.integers(-3, 4, shape))
    values = rng.standard_normal(shape)
    if kind == "special":
        info = ml_dtypes.finfo(dtype)
        most, least = float(info.max), float(info.tiny)
        odd = [np.nan, np.inf, -np.inf, 0.0, -0.0, most, least, least / 8, 3e9, -1e19]
        with np.errstate(over="ignore"):
            odd = np.array(odd).astype(dtype).astype(np.float64)
        values = np.where(rng.random(shape) < 0.3, rng.choice(odd, shape), values)
    return values
