"""Inverse trigonometric functions, by minimax polynomials (Remez' exchange in 50 digits).

asin s = s + s z p(z), z = s^2, for s <= 1/2; above, asin s = pi/2 - 2 asin sqrt((1 - s)/2). Relative
errors 2^-27.6 (float32) and 2^-59.8 (float64).
atan t = t + t z p(z) for |t| <= tan(pi/8), to which a quotient is brought by
atan t = pi/4 + atan((t - 1)/(t + 1)) and atan t = pi/2 - atan(1/t). Errors 2^-25.6 and 2^-59.5.
"""

from __future__ import annotations

import math

from tensorc.codegen.llvm.math.lanes import Lanes, polynomial, where
from tensorc.codegen.llvm.math.table import implements

_ASIN = {
    32: (
        0.16666753590106964,
        0.07495249062776566,
        0.04547666385769844,
        0.024148086085915565,
        0.04221991449594498,
    ),
    64: (
        0.16666666666666763,
        0.07499999999970118,
        0.04464285717527192,
        0.030381942675818507,
        0.022372215893396497,
        0.01735159569082035,
        0.013981016547760395,
        0.011397307447422093,
        0.010789248737095504,
        0.0036724329874580166,
        0.02179009618991508,
        -0.0211160026259936,
        0.03270174793597341,
    ),
}
_ATAN = {
    32: (-0.33332955837249756, 0.19977940618991852, -0.13879956305027008, 0.0806054025888443),
    64: (
        -0.333333333333332,
        0.19999999999953824,
        -0.14285714280221198,
        0.1111111078470822,
        -0.09090897793649079,
        0.07692060848551022,
        -0.06663111139830465,
        0.05847939799783304,
        -0.050395264526654986,
        0.03807003667202183,
        -0.017913027388266303,
    ),
}
_PI = {32: (3.1415927410125732, -8.742277657347586e-08), 64: (3.141592653589793, 1.2246467991473532e-16)}
# pi/4 in two parts, the first with so few bits that small multiples are exact.
_PI_4 = {
    32: (0.785398006439209, 1.5695823663008923e-07),
    64: (0.7853981633974483, 3.061616997868383e-17),
}
_TAN_PI_8 = 0.41421356237309503


def _arcsine(size: Lanes) -> tuple[Lanes, Lanes]:
    """(high, a): asin size = a, or where size is high (above 1/2) pi/2 - 2 a; NaN above 1."""
    high = size > 0.5
    z = where(high, (1.0 - size) * 0.5, size * size)
    s = where(high, z.sqrt(), size)
    return high, s.fma(z * polynomial(z, _ASIN[size.kind.bits]), s)


@implements("asin")
def _asin(x: Lanes) -> Lanes:
    high, angle = _arcsine(x.abs())
    pi, rest = _PI[x.kind.bits]
    return where(high, pi / 2 - (angle + angle - rest / 2), angle).copysign(x)


@implements("acos")
def _acos(x: Lanes) -> Lanes:
    high, angle = _arcsine(x.abs())
    pi, rest = _PI[x.kind.bits]
    double = angle + angle
    outer = where(x < 0.0, pi - (double - rest), double)
    return where(high, outer, pi / 2 - (angle.copysign(x) - rest / 2))


def _arctangent_rest(t: Lanes) -> Lanes:
    """atan t - t for |t| <= tan(pi/8)."""
    z = t * t
    return t * z * polynomial(z, _ATAN[t.kind.bits])


@implements("atan")
def _atan(x: Lanes) -> Lanes:
    size = x.abs()
    middle, large = size > _TAN_PI_8, size > 1 + math.sqrt(2)
    above = where(large, -1.0, where(middle, size - 1.0, size))
    below = where(large, size, where(middle, size + 1.0, 1.0))
    t = above / below
    high, low = _PI_4[x.kind.bits]
    base = where(large, x.literal(2 * high), where(middle, x.literal(high), 0.0))
    rest = where(large, x.literal(2 * low), where(middle, x.literal(low), 0.0))
    return (base + (t + (_arctangent_rest(t) + rest))).copysign(x)


@implements("atan2")
def _atan2(y: Lanes, x: Lanes) -> Lanes:
    bits = x.kind.bits
    across, up = x.abs(), y.abs()
    steep, left = up > across, x.bits() < 0
    less, more = where(steep, across, up), where(steep, up, across)
    diagonal = less.equals(more)  # also of two infinities; two zeros count as (1, 0)
    less = where(diagonal, where(more.equals(0.0), x.literal(0.0), 1.0), less)
    more = where(diagonal, 1.0, more)
    far = more > 2.0 ** (126 if bits == 32 else 1022)  # the sum of both might overflow
    less, more = where(far, less * 0.25, less), where(far, more * 0.25, more)
    middle = less > more * _TAN_PI_8
    t = where(middle, less - more, less) / where(middle, less + more, more)
    # The angle is `eighths` pi/4 plus or minus atan t.
    backward = steep ^ left
    base = where(steep, x.literal(2.0), where(left, x.literal(4.0), 0.0))
    step = where(middle, where(backward, x.literal(-1.0), 1.0), 0.0)
    eighths = base + step
    signed = where(backward, -t, t)
    high, low = _PI_4[bits]
    angle = eighths * high + (signed + eighths.fma(low, _arctangent_rest(signed)))
    return where(x.is_nan() | y.is_nan(), x + y, angle.copysign(y))
