"""compute_at: a producer moves under a loop of its consumer, over what is needed there."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc import te
from tensorc.errors import ScheduleError
from tensorc.ir.interpreter import interpret
from tensorc.ir.parser import parse
from tensorc.ir.printer import show
from tensorc.schedule.primitives.blocking import blockize
from tensorc.schedule.primitives.caching import cache_read
from tensorc.schedule.primitives.layout import transform_layout
from tensorc.schedule.primitives.loops import parallel, reorder, split, vectorize
from tensorc.schedule.primitives.placement import compute_at, reverse_compute_at
from tensorc.schedule.primitives.reduction import decompose_reduction
from tensorc.schedule.schedule import Schedule
from tests.schedule.same import assert_same


def matmul(m, n, k) -> str:
    return f"""
function mm(A: float32[{m}, {k}], B: float32[{k}, {n}], out C: float32[{m}, {n}])
  for C.i in 0 .. {m}
    for C.j in 0 .. {n}
      for C.k in 0 .. {k}
        block C
          spatial i: {m} = C.i
          spatial j: {n} = C.j
          reduce k: {k} = C.k
          init
            C[i, j] = float32(0.0)
          C[i, j] = C[i, j] + A[i, k] * B[k, j]
"""


def blur(n) -> str:
    return f"""
function blur(A: float32[{n}, {n}], out C: float32[{n}, {n}])
  alloc B: float32[{n}, {n}]
  for B.y in 0 .. {n}
    for B.x in 0 .. {n}
      block B
        spatial y: {n} = B.y
        spatial x: {n} = B.x
        B[y, x] = A[y, x] + if_then_else(x > 0, A[y, x - 1], float32(0.0))
  for C.y in 0 .. {n}
    for C.x in 0 .. {n}
      block C
        spatial y: {n} = C.y
        spatial x: {n} = C.x
        C[y, x] = B[y, x] + if_then_else(y > 0, B[y - 1, x], float32(0.0)) \
+ if_then_else(y < {n} - 1, B[y + 1, x], float32(0.0))
"""


SOFTMAX = """
function softmax(A: float32[n, m], out C: float32[n, m])
  alloc M: float32[n]
  alloc E: float32[n, m]
  for M.i in 0 .. n
    for M.k in 0 .. m
      block M
        spatial i: n = M.i
        reduce k: m = M.k
        init
          M[i] = float32(-1000.0)
        M[i] = max(M[i], A[i, k])
  for E.i in 0 .. n
    for E.j in 0 .. m
      block E
        spatial i: n = E.i
        spatial j: m = E.j
        E[i, j] = A[i, j] - M[i]
  for C.i in 0 .. n
    for C.j in 0 .. m
      block C
        spatial i: n = C.i
        spatial j: m = C.j
        C[i, j] = E[i, j] * E[i, 0]
"""


def test_a_row_of_a_stencil_with_its_neighbours():
    before = parse(blur(6))
    after = compute_at(before, "B", "C.y")
    assert (
        show(after).split("\n", 2)[2]
        == """\
  for C.y in 0 .. 6
    for B.y in 0 .. 3 {tail = "mask"}
      for B.x in 0 .. 6
        block B
          spatial y: 6 = C.y + B.y - 1
          spatial x: 6 = B.x
          where C.y + B.y >= 1 and C.y + B.y < 7
          B[y, x] = A[y, x] + if_then_else(x > 0, A[y, x - 1], float32(0.0))
    for C.x in 0 .. 6
      block C
        spatial y: 6 = C.y
        spatial x: 6 = C.x
        C[y, x] = B[y, x] + if_then_else(y > 0, B[y - 1, x], float32(0.0)) \
+ if_then_else(y < 6 - 1, B[y + 1, x], float32(0.0))"""
    )
    assert_same(before, after)


@pytest.mark.parametrize("loop", ["C.y.0", "C.x.0", "C.y.1", "C.x.1"])
@pytest.mark.parametrize("n", [6, 7])
def test_tiles_of_a_stencil(n, loop):
    before = parse(blur(n))
    function, (y0, y1) = split(before, "C.y", (None, 3))
    function, (x0, x1) = split(function, "C.x", (None, 2))
    function = reorder(function, (y0, x0, y1, x1))
    after = compute_at(function, "B", loop)
    assert_same(before, after)
    assert [buffer.name for buffer in after.allocs] == ["B"]


def test_a_reduction_keeps_its_whole_reduction():
    before = parse(SOFTMAX)
    after = compute_at(compute_at(before, "E", "C.i"), "M", "C.i")
    assert (
        show(after).split("\n", 3)[3]
        == """\
  for C.i in 0 .. n
    for M.k in 0 .. m
      block M
        spatial i: n = C.i
        reduce k: m = M.k
        init
          M[i] = float32(-1000.0)
        M[i] = max(M[i], A[i, k])
    for E.j in 0 .. m
      block E
        spatial i: n = C.i
        spatial j: m = E.j
        E[i, j] = A[i, j] - M[i]
    for C.j in 0 .. m
      block C
        spatial i: n = C.i
        spatial j: m = C.j
        C[i, j] = E[i, j] * E[i, 0]"""
    )
    for n, m in ((3, 4), (1, 1), (0, 2)):
        assert_same(before, after, n=n, m=m)


def test_a_tail_of_the_consumer_bounds_what_is_computed():
    before = parse(SOFTMAX.replace("[n", "[10").replace("n = ", "10 = ").replace(".. n", ".. 10"))
    function, (outer, inner) = split(before, "C.i", (None, 4))
    function, (part, _) = split(function, inner, (None, 3), tail="mask")
    function = compute_at(function, "E", outer)
    function = compute_at(function, "M", outer)
    assert "for M.i in 0 .. 4 {" in show(function)
    after = compute_at(function, "E", part)
    assert "where C.i.1.0 * 3 + E.i < 4 and C.i.0 * 4 + C.i.1.0 * 3 + E.i < 10\n" in show(after)
    assert_same(before, after, m=3)


def packed(before, k=32, n=12, inner=4):
    """The packed product: blocks of k, panels of n, one packed block of B at a time."""
    function, (k0, k1) = split(before, "C.k", (None, k))
    function, (j0, j1) = split(function, "C.j", (None, n))
    function, (i0, i1) = split(function, "C.i", (None, inner))
    function = reorder(function, (k0, j0, i0, k1, i1, j1))
    function, block = cache_read(function, "C", "B")
    function = transform_layout(function, block, block, lambda a, b: (a // k, b // n, a % k, b % n))
    return compute_at(function, block, k0)


def test_the_packed_product():
    before = parse(matmul(8, 24, 64))
    after = packed(before)
    assert (
        show(after)
        == """\
function mm(A: float32[8, 64], B: float32[64, 24], out C: float32[8, 24])
  alloc B_global: float32[2, 2, 32, 12]
  for C.k.0 in 0 .. 2
    for B_global.k in 0 .. 32
      for B_global.j in 0 .. 24
        block B_global
          spatial k: 64 = C.k.0 * 32 + B_global.k
          spatial j: 24 = B_global.j
          B_global[k // 32, j // 12, k % 32, j % 12] = B[k, j]
    for C.j.0 in 0 .. 2
      for C.i.0 in 0 .. 2
        for C.k.1 in 0 .. 32
          for C.i.1 in 0 .. 4
            for C.j.1 in 0 .. 12
              block C
                spatial i: 8 = C.i.0 * 4 + C.i.1
                spatial j: 24 = C.j.0 * 12 + C.j.1
                reduce k: 64 = C.k.0 * 32 + C.k.1
                init
                  C[i, j] = float32(0.0)
                C[i, j] = C[i, j] + A[i, k] * B_global[k // 32, j // 12, k % 32, j % 12]"""
    )
    assert_same(before, after)


def test_the_packed_product_with_tails_everywhere():
    before = parse(matmul(7, 29, 41))
    after = packed(before)
    assert """\
    for B_global.k in 0 .. 32 {tail = "mask"}
      for B_global.j in 0 .. 29
        block B_global
          spatial k: 41 = C.k.0 * 32 + B_global.k
          spatial j: 29 = B_global.j
          where C.k.0 * 32 + B_global.k < 41
""" in show(after)
    assert_same(before, after)


def test_the_packed_product_goes_on_being_scheduled():
    before = parse(matmul(7, 29, 41))
    function = packed(before)
    function, (panel, part, lane) = split(function, "B_global.j", (None, 3, 4))
    function = reorder(function, (panel, "B_global.k", part, lane))
    function = vectorize(function, lane)
    function = vectorize(function, "C.j.1")
    function = parallel(parallel(function, panel), "C.j.0")
    function, _ = decompose_reduction(function, "C", "C.k.1")
    assert_same(before, function)


@pytest.mark.parametrize("loop", ["C.j.0", "C.i.0", "C.k.1", "C.i.1", "C.j.1"])
def test_packing_at_any_loop(loop):
    before = parse(matmul(5, 10, 11))
    function, _ = split(before, "C.k", (None, 4))
    function, _ = split(function, "C.j", (None, 4))
    function, _ = split(function, "C.i", (None, 2))
    function = reorder(function, ("C.k.0", "C.j.0", "C.i.0", "C.k.1", "C.i.1", "C.j.1"))
    function, block = cache_read(function, "C", "B")
    function = transform_layout(function, block, block, lambda a, b: (b // 6, a, b % 6))
    assert_same(before, compute_at(function, block, loop))


def test_panels_of_another_breadth_than_the_tiles():
    before = parse(matmul(4, 20, 6))
    function, (j0, j1) = split(before, "C.j", (None, 5))
    function = reorder(function, (j0, "C.i", "C.k", j1))
    function, block = cache_read(function, "C", "B")
    function = transform_layout(function, block, block, lambda a, b: (b // 8, a, b % 8))
    after = compute_at(function, block, j0)
    assert "for B_global.j in 0 .. 5\n" in show(after)
    assert "spatial j: 20 = C.j.0 * 5 + B_global.j" in show(after)
    assert_same(before, after)


def test_symbolic_extents_have_no_more_than_they_need():
    before = parse(matmul("m", "n", "k").replace("float32[m, n])", "float32[m, n])", 1))
    function, (k0, k1) = split(before, "C.k", (None, 4))
    function, (j0, j1) = split(function, "C.j", (None, 4))
    function = reorder(function, (k0, j0, "C.i", k1, j1))
    function, block = cache_read(function, "C", "B")
    function = transform_layout(function, block, block, lambda a, b: (b // 4, a, b % 4))
    after = compute_at(function, block, k0)
    assert """\
    for B_global.k in 0 .. 4 {tail = "mask"}
      for B_global.j in 0 .. n
""" in show(after)
    for m, n, k in ((2, 8, 8), (3, 7, 5), (1, 1, 1), (2, 3, 0)):
        assert_same(before, after, m=m, n=n, k=k)


def test_under_a_loop_whose_last_part_is_shifted():
    before = parse("""
function shifted(A: float32[10], out C: float32[10])
  alloc B: float32[10]
  for B.i in 0 .. 10
    block B
      spatial i: 10 = B.i
      B[i] = A[i] + float32(1.0)
  for C.i in 0 .. 10
    block C
      spatial i: 10 = C.i
      C[i] = B[i] * float32(2.0)
""")
    function, (outer, _) = split(before, "C.i", (None, 4), tail="shift")
    after = compute_at(function, "B", outer)
    assert "for B.i in 0 .. 4\n" in show(after)
    assert_same(before, after)


def test_a_triangular_need():
    before = parse("""
function prefix(A: float32[6], out C: float32[6])
  alloc B: float32[6]
  for B.i in 0 .. 6
    block B
      spatial i: 6 = B.i
      B[i] = A[i] + float32(1.0)
  for C.i in 0 .. 6
    for C.k in 0 .. C.i + 1
      block C
        spatial i: 6 = C.i
        reduce k: 6 = C.k
        init
          C[i] = float32(0.0)
        C[i] = C[i] + B[k]
""")
    after = compute_at(before, "B", "C.i")
    assert "for B.i in 0 .. C.i + 1\n" in show(after)
    assert_same(before, after)


def test_what_is_not_solved_is_computed_whole():
    before = parse("""
function gather(I: int64[4], A: float32[5], out C: float32[4])
  alloc B: float32[5]
  for B.i in 0 .. 5
    block B
      spatial i: 5 = B.i
      B[i] = A[i] + float32(1.0)
  for C.i in 0 .. 4
    block C
      spatial i: 4 = C.i
      C[i] = B[I[i]]
""")
    after = compute_at(before, "B", "C.i")
    assert "for B.i in 0 .. 5\n" in show(after)
    assert_same(before, after)


def test_new_loops_take_free_names():
    before = parse(blur(4).replace("C.x", "B.z").replace("C.y", "B.y.0").replace("B.z", "B.x_1"))
    after = compute_at(compute_at(before, "B", "B.y.0"), "B", "B.x_1")
    assert_same(before, after)


def refusal(text: str, block: str, loop: str) -> str:
    with pytest.raises(ScheduleError) as caught:
        compute_at(parse(text), block, loop)
    return str(caught.value)


def test_refuses_outputs_and_loops_that_do_not_fit():
    text = blur(4)
    assert refusal(text, "C", "B.y") == (
        "compute_at(block 'C', loop 'B.y'): the block writes the output 'C'; "
        "only a block whose result stays inside the function can move"
    )
    assert (
        refusal(text, "B", "B.y")
        == "compute_at(block 'B', loop 'B.y'): the block is under that loop already"
    )
    assert refusal(text, "B", "C.z") == "no loop is named 'C.z'; did you mean 'C.y'?"
    assert refusal(text.replace("C.y in 0 .. 4", "C.y in 0 .. 4 vectorized"), "B", "C.x") == (
        "compute_at(block 'B', loop 'C.x'): loop 'C.y' is vectorized; "
        "move the block before vectorizing"
    )


def test_refuses_consumers_elsewhere():
    assert refusal(SOFTMAX, "M", "C.i") == (
        "compute_at(block 'M', loop 'C.i'): 'E' reads 'M' outside of that loop; "
        "all consumers must be below it"
    )
    assert refusal(SOFTMAX.replace("A[i, j] - M[i]", "A[i, j]"), "M", "C.i") == (
        "compute_at(block 'M', loop 'C.i'): nothing reads 'M'"
    )


def test_refuses_blocks_whose_instances_depend_on_one_another():
    step = "compute_at(block 'M', loop 'E.i'): "
    order = (
        "the block is neither complete nor a reduction with its init: "
        "its instances depend on those before"
    )
    assert refusal(SOFTMAX.replace("reduce k", "ordered k"), "M", "E.i") == step + order
    without = SOFTMAX.replace("        init\n          M[i] = float32(-1000.0)\n", "")
    assert refusal(without, "M", "E.i") == step + order
    own = SOFTMAX.replace("E[i, j] = A[i, j] - M[i]", "E[i, j] = E[i, j] - M[i]")
    assert refusal(own, "E", "C.i") == (
        "compute_at(block 'E', loop 'C.i'): the block reads 'E', which it writes itself"
    )
    function, _ = decompose_reduction(parse(SOFTMAX), "M", "M.k")
    with pytest.raises(ScheduleError) as caught:
        compute_at(function, "M", "E.i")
    assert (
        str(caught.value)
        == step + "'M' is also written by M_init; move the block before decomposing it"
    )


def test_refuses_inputs_that_change_and_consumers_that_come_first():
    changes = SOFTMAX.replace("E[i, j] = A[i, j] - M[i]", "E[i, j] = C[i, j] - M[i]")
    assert refusal(changes, "E", "C.i") == (
        "compute_at(block 'E', loop 'C.i'): it reads 'C', which 'C' changes after it"
    )
    carried = """
function carried(A: float32[4], out C: float32[4])
  alloc T: float32[4]
  for i in 0 .. 4
    block C
      spatial i: 4 = i
      C[i] = if_then_else(i > 0, T[i - 1], float32(0.0))
    block T
      spatial i: 4 = i
      T[i] = A[i] * float32(2.0)
"""
    inner = carried.replace("    block C\n", "    for j in 0 .. 1\n      block C\n", 1)
    inner = inner.replace(
        "      spatial i: 4 = i\n      C[i]", "        spatial i: 4 = i\n        C[i]"
    )
    assert refusal(inner, "T", "j") == (
        "compute_at(block 'T', loop 'j'): 'C' reads 'T' before the block writes it"
    )


TILES = """
function tiles(A: float32[8, 8], out C: float32[8, 8])
  alloc B: float32[8, 8]
  for B.i in 0 .. 8
    for B.j in 0 .. 8
      for B.k in 0 .. 2
        block B
          spatial i: 8 = B.i
          spatial j: 8 = B.j
          reduce k: 2 = B.k
          init
            B[i, j] = float32(0.0)
          B[i, j] = B[i, j] + A[i, (j + k) % 8]
  for C.i in 0 .. 8
    for C.j in 0 .. 8
      block C
        spatial i: 8 = C.i
        spatial j: 8 = C.j
        C[i, j] = B[i, j] + float32(1.0)
"""


def test_a_producer_that_makes_a_tile_at_once():
    function, (i0, i1) = split(parse(TILES), "B.i", (None, 2))
    function, (j0, j1) = split(function, "B.j", (None, 2))
    function = reorder(function, (i0, j0, i1, j1))
    function, _ = blockize(function, i1)
    function, _ = split(function, "C.i", (None, 4))
    after = compute_at(function, "B_o", "C.i.0")
    assert """\
  for C.i.0 in 0 .. 2
    for B_o.i in 0 .. 2
      for B_o.j in 0 .. 4
        block B_o
          spatial i: 4 = C.i.0 * 2 + B_o.i
          spatial j: 4 = B_o.j
""" in show(after)
    assert_same(function, after)
    assert_same(function, compute_at(function, "B_o", "C.j"))


def test_a_producer_whose_tiles_overlap_stays():
    """A tile would have to bring back what the next one has written over."""
    text = """
function tiles(A: float32[4], out C: float32[5])
  alloc B: float32[5]
  for B.i in 0 .. 4
    block B
      ordered i: 4 = B.i
      for r in 0 .. 2
        B[i + r] = A[i] * cast(float32, r)
  for C.i in 0 .. 5
    block C
      spatial i: 5 = C.i
      C[i] = B[i]
"""
    with pytest.raises(ScheduleError, match="neither complete nor a reduction"):
        compute_at(parse(text), "B", "C.i")
    with pytest.raises(ScheduleError, match="may be one place of 'B', as in a window"):
        compute_at(parse(text.replace("ordered", "spatial")), "B", "C.i")


def test_a_producer_with_a_block_in_it():
    function = parse("""
function nested(A: float32[8], out C: float32[8])
  alloc B: float32[8]
  for io in 0 .. 4
    block B
      spatial t: 4 = io
      for ii in 0 .. 2
        block inner
          spatial i: 8 = t * 2 + ii
          B[i] = A[i] + float32(1.0)
  for co in 0 .. 2
    for ci in 0 .. 4
      block C
        spatial i: 8 = co * 4 + ci
        C[i] = B[i]
""")
    after = compute_at(function, "B", "co")
    assert "spatial t: 4 = co * 2 + B.t\n" in show(after)
    assert_same(function, after)
    assert_same(function, reverse_compute_at(function, "C", "io"))


def test_a_place_that_wraps_around_may_be_any():
    """compute_at makes all of what is read at a loaded index whose product may leave 64 bits."""
    I = te.placeholder((3,), "int32", name="I")
    T = te.compute((5,), lambda i: i * 2, name="T")
    s = Schedule(te.lower([I, te.compute((3,), lambda i: T[te.cast(I[i], "int64") * ((1 << 62) + 1)], name="C")]))
    s.compute_at("T", "C.i")
    assert "for T.i in 0 .. 5" in s.show()
    assert interpret(s.function, np.zeros(3, "i4")).tolist() == [0, 0, 0]


def test_what_does_not_run_on_all_its_points_does_not_move():
    """C is written and copied at (0, 0), (0, 1) and (1, 0); where (1, 1) is needed, too, nothing can be copied."""
    f = parse("""
        function main(A: float32[3], out C: float32[3])
          alloc S: float32[2, 2]
          alloc T: float32[2, 2]
          for S.i in 0 .. 3
            block S
              spatial i: 3 = S.i
              S[i // 2, i % 2] = A[i]
          for T.i in 0 .. 3
            block T
              spatial i: 2 = T.i // 2
              spatial j: 2 = T.i % 2
              T[i, j] = S[i, j]
          for C.o in 0 .. 1
            for C.i in 0 .. 3
              block C
                spatial i: 3 = C.i
                C[i] = T[i // 2, i % 2]
    """)
    with pytest.raises(ScheduleError, match="'T' is not known to run on all points between the first and the last"):
        compute_at(f, "T", "C.o")
