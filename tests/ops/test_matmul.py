"""Products of matrices and vectors."""

import numpy as np
import pytest
import torch

import tensorc as tc
from tensorc import ops, te
from tests.ops.check import check, integers

FLAGS = [(a, b) for a in (False, True) for b in (False, True)]


def stored(shape, is_transposed):
    return (*shape[:-2], shape[-1], shape[-2]) if is_transposed else shape


@pytest.mark.parametrize("a, b", FLAGS)
@pytest.mark.parametrize("m, n, k", [(5, 9, 7), (1, 33, 20), (17, 1, 3), (40, 35, 65)])
def test_matmul(m, n, k, a, b):
    turn = lambda x, is_transposed: x.mT if is_transposed else x
    operands = integers(*stored((m, k), a)), integers(*stored((k, n), b))
    check(lambda x, y: ops.matmul(x, y, a, b), lambda x, y: turn(x, a) @ turn(y, b), *operands)


@pytest.mark.parametrize("a, b", FLAGS)
def test_batch_matmul(a, b):
    turn = lambda x, is_transposed: x.mT if is_transposed else x
    operands = integers(*stored((3, 5, 7), a)), integers(*stored((3, 7, 19), b))
    check(lambda x, y: ops.batch_matmul(x, y, a, b), lambda x, y: turn(x, a) @ turn(y, b), *operands)


@pytest.mark.parametrize("m, k", [(7, 5), (1, 100), (65, 1), (33, 70)])
def test_matvec(m, k):
    check(ops.matvec, lambda a, x: a @ x, integers(m, k), integers(k))
    check(lambda a, x: ops.matvec(a, x, transpose=True), lambda a, x: a.mT @ x, integers(k, m), integers(k))


def test_transpose_batch_matmul():
    scores = lambda q, k: torch.einsum("bihd,bjhd->bhij", q, k)
    check(ops.transpose_batch_matmul, scores, integers(2, 3, 4, 5), integers(2, 17, 4, 5))


def test_products_in_another_dtype():
    a, b = integers(5, 30, dtype="int8"), integers(30, 9, dtype="int8")
    wide = lambda x, y: ops.matmul(x, y, out_dtype="int32")
    check(wide, lambda x, y: x.int() @ y.int(), a * 20, b * 20)


def test_half_precision_adds_up_in_float32():
    a, b = np.full((2, 4096), 1, "float16"), np.full((4096, 3), 1, "float16")
    check(ops.matmul, lambda x, y: (x.float() @ y.float()).half(), a, b)


def test_symbolic_extents():
    m, n, k = te.var("m"), te.var("n"), te.var("k")
    A, B = te.placeholder((m, k), name="A"), te.placeholder((n, k), name="B")
    kernel = tc.build([A, B, ops.matmul(A, B, transpose_b=True)])
    for sizes in ((1, 1, 1), (17, 9, 33), (3, 0, 5)):
        a, b = integers(sizes[0], sizes[2]), integers(sizes[1], sizes[2])
        np.testing.assert_array_equal(kernel(a, b), a @ b.T)
