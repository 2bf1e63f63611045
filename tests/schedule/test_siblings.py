"""fission, merge and compute_with: the text before and after, the same answers, the refusals."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc.build import build
from tensorc.ir.interpreter import interpret
from tensorc.ir.parser import parse
from tensorc.schedule import Schedule
from tensorc.schedule.primitives.loops import parallel, reorder, split, unroll
from tensorc.schedule.primitives.placement import compute_at
from tensorc.schedule.primitives.reduction import decompose_reduction
from tensorc.schedule.primitives.siblings import compute_with, fission, merge
from tests.schedule.same import assert_same, inputs
from tests.schedule.test_loops import body, lines, matmul, refused


def pair(b="6", shift="i"):
    """Two nests; the second one reads the first one's result."""
    return parse(f"""
function pair(A: float32[8, 6], out B: float32[8, 6], out C: float32[8, {b}])
  for B.i in 0 .. 8
    for B.j in 0 .. 6
      block B
        spatial i: 8 = B.i
        spatial j: 6 = B.j
        B[i, j] = A[i, j] * float32(2.0)
  for C.i in 0 .. 8
    for C.j in 0 .. {b}
      block C
        spatial i: 8 = C.i
        spatial j: {b} = C.j
        C[i, j] = B[{shift}, 0] + A[i, 1]
""")


MERGED = lines("""
for B.i in 0 .. 8
  for B.j in 0 .. 6
    block B
      spatial i: 8 = B.i
      spatial j: 6 = B.j
      B[i, j] = A[i, j] * float32(2.0)
  for C.j in 0 .. 6
    block C
      spatial i: 8 = B.i
      spatial j: 6 = C.j
      C[i, j] = B[i, 0] + A[i, 1]
""")


def test_merge():
    function, name = merge(pair(), ("B.i", "C.i"))
    assert name == "B.i"
    assert body(function) == MERGED
    assert_same(pair(), function)


def test_the_first_one_given_keeps_its_name_and_the_program_its_order():
    function, name = merge(pair(), ("C.i", "B.i"))
    assert name == "C.i"
    assert body(function) == MERGED.replace("B.i", "C.i")
    assert_same(pair(), function)


def test_merge_reaches_out_to_where_the_nests_part():
    function = parse("""
function three(A: float32[8, 6], out B: float32[8, 6], out C: float32[8, 6], out D: float32[6, 8])
  for B.i in 0 .. 8
    for B.j in 0 .. 6
      block B
        spatial i: 8 = B.i
        spatial j: 6 = B.j
        B[i, j] = A[i, j] * float32(2.0)
  for D.i in 0 .. 6
    for D.j in 0 .. 8
      block D
        spatial i: 6 = D.i
        spatial j: 8 = D.j
        D[i, j] = A[j, i]
  for C.i in 0 .. 8
    for C.j in 0 .. 6
      block C
        spatial i: 8 = C.i
        spatial j: 6 = C.j
        C[i, j] = B[i, j] + A[i, 1]
""")
    merged, _ = merge(function, ("B.j", "C.j"))
    assert body(merged).splitlines()[:10] == lines("""
for B.i in 0 .. 8
  for B.j in 0 .. 6
    block B
      spatial i: 8 = B.i
      spatial j: 6 = B.j
      B[i, j] = A[i, j] * float32(2.0)
    block C
      spatial i: 8 = B.i
      spatial j: 6 = B.j
      C[i, j] = B[i, j] + A[i, 1]
""").splitlines()
    assert_same(function, merged)
    assert refused(merge, function, ("B.i", "D.i")) == (
        "merge(loops 'B.i', 'D.i'): loop 'B.i' has 8 iterations, 'D.i' has 6"
    )
    assert refused(merge, function, ("B.j", "C.i")) == (
        "merge(loops 'B.j', 'C.i'): where the nests part they are 2 and 1 loops deep"
    )


def test_what_merge_refuses():
    assert refused(merge, pair(), ("B.i",)) == "merge(loops 'B.i'): give two loops or more"
    assert refused(merge, pair(), ("B.i", "B.j")) == (
        "merge(loops 'B.i', 'B.j'): they do not lie in nests side by side"
    )
    assert refused(merge, pair(shift="7 - i"), ("B.i", "C.i")) == (
        "merge(loops 'B.i', 'C.i'): block 'C' reads elements of buffer 'B' that block 'B' writes in "
        "later iterations"
    )
    assert refused(merge, parallel(pair(), "B.i"), ("B.i", "C.i")) == (
        "merge(loops 'B.i', 'C.i'): loop 'B.i' is parallel; only serial loops can be merged"
    )


def test_a_reader_of_what_is_written_before_may_join():
    function, _ = merge(pair(shift="max(i - 3, 0)"), ("B.i", "C.i"))
    assert_same(pair(shift="max(i - 3, 0)"), function)


def test_compute_with():
    function = compute_with(pair(), "C", "B", "B.i")
    assert body(function) == MERGED
    other = compute_with(pair(), "B", "C", "C.i")
    assert body(other) == MERGED.replace("B.i", "C.i")
    assert_same(pair(), other)


@pytest.mark.parametrize(("extent", "owner"), [("5", "C"), ("7", "B")])
def test_compute_with_guards_the_shorter_of_two_nests(extent, owner):
    function = compute_with(pair(extent), "C", "B", "B.j")
    longer = max(6, int(extent))
    assert f'for B.j in 0 .. {longer} {{tail = "cut"}}' in body(function)
    guarded = body(function).split(f"block {owner}\n")[1].split("block")[0]
    assert f"where B.j < {min(6, int(extent))}" in guarded
    assert body(function).count("where") == 1
    assert_same(pair(extent), function)
    other = compute_with(pair(extent), "B", "C", "C.j")
    assert_same(pair(extent), other)
    arrays = inputs(function, {})
    for b, c in zip(build(Schedule(function))(*arrays), interpret(pair(extent), *arrays)):
        np.testing.assert_array_equal(b, c)


@pytest.mark.parametrize(("n", "m"), [(0, 3), (3, 0), (5, 5), (2, 7), (7, 2)])
def test_compute_with_of_symbolic_extents(n, m):
    text = """
function sums(A: float32[n], B: float32[m, k], out C: float32[n], out D: float32[m])
  for C.i in 0 .. n
    block C
      spatial i: n = C.i
      C[i] = A[i] * float32(2.0)
  for D.i in 0 .. m
    for D.k in 0 .. k
      block D
        spatial i: m = D.i
        reduce k_: k = D.k
        init
          D[i] = float32(1.0)
        D[i] = D[i] + B[i, k_]
"""
    function = compute_with(parse(text), "D", "C", "C.i")
    assert "for C.i in 0 .. max(n, m)" in body(function) or "max(m, n)" in body(function)
    for k in (0, 3):
        assert_same(parse(text), function, n=n, m=m, k=k)


def test_what_compute_with_refuses():
    assert refused(compute_with, pair(), "C", "B", "C.i") == (
        "compute_with(block 'C', other 'B', loop 'C.i'): the loop is not around 'B'"
    )
    function = compute_with(pair(), "C", "B", "B.i")
    assert refused(compute_with, function, "C", "B", "B.i") == (
        "compute_with(block 'C', other 'B', loop 'B.i'): the loop is around 'C' already"
    )
    assert refused(merge, pair("5"), ("B.j", "C.j")) == (
        "merge(loops 'B.j', 'C.j'): loop 'B.j' has 6 iterations, 'C.j' has 5"
    )
    function, _ = split(pair(), "B.i", (2, 4))
    assert refused(compute_with, function, "C", "B", "B.j") == (
        "compute_with(block 'C', other 'B', loop 'B.j'): 'C' has 2 loops of its own there, 'B.j' is "
        "number 3"
    )


def test_fission_undoes_merge():
    merged, _ = merge(pair(), ("B.i", "C.i"))
    function, names = fission(merged, "B.i", "B")
    assert names == ("B.i", "C.i")
    assert body(function) == body(pair())


def test_fission_makes_two_of_all_loops_to_the_gap():
    function, _ = decompose_reduction(matmul(), "C", "C.k")
    before = function
    function, names = fission(function, "C.i", "C_init")
    assert names == ("C_init.i", "C.i")
    assert body(function) == lines("""
for C_init.i in 0 .. 8
  for C_init.j in 0 .. 6
    block C_init
      spatial i: 8 = C_init.i
      spatial j: 6 = C_init.j
      C[i, j] = float32(0.0)
for C.i in 0 .. 8
  for C.j in 0 .. 6
    for C.k in 0 .. 12
      block C
        spatial i: 8 = C.i
        spatial j: 6 = C.j
        reduce k: 12 = C.k
        C[i, j] = C[i, j] + A[i, k] * B[k, j]
""")
    assert_same(matmul(), function)
    inner, names = fission(before, "C.j", "C_init")
    assert names == ("C_init.j", "C.j")
    assert_same(matmul(), inner)
    assert_same(matmul(), reorder(function, ("C.k", "C.i", "C.j")))


def test_fission_of_a_producer_that_writes_the_same_values_again():
    text = """
function blur(A: float32[9], out C: float32[9])
  alloc B: float32[9]
  for B.x in 0 .. 9
    block B
      spatial x: 9 = B.x
      B[x] = A[x] * float32(2.0)
  for C.x in 0 .. 9
    block C
      spatial x: 9 = C.x
      C[x] = B[x] + if_then_else(x > 0, B[x - 1], float32(0.0))
"""
    function, (x0, _) = split(parse(text), "C.x", (None, 4))
    function = compute_at(function, "B", x0)
    again, _ = fission(function, x0, "B")
    assert_same(parse(text), again)


def test_what_fission_refuses():
    merged, _ = merge(pair(), ("B.i", "C.i"))
    assert refused(fission, merged, "B.j", "C") == (
        "fission(loop 'B.j', after 'C'): the loop is not around the block"
    )
    assert refused(fission, merged, "B.i", "C") == (
        "fission(loop 'B.i', after 'C'): nothing in the loop follows 'C'"
    )
    assert refused(fission, parallel(merged, "B.i"), "B.i", "B") == (
        "fission(loop 'B.i', after 'B'): the parallel loop 'B.i' cannot be made two; only serial and "
        "unrolled loops can"
    )
    fission(unroll(merged, "B.i"), "B.i", "B")
    loop = parse("""
function carry(A: float32[8], out S: float32[9], out T: float32[9])
  for t in 0 .. 8
    block S
      ordered t_: 8 = t
      S[t_ + 1] = A[t_] + if_then_else(t_ > 0, T[t_], float32(0.0))
    block T
      ordered u_: 8 = t
      T[u_ + 1] = S[u_ + 1]
""")
    assert refused(fission, loop, "t", "S") == (
        "fission(loop 't', after 'S'): block 'T' writes elements of buffer 'T' that block 'S' reads "
        "in later iterations"
    )


@pytest.mark.parametrize("factor", [3, 4, 8])
def test_merged_tiles_with_tails(factor):
    function, (b0, _) = split(pair(), "B.i", (None, factor))
    function, (c0, _) = split(function, "C.i", (None, factor))
    function, _ = merge(function, (b0, c0))
    assert_same(pair(), function)


def test_fission_of_a_copy_of_what_changes():
    """Both blocks of the first part write anew what the second one reads, other values each time."""
    f = parse("""
        function main(A: int32[5], out C: int32[4])
          alloc R: int32[2]
          alloc T: int32[2]
          for C.i in 0 .. 4
            for R.i in 0 .. 2
              block R
                spatial i: 5 = C.i + R.i
                R[i % 2] = A[i]
            for T.i in 0 .. 2
              block T
                spatial i: 2 = T.i
                T[i] = R[i]
            block C
              spatial i: 4 = C.i
              C[i] = T[i % 2] - T[(i + 1) % 2]
    """)
    message = refused(fission, f, "C.i", "T")
    assert message.endswith("block 'C' reads elements of buffer 'T' that block 'T' writes in later iterations")
