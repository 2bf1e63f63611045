"""Loops that may have no iterations: what starts before them, and what they leave unwritten."""

from __future__ import annotations

import numpy as np
import pytest

import tensorc as tc
from tensorc import te
from tensorc.errors import ScheduleError
from tensorc.ir import interpret, show
from tensorc.ir.parser import parse
from tensorc.passes.storage import place_buffers
from tensorc.schedule.primitives.loops import split
from tests.schedule.same import assert_same


def triangle() -> tc.Schedule:
    """Rows of which the last, and those past the end, have nothing to multiply."""
    n = te.var("n")
    A = te.placeholder((n,), "float32", name="A")

    def row(i):
        k = te.reduce_axis((i, n), name="k")
        return te.prod(A[k], axis=k)

    return tc.schedule([A, te.compute((n,), row, name="C")])


def check(s: tc.Schedule) -> None:
    for n in (0, 1, 5, 7, 20):
        out = interpret(s.function, np.full(n, 2, np.float32))
        np.testing.assert_array_equal(out, 2.0 ** np.arange(n, 0, -1))


def test_a_split_keeps_the_guard_of_rows_without_terms():
    s = triangle()
    s.split(s.loops("C")[0], (16, None))
    assert "where C.i.0 * ((n + 15) // 16) + C.i.1 < n" in str(s.show())
    check(s)
    s.decompose_reduction("C", s.loops("C")[1])
    check(s)


def test_the_end_of_a_reduction_does_not_stand_for_the_end_of_its_rows():
    s = triangle()
    i, k = s.loops("C")
    s.split(i, (16, None))
    s.split(k, (None, 5, 3))
    check(s)
    s.loop_partition(s.loops("C")[0], (7, None))
    check(s)
    s.decompose_reduction("C", s.loops("C")[1])
    check(s)


def test_results_of_rfactor_are_not_as_many_as_data_says():
    n = te.placeholder((), "int64", name="n")
    k = te.reduce_axis((0, n[()]), name="k")
    s = tc.schedule([n, te.compute((), lambda: te.sum(te.const(1.0), axis=k), name="C")])
    message = "the results would be as many as 'n' says, and a call knows its memory before; split the loop by a number"
    with pytest.raises(ScheduleError, match=message):
        s.rfactor("C.k")
    outer, inner = s.split("C.k", factors=(None, 4))
    s.rfactor(inner)
    kernel = tc.build(s, cache=False)
    assert [float(kernel(np.array(n))) for n in (0, 1, 4, 7)] == [0, 1, 4, 7]


def test_how_far_a_loop_goes_is_read_where_it_is():
    """The start of an empty row looks at its length before a copy inside the loops is made."""
    L, A = te.placeholder((3,), "int32", name="L"), te.placeholder((3, 9), "int64", name="A")

    def row(i):
        k = te.reduce_axis((0, L[i]), name="k")
        return te.sum(A[i, k] * te.cast(L[i], "int64"), axis=k)

    s = tc.schedule([L, A, te.compute((3,), row, name="C")])
    only = tc.schedule([L, te.compute((3,), lambda i: te.sum(1, axis=te.reduce_axis((0, L[i]), name="k")), name="C")])
    copied = s.copy()
    copied.cache_read("C", "L")
    copied.compute_at("L_global", "C.k")
    s.stage("C", "L")
    lengths, a = np.array([2, 0, 5], "i4"), np.arange(27).reshape(3, 9)
    for each, name in ((copied, "L_global"), (s, "L_stage")):
        assert "reduce k: cast(int64, L[C.i]) = C.k" in each.show() and f"cast(int64, {name}[i])" in each.show()
        found = interpret(each.function, lengths, a)
        assert found.tolist() == [a[i, :n].sum() * n for i, n in enumerate(lengths)]
    for step in (lambda: only.cache_read("C", "L"), lambda: only.stage("C.i", "L")):
        with pytest.raises(ScheduleError, match="'L' only tells there how far loops go, and is read as it is"):
            step()


def test_a_copy_is_not_made_of_what_an_empty_loop_writes():
    f = parse("""
        function main(A: float32[1], out C: float32[1])
          alloc T: float32[1]
          for T.j in 0 .. 0
            block T
              spatial i: 1 = 0
              T[i] = A[i]
          for C.i in 0 .. 1
            block C
              spatial i: 1 = C.i
              C[i] = if_then_else(i > 0, T[i], float32(7.0))
    """)
    for step in ("reindex_cache_write", "reindex_cache_read"):
        s = tc.Schedule(f)
        with pytest.raises(ScheduleError, match="known to"):
            getattr(s, step)("T" if step.endswith("write") else "C", "T", "global", lambda i: (i,))


def test_a_copy_is_not_made_before_all_is_written():
    f = parse("""
        function main(A: float32[4], out C: float32[4], out D: float32[2])
          for I.i in 0 .. 2
            block I
              spatial i: 2 = I.i
              C[i] = A[i]
          for D.i in 0 .. 2
            block D
              spatial i: 2 = D.i
              D[i] = if_then_else(i < 2, C[i], C[i + 2])
          for C.i in 0 .. 2
            block C
              ordered i: 2 = C.i
              C[i + 2] = C[i + 1] + A[i + 2]
    """)
    s = tc.Schedule(f)
    with pytest.raises(ScheduleError, match="known to be written by then; 'C' writes it later"):
        s.cache_read("D", "C")
    near = parse(show(f).replace("if_then_else(i < 2, C[i], C[i + 2])", "C[i]"))
    s = tc.Schedule(near)
    s.cache_read("D", "C")
    assert "for C_global.i in 0 .. 2" in show(s.function)
    assert_same(near, s.function)


def test_memory_is_not_private_to_an_iteration_that_may_write_nothing():
    f = parse("""
        function main(A: float32[3], out C: float32[3])
          alloc T: float32[1]
          for i in 0 .. 3
            for k in 0 .. 1 - i
              T[0] = A[i]
            C[i] = T[0]
    """)
    text = show(place_buffers(f))
    assert text.index("alloc T") < text.index("for i")
    assert_same(f, place_buffers(f))


def test_a_guard_stands_above_all_loops_of_a_row_whose_length_is_loaded():
    """What makes the start where one of the reduce loops is empty looks at the lengths of rows, too."""
    function = parse("""
function rows(L: int32[3], out C: int64[3])
  for C.i in 0 .. 3
    for C.q in 0 .. 2
      for C.r in 0 .. cast(int64, L[C.i])
        block C
          spatial i: 3 = C.i
          reduce q: 2 = C.q
          reduce r: cast(int64, L[C.i]) = C.r
          init
            C[i] = 0
          C[i] = C[i] + r
""")
    changed, names = split(function, "C.i", (2, 2), "mask")
    lines = [line.strip() for line in show(changed).splitlines()[1:6]]
    assert lines == [
        'for C.i.0 in 0 .. 2 {tail = "mask"}',
        "for C.i.1 in 0 .. 2",
        "if C.i.0 * 2 + C.i.1 < 3",
        "for C.q in 0 .. 2",
        "for C.r in 0 .. cast(int64, L[C.i.0 * 2 + C.i.1])",
    ]
    assert np.array_equal(interpret(changed, np.array([3, 0, 2], "i4")), [6, 0, 2])


def test_the_start_of_a_split_row_stands_where_the_row_is_walked():
    """Its length tells in what steps; that does not make the loop over rows one of the reduction."""
    function = parse("""
function rows(L: int32[2], out C: int64[2])
  alloc S: int64[2]
  for C.i in 0 .. 2
    for C.u in 0 .. 1
      block S
        spatial i: 2 = C.i
        S[i] = 7
      for C.r in 0 .. cast(int64, L[C.i])
        block C
          spatial i: 2 = C.i
          reduce r: cast(int64, L[C.i]) = C.r
          init
            C[i] = S[i]
          C[i] = C[i] + r
""")
    changed, _ = split(function, "C.r", (3, None), "cut")
    for lengths in ([0, 4], [1, 1], [0, 0], [-1, 2]):
        expected = [7 + n * (n - 1) // 2 if n > 0 else 7 for n in lengths]
        assert np.array_equal(interpret(changed, np.array(lengths, "i4")), expected)


@pytest.mark.parametrize("index_map", (lambda i, j: (i, j), lambda i, j: (j, i), lambda i, j: (j // 4, i, j % 4)))
def test_what_is_empty_has_no_element_in_another_layout(index_map):
    A = te.placeholder((3, 0), name="A")
    T = te.compute((3, 0), lambda i, j: A[i, j] + 1.0, name="T")
    s = tc.schedule([A, te.compute((0, 3), lambda i, j: T[j, i] * 2.0, name="C")])
    s.transform_layout("T", "T", index_map)
    buffer, = s.function.allocs
    assert 0 in [extent.value for extent in buffer.shape]
    with pytest.raises(ScheduleError, match="the iterator 'j' may be empty, and then the block writes nothing to copy"):
        s.reindex("T", "T")


@pytest.mark.parametrize("factors", ((1, None), (None, 1), (4, None), (None, 4), (2, None, 2)))
@pytest.mark.parametrize("most", (1, 2))
@pytest.mark.parametrize("tail", ("guard", "cut", "mask"))
def test_a_range_of_one_or_none_is_no_number(factors, most, tail):
    """Where it is none, the start is still written."""
    n = te.var("n")
    A = te.placeholder((n,), "int32", name="A")
    k = te.reduce_axis(te.minimum(n, most), name="k")
    s = tc.schedule([A, te.compute((2,), lambda i: te.sum(A[k], axis=k), name="C")])
    s.split(s.loops("C")[1], factors=factors, tail=tail)
    for extent in (0, 1, 3):
        data = np.arange(1, extent + 1, dtype="i4")
        assert np.array_equal(interpret(s.function, data), np.full(2, data[:most].sum()))


@pytest.mark.parametrize("factors", ((1, None), (None, 1), (4, None), (None, 4)))
def test_the_start_of_a_range_of_none_survives_a_split(factors):
    function = parse("""
function none(A: int32[4], out C: int32[])
  for C.k in 0 .. 0
    block C
      reduce k: 0 = C.k
      init
        C[] = int32(5)
      C[] = C[] + A[k]
""")
    changed, _ = split(function, "C.k", factors, "guard")
    assert interpret(changed, np.ones(4, "i4")) == 5


@pytest.mark.parametrize("tail", ("guard", "cut", "mask"))
def test_a_row_that_tells_how_long_a_fused_range_is_stays_a_row(tail):
    """The length of the row is looked at where there is one, be it for the start of a range of none."""
    function = parse("""
function rows(L: uint8[2], A: int32[2], out C: int32[2])
  for C.j in 0 .. 2
    for C.r.0 in 0 .. cast(int64, L[C.j])
      for C.r.1 in 0 .. 2
        block C
          spatial j: 2 = C.j
          reduce r: 2 = (C.r.0 * 2 + C.r.1) // cast(int64, L[C.j])
          reduce q: cast(int64, L[C.j]) = (C.r.0 * 2 + C.r.1) % cast(int64, L[C.j])
          init
            C[j] = int32(0)
          C[j] = C[j] + A[r]
""")
    changed, _ = split(function, "C.j", (3, None), tail)
    for lengths in ([2, 1], [0, 3], [0, 0]):
        found = interpret(changed, np.array(lengths, "u1"), np.array([3, 5], "i4"))
        assert np.array_equal(found, [8 * length for length in lengths])


def _started_from_a_stage():
    n = te.var("n")
    a, b = te.placeholder((4, n), "int32", name="A"), te.placeholder((4,), "int32", name="B")
    t = te.compute((4,), lambda i: b[i] * 3, name="T")
    k = te.reduce_axis(n, name="k")
    return tc.schedule([a, b, te.compute((4,), lambda i: te.sum(a[i, k], axis=k, init=t[i]), name="C")])


def test_what_a_reduction_starts_from_is_made_before_its_loops():
    """Where there is nothing to reduce, no iteration makes it."""
    s = _started_from_a_stage()
    copied = s.copy()
    copied.cache_read("C", "T", "local")
    message = "'C' starts from '{}', also where loop 'C.k' has no iteration"
    for each, name in ((s, "T"), (copied, "T_local")):
        with pytest.raises(ScheduleError, match=message.format(name)):
            each.compute_at(name, "C.k")
    s.compute_at("T", "C.i")
    found = interpret(s.function, np.zeros((4, 0), "i4"), np.arange(4, dtype="i4"))
    assert found.tolist() == [0, 3, 6, 9]
    turned = _started_from_a_stage()
    turned.reorder("C.k", "C.i")
    with pytest.raises(ScheduleError, match=message.format("T")):
        turned.compute_at("T", "C.i")
    with pytest.raises(ScheduleError, match=message.format("T")):
        turned.stage("C.i", "T")


def test_a_window_of_an_empty_sum_of_loops_is_not_filled():
    """T.i + T.j may have no value, though the first and the last of them are not apart."""
    s = tc.Schedule(parse("""
        function main(A: float32[n], out C: float32[n]) where n >= 1
          alloc T: float32[n]
          for T.i in 0 .. n - 1
            for T.j in 0 .. 2
              block T
                spatial i: n = T.i + T.j
                T[i] = A[i]
          for C.i in 0 .. n - 1
            block C
              spatial i: n = C.i
              C[i] = T[i] + T[i + 1]
    """))
    with pytest.raises(ScheduleError, match="not every element of the window of 'T' is known to be written before"):
        s.stage("C.i", "T")


def test_a_version_for_few_elements_may_do_nothing():
    n = te.var("n")
    a = te.placeholder((n,), "float32", name="A")
    t = te.compute((n,), lambda i: a[i], name="T")
    c = te.compute((n - 1,), lambda i: t[i] * t[i + 1], name="C")
    s = tc.schedule([a, c])
    s.compute_at("T", "C.i")
    s.stage("T", "A", scope="local")
    s.fission("C.i", "A_stage")
    s.specialize("n >= 2")
    s.reindex("T", "A_stage")
    for count in (1, 2, 5):
        x = np.arange(count, dtype="f4")
        assert np.array_equal(interpret(s.function, x), x[1:] * x[:-1])


def test_ranges_that_loops_over_ranges_lead_to_are_looked_at_inside_only():
    """Past the end of i, k would go past the end of L."""
    L = te.placeholder((5,), "int64", name="L")

    def row(i):
        k = te.reduce_axis((0, i + 1), name="k")
        return te.sum(1, axis=(k, te.reduce_axis((0, L[k]), name="r")))

    s = tc.schedule([L, te.compute((5,), row, name="C")])
    s.split("C.i", factors=(None, 4))
    assert interpret(s.function, np.array([2, 0, 1, 3, 1])).tolist() == [2, 2, 3, 6, 7]
    assert "if C.i.0 * 4 + C.i.1 < 5" in s.show()


def test_a_reduction_that_moves_to_where_it_is_short_keeps_its_loop():
    """Of one term or none, it still starts where there is none."""
    n = te.var("n")
    a, k = te.placeholder((2, n), "int32", name="A"), te.reduce_axis(n, name="k")
    t = te.compute((2,), lambda i: te.sum(a[i, k], axis=k), name="T")
    s = tc.schedule([a, te.compute((2,), lambda i: t[i] + 1, name="C")])
    s.specialize("n >= 2")
    s.compute_at("T", "C.i")
    assert interpret(s.function, np.zeros((2, 0), "i4")).tolist() == [1, 1]
    assert interpret(s.function, np.array([[3], [4]], "i4")).tolist() == [4, 5]


def test_a_part_of_one_iteration_of_a_reduction_keeps_its_loop():
    """The range is empty where there is nothing to reduce; the loop, which another nest shares, is not."""
    n = te.var("n")
    a, k = te.placeholder((1, n), "int32", name="A"), te.reduce_axis(n, name="k")
    b = te.compute((4,), lambda i: te.const(3, "int32"), name="B")
    c = te.compute((1,), lambda i: te.sum(a[i, k], axis=k), name="C")
    s = tc.schedule([a, b, c])
    s.split("B.i", factors=(1, 4))
    s.compute_with("C", "B", "B.i.1")
    s.loop_partition("B.i.1", (1, None))
    for count in (0, 1, 6):
        assert interpret(s.function, np.ones((1, count), "i4"))[1].tolist() == [count]
