"""Ranges that depend on data, and tensors made in order, by the default schedule: every machine, every edge."""

from __future__ import annotations

import random

import numpy as np
import pytest

import tensorc as tc
from tensorc import te
from tensorc.ir import parse, verify
from tests.fuzz.memory import GuardedArray

CPUS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")


def build(tensors, cpu):
    target = tc.Target("cpu", mcpu=cpu)
    if not target.is_host:
        pytest.skip(f"this machine does not run {cpu}")
    return tc.build(tensors, target, threads=1, cache=False)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("promised", (False, True))
@pytest.mark.parametrize("dtype", ("uint8", "float32", "float64"))
def test_rows_without_elements_are_what_a_reduction_starts_from(dtype, promised, cpu):
    L = te.placeholder((6,), "uint8", name="L")

    def at(reducer):
        def row(i):
            length = te.assume(L[i], 0, 300) if promised else L[i]
            k = te.reduce_axis((0, length), name="k")
            return reducer(te.const(2, dtype), axis=k)

        return row

    for reducer, neutral in ((te.sum, 0), (te.prod, 1), (te.max, te.min_value(dtype).value)):
        kernel = build([L, te.compute((6,), at(reducer), name="C")], cpu)
        c = kernel(np.array([0, 1, 0, 3, 0, 200], "u1"))
        assert list(c[[0, 2, 4]]) == [neutral] * 3 and c[1] == 2


@pytest.mark.parametrize("cpu", CPUS)
def test_a_range_between_data_beside_another_axis(cpu):
    lo, hi = te.placeholder((3, 4), "int32", name="lo"), te.placeholder((3,), "int64", name="hi")

    def at(i, j):
        k = te.reduce_axis((lo[i, j], hi[i]), name="k")
        r = te.reduce_axis(5, name="r")
        return te.sum(te.cast(k + r, "int16"), axis=(k, r))

    kernel = build([lo, hi, te.compute((3, 4), at, name="C")], cpu)
    a = np.random.default_rng(0).integers(0, 9, (3, 4)).astype("i4")
    b = np.array([0, 4, 9])
    expected = [[sum([k + r for k in range(x, y) for r in range(5)]) for x in row] for row, y in zip(a, b)]
    assert kernel(a, b).tolist() == expected


def test_steps_may_reduce_over_nothing():
    X, state = te.placeholder((4, 3), name="X"), te.placeholder((4, 3), name="state")

    def at(t, i):
        k = te.reduce_axis((i, t), name="k")
        return te.sum(state[t - 1, k % 3] + 1.0, axis=k)

    begin = te.compute((1, 3), lambda t, i: X[t, i], name="begin")
    kernel = tc.build([X, te.scan(begin, te.compute((4, 3), at, name="step"), state)], cache=False)
    x = np.arange(12, dtype="f4").reshape(4, 3)
    expected = [x[0]]
    for t in range(1, 4):
        expected.append(np.array([sum([expected[-1][k % 3] + 1 for k in range(i, t)]) for i in range(3)]))
    assert np.array_equal(kernel(x), np.array(expected, "f4"))


@pytest.mark.parametrize("cpu", CPUS)
def test_a_reduction_of_the_step_before(cpu):
    n = 37
    state = te.placeholder((5, n), "float64", name="state")
    k = te.reduce_axis(n, name="k")
    step = te.compute((5, n), lambda t, i: te.min(state[t - 1, k] + te.cast(i, "float64"), axis=k), name="step")
    begin = te.placeholder((1, n), "float64", name="begin")
    kernel = build([begin, te.scan(begin, step, state)], cpu)
    x = np.arange(n, 0, -1.0)[None]
    expected = [x[0]]
    for _ in range(4):
        expected.append(expected[-1].min() + np.arange(n))
    assert np.array_equal(kernel(x), expected)


@pytest.mark.parametrize("size", (0, 1, 15, 16, 17, 40))
def test_the_condition_of_an_update_reads_no_further_than_its_axis(size):
    n = te.var("n")
    X, Y = te.placeholder((n,), "int32", name="X"), te.placeholder((n,), "int32", name="Y")
    r = te.reduce_axis(n, name="r")
    kernel = tc.build([X, Y, te.update(Y, r, te.const(1, "int32"), where=X[r] < 3)], cache=False)
    held = GuardedArray((size,), np.dtype("i4"), random.Random(2))
    held.array[...] = np.arange(size) % 5
    held.make_read_only()
    assert np.array_equal(kernel(held.array, np.zeros(size, "i4")), held.array < 3)


def test_indices_that_wrap_around_all_of_memory():
    A, N = te.placeholder((4,), "float64", name="A"), te.placeholder((8,), "int64", name="N")
    kernel = tc.build([A, N, te.compute((8,), lambda i: A[N[i] * 4611686018427387905])], cache=False)
    a, index = np.arange(4.0), np.array([0, 1, 2, 3, 3, 2, 1, 0])
    inverse = pow(4611686018427387905, -1, 1 << 64)
    n = np.array([int(i) * inverse % (1 << 64) for i in index], "u8")
    assert np.array_equal(kernel(a, n.view("i8")), a[index])


def test_functions_side_by_side_have_loops_of_their_own():
    A = te.placeholder((5,), name="A")
    text = """
function reverse(X: float32[n], out Y: float32[n])
  for i in 0 .. n
    Y[i] = X[n - 1 - i]
"""
    again = te.function(parse(text), te.function(parse(text), A, name="B"), name="C")
    verify(te.lower([A, again]))
    assert np.array_equal(tc.build([A, again], cache=False)(np.arange(5, dtype="f4")), np.arange(5))


def test_a_nest_whose_ranges_are_data_is_not_guarded_past_its_end():
    L, A = te.placeholder((3,), "int64", name="L"), te.placeholder((8,), name="A")

    def row(i):
        k = te.reduce_axis((0, te.assume(L[i], 0, 9)), name="k")
        return te.sum(A[k], axis=k)

    B, C = te.compute((8,), lambda i: A[i] + 1.0, name="B"), te.compute((3,), row, name="C")
    s = tc.schedule([L, A, B, C])
    with pytest.raises(tc.ScheduleError, match="the range of 'C.k' is loaded, which is not known to be there past"):
        s.compute_with("C", "B", "B.i")


@pytest.mark.parametrize("cpu", CPUS)
def test_lanes_past_the_end_read_nothing_whatever_is_known_of_them(cpu):
    """J past its end is known to be what no lane reads, so that the condition on it is known there, too."""
    A, B = te.placeholder((2, 4, 1, 3), "uint16", name="A"), te.placeholder((1, 3), "uint16", name="B")
    F, J = te.placeholder((4, 1, 3, 1), "float32", name="F"), te.placeholder((1, 3), "uint64", name="J")
    R, r = te.placeholder((4, 1), "int32", name="R"), te.reduce_axis(1, name="r")
    one = te.const(1, "uint16")

    def element(i, k, l):
        at = te.cast(J[k, l], "int64") * 2
        start = te.const(1, "int32") >= te.if_then_else(te.all(at >= 0, at < 1), R[i * 2 + 1, at], te.const(0, "int32"))
        inside = te.if_then_else(te.all(l + 2 >= 0, l + 2 < 3), A[0, 0, 0, 0], te.const(0, "uint16"))
        term = (B[0, l] > one) | (te.const(1.0, "float32") <= F[0, 0, 0, 0])
        return te.cast(te.any(term, axis=r, where=one >= inside, init=start), "uint16")

    kernel = build([A, R, J, F, B, te.compute((2, 1, 3), element, name="C")], cpu)
    held = GuardedArray((1, 3), np.dtype("u8"), random.Random(0))
    held.array[...] = [1, 0, 1 << 63]
    held.make_read_only()
    a, f, b = np.zeros((2, 4, 1, 3), "u2"), np.zeros((4, 1, 3, 1), "f4"), np.zeros((1, 3), "u2")
    found = kernel(a, np.array([[0], [5], [0], [1]], "i4"), held.array, f, b)
    assert np.array_equal(found, [[[1, 0, 0]], [[1, 1, 1]]])
