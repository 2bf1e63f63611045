"""Tuning from end to end, with real measurements of small functions; and what it does where those fail or end."""

from __future__ import annotations

import io
import time

import numpy as np
import pytest

import autotune
import tensorc as tc
from autotune.measure import LocalRunner
from autotune.progress import Lines, Silent, duration, told
from autotune.record import Candidate, Measurement, Trial
from tensorc import ops, te
from tensorc.errors import TuningError
from tests.autotune.test_database import matmul


def quick(workload, values):
    """Measurements that are short, for tests that need no precision."""
    return LocalRunner(workload, values, effort=0.004)


class Planned:
    """A runner of planned times: the default takes 1 s, what comes first of the others as long as it is told."""

    def __init__(self, *times: float, fails=False, interrupts=()):
        self.times, self.fails, self.interrupts = list(times), fails, interrupts
        self.known: dict[str, float] = {}
        self.compared = 0

    def __call__(self, workload, values):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        pass

    def measure(self, candidates, best):
        for number, each in enumerate(candidates):
            if len(self.known) in self.interrupts:
                raise KeyboardInterrupt
            self.known[each.text] = 1.0 if each.origin == "default" else self.times.pop(0) if self.times else 3.0
            yield number, Measurement("crashed", reason="signal 4") if self.fails else self.found(each)

    def compare(self, candidates):
        self.compared = len(candidates)
        return [self.found(each) for each in candidates]

    def found(self, candidate: Candidate) -> Measurement:
        return Measurement("ok", (self.known[candidate.text],) * 3)


def planned(runner, **options) -> autotune.Result:
    return autotune.tune(matmul(), threads=1, trials=10, runner=runner, progress=False, **options)


def test_a_product_is_tuned(tmp_path):
    tensors = matmul(64, 64, 64)
    database = tmp_path / "t.db"
    result = autotune.tune(
        tensors, threads=1, trials=10, seconds=60, database=str(database), runner=quick, progress=False
    )
    assert len(result.history) == 10 and all(trial.measurement.status == "ok" for trial in result.history)
    assert result.seconds <= result.default_seconds and result.history[0].candidate.origin == "default"
    rng = np.random.default_rng(0)
    a, b = [rng.integers(-4, 5, (64, 64)).astype("f4") for _ in range(2)]
    assert np.array_equal(result.kernel(a, b), a @ b) and set(result.decisions) == set(result.schedule.decisions)
    known = autotune.Database(database)
    (winner,) = known.records(winners=True)
    assert len(known) == 11 and winner.measurement.seconds == result.seconds
    found = tc.default_schedule(tensors, threads=1, schedules=known)
    assert found.show() == result.schedule.show()
    replayed = tc.Trace.from_json(winner.trace).apply(tc.Schedule(winner.workload.function))
    assert [each.candidate.text for each in result.history].count(replayed.show()) == 1
    curve = result.curve
    assert curve == sorted(curve) and [time for _, time in curve] == sorted([time for _, time in curve], reverse=True)


def test_symbolic_extents_are_measured_at_sizes():
    n = te.var("n")
    a = te.placeholder((n, 32), name="A")
    tensors = [a, ops.softmax(a)]
    result = autotune.tune(tensors, threads=1, trials=4, sizes={"n": 40}, runner=quick, progress=False)
    x = np.random.default_rng(0).random((7, 32)).astype("f4")
    assert np.allclose(result.kernel(x).sum(1), 1, atol=1e-5)
    with pytest.raises(TuningError, match="sizes: n of main must be given a value to measure with"):
        autotune.tune(tensors, threads=1, trials=4, runner=quick, progress=False)


def test_the_best_is_measured_against_the_default_again():
    runner = Planned(2.0, 0.7, 0.8, 0.9)
    result = planned(runner)
    assert runner.compared == 4 and (result.seconds, result.default_seconds) == (0.7, 1.0)
    assert result.speedup == pytest.approx(1 / 0.7) and result.decisions == dict(
        zip([name.replace("block0", "C") for name in result.record.decisions], result.record.decisions.values())
    )


def test_the_default_stays_where_nothing_beats_it_clearly():
    result = planned(Planned(0.998))
    assert result.seconds == result.default_seconds == 1.0 and result.record.is_winner
    assert result.schedule.show() == tc.default_schedule(matmul(), threads=1).show()


def test_it_starts_from_what_is_known(tmp_path):
    database = autotune.Database(tmp_path / "t.db")
    first = planned(Planned(2.0, 0.5), database=database)
    again = planned(Planned(), database=database)
    assert again.history[1].candidate.origin == "database"
    assert again.history[1].candidate.decisions == first.record.decisions
    other = autotune.tune(matmul(64), threads=1, trials=4, runner=Planned(), database=database, progress=False)
    assert other.history[1].candidate.origin == "database"


def test_ctrl_c_leaves_what_was_measured(tmp_path):
    database = autotune.Database(tmp_path / "t.db")
    result = planned(Planned(0.5, interrupts={4}), database=database)
    assert result.is_interrupted and len(result.history) == len(database) == 4 and result.seconds == 0.5
    with pytest.raises(TuningError, match="the budget ended before anything was measured"):
        planned(Planned(interrupts={0}))


def test_where_nothing_runs():
    with pytest.raises(TuningError, match="none of 10 schedules could be measured, .* reason: crashed: signal 4"):
        planned(Planned(fails=True))


def test_the_budget_is_kept():
    began = time.monotonic()
    result = autotune.tune(matmul(96, 96, 96), threads=1, seconds=4, progress=False)
    assert time.monotonic() - began < 20 and result.history  # a check of the clock that a busy machine passes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seconds": 0}, "seconds=0: a positive number is needed"),
        ({"seconds": "1"}, "seconds='1': a positive number"),
        ({"trials": 0}, "trials=0: a positive integer is needed"),
        ({"trials": 1.5}, "trials=1.5: a positive integer"),
        ({"search": "best"}, "search='best': 'model', 'random' or 'exhaustive' is needed"),
        ({"target": tc.Target("cpu", mcpu="neoverse-n1")}, "code for neoverse-n1 does not run here; a runner on"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(TuningError, match=message):
        autotune.tune(matmul(), threads=1, progress=False, **options)


@pytest.mark.parametrize("search", ["random", "exhaustive", autotune.Random])
def test_other_searches(search):
    assert len(planned(Planned(0.5), search=search).history) == 10


def test_what_is_told():
    file = io.StringIO()
    lines = Lines(file)
    lines.start("C", 3.0, 7)
    lines.trial(Trial(Candidate({}, ""), Measurement("ok", (1e-3,)), 0.5), 2, 1, 1e-3, 2e-3)
    assert file.getvalue() == "tuning C: 3 s, 7 trials\n   0.5 s  best 1 ms (2.00x the default), 2 trials, 1 failed\n"
    assert [duration(each) for each in (2.5, 1.23456e-3, 4e-6, 1e-9, float("inf"))] == [
        "2.5 s", "1.23 ms", "4 us", "0.001 us", "none"
    ]  # fmt: skip
    assert told(0, 0, float("inf"), float("inf")) == "best none, 0 trials"
    Silent().stop()
