"""Random expressions and functions of bare nodes, so that nothing folds; and a matrix product."""

from __future__ import annotations

import struct

from hypothesis import strategies as st

from tensorc.dtypes import bool_, dtype, float32, float64, int32, int64
from tensorc.ir import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    Alloc,
    And,
    Barrier,
    BitAnd,
    BitOr,
    BitXor,
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
    Max,
    Min,
    Mod,
    Mul,
    Neg,
    Not,
    Or,
    Ramp,
    Select,
    Seq,
    ShiftLeft,
    ShiftRight,
    Store,
    Sub,
    Var,
    While,
    const,
    index,
    seq,
)

INTEGER = (Add, Sub, Mul, FloorDiv, Mod, Min, Max, BitAnd, BitOr, BitXor, ShiftLeft, ShiftRight)
FLOAT = (Add, Sub, Mul, Div, Min, Max)
COMPARE = (EQ, NE, LT, LE, GT, GE)
NAMES = (
    "i",
    "j",
    "C.k.0",
    "mask",
    "for",
    "not",
    "in",
    "min",
    "float32",
    "spatial",
    "a b",
    "9",
    "x..y",
    "block",
)
TRUE = const(True, "bool")


def matmul(m=16, n=16, k=16) -> Function:
    """C = A @ B as te lowers it."""
    a, b, c = (
        Buffer("A", (m, k), "float32"),
        Buffer("B", (k, n), "float32"),
        Buffer("C", (m, n), "float32"),
    )
    vi, vj, vk = Var("i"), Var("j"), Var("k")
    loops = (Var("C.i"), m), (Var("C.j"), n), (Var("C.k"), k)
    kinds = ("spatial", "spatial", "reduce")
    iters = tuple(
        BlockIter(v, index(extent), kind, loop)
        for v, (loop, extent), kind in zip((vi, vj, vk), loops, kinds)
    )
    update = Store(c, (vi, vj), Load(c, (vi, vj)) + Load(a, (vi, vk)) * Load(b, (vk, vj)))
    nest = Block("C", iters, TRUE, Store(c, (vi, vj), const(0.0, "float32")), update)
    for loop, extent in reversed(loops):
        nest = For(loop, index(0), index(extent), "serial", nest)
    return Function("main", (a, b, c), (c,), (), (), nest)


def literals(of):
    if of.is_bool:
        return st.booleans().map(lambda value: Const(value, bool_))
    if of.is_int:
        return st.integers(of.min, of.max).map(lambda value: Const(value, of))
    if of is float64:
        bits = st.integers(0, 2**64 - 1).map(
            lambda value: struct.unpack("<d", value.to_bytes(8, "little"))[0]
        )
        return st.one_of(st.floats(), bits).map(lambda value: Const(value, of))
    return st.floats(width=32).map(lambda value: const(value, of))


@st.composite
def exprs(draw, of=int64, names=(), buffers=(), depth=3, lanes=1):
    """An expression of a scalar dtype, with lanes, over variables and buffers."""

    def sub(dtype_of=of, lanes=lanes):
        return draw(exprs(dtype_of, names, buffers, depth - 1, lanes))

    if depth == 0 or draw(st.integers(0, 5)) == 0:
        if lanes > 1:
            if of is int64 and draw(st.booleans()):
                return Ramp(sub_leaf(draw, of, names), sub_leaf(draw, of, names), lanes)
            return Broadcast(sub_leaf(draw, of, names), lanes)
        return sub_leaf(draw, of, names)
    fitting = [buffer for buffer in buffers if buffer.dtype is of and (lanes == 1 or buffer.shape)]
    forms = ["binary", "select", "cast"] + ["load"] * bool(fitting) + ["if"] * (lanes == 1)
    form = draw(st.sampled_from(forms))
    if form == "load":
        buffer = draw(st.sampled_from(fitting))
        indices = tuple(sub(int64) for _ in buffer.shape)
        mask = sub(bool_) if draw(st.booleans()) else None
        return Load(buffer, indices, mask)
    if form == "select":
        return Select(sub(bool_), sub(), sub())
    if form == "if":
        return IfThenElse(sub(bool_), sub(), sub())
    if form == "cast":
        return Cast(
            sub(draw(st.sampled_from((int32, int64, float32, bool_)))), of.with_lanes(lanes)
        )
    if of.is_bool:
        cls = draw(st.sampled_from((*COMPARE, And, Or, Not)))
        if cls is Not:
            return Not(sub())
        operand = bool_ if cls in (And, Or, EQ, NE) else draw(st.sampled_from((int64, float32)))
        return cls(sub(operand), sub(operand))
    if draw(st.integers(0, 4)) == 0:
        name = "abs" if of.is_int else draw(st.sampled_from(("exp", "floor", "sqrt")))
        return draw(st.sampled_from((Neg(sub()), Call(name, (sub(),), of.with_lanes(lanes)))))
    cls = draw(st.sampled_from(INTEGER if of.is_int else FLOAT))
    return cls(sub(), sub())


def sub_leaf(draw, of, names):
    fitting = [var for var in names if var.dtype is of]
    return draw(st.one_of(literals(of), st.sampled_from(fitting)) if fitting else literals(of))


@st.composite
def annotations(draw):
    keys = draw(
        st.lists(st.sampled_from(("tail", "a.b", "two words", "thread")), unique=True, max_size=2)
    )
    values = st.one_of(
        st.booleans(), st.integers(-9, 9), st.floats(allow_nan=False), st.text(max_size=4)
    )
    return tuple((key, draw(values)) for key in sorted(keys))


@st.composite
def functions(draw):
    """A function that the parser accepts; the interpreter need not be able to run it."""
    name = st.sampled_from(NAMES)
    n = Var(draw(name))
    dtypes = st.sampled_from(
        (int64, float32, float64, int32, bool_, dtype("int8"), dtype("float16"))
    )
    extents = st.one_of(st.integers(0, 20).map(index), st.just(n))

    def buffer(**more):
        shape = draw(st.lists(extents, min_size=0, max_size=3))
        strides = draw(st.one_of(st.none(), st.just(tuple(shape))))
        align = draw(st.sampled_from((None, 64)))
        return Buffer(draw(name), shape, draw(dtypes), strides=strides, alignment=align, **more)

    first = Buffer(draw(name), (n, 4), "float32")
    params = (first, *[buffer() for _ in range(draw(st.integers(0, 2)))])
    outputs = tuple(p for p in params if draw(st.booleans()))
    scalars = (Var(draw(name)),) if draw(st.booleans()) else ()
    allocs = tuple(buffer(scope="local") for _ in range(draw(st.integers(0, 2))))
    assumptions = tuple(
        draw(exprs(bool_, (n, *scalars), depth=2)) for _ in range(draw(st.integers(0, 2)))
    )
    body = draw(stmts((n, *scalars), (*params, *allocs), 3))
    return Function(
        draw(st.sampled_from(("main", "f.g"))), params, outputs, scalars, allocs, body, assumptions
    )


@st.composite
def stmts(draw, names, buffers, depth):
    def expr(of=int64, lanes=1):
        return draw(exprs(of, names, buffers, 2, lanes))

    def body(more=(), buffer=()):
        return draw(stmts((*names, *more), (*buffers, *buffer), depth - 1))

    forms = ["store", "check", "evaluate", "barrier", "nothing"]
    if depth:
        forms += ["seq", "for", "block", "if", "let", "alloc", "while"] * 2
    match draw(st.sampled_from(forms)):
        case "seq":
            return seq(*[body() for _ in range(draw(st.integers(2, 3)))])
        case "for":
            var = Var(draw(st.sampled_from(NAMES)))
            start = draw(
                st.one_of(
                    st.just(index(0)),
                    st.integers(-3, 5).map(index),
                    exprs(int64, names, buffers, 1),
                )
            )
            extent = draw(
                st.one_of(
                    st.integers(-3, 9).map(index), st.just(Sub(expr(), start)), exprs(int64, names)
                )
            )
            kind = draw(st.sampled_from(("serial", "parallel", "unrolled", "vectorized", "thread")))
            return For(var, start, extent, kind, body((var,)), draw(annotations()))
        case "block":
            kinds = draw(st.lists(st.sampled_from(("spatial", "reduce", "ordered")), max_size=3))
            iters = tuple(
                BlockIter(Var(draw(st.sampled_from(NAMES))), expr(), kind, expr()) for kind in kinds
            )
            inner = tuple(it.var for it in iters)
            init = body(inner) if draw(st.booleans()) else None
            predicate = draw(st.one_of(st.just(TRUE), exprs(bool_, names, buffers, 2)))
            return Block(
                draw(st.sampled_from(("C", "T.0"))),
                iters,
                predicate,
                init,
                body(inner),
                draw(annotations()),
            )
        case "if":
            return If(expr(bool_), body(), body() if draw(st.booleans()) else None)
        case "let":
            lanes = draw(st.sampled_from((1, 4)))
            value = expr(float32, lanes)
            var = Var(draw(st.sampled_from(NAMES)), value.dtype)
            return Let(var, value, body((var,) if lanes == 1 else ()))
        case "alloc":
            buffer = Buffer(
                draw(st.sampled_from(NAMES)),
                (4,),
                "float32",
                draw(st.sampled_from(("global", "shared"))),
            )
            return Alloc((buffer,), body((), (buffer,)))
        case "while":
            return While(expr(bool_), body())
        case "check":
            return Check(expr(bool_), expr(), draw(st.text(max_size=5)))
        case "evaluate":
            return Evaluate(Call("exp", (expr(float32),), float32))
        case "barrier":
            return Barrier(draw(st.sampled_from(("shared", "warp", "global"))))
        case "nothing":
            return Seq(())
    buffer = draw(st.sampled_from(buffers))
    lanes = draw(st.sampled_from((1, 4))) if buffer.shape else 1
    indices = tuple(expr(int64, lanes) for _ in buffer.shape)
    mask = expr(bool_, lanes) if draw(st.booleans()) else None
    return Store(buffer, indices, expr(buffer.dtype, lanes), mask)
