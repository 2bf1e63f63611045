"""transform_layout: another layout of an internal buffer, everywhere at once."""

from __future__ import annotations

import pytest

from tensorc.arith import IndexMap
from tensorc.errors import ScheduleError
from tensorc.ir.expr import Var
from tensorc.ir.parser import parse
from tensorc.ir.printer import show
from tensorc.schedule.primitives.layout import transform_layout
from tests.schedule.same import assert_same

COPY = """
function mm(A: float32[4, 6], B: float32[6, 10], out C: float32[4, 10])
  alloc P: float32[6, 10]
  for P.k in 0 .. 6
    for P.j in 0 .. 10
      block P
        spatial k: 6 = P.k
        spatial j: 10 = P.j
        P[k, j] = B[k, j]
  for C.i in 0 .. 4
    for C.j in 0 .. 10
      for C.k in 0 .. 6
        block C
          spatial i: 4 = C.i
          spatial j: 10 = C.j
          reduce k: 6 = C.k
          init
            C[i, j] = float32(0.0)
          C[i, j] = C[i, j] + A[i, k] * P[k, j]
"""

SYMBOLIC = """
function copy(A: float32[n, m], out C: float32[n, m])
  alloc P: float32[n, m]
  for P.i in 0 .. n
    for P.j in 0 .. m
      block P
        spatial i: n = P.i
        spatial j: m = P.j
        P[i, j] = A[i, j] + float32(1.0)
  for C.i in 0 .. n
    for C.j in 0 .. m
      block C
        spatial i: n = C.i
        spatial j: m = C.j
        C[i, j] = P[i, j]
"""


def test_panels_with_a_partial_last_one():
    before = parse(COPY)
    after = transform_layout(before, "P", "P", lambda k, j: (j // 4, k, j % 4))
    assert (
        show(after)
        == """\
function mm(A: float32[4, 6], B: float32[6, 10], out C: float32[4, 10])
  alloc P: float32[3, 6, 4]
  for P.k in 0 .. 6
    for P.j in 0 .. 10
      block P
        spatial k: 6 = P.k
        spatial j: 10 = P.j
        P[j // 4, k, j % 4] = B[k, j]
  for C.i in 0 .. 4
    for C.j in 0 .. 10
      for C.k in 0 .. 6
        block C
          spatial i: 4 = C.i
          spatial j: 10 = C.j
          reduce k: 6 = C.k
          init
            C[i, j] = float32(0.0)
          C[i, j] = C[i, j] + A[i, k] * P[j // 4, k, j % 4]"""
    )
    assert_same(before, after)


def test_any_block_that_touches_it_may_be_named_and_maps_combine():
    before = parse(COPY)
    once = transform_layout(before, "C", "P", lambda k, j: (j, k))
    twice = transform_layout(once, "P", "P", lambda j, k: (j * 6 + k,))
    assert "alloc P: float32[60]" in show(twice)
    assert_same(before, twice)


def test_a_map_given_as_such():
    before = parse(COPY)
    a, b = Var("a"), Var("b")
    after = transform_layout(before, "P", "P", IndexMap((a, b), (b % 2, a, b // 2)))
    assert "alloc P: float32[2, 6, 5]" in show(after)
    assert_same(before, after)


def test_an_offset_and_a_reversal():
    before = parse(COPY)
    after = transform_layout(before, "P", "P", lambda k, j: (5 - k, j + 2))
    assert "alloc P: float32[6, 12]" in show(after)
    assert_same(before, after)


def test_symbolic_extents():
    before = parse(SYMBOLIC)
    after = transform_layout(before, "P", "P", lambda i, j: (j // 4, i, j % 4))
    for n, m in ((3, 8), (2, 5), (1, 1), (0, 3)):
        assert_same(before, after, n=n, m=m)


def refusal(text: str, *args) -> str:
    with pytest.raises(ScheduleError) as caught:
        transform_layout(parse(text), *args)
    return str(caught.value)


def test_refuses_parameters():
    reason = "it is a parameter, whose layout the caller decides; cache it first with"
    for buffer, fix in (("A", "cache_read"), ("C", "cache_write")):
        assert refusal(COPY, "C", buffer, lambda i, j: (j, i)) == (
            f"transform_layout(block 'C', buffer {buffer!r}): {reason} {fix}"
        )


def test_refuses_a_buffer_that_the_block_does_not_touch():
    assert refusal(COPY, "P", "A", lambda i, j: (j, i)) == (
        "transform_layout(block 'P', buffer 'A'): the block does not touch that buffer; "
        "it touches 'P', 'B'"
    )


def test_refuses_maps_that_do_not_fit():
    step = "transform_layout(block 'P', buffer 'P'): "
    assert refusal(COPY, "P", "P", lambda k, j: (k, j // 4)) == step + (
        "the map may send several elements of the shape (6, 10) to one place"
    )
    a = Var("a")
    assert (
        refusal(COPY, "P", "P", IndexMap((a,), (a,)))
        == step + "the map takes 1 indices, the buffer has 2"
    )
    assert refusal(COPY, "P", "P", lambda k, j: (k - 1, j)) == step + (
        "index 0 of the new layout, k - 1, may be negative or has no bound"
    )
    for odd in (lambda k: k, lambda k, j: "x", 3):
        assert refusal(COPY, "P", "P", odd).startswith(
            step + "the map does not take 2 indices to indices: "
        )


def test_a_pad_value_fills_the_places_that_hold_nothing():
    before = parse(COPY)
    after = transform_layout(before, "P", "P", lambda k, j: (j // 4, k, j % 4), pad_value=0)
    assert show(after).startswith("""\
function mm(A: float32[4, 6], B: float32[6, 10], out C: float32[4, 10])
  alloc P: float32[3, 6, 4]
  for P_pad.ax0 in 0 .. 3
    for P_pad.ax1 in 0 .. 6
      for P_pad.ax2 in 0 .. 4
        block P_pad
          spatial ax0: 3 = P_pad.ax0
          spatial ax1: 6 = P_pad.ax1
          spatial ax2: 4 = P_pad.ax2
          if ax0 * 4 + ax2 >= 10
            P[ax0, ax1, ax2] = float32(0.0)
""")
    assert_same(before, after)
    exact = transform_layout(before, "P", "P", lambda k, j: (j // 5, k, j % 5), pad_value=0)
    assert "P_pad" not in show(exact)


def test_a_pad_value_that_does_not_fit_is_refused():
    before = parse(COPY.replace("float32(0.0)", "int8(0)").replace("float32", "int8"))
    with pytest.raises(ScheduleError, match="pad_value: "):
        transform_layout(before, "P", "P", lambda k, j: (j // 4, k, j % 4), pad_value=300)
