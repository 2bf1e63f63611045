"""Bad arguments of operators, each refused by a sentence."""

import pytest

from tensorc import ops, te
from tensorc.errors import ExpressionError

n = te.var("n")
X = te.placeholder((4, 6), name="X")
Y = te.placeholder((5, 7), name="Y")
V = te.placeholder((4,), name="V")
H = te.placeholder((6, 3), "float16", name="H")
X3 = te.placeholder((2, 4, 6), name="X3")
Y3 = te.placeholder((3, 6, 5), name="Y3")
X4 = te.placeholder((1, 8, 8, 6), name="X4")
W4 = te.placeholder((3, 3, 6, 4), name="W4")
W3 = te.placeholder((3, 3, 6), name="W3")
N4 = te.placeholder((1, 8, 8, n), name="N4")
WN = te.placeholder((n, 3, 6, 4), name="WN")

CASES = [
    (lambda: ops.relu(3), "elementwise 'relu': data is 3, not a tensor"),
    (lambda: ops.gelu(X, "fast"), "gelu 'gelu': approximate='fast' is neither 'none' nor 'tanh'"),
    (lambda: ops.add(X, Y), "add 'add': 'X' has shape (4, 6), 'Y' has (5, 7); they must agree"),
    (lambda: ops.bias_add(X, X), "bias_add 'bias_add': bias 'X' has 2 dimensions; give the 1 dimensions (extent)"),
    (
        lambda: ops.bias_add(X, V),
        "bias_add 'bias_add': dimension 0 of 'V' has extent 4; it must be 6, as dimension 1 of 'X'",
    ),
    (lambda: ops.scale_shift(X, V, H, 0), "scale_shift 'scale_shift': shift 'H' has 2 dimensions; give the 1"),
    (lambda: ops.matmul(X, V), "matmul 'matmul': b 'V' has 1 dimensions; give the 2 dimensions (k, n)"),
    (
        lambda: ops.matmul(X, Y, name="C"),
        "matmul 'C': dimension 0 of 'Y' has extent 5; it must be 6, what is summed over in 'X'",
    ),
    (lambda: ops.matmul(X, Y, transpose_b=True), "dimension 1 of 'Y' has extent 7; it must be 6"),
    (lambda: ops.matmul(X, H), "matmul 'matmul': 'X' is float32, 'H' is float16; cast one of them"),
    (lambda: ops.batch_matmul(X3, Y3), "dimension 0 of 'Y3' has extent 3; it must be 2, the batch of 'X3'"),
    (lambda: ops.matvec(X, V), "dimension 0 of 'V' has extent 4; it must be 6, what is summed over in 'X'"),
    (lambda: ops.transpose_batch_matmul(X4, W4), "dimension 0 of 'W4' has extent 3; it must be 1, as in 'X4'"),
    (lambda: ops.conv2d(X4, W4, layout="HWCN"), "conv2d 'conv2d': layout 'HWCN' is neither 'NHWC' nor 'NCHW'"),
    (lambda: ops.conv2d(X, W4), "conv2d 'conv2d': data 'X' has 2 dimensions; give the 4 dimensions (n, h, w, in)"),
    (lambda: ops.conv2d(X4, W3), "weight 'W3' has 3 dimensions; give the 4 dimensions (kh, kw, in, out)"),
    (lambda: ops.conv2d(X4, X4), "dimension 2 of 'X4' has extent 8; it must be 6, the channels of 'X4'"),
    (lambda: ops.conv2d(X4, W4, groups=2), "it must be 3, the channels of 'X4', of one of 2 groups"),
    (lambda: ops.conv2d(X4, W4, groups=4), "conv2d 'conv2d': 6 in channels are not divided by 4 groups"),
    (lambda: ops.conv2d(N4, W4, groups=2), "conv2d 'conv2d': n in channels are not divided by 2 groups"),
    (lambda: ops.conv2d(X4, W4, groups=0), "conv2d 'conv2d': groups is 0; it must be 1 or more"),
    (lambda: ops.conv2d(X4, W4, 0), "conv2d 'conv2d': stride is 0; it must be 1 or more"),
    (lambda: ops.conv2d(X4, W4, 1.5), "conv2d 'conv2d': stride is 1.5, not an integer"),
    (lambda: ops.conv2d(X4, W4, (1, 1, 1)), "conv2d 'conv2d': stride has 3 numbers; give one, or 2"),
    (lambda: ops.conv2d(X4, W4, padding=(1, 1, 1)), "padding has 3 entries; give one number, or 2 entries"),
    (lambda: ops.conv2d(X4, W4, padding=(1, (1, 1, 1))), "padding (1, 1, 1) of a dimension is not a pair"),
    (lambda: ops.conv2d(X4, W4, padding=-1), "conv2d 'conv2d': padding is -1; it must be 0 or more"),
    (lambda: ops.conv2d(X4, W4, dilation=4), "nothing is left of the data; the kernel is larger than the padded data"),
    (lambda: ops.conv1d(X3, X3), "dimension 1 of 'X3' has extent 4; it must be 6, the channels of 'X3'"),
    (lambda: ops.depthwise_conv2d(X4, W3, layout="NCHW"), "dimension 0 of 'W3' has extent 3; it must be 8"),
    (lambda: ops.depthwise_conv2d(X4, W4), "weight 'W4' has 4 dimensions; give the 3 dimensions (kh, kw, c)"),
    (lambda: ops.conv2d_transpose(X4, W4, 2, 1, 2), "output_padding 2 is not less than the stride 2"),
    (lambda: ops.conv2d_transpose(X4, WN), "the kernel's extent n is symbolic; it must be a number"),
    (lambda: ops.conv2d_transpose(X4, W4, 1, 9), "conv2d_transpose 'conv2d_transpose': nothing is left of the data"),
    (lambda: ops.capsule_conv2d(X4, W4), "data 'X4' has 4 dimensions; give the 6 dimensions (n, h, w, i, k, in)"),
    (lambda: ops.sum(X, 2), "sum 'sum': axis 2 is none of the 2 dimensions of 'X'"),
    (lambda: ops.max(X, -3), "max 'max': axis is -3; it must be -2 or more"),
    (lambda: ops.mean(X, (0, -2)), "axis (0, -2) names a dimension twice"),
    (lambda: ops.argmax(X, None), "argmax 'argmax': axis is None, not an integer"),
    (lambda: ops.softmax(X, 2), "softmax 'softmax': axis 2 is none of the 2 dimensions of 'X'"),
    (lambda: ops.layer_norm(X, V, V), "layer_norm 'layer_norm': dimension 0 of 'V' has extent 4; it must be 6"),
    (lambda: ops.rms_norm(X, X), "rms_norm 'rms_norm': weight 'X' has 2 dimensions; give the 1 dimensions (extent)"),
    (
        lambda: ops.cumsum(te.placeholder((0,), name="E")),
        "cumsum 'cumsum': 'E' has no element along axis 0, of which there must be a first",
    ),
    (lambda: ops.transpose(X, (0, 0)), "transpose 'transpose': axes (0, 0) do not name each of the 2 dimensions once"),
    (lambda: ops.pad(X, (1, 1, 1)), "pad 'pad': padding has 3 entries; give one number, or 2 entries"),
    (lambda: ops.attention(X3, X3, X3), "attention 'attention': query 'X3' has 3 dimensions; give the 4 dimensions"),
    (lambda: ops.attention(X4, X4, W4), "dimension 0 of 'W4' has extent 3; it must be 1, as in 'X4'"),
]


@pytest.mark.parametrize("case", range(len(CASES)), ids=lambda n: CASES[n][1][:40])
def test_refusals(case):
    action, sentence = CASES[case]
    with pytest.raises(ExpressionError) as caught:
        action()
    assert sentence in str(caught.value)
