"""The search: what to measure next, given what was measured; by a model, at random, or all there is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from autotune.learned import Learned
from autotune.record import Candidate, Trial
from autotune.space import Draft, Question, Sampler, Space, by_default
from tensorc.schedule.knobs import Decisions

FIRST = 2000  # plans that are ranked before anything is measured
POOL = 250  # plans that are ranked for each proposal from then on
PARENTS = 8  # of the best, whose plans are changed and crossed
CHANGED = 0.5  # of a pool: parents with other answers to a question or two
CROSSED = 0.2  # of a pool: some answers of one parent, the others of another
EXPLORED = 0.1  # of what is proposed: anything that the analytical model does not find hopeless
HOPELESS = 3.0  # times the analytical model's best
LEARNED = 6  # measurements, from which on there is something to learn
LEAST = 24  # measurements before the search may be over
PATIENCE = 2  # proposals in a row that promise less than the noise
PENALTY = 3.0  # times the slowest: what a candidate counts for that failed
QUIET, LOUD = 0.004, 0.03  # between these the noise of a measurement is taken to be
SHELVED = 48  # candidates that are applied to be judged, and wait
AHEAD = 4  # times as many as are proposed are applied for that
TRIES = 60  # drafts in a row that are known already, before the space counts as exhausted


class Strategy(Protocol):
    """Proposes candidates, and is told what came of them."""

    @property
    def is_done(self) -> bool:
        """Whether there is nothing more to gain."""
        ...

    def propose(self, n: int) -> list[Candidate]:
        """At most `n` candidates that are new; none where there are no more."""
        ...

    def tell(self, trial: Trial) -> None: ...


class _Known:
    """What was proposed already: no two candidates of the same text."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self.drafts: dict[str, Draft] = {}  # by the candidates' texts
        self._keys: set[object] = set()

    def has(self, draft: Draft) -> bool:
        return draft.key in self._keys

    def candidate(self, draft: Draft, origin: str) -> Candidate | None:
        """The candidate of a draft; None where it is refused, or nothing new."""
        self._keys.add(draft.key)
        found = self._space.scheduled(draft.decisions, origin)
        if found is None or found[0].text in self.drafts:
            return None
        self.drafts[found[0].text] = found[1]
        self._keys.add(found[1].key)
        return found[0]

    def of(self, candidate: Candidate) -> Draft | None:
        """The draft of a candidate, also of one that came from elsewhere."""
        if candidate.text not in self.drafts:
            found = self._space.scheduled(candidate.decisions)
            if found is None:
                return None
            self.drafts[candidate.text] = found[1]
            self._keys.add(found[1].key)
        return self.drafts[candidate.text]


class Random:
    """Answers every question at random, after the default."""

    def __init__(self, space: Space, seed: int = 0) -> None:
        self._space = space
        self._known = _Known(space)
        self._sampler = Sampler(np.random.default_rng(seed))
        self._is_exhausted = False

    @property
    def is_done(self) -> bool:
        return self._is_exhausted

    def propose(self, n: int) -> list[Candidate]:
        found: list[Candidate] = []
        tries = 0
        while len(found) < n and tries < TRIES:
            is_first = not self._known.drafts
            draft = self._space.draft({}, by_default if is_first else self._sampler)
            fresh = None
            if draft is not None and not self._known.has(draft):
                fresh = self._known.candidate(draft, "default" if is_first else "random")
            tries = tries + 1 if fresh is None else 0
            found += [] if fresh is None else [fresh]
        self._is_exhausted = not found
        return found

    def tell(self, trial: Trial) -> None:
        pass


class Exhaustive:
    """Every plan of the space, in order, the default first."""

    def __init__(self, space: Space) -> None:
        self._known = _Known(space)
        self._drafts = space.drafts()
        self._is_exhausted = False

    @property
    def is_done(self) -> bool:
        return self._is_exhausted

    def propose(self, n: int) -> list[Candidate]:
        found: list[Candidate] = []
        while len(found) < n and not self._is_exhausted:
            draft = next(self._drafts, None)
            self._is_exhausted = draft is None
            origin = "default" if not self._known.drafts else "random"
            fresh = None if draft is None else self._known.candidate(draft, origin)
            found += [] if fresh is None else [fresh]
        return found

    def tell(self, trial: Trial) -> None:
        pass


class Search:
    """Starts at the analytical default and at the decisions `warm`, ranks plans by the analytical model, then by what
    measurements add to it, and evolves the best; the same seed and answers give the same proposals.

    With `blind`, it starts from random decisions instead of the default.
    """

    def __init__(self, space: Space, seed: int = 0, warm: Iterable[Decisions] = (), blind: bool = False) -> None:
        self._space = space
        self._rng = np.random.default_rng(seed)
        self._known = _Known(space)
        self._learned = Learned()
        self._times: dict[str, float] = {}  # of what ran, by text
        self._spreads: list[float] = []
        self._calm = 0
        self._is_exhausted = False
        answer = Sampler(self._rng) if blind else by_default
        starts = [("default", space.draft({}, answer)), *[("database", space.draft(each)) for each in warm]]
        self._starts = [(origin, draft) for origin, draft in starts if draft is not None]
        self._ranked: Iterator[Draft] | None = None
        self._rough = Learned()  # of the decisions alone, where the analytical model has to wait for what comes of them
        self._shelf: list[Candidate] = []  # applied, but not proposed yet
        self._drawn: set[object] = set()  # the keys of drafts of a pool that have no parents

    @property
    def noise(self) -> float:
        """How far two measurements of the same are apart, as a share of either."""
        typical = statistics.median(self._spreads) if self._spreads else QUIET
        return min(max(typical, QUIET), LOUD)

    @property
    def is_done(self) -> bool:
        """Whether what measuring more is expected to gain is less than the noise, or nothing is left."""
        return self._is_exhausted or self._calm >= PATIENCE

    def propose(self, n: int) -> list[Candidate]:
        found: list[Candidate] = []
        while self._starts and len(found) < n:
            origin, draft = self._starts.pop(0)
            fresh = self._known.candidate(draft, origin)
            found += [] if fresh is None else [fresh]
        if len(found) < n:
            enough = len(self._learned) >= LEARNED
            found += self._by_learning(n - len(found)) if enough else self._by_model(n - len(found))
        self._is_exhausted = not found
        return found

    def tell(self, trial: Trial) -> None:
        draft = self._known.of(trial.candidate)
        if draft is None:
            return  # of an older recipe
        seconds = trial.measurement.seconds
        if math.isinf(seconds):
            if self._times:
                self._learn(draft, PENALTY * max(self._times.values()))
            return
        self._times[trial.candidate.text] = seconds
        self._spreads.append(trial.measurement.spread)
        self._learn(draft, seconds)

    def _learn(self, draft: Draft, seconds: float) -> None:
        self._learned.learn(draft, seconds)
        if not self._space.is_foreseen:
            self._rough.learn(replace(draft, costs=()), seconds)

    def _by_model(self, n: int) -> list[Candidate]:
        """The best of many by the analytical model."""
        if self._ranked is None and self._space.is_foreseen:
            near, far = Sampler(self._rng, 0.5), Sampler(self._rng)
            drafts = self._fresh([self._space.draft({}, near if k % 2 else far) for k in range(FIRST)])
            self._ranked = iter(sorted(drafts, key=lambda draft: draft.cycles))
        if self._ranked is not None:
            return self._taken(self._ranked, n, "model")
        self._shelve(self._pool()[: SHELVED - len(self._shelf)], "model")
        order = sorted(self._shelf, key=lambda each: self._known.drafts[each.text].cycles)
        self._shelf = order[n:]
        return order[:n]

    def _by_learning(self, n: int) -> list[Candidate]:
        """Those that promise most by what was learned, and now and then another one."""
        pool = self._pool()
        if not self._space.is_foreseen:
            pool = self._applied(pool, n)
        if not pool:
            return []
        best = math.log(min(self._times.values(), default=math.inf))
        model = self._learned
        rows = [model.features.of(draft) for draft in pool]
        means, spreads = model.predict(rows)
        gains = _gains(best - means, spreads)
        if len(self._times) >= LEAST:
            self._calm = self._calm + 1 if gains.max() < self.noise / 2 else 0
        left = np.ones(len(pool), bool)
        found: list[Candidate] = []
        explored = sum([self._rng.random() < EXPLORED for _ in range(n)])
        while len(found) < n and left.any():
            is_promising = len(found) < n - explored
            open_ = np.flatnonzero(left)
            at = int(open_[np.argmax(gains[open_])] if is_promising else self._rng.choice(open_))
            left[at] = False
            fresh = self._taken_out(pool[at], "evolved" if is_promising else "random")
            if fresh is None:
                continue
            found.append(fresh)
            if len(found) < n - explored:  # the next one may as well be elsewhere
                model = model.suppose(rows[at], float(means[at]))
                means, spreads = model.predict(rows)
                gains = _gains(best - means, spreads)
        return found

    def _applied(self, pool: list[Draft], n: int) -> list[Draft]:
        """Drafts of which the analytical model says something once they are applied: all that were, after adding those
        that promise most by their decisions alone."""
        if pool and len(self._rough) >= LEARNED:
            best = math.log(min(self._times.values(), default=math.inf))
            means, spreads = self._rough.predict([self._rough.features.of(draft) for draft in pool])
            gains = _gains(best - means, spreads)
            pool = [pool[at] for at in np.argsort(-gains, kind="stable")]
        drawn = [draft for draft in pool if draft.key in self._drawn]  # half of them, lest all be like the best
        bred = [draft for draft in pool if draft.key not in self._drawn]
        half = AHEAD * n // 2
        self._shelve([*bred[:half], *drawn[:half]], "evolved")
        self._shelf = self._shelf[-SHELVED:]
        return [self._known.drafts[each.text] for each in self._shelf]

    def _shelve(self, drafts: Iterable[Draft], origin: str) -> None:
        """Apply drafts, and keep the candidates for later."""
        found = [self._known.candidate(draft, origin) for draft in drafts]
        self._shelf += [each for each in found if each is not None]

    def _taken_out(self, draft: Draft, origin: str) -> Candidate | None:
        """The candidate of a draft, which may lie on the shelf."""
        if self._space.is_foreseen:
            return self._known.candidate(draft, origin)
        found = next(each for each in self._shelf if self._known.drafts[each.text] is draft)
        self._shelf.remove(found)
        return found

    def _pool(self) -> list[Draft]:
        """New plans: some at random, some that change those of the best, some that cross them."""
        order = sorted(self._times, key=lambda text: self._times[text])[:PARENTS]
        parents = [self._known.drafts[text] for text in order]
        near, far = Sampler(self._rng, 0.5), Sampler(self._rng)
        drafts: list[Draft | None] = []
        self._drawn = set()
        for _ in range(POOL):
            kind = self._rng.random() if parents else 1.0
            if kind < CHANGED:
                drafts.append(self._changed(self._parent(parents), near))
            elif kind < CHANGED + CROSSED:
                drafts.append(self._crossed(self._parent(parents), self._parent(parents)))
            else:
                draft = self._space.draft({}, near if self._rng.random() < 0.5 else far)
                drafts.append(draft)
                self._drawn |= set() if draft is None else {draft.key}
        fresh = self._fresh(drafts)
        least = min([draft.cycles for draft in (*fresh, *parents)], default=0.0)
        return [draft for draft in fresh if draft.cycles <= HOPELESS * least]

    def _parent(self, parents: Sequence[Draft]) -> Draft:
        """One of the best, the better the likelier."""
        return parents[int(len(parents) * self._rng.random() ** 2)]

    def _changed(self, parent: Draft, sampler: Sampler) -> Draft | None:
        names = [name for name, question in parent.questions.items() if not question.is_settled]
        if not names:
            return None
        count = 1 + int(self._rng.random() < 0.4) + int(self._rng.random() < 0.15)
        changed = {names[int(self._rng.integers(len(names)))] for _ in range(count)}
        given = {name: answer for name, answer in parent.decisions.items() if name not in changed}

        def answer(question: Question) -> object:
            if question.name not in changed:
                return question.default
            before = parent.decisions[question.name]
            if not question.takes(before) or self._rng.random() < 0.2:
                return sampler(question)
            return sampler.beside(question, before)

        return self._space.draft(given, answer)

    def _crossed(self, one: Draft, other: Draft) -> Draft | None:
        given = {name: answer for name, answer in one.decisions.items() if self._rng.random() < 0.5}
        return self._space.draft({**other.decisions, **given})

    def _fresh(self, drafts: Iterable[Draft | None]) -> list[Draft]:
        """Those that are none of the known ones, each once."""
        found = {draft.key: draft for draft in drafts if draft is not None}
        return [draft for draft in found.values() if not self._known.has(draft)]

    def _taken(self, drafts: Iterator[Draft], n: int, origin: str) -> list[Candidate]:
        found: list[Candidate] = []
        while len(found) < n:
            draft = next(drafts, None)
            if draft is None:
                break
            fresh = self._known.candidate(draft, origin)
            found += [] if fresh is None else [fresh]
        return found


def _gains(ahead: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """The improvement that is to be expected of each, in logarithms: normal distributions, what is worse counts 0."""
    z = ahead / spread
    density = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    below = 0.5 * (1 + np.array([math.erf(each / math.sqrt(2)) for each in z]))
    return ahead * below + spread * density
