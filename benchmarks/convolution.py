"""A convolution in three stages, and a schedule of it by hand."""

from __future__ import annotations

import tensorc as tc
from tensorc import te


def convolution() -> tc.Schedule:
    """The nests of a padding, a 3 x 3 convolution of 32 channels into 64, and a bias with a rectifier."""
    X = te.placeholder((32, 32, 32), name="X")
    W = te.placeholder((64, 32, 3, 3), name="W")
    bias = te.placeholder((64,), name="bias")
    inside = lambda c, y, x: te.if_then_else(te.all(y >= 1, y <= 32, x >= 1, x <= 32), X[c, y - 1, x - 1], 0.0)
    pad = te.compute((32, 34, 34), inside, name="pad")
    c, p, q = te.reduce_axis(32, name="c"), te.reduce_axis(3, name="p"), te.reduce_axis(3, name="q")
    conv = te.compute(
        (64, 32, 32), lambda k, y, x: te.sum(pad[c, y + p, x + q] * W[k, c, p, q], axis=(c, p, q)), name="conv"
    )
    relu = te.compute((64, 32, 32), lambda k, y, x: te.maximum(conv[k, y, x] + bias[k], 0.0), name="relu")
    return tc.schedule([X, W, bias, relu])


def thirty_steps(s: tc.Schedule) -> None:
    """Thirty steps on that: tiles in registers, packed weights, the padding and the rectifier beside each tile."""
    k, y, x, c, p, q = s.loops("conv")
    k0, k1 = s.split(k, (None, 16))
    y0, y1 = s.split(y, (None, 4))
    x0, x1 = s.split(x, (None, 8))
    c0, c1 = s.split(c, (None, 4))
    s.reorder(y0, k0, x0, c0, c1, p, q, y1, x1, k1)
    s.unroll(q)
    s.unroll(x1)
    s.unroll(y1)
    s.vectorize(k1)
    packed = s.cache_read("conv", "W")
    s.transform_layout(packed, "W_global", lambda k, c, p, q: (k // 16, c, p, q, k % 16))
    k, c, p, q = s.loops(packed)
    tiles, lane = s.split(k, (None, 16))
    s.reorder(tiles, c, p, q, lane)
    s.fuse(p, q)
    s.vectorize(lane)
    s.parallel(tiles)
    s.compute_at("pad", y0)
    c, y, x = s.loops("pad")[1:]
    lane = s.split(x, (None, 16))[1]
    s.vectorize(lane)
    s.parallel(s.fuse(c, y))
    s.storage_align("pad", "pad", 1, 16)
    s.reverse_compute_at("relu", x0)
    k, y, x = s.loops("relu")[3:]
    s.reorder(y, x, k)
    s.vectorize(k)
    s.unroll(x)
    init = s.decompose_reduction("conv", c0)
    s.unroll(s.loops(init)[3])
    s.parallel(k0)
    s.prefetch(c0, "W_global")
