"""One level of parallel loops."""

from __future__ import annotations

from tensorc.passes.threads import assign_threads
from tests.passes.same import assert_same, assert_text, program


def test_parallel_in_parallel_is_serial_and_so_is_a_single_iteration():
    f = program("""
        function main(A: float32[4, 4], out C: float32[4, 4])
          for k in 0 .. 2
            for i in 0 .. 4 parallel
              for j in 0 .. 4 parallel
                C[i, j] = A[i, j]
          for i in 0 .. 1 parallel
            for j in 0 .. 4 parallel
              C[i, j] = A[i, j]
    """)
    g = assign_threads(f)
    assert_same(f, g)
    assert_text(
        g,
        """
        function main(A: float32[4, 4], out C: float32[4, 4])
          for k in 0 .. 2
            for i in 0 .. 4 parallel
              for j in 0 .. 4
                C[i, j] = A[i, j]
          for i in 0 .. 1
            for j in 0 .. 4 parallel
              C[i, j] = A[i, j]
    """,
    )
