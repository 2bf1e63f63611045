"""Parts of functions give some elements of what the whole gives."""

from __future__ import annotations

import numpy as np
import pytest

import tensorc as tc
from autotune.part import operations, part
from tensorc import te
from tensorc.ir import interpret
from tensorc.ir.expr import Const
from tests.autotune.spaces import matmul, softmax


def convolution():
    x, w = te.placeholder((1, 10, 10, 4), name="X"), te.placeholder((3, 3, 4, 8), name="W")
    return tc.schedule([x, w, tc.ops.relu(tc.ops.conv2d(x, w, padding=1))]).function


def chained():
    a, b, c = (te.placeholder((24, 24), name=name) for name in "ABC")
    return tc.schedule([a, b, c, tc.ops.matmul(tc.ops.matmul(a, b), c)]).function


def rows():
    x = te.placeholder((te.var("n"), 16), name="X")
    return tc.schedule([x, tc.ops.softmax(x)]).function


@pytest.mark.parametrize(
    "function, most",
    [(matmul(40, 40, 16), 4000), (convolution(), 3000), (softmax(), 600), (chained(), 3000), (rows(), 200)],
    ids=["matmul", "convolution", "softmax", "chained", "rows"],
)
def test_a_part_gives_elements_of_the_whole(function, most):
    rng = np.random.default_rng(3)
    values = {extent: 30 for extent in function.params[0].shape if type(extent) is not Const}
    shapes = [[30 if e in values else e.value for e in b.shape] for b in function.params if b not in function.outputs]
    inputs = [rng.integers(-2, 3, shape).astype("float32") for shape in shapes]
    some = part(function, values, most, rng)
    assert some is not None and operations(function, values) > 2 * most
    found, whole = interpret(some, *inputs), interpret(function, *inputs)
    written = ~np.isnan(found)
    assert 0 < written.sum() < whole.size and (found[written] == whole[written]).all()


def test_there_is_no_part_where_one_element_needs_too_much():
    x = te.placeholder((1000,), name="X")
    k = te.reduce_axis(1000, name="k")
    total = tc.schedule([x, te.compute((1,), lambda i: te.sum(x[k], axis=k), name="Y")]).function
    assert part(total, {}, 500, np.random.default_rng(0)) is None
