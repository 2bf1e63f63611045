"""cache_read and cache_write: copies into buffers of their own."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc.errors import ScheduleError
from tensorc.ir.interpreter import interpret
from tensorc.ir.parser import parse
from tensorc.ir.printer import show
from tensorc.schedule.primitives.blocking import blockize
from tensorc.schedule.primitives.caching import cache_read, cache_write
from tensorc.schedule.primitives.loops import fuse, split, vectorize
from tensorc.schedule.primitives.placement import compute_at
from tensorc.schedule.schedule import Schedule
from tests.schedule.same import assert_same

MATMUL = """
function mm(A: float32[4, 6], B: float32[6, 5], out C: float32[4, 5])
  for C.i in 0 .. 4
    for C.j in 0 .. 5
      for C.k in 0 .. 6
        block C
          spatial i: 4 = C.i
          spatial j: 5 = C.j
          reduce k: 6 = C.k
          init
            C[i, j] = float32(0.0)
          C[i, j] = C[i, j] + A[i, k] * B[k, j]
"""

TWO = """
function two(A: float32[8], out D: float32[8])
  alloc B: float32[8]
  alloc C: float32[8]
  for B.i in 0 .. 8
    block B
      spatial i: 8 = B.i
      B[i] = A[i] + float32(1.0)
  for C.i in 0 .. 8
    block C
      spatial i: 8 = C.i
      C[i] = B[i] * B[7 - i]
  for D.i in 0 .. 8
    block D
      spatial i: 8 = D.i
      D[i] = B[i] + C[i]
"""


def test_cache_read_copies_before_the_nest():
    before = parse(MATMUL)
    after, block = cache_read(before, "C", "B")
    assert block == "B_global"
    assert (
        show(after)
        == """\
function mm(A: float32[4, 6], B: float32[6, 5], out C: float32[4, 5])
  alloc B_global: float32[6, 5]
  for B_global.k in 0 .. 6
    for B_global.j in 0 .. 5
      block B_global
        spatial k: 6 = B_global.k
        spatial j: 5 = B_global.j
        B_global[k, j] = B[k, j]
  for C.i in 0 .. 4
    for C.j in 0 .. 5
      for C.k in 0 .. 6
        block C
          spatial i: 4 = C.i
          spatial j: 5 = C.j
          reduce k: 6 = C.k
          init
            C[i, j] = float32(0.0)
          C[i, j] = C[i, j] + A[i, k] * B_global[k, j]"""
    )
    assert_same(before, after)


def test_cache_read_by_number_scope_and_again():
    before = parse(TWO)
    once, first = cache_read(before, "C", 0, "local")
    again, second = cache_read(once, "D", "B", "local")
    assert (first, second) == ("B_local", "B_local_1")
    assert [(b.name, b.scope) for b in again.allocs[2:]] == [
        ("B_local", "local"),
        ("B_local_1", "local"),
    ]
    assert "C[i] = B_local[ax0]" not in show(again)
    assert "C[i] = B_local[i] * B_local[7 - i]" in show(again)
    assert "D[i] = B_local_1[i] + C[i]" in show(again)
    assert_same(before, again)


def test_cache_read_of_a_cache():
    before = parse(MATMUL)
    once, first = cache_read(before, "C", "B")
    twice, second = cache_read(once, "C", first)
    assert second == "B_global_global"
    assert "B_global_global[k, j] = B_global[k, j]" in show(twice)
    assert_same(before, twice)


def test_cache_read_of_a_scalar():
    before = parse("""
function scale(S: float32[1], A: float32[n], out C: float32[n])
  for C.i in 0 .. n
    block C
      spatial i: n = C.i
      C[i] = A[i] * S[0]
""")
    after, _ = cache_read(before, "C", "S")
    after, _ = cache_read(after, "C", "A")
    assert "spatial ax0: 1 = S_global.ax0" in show(after)
    assert "alloc A_global: float32[n]" in show(after)
    for n in (0, 1, 5):
        assert_same(before, after, n=n)


def test_cache_write_copies_after_the_nest():
    before = parse(MATMUL)
    after, block = cache_write(before, "C")
    assert block == "C_global"
    assert (
        show(after)
        == """\
function mm(A: float32[4, 6], B: float32[6, 5], out C: float32[4, 5])
  alloc C_global: float32[4, 5]
  for C.i in 0 .. 4
    for C.j in 0 .. 5
      for C.k in 0 .. 6
        block C
          spatial i: 4 = C.i
          spatial j: 5 = C.j
          reduce k: 6 = C.k
          init
            C_global[i, j] = float32(0.0)
          C_global[i, j] = C_global[i, j] + A[i, k] * B[k, j]
  for C_global.i in 0 .. 4
    for C_global.j in 0 .. 5
      block C_global
        spatial i: 4 = C_global.i
        spatial j: 5 = C_global.j
        C[i, j] = C_global[i, j]"""
    )
    assert_same(before, after)


def test_cache_write_of_an_internal_buffer():
    before = parse(TWO)
    after, block = cache_write(before, "B", "local")
    assert block == "B_local"
    assert "B[i] = B_local[i]" in show(after)
    assert_same(before, after)


def test_cache_write_takes_the_block_that_initialises_along():
    before = parse("""
function total(A: float32[4, 6], out C: float32[4])
  for C.i in 0 .. 4
    block C_init
      spatial i: 4 = C.i
      C[i] = float32(0.0)
    for C.k in 0 .. 6
      block C
        spatial i: 4 = C.i
        reduce k: 6 = C.k
        C[i] = C[i] + A[i, k]
""")
    after, _ = cache_write(before, "C")
    assert "C_global[i] = float32(0.0)" in show(after)
    assert_same(before, after)


HALF = """
function half(A: float16[8], out C: float32[8])
  for C.i in 0 .. 8
    block C
      spatial i: 8 = C.i
      C[i] = cast(float32, A[i]) * cast(float32, A[7 - i])
"""


def test_cache_read_of_elements_as_they_are_cast():
    before = parse(HALF)
    after, block = cache_read(before, "C", "A", "global", "float32")
    assert (
        show(after) + "\n"
        == """\
function half(A: float16[8], out C: float32[8])
  alloc A_global: float32[8]
  for A_global.ax0 in 0 .. 8
    block A_global
      spatial ax0: 8 = A_global.ax0
      A_global[ax0] = cast(float32, A[ax0])
  for C.i in 0 .. 8
    block C
      spatial i: 8 = C.i
      C[i] = A_global[i] * A_global[7 - i]
"""
    )
    assert_same(before, after)
    same, _ = cache_read(before, "C", "A", "global", "float16")
    assert show(same) == show(cache_read(before, "C", "A")[0])


def test_cache_read_as_cast_refuses():
    plain = HALF.replace("cast(float32, A[7 - i])", "cast(float32, A[7 - i] + float16(1.0))")
    assert refusal(cache_read, plain, "C", "A", "global", "float32") == (
        "cache_read(block 'C', buffer 'A'): it reads 'A' otherwise than cast to float32"
    )
    assert refusal(cache_read, HALF, "C", "A", "global", "float31").startswith(
        "cache_read(block 'C', buffer 'A'): dtype 'float31': unknown; known are "
    )


def refusal(step, text: str, *args) -> str:
    with pytest.raises(ScheduleError) as caught:
        step(parse(text), *args)
    return str(caught.value)


def test_cache_read_refuses():
    assert refusal(cache_read, MATMUL, "C", "D") == (
        "cache_read(block 'C', buffer 'D'): the block does not read that; it reads 'C', 'A', 'B'"
    )
    assert refusal(cache_read, MATMUL, "C", 3) == (
        "cache_read(block 'C', buffer 3): the block does not read that; it reads 'C', 'A', 'B'"
    )
    assert refusal(cache_read, MATMUL, "C", "C") == (
        "cache_read(block 'C', buffer 'C'): the block writes 'C' itself; use cache_write"
    )
    ahead = """
function ahead(A: float32[8], out C: float32[4])
  alloc P: float32[8]
  for i in 0 .. 4
    block P
      spatial i: 8 = i * 2
      P[i] = A[i] + float32(1.0)
    block C
      spatial i: 4 = i
      C[i] = P[i * 2] + if_then_else(i > 8, P[i * 2 + 1], float32(0.0))
"""
    assert refusal(cache_read, ahead, "C", "P") == (
        "cache_read(block 'C', buffer 'P'): 'P', in the same nest of loops, writes it; "
        "cache it before moving that block there"
    )
    gaps = """
function gaps(A: float32[6], out C: float32[6])
  alloc P: float32[2, 4]
  for P.i in 0 .. 6
    block P
      spatial i: 6 = P.i
      P[i // 4, i % 4] = A[i]
  for C.i in 0 .. 6
    block C
      spatial i: 6 = C.i
      C[i] = P[i // 4, i % 4]
"""
    assert refusal(cache_read, gaps, "C", "P") == (
        "cache_read(block 'C', buffer 'P'): not every element of 'P' is known to be written; "
        "cache it before other steps on its layout and its writer"
    )
    written, _ = cache_write(parse(gaps), "P")
    assert show(written).count("[i // 4, i % 4]") == 4
    assert_same(parse(gaps), written)


def test_cache_write_refuses():
    assert refusal(
        cache_write, "function f(A: float32[2])\n  block N\n    evaluate exp(float32(1.0))\n", "N"
    ) == ("cache_write(block 'N'): the block does not write that; it writes nothing")
    updates = """
function update(A: float32[4], out C: float32[4])
  for C.i in 0 .. 4
    block C
      spatial i: 4 = C.i
      C[i] = C[i] + A[i]
"""
    assert (
        refusal(cache_write, updates, "C")
        == "cache_write(block 'C'): 'C' starts from what 'C' holds already"
    )
    init = """
function total(A: float32[4], out C: float32[4])
  for C.i in 0 .. 4
    block C_init
      spatial i: 4 = C.i
      C[i] = float32(0.0)
    block C
      spatial i: 4 = C.i
      C[i] = C[i] + A[i]
"""
    assert (
        refusal(cache_write, init, "C_init")
        == "cache_write(block 'C_init'): 'C' writes 'C' after it"
    )
    near = TWO.replace(
        "  for C.i in 0 .. 8\n    block C\n      spatial i: 8 = C.i",
        "    block C\n      spatial i: 8 = B.i",
    )
    near = near.replace("B[i] * B[7 - i]", "B[i]")
    masked = near.replace("      B[i] = A[i]", "      where B.i % 2 == 0\n      B[i] = A[i]")
    assert "where B.i % 2 == 0" in show(cache_write(parse(masked), "B")[0]).partition("B_global[i] =")[2]
    masked = masked.replace("0 .. 8", "0 .. 8 vectorized", 1)
    assert refusal(cache_write, masked, "B") == (
        "cache_write(block 'B'): 'C' reads 'B' before the nest of loops ends, "
        "where the copy would be made"
    )


SHARED = """
function shared(A: float32[8], out C: float32[8], out D: float32[8])
  alloc P: float32[8]
  for io in 0 .. 2
    for p in 0 .. 4
      block P
        spatial i: 8 = io * 4 + p
        P[i] = A[i] + float32(1.0)
    for c in 0 .. 4
      block C
        spatial i: 8 = io * 4 + c
        C[i] = P[i] * P[i]
  for d in 0 .. 8
    block D
      spatial i: 8 = d
      D[i] = P[i]
"""


def test_cache_read_in_the_nest_of_the_writer():
    before = parse(SHARED)
    after, block = cache_read(before, "C", "P", "local")
    assert block == "P_local"
    assert (
        show(after)
        == """\
function shared(A: float32[8], out C: float32[8], out D: float32[8])
  alloc P: float32[8]
  alloc P_local: float32[8] @local
  for io in 0 .. 2
    for p in 0 .. 4
      block P
        spatial i: 8 = io * 4 + p
        P[i] = A[i] + float32(1.0)
    for P_local.i in 0 .. 4
      block P_local
        spatial i: 8 = io * 4 + P_local.i
        P_local[i] = P[i]
    for c in 0 .. 4
      block C
        spatial i: 8 = io * 4 + c
        C[i] = P_local[i] * P_local[i]
  for d in 0 .. 8
    block D
      spatial i: 8 = d
      D[i] = P[i]"""
    )
    assert_same(before, after)


def test_cache_write_in_the_nest_of_a_reader():
    before = parse(SHARED)
    after, block = cache_write(before, "P")
    assert block == "P_global"
    assert (
        show(after)
        == """\
function shared(A: float32[8], out C: float32[8], out D: float32[8])
  alloc P: float32[8]
  alloc P_global: float32[8]
  for io in 0 .. 2
    for p in 0 .. 4
      block P
        spatial i: 8 = io * 4 + p
        P_global[i] = A[i] + float32(1.0)
    for P_global.i in 0 .. 4
      block P_global
        spatial i: 8 = io * 4 + P_global.i
        P[i] = P_global[i]
    for c in 0 .. 4
      block C
        spatial i: 8 = io * 4 + c
        C[i] = P[i] * P[i]
  for d in 0 .. 8
    block D
      spatial i: 8 = d
      D[i] = P[i]"""
    )
    assert_same(before, after)


def test_a_copy_in_the_nest_of_the_writer_stays_out_of_vectors():
    function = vectorize(parse(SHARED), "c")
    assert_same(function, cache_read(function, "C", "P")[0])
    lanes = parse(
        SHARED.replace("for io in 0 .. 2", "for io in 0 .. 2 vectorized")
    )
    with pytest.raises(ScheduleError, match="in the same nest of loops, writes it"):
        cache_read(lanes, "C", "P")
    with pytest.raises(ScheduleError, match="before the nest of loops ends"):
        cache_write(lanes, "P")


def test_a_buffer_of_which_a_box_is_written_is_copied_there():
    before = parse("""
function box(A: float32[4, 8], out D: float32[3, 6])
  alloc B: float32[4, 8]
  for B.i in 0 .. 3
    for B.j in 0 .. 6
      block B
        spatial i: 3 = B.i
        spatial j: 6 = B.j
        B[i, j + 2] = A[i, j]
  for D.i in 0 .. 3
    for D.j in 0 .. 6
      block D
        spatial i: 3 = D.i
        spatial j: 6 = D.j
        D[i, j] = B[i, j + 2]
""")
    read, _ = cache_read(before, "D", "B")
    assert """\
  for B_global.i in 0 .. 3
    for B_global.ax1 in 0 .. 6
      block B_global
        spatial i: 4 = B_global.i
        spatial ax1: 8 = B_global.ax1 + 2
        B_global[i, ax1] = B[i, ax1]
""" in show(read)
    assert_same(before, read)
    written, _ = cache_write(before, "B")
    assert "        B_global[i, j + 2] = A[i, j]\n" in show(written)
    assert "        spatial ax1: 8 = B_global.ax1 + 2\n        B[i, ax1] = B_global[i, ax1]\n" in show(written)
    assert_same(before, written)


def test_a_guarded_loop_writes_and_reads_all():
    before, _ = split(parse(TWO), "B.i", (None, 3), "mask")
    before, _ = split(before, "D.i", (None, 3), "mask")
    assert_same(before, cache_read(before, "D", "B")[0])
    assert_same(before, cache_write(before, "B")[0])
    assert_same(before, cache_write(before, "D")[0])


def test_elements_that_an_output_keeps_are_not_copied_over():
    """A copy of the whole output would put what was never written in the elements that are kept."""
    kept = """
function kept(A: float32[4], out C: float32[8])
  for C.i in 0 .. 4
    block C
      spatial i: 4 = C.i
      C[i * 2] = A[i]
"""
    after, _ = cache_write(parse(kept), "C")
    assert show(after).endswith("""\
  for C_global.i in 0 .. 4
    block C_global
      spatial i: 4 = C_global.i
      C[i * 2] = C_global[i * 2]""")
    guarded = kept.replace("      C[i * 2] = A[i]", "      if A[i] > float32(2.0)\n        C[i * 2] = A[i]")
    after, _ = cache_write(parse(guarded), "C")
    assert show(after).endswith("""\
      if A[i] > float32(2.0)
        C[i * 2] = C_global[i * 2]""")
    lanes = kept.replace("0 .. 4", "0 .. 4 vectorized")
    assert refusal(cache_write, lanes, "C") == (
        "cache_write(block 'C'): not every element of 'C' is known to be written, and the others "
        "keep what they hold"
    )
    nested = parse("""
function nested(A: float32[4, 4], out C: float32[4, 4])
  for i in 0 .. 4
    for j in 0 .. 4
      block C
        spatial i: 4 = i
        spatial j: 4 = j
        block left
          where j < 3
          C[i, j] = A[i, j]
        block top
          where i < 2
          C[i, j] = A[j, i]
""")
    after, _ = cache_write(nested, "C")
    assert show(after).endswith("""\
        if j < 3
          C[i, j] = C_global[i, j]
        if i < 2
          C[i, j] = C_global[i, j]""")
    dense = parse(kept.replace("i * 2", "i + 3"))
    after, _ = cache_write(dense, "C")
    assert show(after).endswith("""\
  for C_global.ax0 in 0 .. 4
    block C_global
      spatial ax0: 8 = C_global.ax0 + 3
      C[ax0] = C_global[ax0]""")


def test_an_unknown_scope_is_refused():
    assert refusal(cache_read, MATMUL, "C", "B", "far") == (
        "cache_read(block 'C', buffer 'B'): scope 'far' is unknown; "
        "known are global, local, shared, warp, fragment"
    )


def test_the_writer_of_an_internal_buffer_may_be_split_and_fused():
    before = parse(TWO)
    function, (outer, inner) = split(before, "B.i", (None, 3))
    function, _ = fuse(function, (outer, inner))
    after, _ = cache_read(function, "D", "B")
    assert_same(before, after)


def test_a_buffer_of_which_only_a_part_is_written_is_copied_there():
    before = parse("""
function part(A: float32[4, 4], out D: float32[4])
  alloc B: float32[4, 4]
  alloc C: float32[4]
  for B.i in 0 .. 4
    for B.j in 0 .. 4
      block B
        spatial i: 4 = B.i
        spatial j: 4 = B.j
        B[i, j] = A[i, j] + float32(1.0)
  for C.i in 0 .. 4
    block C
      spatial i: 4 = C.i
      C[i] = B[i, i]
  for D.i in 0 .. 4
    block D
      spatial i: 4 = D.i
      D[i] = C[i] * float32(2.0)
""")
    moved = compute_at(compute_at(before, "B", "C.i"), "C", "D.i")
    assert_same(before, moved)
    assert_same(before, cache_write(moved, "B")[0])


def test_a_tile_that_is_one_block_writes_its_box():
    before, _ = split(parse(TWO), "B.i", (None, 4))
    before, _ = blockize(before, "B.i.1")
    after, _ = cache_write(before, "B_o")
    assert "B_global[i * 4 + i_i] = A[i * 4 + i_i]" in show(after)
    assert_same(before, after)
    assert_same(before, cache_read(before, "D", "B")[0])


def test_a_copy_of_one_of_two_outputs_in_places_of_its_own():
    s = Schedule(parse("""
        function main(A: int32[5], out C: int32[1])
          alloc T: int32[4, 2]
          alloc U: int32[5]
          for T.i in 0 .. 5
            block T
              spatial i: 5 = T.i
              T[i % 4, i // 4] = A[i]
              U[i] = A[i]
          block C
            spatial i: 1 = 0
            C[i] = T[0, 1] + U[4]
    """))
    s.cache_write("T", "local")
    assert "T[i % 4, i // 4] = T_local[i % 4, i // 4]" in s.show() and "U[i] = T_local" not in s.show()
    assert interpret(s.function, np.arange(5, dtype="i4")).tolist() == [8]


def test_a_copy_in_a_block_of_what_another_one_pads():
    """The block writes two elements of three; what it copies is no more."""
    s = Schedule(parse("""
        function main(A: float32[2], out C: float32[3])
          for P.i in 0 .. 3
            block P
              spatial i: 3 = P.i
              C[i] = float32(0)
          for C.i in 0 .. 2
            block C
              spatial i: 3 = C.i + 1
              C[i] = A[i - 1]
    """))
    s.cache_write("C", "local")
    s.cache_write("C_local", "local")
    assert interpret(s.function, np.array([1, 2], "f4")).tolist() == [0, 1, 2]
