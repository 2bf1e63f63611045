"""What parallel, vectorize and reorder may assume of nests with several blocks."""

from __future__ import annotations

import pytest

from tensorc.errors import ScheduleError
from tensorc.ir.parser import parse
from tensorc.ir.printer import show
from tensorc.schedule.primitives.loops import fuse, parallel, reorder, split, vectorize
from tensorc.schedule.primitives.placement import reverse_compute_at
from tensorc.schedule.primitives.reduction import decompose_reduction
from tests.schedule.same import assert_same
from tests.schedule.test_loops import matmul

# A producer that each iteration of y makes for itself: rows y .. y + 2.
STENCIL = """
function stencil(A: float32[8, 6], out C: float32[6, 6])
  alloc P: float32[8, 6]
  for y in 0 .. 6
    for P.i in 0 .. 3
      for P.j in 0 .. 6
        block P
          spatial i: 8 = y + P.i
          spatial j: 6 = P.j
          P[i, j] = A[i, j] * float32(2.0)
    for x in 0 .. 6
      block C
        spatial i: 6 = y
        spatial j: 6 = x
        C[i, j] = P[i, j] + P[i + 1, j] + P[i + 2, j]
"""

# A producer that relies on rows which earlier iterations made.
SLIDING = (
    STENCIL.replace("in 0 .. 3", "in 0 .. 1")
    .replace("= y + P.i", "= y")
    .replace("P[i, j] + P[i + 1, j] + P[i + 2, j]", "P[i, j] + P[max(i - 1, 0), j]")
)


def nest(text: str):
    return parse(text.strip())


def test_a_private_producer_runs_in_parallel():
    assert_same(nest(STENCIL), parallel(nest(STENCIL), "y"))


def test_a_producer_inside_lanes():
    assert_same(nest(STENCIL), vectorize(nest(STENCIL), "y"))


def test_values_of_other_iterations_are_not_parallel():
    with pytest.raises(ScheduleError) as caught:
        parallel(nest(SLIDING), "y")
    assert str(caught.value) == (
        "parallel(loop 'y'): iterations of the loop may touch the same elements of buffer 'P', "
        "which block 'P' writes"
    )


def test_a_producer_that_is_used_elsewhere_too_is_not_private():
    text = STENCIL.replace("out C", "out P: float32[8, 6], out C").replace(
        "  alloc P: float32[8, 6]\n", ""
    )
    with pytest.raises(ScheduleError, match="may touch the same elements of buffer 'P'"):
        parallel(nest(text), "y")


def test_holes_do_not_cover():
    text = (
        STENCIL.replace("= y + P.i", "= y + P.i * 2")
        .replace("8, 6]", "12, 6]")
        .replace("spatial i: 8", "spatial i: 12")
    )
    with pytest.raises(ScheduleError, match="may touch the same elements of buffer 'P'"):
        parallel(nest(text), "y")


ROWS = """
function rows(A: float32[8, 6], out C: float32[8, 6])
  alloc P: float32[8, 6]
  for i in 0 .. 8
    for t in 0 .. 2
      for P.j in 0 .. 6
        block P
          spatial i: 8 = i
          spatial j: 6 = P.j
          P[i, j] = A[i, j] * float32(2.0)
      for x in 0 .. 3
        block C
          spatial i: 8 = i
          spatial j: 6 = t * 3 + x
          C[i, j] = P[i, j]
"""


def test_loops_around_a_producer_and_its_consumer_reorder():
    assert_same(nest(ROWS), reorder(nest(ROWS), ("t", "i")))
    assert_same(nest(ROWS), parallel(nest(ROWS), "i"))
    assert_same(nest(ROWS), parallel(nest(ROWS), "t"))


def test_but_not_if_an_iteration_reads_what_another_wrote():
    text = ROWS.replace("P[i, j] = A", "P[i, j] = A").replace(
        "spatial j: 6 = P.j\n", "spatial j: 6 = P.j\n          where t == 0\n"
    )
    with pytest.raises(ScheduleError) as caught:
        reorder(nest(text), ("t", "i"))
    assert str(caught.value) == (
        "reorder(loops 't', 'i'): the blocks 'C', 'P' share buffer 'P', and an iteration may read "
        "what another one wrote"
    )


def test_the_tail_of_a_split_does_not_hide_that_reads_are_covered():
    function, _ = split(nest(ROWS), "i", (None, 3))
    assert_same(nest(ROWS), parallel(function, "i.0"))
    assert_same(nest(ROWS), reorder(function, ("t", "i.0", "i.1")))


def test_a_reduce_loop_does_not_move_where_other_blocks_run_too():
    function, (k0, _) = split(matmul(), "C.k", (None, 4))
    function = reorder(function, (k0, "C.i", "C.j"))
    function, _ = decompose_reduction(function, "C", "C.j")
    with pytest.raises(ScheduleError) as caught:
        reorder(function, ("C.i", k0))
    assert str(caught.value) == (
        "reorder(loops 'C.i', 'C.k.0'): loop 'C.k.0' reduces in block 'C', and other blocks run in "
        "the same iterations"
    )


SCAN = """
function scan(A: float32[8, 6], out X: float32[8, 6])
  for t in 0 .. 8
    for j in 0 .. 6
      block X
        ordered t: 8 = t
        spatial j: 6 = j
        X[t, j] = if_then_else(t > 0, X[max(t - 1, 0), j], float32(0.0)) + A[t, j]
"""


def test_ordered_iterators_keep_their_order():
    with pytest.raises(ScheduleError) as caught:
        parallel(nest(SCAN), "t")
    assert str(caught.value) == (
        "parallel(loop 't'): iterator 't' of block 'X', which is ordered, is bound to it; "
        "iterations of the loop may touch the same elements of buffer 'X', which block 'X' writes"
    )
    aside = nest(SCAN.replace("X[max(t - 1, 0), j]", "X[max(t - 1, 0), max(j - 1, 0)]"))
    with pytest.raises(ScheduleError) as caught:
        reorder(aside, ("j", "t"))
    assert str(caught.value) == (
        "reorder(loops 'j', 't'): loop 't' runs block 'X' in order; it must stay where it is "
        "relative to 'j', whose iterations may touch the same elements"
    )


def test_ordered_iterators_move_where_what_they_order_is_apart():
    assert_same(nest(SCAN), parallel(nest(SCAN), "j"))
    assert_same(nest(SCAN), parallel(reorder(nest(SCAN), ("j", "t")), "j"))
    text = SCAN.replace("if_then_else(t > 0, X[max(t - 1, 0), j], float32(0.0)) + ", "")
    assert_same(nest(text), parallel(nest(text), "t"))


def test_what_an_earlier_step_wrote_may_be_read_anywhere():
    text = SCAN.replace("X[max(t - 1, 0), j]", "X[t - 1, 5 - j]")
    assert_same(nest(text), parallel(nest(text), "j"))


def test_a_scan_that_looks_aside_is_not_parallel():
    text = SCAN.replace("X[max(t - 1, 0), j]", "X[max(t - 1, 0), max(j - 1, 0)]")
    with pytest.raises(ScheduleError, match="may touch the same elements of buffer 'X'"):
        parallel(nest(text), "j")


@pytest.mark.parametrize("factor", [2, 5, 7])
def test_fused_spatial_loops_are_parallel(factor):
    function, name = fuse(matmul(), ("C.i", "C.j"))
    assert_same(matmul(), parallel(function, name))
    function, (outer, inner) = split(function, name, (None, factor))
    assert_same(matmul(), parallel(function, outer))
    assert_same(matmul(), vectorize(function, inner))


def test_fused_tiles_are_parallel_with_their_init():
    function, (i0, i1) = split(matmul(), "C.i", (None, 4))
    function, (j0, j1) = split(function, "C.j", (None, 4))
    function = reorder(function, (i0, j0, "C.k", i1, j1))
    function, name = fuse(function, (i0, j0))
    function, _ = decompose_reduction(function, "C", "C.k")
    assert_same(matmul(), parallel(function, name))


OVERLAP = """
function overlap(A: float32[6, 3], out C: float32[6])
  for t in 0 .. 3
    for C.i in 0 .. 4
      for C.k in 0 .. 3
        block C
          spatial i: 6 = t + C.i
          reduce k: 3 = C.k
          init
            C[i] = float32(0.0)
          C[i] = C[i] + A[i, k]
"""


def test_a_sum_that_is_made_twice_is_not_parallel():
    with pytest.raises(ScheduleError, match="may touch the same elements of buffer 'C'"):
        parallel(nest(OVERLAP), "t")
    with pytest.raises(ScheduleError, match="init of block 'C' may not run first"):
        reorder(nest(OVERLAP), ("C.k", "t"))


def test_but_a_copy_that_is_made_twice_is():
    text = OVERLAP.replace(
        "          reduce k: 3 = C.k\n          init\n            C[i] = float32(0.0)\n", ""
    )
    text = text.replace("C[i] + A[i, k]", "A[i, 0]")
    assert_same(nest(text), parallel(nest(text), "t"))


@pytest.mark.parametrize(
    "value, is_legal",
    [
        ("C[i] + A[i, k]", True),
        ("A[i, k] * C[i]", True),
        ("min(C[i], A[i, k])", True),
        ("max(A[i, k], C[i])", True),
        ("C[i] - A[i, k]", False),
        ("C[i] + C[i]", False),
        ("select(A[i, k] > C[i], A[i, k], C[i])", False),
    ],
)
def test_which_reductions_lanes_can_do(value, is_legal):
    text = OVERLAP.replace("C[i] + A[i, k]", value)
    if is_legal:
        vectorize(nest(text), "C.k")
        return
    with pytest.raises(ScheduleError) as caught:
        vectorize(nest(text), "C.k")
    assert str(caught.value) == (
        "vectorize(loop 'C.k'): it reduces, and block 'C' combines its terms by no reducer that "
        "is known"
    )


def test_loops_in_the_body_of_a_block_count():
    text = """
function f(A: float32[6, 3], out C: float32[9])
  for t in 0 .. 6
    block Z
      spatial i: 6 = t
      for u in 0 .. 3
        C[i + u] = float32(0.0)
    block C
      spatial i: 6 = t
      for u in 0 .. 3
        C[i + u] = C[i + u] + A[i, u]
"""
    with pytest.raises(ScheduleError, match="may touch the same elements of buffer 'C'"):
        parallel(nest(text), "t")


CHECKED = """
function main(P: float32[8], I: int64[8], X: float32[5], out T: float32[8], out C: float32[8])
  for t in 0 .. 8
    block T
      spatial i: 8 = t
      T[i] = P[i] * float32(2.0)
  block C_check {check = true}
    for q in 0 .. 8
      check I[q] >= 0 and I[q] < 5, I[q], q, "access X[I[i]]: index {value} at i = {0} is outside 0..4"
  for c in 0 .. 8
    block C
      spatial i: 8 = c
      C[i] = T[i] + X[I[i]]
"""


def test_what_is_checked_does_not_run_before_the_check():
    with pytest.raises(ScheduleError) as caught:
        reverse_compute_at(nest(CHECKED), "C", "t")
    assert str(caught.value) == (
        "reverse_compute_at(block 'C', loop 't'): it would run before what it must follow: 'C_check' and 'C' share "
        "buffer 'checks'"
    )
    unchecked = CHECKED.replace("X[I[i]]", "X[i % 5]")
    assert_same(nest(unchecked), reverse_compute_at(nest(unchecked), "C", "t"))


def test_a_block_in_a_block_touches_what_its_own_iterators_reach():
    text = """
function nested(A: float32[4, 4], out C: float32[7])
  for i in 0 .. 4
    block outer
      ordered x: 4 = i
      for j in 0 .. 4
        block inner
          spatial y: 4 = j
          C[x + y] = C[x + y] + A[x, y]
"""
    with pytest.raises(ScheduleError, match="iterations of the loop may touch the same elements"):
        parallel(parse(text), "i")
    apart = text.replace("C: float32[7]", "C: float32[16]").replace("x + y", "x * 4 + y")
    assert "for i in 0 .. 4 parallel" in show(parallel(parse(apart), "i"))


def test_an_iteration_past_the_end_leaves_what_another_one_stored():
    """The second iteration stores nothing, and copies what the first one has stored: they are no tasks."""
    function = parse("""
function late(A: float32[1], out C: float32[1])
  alloc T: float32[1]
  for T.i.0 in 0 .. 2
    for T.i.1 in 0 .. 8
      block T
        spatial i: 1 = T.i.0 * 8 + T.i.1
        where T.i.0 * 8 + T.i.1 < 1
        T[0] = A[i]
    block C
      spatial i: 1 = 0
      C[i] = T[0]
""")
    with pytest.raises(ScheduleError, match="iterations of the loop may touch the same elements of buffer 'T'"):
        parallel(function, "T.i.0")
