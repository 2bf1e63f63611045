from __future__ import annotations

import math

import numpy as np
import pytest

from tensorc.dtypes import dtype, float32, float64
from tensorc.errors import ArgumentError, ExpressionError, InternalError, UnsupportedError
from tensorc.ir import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    BitAnd,
    BitOr,
    BitXor,
    Buffer,
    Call,
    Cast,
    Div,
    Evaluate,
    FloorDiv,
    For,
    Function,
    If,
    IfThenElse,
    Load,
    Max,
    Min,
    Mod,
    Mul,
    Neg,
    Not,
    Or,
    Select,
    Seq,
    ShiftLeft,
    ShiftRight,
    Store,
    Sub,
    Var,
    const,
    index,
    interpret,
    parse,
)
from tests.ir.programs import matmul

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "float32", "float64")


def edge_integers(name: str) -> np.ndarray:
    info = np.iinfo(name)
    values = {info.min, info.min + 1, info.max - 1, info.max, 0, 1, 2, 3, 5, 7, 8, 63, 64, 100}
    if info.min < 0:
        values |= {-1, -2, -3, -7, -100}
    return np.array(sorted(v for v in values if info.min <= v <= info.max), name)


def edge_floats(name: str) -> np.ndarray:
    info = np.finfo(name)
    values = [
        0.0,
        -0.0,
        1.0,
        -1.5,
        0.1,
        3.0,
        math.inf,
        -math.inf,
        math.nan,
        info.max,
        -info.max,
        info.tiny,
        1e-30,
        1e4,
    ]
    return np.array(values).astype(name)


def pairs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.meshgrid(values, values)
    return a.ravel().copy(), b.ravel().copy()


def run(make, *arrays: np.ndarray, result=None) -> np.ndarray:
    """`make` of the elements of arrays, one by one."""
    size = len(arrays[0])
    buffers = [Buffer(f"A{n}", (size,), array.dtype) for n, array in enumerate(arrays)]
    i = Var("i")
    e = make(*[Load(buffer, (i,)) for buffer in buffers])
    out = Buffer("out", (size,), result or e.dtype)
    body = For(i, index(0), index(size), "serial", Store(out, (i,), e))
    return interpret(Function("f", (*buffers, out), (out,), (), (), body), *arrays)


def check(actual: np.ndarray, expected) -> None:
    expected = np.asarray(expected)
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(actual, expected)


# integers: against Python's, which have no width


def wrapped(values, name: str) -> np.ndarray:
    bits = np.iinfo(name).bits
    signed = np.iinfo(name).min < 0
    out = []
    for value in values:
        value %= 1 << bits
        out.append(value - (1 << bits) if signed and value >= 1 << (bits - 1) else value)
    return np.array(out, name)


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize(
    ("cls", "meaning"),
    [
        (Add, lambda a, b: a + b),
        (Sub, lambda a, b: a - b),
        (Mul, lambda a, b: a * b),
        (FloorDiv, lambda a, b: math.floor(a // b) if b else 0),
        (Mod, lambda a, b: a - a // b * b if b else 0),
        (Min, min),
        (Max, max),
        (BitAnd, lambda a, b: a & b),
        (BitOr, lambda a, b: a | b),
        (BitXor, lambda a, b: a ^ b),
    ],
)
def test_integer_operations_wrap(cls, meaning, name):
    a, b = pairs(edge_integers(name))
    check(run(cls, a, b), wrapped([meaning(x, y) for x, y in zip(a.tolist(), b.tolist())], name))


@pytest.mark.parametrize("name", INTEGERS)
def test_shifts_past_the_width_give_zero_or_the_sign(name):
    a, b = pairs(edge_integers(name))
    bits = np.iinfo(name).bits
    inside = [(x, y, 0 <= y < bits) for x, y in zip(a.tolist(), b.tolist())]
    check(run(ShiftLeft, a, b), wrapped([x * 2**y if ok else 0 for x, y, ok in inside], name))
    right = [math.floor(x // 2**y) if ok else (-1 if x < 0 else 0) for x, y, ok in inside]
    check(run(ShiftRight, a, b), wrapped(right, name))


@pytest.mark.parametrize("name", INTEGERS)
def test_negation_and_abs_wrap(name):
    a = edge_integers(name)
    check(run(Neg, a), wrapped([-x for x in a.tolist()], name))
    check(run(lambda x: Call("abs", (x,), x.dtype), a), wrapped([abs(x) for x in a.tolist()], name))


@pytest.mark.parametrize("name", [*INTEGERS, *FLOATS])
@pytest.mark.parametrize(
    ("cls", "meaning"),
    [
        (EQ, np.equal),
        (NE, np.not_equal),
        (LT, np.less),
        (LE, np.less_equal),
        (GT, np.greater),
        (GE, np.greater_equal),
    ],
)
def test_comparisons(cls, meaning, name):
    a, b = pairs(edge_integers(name) if name in INTEGERS else edge_floats(name))
    check(run(cls, a, b), meaning(a, b))


# floats: against NumPy's


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize(
    ("cls", "meaning"),
    [
        (Add, np.add),
        (Sub, np.subtract),
        (Mul, np.multiply),
        (Div, np.divide),
        (Min, np.minimum),
        (Max, np.maximum),
    ],
)
def test_float_operations_round_once_and_pass_nan_on(cls, meaning, name):
    a, b = pairs(edge_floats(name))
    with np.errstate(all="ignore"):
        check(run(cls, a, b), meaning(a, b))


def test_every_float32_operation_rounds():
    a, b, c = (np.array([value], np.float32) for value in (1.0, 2.0**-24, 2.0**-24))
    assert run(lambda x, y, z: Add(Add(x, y), z), a, b, c)[0] == 1.0
    assert run(lambda x, y, z: Add(x, Add(y, z)), a, b, c)[0] == np.float32(1.0) + np.float32(
        2.0**-23
    )


def test_negation_flips_the_sign_bit():
    a = np.array([0.0, -0.0, 1.5, math.nan, math.inf], np.float32)
    assert run(Neg, a).view(np.uint32).tolist() == (a.view(np.uint32) ^ 0x80000000).tolist()


def test_bfloat16_is_computed_in_float32_and_rounded():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    a = np.array([1.0, 3.0, 0.1, 300.0], ml_dtypes.bfloat16)
    b = np.array([0.0078125, 7.0, 0.7, 1.5], ml_dtypes.bfloat16)
    expected = (a.astype(np.float32) * b.astype(np.float32)).astype(ml_dtypes.bfloat16)
    check(run(Mul, a, b), expected)
    check(run(lambda x: Cast(x, float32), a), a.astype(np.float32))


# casts


@pytest.mark.parametrize("target", INTEGERS)
@pytest.mark.parametrize("source", INTEGERS)
def test_casts_between_integers_wrap(source, target):
    a = edge_integers(source)
    check(run(lambda x: Cast(x, dtype(target)), a), wrapped(a.tolist(), target))


@pytest.mark.parametrize("target", INTEGERS)
@pytest.mark.parametrize("source", FLOATS)
def test_casts_from_floats_truncate_and_saturate(source, target):
    a = np.append(
        edge_floats(source), np.array([-0.9, 126.99, -128.5, 255.5, 3e4, -3e4]).astype(source)
    )
    info = np.iinfo(target)

    def meaning(x: float) -> int:
        if math.isnan(x):
            return 0
        if math.isinf(x):
            return info.max if x > 0 else info.min
        return max(info.min, min(info.max, int(x)))

    check(
        run(lambda x: Cast(x, dtype(target)), a), np.array([meaning(float(x)) for x in a], target)
    )


@pytest.mark.parametrize("target", FLOATS)
@pytest.mark.parametrize("source", [*INTEGERS, *FLOATS])
def test_casts_to_floats_round_once(source, target):
    a = edge_integers(source) if source in INTEGERS else edge_floats(source)
    with np.errstate(all="ignore"):
        check(run(lambda x: Cast(x, dtype(target)), a), a.astype(target))


def test_casts_to_and_from_bool():
    a = np.array([0.0, -0.0, 0.5, math.nan], np.float32)
    check(run(lambda x: Cast(x, dtype("bool")), a), np.array([False, False, True, True]))
    check(
        run(lambda x: Cast(x, dtype("bool")), np.array([0, 256], np.int64)), np.array([False, True])
    )
    p = np.array([False, True])
    check(run(lambda x: Cast(x, float64), p), np.array([0.0, 1.0]))
    check(run(lambda x: Cast(x, dtype("int8")), p), np.array([0, 1], np.int8))


def test_logic():
    a, b = pairs(np.array([False, True]))
    for cls, meaning in (
        (And, np.logical_and),
        (Or, np.logical_or),
        (EQ, np.equal),
        (NE, np.not_equal),
    ):
        check(run(cls, a, b), meaning(a, b))
    check(run(Not, a), ~a)


def test_intrinsics_are_nearest():
    a = np.array([0.0, 0.3, 1.0, 2.5, -0.5, -2.5, math.nan, math.inf], np.float32)
    wide = a.astype(np.float64)
    with np.errstate(all="ignore"):
        for name, meaning in {
            "exp": np.exp,
            "log": np.log,
            "tanh": np.tanh,
            "sqrt": np.sqrt,
            "round": np.rint,
        }.items():
            check(
                run(lambda x, name=name: Call(name, (x,), x.dtype), a),
                meaning(wide).astype(np.float32),
            )
    check(run(lambda x: Call("isnan", (x,), dtype("bool")), a), np.isnan(a))
    erf = [math.erf(x) for x in wide]
    check(run(lambda x: Call("erf", (x,), x.dtype), a), np.array(erf).astype(np.float32))
    check(
        run(lambda x: Call("pow", (x, x), x.dtype), a[:4]),
        np.power(wide[:4], wide[:4]).astype(np.float32),
    )


def test_only_if_then_else_guards():
    a = np.arange(4, dtype=np.float32)
    buffer, i, out = Buffer("A", (4,), "float32"), Var("i"), Buffer("out", (6,), "float32")

    def program(cls):
        e = cls(LT(i, index(4)), Load(buffer, (i,)), const(-1.0, "float32"))
        return Function(
            "f",
            (buffer, out),
            (out,),
            (),
            (),
            For(i, index(0), index(6), "serial", Store(out, (i,), e)),
        )

    assert interpret(program(IfThenElse), a).tolist() == [0, 1, 2, 3, -1, -1]
    with pytest.raises(
        ExpressionError, match=r"load of A\[4\]: index 4 is not in 0 \.\. 4; at i = 4"
    ):
        interpret(program(Select), a)
    for cls, text in ((And, "and"), (Or, "or")):
        condition = cls(LT(i, index(4)), LT(Load(buffer, (i,)), const(9.0, "float32")))
        body = For(i, index(0), index(6), "serial", If(condition, Seq(()), None))
        with pytest.raises(ExpressionError, match=r"load of A\[4\]"):
            interpret(Function(text, (buffer,), (), (), (), body), a)


# statements


def test_matmul():
    rng = np.random.default_rng(0)
    a, b = (
        rng.integers(-4, 5, (5, 7)).astype(np.float32),
        rng.integers(-4, 5, (7, 6)).astype(np.float32),
    )
    f = matmul(5, 6, 7)
    check(interpret(f, a, b), a @ b)
    c = np.full((5, 6), math.nan, np.float32)
    assert interpret(f, a, b, c) is c
    check(c, a @ b)


def test_a_function_gives_its_outputs():
    text = "function f(out B: int64[], A: int64[], out C: int64[2])\n  B[] = A[] + 1\n  C[1] = A[]"
    b, c = interpret(parse(text), np.array(4))
    assert b.shape == () and b == 5 and c.tolist() == [np.iinfo(np.int64).max, 4]
    assert interpret(parse("function f(A: int64[2])\n  pass"), np.zeros(2, np.int64)) is None


def test_loops_of_every_kind_run_in_order():
    kinds = ("", " parallel", " vectorized", " unrolled", ' thread {thread = "threadIdx.x"}')
    for kind in kinds:
        head = f"function f(out A: int64[4])\n  A[0] = 0\n  for i in 2 .. 5{kind}\n"
        assert interpret(parse(head + "    A[0] = A[0] * 10 + i"))[0] == 234
    empty = "function f(out A: int64[1])\n  A[0] = 7\n  for i in 5 .. 2\n    A[0] = 0"
    assert interpret(parse(empty))[0] == 7


def test_control_flow():
    text = """\
function collatz(out A: int64[2], n: int64)
  alloc T: int64[1]
  T[0] = n
  A[0] = 0
  while T[0] != 1
    let half: int64 = T[0] // 2
      if T[0] % 2 == 0
        T[0] = half
      else
        T[0] = T[0] * 3 + 1
    A[0] = A[0] + 1
  A[1] = T[0]
  evaluate exp(float32(1.0))"""
    assert interpret(parse(text), scalars={"n": 27}).tolist() == [111, 1]


def test_blocks():
    text = """\
function f(A: int64[2, 3], out S: int64[2], out R: int64[2])
  for k in 0 .. 4
    for i in 0 .. 2
      block S
        spatial x: 2 = i
        reduce y: 3 = k
        where k < 3
        init
          S[x] = 100
        S[x] = S[x] + A[x, y]
  block R
    init
      R[0] = 1
    R[1] = R[0] + 1"""
    s, r = interpret(parse(text), np.arange(6).reshape(2, 3))
    assert s.tolist() == [103, 112] and r.tolist() == [1, 2]


def test_vectors_and_masks():
    text = """\
function f(A: float32[3, 4], out B: float32[12], out S: float32[2])
  alloc T: float32[8]
    T[ramp(0, 1, 8)] = A[ramp(0, 1, 8)] mask(ramp(0, 1, 8) < broadcast(6, 8))
    let x: float32x8 = T[ramp(0, 1, 8)] * broadcast(float32(2.0), 8)
      B[ramp(11, -1, 8)] = x mask ramp(0, 1, 8) != broadcast(3, 8)
    B[ramp(0, 1, 4)] = select(ramp(0, 1, 4) == broadcast(1, 4), T[ramp(1, 1, 4)], -T[ramp(1, 1, 4)])
    B[8] = A[100] mask(false)
    B[100] = float32(9.0) mask false
    S[0] = reduce_add(T[ramp(0, 1, 8)])
    S[1] = reduce_max(cast(float32x4, cast(int8x4, T[ramp(0, 2, 4)])))"""
    b, s = interpret(parse(text), np.arange(1, 13, dtype=np.float32).reshape(3, 4))
    assert b.tolist() == [-2, 3, -4, -5, 0, 0, 12, 10, 0, 6, 4, 2]
    assert s.tolist() == [21, 5]


def test_gathers_on_several_axes():
    text = "function f(A: int64[3, 4], out B: int64[3])\n  alloc T: int64[1]\n"
    text += "  B[ramp(0, 1, 3)] = A[ramp(0, 1, 3), 2]"
    assert interpret(parse(text), np.arange(12).reshape(3, 4)).tolist() == [2, 6, 10]


def test_reductions_of_lanes():
    a = np.array([100, 100, 27, -3], np.int8)
    product = wrapped([100 * 100 * 27 * -3], "int8")[0]
    for name, expected in (("add", 224 - 256), ("mul", product), ("min", -3), ("max", 100)):
        text = f"function f(A: int8[4], out B: int8[1])\n  B[0] = reduce_{name}(A[ramp(0, 1, 4)])"
        assert interpret(parse(text), a)[0] == expected
    nan = np.array([1, math.nan, 3, 4], np.float32)
    text = "function f(A: float32[4], out B: float32[1])\n  B[0] = reduce_max(A[ramp(0, 1, 4)])"
    assert math.isnan(interpret(parse(text), nan)[0])


def test_flat_offsets_reach_buffers_of_any_rank():
    text = "function f(A: int64[2, 3], out B: int64[2, 3])\n  for i in 0 .. 6\n    B[i] = A[5 - i]"
    assert interpret(parse(text), np.arange(6).reshape(2, 3)).tolist() == [[5, 4, 3], [2, 1, 0]]


STRIDED = """\
function f(A: float32[n, m] strides[s, t], out B: float32[n, m] strides[8, 1])
  for i in 0 .. n
    for j in 0 .. m
      block B
        spatial y: n = i
        spatial x: m = j
        B[y, x] = A[y, x] + float32(1.0)"""


def test_strides():
    base = np.arange(40, dtype=np.float32).reshape(5, 8)
    out = np.zeros((4, 8), np.float32)
    result = interpret(parse(STRIDED), base.T[:4, ::2], out[:, :3])
    check(result, base.T[:4, ::2] + 1)
    assert np.shares_memory(result, out) and not out[:, 3:].any()
    check(interpret(parse(STRIDED), base.T[:4, ::2]), base.T[:4, ::2] + 1)
    with pytest.raises(ArgumentError, match="argument 'B' has stride 7 on axis 0, not 8"):
        interpret(parse(STRIDED), base.T[:4, ::2], np.zeros((4, 7), np.float32)[:, :3])


def test_one_index_on_a_strided_axis_depends_on_the_stage():
    nest = "function f(A: int64[3] strides[2], out B: int64[1])\n  block B\n    B[0] = A[2]"
    flat = "function f(A: int64[3] strides[2], out B: int64[1])\n  B[0] = A[2]"
    a = np.arange(6)[::2]
    assert interpret(parse(nest), a)[0] == 4 and interpret(parse(flat), a)[0] == 2


@pytest.mark.parametrize("n", [0, 1, 5])
def test_symbolic_extents(n):
    text = """\
function f(A: float32[n], out B: float32[n], k: int64) where k > 0
  alloc T: float32[n + k]
  for i in 0 .. n
    T[i + k] = A[i]
    B[i] = T[i + k]"""
    a = np.arange(n, dtype=np.float32)
    check(interpret(parse(text), a, scalars={"k": 3}), a)


# errors of the program

HEAD = "function f(A: float32[2, 3], out B: float32[2])\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "  for i in 0 .. 2\n    block B\n      spatial x: 2 = i\n      B[x] = A[x, x + 2]",
            "load of A[1, 3]: index 3 on axis 1 is not in 0 .. 3; at i = 1, block B: x = 1",
        ),
        (
            "  for i in 0 .. 3\n    B[1 - i] = A[0, 0]",
            "store of B[-1]: index -1 is not in 0 .. 2; at i = 2",
        ),
        (
            "  B[0] = A[6]",
            "load of A[6]: index 6 is not in 0 .. 6",
        ),
        (
            "  B[ramp(0, 1, 2)] = A[ramp(5, 1, 2)]",
            "load of A[6]: index 6 is not in 0 .. 6",
        ),
        (
            "  B[ramp(1, 1, 2)] = A[ramp(0, 1, 2)] mask broadcast(true, 2)",
            "store of B[2]: index 2 is not in 0 .. 2",
        ),
        (
            "  alloc T: float32[2, 4]\n  for i in 0 .. 2\n"
            "    T[1, i] = A[0, 0]\n  B[0] = T[1, 0] + T[1, 3]",
            "load of T[1, 3]: the element is read before it is written",
        ),
        (
            "  for i in 0 .. 2\n    alloc T: float32[1]\n"
            "      if i == 0\n        T[0] = A[0, 0]\n      B[i] = T[0]",
            "load of T[0]: the element is read before it is written; at i = 1",
        ),
        (
            "  B[1] = B[0]",
            "load of B[0]: the element is read before it is written",
        ),
        (
            "  alloc T: float32[4]\n    T[0] = A[0, 0]\n    B[ramp(0, 1, 2)] = T[ramp(0, 1, 2)]",
            "load of T[1]: the element is read before it is written",
        ),
        (
            "  alloc T: float32[4]\n"
            "    B[ramp(0, 1, 2)] = T[ramp(0, 1, 2)] mask(ramp(0, 1, 2) == broadcast(1, 2))",
            "load of T[1]: the element is read before it is written",
        ),
        (
            "  for i in 0 .. 3\n    block B\n      spatial x: 2 = i\n      B[x] = A[x, 0]",
            "block B: iterator x = 2 is not in 0 .. 2, though the predicate holds; at i = 2",
        ),
    ],
)
def test_an_error_of_the_program_names_the_place(text, message):
    with pytest.raises(ExpressionError) as error:
        interpret(parse(HEAD + text), np.ones((2, 3), np.float32))
    assert str(error.value) == message


def test_checks():
    text = (
        'function f(I: int64[3])\n  for i in 0 .. 3\n    check I[i] < 5, I[i], "I is out of range"'
    )
    assert interpret(parse(text), np.array([1, 2, 4])) is None
    with pytest.raises(ArgumentError, match=r"^I is out of range: 7$"):
        interpret(parse(text), np.array([1, 7, 9]))


def test_barriers_in_threads_are_refused():
    text = 'function f()\n  for t in 0 .. 4 thread {thread = "threadIdx.x"}\n    barrier shared'
    with pytest.raises(
        UnsupportedError, match="barrier shared: the interpreter runs threads one after the other"
    ):
        interpret(parse(text))
    assert interpret(parse("function f()\n  barrier shared")) is None


def test_what_no_verifier_would_pass():
    a = Buffer("A", (2, 2), "float32")
    f = Function("f", (a,), (a,), (), (), Seq(()))
    array = np.zeros((2, 2), np.float32)
    one = const(1.0, "float32")
    for body, message in (
        (Store(a, (Var("i"), index(0)), one), "variable 'i' is not bound"),
        (Store(Buffer("T", (1,), "float32"), (index(0),), one), "buffer 'T' is not declared"),
        (Store(a, (), one), "buffer 'A' takes 2 indices, not 0"),
        (Evaluate(Call("frob", (one,), float32)), "intrinsic 'frob' is unknown"),
        (Store(a, (index(0), index(0)), None), "NoneType is no expression of the IR"),
    ):
        with pytest.raises(InternalError, match=message):
            interpret(f.with_(body=body), array)


# arguments


TEXT = (
    "function f(A: float32[n, 4], B: float32[n], out C: float32[n], k: int64) where k > 0\n  pass"
)


def arrays(n=3, **changes):
    given = {
        "a": np.zeros((n, 4), np.float32),
        "b": np.zeros(n, np.float32),
        "c": np.zeros(n, np.float32),
    }
    return tuple({**given, **changes}.values())


def frozen(array):
    array.flags.writeable = False
    return array


BOTH = np.zeros(8, np.float32)


@pytest.mark.parametrize(
    ("given", "scalars", "message"),
    [
        (arrays()[:1], {"k": 1}, "f: 1 arrays were given; it takes 3, or 2 for the inputs alone"),
        (arrays(b=[0, 0, 0]), {"k": 1}, "f: argument 'B' is a list, not a NumPy array"),
        (arrays(b=np.zeros(3)), {"k": 1}, "f: argument 'B' is float64, not float32"),
        (arrays(b=np.zeros((3, 1), np.float32)), {"k": 1}, "f: argument 'B' has 2 axes, not 1"),
        (
            arrays(b=np.zeros(4, np.float32)),
            {"k": 1},
            r"f: argument 'B' has extent 4 on axis 0, not 3 \(n\)",
        ),
        (
            arrays(a=np.zeros((3, 5), np.float32)),
            {"k": 1},
            "f: argument 'A' has extent 5 on axis 1, not 4",
        ),
        (arrays(a=np.zeros((4, 3), np.float32).T), {"k": 1}, "f: argument 'A' is not contiguous"),
        (
            arrays(c=frozen(np.zeros(3, np.float32))),
            {"k": 1},
            "f: argument 'C' is an output, but read-only",
        ),
        (
            arrays(b=BOTH[:3], c=BOTH[2:5]),
            {"k": 1},
            "f: argument 'C' is an output, but overlaps 'B'",
        ),
        (arrays(), {}, "f: scalar 'k' is not given"),
        (arrays(), {"k": 1, "z": 2}, "f: there is no scalar 'z'"),
        (arrays(), {"k": 1.5}, "f: scalar 'k' is 1.5, not an int64"),
        (arrays(), {"k": 2**63}, "f: scalar 'k' is 9223372036854775808, not an int64"),
        (arrays(), {"k": 0}, "f: the arguments break the assumption 'k > 0'"),
    ],
)
def test_arguments_that_do_not_fit(given, scalars, message):
    with pytest.raises(ArgumentError, match=f"^{message}$"):
        interpret(parse(TEXT), *given, scalars=scalars)


def test_an_extent_that_nothing_determines():
    with pytest.raises(ArgumentError, match="f: no argument determines 'm'"):
        interpret(
            parse("function f(A: float32[n], out B: float32[m])\n  pass"), np.zeros(3, np.float32)
        )


def test_backward_strides_are_refused():
    text = "function f(A: float32[4] strides[s])\n  pass"
    with pytest.raises(
        ArgumentError, match=r"has strides \(-4,\) bytes, not whole elements upward"
    ):
        interpret(parse(text), np.zeros(4, np.float32)[::-1])


def test_inputs_may_overlap():
    text = "function f(A: int64[2], B: int64[2], out C: int64[2])\n  for i in 0 .. 2\n"
    text += "    C[i] = A[i] + B[i]"
    base = np.arange(3)
    assert interpret(parse(text), base[:2], base[1:]).tolist() == [1, 3]
