"""Outlines: what plans tell beforehand, and what scheduled functions show."""

from __future__ import annotations

import pytest

from tensorc import ops, te
from tensorc.schedule import Planner, outlines
from tensorc.schedule.knobs import Defaults, Replay
from tensorc.schedule.recipes.outline import trips
from tensorc.target import Target

TARGET = Target("cpu", mcpu="x86-64-v3")


def _matmul(m: int = 60, n: int = 64, k: int = 40):
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis(k, name="k")
    return te.lower([a, b, te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")])


def _softmax():
    x = te.placeholder((8, 64), name="X")
    return te.lower([x, ops.softmax(x)])


BLOCKS = {"height": 2, "breadth": 2, "depth": (20,)}


@pytest.mark.parametrize("decisions", [{}, BLOCKS, {"around": "rows", "unroll": 2}])
def test_a_plan_tells_all_instances(decisions):
    planner = Planner(_matmul(), TARGET, 1)
    knobs = Replay({"C.tile": (4, 1), **{f"C.{name}": each for name, each in decisions.items()}})
    (plan,) = planner.plans(knobs)
    found = plan.outline(TARGET, 1)
    assert found is not None and trips(found.levels, "serial", "tile", "lanes") == 60 * 64 * 40


def test_a_scheduled_function_shows_the_same():
    planner = Planner(_matmul(), TARGET, 1)
    knobs = Replay({"C.tile": (4, 1), "C.pack": False})
    (plan,) = planner.plans(knobs)
    told = plan.outline(TARGET, 1)
    _, shown = outlines(planner.schedule(Replay({"C.tile": (4, 1), "C.pack": False})).function)
    assert told is not None and shown.lanes == told.lanes == 8
    axes = [[each.axis for each in found.levels if each.trips > 1] for found in (shown, told)]
    assert axes[0] == axes[1]
    assert trips(shown.levels, "tile") == trips(told.levels, "tile")


def test_every_stage_of_a_softmax_is_told():
    planner = Planner(_softmax(), TARGET, 1)
    plans = planner.plans(Defaults())
    assert len(plans) == 4 and all(plan.outline(TARGET, 1) is not None for plan in plans)
