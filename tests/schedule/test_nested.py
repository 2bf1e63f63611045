"""Steps on loops and blocks in a block that blockize made."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc.build import build
from tensorc.errors import ScheduleError
from tensorc.ir.interpreter import interpret
from tensorc.ir.parser import parse
from tensorc.schedule import Schedule, Trace
from tests.schedule.same import assert_same, inputs
from tests.schedule.test_caching import MATMUL

SCAN = """
function scan(A: float32[8, 6], out C: float32[8, 6])
  for C.i in 0 .. 8
    for C.j in 0 .. 6
      block C
        ordered i: 8 = C.i
        spatial j: 6 = C.j
        C[i, j] = if_then_else(i > 0, C[i - 1, j], float32(0.0)) + A[i, j]
"""


def tiled() -> Schedule:
    """A product whose block C_o multiplies tiles of 2 rows, 3 terms and 4 columns."""
    s = Schedule(parse(MATMUL.replace("5", "8")))
    i, j, k = s.loops("C")
    i0, i1 = s.split(i, (None, 2))
    j0, j1 = s.split(j, (None, 4))
    k0, k1 = s.split(k, (None, 3))
    s.reorder(i0, j0, k0, i1, k1, j1)
    s.blockize(i1)
    return s


def refused(s: Schedule, step: str, *args) -> str:
    function, trace = s.function, s.trace
    with pytest.raises(ScheduleError) as caught:
        getattr(s, step)(*args)
    assert s.function is function and s.trace is trace
    return str(caught.value)


def assert_kept(s: Schedule) -> None:
    """The answer is as before, by the interpreter, by compiled code, and made again from the trace."""
    assert_same(s.origin, s.function)
    arrays = inputs(s.origin, {})
    np.testing.assert_array_equal(build(s, cache=False)(*arrays), interpret(s.origin, *arrays))
    assert Trace.from_json(s.trace.json()).apply(Schedule(s.origin)).show() == s.show()


def test_loops_in_a_block_are_reordered_split_and_made_vectors():
    s = tiled()
    i, k, j = s.loops("C")
    s.reorder(k, i, j)
    j0, j1 = s.split(j, (2, 2))
    s.vectorize(j1)
    s.unroll(j0)
    s.parallel(i)
    a, b = s.loops("C_init")
    s.vectorize(s.fuse(a, b))
    s.parallel("C.i.0")
    assert s.show().startswith("""\
function mm(A: float32[4, 6], B: float32[6, 8], out C: float32[4, 8])
  for C.i.0 in 0 .. 2 parallel
    for C.j.0 in 0 .. 2
      for C.k.0 in 0 .. 2
        block C_o
          spatial i: 2 = C.i.0
          spatial j: 2 = C.j.0
          reduce k: 2 = C.k.0
          init
            for C_o_init.i.1_j.1 in 0 .. 8 vectorized
              block C_init
                spatial i_i: 2 = C_o_init.i.1_j.1 // 4
                spatial j_i: 4 = C_o_init.i.1_j.1 % 4
                C[i * 2 + i_i, j * 4 + j_i] = float32(0.0)
          for C.k.1 in 0 .. 3
            for C.i.1 in 0 .. 2 parallel
              for C.j.1.0 in 0 .. 2 unrolled
                for C.j.1.1 in 0 .. 2 vectorized
                  block C
                    spatial i_i: 2 = C.i.1
                    spatial j_i: 4 = C.j.1.0 * 2 + C.j.1.1
                    reduce k_i: 3 = C.k.1
                    C[i * 2 + i_i, j * 4 + j_i] = C[i * 2 + i_i, j * 4 + j_i] + A[""")
    assert_kept(s)


@pytest.mark.parametrize("tail", ["auto", "guard", "mask"])
def test_tails_in_a_block(tail):
    s = tiled()
    _, k, j = s.loops("C")
    j0, j1 = s.split(j, (None, 3), tail=tail)
    s.vectorize(j1)
    s.split(k, (None, 2), tail=tail)
    assert_kept(s)
    s.reorder(j0, "C.k.1.0")
    assert_kept(s)


def test_steps_around_the_block_after_steps_in_it():
    s = tiled()
    s.vectorize("C.j.1")
    s.decompose_reduction("C_o", "C.k.0")
    s.vectorize("C_o_init.j.1")
    s.reorder("C.j.0", "C.i.0")
    s.loop_partition("C.j.0", (1, 1))
    assert {str(block) for block in s.blocks()} >= {"C_o_1", "C_o"}
    s.unroll(s.loops(s.child_blocks("C_o_1")[0])[0])
    assert_kept(s)


def test_blocks_in_blocks_in_blocks():
    s = tiled()
    inner = s.blockize("C.k.1")
    assert inner.name == "C_o_1"
    s.vectorize("C.j.1")
    s.split("C.k.1", (3, 1))
    s.reorder("C.j.0", "C.i.0")
    assert [str(loop) for loop in s.loops("C")] == ["C.k.1.0", "C.k.1.1", "C.j.1"]
    assert [str(loop) for loop in s.loops(inner)] == ["C.i.1"]
    assert_kept(s)


def test_a_tile_in_a_block_becomes_an_intrinsic():
    s = tiled()
    s.tensorize("C.j.1", "axpy.4.float32")
    assert 'tensorize = "axpy.4.float32"' in s.show()
    assert_kept(s)
    assert refused(s, "unroll", "C.j.1") == (
        "unroll: 'C.j.1' lies in block 'C_o_1', which is tensorized and stays what its intrinsic does; "
        "make the step before"
    )


def test_what_there_is_in_a_block():
    s = tiled()
    assert [str(block) for block in s.blocks()] == ["C_o"]
    assert [str(block) for block in s.child_blocks("C_o")] == ["C_init", "C"]
    assert [str(block) for block in s.output_blocks("C_o")] == ["C"]
    assert [str(loop) for loop in s.loops("C")] == ["C.i.1", "C.k.1", "C.j.1"]
    assert s.extent("C.k.1") == 3 and s.producers("C") == s.consumers("C") == []


def test_that_tiles_are_reduced_holds_for_points_in_them():
    """C.j.1 alone in the block: its instances still add up, so none may run again."""
    s = Schedule(parse(MATMUL))
    s.reorder("C.k", "C.i", "C.j")
    s.blockize("C.j")
    assert "reduce k_i: 1 = 0" in s.show()
    assert refused(s, "split", "C.j", (None, 3), "shift") == (
        "split(loop 'C.j'): tail 'shift': block 'C' below reduces or updates, so that no point may run again"
    )
    s.split("C.j", (None, 3))
    assert_kept(s)


def test_order_stays_in_a_block():
    s = Schedule(parse(SCAN))
    s.split("C.i", (None, 4))
    s.blockize("C.i.1")
    refusal = refused(s, "parallel", "C.i.1")
    assert refusal.startswith("parallel(loop 'C.i.1'): iterator 'i_i' of block 'C', which is ordered, is bound to it")
    s.reorder("C.j", "C.i.1")
    s.vectorize("C.j")
    assert_kept(s)


def test_what_reduces_in_a_block_is_no_task():
    s = tiled()
    assert refused(s, "parallel", "C.k.1") == (
        "parallel(loop 'C.k.1'): iterator 'k_i' of block 'C', which reduces, is bound to it; "
        "its iterations depend on one another"
    )


def test_kinds_of_loops_reach_across_blocks():
    s = tiled()
    s.vectorize("C.j.0")
    for step in ("vectorize", "parallel"):
        kind = "vectorized" if step == "vectorize" else "parallel"
        assert refused(s, step, "C.j.1") == (
            f"{step}: loop 'C.j.1', which is {kind}, would lie in the vectorized 'C.j.0'"
        )
    assert refused(s, "bind", "C.j.1", "threadIdx.x") == (
        "bind: loop 'C.j.1', which is bound to threadIdx.x, would lie in the vectorized 'C.j.0'"
    )
    s = tiled()
    s.vectorize("C.j.1")
    assert refused(s, "vectorize", "C.j.0") == (
        "vectorize(loop 'C.j.0'): loop 'C.j.1' around or in it is vectorized"
    )


def test_thread_axes_reach_across_blocks():
    s = tiled()
    s.bind("C.i.0", "threadIdx.y")
    assert refused(s, "bind", "C.i.1", "threadIdx.y") == (
        "bind: loop 'C.i.0' around it is bound to that axis, which has one index"
    )
    s.bind("C.i.1", "threadIdx.x")
    assert refused(s, "bind", "C_o_init.j.1", "threadIdx.x") == (
        "bind: loop 'C.i.1' of the same kernel has another extent on that axis; "
        "a kernel starts with one number of threads"
    )
    assert_kept(s)


def test_a_step_stays_in_one_block():
    s = tiled()
    assert refused(s, "reorder", "C.j.1", "C.j.0") == (
        "reorder: 'C.j.0' lies outside all blocks and the step is in block 'C_o'; a step stays in one block"
    )
    assert refused(s, "reorder", "C.j.0", "C.j.1") == (
        "reorder: 'C.j.1' lies in block 'C_o' and the step is outside all blocks; a step stays in one block"
    )
    assert refused(s, "split", "C.j.7", (2, 2)).startswith("no loop is named 'C.j.7'")


def test_copies_in_a_block_are_of_what_an_instance_reads():
    s = tiled()
    copy = s.cache_read("C", "A")
    s.parallel("C.i.0")
    text = s.show()
    assert """\
          alloc A_global: float32[4, 6]
            for A_global.ax0 in 0 .. 2
              for A_global.ax1 in 0 .. 3
                block A_global
""" in text
    assert "A_global[i * 2 + i_i, k * 3 + k_i] * B[" in text
    assert_kept(s)
    s.compute_at(s.cache_read("C", "B"), "C.k.1")
    s.unroll(s.loops(copy)[0])
    s.transform_layout(copy, "A_global", lambda i, k: (k, i))
    assert [str(loop) for loop in s.loops("B_global")] == ["C.i.1", "C.k.1", "B_global.ax0", "B_global.ax1"]
    assert_kept(s)
    flat = build(s, cache=False).source("flat")
    assert "alloc A_global: float32[3, 2] @local" in flat  # as large as what an instance needs


def test_blocks_with_buffers_are_copied_with_them():
    s = tiled()
    s.cache_read("C", "A")
    s.loop_partition("C.j.0", (1, 1))
    assert "alloc A_global_1: float32[4, 6]" in s.show() and "alloc A_global: float32[4, 6]" in s.show()
    assert_kept(s)


def test_results_in_a_block_are_gathered_first():
    s = Schedule(parse("""
function pair(A: float32[16], out C: float32[16])
  for C.i in 0 .. 16
    block C
      spatial i: 16 = C.i
      C[i] = A[i] * float32(2.0)
"""))
    _, inner = s.split("C.i", (None, 8))
    s.blockize(inner)
    out = s.cache_write("C", "local")
    s.vectorize(inner)
    s.parallel("C.i.0")
    s.vectorize(s.loops(out)[0])
    assert_kept(s)


def test_buffers_of_a_block_do_not_go_into_lanes():
    for first in (True, False):
        s = tiled()
        if first:
            s.vectorize("C.j.0")
            refusal = refused(s, "cache_read", "C", "A")
        else:
            s.cache_read("C", "A")
            refusal = refused(s, "vectorize", "C.j.0")
        step = "cache_read" if first else "vectorize"
        assert refusal == f"{step}: a buffer of block 'C_o' would lie in loop 'C.j.0', which is vectorized"


def test_what_other_instances_write_is_not_copied():
    s = Schedule(parse("""
function stages(A: float32[16], out B: float32[16], out C: float32[16])
  for i in 0 .. 2
    block X
      spatial v: 2 = i
      for B.i in 0 .. 8
        block B
          spatial w: 8 = B.i
          B[v * 8 + w] = A[v * 8 + w]
      for C.i in 0 .. 4
        block C
          spatial w: 4 = C.i
          C[v * 8 + w * 2] = B[v * 8 + w * 2]
      for D.i in 0 .. 4
        block D
          spatial w: 4 = D.i
          C[v * 8 + w * 2 + 1] = B[v * 8 + w * 2 + 1]
"""))
    assert refused(s, "cache_read", "C", "B") == (
        "cache_read: block 'X' would read 'B', which the function writes, at other places"
    )
    assert refused(s, "cache_write", "C").startswith("cache_write(block 'C'): ")


def test_steps_that_are_not_made_in_a_block():
    s = tiled()
    assert refused(s, "rfactor", "C.k.1") == (
        "rfactor: 'C.k.1' lies in block 'C_o', where this step is not made; make it before blockize does the block"
    )
    assert refused(s, "cache_write", "C") == "cache_write(block 'C'): 'C' starts from what 'C' holds already"
    assert refused(s, "cache_write", "C_init") == (
        "cache_write: the start of block 'C_o' has no buffers of its own; decompose_reduction makes it a block"
    )


def test_a_block_by_hand_that_does_more_than_run_blocks():
    s = Schedule(parse("""
function steps(A: float32[8], out C: float32[8])
  for io in 0 .. 2
    block X
      spatial i: 2 = io
      for ii in 0 .. 4
        C[i * 4 + ii] = A[i * 4 + ii]
"""))
    assert refused(s, "unroll", "ii") == (
        "unroll: 'ii' lies in block 'X', which does more than run blocks, by store statements of its own"
    )


def test_parts_of_domains():
    """A block by hand whose iterator goes on where that of the block around it ends: a tile of it is a domain."""
    text = """
function parts(A: float32[12], out C: float32[12])
  for io in 0 .. 3
    block X
      spatial v: 3 = io
      for x in 0 .. 4
        block B
          spatial i: 12 = v * 4 + x
          C[i] = A[i] * float32(2.0)
"""
    s = Schedule(parse(text))
    s.split("x", (2, 2))
    assert "spatial i: 4 = x.0 * 2 + x.1" in s.show()
    assert_same(s.origin, s.function)
    s = Schedule(parse(text.replace("v * 4 + x", "v * 4 + (3 - x)")))
    assert refused(s, "split", "x", (2, 2)) == (
        "a step in block 'X': iterator 'i' of block 'B' runs over a part of its domain there, "
        "which is not known as a tile"
    )


def test_a_start_over_nothing_has_names_of_its_own():
    s = Schedule(parse("""
function sums(A: float32[8, K], out C: float32[8])
  for C.k in 0 .. K
    for C.i in 0 .. 8
      block C
        spatial i: 8 = C.i
        reduce k: K = C.k
        init
          C[i] = float32(0.0)
        C[i] = C[i] + A[i, k]
"""))
    s.blockize("C.i")
    s.vectorize("C.i")
    s.vectorize("C_o_init.i")
    for extent in (0, 3):
        assert_same(s.origin, s.function, K=extent)
    s.decompose_reduction("C_o", "C.k")
    for extent in (0, 3):
        assert_same(s.origin, s.function, K=extent)
