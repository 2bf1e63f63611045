"""Stages that share their rows: which do, what becomes of them, and that the answer stays."""

from __future__ import annotations

import numpy as np
import pytest

import tensorc as tc
from tensorc import ops, te
from tensorc.ir import interpret
from tensorc.schedule.knobs import Defaults
from tensorc.schedule.recipes import rows
from tensorc.schedule.recipes.choose import schedule_function
from tensorc.schedule.recipes.inline import inline_cheap
from tensorc.schedule.schedule import Schedule
from tensorc.target import Target

TARGET = Target("cpu", mcpu="x86-64-v3")


def softmax(*shape, axis: int = -1):
    X = te.placeholder(shape, name="X")
    axis %= len(shape)
    k, q = te.reduce_axis(shape[axis], name="k"), te.reduce_axis(shape[axis], name="q")
    rest = shape[:axis] + shape[axis + 1 :]

    def at(outer, inner):
        return (*outer[:axis], inner, *outer[axis:])

    def without(indices):
        return indices[:axis] + indices[axis + 1 :]

    M = te.compute(rest, lambda *i: te.max(X[at(i, k)], axis=k), name="M")
    E = te.compute(shape, lambda *i: te.exp(X[i] - M[without(i)]), name="E")
    S = te.compute(rest, lambda *i: te.sum(E[at(i, q)], axis=q), name="S")
    return [X, te.compute(shape, lambda *i: E[i] / S[without(i)], name="C")]


def normalised(n: int, m: int):
    X, G = te.placeholder((n, m), name="X"), te.placeholder((m,), name="G")
    k, q = te.reduce_axis(m, name="k"), te.reduce_axis(m, name="q")
    M = te.compute((n,), lambda i: te.sum(X[i, k], axis=k) / float(m), name="M")
    V = te.compute((n,), lambda i: te.sum((X[i, q] - M[i]) * (X[i, q] - M[i]), axis=q) / float(m), name="V")
    return [X, G, te.compute((n, m), lambda i, j: (X[i, j] - M[i]) * te.rsqrt(V[i] + 1e-5) * G[j], name="C")]


def two_readers():
    """Rows that are also read as columns."""
    X, k = te.placeholder((16, 16), name="X"), te.reduce_axis(16, name="k")
    E = te.compute((16, 16), lambda i, j: te.exp(X[i, j]), name="E")
    S = te.compute((16,), lambda i: te.sum(E[i, k], axis=k), name="S")
    return [X, te.compute((16, 16), lambda i, j: E[j, i] / S[i], name="C")]


def product_of_rows():
    """A product spans rows, so that what it reads is not made row by row."""
    X, Y = te.placeholder((64, 32), name="X"), te.placeholder((32, 48), name="Y")
    k = te.reduce_axis(32, name="k")
    E = te.compute((64, 32), lambda i, j: te.exp(X[i, j]), name="E")
    return [X, Y, te.compute((64, 48), lambda i, j: te.sum(E[i, k] * Y[k, j], axis=k), name="C")]


def groups(tensors, threads: int = 1):
    s = Schedule(te.lower(tensors))
    inline_cheap(s)
    fused = rows.apply(s, rows.decide(rows.offers(s, TARGET, threads), Defaults()))
    return [(each.root, each.members, each.depth) for each in fused]


def test_the_stages_of_a_row_follow_one_another():
    text = schedule_function(te.lower(softmax(2, 64, 32)), TARGET, 1).show() + "\n"
    assert text == """\
function main(X: float32[2, 64, 32], out C: float32[2, 64, 32])
  alloc M: float32[2, 64]
  alloc E: float32[2, 64, 32]
  alloc S: float32[2, 64]
  for C.i0 in 0 .. 2
    for C.i1 in 0 .. 64
      block M_init
        spatial i0: 2 = C.i0
        spatial i1: 64 = C.i1
        M[i0, i1] = float32(-inf)
      for M.k.0 in 0 .. 1
        for M.k.1 in 0 .. 32 vectorized
          block M
            spatial i0: 2 = C.i0
            spatial i1: 64 = C.i1
            reduce k: 32 = M.k.1
            M[i0, i1] = max(M[i0, i1], X[i0, i1, k])
      for E.i2.0 in 0 .. 4
        for E.i2.1 in 0 .. 8 vectorized
          block E
            spatial i0: 2 = C.i0
            spatial i1: 64 = C.i1
            spatial i2: 32 = E.i2.0 * 8 + E.i2.1
            E[i0, i1, i2] = exp(X[i0, i1, i2] - M[i0, i1])
      block S_init
        spatial i0: 2 = C.i0
        spatial i1: 64 = C.i1
        S[i0, i1] = float32(0.0)
      for S.q.0 in 0 .. 1
        for S.q.1 in 0 .. 32 vectorized
          block S
            spatial i0: 2 = C.i0
            spatial i1: 64 = C.i1
            reduce q: 32 = S.q.1
            S[i0, i1] = S[i0, i1] + E[i0, i1, q]
      for C.i2.0 in 0 .. 4
        for C.i2.1 in 0 .. 8 vectorized
          block C
            spatial i0: 2 = C.i0
            spatial i1: 64 = C.i1
            spatial i2: 32 = C.i2.0 * 8 + C.i2.1
            C[i0, i1, i2] = E[i0, i1, i2] / S[i0, i1]
"""


@pytest.mark.parametrize(
    "tensors, found",
    [
        (softmax(64, 100), [("C", ("M", "E", "S"), 1)]),
        (softmax(2, 3, 64), [("C", ("M", "E", "S"), 2)]),
        (softmax(3, 64, 5, axis=1), [("C", ("M", "E", "S"), 1)]),
        (softmax(64, 5, axis=0), []),  # a row of the result needs all of the columns
        (softmax(64), []),
        (two_readers(), [("C", ("S",), 1)]),
        (product_of_rows(), []),
        (normalised(64, 100), [("C", ("M_sum", "M", "V_sum"), 1)]),
    ],
)
def test_which_stages_share_rows(tensors, found):
    assert groups(tensors) == found


def test_threads_share_the_rows_where_there_are_enough():
    assert groups(softmax(4096, 1024), 8) == [("C", ("M", "E", "S"), 1)]
    assert groups(softmax(2, 1 << 20), 8) == []
    text = schedule_function(te.lower(softmax(64, 8, 512)), TARGET, 2).show()
    assert text.count("parallel") == 1 and "for C.i0_i1 in 0 .. 512 parallel" in text


def test_a_knob_keeps_the_stages_apart():
    tensors = softmax(64, 100)
    s = tc.default_schedule(tensors, TARGET, threads=1)
    assert s.decisions["C.rows"] is True
    apart = tc.default_schedule(tensors, TARGET, threads=1, schedules={"C.rows": False})
    assert "compute_at" not in apart.trace.python() and "compute_at" in s.trace.python()


def test_a_recipe_of_the_user_takes_its_stage_out():
    @tc.recipe(lambda group: group.main.block == "S", register=False)
    def mine(s, group, knobs, target, threads):
        s.unroll(s.loops("S")[-1])

    with mine:
        s = tc.default_schedule(softmax(64, 100), TARGET, threads=1)
    assert s.recipes["S"] == "mine" and "for S.q in 0 .. 100 unrolled" in s.show()
    assert [line for line in s.trace.python().splitlines() if "compute_at" in line] == ['s.compute_at("M", "E.i0")']


@pytest.mark.parametrize("threads", (1, 2))
@pytest.mark.parametrize(
    "tensors", [softmax(3, 17), softmax(2, 3, 5, 9), softmax(3, 17, 5, axis=1), normalised(5, 33), softmax(0, 4)]
)
def test_the_answer_stays(tensors, threads):
    arrays = [np.random.default_rng(0).normal(size=t.shape).astype("float32") for t in tensors[:-1]]
    expected = interpret(te.lower(tensors), *arrays)
    found = tc.build(tensors, threads=threads, cache=False)(*arrays)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_symbolic_rows():
    n, m = te.var("n"), te.var("m")
    X, k, q = te.placeholder((n, m), name="X"), te.reduce_axis(m, name="k"), te.reduce_axis(m, name="q")
    M = te.compute((n,), lambda i: te.max(X[i, k], axis=k), name="M")
    E = te.compute((n, m), lambda i, j: te.exp(X[i, j] - M[i]), name="E")
    S = te.compute((n,), lambda i: te.sum(E[i, q], axis=q), name="S")
    tensors = [X, te.compute((n, m), lambda i, j: E[i, j] / S[i], name="C")]
    assert groups(tensors) == [("C", ("M", "E", "S"), 1)]
    kernel = tc.build(tensors, threads=2, cache=False)
    for shape in ((0, 3), (3, 0), (1, 1), (17, 100), (400, 600)):
        x = np.random.default_rng(0).normal(size=shape).astype("float32")
        e = np.exp(x - x.max(1, keepdims=True, initial=-np.inf))
        np.testing.assert_allclose(kernel(x), e / e.sum(1, keepdims=True), rtol=1e-5)


def attention(m: int = 40, n: int = 24, causal: bool = False, heads: int = 2):
    Q, K, V = [te.placeholder((1, heads, size, 8), name=name) for name, size in (("Q", m), ("K", n), ("V", n))]
    return [Q, K, V, ops.attention(Q, K, V, causal=causal, name="A")]


def test_attention_goes_by_blocks_of_rows():
    members = ("A_dots", "A_softmax_max", "A_softmax_exp", "A_softmax_sum", "A_softmax")
    assert groups(attention()) == [("A", members, 2)]  # 40 rows are one block
    assert groups(attention(4096, 4096)) == [("A", members, 3)]
    s = tc.default_schedule(attention(4096, 4096), TARGET, threads=2)
    assert s.decisions["A.block"] == 16
    assert "for A.b_h_i.0 in 0 .. 512 parallel" in s.show()
    slabs = [line for line in tc.build(s, cache=False).source("flat").splitlines() if "alloc A_dots:" in line]
    assert len(slabs) == 1 and "A_dots: float32[1, 1, 16, 4096]" in slabs[0]


def test_a_product_that_reads_much_for_each_block_of_rows_stays_apart():
    """A layer after a normalisation: its weights would be read again for each block."""
    X, W = te.placeholder((512, 1024), name="X"), te.placeholder((1024, 4096), name="W")
    k, N = te.reduce_axis(1024, name="k"), ops.softmax(X, name="N")
    tensors = [X, W, te.compute((512, 4096), lambda i, j: te.sum(N[i, k] * W[k, j], axis=k), name="C")]
    assert groups(tensors) == [("N", ("N_max", "N_exp", "N_sum"), 1)]


@pytest.mark.parametrize("threads", (1, 2))
@pytest.mark.parametrize("block", (16, 32))
@pytest.mark.parametrize("tensors", [attention(), attention(37, 19), attention(5, 70), attention(33, 33, causal=True)])
def test_attention_in_blocks(tensors, block, threads):
    arrays = [np.random.default_rng(0).normal(size=t.shape).astype("float32") for t in tensors[:-1]]
    expected = interpret(te.lower(tensors), *arrays)
    kernel = tc.build(tensors, threads=threads, cache=False, schedules={"A.rows": True, "A.block": block})
    np.testing.assert_allclose(kernel(*arrays), expected, rtol=1e-4, atol=1e-5)
