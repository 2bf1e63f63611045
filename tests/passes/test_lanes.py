"""Reducers of more than one operation in lanes of vectors."""

import textwrap

import numpy as np
import pytest

import tensorc as tc
from tensorc import te
from tensorc.ir.printer import show
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
    assert [b.dtype.name for b in lanes] == ["int32", "float32"]
    assert_lowers(s.function)


BEST = """
    function main(A: float32[3, {n}], out C: int64[3], out V: float32[3])
      for i in 0 .. 3
        for k.0 in 0 .. {count}
          for k.1 in 0 .. 8 vectorized
            block C {{identity.0 = 9223372036854775807, identity.1 = -inf}}
              spatial v: 3 = i
              reduce r: {n} = k.0 * 8 + k.1
              init
                C[v] = 9223372036854775807
                V[v] = float32(-inf)
              let C.term: int64 = {term}
                let V.term: float32 = A[v, r]
                  let C.next: int64 = select(select(V[v] == V.term, C.term < C[v], not V[v] > V.term), C.term, C[v])
                    let V.next: float32 = max(V[v], V.term)
                      C[v] = C.next
                      V[v] = V.next
"""


def test_positions_that_come_in_order_are_not_compared():
    function = program(BEST.format(n=32, count=4, term="r"))
    text = show(reduce_in_lanes(function))
    first, rest = text.split("for k.0 in 1 .. 4")
    assert "for k.0 in 0 .. 1" in first and "C.lanes.term < C.lanes[" in first
    assert "C.lanes.term: int32 = cast(int32, r)" in rest
    main, end = rest.split("for k.1 in", 2)[1:]
    assert "C.lanes.term <" not in main and "C.lanes.term <" in end
    assert "select(C.lanes[0] == int32(2147483647), 9223372036854775807, cast(int64, C.lanes[0]))" in end
    assert_lowers(function)


@pytest.mark.parametrize(
    "n, term, kept, compared",
    [
        (32, "r", "int32", False),
        (32, "31 - r", "int32", True),  # positions that fall
        (32, "r // 2", "int32", True),  # or stay
        (32, "r * 3", "int32", False),
        (32, "r + 2147483616", "int64", False),  # the last one is the largest int32: the identity of lanes
        (32, "r + 2147483615", "int32", False),
        (32, "r * 100000", "int32", True),  # steps this large are not trusted not to wrap
        (8, "r", "int32", True),  # a single iteration
    ],
)
def test_what_lanes_keep_and_compare_of_positions(n, term, kept, compared):
    function = program(BEST.format(n=n, count=n // 8, term=term))
    lowered = reduce_in_lanes(function)
    assert next(b for b in lowered.allocs if b.name == "C.lanes").dtype.name == kept
    assert ("for k.0 in 1 .. " not in show(lowered)) == compared
    assert_lowers(function)


@pytest.mark.parametrize(
    "old, new",
    [
        ("C.term < C[v]", "C.term + 1 < C[v]"),  # computed with
        ("C.term < C[v]", "C.term < 100"),  # compared with something else
        ("C.term, C[v])", "C.term, C[v] + 0)"),
    ],
)
def test_positions_that_are_computed_with_stay(old, new):
    lowered = reduce_in_lanes(program(BEST.format(n=32, count=4, term="r").replace(old, new, 1)))
    assert next(b for b in lowered.allocs if b.name == "C.lanes").dtype.name == "int64"
    assert "for k.0 in 1 .. " not in show(lowered)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("best", ["argmax", "argmin"])
@pytest.mark.parametrize("n", [1, 5, 16, 63, 64, 65, 129, 300])
def test_best_positions_as_numpy_gives_them(best, n, symbolic):
    extent = te.var("n") if symbolic else n
    A = te.placeholder((9, extent), name="A")
    k = te.reduce_axis(extent, name="k")
    C = te.compute((9,), lambda i: getattr(te, best)(A[i, k], axis=k), name="C")
    kernel = tc.build([A, C], threads=1)
    rng = np.random.default_rng(n)
    a = rng.integers(-2, 3, (9, n)).astype("float32")
    a[1, -1] = a[2, n // 2] = a[2, -1] = np.nan
    a[3], a[4], a[5, 0] = -np.inf, np.inf, np.nan
    a[6, n // 2] = 7 if best == "argmax" else -7
    a[7] = np.nan
    assert np.array_equal(kernel(a), getattr(np, best)(a, axis=1))


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
