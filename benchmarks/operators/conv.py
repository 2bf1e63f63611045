"""Convolutions. torch has its weights, and data of which it has no layout with channels last, in the order it likes."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from benchmarks.workload import Workload, expression, normal
from tensorc import ops

SPACE = "DHW"
CONV = {1: ops.conv1d, 2: ops.conv2d, 3: ops.conv3d}


def conv(
    name: str,
    size: tuple[int, ...],
    ci: int,
    co: int,
    kernel: int,
    stride: int,
    padding: int,
    dilation: int = 1,
    groups: int = 1,
    channels_last: bool = True,
    batch_norm: bool = False,
) -> Workload:
    """A convolution of one image of extents `size`; `batch_norm` adds a bias, scales and shifts, and takes the relu."""
    rank = len(size)
    letters = SPACE[3 - rank :]
    layout = f"N{letters}C" if channels_last else f"NC{letters}"
    data = (1, *size, ci) if channels_last else (1, ci, *size)
    taps = (kernel,) * rank
    weight = (*taps, ci // groups, co) if channels_last else (co, ci // groups, *taps)
    shapes = (data, weight, *((co,),) * 3) if batch_norm else (data, weight)
    numbers = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    channel = rank + 1 if channels_last else 1

    def operator(x, w, bias=None, scale=None, shift=None):
        made = CONV[rank](x, w, layout=layout, **numbers)
        if bias is None:
            return made
        return ops.relu(ops.scale_shift(ops.bias_add(made, bias, channel), scale, shift, channel))

    def reference(x, w, *vectors):
        if not channels_last:
            x, w = np.moveaxis(x, 1, -1), np.moveaxis(w, (0, 1), (-1, -2))
        made = _convolved(x, w, stride, padding, dilation, groups)
        if vectors:
            bias, scale, shift = vectors
            made = np.maximum((made + bias) * scale + shift, 0)
        return made if channels_last else np.moveaxis(made, -1, 1)

    return Workload(
        name,
        normal(*shapes),
        expression(operator, *shapes),
        reference,
        {"torch": _torch_conv(rank, channels_last, **numbers), "jax": _jax_conv(layout, **numbers)},
        {"torch": _arranged(rank) if channels_last else lambda *arrays: arrays},
        terms=prod(taps) * ci // groups,
    )


def depthwise(name: str, h: int, w: int, c: int, kernel: int, stride: int, padding: int, channels_last: bool = True):
    """A convolution of each channel for itself."""
    data = (1, h, w, c) if channels_last else (1, c, h, w)
    weight = (kernel, kernel, c) if channels_last else (c, kernel, kernel)
    layout = "NHWC" if channels_last else "NCHW"
    numbers = {"stride": stride, "padding": padding, "dilation": 1, "groups": c}

    def reference(x, w):
        if not channels_last:
            x, w = np.moveaxis(x, 1, -1), np.moveaxis(w, 0, -1)
        made = np.einsum("nhwcyx,yxc->nhwc", _windows(x, (kernel, kernel), stride, padding, 1), w)
        return made if channels_last else np.moveaxis(made, -1, 1)

    def in_torch(x, w):
        x, w = (x, w.reshape(kernel, kernel, 1, c)) if channels_last else (x, w.reshape(c, 1, kernel, kernel))
        return _arranged(2)(x, w) if channels_last else (x, w)

    def in_jax(x, w):
        return x, w.reshape((kernel, kernel, 1, c) if channels_last else (c, 1, kernel, kernel))

    return Workload(
        name,
        normal(data, weight),
        expression(lambda x, w: ops.depthwise_conv2d(x, w, stride, padding, layout=layout), data, weight),
        reference,
        {"torch": _torch_conv(2, channels_last, **numbers), "jax": _jax_conv(layout, **numbers)},
        {"torch": in_torch, "jax": in_jax},
        terms=kernel * kernel,
    )


def transposed(name: str, h: int, w: int, ci: int, co: int, kernel: int, stride: int, padding: int) -> Workload:
    """A transposed convolution with channels last."""
    shapes = ((1, h, w, ci), (kernel, kernel, ci, co))

    def reference(x, w):
        _, height, width, _ = x.shape
        whole = np.zeros((1, (height - 1) * stride + kernel, (width - 1) * stride + kernel, co), x.dtype)
        for y, z in np.ndindex(kernel, kernel):
            whole[:, y : y + height * stride : stride, z : z + width * stride : stride] += x @ w[y, z]
        return whole[:, padding : whole.shape[1] - padding, padding : whole.shape[2] - padding]

    def arrange(x, w):
        import torch

        last = torch.channels_last
        return x.permute(0, 3, 1, 2), w.permute(2, 3, 0, 1).contiguous(memory_format=last)

    def in_torch(x, w):
        import torch

        return torch.conv_transpose2d(x, w, stride=stride, padding=padding).permute(0, 2, 3, 1)

    def in_jax(x, w):
        import jax

        return jax.lax.conv_general_dilated(
            x, w, (1, 1), [(kernel - 1 - padding,) * 2] * 2, lhs_dilation=(stride, stride),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )  # fmt: skip

    return Workload(
        name,
        normal(*shapes),
        expression(lambda x, w: ops.conv2d_transpose(x, w, stride, padding), *shapes),
        reference,
        {"torch": in_torch, "jax": in_jax},
        {"torch": arrange, "jax": lambda x, w: (x, w[::-1, ::-1])},
        terms=ci * kernel * kernel // stride**2,
    )


def capsule(name: str, h: int, w: int, ci: int, co: int, kernel: int, stride: int, padding: int, size: int) -> Workload:
    """A convolution of matrices of `size` rows and columns."""
    shapes = ((1, h, w, size, size, ci), (kernel, kernel, size, size, ci, co))

    def reference(x, w):
        windows = _windows(x, (kernel, kernel), stride, padding, 1)  # n h w i k c y x
        return np.einsum("nhwikcyx,yxkjcd->nhwijd", windows, w, optimize=True)

    return Workload(
        name,
        normal(*shapes),
        expression(lambda x, w: ops.capsule_conv2d(x, w, stride, padding), *shapes),
        reference,
        terms=kernel * kernel * size * ci,
    )


def _windows(x: np.ndarray, kernel: tuple[int, ...], stride: int, padding: int, dilation: int) -> np.ndarray:
    """The windows of data with channels last: (n, places, the other dimensions, taps)."""
    rank = len(kernel)
    axes = tuple(range(1, rank + 1))
    x = np.pad(x, [(padding, padding) if d in axes else (0, 0) for d in range(x.ndim)])
    windows = sliding_window_view(x, tuple([dilation * (k - 1) + 1 for k in kernel]), axes)
    return windows[(slice(None), *(slice(None, None, stride),) * rank, ..., *(slice(None, None, dilation),) * rank)]


def _convolved(x, w, stride, padding, dilation, groups):
    rank = x.ndim - 2
    windows = _windows(x, w.shape[:rank], stride, padding, dilation)
    matrix = np.moveaxis(w, rank, 0)  # in, taps, out
    part, made = w.shape[-2], w.shape[-1] // groups
    out = np.empty((*windows.shape[: rank + 1], w.shape[-1]), x.dtype)
    every = (slice(None),) * rank
    for group in range(groups):
        mine = matrix[..., group * made : (group + 1) * made]
        for place in range(out.shape[1]):  # one slice at a time, since the windows overlap and are copied
            taken = windows[(slice(None), place, ..., slice(group * part, (group + 1) * part), *every)]
            out[:, place, ..., group * made : (group + 1) * made] = np.tensordot(taken, mine, rank + 1)
    return out


def _arranged(rank: int) -> Callable:
    """Data and weights with channels last as torch's convolutions take them."""

    def arrange(x, w, *vectors):
        import torch

        x, w = x.movedim(-1, 1), w.movedim((-1, -2), (0, 1))
        if rank == 1:
            return x.contiguous(), w.contiguous(), *vectors
        last = torch.channels_last if rank == 2 else torch.channels_last_3d
        return x, w.contiguous(memory_format=last), *vectors

    return arrange


def _torch_conv(rank: int, channels_last: bool, **numbers) -> Callable:
    def function(x, w, bias=None, scale=None, shift=None):
        import torch

        made = (torch.conv1d, torch.conv2d, torch.conv3d)[rank - 1](x, w, bias, **numbers)
        if scale is not None:
            along = (-1,) + (1,) * rank
            made = torch.addcmul(shift.reshape(along), made, scale.reshape(along)).relu_()
        return made.movedim(1, -1) if channels_last else made

    return function


def _jax_conv(layout: str, stride: int, padding: int, dilation: int, groups: int) -> Callable:
    rank = len(layout) - 2
    letters = SPACE[3 - rank :]
    kernel = f"{letters}IO" if layout.endswith("C") else f"OI{letters}"
    along = (1,) * (rank + 1) + (-1,) if layout.endswith("C") else (1, -1) + (1,) * rank

    def function(x, w, bias=None, scale=None, shift=None):
        import jax

        made = jax.lax.conv_general_dilated(
            x, w, (stride,) * rank, [(padding, padding)] * rank, rhs_dilation=(dilation,) * rank,
            dimension_numbers=(layout, kernel, layout), feature_group_count=groups,
        )  # fmt: skip
        if scale is None:
            return made
        bias, scale, shift = [v.reshape(along) for v in (bias, scale, shift)]
        return jax.nn.relu((made + bias) * scale + shift)

    return function
