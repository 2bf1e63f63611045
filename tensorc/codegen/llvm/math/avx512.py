"""Instructions of AVX-512 that serve the functions: `lookup` anything, the others full registers."""

from __future__ import annotations

from collections.abc import Sequence

from tensorc.codegen.llvm.builder import Value
from tensorc.codegen.llvm.context import constant, llvm_type, vector_type
from tensorc.codegen.llvm.math.lanes import Lanes
from tensorc.dtypes import DType, dtype

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


def repaired(result: Lanes, x: Lanes, responses: int) -> Lanes:
    """`result`, but what `responses` say where x is NaN, 0, 1, infinite, below or above 0.

    A digit each, the last for NaN; 0 leaves the result, 1 takes x, 2 and 3 give NaN, 4 and 5 -inf and inf.
    """
    table = constant(responses, dtype(f"int{x.kind.bits}").with_lanes(x.kind.lanes))
    return _masked("fixupimm", result, x.value, table, Value("0", "i32"))


def has_tables(x: Lanes) -> bool:
    """Whether `lookup` serves this machine."""
    return x.ctx.module.target.has("avx512f")


def lookup(table: Sequence[float], index: Lanes) -> Lanes:
    """table[index modulo its length], of as many numbers as one register or two hold.

    Gives floats as wide as the index, a scalar or any number of lanes.
    """
    build, lanes, size = index.ctx.builder, index.kind.lanes, 512 // index.kind.bits
    kind = dtype(f"float{index.kind.bits}").with_lanes(size)
    words = [constant(number, kind.scalar).typed for number in table]
    rows = [f"<{', '.join(words[at : at + size])}>" for at in range(0, len(words), size)]
    places = index.value
    if lanes == 1:
        text = f"insertelement <{size} x {places.type}> poison, {places.typed}, i32 0"
        value = _permuted(index, kind, rows, build.pure(text, vector_type(places.type, size), places.depth))
        text = f"extractelement {value.typed}, i32 0"
        return Lanes(index.ctx, kind.scalar, build.pure(text, llvm_type(kind.scalar), value.depth))
    registers = 1 << ((lanes - 1) // size).bit_length()
    slices = [_slice(index, places, at * size, size, lanes) for at in range(registers)]
    value = _joined(index, [_permuted(index, kind, rows, part) for part in slices])
    return Lanes(index.ctx, kind.scalar.with_lanes(lanes), _slice(index, value, 0, lanes, registers * size))


def _permuted(index: Lanes, kind: DType, rows: list[str], places: Value) -> Value:
    letter = "s" if kind.bits == 32 else "d"
    to = llvm_type(kind)
    arguments = [Value(row, to) for row in rows]
    arguments.insert(1, places)
    name = f"permvar.{letter}f" if len(rows) == 1 else f"vpermi2var.p{letter}"
    symbol = f"llvm.x86.avx512.{name}.512"
    index.ctx.module.declare(symbol, f"{to} ({', '.join([value.type for value in arguments])})")
    text = f"call {to} @{symbol}({', '.join([value.typed for value in arguments])})"
    return index.ctx.builder.pure(text, to, places.depth)


def _masked(name: str, x: Lanes, *operands: Value) -> Lanes:
    """An instruction with all lanes of its mask on, for each register of x."""
    size = min(512 // x.kind.bits, x.kind.lanes)
    parts = [
        _one_register(name, x, [_slice(x, value, start, size, x.kind.lanes) for value in (x.value, *operands)])
        for start in range(0, x.kind.lanes, size)
    ]
    return Lanes(x.ctx, x.kind, _joined(x, parts))


def _one_register(name: str, x: Lanes, values: list[Value]) -> Value:
    result = values[0].type
    lanes = int(result[1:].split(" ", 1)[0])
    if name != "fixupimm":  # the others have a first operand of their own for lanes that are off
        values = [*values, values[0]]
    arguments = [*values, Value("-1", f"i{max(8, lanes)}")]
    width = x.kind.bits * lanes
    if width == 512:
        arguments.append(Value("4", "i32"))  # rounds as the processor is set to
    symbol = f"llvm.x86.avx512.mask.{name}.{'ps' if x.kind.bits == 32 else 'pd'}.{width}"
    x.ctx.module.declare(symbol, f"{result} ({', '.join([value.type for value in arguments])})")
    text = f"call {result} @{symbol}({', '.join([value.typed for value in arguments])})"
    return x.ctx.builder.pure(text, result, max([value.depth for value in arguments]))


def _slice(x: Lanes, value: Value, start: int, size: int, lanes: int) -> Value:
    """`size` elements of a vector of `lanes` from `start` on, those past its end of no value."""
    if size == lanes or not value.type.startswith("<"):
        return value
    kind = vector_type(value.type.split(" x ")[1][:-1], size)
    if value.ref.startswith("splat"):
        return Value(value.ref, kind)
    numbers = ", ".join([f"i32 {at if at < lanes else 'poison'}" for at in range(start, start + size)])
    text = f"shufflevector {value.typed}, {value.type} poison, <{size} x i32> <{numbers}>"
    return x.ctx.builder.pure(text, kind, value.depth)


def _joined(x: Lanes, parts: list[Value]) -> Value:
    while len(parts) > 1:
        parts = [_join(x, a, b) for a, b in zip(parts[::2], parts[1::2])]
    return parts[0]


def _join(x: Lanes, a: Value, b: Value) -> Value:
    element = a.type.split(" x ")[1][:-1]
    size = 2 * int(a.type[1:].split(" ", 1)[0])
    lanes = ", ".join([f"i32 {lane}" for lane in range(size)])
    text = f"shufflevector {a.typed}, {b.typed}, <{size} x i32> <{lanes}>"
    return x.ctx.builder.pure(text, vector_type(element, size), max(a.depth, b.depth))
