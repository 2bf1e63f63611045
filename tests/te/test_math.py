"""The scalar functions of te."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tensorc import te
from tensorc.errors import ExpressionError, UnsupportedError
from tensorc.ir import ufuncs
from tensorc.ir.interpreter import interpret
from tensorc.ir.intrinsic import TABLE
from tensorc.ir.printer import show

x = te.var("x")
F = te.placeholder((4,), name="F")[x]

UNARY = sorted(
    name
    for name, intrinsic in TABLE.items()
    if intrinsic.arity == 1
    and "float" in intrinsic.kinds
    and not (intrinsic.reduces or intrinsic.whole or name == "float_bits")
)
BINARY = sorted(name for name, intrinsic in TABLE.items() if intrinsic.arity == 2 and name != "ldexp")


@pytest.mark.parametrize("name", UNARY)
def test_unary_functions_call_their_intrinsic(name):
    function = getattr(te, name)
    assert show(function(F)) == f"{name}(F[x])"
    assert function.__name__ == name and function.__doc__
    assert function(F).dtype.name == ("bool" if name.startswith("is") else "float32")
    assert show(function(1.5)) == f"{name}(float32(1.5))"
    with pytest.raises(ExpressionError, match=f"{name} takes .*, not bool; cast the operand"):
        function(True)


@pytest.mark.parametrize("name", [name for name in BINARY if TABLE[name].kinds == ("float",)])
def test_binary_functions_call_their_intrinsic(name):
    function = getattr(te, name)
    assert show(function(F, 2)) == f"{name}(F[x], float32(2.0))"
    assert show(function(2, F)) == f"{name}(float32(2.0), F[x])"
    with pytest.raises(ExpressionError, match="operands are float32 and int64; cast one of them"):
        function(F, x)
    with pytest.raises(ExpressionError, match=f"{name} takes float, not int64; cast the operand"):
        function(x, 2)


@pytest.mark.parametrize("name", ["popcount", "clz"])
def test_functions_of_integers_call_their_intrinsic(name):
    assert show(getattr(te, name)(x)) == f"{name}(x)"
    with pytest.raises(ExpressionError, match=f"{name} takes int, not float32; cast the operand"):
        getattr(te, name)(F)


def test_division_toward_zero_and_up():
    assert show(te.truncdiv(x, 3)) == "truncdiv(x, 3)"
    assert show(te.truncmod(3, x)) == "truncmod(3, x)"
    assert show(te.ceildiv(x, 3)) == "-(-x // 3)"
    assert te.ceildiv(7, 3).value == 3


def test_fma_and_ldexp():
    assert show(te.fma(F, 2, F)) == "fma(F[x], float32(2.0), F[x])"
    assert show(te.ldexp(F, x)) == "ldexp(F[x], cast(float32, x))"
    assert show(te.ldexp(F, 3)) == "ldexp(F[x], float32(3.0))"


def test_reinterpret():
    assert show(te.reinterpret(F, "uint32")) == "float_bits(F[x])"
    assert show(te.reinterpret(F, "int32")) == "cast(int32, float_bits(F[x]))"
    assert show(te.reinterpret(x, "float64")) == "bits_float(x)"
    assert te.reinterpret(F, "float32").dtype.name == "float32"
    with pytest.raises(ExpressionError, match="float32 as int64.: 32 bits are not 64"):
        te.reinterpret(F, "int64")
    with pytest.raises(UnsupportedError, match="the bits of bfloat16 have no number"):
        te.reinterpret(te.cast(F, "bfloat16"), "int16")


@pytest.mark.parametrize("shift, expected", [(1, [3, -3]), (0, [2, -1])])
def test_fixed_point_product(shift, expected):
    a = te.placeholder((2,), "int32", name="A")
    c = te.compute((2,), lambda i: te.q_multiply_shift(a[i], 1 << 30, 31, shift), name="C")
    assert c.dtype.name == "int32"
    assert interpret(te.lower([a, c]), np.array([3, -3], np.int32)).tolist() == expected


def test_choices_and_comparisons():
    assert show(te.minimum(F, 0)) == "min(F[x], float32(0.0))"
    assert show(te.maximum(0, F)) == "max(float32(0.0), F[x])"
    assert show(te.select(te.eq(x, 1), F, 0)) == "select(x == 1, F[x], float32(0.0))"
    assert show(te.if_then_else(te.ne(x, 1), F, 0)) == "if_then_else(x != 1, F[x], float32(0.0))"
    assert [show(f(x, 1)) for f in (te.lt, te.le, te.gt, te.ge)] == [
        "x < 1",
        "x <= 1",
        "x > 1",
        "x >= 1",
    ]
    assert [show(f(1, F)) for f in (te.lt, te.ge)] == [
        "float32(1.0) < F[x]",
        "float32(1.0) >= F[x]",
    ]
    assert show(te.floordiv(x, 2) + te.mod(x, 2)) == "x // 2 + x % 2"
    with pytest.raises(ExpressionError, match="select: the condition is int64, not bool"):
        te.select(x, F, 0)


def test_logic():
    assert show(te.all(x > 0, x < 4)) == "x > 0 and x < 4"
    assert show(te.any(x > 0, x < 4)) == "x > 0 or x < 4"
    assert show(te.logical_not(te.logical_or(x > 0, te.logical_and(x < 4, F > 0)))) == (
        "not (x > 0 or x < 4 and F[x] > float32(0.0))"
    )
    assert te.all() == te.const(True) and te.any() == te.const(False)
    with pytest.raises(ExpressionError, match="all: a condition is int64, not bool"):
        te.all(x)


def test_literals():
    assert te.const(3).dtype.name == "int64" and te.const(3.0).dtype.name == "float32"
    assert te.const(True).dtype.name == "bool" and te.const(3, "uint8").dtype.name == "uint8"
    with pytest.raises(ExpressionError, match="literal 300 does not fit uint8"):
        te.const(300, "uint8")
    assert show(te.cast(x, "float32")) == "cast(float32, x)"


def test_limits_of_dtypes():
    assert (te.min_value("int8").value, te.max_value("int8").value) == (-128, 127)
    assert (te.min_value("uint16").value, te.max_value("uint16").value) == (0, 65535)
    assert (te.min_value("float64").value, te.max_value("float32").value) == (-math.inf, math.inf)
    assert (te.min_value("bool").value, te.max_value("bool").value) == (False, True)


def test_powers_and_absolute_values_of_elements():
    A = te.placeholder((2, 3), name="A")
    I = te.placeholder((2,), "int32", name="I")
    k = te.reduce_axis(3, name="k")
    P = te.compute((2,), lambda i: te.sum(A[i, k], axis=k) ** 2 + abs(A[i, 0]) ** 0.5, name="P")
    Q = te.compute((2,), lambda i: I[i] ** 3 - abs(I[i]), name="Q")
    function = te.lower([A, I, P, Q])
    assert show(function).count("block P_") == 1  # the sum is made once
    a, i = np.array([[-4, 1, 2], [9, 0, 1]], "f4"), np.array([-3, 2], "i4")
    p, q = interpret(function, a, i)
    np.testing.assert_array_equal(p, [3, 103])
    np.testing.assert_array_equal(q, [-30, 6])


def test_functions_of_numpy_are_refused():
    A = te.placeholder((2,), name="A")
    with pytest.raises(ExpressionError, match=r"^np.exp: NumPy cannot .* expression; use te.exp$"):
        te.compute((2,), lambda i: np.exp(A[i]))
    with pytest.raises(ExpressionError, match=r"^np.exp: tensor 'A' has no elements yet; index it"):
        np.exp(A)
    for name in set(ufuncs.NAMES.values()):
        assert callable(getattr(te, name))
