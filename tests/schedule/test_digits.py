"""Iterators that a sum reads by their digits: which are split, and that the answer stays."""

from __future__ import annotations

import numpy as np
import pytest

import tensorc as tc
from tensorc import ops, te
from tensorc.ir import interpret
from tensorc.schedule.recipes.digits import split_digits
from tensorc.schedule.schedule import Schedule


def grouped(groups: int = 4, layout: str = "NHWC"):
    last = layout == "NHWC"
    X = te.placeholder((1, 5, 6, 16) if last else (1, 16, 5, 6), name="X")
    W = te.placeholder((3, 3, 16 // groups, 24) if last else (24, 16 // groups, 3, 3), name="W")
    return [X, W, ops.conv2d(X, W, padding=1, groups=groups, layout=layout, name="C")]


def transposed(stride: int = 2, kernel: int = 4, padding: int = 1):
    X, W = te.placeholder((1, 3, 4, 6), name="X"), te.placeholder((kernel, kernel, 6, 5), name="W")
    return [X, W, ops.conv2d_transpose(X, W, stride=stride, padding=padding, name="C")]


def by_digits(index, extent: int = 12, divisor: int = 4):
    X, k = te.placeholder((40, 8), name="X"), te.reduce_axis(8, name="k")
    return [X, te.compute((extent,), lambda i: te.sum(X[index(i), k], axis=k), name="C")]


def iters(tensors) -> list[str]:
    s = Schedule(te.lower(tensors))
    split_digits(s)
    return [loop.name.removeprefix("C.") + f" {s.extent(loop)}" for loop in s.loops("C")]


@pytest.mark.parametrize(
    ("tensors", "found"),
    [
        (grouped(), "n 1, h 5, w 6, c 4, c_1 6, kh 3, kw 3, ci 4"),
        (grouped(1), "n 1, h 5, w 6, c 24, kh 3, kw 3, ci 16"),
        (transposed(), "n 1, h 3, h_1 2, w 4, w_1 2, c 5, kh 2, kw 2, ci 6"),
        (transposed(stride=2, kernel=3), "n 1, h 5, w 7, c 5, kh 2, kw 2, ci 6"),  # 2 does not divide 5
        (by_digits(lambda i: i // 4), "i 3, i_1 4, k 8"),
        (by_digits(lambda i: (i + 3) // 4), "i 3, i_1 4, k 8"),
        (by_digits(lambda i: i // 4 + i % 3), "i 12, k 8"),  # by two numbers
        (by_digits(lambda i: i // 0 + i % 0), "i 12, k 8"),
        (by_digits(lambda i: i // 12), "i 12, k 8"),
        (by_digits(lambda i: i * 2 // 4), "i 12, k 8"),
    ],
)
def test_which_are_split(tensors, found):
    assert ", ".join(iters(tensors)) == found


def test_grouped_and_transposed_convolutions_are_contractions():
    for tensors in (grouped(), transposed()):
        assert tc.default_schedule(tensors, threads=1).recipes["C"] == "contraction"


def test_a_recipe_of_the_user_sees_the_block_as_it_was_written():
    seen = []

    @tc.recipe(lambda group: group.main.block == "C", register=False)
    def mine(s, group, knobs, target, threads):
        seen.extend(axis.name for axis in group.main.axes)

    with mine:
        tc.default_schedule(grouped(), threads=1)
    assert seen == ["n", "h", "w", "c", "kh", "kw", "ci"]


@pytest.mark.parametrize("threads", (1, 2))
@pytest.mark.parametrize(
    "tensors",
    [grouped(), grouped(2), grouped(4, "NCHW"), transposed(), transposed(3, 5, 0), by_digits(lambda i: (i + 3) // 4)],
)
def test_the_answer_stays(tensors, threads):
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-3, 4, t.shape).astype("float32") for t in tensors[:-1]]
    kernel = tc.build(tensors, threads=threads, cache=False)
    np.testing.assert_array_equal(kernel(*arrays), interpret(te.lower(tensors), *arrays))


def test_sums_of_one_term_stay_sums():
    X, W = te.placeholder((2, 2, 5, 3), name="X"), te.placeholder((66, 1, 1, 1), name="W")
    tensors = [X, W, ops.conv2d(X, W, groups=2, layout="NCHW", name="C")]
    s = tc.default_schedule(tensors, threads=2)
    assert "reduce ci: 1" in s.show()
    rng = np.random.default_rng(1)
    x, w = rng.integers(-4, 5, (2, 2, 5, 3)).astype("float32"), rng.integers(-4, 5, (66, 1, 1, 1)).astype("float32")
    assert np.array_equal(tc.build(s, threads=2)(x, w), np.repeat(x, 33, 1) * w.reshape(1, 66, 1, 1))
