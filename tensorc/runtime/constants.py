"""Arrays that a kernel holds: constants that it reads, and what was made of them before the first call."""

from __future__ import annotations

import numpy as np

from tensorc.artifact import Param
from tensorc.dtypes import dtype
from tensorc.runtime.arrays import address
from tensorc.runtime.wrapper import empty_aligned

__all__ = ["copied", "settled", "zeros"]

_ALIGNMENT = 64  # bytes, as of the workspace


def settled(param: Param, array: np.ndarray) -> np.ndarray:
    """An array for a parameter, read-only, and its data at a multiple of 64 bytes: itself, or a copy."""
    is_settled = array.flags.c_contiguous and not array.flags.writeable
    return array if is_settled and address(array) % _alignment(param) == 0 else copied(param, array)


def copied(param: Param, array: np.ndarray) -> np.ndarray:
    """A copy of an array, as `settled` says."""
    copy = zeros(param)
    copy[...] = array
    copy.flags.writeable = False
    return copy


def zeros(param: Param) -> np.ndarray:
    """An array for a parameter of a constant shape, its data at a multiple of 64 bytes."""
    shape = tuple([extent for extent in param.shape if isinstance(extent, int)])
    array = empty_aligned(shape, dtype(param.dtype).numpy, _alignment(param))
    array[...] = 0
    return array


def _alignment(param: Param) -> int:
    return max(_ALIGNMENT, param.alignment)
