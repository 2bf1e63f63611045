"""What measurements teach: a model that corrects the analytical one, from the decisions and what that says of them.

Kernel ridge regression on the logarithm of the times, as a Gaussian process, so that each prediction comes with how
sure it is: that is what tells whether more measuring pays (Rasmussen and Williams, "Gaussian Processes for Machine
Learning", 2006, algorithm 2.1).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from autotune.space import Draft, Question

SCALES = (0.5, 1.0, 2.0, 4.0)  # of distances, in units of the features' spread, of which the likeliest is taken
NOISES = (1e-4, 1e-3, 1e-2, 0.1)  # variance of a measurement, as a share of that of all
EVEN = 64  # the largest power of two that matters as a divisor of a factor: as many lanes
TRUST = 0.2  # in the analytical model, as of so much variance of what it says

Row = dict[int, float]  # the features of a draft that are not zero; the first is what the analytical model says


class Features:
    """Drafts as vectors: factors by their logarithms, options one by one, and the model's cycles by their causes.

    Knobs get their columns when they are first met; a draft that was not asked has zeros there.
    """

    def __init__(self) -> None:
        self._columns: dict[tuple[str, Any], int] = {("cycles", 0): 0}

    @property
    def count(self) -> int:
        return len(self._columns)

    def of(self, draft: Draft) -> Row:
        """The columns of a draft that are not zero."""
        found: Row = {}
        for name, question in draft.questions.items():
            for key, value in _described(question, draft.decisions[name]):
                found[self._column((name, key))] = value
        for n, cost in enumerate(draft.costs):
            for place, part in enumerate(cost.parts[:-1]):
                found[self._column((f"cost {n}", place))] = math.log1p(part / max(1.0, cost.cycles) * 10)
        if draft.costs:
            found[0] = math.log(max(1.0, draft.cycles))
        return found

    def matrix(self, rows: Sequence[Row]) -> np.ndarray:
        found = np.zeros((len(rows), len(self._columns)))
        for at, row in enumerate(rows):
            found[at, list(row)] = list(row.values())
        return found

    def _column(self, key: tuple[str, Any]) -> int:
        return self._columns.setdefault(key, len(self._columns))


def _described(question: Question, answer: Any) -> Iterable[tuple[Any, float]]:
    if not question.is_split:
        yield answer, 1.0
        return
    inside = 1
    for place, factor in enumerate(answer):
        inside *= factor
        yield place, math.log2(factor)
        yield (place, "even"), math.log2(min(factor & -factor, EVEN))
        yield (place, "waste"), 10 * (-(-question.extent // factor) * factor / max(1, question.extent) - 1)
    if len(answer) > 1:
        yield "all", math.log2(inside)


class Learned:
    """Predicts the logarithm of times, given those of drafts that were measured."""

    def __init__(self) -> None:
        self.features = Features()
        self._rows: list[Row] = []
        self._times: list[float] = []
        self._fitted: _Fit | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def learn(self, draft: Draft, seconds: float) -> None:
        self._rows.append(self.features.of(draft))
        self._times.append(math.log(seconds))
        self._fitted = None

    def predict(self, rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
        """The mean and the standard deviation of log(seconds) for drafts, given by their features."""
        return self._fit().predict(self.features.matrix(rows), _analytical(rows))

    def suppose(self, row: Row, time: float) -> Learned:
        """The model as if one more had been measured, of what it knew."""
        other = Learned()
        other.features = self.features
        other._rows, other._times = [*self._rows, row], [*self._times, time]
        other._fitted = other._made(self._fit())
        return other

    def _fit(self) -> _Fit:
        if self._fitted is None or self._fitted.width < self.features.count:
            self._fitted = self._made(None)
        return self._fitted

    def _made(self, like: _Fit | None) -> _Fit:
        return _Fit(self.features.matrix(self._rows), _analytical(self._rows), np.array(self._times), like)


def _analytical(rows: Sequence[Row]) -> np.ndarray:
    return np.array([row.get(0, 0.0) for row in rows])


class _Fit:
    """A Gaussian process about the analytical model, which counts for as much as it tells, with the likeliest of a few
    scales and noises, or those of another one."""

    def __init__(self, x: np.ndarray, known: np.ndarray, y: np.ndarray, like: _Fit | None) -> None:
        self.width = x.shape[1]
        self.scale, self.noise = SCALES[0], NOISES[0]
        self._mean, self._spread = x.mean(axis=0), np.maximum(x.std(axis=0), 0.05)
        self._x = self._scaled(x)
        self._known, apart = float(known.mean()), known - known.mean()
        together = float(apart @ (y - y.mean())) + TRUST
        self._slope = min(max(together / (float(apart @ apart) + TRUST), 0.0), 1.0)
        rest = y - self._slope * apart
        self._level, self._range = float(rest.mean()), max(float(rest.std()), 1e-3)
        self._y = (rest - self._level) / self._range
        far = _distances(self._x, self._x)
        options = [(like.scale, like.noise)] if like else [(scale, noise) for scale in SCALES for noise in NOISES]
        best = -math.inf
        for scale, noise in options:
            root = np.linalg.cholesky(_kernel(far, scale) + noise * np.eye(len(y)))
            inverse = np.linalg.inv(root)
            weights = inverse.T @ (inverse @ self._y)
            likelihood = -0.5 * float(self._y @ weights) - float(np.log(np.diag(root)).sum())
            if likelihood > best:
                best, self.scale, self.noise = likelihood, scale, noise
                self._inverse, self._weights = inverse, weights

    def predict(self, x: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        near = _kernel(_distances(self._scaled(x), self._x), self.scale)
        explained = near @ self._inverse.T
        left = np.maximum(1.0 - (explained * explained).sum(axis=1), 1e-9)
        means = near @ self._weights * self._range + self._level + self._slope * (known - self._known)
        return means, np.sqrt(left) * self._range

    def _scaled(self, x: np.ndarray) -> np.ndarray:
        return (x - self._mean) / self._spread / math.sqrt(max(1, self.width))


def _distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    square = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1)[None] - 2 * a @ b.T
    return np.sqrt(np.maximum(square, 0.0))


def _kernel(far: np.ndarray, scale: float) -> np.ndarray:
    """Matern, 5/2: functions that are smooth, but not more than twice."""
    far = far * (math.sqrt(5.0) / scale)
    return (1.0 + far + far * far / 3.0) * np.exp(-far)
