"""rfactor: partial results of a reduction, of one buffer or several, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc.ir.interpreter import interpret
from tensorc.ir.parser import parse
from tensorc.ir.printer import show
from tensorc.schedule.primitives.loops import fuse, parallel, reorder, split, vectorize
from tensorc.schedule.primitives.placement import reverse_compute_at
from tensorc.schedule.primitives.reduction import decompose_reduction
from tensorc.schedule.primitives.rfactor import rfactor
from tests.schedule.same import assert_same
from tests.schedule.test_loops import body, lines, matmul, refused
from tests.schedule.test_tuples import best


def test_partial_sums():
    function, (_, k1) = split(matmul(), "C.k", (None, 4))
    function, name = rfactor(function, k1)
    assert name == "C_rf"
    assert body(function) == lines("""
alloc C_rf: float32[4, 8, 6]
for C.i in 0 .. 8
  for C.j in 0 .. 6
    for C.k.0 in 0 .. 3
      for C.k.1 in 0 .. 4
        block C_rf
          spatial i: 8 = C.i
          spatial j: 6 = C.j
          reduce k0: 3 = C.k.0
          spatial k1: 4 = C.k.1
          init
            C_rf[k1, i, j] = float32(0.0)
          C_rf[k1, i, j] = C_rf[k1, i, j] + A[i, k0 * 4 + k1] * B[k0 * 4 + k1, j]
for C.i_1 in 0 .. 8
  for C.j_1 in 0 .. 6
    for C.k.1_1 in 0 .. 4
      block C
        spatial i: 8 = C.i_1
        spatial j: 6 = C.j_1
        reduce k1: 4 = C.k.1_1
        init
          C[i, j] = float32(0.0)
        C[i, j] = C[i, j] + C_rf[k1, i, j]
""")
    assert_same(matmul(), function)


def test_a_tail_adds_what_changes_nothing():
    function, (_, k1) = split(matmul(), "C.k", (None, 5))
    function, _ = rfactor(function, k1, -1)
    assert (
        "C_rf[i, j, k1] = C_rf[i, j, k1] + if_then_else(k0 * 5 + k1 < 12, "
        "A[i, k0 * 5 + k1] * B[k0 * 5 + k1, j], float32(0.0))"
    ) in show(function)
    assert_same(matmul(), function)


def test_the_only_reduce_loop_leaves_products():
    function, _ = rfactor(matmul(), "C.k", 1)
    assert "C_rf[i, k, j] = A[i, k] * B[k, j]\n" in show(function)
    assert_same(matmul(), function)


@pytest.mark.parametrize("axis", range(-3, 3))
@pytest.mark.parametrize("factor", [3, 5, 12, 16])
@pytest.mark.parametrize("part", [0, 1])
def test_any_axis_of_any_split_in_any_order(axis, factor, part):
    function, loops = split(matmul(), "C.k", (None, factor))
    function = reorder(function, (loops[0], "C.j", loops[1], "C.i"))
    function, _ = rfactor(function, loops[part], axis)
    assert_same(matmul(), function)


def test_a_decomposed_reduction_keeps_its_init():
    function, (_, k1) = split(matmul(), "C.k", (None, 4))
    function, _ = decompose_reduction(function, "C", "C.k.0")
    function, _ = rfactor(function, k1)
    assert body(function).count("for C.i in") == 1  # the nest behind lies where the init lies
    assert_same(matmul(), function)


def test_partial_results_in_lanes_and_tasks():
    function, (k0, k1) = split(matmul(), "C.k", (None, 4))
    function, _ = rfactor(function, k1, 2)
    function = reorder(function, (k1, k0))
    function, _ = decompose_reduction(function, "C_rf", k1)
    assert_same(matmul(), vectorize(function, k1))
    function, (k0, k1) = split(matmul(), "C.k", (None, 4))
    function, _ = rfactor(function, k0)
    function = reorder(function, (k0, "C.i", "C.j"))
    assert_same(matmul(), parallel(function, k0))


def test_the_sum_moves_to_the_parts():
    function, (_, k1) = split(matmul(), "C.k", (None, 4))
    function, _ = rfactor(function, k1)
    function = reverse_compute_at(function, "C", "C.j")
    assert_same(matmul(), function)


@pytest.mark.parametrize("parts", ["index", "pair"])
@pytest.mark.parametrize("factor", [5, 8])
def test_tuples(parts, factor):
    s = best(parts)
    _, k1 = s.split(s.loops("C")[1], factors=(None, factor))
    new = s.rfactor(k1)
    assert len(s.loops(new)) == 3
    assert_same(s.origin, s.function)
    again = s.trace.apply(best(parts))
    assert again.show() == s.show()


def test_a_tuple_of_partial_results():
    s = best("pair")
    _, k1 = s.split(s.loops("C")[1], factors=(None, 5))
    s.rfactor(k1, 1)
    text = s.show()
    assert "alloc C.v0_rf: int64[6, 5]" in text
    assert "alloc C.v1_rf: float32[6, 5]" in text
    assert text.count("block C_rf {identity.0 = 9223372036854775807, identity.1 = -inf}") == 1


def test_refusals():
    function = matmul()
    assert refused(rfactor, function, "C.i") == (
        "rfactor(loop 'C.i'): loop 'C.i' is bound to spatial iterators of block 'C', not to reduce "
        "ones alone"
    )
    assert refused(rfactor, function, "C.k", 3) == "rfactor(loop 'C.k'): axis 3 is none of -3 to 2"
    fused, name = fuse(function, ("C.j", "C.k"))
    assert refused(rfactor, fused, name) == (
        "rfactor(loop 'C.j_k'): loop 'C.j_k' is bound to reduce and spatial iterators of block 'C', "
        "not to reduce ones alone"
    )
    decomposed, _ = decompose_reduction(function, "C", "C.k")
    assert refused(rfactor, decomposed, "C.j") == (
        "rfactor(loop 'C.j'): the loop must hold one block and nothing else, it holds 'C_init', 'C'"
    )
    tiled, (k0, k1) = split(function, "C.k", (None, 4))
    assert refused(rfactor, vectorize(tiled, k1), k1) == (
        "rfactor(loop 'C.k.1'): loop 'C.k.1' is vectorized; only serial loops can be factored"
    )
    tiled = reorder(tiled, (k0, "C.i", "C.j"))
    tiled, _ = decompose_reduction(tiled, "C", "C.i")
    assert refused(rfactor, tiled, k1) == (
        "rfactor(loop 'C.k.1'): loop 'C.k.0' reduces in the block, too, but holds other statements"
    )


def test_a_reducer_without_identity_is_refused():
    s = best()
    block = s.blocks()[0].name
    loop = s.loops(block)[-1].name
    named = "{identity.0 = 9223372036854775807, identity.1 = -inf}"
    assert named in s.show()
    function = parse(s.show().replace(named, ""))
    assert refused(rfactor, function, loop) == (
        f"rfactor(loop {loop!r}): block {block!r} combines its terms by no reducer whose identity "
        "is known"
    )


def test_what_reduces_nothing_is_refused():
    function = parse("""
function copy(A: float32[8], out C: float32[8])
  for C.i in 0 .. 8
    block C
      spatial i: 8 = C.i
      C[i] = A[i]
""")
    assert refused(rfactor, function, "C.i") == (
        "rfactor(loop 'C.i'): block 'C' reduces nothing"
    )


def test_a_range_that_depends_on_a_spatial_loop():
    function = parse("""
function rest(A: float32[3], out C: float32[3])
  for C.j in 0 .. 3
    for C.k in 0 .. 3
      block C
        spatial j: 3 = C.j
        reduce k: 3 - C.j = C.k
        where C.k < 3 - C.j
        init
          C[j] = float32(0.0)
        C[j] = C[j] + A[k]
""")
    assert "its predicate ties reduce loops to spatial ones" in refused(rfactor, function, "C.k", 0)
    one = parse("""
function rest(A: float32[1], out C: float32[1])
  for C.j in 0 .. 1
    for C.k in 0 .. 1
      block C
        spatial j: 1 = C.j
        reduce k: 1 - C.j = C.k
        init
          C[j] = float32(0.0)
        C[j] = C[j] + A[k]
""")
    changed, _ = rfactor(one, "C.k", 0)
    assert_same(one, changed)


FIRST = """
function first(A: float32[8], out I: int64[1], out V: float32[1])
  for ko in 0 .. 4
    for ki in 0 .. 2
      block best {identity.0 = -1, identity.1 = -inf}
        spatial i: 1 = 0
        reduce k: 8 = ko * 2 + ki
        init
          I[i] = -1
          V[i] = float32(-inf)
        let I.term: int64 = k
          let V.term: float32 = A[k]
            let I.next: int64 = select(V[i] >= V.term, I[i], I.term)
              let V.next: float32 = select(V[i] >= V.term, V[i], V.term)
                I[i] = I.next
                V[i] = V.next
"""


def test_the_first_of_equals_is_no_matter_of_order():
    """A reducer that keeps what it has where values are equal is not commutative: taken for one because
    it starts from the least value, it finds another index. So only a declared one is divided."""
    text = FIRST.replace(" {identity.0 = -1, identity.1 = -inf}", "")
    assert refused(rfactor, parse(text), "ki") == (
        "rfactor(loop 'ki'): block 'best' combines its terms by no reducer whose identity is known"
    )
    tied = np.array([0, 1, 1, 0, 0, 0, 0, 0], "float32")
    divided, _ = rfactor(parse(FIRST), "ki")
    assert interpret(parse(text), tied)[0] == [1]
    assert interpret(divided, tied)[0] == [2]
