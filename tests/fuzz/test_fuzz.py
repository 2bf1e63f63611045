"""A small fixed part of the fuzzer's programs, and that it sees what is wrong."""

from __future__ import annotations

import ctypes
from collections import Counter

import numpy as np
import pytest

from tensorc import te
from tensorc.schedule.trace import PRIMITIVES
from tests.fuzz import compare
from tests.fuzz.__main__ import main
from tests.fuzz.coverage import held, table
from tests.fuzz.generate import case
from tests.fuzz.memory import PAGE
from tests.fuzz.programs import Case, Code, Input, Program, Stage, script, source
from tests.fuzz.reference import reference
from tests.fuzz.shrink import shrink
from tests.fuzz.steps import MOST_INSTANCES, instances


def test_programs_with_the_default_schedule(capsys):
    assert main(["--programs", "100", "--seed", "1"]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("first", range(1, 501, 50))  # ten parts, for workers side by side
def test_programs_with_random_schedules(first, capsys):
    arguments = ["--programs", "50", "--seed", str(first), "--schedules"]
    assert main(arguments) == 0, capsys.readouterr().out


def test_steps_are_tried_and_told_apart(capsys):
    """A step that was refused leaves the schedule as it was, and all kinds of steps come up."""
    assert main(["--programs", "40", "--seed", "9000", "--schedules"]) == 0
    lines = capsys.readouterr().out.splitlines()
    start = [line.split()[0] for line in lines].index("step")
    rows = [line.split() for line in lines[start + 1 : -1]]
    accepted = {" ".join(row[:-2]): int(row[-2]) for row in rows}
    assert accepted.keys() >= set(PRIMITIVES) - {"split"}
    assert sum(count > 0 for count in accepted.values()) > 35


def test_loops_that_data_ends_are_counted_by_the_data():
    L = te.placeholder((8,), "int32", name="L")

    def row(i):
        k = te.reduce_axis((0, L[i]), name="k")
        return te.sum(te.cast(k, "float32"), axis=k)

    function = te.lower([L, te.compute((8,), row, name="C")])
    assert instances(function) >= 8 * MOST_INSTANCES
    assert instances(function, {"L": (0, 5)}) == 8 * 5


def test_a_seed_is_a_case():
    assert case(7) == case(7) != case(8)
    assert case(7, by_hand=True).random_steps > 0


def doubled() -> Case:
    element = Code("A0[{}]", (Code("i"),), "float32")
    body = Code("({} + {})", (element, Code("te.abs({})", (element,), "float32")), "float32")
    program = Program(
        (("N0", 17),), (Input("A0", ("N0",), "float32", "small"),),
        (Stage("S0", ("N0",), ("i",), (), body),), ("S0",),
    )  # fmt: skip
    return Case(program, None, 1, 0)


def test_cases_print_as_code_that_can_be_pasted():
    text = script(doubled())
    assert 'S0 = te.compute((N0,), lambda i: (A0[i] + te.abs(A0[i])), name="S0")' in text
    names: dict = {}
    exec(text, names)
    a = np.linspace(-1, 1, 17).astype("f4")
    np.testing.assert_array_equal(names["kernel"](a), a + abs(a))


def test_a_wrong_kernel_is_told(monkeypatch):
    def off_by_one(*arrays):
        arrays[-1][...] = arrays[0] + abs(arrays[0])
        arrays[-1][3] += 1

    build = compare.tc.build
    off_by_one.function = build(compare.tensors(doubled().program), cache=False).function
    monkeypatch.setattr(compare.tc, "build", lambda *args, **named: off_by_one)
    verdict = compare.run(doubled())
    assert verdict.kind == "kernel" and "S0[3] is" in verdict.message
    assert "machine code is not" in verdict.note


def test_a_write_beside_an_array_is_told(monkeypatch):
    def too_far(*arrays):
        output = arrays[-1]
        output[...] = arrays[0] + abs(arrays[0])
        start = output.ctypes.data
        ctypes.c_uint8.from_address(start - 4 if start % PAGE else start + 68).value = 0

    too_far.function = compare.tc.build(compare.tensors(doubled().program), cache=False).function
    monkeypatch.setattr(compare.tc, "build", lambda *args, **named: too_far)
    assert compare.run(doubled()).message == "the kernel: memory beside S0 was written"


def test_shrinking_keeps_what_fails():
    small = shrink(doubled(), lambda each: "te.abs" in source(each.program), seconds=300)
    assert 'te.compute((), lambda: te.abs(te.const(1.0, "float32")), name="S0")' in source(
        small.program
    )


@pytest.mark.parametrize(
    ("body", "least"),
    [
        (lambda a, b: a * b + a, 0),  # whole numbers: exact
        (lambda a, b: te.floor(a + b) + te.select(a < b, a, b), 0),
        (lambda a, b: (a * 0.1) * b + a, 1e-9),
        (lambda a, b: te.exp(a), 1e-8),
        (lambda a, b: te.select(te.exp(a) < te.exp(b), a, a), 0),
        (lambda a, b: te.select(te.exp(a) < te.exp(a), a, a), np.inf),  # rounding may turn it
    ],
)
def test_bounds_of_errors(body, least):
    A = te.placeholder((8,), "float32", name="A")
    B = te.placeholder((8,), "float32", name="B")
    C = te.compute((8,), lambda i: body(A[i], B[i]), name="C")
    a, b = np.arange(8, dtype="f4"), np.arange(8, 0, -1).astype("f4") + 0.5
    error = reference(te.lower([A, B, C]), {"A": a, "B": b})["C"].error
    assert error.max() >= least and (least > 0 or error.max() == 0)


def test_programs_hold_every_kind_of_thing():
    counts: Counter[str] = Counter()
    for seed in range(1500):
        counts += held(case(seed))
    assert table(counts).splitlines()[-1] == "never: nothing"
