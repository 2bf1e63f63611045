"""Powers, roots and remainders.

pow in float32 is 2^(y log2 x) in float64. In float64 the logarithm is a pair of floats of some 66
right bits (its series beyond the second term is a minimax polynomial of relative error 2^-68, by
Remez' exchange in 50 digits), since the power magnifies its error by up to 1024.
"""

from __future__ import annotations

import math

from tensorc.codegen.llvm.math.basic import trunc
from tensorc.codegen.llvm.math.exp import LN2, exp_of_small, reduce_exp, scaled
from tensorc.codegen.llvm.math.lanes import (
    Lanes,
    fast_two_sum,
    nearest,
    polynomial,
    power_of_two,
    two_product,
    two_sum,
    where,
    while_any,
)
from tensorc.codegen.llvm.math.log import log_parts
from tensorc.codegen.llvm.math.table import implements

_LOG_TERMS = (
    0.39999999999999725,
    0.2857142857157728,
    0.22222222191257082,
    0.18181821525143319,
    0.153844066918181,
    0.13341143455304497,
    0.11592370443152321,
    0.1257137920253012,
)
# For float32: log(1 + f) = s (2 + z p(z)), e^r; relative errors 2^-42 and 2^-39.7.
_SHORT_LOG = (
    0.6666666671033282,
    0.39999984625791873,
    0.2857318347465359,
    0.22135152375973252,
    0.20122039825690174,
)
_SHORT_EXP = (
    1.0,
    1.0,
    0.5000000000428071,
    0.16666666784696005,
    0.041666664400036274,
    0.008333281733315084,
    0.0013889197568739545,
    0.00019908988267429672,
    2.4708235881219794e-05,
)
_TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)


@implements("pow")
def _pow(x: Lanes, y: Lanes) -> Lanes:
    size = x.abs()
    power = (_power_float32 if x.kind.bits == 32 else _power_float64)(size, y)
    half = y * 0.5
    odd = trunc(half).differs(half) & trunc(y).equals(y)
    result = where(odd, power.copysign(x), power)
    undefined = (x < 0.0) & (size < math.inf) & trunc(y).differs(y) & ~y.is_nan()
    result = where(undefined, math.nan, result)
    return where(x.equals(1.0) | y.equals(0.0), 1.0, result)


def _power_float32(size: Lanes, y: Lanes) -> Lanes:
    wide = size.to("float64")
    m, n = log_parts(wide)
    f = m - 1.0
    s = f / (f + 2.0)
    z = s * s
    logarithm = n + s * z.fma(polynomial(z, _SHORT_LOG), 2.0) * math.log2(math.e)
    exponent = _exponent(wide, y.to("float64"), logarithm)
    bounded = exponent.least(130.0).most(-152.0)
    n, k = nearest(bounded)
    r = (bounded - n) * math.log(2)
    return scaled(polynomial(r, _SHORT_EXP), n, k).to("float32")


def _exponent(x: Lanes, y: Lanes, logarithm: Lanes) -> Lanes:
    """y log x, also where one of them is infinite or 0."""
    logarithm = where(x.equals(0.0), -math.inf, where(x < math.inf, logarithm, x))
    # 1 to an infinite power is 1
    return where(x.equals(1.0) & ~y.is_nan(), 0.0, y * logarithm)


def _power_float64(x: Lanes, y: Lanes) -> Lanes:
    high, low = _accurate_log(x)
    exponent = _exponent(x, y, high)
    _, rest = two_product(high, y)
    usual = (exponent.abs() < 1000.0) & (y.abs() < 2.0**900)
    rest = where(usual, low.fma(y, rest), 0.0)
    r, n, k = reduce_exp(exponent.least(711.0).most(-746.0))
    return scaled(exp_of_small(r + rest), n, k)


def _accurate_log(x: Lanes) -> tuple[Lanes, Lanes]:
    """log x as a pair, for positive finite x."""
    m, n = log_parts(x)
    f = m - 1.0
    below, rest = fast_two_sum(f.literal(2.0), f)
    s = f / below
    product, error = two_product(s, below)
    s_low = (((f - product) - error) - s * rest) / below
    z, z_low = two_product(s, s)
    z_low = z_low + s * s_low * 2.0
    # log(1 + f) = s (2 + z (2/3 + z p(z)))
    q, q_low = fast_two_sum(z.literal(_TWO_THIRDS[0]), z * polynomial(z, _LOG_TERMS))
    q_low = q_low + _TWO_THIRDS[1]
    c, c_low = two_product(z, q)
    c_low = c_low + (z * q_low + z_low * q)
    t, t_low = two_product(s, c)
    t_low = t_low + (s * c_low + s_low * c)
    log, error = fast_two_sum(s * 2.0, t)
    log_low = error + (t_low + s_low * 2.0)
    total, error = two_sum(n * LN2[64][0], log)
    return fast_two_sum(total, error + (n * LN2[64][1] + log_low))


@implements("hypot")
def _hypot(x: Lanes, y: Lanes) -> Lanes:
    if x.kind.bits == 32:
        a, b = x.to("float64"), y.to("float64")
        result = (a * a + b * b).sqrt().to("float32")
    else:
        a, b = x.abs(), y.abs()
        more, less = where(a > b, a, b), where(a > b, b, a)
        large, small = more > 2.0**500, more < 2.0**-500
        scale = where(large, more.literal(2.0**-600), where(small, more.literal(2.0**600), 1.0))
        back = where(large, more.literal(2.0**600), where(small, more.literal(2.0**-600), 1.0))
        more, less = more * scale, less * scale
        result = (more * more + less * less).sqrt() * back
    infinite = x.abs().equals(math.inf) | y.abs().equals(math.inf)
    return where(infinite, math.inf, result)


# (1 + f)^(1/3) where the logarithms have f: relative error 2^-22.3.
_CBRT = (
    0.9999998211860657,
    0.3333319127559662,
    -0.11107932776212692,
    0.06179157271981239,
    -0.0422108918428421,
    0.030733440071344376,
    -0.014598657377064228,
)
_CBRT_OF_2 = 1.2599210498948732


@implements("cbrt")
def _cbrt(x: Lanes) -> Lanes:
    size = x.abs()
    m, n = log_parts(size)
    f = m - 1.0
    n_third, third = nearest(n, 1 / 3)
    rest = n_third.fma(-3.0, n)  # -1, 0 or 1
    less, more = rest < 0.0, rest > 0.0
    factor = where(less, x.literal(1 / _CBRT_OF_2), where(more, x.literal(_CBRT_OF_2), 1.0))
    m = (f + 1.0) * where(less, x.literal(0.5), where(more, x.literal(2.0), 1.0))
    # An estimate of so few bits that its cube is exact, and a step of Halley's.
    drop = 16 if x.kind.bits == 32 else 36
    estimate = (polynomial(f, _CBRT) * factor).bits()
    y = ((estimate + (1 << (drop - 1))) & -(1 << drop)).as_float()
    cube = y * y * y
    root = y + y * ((m - cube) / (cube * 2.0 + m))
    result = (root * power_of_two(third)).copysign(x)
    return where(size.equals(0.0) | ~(size < math.inf), x, result)


@implements("ldexp")
def _ldexp(x: Lanes, n: Lanes) -> Lanes:
    least, greatest, bits = (-126, 127, 24) if x.kind.bits == 32 else (-1022, 1023, 53)
    x = where(n.is_nan(), n, x)
    _, k = nearest(n.least(2200.0).most(-2200.0))
    for _ in range(3):
        # The first steps leave room below so that only one rounds.
        step = where(k < least, k.literal(least + bits), where(k > greatest, k.literal(greatest), k))
        x = x * power_of_two(step)
        k = k - step
    return x


@implements("fmod")
def _fmod(x: Lanes, y: Lanes) -> Lanes:
    """Long division: each step takes some bits off the quotient, exactly; mostly one does."""
    bits = x.kind.bits
    divisor = y.abs()
    fine = (x.abs() < math.inf) & (divisor > 0.0)
    divisor = where(fine, divisor, 1.0)
    rest = while_any(
        where(fine, x.abs(), 0.0),
        lambda rest: rest >= divisor,
        lambda rest: _take_multiples(rest, divisor, 20 if bits == 32 else 50),
    )
    return where(fine, rest.copysign(x), math.nan)


def _take_multiples(rest: Lanes, divisor: Lanes, digits: int) -> Lanes:
    """`rest` less a multiple of `divisor`, where it is not less already: `digits` bits of the quotient or 3 more."""
    excess = _exponent_bits(rest) - _exponent_bits(divisor) - (digits - 1)
    most = 254 if rest.kind.bits == 32 else 2046  # more would not be the product of two powers
    shift = where(excess > 0, where(excess > most, excess.literal(most), excess), 0)
    half = shift >> 1
    unit = divisor * power_of_two(half) * power_of_two(shift - half)
    large = rest > 2.0 ** (90 if rest.kind.bits == 32 else 900)  # a quotient rounded up, times unit, may overflow
    down = where(large, rest.literal(2.0**-30), 1.0)
    reduced = _less_multiple(rest * down, unit * down)
    return where(rest >= divisor, reduced * where(large, rest.literal(2.0**30), 1.0), rest)


def _less_multiple(rest: Lanes, unit: Lanes) -> Lanes:
    high, low = two_product(trunc(rest / unit), unit)
    less = (rest - high) - low
    return where(less < 0.0, less + unit, less)  # the quotient was rounded up


def _exponent_bits(x: Lanes) -> Lanes:
    """floor(log2 x) and a constant, of a positive number, subnormal or not."""
    mantissa, smallest = (23, 2.0**-126) if x.kind.bits == 32 else (52, 2.0**-1022)
    tiny = x < smallest
    scaled_bits = where(tiny, x * 2.0**mantissa, x).bits() >> mantissa
    return scaled_bits - where(tiny, scaled_bits.literal(mantissa), 0)
