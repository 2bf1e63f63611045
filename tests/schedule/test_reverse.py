"""reverse_compute_at and reverse_compute_inline: consumers go where their producers are."""

from __future__ import annotations

import numpy as np
import pytest

import tensorc as tc
from tensorc import te
from tensorc.errors import ScheduleError
from tensorc.ir.interpreter import interpret
from tensorc.ir.parser import parse
from tensorc.ir.printer import show
from tensorc.ir.verifier import verify
from tensorc.schedule.primitives.binding import bind
from tensorc.schedule.primitives.blocking import blockize
from tensorc.schedule.primitives.caching import cache_write
from tensorc.schedule.primitives.inlining import reverse_compute_inline
from tensorc.schedule.primitives.layout import transform_layout
from tensorc.schedule.primitives.loops import fuse, parallel, reorder, split, vectorize
from tensorc.schedule.primitives.placement import reverse_compute_at
from tensorc.schedule.primitives.reduction import decompose_reduction
from tensorc.schedule.primitives.rfactor import rfactor
from tests.schedule.same import assert_same
from tests.schedule.test_loops import body, lines, refused


def relu(m=8, n=6, read="T[i, j]"):
    """A product and what is done with its result."""
    return parse(f"""
function relu(A: float32[{m}, 12], B: float32[12, {n}], V: float32[{n}], out C: float32[{m}, {n}])
  alloc T: float32[{m}, {n}]
  for T.i in 0 .. {m}
    for T.j in 0 .. {n}
      for T.k in 0 .. 12
        block T
          spatial i: {m} = T.i
          spatial j: {n} = T.j
          reduce k: 12 = T.k
          init
            T[i, j] = float32(0.0)
          T[i, j] = T[i, j] + A[i, k] * B[k, j]
  for C.i in 0 .. {m}
    for C.j in 0 .. {n}
      block C
        spatial i: {m} = C.i
        spatial j: {n} = C.j
        C[i, j] = max({read} + V[j], float32(0.0))
""")


def two(read="T[i, j]", shape="8, 6", write="C[i, j]", m=8, n=6, tm=8, tn=6):
    """Two complete blocks."""
    return parse(f"""
function two(A: float32[{tm}, {tn}], V: float32[8], out C: float32[{shape}])
  alloc T: float32[{tm}, {tn}]
  for T.i in 0 .. {tm}
    for T.j in 0 .. {tn}
      block T
        spatial i: {tm} = T.i
        spatial j: {tn} = T.j
        T[i, j] = A[i, j] * float32(2.0)
  for C.i in 0 .. {m}
    for C.j in 0 .. {n}
      block C
        spatial i: {m} = C.i
        spatial j: {n} = C.j
        {write} = {read} + V[i]
""")


# reverse_compute_at


def test_a_consumer_under_a_tile_of_its_producer():
    function, (i0, i1) = split(relu(), "T.i", (None, 4))
    function, (j0, j1) = split(function, "T.j", (None, 3))
    function = reorder(function, (i0, j0, i1, j1))
    after = reverse_compute_at(function, "C", j0)
    assert body(after) == lines("""
alloc T: float32[8, 6]
for T.i.0 in 0 .. 2
  for T.j.0 in 0 .. 2
    for T.i.1 in 0 .. 4
      for T.j.1 in 0 .. 3
        for T.k in 0 .. 12
          block T
            spatial i: 8 = T.i.0 * 4 + T.i.1
            spatial j: 6 = T.j.0 * 3 + T.j.1
            reduce k: 12 = T.k
            init
              T[i, j] = float32(0.0)
            T[i, j] = T[i, j] + A[i, k] * B[k, j]
    for C.i in 0 .. 4
      for C.j in 0 .. 3
        block C
          spatial i: 8 = T.i.0 * 4 + C.i
          spatial j: 6 = T.j.0 * 3 + C.j
          C[i, j] = max(T[i, j] + V[j], float32(0.0))
""")
    assert_same(relu(), after)
    assert_same(relu(), vectorize(parallel(after, i0), "C.j"))


@pytest.mark.parametrize("m, n", [(8, 6), (9, 7), (3, 2), (1, 1)])
@pytest.mark.parametrize("position", range(4))
def test_tails_are_those_of_the_producer(m, n, position):
    function, (i0, i1) = split(relu(m, n), "T.i", (None, 4))
    function, (j0, j1) = split(function, "T.j", (None, 3))
    order = (i0, j0, i1, j1)
    after = reverse_compute_at(reorder(function, order), "C", order[position])
    assert_same(relu(m, n), after)


def test_fused_and_remapped_producers():
    function, name = fuse(relu(), ("T.i", "T.j"))
    assert_same(relu(), reverse_compute_at(function, "C", name))
    function = transform_layout(relu(), "T", "T", lambda i, j: (i // 4, j, i % 4))
    assert_same(relu(), reverse_compute_at(function, "C", "T.i"))


def test_a_consumer_that_reduces():
    function = parse("""
function rows(A: float32[8, 6], out C: float32[8])
  alloc T: float32[8, 6]
  for T.i in 0 .. 8
    for T.j in 0 .. 6
      block T
        spatial i: 8 = T.i
        spatial j: 6 = T.j
        T[i, j] = A[i, j] * float32(2.0)
  for C.i in 0 .. 8
    for C.k in 0 .. 6
      block C
        spatial i: 8 = C.i
        reduce k: 6 = C.k
        init
          C[i] = float32(0.0)
        C[i] = C[i] + T[i, k]
""")
    after = reverse_compute_at(function, "C", "T.i")
    assert_same(function, after)
    added = reverse_compute_at(function, "C", "T.j")
    assert show(added).endswith("""\
        T[i, j] = A[i, j] * float32(2.0)
      block C
        spatial i: 8 = T.i
        reduce k: 6 = T.j
        init
          C[i] = float32(0.0)
        C[i] = C[i] + T[i, k]""")
    assert_same(function, added)
    assert refused(reverse_compute_at, parallel(function, "T.j"), "C", "T.j") == (
        "reverse_compute_at(block 'C', loop 'T.j'): block 'C' reads elements of buffer 'T' that block "
        "'T' writes in later iterations"
    )


def partial_sums():
    """A sum over rows by four partial sums each, whose results are in C_rf."""
    function = parse("""
function rows(A: float32[8, 16], out C: float32[8])
  for C.i in 0 .. 8
    for C.k in 0 .. 16
      block C
        spatial i: 8 = C.i
        reduce k: 16 = C.k
        init
          C[i] = float32(0.0)
        C[i] = C[i] + A[i, k]
""")
    function, (_, inner) = split(function, "C.k", (None, 4))
    return rfactor(function, inner)[0]


def test_partial_sums_are_added_where_they_are_made():
    function = partial_sums()
    assert_same(function, reverse_compute_at(function, "C", "C.i"))
    assert refused(reverse_compute_at, function, "C", "C.k.0").endswith("in later iterations")
    function = reorder(function, ("C.k.1", "C.k.0"))
    after = reverse_compute_at(function, "C", "C.k.1")
    assert show(after).endswith("""\
          C_rf[k1, i] = C_rf[k1, i] + A[i, k0 * 4 + k1]
      block C
        spatial i: 8 = C.i
        reduce k1: 4 = C.k.1
        init
          C[i] = float32(0.0)
        C[i] = C[i] + C_rf[k1, i]""")
    assert_same(function, after)


def test_partial_sums_of_threads_are_not_added_at_once():
    """All threads would add to one element, which is right only one after the other."""
    function = reorder(partial_sums(), ("C.k.1", "C.k.0"))
    function = bind(bind(function, "C.i", "blockIdx.x"), "C.k.1", "threadIdx.x")
    assert refused(reverse_compute_at, function, "C", "C.k.1").endswith("in later iterations")
    added = reverse_compute_at(reorder(partial_sums(), ("C.k.1", "C.k.0")), "C", "C.k.1")
    assert refused(bind, added, "C.k.1", "threadIdx.x").startswith("bind(loop 'C.k.1', 'threadIdx.x'): ")


def test_parts_of_a_sum_are_each_added_once():
    """A window that moves by less than its length would add what two iterations have made twice."""
    overlapping = """
function windows(A: float32[10], out C: float32[1])
  alloc T: float32[10]
  for io in 0 .. 4
    for ii in 0 .. 4
      block T
        spatial i: 10 = io * 2 + ii
        T[i] = A[i]
  for k in 0 .. 10
    block C
      spatial i: 1 = 0
      reduce k: 10 = k
      init
        C[i] = float32(0.0)
      C[i] = C[i] + T[k]
"""
    assert refused(reverse_compute_at, parse(overlapping), "C", "io").endswith(
        "reads elements of buffer 'T' that block 'T' writes in later iterations"
    )
    apart = parse(overlapping.replace("io * 2", "io * 4").replace("10", "16"))
    assert_same(apart, reverse_compute_at(apart, "C", "io"))
    backward = parse(overlapping.replace("io * 2 + ii", "12 - io * 4 + ii").replace("10", "16"))
    assert refused(reverse_compute_at, backward, "C", "io").endswith(
        "reads elements of buffer 'T' that block 'T' writes in later iterations"
    )


def test_tiles_that_are_one_block_each():
    function, names = split(relu(), "T.i", (None, 4))
    function, (j0, j1) = split(function, "T.j", (None, 3))
    function = reorder(function, (names[0], j0, names[1], j1))
    function, _ = blockize(function, names[1])
    for loop in (names[0], j0):
        after = reverse_compute_at(function, "C", loop)
        assert_same(function, after)
    assert show(after).endswith("""\
      for C.i in 0 .. 4
        for C.j in 0 .. 3
          block C
            spatial i: 8 = T.i.0 * 4 + C.i
            spatial j: 6 = T.j.0 * 3 + C.j
            C[i, j] = max(T[i, j] + V[j], float32(0.0))""")


def test_symbolic_extents():
    function, (i0, _) = split(relu("m", "n"), "T.i", (None, 4))
    after = reverse_compute_at(function, "C", i0)
    for m in (0, 1, 4, 9):
        assert_same(relu("m", "n"), after, m=m, n=3)


def test_what_reverse_compute_at_refuses():
    function = relu()
    assert refused(reverse_compute_at, function, "C", "T.k") == (
        "reverse_compute_at(block 'C', loop 'T.k'): block 'C' reads elements of buffer 'T' that block "
        "'T' writes in later iterations"
    )
    assert refused(reverse_compute_at, function, "C", "C.i") == (
        "reverse_compute_at(block 'C', loop 'C.i'): the block is under that loop already"
    )
    assert refused(reverse_compute_at, function, "T", "C.i") == (
        "reverse_compute_at(block 'T', loop 'C.i'): the block runs before that loop; it can only "
        "move to one before it"
    )
    assert refused(reverse_compute_at, vectorize(function, "T.j"), "C", "T.j") == (
        "reverse_compute_at(block 'C', loop 'T.j'): loop 'T.j' is vectorized; move the block before "
        "vectorizing"
    )
    assert refused(reverse_compute_at, relu(read="V[j]"), "C", "T.i") == (
        "reverse_compute_at(block 'C', loop 'T.i'): no block below 'T.i' writes what 'C' reads"
    )
    assert refused(reverse_compute_at, relu(8, 8, "T[j, i]"), "C", "T.k") == (
        "reverse_compute_at(block 'C', loop 'T.k'): block 'C' reads elements of buffer 'T' that block "
        "'T' writes in later iterations"
    )
    assert_same(relu(8, 8, "T[j, i]"), reverse_compute_at(relu(8, 8, "T[j, i]"), "C", "T.i"))


def test_a_consumer_that_leaves_points_out_stays():
    function = relu(read="if_then_else(i >= 1, T[i - 1, j], float32(0.0))")
    assert refused(reverse_compute_at, function, "C", "T.i") == (
        "reverse_compute_at(block 'C', loop 'T.i'): what 'C' can compute in all iterations is not "
        "shown to be the whole that it computes"
    )


def test_what_stands_between_is_seen():
    function = parse("""
function three(A: float32[8], out S: float32[8], out C: float32[8])
  alloc T: float32[8]
  for T.i in 0 .. 8
    block T
      spatial i: 8 = T.i
      T[i] = A[i] * float32(2.0)
  for S.i in 0 .. 8
    block S
      spatial i: 8 = S.i
      S[i] = A[i]
  for C.i in 0 .. 8
    block C
      spatial i: 8 = C.i
      C[i] = T[i] + S[7 - i]
""")
    assert refused(reverse_compute_at, function, "C", "T.i") == (
        "reverse_compute_at(block 'C', loop 'T.i'): it would run before what it must follow: 'S' and "
        "'C' share buffer 'S'"
    )
    assert refused(reverse_compute_inline, function, "C") == (
        "reverse_compute_inline(block 'C'): 'S', which runs between, touches 'S'"
    )


# reverse_compute_inline


def test_a_consumer_in_its_producer():
    function = reverse_compute_inline(two(), "C")
    assert body(function) == lines("""
for T.i in 0 .. 8
  for T.j in 0 .. 6
    block T
      spatial i: 8 = T.i
      spatial j: 6 = T.j
      C[i, j] = A[i, j] * float32(2.0) + V[i]
""")
    assert_same(two(), function)


@pytest.mark.parametrize(
    "arguments",
    [
        {"read": "T[j, i]", "shape": "6, 8", "m": 6, "n": 8},
        {"read": "T[i, j]", "shape": "6, 8", "write": "C[j, i]"},
        {"read": "T[i + 1, j]", "shape": "7, 6", "m": 7},
        {"read": "T[i, j + 2]", "shape": "8, 4", "n": 4},
        {"read": "T[i * 2 + j, 0]", "shape": "4, 2", "m": 4, "n": 2, "tn": 1},
        {"read": "T[i, 3]", "shape": "8, 1", "n": 1},
        {"read": "T[i, j] * T[i, j]"},
    ],
)
def test_reads_at_places_that_tell_the_iterators(arguments):
    before = two(**arguments)
    after = reverse_compute_inline(before, "C")
    assert "block C" not in show(after) and "alloc" not in show(after)
    assert_same(before, after)


def test_a_part_of_the_producer_is_stored_under_a_condition():
    function = reverse_compute_inline(two("T[i + 1, j]", "7, 6", m=7), "C")
    assert "if i >= 1\n        C[i - 1, j] = " in body(function)
    assert_same(function, cache_write(function, "T")[0])


def test_split_producers():
    function, _ = split(two(), "T.i", (None, 3))
    assert_same(two(), reverse_compute_inline(function, "C"))


def test_a_sum_that_is_copied_is_made_where_it_goes():
    before = parse("""
function sums(A: float32[4, 6], out C: float32[1, 4])
  alloc T: float32[4, 1]
  for T.i in 0 .. 4
    for T.k in 0 .. 6
      block T
        spatial i: 4 = T.i
        reduce k: 6 = T.k
        init
          T[i, 0] = float32(0.0)
        T[i, 0] = T[i, 0] + A[i, k]
  for C.i in 0 .. 4
    block C
      spatial i: 4 = C.i
      C[0, i] = T[i, 0]
""")
    after = reverse_compute_inline(before, "C")
    assert (
        show(after)
        == """\
function sums(A: float32[4, 6], out C: float32[1, 4])
  for T.i in 0 .. 4
    for T.k in 0 .. 6
      block T
        spatial i: 4 = T.i
        reduce k: 6 = T.k
        init
          C[0, i] = float32(0.0)
        C[0, i] = C[0, i] + A[i, k]"""
    )
    assert_same(before, after)
    kept = "reverse_compute_inline(block 'C'): 'T' has reduce iterators; both blocks must be complete"
    for old, new in (
        ("C[0, i] = T[i, 0]", "C[0, i] = -T[i, 0]"),
        ("C.i in 0 .. 4\n    block C\n      spatial i: 4", "C.i in 0 .. 3\n    block C\n      spatial i: 3"),
    ):
        assert refused(reverse_compute_inline, parse(show(before).replace(old, new)), "C") == kept
    narrow = show(before).replace("out C: float32", "out C: float16").replace("= T[i, 0]\n", "")
    narrow = parse(narrow.replace("C[0, i] = T[i, 0]", "C[0, i] = cast(float16, T[i, 0])"))
    assert refused(reverse_compute_inline, narrow, "C") == kept


def test_what_reverse_compute_inline_refuses():
    assert refused(reverse_compute_inline, relu(), "C") == (
        "reverse_compute_inline(block 'C'): 'T' has reduce iterators; both blocks must be complete"
    )
    function, _ = decompose_reduction(relu(), "T", "T.k")
    assert refused(reverse_compute_inline, function, "C") == (
        "reverse_compute_inline(block 'C'): 'T' makes the elements of 'T' in several steps, and they are whole only "
        "after the last; to compute 'C' beside it, use reverse_compute_at"
    )
    assert refused(reverse_compute_inline, two("T[i, 0]"), "C") == (
        "reverse_compute_inline(block 'C'): the places that it reads do not tell its iterators"
    )
    assert refused(reverse_compute_inline, two("T[i, j] * T[i, 0]"), "C") == (
        "reverse_compute_inline(block 'C'): it reads 'T' at 2 places; one is what a producer can serve"
    )
    assert refused(reverse_compute_inline, two(), "T").endswith(
        "it must read one internal buffer that one block writes and nothing else reads; there are none"
    )
    function, _ = split(two(), "C.i", (None, 3))
    assert refused(reverse_compute_inline, function, "C") == (
        "reverse_compute_inline(block 'C'): it has a predicate; inline it before its loops are split"
    )
    guarded = two("if_then_else(i >= 1, T[i - 1, j], float32(0.0))")
    assert refused(reverse_compute_inline, guarded, "C") == (
        "reverse_compute_inline(block 'C'): it reads 'T' under a condition, so that some of its "
        "elements come from no element of that"
    )


def test_what_tells_a_place_is_loaded_only_where_there_is_one():
    function = parse("""
function take(A: int32[2], out C: float32[2])
  alloc T: float32[1, 5]
  for T.i in 0 .. 1
    for T.k in 0 .. 5
      block T
        spatial i: 1 = T.i
        spatial k: 5 = T.k
        T[i, k] = cast(float32, k)
  for C.i in 0 .. 2
    block C
      spatial i: 2 = C.i
      C[i] = T[cast(int64, A[i]), i * 2]
""")
    changed = reverse_compute_inline(function, "C")
    verify(changed)
    assert interpret(changed, np.zeros(2, "i4")).tolist() == [0.0, 2.0]


def test_loops_around_both_are_elsewhere_in_later_iterations():
    """What the third step of the inner loop reads is made by the first one of the next iteration outside."""
    function = parse("""
function main(A: float32[16], out B: float32[16])
  alloc T: float32[4, 4]
  for i.0 in 0 .. 2
    for i.1 in 0 .. 3
      block T
        spatial i: 4 = i.0 * 2 + i.1
        where i.1 < 2
        for j in 0 .. 4
          T[i, j] = A[i * 4 + j]
  for k in 0 .. 16
    block B
      spatial k: 16 = k
      B[k] = T[k // 4, k % 4]
""")
    with pytest.raises(ScheduleError, match="reads elements of buffer 'T' that block 'T' writes in later iterations"):
        reverse_compute_at(function, "B", "i.1")


def test_the_place_that_is_read_does_not_tell_an_extent():
    """Of a diagonal the producer stores just that, whether its length is a number or not."""
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    T = te.compute((n, n), lambda i, j: A[j] + 1.0, name="T")
    s = tc.schedule([A, te.compute((n,), lambda i: T[i, n - 1 - i] * 2.0, name="C")])
    s.reverse_compute_inline("C")
    assert "if n == i + j + 1" in s.show()
    data = np.arange(5, dtype="f4")
    assert np.array_equal(interpret(s.function, data), (data[::-1] + 1) * 2)


def test_a_step_past_the_end_of_a_row_leaves_out_an_element_of_the_next():
    """The elements lie in one row, so that the predicate alone tells which ones a loop of seven steps makes."""
    function = parse("""
function main(out B: float32[4])
  alloc T: float32[4]
  for i in 0 .. 4
    for j in 0 .. 7
      block T
        spatial i: 2 = i
        spatial j: 2 = j
        where i < 2 and j < 2
        T[i * 2 + j] = float32(1.0)
  for k in 0 .. 4
    block B
      spatial k: 4 = k
      B[k] = T[k]
""")
    with pytest.raises(ScheduleError, match="reads elements of buffer 'T' that block 'T' writes in later iterations"):
        reverse_compute_at(function, "B", "j")


def test_a_consumer_of_points_with_gaps_does_not_fill_them():
    a = te.placeholder((6,), "int32", name="A")
    t = te.compute((6,), lambda i: a[i] + 1, name="T")
    c = te.compute((6,), lambda i: t[i] * 2, name="C")
    s = tc.schedule([a, c])
    s.compute_at("T", s.loops("C")[0])
    i0, i1, one = s.split(s.loops("C")[0], factors=(None, 5, 1))
    s.reorder(i1, one, i0)
    s.fission(one, "T")
    with pytest.raises(ScheduleError, match="is not shown to be the whole that it computes"):
        s.reverse_compute_at("C", s.loops("T")[1])  # elements 0 and 5 are ready there, 1 to 4 are not


def test_a_condition_that_leaves_points_out_is_not_lost():
    f = parse("""
        function main(A: float32[12], out C: float32[12])
          alloc T: float32[12]
          for o in 0 .. 2
            for T.p in 0 .. 3
              for T.q in 0 .. 2
                block T
                  spatial i: 12 = o * 6 + T.p * 2 + T.q
                  where o * 3 + T.p < 5
                  T[i] = A[i]
            for C.p in 0 .. 3
              for C.q in 0 .. 2
                block C
                  spatial i: 12 = o * 6 + C.p * 2 + C.q
                  where o * 3 + C.p < 5
                  C[i] = T[i]
    """)
    assert "is not shown to be the whole that it computes" in refused(reverse_compute_at, f, "C", "T.p")
