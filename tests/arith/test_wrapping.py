"""Numbers of all 64 bits: what is simplified is computed modulo 2**64, too."""

from __future__ import annotations

import random

import numpy as np
import pytest

import tensorc as tc
from tensorc import te
from tensorc.arith import Domain, simplify
from tensorc.dtypes import int64
from tensorc.ir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    BitAnd,
    Expr,
    FloorDiv,
    Max,
    Min,
    Mod,
    Mul,
    Neg,
    Select,
    ShiftRight,
    Sub,
    Var,
    index,
    wrap,
)
from tensorc.ir.printer import show
from tensorc.ir.walk import children, rebuild
from tests.arith.semantics import evaluate

X, Y = Var("x", wraps=True), Var("y", wraps=True)
I = Var("i")
DOMAIN = Domain({I: (0, 9)})

SMALL = [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, -1, -2, -3, -4, -8]
LARGE = [1 << 31, 1 << 40, 1 << 61, (1 << 62) - 1, -(1 << 62), int64.max - 1, int64.max, int64.min + 1, int64.min]
COMPARISONS = [LT, LE, GT, GE, EQ, NE]


@pytest.mark.parametrize(
    ("expr", "form"),
    [
        (X // -8, "x // -8"),  # the least number has no negative
        (X % -7, "x % -7"),
        (X // (1 << 40) // (1 << 40), "x // 1099511627776 // 1099511627776"),  # 2**80 is no int64
        ((X // 2 + 1) // 3, "(x // 2 + 1) // 3"),
        (X % 6 * 2 % 3, "x % 6 * 2 % 3"),
        ((X % 6 + X % 4) % 2, "0"),  # 2 divides 2**64
        (X < 3 - I, "x < 3 - i"),
        (Max(X, index(1)) // 2 < int64.max, "max(x, 1) // 2 < 9223372036854775807"),
    ],
)
def test_what_is_written_does_not_wrap(expr, form):
    assert show(simplify(expr, DOMAIN)) == form


def number(rng: random.Random, depth: int) -> Expr:
    if not depth or rng.random() < 0.1:
        return rng.choice([X, X, Y, I, constant(rng)])
    a, kind = number(rng, depth - 1), rng.choice("+-*//%%<>&n?s")
    b = constant(rng) if rng.random() < 0.5 or kind in "*/%" else number(rng, depth - 1)
    match kind:
        case "n":
            return Neg(a)
        case "?":
            return Select(condition(rng, depth - 1), a, b)
        case "s":
            return ShiftRight(a, index(rng.choice([0, 1, 2, 5, 31, 62, 63])))
        case "&":
            return BitAnd(a, index(rng.choice([0, 1, 3, 7, (1 << 62) - 1, int64.max])))
    return {"+": Add, "-": Sub, "*": Mul, "/": FloorDiv, "%": Mod, "<": Min, ">": Max}[kind](a, b)


def constant(rng: random.Random) -> Expr:
    return index(rng.choice(SMALL) if rng.random() < 0.85 else rng.choice(LARGE[:-2]))


def condition(rng: random.Random, depth: int) -> Expr:
    return rng.choice(COMPARISONS)(number(rng, depth), constant(rng) if rng.random() < 0.5 else number(rng, depth))


def wrapped(expr: Expr, env) -> int | bool:
    """The value, with every operation modulo 2**64."""
    if not children(expr):
        return evaluate(expr, env)
    if type(expr) is Select:
        return wrapped(expr.true if wrapped(expr.condition, env) else expr.false, env)
    at = {Var("a", operand.dtype): wrapped(operand, env) for operand in children(expr)}
    value = evaluate(rebuild(expr, tuple(at)), at)
    return wrap(value, int64) if expr.dtype is int64 else value


@pytest.mark.parametrize("seed", range(4))
def test_random_expressions_of_large_numbers_keep_their_value(seed):
    rng = random.Random(seed)
    for _ in range(250):
        expr = rng.choice([number, number, condition])(rng, rng.choice([2, 2, 3]))
        new = simplify(expr, DOMAIN)
        for _ in range(30):
            env = {X: rng.choice(SMALL + LARGE), Y: rng.choice(SMALL + LARGE), I: rng.randrange(10)}
            assert wrapped(new, env) == wrapped(expr, env), f"{show(expr)} -> {show(new)}"


def test_kernels_divide_the_least_number():
    x = np.array([int64.min, int64.min + 1, -1, 0, 1, int64.max] * 3)
    X = te.placeholder(x.shape, "int64", name="X")
    outputs = te.compute(x.shape, lambda i: (X[i] // -8, X[i] % -7, X[i] % 6 * 2 % 3, X[i] // 2**40 // 2**40))
    found = tc.build([X, *outputs])(x)
    for got, expected in zip(found, (x // -8, x % -7, x % 6 * 2 % 3, x // 2**40 // 2**40)):
        assert np.array_equal(got, expected)
