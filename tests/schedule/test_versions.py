"""loop_partition and specialize: copies of nests under names of their own."""

from __future__ import annotations

import numpy as np
import pytest

import tensorc as tc
from tensorc import te
from tensorc.ir import interpret
from tensorc.ir.printer import show
from tensorc.schedule import Trace
from tensorc.schedule.primitives.loops import parallel, reorder, split
from tensorc.schedule.primitives.placement import reverse_compute_at
from tensorc.schedule.primitives.reduction import decompose_reduction
from tensorc.schedule.primitives.versions import loop_partition, specialize
from tests.schedule.same import assert_same
from tests.schedule.test_loops import body, copy, lines, matmul, refused


def test_parts_of_a_spatial_loop():
    function, names = loop_partition(copy(), "C.i", (2, None))
    assert names == ("C.i.0", "C.i.1")
    assert body(function) == lines("""
for C.i.0 in 0 .. 2
  for C.j in 0 .. 6
    block C
      spatial i: 8 = C.i.0
      spatial j: 6 = C.j
      C[i, j] = A[i, j] + float32(1.0)
for C.i.1 in 0 .. 6
  for C_1.j in 0 .. 6
    block C_1
      spatial i: 8 = C.i.1 + 2
      spatial j: 6 = C_1.j
      C[i, j] = A[i, j] + float32(1.0)
""")
    assert_same(copy(), function)


def test_parts_of_a_reduce_loop_reduce_over_parts():
    function, _ = loop_partition(matmul(), "C.k", (4,))
    assert body(function) == lines("""
for C.i in 0 .. 8
  for C.j in 0 .. 6
    for C.k.0 in 0 .. 4
      block C
        spatial i: 8 = C.i
        spatial j: 6 = C.j
        reduce k: 4 = C.k.0
        init
          C[i, j] = float32(0.0)
        C[i, j] = C[i, j] + A[i, k] * B[k, j]
    for C.k.1 in 0 .. 8
      block C_1
        spatial i: 8 = C.i
        spatial j: 6 = C.j
        reduce k: 8 = C.k.1
        C[i, j] = C[i, j] + A[i, k + 4] * B[k + 4, j]
""")
    assert_same(matmul(), function)


@pytest.mark.parametrize(
    "factors, extents",
    [((3,), (3, 5)), ((1, 2), (1, 2, 5)), ((None, 3), (5, 3)), ((8,), (8,)), ((8, None), (8,)),
     ((2, None, 3), (2, 3, 3)), ((None,), (8,))],
)  # fmt: skip
@pytest.mark.parametrize("loop", ["C.i", "C.k"])
def test_any_parts(factors, extents, loop):
    text = matmul() if loop == "C.i" else split(matmul(), "C.k", (8, 2))[0]
    name = loop if loop == "C.i" else "C.k.0"
    function, names = loop_partition(text, name, factors)
    found = [tc.Schedule(function).extent(each) for each in names]
    assert tuple(found) == extents
    assert_same(matmul(), function)


def test_parts_of_an_inner_digit_and_of_a_tail():
    function, (_, k1) = split(matmul(), "C.k", (None, 5))
    parts, _ = loop_partition(function, k1, (2, None))
    assert_same(matmul(), parts)
    assert "init" not in show(parts).split("block C_1")[1]
    function, (i0, _) = split(function, "C.i", (None, 3))
    parts, names = loop_partition(function, i0, (None, 1))
    assert_same(matmul(), parallel(parts, names[0]))


def test_the_parts_decompose():
    function, _ = loop_partition(matmul(), "C.i", (3,))
    function, _ = decompose_reduction(function, "C_1", "C_1.j")
    assert_same(matmul(), reorder(function, ("C_1.k", "C_1.j")))


def test_a_symbolic_rest():
    function, _ = loop_partition(copy("n"), "C.i", (None,))
    assert_same(copy("n"), function, n=5)
    assert refused(loop_partition, copy("n"), "C.i", (4,)) == (
        "loop_partition(loop 'C.i'): factors (4,) add up to 4, the extent is n"
    )


def test_what_loop_partition_refuses():
    assert refused(loop_partition, copy(), "C.i", (4, 5)) == (
        "loop_partition(loop 'C.i'): factors (4, 5) add up to 9, the extent is 8"
    )
    assert refused(loop_partition, copy(), "C.i", (0,)) == (
        "loop_partition(loop 'C.i'): factor 0 is no integer of 1 or more, nor None"
    )
    assert refused(loop_partition, copy(), "C.i", (None, None)) == (
        "loop_partition(loop 'C.i'): factors (None, None) hold more than one None"
    )
    assert refused(loop_partition, parallel(copy(), "C.i"), "C.i", (4,)) == (
        "loop_partition(loop 'C.i'): the loop is parallel; only serial loops can be"
    )


def test_a_part_of_a_reduction_does_not_move_as_if_it_were_the_whole():
    function, (_, k1) = split(matmul(), "C.k", (None, 4))
    function, _ = loop_partition(function, k1, (2, None))
    assert refused(reverse_compute_at, function, "C_1", "C.k.1.0").startswith(
        "reverse_compute_at(block 'C_1', loop 'C.k.1.0'): the block is neither complete nor a "
        "reduction with its init"
    )


def stages():
    n = te.var("n")
    A = te.placeholder((n,), "float32", name="A")
    T = te.compute((n,), lambda i: A[i] * 2.0, name="T")
    D = te.compute((n,), lambda i: T[i] + 1.0, name="D")
    return [A, D]


def test_specialize():
    function, names = specialize(te.lower(stages()), "n % 8 == 0")
    assert names == ("T_1", "D_1")
    assert body(function) == lines("""
alloc T: float32[n]
alloc T_1: float32[n]
if n % 8 == 0
  for T_1.i in 0 .. n
    block T_1
      spatial i: n = T_1.i
      T_1[i] = A[i] * float32(2.0)
  for D_1.i in 0 .. n
    block D_1
      spatial i: n = D_1.i
      D[i] = T_1[i] + float32(1.0)
else
  for T.i in 0 .. n
    block T
      spatial i: n = T.i
      T[i] = A[i] * float32(2.0)
  for D.i in 0 .. n
    block D
      spatial i: n = D.i
      D[i] = T[i] + float32(1.0)
""")
    for n in (0, 5, 16):
        assert_same(te.lower(stages()), function, n=n)


def scheduled():
    s = tc.schedule(stages())
    _, special = s.specialize("n % 8 == 0")
    i0, i1 = s.split(s.loops(special)[0], factors=(None, 8))
    s.vectorize(i1)
    s.compute_at("T_1", i0)
    s.cache_write(special)
    s.cache_write("D")
    s.specialize("n < 4")
    s.compute_inline("T_2")
    return s


def test_versions_are_scheduled_for_themselves():
    s = scheduled()
    text = s.show()
    assert "for D_1.i.0 in 0 .. n // 8\n" in text  # no tail where 8 divides n
    assert text.count("if ") == 2 and "D_global_1[i]" in text
    for n in (0, 3, 5, 16):
        assert_same(s.origin, s.function, n=n)
    assert [b.name for b in s.producers("D_1")] == ["T_1"]
    kernel = tc.build(s, cache=False)
    for n in (0, 3, 5, 16, 100):
        a = np.arange(n, dtype="f4")
        np.testing.assert_array_equal(kernel(a), a * 2 + 1)


def test_versions_replay():
    s = scheduled()
    again = Trace.from_json(s.trace.json()).apply(tc.schedule(stages()))
    assert again.show() == s.show()
    names = {"s": tc.schedule(stages())}
    exec(s.trace.python(), names)
    assert names["s"].show() == s.show()


def test_a_condition_given_as_an_expression():
    s = tc.schedule(stages())
    n = s.function.params[0].shape[0]
    s.specialize(n >= 100)
    assert 's.specialize("n >= 100")' in s.trace.python()


def test_what_specialize_refuses():
    function = te.lower(stages())
    assert refused(specialize, copy(), "n == 3").endswith(
        "it may read A"
    )
    assert refused(specialize, function, "m == 3").endswith("it may read n, A")
    assert refused(specialize, function, "n + 3") == (
        "specialize(n + 3): the condition is int64, not bool"
    )
    assert refused(specialize, function, "3 == 3") == (
        "specialize(3 == 3): the condition reads nothing; it may read n, A"
    )
    assert refused(specialize, function, "n >= 0") == (
        "specialize(n >= 0): the condition always holds here"
    )
    function, _ = specialize(function, "n >= 8")
    assert refused(specialize, function, "n == 9") == (
        "specialize(n == 9): the condition never holds here"
    )
    assert refused(specialize, function, 3) == (
        "specialize: 3 is no condition, nor the text of one"
    )


def test_numbers_of_a_condition_adopt_the_dtype_beside_them():
    A = te.placeholder((4,), "float32", name="A")
    I = te.placeholder((4,), "int8", name="I")
    C = te.compute((4,), lambda i: A[i] + te.cast(I[i], "float32"), name="C")
    function = te.lower([A, I, C])
    for text, shown in (
        ("A[0] > 1", "A[0] > float32(1.0)"),
        ("-1.5 < A[0] * 2", "float32(-1.5) < A[0] * float32(2.0)"),
        ("I[0] % 2 == -1 or 0.25 >= A[3]", "I[0] % int8(2) == int8(-1) or float32(0.25) >= A[3]"),
    ):
        changed, _ = specialize(function, text)
        assert f"if {shown}\n" in show(changed)
        assert_same(function, changed)
    for text, problem in (
        ("I[0] == 300", "literal 300 does not fit int8, which holds -128 to 127"),
        ("I[0] == 1.5", "literal 1.5 is no int8: cast one of the operands"),
        ("A[0] == float64(1.0)", "the operands of == are float32 and float64"),
    ):
        assert refused(specialize, function, text) == (
            f"specialize({text}): {problem}; it may read A, I"
        )


def test_a_number_for_an_extent_stands_in_the_version():
    function, _ = specialize(te.lower(stages()), "n * 2 == 128 and n > 3")
    assert body(function).startswith(lines("""
alloc T: float32[n]
alloc T_1: float32[64]
if n * 2 == 128 and n > 3
  for T_1.i in 0 .. 64
    block T_1
      spatial i: 64 = T_1.i
      T_1[i] = A[i] * float32(2.0)
  for D_1.i in 0 .. 64
"""))
    for n in (0, 5, 64):
        assert_same(te.lower(stages()), function, n=n)
    s = tc.schedule(stages())
    s.specialize("n == 64")
    s.compute_at("T_1", "D_1.i")
    s.vectorize("D_1.i")  # which needs a constant extent
    kernel = tc.build(s, cache=False)
    for n in (0, 64, 100):
        a = np.arange(n, dtype="f4")
        np.testing.assert_array_equal(kernel(a), a * 2 + 1)


def branching():
    """One nest for each kind of data: a scalar, and the first of some numbers."""
    p, n = te.var("p"), te.var("n")
    A = te.placeholder((n,), "float32", name="A")
    L = te.placeholder((2,), "int64", name="L")
    D = te.compute((n,), lambda i: te.if_then_else(te.eq(L[0], p), A[i], A[i] * 2), name="D")
    return [A, L, D]


@pytest.mark.parametrize("condition", ["L[0] == 0", "p == 3", "p < 2 and L[1] > 0", "n % 16 == 0 and L[0] == p"])
def test_conditions_on_scalars_and_on_data(condition):
    s = tc.schedule(branching())
    (special,) = s.specialize(condition)
    _, lane = s.split(s.loops(special)[0], factors=(None, 16))
    s.vectorize(lane)
    s.parallel("D.i")
    again = Trace.from_json(s.trace.json()).apply(tc.schedule(branching()))
    assert again.show() == s.show()
    kernel = tc.build(s, cache=False, threads=2)
    for n in (0, 5, 16):
        for p in (0, 1, 3):
            for first in (0, 3):
                a, lengths = np.arange(n, dtype="f4"), np.array([first, 1])
                expected = a if first == p else a * 2
                np.testing.assert_array_equal(kernel(a, lengths, p=p), expected)
                np.testing.assert_array_equal(interpret(s.function, a, lengths, scalars={"p": p}), expected)


def test_what_specialize_refuses_of_data():
    function = te.lower(branching())
    assert refused(specialize, function, "L[2] == 0") == (
        "specialize(L[2] == 0): L[2] is not known to exist, the shape of 'L' is (2)"
    )
    assert refused(specialize, function, "n > 3 and A[3] > float32(0.0)") == (
        "specialize(n > 3 and A[3] > float32(0.0)): A[3] is not known to exist, the shape of 'A' is (n)"
    )
    assert refused(specialize, function, "D[0] > float32(0.0)").endswith("it may read p, n, A, L")
    function, _ = specialize(function, "L[0] == 0")
    assert refused(specialize, function, "L[0] == 0") == (
        "specialize(L[0] == 0): the condition never holds here"
    )
