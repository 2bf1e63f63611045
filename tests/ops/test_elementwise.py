"""Functions of each element, padding and transposes."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tensorc import ops, te
from tests.ops.check import check, integers

numbers = lambda *shape: np.random.default_rng(1).standard_normal(shape).astype("float32")


@pytest.mark.parametrize("shape", [(1,), (17,), (3, 5, 7)])
def test_functions_of_each_element(shape):
    x = numbers(*shape) * 3
    check(ops.relu, torch.relu, x)
    check(ops.gelu, F.gelu, x, tolerance=1e-6)
    check(lambda x: ops.gelu(x, "tanh"), lambda x: F.gelu(x, approximate="tanh"), x, tolerance=1e-6)
    check(lambda x: ops.elementwise(te.exp, x), torch.exp, x, tolerance=1e-6)
    check(ops.add, lambda x, y: x + y, x, x * 2)


def test_relu_of_integers():
    check(ops.relu, torch.relu, integers(3, 9, dtype="int32"))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_vectors_along_an_axis(axis):
    shape = (3, 5, 18)
    x, v, w = integers(*shape), integers(shape[axis]), integers(1, shape[axis])[0]
    along = lambda v: v.reshape([-1 if d == axis % 3 else 1 for d in range(3)])
    check(lambda x, v: ops.bias_add(x, v, axis), lambda x, v: x + along(v), x, v)
    affine = lambda x, v, w: ops.scale_shift(x, v, w, axis)
    check(affine, lambda x, v, w: x * along(v) + along(w), x, v, w)


@pytest.mark.parametrize("axes", [None, (0, 1, 2), (2, 0, 1), (1, 0, -1)], ids=str)
def test_transpose(axes):
    order = (2, 1, 0) if axes is None else axes
    check(lambda x: ops.transpose(x, axes), lambda x: x.permute(order), integers(5, 17, 3))


@pytest.mark.parametrize("padding", [2, (1, 0), ((1, 2), (0, 3))], ids=str)
def test_pad(padding):
    pairs = np.broadcast_to(np.array(padding).reshape(-1, 1) if np.ndim(padding) == 1 else padding, (2, 2))
    theirs = lambda x: torch.from_numpy(np.pad(x.numpy(), pairs, constant_values=7))
    check(lambda x: ops.pad(x, padding, 7), theirs, integers(4, 9))


def test_a_padding_of_nothing_is_the_tensor_itself():
    X = te.placeholder((3, 4), name="X")
    assert ops.pad(X, 0) is X
