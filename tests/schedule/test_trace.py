"""Traces: as Python, as JSON, and performed again."""

from __future__ import annotations

import json

import pytest

from tensorc.arith import IndexMap
from tensorc.errors import ScheduleError
from tensorc.ir.expr import Var, maximum
from tensorc.ir.parser import parse
from tensorc.ir.printer import show
from tensorc.schedule import Schedule, Trace
from tensorc.schedule.trace import PRIMITIVES, Step, map_text, read_map
from tests.schedule.same import assert_same
from tests.schedule.test_schedule import elementwise, matmul


def scheduled(function) -> Schedule:
    s = Schedule(function)
    i, j, k = s.loops("C")
    i0, i1 = s.split(i, (None, 3))
    j0, j1 = s.split(j, (None, 4), tail="mask")
    k0, k1 = s.split(k, (None, 2))
    k00, k01 = s.split(k0, (2, None))
    s.reorder(i0, j0, k00, k01, k1, i1, j1)
    s.vectorize(j1)
    copy = s.cache_read("C", "B")
    s.transform_layout(copy, copy.name, lambda row, column: (column, row))
    s.parallel(s.fuse(i0, j0))
    s.decompose_reduction("C", k00)
    s.unroll("C_init.i.1")
    return s


PYTHON = """\
i0, i1 = s.split("C.i", factors=(None, 3))
j0, j1 = s.split("C.j", factors=(None, 4), tail="mask")
k0, k1 = s.split("C.k", factors=(None, 2))
k0_0, k0_1 = s.split(k0, factors=(2, None))
s.reorder(i0, j0, k0_0, k0_1, k1, i1, j1)
s.vectorize(j1)
B_global = s.cache_read("C", "B")
s.transform_layout(B_global, "B_global", lambda row, column: (column, row))
i0_j0 = s.fuse(i0, j0)
s.parallel(i0_j0)
C_init = s.decompose_reduction("C", k0_0)
s.unroll("C_init.i.1")"""


def test_python_can_be_pasted():
    s = scheduled(matmul())
    assert s.trace.python() == PYTHON
    namespace = {"s": Schedule(matmul())}
    exec(PYTHON, namespace)
    assert namespace["s"].show() == s.show()
    assert namespace["s"].trace == s.trace


def test_variables_of_several_blocks_do_not_collide():
    s = Schedule(elementwise())
    s.split("B.i", (None, 2))
    s.split("C.i", (None, 2))
    s.split("C.j", (7,))
    assert s.trace.python() == (
        'i0, i1 = s.split("B.i", factors=(None, 2))\n'
        'C_i0, C_i1 = s.split("C.i", factors=(None, 2))\n'
        '(j0,) = s.split("C.j", factors=(7,))'
    )


def test_json_round_trip():
    s = scheduled(matmul())
    text = s.trace.json()
    assert "\n" not in text
    assert Trace.from_json(text) == s.trace
    assert json.loads(text)["steps"][0] == {
        "step": "split", "loop": "C.i", "factors": [None, 3], "tail": "auto",
        "results": ["C.i.0", "C.i.1"],
    }  # fmt: skip


def test_replay_on_a_schedule_and_on_a_function():
    s = scheduled(matmul())
    target = Schedule(matmul())
    assert s.trace.apply(target) is target
    assert target.show() == s.show() and target.trace == s.trace
    assert show(s.trace.apply(matmul())) == s.show()


def test_replay_on_another_shape():
    trace = scheduled(matmul()).trace
    function = matmul(12, 8, 9)
    assert_same(function, trace.apply(function))


def test_replay_follows_other_names():
    first = Schedule(matmul())
    first.split("C.i", (None, 2))
    first.vectorize("C.i.1")
    trace = first.trace
    target = Schedule(matmul())
    target.fuse(*[target.split("C.j", (5,))[0]])
    # The names that the recorded split made are taken here.
    function = _renamed(target.function, "C.j.0", "C.i.1")
    replayed = trace.apply(function)
    assert "for C.i.1_1 in 0 .. 2 vectorized" in show(replayed)


def _renamed(function, old: str, new: str):
    return parse(show(function).replace(old, new))


def test_a_step_that_no_longer_fits_is_named():
    s = Schedule(matmul())
    s.split("C.i", (2, 3))
    s.vectorize("C.i.1")
    target = Schedule(matmul(7, 5, 7))
    with pytest.raises(ScheduleError) as caught:
        s.trace.apply(target)
    assert str(caught.value) == (
        "step 1 of the trace, split(loop='C.i', factors=(2, 3), tail='auto'), does not fit here: "
        "split(loop 'C.i'): factors (2, 3) multiply to 6, the extent is 7"
    )
    assert "for C.i in 0 .. 7" in caught.value.__notes__[0]
    assert len(target.trace) == 0 and target.function is target.origin


def test_a_replay_is_all_or_nothing():
    s = Schedule(matmul())
    s.unroll("C.k")
    s.split("C.i", (2, 3))
    target = Schedule(matmul(7, 5, 7))
    with pytest.raises(ScheduleError, match="step 2 of the trace"):
        s.trace.apply(target)
    assert target.function is target.origin


STEP = '{"version": 1, "steps": [%s]}'


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "trace: the text is not JSON"),
        ("{", "trace: the text is not JSON"),
        ("[" * 100_000, "trace: the text is not JSON"),
        ("[]", "trace: the JSON is no trace of version 1"),
        ('{"version": 2, "steps": []}', "trace: the JSON is no trace of version 1"),
        ('{"version": 1}', "trace: the JSON has no list of steps"),
        (STEP % "3", "trace: step 1 is none that is known: 3"),
        (STEP % '{"step": ["split"]}', "trace: step 1 is none that is known: {'step': ['split']}"),
        (STEP % '{"step": "bogus"}', "trace: step 1 is none that is known: {'step': 'bogus'}"),
        (STEP % '{"step": "unroll"}', "trace: step 1: None is no value of 'loop'"),
        (STEP % '{"step": "unroll", "loop": 3}', "trace: step 1: 3 is no value of 'loop'"),
        (
            STEP % '{"step": "unroll", "loop": "i", "x": 1}',
            "trace: step 1 has unknown fields: {'step': 'unroll', 'loop': 'i', 'x': 1}",
        ),
        (
            STEP % '{"step": "split", "loop": "C.i", "factors": [1.5]}',
            "trace: step 1: [1.5] is no value of 'factors'",
        ),
        (
            STEP % '{"step": "reorder", "loops": "C.i"}',
            "trace: step 1: 'C.i' is no value of 'loops'",
        ),
    ],
)
def test_bad_json(text, message):
    with pytest.raises(ScheduleError) as caught:
        Trace.from_json(text)
    assert str(caught.value).startswith(message)


def test_unknown_steps_are_refused():
    with pytest.raises(ScheduleError, match="no step is named 'bogus'; there are split, fuse"):
        Schedule(matmul()).perform("bogus", ())


# Index maps are text.

X, Y = Var("C.x"), Var("C.y")


@pytest.mark.parametrize(
    "given, text",
    [
        (lambda i, j: (i // 8, j, i % 8), "lambda i, j: (i // 8, j, i % 8)"),
        (lambda *x: (x[1], x[0]), "lambda i0, i1: (i1, i0)"),
        (lambda i, j: (i * 3 + j,), "lambda i, j: (i * 3 + j,)"),
        ("lambda i,j: (j , i)", "lambda i, j: (j, i)"),
        (IndexMap((X, Y), (Y, X)), "lambda i0, i1: (i1, i0)"),
    ],
)
def test_map_text(given, text):
    assert map_text(given, 2) == text
    assert map_text(read_map(text), 2) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "i, j",
        "lambda: (1,)",
        "lambda i: ()",
        "lambda i, i: (i, i)",
        "lambda class: (1,)",
        "lambda i, j: (i, q)",
        "lambda i, j: (i, __import__('os'))",
        "lambda i, j: (i, j",
        "lambda i, j: i",
        "lambda i=1: (i,)",
        f"lambda i: ({'(' * 5000}i{')' * 5000},)",
    ],
)
def test_bad_map_text(text):
    with pytest.raises(ScheduleError, match="index map"):
        read_map(text)


@pytest.mark.parametrize(
    "given, message",
    [
        (3, "index map: 3 is no function of the indices"),
        (lambda i, j: i, "index map: the function must return a tuple of indices"),
        (lambda i, j: (1.5, j), "index map: an index must be an integer"),
        (lambda i, j: (), "index map: the function must return a tuple of indices"),
    ],
)
def test_bad_maps(given, message):
    with pytest.raises(ScheduleError) as caught:
        map_text(given, 2)
    assert str(caught.value).startswith(message)


def test_maps_are_made_of_arithmetic():
    with pytest.raises(ScheduleError, match="is not made of the map's indices, integers and"):
        map_text(lambda i, j: (maximum(i, j), j), 2)


def test_steps_print():
    assert str(Step("split", ("C.k", (None, 4), "auto"))) == (
        "split(loop='C.k', factors=(None, 4), tail='auto')"
    )


# Every kind of argument and of result.


def nested(function) -> Schedule:
    s = Schedule(function)
    i, j, k = s.loops("C")
    s.reorder_block_iters("C", (2, 0, 1))
    unit = s.add_unit_loop(i)
    s.annotate(unit, "hint", 3)
    s.annotate("C", "why", "text")
    s.unannotate("C", "why")
    k0, k1 = s.loop_partition(k, (5, None))
    first, second = s.fission(j, after="C")
    s.merge(first, second)
    _, inner = s.split(k0, (None, 2))
    partial = s.rfactor(inner, 1)
    s.set_scope(partial, 0, "local")
    s.storage_align(partial, "C_rf", axis=-1, factor=16, offset=1)
    return s


NESTED = """\
s.reorder_block_iters("C", (2, 0, 1))
u = s.add_unit_loop("C.i")
s.annotate(u, "hint", 3)
s.annotate("C", "why", "text")
s.unannotate("C", "why")
k0, k1 = s.loop_partition("C.k", factors=(5, None))
j, C_1_j = s.fission("C.j", "C")
j = s.merge(j, C_1_j)
k0_0, k0_1 = s.split(k0, factors=(None, 2))
C_rf = s.rfactor(k0_1, factor_axis=1)
s.set_scope(C_rf, 0, "local")
s.storage_align(C_rf, "C_rf", -1, 16, offset=1)"""


def test_steps_on_nests_are_pasted_saved_and_made_again():
    s = nested(matmul())
    assert_same(matmul(), s.function)
    assert s.trace.python() == NESTED
    names = {"s": Schedule(matmul())}
    exec(NESTED, names)
    assert names["s"].show() == s.show()
    assert Trace.from_json(s.trace.json()).apply(Schedule(matmul())).show() == s.show()


def test_values_of_other_kinds_are_refused_in_json():
    for step, field, value in (
        ("annotate", "value", [1]),
        ("reorder_block_iters", "order", [1, "i"]),
        ("rfactor", "factor_axis", "x"),
        ("add_unit_loop", "place", 3),
    ):
        record = {"step": step, "place": "C", "key": "x", "block": "C", "loop": "C.k"}
        known = {name for name, _ in PRIMITIVES[step].arguments}
        record = {name: given for name, given in record.items() if name in known | {"step"}}
        text = json.dumps({"version": 1, "steps": [{**record, field: value}]})
        with pytest.raises(ScheduleError, match=f"is no value of '{field}'"):
            Trace.from_json(text)
