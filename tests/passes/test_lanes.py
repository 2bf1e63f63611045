"""Reducers of more than one operation in lanes of vectors."""

import textwrap

import pytest

from tensorc import te
from tensorc.ir.walk import all_exprs
from tensorc.passes.lanes import reduce_in_lanes
from tensorc.schedule import Schedule
from tests.passes.same import assert_lowers, assert_text, program

NEAR = """
    function main(A: float32[4, 20], out C: float32[4])
      for i in 0 .. 4
        for k.0 in 0 .. 3
          for k.1 in 0 .. 8 vectorized
            block C {identity.0 = 9.0}
              spatial v: 4 = i
              reduce r: 20 = k.0 * 8 + k.1
              where k.0 * 8 + k.1 < 20
              init
                C[v] = float32(9.0)
              let C.term: float32 = A[v, r]
                C[v] = select(abs(C[v]) < abs(C.term), C[v], C.term)
"""


def has_lanes(function) -> bool:
    return any(buffer.name.endswith(".lanes") for buffer in reduce_in_lanes(function).allocs)


def test_each_lane_has_an_element_and_halves_combine():
    function = program(NEAR)
    assert_text(
        reduce_in_lanes(function),
        """
        function main(A: float32[4, 20], out C: float32[4])
          alloc C.lanes: float32[8] align 64
          for i in 0 .. 4
            if 0 * 8 + 0 < 20 and 0 * 8 + 0 == 0
              C[i] = float32(9.0)
            for k.1 in 0 .. 8 vectorized
              C.lanes[k.1] = float32(9.0)
            for k.0 in 0 .. 3
              for k.1 in 0 .. 8 vectorized
                block C {identity.0 = 9.0}
                  spatial v: 4 = i
                  reduce r: 20 = k.0 * 8 + k.1
                  spatial k.1_1: 8 = k.1
                  where k.0 * 8 + k.1 < 20
                  let C.lanes.term: float32 = A[v, r]
                    C.lanes[k.1_1] = select(abs(C.lanes[k.1_1]) < abs(C.lanes.term), C.lanes[k.1_1], C.lanes.term)
            for k.1 in 0 .. 4 vectorized
              let C.lanes.term: float32 = C.lanes[k.1 + 4]
                C.lanes[k.1] = select(abs(C.lanes[k.1]) < abs(C.lanes.term), C.lanes[k.1], C.lanes.term)
            for k.1 in 0 .. 2 vectorized
              let C.lanes.term: float32 = C.lanes[k.1 + 2]
                C.lanes[k.1] = select(abs(C.lanes[k.1]) < abs(C.lanes.term), C.lanes[k.1], C.lanes.term)
            for k.1 in 0 .. 1 vectorized
              let C.lanes.term: float32 = C.lanes[k.1 + 1]
                C.lanes[k.1] = select(abs(C.lanes[k.1]) < abs(C.lanes.term), C.lanes[k.1], C.lanes.term)
            let C.term: float32 = C.lanes[0]
              C[i] = select(abs(C[i]) < abs(C.term), C[i], C.term)
        """,
    )
    assert_lowers(function)


@pytest.mark.parametrize("lanes", [2, 3, 5, 7, 8])
def test_any_number_of_lanes(lanes):
    text = NEAR.replace("k.0 in 0 .. 3", f"k.0 in 0 .. {-(-20 // lanes)}")
    text = text.replace("0 .. 8 vectorized", f"0 .. {lanes} vectorized")
    function = program(text.replace("k.0 * 8", f"k.0 * {lanes}"))
    assert has_lanes(function)
    assert_lowers(function)


def argmax(m=6, k=20, axis=1, **options):
    shape = (m, k) if axis == 1 else (k, m)
    A = te.placeholder(shape, "float32", name="A")
    r = te.reduce_axis(k, name="k")
    term = (lambda i: A[i, r]) if axis == 1 else (lambda i: A[r, i])
    made = te.compute((m,), lambda i: te.argmax(term(i), axis=r, value=True), name="C")
    return Schedule(te.lower([A, *made]))


def test_loops_of_the_result_index_the_lanes():
    s = argmax()
    i, k = s.loops("C")
    i0, i1 = s.split(i, factors=(None, 4))
    k0, k1 = s.split(k, factors=(None, 8))
    s.reorder(i0, k0, i1, k1)
    s.unroll(i1)
    s.vectorize(k1)
    s.decompose_reduction("C", k0)
    lanes = [b for b in reduce_in_lanes(s.function).allocs if b.name.endswith(".lanes")]
    assert [tuple(e.value for e in b.shape) for b in lanes] == [(4, 8), (4, 8)]
    assert [b.dtype.name for b in lanes] == ["int64", "float32"]
    assert_lowers(s.function)


def test_too_many_lanes_are_kept_around_an_inner_loop():
    s = argmax(300, 40)
    i, k = s.loops("C")
    k0, k1 = s.split(k, factors=(None, 8))
    s.decompose_reduction("C", i)
    s.reorder(k0, i, k1)
    s.vectorize(k1)
    lanes = [b for b in reduce_in_lanes(s.function).allocs if b.name.endswith(".lanes")]
    assert [tuple(e.value for e in b.shape) for b in lanes] == [(8,), (8,)]
    assert_lowers(s.function)


def test_a_reduction_of_which_part_lies_outside():
    s = argmax()
    i, k = s.loops("C")
    k0, k1 = s.split(k, factors=(None, 8))
    s.vectorize(k1)
    s.decompose_reduction("C", k1)
    assert has_lanes(s.function)
    assert_lowers(s.function)


def test_operations_are_left_to_vectors():
    before, _ = NEAR.split("              let C.term")
    for update in ("C[v] = C[v] + A[v, r]", "let t: float32 = A[v, r]\n  C[v] = C[v] + t"):
        function = program(before + textwrap.indent(update, " " * 14))
        assert not has_lanes(function)
        assert_lowers(function)


@pytest.mark.parametrize(
    "old, new",
    [
        (" {identity.0 = 9.0}", ""),  # no identity is known
        ("spatial v: 4 = i", "spatial v: 4 = k.1 // 8 + i"),  # a loop of the result and of the reduction
    ],
)
def test_what_has_no_such_form_runs_serially(old, new):
    function = program(NEAR.replace(old, new))
    assert not has_lanes(function)
    flat = assert_lowers(function)
    assert not any(e.dtype.lanes > 1 for e in all_exprs(flat.body))


def test_equal_terms_in_all_lanes_each_count():
    """A term that no lane changes is still added once for each."""
    s = Schedule(_twice())
    i, k = s.loops("C")
    s.vectorize(k)
    assert_lowers(s.function)


def _twice():
    A = te.placeholder((4,), "float32", name="A")
    k = te.reduce_axis(8, name="k")
    both = te.comm_reducer(
        lambda x, y: (x[0] + y[0], x[1] + y[1]), lambda a, b: (te.const(0, a), te.const(0, b))
    )
    return te.lower([A, *te.compute((4,), lambda i: both((A[i], A[i] * 2), axis=k), name="C")])
