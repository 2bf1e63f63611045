"""Whether two functions give the same answer by the interpreter, on data whose arithmetic is
exact."""

from __future__ import annotations

import numpy as np

from tensorc.ir.expr import Var
from tensorc.ir.function import Function
from tensorc.ir.interpreter import interpret
from tensorc.ir.verifier import verify


def assert_same(before: Function, after: Function, **extents: int) -> None:
    """Fail unless both functions are well formed and give the same outputs; `extents` are the
    symbolic ones."""
    verify(after)
    arrays = inputs(before, extents)
    expected, found = interpret(before, *arrays), interpret(after, *arrays)
    pairs = zip(expected, found) if isinstance(expected, tuple) else [(expected, found)]
    for a, b in pairs:
        np.testing.assert_array_equal(a, b)


def inputs(function: Function, extents: dict[str, int]) -> list[np.ndarray]:
    """Small whole numbers for the inputs of a function."""
    rng = np.random.default_rng(0)
    arrays = []
    for buffer in function.params:
        if buffer not in function.outputs:
            shape = [extents[e.name] if type(e) is Var else e.value for e in buffer.shape]
            arrays.append(rng.integers(0, 5, shape).astype(buffer.dtype.numpy))
    return arrays
