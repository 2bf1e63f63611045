"""Contractions with few columns, whose vectors lie along the depth."""

from __future__ import annotations

import numpy as np
import pytest

import tensorc as tc
from tensorc import ops, te
from tensorc.errors import ScheduleError
from tensorc.ir import interpret

AVX512 = tc.Target("cpu", mcpu="x86-64-v4")


def product(rows, columns, depth, dtype="float32", **transposed):
    shapes = ((rows, depth), (depth, columns))
    a, b = [shape[::-1] if transposed.get(f"transpose_{name}") else shape for shape, name in zip(shapes, "ab")]
    A, B = te.placeholder(a, dtype, name="A"), te.placeholder(b, dtype, name="B")
    return [A, B, ops.matmul(A, B, name="C", **transposed)]


def chosen(tensors):
    return tc.default_schedule(tensors, AVX512, threads=1).decisions.get("C.vectors")


def test_three_columns_take_vectors_along_the_depth():
    assert chosen(product(64, 3, 256)) == "depth"


@pytest.mark.parametrize("tensors", (
    product(64, 16, 256),  # a vector of columns
    product(64, 0, 256),  # no columns at all
    product(64, 3, 8),  # not deep enough for a vector
    product(64, 3, 256, transpose_a=True),  # rows that do not lie along the depth
))
def test_others_do_not_ask(tensors):
    assert chosen(tensors) is None


def test_many_columns_over_a_short_depth_stay_vectors():
    assert chosen(product(64, 12, 32)) == "columns"


@pytest.mark.parametrize("size", ((37, 3, 100), (5, 2, 64), (1, 3, 48), (64, 5, 129), (128, 7, 512)))
@pytest.mark.parametrize("turned", (False, True))
@pytest.mark.parametrize("threads", (1, 2))
@pytest.mark.parametrize("dtype", ("float32", "float64", "int32"))
def test_the_answer_stays(size, turned, threads, dtype):
    tensors = product(*size, dtype, transpose_b=turned)
    rng = np.random.default_rng(1)
    a, b = [rng.integers(-4, 5, tensor.shape).astype(dtype) for tensor in tensors[:2]]
    kernel = tc.build(tensors, threads=threads, cache=False)
    np.testing.assert_array_equal(kernel(a, b), a @ (b.T if turned else b))


def test_images_of_three_channels_from_a_transposed_convolution():
    X, W = te.placeholder((2, 5, 6, 32), name="X"), te.placeholder((4, 4, 32, 3), name="W")
    tensors = [X, W, ops.conv2d_transpose(X, W, stride=2, padding=1, layout="NHWC", name="C")]
    assert chosen(tensors) == "depth"
    rng = np.random.default_rng(1)
    x, w = [rng.integers(-4, 5, tensor.shape).astype("float32") for tensor in tensors[:2]]
    expected = interpret(te.lower(tensors), x, w)
    np.testing.assert_array_equal(tc.build(tensors, threads=2, cache=False)(x, w), expected)


def test_more_rows_than_registers_hold_are_refused():
    with pytest.raises(ScheduleError, match=r"knob 'C.rows': 64 rows of 3 results are more than registers hold"):
        tc.default_schedule(product(64, 3, 256), AVX512, schedules={"C.vectors": "depth", "C.rows": (64,)})
