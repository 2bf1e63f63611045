"""Exponentials: e^x = 2^k * e^r with k the integer nearest to x / ln 2, so |r| <= ln 2 / 2.

e^r = 1 + r + r^2 q(r), q a minimax polynomial of the relative error of e^r - 1 over |r| <= 0.348,
found by Remez' exchange in 50 digits, its coefficients rounded one after the other and the rest
fitted again. Errors: 2^-26.1 (float32), 2^-61.2 (float64).
"""

from __future__ import annotations

import math

from tensorc.codegen.llvm.math import avx512
from tensorc.codegen.llvm.math.lanes import Lanes, nearest, polynomial, power_of_two, where
from tensorc.codegen.llvm.math.table import implements

_TERMS = {
    32: (
        0.4999999701976776,
        0.16666537523269653,
        0.04166773334145546,
        0.0083672646433115,
        0.0013840682804584503,
    ),
    64: (
        0.5,
        0.1666666666666668,
        0.04166666666666672,
        0.008333333333318926,
        0.0013888888888841902,
        0.00019841269893397406,
        2.4801587430043646e-05,
        2.7557236663363075e-06,
        2.75571741341697e-07,
        2.511170111825848e-08,
        2.0946575422508396e-09,
    ),
}
# ln 2 and log10 2 in two parts, the first with so few bits that its product with k is exact.
LN2 = {
    32: (0.693145751953125, 1.428606765330187e-06),
    64: (0.6931471805592082, 7.371002565167799e-13),
}
LOG10_2 = {
    32: (0.301025390625, 4.605039066518657e-06),
    64: (0.30102999566361177, 3.694239077158931e-13),
}
# Beyond these e^x rounds to 0 and to infinity.
_LEAST = {32: -105.0, 64: -746.0}
_GREATEST = {32: 89.0, 64: 710.0}


def reduce_exp(x: Lanes) -> tuple[Lanes, Lanes, Lanes]:
    """(r, n, k) with x = k ln 2 + r, n = k as a float, for x of moderate size."""
    n, k = nearest(x, math.log2(math.e))
    high, low = LN2[x.kind.bits]
    return n.fma(-low, n.fma(-high, x)), n, k


def exp_of_small(r: Lanes) -> Lanes:
    """e^r for |r| <= 0.348."""
    return polynomial(r, (1.0, 1.0, *_TERMS[r.kind.bits]))


def expm1_of_small(r: Lanes) -> Lanes:
    """e^r - 1 for |r| <= 0.348."""
    return (r * r).fma(polynomial(r, _TERMS[r.kind.bits]), r)


def scaled(x: Lanes, n: Lanes, k: Lanes) -> Lanes:
    """x * 2^k with one rounding, for x about 1; n is k as a float."""
    if avx512.has_instructions(x):
        return avx512.scale(x, n)
    half = k >> 1  # 2^k alone may be out of range
    return x * power_of_two(half) * power_of_two(k - half)


def _clamped(x: Lanes, least: float, greatest: float) -> Lanes:
    return x.least(greatest).most(least)


@implements("exp")
def exp(x: Lanes) -> Lanes:
    """e^x."""
    bits = x.kind.bits
    r, n, k = reduce_exp(_clamped(x, _LEAST[bits], _GREATEST[bits]))
    return scaled(exp_of_small(r), n, k)


@implements("exp2")
def exp2(x: Lanes) -> Lanes:
    """2^x."""
    bits = x.kind.bits
    x = _clamped(x, *((-151.0, 129.0) if bits == 32 else (-1076.0, 1025.0)))
    n, k = nearest(x)
    return scaled(exp_of_small((x - n) * math.log(2)), n, k)


@implements("exp10")
def _exp10(x: Lanes) -> Lanes:
    bits = x.kind.bits
    x = _clamped(x, *((-46.0, 39.0) if bits == 32 else (-324.5, 309.0)))
    n, k = nearest(x, math.log2(10))
    high, low = LOG10_2[bits]
    r = n.fma(-low, n.fma(-high, x))
    return scaled(exp_of_small(r * math.log(10)), n, k)


@implements("expm1")
def _expm1(x: Lanes) -> Lanes:
    bits = x.kind.bits
    r, _, k = reduce_exp(_clamped(x, *((-20.0, 89.0) if bits == 32 else (-40.0, 710.0))))
    small = expm1_of_small(r)
    scale = power_of_two(k - 1)  # 2^k may overflow before its product does
    half = small.fma(scale, scale - 0.5)
    return where(k.equals(0), small, half + half).copysign(x)


@implements("sigmoid")
def _sigmoid(x: Lanes) -> Lanes:
    power = exp(-x.abs())
    return where(x < 0.0, power, 1.0) / (power + 1.0)


@implements("tanh")
def _tanh(x: Lanes) -> Lanes:
    # With t = (e^2|x| - 1) / 2 it is t / (t + 1); beyond the bound it rounds to 1.
    bits = x.kind.bits
    size = x.abs().least(10.0 if bits == 32 else 20.0)
    n, k = nearest(size, 2 * math.log2(math.e))
    high, low = LN2[bits]
    if bits == 32 and x.ctx.module.target.fma:  # the error of ln 2 / 2 matters only where e^2|x| is large
        r = n.fma(-math.log(2) / 2, size)
    else:
        r = n.fma(-low / 2, n.fma(-high / 2, size))
    # (e^2r - 1) / 2 = r + r^2 (2 q(2r))
    terms = [term * 2.0 ** (i + 1) for i, term in enumerate(_TERMS[bits])]
    small = (r * r).fma(polynomial(r, terms), r)
    scale = power_of_two(k)
    power = small.fma(scale, scale.fma(0.5, -0.5))
    return (power / (power + 1.0)).copysign(x)


@implements("sinh")
def _sinh(x: Lanes) -> Lanes:
    bits = x.kind.bits
    size = x.abs()
    r, _, k = reduce_exp(size.least(89.5 if bits == 32 else 710.5))
    small = expm1_of_small(r)
    scale = power_of_two(k - 2)
    power = small.fma(scale, scale - 0.25)
    half = where(k.equals(0), small * 0.5, power + power)  # (e^|x| - 1) / 2
    rest = where(size < 20.0, half / half.fma(2.0, 1.0), 0.5)
    tiny = 2.0 ** (-13 if bits == 32 else -28)
    return where(size < tiny, x, (half + rest).copysign(x))


@implements("cosh")
def _cosh(x: Lanes) -> Lanes:
    size = x.abs().least(89.5 if x.kind.bits == 32 else 710.5)
    r, _, k = reduce_exp(size)
    quarter = exp_of_small(r) * power_of_two(k - 2)
    half = quarter + quarter  # e^|x| / 2
    return half + 0.25 / half
