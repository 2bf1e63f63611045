"""Refusals of places that only other steps, or functions written by hand, lead to: each is told by its sentence."""

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
ROW = """
function row(A: float32[10], out C: float32[10])
  for C.i in 0 .. 10
    block C
      spatial i: 10 = C.i
      C[i] = A[i] * float32(2.0)
"""
CORNER = """
function corner(A: float32[8], out C: float32[8])
  for C.i in 0 .. 2
    for C.j in 0 .. 4 - C.i
      block C
        spatial x: 8 = C.i * 4 + C.j
        C[x] = A[x]
"""
TRIANGLE = """
function triangle(A: float32[8, 6], out C: float32[8])
  for C.k in 0 .. 6
    for C.i in 0 .. 8 - C.k
      block C
        spatial i: 8 = C.i
        reduce k: 6 = C.k
        init
          C[i] = float32(0.0)
        C[i] = C[i] + A[i, k]
"""
HALF = """
function half(A: float32[8, 6], out C: float32[8], out E: float32[8])
  for E.i in 0 .. 8
    block E
      spatial i: 8 = E.i
      E[i] = A[i, 0]
  for C.i in 0 .. 8
    for C.k in 0 .. 3
      block C
        spatial i: 8 = C.i
        reduce k: 6 = C.k
        init
          C[i] = E[i]
        C[i] = C[i] + A[i, k] * E[i]
"""
TIMES = """
function times(n: int64, A: float32[8, n], out C: float32[8])
  for C.i in 0 .. 8
    for C.k in 0 .. n
      block C
        spatial i: 8 = C.i
        reduce k: n = C.k
        init
          C[i] = float32(0.0)
        C[i] = C[i] + A[i, k]
"""
PICKED = """
function picked(A: float32[8], I: int64[8], out C: float32[8])
  for C.i in 0 .. 8
    block C
      spatial i: 8 = C.i
      where I[C.i] < 4
      C[i] = A[i]
"""
PRODUCT = """
function product(A: float32[5, 6], B: float32[6, 4], out C: float32[5, 4])
  for D.i in 0 .. 5
    block D
      spatial i: 5 = D.i
      C[i, 0] = float32(1.0)
  for C.i in 0 .. 5
    for C.j in 0 .. 4
      for C.k in 0 .. 6
        block C
          spatial i: 5 = C.i
          spatial j: 4 = C.j
          reduce k: 6 = C.k
          init
            C[i, j] = float32(0.0)
          C[i, j] = C[i, j] + A[i, k] * B[k, j]
"""
ROWS = """
function rows(A: float32[8], out C: float32[8])
  for C.i in 0 .. 2
    for C.j in 0 .. 4
      block C
        spatial x: 8 = C.i * 4 + C.j
        where C.i < 1
        C[x] = A[x]
"""
TILES = """
function tiles(A: float32[8], B: float32[8], out C: float32[8])
  for C.i in 0 .. 2
    for C.j in 0 .. 4
      block C
        spatial x: 8 = C.i * 4 + C.j
        C[x] = {}
"""
BLUR = """
function blur(A: float32[30], out C: float32[8])
  alloc T: float32[30]
  for C.i in 0 .. 8
    for T.x in 0 .. 3
      block T
        spatial x: 30 = C.i * 3 + T.x
        T[x] = A[x] * float32(2.0)
    block C
      spatial i: 8 = C.i
      C[i] = T[i * 3] + T[i * 3 + 2]
"""
LATE = """
function late(A: float32[10], out C: float32[8])
  alloc T: float32[10]
  for C.i in 0 .. 8
    block C
      spatial i: 8 = C.i
      C[i] = T[i] + T[i + 2]
    for T.x in 0 .. 3
      block T
        spatial x: 10 = C.i + T.x
        T[x] = A[x] * float32(2.0)
"""
FIRST = """\
  for T.x in 0 .. 8
    block T
      spatial x: 8 = T.x
      T[x] = A[x] * float32(2.0)
"""
SECOND = """\
  for C.i in 0 .. 8
    block C
      spatial i: 8 = C.i
      C[i] = T[i] + float32(1.0)
"""
HEAD = "function two(n: int64, A: float32[8], out C: float32[8])\n  alloc T: float32[8]\n"


def indented(text):
    return "".join([f"  {line}\n" for line in text.splitlines()])


STAGES = HEAD + FIRST + SECOND
EITHER = HEAD + "  if n < 4\n" + indented(FIRST) + "  else\n" + indented(SECOND)
FIRST_IF = HEAD + "  for Z in 0 .. 1\n    if n < 4\n" + indented(indented(FIRST)) + SECOND
SECOND_IF = HEAD + FIRST + "  if n < 4\n" + indented(SECOND)


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


@pytest.mark.parametrize(
    ("text", "step", "message"),
    [
        (
            ROW.replace("block C", "block C.i"), lambda s: s.annotate("C.i", "pace", 2),
            "'C.i' is the name of a loop and of a block",
        ),
        (
            CORNER, lambda s: s.blockize("C.j"),
            "blockize(loop 'C.j'): the range of loop 'C.j' is not constant",
        ),
        (
            TRIANGLE, lambda s: s.decompose_reduction("C", "C.k"),
            "decompose_reduction(block 'C', loop 'C.k'): the range of 'C.i' depends on a reduce loop",
        ),
        (
            TIMES, lambda s: s.fuse("C.i", "C.k"),
            "fuse(loops 'C.i', 'C.k'): they are spatial and reduce loops of 'C', and where n <= 0 only the "
            "spatial ones would run; fuse loops of one kind",
        ),
        (
            STAGES.replace("      T[x] =", "      if x < 4\n        T[x] ="), lambda s: s.reverse_compute_inline("C"),
            "reverse_compute_inline(block 'C'): the body of 'T' is not a single store",
        ),
        (
            EITHER, lambda s: s.reverse_compute_inline("C"),
            "reverse_compute_inline(block 'C'): it does not run after 'T', which makes what it reads",
        ),
        (
            HEAD + SECOND + FIRST, lambda s: s.reverse_compute_inline("C"),
            "reverse_compute_inline(block 'C'): it does not run after 'T', which makes what it reads",
        ),
        (
            EITHER, lambda s: s.reverse_compute_at("C", "T.x"),
            "reverse_compute_at(block 'C', loop 'T.x'): the block and the loop never run together",
        ),
        (
            FIRST_IF, lambda s: s.reverse_compute_at("C", "T.x"),
            "reverse_compute_at(block 'C', loop 'T.x'): the loop stands under a condition, where the "
            "block would not always run",
        ),
        (
            SECOND_IF, lambda s: s.reverse_compute_at("C", "T.x"),
            "reverse_compute_at(block 'C', loop 'T.x'): the block stands under a condition, which "
            "would be lost",
        ),
        (
            HALF, lambda s: s.reverse_compute_at("C", "E.i"),
            "reverse_compute_at(block 'C', loop 'E.i'): block 'C' reduces over a part of its domain there; "
            "other blocks or loops do the rest",
        ),
        (
            PICKED, lambda s: s.reindex("C", "I"),
            "reindex(block 'C', buffer 'I'): its extents or predicate depend on 'I'",
        ),
        (
            PRODUCT, lambda s: s.pad_einsum("C", (4, 4, 4)),
            "pad_einsum(block 'C'): 'C' is also written by D; pad the block before decomposing it",
        ),
        (
            BLUR, lambda s: s.rolling_buffer("T", "T"),
            "rolling_buffer(block 'T', buffer 'T'): iterations of 'C.i' compute parts that do not overlap, so "
            "nothing can be kept",
        ),
        (
            LATE, lambda s: s.rolling_buffer("T", "T"),
            "rolling_buffer(block 'T', buffer 'T'): 'T' is read before the block in the loop",
        ),
        (
            ROW, lambda s: s.substitute("C", "function f(A: float32[10], out C: float32[10])\n  C[y] = A[0]\n"),
            "substitute(block 'C'): the replacement is no well-formed function: line 2: variable 'y' is not bound "
            "here",
        ),
        (ROW, lambda s: s.substitute("C", 3), "substitute(block 'C'): the replacement is no function of the IR: 3"),
        (
            ROWS, lambda s: s.tensorize(s.blockize("C.j"), "copy.4.float32"),
            "tensorize('C_o', 'copy.4.float32'): the block has a predicate; choose factors that divide, or make the "
            "extents whole tiles by pad_einsum first",
        ),
        (
            ROWS.replace("        where C.i < 1\n        C[x]", "        if x < 3\n          C[x]"),
            lambda s: s.tensorize("C.j", "copy.4.float32"),
            "tensorize('C.j', 'copy.4.float32'): the nest is not that of the intrinsic: it is not loops around one "
            "store",
        ),
        (
            TILES.format("B[3]"), lambda s: s.tensorize("C.j", "copy.4.float32"),
            "tensorize('C.j', 'copy.4.float32'): the nest is not that of the intrinsic: 'B' does not move with the "
            "loop 'C.j', 'x' of copy.4.float32 does",
        ),
        (
            TILES.format("C[x] + A[x] * B[x]"), lambda s: s.tensorize("C.j", "axpy.4.float32"),
            "tensorize('C.j', 'axpy.4.float32'): the nest is not that of the intrinsic: 'A' moves with the loop "
            "'C.j', 'a' of axpy.4.float32 does not; or 'B' moves with the loop 'C.j', 'a' of axpy.4.float32 does not",
        ),
        (
            TILES.format("B[x] + A[0] * A[x]"), lambda s: s.tensorize("C.j", "axpy.4.float32"),
            "tensorize('C.j', 'axpy.4.float32'): the nest is not that of the intrinsic: it reads 'B[x * 4 + C.j]' "
            "where it should read what it writes; or it has 'A[0] * A[x * 4 + C.j]' where axpy.4.float32 has 'y[i]'",
        ),
        (
            STAGES, lambda s: s.transform_layout("T", "T", lambda x: x),
            "index map: the function must return a tuple of indices, not Var('x')",
        ),
        (
            STAGES, lambda s: s.transform_layout("T", "T", "lambda x, x: (x,)"),
            "index map 'lambda x, x: (x,)': not of the form `lambda i, j: (i // 8, j, i % 8)`",
        ),
        (
            STAGES, lambda s: s.transform_layout("T", "T", "lambda x: ()"),
            "index map 'lambda x: ()': it has no outputs",
        ),
        (
            STAGES, lambda s: s.transform_layout("T", "T", "lambda x: (min(x, 3),)"),
            "index map: min(x, 3) is not made of the map's indices, integers and + - * // %",
        ),
    ],
)  # fmt: skip
def test_a_refusal_of_a_function_by_hand(text, step, message):
    s = Schedule(parse(text))
    with pytest.raises(ScheduleError) as caught:
        step(s)
    assert str(caught.value) == message
    assert s.show() == s.trace.apply(Schedule(parse(text))).show()


def _whole(primitive, args):
    """The arguments with those that have defaults."""
    more = {"split": (3, "auto"), "storage_align": (5, 0)}
    count, value = more.get(primitive, (0, None))
    return (*args, value) if len(args) < count else args
