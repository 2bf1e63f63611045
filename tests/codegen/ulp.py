"""The distance of a computed number from the exact one, in units in the last place."""

from __future__ import annotations

import numpy as np


def ulps(actual: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """For each element |actual - exact| over the spacing of `actual`'s type at the exact value.

    `exact` has a wider type. Infinity counts as the power of two after the greatest number; the distance is infinite
    where only one of the two is NaN, or a zero has the wrong sign.
    """
    kind = np.finfo(actual.dtype)
    wide = exact.dtype.type
    end = wide(2) ** kind.maxexp
    with np.errstate(invalid="ignore"):  # signalling NaN
        computed = np.clip(actual.astype(wide), -end, end)
    target = np.clip(exact, -end, end)
    exponent = np.maximum(np.frexp(target)[1] - 1, kind.minexp)
    exponent = np.where(target == 0, kind.minexp, np.minimum(exponent, kind.maxexp - 1))
    distance = np.abs(computed - target) / np.ldexp(wide(1), exponent - kind.nmant)
    both_nan = np.isnan(actual) & np.isnan(exact)
    distance = np.where(both_nan, 0, np.where(np.isnan(distance), np.inf, distance))
    wrong_zero = (actual == 0) & (exact == 0) & (np.signbit(actual) != np.signbit(exact))
    return np.where(wrong_zero, np.inf, distance)
