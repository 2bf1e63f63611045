"""What makes the operand that a contraction packs makes it in panels; cheap stages are not repeated in each tile."""

from __future__ import annotations

import numpy as np
import pytest

import tensorc as tc
from tensorc import ops, te
from tensorc.ir import interpret
from tensorc.target import Target

TARGET = Target("cpu", mcpu="x86-64-v4")


def weights(m=80, n=100, k=33, make=lambda value: te.exp(value) * 0.5, **rest):
    A, B = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    made = te.compute((k, n), lambda i, j: make(B[i, j]), name="made")
    return [A, B, ops.matmul(A, made, name="C", **rest)]


def quantized(m=80, n=100, k=33):
    A, W, S = te.placeholder((m, k), name="A"), te.placeholder((k, n), "int8", name="W"), te.placeholder((n,), name="S")
    made = te.compute((k, n), lambda i, j: te.cast(W[i, j], "float32") * S[j], name="made")
    return [A, W, S, ops.matmul(A, made, name="C")]


def transposed():
    A, B = te.placeholder((80, 33), name="A"), te.placeholder((100, 33), name="B")
    made = te.compute((100, 33), lambda j, k: te.exp(B[j, k]), name="made")
    return [A, B, ops.matmul(A, made, transpose_b=True, name="C")]


def read_twice():
    inputs = weights()
    made = next(tensor for tensor in inputs[-1].inputs if tensor.name == "made")
    return [*inputs, te.compute((33,), lambda i: made[i, 0], name="D")]


def batched():
    A, B = te.placeholder((3, 80, 33), name="A"), te.placeholder((3, 33, 100), name="B")
    made = te.compute((3, 33, 100), lambda b, i, j: te.exp(B[b, i, j]), name="made")
    k = te.reduce_axis(33, name="k")
    return [A, B, te.compute((3, 80, 100), lambda b, i, j: te.sum(A[b, i, k] * made[b, k, j], axis=k), name="C")]


@pytest.mark.parametrize("tensors", (weights(), quantized(), transposed(), batched()))
def test_what_is_packed_is_made_in_panels(tensors):
    s = tc.default_schedule(tensors, TARGET, threads=1)
    assert s.recipes["made"] == "contraction"
    assert not [name for name in s.show().split() if "_global" in name]  # nothing is copied besides


@pytest.mark.parametrize("tensors", (weights(m=4), read_twice()))
def test_others_are_made_by_themselves(tensors):
    s = tc.default_schedule(tensors, TARGET, threads=1)
    assert s.recipes.get("made") != "contraction"


def test_one_operation_on_vectors_is_not_repeated_for_many_rows():
    half = lambda value: value * 0.5
    assert "made" in tc.default_schedule(weights(m=640, make=half), TARGET, threads=1).recipes
    assert "made" not in tc.default_schedule(weights(m=8, make=half), TARGET, threads=1).recipes


@pytest.mark.parametrize(
    "tensors", (weights(), weights(m=4), quantized(), transposed(), batched(), read_twice(), weights(te.var("m")))
)
@pytest.mark.parametrize("threads", (1, 2))
def test_the_answer_stays(tensors, threads):
    rng = np.random.default_rng(1)
    arrays = []
    for tensor in tensors:
        if tensor.is_placeholder:
            shape = [extent if isinstance(extent, int) else 77 for extent in tensor.shape]
            arrays.append(rng.integers(-2, 3, shape).astype(tensor.dtype.name))
    found = tc.build(tensors, threads=threads, cache=False)(*arrays)
    expected = interpret(te.lower(tensors), *arrays)
    many = isinstance(found, tuple)
    for mine, other in zip(found if many else [found], expected if many else [expected]):
        np.testing.assert_allclose(mine, other, rtol=2e-5, atol=1e-4)
