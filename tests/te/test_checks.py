"""The checks of indices from data look at what is read: where a loop around the access is empty, at nothing."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc import te
from tests.test_expressions_data import fails, runs

FAR = 1 << 40  # so far outside that a read there ends the process
N, M = te.var("n"), te.var("m")
I, L = te.placeholder((N,), "int64", name="I"), te.placeholder((N,), "int32", name="L")
X, Z = te.placeholder((8,), name="X"), te.placeholder((M,), name="Z")
ZERO = te.compute((8,), lambda i: 0.0, name="zero")


def axes(order: str) -> list:
    made = {"r": te.reduce_axis(N, name="r"), "s": te.reduce_axis(M, name="s")}
    return [made[name] for name in order]


def gathered(order: str):
    r, s = sorted(found := axes(order), key=lambda axis: axis.name)
    return te.compute((3,), lambda i: te.sum(X[I[r]] * Z[s], axis=found), name="C")


def summed(shape: tuple):
    r = te.reduce_axis(N, name="r")
    return te.compute(shape, lambda i, j: te.sum(X[I[r]], axis=r), name="C")


def scattered(order: str):
    r, s = sorted(found := axes(order), key=lambda axis: axis.name)
    return te.update(ZERO, I[r], X[I[r]] + Z[s], axis=found, name="C")


def added(order: str):
    r, s = sorted(found := axes(order), key=lambda axis: axis.name)
    return te.update(ZERO, I[r], ZERO[I[r]] + Z[s], axis=found, name="C")


EMPTY = {
    "a reduce axis inside": (gathered("rs"), (I, X, Z), (3,)),
    "a reduce axis outside": (gathered("sr"), (I, X, Z), (3,)),
    "a spatial axis inside": (summed((5, M)), (I, X, Z), (5, 0)),
    "a spatial axis outside": (summed((M, 5)), (I, X, Z), (0, 5)),
    "columns": (te.compute((N, M), lambda i, j: X[I[i]] * Z[j], name="C"), (I, X, Z), (5, 0)),
    "rows": (te.compute((M, N), lambda i, j: X[I[j]] * Z[i], name="C"), (I, X, Z), (0, 5)),
    "an update's inner axis": (scattered("rs"), (I, X, Z), (8,)),
    "an update's outer axis": (scattered("sr"), (I, X, Z), (8,)),
    "an update's own index": (added("rs"), (I, Z), (8,)),
}
DATA = {I: np.full(5, FAR), X: np.ones(8, "float32"), Z: np.zeros(0, "float32")}


@pytest.mark.parametrize("name", EMPTY)
def test_nothing_is_checked_where_another_axis_is_empty(name):
    C, inputs, shape = EMPTY[name]
    found = runs([*inputs, C], *[DATA[tensor] for tensor in inputs])
    np.testing.assert_array_equal(found, np.zeros(shape, "float32"))


def test_each_row_asks_for_itself():
    r = te.reduce_axis(N, name="r")
    q = te.reduce_axis((0, L[r]), name="q")
    C = te.compute((4,), lambda i: te.sum(X[I[r]] + te.cast(i, "float32"), axis=(r, q)), name="C")
    lengths, at, x = np.array([0, 2, 0, 1, 0], "int32"), np.full(5, FAR), np.arange(8, dtype="float32")
    at[1], at[3] = 1, 2
    np.testing.assert_array_equal(runs([I, L, X, C], at, lengths, x), [4, 7, 10, 13])
    at[1] = 8
    fails([I, L, X, C], "access X[I[r]]: index 8 at r = 1 is outside 0..7", at, lengths, x)


def test_a_range_from_data_counts_as_any_other():
    r = te.reduce_axis(N, name="r")
    q = te.reduce_axis((0, L[r]), name="q")
    C = te.compute((N,), lambda i: te.sum(X[I[i]], axis=(r, q)), name="C")
    at, x = np.full(5, FAR), np.ones(8, "float32")
    np.testing.assert_array_equal(runs([I, L, X, C], at, np.zeros(5, "int32"), x), np.zeros(5, "float32"))
    message = f"access X[I[i]]: index {FAR} at i = 0, r = 3 is outside 0..7"
    fails([I, L, X, C], message, at, np.array([0, 0, 0, 1, 0], "int32"), x)
