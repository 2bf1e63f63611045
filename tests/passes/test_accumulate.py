"""Elements updated in a loop are kept in local accumulators."""

from __future__ import annotations

import pytest

from tensorc.ir.printer import show
from tensorc.passes import lower
from tensorc.passes.accumulate import promote_accumulators
from tests.passes.same import assert_same, assert_text, program


def promoted(text: str, *extents: dict[str, int]):
    f = program(text)
    g = promote_accumulators(f)
    for values in extents or ({},):
        assert_same(f, g, **values)
    return g


def test_a_tile_with_its_start_ahead_of_the_loop():
    g = promoted("""
        function main(A: float32[6, 4], out C: float32[4])
          for o in 0 .. 2
            if o == 0
              for i in 0 .. 4 unrolled
                C[i] = float32(0.0)
            for k in 0 .. 3
              for i in 0 .. 4 unrolled
                C[i] = C[i] + A[o * 3 + k, i]
    """)
    assert_text(
        g,
        """
        function main(A: float32[6, 4], out C: float32[4])
          for o in 0 .. 2
            alloc C.acc: float32[4] @local align 64
              if o == 0
                for i in 0 .. 4 unrolled
                  C.acc[i] = float32(0.0)
              else
                for i in 0 .. 4 unrolled
                  C.acc[i] = C[i]
              for k in 0 .. 3
                for i in 0 .. 4 unrolled
                  C.acc[i] = C.acc[i] + A[o * 3 + k, i]
              for i in 0 .. 4 unrolled
                C[i] = C.acc[i]
    """,
    )


def test_a_start_in_the_first_iteration():
    g = promoted(
        """
        function main(A: float32[n, m], out C: float32[1])
          C[0] = float32(7.0)
          for k in 0 .. n
            for l in 0 .. m
              if k == 0 and l == 0
                C[0] = float32(0.0)
              C[0] = C[0] + A[k, l]
    """,
        *[dict(n=n, m=m) for n in (0, 1, 3) for m in (0, 1, 3)],
    )
    assert "C.acc" in show(g)


def test_an_element_without_indices():
    g = promoted("""
        function main(A: float32[5, 4], out C: float32[])
          C[] = float32(0.0)
          for k in 0 .. 5
            C[] = C[] + reduce_add(A[k, ramp(0, 1, 4)])
    """)
    assert "C.acc: float32[4] @local" in show(g)


def test_one_accumulator_a_lane_is_reduced_after_the_loop():
    g = promoted("""
        function main(A: float32[32], out C: float32[1])
          C[0] = float32(5.0)
          for k in 0 .. 4
            C[0] = C[0] + reduce_add(A[ramp(k * 8, 1, 8)])
    """)
    assert_text(
        g,
        """
        function main(A: float32[32], out C: float32[1])
          alloc C.acc: float32[8] @local align 64
            C.acc[ramp(0, 1, 8)] = broadcast(float32(0.0), 8)
            C[0] = float32(5.0)
            for k in 0 .. 4
              C.acc[ramp(0, 1, 8)] = C.acc[ramp(0, 1, 8)] + A[ramp(k * 8, 1, 8)]
            C[0] = C[0] + reduce_add(C.acc[ramp(0, 1, 8)])
    """,
    )


def test_masked_vectors_and_guarded_rows():
    g = promoted("""
        function main(A: float32[3, 3, 8], out C: float32[3, 5])
          for i in 0 .. 4 unrolled
            if i < 3
              C[i, ramp(0, 1, 8)] = broadcast(float32(1.0), 8) mask ramp(0, 1, 8) < broadcast(5, 8)
          for k in 0 .. 3
            for i in 0 .. 4 unrolled
              if i < 3
                C[i, ramp(0, 1, 8)] = C[i, ramp(0, 1, 8)] mask(ramp(0, 1, 8) < broadcast(5, 8)) \
+ A[k, i, ramp(0, 1, 8)] mask ramp(0, 1, 8) < broadcast(5, 8)
    """)
    assert "C.acc[i, ramp(0, 1, 8)] = broadcast(float32(1.0), 8)\n" in show(g)


def test_the_outermost_loop_that_leaves_the_element_alone():
    g = promoted("""
        function main(A: float32[3, 2, 4, 5], out C: float32[4])
          for z in 0 .. 4
            C[z] = float32(0.0)
          for i in 0 .. 4
            for k in 0 .. 3
              for u in 0 .. 2 unrolled
                for l in 0 .. 5
                  C[i] = C[i] + A[k, u, i, l]
    """)
    lines = show(g).splitlines()
    assert lines.index("    alloc C.acc: float32[1] @local align 64") < lines.index(
        "      for k in 0 .. 3"
    )


def test_a_term_that_only_some_iterations_add():
    g = promoted("""
        function main(A: float32[9], out C: float32[4])
          for i in 0 .. 4
            C[i] = float32(0.0)
          for o in 0 .. 3
            for k in 0 .. 4
              if o * 4 + k < 9
                C[1] = C[1] + A[o * 4 + k]
    """)
    assert "C.acc" in show(g)


def test_two_sums_of_one_loop():
    g = promoted("""
        function main(A: float32[9], out C: float32[1], out D: float32[1])
          C[0] = float32(0.0)
          D[0] = float32(0.0)
          for k in 0 .. 9
            C[0] = C[0] + A[k]
            D[0] = max(D[0], A[k])
    """)
    assert "C.acc" in show(g) and "D.acc" in show(g)


@pytest.mark.parametrize("body", [
    "C[0] = C[0] + A[k]\n            D[k] = C[0] + C[1]",  # read at another place
    "C[k] = C[k] + A[k]",  # another element each time
    "for i in 0 .. 3 unrolled\n              for j in 0 .. 3 unrolled\n"
    "                C[i + j] = C[i + j] + A[k]",
    "C[0] = C[0] + A[k]\n            C[1] = C[1] * A[k]",  # two places
    "for i in 0 .. 8\n              C[i] = C[i] + A[k]",  # not unrolled
    "C[I[0]] = C[I[0]] + A[k]",  # a place from data
])  # fmt: skip
def test_others_stay_in_memory(body):
    g = promoted(
        f"""
        function main(A: float32[8], I: int64[1], out C: float32[8], out D: float32[8])
          for z in 0 .. 8
            C[z] = float32(0.0)
          for k in 0 .. 8
            {body}
    """.replace("I[0]", "abs(I[0])")
    )
    assert ".acc" not in show(g)


def test_no_more_than_the_registers_hold():
    text = """
        function main(A: float32[2, {n}, 64], out C: float32[{n}, 64])
          for i in 0 .. {n}
            C[i, ramp(0, 1, 64)] = broadcast(float32(0.0), 64)
          for k in 0 .. 2
            for i in 0 .. {n} unrolled
              C[i, ramp(0, 1, 64)] = C[i, ramp(0, 1, 64)] + A[k, i, ramp(0, 1, 64)]
    """
    assert ".acc" in show(promoted(text.format(n=16)))
    assert ".acc" not in show(promoted(text.format(n=17)))


def test_a_start_under_a_guard_that_holds_in_the_first_iteration():
    g = promoted("""
        function main(A: float32[9], out C: float32[1])
          for o in 0 .. 3
            for k in 0 .. 4
              if o * 4 + k < 9
                if o == 0 and k == 0
                  C[0] = float32(0.0)
                C[0] = C[0] + A[o * 4 + k]
    """)
    assert "C.acc[0] = float32(0.0)\n    for o" in show(g)


def test_a_sum_that_is_read_in_the_loop_has_no_accumulator_a_lane():
    """Only the whole of the lanes is what another store may read."""
    promoted("""
        function main(A: float32[24], out C: float32[1], out D: float32[3])
          C[0] = float32(5.0)
          for k in 0 .. 3
            C[0] = C[0] + reduce_add(A[ramp(k * 8, 1, 8)])
            D[k] = C[0]
    """)


def test_a_tile_over_two_dimensions():
    function = program("""
        function f(A: int32[6, 4], out C: int32[3, 2, 2])
          for t in 0 .. 3 unrolled
            for i in 0 .. 2
              for j in 0 .. 2
                C[t, i, j] = int32(0)
          for k in 0 .. 6
            for t in 0 .. 3 unrolled
              C[t, ramp(0, 1, 4) // broadcast(2, 4), ramp(0, 1, 4) % broadcast(2, 4)] = \
C[t, ramp(0, 1, 4) // broadcast(2, 4), ramp(0, 1, 4) % broadcast(2, 4)] + A[k, ramp(0, 1, 4)]
    """)
    flat = lower(function)
    assert "C.acc[ramp(t * 4, 1, 4)] = C.acc[ramp(t * 4, 1, 4)] + A[ramp(k * 4, 1, 4)]" in show(flat)
    assert_same(function, flat)
    overlapping = program("""
        function f(A: int32[6, 4], out C: int32[2, 4])
          for k in 0 .. 6
            C[ramp(0, 1, 4) // broadcast(4, 4), ramp(0, 1, 4) % broadcast(2, 4)] = \
C[ramp(0, 1, 4) // broadcast(4, 4), ramp(0, 1, 4) % broadcast(2, 4)] + A[k, ramp(0, 1, 4)]
    """)
    assert "C.acc" not in show(lower(overlapping))


def test_an_element_of_a_loop_that_never_runs_need_not_exist():
    g = promoted("""
        function main(A: float32[7], out C: float32[7])
          for z in 0 .. 7
            C[z] = float32(0.0)
          for i in 0 .. 6
            for j in 0 .. 3
              for k in 0 .. 7 - i * 3
                C[i * 3] = C[i * 3] + A[k]
    """)
    lines = [line.strip() for line in show(g).splitlines()]
    assert lines.index("for j in 0 .. 3") < lines.index("alloc C.acc: float32[1] @local align 64")


@pytest.mark.parametrize(
    "index",
    [
        "o * 2 + (p * 3 + v) // 5, ramp((p * 3 + v) % 5 * 4, 1, 4)",  # vectors that cross no row
        "ramp(p * 12 + v * 4, 1, 4) // broadcast(6, 4), ramp(p * 12 + v * 4, 1, 4) % broadcast(6, 4)",
        "broadcast(o, 4) + ramp(p * 12 + v * 4, 1, 4) // broadcast(6, 4), "
        "ramp(p * 12 + v * 4, 1, 4) % broadcast(6, 4)",
    ],
)
def test_columns_of_rows_that_run_on(index):
    g = promoted(f"""
        function main(A: float32[6, 12], out C: float32[8, 32])
          for o in 0 .. 1
            for p in 0 .. 2
              for v in 0 .. 3 unrolled
                C[{index}] = broadcast(float32(0.0), 4)
              for k in 0 .. 6
                for v in 0 .. 3 unrolled
                  C[{index}] = C[{index}] + A[k, ramp(v * 4, 1, 4)]
    """)
    assert "alloc C.acc: float32[3, 4] @local" in show(g)


@pytest.mark.parametrize("index", ["(p * 3 + v) // 5, ramp(v % 2, 1, 4)", "v // 2, ramp(v % 2 * 2, 1, 4)"])
def test_columns_that_overlap_stay_in_memory(index):
    g = promoted(f"""
        function main(A: float32[6, 12], out C: float32[8, 32])
          for r in 0 .. 8
            for l in 0 .. 32
              C[r, l] = float32(0.0)
          for p in 0 .. 2
            for k in 0 .. 6
              for v in 0 .. 3 unrolled
                C[{index}] = C[{index}] + A[k, ramp(v * 4, 1, 4)]
    """)
    assert "C.acc" not in show(g)
