from __future__ import annotations

import math

import numpy as np
import pytest

from tensorc.dtypes import bool_, dtype, float32, float64, int32, int64, uint8
from tensorc.errors import ExpressionError
from tensorc.ir import (
    Add,
    And,
    BitXor,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Div,
    FloorDiv,
    Load,
    Mod,
    Mul,
    Neg,
    Not,
    Or,
    Ramp,
    Sub,
    Var,
    cast,
    const,
    eq,
    if_then_else,
    index,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
    ne,
    select,
    show,
)
from tensorc.ir.expr import as_expr, as_index, convert
from tensorc.ir.intrinsic import call

I, J = Var("i"), Var("j")
X, Y = Var("x", "float32"), Var("y", "float32")
B, P = Var("b", "uint8"), Var("p", "bool")


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (I + 1, "i + 1"),
        (1 + I, "1 + i"),
        (I - 2 * J, "i - 2 * j"),
        (10 - I, "10 - i"),
        (I // 4 + I % 4, "i // 4 + i % 4"),
        (7 // I + 7 % I, "7 // i + 7 % i"),
        (-I, "-i"),
        (X / 2, "x / float32(2.0)"),
        (2 / X, "float32(2.0) / x"),
        (X // Y, "floor(x / y)"),
        (I < J, "i < j"),
        (3 < I, "i > 3"),
        (3 >= I, "i <= 3"),
        (eq(I, 3), "i == 3"),
        (ne(I, J), "i != j"),
        ((I & 1) | (J ^ 2), "i & 1 | j ^ 2"),
        (1 << I >> 2, "1 << i >> 2"),
        (~I, "i ^ -1"),
        (~B, "b ^ uint8(255)"),
        (~P, "not p"),
        ((I < 1) & (J < 2) | P, "i < 1 and j < 2 or p"),
        (P ^ (I < 1), "p != (i < 1)"),
        (minimum(I, 3), "min(i, 3)"),
        (maximum(0.5, X), "max(float32(0.5), x)"),
        (select(P, X, 0), "select(p, x, float32(0.0))"),
        (if_then_else(I < 3, 1, I), "if_then_else(i < 3, 1, i)"),
        (cast(I, "float32"), "cast(float32, i)"),
        (call("pow", X, 2), "pow(x, float32(2.0))"),
    ],
)
def test_operators_build_nodes(e, text):
    assert show(e) == text


@pytest.mark.parametrize(
    ("e", "expected"),
    [
        (index(2) + 3, 5),
        (index(2**62) * 4, 0),
        (index(2**63 - 1) + 1, -(2**63)),
        (index(-7) // 2, -4),
        (index(-7) % 2, 1),
        (index(7) // 0, 0),
        (index(7) % 0, 0),
        (index(-(2**63)) // -1, -(2**63)),
        (-const(-128, "int8"), -128),
        (const(200, "uint8") + 100, 44),
        (minimum(index(2), 3), 2),
        (maximum(index(2), 3), 3),
        (index(2) < 3, True),
        (cast(const(300, "int64"), "uint8"), 44),
        (cast(const(-1.5, "float32"), "int32"), -1),
        (cast(const(1e10, "float32"), "int8"), 127),
        (cast(const(math.nan, "float32"), "int8"), 0),
        (cast(const(-math.inf, "float64"), "uint8"), 0),
        (cast(const(math.nan, "float32"), "bool"), True),
        (cast(index(2**24 + 1), "float32"), float(2**24)),
    ],
)
def test_constants_fold_as_the_ir_means_them(e, expected):
    assert type(e) is Const and e.value == expected and type(e.value) is type(expected)


def test_an_integer_is_rounded_to_float32_once():
    tie = (
        2**60 + 2**36 + 1
    )  # just above the middle of two float32, which float64 cannot tell from the middle
    assert convert(tie, float32) == float(np.int64(tie).astype(np.float32)) == float(2**60 + 2**37)
    assert convert(-tie, float32) == -float(2**60 + 2**37)
    assert convert(tie, float64) == float(tie)


def test_neutral_elements_vanish_from_integers_only():
    assert I + 0 is I and 0 + I is I and I - 0 is I and I * 1 is I and I // 1 is I
    assert I * 0 == index(0) and I % 1 == index(0)
    assert type(X + 0) is Add and type(X * 1) is Mul and type(X - 0) is Sub


def test_conditions_fold():
    true, false = const(True, "bool"), const(False, "bool")
    assert logical_and() == true and logical_or() == false
    assert logical_and(P, True) is P and logical_or(False, P) is P
    assert logical_and(P, False) == false and logical_or(True, P) == true
    assert logical_not(logical_not(P)) is P and logical_not(true) == false
    assert type(logical_and(P, I < 1)) is And and type(logical_or(P, I < 1)) is Or
    assert select(True, X, Y) is X and if_then_else(False, X, Y) is Y


def test_literals_adopt_the_dtype_beside_them():
    assert (X + 1).b == Const(1.0, float32)
    assert (B + 1).b == Const(1, uint8)
    assert (X + 0.1).b == Const(float(np.float32(0.1)), float32)
    assert (Broadcast(X, 4) + 1).b == Broadcast(Const(1.0, float32), 4)
    assert (
        as_expr(1).dtype is int64 and as_expr(1.0).dtype is float32 and as_expr(True).dtype is bool_
    )


def test_numpy_scalars_keep_theirs_on_either_side():
    assert (X * np.float32(2)).b == (np.float32(2) * X).a == Const(2.0, float32)
    for build in (lambda: X * np.float64(2), lambda: np.float64(2) * X, lambda: np.int64(2) + X):
        with pytest.raises(ExpressionError, match=r"cast one of them"):
            build()
    with pytest.raises(ExpressionError, match="neither an expression nor a number"):
        np.ones(2) * X
    assert show(np.float32(1) < X) == "float32(1.0) < x" and show(np.int64(1) << I) == "1 << i"
    assert (np.float32(1) == X) is False and (np.float32(1) != X) is True


def test_powers():
    assert X**2 == X * X and X**3 == call("pow", X, 3.0) and 2**X == call("pow", 2.0, X)
    assert X**Y == call("pow", X, Y) and np.float32(2) ** X == 2**X
    assert I**0 == index(1) and I**1 is I and I**2 == I * I
    assert I**5 == I * I * (I * I) * I and I**8 == (I**4) * (I**4)
    assert (B**3).dtype is B.dtype


def test_absolute_values():
    assert abs(X) == call("abs", X) and abs(I) == call("abs", I)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: I + X, r"a \+ b: operands are int64 and float32; cast one of them"),
        (lambda: I + 1.5, "literal 1.5 is no int64: cast one of the operands"),
        (lambda: I + math.nan, "literal nan is no int64: cast one of the operands"),
        (lambda: I + math.inf, "literal inf is no int64: cast one of the operands"),
        (lambda: B + 256, "literal 256 does not fit uint8, which holds 0 to 255"),
        (lambda: X + 10**400, "literal of 1329 bits does not fit float32"),
        (lambda: I + 2**63, "literal 9223372036854775808 does not fit int64"),
        (lambda: I + True, "literal True cannot stand beside int64"),
        (lambda: P & 1, "literal 1 cannot stand beside bool"),
        (lambda: I + "1", "'1' is neither an expression nor a number"),
        (lambda: P + P, r"a \+ b: bool has no arithmetic; cast it, or use te.all, te.any and ~"),
        (lambda: P < P, "a < b: bool has no arithmetic"),
        (lambda: minimum(P, P), r"min\(a, b\): bool has no arithmetic"),
        (lambda: maximum(P, P), r"max\(a, b\): bool has no arithmetic"),
        (lambda: -P, "-a: bool has no arithmetic"),
        (lambda: I / 2, "a / b: operands are int64; use // for integers, or cast to a float"),
        (lambda: X % 2, "a % b: operands are float32; use te.fmod for floats"),
        (lambda: X & 1, "a & b: operands are float32, not integers"),
        (lambda: I**9, r"a \*\* b: exponent 9 of int64 is not a number from 0 to 8; cast to a float, or use <<"),
        (lambda: I**-1, r"a \*\* b: exponent -1 of int64 is not a number from 0 to 8"),
        (lambda: 2**I, r"a \*\* b: the exponent of int64 is not a number from 0 to 8"),
        (lambda: I**0.5, "literal 0.5 is no int64: cast one of the operands"),
        (lambda: X**I, r"a \*\* b: operands are float32 and int64; cast one of them"),
        (lambda: P**2, "literal 2 cannot stand beside bool"),
        (lambda: P**P, r"a \*\* b: bool has no arithmetic"),
        (lambda: abs(P), r"abs\(a\): bool has no arithmetic"),
        (lambda: np.sqrt(X), r"np.sqrt: NumPy cannot compute with an expression; use te.sqrt$"),
        (lambda: np.abs(X), r"np.absolute: NumPy cannot compute with an expression; use te.abs$"),
        (lambda: np.maximum(X, 0), r"np.maximum: .*; use te.maximum$"),
        (lambda: np.sign(X), r"np.sign: .*; use the operators and the functions of te$"),
        (lambda: np.sum(X), r"np.add.reduce: .*; use te.sum or its kin over a te.reduce_axis$"),
        (lambda: ~X, "float32, not integers|does not fit|is no"),
        (lambda: logical_and(I), "all: a condition is int64, not bool"),
        (lambda: logical_or(I), "any: a condition is int64, not bool"),
        (lambda: logical_not(I), "not: the operand is int64, not bool"),
        (lambda: select(I, X, X), "select: the condition is int64, not bool"),
        (
            lambda: if_then_else(P, X, I),
            "if_then_else: operands are float32 and int64; cast one of them",
        ),
        (lambda: cast(X, "float33"), "dtype 'float33': unknown; known are bool, int8"),
        (lambda: const(2, "bool"), "literal 2 is no bool"),
        (lambda: as_index(X), "an index must be an integer, not float32"),
        (lambda: as_index(1.0), "an index must be an integer, not 1.0"),
        (lambda: call("frob", X), "intrinsic 'frob' is unknown"),
        (lambda: call("pow", X), "pow takes 2 arguments, not 1"),
        (lambda: call("exp", I), "exp takes float, not int64; cast the operand"),
    ],
)
def test_a_wrong_expression_says_what_would_be_right(build, message):
    with pytest.raises(ExpressionError, match=message):
        build()


@pytest.mark.parametrize(
    "ask", [lambda: bool(I < 3), lambda: I < J < 3, lambda: min(I, J), lambda: not P]
)
def test_an_expression_has_no_truth_value(ask):
    with pytest.raises(
        ExpressionError, match=r"has no truth value while it is being built: use te\.all"
    ):
        ask()


def test_equality_is_structural_and_a_bool():
    assert (I + 1) == (I + 1) and hash(I + 1) == hash(I + 1)
    assert (I + 1) != (I + 2) and (I + J) != (J + I) and (I + J) != (I - J)
    assert (I == 3) is False and (Var("i") == I) is False
    a = Buffer("A", (4,), "float32")
    assert Load(a, (I,)) == Load(a, (I,)) and Load(a, (I,)) != Load(
        Buffer("A", (4,), "float32"), (I,)
    )
    assert {I + 1: "x"}[I + 1] == "x"


def test_literals_are_compared_by_their_bits():
    assert Const(0.0, float32) != Const(-0.0, float32)
    assert Const(math.nan, float32) == Const(math.nan, float32)
    assert Const(1, int64) != Const(1, int32) and Const(1.0, float32) != Const(1.0, float64)


def test_nodes_are_frozen():
    with pytest.raises(AttributeError):
        (I + 1).a = J


def test_dtypes_of_nodes():
    wide = Ramp(I, index(1), 8)
    a = Buffer("A", (64, 64), "float16")
    assert wide.dtype is dtype("int64x8") and (wide < 3).dtype is dtype("boolx8")
    assert Load(a, (I, wide)).dtype is dtype("float16x8") and Load(a, (I, J)).dtype is dtype(
        "float16"
    )
    assert cast(wide, "float32").dtype is dtype("float32x8")
    assert select(wide < 3, wide, wide).dtype is dtype("int64x8")
    assert call("isnan", X).dtype is bool_ and call("reduce_add", Broadcast(X, 8)).dtype is float32
    assert [type(e) for e in (X / Y, I // J, I % J, -I, ~P, I ^ J)] == [
        Div,
        FloorDiv,
        Mod,
        Neg,
        Not,
        BitXor,
    ]
    assert type(cast(X, "int8")) is Cast and type(call("exp", X)) is Call
