"""Casts. 16-bit floats are bits in an integer register, converted without helper routines."""

from __future__ import annotations

from tensorc.codegen.llvm.builder import Value
from tensorc.codegen.llvm.context import Context, constant, llvm_type, mangled
from tensorc.dtypes import DType, dtype, float32, float64

HALVES = ("float16", "bfloat16")


def is_half(of: DType) -> bool:
    """Whether a type is stored in 16 bits and computed in float32."""
    return of.is_float and of.bits == 16


def convert(ctx: Context, value: Value, source: DType, target: DType) -> Value:
    """A cast as docs/ir.md says: integers wrap, floats saturate to integers, bools ask != 0."""
    if source is target:
        return value
    if value.const is not None and source.lanes == 1 and not target.is_float:
        return constant(_fold(value.const, target), target)
    if is_half(source):
        return convert(ctx, widen(ctx, value, source), float32.with_lanes(source.lanes), target)
    if is_half(target):
        return _to_half(ctx, value, source, target)
    if target.is_bool:
        return _to_bool(ctx, value, source)
    if source.is_float:
        return _from_float(ctx, value, source, target)
    if target.is_float:
        op = "sitofp" if source.is_signed else "uitofp"
    elif source.is_bool:
        op = "zext"
    elif target.bits == source.bits:
        return value
    else:
        op = "trunc" if target.bits < source.bits else "sext" if source.is_signed else "zext"
    return _cast(ctx, op, value, llvm_type(target))


def _cast(ctx: Context, op: str, value: Value, to: str) -> Value:
    return ctx.builder.pure(f"{op} {value.typed} to {to}", to, value.depth)


def _fold(number: int, target: DType) -> int:
    if target.is_bool:
        return int(number != 0)
    number &= (1 << target.bits) - 1
    return (
        number - (1 << target.bits) if target.is_signed and number >> (target.bits - 1) else number
    )


def _to_bool(ctx: Context, value: Value, source: DType) -> Value:
    compare = "fcmp une" if source.is_float else "icmp ne"
    text = f"{compare} {value.typed}, zeroinitializer"
    return ctx.builder.pure(text, llvm_type(dtype("bool").with_lanes(source.lanes)), value.depth)


def _from_float(ctx: Context, value: Value, source: DType, target: DType) -> Value:
    to = llvm_type(target)
    if target.is_float:
        return _cast(ctx, "fpext" if target.bits > source.bits else "fptrunc", value, to)
    if source.lanes > 1:
        return _saturated(ctx, value, source, target)
    kind = "fptosi" if target.is_signed else "fptoui"
    name = f"llvm.{kind}.sat.{mangled(target)}.{mangled(source)}"
    ctx.module.declare(name, f"{to} ({llvm_type(source)})")
    return ctx.builder.pure(f"call {to} @{name}({value.typed})", to, value.depth)


def _saturated(ctx: Context, value: Value, source: DType, target: DType) -> Value:
    """Integers from a vector of floats: NaN to 0, the rest to the nearest there is. LLVM would take lane by lane."""
    build = ctx.builder
    condition = llvm_type(dtype("bool").with_lanes(source.lanes))
    via = target if target.bits >= 32 else dtype("int32").with_lanes(source.lanes)

    def choose(test: str, than: Value, x: Value, other: Value) -> Value:
        holds = build.pure(f"fcmp {test} {value.typed}, {than.ref}", condition, value.depth)
        depth = max(holds.depth, x.depth)
        return build.pure(f"select {holds.typed}, {x.typed}, {other.typed}", x.type, depth)

    low, high = int(target.scalar.min), int(target.scalar.max)
    value = choose("ord", value, value, constant(0.0, source))
    least = constant(float(low), source)
    value = choose("ogt", least, value, least)
    is_exact = high.bit_length() <= (24 if source.bits == 32 else 53)
    past = constant(float(high if is_exact else high + 1), source)
    if is_exact:
        value = choose("olt", past, value, past)
    whole = _cast(ctx, "fptosi" if via.is_signed else "fptoui", value, llvm_type(via))
    if not is_exact:
        whole = choose("olt", past, whole, constant(high, via))
    return whole if via is target else _cast(ctx, "trunc", whole, llvm_type(target))


def _to_half(ctx: Context, value: Value, source: DType, target: DType) -> Value:
    single = float32.with_lanes(source.lanes)
    if source.is_float and source.bits == 64:
        value = _round_to_odd(ctx, value, source)
    else:
        value = convert(ctx, value, source, single)
    return narrow(ctx, value, target)


def widen(ctx: Context, value: Value, source: DType) -> Value:
    """float32 from the bits of a float16 or bfloat16."""
    bits = _Bits(ctx, source.lanes)
    if source.kind == "bfloat":
        return bits.as_float(bits.op("shl", bits.extend(value), 16))
    if _has_half_conversion(ctx):
        half = llvm_type(source).replace("i16", "half")
        return _cast(ctx, "fpext", _cast(ctx, "bitcast", value, half), bits.float)
    return _half_to_float(bits, value)


def narrow(ctx: Context, value: Value, target: DType) -> Value:
    """The bits of a float16 or bfloat16 from float32, rounded to nearest even."""
    bits = _Bits(ctx, target.lanes)
    if target.kind == "bfloat":
        return _float_to_bfloat(bits, value)
    if not _has_half_conversion(ctx):
        return _float_to_half(bits, value)
    if target.lanes == 1 and "f16c" in ctx.module.target.enabled:
        return _by_instruction(ctx, value)
    half = llvm_type(target).replace("i16", "half")
    return _cast(ctx, "bitcast", _cast(ctx, "fptrunc", value, half), llvm_type(target))


def _by_instruction(ctx: Context, value: Value) -> Value:
    """The bits of a float16 from one float32 by x86's instruction by name: from `fptrunc` LLVM takes the
    sign of a copysign in float64, whose conversion would be a call of a library that is not there."""
    build, name = ctx.builder, "llvm.x86.vcvtps2ph.128"
    ctx.module.declare(name, "<8 x i16> (<4 x float>, i32)")
    put = f"insertelement <4 x float> zeroinitializer, {value.typed}, i64 0"
    lanes = build.pure(put, "<4 x float>", value.depth)
    halves = build.pure(f"call <8 x i16> @{name}({lanes.typed}, i32 0)", "<8 x i16>", value.depth)
    return build.pure(f"extractelement {halves.typed}, i64 0", "i16", value.depth)


def _has_half_conversion(ctx: Context) -> bool:
    return not ctx.module.target.enabled.isdisjoint(("f16c", "avx512f", "neon", "zvfh"))


class _Bits:
    """Arithmetic on the 32-bit patterns of float32 values, lane by lane."""

    def __init__(self, ctx: Context, lanes: int):
        self.ctx = ctx
        self.uint = dtype("uint32").with_lanes(lanes)
        self.int, self.float = llvm_type(self.uint), llvm_type(float32.with_lanes(lanes))
        self.short = llvm_type(dtype("uint16").with_lanes(lanes))
        self.bool = llvm_type(dtype("bool").with_lanes(lanes))

    def literal(self, value: int | Value) -> Value:
        return constant(value, self.uint) if isinstance(value, int) else value

    def op(self, name: str, a: int | Value, b: int | Value) -> Value:
        a, b = self.literal(a), self.literal(b)
        return self.ctx.builder.pure(f"{name} {a.typed}, {b.ref}", self.int, max(a.depth, b.depth))

    def compare(self, predicate: str, a: Value, b: int) -> Value:
        text = f"icmp {predicate} {a.typed}, {self.literal(b).ref}"
        return self.ctx.builder.pure(text, self.bool, a.depth)

    def select(self, condition: Value, a: int | Value, b: int | Value) -> Value:
        a, b = self.literal(a), self.literal(b)
        depth = max(condition.depth, a.depth, b.depth)
        return self.ctx.builder.pure(
            f"select {condition.typed}, {a.typed}, {b.typed}", self.int, depth
        )

    def extend(self, value: Value) -> Value:
        return _cast(self.ctx, "zext", value, self.int)

    def truncate(self, value: Value) -> Value:
        return _cast(self.ctx, "trunc", value, self.short)

    def as_float(self, value: Value) -> Value:
        return _cast(self.ctx, "bitcast", value, self.float)

    def as_int(self, value: Value) -> Value:
        return _cast(self.ctx, "bitcast", value, self.int)

    def float_op(self, name: str, a: Value, b: Value) -> Value:
        return self.ctx.builder.pure(
            f"{name} {a.typed}, {b.ref}", self.float, max(a.depth, b.depth)
        )


def _float_to_bfloat(bits: _Bits, value: Value) -> Value:
    # vcvtneps2bf16 would flush subnormal numbers: the rounding is integer arithmetic everywhere.
    x = bits.as_int(value)
    odd = bits.op("and", bits.op("lshr", x, 16), 1)
    rounded = bits.op("lshr", bits.op("add", x, bits.op("add", odd, 0x7FFF)), 16)
    quiet = bits.op("or", bits.op("lshr", x, 16), 0x40)
    is_nan = bits.compare("ugt", bits.op("and", x, 0x7FFFFFFF), 0x7F800000)
    return bits.truncate(bits.select(is_nan, quiet, rounded))


def _half_to_float(bits: _Bits, value: Value) -> Value:
    h = bits.extend(value)
    sign = bits.op("shl", bits.op("and", h, 0x8000), 16)
    magnitude = bits.op("shl", bits.op("and", h, 0x7FFF), 13)
    exponent = bits.op("and", magnitude, 0x0F800000)
    normal = bits.op("add", magnitude, (127 - 15) << 23)
    special = bits.op("add", magnitude, (255 - 31) << 23)  # infinities and NaNs
    # A subnormal m * 2^-24 is (2^-14 + m * 2^-24) - 2^-14, exact in float32.
    smallest = bits.as_float(bits.literal(113 << 23))
    shifted = bits.as_float(bits.op("add", magnitude, 113 << 23))
    subnormal = bits.as_int(bits.float_op("fsub", shifted, smallest))
    finite = bits.select(bits.compare("eq", exponent, 0), subnormal, normal)
    result = bits.select(bits.compare("eq", exponent, 0x0F800000), special, finite)
    return bits.as_float(bits.op("or", result, sign))


def _float_to_half(bits: _Bits, value: Value) -> Value:
    x = bits.as_int(value)
    sign = bits.op("and", bits.op("lshr", x, 16), 0x8000)
    magnitude = bits.op("and", x, 0x7FFFFFFF)
    odd = bits.op("and", bits.op("lshr", magnitude, 13), 1)
    rebased = bits.op(
        "sub", bits.op("add", magnitude, bits.op("add", odd, 0xFFF)), (127 - 15) << 23
    )
    normal = bits.op("lshr", rebased, 13)
    # Adding 0.5 puts a number below 2^-14 in the low bits of the sum, rounded as a subnormal.
    half = bits.literal(0x3F000000)
    shifted = bits.float_op("fadd", bits.as_float(magnitude), bits.as_float(half))
    subnormal = bits.op("sub", bits.as_int(shifted), half)
    nan = bits.op("or", bits.op("lshr", bits.op("and", magnitude, 0x7FFFFF), 13), 0x7E00)
    result = bits.select(bits.compare("ult", magnitude, 113 << 23), subnormal, normal)
    result = bits.select(bits.compare("uge", magnitude, 0x477FF000), 0x7C00, result)
    result = bits.select(bits.compare("ugt", magnitude, 0x7F800000), nan, result)
    return bits.truncate(bits.op("or", result, sign))


def _round_to_odd(ctx: Context, value: Value, source: DType) -> Value:
    """float32 from float64, truncated with a sticky last bit: rounded once more, it is right."""
    bits, build = _Bits(ctx, source.lanes), ctx.builder
    wide = llvm_type(float64.with_lanes(source.lanes))
    nearest = _cast(ctx, "fptrunc", value, bits.float)
    back = _cast(ctx, "fpext", nearest, wide)
    name = f"llvm.fabs.{mangled(source)}"
    ctx.module.declare(name, f"{wide} ({wide})")
    exact = build.pure(f"fcmp ueq {value.typed}, {back.ref}", bits.bool, value.depth)
    size = build.pure(f"call {wide} @{name}({value.typed})", wide, value.depth)
    reached = build.pure(f"call {wide} @{name}({back.typed})", wide, value.depth)
    over = build.pure(f"fcmp ogt {reached.typed}, {size.ref}", bits.bool, value.depth)
    x = bits.as_int(nearest)
    toward_zero = bits.select(over, bits.op("sub", x, 1), x)
    return bits.as_float(bits.select(exact, x, bits.op("or", toward_zero, 1)))
