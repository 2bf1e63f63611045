"""Rounding, signs, classification, bits of integers, division toward zero."""

from __future__ import annotations

import math

from tensorc.codegen.llvm.context import constant
from tensorc.codegen.llvm.convert import convert
from tensorc.codegen.llvm.expr import intrinsic
from tensorc.codegen.llvm.math.lanes import Lanes, split, two_product, two_sum, where
from tensorc.codegen.llvm.math.table import implements
from tensorc.dtypes import bool_, float32


@implements("sqrt")
def _sqrt(x: Lanes) -> Lanes:
    return x.sqrt()


@implements("rsqrt")
def _rsqrt(x: Lanes) -> Lanes:
    return 1.0 / x.sqrt()


@implements("copysign")
def _copysign(x: Lanes, sign: Lanes) -> Lanes:
    return x.copysign(sign)


@implements("abs")
def _abs(x: Lanes) -> Lanes:
    if x.kind.is_float:
        return x.abs()
    if not x.kind.is_signed:
        return x
    no_poison = constant(False, bool_)
    return Lanes(x.ctx, x.kind, intrinsic(x.ctx, "abs", x.kind, x.value, no_poison, overload=x.kind))


def _has_rounding(x: Lanes) -> bool:
    target = x.ctx.module.target
    return target.has("sse4.1") or not target.triple.startswith("x86_64")


@implements("round", "nearbyint")
def rounded(x: Lanes) -> Lanes:
    """The nearest whole number, of two the even one."""
    if _has_rounding(x):
        return x.call("rint")
    whole = 2.0 ** (23 if x.kind.bits == 32 else 52)  # from here on there are no fractions
    size = x.abs()
    return where(size < whole, ((size + whole) - whole).copysign(x), x)


@implements("floor")
def floor(x: Lanes) -> Lanes:
    """The greatest whole number that is not more."""
    if _has_rounding(x):
        return x.call("floor")
    near = rounded(x)
    return where(near > x, near - 1.0, near)


@implements("ceil")
def _ceil(x: Lanes) -> Lanes:
    return x.call("ceil") if _has_rounding(x) else -floor(-x)


@implements("trunc")
def trunc(x: Lanes) -> Lanes:
    """The whole part."""
    return x.call("trunc") if _has_rounding(x) else floor(x.abs()).copysign(x)


@implements("isnan")
def _isnan(x: Lanes) -> Lanes:
    return x.is_nan()


@implements("isinf")
def _isinf(x: Lanes) -> Lanes:
    return x.abs().equals(math.inf)


@implements("isfinite")
def _isfinite(x: Lanes) -> Lanes:
    return x.abs() < math.inf


@implements("nextafter")
def _nextafter(x: Lanes, toward: Lanes) -> Lanes:
    bits, sign = x.bits(), 1 << (x.kind.bits - 1)
    # The bits of positive numbers count up, those of negative ones down.
    a, b = _comparable(x), _comparable(toward)
    away = (b > a) ^ (bits < 0)
    stepped = where(away, bits + 1, bits - 1)
    moved = where(a.equals(0.0), toward.bits() & sign | 1, stepped)
    quiet = bits.literal(_QUIET[x.kind.scalar.name])
    result = where(a.is_nan() | b.is_nan(), quiet, where(a.equals(b), toward.bits(), moved))
    return result if x.kind.bits == 16 else result.as_float()


_QUIET = {"float16": 0x7E00, "bfloat16": 0x7FC0, "float32": 0x7FC00000, "float64": 0x7FF8 << 48}


def _comparable(x: Lanes) -> Lanes:
    if x.kind.bits != 16:
        return x
    wide = float32.with_lanes(x.kind.lanes)
    return Lanes(x.ctx, wide, convert(x.ctx, x.value, x.kind, wide))


@implements("popcount")
def _popcount(x: Lanes) -> Lanes:
    return x.call("ctpop")


@implements("clz")
def _clz(x: Lanes) -> Lanes:
    defined = constant(False, bool_)  # of 0: all bits
    return Lanes(x.ctx, x.kind, intrinsic(x.ctx, "ctlz", x.kind, x.value, defined, overload=x.kind))


@implements("float_bits")
def _float_bits(x: Lanes) -> Lanes:
    return x.bits().unsigned()


@implements("bits_float")
def _bits_float(x: Lanes) -> Lanes:
    return x if x.kind.bits == 16 else x.as_float()


@implements("truncdiv")
def _truncdiv(a: Lanes, b: Lanes) -> Lanes:
    return _toward_zero(a, b, "div", -a if a.kind.is_signed else a)


@implements("truncmod")
def _truncmod(a: Lanes, b: Lanes) -> Lanes:
    return _toward_zero(a, b, "rem", a.literal(0))


def _toward_zero(a: Lanes, b: Lanes, op: str, by_minus_one: Lanes) -> Lanes:
    """0 where b is 0; the least number by -1 would trap."""
    is_zero = b.equals(0)
    if not a.kind.is_signed:
        return where(is_zero, 0, a._op(f"u{op}", where(is_zero, 1, b)))
    is_minus_one = b.equals(-1)
    result = a._op(f"s{op}", where(is_zero | is_minus_one, 1, b))
    return where(is_zero, 0, where(is_minus_one, by_minus_one, result))


@implements("fma")
def _fma(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
    """a * b + c rounded once, also where the machine has no such instruction."""
    if a.ctx.module.target.fma:
        return a.fma(b, c)
    if a.kind.bits == 32:
        wide = a.to("float64") * b.to("float64")  # exact
        total, rest = two_sum(wide, c.to("float64"))
        return _to_odd(total, rest).to("float32")
    return _fma_of_float64(a, b, c)


def _to_odd(total: Lanes, rest: Lanes) -> Lanes:
    """total + rest, where it is not exact rounded to the neighbour with an odd last bit.

    Rounded again to fewer bits, that gives the nearest to the exact sum (Boldo, Melquiond 2008).
    """
    bits = total.bits()
    inexact = rest.differs(0.0) & (rest.abs() < math.inf) & (bits & 1).equals(0)
    away = (rest > 0.0) ^ (bits < 0)
    return where(inexact, where(away, bits + 1, bits - 1), bits).as_float()


def _fma_of_float64(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
    """By products and sums of pairs; exact unless a product or a result leaves the normal range."""
    high, low = two_product(a, b)
    first, rest = two_sum(c, low)
    total, more = two_sum(high, first)
    odd = _to_odd(*two_sum(rest, more))
    plain = a * b + c
    fits = (split(a)[0].abs() < math.inf) & (split(b)[0].abs() < math.inf) & (total.abs() < math.inf)
    return where(fits, total + odd, plain)
