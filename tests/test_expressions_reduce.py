"""Reducers from end to end: built by the default recipes, against NumPy."""

import numpy as np
import pytest

import tensorc as tc
from tensorc import te

EXTENTS = (1, 3, 17, 100)
DTYPES = ("float32", "float64", "int8", "uint8", "int16", "int32", "uint32", "int64", "uint64")


def data(shape, dtype="float32", seed=0):
    low = 0 if dtype.startswith("u") else -9
    return np.random.default_rng(seed).integers(low, 10, shape).astype(dtype)


def kernel(*tensors, threads=1):
    return tc.build(list(tensors), threads=threads, cache=False)


def along(axis, m, n, dtype, reduce, **options):
    """The input and what `reduce` makes of an axis of it."""
    A = te.placeholder((m, n) if axis == 1 else (n, m), dtype, name="A")
    k = te.reduce_axis(n, name="k")
    term = (lambda i: A[i, k]) if axis == 1 else (lambda i: A[k, i])
    made = te.compute((m,), lambda i: reduce(term(i), k), name="C", **options)
    return A, made


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("extent", EXTENTS)
@pytest.mark.parametrize("name", ["argmin", "argmax"])
def test_the_best_index(name, extent, axis):
    for threads in (1, 2):
        A, pair = along(axis, 33, extent, "float32", lambda e, k: getattr(te, name)(e, axis=k, value=True))
        a = data((33, extent) if axis == 1 else (extent, 33))
        a.flat[::7] = np.nan
        a.flat[3::11] = -np.inf
        index, value = kernel(A, *pair, threads=threads)(a)
        np.testing.assert_array_equal(index, getattr(np, name)(a, axis))
        np.testing.assert_array_equal(value, getattr(np, name[3:])(a, axis))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_best_index_of_every_dtype(dtype):
    for axis in (0, 1):
        A, C = along(axis, 17, 100, dtype, lambda e, k: te.argmax(e, axis=k))
        a = data((17, 100) if axis == 1 else (100, 17), dtype)
        np.testing.assert_array_equal(kernel(A, C)(a), a.argmax(axis))


def test_the_best_index_of_extremes():
    for dtype, value in (("float32", -np.inf), ("int8", -128), ("uint8", 0)):
        A, C = along(1, 5, 40, dtype, lambda e, k: te.argmax(e, axis=k))
        np.testing.assert_array_equal(kernel(A, C)(np.full((5, 40), value, dtype)), [0] * 5)


def test_a_large_argmax_in_threads():
    A, C = along(1, 300, 1000, "float32", lambda e, k: te.argmax(e, axis=k))
    a = np.random.default_rng(0).standard_normal((300, 1000)).astype("float32")
    for threads in (1, 2):
        np.testing.assert_array_equal(kernel(A, C, threads=threads)(a), a.argmax(1))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("extent", (0, *EXTENTS))
def test_conditions(extent, axis):
    for dtype in ("float32", "int8"):
        A, C = along(axis, 33, extent, dtype, lambda e, k: te.any(e > 8, axis=k))
        B, D = along(axis, 33, extent, dtype, lambda e, k: te.all(e > -9, axis=k))
        a = data((33, extent) if axis == 1 else (extent, 33), dtype)
        np.testing.assert_array_equal(kernel(A, C)(a), (a > 8).any(axis))
        np.testing.assert_array_equal(kernel(B, D, threads=2)(a), (a > -9).all(axis))


moments = te.comm_reducer(
    lambda x, y: (x[0] + y[0], x[1] + y[1], te.maximum(x[2], y[2])),
    lambda a, b, c: (te.const(0, a), te.const(0, b), te.min_value(c)),
    name="moments",
)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("extent", (0, *EXTENTS))
def test_a_reducer_of_three_dtypes(extent, axis):
    def reduce(e, k):
        wide = te.cast(e, "float64")
        return moments((wide, wide * wide, te.cast(e, "int32")), axis=k)

    A, made = along(axis, 33, extent, "int8", reduce)
    a = data((33, extent) if axis == 1 else (extent, 33), "int8")
    for threads in (1, 2):
        s, q, m = kernel(A, *made, threads=threads)(a)
        np.testing.assert_array_equal(s, a.sum(axis, dtype="float64"))
        np.testing.assert_array_equal(q, (a.astype("float64") ** 2).sum(axis))
        np.testing.assert_array_equal(m, a.astype("int32").max(axis, initial=-(2**31)))


def test_a_reducer_of_one_value():
    nearest = te.comm_reducer(
        lambda x, y: te.select(te.abs(x) < te.abs(y), x, te.select(te.abs(y) < te.abs(x), y, te.maximum(x, y))),
        lambda dtype: te.max_value(dtype),
    )
    for axis in (0, 1):
        A, C = along(axis, 9, 70, "float32", lambda e, k: nearest(e, axis=k))
        a = data((9, 70) if axis == 1 else (70, 9))
        size = abs(a).min(axis)
        found = kernel(A, C)(a)
        np.testing.assert_array_equal(abs(found), size)
        both = (np.expand_dims(size, axis) == a).any(axis)
        np.testing.assert_array_equal(found, np.where(both, size, -size))


def test_one_pass_of_softmax():
    """The greatest value and the sum of exponentials relative to it, combined as one pair."""
    online = te.comm_reducer(
        lambda x, y: (
            te.maximum(x[0], y[0]),
            x[1] * te.exp(x[0] - te.maximum(x[0], y[0])) + y[1] * te.exp(y[0] - te.maximum(x[0], y[0])),
        ),
        lambda a, b: (te.const(-1e30, a), te.const(0, b)),
        name="online",
    )
    for axis in (0, 1):
        A, made = along(axis, 20, 300, "float32", lambda e, k: online((e, te.const(1.0, "float32")), axis=k))
        a = np.random.default_rng(0).standard_normal((20, 300) if axis == 1 else (300, 20)).astype("float32")
        top, total = kernel(A, *made)(a)
        np.testing.assert_array_equal(top, a.max(axis))
        np.testing.assert_allclose(total, np.exp(a - a.max(axis, keepdims=True)).sum(axis), rtol=1e-5)


@pytest.mark.parametrize("name", ["sum", "prod", "min", "max"])
@pytest.mark.parametrize("extent", (0, *EXTENTS))
def test_where_and_init(name, extent):
    A = te.placeholder((9, extent), "float64", name="A")
    B = te.placeholder((9,), "float64", name="B")
    k = te.reduce_axis(extent, name="k")
    reduce = getattr(te, name)
    C = te.compute((9,), lambda i: reduce(A[i, k], axis=k, where=A[i, k] > 0, init=B[i]), name="C")
    a, b = np.sign(data((9, extent), "float64")) * 2, data((9,), "float64")
    numpy = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}[name]
    identity = {"sum": 0, "prod": 1, "min": np.inf, "max": -np.inf}[name]
    terms = np.where(a > 0, a, identity)
    expected = numpy(b, numpy.reduce(terms, 1, initial=identity))
    np.testing.assert_array_equal(kernel(A, B, C)(a, b), expected)


@pytest.mark.parametrize("axis", [0, 1])
def test_init_and_where_of_an_index(axis):
    A = te.placeholder((40, 40), "float32", name="A")
    B = te.placeholder((40,), "float32", name="B")
    k = te.reduce_axis(40, name="k")
    term = (lambda i: A[i, k]) if axis == 1 else (lambda i: A[k, i])
    a, b = data((40, 40)), data((40,)) + 8
    C = te.compute((40,), lambda i: te.argmax(term(i), axis=k, init=(-1, B[i])), name="C")
    expected = np.where(b >= a.max(axis), -1, a.argmax(axis))
    np.testing.assert_array_equal(kernel(A, B, C)(a, b), expected)
    C = te.compute((40,), lambda i: te.argmax(term(i), axis=k, where=k >= 13), name="C")
    part = a[:, 13:] if axis == 1 else a[13:]
    np.testing.assert_array_equal(kernel(A, C)(a), 13 + part.argmax(axis))


def test_bias_of_a_product_is_added_once():
    A, B = te.placeholder((70, 90), name="A"), te.placeholder((90, 50), name="B")
    bias = te.placeholder((50,), name="bias")
    k = te.reduce_axis(90, name="k")
    C = te.compute((70, 50), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k, init=bias[j]), name="C")
    a, b, c = data((70, 90)), data((90, 50)), data((50,))
    for threads in (1, 2):
        np.testing.assert_array_equal(kernel(A, B, bias, C, threads=threads)(a, b, c), a @ b + c)


def test_the_best_pair_of_a_matrix():
    """A reducer of pairs where both operands are reused, as in a matrix product: nearest rows."""
    A, B = te.placeholder((70, 30), name="A"), te.placeholder((30, 50), name="B")
    k = te.reduce_axis(30, name="k")
    C = te.compute((70, 50), lambda i, j: te.argmax(A[i, k] * B[k, j], axis=k), name="C")
    a, b = data((70, 30)), data((30, 50))
    np.testing.assert_array_equal(kernel(A, B, C)(a, b), (a[:, :, None] * b).argmax(1))


def test_an_index_is_used():
    """The value at the best index of each row, by an expression around the reduction."""
    A = te.placeholder((20, 60), name="A")
    k = te.reduce_axis(60, name="k")
    C = te.compute((20,), lambda i: te.cast(te.argmax(A[i, k], axis=k), "float32") / 60.0, name="C")
    a = data((20, 60))
    np.testing.assert_allclose(kernel(A, C)(a), a.argmax(1) / 60, rtol=1e-6)


def test_the_best_of_all():
    A = te.placeholder((30, 40), name="A")
    i, j = te.reduce_axis(30, name="i"), te.reduce_axis(40, name="j")
    C = te.compute((), lambda: te.argmax(A[i, j], axis=(i, j)), name="C")
    a = data((30, 40))
    assert kernel(A, C)(a) == a.argmax()


def test_tuples_of_expressions():
    A = te.placeholder((20, 60), name="A")
    P, Q = te.compute((20, 60), lambda *i: (A[i] + 1.0, te.cast(A[i], "int32") * 2), name="C")
    a = data((20, 60))
    p, q = kernel(A, P, Q)(a)
    np.testing.assert_array_equal(p, a + 1)
    np.testing.assert_array_equal(q, a.astype("int32") * 2)


@pytest.mark.parametrize("mcpu", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_every_vector_length(mcpu):
    target = tc.Target("cpu", mcpu=mcpu)
    for axis in (0, 1):
        A, C = along(axis, 33, 100, "float32", lambda e, k: te.argmax(e, axis=k))
        assert "x float>" in tc.build([A, C], target, threads=1, cache=False).source("llvm")
        B, D = along(axis, 33, 100, "float32", lambda e, k: te.any(e > 1, axis=k))
        assert "x float>" in tc.build([B, D], target, threads=1, cache=False).source("llvm")
        E, made = along(axis, 33, 100, "float32", lambda e, k: moments((e, e * e, e), axis=k))
        assert "x float>" in tc.build([E, *made], target, threads=1, cache=False).source("llvm")
