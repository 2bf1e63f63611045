"""Blocks become statements: bindings substituted, init and predicates become branches."""

from __future__ import annotations

from tensorc.ir.printer import show
from tensorc.passes.blocks import lower_blocks
from tests.passes.same import assert_same, assert_text, program


def test_iterators_predicate_and_init():
    f = program("""
        function main(A: float32[10, 6], out C: float32[10])
          for o in 0 .. 3
            for i in 0 .. 4
              for k in 0 .. 6
                block C
                  spatial x: 10 = o * 4 + i
                  reduce r: 6 = k
                  where o * 4 + i < 10
                  init
                    C[x] = float32(0.0)
                  C[x] = C[x] + A[x, r]
    """)
    g = lower_blocks(f)
    assert_same(f, g)
    assert_text(
        g,
        """
        function main(A: float32[10, 6], out C: float32[10])
          for o in 0 .. 3
            for i in 0 .. 4
              if o * 4 + i < 10
                for k in 0 .. 6
                  if k == 0
                    C[o * 4 + i] = float32(0.0)
                  C[o * 4 + i] = C[o * 4 + i] + A[o * 4 + i, k]
    """,
    )


def test_the_first_of_several_reduce_loops_is_all_of_them_at_zero():
    f = program("""
        function main(A: float32[8], out C: float32[1])
          for ko in 0 .. 2
            for ki in 0 .. 4
              block C
                reduce r: 8 = ko * 4 + ki
                init
                  C[0] = float32(0.0)
                C[0] = C[0] + A[r]
    """)
    g = lower_blocks(f)
    assert_same(f, g)
    assert "if ko == 0 and ki == 0" in show(g)


def test_updates_keep_their_form():
    f = program("""
        function main(A: int64[8], out C: int64[1])
          for k in 0 .. 8 vectorized
            block C
              reduce r: 8 = k
              init
                C[0] = 1
              C[0] = C[0] * (A[r] + 1 + 1)
    """)
    g = lower_blocks(f)
    assert_same(f, g)
    assert "C[0] = C[0] * (A[k] + 2)" in show(g)


def test_loops_of_one_iteration_and_dead_branches_go():
    f = program("""
        function main(A: float32[4], out C: float32[4])
          for i in 0 .. 1 parallel
            for j in 0 .. 4
              block C
                spatial x: 4 = i * 4 + j
                where i * 4 + j < 4
                C[x] = A[x]
              block never
                spatial y: 4 = j
                where j > 7
                C[y] = A[y]
    """)
    g = lower_blocks(f)
    assert_same(f, g)
    assert_text(
        g,
        """
        function main(A: float32[4], out C: float32[4])
          for j in 0 .. 4
            C[j] = A[j]
    """,
    )


def test_divisions_of_packed_indices_disappear():
    f = program("""
        function main(A: float32[12], out C: float32[3, 4])
          for o in 0 .. 3
            for i in 0 .. 4
              block C
                spatial x: 12 = o * 4 + i
                C[x // 4, x % 4] = A[x]
    """)
    g = lower_blocks(f)
    assert_same(f, g)
    assert "C[o, i] = A[o * 4 + i]" in show(g)
