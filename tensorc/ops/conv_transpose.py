"""Transposed convolutions."""

from __future__ import annotations

from tensorc import te
from tensorc.errors import ExpressionError
from tensorc.ops.checks import Extent, check_each, check_extent, check_same_dtype, check_tensor, compute, shown
from tensorc.ops.shape import pad_axes
from tensorc.ops.window import channels_last, check_result, kernel_axes
from tensorc.te import Tensor


def conv2d_transpose(
    data: Tensor,
    weight: Tensor,
    stride=1,
    padding=0,
    output_padding=0,
    layout: str = "NHWC",
    name: str = "conv2d_transpose",
) -> Tensor:
    """The transpose of a convolution, which makes data larger: `data`, (n, h, w, in), and `weight`, (kernel h, kernel
    w, in, out), give (n, h', w', out); in layout `NCHW`, (n, in, h, w) and (in, out, kernel h, kernel w).

    h' is (h - 1) * stride + kernel h - 2 * padding + output_padding; each number is one for both dimensions or one for
    each, and output_padding is less than the stride. Each element of the result is the sum of the few products that
    reach it, of which there are kernel // stride in a dimension, or one more. Raises ExpressionError where ranks,
    extents, dtypes or numbers do not fit.
    """
    what = f"conv2d_transpose {name!r}"
    is_last = channels_last(what, layout, "HW")
    check_tensor(what, "data", data, "n h w in" if is_last else "n in h w")
    check_tensor(what, "weight", weight, "kh kw in out" if is_last else "in out kh kw")
    check_same_dtype(what, data, weight)
    at, first, channel, source = ((1, 2), 0, 3, 2) if is_last else ((2, 3), 2, 1, 0)
    check_extent(what, weight, source, data.shape[channel], f"the channels of {data.name!r}")
    strides = check_each(what, "stride", stride, 2, 1)
    pads = check_each(what, "padding", padding, 2, 0)
    extra = check_each(what, "output_padding", output_padding, 2, 0)
    kernel = _constants(what, weight.shape[first : first + 2])
    extents: list[Extent] = []
    around: dict[int, tuple[Extent, Extent]] = {}
    counts = [-(-k // s) for k, s in zip(kernel, strides)]
    for dimension, k, s, p, more, count in zip(at, kernel, strides, pads, extra, counts):
        if more >= s:
            raise ExpressionError(f"{what}: output_padding {more} is not less than the stride {s}")
        size = data.shape[dimension]
        extents.append((size - 1) * s + k - 2 * p + more)
        # place o of the result is the sum over t of data[(o + p) // s - t] * weight[(o + p) % s + t * s]
        around[dimension] = (count - 1, (extents[-1] - 1 + p) // s + 1 - size)
    check_result(what, extents)
    padded = pad_axes(data, around, f"{name}_pad")
    whole = [(0, count * s - k) for count, s, k in zip(counts, strides, kernel)]
    weights = pad_axes(weight, {first + d: pair for d, pair in enumerate(whole)}, f"{name}_weight")
    kh, kw = kernel_axes(counts, "HW")
    ci = te.reduce_axis(data.shape[channel], name="ci")

    def element(n, h, w, c):
        y, x = [o + p for o, p in zip((h, w), pads)]
        ih, iw = y // strides[0] - kh + (counts[0] - 1), x // strides[1] - kw + (counts[1] - 1)
        wh, ww = y % strides[0] + kh * strides[0], x % strides[1] + kw * strides[1]
        if is_last:
            return te.sum(padded[n, ih, iw, ci] * weights[wh, ww, ci, c], axis=(kh, kw, ci))
        return te.sum(padded[n, ci, ih, iw] * weights[ci, c, wh, ww], axis=(ci, kh, kw))

    n, co = data.shape[0], weight.shape[3 if is_last else 1]
    if is_last:
        return compute((n, *extents, co), element, name=name)
    return compute((n, co, *extents), lambda n, c, h, w: element(n, h, w, c), name=name)


def _constants(what: str, kernel) -> list[int]:
    for extent in kernel:
        if not isinstance(extent, int):
            raise ExpressionError(f"{what}: the kernel's extent {shown(extent)} is symbolic; it must be a number")
    return list(kernel)
