"""Loops bound to thread axes, as a CPU runs them."""

from __future__ import annotations

from tensorc.passes.bindings import unbind_threads
from tests.passes.same import assert_same, assert_text, program


def test_blocks_run_in_parallel_and_threads_one_by_one():
    f = program("""
        function main(A: float32[4, 4], out C: float32[4, 4])
          for i in 0 .. 4 thread {tail = "cut", thread = "blockIdx.x"}
            for v in 0 .. 2 thread {thread = "vthread.x"}
              for t in 0 .. 2 thread {thread = "threadIdx.x"}
                C[i, v * 2 + t] = A[i, v * 2 + t]
    """)
    g = unbind_threads(f)
    assert_same(f, g)
    assert_text(
        g,
        """
        function main(A: float32[4, 4], out C: float32[4, 4])
          for i in 0 .. 4 parallel {tail = "cut"}
            for v in 0 .. 2
              for t in 0 .. 2
                C[i, v * 2 + t] = A[i, v * 2 + t]
    """,
    )


def test_what_has_no_threads_stays():
    f = program("""
        function main(A: float32[4], out C: float32[4])
          for i in 0 .. 4
            C[i] = A[i]
    """)
    assert unbind_threads(f).body is f.body
