"""Cut loops: a main part without guards, a tail with what is left of them."""

from __future__ import annotations

import pytest

from tensorc.ir.expr import Const
from tensorc.ir.printer import show
from tensorc.ir.stmt import For
from tensorc.ir.walk import walk
from tensorc.passes.partition import partition_loops
from tests.passes.same import assert_same, assert_text, program


def cut(text: str, *extents: dict[str, int]):
    f = program(text)
    g = partition_loops(f)
    for values in extents or ({},):
        assert_same(f, g, **values)
    return g


def test_an_unrolled_tile_gets_a_shorter_tail():
    g = cut("""
        function main(A: float32[11], out C: float32[11])
          for o in 0 .. 3 {tail = "cut"}
            for i in 0 .. 4 unrolled
              if o * 4 + i < 11
                C[o * 4 + i] = A[o * 4 + i]
    """)
    assert_text(
        g,
        """
        function main(A: float32[11], out C: float32[11])
          for o in 0 .. 2
            for i in 0 .. 4 unrolled
              C[o * 4 + i] = A[o * 4 + i]
          for i in 0 .. 3 unrolled
            C[i + 8] = A[i + 8]
    """,
    )


def test_vectors_keep_their_lanes_and_the_guard_or_become_a_smaller_power_of_two():
    text = """
        function main(A: float32[{n}], out C: float32[{n}])
          for o in 0 .. 3 {{tail = "cut"}}
            for i in 0 .. 8 vectorized
              if o * 8 + i < {n}
                C[o * 8 + i] = A[o * 8 + i]
    """
    masked = show(cut(text.format(n=21)))
    assert "for i in 0 .. 8 vectorized\n    if i < 5" in masked
    assert "for i in 0 .. 4 vectorized\n    C[i + 16]" in show(cut(text.format(n=20)))


def test_an_inner_loop_that_is_all_or_nothing_ends_earlier():
    g = cut("""
        function main(A: float32[40], out C: float32[40])
          for o in 0 .. 2 parallel {tail = "cut"}
            for m in 0 .. 6
              for i in 0 .. 4 unrolled
                if o * 24 + m * 4 + i < 40
                  C[o * 24 + m * 4 + i] = A[o * 24 + m * 4 + i]
    """)
    assert_text(
        g,
        """
        function main(A: float32[40], out C: float32[40])
          for o in 0 .. 2 parallel
            for m in 0 .. min(10 - o * 6, 6)
              for i in 0 .. 4 unrolled
                C[o * 24 + m * 4 + i] = A[o * 24 + m * 4 + i]
    """,
    )


def test_a_parallel_loop_stays_one():
    g = cut("""
        function main(A: float32[11], out C: float32[11])
          for o in 0 .. 3 parallel {tail = "cut"}
            for i in 0 .. 4 unrolled
              if o * 4 + i < 11
                C[o * 4 + i] = A[o * 4 + i]
    """)
    assert_text(
        g,
        """
        function main(A: float32[11], out C: float32[11])
          for o in 0 .. 3 parallel
            if o < 2
              for i in 0 .. 4 unrolled
                C[o * 4 + i] = A[o * 4 + i]
            else
              for i in 0 .. 3 unrolled
                C[i + 8] = A[i + 8]
    """,
    )


def test_two_tails_give_four_parts():
    g = cut("""
        function main(A: float32[11, 7], out C: float32[11, 7])
          for o in 0 .. 3 {tail = "cut"}
            for p in 0 .. 2 {tail = "cut"}
              for i in 0 .. 4 unrolled
                if o * 4 + i < 11
                  for j in 0 .. 4 unrolled
                    if p * 4 + j < 7
                      C[o * 4 + i, p * 4 + j] = A[o * 4 + i, p * 4 + j]
    """)
    assert "if" not in show(g)
    assert show(g).count(" = A[") == 4


def test_a_tail_of_unknown_size_runs_in_parts():
    text = """
        function main(A: float32[n], out C: float32[n])
          for o in 0 .. (n + 3) // 4 {tail = "cut"}
            for i in 0 .. 4 unrolled
              if o * 4 + i < n
                C[o * 4 + i] = A[o * 4 + i]
    """
    g = cut(text, *[dict(n=n) for n in range(10)])
    assert "if" not in show(g)


def test_an_unrolled_loop_ends_at_a_number():
    g = cut("""
        function main(A: float32[5], out C: float32[5])
          for l in 0 .. 16
            for o in 0 .. 2 unrolled {tail = "cut"}
              for i in 0 .. 3
                if o * 48 + i * 16 + l < 5
                  C[l] = A[l] * float32(2.0)
    """)
    loops = [stmt for stmt in walk(g.body) if type(stmt) is For and stmt.kind == "unrolled"]
    assert all(type(loop.extent) is Const for loop in loops)


def test_what_no_guard_covers_runs_in_every_iteration():
    cut("""
        function main(A: float32[11], out C: float32[11], out D: float32[12])
          for o in 0 .. 3 {tail = "cut"}
            for i in 0 .. 4 unrolled
              if o * 4 + i < 11
                C[o * 4 + i] = A[o * 4 + i]
              D[o * 4 + i] = float32(1.0)
    """)


@pytest.mark.parametrize(
    "condition", ["i * i < 30", "(o + i) // 2 < 3", "i >= o", "o * 8 + i * (o - 1) < 20"]
)
def test_other_guards_stay(condition):
    g = cut(f"""
        function main(A: float32[64], out C: float32[64])
          for o in 0 .. 3 {{tail = "cut"}}
            for i in 0 .. 8
              C[o * 8 + i] = float32(0.0)
              if {condition}
                C[o * 8 + i] = A[o * 8 + i]
          for z in 0 .. 40
            C[24 + z] = float32(0.0)
    """)
    assert "if " in show(g)
