"""Instructions of AVX-512 that serve the functions, for vectors that fill registers."""

from __future__ import annotations

from tensorc.codegen.llvm.builder import Value
from tensorc.codegen.llvm.context import vector_type
from tensorc.codegen.llvm.math.lanes import Lanes

_INTERVAL = Value("11", "i32")  # of mantissas: 3/4 .. 3/2, and NaN for negative numbers


def has_instructions(x: Lanes) -> bool:
    """Whether the instructions here take such a vector on this machine."""
    width = x.kind.bits * x.kind.lanes
    fills = width in (128, 256, 512, 1024, 2048)
    return fills and x.kind.bits >= 32 and x.ctx.module.target.has("avx512vl")


def scale(x: Lanes, exponent: Lanes) -> Lanes:
    """x * 2^floor(exponent) with one rounding."""
    return _masked("scalef", x, exponent.value)


def exponent(x: Lanes) -> Lanes:
    """floor(log2 |x|) as a float, -inf for 0, also of subnormal numbers."""
    return _masked("getexp", x)


def mantissa(x: Lanes) -> Lanes:
    """x over the power of two that brings it to 3/4 .. 3/2; 1 for 0 and infinity, NaN below 0."""
    return _masked("getmant", x, _INTERVAL)


def _masked(name: str, x: Lanes, *operands: Value) -> Lanes:
    """An instruction with all lanes of its mask on, for each register of x."""
    size = min(512 // x.kind.bits, x.kind.lanes)
    parts = [
        _one_register(name, x, [_slice(x, value, start, size) for value in (x.value, *operands)])
        for start in range(0, x.kind.lanes, size)
    ]
    while len(parts) > 1:
        parts = [_join(x, a, b) for a, b in zip(parts[::2], parts[1::2])]
    return Lanes(x.ctx, x.kind, parts[0])


def _one_register(name: str, x: Lanes, values: list[Value]) -> Value:
    result = values[0].type
    lanes = int(result[1:].split(" ", 1)[0])
    arguments = [*values, values[0], Value("-1", f"i{max(8, lanes)}")]
    width = x.kind.bits * lanes
    if width == 512:
        arguments.append(Value("4", "i32"))  # rounds as the processor is set to
    symbol = f"llvm.x86.avx512.mask.{name}.{'ps' if x.kind.bits == 32 else 'pd'}.{width}"
    x.ctx.module.declare(symbol, f"{result} ({', '.join([value.type for value in arguments])})")
    text = f"call {result} @{symbol}({', '.join([value.typed for value in arguments])})"
    return x.ctx.builder.pure(text, result, max([value.depth for value in arguments]))


def _slice(x: Lanes, value: Value, start: int, size: int) -> Value:
    if size == x.kind.lanes or not value.type.startswith("<"):
        return value
    lanes = ", ".join([f"i32 {start + lane}" for lane in range(size)])
    text = f"shufflevector {value.typed}, {value.type} poison, <{size} x i32> <{lanes}>"
    kind = vector_type(value.type.split(" x ")[1][:-1], size)
    return x.ctx.builder.pure(text, kind, value.depth)


def _join(x: Lanes, a: Value, b: Value) -> Value:
    element = a.type.split(" x ")[1][:-1]
    size = 2 * int(a.type[1:].split(" ", 1)[0])
    lanes = ", ".join([f"i32 {lane}" for lane in range(size)])
    text = f"shufflevector {a.typed}, {b.typed}, <{size} x i32> <{lanes}>"
    return x.ctx.builder.pure(text, vector_type(element, size), max(a.depth, b.depth))
