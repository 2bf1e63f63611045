"""Functions by hand: what cannot be proved to stay in its buffer is checked as it runs, and nothing else is."""

from __future__ import annotations

import numpy as np
import pytest

import tensorc as tc
from tensorc import te
from tensorc.arith import checked
from tensorc.ir.parser import parse
from tensorc.ir.printer import show
from tests.te.test_wrapping import NUMBERS, guarded

HEAD = "function f(A: float32[n], I: int64[m], out B: float32[m])\n"
GATHER = HEAD + "  for i in 0 .. m\n    "
WILD = [number for number in NUMBERS if -(2**63) <= number < 2**63]


def built(text: str) -> tc.Kernel:
    return tc.build(tc.Schedule(parse(text)), cache=False)


# What may be outside: a program, and the index at i as NumPy's numbers give it, None where nothing is read.
OUTSIDE = {
    "store": (GATHER + "B[i] = A[I[i]]", lambda v: v),
    "sum": (GATHER + "B[i] = A[I[i] * 2 + 1]", lambda v: v * 2 + 1),
    "let": (GATHER + "let v: int64 = I[i]\n      B[i] = A[v]", lambda v: v),
    "let that is bounded as a sum": (
        GATHER + "let v: int64 = I[i]\n      if v * 2 < 8 and v >= 0\n        B[i] = A[v * 2]",
        lambda v: v * 2 if v * 2 < 8 and v >= 0 else None,
    ),
    "let of a narrow type": (
        GATHER + "let v: int32 = cast(int32, I[i])\n      B[i] = A[cast(int64, v)]",
        lambda v: np.int64(v.astype("int32")),
    ),
    "branch": (GATHER + "if A[I[i]] > float32(0.0)\n      B[i] = float32(0.0)", lambda v: v),
    "both sides of select": (
        GATHER + "B[i] = select(I[i] >= 0 and I[i] < n, A[I[i]], float32(0.0))", lambda v: v,
    ),
    "guard that wraps": (
        GATHER + "B[i] = if_then_else(I[i] * 4 < 40 and I[i] >= 0, A[I[i] * 4], float32(0.0))",
        lambda v: v * 4 if v * 4 < 40 and v >= 0 else None,
    ),
    "block": (
        GATHER + "block B\n      spatial j: m = i\n      B[j] = A[I[j]]", lambda v: v,
    ),
    "range": (
        GATHER + "for k in I[i] .. I[i] + 1\n      B[i] = A[k]", lambda v: v,
    ),
    "range whose guard wraps": (
        GATHER + "for k in I[i] .. I[i] + 1\n      if k * 2 < 10 and k >= 0\n        B[i] = A[k * 2]",
        lambda v: v * 2 if v * 2 < 10 and v >= 0 else None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_data_may_lead_outside(name):
    text, index = OUTSIDE[name]
    kernel, data = built(text), guarded(np.arange(8, dtype="float32"))
    for number in WILD:
        with np.errstate(over="ignore"):
            place = index(np.int64(number))
        given, out = guarded(np.full(5, number)), guarded(np.zeros(5, "float32"))
        if place is None or 0 <= place < 8:
            kernel(data, given, out)
        else:
            message = rf"access A\[.*\]: index {place}.* is outside 0..7|loop k: its range"
            with pytest.raises(tc.ArgumentError, match=message):
                kernel(data, given, out)


PROVED = [
    GATHER + "let v: int64 = I[i]\n      if v >= 0 and v < n\n        B[i] = A[v]",
    GATHER + "if I[i] >= 0 and I[i] < n\n      B[i] = A[I[i]]",
    GATHER + "B[i] = if_then_else(I[i] >= 0 and I[i] < n, A[I[i]], float32(0.0))",
    GATHER + 'check I[i] >= 0 and I[i] < n, I[i], "no"\n    B[i] = A[I[i]]',
    HEAD
    + "  for j in 0 .. (m + 7) // 8\n    for k in 0 .. 8 unrolled\n      if j * 8 + k < m\n"
    + "        B[j * 8 + k] = float32(1.0)",
    GATHER + "let c: bool = i < n\n      if c\n        B[i] = A[i]",
]


@pytest.mark.parametrize("text", PROVED)
def test_what_is_proved_is_not_checked(text):
    function = parse(text)
    found = checked(function)
    assert show(found) == show(function) and checked(found) is found


def test_what_is_checked_once_is_known():
    found = show(checked(parse(GATHER + "B[i] = A[I[i]] + A[I[i]]\n    B[i] = B[i] * A[I[i]]")))
    assert found.count("check") == 2  # a store to B tells nothing of I; each statement stands for itself


def test_what_is_stored_is_known_no_more():
    text = """
function f(A: float32[8], I: int64[2], out J: int64[2], out B: float32[2])
  for i in 0 .. 2
    J[i] = I[i]
  if J[0] >= 0 and J[0] < 8
    J[0] = J[1]
    B[0] = A[J[0]]
    B[1] = if_then_else(J[1] >= 0 and J[1] < 8, A[J[1]], float32(0.0))
"""
    kernel, data = built(text), guarded(np.arange(8, dtype="float32"))
    assert [list(part) for part in kernel(data, np.array([1, 2]))] == [[2, 2], [2, 2]]
    for number in (8, -1, 2**62, -(2**63)):
        with pytest.raises(tc.ArgumentError, match=rf"access A\[J\[0\]\]: index {number} is outside 0..7"):
            kernel(data, np.array([1, number]))


def test_ranges_that_are_stored_to():
    text = """
function f(A: float32[8], out N: int64[1], out B: float32[1])
  B[0] = float32(0.0)
  N[0] = 4
  for i in 0 .. N[0]
    N[0] = 100
    B[0] = B[0] + if_then_else(N[0] > 8, A[N[0] - 1], A[i])
"""
    with pytest.raises(tc.ArgumentError, match=r"access A\[N\[0\] - 1\]: index 99 is outside 0..7"):
        built(text)(guarded(np.ones(8, "float32")))


def test_ranges_past_the_last_number():
    """The end of a range does not wrap, nor does its variable."""
    text = GATHER + (
        "B[i] = float32(0.0)\n    for k in I[i] .. I[i] + n\n      B[i] = B[i] + if_then_else({0}, A[k], float32(1.0))"
    )
    data = guarded(np.arange(8, dtype="float32"))
    for condition, holds in (("true", lambda k: True), ("k < -5 or k > 5", lambda k: k < -5 or k > 5)):
        kernel = built(text.replace("{0}", condition))
        for number in WILD:
            given, out = guarded(np.full(2, number)), guarded(np.zeros(2, "float32"))
            places = range(number, number + 8)
            if places.stop < 2**63 and all(0 <= k < 8 for k in places if holds(k)):
                kernel(data, given, out)
                assert np.all(out == sum(data[k] if holds(k) else 1 for k in places))
            else:
                message = rf"access A\[k\]: index -?\d+ at|loop k: its range from {number} on has 8 elements"
                with pytest.raises(tc.ArgumentError, match=message):
                    kernel(data, given, out)


def test_conditions_of_while():
    text = """
function f(A: int64[n], out B: int64[1])
  B[0] = 0
  while A[B[0]] >= 0
    B[0] = A[B[0]]
"""
    kernel = built(text)
    assert kernel(guarded(np.array([2, -1, 1])))[0] == 1
    for number in (3, 2**62, 2**63 - 1):
        with pytest.raises(tc.ArgumentError, match=rf"access A\[B\[0\]\]: index {number} is outside 0..2"):
            kernel(guarded(np.array([2, number, 1])))
    with pytest.raises(tc.ArgumentError, match=r"access A\[B\[0\]\]: index 0 is outside 0..-1"):
        kernel(np.zeros(0, "int64"))


def test_iterators_lie_in_their_domain():
    text = HEAD + "  for i in 0 .. m\n    block B\n      spatial j: 4 = i\n      B[j] = float32(1.0)"
    kernel = built(text)
    kernel(np.zeros(1, "f4"), np.zeros(4, "i8"))
    with pytest.raises(tc.ArgumentError, match="block B: iterator j is 4, outside 0..3"):
        kernel(np.zeros(1, "f4"), np.zeros(5, "i8"))


def test_starts_of_reductions_over_nothing():
    text = """
function f(A: float32[n], out B: float32[n])
  for k in 0 .. n
    block B
      reduce j: n = k
      init
        B[n - 1] = float32(0.0)
      B[n - 1] = B[n - 1] + A[j]
"""
    kernel = built(text)
    assert kernel(np.ones(3, "f4"))[2] == 3
    with pytest.raises(tc.ArgumentError, match=r"access B\[n - 1\]: index -1 at n = 0 is outside 0..-1"):
        kernel(np.ones(0, "f4"))


def test_iterations_that_read_each_other_do_not_run_side_by_side():
    text = """
function f(A: float32[n], out J: int64[n], out B: float32[n])
  for i in 0 .. n parallel
    J[n - 1 - i] = i
    B[i] = A[J[i]]
"""
    assert "parallel" not in show(tc.Schedule(parse(text)).function)


def test_functions_as_tensors():
    text = "function pick(A: float32[n], I: int64[m], out B: float32[m])\n  for i in 0 .. m\n    B[i] = A[I[i]]"
    n, m = te.var("n"), te.var("m")
    A, I = te.placeholder((n,), name="A"), te.placeholder((m,), "int64", name="I")
    kernel = tc.build([A, I, te.function(parse(text), [A, I])], cache=False)
    data = guarded(np.arange(8, dtype="float32"))
    assert np.array_equal(kernel(data, np.array([7, 0, 3])), [7, 0, 3])
    for number in (8, -1, 2**62, -(2**63)):
        with pytest.raises(tc.ArgumentError, match=rf"access A\[I\[i\]\]: index {number} at i = 1 is outside 0..7"):
            kernel(data, np.array([7, number, 3]))


@pytest.mark.parametrize(
    "lines, message",
    [
        ("  alloc T: float32[4] strides [9]\n  T[3] = A[0]", "internal buffer 'T' has strides; only parameters may"),
        (
            "  for i in 0 .. 4\n    alloc U: float32[1]\n      alloc T: float32[4] strides [9]\n        T[3] = A[i]",
            "internal buffer 'T' has strides; only parameters may",
        ),
        ("  alloc T: float32[I[0]]\n  T[3] = A[0]", "the shape of internal buffer 'T' depends on data"),
        (
            "  alloc T: float32[1048576] @local\n  T[3] = A[0]",
            "local buffer 'T' takes 4194304 bytes of the stack, which has room for 1048576; leave it global",
        ),
        ("  B[ramp(0, 1, 4)] = broadcast(A[0], 4)", "function f, at .*: vector 'ramp.*' before the loops are flat"),
    ],
)
def test_refused(lines, message):
    with pytest.raises(tc.ExpressionError, match=message):
        tc.Schedule(parse(HEAD + lines))
