"""Refusals of places that only other steps lead to: each is told by its sentence."""

from __future__ import annotations

import pytest

from tensorc.errors import ScheduleError
from tensorc.ir.parser import parse
from tensorc.schedule import Schedule

PAIR = """
function pair(A: float32[8, 6], out B: float32[8, 6], out C: float32[8, 6])
  alloc T: float32[8, 6]
  for T.i in 0 .. 8
    for T.j in 0 .. 6
      block T
        spatial i: 8 = T.i
        spatial j: 6 = T.j
        T[i, j] = A[i, j] * float32(2.0)
  for B.i in 0 .. 8
    for B.j in 0 .. 6
      block B
        spatial i: 8 = B.i
        spatial j: 6 = B.j
        B[i, j] = if_then_else(i < 4, T[i, j], float32(0.0))
  for C.i in 0 .. 8
    for C.j in 0 .. 6
      block C
        spatial i: 8 = C.i
        spatial j: 6 = C.j
        C[i, j] = B[7 - i, j] + T[i, j]
"""
SUM = """
function sum(A: float32[8, 6], out C: float32[8])
  for C.i in 0 .. 8
    for C.k in 0 .. 6
      block C
        spatial i: 8 = C.i
        reduce k: 6 = C.k
        init
          C[i] = float32(0.0)
        C[i] = C[i] + A[i, k]
"""


@pytest.mark.parametrize(
    ("text", "before", "step", "message"),
    [
        (
            PAIR, (), ("merge", (("T.i", "C.i"),)),
            "merge(loops 'T.i', 'C.i'): the nests cannot come together past what stands between: "
            "'B' and 'C' share buffer 'B'",
        ),
        (
            PAIR, (("merge", (("T.i", "B.i"),)),), ("merge", (("T.j", "C.j"),)),
            "merge(loops 'T.j', 'C.j'): 'T.j' is not the only child of the loops around it",
        ),
        (
            PAIR, (), ("transform_block_layout", ("T", "lambda i: (i,)")),
            "transform_block_layout(block 'T'): the map takes 1 indices, the block has 2 iterators",
        ),
        (
            PAIR, (), ("reverse_compute_inline", ("T",)),
            "reverse_compute_inline(block 'T'): it must read one internal buffer that one block "
            "writes and nothing else reads; there are none",
        ),
        (
            SUM, (("split", ("C.k", (2, 3))), ("vectorize", ("C.k.0",))),
            ("decompose_reduction", ("C", "C.k.1")),
            "decompose_reduction(block 'C', loop 'C.k.1'): it lies in the vectorized reduce loop "
            "'C.k.0'; choose that one",
        ),
        (
            SUM, (), ("storage_align", ("C", "A", 0, 4)),
            "storage_align(block 'C', buffer 'A'): it is a parameter, whose memory the caller gives; "
            "cache it first with cache_read",
        ),
        (
            SUM, (), ("substitute", ("C", "function f(n: int64, A: float32[8, 6], out C: float32[8])\n"
                                     "  pass\n", False)),
            "substitute(block 'C'): the replacement has scalar parameters",
        ),
    ],
)  # fmt: skip
def test_a_refusal(text, before, step, message):
    s = Schedule(parse(text))
    for primitive, args in before:
        s.perform(primitive, _whole(primitive, args))
    shown = s.show()
    with pytest.raises(ScheduleError) as caught:
        s.perform(step[0], _whole(*step))
    assert str(caught.value) == message
    assert s.show() == shown


def _whole(primitive, args):
    """The arguments with those that have defaults."""
    more = {"split": (3, "auto"), "storage_align": (5, 0)}
    count, value = more.get(primitive, (0, None))
    return (*args, value) if len(args) < count else args
