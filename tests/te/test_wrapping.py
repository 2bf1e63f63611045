"""Guards and indices whose arithmetic wraps: a kernel never reads outside its arguments, whatever the data."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest

import tensorc as tc
from tensorc import te
from tests.fuzz.memory import GuardedArray

COUNT, LENGTH = 37, 10
POWERS, MORE = (0, 3, 31, 40, 61, 62, 63), (-6, -5, -1, 0, 1)
NUMBERS = sorted(
    {sign * (2**power + more) for sign in (1, -1) for power in POWERS for more in MORE}
    | {2**62 + 2**60, 2**61 + 2**59, 2**64 - 3, 2**64 - 1, -(2**62) - 3, 2, 4, 5, 9}
)

n, m, shift = te.var("n"), te.var("m"), te.var("shift")


def guarded(array: np.ndarray) -> np.ndarray:
    """A copy whose end lies at memory that may not be touched."""
    copy = GuardedArray(array.shape, array.dtype, random.Random(1))
    copy.array[...] = array
    KEPT.append(copy)
    return copy.array


KEPT: list[GuardedArray] = []

# (condition, index) of a value v: in a definition, and of NumPy's scalars, which wrap as well
GATHERS = {
    "doubled": (lambda v: (v * 2 < 10, v >= 0), lambda v: v * 2),
    "shifted": (lambda v: (v + 5 < 10, v >= 0), lambda v: v + 5),
    "the sum itself": (lambda v: (v + 5 < 10, v + 5 >= 0), lambda v: v + 5),
    "the sum the other way round": (lambda v: (5 + v < 10, v * 1 + 5 >= 0), lambda v: v + 5),
    "negative": (lambda v: (-v >= -9, v < 10), lambda v: -v),
    "from above": (lambda v: (10 - v > 5, v > -(2**31)), lambda v: v),
    "squared": (lambda v: (v * v < 10,), lambda v: v * v),
    "quotient": (lambda v: (v * 4 < 40, v >= 0), lambda v: v * 4 // 4),
    "remainder": (lambda v: (v >= v,), lambda v: v * 3 % 10),
    "one end": (lambda v: (v + 5 < 10,), lambda v: v + 5),
}


KINDS = [
    (name, dtype)
    for name in GATHERS
    for dtype in ("int64", "int32", "int8", "uint64")
    if dtype != "uint64" or name not in ("negative", "from above")  # its numbers are not negative
]


@pytest.mark.parametrize("length", [LENGTH, None])
@pytest.mark.parametrize(("name", "dtype"), KINDS)
def test_gathers_under_guards_that_wrap(name, dtype, length):
    condition, index = GATHERS[name]
    if dtype == "int8" and name == "from above":
        condition = lambda v: (10 - v > 5, v > -100)
    at = te.placeholder((n,), dtype, name="at")
    x = te.placeholder((length or m,), name="x")
    y = te.compute((n,), lambda i: te.if_then_else(te.all(*condition(at[i])), x[index(at[i])], -1.0), name="y")
    kernel = tc.build([at, x, y], cache=False)
    data = guarded(np.arange(LENGTH, dtype="float32"))
    kind = np.dtype(dtype).type
    for number in NUMBERS:
        if not np.iinfo(dtype).min <= number <= np.iinfo(dtype).max:
            continue
        value = kind(number)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            holds, place = all(condition(value)), int(np.int64(index(value)))
        given = guarded(np.full(COUNT, number, dtype))
        if holds and not 0 <= place < LENGTH:
            with pytest.raises(tc.ArgumentError, match=f"index {place} at i = 0 is outside 0..9"):
                kernel(given, data)
        else:
            assert np.all(kernel(given, data) == (place if holds else -1.0)), number


def test_a_guard_on_the_index_itself_is_a_proof():
    at, x = te.placeholder((n,), "int64", name="at"), te.placeholder((m,), name="x")
    small = te.placeholder((n,), "int32", name="small")
    for guard, place in (
        (lambda i: te.all(at[i] >= 0, at[i] < m), lambda i: at[i]),
        (lambda i: te.all(at[i] + shift >= 0, at[i] + shift < m), lambda i: at[i] + shift),
        (lambda i: te.all(te.cast(small[i], "int64") * 8 >= 0, te.cast(small[i], "int64") < m // 8),
         lambda i: te.cast(small[i], "int64") * 8),
    ):  # fmt: skip
        y = te.compute((n,), lambda i: te.if_then_else(guard(i), x[place(i)], 0.0), name="y")
        assert "check" not in str(tc.schedule([at, small, x, y]).show())


SCALARS = {
    "doubled": (lambda s, i: (2 * s < 50, s >= 0), lambda s, i: 2 * s),
    "shifted": (lambda s, i: (i + s < 50, s >= 0), lambda s, i: i + s),
    "back": (lambda s, i: (i - s >= 0, s >= 0), lambda s, i: i - s),
    "between": (lambda s, i: (i >= s, i < s + 10), lambda s, i: i - s),
    "scaled": (lambda s, i: (i * s < 50,), lambda s, i: i * s),
    "rolled": (lambda s, i: (i < 50,), lambda s, i: (i + s) % 50),
}


@pytest.mark.parametrize("name", SCALARS)
def test_guards_with_scalars_that_wrap(name):
    condition, index = SCALARS[name]
    x = te.placeholder((50,), name="x")
    y = te.compute((50,), lambda i: te.if_then_else(te.all(*condition(shift, i)), x[index(shift, i)], -1.0), name="y")
    kernel = tc.build([x, y], cache=False)
    data = guarded(np.arange(50, dtype="float32"))
    places = np.arange(50, dtype="int64")
    for number in NUMBERS:
        if not -(2**63) <= number < 2**63:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = np.int64(number)
            holds = np.all([np.broadcast_to(c, 50) for c in condition(value, places)], axis=0)
            at = np.broadcast_to(index(value, places), 50)
        if np.any(holds & ((at < 0) | (at >= 50))):
            with pytest.raises(tc.ArgumentError, match="is outside 0..49"):
                kernel(data, shift=number)
        else:
            assert np.array_equal(kernel(data, shift=number), np.where(holds, at, -1)), number


def test_a_scalar_as_an_index_is_checked():
    x = te.placeholder((n,), name="x")
    kernel = tc.build([x, te.compute((n,), lambda i: x[i] - x[shift], name="y")])
    assert np.array_equal(kernel(np.arange(3, dtype="float32"), shift=1), [-1, 0, 1])
    with pytest.raises(tc.ArgumentError, match=r"access x\[shift\]: index -1 is outside 0..2"):
        kernel(np.arange(3, dtype="float32"), shift=-1)


def test_constants_that_wrap():
    x = te.placeholder((100,), name="x")
    far = 1_200_000_000_000_000_000
    with pytest.raises(tc.ExpressionError, match="guard it with te.if_then_else"):
        tc.build([x, te.compute((100,), lambda i: te.if_then_else(i * far < 100, x[i * far], -1.0), name="y")])
    both = lambda i: te.all(i * far < 100, i * far >= 0)
    kernel = tc.build([x, te.compute((100,), lambda i: te.if_then_else(both(i), x[i * far], -1.0), name="y")])
    assert np.array_equal(kernel(guarded(np.ones(100, "float32"))), [1.0] + [-1.0] * 99)


ENDS = [
    (0, 5), (5, 0), (2, 2), (-3, 2), (2**63 - 2, -(2**63)), (2**63 - 2, -(2**63) + 3), (-(2**63), 2**63 - 1),
    (2**63 - 1, -(2**63) + 2), (0, 2**62), (2**62, 2**62 + 3), (2**63 - 3, 2**63 - 1), (2**61, 2**61 + 3),
]  # fmt: skip


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("scale", [1, 4])
def test_ragged_ranges_that_wrap(ends, scale):
    starts, values = te.placeholder((n + 1,), "int64", name="starts"), te.placeholder((m,), name="values")

    def row(i):
        k = te.reduce_axis((starts[i], starts[i + 1]), name="k")
        return te.sum(te.if_then_else(k * scale < 8, values[k * scale], 0.0), axis=k)

    kernel = tc.build([starts, values, te.compute((n,), row, name="y")], cache=False)
    given, y = guarded(np.array(ends)), guarded(np.full(1, np.nan, "float32"))
    count = ends[1] - ends[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        places = [int((given[0] + k) * scale) for k in range(min(count, 100))]
    if not -(2**63) <= count < 2**63:  # further apart than an index can tell
        with pytest.raises(tc.ArgumentError, match="range of k: 9223372036854775807 elements .* are the most"):
            kernel(given, guarded(np.ones(8, "float32")), y)
    elif any(place < 0 for place in places):
        with pytest.raises(tc.ArgumentError, match="is outside 0..7"):
            kernel(given, guarded(np.ones(8, "float32")), y)
    elif count < 100:
        kernel(given, guarded(np.ones(8, "float32")), y)
        assert y[0] == sum(place < 8 for place in places)


def test_rows_without_elements():
    starts, values = te.placeholder((n + 1,), "int64", name="starts"), te.placeholder((m,), name="values")

    def row(i):
        k = te.reduce_axis((starts[i], starts[i + 1]), name="k")
        return te.sum(values[k], axis=k)

    kernel = tc.build([starts, values, te.compute((n,), row, name="y")])
    y = np.full(6, np.nan, "float32")
    kernel(np.array([0, 0, 2, 2, 1, 9, 9]), np.ones(9, "float32"), y)
    assert np.array_equal(y, [0, 2, 0, 0, 8, 0])


def test_ranges_without_an_end():
    lengths, x = te.placeholder((n,), "int64", name="lengths"), te.placeholder((m,), name="x")

    def row(i):
        k = te.reduce_axis((0, lengths[i]), name="k")
        return te.sum(te.if_then_else(k < m, x[k], 0.0), axis=k)

    kernel = tc.build([lengths, x, te.compute((n,), row, name="y")], cache=False)
    ones = guarded(np.ones(5, "float32"))
    assert np.array_equal(kernel(guarded(np.array([2, 9, -3, -(2**63)])), ones), [2, 5, 0, 0])
    for number in (2**40 + 1, 2**62, 2**63 - 1):
        with pytest.raises(tc.ArgumentError, match=rf"range of k: {number} elements at i = 1, {2**40} are the most"):
            kernel(guarded(np.array([2, number])), ones)


def test_updates_and_reductions_under_guards_that_wrap():
    at, x, r = te.placeholder((COUNT,), "int64", name="at"), te.placeholder((LENGTH,), name="x"), te.reduce_axis(COUNT)
    none = te.compute((LENGTH,), lambda i: 0.0, dtype="float32", name="none")
    inside = te.all(at[r] * 2 < LENGTH, at[r] >= 0)
    counts = te.update(none, at[r] * 2, none[at[r] * 2] + 1.0, where=inside, name="counts")
    total = te.compute((1,), lambda i: te.sum(x[at[r] * 2], axis=r, where=inside), name="total")
    count, add = tc.build([at, counts], cache=False), tc.build([at, x, total], cache=False)
    data = guarded(np.arange(LENGTH, dtype="float32"))
    for number in (0, 4, 5, -1, 2**61, -(2**62), -(2**63)):
        holds = 0 <= number < 5
        expected = np.zeros(LENGTH)
        if holds:
            expected[2 * number] = COUNT
        given = guarded(np.full(COUNT, number))
        assert np.array_equal(count(given), expected)
        assert add(given, data) == COUNT * 2 * number * holds
    for number in (2**62, 2**62 + 2**60, 2**63 - 1):
        for kernel, args in ((count, ()), (add, (data,))):
            with pytest.raises(tc.ArgumentError, match="is outside 0..9"):
                kernel(guarded(np.full(COUNT, number)), *args)


def test_products_of_sizes_that_wrap():
    """A guard on i*N tells nothing where that passes 64 bits: such sizes are refused."""
    big = te.var("N")
    x, e = te.placeholder((100,), name="x"), te.placeholder((0, big), "int8", name="e")
    b = te.placeholder((n,), "int8", name="b")
    guard = lambda i: te.all(i * big + i < 10, big >= 1, b[i] > 0)
    y = te.compute((n,), lambda i: te.if_then_else(guard(i), x[i * big], 0.0), name="y")
    kernel = tc.build([e, x, b, y], cache=False)
    ones = np.ones(100, "float32")
    flags = np.ones(9, "int8")
    assert kernel(np.zeros((0, 3), "int8"), ones, flags).tolist() == [1.0] * 3 + [0.0] * 6
    with pytest.raises(tc.ArgumentError, match=r"indices are past what 64 bits hold where N = 1099511627776, n = 9000"):
        kernel(np.zeros((0, 2**40), "int8"), ones, np.ones(9000, "int8"))


def test_lengths_of_uint64_that_no_index_is():
    lengths = te.placeholder((1,), "uint64", name="lengths")

    def row(i):
        k = te.reduce_axis((0, lengths[i]), name="k")
        return te.sum(te.const(1, "int64"), axis=k)

    kernel = tc.build([lengths, te.compute((1,), row, name="y")], cache=False)
    assert kernel(np.array([5], "u8"))[0] == 5
    for length in (2**63, 2**64 - 1):
        with pytest.raises(tc.ArgumentError, match="range of k: 9223372036854775807 elements .* are the most"):
            kernel(np.array([length], "u8"))
