"""Vectorized loops become vectors, masks and lane reductions, or serial loops where there is no
vector form."""

from __future__ import annotations

import pytest

from tensorc.ir.printer import show
from tensorc.passes.vectorize import vectorize_loops
from tests.passes.same import assert_same, assert_text, program


def vector(text: str):
    f = program(text)
    g = vectorize_loops(f)
    assert_same(f, g)
    return g


def test_contiguous_strided_and_reversed_accesses():
    g = vector("""
        function main(A: float32[40], out C: float32[8])
          for i in 0 .. 8 vectorized
            C[i] = A[i + 3] + A[i * 2 + 1] * A[7 - i]
    """)
    assert_text(
        g,
        """
        function main(A: float32[40], out C: float32[8])
          C[ramp(0, 1, 8)] = A[ramp(3, 1, 8)] + A[ramp(1, 2, 8)] * A[ramp(7, -1, 8)]
    """,
    )


def test_equal_terms_at_two_places_leave_a_ramp():
    g = vector("""
        function main(A: float32[4, 40], out C: float32[4, 4, 8])
          for o in 0 .. 4
            for m in 0 .. 4
              for i in 0 .. 8 vectorized
                C[o, m, i] = A[o, m * 8 + i] + A[o, o + m * 8 + i]
    """)
    assert "A[o, ramp(o + m * 8, 1, 8)]" in show(g)


def test_a_gather_where_the_index_is_not_linear():
    g = vector("""
        function main(A: float32[40], I: int64[8], out C: float32[8])
          for i in 0 .. 8 vectorized
            C[i] = A[i // 3] + A[I[i] + 4]
    """)
    assert "A[I[ramp(0, 1, 8)] + broadcast(4, 8)]" in show(g)


def test_conditions_of_lanes_become_masks_and_others_stay():
    g = vector("""
        function main(A: float32[20], out C: float32[20])
          for i in 0 .. 20
            C[i] = float32(0.0)
          for o in 0 .. 4
            for i in 0 .. 8 vectorized
              if o * 8 + i < 19 and o != 1
                C[o * 8 + i] = A[o * 8 + i] + A[19]
    """)
    text = show(g)
    assert "if o != 1" in text
    assert (
        "= A[ramp(o * 8, 1, 8)] mask(ramp(o * 8, 1, 8) < broadcast(19, 8)) + broadcast(A[19], 8)"
        in text
    )


def test_a_uniform_load_under_a_mask_is_made_only_if_a_lane_runs():
    g = vector("""
        function main(A: float32[20], B: float32[3], out C: float32[20])
          for o in 0 .. 4
            for i in 0 .. 8 vectorized
              if o * 8 + i < 20
                C[o * 8 + i] = A[o * 8 + i] + B[o]
    """)
    assert "if o * 8 < 20" in show(g) or "if o < 3" in show(g)


def test_both_branches():
    vector("""
        function main(A: float32[8], out C: float32[8])
          for i in 0 .. 8 vectorized
            if i < 3
              C[i] = A[i]
            else
              C[i] = A[i - 3]
    """)


def test_if_then_else_guards_its_loads():
    g = vector("""
        function main(A: float32[8], B: float32[2], out C: float32[8])
          for o in 0 .. 3
            for i in 0 .. 8 vectorized
              C[i] = if_then_else(i + o >= 2 and i < 7, A[i + o - 2] + B[min(o, 1)], float32(1.0))
    """)
    assert "if_then_else" not in show(g)


def test_serial_loops_inside_are_widened():
    g = vector("""
        function main(A: float32[4, 8], out C: float32[8])
          for i in 0 .. 8 vectorized
            C[i] = float32(0.0)
            for k in 0 .. 4
              C[i] = C[i] + A[k, i]
    """)
    assert_text(
        g,
        """
        function main(A: float32[4, 8], out C: float32[8])
          C[ramp(0, 1, 8)] = broadcast(float32(0.0), 8)
          for k in 0 .. 4
            C[ramp(0, 1, 8)] = C[ramp(0, 1, 8)] + A[k, ramp(0, 1, 8)]
    """,
    )


@pytest.mark.parametrize("update, reduction", [
    ("C[0] + A[k]", "reduce_add(A["), ("A[k] * C[0]", "reduce_mul(A["),
    ("max(C[0], A[k])", "reduce_max(A["), ("min(C[0], A[k])", "reduce_min(A["),
    ("C[0] + A[3]", "reduce_add(broadcast"),
])  # fmt: skip
def test_reductions_over_lanes(update, reduction):
    g = vector(f"""
        function main(A: float32[8], out C: float32[1])
          C[0] = float32(1.0)
          for k in 0 .. 8 vectorized
            C[0] = {update}
    """)
    assert reduction in show(g)


def test_a_masked_reduction_ignores_the_other_lanes():
    g = vector("""
        function main(A: float32[13], out C: float32[1])
          C[0] = float32(-100.0)
          for o in 0 .. 2
            for k in 0 .. 8 vectorized
              if o * 8 + k < 13
                C[0] = max(C[0], A[o * 8 + k])
    """)
    assert "broadcast(float32(-inf), 8)" in show(g)


def test_a_let_is_widened():
    vector("""
        function main(A: float32[8], out C: float32[8])
          for i in 0 .. 8 vectorized
            let x: float32 = A[7 - i] * float32(2.0)
              C[i] = x * x
    """)


@pytest.mark.parametrize("body", [
    "C[0] = A[i]",
    "C[0] = C[0] * float32(2.0) + A[i]",
    "C[0] = C[0] * float32(2.0) + C[0]",
    "check A[i] < float32(10.0), i, \"too large\"",
    "for k in 0 .. i\n              C[i] = C[i] + A[k]",
])  # fmt: skip
def test_what_has_no_vector_form_runs_serially(body):
    g = vector(f"""
        function main(A: float32[8], out C: float32[8])
          for z in 0 .. 8
            C[z] = float32(0.0)
          for i in 0 .. 8 vectorized
            {body}
    """)
    assert "ramp" not in show(g) and "vectorized" not in show(g)


def test_of_two_nested_loops_the_inner_one_is_the_vector():
    g = vector("""
        function main(A: float32[4, 8], out C: float32[4, 8])
          for i in 0 .. 4 vectorized
            for j in 0 .. 8 vectorized
              C[i, j] = A[i, j]
    """)
    assert "for i in 0 .. 4\n    C[i, ramp(0, 1, 8)]" in show(g)


def test_a_sum_that_every_lane_makes_anew_is_no_sum_over_lanes():
    g = vector("""
        function main(A: float32[4], B: float32[8], out T: float32[1], out C: float32[8])
          for i in 0 .. 8 vectorized
            T[0] = float32(0.0)
            for k in 0 .. 4
              T[0] = T[0] + A[k]
            C[i] = B[i] * T[0]
    """)
    assert "reduce" not in show(g) and "C[ramp(0, 1, 8)]" in show(g)


def test_the_start_of_a_sum_in_the_first_lane_by_any_condition():
    g = vector("""
        function main(A: float32[2], out C: float32[2])
          for i in 0 .. 2
            for k in 0 .. 6 vectorized
              if k // 2 == 0 and k % 2 == 0
                C[i] = float32(0.0)
              C[i] = C[i] + A[i]
    """)
    assert "C[i] + reduce_add(broadcast(A[i], 6))" in show(g)


def test_a_start_in_the_midst_of_a_sum():
    g = vector("""
        function main(A: float32[8], out C: float32[1])
          C[0] = float32(0.0)
          for k in 0 .. 8 vectorized
            if k % 3 == 2
              C[0] = float32(0.0)
            C[0] = C[0] + A[k]
    """)
    assert "ramp" not in show(g)
