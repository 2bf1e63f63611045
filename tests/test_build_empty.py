"""Extents of 0, on every axis in turn, under every recipe."""

import itertools

import numpy as np
import pytest

import tensorc as tc
from tensorc import te


def _map(n, m, _):
    a = te.placeholder((n, m), "float32", name="A")
    return [a, te.compute((n, m), lambda i, j: te.maximum(a[i, j], 0.0), name="C")]


def _transpose(n, m, _):
    a = te.placeholder((n, m), "float32", name="A")
    return [a, te.compute((m, n), lambda i, j: a[j, i] + 1.0, name="C")]


def _product(n, m, l):
    a, b = te.placeholder((n, l), "float32", name="A"), te.placeholder((l, m), "float32", name="B")
    k = te.reduce_axis(l, name="k")
    return [a, b, te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]


def _reduced(reducer, axis):
    def make(n, m, l):
        a = te.placeholder((n, m, l), "float32", name="A")
        k = te.reduce_axis((n, m, l)[axis], name="k")
        rest = [extent for at, extent in enumerate((n, m, l)) if at != axis]
        element = lambda i, j: a[tuple([*(i, j)[:axis], k, *(i, j)[axis:]])]
        start = {"init": (-1, float("inf"))} if reducer is te.argmin else {}
        return [a, te.compute(rest, lambda i, j: reducer(element(i, j), axis=k, **start), name="C")]

    return make


def _read_across(n, m, l):
    """A stage of which another of other extents reads nothing."""
    k = te.reduce_axis(2, name="k")
    s = te.compute((2, n), lambda i, j: te.argmin(te.const(1, "int64"), axis=k), name="S")
    return [te.compute((n, m + l), lambda i, j: s[j % 2, i], name="C")]


def _softmax(n, m, _):
    a = te.placeholder((n, m), "float32", name="A")
    k, q = te.reduce_axis(m, name="k"), te.reduce_axis(m, name="q")
    most = te.compute((n,), lambda i: te.max(a[i, k], axis=k), name="M")
    e = te.compute((n, m), lambda i, j: te.exp(a[i, j] - most[i]), name="E")
    total = te.compute((n,), lambda i: te.sum(e[i, q], axis=q), name="S")
    return [a, te.compute((n, m), lambda i, j: e[i, j] / total[i], name="C")]


def _window(n, m, l):
    a = te.placeholder((n + 2, m), "float32", name="A")
    k = te.reduce_axis(3, name="k")
    return [a, te.compute((n, m), lambda i, j: te.sum(a[i + k, j], axis=k), name="C")]




MAKERS = {
    "map": _map,
    "transpose": _transpose,
    "product": _product,
    "sum of rows": _reduced(te.sum, 2),
    "sum of columns": _reduced(te.sum, 0),
    "max": _reduced(te.max, 1),
    "argmin": _reduced(te.argmin, 2),
    "read across": _read_across,
    "softmax": _softmax,
    "window": _window,
}
EXTENTS = [e for e in itertools.product((0, 2, 40), repeat=3) if 0 in e]


@pytest.mark.parametrize("mcpu", [None, "x86-64-v2"])
@pytest.mark.parametrize("name", MAKERS)
def test_empty(name, mcpu):
    for extents in EXTENTS:
        tensors = MAKERS[name](*extents)
        arrays = [np.ones([int(e) for e in t.shape], t.dtype.name) for t in tensors[:-1]]
        given = [*arrays, np.full([int(e) for e in tensors[-1].shape], 7, tensors[-1].dtype.name)]
        target = tc.Target("cpu", mcpu=mcpu)
        for threads in (1, 2):
            kernel = tc.build(tensors, target, threads=threads)
            want = tc.ir.interpret(tc.schedule(tensors).function, *arrays)
            np.testing.assert_array_equal(kernel(*arrays), want)
            kernel(*given)
            np.testing.assert_array_equal(given[-1], want)
