"""What follows a contraction element by element goes into its tiles: where it may, and that the answer stays."""

from __future__ import annotations

import numpy as np
import pytest

import tensorc as tc
from tensorc import te
from tensorc.ir import interpret
from tensorc.target import Target

TARGET = Target("cpu", mcpu="x86-64-v3")


def product(m: int = 20, n: int = 40, k: int = 16):
    A, B = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis(k, name="r")
    return [A, B], te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")


def biased(m: int = 20, n: int = 40, k: int = 16):
    inputs, C = product(m, n, k)
    b = te.placeholder((n,), name="b")
    return [*inputs, b, te.compute((m, n), lambda i, j: te.maximum(C[i, j] + b[j], 0.0), name="D")]


def residual():
    """With a tensor of the same shape that is made before the product."""
    X, Y = te.placeholder((20, 40), name="X"), te.placeholder((40,), name="Y")
    k = te.reduce_axis(40, name="k")
    R = te.compute((20,), lambda i: te.sum(X[i, k] * Y[k], axis=k), name="R")
    inputs, C = product()
    return [X, Y, *inputs, te.compute((20, 40), lambda i, j: R[i] + C[i, j] * 2.0, name="D")]


def transposed():
    inputs, C = product()
    return [*inputs, te.compute((40, 20), lambda i, j: C[j, i] + 1.0, name="D")]


def both_results():
    inputs, C = product()
    return [*inputs, C, te.compute((20, 40), lambda i, j: C[i, j] + 1.0, name="D")]


def two_readers():
    inputs, C = product()
    r = te.reduce_axis(40, name="q")
    S = te.compute((20,), lambda i: te.sum(C[i, r], axis=r), name="S")
    return [*inputs, te.compute((20, 40), lambda i, j: C[i, j] / S[i], name="D")]


def neighbours():
    inputs, C = product()
    return [*inputs, te.compute((20, 40), lambda i, j: C[i, j] + C[i, 39 - j], name="D")]


def part():
    inputs, C = product()
    return [*inputs, te.compute((20, 30), lambda i, j: C[i, j] + 1.0, name="D")]


def schedule(tensors, threads: int = 1, **knobs):
    return tc.default_schedule(tensors, TARGET, threads=threads, schedules=knobs or None)


def is_fused(s) -> bool:
    return s.loops("D")[0] in s.loops("C")


def test_a_tile_goes_through_what_follows_as_it_is_made():
    steps = schedule(biased()).trace.python().splitlines()
    at = steps.index('C_init = s.decompose_reduction("C", "C.r")')
    assert steps[at + 1 :] == [
        's.reverse_compute_at("D", i0)',
        'D_j0, D_j1 = s.split("D.j", factors=(None, 8))',
        "s.vectorize(D_j1)",
        's.unroll("D.i")',
        "s.unroll(D_j0)",
    ]


@pytest.mark.parametrize(
    ("tensors", "fused"),
    [
        (biased(), True),
        (biased(19, 37, 5), True),
        (residual(), True),
        (biased(20, 40, 1 << 16), False),  # sums come in blocks of the depth
        (transposed(), False),
        (both_results(), False),
        (two_readers(), False),
        (neighbours(), False),
        (part(), False),
    ],
)
def test_where_it_may(tensors, fused):
    assert is_fused(schedule(tensors)) == fused


def test_a_knob_keeps_it_apart():
    s = schedule(biased())
    assert s.decisions["C.epilogue"] is True and "D.lanes" not in s.decisions
    apart = schedule(biased(), **{"C.epilogue": False})
    assert not is_fused(apart) and "D.lanes" in apart.decisions
    assert dict(s.recipes) == {"C": "contraction", "D": "contraction"}
    assert dict(apart.recipes) == {"C": "contraction", "D": "elementwise"}


@pytest.mark.parametrize("name", ["C", "D"])
def test_a_recipe_of_the_user_keeps_it_apart(name):
    @tc.recipe(lambda group: group.main.block == name, register=False)
    def mine(s, group, knobs, target, threads):
        s.unroll(s.split(s.loops(name)[-1], factors=(None, 4))[1])

    with mine:
        assert not is_fused(schedule(biased()))


@pytest.mark.parametrize("threads", (1, 2))
@pytest.mark.parametrize(
    "tensors",
    [biased(), biased(19, 37, 5), biased(1, 33, 7), biased(130, 9, 40), biased(0, 9, 4), biased(300, 300, 32)],
)
def test_the_answer_stays(tensors, threads):
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-3, 4, t.shape).astype("float32") for t in tensors[:-1]]
    kernel = tc.build(tensors, threads=threads, cache=False)
    np.testing.assert_array_equal(kernel(*arrays), interpret(te.lower(tensors), *arrays))


def test_symbolic_extents():
    m, n, k = te.var("m"), te.var("n"), te.var("k")
    A, B = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis(k, name="r")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    kernel = tc.build([A, B, te.compute((m, n), lambda i, j: te.maximum(C[i, j], 1.0), name="D")], cache=False)
    rng = np.random.default_rng(0)
    for shape in ((0, 3, 5), (3, 0, 5), (3, 5, 0), (1, 1, 1), (17, 33, 65), (200, 100, 31)):
        a = rng.integers(-3, 4, shape[::2]).astype("float32")
        b = rng.integers(-3, 4, (shape[2], shape[1])).astype("float32")
        np.testing.assert_array_equal(kernel(a, b), np.maximum(a @ b, 1))
