"""The whole middle of the road: schedules of every shape keep their answer after each pass."""

from __future__ import annotations

import pytest

from tensorc import te
from tensorc.schedule import Schedule
from tests.passes.same import assert_lowers


def matmul(m, n, k):
    a = te.placeholder((m, k), "float32", name="A")
    b = te.placeholder((k, n), "float32", name="B")
    axis = te.reduce_axis(k, name="k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="C")
    return Schedule(te.lower([a, b, c]))


def tiled(m, n, k, tile=(2, 4, 2, 4), depth=4, tail="cut", pack=False, decompose=True):
    """ko, io parallel, jo, ii, ki, rows unrolled, vectors unrolled, lanes."""
    rows, mr, nv, lanes = tile
    s = matmul(m, n, k)
    c = s.block("C")
    i, j, kk = s.loops(c)
    io, ii, im = s.split(i, (None, rows, mr), tail=tail)
    jo, jv, jl = s.split(j, (None, nv, lanes), tail=tail)
    ko, ki = s.split(kk, (None, depth), tail=tail)
    s.reorder(ko, io, jo, ii, ki, im, jv, jl)
    for loop in (im, jv):
        s.unroll(loop)
    s.vectorize(jl)
    s.parallel(io)
    if decompose:
        s.decompose_reduction(c, ki)
    if pack:
        s.compute_at(s.cache_read(c, "B"), ko)
    return s.function


SIZES = [
    (16, 16, 8),
    (17, 16, 8),
    (16, 19, 8),
    (16, 13, 9),
    (15, 7, 5),
    (3, 5, 3),
    (1, 1, 1),
    (9, 33, 4),
]


@pytest.mark.parametrize("tail", ["cut", "mask", "guard"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_matmul(size, tail):
    assert_lowers(tiled(*size, tail=tail))


@pytest.mark.parametrize("size", SIZES[:5], ids=str)
def test_packed_matmul(size):
    assert_lowers(tiled(*size, pack=True))


@pytest.mark.parametrize("size", SIZES[:5], ids=str)
def test_matmul_with_init_inside(size):
    assert_lowers(tiled(*size, decompose=False))


@pytest.mark.parametrize("tail", ["cut", "mask", "guard"])
def test_symbolic_matmul(tail):
    m, n, k = te.var("m"), te.var("n"), te.var("k")
    sizes = [dict(m=a, n=b, k=c) for a, b, c in [*SIZES[1:6], (0, 3, 2), (3, 0, 2), (8, 8, 1)]]
    assert_lowers(tiled(m, n, k, tail=tail), *sizes)
