"""rolling_buffer: sliding windows."""

from __future__ import annotations

import pytest

from tensorc.build import build
from tensorc.errors import ScheduleError
from tensorc.ir.interpreter import interpret
from tensorc.ir.parser import parse
from tensorc.ir.printer import show
from tensorc.schedule import Schedule, Trace
from tensorc.schedule.primitives.inlining import compute_inline
from tensorc.schedule.primitives.loops import split
from tensorc.schedule.primitives.placement import compute_at
from tensorc.schedule.primitives.rolling import rolling_buffer
from tests.schedule.same import assert_same, inputs
from tests.schedule.test_reindexing import refusal

BLUR = """
function blur(A: float32[10, 8], out C: float32[8, 8])
  alloc T: float32[10, 8]
  for T.i in 0 .. 10
    for T.j in 0 .. 8
      block T
        spatial i: 10 = T.i
        spatial j: 8 = T.j
        T[i, j] = A[i, j] * float32(2.0)
  for C.i in 0 .. 8
    for C.j in 0 .. 8
      block C
        spatial i: 8 = C.i
        spatial j: 8 = C.j
        C[i, j] = T[i, j] + T[i + 1, j] + T[i + 2, j]
"""


def test_only_new_rows_are_computed():
    before = parse(BLUR)
    after = rolling_buffer(compute_at(before, "T", "C.i"), "T", "T")
    assert (
        show(after)
        == """\
function blur(A: float32[10, 8], out C: float32[8, 8])
  alloc T: float32[3, 8]
  for C.i in 0 .. 8
    for T.i in 0 .. 3
      for T.j in 0 .. 8
        block T
          spatial i: 10 = C.i + T.i
          spatial j: 8 = T.j
          where C.i == 0 or T.i >= 2
          T[i % 3, j] = A[i, j] * float32(2.0)
    for C.j in 0 .. 8
      block C
        spatial i: 8 = C.i
        spatial j: 8 = C.j
        C[i, j] = T[i % 3, j] + T[(i + 1) % 3, j] + T[(i + 2) % 3, j]"""
    )
    assert_same(before, after)


@pytest.mark.parametrize("tail", ["cut", "guard"])
def test_in_tiles_with_vectors_and_threads(tail):
    s = Schedule(parse(BLUR))
    i, _ = s.loops("C")
    i0, i1 = s.split(i, (None, 3), tail=tail)
    s.parallel(i0)
    s.compute_at("T", i1)
    s.vectorize("T.j")
    s.rolling_buffer("T", "T")
    s.vectorize("C.j")
    assert_same(s.origin, s.function)
    arrays = inputs(s.origin, {})
    assert (build(s, cache=False)(*arrays) == interpret(s.origin, *arrays)).all()
    assert 's.rolling_buffer("T", "T")' in s.trace.python()
    assert Trace.from_json(s.trace.json()).apply(Schedule(parse(BLUR))).show() == s.show()


def test_steps_of_two_and_reductions():
    text = """
function pool(A: float32[9, 4], out C: float32[4])
  alloc T: float32[9]
  for T.i in 0 .. 9
    for T.k in 0 .. 4
      block T
        spatial i: 9 = T.i
        reduce k: 4 = T.k
        init
          T[i] = float32(0.0)
        T[i] = T[i] + A[i, k]
  for C.i in 0 .. 4
    block C
      spatial i: 4 = C.i
      C[i] = max(max(T[i * 2], T[i * 2 + 1]), T[i * 2 + 2])
"""
    before = parse(text)
    after = rolling_buffer(compute_at(before, "T", "C.i"), "T", "T")
    assert "where C.i == 0 or T.i >= 1" in show(after)
    assert "alloc T: float32[3]" in show(after)
    assert_same(before, after)


def test_a_chain_of_stencils():
    text = """
function twice(A: float32[14], out C: float32[10])
  alloc T: float32[14]
  alloc U: float32[12]
  for T.i in 0 .. 14
    block T
      spatial i: 14 = T.i
      T[i] = A[i] + float32(1.0)
  for U.i in 0 .. 12
    block U
      spatial i: 12 = U.i
      U[i] = T[i] + T[i + 1] + T[i + 2]
  for C.i in 0 .. 10
    block C
      spatial i: 10 = C.i
      C[i] = U[i] + U[i + 1] + U[i + 2]
"""
    s = Schedule(parse(text))
    s.compute_at("U", "C.i")
    s.compute_at("T", "C.i")
    s.rolling_buffer("U", "U")
    s.rolling_buffer("T", "T")
    assert "alloc T: float32[5]" in s.show() and "alloc U: float32[3]" in s.show()
    assert_same(s.origin, s.function)


def test_a_window_does_not_move_on():
    function = rolling_buffer(compute_at(parse(BLUR), "T", "C.i"), "T", "T")
    assert refusal(compute_at, function, "T", "C.j") == (
        "compute_at(block 'T', loop 'C.j'): different points of the block may be one place of 'T', "
        "as in a window"
    )


def test_refusals():
    blur = parse(BLUR)
    step = "rolling_buffer(block 'T', buffer 'T'): "
    assert refusal(rolling_buffer, blur, "T", "T") == (
        step + "no loop is around both the block and all that reads 'T'; "
        "put it there with compute_at"
    )
    assert refusal(rolling_buffer, blur, "T", "A") == (
        "rolling_buffer(block 'T', buffer 'A'): the block does not write that buffer; it writes 'T'"
    )
    assert refusal(rolling_buffer, blur, "C", "C") == (
        "rolling_buffer(block 'C', buffer 'C'): it is an output, whose elements must all be kept"
    )
    s = Schedule(blur)
    s.parallel("C.i")
    s.compute_at("T", "C.i")
    assert refusal(rolling_buffer, s.function, "T", "T") == (
        step + "loop 'C.i' is parallel; its iterations must run in order"
    )
    apart = parse(BLUR.replace("T[i + 1, j] + T[i + 2, j]", "T[i, 7 - j]"))
    assert refusal(rolling_buffer, compute_at(apart, "T", "C.i"), "T", "T") == (
        step + "'i' is not of the form C.i * step + another loop"
    )
    columns = parse(BLUR.replace("T[i + 1, j] + T[i + 2, j]", "T[i, j]"))
    assert refusal(rolling_buffer, compute_at(columns, "T", "C.j"), "T", "T") == (
        step + "'j' is not of the form C.j * step + another loop"
    )


@pytest.mark.parametrize("pace", [1, 2, 3])
@pytest.mark.parametrize("taps", [2, 3, 5])
@pytest.mark.parametrize("factor", [None, 2, 3, 7])
def test_against_the_interpreter(pace, taps, factor):
    size = 6 * pace + taps
    reads = " + ".join(f"T[i * {pace} + {tap}]" for tap in range(taps))
    before = parse(f"""
function slide(A: float32[{size}], out C: float32[7])
  alloc T: float32[{size}]
  for T.i in 0 .. {size}
    block T
      spatial i: {size} = T.i
      T[i] = A[i] + float32(1.0)
  for C.i in 0 .. 7
    block C
      spatial i: 7 = C.i
      C[i] = {reads}
""")
    s = Schedule(before)
    loop = "C.i"
    if factor is not None:
        loop = s.split("C.i", (None, factor), tail="cut")[1]
    s.compute_at("T", loop)
    if pace > 1 and taps > pace and factor in (2, 3):
        assert "predicate is not the same" in refusal(rolling_buffer, s.function, "T", "T")
    elif taps > pace:
        s.rolling_buffer("T", "T")
        assert f"alloc T: float32[{taps}]" in s.show()
    else:
        assert "do not overlap" in refusal(rolling_buffer, s.function, "T", "T")
    assert_same(before, s.function)
    arrays = inputs(before, {})
    assert (build(s, cache=False)(*arrays) == interpret(before, *arrays)).all()


def test_what_a_window_holds_is_read_in_its_loop():
    """A row of the window is used again for another one: no reader may run after the loop."""
    text = BLUR.replace("out C: float32[8, 8])", "out D: float32[4, 8])\n  alloc C: float32[8, 8]")
    chain = parse(
        text
        + """\
  for D.i in 0 .. 4
    for D.j in 0 .. 8
      block D
        spatial i: 4 = D.i
        spatial j: 8 = D.j
        D[i, j] = C[i * 2, j]
"""
    )
    rolled = rolling_buffer(compute_at(chain, "T", "C.i"), "T", "T")
    assert_same(chain, rolled)
    reason = "it reads 'T', whose places 'T' uses again in later iterations"
    for step in (lambda f: compute_inline(f, "C"), lambda f: compute_at(f, "C", "D.i")):
        with pytest.raises(ScheduleError, match=reason):
            step(rolled)
    whole = compute_at(chain, "T", "C.i")  # a window that is not rolled keeps its rows
    assert_same(chain, compute_inline(whole, "C"))


def test_the_iterations_of_a_window_do_not_run_again():
    rolled = rolling_buffer(compute_at(parse(BLUR), "T", "C.i"), "T", "T")
    with pytest.raises(ScheduleError) as caught:
        split(rolled, "C.i", (None, 3), "shift")
    assert str(caught.value) == (
        "split(loop 'C.i'): tail 'shift': 'T' uses places of 'T' again, so that no iteration may run "
        "again"
    )
    split(compute_at(parse(BLUR), "T", "C.i"), "C.i", (None, 3), "shift")


def test_a_window_of_an_outer_loop():
    """In C.j nothing overlaps: rows are kept from one iteration of C.i to the next, columns all."""
    before = compute_at(parse(BLUR), "T", "C.j")
    after = rolling_buffer(before, "T", "T")
    assert (
        show(after)
        == """\
function blur(A: float32[10, 8], out C: float32[8, 8])
  alloc T: float32[3, 8]
  for C.i in 0 .. 8
    for C.j in 0 .. 8
      for T.i in 0 .. 3
        block T
          spatial i: 10 = C.i + T.i
          spatial j: 8 = C.j
          where C.i == 0 or T.i >= 2
          T[i % 3, j] = A[i, j] * float32(2.0)
      block C
        spatial i: 8 = C.i
        spatial j: 8 = C.j
        C[i, j] = T[i % 3, j] + T[(i + 1) % 3, j] + T[(i + 2) % 3, j]"""
    )
    assert_same(before, after)
    lanes = Schedule(parse(BLUR))
    lanes.parallel("C.j")
    lanes.compute_at("T", "C.j")
    assert refusal(rolling_buffer, lanes.function, "T", "T").endswith("must run in order")


@pytest.mark.parametrize("tiles", [(4, 4), (3, 4), (4, 3), (3, 8), (8, 3), (5, 5)])
@pytest.mark.parametrize("taps", [(2, 2), (2, 0), (0, 2), (3, 1)])
def test_windows_of_tiles_in_two_dimensions(tiles, taps):
    rows, columns = 8 + taps[0], 8 + taps[1]
    reads = " + ".join(
        f"T[i + {y}, j + {x}]" for y in range(taps[0] + 1) for x in range(taps[1] + 1)
    )
    s = Schedule(
        parse(f"""
function blur(A: float32[{rows}, {columns}], out C: float32[8, 8])
  alloc T: float32[{rows}, {columns}]
  for T.i in 0 .. {rows}
    for T.j in 0 .. {columns}
      block T
        spatial i: {rows} = T.i
        spatial j: {columns} = T.j
        T[i, j] = A[i, j] * float32(2.0)
  for C.i in 0 .. 8
    for C.j in 0 .. 8
      block C
        spatial i: 8 = C.i
        spatial j: 8 = C.j
        C[i, j] = {reads}
""")
    )
    before = s.function
    i0, i1 = s.split("C.i", (None, tiles[0]), tail="mask")
    j0, j1 = s.split("C.j", (None, tiles[1]), tail="mask")
    s.reorder(i0, j0, i1, j1)
    s.compute_at("T", j0)
    if not any(taps[axis] and tiles[axis] < 8 for axis in (0, 1)):
        assert "do not overlap" in refusal(rolling_buffer, s.function, "T", "T")
        return
    s.rolling_buffer("T", "T")
    assert_same(before, s.function)


@pytest.mark.parametrize(("scale", "tile"), [(2, 5), (2, 3), (3, 4), (3, 7)])
def test_a_window_that_moves_unevenly(scale, tile):
    count, size = -(-24 // tile), (tile - 1) // scale + 4
    rows = (24 - 1) // scale + 3
    before = parse(f"""
function upscale(A: float32[{rows}], out C: float32[24])
  alloc B: float32[{rows}]
  for io in 0 .. {count}
    for r in 0 .. {size}
      block B
        spatial i: {rows} = io * {tile} // {scale} + r
        where io * {tile} // {scale} + r < {rows}
        B[i] = A[i] * float32(2.0)
    for ii in 0 .. {tile}
      block C
        spatial i: 24 = io * {tile} + ii
        where io * {tile} + ii < 24
        C[i] = B[i // {scale}] + B[i // {scale} + 2]
""")
    after = rolling_buffer(before, "B", "B")
    assert f"where (io == 0 or r >= {size - -(-tile // scale)})" in show(after)
    assert f"alloc B: float32[{size}]" in show(after)
    assert_same(before, after)
    backward = parse(show(before).replace(f"io * {tile} // {scale} + r", f"({count} - io) * {tile} // {scale} + r"))
    assert refusal(rolling_buffer, backward, "B", "B").endswith("not of the form io * step + another loop")
