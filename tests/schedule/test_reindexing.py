"""reindex, reindex_cache_read and reindex_cache_write: copies laid out by a block's iterators."""

from __future__ import annotations

import pytest

import tensorc as tc
from tensorc import te
from tensorc.errors import ScheduleError
from tensorc.ir.parser import parse
from tensorc.ir.printer import show
from tensorc.schedule import Schedule, Trace
from tensorc.schedule.primitives.loops import split
from tensorc.schedule.primitives.placement import compute_at
from tensorc.schedule.primitives.reduction import decompose_reduction
from tensorc.schedule.primitives.reindexing import (
    reindex,
    reindex_cache_read,
    reindex_cache_write,
)
from tests.schedule.same import assert_same

CONV = """
function conv(A: float32[12], W: float32[3, 4], out C: float32[10, 4])
  for C.i in 0 .. 10
    for C.c in 0 .. 4
      for C.k in 0 .. 3
        block C
          spatial i: 10 = C.i
          spatial c: 4 = C.c
          reduce k: 3 = C.k
          init
            C[i, c] = float32(0.0)
          C[i, c] = C[i, c] + A[i + k] * W[k, c]
"""

REVERSE = """
function reverse(A: float32[n, 6], out D: float32[6, n])
  alloc T: float32[n, 6]
  for T.i in 0 .. n
    for T.j in 0 .. 6
      block T
        spatial i: n = T.i
        spatial j: 6 = T.j
        T[i, 5 - j] = A[i, j]
  for D.i in 0 .. 6
    for D.j in 0 .. n
      block D
        spatial i: 6 = D.i
        spatial j: n = D.j
        D[i, j] = T[j, i]
"""


def test_reindex_of_an_input_is_im2col():
    before = parse(CONV)
    after, block = reindex(before, "C", "A")
    assert block == "A_reindex"
    assert (
        show(after)
        == """\
function conv(A: float32[12], W: float32[3, 4], out C: float32[10, 4])
  alloc A_reindex: float32[10, 3]
  for A_reindex.i in 0 .. 10
    for A_reindex.k in 0 .. 3
      block A_reindex
        spatial i: 10 = A_reindex.i
        spatial k: 3 = A_reindex.k
        A_reindex[i, k] = A[i + k]
  for C.i in 0 .. 10
    for C.c in 0 .. 4
      for C.k in 0 .. 3
        block C
          spatial i: 10 = C.i
          spatial c: 4 = C.c
          reduce k: 3 = C.k
          init
            C[i, c] = float32(0.0)
          C[i, c] = C[i, c] + A_reindex[i, k] * W[k, c]"""
    )
    assert_same(before, after)


def test_reindex_of_an_output_copies_afterwards():
    before = parse(CONV.replace("C[i, c]", "C[9 - i, c]"))
    after, block = reindex(before, "C", "C")
    assert block == "C_reindex"
    assert show(after).endswith("""\
          C_reindex[i, c] = C_reindex[i, c] + A[i + k] * W[k, c]
  for C_reindex.i in 0 .. 10
    for C_reindex.c in 0 .. 4
      block C_reindex
        spatial i: 10 = C_reindex.i
        spatial c: 4 = C_reindex.c
        C[9 - i, c] = C_reindex[i, c]""")
    assert_same(before, after)


def test_reindex_of_internal_buffers_and_symbolic_extents():
    before = parse(REVERSE)
    function, _ = reindex(before, "T", "T")
    assert "T_reindex[i, j] = A[i, j]" in show(function)
    assert "T[i, 5 - j] = T_reindex[i, j]" in show(function)
    other, _ = split(before, "D.i", (None, 4))
    other, _ = reindex_cache_read(other, "D", "T", "local", lambda i, j: (i, j))
    assert "alloc T_local: float32[6, n] @local" in show(other)
    for n in (0, 1, 5):
        assert_same(before, function, n=n)
        assert_same(before, other, n=n)


def test_reindex_cache_read_in_panels():
    before = parse(CONV)
    after, block = reindex_cache_read(
        before, "C", "W", "local", lambda i, c, k: (c // 3, k, c % 3)
    )
    assert block == "W_local"
    assert show(after).startswith("""\
function conv(A: float32[12], W: float32[3, 4], out C: float32[10, 4])
  alloc W_local: float32[2, 3, 3] @local
  for W_local.c in 0 .. 4
    for W_local.k in 0 .. 3
      block W_local
        spatial c: 4 = W_local.c
        spatial k: 3 = W_local.k
        W_local[c // 3, k, c % 3] = W[k, c]
""")
    assert "A[i + k] * W_local[c // 3, k, c % 3]" in show(after)
    assert_same(before, after)


def test_reindex_cache_write_transposed():
    before = parse(CONV)
    after, block = reindex_cache_write(before, "C", "C", "global", lambda i, c, k: (c, i))
    assert block == "C_global"
    assert "alloc C_global: float32[4, 10]" in show(after)
    assert show(after).endswith("""\
          C_global[c, i] = C_global[c, i] + A[i + k] * W[k, c]
  for C_global.i in 0 .. 10
    for C_global.c in 0 .. 4
      block C_global
        spatial i: 10 = C_global.i
        spatial c: 4 = C_global.c
        C[i, c] = C_global[c, i]""")
    assert_same(before, after)


def test_after_other_steps_and_by_a_trace():
    s = Schedule(parse(CONV))
    i, c, k = s.loops("C")
    _, c1 = s.split(c, (None, 3), tail="mask")
    s.vectorize(c1)
    copy = s.reindex("C", "A")
    s.reindex_cache_read("C", copy.name, "local", lambda i, c, k: (k, i))
    s.reindex_cache_write("C", "C", "global", lambda i, c, k: (c, i))
    s.decompose_reduction("C", k)
    assert s.trace.python().splitlines()[2:5] == [
        'A_reindex = s.reindex("C", "A")',
        'A_reindex_local = s.reindex_cache_read("C", "A_reindex", "local", lambda i, c, k: (k, i))',
        'C_global = s.reindex_cache_write("C", "C", "global", lambda i, c, k: (c, i))',
    ]
    assert_same(s.origin, s.function)
    again = Trace.from_json(s.trace.json()).apply(Schedule(parse(CONV)))
    assert again.show() == s.show()


def refusal(step, function, *args) -> str:
    before = show(function)
    with pytest.raises(ScheduleError) as caught:
        step(function, *args)
    assert show(function) == before and caught.value.__notes__
    return str(caught.value)


def test_reindex_refuses():
    conv = parse(CONV)
    assert refusal(reindex, conv, "C", "X") == (
        "reindex(block 'C', buffer 'X'): the block does not touch that buffer; "
        "it touches 'C', 'A', 'W'"
    )
    twice = parse(CONV.replace("W[k, c]", "A[i]"))
    assert refusal(reindex, twice, "C", "A") == (
        "reindex(block 'C', buffer 'A'): the block accesses 'A' at 2 places; "
        "a copy needs a single one"
    )
    gather = parse("""
function gather(I: int64[4], A: float32[9], out C: float32[4])
  for C.i in 0 .. 4
    block C
      spatial i: 4 = C.i
      C[i] = A[I[i]]
""")
    assert refusal(reindex, gather, "C", "A") == (
        "reindex(block 'C', buffer 'A'): an index of 'A' is not made of the block's iterators alone"
    )
    padded = parse("""
function pad(A: float32[9], out C: float32[11])
  for C.i in 0 .. 11
    block C
      spatial i: 11 = C.i
      C[i] = if_then_else(i >= 1 and i < 10, A[i - 1], float32(0.0))
""")
    assert refusal(reindex, padded, "C", "A") == (
        "reindex(block 'C', buffer 'A'): the block reads 'A' under a condition, and elsewhere its "
        "index may lie outside; pad it in a stage of its own"
    )
    never = parse("""
function never(A: float32[4], out C: float32[0])
  for C.i in 0 .. 0
    block C
      spatial i: 0 = C.i
      C[i] = A[5]
""")
    assert refusal(reindex, never, "C", "A") == (
        "reindex(block 'C', buffer 'A'): where the block does not run, its index of 'A' may lie "
        "outside; the copy would read there"
    )
    started, _ = decompose_reduction(conv, "C", "C.k")
    assert refusal(reindex, started, "C", "C") == (
        "reindex(block 'C', buffer 'C'): 'C' is also written by C_init; "
        "reindex the block before decomposing it"
    )
    triangle = parse("""
function triangle(A: float32[6, 6], out C: float32[6])
  for C.i in 0 .. 6
    for C.k in 0 .. C.i + 1
      block C
        spatial i: 6 = C.i
        reduce k: C.i + 1 = C.k
        init
          C[i] = float32(0.0)
        C[i] = C[i] + A[i, k]
""")
    assert refusal(reindex, triangle, "C", "A") == (
        "reindex(block 'C', buffer 'A'): the extent of its iterator 'k' depends on other iterators"
    )
    update = parse("""
function update(A: float32[4], out C: float32[4])
  for C.i in 0 .. 4
    block C
      spatial i: 4 = C.i
      C[i] = C[i] + A[i]
""")
    assert refusal(reindex, update, "C", "C") == (
        "reindex(block 'C', buffer 'C'): 'C' starts from what 'C' holds already"
    )


def test_reindex_cache_refuses():
    conv = parse(CONV)
    assert refusal(reindex_cache_read, conv, "C", "C", "local", lambda i, c, k: (i, c)) == (
        "reindex_cache_read(block 'C', buffer 'C'): the block writes that buffer; "
        "use reindex_cache_write"
    )
    assert refusal(reindex_cache_write, conv, "C", "A", "local", lambda i, c, k: (i, c)) == (
        "reindex_cache_write(block 'C', buffer 'A'): the block does not write that buffer; "
        "it writes 'C'"
    )
    assert refusal(reindex_cache_read, conv, "C", "A", "local", lambda i, c, k: (i,)) == (
        "reindex_cache_read(block 'C', buffer 'A'): "
        "the map may send several points of (i, k) to one place"
    )
    assert refusal(reindex_cache_write, conv, "C", "C", "local", lambda i, c, k: (i, c, k)) == (
        "reindex_cache_write(block 'C', buffer 'C'): the map uses the reduce iterator 'k', "
        "but an element is one place in all its steps"
    )
    biased = parse(CONV.replace("C[i, c] = float32(0.0)", "C[i, c] = A[i]").replace("A[i + k]", "float32(1.0)"))
    assert refusal(reindex_cache_read, biased, "C", "A", "local", lambda i, c, k: (i, k)) == (
        "reindex_cache_read(block 'C', buffer 'A'): the init reads 'A' before the first step of the "
        "reduce iterator 'k', which the map uses"
    )
    assert refusal(reindex_cache_read, conv, "C", "A", "far", lambda i, c, k: (i, k)) == (
        "reindex_cache_read(block 'C', buffer 'A'): scope 'far' is unknown; "
        "known are global, local, shared, warp, fragment"
    )
    assert "the map does not take 3 indices to indices" in refusal(
        reindex_cache_read, conv, "C", "A", "local", lambda i: (i,)
    )
    assert refusal(reindex_cache_read, conv, "C", "A", "local", lambda i, c, k: (i - 1, k)) == (
        "reindex_cache_read(block 'C', buffer 'A'): index 0 of the new layout, i - 1, "
        "may be negative or has no bound"
    )


def test_a_copy_in_a_nest_with_other_blocks():
    before = compute_at(parse(REVERSE.replace("5 - j", "j")), "T", "D.i")
    after, _ = reindex_cache_read(before, "D", "T", "local", lambda i, j: (i, j))
    assert show(after).endswith("""\
        T[i, j] = A[i, j]
    for T_local.j in 0 .. n
      block T_local
        spatial i: 6 = D.i
        spatial j: n = T_local.j
        T_local[i, j] = T[j, i]
    for D.j in 0 .. n
      block D
        spatial i: 6 = D.i
        spatial j: n = D.j
        D[i, j] = T_local[i, j]""")
    assert_same(before, after, n=4)
    after, _ = reindex_cache_write(before, "T", "T", "global", lambda i, j: (j, i))
    assert """\
        T_global[j, i] = A[i, j]
    for T_global.i in 0 .. n
      block T_global
        spatial i: n = T_global.i
        spatial j: 6 = D.i
        T[i, j] = T_global[j, i]
""" in show(after)
    assert_same(before, after, n=4)
    assert_same(before, reindex(before, "D", "T")[0], n=0)


SUMS = """
function sums(A: float32[8, 6], out C: float32[8], out D: float32[8])
  for io in 0 .. 3
    for ii in 0 .. 3
      for k in 0 .. 6
        block C
          spatial i: 8 = io * 3 + ii
          reduce k: 6 = k
          where io * 3 + ii < 8
          init
            C[i] = float32(0.0)
          C[i] = C[i] + A[i, k]
    for di in 0 .. 3
      block D
        spatial i: 8 = io * 3 + di
        where io * 3 + di < 8
        D[i] = C[i]
"""


def test_a_copy_of_sums_is_made_when_they_are_whole():
    before = parse(SUMS)
    after, _ = reindex_cache_write(before, "C", "C", "global", lambda i, k: (7 - i,))
    assert """\
    for C_global.ii in 0 .. 3
      block C_global
        spatial i: 8 = io * 3 + C_global.ii
        where io * 3 + C_global.ii < 8
        C[i] = C_global[7 - i]
""" in show(after)
    assert_same(before, after)
    assert_same(before, reindex_cache_read(before, "D", "C", "global", lambda i: (7 - i,))[0])


def test_a_copy_in_a_nest_with_other_blocks_refuses():
    refused = (
        "reindex_cache_write(block 'C', buffer 'C'): 'D' reads 'C' before the nest of loops ends, "
        "where the copy would be made"
    )
    args = ("C", "C", "global", lambda i, k: (7 - i,))
    lanes = parse(SUMS.replace("io in 0 .. 3", "io in 0 .. 3 vectorized"))
    assert refusal(reindex_cache_write, lanes, *args) == refused
    late = parse(SUMS.replace("io * 3 + ii < 8\n", "io * 3 + ii < 8 and k < 6\n"))
    assert refusal(reindex_cache_write, late, *args) == refused
    never = parse(SUMS.replace("A: float32[8, 6]", "A: float32[8, n]").replace("0 .. 6", "0 .. n")
                  .replace("k: 6", "k: n"))  # fmt: skip
    assert refusal(reindex_cache_write, never, *args) == refused
    shared = parse(SUMS.replace("io in 0 .. 3", "io in 0 .. 3 parallel"))
    assert_same(shared, reindex_cache_write(shared, *args)[0])


def test_a_copy_is_not_made_where_the_block_never_runs():
    n = te.var("n")
    A = te.placeholder((n, 1), name="A")
    s = tc.schedule([A, te.compute((n, 1), lambda i, j: A[0, j], name="C")])
    with pytest.raises(ScheduleError, match="where the block does not run, its index of 'A' may lie outside"):
        s.reindex("C", "A")
