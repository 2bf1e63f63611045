"""Annotated loops ask for the lines that they will read, and never read out of bounds for that."""

from __future__ import annotations

import numpy as np
import pytest

import tensorc as tc
from tensorc import te
from tensorc.ir.printer import show
from tensorc.passes.pipeline import lower
from tensorc.passes.prefetch import prefetch_ahead
from tests.passes.same import assert_same, assert_text, program


def ahead(text: str):
    f = program(text)
    g = prefetch_ahead(f)
    assert_same(f, g)
    return g


def test_one_element_of_each_line():
    g = ahead("""
        function main(A: float32[10, 40], out C: float32[10])
          for i in 0 .. 10 {prefetch.A = 2}
            C[i] = A[i, 0]
            for k in 0 .. 40
              C[i] = C[i] + A[i, k]
    """)
    assert_text(
        g,
        """
        function main(A: float32[10, 40], out C: float32[10])
          for i in 0 .. 10 {prefetch.A = 2}
            for i.ahead1 in 0 .. 3 unrolled
              prefetch A[i + 2, i.ahead1 * 16]
            C[i] = A[i, 0]
            for k in 0 .. 40
              C[i] = C[i] + A[i, k]
    """,
    )


def test_only_what_is_new_of_a_moving_window():
    g = ahead("""
        function main(A: float32[12, 16], out C: float32[10, 16])
          for i in 0 .. 10 {prefetch.A = 1}
            for j in 0 .. 16
              C[i, j] = A[i, j] + A[i + 1, j] + A[i + 2, j]
    """)
    assert_text(
        g,
        """
        function main(A: float32[12, 16], out C: float32[10, 16])
          for i in 0 .. 10 {prefetch.A = 1}
            prefetch A[i + 3, 0]
            for j in 0 .. 16
              C[i, j] = A[i, j] + A[i + 1, j] + A[i + 2, j]
    """,
    )


def test_data_that_tells_the_places_is_read_inside_its_buffer_only():
    g = ahead("""
        function main(I: int64[10], J: int64[10], X: float32[8], out C: float32[10])
          for i in 0 .. 10 {prefetch.X = 4}
            C[i] = X[max(0, min(7, I[max(0, min(9, J[i]))]))]
    """)
    assert_text(
        g,
        """
        function main(I: int64[10], J: int64[10], X: float32[8], out C: float32[10])
          for i in 0 .. 10 {prefetch.X = 4}
            if i + 4 < 10
              prefetch X[max(0, min(7, I[max(0, min(9, J[i + 4]))]))]
            C[i] = X[max(0, min(7, I[max(0, min(9, J[i]))]))]
    """,
    )


def test_each_load_is_tested_before_the_next():
    g = ahead("""
        function main(I: int64[10], J: int64[10], X: float32[8], out C: float32[10])
          for i in 0 .. 10 {prefetch.X = 4}
            C[i] = float32(0.0)
            if J[i] >= 0 and J[i] < 10
              C[i] = X[max(0, min(7, I[max(0, J[i])]))]
    """)
    assert_text(
        g,
        """
        function main(I: int64[10], J: int64[10], X: float32[8], out C: float32[10])
          for i in 0 .. 10 {prefetch.X = 4}
            if i + 4 < 10
              if max(0, J[i + 4]) < 10
                prefetch X[max(0, min(7, I[max(0, J[i + 4])]))]
            C[i] = float32(0.0)
            if J[i] >= 0 and J[i] < 10
              C[i] = X[max(0, min(7, I[max(0, J[i])]))]
    """,
    )


def test_rows_at_places_from_data_are_asked_for_line_by_line():
    f = program("""
        function main(I: int64[10], X: float32[8, 80], out C: float32[10, 80])
          for i in 0 .. 10 {prefetch.X = 1}
            for j in 0 .. 5
              for l in 0 .. 16
                C[i, j * 16 + l] = X[max(0, min(7, I[i])), j * 16 + l]
    """)
    text = show(prefetch_ahead(f))
    assert """
    if i + 1 < 10
      for j.ahead in 0 .. 5 unrolled
        prefetch X[max(0, min(7, I[i + 1])), j.ahead * 16]
""" in text


def test_ranges_from_data():
    g = ahead("""
        function main(P: int64[5], J: int64[9], X: float32[8], out C: float32[4])
          for i in 0 .. 4 {prefetch.X = 1}
            C[i] = float32(0.0)
            for k in 0 .. min(2, max(0, P[i + 1]))
              C[i] = C[i] + X[max(0, min(7, J[k]))]
    """)
    assert_text(
        g,
        """
        function main(P: int64[5], J: int64[9], X: float32[8], out C: float32[4])
          for i in 0 .. 4 {prefetch.X = 1}
            if i + 2 < 5
              for k.ahead in 0 .. min(2, max(0, P[i + 2]))
                prefetch X[max(0, min(7, J[k.ahead]))]
            C[i] = float32(0.0)
            for k in 0 .. min(2, max(0, P[i + 1]))
              C[i] = C[i] + X[max(0, min(7, J[k]))]
    """,
    )


@pytest.mark.parametrize(
    "wish", ["prefetch.B = 1", "prefetch.Z = 1"], ids=["the same in each iteration", "not there"]
)
def test_wishes_that_cannot_be_followed_are_dropped(wish):
    f = program("""
        function main(A: float32[4], B: float32[4], out C: float32[4])
          for i in 0 .. 4 {WISH}
            C[i] = A[i] + B[2]
    """.replace("WISH", wish))
    assert prefetch_ahead(f).body.body is f.body.body


def test_in_vectors_the_first_lane_asks():
    f = program("""
        function main(A: float32[9, 64], out C: float32[64])
          for i in 0 .. 64 vectorized
            C[i] = float32(0.0)
            for k in 0 .. 9 {prefetch.A = 1}
              C[i] = C[i] + A[k, i]
    """)
    g = lower(f, check=True)
    assert_same(f, g)
    assert "prefetch A[k * 64 + 64]" in show(g)


def test_a_buffer_that_does_not_exist_yet_is_not_asked_for():
    f = program("""
        function main(A: float32[64], out C: float32[64])
          alloc T: float32[64]
          for i in 0 .. 8 {prefetch.T = 1}
            for j in 0 .. 8
              T[i * 8 + j] = A[i * 8 + j]
            for k in 0 .. 8
              C[i * 8 + k] = T[i * 8 + k]
    """)
    assert_same(f, lower(f, check=True))


def test_what_vectors_read_is_asked_for_too():
    s = tc.schedule(copied())
    lanes = s.split("B.i", (None, 4))[1]
    s.tensorize(lanes, "copy.4.float32")
    s.prefetch("B.i.0", "A", 2)
    kernel = tc.build(s, cache=False)
    assert "prefetch A" in kernel.source("flat")
    a = np.arange(64, dtype="float32")
    assert np.array_equal(kernel(a), a)


def copied() -> list[te.Tensor]:
    A = te.placeholder((64,), name="A")
    return [A, te.compute((64,), lambda i: A[i], name="B")]
