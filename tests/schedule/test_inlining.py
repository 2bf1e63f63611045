"""compute_inline: a block's value moves into its consumers."""

from __future__ import annotations

import pytest

from tensorc.errors import ScheduleError
from tensorc.ir.parser import parse
from tensorc.ir.printer import show
from tensorc.schedule.primitives.inlining import compute_inline
from tests.schedule.same import assert_same

CHAIN = """
function chain(A: float32[4, 6], out C: float32[6, 4])
  alloc B: float32[6, 4]
  for B.i in 0 .. 4
    for B.j in 0 .. 6
      block B
        spatial i: 4 = B.i
        spatial j: 6 = B.j
        B[j, i] = A[i, j] + float32(1.0)
  for C.i in 0 .. 6
    for C.j in 0 .. 4
      block C
        spatial i: 6 = C.i
        spatial j: 4 = C.j
        C[i, j] = B[i, j] * B[5 - i, j]
"""


def test_every_load_takes_the_value():
    before = parse(CHAIN)
    after = compute_inline(before, "B")
    assert (
        show(after)
        == """\
function chain(A: float32[4, 6], out C: float32[6, 4])
  for C.i in 0 .. 6
    for C.j in 0 .. 4
      block C
        spatial i: 6 = C.i
        spatial j: 4 = C.j
        C[i, j] = (A[j, i] + float32(1.0)) * (A[j, 5 - i] + float32(1.0))"""
    )
    assert_same(before, after)


def test_guards_conditions_and_init():
    before = parse("""
function guarded(A: float32[8], out C: float32[4])
  alloc P: float32[8]
  alloc Q: bool[8]
  for P.i in 0 .. 8
    block P
      spatial i: 8 = P.i
      P[i] = A[i] * float32(2.0)
  for Q.i in 0 .. 8
    block Q
      spatial i: 8 = Q.i
      Q[i] = P[i] > float32(1.0)
  for C.i in 0 .. 4
    for C.k in 0 .. 3
      block C
        spatial i: 4 = C.i
        reduce k: 3 = C.k
        init
          C[i] = P[i]
        C[i] = C[i] + if_then_else(i * 2 + k < 8 and Q[i], P[i * 2 + k], float32(0.0))
""")
    after = compute_inline(compute_inline(before, "P"), "Q")
    assert (
        show(after)
        == """\
function guarded(A: float32[8], out C: float32[4])
  for C.i in 0 .. 4
    for C.k in 0 .. 3
      block C
        spatial i: 4 = C.i
        reduce k: 3 = C.k
        init
          C[i] = A[i] * float32(2.0)
        C[i] = C[i] + if_then_else(i * 2 + k < 8 and A[i] * float32(2.0) > float32(1.0), \
A[i * 2 + k] * float32(2.0), float32(0.0))"""
    )
    assert_same(before, after)


def test_indices_are_simplified_where_they_land():
    before = parse("""
function fold(A: float32[4, 8], out C: float32[32])
  alloc F: float32[32]
  for F.i in 0 .. 32
    block F
      spatial i: 32 = F.i
      F[i] = A[i // 8, i % 8]
  for C.i in 0 .. 4
    for C.j in 0 .. 8
      block C
        spatial i: 4 = C.i
        spatial j: 8 = C.j
        C[i * 8 + j] = F[i * 8 + j]
""")
    after = compute_inline(before, "F")
    assert "C[i * 8 + j] = A[i, j]" in show(after)
    assert_same(before, after)


def test_a_value_indexed_by_another_inlined_value():
    before = parse("""
function gather(I: int64[8], A: float32[8], out C: float32[8])
  alloc J: int64[8]
  for J.i in 0 .. 8
    block J
      spatial i: 8 = J.i
      J[i] = I[i] * 0 + 7 - i
  for C.i in 0 .. 8
    block C
      spatial i: 8 = C.i
      C[i] = A[J[J[i]]]
""")
    assert_same(before, compute_inline(before, "J"))


def test_the_nest_stays_for_other_blocks_in_it():
    before = parse("""
function shared(A: float32[4], out C: float32[4])
  alloc P: float32[4]
  alloc Q: float32[4]
  for i in 0 .. 4
    block P
      spatial i: 4 = i
      P[i] = A[i] + float32(1.0)
    block Q
      spatial i: 4 = i
      Q[i] = P[i] * float32(2.0)
  for C.i in 0 .. 4
    block C
      spatial i: 4 = C.i
      C[i] = P[i] + Q[i]
""")
    after = compute_inline(before, "Q")
    assert [buffer.name for buffer in after.allocs] == ["P"]
    assert_same(before, after)


def refusal(text: str, block: str) -> str:
    function = parse(text)
    with pytest.raises(ScheduleError) as caught:
        compute_inline(function, block)
    return str(caught.value)


def test_refuses_an_output():
    assert (
        refusal(CHAIN, "C")
        == "compute_inline(block 'C'): it writes the output 'C', which must be stored"
    )


def test_refuses_a_reduction():
    text = """
function total(A: float32[4, 8], out C: float32[4])
  alloc S: float32[4]
  for S.i in 0 .. 4
    for S.k in 0 .. 8
      block S
        spatial i: 4 = S.i
        reduce k: 8 = S.k
        init
          S[i] = float32(0.0)
        S[i] = S[i] + A[i, k]
  for C.i in 0 .. 4
    block C
      spatial i: 4 = C.i
      C[i] = S[i]
"""
    assert refusal(text, "S") == (
        "compute_inline(block 'S'): it has reduce iterators; "
        "only a block without a reduction can be inlined"
    )


def body(store: str, predicate: str = "", more: str = "") -> str:
    where = f"\n        where {predicate}" if predicate else ""
    return f"""
function main(A: float32[4, 4], out C: float32[4, 4])
  alloc B: float32[4, 4]
  for B.i in 0 .. 4
    for B.j in 0 .. 4
      block B
        spatial i: 4 = B.i
        spatial j: 4 = B.j{where}
        {store}
{more}  for C.i in 0 .. 4
    block C
      spatial i: 4 = C.i
      C[i, 0] = B[i, i] + A[i, 0]
"""


def test_refuses_indices_that_are_not_the_iterators():
    message = (
        "the indices of its store are not exactly its iterators, each once; "
        "inline it before changing its layout"
    )
    for store in ("B[i, i] = A[i, j]", "B[i, 3 - j] = A[i, j]", "B[i, 0] = A[i, j]"):
        assert refusal(body(store), "B") == f"compute_inline(block 'B'): {message}"


def test_refuses_a_predicate_and_its_own_reads():
    assert refusal(body("B[i, j] = A[i, j]", "B.i < 3"), "B") == (
        "compute_inline(block 'B'): it has a predicate; inline it before its loops are split"
    )
    assert refusal(body("B[i, j] = B[i, j] + A[i, j]"), "B") == (
        "compute_inline(block 'B'): it reads 'B', which it writes itself"
    )


def test_refuses_another_writer_and_inputs_that_change():
    twice = "  block B2\n    B[0, 0] = float32(0.0)\n"
    assert refusal(body("B[i, j] = A[i, j]", more=twice), "B") == (
        "compute_inline(block 'B'): 'B' is also written by B2"
    )
    changed = body("B[i, j] = C[i, j]")
    assert (
        refusal(changed, "B")
        == "compute_inline(block 'B'): it reads 'C', which 'C' changes after it"
    )


def test_what_nothing_reads_is_dropped():
    text = body("B[i, j] = A[i, j]").replace("B[i, i] + A[i, 0]", "A[i, 0]")
    after = compute_inline(parse(text), "B")
    assert "B" not in show(after)
    assert_same(parse(text), after)


def test_refuses_what_is_not_there():
    text = body("B[i, j] = A[i, j]")
    assert refusal(text, "D") == "no block is named 'D'; there are B, C"


def test_a_refusal_shows_the_place():
    with pytest.raises(ScheduleError) as caught:
        compute_inline(parse(CHAIN), "C")
    assert ">       block C" in caught.value.__notes__[0]
