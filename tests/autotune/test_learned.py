"""The learned model: it predicts what it was told, corrects the analytical one, and knows what it does not know."""

from __future__ import annotations

import math

import numpy as np

from autotune.learned import Learned
from autotune.space import Sampler
from tests.autotune.spaces import matmul, space


def _drafts(count: int):
    made, sampler = space(matmul(256, 256, 256)), Sampler(np.random.default_rng(0))
    found = {draft.key: draft for draft in (made.draft({}, sampler) for _ in range(3 * count)) if draft}
    return list(found.values())[:count]


def _time(draft) -> float:
    """What no analytical model would guess."""
    rows, vectors = draft.decisions["C.tile"]
    return draft.cycles * (1 + 0.1 * rows + (0.5 if draft.decisions["C.pack"] else 0.0)) * 1e-9


def _learned(drafts) -> Learned:
    model = Learned()
    for draft in drafts:
        model.learn(draft, _time(draft))
    return model


def _error(apart: np.ndarray) -> float:
    """Typical, beside what is off for all."""
    return float(np.median(np.abs(apart - np.median(apart))))


def test_it_corrects_the_analytical_model():
    drafts = _drafts(120)
    model, rest = _learned(drafts[:60]), drafts[60:]
    means, _ = model.predict([model.features.of(draft) for draft in rest])
    times = np.log([_time(draft) for draft in rest])
    cycles = np.log([draft.cycles for draft in rest])
    assert _error(means - times) < 0.5 * _error(cycles - times)


def test_it_is_sure_of_what_it_was_told():
    drafts = _drafts(60)
    model = _learned(drafts[:30])
    rows = [model.features.of(draft) for draft in drafts]
    _, spreads = model.predict(rows)
    assert spreads[:30].mean() < 0.5 * spreads[30:].mean()
    supposed = model.suppose(rows[-1], math.log(_time(drafts[-1])))
    assert supposed.predict(rows)[1][-1] < 0.5 * spreads[-1] and len(model) == 30


def test_equal_times_are_no_trouble():
    drafts = _drafts(8)
    model = Learned()
    for draft in [*drafts, drafts[0]]:
        model.learn(draft, 1e-3)
    means, _ = model.predict([model.features.of(draft) for draft in drafts])
    assert np.isfinite(means).all()
