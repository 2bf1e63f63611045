"""Loop primitives: the text before and after, the same answers, the refusals."""

from __future__ import annotations

import pytest

from tensorc.errors import ScheduleError
from tensorc.ir.parser import parse
from tensorc.ir.printer import show
from tensorc.schedule.primitives.loops import fuse, parallel, reorder, split, unroll, vectorize
from tests.schedule.same import assert_same

COPY = """
function copy(A: float32[{n}, 6], out C: float32[{n}, 6])
  for C.i in 0 .. {n}
    for C.j in 0 .. 6
      block C
        spatial i: {n} = C.i
        spatial j: 6 = C.j
        C[i, j] = A[i, j] + float32(1.0)
"""

MATMUL = """
function matmul(A: float32[8, 12], B: float32[12, 6], out C: float32[8, 6])
  for C.i in 0 .. 8
    for C.j in 0 .. 6
      for C.k in 0 .. 12
        block C
          spatial i: 8 = C.i
          spatial j: 6 = C.j
          reduce k: 12 = C.k
          init
            C[i, j] = float32(0.0)
          C[i, j] = C[i, j] + A[i, k] * B[k, j]
"""


def copy(n="8"):
    return parse(COPY.format(n=n).strip())


def matmul():
    return parse(MATMUL.strip())


def body(function) -> str:
    """The text below the signature, without the two spaces in front."""
    return "\n".join([line[2:] for line in show(function).splitlines()[1:]])


def lines(text: str) -> str:
    return text.strip("\n")


def refused(step, function, *args) -> str:
    before = show(function)
    with pytest.raises(ScheduleError) as caught:
        step(function, *args)
    assert show(function) == before
    note = "\n".join(caught.value.__notes__)
    assert "function" in note
    return str(caught.value)


# split


def test_split_that_divides_needs_no_condition():
    function, names = split(copy(), "C.i", (None, 4))
    assert names == ("C.i.0", "C.i.1")
    assert body(function) == lines("""
for C.i.0 in 0 .. 2
  for C.i.1 in 0 .. 4
    for C.j in 0 .. 6
      block C
        spatial i: 8 = C.i.0 * 4 + C.i.1
        spatial j: 6 = C.j
        C[i, j] = A[i, j] + float32(1.0)
""")
    assert_same(copy(), function)


@pytest.mark.parametrize(
    "factors", [(None,), (8,), (2, 4), (2, 2, 2), (None, 1, 8), (2, None, 2), (4, None), (1, 1, 8)]
)
def test_any_number_of_factors(factors):
    function, names = split(copy(), "C.i", factors)
    assert len(names) == len(factors)
    assert "where" not in show(function)
    assert_same(copy(), function)


def test_a_split_that_does_not_divide_is_guarded_and_cut():
    function, _ = split(copy(), "C.i", (None, 3))
    assert body(function) == lines("""
for C.i.0 in 0 .. 3 {tail = "cut"}
  for C.i.1 in 0 .. 3
    for C.j in 0 .. 6
      block C
        spatial i: 8 = C.i.0 * 3 + C.i.1
        spatial j: 6 = C.j
        where C.i.0 * 3 + C.i.1 < 8
        C[i, j] = A[i, j] + float32(1.0)
""")
    assert_same(copy(), function)


@pytest.mark.parametrize("factors", [(None, 3), (None, 100), (3, None), (9,), (2, 5), (None, 3, 2)])
@pytest.mark.parametrize("tail", ["auto", "guard", "mask", "cut"])
def test_inexact_splits(factors, tail):
    function, names = split(copy(), "C.i", factors, tail)
    expected = "cut" if tail == "auto" else tail
    assert f"for {names[0]} in 0 .. " in show(function) and f'{{tail = "{expected}"}}' in show(
        function
    )
    assert show(function).count("tail") == 1
    assert_same(copy(), function)


def test_a_symbolic_extent_is_rounded_up_and_cut():
    function, _ = split(copy("n"), "C.i", (None, 4))
    assert body(function) == lines("""
for C.i.0 in 0 .. (n + 3) // 4 {tail = "cut"}
  for C.i.1 in 0 .. 4
    for C.j in 0 .. 6
      block C
        spatial i: n = C.i.0 * 4 + C.i.1
        spatial j: 6 = C.j
        where C.i.0 * 4 + C.i.1 < n
        C[i, j] = A[i, j] + float32(1.0)
""")
    for n in (0, 1, 4, 9):
        assert_same(copy("n"), function, n=n)


def test_a_symbolic_extent_in_an_inner_factor():
    function, _ = split(copy("n"), "C.i", (4, None))
    for n in (0, 1, 4, 9):
        assert_same(copy("n"), function, n=n)


def test_split_of_split():
    function, _ = split(copy("13"), "C.i", (None, 6))
    function, names = split(function, "C.i.1", (None, 4))
    assert names == ("C.i.1.0", "C.i.1.1")
    assert_same(copy("13"), function)
    function, _ = split(function, "C.i.0", (None, 2))
    assert_same(copy("13"), function)


def test_a_shifted_tail_runs_points_again_and_needs_no_condition():
    function, _ = split(copy(), "C.i", (None, 3), "shift")
    assert "where" not in show(function) and "tail" not in show(function)
    assert "spatial i: 8 = min(C.i.0 * 3, 5) + C.i.1" in show(function)
    assert_same(copy(), function)


def test_an_empty_extent_splits():
    function, _ = split(copy("0"), "C.i", (None, 4))
    assert "for C.i.0 in 0 .. 0" in show(function)
    assert_same(copy("0"), function)


def test_new_names_avoid_taken_ones():
    function = parse(COPY.format(n="8").replace("C.j", "C.i.0").strip())
    function, names = split(function, "C.i", (None, 4))
    assert names == ("C.i.0_1", "C.i.1")


@pytest.mark.parametrize(
    "args, message",
    [
        (("C.i", (7, 1)), "split(loop 'C.i'): factors (7, 1) multiply to 7, the extent is 8"),
        (("C.i", (7,)), "split(loop 'C.i'): factors (7,) multiply to 7, the extent is 8"),
        (("C.i", (None, 0)), "split(loop 'C.i'): factor 0 is no integer of 1 or more, nor None"),
        (("C.i", (None, -4)), "split(loop 'C.i'): factor -4 is no integer of 1 or more, nor None"),
        (
            ("C.i", (None, 2.0)),
            "split(loop 'C.i'): factor 2.0 is no integer of 1 or more, nor None",
        ),
        (
            ("C.i", (None, True)),
            "split(loop 'C.i'): factor True is no integer of 1 or more, nor None",
        ),
        (("C.i", (None, None)), "split(loop 'C.i'): factors (None, None) hold more than one None"),
        (("C.i", ()), "split(loop 'C.i'): factors must be a sequence of at least one, not ()"),
        (("C.i", 4), "split(loop 'C.i'): factors must be a sequence of at least one, not 4"),
        (
            ("C.i", (None, 2**70)),
            f"split(loop 'C.i'): factors (None, {2**70}) multiply to more than an index holds",
        ),
        (
            ("C.i", (None, 4), "blend"),
            "split(loop 'C.i'): tail 'blend' is unknown; known are auto, guard, mask, shift, cut",
        ),
        (
            ("C.i", (None, 9), "shift"),
            "split(loop 'C.i'): tail 'shift': the extent is not proved to be as long as one part",
        ),
        (("C.ii", (None, 4)), "no loop is named 'C.ii'; did you mean 'C.i'?"),
        ((3, (None, 4)), "a loop is given by its name, not by 3"),
    ],
)
def test_split_refuses(args, message):
    assert refused(split, copy(), *args) == message


def test_split_refuses_a_symbolic_extent_without_none():
    assert refused(split, copy("n"), "C.i", (2, 4)) == (
        "split(loop 'C.i'): factors (2, 4) multiply to 8, the extent is not constant; "
        "make one of them None"
    )


def test_split_refuses_shifting_a_reduction():
    for loop in ("C.i", "C.k"):
        assert refused(split, matmul(), loop, (None, 5), "shift") == (
            f"split(loop '{loop}'): tail 'shift': block 'C' below reduces or updates, so that no "
            "point may run again"
        )


def test_split_refuses_loops_of_a_kind_or_with_a_start():
    function = unroll(copy(), "C.i")
    assert refused(split, function, "C.i", (None, 4)) == (
        "split(loop 'C.i'): the loop is unrolled; only serial loops can be"
    )
    function = parse(COPY.format(n="8").replace("C.i in 0", "C.i in 1").strip())
    assert (
        refused(split, function, "C.i", (None, 4))
        == "split(loop 'C.i'): the loop does not start at 0"
    )


def test_the_note_marks_the_loop():
    with pytest.raises(ScheduleError) as caught:
        split(copy(), "C.j", (1,))
    marked = [line for line in caught.value.__notes__[0].splitlines() if line.startswith(">")]
    assert marked == [">     for C.j in 0 .. 6"]


# fuse


def test_fuse():
    function, name = fuse(copy(), ("C.i", "C.j"))
    assert name == "C.i_j"
    assert body(function) == lines("""
for C.i_j in 0 .. 48
  block C
    spatial i: 8 = C.i_j // 6
    spatial j: 6 = C.i_j % 6
    C[i, j] = A[i, j] + float32(1.0)
""")
    assert_same(copy(), function)


def test_fuse_of_what_was_split_is_the_loop_again():
    function, names = split(copy(), "C.i", (None, 2, 2))
    function, name = fuse(function, names)
    assert f"spatial i: 8 = {name}" in show(function)
    function, name = fuse(function, (name, "C.j"))
    function, names = split(function, name, (None, 5))
    assert_same(copy(), function)


def test_fuse_three_and_symbolic():
    function, name = fuse(matmul(), ("C.i", "C.j", "C.k"))
    assert name == "C.i_j_k"
    assert_same(matmul(), function)
    function, _ = fuse(copy("n"), ("C.i", "C.j"))
    for n in (0, 3):
        assert_same(copy("n"), function, n=n)


def test_one_loop_alone_stays():
    function = copy()
    assert fuse(function, ("C.i",)) == (function, "C.i")


@pytest.mark.parametrize(
    "loops, message",
    [
        (("C.j", "C.i"), "fuse(loops 'C.j', 'C.i'): 'C.i' is not the only child of 'C.j'"),
        (("C.i", "C.k"), "fuse(loops 'C.i', 'C.k'): 'C.k' is not the only child of 'C.i'"),
        (("C.i", "C.i"), "fuse(loops 'C.i', 'C.i'): loop 'C.i' is named twice"),
        ((), "fuse(()): give at least one loop"),
        (("C.i", "C.x"), "no loop is named 'C.x'; did you mean 'C.k'?"),
    ],
)
def test_fuse_refuses(loops, message):
    found = refused(fuse, matmul(), loops)
    assert found == message or found.startswith("no loop is named 'C.x'")


def test_fuse_refuses_kinds():
    function = vectorize(copy(), "C.j")
    assert refused(fuse, function, ("C.i", "C.j")) == (
        "fuse(loop 'C.j'): the loop is vectorized; only serial loops can be"
    )


# reorder


def test_reorder_keeps_the_places_that_the_loops_take():
    function = reorder(matmul(), ("C.k", "C.i"))
    assert [line.split()[1] for line in body(function).splitlines() if "for " in line] == [
        "C.k",
        "C.j",
        "C.i",
    ]
    assert_same(matmul(), function)


@pytest.mark.parametrize("order", ["C.i C.j C.k", "C.k C.j C.i", "C.j C.i", "C.j C.k C.i", "C.i"])
def test_reorder_of_a_reduction(order):
    assert_same(matmul(), reorder(matmul(), tuple(order.split())))


def test_reorder_in_order_changes_nothing():
    function = matmul()
    assert reorder(function, ("C.i", "C.k")) is function


def test_reorder_of_tiles():
    function, (i0, i1) = split(matmul(), "C.i", (None, 3))
    function, (j0, j1) = split(function, "C.j", (None, 4))
    function, (k0, k1) = split(function, "C.k", (None, 5))
    function = reorder(function, (k0, j0, i0, k1, i1, j1))
    assert_same(matmul(), function)
    function = reorder(function, (j1, k1, i1))
    assert_same(matmul(), function)


def test_reorder_over_fused_spatial_loops():
    function, name = fuse(matmul(), ("C.i", "C.j"))
    assert_same(matmul(), reorder(function, ("C.k", name)))


def test_reorder_refuses_where_the_init_would_come_late():
    function, name = fuse(matmul(), ("C.j", "C.k"))
    function, names = split(function, name, (None, 5))
    message = refused(reorder, function, names[::-1])
    assert message == (
        f"reorder(loops {names[1]!r}, {names[0]!r}): in the new order the init of block 'C' may "
        "not run first; decompose_reduction makes it a block of its own"
    )


def test_reorder_refuses_where_blocks_write_over_one_another():
    """The element (r, c) is written at (r - 3, c), then at (r, c - 2): the other way round with j outside."""
    function = parse("""
function main(out B: int16[9, 8])
  for i in 0 .. 6
    for j in 0 .. 6
      block zero
        spatial a: 9 = i + 3
        spatial b: 8 = j
        B[a, b] = int16(0)
      block one
        spatial a: 9 = i
        spatial b: 8 = j + 2
        B[a, b] = int16(1)
""")
    with pytest.raises(ScheduleError, match="'one', 'zero' share buffer 'B', and an iteration may write over what"):
        reorder(function, ["j", "i"])


def test_reorder_of_blocks_that_write_rows_of_their_own():
    function = parse("""
function main(out B: int16[6, 8])
  for i in 0 .. 6
    for j in 0 .. 6
      block zero
        spatial a: 6 = i
        spatial b: 8 = j
        B[a, b] = int16(0)
      block one
        spatial a: 6 = i
        spatial b: 8 = j + 2
        B[a, b] = int16(1)
""")
    assert_same(function, reorder(function, ["j", "i"]))


def test_reorder_of_loops_that_never_run():
    empty = parse(MATMUL.strip().replace("[8, ", "[0, ").replace("0 .. 8", "0 .. 0").replace(": 8", ": 0"))
    function, names = split(empty, "C.i", (None, 2, 4))
    assert_same(function, reorder(function, (names[0], "C.j", "C.k", *names[1:])))


TWO = """
function two(A: float32[8], out C: float32[8], out D: float32[8])
  for i in 0 .. 8
    block C
      spatial i: 8 = i
      C[i] = A[i]
  for j in 0 .. 8
    block D
      spatial i: 8 = j
      D[i] = C[i]
"""

TRIANGLE = """
function triangle(A: float32[8, 8], out C: float32[8, 8])
  for C.i in 0 .. 8
    for C.j in 0 .. C.i + 1
      block C
        spatial i: 8 = C.i
        spatial j: 8 = C.j
        C[i, j] = A[i, j]
"""


@pytest.mark.parametrize(
    "text, loops, message",
    [
        (
            TWO,
            ("i", "j"),
            "reorder(loops 'i', 'j'): 'j' is not on the chain of single children below 'i'",
        ),
        (
            TRIANGLE,
            ("C.j", "C.i"),
            "reorder(loops 'C.j', 'C.i'): the range of 'C.j' depends on another loop",
        ),
        (MATMUL, ("C.j", "C.j"), "reorder(loops 'C.j', 'C.j'): loop 'C.j' is named twice"),
    ],
)
def test_reorder_refuses(text, loops, message):
    assert refused(reorder, parse(text.strip()), loops) == message


def test_fuse_refuses_a_triangle():
    assert refused(fuse, parse(TRIANGLE.strip()), ("C.i", "C.j")) == (
        "fuse(loops 'C.i', 'C.j'): the extent of 'C.j' depends on another of them"
    )


# parallel, vectorize, unroll


@pytest.mark.parametrize(
    "step, kind", [(parallel, "parallel"), (vectorize, "vectorized"), (unroll, "unrolled")]
)
def test_kinds(step, kind):
    function = step(matmul(), "C.j")
    assert f"for C.j in 0 .. 6 {kind}\n" in show(function)
    assert step(function, "C.j") is function
    assert_same(matmul(), function)


def test_parallel_refuses_a_reduction():
    assert refused(parallel, matmul(), "C.k") == (
        "parallel(loop 'C.k'): iterator 'k' of block 'C', which reduces, is bound to it; "
        "its iterations depend on one another"
    )


def test_lanes_may_reduce():
    function = vectorize(matmul(), "C.k")
    assert "for C.k in 0 .. 12 vectorized" in show(function)


@pytest.mark.parametrize(
    "step, loop, message",
    [
        (vectorize, "C.i", "vectorize(loop 'C.i'): the extent is not constant; split it first"),
        (unroll, "C.i", "unroll(loop 'C.i'): the extent is not constant; split it first"),
    ],
)
def test_lanes_are_constant(step, loop, message):
    assert refused(step, copy("n"), loop) == message


def test_lanes_and_copies_are_bounded():
    assert refused(vectorize, copy("1025"), "C.i") == (
        "vectorize(loop 'C.i'): the extent is 1025, more than 1024 lanes; split it first"
    )
    assert refused(unroll, copy("1025"), "C.i") == (
        "unroll(loop 'C.i'): the extent is 1025, more than 1024 copies; split it first"
    )
    vectorize(copy("1024"), "C.i")


def test_an_empty_loop_stays_serial():
    function = copy("0")
    assert vectorize(function, "C.i") is function


def test_one_vectorized_loop_on_a_path():
    function = vectorize(copy(), "C.j")
    assert refused(vectorize, function, "C.i") == (
        "vectorize(loop 'C.i'): loop 'C.j' around or in it is vectorized"
    )
    function = vectorize(copy(), "C.i")
    assert refused(vectorize, function, "C.j") == (
        "vectorize(loop 'C.j'): loop 'C.i' around or in it is vectorized"
    )
    assert refused(parallel, function, "C.j") == (
        "parallel(loop 'C.j'): it lies in the vectorized loop 'C.i'"
    )


def test_the_last_kind_of_a_loop_counts():
    serial = copy()
    for first in (parallel, unroll, vectorize):
        for last in (parallel, unroll, vectorize):
            assert show(last(first(serial, "C.j"), "C.j")) == show(last(serial, "C.j"))


def test_a_parallel_loop_does_not_move_into_lanes():
    function = vectorize(parallel(copy(), "C.i"), "C.j")
    assert refused(reorder, function, ("C.j", "C.i")) == (
        "reorder(loops 'C.j', 'C.i'): a parallel loop would lie in the vectorized 'C.j'"
    )


def test_nothing_is_known_of_actions_outside_blocks():
    text = "function f(out C: float32[8])\n  for i in 0 .. 8\n    C[i] = float32(0.0)"
    assert refused(parallel, parse(text), "i") == (
        "parallel(loop 'i'): store statements outside blocks lie below; only blocks say what they "
        "do"
    )


def test_split_guards_actions_outside_blocks():
    text = "function f(out C: float32[8])\n  for i in 0 .. 8\n    C[i] = float32(0.0)"
    function, _ = split(parse(text), "i", (None, 3))
    assert "if i.0 * 3 + i.1 < 8" in show(function)
    assert_same(parse(text), function)
