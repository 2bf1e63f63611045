from __future__ import annotations

import pytest

from tensorc.dtypes import dtype, float32, int32, int64
from tensorc.errors import InternalError
from tensorc.ir import (
    LT,
    Add,
    Alloc,
    And,
    Barrier,
    Block,
    BlockIter,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Check,
    Const,
    Div,
    Evaluate,
    FloorDiv,
    For,
    Function,
    If,
    IfThenElse,
    Let,
    Load,
    Neg,
    Not,
    Ramp,
    Select,
    Seq,
    Store,
    Var,
    const,
    index,
    parse,
    seq,
    verify,
)
from tests.ir.programs import TRUE, matmul

A, C = Buffer("A", (8,), "float32"), Buffer("C", (8,), "float32")
N, I, J, X = Var("n"), Var("i"), Var("j"), Var("x", "float32")
ZERO, EIGHT, F = index(0), index(8), const(0.0, "float32")
WARP = (("thread", "threadIdx.x"),)
RAMP = Ramp(ZERO, index(1), 4)


def function(body, **more) -> Function:
    fields = {"params": (A, C), "outputs": (C,), "scalars": (N,), "allocs": ()}
    return Function("f", body=body, **{**fields, **more})


def put(value=F, at=ZERO, **more):
    return Store(C, (at,), value, **more)


def loop(body, var=I, extent=EIGHT, kind="serial", annotations=(), start=ZERO):
    return For(var, start, extent, kind, body, annotations)


def block(
    body,
    binding=ZERO,
    name="C",
    kind="spatial",
    predicate=TRUE,
    init=None,
    annotations=(),
    extent=EIGHT,
    var=J,
):
    return Block(name, (BlockIter(var, extent, kind, binding),), predicate, init, body, annotations)


def let(value):
    return Let(Var("y", value.dtype), value, Seq(()))


def refused(f: Function, stage: str) -> str:
    with pytest.raises(InternalError) as error:
        verify(f, stage)
    return str(error.value)


EITHER = [
    (put(at=I), "at 'C[i] = float32(0.0)': variable 'i' is not bound here"),
    (seq(loop(put(at=I)), put(at=I)), "variable 'i' is not bound here"),
    (loop(Seq(()), extent=I), "variable 'i' is not bound here"),
    (let(Load(C, (I,))), "variable 'i' is not bound here"),
    (loop(loop(put())), "variable 'i' is bound twice"),
    (seq(loop(put()), loop(put())), "variable 'i' is bound twice"),
    (loop(put(), var=N), "variable 'n' is bound twice"),
    (Store(Buffer("T", (8,), "float32"), (ZERO,), F), "buffer 'T' is not declared here"),
    (put(Load(Buffer("T", (8,), "float32"), (ZERO,))), "buffer 'T' is not declared here"),
    (Alloc((A,), put()), "at 'alloc A: float32[8]': buffer 'A' is declared twice"),
    (Alloc((Buffer("T", (8,), "float32", "moon"),), put()), "scope 'moon', which is none of global"),
    (Alloc((Buffer("T", (8,), "float32x4"),), put()), "buffer 'T' is of the vector type float32x4"),
    (Alloc((Buffer("T", (8,), "int8", strides=(1, 2)),), put()), "'T' has 1 axes and 2 strides"),
    (Alloc((Buffer("T", (8,), "int8", padding=((1, 4, 0),)),), put()), "'T': pad[1: 4 + 0] is no rule"),
    (loop(loop(put(), J, kind="thread", annotations=WARP), kind="thread", annotations=WARP),
     "it lies in loop 'i' of the same thread axis, threadIdx.x"),
    (Store(A, (ZERO,), F), "parameter 'A' is written but no output"),
    (Store(C, (ZERO, ZERO), F), "buffer 'C' takes 1 index, not 2"),
    (put(Load(A, ())), "buffer 'A' takes 1 index, not 0"),
    (put(at=const(0, "int32")), "an index is int32, not int64"),
    (put(Load(A, (F,))), "an index is float32, not int64"),
    (put(ZERO), "a value of int64 is stored to elements of float32"),
    (put(mask=ZERO), "the mask of a float32 access is int64"),
    (put(Load(A, (ZERO,), ZERO)), "the mask of a float32 access is int64"),
    (put(Add(F, ZERO)), "the operands of + are float32 and int64"),
    (put(Add(TRUE, TRUE)), "the operands of + are bool, which has no arithmetic"),
    (let(LT(TRUE, TRUE)), "the operands of < are bool, which has no arithmetic"),
    (let(And(ZERO, ZERO)), "the operands of and are int64, not bool"),
    (put(FloorDiv(F, F)), "the operands of // are float32, not integers"),
    (let(Div(ZERO, ZERO)), "the operands of / are int64, not floats"),
    (let(Not(ZERO)), "the operand of not is int64, not bool"),
    (let(Neg(TRUE)), "the operand of - is bool, which has no arithmetic"),
    (put(Select(TRUE, F, ZERO)), "the sides of select are float32 and int64"),
    (put(Select(ZERO, F, F)), "the condition of select is int64, not bool"),
    (put(IfThenElse(ZERO, F, F)), "the condition of if_then_else is int64, not bool"),
    (put(Cast(ZERO, dtype("int8x4"))), "a cast from int64 to int8x4 changes the number of lanes"),
    (put(Const(0, float32)), "the literal 0 is no value of float32"),
    (put(Const(0.1, float32)), "the literal 0.1 is no value of float32"),
    (let(Const(1, dtype("bool"))), "the literal 1 is no value of bool"),
    (let(Const(1 << 31, int32)), "the literal 2147483648 is no value of int32"),
    (let(Const(1 << 63, int64)), "the literal 9223372036854775808 is no value of int64"),
    (let(Const(0.0, dtype("float32x4"))), "is of the vector type float32x4; broadcast a scalar"),
    (put(Call("frob", (F,), float32)), "intrinsic 'frob' is unknown"),
    (put(Call("exp", (F, F), float32)), "exp takes 1 operands, not 2"),
    (put(Call("pow", (F, ZERO), float32)), "the operands of pow are float32 and int64"),
    (let(Call("exp", (ZERO,), int64)), "exp takes float, not int64"),
    (put(Call("isnan", (F,), float32)), "isnan of float32 is bool, not float32"),
    (Evaluate(F), "evaluate takes a call of an intrinsic"),
    (If(ZERO, put()), "at 'if 0': the condition is int64, not bool"),
    (Check(ZERO, ZERO, "m"), "the condition is int64, not bool"),
    (Check(TRUE, F, "m"), "the value is float32, not int64"),
    (Let(X, ZERO, put()), "variable 'x' is float32, its value int64"),
    (loop(put(), var=X), "the loop's variable is float32, not int64"),
    (loop(put(), start=F), "the start of the loop is float32, not int64"),
    (loop(put(), extent=TRUE), "the extent of the loop is bool, not int64"),
    (loop(put(), kind="sideways"), "loop kind 'sideways' is none of serial, parallel"),
    (loop(put(), kind="unrolled", extent=N), "at 'for i in 0 .. n unrolled': the extent of a"),
    (loop(put(), kind="vectorized", extent=N), "a loop that is vectorized must be constant"),
    (loop(put(), kind="thread"), "must name its axis, such as 'threadIdx.x'"),
    (loop(put(), kind="thread", annotations=(("thread", "moon.x"),)), "must name its axis"),
    (loop(put(), annotations=(("b", 1), ("a", 1))), "annotations b, a are not sorted, each once"),
    (loop(put(), annotations=(("a", 1), ("a", 1))), "annotations a, a are not sorted, each once"),
    (loop(put(), annotations=(("a", (1,)),)), "'a' is (1,), not a number, string or bool"),
    (Barrier("local"), "barrier scope 'local' is none of global, shared, warp"),
    (Seq((put(),)), "a sequence of one statement, or in a sequence"),
    (Seq((put(), Seq(()))), "a sequence of one statement, or in a sequence"),
    ("pass", "function f: str is no statement of the IR"),
]  # fmt: skip


@pytest.mark.parametrize("stage", ["nest", "flat"])
@pytest.mark.parametrize(("body", "message"), EITHER)
def test_refused_at_every_stage(body, message, stage):
    assert message in refused(function(body), stage)


BLOCKED = loop(block(put(at=J), binding=I))

NEST = [
    (seq(loop(put()), loop(put(), var=Var("i"))), "two loops are named 'i'"),
    (seq(block(put()), block(put(), var=Var("j"))), "at 'block C': two blocks are named 'C'"),
    (Alloc((Buffer("A", (8,), "float32"),), put()), "two buffers are named 'A'"),
    (
        loop(block(put(at=I))),
        "at 'C[i] = float32(0.0)': block 'C' reads the loop 'i' other than through an iterator",
    ),
    (
        loop(block(put(), init=put(at=I))),
        "block 'C' reads the loop 'i' other than through an iterator",
    ),
    (loop(block(block(put(at=I), name="D", var=Var("k")))), "block 'C' reads the loop 'i'"),
    (block(put(), predicate=LT(J, EIGHT)), "variable 'j' is not bound here"),
    (block(put(), binding=J), "variable 'j' is not bound here"),
    (block(put(), kind="sideways"), "iterator 'j' is 'sideways', none of spatial, reduce, ordered"),
    (block(put(), var=X), "iterator 'x' is float32, not int64"),
    (block(put(), binding=F), "the binding of iterator 'j' is float32, not int64"),
    (block(put(), extent=TRUE), "the extent of iterator 'j' is bool, not int64"),
    (block(put(), predicate=ZERO), "the predicate is int64, not bool"),
    (block(put(), annotations=(("b", 1), ("a", 1))), "annotations b, a are not sorted"),
    (seq(block(put()), put(at=J)), "variable 'j' is not bound here"),
    (put(Broadcast(F, 4), at=RAMP), "vector 'ramp(0, 1, 4)' before the loops are flat"),
]

FLAT = [
    (BLOCKED, "at 'block C': a block after the loops are flat"),
    (loop(put(), kind="vectorized"), "a vectorized loop where vectors should be"),
    (
        loop(loop(loop(put(), Var("k"), kind="parallel"), J), kind="parallel"),
        "at 'for k in 0 .. 8 parallel': a parallel loop in the parallel loop 'i'",
    ),
    (put(F, at=RAMP), "a value of float32 is stored to elements of float32x4"),
    (put(Broadcast(F, 8), at=RAMP), "a value of float32x8 is stored to elements of float32x4"),
    (put(Broadcast(F, 4), at=RAMP, mask=TRUE), "the mask of a float32x4 access is bool"),
    (let(Add(RAMP, ZERO)), "the operands of + are int64x4 and int64"),
    (let(Ramp(RAMP, index(1), 4)), "base and stride of ramp are int64x4 and int64"),
    (let(Ramp(F, F, 4)), "base and stride of ramp are float32 and float32"),
    (let(Ramp(ZERO, ZERO, 1)), "a vector has at least 2 lanes, not 1"),
    (let(Broadcast(RAMP, 4)), "broadcast takes a scalar, not int64x4"),
    (
        let(Select(Broadcast(TRUE, 8), RAMP, RAMP)),
        "the condition of select is boolx8, its sides are int64x4",
    ),
    (
        let(IfThenElse(Broadcast(TRUE, 4), RAMP, RAMP)),
        "the condition of if_then_else is boolx4: only one lane can guard",
    ),
    (If(Broadcast(TRUE, 4), put()), "the condition is boolx4, not bool"),
    (let(Call("reduce_add", (RAMP,), RAMP.dtype)), "reduce_add of int64x4 is int64, not int64x4"),
]


@pytest.mark.parametrize(("body", "message"), NEST)
def test_refused_in_a_nest(body, message):
    assert message in refused(function(body), "nest")


@pytest.mark.parametrize(("body", "message"), FLAT)
def test_refused_when_flat(body, message):
    assert message in refused(function(body), "flat")


def test_indices_of_several_axes():
    square = Buffer("S", (8, 8), "float32")
    one, two = Store(square, (ZERO,), F), Store(square, (ZERO, ZERO), F)
    params = {"params": (square,), "outputs": (square,)}
    verify(function(two, **params), "nest")
    verify(function(one, **params), "flat")
    assert "buffer 'S' takes 2 indices, not 1" in refused(function(one, **params), "nest")
    assert "buffer 'S' takes 1 index, not 2" in refused(function(two, **params), "flat")


def test_functions_are_refused_for_their_heads():
    t = Buffer("T", (8,), "float32")
    nothing = Seq(())
    assert "the outputs are not parameters in their order" in refused(
        function(nothing, outputs=(t,)), "nest"
    )
    assert "the outputs are not parameters in their order" in refused(
        function(nothing, outputs=(C, A)), "nest"
    )
    assert "scalar 'x' is float32, not int64" in refused(function(nothing, scalars=(X,)), "nest")
    assert "buffer 'A' is declared twice" in refused(function(nothing, params=(A, A, C)), "nest")
    assert "internal buffer 'T' is not placed by an alloc" in refused(
        function(nothing, allocs=(t,)), "flat"
    )
    assert "an assumption is int64, not bool" in refused(
        function(nothing, assumptions=(N,)), "nest"
    )
    assert "variable 'i' is not bound here" in refused(
        function(nothing, assumptions=(LT(I, N),)), "nest"
    )
    wrong = Buffer("T", (I,), "float32")
    assert "variable 'i' is not bound here" in refused(function(nothing, allocs=(wrong,)), "nest")
    with pytest.raises(InternalError, match="stage 'deep' is neither 'nest' nor 'flat'"):
        verify(function(nothing), "deep")


def test_a_message_names_the_function_and_the_statement():
    assert refused(matmul().with_(name="gemm", outputs=()), "nest") == (
        "function gemm, at 'C[i, j] = float32(0.0)': parameter 'C' is written but no output"
    )


def test_right_nests_pass():
    verify(matmul())
    verify(
        function(
            loop(loop(block(put(at=J), binding=I), Var("k"), kind="parallel"), kind="parallel")
        )
    )
    inner = loop(put(at=Var("t")), Var("t2"))
    inside = Var("t")
    verify(
        function(loop(block(loop(put(at=inside), inside), binding=I)))
    )  # a body may read its own loops
    assert "not bound" in refused(function(inner), "nest")
    verify(
        parse(
            "function f(A: float32[n, m], out C: float32[n], m: int64)\n"
            "  alloc T: float32[n, m]\n  pass"
        )
    )


def test_right_flat_functions_pass():
    text = (
        "function f(A: float32[n, 4], out C: float32[n, 4])\n"
        "  for i in 0 .. n parallel\n"
        "    alloc T: float32[4] @local align 64\n"
        "      T[ramp(0, 1, 4)] = A[ramp(i * 4, 1, 4)] mask(ramp(0, 1, 4) < broadcast(n, 4))\n"
        "      for j in 0 .. 4 unrolled\n"
        "        C[i * 4 + j] = reduce_add(T[ramp(0, 1, 4)])"
    )
    verify(parse(text), "flat")
