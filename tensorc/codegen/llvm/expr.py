"""Expressions: one emitter for each kind of node, scalar and vector alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from tensorc.arith import bounds, is_wild, simplify
from tensorc.codegen.llvm.builder import Value
from tensorc.codegen.llvm.context import (
    Context,
    constant,
    emits,
    llvm_type,
    mangled,
    steps,
    vector_type,
)
from tensorc.codegen.llvm.convert import convert, is_half, narrow, widen
from tensorc.dtypes import DType, float32, int32, int64
from tensorc.ir.expr import (
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
    Broadcast,
    Cast,
    Compare,
    Const,
    Div,
    Expr,
    FloorDiv,
    IfThenElse,
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
    ShiftLeft,
    ShiftRight,
    Sub,
    add,
    index,
    is_const,
    mul,
    sub,
    wrap,
)
from tensorc.ir.walk import walk_expr


@emits(Const)
def _const(ctx: Context, expr: Const) -> Value:
    return constant(expr.value, expr.dtype)


@emits(Broadcast)
def _broadcast(ctx: Context, expr: Broadcast) -> Value:
    return splat(ctx, ctx.emit(expr.value), expr.dtype)


@emits(Ramp)
def _ramp(ctx: Context, expr: Ramp) -> Value:
    base, stride = ctx.emit(expr.base), ctx.emit(expr.stride)
    scalar = llvm_type(expr.dtype.scalar)
    if stride.const is None:
        lane_numbers = steps(expr.lanes, 1, scalar)
        offsets = _integer(ctx, "mul", splat(ctx, stride, expr.dtype), lane_numbers)
    else:
        offsets = steps(expr.lanes, stride.const, scalar)
    return (
        offsets if base.const == 0 else _integer(ctx, "add", splat(ctx, base, expr.dtype), offsets)
    )


@lru_cache(maxsize=4096)
def as_ramp(expr: Expr) -> tuple[Expr, Expr] | None:
    """(base, stride) of a vector that is base + lane * stride; None where that is not seen."""
    match expr:
        case Ramp(base, stride):
            return base, stride
        case Broadcast(value):
            return value, index(0)
        case Add(a, b) | Sub(a, b):
            left, right = as_ramp(a), as_ramp(b)
            combine = add if type(expr) is Add else sub
            if left and right:
                return combine(left[0], right[0]), combine(left[1], right[1])
        case Mul(a, b):
            left, right = as_ramp(a), as_ramp(b)
            if left and type(b) is Broadcast:
                return mul(left[0], b.value), mul(left[1], b.value)
            if right and type(a) is Broadcast:
                return mul(a.value, right[0]), mul(a.value, right[1])
    return None


@lru_cache(maxsize=4096)
def constant_ramp(expr: Expr) -> tuple[Expr, int] | None:
    """As `as_ramp`, where the stride is a number."""
    ramp = as_ramp(expr)
    if ramp is None or type(ramp[1]) is not Const:
        return None
    return ramp[0], int(ramp[1].value)


def splat(ctx: Context, value: Value, dtype: DType) -> Value:
    """A scalar in every lane of a vector dtype; a vector stays as it is."""
    kind = llvm_type(dtype)
    scalar = value.type
    if scalar == kind:
        return value
    if not value.ref.startswith("%"):
        return Value(f"splat ({value.typed})", kind)
    build, lanes = ctx.builder, dtype.lanes
    first = build.hoist(f"insertelement {kind} poison, {value.typed}, i64 0", kind, value.depth)
    zeros = f"<{lanes} x i32> zeroinitializer"
    return build.hoist(f"shufflevector {first.typed}, {kind} poison, {zeros}", kind, value.depth)


# Integer arithmetic: folded where both sides are known, else hoisted.

_FOLD: dict[type, Callable[[int, int], int]] = {
    Add: lambda a, b: a + b,
    Sub: lambda a, b: a - b,
    Mul: lambda a, b: a * b,
    FloorDiv: lambda a, b: a // b if b else 0,
    Mod: lambda a, b: a % b if b else 0,
    Min: min,
    Max: max,
    BitAnd: lambda a, b: a & b,
    BitOr: lambda a, b: a | b,
    BitXor: lambda a, b: a ^ b,
    And: lambda a, b: a & b,
    Or: lambda a, b: a | b,
    EQ: lambda a, b: a == b,
    NE: lambda a, b: a != b,
    LT: lambda a, b: a < b,
    LE: lambda a, b: a <= b,
    GT: lambda a, b: a > b,
    GE: lambda a, b: a >= b,
}
_PLAIN = {
    Add: "add",
    Sub: "sub",
    Mul: "mul",
    BitAnd: "and",
    BitOr: "or",
    BitXor: "xor",
    And: "and",
    Or: "or",
}
_FLOAT = {Add: "fadd contract", Sub: "fsub contract", Mul: "fmul contract", Div: "fdiv"}


def _integer(ctx: Context, op: str, a: Value, b: Value) -> Value:
    return ctx.builder.hoist(f"{op} {a.typed}, {b.ref}", a.type, max(a.depth, b.depth))


def _folded(expr, a: Value, b: Value) -> Value | None:
    if a.const is None or b.const is None:
        return None
    fold = _FOLD.get(type(expr))
    if fold is None:
        return None
    number = int(fold(a.const, b.const))
    return constant(wrap(number, expr.dtype) if expr.dtype.is_int else number, expr.dtype)


@emits(Add, Sub, Mul)
def _arithmetic(ctx: Context, expr) -> Value:
    a, b = ctx.emit(expr.a), ctx.emit(expr.b)
    if expr.dtype.is_float:
        return _float(ctx, expr, a, b)
    known = _folded(expr, a, b)
    if known is not None:
        return known
    cls = type(expr)
    if (b.const == 0 and cls is not Mul) or (b.const == 1 and cls is Mul):
        return a
    if (a.const == 0 and cls is Add) or (a.const == 1 and cls is Mul):
        return b
    return _integer(ctx, _PLAIN[cls], a, b)


@emits(BitAnd, BitOr, BitXor, And, Or)
def _bits(ctx: Context, expr) -> Value:
    a, b = ctx.emit(expr.a), ctx.emit(expr.b)
    return _folded(expr, a, b) or _integer(ctx, _PLAIN[type(expr)], a, b)


@emits(Div)
def _division(ctx: Context, expr: Div) -> Value:
    return _float(ctx, expr, ctx.emit(expr.a), ctx.emit(expr.b))


def _float(ctx: Context, expr, a: Value, b: Value) -> Value:
    dtype = expr.dtype
    if is_half(dtype):
        return _in_float32(ctx, dtype, lambda x, y: float_op(ctx, _FLOAT[type(expr)], x, y), a, b)
    return float_op(ctx, _FLOAT[type(expr)], a, b)


def float_op(ctx: Context, op: str, a: Value, b: Value) -> Value:
    """A binary instruction on floats."""
    return ctx.builder.pure(f"{op} {a.typed}, {b.ref}", a.type, max(a.depth, b.depth))


def _in_float32(ctx: Context, dtype: DType, compute: Callable[..., Value], *values: Value) -> Value:
    return narrow(ctx, compute(*[widen(ctx, value, dtype) for value in values]), dtype)


def intrinsic(
    ctx: Context, name: str, result: DType, *args: Value, overload: DType | None = None, flags=""
) -> Value:
    """A call of `llvm.NAME`, overloaded on `overload`, by default the dtype of the result."""
    name = f"llvm.{name}.{mangled(overload or result)}"
    kind = llvm_type(result)
    ctx.module.declare(name, f"{kind} ({', '.join([arg.type for arg in args])})")
    text = f"call {flags}{kind} @{name}({', '.join([arg.typed for arg in args])})"
    return ctx.builder.pure(text, kind, max([arg.depth for arg in args]))


@emits(Min, Max)
def _extremum(ctx: Context, expr) -> Value:
    a, b, dtype = ctx.emit(expr.a), ctx.emit(expr.b), expr.dtype
    known = _folded(expr, a, b)
    if known is not None:
        return known
    least = type(expr) is Min
    if dtype.is_bool:
        return _integer(ctx, "and" if least else "or", a, b)
    if not dtype.is_float:
        return intrinsic(
            ctx, ("s" if dtype.is_signed else "u") + ("min" if least else "max"), dtype, a, b
        )
    if is_half(dtype):
        wide = float32.with_lanes(dtype.lanes)
        return _in_float32(ctx, dtype, lambda x, y: float_extremum(ctx, least, wide, x, y), a, b)
    return float_extremum(ctx, least, dtype, a, b)


def float_extremum(ctx: Context, least: bool, dtype: DType, a: Value, b: Value) -> Value:
    """min or max of floats: NaN if either is; of two zeros, either."""
    return intrinsic(ctx, "minimum" if least else "maximum", dtype, a, b, flags="nsz ")


@emits(FloorDiv, Mod)
def _floor_division(ctx: Context, expr) -> Value:
    a, b, dtype = ctx.emit(expr.a), ctx.emit(expr.b), expr.dtype
    known = _folded(expr, a, b)
    if known is not None:
        return known
    quotient = type(expr) is FloorDiv
    divisor = b.const if dtype.lanes == 1 else _uniform(expr.b)
    if divisor == 0:
        return constant(0, dtype)
    if divisor is not None and divisor > 0:
        if divisor & (divisor - 1) == 0:
            return _shift_or_mask(ctx, quotient, a, divisor, dtype)
        return _divide_by_constant(ctx, expr, a, b, quotient)
    if not dtype.is_signed:
        return _divide_unsigned(ctx, a, b, quotient, dtype)
    return _divide_signed(ctx, a, b, quotient, dtype)


def _uniform(expr: Expr) -> int | None:
    if type(expr) is Broadcast and type(expr.value) is Const:
        return int(expr.value.value)
    return None


def _shift_or_mask(ctx: Context, quotient: bool, a: Value, divisor: int, dtype: DType) -> Value:
    if divisor == 1:
        return a if quotient else constant(0, dtype)
    if quotient:
        shift = "ashr" if dtype.is_signed else "lshr"
        return _integer(ctx, shift, a, constant(divisor.bit_length() - 1, dtype))
    return _integer(ctx, "and", a, constant(divisor - 1, dtype))


def _divide_by_constant(ctx: Context, expr, a: Value, b: Value, quotient: bool) -> Value:
    dtype = expr.dtype
    if not dtype.is_signed or _is_nonnegative(ctx, expr.a):
        return _integer(ctx, "udiv" if quotient else "urem", a, b)
    # The remainder of a truncating division is negative where the floor is one less.
    rest = _integer(ctx, "srem", a, b)
    below = _integer(ctx, "ashr", rest, constant(dtype.bits - 1, dtype))
    if quotient:
        return _integer(ctx, "add", _integer(ctx, "sdiv", a, b), below)
    return _integer(ctx, "add", rest, _integer(ctx, "and", below, b))


def _is_nonnegative(ctx: Context, expr: Expr) -> bool:
    if expr.dtype is not int64:
        return False
    low = bounds(expr, ctx.domain()).lo
    return low is not None and low >= 0


def _divide_unsigned(ctx: Context, a: Value, b: Value, quotient: bool, dtype: DType) -> Value:
    zero = constant(0, dtype)
    is_zero = compare(ctx, "icmp eq", b, zero, dtype)
    safe = choice(ctx, is_zero, constant(1, dtype), b)
    return choice(ctx, is_zero, zero, _integer(ctx, "udiv" if quotient else "urem", a, safe))


def _divide_signed(ctx: Context, a: Value, b: Value, quotient: bool, dtype: DType) -> Value:
    zero, one, all_ones = (constant(number, dtype) for number in (0, 1, -1))
    is_zero = compare(ctx, "icmp eq", b, zero, dtype)
    is_minus_one = compare(ctx, "icmp eq", b, all_ones, dtype)  # the least number by -1 would trap
    safe = choice(ctx, is_zero, one, choice(ctx, is_minus_one, one, b))
    rest = _integer(ctx, "srem", a, safe)
    differs = compare(ctx, "icmp slt", _integer(ctx, "xor", rest, safe), zero, dtype)
    adjust = _integer(ctx, "and", compare(ctx, "icmp ne", rest, zero, dtype), differs)
    if not quotient:
        floor_rest = _integer(ctx, "add", rest, choice(ctx, adjust, safe, zero))
        return choice(ctx, is_zero, zero, floor_rest)
    less = choice(ctx, adjust, all_ones, zero)
    floor = _integer(ctx, "add", _integer(ctx, "sdiv", a, safe), less)
    negated = choice(ctx, is_minus_one, _integer(ctx, "sub", zero, a), floor)
    return choice(ctx, is_zero, zero, negated)


@emits(ShiftLeft, ShiftRight)
def _shift(ctx: Context, expr) -> Value:
    a, b, dtype = ctx.emit(expr.a), ctx.emit(expr.b), expr.dtype
    amount = b.const if dtype.lanes == 1 else _uniform(expr.b)
    left = type(expr) is ShiftLeft
    op = "shl" if left else "ashr" if dtype.is_signed else "lshr"
    if amount is not None and 0 <= amount < dtype.bits:
        if a.const is not None:
            number = a.const << amount if left else a.const >> amount
            return constant(wrap(number, dtype), dtype)
        return _integer(ctx, op, a, b)
    if op == "ashr":  # a shift by all but one bit leaves the sign
        return _integer(
            ctx, op, a, intrinsic(ctx, "umin", dtype, b, constant(dtype.bits - 1, dtype))
        )
    fits = compare(ctx, "icmp ult", b, constant(dtype.bits, dtype), dtype)
    return choice(ctx, fits, _integer(ctx, op, a, b), constant(0, dtype))


_ORDERED = {EQ: "oeq", NE: "une", LT: "olt", LE: "ole", GT: "ogt", GE: "oge"}
_INTEGER = {EQ: "eq", NE: "ne", LT: "lt", LE: "le", GT: "gt", GE: "ge"}


@emits(EQ, NE, LT, LE, GT, GE)
def _compare(ctx: Context, expr) -> Value:
    dtype = expr.a.dtype
    if dtype.lanes > 1 and dtype.scalar is int64 and type(expr) in (LT, LE, GT, GE):
        narrow_lanes = _compare_lane_numbers(ctx, expr)
        if narrow_lanes is not None:
            return narrow_lanes
    a, b = ctx.emit(expr.a), ctx.emit(expr.b)
    known = _folded(expr, a, b)
    if known is not None:
        return known
    if not dtype.is_float:
        sign = "" if type(expr) in (EQ, NE) else "s" if dtype.is_signed else "u"
        return compare(ctx, f"icmp {sign}{_INTEGER[type(expr)]}", a, b, dtype)
    if is_half(dtype):
        a, b = widen(ctx, a, dtype), widen(ctx, b, dtype)
    return compare(ctx, f"fcmp {_ORDERED[type(expr)]}", a, b, dtype)


def compare(ctx: Context, op: str, a: Value, b: Value, dtype: DType) -> Value:
    """A comparison instruction on operands of `dtype`."""
    kind = vector_type("i1", dtype.lanes)
    return ctx.builder.hoist(f"{op} {a.typed}, {b.ref}", kind, max(a.depth, b.depth))


def _compare_lane_numbers(ctx: Context, expr) -> Value | None:
    """`base + lane < bound` in 32 bits: lane numbers against a clamped `bound - base`."""
    room = _room(expr)
    if room is None:
        return None
    lanes, limit = expr.dtype.lanes, _distance(ctx, room)
    cls = room.relation
    if limit.const is not None:
        return _constant_mask([_FOLD[cls](lane, limit.const) for lane in range(lanes)])
    limit = intrinsic(ctx, "smax", int64, limit, constant(-1, int64))
    limit = intrinsic(ctx, "smin", int64, limit, constant(lanes, int64))
    wide = int32.with_lanes(lanes)
    limits = splat(ctx, convert(ctx, limit, int64, int32), wide)
    return compare(ctx, f"icmp s{_INTEGER[cls]}", steps(lanes, 1, "i32"), limits, wide)


@dataclass(frozen=True, slots=True)
class _Room:
    """A comparison of vectors that says `lane relation bound - base`; `wraps` tells a bound that may be anything."""

    bound: Expr
    base: Expr
    relation: type[Compare]
    wraps: bool


def _distance(ctx: Context, room: _Room) -> Value:
    if not room.wraps:
        return ctx.emit(simplify(sub(room.bound, room.base)))
    return intrinsic(ctx, "ssub.sat", int64, ctx.emit(room.bound), ctx.emit(room.base))


@lru_cache(maxsize=4096)
def _room(expr: Compare) -> _Room | None:
    """None where that is not what a comparison says, or where its lanes may wrap."""
    left, right = as_ramp(expr.a), as_ramp(expr.b)
    if left is None or right is None:
        return None
    lane, cls = sub(left[1], right[1]), type(expr)
    base, bound = left[0], right[0]
    if is_const(lane, -1):  # base - lane < bound: lane > base - bound
        base, bound, cls = bound, base, {LT: GT, GT: LT, LE: GE, GE: LE}[cls]
    elif not is_const(lane, 1):
        return None
    if not is_const(left[1], 0) and not is_const(right[1], 0):  # both sides move
        return None if _is_wild(base) or _is_wild(bound) else _Room(bound, base, cls, False)
    moving, steady = (base, bound) if is_const(left[1], 1) or is_const(right[1], 1) else (bound, base)
    return None if _is_wild(moving) else _Room(bound, base, cls, _is_wild(steady))


def _is_wild(expr: Expr) -> bool:
    return any([is_wild(e) for e in walk_expr(expr)])


def _constant_mask(lanes: list[int]) -> Value:
    words = ["true" if lane else "false" for lane in lanes]
    kind = vector_type("i1", len(words))
    if len(set(words)) == 1:
        return Value(f"splat (i1 {words[0]})", kind)
    return Value(f"<{', '.join([f'i1 {word}' for word in words])}>", kind)


@emits(Not)
def _not(ctx: Context, expr: Not) -> Value:
    value = ctx.emit(expr.value)
    if value.const is not None:
        return constant(not value.const, expr.dtype)
    return _integer(ctx, "xor", value, constant(True, expr.dtype))


@emits(Neg)
def _neg(ctx: Context, expr: Neg) -> Value:
    value, dtype = ctx.emit(expr.value), expr.dtype
    if is_half(dtype):
        return _integer(ctx, "xor", value, Value(*_sign_bit(dtype)))
    if dtype.is_float:
        return ctx.builder.pure(f"fneg {value.typed}", value.type, value.depth)
    if value.const is not None:
        return constant(wrap(-value.const, dtype), dtype)
    return _integer(ctx, "sub", constant(0, dtype), value)


def _sign_bit(dtype: DType) -> tuple[str, str]:
    return ("-32768" if dtype.lanes == 1 else "splat (i16 -32768)"), llvm_type(dtype)


@emits(Cast)
def _cast(ctx: Context, expr: Cast) -> Value:
    return convert(ctx, ctx.emit(expr.value), expr.value.dtype, expr.dtype)


@emits(Select)
def _select(ctx: Context, expr: Select) -> Value:
    condition = ctx.emit(expr.condition)
    if condition.const is not None:
        return ctx.emit(expr.true if condition.const else expr.false)
    true, false = ctx.emit(expr.true), ctx.emit(expr.false)
    return choice(ctx, condition, true, false)


def choice(ctx: Context, condition: Value, true: Value, false: Value) -> Value:
    """One of two values, both computed; the condition may be scalar where they are vectors."""
    depth = max(condition.depth, true.depth, false.depth)
    return ctx.builder.hoist(
        f"select {condition.typed}, {true.typed}, {false.typed}", true.type, depth
    )


@emits(IfThenElse)
def _if_then_else(ctx: Context, expr: IfThenElse) -> Value:
    condition = ctx.emit(expr.condition)
    if condition.const is not None:
        return ctx.emit(expr.true if condition.const else expr.false)
    if _is_harmless(expr.true) and _is_harmless(expr.false):
        return choice(ctx, condition, ctx.emit(expr.true), ctx.emit(expr.false))
    return choose(
        ctx, condition, expr.dtype, lambda: ctx.emit(expr.true), lambda: ctx.emit(expr.false)
    )


@lru_cache(maxsize=4096)
def _is_harmless(expr: Expr) -> bool:
    return not any(type(e) is Load for e in walk_expr(expr))


def choose(
    ctx: Context,
    condition: Value,
    dtype: DType,
    true: Callable[[], Value],
    false: Callable[[], Value],
) -> Value:
    """The value of one of two computations, by branches; only the chosen one runs."""
    build, memo = ctx.builder, ctx.memo
    labels = build.label("then"), build.label("else"), build.label("end")
    origin = build.block
    arrivals = []
    for label, compute in zip(labels, (true, false)):
        build.block, ctx.memo = origin, dict(memo)
        build.enter()
        build.start(label)
        value = compute()
        build.leave()
        build.end(f"br label %{labels[2]}")
        arrivals.append(f"[ {value.ref}, %{build.block.label} ]")
    origin.terminator = f"br {condition.typed}, label %{labels[0]}, label %{labels[1]}"
    ctx.memo = memo
    build.start(labels[2])
    kind = llvm_type(dtype)
    return build.emit(f"phi {kind} {', '.join(arrivals)}", kind)
