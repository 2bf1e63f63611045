"""Whether every pass leaves a function's answer as it was, by the interpreter, on data whose
arithmetic is exact."""

from __future__ import annotations

import textwrap

import numpy as np

from tensorc.ir.expr import Var
from tensorc.ir.function import Function
from tensorc.ir.interpreter import interpret
from tensorc.ir.parser import parse
from tensorc.ir.printer import show
from tensorc.passes import lower


def program(text: str) -> Function:
    """The function of an indented text."""
    return parse(textwrap.dedent(text).strip() + "\n")


def inputs(function: Function, extents: dict[str, int]) -> list[np.ndarray]:
    """Small whole numbers for the inputs of a function."""
    rng = np.random.default_rng(0)
    arrays = []
    for buffer in function.params:
        if buffer not in function.outputs:
            shape = [extents[e.name] if type(e) is Var else e.value for e in buffer.shape]
            arrays.append(rng.integers(-4, 5, shape).astype(buffer.dtype.numpy))
    return arrays


def assert_same(before: Function, after: Function, what: str = "", **extents: int) -> None:
    """Fail unless both functions give the same outputs; `extents` are the symbolic ones."""
    arrays = inputs(before, extents)
    scalars = {var.name: extents[var.name] for var in before.scalars}
    try:
        expected = interpret(before, *[a.copy() for a in arrays], scalars=scalars)
        found = interpret(after, *[a.copy() for a in arrays], scalars=scalars)
        pairs = zip(expected, found) if isinstance(expected, tuple) else [(expected, found)]
        for a, b in pairs:
            np.testing.assert_array_equal(a, b)
    except Exception as error:
        error.add_note(f"{what} {extents}\n{show(before)}\n{show(after)}") if hasattr(
            error, "add_note"
        ) else None
        raise


def assert_lowers(function: Function, *extents: dict[str, int]) -> Function:
    """The flat form of a nest, after each pass of which the answer was the same."""
    steps: list[tuple[str, Function]] = []
    flat = lower(function, dump=lambda name, made: steps.append((name, made)), check=True)
    for values in extents or ({},):
        for name, made in steps:
            assert_same(function, made, name, **values)
    return flat


def assert_text(function: Function, expected: str) -> None:
    """Fail unless a function prints as the indented text."""
    assert show(function).strip() == textwrap.dedent(expected).strip()
