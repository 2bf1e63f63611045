"""Indices that depend on what a scan or an update has computed: checked in the step, or at the store, that uses it."""

from __future__ import annotations

import numpy as np
import pytest

import tensorc as tc
from tensorc import te
from tests.te.test_wrapping import NUMBERS, guarded

n, m = te.var("n"), te.var("m")
OUTSIDE = [number for number in NUMBERS if -(2**63) <= number < 2**63 and not 0 <= number < 8]


def chain():
    """at[t] = next[at[t - 1]]"""
    follow, state = te.placeholder((n,), "int64", name="follow"), te.placeholder((m,), "int64", name="state")
    first = te.compute((1,), lambda t: 0, dtype="int64", name="first")
    step = te.compute((m,), lambda t: follow[state[t - 1]], name="step")
    return tc.build([follow, te.scan(first, step, state, name="at")], cache=False)


def test_a_state_is_an_index():
    kernel = chain()
    ring = np.roll(np.arange(8), -1)
    assert np.array_equal(kernel(guarded(ring), m=20), np.arange(20) % 8)
    assert np.array_equal(kernel(guarded(ring), m=1), [0])
    for number in OUTSIDE:
        ring[3] = number
        message = rf"access follow\[state\[t - 1\]\]: index {number} at t = 5 is outside 0..7"
        with pytest.raises(tc.ArgumentError, match=message):
            kernel(guarded(ring), m=20)
        assert np.array_equal(kernel(guarded(ring), m=5), [0, 1, 2, 3, number])


def test_nests_in_a_step():
    table, state = te.placeholder((n, m), "int32", name="table"), te.placeholder((6, m), "int64", name="state")
    r = te.reduce_axis(m, name="r")
    first = te.compute((1, m), lambda t, i: i, name="first")
    guarded_read = lambda t, i: te.if_then_else(state[t - 1, r] * 2 < n, table[state[t - 1, r], i], 1)
    total = te.compute((6, m), lambda t, i: te.sum(te.cast(guarded_read(t, i), "int64"), axis=r), name="total")
    rows = te.scan(first, total, state, name="rows")
    text = str(tc.schedule([table, rows]).show())
    parts = ("for rows.t", "block rows_ok", "block rows_check", "block rows\n")
    assert sorted(parts, key=text.index) == [*parts]
    kernel = tc.build([table, rows], cache=False)

    def expected(data):
        found = [np.arange(data.shape[1])]
        with np.errstate(over="ignore"):
            for _ in range(5):
                ones = np.ones(data.shape[1], "int64")
                found.append(sum(data[at].astype("int64") if at * 2 < len(data) else ones for at in found[-1]))
        return np.array(found)

    random = np.random.default_rng(1)
    data = random.integers(0, 3, (40, 5)).astype("int32")
    assert np.array_equal(kernel(guarded(data)), expected(data))
    data[2] = -70
    message = r"access table\[state\[t - 1, r\], i\]: index -\d+ of dimension 0 at t = 2, r = 0"
    with pytest.raises(tc.ArgumentError, match=message):
        kernel(guarded(data))


def test_a_state_is_the_end_of_a_range():
    x, state = te.placeholder((9,), "int64", name="x"), te.placeholder((9,), "int64", name="state")
    first = te.compute((1,), lambda t: x[0], name="first")

    def step(t):
        k = te.reduce_axis((t - 1, state[t - 1]), name="k")
        return te.sum(x[k], axis=k)

    kernel = tc.build([x, te.scan(first, te.compute((9,), step, name="step"), state, name="sums")], cache=False)

    def expected(data):
        found = [int(data[0])]
        for t in range(1, 9):
            found.append(int(sum(data[t - 1 : max(found[-1], t - 1)])))
        return found

    for data in ([1, 1, 1, 1, 1, 1, 1, 1, 1], [3, 0, 2, 1, 4, 0, 0, 0, 9], [0] * 9, [-(2**63)] + [1] * 8):
        assert np.array_equal(kernel(guarded(np.array(data))), expected(data))
    for number in OUTSIDE:
        if number > 9:
            message = r"access x\[k \+ \(t - 1\)\]: index 9 at t = 1, k = 9 is outside 0..8"
            with pytest.raises(tc.ArgumentError, match=message):
                kernel(guarded(np.array([number] + [0] * 8)))


def test_an_update_by_what_it_updates():
    held, r = te.placeholder((n,), "int64", name="held"), te.reduce_axis(n, name="r")
    moved = te.update(held, held[r], held[held[r]] + 1, where=te.ne(held[r], 3), name="moved")
    kernel = tc.build([held, moved], cache=False)

    def expected(data):
        for at in range(len(data)):
            if data[at] != 3:
                data[data[at]] += 1
        return data

    random = np.random.default_rng(2)
    for _ in range(20):
        data = random.integers(0, 6, 30)
        assert np.array_equal(kernel(guarded(data)), expected(data.copy()))
    for number in [number for number in OUTSIDE if not 0 <= number < 30]:
        data[5:] = [number] * 25
        data[:5] = 3
        message = rf"access held\[held\[r\]\]: index {number} at r = 5 is outside 0..29"
        with pytest.raises(tc.ArgumentError, match=message):
            kernel(guarded(data))


def test_the_range_of_an_update_reads_it():
    """What is looked at before the first store is not what the ranges are later."""
    held, x = te.placeholder((2,), "int64", name="held"), te.placeholder((n,), "int64", name="x")
    outer = te.reduce_axis(2, name="outer")
    inner = te.reduce_axis((0, held[outer]), name="inner")
    summed = te.update(held, 1, held[1] + x[inner], axis=(outer, inner), name="summed")
    kernel = tc.build([held, x, summed], cache=False)
    assert np.array_equal(kernel(np.array([2, 0]), guarded(np.array([1, 2, 9]))), [2, 3 + 12])
    with pytest.raises(tc.ArgumentError, match=r"access x\[inner\]: index 3 at outer = 1, inner = 3 is outside 0..2"):
        kernel(np.array([2, 0]), guarded(np.array([1, 3, 9])))


def test_promises_and_guards_spare_the_checks():
    follow, state = te.placeholder((n,), "int64", name="follow"), te.placeholder((9,), "int64", name="state")
    first = te.compute((1,), lambda t: 0, dtype="int64", name="first")
    for read in (
        lambda at: follow[te.assume(at, 0, n)],
        lambda at: te.if_then_else(te.all(at >= 0, at < n), follow[at], 0),
    ):
        step = te.compute((9,), lambda t: read(state[t - 1]), name="step")
        assert "check" not in str(tc.schedule([follow, te.scan(first, step, state, name="at")]).show())


def _sums(body, steps=1):
    """A scan that starts with ones."""
    T = te.var("T")
    state = te.placeholder((T,), "int64", name="state")
    first = te.compute((steps,), lambda t: 1, dtype="int64", name="first")
    return tc.build([te.scan(first, te.compute((T,), lambda t: body(state, t), name="step"), state)], cache=False)


def _sum(range_, term, **rest):
    k = te.reduce_axis(range_, name="k")
    return te.sum(term(k), axis=k, **rest)


@pytest.mark.parametrize(("body", "steps", "expected"), (
    (lambda s, t: _sum(3, lambda k: s[t - 1 - k]), 3, [1, 1, 1, 3, 5, 9, 17, 31]),
    (lambda s, t: _sum((0, t), lambda k: s[k]), 1, [1, 1, 2, 4, 8, 16, 32, 64]),
    (lambda s, t: _sum((0, t), lambda k: s[k] * s[t - 1 - k]), 1, [1, 1, 2, 5, 14, 42, 132, 429]),
    (lambda s, t: te.if_then_else(t >= 2, s[t - 1] + s[te.maximum(t - 2, 0)], s[t - 1]), 1, [1, 1, 2, 3, 5, 8, 13, 21]),
))
def test_a_step_looks_back_at_many(body, steps, expected):
    assert _sums(body, steps)(T=8).tolist() == expected


def test_a_step_may_not_look_at_itself():
    with pytest.raises(tc.ExpressionError, match="is not proved to be a step before 't'"):
        _sums(lambda s, t: _sum((0, t + 1), lambda k: s[k]))
    with pytest.raises(tc.ExpressionError, match="is not proved to be a step before 't'"):
        _sums(lambda s, t: te.if_then_else(t >= 2, s[t - 1], s[t]))


@pytest.mark.parametrize("pick", (te.argmin, te.argmax))
@pytest.mark.parametrize("width", (5, 64))
def test_the_place_of_the_least_of_a_step(pick, width):
    state = te.placeholder((4, width), "int32", name="state")
    k = te.reduce_axis(width, name="k")
    first = te.compute((1, width), lambda t, i: te.cast((i * 7) % width, "int32"), name="first")
    step = te.compute((4, width), lambda t, i: te.cast(pick(state[t - 1, k], axis=k), "int32") - state[t - 1, i])
    found = tc.build([te.scan(first, step, state)], cache=False)()
    expected = [np.arange(width, dtype="i4") * 7 % width]
    for _ in range(3):
        expected.append(getattr(np, pick.__name__)(expected[-1]).astype("i4") - expected[-1])
    assert np.array_equal(found, expected)
