"""The scalar functions of te."""

from __future__ import annotations

import math

import pytest

from tensorc import te
from tensorc.errors import ExpressionError
from tensorc.ir.intrinsic import TABLE
from tensorc.ir.printer import show

x = te.var("x")
F = te.placeholder((4,), name="F")[x]

UNARY = [
    *("abs", "ceil", "cos", "erf", "exp", "exp2", "expm1", "floor", "isfinite", "isinf", "isnan"),
    *("log", "log10", "log1p", "log2", "round", "sigmoid", "sin", "sqrt", "tan", "tanh", "trunc"),
]


@pytest.mark.parametrize("name", UNARY)
def test_unary_functions_call_their_intrinsic(name):
    function = getattr(te, name)
    assert show(function(F)) == f"{name}(F[x])"
    assert function.__name__ == name and function.__doc__
    assert function(F).dtype.name == ("bool" if name.startswith("is") else "float32")
    assert show(function(1.5)) == f"{name}(float32(1.5))"
    with pytest.raises(ExpressionError, match=f"{name} takes .*, not bool; cast the operand"):
        function(True)


@pytest.mark.parametrize("name", ["copysign", "fmod", "pow"])
def test_binary_functions_call_their_intrinsic(name):
    function = getattr(te, name)
    assert show(function(F, 2)) == f"{name}(F[x], float32(2.0))"
    assert show(function(2, F)) == f"{name}(float32(2.0), F[x])"
    with pytest.raises(ExpressionError, match="operands are float32 and int64; cast one of them"):
        function(F, x)
    with pytest.raises(ExpressionError, match=f"{name} takes float, not int64; cast the operand"):
        function(x, 2)


def test_every_scalar_intrinsic_of_the_table_has_a_function():
    assert {*UNARY, "copysign", "fmod", "pow"} <= TABLE.keys() & set(te.__all__)


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
