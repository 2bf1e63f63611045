"""Intrinsics: for each name of the table in `ir/intrinsic.py`, how LLVM computes it."""

from __future__ import annotations

import math
from collections.abc import Callable

from tensorc.codegen.llvm.builder import Value
from tensorc.codegen.llvm.context import Context, constant, emits, llvm_type, mangled
from tensorc.codegen.llvm.convert import convert, is_half
from tensorc.codegen.llvm.expr import choice, compare, float_op, intrinsic
from tensorc.dtypes import DType, bool_, dtype, float32
from tensorc.errors import UnsupportedError
from tensorc.ir.expr import Call
from tensorc.ir.expr import const as as_const

Emitter = Callable[..., Value]  # (ctx, dtype of the first argument, *arguments)
INTRINSICS: dict[str, Emitter] = {}


def implements(*names: str):
    """Register a function as the implementation of these intrinsics."""

    def register(emitter: Emitter) -> Emitter:
        for name in names:
            INTRINSICS[name] = emitter
        return emitter

    return register


@emits(Call)
def emit_call(ctx: Context, call: Call) -> Value:
    """The result of an intrinsic; 16-bit floats are computed in float32."""
    emitter = INTRINSICS.get(call.name)
    if emitter is None:
        raise UnsupportedError(
            f"intrinsic {call.name!r}: the LLVM code generator has no implementation of it"
        )
    args = [ctx.emit(arg) for arg in call.args]
    kind = call.args[0].dtype
    if not is_half(kind):
        return emitter(ctx, kind, *args)
    wide = float32.with_lanes(kind.lanes)
    result = emitter(ctx, wide, *[convert(ctx, arg, kind, wide) for arg in args])
    return (
        result
        if call.dtype.is_bool
        else convert(ctx, result, float32.with_lanes(call.dtype.lanes), call.dtype)
    )


def _direct(name: str) -> Emitter:
    return lambda ctx, kind, *args: intrinsic(ctx, name, kind, *args)


for _name, _llvm in {
    "sqrt": "sqrt",
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "round": "rint",
    "copysign": "copysign",
}.items():
    INTRINSICS[_name] = _direct(_llvm)


@implements("abs")
def _abs(ctx: Context, kind: DType, x: Value) -> Value:
    if kind.is_float:
        return intrinsic(ctx, "fabs", kind, x)
    return (
        intrinsic(ctx, "abs", kind, x, constant(False, bool_), overload=kind)
        if kind.is_signed
        else x
    )


@implements("isnan")
def _isnan(ctx: Context, kind: DType, x: Value) -> Value:
    return compare(ctx, "fcmp uno", x, x, kind)


@implements("isinf")
def _isinf(ctx: Context, kind: DType, x: Value) -> Value:
    return compare(ctx, "fcmp oeq", intrinsic(ctx, "fabs", kind, x), constant(math.inf, kind), kind)


@implements("isfinite")
def _isfinite(ctx: Context, kind: DType, x: Value) -> Value:
    return compare(ctx, "fcmp olt", intrinsic(ctx, "fabs", kind, x), constant(math.inf, kind), kind)


# Horizontal reductions. LLVM may take the lanes in any order, hence reassoc.


def _reduction(ctx: Context, name: str, kind: DType, *args: Value, flags: str = "") -> Value:
    return intrinsic(ctx, f"vector.reduce.{name}", kind.scalar, *args, overload=kind, flags=flags)


@implements("reduce_add")
def _reduce_add(ctx: Context, kind: DType, x: Value) -> Value:
    if kind.is_float:
        return _reduction(ctx, "fadd", kind, constant(-0.0, kind.scalar), x, flags="reassoc ")
    return _reduction(ctx, "add", kind, x)


@implements("reduce_mul")
def _reduce_mul(ctx: Context, kind: DType, x: Value) -> Value:
    if kind.is_float:
        return _reduction(ctx, "fmul", kind, constant(1.0, kind.scalar), x, flags="reassoc ")
    return _reduction(ctx, "mul", kind, x)


@implements("reduce_and")
def _reduce_and(ctx: Context, kind: DType, x: Value) -> Value:
    return _reduction(ctx, "and", kind, x)


@implements("reduce_or")
def _reduce_or(ctx: Context, kind: DType, x: Value) -> Value:
    return _reduction(ctx, "or", kind, x)


@implements("reduce_min")
def _reduce_min(ctx: Context, kind: DType, x: Value) -> Value:
    return _reduce_extremum(ctx, True, kind, x)


@implements("reduce_max")
def _reduce_max(ctx: Context, kind: DType, x: Value) -> Value:
    return _reduce_extremum(ctx, False, kind, x)


def _reduce_extremum(ctx: Context, least: bool, kind: DType, x: Value) -> Value:
    if not kind.is_float:
        return _reduction(
            ctx, ("s" if kind.is_signed else "u") + ("min" if least else "max"), kind, x
        )
    # LLVM's own reduction handles NaN at every step; to test for NaN once costs less.
    best = _reduction(ctx, "fmin" if least else "fmax", kind, x, flags="nnan nsz ")
    has_nan = _reduce_or(ctx, bool_.with_lanes(kind.lanes), compare(ctx, "fcmp uno", x, x, kind))
    return choice(ctx, has_nan, constant(math.nan, kind.scalar), best)


# exp in float32: e^x = 2^n * e^r with n the integer nearest to x / ln 2, |r| <= ln 2 / 2.

_LOG2_E = 1.4426950408889634
_LN2_HIGH = 0.693145751953125  # few bits, so that n * _LN2_HIGH is exact
_LN2_LOW = 1.428606765330187e-06
_ROUNDER = 12582912.0  # 1.5 * 2^23: adding it leaves the nearest integer in the low bits
_EXP_LOWEST, _EXP_HIGHEST = -105.0, 89.0  # beyond, the result is 0 or inf
_EXP_TERMS = (
    0.0013926918618381023,
    0.008363766595721245,
    0.04166654869914055,
    0.16666573286056519,
    0.5,
    1.0,
    1.0,
)


@implements("exp")
def _exp(ctx: Context, kind: DType, x: Value) -> Value:
    if kind.bits != 32:
        return _from_libm(ctx, "exp", kind, x)
    return exp_float32(ctx, kind, x)


@implements("sigmoid")
def _sigmoid(ctx: Context, kind: DType, x: Value) -> Value:
    one = constant(1.0, kind)
    negative = ctx.builder.pure(f"fneg {x.typed}", x.type, x.depth)
    return float_op(ctx, "fdiv", one, float_op(ctx, "fadd", one, _exp(ctx, kind, negative)))


def exp_float32(ctx: Context, kind: DType, x: Value) -> Value:
    """e**x within 1 ulp; NaN, infinities and subnormal results as in IEEE."""

    def literal(value: float) -> Value:
        return constant(as_const(value, float32).value, kind)

    def fma(a: Value, b: Value, c: Value) -> Value:
        return intrinsic(
            ctx, "fmuladd", kind, a, b, c
        )  # two instructions where the machine has no FMA

    # The comparisons are false for NaN, which so passes through.
    for bound, test in ((_EXP_HIGHEST, "fcmp olt"), (_EXP_LOWEST, "fcmp ogt")):
        limit = literal(bound)
        x = choice(ctx, compare(ctx, test, limit, x, kind), limit, x)
    shifted = fma(x, literal(_LOG2_E), literal(_ROUNDER))
    n = float_op(ctx, "fsub", shifted, literal(_ROUNDER))
    r = fma(n, literal(-_LN2_LOW), fma(n, literal(-_LN2_HIGH), x))
    power = literal(_EXP_TERMS[0])
    for term in _EXP_TERMS[1:]:
        power = fma(power, r, literal(term))
    return _scale(ctx, kind, power, shifted)


def _scale(ctx: Context, kind: DType, x: Value, shifted: Value) -> Value:
    """x * 2**n, n in the low bits of `shifted`; 2**n alone may overflow, so by two factors."""
    build, ints = ctx.builder, dtype("int32").with_lanes(kind.lanes)
    to = llvm_type(ints)

    def op(name: str, a: Value, b: Value) -> Value:
        return build.pure(f"{name} {a.typed}, {b.ref}", to, max(a.depth, b.depth))

    def power_of_two(exponent: Value) -> Value:
        bits = op("shl", op("add", exponent, constant(127, ints)), constant(23, ints))
        return build.pure(f"bitcast {bits.typed} to {x.type}", x.type, bits.depth)

    bits = build.pure(f"bitcast {shifted.typed} to {to}", to, shifted.depth)
    n = op("sub", bits, constant(0x4B400000, ints))
    if ctx.module.target.has("avx512vl"):  # vscalefps does it all
        name = f"llvm.ldexp.{mangled(kind)}.{mangled(ints)}"
        ctx.module.declare(name, f"{x.type} ({x.type}, {to})")
        return build.pure(
            f"call {x.type} @{name}({x.typed}, {n.typed})", x.type, max(x.depth, n.depth)
        )
    half = op("ashr", n, constant(1, ints))
    x = float_op(ctx, "fmul", x, power_of_two(half))
    return float_op(ctx, "fmul", x, power_of_two(op("sub", n, half)))


# Everything else is left to libm, lane by lane.

_LIBM = (
    "exp2", "expm1", "log", "log2", "log10", "log1p",
    "sin", "cos", "tan", "tanh", "erf", "pow", "fmod",
)  # fmt: skip


def _from_libm(ctx: Context, name: str, kind: DType, *args: Value) -> Value:
    build, scalar = ctx.builder, llvm_type(kind.scalar)
    symbol = name if kind.bits == 64 else f"{name}f"
    ctx.module.declare(
        symbol, f"{scalar} ({', '.join([scalar] * len(args))}) nounwind willreturn memory(none)"
    )
    depth = max([arg.depth for arg in args])

    def call(operands: list[Value]) -> Value:
        return build.pure(
            f"call {scalar} @{symbol}({', '.join([v.typed for v in operands])})", scalar, depth
        )

    if kind.lanes == 1:
        return call(list(args))
    result = Value("poison", llvm_type(kind))
    for lane in range(kind.lanes):
        operands = [
            build.pure(f"extractelement {arg.typed}, i64 {lane}", scalar, arg.depth) for arg in args
        ]
        text = f"insertelement {result.typed}, {call(operands).typed}, i64 {lane}"
        result = build.pure(text, result.type, depth)
    return result


def _libm_emitter(name: str) -> Emitter:
    return lambda ctx, kind, *args: _from_libm(ctx, name, kind, *args)


for _name in _LIBM:
    INTRINSICS[_name] = _libm_emitter(_name)
