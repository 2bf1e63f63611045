"""Stencils: which blocks are some, what becomes of the stage that pads, and that the answer stays."""

from __future__ import annotations

import numpy as np
import pytest

import tensorc as tc
from tensorc import ops, te
from tensorc.ir import interpret
from tensorc.schedule.knobs import Defaults
from tensorc.schedule.locate import all_blocks
from tensorc.schedule.recipes import stencil
from tensorc.schedule.recipes.access import Group, pattern
from tensorc.schedule.recipes.choose import RECIPES
from tensorc.target import Target

TARGET = Target("cpu", mcpu="x86-64-v4")
NARROW = Target("cpu", mcpu="x86-64-v3")


def depthwise(h, w, c, stride: int = 1, kernel: int = 3, layout: str = "NHWC", padding: int = 1, n: int = 1):
    last = layout == "NHWC"
    X = te.placeholder((n, h, w, c) if last else (n, c, h, w), name="X")
    W = te.placeholder((kernel, kernel, c) if last else (c, kernel, kernel), name="W")
    return [X, W, ops.depthwise_conv2d(X, W, stride, padding, layout=layout, name="C")]


def activated(*args, **kwargs):
    """With a factor and a bias for each channel, and an activation."""
    X, W, C = depthwise(*args, **kwargs)
    a, b = te.placeholder((X.shape[3],), name="a"), te.placeholder((X.shape[3],), name="b")
    relu = te.compute(C.shape, lambda n, h, w, c: te.maximum(C[n, h, w, c] * a[c] + b[c], 0.0), name="D")
    return [X, W, a, b, relu]


def pooled(h: int, w: int, c: int):
    X = te.placeholder((h, w, c), name="X")
    y, x = te.reduce_axis(3, name="y"), te.reduce_axis(2, name="x")
    shape = (h // 2 - 1, w // 2, c)
    return [X, te.compute(shape, lambda i, j, k: te.max(X[2 * i + y, 2 * j + x, k], axis=(y, x)), name="C")]


def blurred(h: int, w: int):
    """Of an image whose edges are repeated."""
    X = te.placeholder((h, w), name="X")
    y, x = te.reduce_axis(5, name="y"), te.reduce_axis(5, name="x")

    def clamp(at, most):
        return te.minimum(te.maximum(at - 2, 0), most - 1)

    def padded(i, j):
        x = X[clamp(i, h), clamp(j, w)]
        return te.exp(x * 0.0) * x  # too much to do again for each tap

    P = te.compute((h + 4, w + 4), padded, name="P")
    return [X, te.compute((h, w), lambda i, j: te.sum(P[i + y, j + x], axis=(y, x)), name="C")]


def weighted(n: int, taps: int = 3):
    X, W = te.placeholder((n + taps - 1,), name="X"), te.placeholder((taps,), name="W")
    k = te.reduce_axis(taps, name="k")
    return [X, W, te.compute((n,), lambda i: te.sum(X[i + k] * W[k], axis=k), name="C")]


def volume(d: int, h: int, w: int, c: int):
    X = te.placeholder((d, h, w, c), name="X")
    P = ops.pad(X, ((1, 1), (1, 1), (1, 1), (0, 0)), name="P")
    z, y, x = (te.reduce_axis(3, name=name) for name in "zyx")
    taps = (z, y, x)
    return [X, te.compute((d, h, w, c), lambda i, j, k, m: te.sum(P[i + z, j + y, k + x, m], axis=taps), name="C")]


def rows_of_three(n: int, m: int):
    X, k = te.placeholder((n, 3, m), name="X"), te.reduce_axis(3, name="k")
    return [X, te.compute((n, m), lambda i, j: te.sum(X[i, k, j], axis=k), name="C")]


def long_window(n: int):
    X, k = te.placeholder((n + 999,), name="X"), te.reduce_axis(1000, name="k")
    return [X, te.compute((n,), lambda i: te.sum(X[i + k], axis=k), name="C")]


def main(tensors):
    found = [pattern(block) for block in all_blocks(te.lower(tensors))]
    return [each for each in found if each.reduce][-1]


def plan(tensors, target=TARGET, threads: int = 1):
    blocks = [pattern(block) for block in all_blocks(te.lower(tensors))]
    found = main(tensors)
    pad = stencil.producer(te.lower(tensors), found, [each for each in blocks if each is not found])
    return stencil.decide(Group(found, prologue=pad), Defaults(), target, threads)


@pytest.mark.parametrize(
    ("tensors", "is_stencil"),
    [
        (depthwise(14, 14, 32), True),
        (depthwise(14, 14, 32, 2, layout="NCHW"), True),
        (pooled(16, 16, 8), True),
        (blurred(16, 16), True),
        (weighted(100), True),
        (volume(4, 5, 6, 7), True),
        (rows_of_three(8, 16), False),  # nothing slides
        (long_window(64), False),
        (depthwise(40, 40, 2, 5, layout="NCHW"), False),  # vectors of elements so far apart are gathered
    ],
)
def test_which_reductions_are_stencils(tensors, is_stencil):
    recipe = next(each for each in RECIPES if each.matches(main(tensors)))
    assert (recipe is stencil) == is_stencil


def test_vectors_go_over_channels_or_along_rows():
    over = plan(depthwise(12, 12, 192))
    assert (over.column, over.lanes, over.row, over.rows, over.beside, over.across) == ("c", 16, "h", 2, "w", 4)
    assert (over.place, over.rolls, over.edges) == ("h", True, 0)
    along = plan(depthwise(28, 28, 192, layout="NCHW"))
    assert (along.column, along.lanes, along.row, along.rows, along.beside) == ("w", 16, "h", 4, None)
    assert (along.place, along.rolls, along.phases) == ("c", False, 1)
    assert plan(depthwise(28, 28, 192, 2, layout="NCHW")).phases == 2
    assert plan(depthwise(14, 14, 192, 2, layout="NCHW")).lanes == 8
    assert plan(depthwise(28, 28, 192), NARROW).lanes == 8


@pytest.mark.parametrize(
    ("tensors", "is_implicit"),
    [
        (depthwise(28, 28, 192), True),
        (depthwise(14, 14, 192), True),
        (depthwise(14, 14, 192, 2), True),  # the fewer the results, the more copies there are for each
        (depthwise(12, 12, 192), False),  # most tiles are at an edge
        (depthwise(14, 14, 200), False),  # guards of more vectors, which are half as long
        (depthwise(112, 112, 96, 1, 5, padding=2), False),  # copies are few beside so many taps
        (depthwise(112, 112, 96, 2, 5, padding=2), True),
    ],
)
def test_padding_is_decided_at_the_edges_where_copies_would_take_longer(tensors, is_implicit):
    assert tc.default_schedule(tensors, TARGET, threads=1).decisions["C.implicit"] == is_implicit


@pytest.mark.parametrize("kernel", (5, 7))
def test_tiles_keep_their_size_with_many_taps(kernel):
    """Few accumulators would wait for one another."""
    over = plan(depthwise(56, 56, 64, 1, kernel, padding=kernel // 2))
    assert (over.rows, over.across) == (2, 4)
    along = plan(depthwise(56, 56, 64, 1, kernel, layout="NCHW", padding=kernel // 2))
    assert along.rows == 4


def test_an_image_is_not_padded_in_memory():
    s = tc.default_schedule(depthwise(112, 112, 96), TARGET, threads=1)
    assert s.decisions["C.implicit"] is True and "C_pad" not in [str(block) for block in s.blocks()]
    assert dict(s.recipes) == {"C": "stencil", "C_pad": "stencil"}
    rolled = tc.default_schedule(depthwise(112, 112, 96), TARGET, threads=1, schedules={"C.implicit": False})
    assert "alloc C_pad: float32[1, 4, 114, 96]" in rolled.show()


def test_rows_are_padded_into_a_window_that_rolls():
    assert tc.default_schedule(depthwise(6, 8, 32), TARGET, threads=1).trace.python().strip() == """\
h0, h1 = s.split("C.h", factors=(None, 2))
c0, c1 = s.split("C.c", factors=(None, 16), tail="mask")
w0, w1 = s.split("C.w", factors=(None, 4))
s.reorder("C.n", h0, c0, w0, "C.kh", "C.kw", h1, w1, c1)
s.unroll(h1)
s.unroll(w1)
s.vectorize(c1)
s.compute_at("C_pad", h0)
s.rolling_buffer("C_pad", "C_pad")
indices2_indices3 = s.fuse("C_pad.indices2", "C_pad.indices3")
indices2_indices3_0, indices2_indices3_1 = s.split(indices2_indices3, factors=(None, 16))
s.vectorize(indices2_indices3_1)
C_init = s.decompose_reduction("C", "C.kh")
s.unroll("C.kh")
s.unroll("C.kw")"""


def test_knobs_keep_the_stages_apart():
    s = tc.default_schedule(activated(14, 14, 32), TARGET, threads=1)
    assert s.decisions["C.prologue"] is True and s.decisions["C.epilogue"] is True
    assert dict(s.recipes) == {"C": "stencil", "D": "stencil", "C_pad": "stencil"}
    knobs = {"C.prologue": False, "C.epilogue": False}
    apart = tc.default_schedule(activated(14, 14, 32), TARGET, threads=1, schedules=knobs)
    assert dict(apart.recipes) == {"C": "stencil", "D": "elementwise", "C_pad": "elementwise"}
    with pytest.raises(tc.ScheduleError, match="knob 'C.tile': 32 rows of 32 vectors are more than the 256 vectors"):
        tc.default_schedule(activated(14, 14, 32), TARGET, threads=1, schedules={"C.tile": (32, 32)})


@pytest.mark.parametrize("threads", (1, 2))
@pytest.mark.parametrize(
    "tensors",
    [
        depthwise(9, 11, 19),
        depthwise(9, 11, 19, 2),
        depthwise(1, 1, 3),
        depthwise(12, 7, 40, 1, 5, padding=2, n=2),
        depthwise(30, 30, 17, 1, 7, padding=3),
        depthwise(9, 11, 5, layout="NCHW"),
        depthwise(9, 35, 5, 2, layout="NCHW"),
        depthwise(17, 19, 5, 3, layout="NCHW", n=2),
        depthwise(8, 8, 3, 4, 5, layout="NCHW", padding=2),
        depthwise(40, 64, 3, 1, 5, layout="NCHW", padding=2),
        activated(10, 13, 21),
        activated(10, 13, 32, 2),
        pooled(20, 23, 5),
        pooled(16, 16, 64),
        blurred(20, 33),
        weighted(100),
        weighted(7, 5),
        volume(4, 5, 6, 7),
    ],
)
def test_the_answer_stays(tensors, threads):
    check(tensors, threads)


@pytest.mark.parametrize("threads", (1, 2))
@pytest.mark.parametrize(
    "tensors",
    [
        depthwise(49, 57, 120),
        depthwise(60, 60, 100, 2),
        activated(52, 45, 130),
        depthwise(50, 50, 128, 1, 5),
        depthwise(30, 33, 20, 2, 7, padding=3),
        depthwise(14, 15, 32, 2),
    ],
)
def test_the_answer_stays_where_padding_is_decided_at_the_edges(tensors, threads):
    """Compared with a plain nest, as the interpreter would be slow."""
    knobs = {"C.implicit": True}
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-3, 4, t.shape).astype("float32") for t in tensors[:-1]]
    plain = tc.build(tc.schedule(tensors), cache=False)(*arrays)
    kernel = tc.build(tensors, threads=threads, schedules=knobs, cache=False)
    np.testing.assert_array_equal(kernel(*arrays), plain)


def check(tensors, threads: int = 1):
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-3, 4, t.shape).astype("float32") for t in tensors[:-1]]
    kernel = tc.build(tensors, threads=threads, cache=False)
    np.testing.assert_array_equal(kernel(*arrays), interpret(te.lower(tensors), *arrays))


def test_symbolic_extents():
    h, w, c = te.var("h"), te.var("w"), te.var("c")
    for layout in ("NHWC", "NCHW"):
        tensors = depthwise(h, w, c, layout=layout)
        kernel = tc.build(tensors, threads=2, cache=False)
        for extents in ((1, 1, 1), (5, 7, 3), (20, 33, 17)):
            fixed = depthwise(*extents, layout=layout)
            rng = np.random.default_rng(0)
            arrays = [rng.integers(-3, 4, t.shape).astype("float32") for t in fixed[:-1]]
            np.testing.assert_array_equal(kernel(*arrays), interpret(te.lower(fixed), *arrays))
