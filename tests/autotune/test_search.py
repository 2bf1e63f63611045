"""The search: what it starts with, what it learns, when it is over, and that a seed fixes it."""

from __future__ import annotations

import math

import pytest

import tensorc as tc
from autotune.record import Measurement, Trial
from autotune.search import Exhaustive, Random, Search
from tensorc import te
from tests.autotune.spaces import matmul, measured, space


def _run(strategy, made, count: int, batch: int = 4) -> list[Trial]:
    trials: list[Trial] = []
    while len(trials) < count and not strategy.is_done:
        for candidate in strategy.propose(batch):
            trials.append(measured(candidate, made))
            strategy.tell(trials[-1])
    return trials


def _best(trials: list[Trial]) -> float:
    return min(trial.measurement.seconds for trial in trials)


def _small():
    x = te.placeholder((64, 64), name="X")
    return space(tc.schedule([x, te.compute((64, 64), lambda i, j: x[i, j] * 2.0, name="Y")]).function)


def test_it_starts_at_the_default_and_what_is_known():
    made = space(matmul())
    first = Search(made, warm=[{"C.tile": (2, 2)}, {"C.tile": (99, 99)}]).propose(4)
    assert [each.origin for each in first] == ["default", "database", "model", "model"]
    assert first[0].decisions == made.draft().decisions and first[1].decisions["C.tile"] == (2, 2)


def test_no_two_candidates_have_the_same_text():
    made = space(matmul(32, 32, 16))
    trials = _run(Search(made), made, 60)
    assert len({trial.candidate.text for trial in trials}) == len(trials)


def test_a_seed_fixes_what_is_proposed():
    made = space(matmul())
    runs = [[trial.candidate.text for trial in _run(Search(made, seed), made, 40)] for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


def test_it_finds_better_than_random_does():
    made = space(matmul(256, 256, 256))
    random = _best(_run(Random(made), made, 60))
    assert all(_best(_run(Search(made, seed, blind=True), made, 60)) < random for seed in range(3))


def test_it_ends_where_nothing_is_to_be_gained():
    made = space(matmul(256, 256, 256))
    search = Search(made)
    trials = _run(search, made, 400)
    assert search.is_done and 24 <= len(trials) < 400
    assert {"default", "model", "evolved"} <= {trial.candidate.origin for trial in trials}


@pytest.mark.parametrize("make", [Search, Random, Exhaustive])
def test_a_small_space_is_gone_through(make):
    made = _small()
    strategy = make(made)
    trials = _run(strategy, made, 100)
    assert strategy.is_done and strategy.propose(4) == []
    assert sorted(trial.candidate.decisions["Y.lanes"] for trial in trials) == [8, 16, 32, 64]
    assert trials[0].candidate.origin == "default"


def test_failures_are_learned_from():
    made = space(matmul())
    search = Search(made)
    packed = 0
    for _ in range(12):
        for candidate in search.propose(4):
            if candidate.decisions["C.pack"]:
                packed += 1
                search.tell(Trial(candidate, Measurement("crashed", reason="signal 11")))
            else:
                search.tell(measured(candidate, made))
    later = [candidate.decisions["C.pack"] for candidate in search.propose(8)]
    assert packed and sum(later) <= 2


def test_a_trial_from_elsewhere_counts():
    made = space(matmul())
    other = made.candidate({"C.tile": (5, 1)}, "database")
    assert other is not None
    search = Search(made)
    search.tell(measured(other, made))
    found = [candidate.text for _ in range(4) for candidate in search.propose(8)]
    assert other.text not in found
    search.tell(Trial(type(other)({"C.tile": (99, 99)}, "an older recipe's"), Measurement("ok", (1.0,))))


def test_all_failing_is_no_trouble():
    made = space(matmul())
    search = Search(made)
    for _ in range(6):
        for candidate in search.propose(4):
            search.tell(Trial(candidate, Measurement("refused", reason="no")))
    assert search.propose(4)


def test_recipes_without_a_model_are_judged_by_what_they_do():
    @tc.recipe(lambda group: group.main.block == "C", register=False)
    def tiles(s, group, knobs, target, threads):
        i, j, k = s.loops("C")
        i, row = s.split(i, factors=(None, *knobs.split("i", 96, 2, default=(1,))))
        j, lane = s.split(j, factors=(None, *knobs.split("j", 96, 2, default=(1,))))
        s.reorder(i, j, k, row, lane)
        s.unroll(row)
        s.vectorize(lane)

    made = space(matmul(), own=(tiles,))
    search = Search(made, blind=True)
    best = math.inf
    for _ in range(12):
        for candidate in search.propose(4):
            found = made.scheduled(candidate.decisions)
            assert found is not None and found[1].cycles > 0
            best = min(best, found[1].cycles)
            search.tell(Trial(candidate, Measurement("ok", (found[1].cycles * 1e-9,))))
    rest = [made.scheduled({"C.i": (i,), "C.j": (j,)}) for i in (1, 4, 6, 8) for j in (8, 16, 32)]
    assert best <= 1.1 * min(each[1].cycles for each in rest if each is not None)
