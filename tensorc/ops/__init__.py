"""The operator library: plain functions from tensors to tensors, which the default schedules know how to make fast.

    A = te.placeholder((M, K), name="A")
    B = te.placeholder((N, K), name="B")
    kernel = tc.build([A, B, ops.relu(ops.matmul(A, B, transpose_b=True))])

What they compute is a tensor expression like any other, whose stages are named after the last argument, `name`.
"""

from tensorc.ops.attention import attention
from tensorc.ops.conv import conv1d, conv2d, conv3d
from tensorc.ops.conv_transpose import conv2d_transpose
from tensorc.ops.depthwise import capsule_conv2d, depthwise_conv2d
from tensorc.ops.elementwise import add, bias_add, elementwise, gelu, relu, scale_shift
from tensorc.ops.matmul import batch_matmul, matmul, matvec, transpose_batch_matmul
from tensorc.ops.reduce import argmax, cumsum, layer_norm, max, mean, min, norm, rms_norm, softmax, sum
from tensorc.ops.shape import pad, transpose

__all__ = [
    "add",
    "argmax",
    "attention",
    "batch_matmul",
    "bias_add",
    "capsule_conv2d",
    "conv1d",
    "conv2d",
    "conv2d_transpose",
    "conv3d",
    "cumsum",
    "depthwise_conv2d",
    "elementwise",
    "gelu",
    "layer_norm",
    "matmul",
    "matvec",
    "max",
    "mean",
    "min",
    "norm",
    "pad",
    "relu",
    "rms_norm",
    "scale_shift",
    "softmax",
    "sum",
    "transpose",
    "transpose_batch_matmul",
]
