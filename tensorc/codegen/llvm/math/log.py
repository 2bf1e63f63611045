"""Logarithms: x = 2^k (1 + f) with 3/4 <= 1 + f < 3/2, log x = k ln 2 + log(1 + f).

float32: log(1 + f) = f - f^2/2 + f^3 p(f), relative error 2^-27.3; with AVX-512 f + f^2 q(f) where q is
one of 16 cubics, whose coefficients registers hold, relative error 2^-26.9.
float64: with s = f / (2 + f), log(1 + f) = 2 s + s^3 p(s^2), relative error 2^-55.9; in the form
f - (f^2/2 - s (f^2/2 + s^2 p)) no rounding of s matters. Both p are minimax polynomials found by
Remez' exchange in 50 digits.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from tensorc.codegen.llvm.math import avx512
from tensorc.codegen.llvm.math.exp import LN2, LOG10_2, exp
from tensorc.codegen.llvm.math.lanes import (
    Lanes,
    float_of,
    polynomial,
    power_of_two,
    two_sum,
    where,
)
from tensorc.codegen.llvm.math.table import implements

_TERMS = {
    32: (
        0.3333345055580139,
        -0.25000065565109253,
        0.19990688562393188,
        -0.1664847731590271,
        0.14484043419361115,
        -0.13153240084648132,
        0.10405580699443817,
        -0.044475626200437546,
    ),
    64: (
        0.6666666666667271,
        0.39999999996159863,
        0.2857142939563274,
        0.22222138472691214,
        0.18186357278237547,
        0.15250163954821086,
        0.15368385433657636,
    ),
}
# 1 / log(base) in two parts.
_LOG2_E = {32: (1.4426950216293335, 1.925963033500011e-08), 64: (1.4426950408889634, 2.0355273740931033e-17)}
_LOG10_E = {32: (0.4342944920063019, -1.0103049952192578e-08), 64: (0.4342944819032518, 1.098319650216765e-17)}


def log_parts(x: Lanes) -> tuple[Lanes, Lanes]:
    """(m, n) with x = 2^n m, n whole, for positive finite x, subnormals included."""
    if avx512.has_instructions(x):
        m = avx512.mantissa(x)
        return m, avx512.exponent(x) - avx512.exponent(m)
    shift = 23.0 if x.kind.bits == 32 else 54.0
    tiny = x < (2.0**-126 if x.kind.bits == 32 else 2.0**-1022)
    m, k = _normal_log_parts(where(tiny, x * 2.0**shift, x))
    n = float_of(k)
    return m, where(tiny, n - shift, n)


def _normal_log_parts(x: Lanes) -> tuple[Lanes, Lanes]:
    """(m, k) with x = 2^k m, k an integer, for positive normal x."""
    mantissa = 23 if x.kind.bits == 32 else 52
    bits = x.bits()
    k = (bits - x.literal(0.75).bits()) >> mantissa
    return (bits - (k << mantissa)).as_float(), k


def _has_tables(x: Lanes) -> bool:
    return x.kind.bits == 32 and avx512.has_tables(x)


@cache
def _cubics(scale: float) -> tuple[tuple[float, ...], ...]:
    """c0 .. c3 for each 1/16 of an octave: c0 + c1 f + c2 f^2 + c3 f^3 near (log(1 + f) - f) scale / f^2.

    They agree at the zeros of a Chebyshev polynomial.
    """
    rows = []
    for place in range(16):
        start, half = (1 + place / 16, 1 / 32) if place < 8 else (0.5 + place / 32, 1 / 64)
        nodes = [start + half - 1 + half * math.cos(math.pi * (2 * i + 1) / 8) for i in range(4)]
        values = [(math.log1p(x) - x) * scale / (x * x) for x in nodes]
        rows.append(np.linalg.solve(np.vander(nodes, increasing=True), values))
    return tuple([tuple([float(np.float32(c)) for c in column]) for column in zip(*rows)])


def _piecewise(f: Lanes, m: Lanes, scale: float = 1.0) -> Lanes:
    """(log(1 + f) - f) scale / f^2 where m has the mantissa of 1 + f."""
    place = m.bits() >> 19
    c0, c1, c2, c3 = [avx512.lookup(column, place) for column in _cubics(scale)]
    return c3.fma(f, c2).fma(f, c1).fma(f, c0)


def _log1p_rest(f: Lanes) -> Lanes:
    """log(1 + f) - f for -1/4 <= f < 1/2."""
    square = f * f
    if f.kind.bits == 32:
        return square.fma(-0.5, square * f * polynomial(f, _TERMS[32]))
    half, s = square * 0.5, f / (f + 2.0)
    z = s * s
    return s * z.fma(polynomial(z, _TERMS[64]), half) - half


def _natural(f: Lanes, n: Lanes, m: Lanes) -> Lanes:
    """log(2^n (1 + f)) where m has the mantissa of 1 + f."""
    if _has_tables(f):
        return n.fma(math.log(2), (f * f).fma(_piecewise(f, m), f))
    high, low = LN2[f.kind.bits]
    return n.fma(high, n.fma(low, _log1p_rest(f)) + f)


def _with_special_cases(x: Lanes, result: Lanes) -> Lanes:
    """`result` for positive finite x; NaN below 0, -inf for 0, else x."""
    if avx512.has_instructions(x):  # they give infinite n and NaN by themselves
        return result
    result = where(x < math.inf, result, x)
    return where(x <= 0.0, where(x.equals(0.0), x.literal(-math.inf), math.nan), result)


@implements("log")
def log(x: Lanes) -> Lanes:
    """The natural logarithm."""
    m, n = log_parts(x)
    return _with_special_cases(x, _natural(m - 1.0, n, m))


@implements("log2")
def _log2(x: Lanes) -> Lanes:
    m, n = log_parts(x)
    f, (high, low) = m - 1.0, _LOG2_E[x.kind.bits]
    if _has_tables(x):
        return _with_special_cases(x, f.fma(_piecewise(f, m, high).fma(f, high), n))
    fraction = f.fma(high, f.fma(low, _log1p_rest(f) * high))
    return _with_special_cases(x, n + fraction)


@implements("log10")
def _log10(x: Lanes) -> Lanes:
    m, n = log_parts(x)
    f, (high, low) = m - 1.0, _LOG10_E[x.kind.bits]
    high2, low2 = LOG10_2[x.kind.bits]
    if _has_tables(x):
        fraction = f.fma(_piecewise(f, m, high).fma(f, high), n * low2)
    else:
        fraction = f.fma(high, n.fma(low2, f.fma(low, _log1p_rest(f) * high)))
    return _with_special_cases(x, n.fma(high2, fraction))


def log_of_sum(base: Lanes | float, x: Lanes, extra: Lanes | int = 0) -> Lanes:
    """log((base + x) 2^extra) for base 1 and x > -1, or base 0 and positive normal x; infinite x gives NaN."""
    base = x.like(base)
    if avx512.has_instructions(x):
        total = base + x
        m = avx512.mantissa(total)
        down = avx512.exponent(m) - avx512.exponent(total)
        unit = avx512.scale(x.literal(1.0), down)
        n = -down if isinstance(extra, int) else float_of(extra) - down
        return _natural(x.fma(unit, base.fma(unit, -1.0)), n, m)
    total, rest = two_sum(base, x)
    m, k = _normal_log_parts(total)
    far = k > 100  # there the base is nothing, and 2^-k might be too small
    unit = power_of_two(-where(far, k.literal(100), k))
    if x.ctx.module.target.fma:
        f = where(far, m - 1.0, x.fma(unit, base.fma(unit, -1.0)))
    else:
        f = rest.fma(unit, m - 1.0)
    return _natural(f, float_of(k + extra), m)


def log1p_of(x: Lanes) -> Lanes:
    """log(1 + x) for x > -1; infinite x gives NaN."""
    return log_of_sum(1.0, x)


@implements("log1p")
def _log1p(x: Lanes) -> Lanes:
    result = log1p_of(x).copysign(x)
    if avx512.has_instructions(x):
        return avx512.repaired(result, x + 1.0, 0x03530422)
    result = where(x < math.inf, result, x)
    return where(x <= -1.0, where(x.equals(-1.0), x.literal(-math.inf), math.nan), result)


@implements("asinh")
def _asinh(x: Lanes) -> Lanes:
    size = x.abs()
    large = size > (2.0**12 if x.kind.bits == 32 else 2.0**28)  # here it is log(2 |x|)
    square = size * size
    rest = size + square / ((square + 1.0).sqrt() + 1.0)
    result = _log1p_or_log_of_double(size, rest, large)
    return where(size < math.inf, result.copysign(x), x)


def _log1p_or_log_of_double(x: Lanes, rest: Lanes, large: Lanes) -> Lanes:
    """log(2 x) where x is large, else log(1 + rest)."""
    one = x.bits().literal(1)
    return log_of_sum(where(large, x.literal(0.0), 1.0), where(large, x, rest), where(large, one, 0))


@implements("acosh")
def _acosh(x: Lanes) -> Lanes:
    large = x > (2.0**12 if x.kind.bits == 32 else 2.0**28)
    above = x - 1.0
    result = _log1p_or_log_of_double(x, above + (above * above + above * 2.0).sqrt(), large)
    return where(x < 1.0, math.nan, where(x < math.inf, result, x))


@implements("atanh")
def _atanh(x: Lanes) -> Lanes:
    size = x.abs()
    result = log1p_of((size + size) / (1.0 - size)) * 0.5
    result = where(size < 1.0, result, where(size.equals(1.0), x.literal(math.inf), math.nan))
    return where(x.is_nan(), x, result.copysign(x))


@implements("logaddexp")
def _logaddexp(a: Lanes, b: Lanes) -> Lanes:
    if a.kind.bits == 32:  # a sum near 0 loses what a or b have in the last places
        return _logaddexp(a.to("float64"), b.to("float64")).to("float32")
    rest = log1p_of(exp(-(a - b).abs()))
    return where(a.equals(b), a + math.log(2), a.most(b) + rest)
