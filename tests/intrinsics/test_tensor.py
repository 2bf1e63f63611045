"""The registry of tensor intrinsics: sound pairs, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc.errors import ExpressionError
from tensorc.intrinsics import INSTRUCTIONS, find, names, tensor_intrin, try_out
from tensorc.ir import interpret, parse, show
from tensorc.ir.intrinsic import TABLE, call
from tensorc.ir.verifier import verify
from tensorc.target import Target

HEAD = "function f(x: float32[4], out y: float32[4])\n"
NEST = f"{HEAD}  for i in 0 .. 4\n    y[i] = x[i] * x[i]\n"
LANES = "ramp(0, 1, 4)"
BODY = f"{HEAD}  y[{LANES}] = x[{LANES}] * x[{LANES}]\n"


@pytest.mark.parametrize("name", names())
def test_what_is_shipped_is_sound(name):
    pytest.importorskip("ml_dtypes")
    try_out(find(name))


@pytest.mark.parametrize("name", names())
def test_text_reads_back(name):
    implementation = find(name).implementation
    again = parse(show(implementation))
    verify(again, "flat")
    assert show(again) == show(implementation)


def test_which_processors_have_it():
    wide, narrow = find("x86.vpdpbusd.512"), find("x86.vpdpbusd.256")
    assert wide.runs_on(Target("cpu", mcpu="znver4")) and wide.runs_on(None)
    assert not wide.runs_on(Target("cpu", mcpu="alderlake")) and narrow.runs_on(Target("cpu", mcpu="alderlake"))
    assert not narrow.runs_on(Target("cpu", mcpu="neoverse-n1"))
    assert find("arm.sdot").runs_on(Target("cpu", mcpu="neoverse-n1"))
    assert find("x86.pmaddwd.128").runs_on(Target("cpu", mcpu="x86-64"))
    assert narrow.needs == "avxvnni or avx512vnni and avx512vl"
    assert all(name in TABLE for name in INSTRUCTIONS)


def test_products_wrap_and_do_not_saturate():
    c = np.full(4, 2**31 - 1, "int32")
    a, b = np.full(4, 255, "uint8"), np.full((4, 4), -128, "int8")
    wanted = (c.astype("int64") - 4 * 255 * 128).astype("int32")
    np.testing.assert_array_equal(interpret(find("x86.vpdpbusd.128").implementation, a, b, c.copy()), wanted)
    a, b = np.full(2, -(2**15), "int16"), np.full((4, 2), -(2**15), "int16")
    wanted = np.full(4, -1, "int32")
    for name in ("x86.vpdpwssd.128", "x86.pmaddwd.128"):
        np.testing.assert_array_equal(interpret(find(name).implementation, a, b, c.copy()), wanted)


def test_calls_are_checked():
    with pytest.raises(ExpressionError, match=r"x86.pmaddwd.128 takes int16x8, int16x8, not int64, int64"):
        call("x86.pmaddwd.128", 1, 2)
    text = f"{HEAD}  y[{LANES}] = repeat.2(x[{LANES}])\n"
    assert refusal("text.2", NEST, text) == (
        "tensor_intrin('text.2'): the implementation is not well formed: line 2: "
        "a value of float32x8 is stored to elements of float32x4"
    )


def test_ones_own():
    made = tensor_intrin("own.square", NEST, BODY)
    assert find("own.square") is made and "own.square" in names()
    assert refusal("own.square", NEST, BODY) == "tensor_intrin('own.square'): the name is taken"


SQUARE = "function f(x: float32[4, 4], out y: float32[4, 4])\n"


@pytest.mark.parametrize(
    ("meaning", "implementation", "reason"),
    [
        (NEST, BODY.replace("*", "+"), "for random tiles the implementation gives another 'y' than the meaning"),
        (NEST, f"{HEAD}  y[ramp(0, 1, 2)] = x[ramp(0, 1, 2)] * x[ramp(0, 1, 2)]\n",
         "for random tiles the implementation gives another 'y' than the meaning"),
        (NEST, f"{HEAD}  y[ramp(1, 1, 4)] = x[{LANES}]\n",
         "trying it out failed: store of y[4]: index 4 is not in 0 .. 4"),
        (NEST.replace("0 .. 4", "0 .. 3"), BODY, "'y' is not accessed by whole loops, one a dimension"),
        (SQUARE + "  for i in 0 .. 4\n    for j in 0 .. 4\n      y[i, j] = y[j, i] + x[i, j]\n",
         SQUARE + "  y[0] = x[0]\n", "'y' is read where it is not written"),
        (NEST.replace("y[i] =", "y[3 - i] ="), BODY, "'y' is not accessed by whole loops, one a dimension"),
        (NEST, BODY.replace("[4]", "[8]"), "the meaning and the implementation have different parameters"),
        (f"{HEAD}  for i in 0 .. 4\n    if i < 2\n      y[i] = x[i]\n", BODY,
         "the meaning is not loops around one store"),
        (NEST.replace("0 .. 4", "1 .. 5"), BODY, "the loop 'i' of the meaning is not 0 .. 2 or more"),
        (NEST.replace("[4]", "[n]"), BODY, "the tile 'x' has strides or symbolic extents"),
        (NEST.replace("out y", "out x2: float32[4], out y"), BODY,
         "f has scalars, internal buffers, or not one output"),
        (3, BODY, "the meaning is not well formed: 3 is no function of the IR"),
    ],
)  # fmt: skip
def test_what_is_no_pair_is_refused(meaning, implementation, reason):
    assert refusal("no.pair", meaning, implementation).removeprefix("tensor_intrin('no.pair'): ") == reason
    assert "no.pair" not in names()


def refusal(*args) -> str:
    with pytest.raises(ExpressionError) as caught:
        tensor_intrin(*args)
    return str(caught.value)
