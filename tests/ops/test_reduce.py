"""Reductions, normalisations and cumulative sums."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import tensorc as tc
from tensorc import ops, te
from tests.ops.check import check, integers

AXES = [None, 0, -1, 1, (0, 2), (1, -1), ()]
numbers = lambda *shape: np.random.default_rng(1).standard_normal(shape).astype("float32")


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("name", ["sum", "max", "min", "mean"])
def test_reductions(name, axis, keepdims):
    x = integers(3, 5, 18)
    X = te.placeholder(x.shape, name="X")
    found = tc.build([X, getattr(ops, name)(X, axis, keepdims)], threads=1)(x)
    np.testing.assert_allclose(found, getattr(np, name)(x, axis=axis, keepdims=keepdims), rtol=1e-6, strict=True)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_argmax_gives_the_first(axis):
    check(lambda x: ops.argmax(x, axis), lambda x: x.argmax(axis), integers(7, 40))
    check(lambda x: ops.argmax(x, axis, True), lambda x: x.argmax(axis, keepdim=True), integers(7, 40))


@pytest.mark.parametrize("axis", [None, 1, (1, 2)], ids=str)
def test_norm(axis):
    check(
        lambda x: ops.norm(x, axis), lambda x: torch.linalg.vector_norm(x, dim=axis), numbers(2, 9, 33), tolerance=1e-6
    )


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("shape", [(5, 17), (1, 1), (3, 100)])
def test_softmax(shape, axis):
    check(lambda x: ops.softmax(x, axis), lambda x: torch.softmax(x, axis), numbers(*shape) * 40, tolerance=1e-6)


@pytest.mark.parametrize("shape, axis", [((5, 17), -1), ((3, 64), 1), ((2, 3, 9), 1), ((9, 2), 0)])
def test_layer_and_rms_norm(shape, axis):
    x, gamma, beta = numbers(*shape), numbers(shape[axis]), integers(shape[axis])
    ours = lambda x, g, b: ops.layer_norm(x, g, b, axis, epsilon=1e-3)
    theirs = lambda x, g, b: F.layer_norm(x.movedim(axis, -1), g.shape, g, b, 1e-3).movedim(-1, axis)
    check(ours, theirs, x, gamma, beta, tolerance=1e-5)
    theirs = lambda x, g: F.rms_norm(x.movedim(axis, -1), g.shape, g, 1e-5).movedim(-1, axis)
    check(lambda x, g: ops.rms_norm(x, g, axis), theirs, x, gamma, tolerance=1e-5)


def test_layer_norm_of_numbers_far_from_zero():
    x = numbers(4, 64) + 1000
    X, G, B = te.placeholder((4, 64), name="X"), te.placeholder((64,), name="G"), te.placeholder((64,), name="B")
    found = tc.build([X, G, B, ops.layer_norm(X, G, B)])(x, np.ones(64, "float32"), np.zeros(64, "float32"))
    exact = x.astype("float64")
    exact = (exact - exact.mean(1, keepdims=True)) / np.sqrt(exact.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(found, exact, atol=1e-3)


@pytest.mark.parametrize("shape", [(5, 17), (1, 1), (70, 3)])
@pytest.mark.parametrize("axis", [0, -1])
def test_cumsum(shape, axis):
    check(lambda x: ops.cumsum(x, axis), lambda x: x.cumsum(axis), integers(*shape))


def test_symbolic_extents():
    n, m = te.var("n"), te.var("m")
    X = te.placeholder((n, m), name="X")
    kernel, means = tc.build([X, ops.softmax(X)]), tc.build([X, ops.mean(X, -1)])
    for shape in ((1, 1), (3, 17), (2, 64), (0, 5)):
        x = numbers(*shape)
        exact = np.exp(x) / np.exp(x).sum(1, keepdims=True)
        np.testing.assert_allclose(kernel(x), exact, rtol=1e-5)
        np.testing.assert_allclose(means(x), x.mean(1), rtol=1e-5, atol=1e-6)
