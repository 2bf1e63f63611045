"""annotate, unannotate, add_unit_loop, reorder_block_iters; navigation."""

from __future__ import annotations

import tensorc as tc
from tensorc import te
from tensorc.ir.parser import parse
from tensorc.schedule import Schedule
from tensorc.schedule.primitives.annotations import (
    add_unit_loop,
    annotate,
    reorder_block_iters,
    unannotate,
)
from tensorc.schedule.primitives.loops import split
from tests.schedule.same import assert_same
from tests.schedule.test_loops import body, copy, lines, matmul, refused


def test_notes_on_loops_and_blocks():
    function = annotate(annotate(copy(), "C.i", "hint", 3), "C", "why", "text")
    assert body(function) == lines("""
for C.i in 0 .. 8 {hint = 3}
  for C.j in 0 .. 6
    block C {why = "text"}
      spatial i: 8 = C.i
      spatial j: 6 = C.j
      C[i, j] = A[i, j] + float32(1.0)
""")
    assert_same(copy(), function)
    function = unannotate(annotate(function, "C.i", "hint", True), "C", "why")
    assert "{hint = true}" in body(function) and "why" not in body(function)


def test_refused_notes():
    function = annotate(copy(), "C.i", "hint", 3)
    assert refused(unannotate, function, "C.i", "hit") == (
        "unannotate('C.i', 'hit'): there is no such note; did you mean 'hint'?"
    )
    assert refused(unannotate, function, "C.j", "x") == (
        "unannotate('C.j', 'x'): there is no such note; it has none"
    )
    assert refused(annotate, function, "C.i", "tail", "cut") == (
        "annotate('C.i', 'tail'): steps write that note themselves, and rely on it"
    )
    for note in ("ordered", "stream", "tensorize", "thread", "identity.0", "prefetch.A"):
        assert refused(annotate, function, "C", note, 0).endswith("and rely on it")
    assert refused(annotate, function, "C", "list", [1]) == (
        "annotate('C', 'list'): [1] is no number, string or bool"
    )
    assert refused(annotate, function, "C", "", 1) == "annotate('C', ''): a note needs a name, a string"
    assert refused(annotate, function, "D", "x", 1).startswith("no loop is named 'D'")


def test_unit_loops():
    function, name = add_unit_loop(copy(), "C")
    assert name == "C.u"
    function, name = add_unit_loop(function, "C.i")
    assert name == "C.u_1"
    assert body(function) == lines("""
for C.u_1 in 0 .. 1
  for C.i in 0 .. 8
    for C.j in 0 .. 6
      for C.u in 0 .. 1
        block C
          spatial i: 8 = C.i
          spatial j: 6 = C.j
          C[i, j] = A[i, j] + float32(1.0)
""")
    assert_same(copy(), function)
    function, _ = split(function, "C.u", (None, 4))
    assert_same(copy(), function)


def test_iterators_in_another_order():
    function = reorder_block_iters(matmul(), "C", (2, 0, 1))
    text = body(function)
    assert text.index("reduce k") < text.index("spatial i") < text.index("spatial j")
    assert_same(matmul(), function)
    for order in ((0, 1), (0, 1, 1), (0, 1, 3), "C", (0, "i", 2)):
        assert refused(reorder_block_iters, matmul(), "C", order) == (
            f"reorder_block_iters(block 'C'): {order!r} is no order of the 3 iterators i, j, k: give "
            "each of their numbers, from 0, once"
        )


def chain() -> Schedule:
    A = te.placeholder((8, 8), "float32", name="A")
    B = te.compute((8, 8), lambda i, j: A[i, j] * 2.0, name="B")
    k = te.reduce_axis(8, name="k")
    C = te.compute((8,), lambda i: te.sum(B[i, k], axis=k), name="C")
    D = te.compute((8,), lambda i: C[i] + B[i, 0], name="D")
    return tc.schedule([A, C, D])


def names(blocks) -> list[str]:
    return [block.name for block in blocks]


def test_navigation():
    s = chain()
    assert names(s.producers("D")) == ["B", "C"]
    assert names(s.consumers("B")) == ["C", "D"]
    assert names(s.producers("B")) == names(s.consumers("D")) == []
    assert names(s.output_blocks()) == ["C", "D"]
    i, _ = s.loops("C")
    s.decompose_reduction("C", s.loops("C")[1])
    assert names(s.child_blocks(i)) == ["C_init", "C"]
    assert names(s.child_blocks("C")) == []
    assert names(s.producers("C")) == ["B", "C_init"]
    assert names(s.consumers("C_init")) == ["C", "D"]


def test_navigation_sees_loops_that_carry_values():
    s = Schedule(
        parse("""
function carry(A: float32[8], out S: float32[9], out T: float32[9])
  for t in 0 .. 8
    block S
      ordered i: 8 = t
      S[i + 1] = A[i] + if_then_else(i > 0, T[i], float32(0.0))
    block T
      ordered i: 8 = t
      T[i + 1] = S[i + 1]
""")
    )
    assert names(s.producers("S")) == ["T"] and names(s.consumers("S")) == ["T"]
    assert names(s.producers("T")) == ["S"] and names(s.consumers("T")) == ["S"]
