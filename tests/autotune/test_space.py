"""The space: what is asked is remembered, every answer that is drawn is taken or refused, and right."""

from __future__ import annotations

import numpy as np
import pytest

import tensorc as tc
from autotune.space import Asked, Question, Sampler, Space, by_default
from tensorc import te
from tensorc.errors import ScheduleError
from tensorc.ir.interpreter import interpret
from tensorc.ir.parser import parse
from tensorc.ir.printer import show
from tensorc.schedule.knobs import Replay
from tensorc.schedule.recipes.choose import schedule_function
from tests.autotune.spaces import TARGET, matmul, softmax, space


def _recipe(knobs):
    outer = knobs.choice("outer", ("rows", "columns"), default="rows")
    return outer, knobs.split(outer, 96, 3, default=(4, 16))


def test_what_is_asked_is_remembered():
    asked = Asked({"outer": "columns"}, by_default)
    assert _recipe(asked) == ("columns", (4, 16))
    assert asked.decisions == {"outer": "columns", "columns": (4, 16)}
    assert asked.questions["columns"] == Question("columns", (4, 16), (), 96, 3)


@pytest.mark.parametrize("given", [{"outer": "depth"}, {"rows": (4,)}, {"rows": (0, 4)}, {"rows": "ab"}])
def test_what_would_be_refused_is_answered_anew(given):
    assert _recipe(Asked(given, by_default)) == ("rows", (4, 16))


def test_factors_are_sensible():
    factors = Question("rows", (6,), (), 1000, 2).factors(0)
    assert {1, 2, 5, 6, 7, 8, 16, 48, 64, 125, 250, 500, 1000} <= set(factors)
    assert len(factors) <= 48 and max(factors) <= 1000


def test_the_default_draft_is_the_default_schedule():
    for function in (matmul(), softmax()):
        made = space(function)
        scheduled = schedule_function(function, TARGET, 1)
        draft = made.draft()
        assert draft is not None and draft.decisions == dict(scheduled.decisions)
        candidate = made.candidate(draft.decisions)
        assert candidate is not None and candidate.text == show(scheduled.function)


@pytest.mark.parametrize("function", [matmul(20, 40, 12), softmax(6, 20)], ids=["matmul", "softmax"])
def test_any_answer_is_refused_or_right(function):
    rng, made = np.random.default_rng(0), space(function, threads=2)
    sizes = [tuple(int(extent.value) for extent in buffer.shape) for buffer in function.params]
    arrays = [rng.integers(-2, 3, size).astype("float32") for size in sizes]
    expected = interpret(function, *arrays)
    sampler, texts = Sampler(rng), set()
    for _ in range(40):
        draft = made.draft({}, sampler)
        candidate = None if draft is None else made.candidate(draft.decisions)
        if candidate is not None and candidate.text not in texts:
            texts.add(candidate.text)
            found = interpret(parse(candidate.text), *arrays)
            np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert len(texts) > 5


def test_what_a_recipe_refuses_is_no_draft():
    made = space(matmul())
    assert made.draft({"C.tile": (90, 90)}) is None and made.candidate({"C.tile": (90, 90)}) is None


def test_a_candidate_replays():
    made = space(matmul())
    draft = made.draft({}, Sampler(np.random.default_rng(3)))
    assert draft is not None
    candidate = made.candidate(draft.decisions)
    assert candidate is not None
    again = schedule_function(matmul(), TARGET, 1, Replay(candidate.decisions))
    assert show(again.function) == candidate.text


def test_one_thread_shares_nothing():
    sampler = Sampler(np.random.default_rng(0))
    drafts = [space(matmul()).draft({}, sampler) for _ in range(20)]
    assert {draft.decisions["C.parallel"] for draft in drafts if draft} == {"none"}


def test_all_plans_of_a_small_space():
    x = te.placeholder((64, 64), name="X")
    function = tc.schedule([x, te.compute((64, 64), lambda i, j: x[i, j] * 2.0, name="Y")]).function
    drafts = list(space(function).drafts())
    assert [draft.decisions["Y.lanes"] for draft in drafts] == [32, 8, 16, 64]
    assert len({draft.key for draft in drafts}) == 4


def test_later_questions_follow_earlier_answers_in_all_plans():
    drafts = space(softmax()).drafts()
    first = [next(drafts) for _ in range(200)]
    assert len({draft.key for draft in first}) == 200


def test_a_recipe_with_apply_alone_is_run():
    @tc.recipe(lambda group: group.main.block == "C", register=False)
    def split(s, group, knobs, target, threads):
        (size,) = knobs.split("i", 96, 2, default=(8,))
        if size > 48:
            raise ScheduleError("too large")
        s.split(s.loops("C")[0], factors=(None, size))

    made = Space(matmul(), TARGET, 1, own=(split,))
    assert not made.is_plannable
    draft = made.draft()
    assert draft is not None and draft.decisions == {"C.i": (8,)} and draft.costs == ()
    assert made.candidate({"C.i": (32,)}) is not None and made.candidate({"C.i": (96,)}) is None


def test_a_recipe_with_a_plan_is_only_planned():
    @tc.recipe(lambda group: group.main.block == "C", register=False, decide=lambda group, knobs, *_: _recipe(knobs))
    def split(s, group, plan):
        raise AssertionError("not to be applied")

    made = Space(matmul(), TARGET, 1, own=(split,))
    draft = made.draft({"C.outer": "columns"})
    assert made.is_plannable and draft is not None
    assert draft.decisions == {"C.outer": "columns", "C.columns": (4, 16)}
    assert made.candidate({}) is None


def test_another_algorithm_is_drawn_only_where_it_is_allowed():
    x, k = te.placeholder((1, 8, 8, 4), name="X"), te.placeholder((3, 3, 4, 8), name="K")
    function = tc.schedule([x, k, tc.ops.conv2d(x, k, padding=1, name="C")]).function
    for is_allowed in (False, True):
        made = space(function, allows_algorithms=is_allowed)
        draw = Sampler(np.random.default_rng(0))
        drawn = {draft.decisions["C.algorithm"] for _ in range(40) if (draft := made.draft(answer=draw))}
        assert drawn == ({"direct", "winograd2", "winograd4"} if is_allowed else {"direct"})
    asked = made.candidate({"C.algorithm": "winograd4"})
    assert asked is not None and "C_products" in asked.text
