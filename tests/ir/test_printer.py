from __future__ import annotations

import math

import pytest

from tensorc.dtypes import float32, float64, int64
from tensorc.ir import (
    LT,
    Add,
    And,
    Barrier,
    Block,
    BlockIter,
    Buffer,
    Check,
    Const,
    For,
    Function,
    If,
    IfThenElse,
    Load,
    Mul,
    Neg,
    Not,
    Ramp,
    Seq,
    Store,
    Sub,
    Var,
    const,
    equal,
    index,
    parse,
    seq,
    show,
)
from tests.ir.programs import TRUE, matmul

I, J, P = Var("i"), Var("j"), Var("p", "bool")
A = Buffer("A", (16,), "float32")

MATMUL = """\
function main(A: float32[16, 16], B: float32[16, 16], out C: float32[16, 16])
  for C.i in 0 .. 16
    for C.j in 0 .. 16
      for C.k in 0 .. 16
        block C
          spatial i: 16 = C.i
          spatial j: 16 = C.j
          reduce k: 16 = C.k
          init
            C[i, j] = float32(0.0)
          C[i, j] = C[i, j] + A[i, k] * B[k, j]"""

EVERYTHING = """\
function f(A: float32[n, 4] strides[s, 1], out B: float16[n] align 64, m: int64) where n > 0, m < 8
  alloc T: bool[8] @shared
  for i in 0 .. n parallel {a = 4, b = "x\\"y", c = 0.5, tail = "cut", "two words" = true}
    for j in 4 .. 12 vectorized
      block B {pragma = -1}
        spatial u: n = i
        ordered v: 12 = j
        where i < m
        init
          pass
        B[u] = cast(float16, A[u, 0])
    for t in m .. m + 32 thread {thread = "threadIdx.x"}
      barrier shared
    if i < 3 and T[i]
      B[i] = float16(-1.5)
    else
      pass
    let x: float32x8 = A[ramp(i, 2, 8), broadcast(0, 8)] mask(ramp(i, 2, 8) < broadcast(n, 8))
      B[ramp(0, 1, 8)] = cast(float16x8, x) mask broadcast(true, 8)
    alloc S: int8[m] @local
      while S[0] != int8(-3)
        check S[0] == int8(0), i, "S is not 0"
    evaluate exp(A[0, 0])"""


def test_the_printed_matmul():
    assert show(matmul()) == MATMUL


def test_every_form_of_the_grammar():
    assert show(parse(EVERYTHING)) == EVERYTHING


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (Add(I, Add(J, I)), "i + (j + i)"),
        (Sub(Sub(I, J), I), "i - j - i"),
        (Mul(Add(I, J), I), "(i + j) * i"),
        (Mul(I, Neg(J)), "i * -j"),
        (Neg(Mul(I, J)), "-(i * j)"),
        (Neg(Neg(I)), "--i"),
        (Neg(index(3)), "-(3)"),
        (Neg(index(-3)), "-(-3)"),
        (Neg(const(3, "int32")), "-int32(3)"),
        (Sub(I, index(-3)), "i - -3"),
        (Not(LT(I, J)), "not i < j"),
        (And(P, Not(P)), "p and not p"),
        (And(P, And(P, P)), "p and (p and p)"),
        (LT(Add(I, J), I), "i + j < i"),
        (IfThenElse(P, Add(I, J), I), "if_then_else(p, i + j, i)"),
        (Ramp(Mul(I, index(8)), index(1), 8), "ramp(i * 8, 1, 8)"),
        (Const(math.nan, float64), "float64(nan)"),
        (Const(-math.inf, float32), "float32(-inf)"),
        (Const(-0.0, float32), "float32(-0.0)"),
        (TRUE, "true"),
    ],
)
def test_parentheses_stand_where_python_needs_them(e, text):
    assert show(e) == text


def test_names_of_different_variables_are_kept_apart():
    assert show(Add(I, Mul(Var("i"), I))) == "i + i_1 * i"
    inner = Store(A, (Var("and"),), Load(A, (Var("a b"),)))
    assert show(inner) == "A[and_] = A[a_b]"
    inner = For(Var("i"), index(0), I, "serial", Store(A, (I,), const(0.0, "float32")))
    nest = For(I, index(0), index(4), "serial", inner)
    assert show(nest) == "for i in 0 .. 4\n  for i_1 in 0 .. i\n    A[i] = float32(0.0)"


def test_names_are_free_again_after_their_scope():
    loops = [For(Var("i"), index(0), index(4), "serial", Seq(())) for _ in range(2)]
    assert show(seq(*loops)) == "for i in 0 .. 4\n  pass\nfor i in 0 .. 4\n  pass"


def test_buffers_of_one_name_are_kept_apart():
    other = Buffer("A", (2,), "float32")
    f = Function("f", (A, other), (other,), (), (), Store(other, (index(0),), Load(A, (index(0),))))
    assert show(f) == "function f(A: float32[16], out A_1: float32[2])\n  A_1[0] = A[0]"


def test_a_mark_shows_a_place():
    f = matmul()
    block = f.body.body.body.body
    for mark in ("C", block):
        marked = [line for line in show(f, mark=mark).splitlines() if line.startswith("> ")]
        assert marked == [">         block C"]
    for mark in ("C.k", f.body.body.body, f.body.body.body.var):
        marked = [line for line in show(f, mark=mark).splitlines() if line.startswith("> ")]
        assert marked == [">       for C.k in 0 .. 16"]
    lines = show(f, mark=block.init).splitlines()
    assert [line[2:] for line in lines] == MATMUL.splitlines()
    assert [line for line in lines if line[0] == ">"] == [">             C[i, j] = float32(0.0)"]
    assert ">" not in show(f, mark="D")


def test_a_mark_finds_allocations():
    f = parse("function f()\n  alloc T: float32[4]\n  alloc S: float32[4]\n    pass")
    assert show(f, mark="T").splitlines()[1] == ">   alloc T: float32[4]"
    assert show(f, mark="S").splitlines()[2] == ">   alloc S: float32[4]"


CANONICAL = """\
function f(b0: float32[v0], out b1: float32[v0], v1: int64)
  for v2 in 0 .. v0
    block block0
      spatial v3: v0 = v2
      b1[v3] = b0[v3]"""


def test_the_canonical_text_names_by_order_of_appearance():
    f = parse(
        "function copy(X: float32[n], out Y: float32[n], k: int64)\n"
        "  for Y.i in 0 .. n\n    block Y\n      spatial i: n = Y.i\n      Y[i] = X[i]"
    )
    assert show(f, canonical=True) == CANONICAL


def test_equality_is_up_to_one_consistent_renaming():
    f = matmul()
    assert equal(f, f) and equal(f, matmul())
    assert equal(parse(MATMUL.replace("C.k", "z").replace("A", "Q").replace("main", "other")), f)
    assert not equal(parse(MATMUL.replace("A[i, k]", "A[k, i]")), f)
    assert not equal(parse(MATMUL.replace("A[i, k]", "B[i, k]")), f)
    assert not equal(parse(MATMUL.replace("for C.i in 0 .. 16", "for C.i in 0 .. 16 parallel")), f)
    assert not equal(parse(MATMUL.replace("float32(0.0)", "float32(-0.0)")), f)
    assert not equal(parse(MATMUL.replace("A: float32[16, 16]", "A: float32[16, 16] align 64")), f)


def test_equality_of_parts_sees_what_free_names_stand_for():
    k = Var("k", "int32")
    assert equal(I + J, J + I) and not equal(I + J, I + I)
    assert not equal(I + 1, k + 1) and not equal(Neg(I), Neg(k))
    same, longer = Buffer("B", (16,), "float32"), Buffer("B", (17,), "float32")
    assert equal(Load(A, (I,)), Load(same, (I,))) and not equal(Load(A, (I,)), Load(longer, (I,)))
    assert not equal(Const(math.nan, float32), Const(math.nan, float64))
    assert not equal(Const(0, int64), TRUE)


def test_strange_nodes_print_too():
    block = Block(
        "b c", (BlockIter(I, index(4), "spatial", J),), TRUE, None, If(P, Barrier("warp"), None)
    )
    assert show(block) == "block b_c\n  spatial i: 4 = j\n  if p\n    barrier warp"
    assert show(Check(P, I, 'a "b"\n')) == 'check p, i, "a \\"b\\"\\n"'
