"""Tails whose size only the call tells: parts of constant size, and where they may not be made."""

from __future__ import annotations

import pytest

from tensorc.ir.printer import show
from tensorc.passes.partition import partition_loops
from tests.passes.same import assert_same, program


def parts(text: str) -> str:
    function = program(text)
    result = partition_loops(function)
    for n in range(20):
        assert_same(function, result, n=n)
    return show(result)


def tile(body: str, of: int = 9) -> str:
    return parts(f"""
        function main(A: float32[n, 3], out C: float32[n])
          for o in 0 .. (n + {of - 1}) // {of} {{tail = "cut"}}
{body.format(of=of)}""")


SUM = """
            for r in 0 .. {of} unrolled
              if o * {of} + r < n
                C[o * {of} + r] = float32(0.0)
            for k in 0 .. 3
              for s in 0 .. {of} unrolled
                if o * {of} + s < n
                  C[o * {of} + s] = C[o * {of} + s] + A[o * {of} + s, k]
"""


@pytest.mark.parametrize(("of", "sizes"), [(2, (1,)), (4, (2, 1)), (9, (4, 2, 1)), (14, (8, 4, 2, 1))])
def test_the_rest_runs_in_halving_parts_around_all_that_its_iterations_share(of, sizes):
    text = tile(SUM, of)
    assert "if" not in text
    for size in sizes:
        assert text.count(f"for r.{size} in") == 1
        assert size == 1 or text.count(f"in 0 .. {size} unrolled") == 2


def test_a_part_that_reaches_into_vectors_is_one_vector_with_its_mask():
    text = parts("""
        function main(A: float32[n], out C: float32[n])
          for o in 0 .. (n + 11) // 12 {tail = "cut"}
            for r in 0 .. 3 unrolled
              for l in 0 .. 4 vectorized
                if o * 12 + r * 4 + l < n
                  C[o * 12 + r * 4 + l] = A[o * 12 + r * 4 + l]
    """)
    assert 'for r.1 in 0 .. (n + 3) // 4 - o * 3 {tail = "mask"}' in text
    assert text.count("if o * 12 + r.1 * 4 + l < n") == 1


def test_a_parallel_loop_keeps_its_tail_inside():
    text = parts("""
        function main(A: float32[n], out C: float32[n])
          for o in 0 .. (n + 3) // 4 parallel {tail = "cut"}
            for r in 0 .. 4 unrolled
              if o * 4 + r < n
                C[o * 4 + r] = A[o * 4 + r]
    """)
    assert "if o < n // 4" in text and "for r.2 in" in text


def test_iterations_that_share_elements_stay_together():
    text = tile("""
            for r in 0 .. {of} unrolled
              if o * {of} + r < n
                C[o * {of} + r] = A[o * {of} + r, 0]
            for s in 0 .. {of} unrolled
              if o * {of} + s < n
                C[o * {of} + s] = C[o * {of} + s] + C[o * {of}]
    """)
    assert "for r.4" in text and "for s." not in text


def test_what_no_guard_covers_runs_once():
    text = parts("""
        function main(A: float32[n], out C: float32[n], out D: float32[8])
          for z in 0 .. 8
            D[z] = float32(0.0)
          for o in 0 .. (n + 3) // 4 {tail = "cut"}
            D[o] = D[o] + float32(1.0)
            for r in 0 .. 4 unrolled
              if o * 4 + r < n
                C[o * 4 + r] = A[o * 4 + r]
    """)
    assert "for r." not in text
