"""Whether an answer is right: what it must be, and how far from it rounding may lead."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tensorc.ir.function import Function

EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
ROUNDINGS = 64  # that may add up, besides those of long sums
NARROW = 4  # roundings of a narrow type: sums are made in a wider one


class Answer:
    """What the outputs of a function must be, in the order of its parameters; `terms` is about how many numbers an
    element is the sum of."""

    def __init__(self, function: Function, outputs: Sequence[np.ndarray], terms: float) -> None:
        self._kinds = [buffer.dtype.name for buffer in function.params if buffer in function.outputs]
        self._right = [output.copy() for output in outputs]
        self._terms = terms

    @property
    def is_finite(self) -> bool:
        return all([bool(np.isfinite(_wide(each)).all()) for each in self._right])

    def differs(
        self, outputs: Sequence[np.ndarray], names: Sequence[str], within: Sequence[np.ndarray] | None = None
    ) -> str:
        """What is wrong with outputs of these names, in words, or nothing; `within` are masks of the elements that
        count."""
        masks = [None] * len(outputs) if within is None else within
        found = zip(names, self._kinds, outputs, self._right, masks, strict=True)
        return next(filter(None, [self._difference(*each) for each in found]), "")

    def _difference(
        self, name: str, kind: str, found: np.ndarray, right: np.ndarray, within: np.ndarray | None
    ) -> str:
        bits = f"u{right.itemsize}"
        if within is None and np.array_equal(found.view(bits), right.view(bits)):
            return ""
        wrong = self._wrong(kind, found, right)
        if within is not None:
            wrong &= within
        number = int(wrong.sum())
        if not number:
            return ""
        at = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        place = ", ".join([str(int(n)) for n in at])
        return f"{name}[{place}] is {found[at]}, {right[at]} is right; {number} of {wrong.size} elements differ"

    def _wrong(self, kind: str, found: np.ndarray, right: np.ndarray) -> np.ndarray:
        if kind not in EPSILON:
            return np.asarray(found != right)
        a, b = _wide(found), _wide(right)
        both = np.isfinite(b)
        size = np.abs(np.where(both, b, 0.0))
        with np.errstate(all="ignore"):
            near = np.abs(a - b) <= self._tolerance(kind) * (size + size.sum() / max(1, both.sum()))
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        return ~(same | (both & near))

    def _tolerance(self, kind: str) -> float:
        summed = (ROUNDINGS + 2 * math.sqrt(self._terms)) * EPSILON["float64" if kind == "float64" else "float32"]
        return summed + (NARROW * EPSILON[kind] if EPSILON[kind] > EPSILON["float32"] else 0.0)


def _wide(array: np.ndarray) -> np.ndarray:
    return array if array.dtype == np.float64 else array.astype(np.float64)
