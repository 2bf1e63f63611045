"""Convolutions of 3 x 3 by Winograd's algorithm: what is recognised, what comes out, and within which error."""

from __future__ import annotations

import numpy as np
import pytest

import tensorc as tc
from tensorc import ops, te
from tensorc.errors import ScheduleError
from tensorc.ir.interpreter import interpret
from tensorc.schedule.locate import find_block
from tensorc.schedule.recipes import winograd

EPS = 2.0**-24


def convolution(shape, co, layout="NHWC", padding=1, dtype="float32", stride=1, width=3, dilation=1):
    """The tensors of a convolution of data of `shape` (n, height, width, channels)."""
    n, height, across, ci = shape
    last = layout == "NHWC"
    x = te.placeholder((n, height, across, ci) if last else (n, ci, height, across), dtype, name="X")
    k = te.placeholder((width, width, ci, co) if last else (co, ci, width, width), dtype, name="K")
    c = ops.conv2d(x, k, stride=stride, padding=padding, dilation=dilation, layout=layout, name="C")
    return [x, k, c]


def direct(x, k, layout, padding):
    """The convolution in float64."""
    if layout == "NCHW":
        x, k = x.transpose(0, 2, 3, 1), k.transpose(2, 3, 1, 0)
    x = np.pad(x.astype(np.float64), ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    height, width = x.shape[1] - 2, x.shape[2] - 2
    taps = [(a, b) for a in range(3) for b in range(3)]
    found = sum(x[:, a : a + height, b : b + width] @ k[a, b].astype(np.float64) for a, b in taps)
    return found.transpose(0, 3, 1, 2) if layout == "NCHW" else found


def bound(x, k, layout, m) -> float:
    """The largest error that the documented bound allows."""
    channels = x.shape[1] if layout == "NCHW" else x.shape[3]
    terms = 9 * channels * float(np.abs(x).max()) * float(np.abs(k).max())
    return (channels + 4 * (m + 2)) * EPS * float(winograd.amplification(m)) * terms


SHAPES = [(1, 1, 1, 1), (1, 4, 4, 16), (2, 5, 3, 7), (1, 7, 9, 33), (1, 13, 6, 4), (3, 8, 8, 17)]


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("m", [2, 4])
@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_the_convolution_within_its_bound(shape, m, layout):
    tensors = convolution(shape, 19, layout)
    rng = np.random.default_rng(0)
    x, k = [rng.uniform(-1, 1, each.shape).astype("f4") for each in tensors[:2]]
    expected = direct(x, k, layout, 1)
    for threads, constants in ((1, None), (2, None), (1, {"K": k})):
        decisions = {"C.algorithm": f"winograd{m}"}
        kernel = tc.build(tensors, threads=threads, schedules=decisions, constants=constants)
        found = kernel(x) if constants else kernel(x, k)
        assert np.abs(found - expected).max() <= bound(x, k, layout, m)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("m", [2, 4])
def test_it_is_exact_where_nothing_is_rounded(m, layout):
    tensors = convolution((1, 9, 7, 5), 6, layout, padding=0)
    rng = np.random.default_rng(1)
    x = rng.integers(-4, 5, tensors[0].shape).astype("f4")
    k = (24 * rng.integers(-2, 3, tensors[1].shape)).astype("f4")  # its fractions of 1/4, 1/6 and 1/24 are whole
    s = tc.default_schedule(tensors, threads=1, schedules={"C.algorithm": f"winograd{m}"})
    expected = direct(x, k, layout, 0)
    found = interpret(s.function, x, k)
    assert np.array_equal(found, expected) if m == 2 else np.allclose(found, expected, atol=1e-2)
    assert np.array_equal(tc.build(s)(x, k), found) or m == 4


def test_the_matrices_are_those_of_the_algorithm():
    """A^T ((G g) * (B^T d)) is the convolution of 3 numbers with m + 2, as fractions."""
    for m in (2, 4):
        for tap in range(3):
            for at in range(m + 2):
                g = [sum(row[i] for i in (tap,)) for row in winograd.KERNEL[m]]
                d = [row[at] for row in winograd.DATA[m]]
                found = [sum(a * x * y for a, x, y in zip(row, g, d)) for row in winograd.RESULTS[m]]
                assert found == [1 if at - tap == out else 0 for out in range(m)]


def test_how_much_larger_the_error_may_be():
    assert winograd.amplification(2) == pytest.approx(64 / 9)
    assert winograd.amplification(4) == 256


@pytest.mark.parametrize(
    "change", [{"stride": 2}, {"width": 5}, {"dtype": "float64"}, {"dilation": 2}, {"dtype": "int32"}]
)
def test_other_convolutions_are_not_recognised(change):
    tensors = convolution((1, 11, 11, 4), 8, **change)
    s = tc.schedule(tensors)
    assert winograd.recognize(find_block(s.function, "C").node) is None
    assert "C.algorithm" not in tc.default_schedule(tensors).decisions
    with pytest.raises(ScheduleError, match=r"knob 'C.algorithm': no recipe asks for that"):
        tc.build(tensors, schedules={"C.algorithm": "winograd4"})


def test_it_is_asked_for_by_a_knob():
    tensors = convolution((1, 8, 8, 4), 8)
    assert tc.default_schedule(tensors).decisions["C.algorithm"] == "direct"
    with pytest.raises(ScheduleError, match="knob 'C.algorithm': 'fft' is none of 'direct', 'winograd2', 'winograd4'"):
        tc.build(tensors, schedules={"C.algorithm": "fft"})
    s = tc.default_schedule(tensors, schedules={"C.algorithm": "winograd2"})
    assert "substitute" in s.trace.python() and s.recipes["C"] == "winograd"
    assert [block.name for block in s.blocks()][-1] == "C"


def test_what_follows_and_names_that_are_taken():
    x, k = te.placeholder((1, 6, 6, 4), name="n"), te.placeholder((3, 3, 4, 8), name="v0_0")
    c = ops.conv2d(x, k, padding=1, name="e")
    y = te.compute(c.shape, lambda n, i, j, o: te.maximum(c[n, i, j, o], 0.0), name="Y")
    rng = np.random.default_rng(2)
    data, kernel = [rng.uniform(-1, 1, each.shape).astype("f4") for each in (x, k)]
    found = tc.build([x, k, y], schedules={"e.algorithm": "winograd4"})(data, kernel)
    expected = np.maximum(direct(data, kernel, "NHWC", 1), 0)
    assert np.abs(found - expected).max() <= bound(data, kernel, "NHWC", 4)
