"""A second body for the interior of loops over vectors that clamp or guard their indices."""

from __future__ import annotations

import pytest

from tensorc.passes.interior import split_interiors
from tests.passes.same import assert_same, assert_text, program


def split(text: str):
    f = program(text)
    g = split_interiors(f)
    assert_same(f, g)
    return f, g


def test_clamps_vanish_inside():
    _, g = split("""
        function main(A: float32[64], out C: float32[64])
          for o in 0 .. 8
            for l in 0 .. 8 vectorized
              C[o * 8 + l] = A[max(o * 8 + l - 3, 0)] + A[min(o * 8 + l + 9, 63)]
    """)
    assert_text(g, """
        function main(A: float32[64], out C: float32[64])
          for o in 0 .. 8
            if o >= 1 and o < 6
              for l in 0 .. 8 vectorized
                C[o * 8 + l] = A[o * 8 + l - 3] + A[o * 8 + l + 9]
            else
              for l in 0 .. 8 vectorized
                C[o * 8 + l] = A[max(o * 8 + l - 3, 0)] + A[min(o * 8 + l + 9, 63)]
    """)


def test_guards_vanish_inside():
    _, g = split("""
        function main(A: float32[64], out C: float32[66])
          for o in 0 .. 11
            for l in 0 .. 6 vectorized
              C[o * 6 + l] = if_then_else(o * 6 + l >= 1 and o * 6 + l < 65, A[o * 6 + l - 1], float32(0.0))
    """)
    assert_text(g, """
        function main(A: float32[64], out C: float32[66])
          for o in 0 .. 11
            if o >= 1 and o < 10
              for l in 0 .. 6 vectorized
                C[o * 6 + l] = A[o * 6 + l - 1]
            else
              for l in 0 .. 6 vectorized
                C[o * 6 + l] = if_then_else(o * 6 + l >= 1 and o * 6 + l < 65, A[o * 6 + l - 1], float32(0.0))
    """)


@pytest.mark.parametrize("kind", ["", " parallel"])
def test_divided_indices(kind):
    """Interleaved channels: the clamp is on the pixel, the vector runs over pixels and channels."""
    f, g = split(f"""
        function main(A: uint8[4, 32, 3], out C: uint8[4, 96])
          for y in 0 .. 4
            for o in 0 .. 12{kind}
              for l in 0 .. 8 vectorized
                C[y, o * 8 + l] = A[y, max((o * 8 + l) // 3 - 2, 0), (o * 8 + l) % 3]
    """)
    assert g is not f


@pytest.mark.parametrize(
    "loops",
    [
        "for o in 0 .. 4\n            for l in 0 .. 8 vectorized",  # too few iterations
        "for o in 0 .. 32\n            for l in 0 .. 1",  # no vectors
        "for o in 0 .. 32 unrolled\n            for l in 0 .. 1 vectorized",  # unrolled: constants decide
    ],
)
def test_other_loops_stay(loops):
    f, g = split(f"""
        function main(A: float32[64], out C: float32[64])
          {loops}
              C[o + l] = A[max(o + l - 3, 0)]
    """)
    assert g is f


def test_undecided_everywhere_stays():
    f, g = split("""
        function main(A: float32[64], out C: float32[64])
          for o in 0 .. 8
            for l in 0 .. 8 vectorized
              C[o * 8 + l] = A[max(o * 8 - l * 8, 0)]
    """)
    assert g is f
