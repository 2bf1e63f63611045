"""Operators built with their default schedules, beside what torch computes."""

from __future__ import annotations

import numpy as np
import torch

import tensorc as tc
from tensorc import te


def integers(*shape, dtype="float32"):
    """Small whole numbers, of which sums and products are exact."""
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype(dtype)


def placeholders(arrays):
    return [te.placeholder(array.shape, str(array.dtype), name=f"X{n}") for n, array in enumerate(arrays)]


def check(operator, reference, *arrays, tolerance=0.0):
    """The operator's kernel gives what `reference` makes of torch's tensors: the same shape, and such elements."""
    tensors = placeholders(arrays)
    found = tc.build([*tensors, operator(*tensors)], threads=1)(*arrays)
    expected = np.asarray(reference(*[torch.from_numpy(array) for array in arrays]))
    assert found.dtype == expected.dtype
    if tolerance:
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(found, expected, strict=True)
