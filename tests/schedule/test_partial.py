"""Reductions with fewer results than threads: parts with results of their own."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc import te
from tensorc.errors import ScheduleError
from tensorc.ir.interpreter import interpret
from tensorc.schedule.knobs import Replay
from tensorc.schedule.recipes.choose import schedule_function
from tensorc.target import Target

TARGET = Target("cpu", mcpu="x86-64-v3")


def _sum(*shape: int):
    x = te.placeholder(shape, name="X")
    axes = [te.reduce_axis(extent, name=name) for extent, name in zip(shape, "ijk")]
    return te.lower([x, te.compute((1,), lambda b: te.sum(x[tuple(axes)], axis=axes), name="Y")])


@pytest.mark.parametrize("shape", [(64,), (8, 24), (16, 5, 9)])
@pytest.mark.parametrize("parts", [2, 4])
def test_parts_are_tasks(shape, parts):
    function = _sum(*shape)
    s = schedule_function(function, TARGET, 2, Replay({"Y.parts": parts, "Y.parallel": True}))
    assert f"in 0 .. {parts} parallel" in s.show()
    x = np.random.default_rng(0).integers(-3, 4, shape).astype("float32")
    np.testing.assert_array_equal(interpret(s.function, x), interpret(function, x))


def test_parts_divide_the_reduction():
    with pytest.raises(ScheduleError, match=r"knob 'Y.parts': 4 is none of 0, 2"):
        schedule_function(_sum(6, 16), TARGET, 2, Replay({"Y.parts": 4}))
