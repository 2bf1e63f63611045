"""Knobs: defaults, replay, and what replay refuses."""

from __future__ import annotations

import pytest

from tensorc.errors import ScheduleError
from tensorc.schedule.knobs import Defaults, Replay


def recipe(knobs):
    return knobs.split("tile", 64, 3, default=(4, 16)), knobs.choice("unroll", (1, 2, 4), default=2)


def test_defaults_remember_what_they_answered():
    knobs = Defaults()
    assert recipe(knobs) == ((4, 16), 2)
    assert knobs.decisions == {"tile": (4, 16), "unroll": 2}


def test_replay_answers_what_was_recorded_and_defaults_for_the_rest():
    knobs = Replay({"tile": [8, 8]})
    assert recipe(knobs) == ((8, 8), 2)
    assert knobs.decisions == {"tile": (8, 8), "unroll": 2}


@pytest.mark.parametrize("factors", [(8,), (0, 8), (True, 8), "ab", 7])
def test_replay_refuses_factors_that_are_none(factors):
    with pytest.raises(ScheduleError, match=r"knob 'tile': .* are not 2 positive factors"):
        recipe(Replay({"tile": factors}))


def test_replay_refuses_an_option_that_is_not_offered():
    with pytest.raises(ScheduleError, match=r"knob 'unroll': 3 is none of 1, 2, 4"):
        recipe(Replay({"unroll": 3}))
