"""pad_einsum and decompose_padding."""

from __future__ import annotations

import pytest

import tensorc as tc
from tensorc import te
from tensorc.errors import ScheduleError
from tensorc.ir.parser import parse
from tensorc.ir.printer import show
from tensorc.schedule import Schedule, Trace
from tensorc.schedule.primitives.domains import transform_block_layout
from tensorc.schedule.primitives.loops import parallel, split
from tensorc.schedule.primitives.padding import decompose_padding, pad_einsum
from tensorc.schedule.primitives.placement import compute_at
from tensorc.schedule.primitives.reduction import decompose_reduction
from tests.schedule.same import assert_same
from tests.schedule.test_caching import MATMUL
from tests.schedule.test_reindexing import refusal

PAD = """
function pad(A: float32[4, 6], out P: float32[6, 9])
  for P.i in 0 .. 6
    for P.j in 0 .. 9
      block P
        spatial i: 6 = P.i
        spatial j: 9 = P.j
        P[i, j] = if_then_else(i >= 1 and i < 5 and j >= 2 and j < 8, A[i - 1, j - 2], float32(0.0))
"""


def test_a_product_is_padded():
    before = parse(MATMUL)
    after, made = pad_einsum(before, "C", (4, 4, 4))
    assert made == ("A_pad", "B_pad", "C_pad")
    assert (
        show(after)
        == """\
function mm(A: float32[4, 6], B: float32[6, 5], out C: float32[4, 5])
  alloc A_pad: float32[4, 8]
  alloc B_pad: float32[8, 8]
  alloc C_pad: float32[4, 8]
  for A_pad.i in 0 .. 4
    for A_pad.k in 0 .. 8
      block A_pad
        spatial i: 4 = A_pad.i
        spatial k: 8 = A_pad.k
        A_pad[i, k] = if_then_else(k < 6, A[i, k], float32(0.0))
  for B_pad.k in 0 .. 8
    for B_pad.j in 0 .. 8
      block B_pad
        spatial k: 8 = B_pad.k
        spatial j: 8 = B_pad.j
        B_pad[k, j] = if_then_else(k < 6 and j < 5, B[k, j], float32(0.0))
  for C.i in 0 .. 4
    for C.j in 0 .. 8
      for C.k in 0 .. 8
        block C
          spatial i: 4 = C.i
          spatial j: 8 = C.j
          reduce k: 8 = C.k
          init
            C_pad[i, j] = float32(0.0)
          C_pad[i, j] = C_pad[i, j] + A_pad[i, k] * B_pad[k, j]
  for C_pad.i in 0 .. 4
    for C_pad.j in 0 .. 5
      block C_pad
        spatial i: 4 = C_pad.i
        spatial j: 5 = C_pad.j
        C[i, j] = C_pad[i, j]"""
    )
    assert_same(before, after)


def test_only_what_is_padded_is_copied():
    before = parse(MATMUL)
    after, made = pad_einsum(before, "C", (1, 1, 4))
    assert made == ("A_pad", "B_pad")
    assert_same(before, after)
    after, made = pad_einsum(before, "C", (3, 1, 1))
    assert made == ("A_pad", "C_pad")
    assert_same(before, after)
    assert pad_einsum(before, "C", (2, 5, 3)) == (before, ())


def test_a_maximum_is_padded_with_what_changes_nothing():
    before = parse("""
function most(A: float32[4, 6], out C: float32[4])
  for C.i in 0 .. 4
    for C.k in 0 .. 6
      block C
        spatial i: 4 = C.i
        reduce k: 6 = C.k
        init
          C[i] = float32(-inf)
        C[i] = max(C[i], A[i, k])
""")
    after, _ = pad_einsum(before, "C", (1, 4))
    assert "if_then_else(k < 6, A[i, k], float32(-inf))" in show(after)
    assert_same(before, after)


def test_symbolic_extents():
    before = parse("""
function mm(A: float32[m, n], out C: float32[m])
  for C.i in 0 .. m
    for C.k in 0 .. n
      block C
        spatial i: m = C.i
        reduce k: n = C.k
        init
          C[i] = float32(0.0)
        C[i] = C[i] + A[i, k]
""")
    after, _ = pad_einsum(before, "C", (4, 8))
    assert "alloc A_pad: float32[(m + 3) // 4 * 4, (n + 7) // 8 * 8]" in show(after)
    for m, n in ((0, 3), (3, 0), (5, 9)):
        assert_same(before, after, m=m, n=n)


def test_the_padding_of_an_iterator_that_reads_a_part_of_an_input():
    before = parse("""
function part(A: float32[4, 9], out C: float32[3])
  for C.i in 0 .. 3
    for C.k in 0 .. 6
      block C
        spatial i: 3 = C.i
        reduce k: 6 = C.k
        init
          C[i] = float32(0.0)
        C[i] = C[i] + A[i, k]
""")
    for padding in ((4, 8), (4, 9), (1, 4), (5, 10)):
        assert_same(before, pad_einsum(before, "C", padding)[0])


def test_an_init_that_reads_memory_does_not_in_the_padding():
    before = parse("""
function biased(A: float32[3, 6], B: float32[5], out C: float32[3])
  for C.i in 0 .. 3
    for C.k in 0 .. 6
      block C
        spatial i: 3 = C.i
        reduce k: 6 = C.k
        init
          C[i] = B[i * 2] + A[2 - i, 5 - i * 2]
        C[i] = C[i] + A[i, k]
""")
    after, _ = pad_einsum(before, "C", (4, 4))
    assert (
        "C_pad[i] = if_then_else(i < 3, B[i * 2] + A[2 - i, 5 - i * 2], float32(0.0))"
    ) in show(after)
    assert_same(before, after)


def test_then_split_without_tails_and_by_a_trace():
    s = Schedule(parse(MATMUL))
    a, _, _ = s.pad_einsum("C", (4, 8, 4))
    s.split("C.j", (None, 8))
    s.split("C.k", (None, 4))
    s.decompose_padding(a, s.loops(a)[0])
    s.vectorize("C.j.1")
    assert "where" not in s.show()
    assert s.trace.python().splitlines()[0] == 'A_pad, B_pad, C_pad = s.pad_einsum("C", padding=(4, 8, 4))'
    assert_same(s.origin, s.function)
    again = Trace.from_json(s.trace.json()).apply(Schedule(parse(MATMUL)))
    assert again.show() == s.show()


def test_pad_einsum_refuses():
    mm = parse(MATMUL)
    step = "pad_einsum(block 'C'): "
    assert refusal(pad_einsum, mm, "C", (4, 4)) == (
        step + "padding must be a number for each of the 3 iterators, not (4, 4)"
    )
    assert refusal(pad_einsum, mm, "C", (4, 4, 0)) == step + "padding 0 is no integer of 1 or more"
    lone = parse(MATMUL.replace("* B[k, j]", "* B[0, j]"))
    assert refusal(pad_einsum, lone, "C", (4, 4, 4)) == (
        step + "the indices of 'B' are not single iterators, each once"
    )
    vector = parse(MATMUL.replace("B: float32[6, 5]", "B: float32[5]").replace("B[k, j]", "B[j]"))
    assert refusal(pad_einsum, vector, "C", (4, 4, 4)) == (
        step + "'B' has no index 'k', and a padded 0 times it may be no 0"
    )
    whole = parse(show(vector).replace("float32(0.0)", "int32(0)").replace("float32", "int32"))
    after, _ = pad_einsum(whole, "C", (4, 4, 4))
    assert_same(whole, after)
    added = parse(MATMUL.replace("A[i, k] * B", "(A[i, k] + B").replace("[k, j]\n", "[k, j])\n"))
    assert refusal(pad_einsum, added, "C", (4, 4, 4)) == (
        step + "its term is neither one element nor, in a sum, a product of elements"
    )
    unit = transform_block_layout(mm, "C", lambda i, j, k: (i // 4, i % 4, j, k))
    assert refusal(pad_einsum, unit, "C", (2, 1, 1, 1)) == (
        step + "no index of 'C' is the spatial iterator 'i'; "
        "in its padding elements would be reduced again"
    )
    started, _ = decompose_reduction(mm, "C", "C.i")
    assert refusal(pad_einsum, started, "C", (4, 4, 4)) == (
        step + "the block is no reduction by one operation with its init"
    )
    function, _ = split(mm, "C.i", (2, 2))
    assert refusal(pad_einsum, function, "C", (4, 4, 4)) == (
        step + "the iterator 'i' is not bound to an innermost loop of its own; "
        "do this before splitting, fusing or moving"
    )


def test_padding_is_filled_before():
    before = parse(PAD)
    after, block = decompose_padding(before, "P", "P.i")
    assert block == "P_pad"
    assert (
        show(after)
        == """\
function pad(A: float32[4, 6], out P: float32[6, 9])
  for P_pad.i in 0 .. 6
    for P_pad.j in 0 .. 9
      block P_pad
        spatial i: 6 = P_pad.i
        spatial j: 9 = P_pad.j
        P[i, j] = float32(0.0)
  for P.i in 0 .. 4
    for P.j in 0 .. 6
      block P
        spatial i: 4 = P.i
        spatial j: 6 = P.j
        P[i + 1, j + 2] = A[i, j]"""
    )
    assert_same(before, after)


def test_padding_is_filled_in_an_inner_loop():
    before = parse(PAD)
    after, _ = decompose_padding(parallel(before, "P.i"), "P", "P.j")
    assert "for P.j in 0 .. 6" in show(after)
    assert "P[i, j + 2] = if_then_else(i >= 1 and i < 5, A[i - 1, j], float32(0.0))" in show(after)
    assert_same(before, after)


def test_padding_of_symbolic_width():
    before = parse(PAD.replace("A: float32[4, 6]", "A: float32[4, n]").replace("9", "n + 3")
                   .replace("out P: float32[6, n + 3]", "out P: float32[6, n + 3]")
                   .replace("j < 8", "j < n + 2"))  # fmt: skip
    after, _ = decompose_padding(before, "P", "P.i")
    assert "P[i + 1, j + 2] = A[i, j]" in show(after)
    for n in (0, 1, 5):
        assert_same(before, after, n=n)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("float32(0.0)", "A[0, 0]", "it stores no if_then_else(condition, value, constant)"),
        (
            "i >= 1 and i < 5 and j >= 2 and j < 8",
            "i != 1",
            "the condition bounds none of the iterators",
        ),
        (
            "A[i - 1, j - 2]",
            "P[i, j]",
            "it must be spatial, and not read what it writes",
        ),
    ],
)
def test_decompose_padding_refuses(old, new, reason):
    function = parse(PAD.replace(old, new))
    assert refusal(decompose_padding, function, "P", "P.i") == (
        f"decompose_padding(block 'P', loop 'P.i'): {reason}"
    )


def test_padding_of_tiles_leaves_the_loops():
    """What bounds a tile, or a loop outside, becomes the predicate of the block."""
    pad = parse(PAD)
    for factors in ((3, 3), (None, 2)):
        function, _ = split(pad, "P.j", factors)
        for loop in ("P.i", "P.j.0", "P.j.1"):
            after, _ = decompose_padding(function, "P", loop)
            assert_same(pad, after)
    inner = parse(PAD.replace(" and j >= 2 and j < 8", "").replace("A[i - 1, j - 2]", "A[i - 1, j % 6]"))
    after, _ = decompose_padding(inner, "P", "P.j")
    assert show(after).splitlines()[1:] == """\
  for P.i in 0 .. 6
    for P_pad.j in 0 .. 9
      block P_pad
        spatial i: 6 = P.i
        spatial j: 9 = P_pad.j
        P[i, j] = float32(0.0)
    for P.j in 0 .. 9
      block P
        spatial i: 4 = P.i - 1
        spatial j: 9 = P.j
        where P.i >= 1 and P.i < 5
        P[i + 1, j] = A[i, j % 6]""".splitlines()
    assert_same(inner, after)


def test_padding_where_a_window_needs_it():
    before = parse("""
function pool(A: float32[9, 9], out C: float32[9, 9])
  alloc P: float32[11, 11]
  for P.i in 0 .. 11
    for P.j in 0 .. 11
      block P
        spatial i: 11 = P.i
        spatial j: 11 = P.j
        P[i, j] = if_then_else(i >= 1 and i < 10 and j >= 1 and j < 10, A[i - 1, j - 1], float32(0.0))
  for C.i in 0 .. 9
    for C.j in 0 .. 9
      block C
        spatial i: 9 = C.i
        spatial j: 9 = C.j
        C[i, j] = P[i, j] + P[i + 2, j + 2]
""")
    for factor in (3, 4):  # tiles that are whole, and such with tails
        function, (i0, _) = split(before, "C.i", (None, factor))
        function = compute_at(function, "P", i0)
        after, _ = decompose_padding(function, "P", "P.i")
        assert "if_then_else" not in show(after)
        assert_same(before, after)


LIFTED = """
function pool(A: float32[8], out C: float32[8])
  alloc P: float32[10]
  for io in 0 .. 2
    for p in 0 .. 6
      block P
        spatial i: 10 = io * 4 + p
        P[i] = if_then_else(i >= 1 and i < 9, A[i - 1], float32(0.0))
    for ii in 0 .. 4
      block C
        spatial i: 8 = io * 4 + ii
        C[i] = P[i] + P[i + 2]
"""


def test_padding_is_filled_ahead_of_loops_with_other_blocks():
    before = parse(LIFTED)
    after, _ = decompose_padding(before, "P", "io")
    assert (
        show(after)
        == """\
function pool(A: float32[8], out C: float32[8])
  alloc P: float32[10]
  for P_pad.io in 0 .. 2
    for P_pad.p in 0 .. 6
      block P_pad
        spatial i: 10 = P_pad.io * 4 + P_pad.p
        P[i] = float32(0.0)
  for io in 0 .. 2
    for p in 0 .. 6
      block P
        spatial i: 8 = io * 4 + p - 1
        where io * 4 + p >= 1 and io * 4 + p < 9
        P[i + 1] = A[i]
    for ii in 0 .. 4
      block C
        spatial i: 8 = io * 4 + ii
        C[i] = P[i] + P[i + 2]"""
    )
    assert_same(before, after)
    assert_same(before, decompose_padding(before, "P", "p")[0])


def test_padding_is_not_filled_ahead_where_it_does_not_last():
    step = "decompose_padding(block 'P', loop 'io'): the loop holds more than the block, and "
    # what a tile of a window writes lies where the next one has its padding
    window = LIFTED.replace("P: float32[10]", "P: float32[6]").replace("P[i]", "P[i % 6]")
    window = window.replace("P[i + 2]", "P[(i + 2) % 6]")
    assert refusal(decompose_padding, parse(window), "P", "io") == (
        step + "different points of it may be one place of 'P'"
    )
    # in a loop around, the filler would be read instead of what an iteration before has made
    late = parse(LIFTED.replace("P[i + 2]", "P[max(i - 2, 0)]"))
    assert refusal(decompose_padding, late, "P", "io") == (
        step + "'P' may be read in other iterations than it is written in"
    )
    twice = LIFTED.replace("    for ii", """\
    for q in 0 .. 1
      block Q
        spatial i: 1 = q
        P[i] = float32(0.0)
    for ii""")
    assert refusal(decompose_padding, parse(twice), "P", "io") == (
        step + "'P' is also written by Q"
    )
    guarded = LIFTED.replace("    for p in 0 .. 6\n      block P\n        spatial i: 10 = io * 4 + p\n  ", """\
    if io >= 0
      for p in 0 .. 6
        block P
          spatial i: 10 = io * 4 + p
    """)
    assert refusal(decompose_padding, parse(guarded), "P", "io") == (
        "decompose_padding(block 'P', loop 'io'): the block stands under a condition there"
    )
    lanes = parse(LIFTED.replace("io in 0 .. 2", "io in 0 .. 2 parallel"))
    assert refusal(decompose_padding, lanes, "P", "io") == (
        "decompose_padding(block 'P', loop 'io'): loop 'io' is parallel; do this while it is serial"
    )


def test_decompose_padding_refuses_other_loops():
    pad = parse(PAD)
    assert refusal(decompose_padding, parallel(pad, "P.i"), "P", "P.i") == (
        "decompose_padding(block 'P', loop 'P.i'): loop 'P.i' is parallel; do this while it is serial"
    )


def test_a_range_that_is_loaded_has_no_padding():
    A, L = te.placeholder((9,), name="A"), te.placeholder((), "int64", name="L")

    def total(i):
        k = te.reduce_axis((0, L[()]), name="k")
        return te.sum(A[k], axis=k)

    s = tc.schedule([A, L, te.compute((4,), total, name="C")])
    with pytest.raises(ScheduleError, match="the range of 'k' is loaded, and a padded copy would be as long"):
        s.pad_einsum("C", (4, 4))
