"""Attention against torch's."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import tensorc as tc
from tensorc import ops, te
from tests.ops.check import check

numbers = lambda *shape: np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("m, n, dim, width", [(5, 5, 4, 6), (1, 9, 16, 16), (17, 33, 8, 3)])
def test_attention(m, n, dim, width, causal):
    operands = numbers(2, 3, m, dim), numbers(2, 3, n, dim), numbers(2, 3, n, width)
    theirs = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    check(lambda q, k, v: ops.attention(q, k, v, causal=causal), theirs, *operands, tolerance=1e-5)


def test_a_scale_of_ones_own():
    operands = numbers(1, 1, 4, 8), numbers(1, 1, 6, 8), numbers(1, 1, 6, 5)
    theirs = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.5)
    check(lambda q, k, v: ops.attention(q, k, v, scale=0.5), theirs, *operands, tolerance=1e-5)


def test_symbolic_extents():
    m, n, d = te.var("m"), te.var("n"), te.var("d")
    Q, K = te.placeholder((1, 2, m, d), name="Q"), te.placeholder((1, 2, n, d), name="K")
    V = te.placeholder((1, 2, n, 3), name="V")
    kernel = tc.build([Q, K, V, ops.attention(Q, K, V, causal=True)])
    for sizes in ((1, 1, 1), (5, 5, 16)):
        q, k, v = numbers(1, 2, sizes[0], sizes[2]), numbers(1, 2, sizes[1], sizes[2]), numbers(1, 2, sizes[1], 3)
        expected = F.scaled_dot_product_attention(*map(torch.from_numpy, (q, k, v)), is_causal=True)
        np.testing.assert_allclose(kernel(q, k, v), expected, rtol=1e-5, atol=1e-5)
