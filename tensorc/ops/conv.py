"""Convolutions in one to three dimensions, as networks use them: the kernel is not flipped.

Where the channels of the data come last, those of the kernel do, too: `NWC`, `NHWC` and `NDHWC` go with kernels of
shape (*kernel, in, out); where they come second, `NCW`, `NCHW` and `NCDHW` go with (out, in, *kernel).
"""

from __future__ import annotations

from tensorc import te
from tensorc.dtypes import DType
from tensorc.errors import ExpressionError
from tensorc.ops.checks import (
    Extent,
    check_at_least,
    check_extent,
    check_same_dtype,
    check_tensor,
    compute,
    shown,
    with_names,
)
from tensorc.ops.matmul import product
from tensorc.ops.shape import Padding
from tensorc.ops.window import channels_last, kernel_axes, steps, windows
from tensorc.te import Tensor


def conv1d(
    data: Tensor,
    weight: Tensor,
    stride=1,
    padding: Padding = 0,
    dilation=1,
    groups: int = 1,
    layout: str = "NWC",
    out_dtype: DType | str | None = None,
    name: str = "conv1d",
) -> Tensor:
    """Convolution of `data`, (n, w, in) or in layout `NCW` (n, in, w); see `conv2d`."""
    return _conv(f"conv1d {name!r}", "W", data, weight, stride, padding, dilation, groups, layout, out_dtype, name)


def conv2d(
    data: Tensor,
    weight: Tensor,
    stride=1,
    padding: Padding = 0,
    dilation=1,
    groups: int = 1,
    layout: str = "NHWC",
    out_dtype: DType | str | None = None,
    name: str = "conv2d",
) -> Tensor:
    """Convolution of `data`, (n, h, w, in), with `weight`, (kernel h, kernel w, in / groups, out), of shape (n, h', w',
    out); in layout `NCHW`, of (n, in, h, w) with (out, in / groups, kernel h, kernel w).

    `stride`, `dilation` and `padding` are one number or one a dimension, for padding also a pair (before, after) a
    dimension; what is padded is 0. h' is (h + padding - dilation * (kernel h - 1) - 1) // stride + 1. With `groups`,
    each group of output channels is made of a group of input channels of its own. Raises ExpressionError where ranks,
    extents, dtypes or numbers do not fit, and where the kernel is larger than the padded data.
    """
    return _conv(f"conv2d {name!r}", "HW", data, weight, stride, padding, dilation, groups, layout, out_dtype, name)


def conv3d(
    data: Tensor,
    weight: Tensor,
    stride=1,
    padding: Padding = 0,
    dilation=1,
    groups: int = 1,
    layout: str = "NDHWC",
    out_dtype: DType | str | None = None,
    name: str = "conv3d",
) -> Tensor:
    """Convolution of `data`, (n, d, h, w, in) or in layout `NCDHW` (n, in, d, h, w); see `conv2d`."""
    return _conv(f"conv3d {name!r}", "DHW", data, weight, stride, padding, dilation, groups, layout, out_dtype, name)


def _conv(what, space: str, data, weight, stride, padding, dilation, groups, layout, out_dtype, name) -> Tensor:
    """A convolution over the dimensions `space`, a letter each."""
    is_last = channels_last(what, layout, space)
    letters = space.lower()
    count, kernel_names = len(space), " ".join([f"k{letter}" for letter in letters])
    check_tensor(what, "data", data, f"n {' '.join(letters)} in" if is_last else f"n in {' '.join(letters)}")
    check_tensor(what, "weight", weight, f"{kernel_names} in out" if is_last else f"out in {kernel_names}")
    if out_dtype is None:
        check_same_dtype(what, data, weight)
    channel, first = (count + 1, 0) if is_last else (1, 2)
    source, result = (count, count + 1) if is_last else (1, 0)
    outputs = weight.shape[result]
    groups = check_at_least(what, "groups", groups, 1)
    part = _of_group(what, "in", data.shape[channel], groups)
    made = _of_group(what, "out", outputs, groups)
    why = f"the channels of {data.name!r}" + (f", of one of {groups} groups" if groups > 1 else "")
    check_extent(what, weight, source, part, why)
    strides, dilations = steps(what, stride, dilation, count)
    at = tuple(range(1, count + 1)) if is_last else tuple(range(2, count + 2))
    kernel = weight.shape[first : first + count]
    padded, extents = windows(what, data, at, kernel, strides, dilations, padding, name)
    taps, ci = kernel_axes(kernel, space), te.reduce_axis(part, name="ci")

    def element(indices):
        n, *inner = indices
        places, c = (inner[:-1], inner[-1]) if is_last else (inner[1:], inner[0])
        read = [place * s + tap * d for place, s, tap, d in zip(places, strides, taps, dilations)]
        channel = ci if groups == 1 else c // made * part + ci
        here = (n, *read, channel) if is_last else (n, channel, *read)
        there = (*taps, ci, c) if is_last else (c, ci, *taps)
        value = product(padded[here], weight[there], out_dtype)
        return te.sum(value, axis=(*taps, ci) if is_last else (ci, *taps))

    n = data.shape[0]
    if is_last:
        return compute((n, *extents, outputs), with_names(("n", *letters, "c"), element), name=name)
    return compute((n, outputs, *extents), with_names(("n", "c", *letters), element), name=name)


def _of_group(what: str, which: str, channels: Extent, groups: int) -> Extent:
    """The channels of one of the groups."""
    if groups == 1:
        return channels
    if not isinstance(channels, int) or channels % groups:
        raise ExpressionError(f"{what}: {shown(channels)} {which} channels are not divided by {groups} groups")
    return channels // groups
