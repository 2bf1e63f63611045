"""What functions tend to, they reach."""

from __future__ import annotations

import numpy as np
import pytest

import tensorc as tc
from tensorc import te


@pytest.mark.parametrize("mcpu", ["host", "x86-64-v2"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sigmoids_end_at_their_limits(dtype, mcpu):
    x = np.array([7.0, 100.0, np.inf] * 7, dtype)
    X = te.placeholder(x.shape, dtype, name="X")
    outputs = te.compute(
        x.shape, lambda i: (te.erf(X[i]), te.erf(-X[i]), te.erfc(-X[i]), te.tanh(X[i] * 4), te.sigmoid(X[i] * 8))
    )
    target = tc.Target("cpu") if mcpu == "host" else tc.Target("cpu", mcpu=mcpu)
    for found, limit in zip(tc.build([X, *outputs], target)(x), (1, -1, 2, 1, 1)):
        assert np.array_equal(found, np.full(x.shape, limit, dtype))


@pytest.mark.parametrize("mcpu", ["host", "x86-64-v2", "x86-64-v3"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fmod_of_the_largest_numbers(dtype, mcpu):
    most = np.finfo(dtype).max
    x = (most * (1 - np.arange(40) * np.finfo(dtype).eps)).astype(dtype)
    y = (np.random.default_rng(0).uniform(1, 9, 40) * 10.0 ** -np.arange(40)).astype(dtype)
    y[0] = 1e-20
    X, Y = te.placeholder(x.shape, dtype, name="X"), te.placeholder(x.shape, dtype, name="Y")
    target = tc.Target("cpu") if mcpu == "host" else tc.Target("cpu", mcpu=mcpu)
    kernel = tc.build([X, Y, te.compute(x.shape, lambda i: te.fmod(X[i], Y[i]), name="F")], target)
    for sign in (1, -1):
        assert np.array_equal(kernel(x * sign, y), np.fmod(x * sign, y))
