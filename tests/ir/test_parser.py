from __future__ import annotations

import math
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tensorc.dtypes import bool_, float32, float64, int64
from tensorc.errors import ExpressionError
from tensorc.ir import (
    Add,
    Buffer,
    Const,
    Neg,
    Sub,
    Var,
    const,
    equal,
    index,
    parse,
    parse_expr,
    show,
)
from tests.ir.programs import exprs, functions, matmul

I, J, X = Var("i"), Var("j"), Var("x", "float32")
A, D = Buffer("A", (4, 5), "float32"), Buffer("D", (8,), "float64")
NAMES = {"i": I, "j": J, "x": X, "A": A, "D": D}
QUICK = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@QUICK
@given(st.data())
def test_an_expression_is_read_back_as_the_same_node(data):
    of = data.draw(st.sampled_from((int64, float32, float64, bool_)))
    lanes = data.draw(st.sampled_from((1, 4)))
    e = data.draw(exprs(of, (I, J, X), (A, D), 4, lanes))
    assert parse_expr(show(e), NAMES) == e


@QUICK
@given(functions())
def test_a_function_is_read_back_as_an_equal_one(f):
    text = show(f)
    again = parse(text)
    assert equal(again, f)
    assert show(again) == text
    assert again == again and hash(again) == hash(again)
    assert equal(parse(show(f, canonical=True)), f)


def test_matmul_round_trip():
    f = matmul()
    g = parse(show(f))
    assert g != f  # other variables
    assert equal(g, f) and show(g) == show(f)


@pytest.mark.parametrize(
    "value", [0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, 1.7976931348623157e308, 0.1]
)
def test_float_literals_keep_their_bits(value):
    e = const(value, "float64")
    assert parse_expr(show(e), {}) == e


def test_a_nan_keeps_its_payload():
    value = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000007))[0]
    e = Const(value, float64)
    assert show(e) == "float64(0xfff8000000000007)"
    assert struct.pack("<d", parse_expr(show(e), {}).value) == struct.pack("<d", value)


def test_nothing_is_folded():
    assert parse_expr("1 + 2", {}) == Add(index(1), index(2))
    assert parse_expr("-(3)", {}) == Neg(index(3))
    assert parse_expr("-3", {}) == index(-3)
    assert parse_expr("-9223372036854775808", {}) == Const(-(2**63), int64)


def test_precedence_is_pythons():
    assert parse_expr("i - j - 1", NAMES) == Sub(Sub(I, J), index(1))
    grouped = "(i < 3 and not j == 1) or ((i | (j ^ (i & (j << (1 + i * -j))))) > 2)"
    assert parse_expr(
        "i < 3 and not j == 1 or i | j ^ i & j << 1 + i * -j > 2", NAMES
    ) == parse_expr(grouped, NAMES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected an expression, found the end of the line"),
        ("i +", "expected an expression, found the end of the line"),
        ("i + * j", r"expected an expression, found '\*'"),
        ("(i", r"expected '\)', found the end of the line"),
        ("i j", "expected the end of the line, found 'j'"),
        ("i $ j", r"unexpected character '\$'"),
        ("y", "variable 'y' is not bound here"),
        ("B[i]", "buffer 'B' is not declared here"),
        ("A[i, j", r"expected ',' or '\]', found the end of the line"),
        ("A[i, j, i]", "buffer 'A' takes 2 indices, or one offset, not 3"),
        ("i + x", r"the operands of \+ are int64 and float32"),
        ("i < j < 3", "comparisons do not chain; put one of them in parentheses"),
        ("i + not j", r"expected an expression \('not' needs parentheses here\), found 'not'"),
        ("i and j", "the operands of and are int64, not bool"),
        ("x // x", "the operands of // are float32, not integers"),
        ("frob(i)", "'frob' is no operation, intrinsic or dtype"),
        ("exp(i)", "exp takes float, not int64"),
        ("exp(x, x)", "exp takes 1 operands, not 2"),
        ("pow(x, i)", "the operands of pow are float32 and int64"),
        ("min(i)", r"expected ',', found '\)'"),
        ("cast(float33, i)", "expected a dtype, found 'float33'"),
        ("cast(float32x4, i)", "a cast from int64 to float32x4 changes the number of lanes"),
        ("int8(200)", "literal 200 does not fit int8, which holds -128 to 127"),
        ("int8(1.5)", "the literal 1.5 is no int8"),
        ("float32x4(1.0)", r"a literal of float32x4 is written broadcast\(\.\.\.\)"),
        ("bool(1)", "a literal of bool is written true or false"),
        ("float32(x)", "expected a number, found 'x'"),
        ("1.5", "expected an integer, found '1.5'"),
        ("9223372036854775808", "the literal 9223372036854775808 does not fit int64"),
        ("ramp(i, 1, 1)", "a vector has at least 2 lanes, not 1"),
        ("broadcast(ramp(i, 1, 4), 4)", "expected a scalar in a vector, found int64x4"),
        ("select(i, i, i)", "the condition of select is int64, not bool"),
        ("A[x, i]", "an index is float32, not int64"),
        ("A[i, j] mask(i)", "the mask of a float32 access is int64"),
        ("mask(i)", r"'mask\(' stands only behind a load"),
        ("and", "expected an expression, found 'and'"),
        ("__import__('os')", "unexpected character"),
    ],
)
def test_a_wrong_expression_is_refused(text, message):
    with pytest.raises(ExpressionError, match=f"^line 1: {message}"):
        parse_expr(text, NAMES)


HEAD = "function f(A: float32[4], out B: float32[4], n: int64)\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: expected 'function', found no text"),
        ("fun f()", "line 1: expected 'function', found 'fun'"),
        ("function f(A)", "line 1: expected ':', found '\\)'"),
        ("function f(A: float32[4], A: float32[4])", "line 1: two parameters are named 'A'"),
        ("function f(A: float32[m * 2])", "line 1: variable 'm' is not bound here"),
        ("function f(A: float32[4] @moon)", "line 1: expected a scope .*, found 'moon'"),
        ("function f(A: float32[true])", "line 1: an extent or stride of 'A' is bool, not int64"),
        (HEAD + "  jump", "line 2: expected a statement, found 'jump'"),
        (HEAD + "  pass\nrest", "line 3: expected the end of the function"),
        (HEAD + "  pass\n    pass", "line 3: expected 2 spaces before the statement, found 4"),
        (HEAD + "  for i in 0 .. n\n  pass", "line 3: expected an indented statement"),
        (HEAD + "  for i in 0 .. n", "line 3: expected an indented statement"),
        (HEAD + "  for i of 0 .. n\n    pass", "line 2: expected 'in', found 'of'"),
        (
            HEAD + "  for i in 0 .. n sideways\n    pass",
            "line 2: expected a loop kind .*, found 'sideways'",
        ),
        (
            HEAD + "  for i in 0 .. true\n    pass",
            "line 2: expected an int64 expression, found one of bool",
        ),
        (HEAD + "  for i in 0 .. n { x = }\n    pass", "line 2: expected a number, found '}'"),
        (
            HEAD + '  for i in 0 .. n {x = "\\q"}\n    pass',
            "line 2: the string .* is not written as JSON",
        ),
        (
            HEAD + "  B[0] = A[0]\n  B[1] = n",
            "line 3: a value of int64 is stored to elements of float32",
        ),
        (HEAD + "  B[0, 1] = A[0]", "line 2: buffer 'B' takes 1 indices, or one offset, not 2"),
        (HEAD + "  if n\n    pass", "line 2: expected a condition, found an expression of int64"),
        (
            HEAD + "  let x: float32 = n\n    pass",
            "line 2: variable 'x' is float32, its value int64",
        ),
        (HEAD + "  evaluate n", "line 2: expected a call of an intrinsic"),
        (HEAD + "  barrier moon", "line 2: expected a scope .*, found 'moon'"),
        (HEAD + '  check n > 0, n "x"', "line 2: expected ',', found '\"x\"'"),
        (
            HEAD + "  block C\n    spatial i: 4 = i\n    pass",
            "line 3: variable 'i' is not bound here",
        ),
        (
            HEAD + "  for i in 0 .. 4\n    pass\n  B[i] = A[0]",
            "line 4: variable 'i' is not bound here",
        ),
        (
            HEAD + "  alloc T: float32[4]\n    pass\n  B[0] = T[0]",
            "line 4: buffer 'T' is not declared here",
        ),
    ],
)
def test_a_wrong_function_is_refused_at_its_line(text, message):
    with pytest.raises(ExpressionError, match=f"^{message}"):
        parse(text)


def test_buffers_of_equal_lives_are_allocated_in_one_line():
    text = """function main(A: float32[4], out C: float32[4])
  alloc T: float32[4] pad[0: 8 + 1] align 64, S: int8[2, 3] @local
    for i in 0 .. 4
      T[i] = A[i]
      C[i] = T[i]"""
    f = parse(text)
    assert [buffer.name for buffer in f.body.buffers] == ["T", "S"]
    assert show(f) == text


def test_ranges_keep_their_extents():
    text = HEAD + "\n".join(
        f"  for i{number} in {span}\n    pass"
        for number, span in enumerate(
            (
                "0 .. 8",
                "4 .. 16",
                "n .. n + 4",
                "4 .. n",
                "n .. 10",
                "n .. n + (n + 4 - n)",
                "4 .. 4 + (10 - 4)",
                "5 .. 2",
            )
        )
    )
    f = parse(text)
    assert show(f) == text
    n = f.scalars[0]
    extents = [loop.extent for loop in f.body.stmts]
    four, ten = index(4), index(10)
    spans = [index(8), index(12), four, Sub(n, four), Sub(ten, n)]
    assert extents == [*spans, Sub(Add(n, four), n), Sub(ten, four), index(-3)]


def test_inner_names_hide_outer_ones():
    f = parse(HEAD + "  for i in 0 .. 4\n    block B\n      spatial i: 4 = i\n      B[i] = A[i]")
    block = f.body.body
    assert block.iters[0].binding is f.body.var
    assert block.body.indices[0] is block.iters[0].var
    assert "spatial i_1: 4 = i\n      B[i_1] = A[i_1]" in show(f)


def test_keywords_may_name_buffers_and_variables():
    text = (
        "function f(mask: float32[4], out: float32[4], out if: float32[4], in: int64)\n"
        "  for for in in .. in + 4\n"
        "    if[for] = mask[for] + out[for] mask (for + 1) * 2 < 4"
    )
    assert show(parse(text)) == text
