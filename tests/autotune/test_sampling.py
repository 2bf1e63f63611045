"""How many samples are taken, by a clock that goes as the calls say."""

from __future__ import annotations

import math
from itertools import cycle
from types import SimpleNamespace

import pytest

from autotune import sampling
from autotune.sampling import Effort, alternate, sample


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def call(self, *seconds: float):
        """A call that takes these seconds, again and again."""
        times = cycle(seconds)

        def run() -> None:
            self.now += next(times)

        return run


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(sampling, "time", SimpleNamespace(perf_counter=made))
    return made


def test_a_steady_call_needs_few_samples(clock):
    assert sample(clock.call(1e-3), Effort()) == pytest.approx([1e-3] * sampling.LEAST)


def test_a_restless_call_is_sampled_until_the_time_is_up(clock):
    found = sample(clock.call(1e-3, 3e-3), Effort(seconds=0.06))
    assert 25 <= len(found) <= 32


def test_a_call_that_is_far_behind_is_given_up_at_once(clock):
    assert sample(clock.call(9e-3), Effort(), best=1e-3) == pytest.approx([9e-3, 9e-3])
    assert len(sample(clock.call(9e-3, 1e-3, 1e-3, 1e-3), Effort(), best=1e-3)) > sampling.LEAST


def test_a_call_that_is_behind_is_given_up_soon(clock):
    assert len(sample(clock.call(1.5e-3, 2e-3), Effort(), best=1e-3)) == sampling.LEAST
    assert len(sample(clock.call(1e-3, 2e-3), Effort(), best=1e-3)) > sampling.LEAST


def test_short_calls_are_repeated_within_a_sample(clock):
    calls = []
    run = clock.call(1e-6)
    found = sample(lambda: (calls.append(1), run()), Effort())
    assert found == pytest.approx([1e-6] * sampling.LEAST) and len(calls) > 100 * len(found)


def test_a_slow_call_has_three_samples(clock):
    assert len(sample(clock.call(1.0, 2.0), Effort())) == 3


def test_calls_alternate(clock):
    order = []
    first, second = clock.call(1e-3), clock.call(2e-3)
    calls = [lambda: (order.append("a"), first()), lambda: (order.append("b"), second())]
    found = alternate(calls, Effort(seconds=0.01))
    assert len(found[0]) == len(found[1]) >= 3
    assert "".join(order).endswith("ababab")
    assert math.isclose(found[1][0], 2e-3)


def test_caches_are_emptied_before_each_cold_call(clock, monkeypatch):
    order = []
    monkeypatch.setattr(sampling, "_empty_caches", lambda: order.append("empty"))
    run = clock.call(1e-6)
    found = sample(lambda: (order.append("call"), run()), Effort(cold=True))
    assert order == ["empty", "call"] * (len(found) + 1)
