"""Definitions that depend on data, from the expression to the kernel: gathers, ragged reductions, scans, updates and
functions by hand, against NumPy; and what is refused, at the definition and at the call."""

from __future__ import annotations

import numpy as np
import pytest

import tensorc as tc
from tensorc import te
from tensorc.errors import ArgumentError, ExpressionError, ScheduleError
from tensorc.ir import interpret, parse, show, verify
from tensorc.ir.count import count
from tensorc.passes.pipeline import lower as lower_passes

EXTENTS = (0, 1, 17, 100)
INDICES = ("int32", "int64", "uint8")


def runs(args, *arrays, threads=(1, 2)):
    """The result of the interpreter, after the kernels of the default schedule gave the same."""
    function = te.lower(args)
    verify(function)
    assert show(parse(show(function)), canonical=True) == show(function, canonical=True)
    expected = interpret(function, *arrays)
    for number in threads:
        kernel = tc.build(args, threads=number, cache=False)
        verify(lower_passes(kernel.function), "flat")
        found = kernel(*arrays)
        for a, b in zip(_tuple(expected), _tuple(found)):
            np.testing.assert_array_equal(a, b)
    return expected


def _tuple(value):
    return value if isinstance(value, tuple) else (value,)


def fails(args, message: str, *arrays):
    """The interpreter and the kernels stop with this message; the inputs stay as they are."""
    copies = [array.copy() for array in arrays]
    with pytest.raises(ArgumentError) as caught:
        interpret(te.lower(args), *arrays)
    assert str(caught.value) == message
    for number in (1, 2):
        kernel = tc.build(args, threads=number, cache=False)
        with pytest.raises(ArgumentError) as caught:
            kernel(*arrays)
        assert str(caught.value).endswith(f"): {message}")
    for array, copy in zip(arrays, copies):
        np.testing.assert_array_equal(array, copy)


def refused(message: str):
    escaped = "".join(c if c.isalnum() or c == " " else "\\" + c for c in message)
    return pytest.raises(ExpressionError, match=f"^{escaped}$")


def numbers(*shape, dtype="float32", most=5, seed=0):
    return np.random.default_rng(seed).integers(0, most, shape).astype(dtype)


# Indices that are loaded


def gather(n: int, dtype: str = "int32", size: int = 10):
    X = te.placeholder((size,), name="X")
    I = te.placeholder((n,), dtype, name="I")
    return [X, I, te.compute((n,), lambda i: X[I[i]] * 2, name="C")]


@pytest.mark.parametrize("dtype", INDICES)
@pytest.mark.parametrize("n", EXTENTS)
def test_gathers(n, dtype):
    x, at = numbers(10), numbers(n, dtype=dtype, most=10)
    np.testing.assert_array_equal(runs(gather(n, dtype), x, at), x[at] * 2)


@pytest.mark.parametrize("dtype", INDICES)
@pytest.mark.parametrize("place", [0, 13, 99])
def test_an_index_outside_is_reported_with_its_place(dtype, place):
    x, at = numbers(10), numbers(100, dtype=dtype, most=10)
    at[place] = 17
    at[99] = 10 if place < 99 else 17
    fails(gather(100, dtype), f"access X[I[i]]: index 17 at i = {place} is outside 0..9", x, at)


def test_a_negative_index_is_outside():
    x, at = numbers(10), numbers(17, dtype="int64", most=10)
    at[16] = -1
    fails(gather(17, "int64"), "access X[I[i]]: index -1 at i = 16 is outside 0..9", x, at)


def test_nothing_can_be_gathered_from_nothing():
    message = "access X[I[i]]: index 0 at i = 0, where there is no element"
    fails(gather(3, "int32", 0), message, numbers(0), np.zeros(3, "int32"))


def test_an_index_that_its_type_keeps_inside_needs_no_check():
    assert "check" not in show(te.lower(gather(17, "uint8", 256)))
    x, at = numbers(256), numbers(17, dtype="uint8", most=255)
    np.testing.assert_array_equal(runs(gather(17, "uint8", 256), x, at), x[at] * 2)


def arithmetic(n: int = 17, m: int = 5):
    X = te.placeholder((40,), name="X")
    I = te.placeholder((n,), "int64", name="I")
    return [X, I, te.compute((n, m), lambda i, j: X[I[i] * 2 + j], name="C")]


def test_indices_with_arithmetic():
    x, at = numbers(40), numbers(17, dtype="int64", most=18)
    expected = x[at[:, None] * 2 + np.arange(5)]
    np.testing.assert_array_equal(runs(arithmetic(), x, at), expected)
    at[3] = 18
    fails(arithmetic(), "access X[I[i] * 2 + j]: index 40 at i = 3, j = 4 is outside 0..39", x, at)


def test_sums_that_wrap_are_seen_as_they_are_used():
    X = te.placeholder((40,), name="X")
    I = te.placeholder((3,), "int64", name="I")
    args = [X, I, te.compute((3,), lambda i: X[I[i] * 4], name="C")]
    x = numbers(40)
    at = np.array([1, 2**62, 3])
    np.testing.assert_array_equal(runs(args, x, at), x[[4, 0, 12]])
    at[1] = 2**61
    fails(args, f"access X[I[i] * 4]: index {-(2**63)} at i = 1 is outside 0..39", x, at)


def test_an_index_by_an_index():
    X, I = te.placeholder((9,), name="X"), te.placeholder((7,), "int32", name="I")
    J = te.placeholder((17,), "int64", name="J")
    args = [X, I, J, te.compute((17,), lambda i: X[I[J[i]]], name="C")]
    x, i, j = numbers(9), numbers(7, dtype="int32", most=9), numbers(17, dtype="int64", most=7)
    np.testing.assert_array_equal(runs(args, x, i, j), x[i[j]])
    i[j[4]] = 9
    first = int(np.argmax(i[j] == 9))
    fails(args, f"access X[I[J[i]]]: index 9 at i = {first} is outside 0..8", x, i, j)
    j[16] = 7
    fails(args, "access I[J[i]]: index 7 at i = 16 is outside 0..6", x, i, j)


def test_two_loaded_indices_name_their_dimension():
    X = te.placeholder((4, 6), name="X")
    I, J = te.placeholder((17,), "int32", name="I"), te.placeholder((17,), "int32", name="J")
    args = [X, I, J, te.compute((17,), lambda i: X[I[i], J[i]] + X[I[i], 0], name="C")]
    x, i, j = numbers(4, 6), numbers(17, dtype="int32", most=4), numbers(17, dtype="int32", most=6)
    np.testing.assert_array_equal(runs(args, x, i, j), x[i, j] + x[i, 0])
    j[2] = 6
    fails(args, "access X[I[i], J[i]]: index 6 of dimension 1 at i = 2 is outside 0..5", x, i, j)


def test_an_embedding_is_checked_once_a_row():
    n, m, size = 17, 33, 20
    E, I = te.placeholder((size, m), name="E"), te.placeholder((n,), "int64", name="I")
    args = [E, I, te.compute((n, m), lambda i, j: E[I[i], j], name="C")]
    assert "for C_ok.j" not in show(te.lower(args))
    e, i = numbers(size, m), numbers(n, dtype="int64", most=size)
    np.testing.assert_array_equal(runs(args, e, i), e[i])


def test_gathers_in_a_reduction_and_from_a_stage():
    X, I = te.placeholder((30, 16), name="X"), te.placeholder((5, 7), "int32", name="I")
    Y = te.compute((30, 16), lambda i, j: X[i, j] + 1, name="Y")
    k = te.reduce_axis(7, name="k")
    args = [X, I, te.compute((5, 16), lambda b, j: te.sum(Y[I[b, k], j], axis=k), name="bag")]
    x, i = numbers(30, 16), numbers(5, 7, dtype="int32", most=30)
    np.testing.assert_array_equal(runs(args, x, i), (x + 1)[i].sum(1))
    i[4, 6] = -5
    fails(args, "access Y[I[b, k], j]: index -5 of dimension 0 at b = 4, k = 6 is outside 0..29", x, i)


def test_an_index_that_is_computed():
    X, A = te.placeholder((10,), name="X"), te.placeholder((17,), name="A")
    I = te.compute((17,), lambda i: te.cast(A[i] * 2, "int32"), name="I")
    args = [X, A, te.compute((17,), lambda i: X[I[i]], name="C")]
    x, a = numbers(10), numbers(17)
    np.testing.assert_array_equal(runs(args, x, a), x[(a * 2).astype(int)])
    a[3] = 5
    fails(args, "access X[I[i]]: index 10 at i = 3 is outside 0..9", x, a)


def test_symbolic_extents_are_told_with_their_value():
    n, m = te.var("n"), te.var("m")
    X, I = te.placeholder((n,), name="X"), te.placeholder((m,), "int32", name="I")
    args = [X, I, te.compute((m,), lambda i: X[I[i]], name="C")]
    for size in EXTENTS:
        x, i = numbers(10), numbers(size, dtype="int32", most=10)
        np.testing.assert_array_equal(runs(args, x, i), x[i])
    i[40] = 10
    fails(args, "access X[I[i]]: index 10 at i = 40 is outside 0..9", x, i)


@pytest.mark.parametrize("lanes", [2, 4, 8, 16, 32])
def test_every_vector_width_in_parallel(lanes):
    s = tc.schedule(gather(100))
    outer, lane = s.split(s.loops("C")[0], factors=(None, lanes))
    s.parallel(outer)
    s.vectorize(lane)
    (loop,) = s.loops("C_ok")
    _, lane = s.split(loop, factors=(None, lanes))
    s.vectorize(lane)
    kernel = tc.build(s, threads=2, cache=False)
    x, at = numbers(10), numbers(100, dtype="int32", most=10)
    np.testing.assert_array_equal(kernel(x, at), x[at] * 2)
    at[77] = 10
    with pytest.raises(ArgumentError, match=r"access X\[I\[i\]\]: index 10 at i = 77 is outside 0..9$"):
        kernel(x, at)


def test_a_failed_check_writes_nothing_outside_of_the_outputs():
    kernel = tc.build(gather(100), threads=2, cache=False)
    memory = np.full(300, 7, "float32")
    at = numbers(100, dtype="int32", most=10)
    at[5] = 1000
    with pytest.raises(ArgumentError):
        kernel(numbers(10), at, memory[100:200])
    assert (memory[:100] == 7).all() and (memory[200:] == 7).all()


def test_names_in_messages_are_those_of_the_definition(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORC_CACHE_DIR", str(tmp_path))
    for name in ("X", "Z"):
        X, I = te.placeholder((3,), name=name), te.placeholder((4,), "int32", name="I")
        kernel = tc.build([X, I, te.compute((4,), lambda i: X[I[i]], name="C")])
        with pytest.raises(ArgumentError, match=rf"access {name}\[I\[i\]\]: index 3 at i = 0 is outside 0..2$"):
            kernel(numbers(3), np.full(4, 3, "int32"))


# Promises and guards


def test_promises_replace_checks():
    X, I = te.placeholder((10,), name="X"), te.placeholder((17,), "int32", name="I")
    args = [X, I, te.compute((17,), lambda i: X[te.assume(I[i], 0, 10)], name="C")]
    assert "check" not in show(te.lower(args)) and "assume" not in show(te.lower(args))
    x, at = numbers(10), numbers(17, dtype="int32", most=10)
    np.testing.assert_array_equal(runs(args, x, at), x[at])
    bare = [X, I, te.compute((17,), lambda i: X[I[i]], name="C")]
    assert te.canonical_text(args) != te.canonical_text(bare)


def test_a_promise_that_is_too_wide_leaves_a_check():
    X, I = te.placeholder((10,), name="X"), te.placeholder((17,), "int32", name="I")
    args = [X, I, te.compute((17,), lambda i: X[te.assume(I[i], 0, 11)], name="C")]
    x, at = numbers(10), numbers(17, dtype="int32", most=10)
    at[1] = 10
    fails(args, "access X[I[i]]: index 10 at i = 1 is outside 0..9", x, at)
    assert ">= 0" not in show(te.lower(args))


def test_promises_take_integers():
    with refused("te.assume: an index must be an integer, not float32"):
        te.assume(te.placeholder((3,), name="X")[0], 0, 2)


def test_an_index_that_is_never_inside_is_refused():
    X, I = te.placeholder((10,), name="X"), te.placeholder((17,), "uint8", name="I")
    with refused(
        "compute 'C': access X[I[i] + 10] reads index 10..265 of dimension 0, whose extent is 10; guard it with "
        "te.if_then_else"
    ):
        te.lower([X, I, te.compute((17,), lambda i: X[te.cast(I[i], "int64") + 10], name="C")])


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_guards_that_depend_on_data_prove_a_range(dtype):
    X, I = te.placeholder((10,), name="X"), te.placeholder((100,), dtype, name="I")
    C = te.compute(
        (100,), lambda i: te.if_then_else(te.all(I[i] >= 0, I[i] < 10), X[I[i]], -1.0), name="C"
    )
    assert "check" not in show(te.lower([X, I, C]))
    x, at = numbers(10), numbers(100, dtype=dtype, most=30) - 10
    expected = np.where((at >= 0) & (at < 10), x[np.clip(at, 0, 9)], -1)
    np.testing.assert_array_equal(runs([X, I, C], x, at), expected)


def test_a_guard_on_one_end_leaves_a_check_of_the_other():
    X, I = te.placeholder((10,), name="X"), te.placeholder((17,), "int32", name="I")
    args = [X, I, te.compute((17,), lambda i: te.if_then_else(I[i] >= 0, X[I[i]], 0.0), name="C")]
    x, at = numbers(10), numbers(17, dtype="int32", most=10)
    at[4] = -3
    np.testing.assert_array_equal(runs(args, x, at), np.where(at >= 0, x[at], 0))
    at[5] = 12
    fails(args, "access X[I[i]]: index 12 at i = 5 is outside 0..9", x, at)


def test_a_guard_stays_with_a_reduction_inside():
    X, I = te.placeholder((10, 8), name="X"), te.placeholder((17,), "int32", name="I")
    k = te.reduce_axis(8, name="k")
    C = te.compute(
        (17,), lambda i: te.if_then_else(I[i] >= 0, te.sum(X[I[i], k], axis=k) * 2, 0.0), name="C"
    )
    x, at = numbers(10, 8), numbers(17, dtype="int32", most=10)
    at[4] = -3
    np.testing.assert_array_equal(runs([X, I, C], x, at), np.where(at >= 0, x[at].sum(1) * 2, 0))


# Ragged reductions


def row_sums(n: int, m: int = 40, dtype: str = "int32"):
    X, L = te.placeholder((n, m), name="X"), te.placeholder((n,), dtype, name="L")

    def row(i):
        k = te.reduce_axis((0, L[i]), name="k")
        return te.sum(X[i, k], axis=k)

    return [X, L, te.compute((n,), row, name="C")]


@pytest.mark.parametrize("dtype", INDICES)
@pytest.mark.parametrize("n", EXTENTS)
def test_sums_of_loaded_lengths(n, dtype):
    x, lengths = numbers(n, 40), numbers(n, dtype=dtype, most=41)
    if n > 2:
        lengths[:3] = (0, 1, 40)
    expected = np.array([x[i, : lengths[i]].sum() for i in range(n)], "float32")
    np.testing.assert_array_equal(runs(row_sums(n, dtype=dtype), x, lengths), expected)


def test_a_negative_length_is_an_empty_sum():
    assert list(runs(row_sums(3), numbers(3, 40), np.array([-5, 0, 0], "int32"))) == [0, 0, 0]


def test_a_length_past_the_end_is_reported():
    x, lengths = numbers(17, 40), numbers(17, dtype="int32", most=41)
    lengths[9] = 2**31 - 1
    message = "access X[i, k]: index 40 of dimension 1 at i = 9, k = 40 is outside 0..39"
    fails(row_sums(17), message, x, lengths)


def test_a_promised_length_is_not_checked():
    X, L = te.placeholder((17, 40), name="X"), te.placeholder((17,), "int32", name="L")

    def row(i):
        k = te.reduce_axis((0, te.assume(L[i], 0, 41)), name="k")
        return te.max(X[i, k], axis=k)

    args = [X, L, te.compute((17,), row, name="C")]
    assert "check" not in show(te.lower(args))
    x, lengths = numbers(17, 40), 1 + numbers(17, dtype="int32", most=40)
    expected = [x[i, : lengths[i]].max() for i in range(17)]
    np.testing.assert_array_equal(runs(args, x, lengths), expected)


@pytest.mark.parametrize("n", EXTENTS)
def test_triangles(n):
    X = te.placeholder((n, n), name="X")

    def row(i):
        k = te.reduce_axis((0, i + 1), name="k")
        return te.sum(X[i, k], axis=k)

    def rest(i):
        k = te.reduce_axis((i, n), name="k")
        return te.sum(X[i, k], axis=k)

    x = numbers(n, n)
    lower, upper = te.compute((n,), row, name="lower"), te.compute((n,), rest, name="upper")
    assert "check" not in show(te.lower([X, lower, upper]))
    found = runs([X, lower, upper], x)
    np.testing.assert_array_equal(found[0], np.tril(x).sum(1))
    np.testing.assert_array_equal(found[1], np.triu(x).sum(1))


def sparse(rows: int, entries: int, columns: int, width: int | None):
    P = te.placeholder((rows + 1,), "int64", name="P")
    col = te.placeholder((entries,), "int32", name="col")
    A = te.placeholder((entries,), name="A")
    B = te.placeholder((columns,) if width is None else (columns, width), name="B")

    def row(i, *j):
        k = te.reduce_axis((P[i], P[i + 1]), name="k")
        return te.sum(A[k] * B[(col[k], *j)], axis=k)

    shape = (rows,) if width is None else (rows, width)
    fcompute = (lambda i: row(i)) if width is None else (lambda i, j: row(i, j))
    return [P, col, A, B, te.compute(shape, fcompute, name="C")]


@pytest.mark.parametrize("width", [None, 1, 17, 100])
def test_products_with_a_sparse_matrix(width):
    rows, entries, columns = 17, 60, 20
    p = np.sort(numbers(rows + 1, dtype="int64", most=61))
    p[0], p[-1], p[5] = 0, 60, p[6]
    col, a = numbers(entries, dtype="int32", most=columns), numbers(entries)
    b = numbers(columns) if width is None else numbers(columns, width)
    expected = np.zeros((rows, *b.shape[1:]), "float32")
    for i in range(rows):
        for k in range(p[i], p[i + 1]):
            expected[i] += a[k] * b[col[k]]
    args = sparse(rows, entries, columns, width)
    np.testing.assert_array_equal(runs(args, p, col, a, b), expected)
    col[33] = 20
    i = int(np.searchsorted(p, 33, side="right")) - 1
    where, dimension = ("B[col[k + P[i]]]", "") if width is None else ("B[col[k + P[i]], j]", " of dimension 0")
    fails(args, f"access {where}: index 20{dimension} at i = {i}, k = 33 is outside 0..19", p, col, a, b)
    p[-1] = 61
    fails(args, "access A[k + P[i]]: index 60 at i = 16, k = 60 is outside 0..59", p, col, a, b)


def test_a_range_that_depends_on_another_reduce_axis():
    X, L = te.placeholder((9, 12), name="X"), te.placeholder((9,), "int32", name="L")
    i = te.reduce_axis(9, name="i")
    k = te.reduce_axis((0, L[i]), name="k")
    args = [X, L, te.compute((), lambda: te.sum(X[i, k], axis=(i, k)), name="C")]
    x, lengths = numbers(9, 12), numbers(9, dtype="int32", most=13)
    lengths[0] = 0
    expected = sum(x[n, : lengths[n]].sum() for n in range(9))
    assert runs(args, x, lengths)[()] == expected
    with refused("compute 'C': the range of reduce axis 'k' depends on 'i', which does not come before it in axis="):
        te.compute((), lambda: te.sum(X[i, k], axis=(k, i)), name="C")


def test_ragged_reductions_in_others_are_refused():
    X, L = te.placeholder((9, 12), name="X"), te.placeholder((9,), "int32", name="L")
    with refused(
        "compute 'C': a reduction stands in one over 'k', whose extent varies; reduce over both axes at once, or make "
        "a tensor of the inner one"
    ):
        j = te.reduce_axis(12, name="j")

        def row(i):
            k = te.reduce_axis((0, L[i]), name="k")
            return te.sum(1 + te.sum(X[i, j] * te.cast(k, "float32"), axis=j), axis=k)

        te.compute((9,), row, name="C")


def test_shapes_are_not_loaded():
    L = te.placeholder((3,), "int32", name="L")
    with refused("compute 'C': dimension 0: the extent is loaded from 'L'; a shape depends on te.var only"):
        te.compute((L[0],), lambda i: 0.0, name="C")


@pytest.mark.parametrize("tail", ["cut", "mask", "guard"])
@pytest.mark.parametrize("lanes", [2, 8, 32])
def test_ragged_loops_at_every_width(lanes, tail):
    s = tc.schedule(row_sums(17))
    i, k = s.loops("C")
    _, lane = s.split(k, factors=(None, lanes), tail=tail)
    s.vectorize(lane)
    i0, _ = s.split(i, factors=(None, 4))
    s.parallel(i0)
    x, lengths = numbers(17, 40), numbers(17, dtype="int32", most=41)
    lengths[:3] = (0, 1, 40)
    expected = [x[n, : lengths[n]].sum() for n in range(17)]
    np.testing.assert_array_equal(interpret(s.function, x, lengths), expected)
    np.testing.assert_array_equal(tc.build(s, threads=2, cache=False)(x, lengths), expected)


def test_loops_of_ranges_that_vary_stay_inside_what_they_depend_on():
    s = tc.schedule(row_sums(17))
    i, k = s.loops("C")
    with pytest.raises(ScheduleError) as caught:
        s.reorder(k, i)
    assert str(caught.value) == "reorder(loops 'C.k', 'C.i'): the range of 'C.k' depends on another loop"
    with pytest.raises(ScheduleError) as caught:
        s.fuse(i, k)
    assert str(caught.value) == "fuse(loops 'C.i', 'C.k'): the extent of 'C.k' depends on another of them"


# Scans


def cumulated(m: int, n: int, axis: int = 0):
    shape = (m, n) if axis == 0 else (n, m)
    first = (1, n) if axis == 0 else (n, 1)
    X, state = te.placeholder(shape, name="X"), te.placeholder(shape, name="state")

    def step(a, b):
        before = state[a - 1, b] if axis == 0 else state[a, b - 1]
        return before + X[a, b]

    init = te.compute(first, lambda a, b: X[a, b], name="first")
    return [X, te.scan(init, te.compute(shape, step, name="step"), state, name="S", axis=axis)]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("n", EXTENTS)
@pytest.mark.parametrize("m", [1, 17])
def test_cumulative_sums(m, n, axis):
    x = numbers(m, n) if axis == 0 else numbers(n, m)
    np.testing.assert_array_equal(runs(cumulated(m, n, axis), x), np.cumsum(x, axis))


def test_the_other_axis_of_a_scan_becomes_vectors():
    kernel = tc.build(cumulated(17, 100), cache=False)
    assert "ramp" in kernel.source("flat")
    s = tc.schedule(cumulated(17, 100))
    t, i = s.loops("S")
    s.reorder(i, t)
    s.parallel(i)
    x = numbers(17, 100)
    np.testing.assert_array_equal(tc.build(s, threads=2, cache=False)(x), np.cumsum(x, 0))
    with pytest.raises(ScheduleError, match="iterator 'a' of block 'S', which is ordered, is bound to it"):
        s.parallel(t)


def test_a_scan_over_one_axis_alone():
    X, state = te.placeholder((100,), "int64", name="X"), te.placeholder((100,), "int64", name="state")
    step = te.compute((100,), lambda t: state[t - 1] + state[t - 2] + X[t], name="step")
    args = [X, te.scan(te.compute((2,), lambda t: X[t], name="first"), step, state, name="F")]
    x = numbers(100, dtype="int64")
    expected = list(x[:2])  # Fibonacci's numbers grow past int64, and wrap
    with np.errstate(over="ignore"):
        for t in range(2, 100):
            expected.append(expected[-1] + expected[-2] + x[t])
    np.testing.assert_array_equal(runs(args, x), np.array(expected))


def test_steps_that_look_aside_run_in_lanes_but_keep_their_order():
    m, n = 9, 20
    X, state = te.placeholder((1, n), "int64", name="X"), te.placeholder((m, n), "int64", name="state")
    step = te.compute(
        (m, n), lambda t, i: state[t - 1, te.maximum(i - 1, 0)] + state[t - 1, te.minimum(i + 1, n - 1)], name="step"
    )
    args = [X, te.scan(X, step, state, name="S")]
    x = numbers(1, n, dtype="int64")
    rows = [x[0]]
    for _ in range(m - 1):
        padded = np.pad(rows[-1], 1, mode="edge")
        rows.append(padded[:-2] + padded[2:])
    np.testing.assert_array_equal(runs(args, x), np.array(rows))
    assert "ramp" in tc.build(args, cache=False).source("flat")
    s = tc.schedule(args)
    with pytest.raises(ScheduleError, match="must stay where it is relative to"):
        s.reorder(*reversed(s.loops("S")))


def test_a_recurrent_cell_reduces_in_each_step():
    m, n = 7, 20
    X, W = te.placeholder((m, n), "int64", name="X"), te.placeholder((n, n), "int64", name="W")
    state = te.placeholder((m, n), "int64", name="state")
    k = te.reduce_axis(n, name="k")
    step = te.compute(
        (m, n), lambda t, i: (te.sum(W[i, k] * state[t - 1, k], axis=k) + X[t, i]) % 7, name="step"
    )
    args = [X, W, te.scan(te.compute((1, n), lambda t, i: X[t, i], name="first"), step, state, name="H")]
    x, w = numbers(m, n, dtype="int64"), numbers(n, n, dtype="int64")
    rows = [x[0]]
    for t in range(1, m):
        rows.append((w @ rows[-1] + x[t]) % 7)
    np.testing.assert_array_equal(runs(args, x, w), np.array(rows))


def test_two_states_and_a_stage_between():
    m, n = 6, 17
    X = te.placeholder((m, n), "int64", name="X")
    a0, b0 = te.placeholder((m, n), "int64", name="a0"), te.placeholder((m, n), "int64", name="b0")
    gate = te.compute((m, n), lambda t, i: a0[t - 1, i] * 2 - b0[t - 1, i], name="gate")
    a1 = te.compute((m, n), lambda t, i: (gate[t, i] + X[t, i]) % 11, name="a1")
    b1 = te.compute((m, n), lambda t, i: a1[t, i] + gate[t, i] % 3, name="b1")
    first = te.compute((1, n), lambda t, i: X[t, i], name="first")
    zero = te.compute((1, n), lambda t, i: 0, name="zero", dtype="int64")
    A, B = te.scan((first, zero), (a1, b1), (a0, b0), name="pair")
    assert (A.name, B.name) == ("pair.v0", "pair.v1")
    x = numbers(m, n, dtype="int64")
    a, b = [x[0]], [0 * x[0]]
    for t in range(1, m):
        g = a[-1] * 2 - b[-1]
        a.append((g + x[t]) % 11)
        b.append(a[-1] + g % 3)
    found = runs([X, A, B], x)
    np.testing.assert_array_equal(found[0], np.array(a))
    np.testing.assert_array_equal(found[1], np.array(b))
    last = te.compute((n,), lambda i: B[m - 1, i] + 1, name="last")
    np.testing.assert_array_equal(runs([X, last], x), b[-1] + 1)


def test_gathers_in_a_scan_are_checked_before_it():
    m, n = 5, 17
    X, I = te.placeholder((10, n), name="X"), te.placeholder((m,), "int32", name="I")
    state = te.placeholder((m, n), name="state")
    step = te.compute((m, n), lambda t, i: state[t - 1, i] + X[I[t], i], name="step")
    zero = te.compute((1, n), lambda t, i: 0.0, name="zero")
    args = [X, I, te.scan(zero, step, state, name="S")]
    x, at = numbers(10, n), numbers(m, dtype="int32", most=10)
    at[0] = 99  # no step reads it
    expected = np.concatenate([np.zeros((1, n)), np.cumsum(x[at[1:]], 0)])
    np.testing.assert_array_equal(runs(args, x, at), expected)
    at[3] = 10
    fails(args, "access X[I[t], i]: index 10 of dimension 0 at t = 3 is outside 0..9", x, at)


def prefix_sums(extent, init):
    """Sums of so many first elements of X[n], the first `init` of them 0."""
    X, state = te.placeholder((N,), name="X"), te.placeholder((extent,), name="state")
    step = te.compute((extent,), lambda t: state[t - 1] + X[te.minimum(t - 1, N - 1)], name="step")
    return [X, te.scan(te.compute((init,), lambda t: 0.0, name="zero"), step, state, name="S")]


N = te.var("n")


@pytest.mark.parametrize("n", [1, 2, 33])
def test_scans_of_symbolically_many_steps(n):
    x = numbers(n)
    np.testing.assert_array_equal(runs(prefix_sums(N + 1, 1), x), np.append(0, np.cumsum(x)))
    np.testing.assert_array_equal(runs(prefix_sums(N, 1), x), np.append(0, np.cumsum(x[:-1])))
    np.testing.assert_array_equal(runs(prefix_sums(N + 1, N), x), np.append(np.zeros(n), x[-1]))


def test_symbolic_steps_that_do_not_fit_stop_the_call():
    none = np.zeros(0, "f4")
    np.testing.assert_array_equal(runs(prefix_sums(N + 1, 1), none), [0])
    fails(prefix_sums(N, 1), "scan 'S': init 'zero' has 1 steps, the scan has 0", none)
    fails(prefix_sums(N + 1, N), "scan 'S': init 'zero' has 0 steps, one at least is needed", none)
    X, S = prefix_sums(N, 1)
    other = te.scan(S.maker.inits[0], S.maker.updates[0], S.maker.states[0], name="other")
    assert te.canonical_text([X, S]) != te.canonical_text([X, other])  # the kernel tells the name


STATE = te.placeholder((8, 5), name="state")
FIRST = te.placeholder((1, 5), name="first")


def step_of(fcompute, shape=(8, 5)):
    return te.compute(shape, fcompute, name="step")


SCANS = [
    (lambda: (FIRST, FIRST, STATE), "scan 'S': update 'first' is no compute; it must tell each element of a step"),
    (
        lambda: (FIRST, step_of(lambda t, i: STATE[t - 1, i]), 3),
        "scan 'S': state is 3, not a tensor or a sequence of tensors",
    ),
    (
        lambda: (FIRST, (step_of(lambda t, i: STATE[t - 1, i]),) * 2, STATE),
        "scan 'S': 1 init, 2 update and 1 state tensors; give as many of each",
    ),
    (
        lambda: (FIRST, step_of(lambda t, i: STATE[t, i]), STATE),
        "scan 'S': 'step' reads state[t, i], which is not proved to be a step before 't'",
    ),
    (
        lambda: (FIRST, step_of(lambda t, i: STATE[t - 2, i]), STATE),
        "scan 'S': compute 'step': access state[t - 2, i] reads index -1..5 of dimension 0, whose extent is 8; guard "
        "it with te.if_then_else",
    ),
    (
        lambda: (te.placeholder((1, 6), name="wide"), step_of(lambda t, i: STATE[t - 1, i]), STATE),
        "scan 'S': 'wide' has shape (1, 6), which must be that of state 'state', (8, 5) but for axis 0",
    ),
    (
        lambda: (te.placeholder((9, 5), name="long"), step_of(lambda t, i: STATE[t - 1, i]), STATE),
        "scan 'S': init 'long' has 9 steps, state 'state' has 8",
    ),
    (
        lambda: (te.placeholder((0, 5), name="none"), step_of(lambda t, i: STATE[t - 1, i]), STATE),
        "scan 'S': init 'none' has no step along axis 0",
    ),
    (
        lambda: (te.placeholder((1, 5), "int32", name="whole"), step_of(lambda t, i: STATE[t - 1, i]), STATE),
        "scan 'S': 'whole' is int32, state 'state' is float32; cast one of them",
    ),
    (
        lambda: (FIRST, step_of(lambda t, i: STATE[t - 1, i], (8, 4)), STATE),
        "scan 'S': 'step' has shape (8, 4), which must be that of state 'state', (8, 5)",
    ),
]


@pytest.mark.parametrize("tensors, message", SCANS)
def test_scans_that_are_refused(tensors, message):
    with refused(message):
        S = te.scan(*tensors(), name="S")
        te.lower([FIRST, S])


def test_messages_show_expressions_as_they_are_written():
    n = te.var("n")
    state, k = te.placeholder((n + 1,), name="state"), te.reduce_axis(4, name="k")
    step = te.compute((n + 1,), lambda t: state[t - 1], name="step")
    first = te.placeholder((n + 2,), name="first")
    assert repr(state) == "Tensor(state: float32[n + 1])"
    with refused("scan 'S': init 'first' has n + 2 steps, state 'state' has n + 1"):
        te.scan(first, step, state, name="S")
    with refused("scan 'S': 'wide' has shape (1, n), which must be that of state 'state', (n + 1) but for axis 0"):
        te.scan(te.placeholder((1, n), name="wide"), step, state, name="S")
    with refused("scan 'S': update is the expression state[n], not a tensor or a sequence of tensors"):
        te.scan(first, state[n], state, name="S")
    with refused("update 'U': the expression state[k] is not a tensor"):
        te.update(state[k], k, 1.0, name="U")
    with refused("update 'U': axis the expression k + 1 is not a te.reduce_axis"):
        te.update(state, k, 1.0, axis=k + 1, name="U")
    with refused("arguments: argument 1 is the expression state[0] * state[0], not a tensor"):
        te.lower([state, state[0] ** 2])
    with refused("compute 'C': the expression state[0] is not callable; give a function of the indices"):
        te.compute((n,), state[0], name="C")
    with refused("te.function: the expression n + 1 is not a function of the IR"):
        te.function(n + 1, state)


def test_more_scans_that_are_refused():
    step = step_of(lambda t, i: STATE[t - 1, i])
    with refused("scan 'S': axis 2 is none of the 2 axes of state 'state'"):
        te.scan(FIRST, step, STATE, name="S", axis=2)
    with refused("scan 'S': state 'step' is computed; it must be a placeholder of its own"):
        te.scan(FIRST, step, step, name="S")
    gate = te.compute((8, 5), lambda t, i: STATE[t - 1, i], name="gate")
    late = te.compute((8, 5), lambda t, i: gate[te.maximum(t - 1, 0), i], name="late")
    with refused(
        "scan 'S': 'late' reads gate[max(t - 1, 0), i], which is computed in each step; it must be read at the step "
        "'t', along one and the same of its axes"
    ):
        te.scan(FIRST, late, STATE, name="S")


# Updates


def histogram(n: int, dtype: str = "uint8", bins: int = 10):
    I = te.placeholder((n,), dtype, name="I")
    zero = te.compute((bins,), lambda i: 0, name="zero", dtype="int64")
    r = te.reduce_axis(n, name="r")
    return [I, te.update(zero, I[r], zero[I[r]] + 1, name="H")]


@pytest.mark.parametrize("dtype", INDICES)
@pytest.mark.parametrize("n", EXTENTS)
def test_histograms(n, dtype):
    at = numbers(n, dtype=dtype, most=10)
    np.testing.assert_array_equal(runs(histogram(n, dtype), at), np.bincount(at, minlength=10))


def test_a_place_outside_is_reported_and_nothing_is_stored_there():
    at = numbers(100, dtype="int32", most=10)
    at[41] = 10
    fails(histogram(100, "int32"), "access zero[I[r]]: index 10 at r = 41 is outside 0..9", at)


def scatter(where: bool):
    T, V = te.placeholder((30, 40), name="T"), te.placeholder((17, 40), name="V")
    J = te.placeholder((17,), "int32", name="J")
    r, c = te.reduce_axis(17, name="r"), te.reduce_axis(40, name="c")
    condition = J[r] >= 0 if where else None
    return [T, J, V, te.update(T, (J[r], c), V[r, c] * 2, axis=(r, c), where=condition, name="U")]


@pytest.mark.parametrize("where", [False, True])
def test_rows_are_scattered_in_order(where):
    t, v = numbers(30, 40), numbers(17, 40, seed=1)
    at = numbers(17, dtype="int32", most=6)  # rows meet, and the last one stays
    if where:
        at[3] = -1
    expected = t.copy()
    for r in range(17):
        if at[r] >= 0:
            expected[at[r]] = v[r] * 2
    args = scatter(where)
    np.testing.assert_array_equal(runs(args, t, at, v), expected)
    assert "ramp" in tc.build(args, cache=False).source("flat")
    at[5] = 30
    fails(args, "access T[J[r], c]: index 30 of dimension 0 at r = 5 is outside 0..29", t, at, v)


def test_updates_in_order_are_not_shared():
    s = tc.schedule(histogram(100))
    (r,) = s.loops("H")
    message = (
        "parallel(loop 'H.r'): iterator 'r' of block 'H', which is ordered, is bound to it; iterations of the loop may "
        "touch the same elements of buffer 'H', which block 'H' writes"
    )
    with pytest.raises(ScheduleError) as caught:
        s.parallel(r)
    assert str(caught.value) == message
    r0, r1 = s.split(r, factors=(None, 8))
    with pytest.raises(ScheduleError, match="which is ordered"):
        s.vectorize(r1)
    with pytest.raises(ScheduleError, match="must stay where it is relative to"):
        s.reorder(r1, r0)
    s = tc.schedule(scatter(False))
    with pytest.raises(ScheduleError, match="which is ordered"):
        s.parallel(s.loops("U")[0])
    r, c = s.loops("U")
    s.reorder(c, r)
    s.parallel(c)


def test_an_update_reads_what_it_has_written():
    T = te.placeholder((20,), "int64", name="T")
    r = te.reduce_axis((1, 20), name="r")
    args = [T, te.update(T, r, T[r - 1] + T[r], name="S")]
    t = numbers(20, dtype="int64")
    np.testing.assert_array_equal(runs(args, t), np.cumsum(t))
    k = te.reduce_axis((0, 10), name="k")
    args = [T, te.update(T, k * 2, T[k * 2 + 1], name="E")]  # all places apart
    expected = t.copy()
    expected[::2] = t[1::2]
    np.testing.assert_array_equal(runs(args, t), expected)


def test_updates_over_ragged_rows():
    L, T = te.placeholder((5,), "int32", name="L"), te.placeholder((5, 8), name="T")
    i = te.reduce_axis(5, name="i")
    k = te.reduce_axis((0, L[i]), name="k")
    args = [L, T, te.update(T, (i, k), -1.0, axis=(i, k), name="U")]
    lengths, t = np.array([0, 8, 3, -2, 1], "int32"), numbers(5, 8)
    expected = np.where(np.arange(8) < lengths[:, None], -1, t)
    np.testing.assert_array_equal(runs(args, lengths, t), expected)
    lengths[3] = 9
    fails(args, "access T[i, k]: index 8 of dimension 1 at i = 3, k = 8 is outside 0..7", lengths, t)


def test_an_update_of_a_stage_that_others_read():
    X, I = te.placeholder((17,), name="X"), te.placeholder((5,), "int32", name="I")
    Y = te.compute((17,), lambda i: X[i] + 1, name="Y")
    r = te.reduce_axis(5, name="r")
    U = te.update(Y, I[r], 0.0, name="U")
    both = te.compute((17,), lambda i: Y[i] * 10 + U[i], name="both")
    x, at = numbers(17), numbers(5, dtype="int32", most=17)
    u = x + 1
    u[at] = 0
    np.testing.assert_array_equal(runs([X, I, both], x, at), (x + 1) * 10 + u)


def test_updates_that_are_refused():
    T, I = te.placeholder((10,), name="T"), te.placeholder((5,), "int32", name="I")
    r = te.reduce_axis(5, name="r")
    i = te.compute((5,), lambda i: 0.0, name="C").axes[0]
    cases = [
        ((3, r, 1.0), "update 'U': 3 is not a tensor"),
        ((T, I[r], te.const(1, "int32")), "update 'U': the value is int32, tensor 'T' is float32; cast the value"),
        ((T, (r, r), 1.0), "access T[...]: 2 indices for 1 dimensions; give one a dimension"),
        ((T, r, 1.0, (r, r)), "update 'U': an axis is given twice; each runs once"),
        ((T, r, 1.0, i), "update 'U': axis 'i' is not a te.reduce_axis"),
        ((T, r, 1.0, r, 1.5), "update 'U': where is float32, not a condition"),
    ]
    for args, message in cases:
        with refused(message):
            te.update(*args, name="U")
    with refused(
        "update 'U': access T[r + 6] reads index 6..10 of dimension 0, whose extent is 10; guard it with "
        "te.if_then_else"
    ):
        te.lower([T, te.update(T, r + 6, 1.0, name="U")])
    H = te.placeholder((10,), "int64", name="H")
    outer = te.reduce_axis(10, name="outer")
    inner = te.reduce_axis((0, H[H[outer]]), name="inner")
    with refused(
        "update 'U': access H[H[outer]] in the range of an axis has an index that depends on what the update writes; "
        "promise its range with te.assume, or guard it with te.if_then_else"
    ):
        te.lower([H, te.update(H, 0, H[0] + 1, axis=(outer, inner), name="U")])
    with refused(
        "update 'U': a reduction in the value reads 'T', which is being updated; make a tensor of it before"
    ):
        k = te.reduce_axis(10, name="k")
        te.update(T, r, te.sum(T[k], axis=k), axis=r, name="U")


# Functions by hand


SORT = """
function sort(A: float32[n], out B: float32[n], out steps: int64[1])
  steps[0] = 0
  for c in 0 .. n
    B[c] = A[c]
  for p in 0 .. n
    for j in 0 .. n - 1
      let a: float32 = B[j]
        let b: float32 = B[j + 1]
          if a > b
            B[j] = b
            B[j + 1] = a
            steps[0] = steps[0] + 1
"""
PREFIX = """
function prefix(A: float32[8], out B: float32[8])
  alloc T: float32[8]
  for i in 0 .. 8
    block T
      spatial i: 8 = i
      T[i] = A[i] * float32(2.0)
  for j in 0 .. 8
    block B
      ordered j: 8 = j
      B[j] = T[j] + if_then_else(j > 0, B[j - 1], float32(0.0))
"""


@pytest.mark.parametrize("n", EXTENTS)
def test_a_function_is_a_block_of_the_kernel(n):
    A = te.placeholder((n,), name="A")
    B, steps = te.function(parse(SORT), te.compute((n,), lambda i: A[i] * 2, name="A2"))
    assert (B.name, steps.name) == ("sort.B", "sort.steps")
    args = [A, te.compute((n,), lambda i: B[i] + 1, name="C"), steps]
    a = numbers(n)
    found, _ = runs(args, a)
    np.testing.assert_array_equal(found, np.sort(a * 2) + 1)


def test_a_function_with_blocks_is_a_nest():
    A = te.placeholder((8,), name="A")
    twice = te.function(parse(PREFIX), [te.function(parse(PREFIX), [A])], name="again")
    a = numbers(8)
    np.testing.assert_array_equal(runs([A, twice], a), np.cumsum(2 * np.cumsum(2 * a)))
    assert [block.name for block in tc.schedule([A, twice]).blocks()] == [
        "prefix.T_1", "prefix.B", "again.T_1", "again.B",
    ]  # fmt: skip


FUNCTIONS = [
    (3, [], "te.function: 3 is not a function of the IR"),
    (SORT, [], "function 'sort': 0 inputs for 1 parameters"),
    (SORT, [te.placeholder((4,), "int32", name="A")], "function 'sort': tensor 'A' is int32, parameter 'A' is float32"),
    (SORT, [te.placeholder((4, 4), name="A")], "function 'sort': tensor 'A' has 2 dimensions, parameter 'A' has 1"),
    (SORT, [3], "function 'sort': the input for 'A' is 3, not a tensor"),
    (
        PREFIX,
        [te.placeholder((9,), name="A")],
        "function 'prefix': dimension 0 of tensor 'A' is 9, parameter 'A' has 8",
    ),
    (
        "function f(A: float32[n], m: int64)\n  pass",
        [],
        "function 'f': parameter 'm' is no buffer; pass it as a tensor",
    ),
    ("function f(A: float32[4])\n  pass", [], "function 'f': it has no output"),
    (
        "function f(out B: float32[n])\n  for i in 0 .. n\n    B[i] = float32(0.0)",
        [],
        "function 'f': extent 'n' of output 'B' follows from no input",
    ),
    (
        "function f(A: float32[n], out B: float32[n]) where n >= 8\n  pass",
        [te.placeholder((4,), name="A")],
        "function 'f': n >= 8 is not known to hold",
    ),
    (
        "function f(A: float32[4], out B: float32[4])\n  A[0] = float32(1.0)",
        [te.placeholder((4,), name="A")],
        "function 'f': function f, at 'A[0] = float32(1.0)': parameter 'A' is written but no output",
    ),
]


@pytest.mark.parametrize("text, inputs, message", FUNCTIONS)
def test_functions_that_are_refused(text, inputs, message):
    with refused(message):
        te.function(parse(text) if isinstance(text, str) else text, inputs)


# The key of a definition


def test_definitions_by_data_have_keys_of_their_own():
    def texts():
        yield te.canonical_text(gather(17))
        yield te.canonical_text(row_sums(17))
        yield te.canonical_text(cumulated(17, 10))
        yield te.canonical_text(cumulated(17, 10, axis=1))
        yield te.canonical_text(histogram(17))
        yield te.canonical_text(scatter(True))
        yield te.canonical_text(scatter(False))
        A = te.placeholder((8,), name="A")
        yield te.canonical_text([A, te.function(parse(PREFIX), A)])
        yield te.canonical_text([A, te.function(parse(PREFIX.replace("2.0", "3.0")), A)])

    first, second = list(texts()), list(texts())
    assert first == second
    assert len(set(first)) == len(first)


def test_work_of_ragged_definitions():
    X = te.placeholder((100, 100), name="X")

    def row(i):
        k = te.reduce_axis((0, i + 1), name="k")
        return te.sum(X[i, k], axis=k)

    function = te.lower([X, te.compute((100,), row, name="C")])
    assert count(function)[0] == 100 * 50  # the row in the middle has 50 terms
    assert count(te.lower(row_sums(17)))[0] == 17  # nothing is known of the lengths
