"""Convolutions whose products are others: channel by channel, and of matrices."""

from __future__ import annotations

from tensorc import te
from tensorc.ops.checks import check_extent, check_same_dtype, check_tensor, compute
from tensorc.ops.shape import Padding
from tensorc.ops.window import channels_last, kernel_axes, steps, windows
from tensorc.te import Tensor


def depthwise_conv2d(
    data: Tensor,
    weight: Tensor,
    stride=1,
    padding: Padding = 0,
    dilation=1,
    layout: str = "NHWC",
    name: str = "depthwise_conv2d",
) -> Tensor:
    """Each channel of `data`, (n, h, w, c), convolved with a kernel of its own of `weight`, (kernel h, kernel w, c); in
    layout `NCHW`, (n, c, h, w) with (c, kernel h, kernel w).

    The other arguments and the extents of the result are those of `conv2d`, and so is what is refused.
    """
    what = f"depthwise_conv2d {name!r}"
    is_last = channels_last(what, layout, "HW")
    check_tensor(what, "data", data, "n h w c" if is_last else "n c h w")
    check_tensor(what, "weight", weight, "kh kw c" if is_last else "c kh kw")
    check_same_dtype(what, data, weight)
    at, first, channel = ((1, 2), 0, 3) if is_last else ((2, 3), 1, 1)
    check_extent(what, weight, 2 if is_last else 0, data.shape[channel], f"the channels of {data.name!r}")
    strides, dilations = steps(what, stride, dilation, 2)
    kernel = weight.shape[first : first + 2]
    padded, extents = windows(what, data, at, kernel, strides, dilations, padding, name)
    kh, kw = kernel_axes(kernel, "HW")

    def element(n, h, w, c):
        ih, iw = h * strides[0] + kh * dilations[0], w * strides[1] + kw * dilations[1]
        value = padded[n, ih, iw, c] * weight[kh, kw, c] if is_last else padded[n, c, ih, iw] * weight[c, kh, kw]
        return te.sum(value, axis=(kh, kw))

    n, c = data.shape[0], data.shape[channel]
    if is_last:
        return compute((n, *extents, c), element, name=name)
    return compute((n, c, *extents), lambda n, c, h, w: element(n, h, w, c), name=name)


def capsule_conv2d(
    data: Tensor, weight: Tensor, stride=1, padding: Padding = 0, name: str = "capsule_conv2d"
) -> Tensor:
    """Convolution whose elements are matrices and whose products are matrix products: `data`, (n, h, w, i, k, in), with
    `weight`, (kernel h, kernel w, k, j, in, out), gives (n, h', w', i, j, out).

    The other arguments, h' and w' are those of `conv2d`, and so is what is refused.
    """
    what = f"capsule_conv2d {name!r}"
    check_tensor(what, "data", data, "n h w i k in")
    check_tensor(what, "weight", weight, "kh kw k j in out")
    check_same_dtype(what, data, weight)
    check_extent(what, weight, 2, data.shape[4], f"the columns of the matrices in {data.name!r}")
    check_extent(what, weight, 4, data.shape[5], f"the channels of {data.name!r}")
    strides, dilations = steps(what, stride, 1, 2)
    padded, extents = windows(what, data, (1, 2), weight.shape[:2], strides, dilations, padding, name)
    kh, kw = kernel_axes(weight.shape[:2], "HW")
    k, ci = te.reduce_axis(data.shape[4], name="k"), te.reduce_axis(data.shape[5], name="ci")

    def element(n, h, w, i, j, c):
        value = padded[n, h * strides[0] + kh, w * strides[1] + kw, i, k, ci] * weight[kh, kw, k, j, ci, c]
        return te.sum(value, axis=(kh, kw, k, ci))

    shape = (data.shape[0], *extents, data.shape[3], weight.shape[3], weight.shape[5])
    return compute(shape, element, name=name)
