"""The error function and its complement.

erf x = x + x p(x^2) for |x| <= 1; above, in float32, a polynomial in |x| - 2.5, in float64
1 - erfc |x|. For x >= 0, erfc x = e^(-x^2) g(t) / (1 + 2 x) with t = (x - c) / (x + c) (Shepherd and
Laframboise 1981), which keeps its relative error down to the subnormal numbers; below,
erfc x = 2 - erfc(-x). The polynomials are minimax, by Remez' exchange in 60 digits. Errors in
float32: 2^-29.4 and 2^-24.8 (absolute), g 2^-25; in float64: 2^-55, g 2^-59.6 before its coefficients
were rounded.
"""

from __future__ import annotations

from tensorc.codegen.llvm.math.exp import expm1_of_small, reduce_exp, scaled
from tensorc.codegen.llvm.math.lanes import Lanes, polynomial, two_product, where
from tensorc.codegen.llvm.math.table import implements

_SMALL = {
    32: (
        0.12837916612625122,
        -0.3761262595653534,
        0.11283578723669052,
        -0.026853347197175026,
        0.005187162198126316,
        -0.0007997853099368513,
        7.806903158780187e-05,
    ),
    64: (
        0.12837916709551256,
        -0.37612638903183343,
        0.11283791670936812,
        -0.026866170641924158,
        0.00522397759633709,
        -0.0008548325460257032,
        0.0001205527958235849,
        -1.492444464777511e-05,
        1.6443848619465374e-06,
        -1.6181347687952188e-07,
        1.360383399015936e-08,
        -7.581144727040544e-10,
    ),
}
_LARGE = (
    0.9995930194854736,
    0.0021782072726637125,
    -0.005445580929517746,
    0.008351443335413933,
    -0.008623495697975159,
    0.006110441870987415,
    -0.0027948257047683,
    0.0005580505821853876,
    0.0002547883486840874,
    -0.0002686859224922955,
    8.40002394397743e-05,
    1.6988973584375344e-05,
    -1.6770023648859933e-05,
    6.163592161101406e-07,
    1.0388710052211536e-06,
)
_CENTRE = {32: 2.0, 64: 4.0}
_SCALED = {
    32: (
        1.2769783735275269,
        -0.0927639827132225,
        -0.16603142023086548,
        0.16405534744262695,
        -0.0542043000459671,
        -0.008059880696237087,
        0.008631679229438305,
        0.0013135286280885339,
        -0.0012299219379201531,
        -0.0004005757800769061,
    ),
    64: (
        1.2329951186255526,
        -0.13962111684056253,
        0.015379652102619695,
        0.06809705425469553,
        -0.10103906603630207,
        0.09373283499824603,
        -0.06633036581226211,
        0.03716751553920085,
        -0.01619773405729619,
        0.005031969962283299,
        -0.0007577732926633758,
        -0.00019925660780499273,
        0.00015062170181939696,
        -2.439951592476481e-05,
        -1.1222151615134691e-05,
        5.710384675171228e-06,
        2.941808317172488e-07,
        -8.262481416589643e-07,
        7.396593583806908e-08,
        1.1054819990838718e-07,
        -1.7279097052492044e-08,
        -1.4112489957107133e-08,
        1.5874354848667006e-09,
        1.1725818458062622e-09,
    ),
}


@implements("erf")
def _erf(x: Lanes) -> Lanes:
    size, small = x.abs(), _near_zero(x)
    if x.kind.bits == 32:
        # 3.97: there and above the result is 1, which it is not a little earlier
        large = polynomial(size.least(3.97) - 2.5, _LARGE).least(1.0)
    else:
        large = 1.0 - _complement(size.least(6.0))
    return where(size < 1.0, small, large.copysign(x))


def _near_zero(x: Lanes) -> Lanes:
    return x.fma(polynomial(x * x, _SMALL[x.kind.bits]), x)


def _complement(x: Lanes) -> Lanes:
    """erfc(x) for x >= 0 of moderate size."""
    bits = x.kind.bits
    square, rest = two_product(x, x)
    r, n, k = reduce_exp(-square)
    power = expm1_of_small(r - rest)
    t = (x - _CENTRE[bits]) / (x + _CENTRE[bits])
    value = polynomial(t, _SCALED[bits])
    return scaled(value.fma(power, value) / x.fma(2.0, 1.0), n, k)


@implements("erfc")
def _erfc(x: Lanes) -> Lanes:
    result = _complement(x.abs().least(10.1 if x.kind.bits == 32 else 27.3))
    result = where(x < 0.0, 2.0 - result, result)
    return where(x.abs() < 0.5, 1.0 - _near_zero(x), result)
