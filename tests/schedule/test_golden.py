"""What each step makes of a small nest, as text: golden.txt has nests, each followed by steps on it and what
comes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorc.ir.parser import parse
from tensorc.schedule import Schedule
from tensorc.schedule.trace import PRIMITIVES
from tests.schedule.same import assert_same

GOLDEN = Path(__file__).with_name("golden.txt")


def _cases() -> list[tuple[str, str, str]]:
    """The nest, the step as Python, and the nest after it."""
    found = []
    for group in GOLDEN.read_text(encoding="utf-8").split("\n\n"):
        before, *steps = group.strip().split("\n>>> ")
        found += [(before, *step.split("\n", 1)) for step in steps]
    return found


@pytest.mark.parametrize(("before", "step", "after"), _cases(), ids=[step for _, step, _ in _cases()])
def test_a_step(before, step, after):
    s = Schedule(parse(before))
    assert s.show() == before
    exec(step, {"s": s})
    assert s.show() == after
    assert_same(s.origin, s.function, **({"n": 8} if "[n]" in before else {}))
    again = Schedule(parse(before))
    exec(s.trace.python(), {"s": again})
    assert again.show() == after and again.trace == s.trace
    s.undo()
    assert s.show() == before


def test_every_step_is_there():
    assert {step.split("(")[0].removeprefix("s.") for _, step, _ in _cases()} == set(PRIMITIVES)
