"""Recipes of the user's own: which groups they get, what they are told, and what their kernels are kept by."""

from __future__ import annotations

import numpy as np
import pytest

import tensorc as tc
from tensorc import te


def doubled(size=100):
    X = te.placeholder((size,), name="X")
    return [X, te.compute((size,), lambda i: X[i] * 2, name="Y")]


def always(group):
    return True


def test_a_recipe_of_one_function():
    asked = []

    @tc.recipe(lambda group: group.main.block == "Y", register=False)
    def plain(s, group, knobs, target, threads):
        asked.append((target.mcpu, threads))
        lanes = knobs.choice("lanes", (4, 8), default=4)
        s.vectorize(s.split(s.loops("Y")[0], (None, lanes))[1])

    target = tc.Target("cpu", mcpu="x86-64-v3")
    with plain:
        s = tc.default_schedule(doubled(), target, threads=3)
        assert dict(s.recipes) == {"Y": "plain"} and dict(s.decisions) == {"Y.lanes": 4}
        assert s.extent("Y.i.1") == 4 and asked == [("x86-64-v3", 3)]
        assert tc.default_schedule(doubled(), target, schedules={"Y.lanes": 8}).extent("Y.i.1") == 8
    assert tc.default_schedule(doubled(), target).recipes["Y"] == "elementwise"


def test_a_recipe_with_a_plan():
    def decide(group, knobs, target, threads):
        return knobs.split("tile", group.main.axes[0].extent, 2, default=(5,))

    @tc.recipe(always, decide=decide, name="tiles", register=False)
    def apply(s, group, plan):
        s.split(s.loops(group.main.block)[0], (None, *plan))

    with apply:
        kernel = tc.build(doubled(), cache=False)
    assert kernel.schedule.recipes["Y"] == "tiles" and kernel.decisions == {"Y.tile": (5,)}
    assert kernel.schedule.trace.python() == 'i0, i1 = s.split("Y.i", factors=(None, 5))'
    assert "scheduled by tiles (Y)" in str(kernel.report())


def test_priority_and_order():
    made = [
        tc.recipe(always, priority=priority, name=name)(lambda s, *rest: None)
        for name, priority in (("first", 0), ("high", 1), ("last", 0), ("low", -1))
    ]
    order = []
    try:
        for _ in range(4):
            name = tc.default_schedule(doubled()).recipes["Y"]
            order.append(name)
            next(recipe for recipe in made if recipe.name == name).unregister()
    finally:
        for recipe in made:
            recipe.unregister()
    assert order == ["high", "last", "first", "low"]
    assert tc.default_schedule(doubled()).recipes["Y"] == "elementwise"


def test_compiled_kernels_are_kept_by_what_the_recipe_made(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORC_CACHE_DIR", str(tmp_path))
    x = np.arange(100, dtype="f4")
    first = tc.build(doubled())

    def own(lanes):
        @tc.recipe(always, register=False)
        def same_name(s, group, knobs, target, threads):
            s.vectorize(s.split("Y.i", (None, lanes))[1])

        return same_name

    codes = [first.artifact.code]
    for lanes in (4, 8, 4):
        with own(lanes):
            kernel = tc.build(doubled())
        assert kernel.schedule.extent("Y.i.1") == lanes  # also when it is no longer registered
        np.testing.assert_array_equal(kernel(x), 2 * x)
        codes.append(kernel.artifact.code)
    assert codes[1] == codes[3] and len(set(codes)) == 3
    with own(4).__class__("none", lambda group: False, lambda *args: None):
        assert tc.build(doubled()).artifact.code == first.artifact.code


@pytest.mark.parametrize(
    "matches, apply, message",
    [
        (
            always,
            lambda s, *rest: s.vectorize("Z"),
            "recipe 'own' on block 'Y': no loop is named 'Z'; there are Y.i",
        ),
        (always, lambda s, *rest: rest[9], "recipe 'own' on block 'Y': its apply raised IndexError: tuple index"),
        (lambda group: group.nothing, None, "recipe 'own' on block 'Y': its matches raised AttributeError: "),
    ],
)
def test_errors_name_the_recipe(matches, apply, message):
    with tc.recipe(matches, name="own", register=False)(apply), pytest.raises(tc.ScheduleError) as caught:
        tc.build(doubled(), cache=False)
    assert str(caught.value).startswith(message)


def test_the_decorator_needs_a_predicate():
    with pytest.raises(tc.ScheduleError, match="is no predicate"):

        @tc.recipe
        def forgotten(s, group, knobs, target, threads): ...

        tc.recipe("Y")


def test_knobs_that_a_recipe_does_not_ask_for_are_refused():
    own = tc.recipe(always, register=False)(lambda s, *rest: None)
    with own, pytest.raises(tc.ScheduleError, match="knob 'Y.lanes': no recipe asks for that; there are none"):
        tc.build(doubled(), schedules={"Y.lanes": 8})
