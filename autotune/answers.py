"""Whether an answer is right: what it must be, and how far from it rounding may lead."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from tensorc.ir.function import Function

EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
ROUNDINGS = 64  # that may add up, besides those of long sums
NARROW = 4  # roundings of a narrow type: sums are made in a wider one


class Answer:
    """What the outputs of a function must be, in the order of its parameters; `terms` is about how many numbers an
    element is the sum of."""

    def __init__(self, function: Function, outputs: Sequence[np.ndarray], terms: float) -> None:
        kinds = [buffer.dtype.name for buffer in function.params if buffer in function.outputs]
        self._right = [_Right(output.copy(), kind, terms) for output, kind in zip(outputs, kinds, strict=True)]

    @property
    def is_finite(self) -> bool:
        return all([bool(np.isfinite(_wide(each.values)).all()) for each in self._right])

    def differs(
        self, outputs: Sequence[np.ndarray], names: Sequence[str], within: Sequence[np.ndarray] | None = None
    ) -> str:
        """What is wrong with outputs of these names, in words, or nothing; `within` are masks of the elements that
        count."""
        masks: Sequence[np.ndarray | None] = [None] * len(outputs) if within is None else within
        told = zip(self._right, outputs, names, masks, strict=True)
        problems = [right.differs(output, name, mask) for right, output, name, mask in told]
        return next(filter(None, problems), "")


class _Right:
    """The right elements of one output, of a dtype, and the bounds of what rounding makes of them."""

    def __init__(self, values: np.ndarray, kind: str, terms: float) -> None:
        self.values, self._kind, self._terms = values, kind, terms

    def differs(self, found: np.ndarray, name: str, within: np.ndarray | None) -> str:
        bits = f"u{found.itemsize}"
        if within is None and (np.array_equal(found.view(bits), self.values.view(bits)) or self._is_near(found)):
            return ""
        wrong = self._wrong(found)
        if within is not None:
            wrong &= within
        number = int(wrong.sum())
        if not number:
            return ""
        at = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        place = ", ".join([str(int(n)) for n in at])
        return f"{name}[{place}] is {found[at]}, {self.values[at]} is right; {number} of {wrong.size} elements differ"

    def _is_near(self, found: np.ndarray) -> bool:
        """Whether all elements are numbers within their bounds: what is asked most often, soon."""
        if self._kind not in EPSILON:
            return False
        low, high = self._bounds
        return bool((found >= low).all()) and bool((found <= high).all())

    def _wrong(self, found: np.ndarray) -> np.ndarray:
        if self._kind not in EPSILON:
            return np.asarray(found != self.values)
        low, high = self._bounds
        same = (found == self.values) | (np.isnan(found) & np.isnan(self.values))
        return np.asarray(~(same | ((found >= low) & (found <= high))))

    @cached_property
    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The least and the greatest that each element may be; of those that are no finite numbers, no number."""
        values = _wide(self.values)
        is_finite = np.isfinite(values)
        size = np.abs(np.where(is_finite, values, np.nan))
        mean = float(np.nansum(size)) / max(1, int(is_finite.sum()))
        reach = self._tolerance * (size + mean)
        with np.errstate(over="ignore"):
            return (values - reach).astype(self.values.dtype), (values + reach).astype(self.values.dtype)

    @property
    def _tolerance(self) -> float:
        wide = "float64" if self._kind == "float64" else "float32"
        narrow = NARROW * EPSILON[self._kind] if EPSILON[self._kind] > EPSILON["float32"] else 0.0
        return (ROUNDINGS + 2 * math.sqrt(self._terms)) * EPSILON[wide] + narrow


def _wide(array: np.ndarray) -> np.ndarray:
    return array if array.dtype == np.float64 else array.astype(np.float64)
