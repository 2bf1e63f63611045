"""decompose_reduction: the init becomes a block of its own."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc import te
from tensorc.errors import ScheduleError
from tensorc.ir.interpreter import interpret
from tensorc.ir.parser import parse
from tensorc.ir.printer import show
from tensorc.ir.verifier import verify
from tensorc.schedule.locate import all_blocks
from tensorc.schedule.primitives.loops import fuse, parallel, reorder, split, unroll, vectorize
from tensorc.schedule.primitives.reduction import decompose_reduction
from tensorc.schedule.schedule import Schedule
from tests.schedule.same import assert_same
from tests.schedule.test_loops import body, copy, lines, matmul, refused


def test_before_the_reduce_loop():
    function, name = decompose_reduction(matmul(), "C", "C.k")
    assert name == "C_init"
    assert body(function) == lines("""
for C.i in 0 .. 8
  for C.j in 0 .. 6
    block C_init
      spatial i: 8 = C.i
      spatial j: 6 = C.j
      C[i, j] = float32(0.0)
    for C.k in 0 .. 12
      block C
        spatial i: 8 = C.i
        spatial j: 6 = C.j
        reduce k: 12 = C.k
        C[i, j] = C[i, j] + A[i, k] * B[k, j]
""")
    assert_same(matmul(), function)


@pytest.mark.parametrize("loop", ["C.i", "C.j", "C.k"])
def test_before_any_loop(loop):
    function, _ = decompose_reduction(matmul(), "C", loop)
    assert_same(matmul(), function)


def tiled():
    function, (i0, i1) = split(matmul(), "C.i", (None, 3))
    function, (j0, j1) = split(function, "C.j", (None, 4))
    function, (k0, k1) = split(function, "C.k", (None, 5))
    return reorder(function, (i0, k0, j0, k1, i1, j1)), (i0, k0, j0, k1, i1, j1)


def test_loops_are_copied_with_their_kinds_and_names():
    function, (_, _, _, k1, i1, j1) = tiled()
    function = vectorize(unroll(function, i1), j1)
    function, _ = decompose_reduction(function, "C", k1)
    text = show(function)
    assert "for C_init.i.1 in 0 .. 3 unrolled" in text
    assert "for C_init.j.1 in 0 .. 4 vectorized" in text
    assert_same(matmul(), function)


def test_below_a_reduce_loop_it_runs_only_in_the_first_iteration():
    function, (_, _, _, k1, _, _) = tiled()
    function, _ = decompose_reduction(function, "C", k1)
    init = show(function).split("block C_init")[1].split("C[")[0]
    assert "C.k.0 == 0" in init
    assert_same(matmul(), function)


@pytest.mark.parametrize("position", range(6))
def test_before_any_loop_of_a_tiled_nest(position):
    function, loops = tiled()
    function, _ = decompose_reduction(function, "C", loops[position])
    assert_same(matmul(), function)


def test_with_fused_reduce_and_spatial_loops():
    function, x = fuse(matmul(), ("C.j", "C.k"))
    after, _ = decompose_reduction(function, "C", x)
    assert_same(matmul(), after)
    function, (x0, x1) = split(function, x, (None, 5))
    for loop in (x0, x1):
        after, _ = decompose_reduction(function, "C", loop)
        assert_same(matmul(), after)


def test_decomposed_reductions_reorder_freely():
    function, x = fuse(matmul(), ("C.j", "C.k"))
    function, (x0, x1) = split(function, x, (None, 5))
    function, _ = decompose_reduction(function, "C", "C.i")
    assert_same(matmul(), reorder(function, (x1, "C.i", x0)))


def test_vectorized_reductions_in_both_orders():
    function, (_, k1) = split(matmul(), "C.k", (None, 4))
    first, _ = decompose_reduction(vectorize(function, k1), "C", "C.k.0")
    second, _ = decompose_reduction(function, "C", "C.k.0")
    second = vectorize(second, k1)
    assert show(first) == show(second)
    assert_same(matmul(), first)


def test_the_init_runs_in_parallel_with_its_loop():
    function, _ = decompose_reduction(matmul(), "C", "C.k")
    assert_same(matmul(), parallel(function, "C.i"))
    assert_same(matmul(), parallel(function, "C.j"))


def test_refusals():
    function, _ = decompose_reduction(matmul(), "C", "C.k")
    assert refused(decompose_reduction, function, "C", "C.k") == (
        "decompose_reduction(block 'C', loop 'C.k'): the block has no init: it reduces nothing, or "
        "was decomposed"
    )
    assert refused(decompose_reduction, copy(), "C", "C.j").endswith(
        "the block has no init: it reduces nothing, or was decomposed"
    )
    assert refused(decompose_reduction, matmul(), "D", "C.k") == (
        "no block is named 'D'; there are C"
    )


OTHER = """
function f(A: float32[4, 3], out C: float32[4], out D: float32[4])
  for D.i in 0 .. 4
    block D
      spatial i: 4 = D.i
      D[i] = A[i, 0]
  for C.i in 0 .. 4
    for C.k in 0 .. 3
      block C
        spatial i: 4 = C.i
        reduce k: 3 = C.k
        init
          C[i] = float32(0.0)
        C[i] = C[i] + A[i, k]
"""

# Each iteration of t makes C[t .. t + 2] anew: made zero only before the loop over t, it would
# be added to three times.
AGAIN = """
function f(A: float32[6, 3], out D: float32[4])
  alloc C: float32[6]
  for t in 0 .. 4
    for C.i in 0 .. 3
      for C.k in 0 .. 3
        block C
          spatial i: 6 = t + C.i
          reduce k: 3 = C.k
          init
            C[i] = float32(0.0)
          C[i] = C[i] + A[i, k]
    block D
      spatial i: 4 = t
      D[i] = C[i] + C[i + 2]
"""


def test_the_loop_must_be_around_the_block():
    assert refused(decompose_reduction, parse(OTHER.strip()), "C", "D.i") == (
        "decompose_reduction(block 'C', loop 'D.i'): the loop is not around the block"
    )


def test_points_that_are_met_again_are_made_zero_again():
    function = parse(AGAIN.strip())
    assert refused(decompose_reduction, function, "C", "t") == (
        "decompose_reduction(block 'C', loop 't'): the loops from there inward may meet a point of "
        "the block twice"
    )
    after, _ = decompose_reduction(function, "C", "C.i")
    assert_same(function, after)


def test_not_inside_lanes_that_reduce():
    function, (k0, _) = split(matmul(), "C.k", (None, 4))
    function = reorder(function, (k0, "C.i", "C.j"))
    function = vectorize(function, k0)
    with pytest.raises(ScheduleError, match="lies in the vectorized reduce loop 'C.k.0'"):
        decompose_reduction(function, "C", "C.i")


def test_of_a_result_without_elements():
    before = parse(
        """
function f(A: float32[1, 0], out C: float32[1, 0])
  for C.i in 0 .. 1
    for C.j in 0 .. 0
      for C.k in 0 .. 1
        block C
          spatial i: 1 = C.i
          spatial j: 0 = C.j
          reduce k: 1 = C.k
          init
            C[i, j] = float32(0.0)
          C[i, j] = C[i, j] + A[k, j]
""".strip()
    )
    function, loop = fuse(before, ("C.i", "C.j", "C.k"))
    function, loops = split(function, loop, (1, None))
    function, loop = fuse(function, loops)
    function, _ = decompose_reduction(function, "C", loop)
    assert_same(before, function)


def test_below_a_reduce_loop_that_may_not_run_the_start_stands_before_it_too():
    n = te.var("n")
    A = te.placeholder((3, n), name="A")
    k = te.reduce_axis(n, name="k")
    s = Schedule(te.lower([A, te.compute((3,), lambda i: te.sum(A[i, k], axis=k), name="C")]))
    i, k = s.loops("C")
    k0, k1 = s.split(k, factors=(None, 4))
    s.reorder(k0, i, k1)
    s.decompose_reduction("C", k1)
    names = [block.name for block in all_blocks(s.function)]
    assert names == ["C_empty", "C_init", "C"]
    for size in (0, 1, 9):
        a = np.arange(3 * size, dtype=np.float32).reshape(3, size)
        np.testing.assert_array_equal(interpret(s.function, a), a.sum(axis=1))


def test_an_init_that_reads_what_the_loop_makes_stays():
    function = parse("""
function start(A: float32[8], out C: float32[])
  alloc S: float32[]
  for C.k in 0 .. 8
    block S
      S[] = float32(1.0)
    block C
      reduce k: 8 = C.k
      init
        C[] = S[]
      C[] = C[] + A[k]
""")
    assert refused(decompose_reduction, function, "C", "C.k") == (
        "decompose_reduction(block 'C', loop 'C.k'): its init reads 'S', which 'S' writes in that loop"
    )


KINDS = {
    "vectorize": lambda s, loop: s.vectorize(loop),
    "unroll": lambda s, loop: s.unroll(loop),
    "parallel": lambda s, loop: s.parallel(loop),
    "bind": lambda s, loop: s.bind(loop, "threadIdx.x"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_kind_of_a_loop_and_the_start_of_a_sum_come_in_either_order(kind):
    text = []
    for first in (True, False):
        s = Schedule(matmul())
        i, j, k = s.loops("C")
        s.reorder(i, k, j)
        if first:
            KINDS[kind](s, j)
        s.decompose_reduction("C", k)
        if not first:
            KINDS[kind](s, j)
        text.append(s.show())
    assert text[0] == text[1]


def test_the_lanes_of_a_sum_and_its_start_come_in_either_order():
    s = Schedule(matmul())
    s.decompose_reduction("C", "C.k")
    s.vectorize("C.k")
    other = Schedule(matmul())
    other.vectorize("C.k")
    other.decompose_reduction("C", "C.k")
    assert s.show() == other.show()


def test_a_start_keeps_the_kind_that_it_was_given():
    s = Schedule(matmul())
    i, j, k = s.loops("C")
    s.reorder(i, k, j)
    s.decompose_reduction("C", k)
    s.unroll("C_init.j")
    s.vectorize(j)
    assert "for C_init.j in 0 .. 6 unrolled" in s.show() and "for C.j in 0 .. 6 vectorized" in s.show()


def test_a_start_that_may_not_have_the_kind_stays_serial():
    """The copies of both loops, of which one already has lanes."""
    s = Schedule(matmul())
    i, j, k = s.loops("C")
    s.reorder(k, i, j)
    s.decompose_reduction("C", k)
    s.vectorize("C_init.j")
    s.vectorize(i)
    assert "for C_init.i in 0 .. 8\n" in s.show() and "for C.i in 0 .. 8 vectorized" in s.show()


def test_a_block_of_that_name_is_no_start_of_another():
    """A tensor that is called so by chance."""
    X = te.placeholder((8,), name="X")
    start = te.compute((8,), lambda i: X[i] + 1.0, name="C_init")
    s = Schedule(te.lower([X, te.compute((8,), lambda i: start[7 - i] * 2.0, name="C")]))
    s.vectorize("C.i")
    assert "for C_init.i in 0 .. 8\n" in s.show()


@pytest.mark.parametrize("loop", ("C.r", "C.i.1", "C.i.0"))
def test_the_start_of_ragged_rows_stays_under_their_guard(loop):
    """The guard of a split is an `if` there, as the range of the reduce loop is loaded for each row."""
    function = parse("""
function rows(L: int32[15], A: float32[15, 4], out C: float32[15])
  for C.i.0 in 0 .. 8
    for C.i.1 in 0 .. 2
      if C.i.0 * 2 + C.i.1 < 15
        for C.r in 0 .. cast(int64, L[C.i.0 * 2 + C.i.1])
          block C
            spatial i: 15 = C.i.0 * 2 + C.i.1
            reduce r: cast(int64, L[C.i.0 * 2 + C.i.1]) = C.r
            init
              C[i] = float32(0.0)
            C[i] = C[i] + A[i, r]
""")
    changed, _ = decompose_reduction(function, "C", loop)
    verify(changed)
    lengths = np.arange(15, dtype="i4") % 5
    values = np.arange(60, dtype="f4").reshape(15, 4)
    assert np.array_equal(interpret(changed, lengths, values), [row[:n].sum() for row, n in zip(values, lengths)])


def test_a_start_of_several_loops_is_written_twice():
    """Of a reduction over tiles, the start of an empty one is a nest like that of the others."""
    n = te.var("n")
    k = te.reduce_axis(n, name="k")
    A = te.placeholder((2, 3, n), name="A")
    s = Schedule(te.lower([A, te.compute((2, 3), lambda i, j: te.sum(A[i, j, k], axis=k), name="C")]))
    i, j, k = s.loops("C")
    s.reorder(k, i, j)
    s.blockize(i)
    _, inner = s.split(k, factors=(None, 4), tail="cut")
    s.decompose_reduction("C_o", inner)
    assert "for C_o_empty.i in 0 .. 2\n" in s.show() and "for C_o_init.i in 0 .. 2\n" in s.show()
    for extent in (0, 3, 9):
        data = np.arange(6.0 * extent, dtype="f4").reshape(2, 3, extent)
        assert np.array_equal(interpret(s.function, data), data.sum(2))


def test_a_reduction_whose_first_iteration_is_left_out_starts_in_a_later_one():
    f = parse("""
        function main(A: float32[8], out C: float32[1])
          for C.o in 0 .. 3
            for C.r in 0 .. 4
              block C
                spatial i: 1 = 0
                reduce k: 8 = C.o * 4 + C.r - 1
                where C.o * 4 + C.r >= 1 and C.o * 4 + C.r < 9
                init
                  C[i] = float32(0)
                C[i] = C[i] + A[k]
    """)
    for loop in ("C.o", "C.r"):
        new, _ = decompose_reduction(f, "C", loop)
        assert interpret(new, np.arange(8, dtype="f4")) == [28]
