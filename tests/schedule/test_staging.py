"""stage: a copy of a window of a buffer for a loop or a block."""

from __future__ import annotations

import pytest

from tensorc.errors import ScheduleError
from tensorc.ir.parser import parse
from tensorc.ir.printer import show
from tensorc.schedule import Schedule, Trace
from tensorc.schedule.primitives.loops import parallel, split, vectorize
from tensorc.schedule.primitives.staging import stage
from tests.schedule.same import assert_same
from tests.schedule.test_caching import MATMUL
from tests.schedule.test_reindexing import refusal

BLUR = """
function blur(A: float32[14], out C: float32[12])
  for C.i in 0 .. 12
    block C
      spatial i: 12 = C.i
      C[i] = A[i] + A[i + 1] + A[i + 2]
"""


def tiled() -> Schedule:
    s = Schedule(parse(MATMUL))
    i, j, k = s.loops("C")
    j0, j1 = s.split(j, (None, 3))
    k0, k1 = s.split(k, (None, 2))
    s.reorder(i, j0, k0, k1, j1)
    return s


def test_a_window_is_read_once():
    before, _ = split(parse(BLUR), "C.i", (None, 4))
    after, made = stage(before, "C.i.1", "A", "A[C.i.0 * 4 : C.i.0 * 4 + 6]")
    assert made == ("A_stage",)
    assert (
        show(after)
        == """\
function blur(A: float32[14], out C: float32[12])
  alloc A_stage: float32[14]
  for C.i.0 in 0 .. 3
    for A_stage.ax0 in 0 .. 6
      block A_stage
        spatial ax0: 14 = C.i.0 * 4 + A_stage.ax0
        A_stage[ax0] = A[ax0]
    for C.i.1 in 0 .. 4
      block C
        spatial i: 12 = C.i.0 * 4 + C.i.1
        C[i] = A_stage[i] + A_stage[i + 1] + A_stage[i + 2]"""
    )
    assert_same(before, after)
    assert show(stage(before, "C.i.1", "A")[0]) == show(after)


def test_results_are_written_back():
    before = tiled().function
    after, made = stage(before, "C.k.0", "C", scope="local")
    assert made == ("C_stage_out",)
    assert "alloc C_stage: float32[4, 5] @local" in show(after)
    assert show(after).endswith("""\
              C_stage[i, j] = C_stage[i, j] + A[i, k] * B[k, j]
      for C_stage_out.ax1 in 0 .. 3 {tail = "mask"}
        block C_stage_out
          spatial ax0: 4 = C.i
          spatial ax1: 5 = C.j.0 * 3 + C_stage_out.ax1
          where C.j.0 * 3 + C_stage_out.ax1 < 5
          C[ax0, ax1] = C_stage[ax0, ax1]""")
    assert_same(before, after)


def test_what_is_updated_is_copied_in_and_out():
    s = tiled()
    s.decompose_reduction("C", "C.k.0")
    names = [block.name for block in s.stage("C.k.1", "C")]
    assert names == ["C_stage", "C_stage_out"]
    names = [block.name for block in s.stage("C.k.1", "B", "B[C.k.0*2 : C.k.0*2 + 2, :]")]
    assert names == ["B_stage"]
    s.stage("C", "A", "A[C.i, 0:6]")
    s.vectorize(s.loops("B_stage")[-1])
    assert_same(s.origin, s.function)
    assert s.trace.python().splitlines()[-4:] == [
        'C_stage, C_stage_out = s.stage(k1, "C")',
        '(B_stage,) = s.stage(k1, "B", window="B[C.k.0*2 : C.k.0*2 + 2, :]")',
        '(A_stage,) = s.stage("C", "A", window="A[C.i, 0:6]")',
        's.vectorize("B_stage.ax1")',
    ]
    again = Trace.from_json(s.trace.json()).apply(Schedule(parse(MATMUL)))
    assert again.show() == s.show()


def test_internal_buffers_and_parallel_loops():
    text = """
function two(A: float32[8, 8], out D: float32[8, 8])
  alloc B: float32[8, 8]
  for B.i in 0 .. 8
    for B.j in 0 .. 8
      block B
        spatial i: 8 = B.i
        spatial j: 8 = B.j
        B[i, j] = A[i, j] + float32(1.0)
  for D.i in 0 .. 8
    for D.j in 0 .. 8
      block D
        spatial i: 8 = D.i
        spatial j: 8 = D.j
        D[i, j] = B[j, i]
"""
    before = parse(text)
    after, _ = stage(parallel(before, "D.i"), "D.j", "B", "B[:, D.i]")
    after, _ = stage(after, "D.j", "D")
    after, made = stage(after, "B.i", "B", mode="out")
    assert made == ("B_stage_1_out",)
    assert_same(before, after)


@pytest.mark.parametrize("n", [0, 1, 7, 9])
def test_symbolic_tails(n):
    before = parse(BLUR.replace("14", "n").replace("12", "n").replace("A[i + 2]", "A[i // 2]")
                   .replace("A[i + 1]", "A[max(i - 1, 0)]"))  # fmt: skip
    function, _ = split(before, "C.i", (None, 4))
    after, _ = stage(function, "C.i.1", "A")
    after, _ = stage(after, "C.i.1", "C")
    assert_same(before, after, n=n)


def test_refusals():
    blur = parse(BLUR)
    tile, _ = split(blur, "C.i", (None, 4))
    step = "stage('C.i.1', buffer 'A'): "
    assert refusal(stage, tile, "C.i.1", "X") == (
        "stage('C.i.1', buffer 'X'): nothing there touches that buffer; it touches 'C', 'A'"
    )
    assert refusal(stage, tile, "C.i.1", "A", "A[0:4, 0:4]") == (
        step + "the window 'A[0:4, 0:4]' is not of the form A[first : end]"
    )
    assert refusal(stage, tile, "C.i.1", "A", "A[C.i.1 : C.i.1 + 4]") == (
        step + "the window 'A[C.i.1 : C.i.1 + 4]' is not over the loops around it: "
        "variable 'C.i.1' is not bound here"
    )
    assert refusal(stage, tile, "C.i.1", "A", "A[C.i.0 * 4 : C.i.0 * 4 + 5]") == (
        step + "it touches 'A' at the index C.i.0 * 4 + C.i.1 + 2, "
        "which is not known to lie in C.i.0 * 4 : C.i.0 * 4 + 5"
    )
    assert refusal(stage, tile, "C.i.1", "A", None, "around") == (
        step + "mode 'around' is unknown; known are auto, in, out, inout"
    )
    assert refusal(stage, tile, "C.i.1", "A", None, "out") == (
        step + "nothing there writes 'A'; mode 'in' copies it"
    )
    step = "stage('C.i.1', buffer 'C'): "
    assert refusal(stage, tile, "C.i.1", "C", None, "in") == (
        step + "it writes 'C', which must be written back: mode 'inout'"
    )
    assert refusal(stage, tile, "C.i.1", "C", "C[0:12]", "out") == (
        step + "not every element of the window is known to be written before it is read; "
        "mode 'inout' fills it first"
    )
    step = "stage('C.k.1', buffer 'C'): "
    assert refusal(stage, tiled().function, "C.k.1", "C") == (
        step + "not every element of the window of 'C' is known to be written before; "
        "decompose the reduction first"
    )
    lanes = vectorize(tile, "C.i.1")
    assert refusal(stage, lanes, "C", "A") == (
        "stage('C', buffer 'A'): it lies in the vectorized loop 'C.i.1'; stage before vectorizing"
    )


def test_what_is_written_under_a_condition_may_hold_nothing():
    s = Schedule(parse(MATMUL))
    copy = s.cache_read("C", "B")
    s.transform_layout(copy, copy.name, lambda k, j: (j // 4, k, j % 4), pad_value=0)
    step = f"stage('C.i', buffer '{copy.name}'): "
    assert refusal(stage, s.function, "C.i", copy.name, f"{copy.name}[:, :, :]") == (
        step + "not every element of the window of 'B_global' is known to be written before"
    )


def test_what_a_predicate_skips_is_not_written_back():
    s = Schedule(parse(BLUR))
    s.split("C.i", (None, 5))
    s.cache_write("C")
    s.reindex_cache_write("C", "C_global", "global", lambda i: (i // 5, i % 5))
    assert refusal(stage, s.function, "C", "C_global_global") == (
        "stage('C', buffer 'C_global_global'): not every element of the window of "
        "'C_global_global' is known to be written before"
    )


def test_parallel_iterations_must_stay_apart():
    before = parse("""
function rows(A: float32[4, 4], out C: float32[4, 4])
  for S.i in 0 .. 4
    for S.j in 0 .. 4
      block S
        spatial i: 4 = S.i
        spatial j: 4 = S.j
        C[i, j] = A[i, j]
  for C.i in 0 .. 4 parallel
    for C.j in 0 .. 4
      block C
        spatial i: 4 = C.i
        spatial j: 4 = C.j
        C[i, j] = C[i, j] * A[j, i]
""")
    after, _ = stage(before, "C.j", "C")
    assert_same(before, after)
    assert refusal(stage, before, "C.j", "C", "C[0:4, 0:4]") == (
        "stage('C.j', buffer 'C'): in parallel 'C.i', iterations of the loop may touch the same "
        "elements of buffer 'C', which block 'C_stage_out' writes"
    )


def test_a_loop_without_iterations_fills_no_window():
    function = parse("""
function none(A: float32[15], out C: float32[4])
  alloc T: float32[4, 4]
  for i in 0 .. 1
    for t in 0 .. 0
      block T
        spatial t_: 15 = 14
        T[t_ // 4, t_ % 4] = A[t_]
    block C
      spatial c: 4 = 0
      where false
      C[c] = T[3, 2]
""")
    with pytest.raises(ScheduleError, match="is known to be written before it is read"):
        stage(function, "i", "T", None, "out")
