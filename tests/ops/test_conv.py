"""Convolutions of all kinds, in both layouts."""

import numpy as np
import pytest
import torch

import tensorc as tc
from tensorc import ops, te
from tests.ops.check import check, integers

CONV = (ops.conv1d, ops.conv2d, ops.conv3d)
PLAIN = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}
CASES = [
    {},
    {"stride": 2, "padding": 1},
    {"padding": 2, "dilation": 2},
    {"groups": 2, "padding": 1},
    {"stride": 3, "dilation": 2, "groups": 4, "padding": 3},
]


def torch_conv(rank):
    return (torch.conv1d, torch.conv2d, torch.conv3d)[rank - 1]


def last(x):
    """From channels second to channels last."""
    return x.movedim(1, -1)


def second(x):
    return x.movedim(-1, 1)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_conv(rank, case):
    options = {**PLAIN, **case}
    size, groups = (9, 8, 6)[:rank], options["groups"]
    conv, theirs = CONV[rank - 1], torch_conv(rank)
    layout = "NC" + "DHW"[-rank:]
    ours = lambda x, w: conv(x, w, layout=layout, **case)
    x, w = integers(2, 4, *size), integers(8, 4 // groups, *(3,) * rank)
    check(ours, lambda x, w: theirs(x, w, **options), x, w)
    x, w = np.moveaxis(x, 1, -1), np.moveaxis(w, (0, 1), (-1, -2))
    reference = lambda x, w: last(theirs(second(x), w.movedim((-1, -2), (0, 1)), **options))
    ours = lambda x, w: conv(x, w, **case)
    check(ours, reference, np.ascontiguousarray(x), np.ascontiguousarray(w))


def test_numbers_of_each_dimension():
    x, w = integers(1, 3, 9, 11), integers(5, 3, 3, 2)
    numbers = {"stride": (2, 1), "padding": (0, 3), "dilation": (1, 4)}
    ours = lambda x, w: ops.conv2d(x, w, layout="NCHW", **numbers)
    check(ours, lambda x, w: torch.conv2d(x, w, **numbers), x, w)


def test_padding_of_each_side():
    x, w = integers(1, 3, 5, 7), integers(5, 3, 3, 3)
    ours = lambda x, w: ops.conv2d(x, w, padding=((0, 1), (2, 0)), layout="NCHW")
    check(ours, lambda x, w: torch.conv2d(torch.nn.functional.pad(x, (2, 0, 0, 1)), w), x, w)


def test_products_in_another_dtype():
    x, w = integers(1, 5, 6, 3, dtype="int8") * 20, integers(3, 3, 3, 4, dtype="int8") * 20
    wide = lambda x, w: ops.conv2d(x, w, out_dtype="int32")
    reference = lambda x, w: last(torch.conv2d(second(x).double(), w.permute(3, 2, 0, 1).double())).int()
    check(wide, reference, x, w)


@pytest.mark.parametrize("stride, padding, dilation", [(1, 1, 1), (2, 1, 1), (1, 2, 2), (3, 0, 1)])
@pytest.mark.parametrize("channels", [1, 5, 32])
def test_depthwise_conv2d(channels, stride, padding, dilation):
    numbers = {"stride": stride, "padding": padding, "dilation": dilation}
    theirs = lambda x, w: torch.conv2d(x, w[:, None], groups=channels, **numbers)
    x, w = integers(1, channels, 9, 7), integers(channels, 3, 3)
    check(lambda x, w: ops.depthwise_conv2d(x, w, layout="NCHW", **numbers), theirs, x, w)
    x, w = integers(1, 9, 7, channels), integers(3, 3, channels)
    ours = lambda x, w: ops.depthwise_conv2d(x, w, **numbers)
    check(ours, lambda x, w: last(theirs(second(x), w.permute(2, 0, 1))), x, w)


@pytest.mark.parametrize(
    "kernel, stride, padding, output_padding",
    [(4, 2, 1, 0), (3, 2, 1, 1), (3, 3, 0, 0), (2, 3, 0, 2), (3, 1, 0, 0), (3, 2, 3, 1), (1, 2, 2, 0), (5, 3, 1, 2)],
)
def test_conv2d_transpose(kernel, stride, padding, output_padding):
    def theirs(x, w):
        return torch.conv_transpose2d(x, w, stride=stride, padding=padding, output_padding=output_padding)

    numbers = (stride, padding, output_padding)
    x, w = integers(2, 5, 6, 7), integers(5, 3, kernel, kernel)
    check(lambda x, w: ops.conv2d_transpose(x, w, *numbers, layout="NCHW"), theirs, x, w)
    x, w = integers(1, 6, 7, 5), integers(kernel, kernel, 5, 3)
    ours = lambda x, w: ops.conv2d_transpose(x, w, *numbers)
    check(ours, lambda x, w: last(theirs(second(x), w.permute(2, 3, 0, 1))), x, w)


def test_conv2d_transpose_multiplies_only_what_reaches_an_element():
    X, W = te.placeholder((1, 4, 4, 8), name="X"), te.placeholder((4, 4, 8, 3), name="W")
    kernel = tc.build([X, W, ops.conv2d_transpose(X, W, 2, 1)])
    assert kernel.artifact.flops == 2 * (8 * 8 * 3) * (2 * 2 * 8)


@pytest.mark.parametrize("stride", [1, 2])
def test_capsule_conv2d(stride):
    def theirs(x, w):
        n, h, width, i, k, ci = x.shape
        kh, kw, _, j, _, co = w.shape
        rows = x.permute(0, 3, 4, 5, 1, 2).reshape(n * i, k * ci, h, width)
        kernels = w.permute(3, 5, 2, 4, 0, 1).reshape(j * co, k * ci, kh, kw)
        made = torch.conv2d(rows, kernels, stride=stride, padding=1)
        return made.reshape(n, i, j, co, *made.shape[2:]).permute(0, 4, 5, 1, 2, 3)

    ours = lambda x, w: ops.capsule_conv2d(x, w, stride, 1)
    check(ours, theirs, integers(2, 6, 5, 4, 3, 7), integers(3, 3, 3, 2, 7, 5))


def test_a_batch_of_any_size():
    n = te.var("n")
    X, W = te.placeholder((n, 8, 8, 3), name="X"), te.placeholder((3, 3, 3, 5), name="W")
    kernel = tc.build([X, W, ops.conv2d(X, W, stride=2, padding=1)])
    w = integers(3, 3, 3, 5)
    for size in (0, 1, 3):
        x = integers(size, 8, 8, 3)
        expected = last(torch.conv2d(second(torch.from_numpy(x)), torch.from_numpy(w).permute(3, 2, 0, 1), None, 2, 1))
        np.testing.assert_array_equal(kernel(x, w), expected)


def test_images_of_any_size():
    h, width = te.var("h"), te.var("w")
    X, W = te.placeholder((1, 3, h, width), name="X"), te.placeholder((5, 3, 3, 3), name="W")
    kernel = tc.build([X, W, ops.conv2d(X, W, padding=1, layout="NCHW")])
    w = integers(5, 3, 3, 3)
    for size in ((1, 1), (4, 17)):
        x = integers(1, 3, *size)
        expected = torch.conv2d(torch.from_numpy(x), torch.from_numpy(w), padding=1)
        np.testing.assert_array_equal(kernel(x, w), expected)
