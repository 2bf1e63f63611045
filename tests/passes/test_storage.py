"""Where internal buffers live, how large they are, and flat indices."""

from __future__ import annotations

import numpy as np

import tensorc as tc
from tensorc import te
from tensorc.ir.interpreter import interpret
from tensorc.ir.printer import show
from tensorc.ir.verifier import verify
from tensorc.passes.storage import place_buffers
from tests.passes.same import assert_lowers, assert_same, assert_text, program


def placed(text: str, *extents: dict[str, int]):
    f = program(text)
    g = place_buffers(f)
    verify(g, "flat")
    for values in extents or ({},):
        assert_same(f, g, **values)
    return g


def test_a_row_lives_inside_its_loop():
    g = placed(
        """
        function main(A: float32[n, 8], out C: float32[n, 8])
          alloc T: float32[n, 8]
          for i in 0 .. n parallel
            for j in 0 .. 8
              T[i, j] = A[i, j]
            for j2 in 0 .. 8
              C[i, j2] = T[i, 7 - j2]
    """,
        dict(n=0),
        dict(n=3),
    )
    assert_text(
        g,
        """
        function main(A: float32[n, 8], out C: float32[n, 8])
          for i in 0 .. n parallel
            alloc T: float32[1, 8] @local align 64
              for j in 0 .. 8
                T[j] = A[i * 8 + j]
              for j2 in 0 .. 8
                C[i * 8 + j2] = T[7 - j2]
    """,
    )


def test_values_carried_between_iterations_live_outside():
    g = placed("""
        function main(A: float32[4], out C: float32[4])
          alloc T: float32[1]
          for i in 0 .. 4
            if i == 0
              T[0] = float32(0.0)
            T[0] = T[0] + A[i]
            C[i] = T[0]
    """)
    assert show(g).index("alloc T") < show(g).index("for i")


def test_a_window_that_moves_is_not_shrunk_away():
    placed("""
        function main(A: float32[6], out C: float32[6])
          alloc T: float32[6]
          for i in 0 .. 6
            T[i] = A[i]
            C[i] = T[max(i - 1, 0)]
    """)


def test_a_sum_over_an_inner_loop_is_private():
    g = placed("""
        function main(A: float32[4, 5], out C: float32[4])
          alloc T: float32[4]
          for i in 0 .. 4
            for k in 0 .. 5
              if k == 0
                T[i] = float32(0.0)
              T[i] = T[i] + A[i, k]
            C[i] = T[i] * float32(2.0)
    """)
    assert show(g).index("for i") < show(g).index("alloc T: float32[1]")


def test_large_or_unknown_sizes_go_to_the_workspace():
    text = """
        function main(A: float32[{n}], out C: float32[{n}])
          alloc T: float32[{n}]
          for i in 0 .. {n}
            T[i] = A[i]
          for j in 0 .. {n}
            C[j] = T[{n} - 1 - j]
    """
    assert "@local" in show(placed(text.format(n=4096)))
    assert "alloc T: float32[4097] align 64" in show(placed(text.format(n=4097)))
    assert "alloc T: float32[n] align 64" in show(placed(text.format(n="n"), dict(n=5)))


def test_parts_that_share_nothing_get_memory_of_their_own():
    g = placed("""
        function main(A: float32[11], out C: float32[11])
          alloc T: float32[11]
          for i in 0 .. 8
            T[i] = A[i]
          for j in 0 .. 8
            C[j] = T[7 - j]
          for k in 0 .. 3
            T[k + 8] = A[k + 8]
          for l in 0 .. 3
            C[l + 8] = T[10 - l]
    """)
    assert "alloc T: float32[8]" in show(g) and "alloc T.1: float32[3]" in show(g)


def test_stores_side_by_side_cover_a_masked_load():
    g = placed("""
        function main(A: float32[4, 6], out C: float32[4, 6])
          alloc T: float32[4, 8]
          for i in 0 .. 4
            T[i, ramp(0, 1, 4)] = A[i, ramp(0, 1, 4)]
            T[i, ramp(4, 1, 2)] = A[i, ramp(4, 1, 2)]
            C[i, ramp(0, 1, 8)] = T[i, ramp(0, 1, 8)] mask(ramp(0, 1, 8) < broadcast(6, 8)) \
mask ramp(0, 1, 8) < broadcast(6, 8)
    """)
    assert show(g).index("for i") < show(g).index("alloc T")


def test_strides_of_parameters():
    g = place_buffers(
        program("""
        function main(A: float32[n, 8] strides [s, 2], out C: float32[n, 8])
          for i in 0 .. n
            C[i, ramp(0, 1, 8)] = A[i, ramp(0, 1, 8)]
    """)
    )
    assert "A[ramp(i * s, 2, 8)]" in show(g)
    a = np.arange(60, dtype=np.float32).reshape(3, 20)[:, 0:16:2]
    np.testing.assert_array_equal(interpret(g, a), a)


def test_outer_terms_first_and_the_constant_last():
    g = placed("""
        function main(A: float32[4, 5, 6], out C: float32[4, 5, 3])
          for j in 0 .. 5
            for i in 0 .. 4
              for k in 0 .. 3
                C[i, j, k] = A[i, j, k + 3]
    """)
    assert "A[j * 6 + i * 30 + k + 3]" in show(g)


def test_gathers_over_two_axes():
    placed("""
        function main(A: float32[4, 6], out C: float32[8])
          C[ramp(0, 1, 8)] = A[ramp(0, 1, 8) // broadcast(2, 8), ramp(0, 1, 8) % broadcast(6, 8)]
    """)


def test_a_store_that_skips_what_another_wrote_does_not_stand_alone():
    """The second stage writes the first 8 elements; what it leaves is the first one's."""
    before = program("""
        function main(A: float32[8], out C: float32[8])
          alloc P: float32[12]
          for o in 0 .. 2
            for f in 0 .. 8
              block F
                spatial i: 12 = o * 4 + f
                P[i] = float32(3.0)
            for p in 0 .. 8
              block P
                spatial i: 8 = o * 4 + p
                where o * 4 + p < 8
                P[i] = A[i]
            for c in 0 .. 4
              block C
                spatial i: 8 = o * 4 + c
                C[i] = P[i] + P[i + 4]
    """)
    assert_lowers(before)


def test_a_loop_that_begins_anywhere_does_not_write_what_lies_before():
    before = program("""
        function main(A: float32[7], out C: float32[7, 7])
          alloc P: float32[7, 7]
          for o in 0 .. 7
            for a in 0 .. max(min(2, 7 - o * 2), 0)
              block A
                spatial i: 7 = o
                spatial j: 7 = a
                P[i, j] = A[j]
            for b in max(min(2, 7 - o * 2), 0) .. 7
              block B
                spatial i: 7 = o
                spatial j: 7 = b
                P[i, j] = A[j] * float32(2.0)
            for c in 0 .. 7
              block C
                spatial i: 7 = o
                spatial j: 7 = c
                C[i, j] = P[i, j]
    """)
    assert_lowers(before)


def test_rows_whose_last_vectors_start_earlier_cover_what_is_read():
    g = placed("""
        function main(A: float32[6, 7], out C: float32[42])
          alloc T: float32[42]
          for i in 0 .. 3
            for r in 0 .. 2
              for v in 0 .. 2 unrolled
                T[ramp(i * 14 + r * 7 + min(v * 4, 3), 1, 4)] = A[i * 2 + r, ramp(min(v * 4, 3), 1, 4)]
            for l in 0 .. 14
              C[i * 14 + l] = T[i * 14 + l]
    """)
    assert "alloc T: float32[14]" in show(g)


def test_rows_with_a_shorter_last_vector_cover_what_is_read():
    g = placed("""
        function main(A: float32[6, 11], out C: float32[66])
          alloc T: float32[66]
          for i in 0 .. 3
            for r in 0 .. 2
              for v in 0 .. 2 unrolled
                T[ramp(i * 22 + r * 11 + v * 4, 1, 4)] = A[i * 2 + r, ramp(v * 4, 1, 4)]
              T[ramp(i * 22 + r * 11 + 8, 1, 2)] = A[i * 2 + r, ramp(8, 1, 2)]
              T[i * 22 + r * 11 + 10] = A[i * 2 + r, 10]
            for l in 0 .. 22
              C[i * 22 + l] = T[i * 22 + l]
    """)
    assert "alloc T: float32[22]" in show(g)


def test_rows_with_gaps_do_not_cover_what_is_read():
    g = placed("""
        function main(A: float32[6, 11], out C: float32[66])
          alloc T: float32[66]
          for j in 0 .. 66
            T[j] = float32(0.0)
          for i in 0 .. 3
            for r in 0 .. 2
              for v in 0 .. 2 unrolled
                T[ramp(i * 22 + r * 11 + v * 4, 1, 4)] = A[i * 2 + r, ramp(v * 4, 1, 4)]
              T[ramp(i * 22 + r * 11 + 9, 1, 2)] = A[i * 2 + r, ramp(9, 1, 2)]
            for l in 0 .. 22
              C[i * 22 + l] = T[i * 22 + l]
    """)
    assert "alloc T: float32[66]" in show(g)


def test_a_buffer_is_no_larger_than_it_was_declared():
    """Of an index whose loop may run far, as its range is loaded, all is taken that there is."""
    A, L = te.placeholder((7, 63), name="A"), te.placeholder((), "int32", name="L")
    T = te.compute((7, 63), lambda i, j: A[i, j] + 1.0, name="T")

    def row(i):
        k = te.reduce_axis((0, L[()]), name="k")
        return te.sum(te.round(T[i, k * 2 + 1]), axis=k)

    s = tc.schedule([A, L, te.compute((7,), row, name="C")])
    s.split("T.i", factors=(None, 4), tail="shift")
    s.compute_at("T", "C.k")
    flat = tc.build(s, threads=1, cache=False).source("flat")
    assert "alloc T: float32[7, 62]" in flat
