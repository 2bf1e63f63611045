"""Instructions of AVX-512 that serve the functions, for vectors that fill a register."""

from __future__ import annotations

from tensorc.codegen.llvm.builder import Value
from tensorc.codegen.llvm.math.lanes import Lanes


def has_instructions(x: Lanes) -> bool:
    """Whether the instructions here take such a vector on this machine."""
    width = x.kind.bits * x.kind.lanes
    return width in (128, 256, 512) and x.kind.bits >= 32 and x.ctx.module.target.has("avx512vl")


def scale(x: Lanes, exponent: Lanes) -> Lanes:
    """x * 2^floor(exponent) with one rounding."""
    return _masked("mask.scalef", x, exponent.value, x.value)


def exponent(x: Lanes) -> Lanes:
    """floor(log2 |x|) as a float, -inf for 0, also of subnormal numbers."""
    return _masked("mask.getexp", x, x.value)


def mantissa(x: Lanes) -> Lanes:
    """x over the power of two that brings it to 3/4 .. 3/2; 1 for 0 and infinity, NaN below 0."""
    return _masked("mask.getmant", x, Value("11", "i32"), x.value)


def _masked(name: str, x: Lanes, *operands: Value) -> Lanes:
    """An instruction with all lanes of its mask on."""
    width, build = x.kind.bits * x.kind.lanes, x.ctx.builder
    arguments = [x.value, *operands, Value("-1", f"i{max(8, x.kind.lanes)}")]
    if width == 512:
        arguments.append(Value("4", "i32"))  # rounds as the processor is set to
    result = x.value.type
    symbol = f"llvm.x86.avx512.{name}.{'ps' if x.kind.bits == 32 else 'pd'}.{width}"
    x.ctx.module.declare(symbol, f"{result} ({', '.join([value.type for value in arguments])})")
    text = f"call {result} @{symbol}({', '.join([value.typed for value in arguments])})"
    depth = max([value.depth for value in arguments])
    return Lanes(x.ctx, x.kind, build.pure(text, result, depth))
