"""Horizontal reductions. LLVM may take the lanes in any order, hence reassoc."""

from __future__ import annotations

import math

from tensorc.codegen.llvm.builder import Value
from tensorc.codegen.llvm.context import constant
from tensorc.codegen.llvm.expr import intrinsic
from tensorc.codegen.llvm.math.lanes import Lanes, where
from tensorc.codegen.llvm.math.table import implements


def _reduction(x: Lanes, name: str, *start: Value, flags: str = "") -> Lanes:
    scalar = x.kind.scalar
    name = f"vector.reduce.{name}"
    value = intrinsic(x.ctx, name, scalar, *start, x.value, overload=x.kind, flags=flags)
    return Lanes(x.ctx, scalar, value)


@implements("reduce_add")
def _reduce_add(x: Lanes) -> Lanes:
    if x.kind.is_float:
        return _reduction(x, "fadd", constant(-0.0, x.kind.scalar), flags="reassoc ")
    return _reduction(x, "add")


@implements("reduce_mul")
def _reduce_mul(x: Lanes) -> Lanes:
    if x.kind.is_float:
        return _reduction(x, "fmul", constant(1.0, x.kind.scalar), flags="reassoc ")
    return _reduction(x, "mul")


@implements("reduce_and")
def _reduce_and(x: Lanes) -> Lanes:
    return _reduction(x, "and")


@implements("reduce_or")
def _reduce_or(x: Lanes) -> Lanes:
    return _reduction(x, "or")


@implements("reduce_min")
def _reduce_min(x: Lanes) -> Lanes:
    return _extremum(x, "min")


@implements("reduce_max")
def _reduce_max(x: Lanes) -> Lanes:
    return _extremum(x, "max")


def _extremum(x: Lanes, name: str) -> Lanes:
    if not x.kind.is_float:
        return _reduction(x, ("s" if x.kind.is_signed else "u") + name)
    # LLVM's own reduction handles NaN at every step; to test for NaN once costs less.
    best = _reduction(x, f"f{name}", flags="nnan nsz ")
    return where(_reduce_or(x.is_nan()), math.nan, best)
