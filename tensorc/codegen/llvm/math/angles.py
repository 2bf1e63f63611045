"""Angles brought near 0: x = k pi/2 + r with |r| <= pi/4 or a little more.

Where |x| is moderate, k times pi/2 is subtracted in parts (Cody and Waite 1980), in float32 by three
fused operations or else in float64. For greater |x|, in a branch, x times 2/pi is computed modulo 4
with as many bits of 2/pi as matter (Payne and Hanek 1983), by exact products of floats.
"""

from __future__ import annotations

import struct
from functools import cache

from tensorc.codegen.llvm.context import llvm_type, mangled
from tensorc.codegen.llvm.math.basic import rounded
from tensorc.codegen.llvm.math.lanes import (
    Lanes,
    fast_two_sum,
    nearest,
    power_of_two,
    rarely,
    two_product,
    two_sum,
    where,
)
from tensorc.dtypes import float64

_TWO_OVER_PI = 0.6366197723675814
_PI_2 = (1.5707963267948966, 6.123233995736766e-17)
# All positive: an x of -0 keeps its sign.
_PI_2_FLOAT32 = (1.570796251296997, 7.549789415861596e-08, 5.390302529957765e-15)
# Parts of 33 bits: their products with a k of 20 bits are exact.
_PI_2_PARTS = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487111665e-21, 8.4784276603689e-32)
_MODERATE = {32: 1e5, 64: 1.5e6}


def _two_over_pi(bits: int) -> int:
    """floor(2/pi * 2^bits), pi by Machin's formula."""
    guard = bits + 32

    def arctangent_of_inverse(n: int) -> int:
        term = total = (1 << guard) // n
        sign, k = -1, 3
        while term:
            term //= n * n
            total += sign * (term // k)
            sign, k = -sign, k + 2
        return total

    pi = 4 * (4 * arctangent_of_inverse(5) - arctangent_of_inverse(239))
    return (2 << (guard + bits)) // pi


_BITS = 1408  # of 2/pi after the point, enough for the greatest float64 and 256 more


@cache
def _chunks(count: int, width: int) -> tuple[float, ...]:
    """2/pi as a sum of numbers of `width` bits each, the greatest first."""
    digits = _two_over_pi(count * width)
    ends = [width * (i + 1) for i in range(count)]
    return tuple([(digits >> (count * width - end)) % (1 << width) * 2.0**-end for end in ends])


def reduce_angle(x: Lanes) -> tuple[Lanes, Lanes, Lanes]:
    """(r, rest, k) with x = k pi/2 + r + rest, k modulo 4 as an int32; `rest` only in float64."""
    big = x.abs() > _MODERATE[x.kind.bits]
    usual, unusual = (
        (_reduce_float32, _reduce_big_float32) if x.kind.bits == 32 else (_reduce_float64, _reduce_big_float64)
    )

    def both() -> tuple[Lanes, ...]:
        return tuple([where(big, a, b) for a, b in zip(unusual(x), usual(x))])

    parts = rarely(big, both, lambda: usual(x))
    return parts if len(parts) == 3 else (parts[0], parts[0].literal(0.0), parts[1])


def _reduce_float32(x: Lanes) -> tuple[Lanes, ...]:
    if not x.ctx.module.target.fma:
        wide = x.to("float64")
        n, k = nearest(wide, _TWO_OVER_PI)
        r = wide - n * _PI_2_PARTS[0] - n * (_PI_2[0] - _PI_2_PARTS[0] + _PI_2[1])
        return r.to("float32"), k.to("int32")
    n, k = nearest(x, _TWO_OVER_PI)
    for part in _PI_2_FLOAT32:
        x = n.fma(-part, x)
    return x, k


def _reduce_float64(x: Lanes) -> tuple[Lanes, ...]:
    n, k = nearest(x, _TWO_OVER_PI)
    first, second, third, fourth = _PI_2_PARTS
    high, low = two_sum(x - n * first, n * -second)
    high, rest = two_sum(high, n * -third)
    low = low + (rest - n * fourth)
    return *fast_two_sum(high, low), k.to("int32")


def _modulo_4(x: Lanes) -> Lanes:
    """x less a multiple of 4, at most 2 in magnitude; exact."""
    return x - rounded(x * 0.25) * 4.0


def _exact_sum(terms: list[Lanes]) -> tuple[Lanes, Lanes, Lanes]:
    """(r, rest, k): the sum is k + r + rest with |r| <= 1/2, k modulo 4.

    Errors are carried along twice, so that little is lost to cancellation (Ogita, Rump, Oishi 2005).
    """
    total, *terms = _carried(terms)
    n, k = nearest(total)
    total, *terms = _carried([total - n, *terms])
    rest = terms[0]
    for term in terms[1:]:
        rest = rest + term
    return *fast_two_sum(total, rest), k.to("int32")


def _carried(terms: list[Lanes]) -> list[Lanes]:
    total, errors = terms[0], []
    for term in terms[1:]:
        total, error = two_sum(total, term)
        errors.append(error)
    return [total, *errors]


def _reduce_big_float32(x: Lanes) -> tuple[Lanes, ...]:
    wide = x.to("float64")
    r, _, k = _exact_sum([_modulo_4(wide * chunk) for chunk in _chunks(7, 28)])
    return (r * _PI_2[0]).to("float32"), k


def _reduce_big_float64(x: Lanes) -> tuple[Lanes, ...]:
    # 2^(16 row) is taken from x, of which then 2^-52 is a unit, and multiplies 2/pi in the table.
    row = (((x.bits() >> 52) & 2047) - 1023) >> 4
    row = where(row < 0, row.literal(0), where(row > 63, row.literal(63), row))
    x = x * power_of_two(-(row << 4))
    products = [two_product(x, part) for part in _table_row(row)]
    (high0, low0), (high1, low1), (high2, low2), (high3, _) = products
    terms = [_modulo_4(high0), _modulo_4(low0), _modulo_4(high1), low1, high2, low2, high3]
    r, rest, k = _exact_sum(terms)
    high, low = two_product(r, _PI_2[0])
    return *fast_two_sum(high, low + (r * _PI_2[1] + rest * _PI_2[0])), k


@cache
def _table() -> str:
    """2/pi * 2^(16 row) modulo 2^54 as four floats, for each of 64 rows."""
    digits = _two_over_pi(_BITS)
    rows = [_as_floats((digits << 16 * row) % (1 << (_BITS + 54))) for row in range(64)]
    bits = [struct.unpack("<Q", struct.pack("<d", value))[0] for row in rows for value in row]
    words = ", ".join([f"double 0x{word:016X}" for word in bits])
    return f"{_TABLE} = private unnamed_addr constant [{len(bits)} x double] [{words}], align 64"


def _as_floats(fixed: int) -> list[float]:
    """A number of _BITS bits after the point as a sum of four floats."""
    parts = []
    for _ in range(4):
        drop = max(0, fixed.bit_length() - 53)
        part = fixed >> drop
        parts.append(part * 2.0 ** (drop - _BITS))
        fixed -= part << drop
    return parts


_TABLE = "@two_over_pi"


def _table_row(row: Lanes) -> list[Lanes]:
    """The four floats of a row of the table, for each lane."""
    ctx, lanes = row.ctx, row.kind.lanes
    if _table() not in ctx.module.constants:
        ctx.module.constants.append(_table())
    build, wide = ctx.builder, float64.with_lanes(lanes)
    to = llvm_type(wide)
    places = "ptr" if lanes == 1 else f"<{lanes} x ptr>"
    parts = []
    for part in range(4):
        at = (row << 2) + part
        address = build.pure(f"getelementptr double, ptr {_TABLE}, {at.value.typed}", places, at.value.depth)
        if lanes == 1:
            text = f"load double, ptr {address.ref}, align 8"
        else:
            gather = f"llvm.masked.gather.{mangled(wide)}.v{lanes}p0"
            mask = f"<{lanes} x i1>"
            ctx.module.declare(gather, f"{to} ({places}, {mask}, {to})")  # as loads do
            pointers = f"{places} align 8 {address.ref}"
            text = f"call {to} @{gather}({pointers}, {mask} splat (i1 true), {to} poison)"
        parts.append(Lanes(ctx, wide, build.pure(text, to, address.depth)))
    return parts
