"""Sines, cosines, tangents, from the r that `angles` gives, z = r^2:

sin r = r + r z s(z) and cos r = 1 - z/2 + z^2 c(z), s and c minimax polynomials by Remez' exchange in
50 digits; relative errors 2^-27.8 and 2^-32.6 in float32, 2^-58 and 2^-63.9 in float64.
"""

from __future__ import annotations

from tensorc.codegen.llvm.math.angles import reduce_angle
from tensorc.codegen.llvm.math.lanes import Lanes, polynomial, where
from tensorc.codegen.llvm.math.table import implements

_SIN = {
    32: (-0.16666653752326965, 0.00833209790289402, -0.00019506023090798408),
    64: (
        -0.16666666666666632,
        0.008333333333322484,
        -0.0001984126982985113,
        2.75573137040876e-06,
        -2.5050759713288754e-08,
        1.589687522752993e-10,
    ),
}
_COS = {
    32: (0.04166664183139801, -0.0013887130189687014, 2.4412085622316226e-05),
    64: (
        0.041666666666666595,
        -0.0013888888888873338,
        2.480158728899746e-05,
        -2.755731421528497e-07,
        2.0875705111565652e-09,
        -1.1358732509782794e-11,
    ),
}


def _sine(r: Lanes, rest: Lanes) -> Lanes:
    z = r * r
    terms = z.fma(polynomial(z, _SIN[r.kind.bits]), 0.0)  # + 0 so that r = -0 stays
    if r.kind.bits == 32:
        return terms.fma(r, r)
    return r + terms.fma(r, rest * (1.0 - z * 0.5))


def _cosine(r: Lanes, rest: Lanes) -> Lanes:
    z = r * r
    terms = polynomial(z, _COS[r.kind.bits])
    if r.kind.bits == 32:
        return (z * z).fma(terms, z.fma(-0.5, 1.0))
    half = z * 0.5
    most = 1.0 - half
    return most + (((1.0 - most) - half) + (z * z).fma(terms, -(r * rest)))


def _quarter(x: Lanes, turn: int) -> Lanes:
    """The sine of x + turn pi/2."""
    r, rest, k = reduce_angle(x)
    k = k + turn if turn else k
    value = where((k & 1).equals(0), _sine(r, rest), _cosine(r, rest))
    sign = (k & 2).to(f"int{x.kind.bits}") << (x.kind.bits - 2)
    return (value.bits() ^ sign).as_float()


@implements("sin")
def _sin(x: Lanes) -> Lanes:
    return _odd(x, _quarter(x, 0))


def _odd(x: Lanes, result: Lanes) -> Lanes:
    """`result`, but -0 for -0; in float32 it is so by itself."""
    return result if x.kind.bits == 32 else where(x.equals(0.0), x, result)


@implements("cos")
def _cos(x: Lanes) -> Lanes:
    return _quarter(x, 1)


@implements("tan")
def _tan(x: Lanes) -> Lanes:
    r, rest, k = reduce_angle(x)
    sine, cosine = _sine(r, rest), _cosine(r, rest)
    even = (k & 1).equals(0)
    return _odd(x, where(even, sine, -cosine) / where(even, cosine, sine))
