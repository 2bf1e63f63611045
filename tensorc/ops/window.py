"""What convolutions share: layouts, windows over padded data, and the numbers that place them."""

from __future__ import annotations

from collections.abc import Sequence

from tensorc import te
from tensorc.errors import ExpressionError
from tensorc.ir.expr import Expr
from tensorc.ops.checks import Extent, check_each
from tensorc.ops.shape import Padding, check_padding, pad_axes
from tensorc.te import Tensor


def channels_last(what: str, layout: str, space: str) -> bool:
    """Whether a layout of the spatial dimensions `space`, a letter each, has its channels at the end."""
    last, second = f"N{space}C", f"NC{space}"
    if layout not in (last, second):
        raise ExpressionError(f"{what}: layout {layout!r} is neither {last!r} nor {second!r}")
    return layout == last


def steps(what: str, stride, dilation, count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The strides and dilations of so many dimensions."""
    return check_each(what, "stride", stride, count, 1), check_each(what, "dilation", dilation, count, 1)


def kernel_axes(kernel: Sequence[Extent], space: str) -> list[Expr]:
    """A reduce axis for each dimension of a kernel."""
    return [te.reduce_axis(extent, name=f"k{letter}") for extent, letter in zip(kernel, space.lower())]


def windows(
    what: str,
    data: Tensor,
    at: Sequence[int],
    kernel: Sequence[Extent],
    strides: Sequence[int],
    dilations: Sequence[int],
    padding: Padding,
    name: str,
) -> tuple[Tensor, list[Extent]]:
    """The data padded in its dimensions `at`, and how many places a kernel has in each of them."""
    pads = check_padding(what, padding, len(at))
    extents = []
    for dimension, k, s, d, (before, after) in zip(at, kernel, strides, dilations, pads):
        extents.append((data.shape[dimension] + before + after - d * (k - 1) - 1) // s + 1)
    check_result(what, extents)
    return pad_axes(data, dict(zip(at, pads)), f"{name}_pad"), extents


def check_result(what: str, extents: Sequence[Extent]) -> None:
    """Some place must be left for the kernel, as far as that is known."""
    for extent in extents:
        if isinstance(extent, int) and extent < 1:
            raise ExpressionError(f"{what}: nothing is left of the data; the kernel is larger than the padded data")
