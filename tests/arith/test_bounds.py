"""Ranges of expressions: by interval arithmetic, by facts, at symbolic extents."""

from __future__ import annotations

import pytest

from tensorc.arith import Domain, Interval, bounds, can_prove
from tensorc.dtypes import dtype, float32, int32, int64, uint8
from tensorc.errors import ExpressionError
from tensorc.ir import parse_expr
from tensorc.ir.expr import Broadcast, Buffer, Call, Cast, Load, Ramp, Var, const, index, minimum

I, J, K, N, X = (Var(name) for name in "ijknx")
A = Buffer("A", (64,), "int32")
D = Buffer("D", (64,), "int64")
NAMES = {var.name: var for var in (I, J, K, N, X)} | {"A": A, "D": D}
DOMAIN = Domain().bind(I, 0, 10).bind(J, 0, 8).bind(K, -3, 7)


def parse(text: str):
    return parse_expr(text, NAMES)


def found(text: str, domain: Domain = DOMAIN) -> tuple:
    interval = bounds(parse(text), domain)
    return interval.lo, interval.hi


@pytest.mark.parametrize(
    "text, lo, hi",
    [
        ("7", 7, 7),
        ("i", 0, 9),
        ("x", None, None),
        ("i*8 + j", 0, 79),
        ("j - i", -9, 7),
        ("i - i", 0, 0),
        ("k*-2", -6, 6),
        ("i*k", -27, 27),
        ("(i*8 + j) // 16", 0, 4),
        ("(i*8 + j) // -16", -5, 0),
        ("i // 0", 0, 0),
        ("x % 8", 0, 7),
        ("x % -8", -7, 0),
        ("(j + 16) % 16", 0, 7),
        ("i % 16", 0, 9),
        ("min(x, 5)", None, 5),
        ("max(min(x, 5), 0)", 0, 5),
        ("select(x < 3, i, k)", -3, 9),
        ("select(x < 3 and x >= 0, x, 7)", 0, 7),
        ("if_then_else(i >= 2, i - 2, 0)", 0, 7),
        ("x & 15", 0, 15),
        ("i & j", 0, 7),
        ("i | j", 0, 15),
        ("i >> 1", 0, 4),
        ("i << 2", 0, 36),
        ("5 // (i + 1)", 0, 5),
        ("-5 // (i + 1)", -5, -1),
        ("i % (j + 1)", 0, 7),
        ("i // x", -9, 9),
        ("x - x // 4 * 4", 0, 3),
        ("i*8 + j - (i*8 + j) // 16 * 16", 0, 15),
        ("x - min(x, 5)", 0, None),
    ],
)
def test_operations(text, lo, hi):
    assert found(text) == (lo, hi)


def test_an_interval_is_the_answer():
    assert bounds(I, DOMAIN) == Interval(0, 9)


def test_floats_have_none():
    with pytest.raises(ExpressionError, match="bounds: float32 has none"):
        bounds(const(1.0, float32), DOMAIN)


# ---- types ----

U = Var("u", uint8)


@pytest.mark.parametrize(
    "expr, lo, hi",
    [
        (U, 0, 255),
        (U + const(1, uint8), 0, 255),
        (Cast(U, int32) * const(2, int32) - const(3, int32), -3, 507),
        (Cast(U, int64) - I, -9, 255),
        (Cast(Cast(U, int32) + const(1, int32), uint8), 0, 255),
        (Cast(U >= const(3, uint8), int64), 0, 1),
        (Load(A, (I,)), -(2**31), 2**31 - 1),
        (Cast(Load(A, (I,)), int64), -(2**31), 2**31 - 1),
        (Load(D, (I,)), None, None),
        (Call("abs", (K,), int64), 0, 3),
        (Cast(Var("f", float32), int64), None, None),
    ],
)
def test_types(expr, lo, hi):
    assert bounds(expr, DOMAIN) == Interval(lo, hi)


def test_vectors_are_bounded_over_their_lanes():
    ramp = Ramp(I * 8, index(1), 8)
    assert bounds(ramp, DOMAIN) == Interval(0, 79)
    assert bounds(ramp - Broadcast(I * 8, 8), DOMAIN) == Interval(0, 7)
    assert bounds(Load(A, (ramp,)), DOMAIN) == Interval(-(2**31), 2**31 - 1)
    assert bounds(Cast(ramp, dtype("int32x8")), DOMAIN) == Interval(0, 79)


# ---- conditions ----


def test_a_guard_bounds_its_variable():
    domain = Domain().given(parse("x >= 1 and x < 57"))
    assert found("x - 1", domain) == (0, 55)


def test_a_guard_bounds_its_combination_and_shifts_of_it():
    domain = DOMAIN.given(parse("i*8 + j < 70"))
    assert found("i*8 + j", domain) == (0, 69)
    assert found("i*8 + j + 5", domain) == (5, 74)
    assert found("i", domain) == (0, 8)
    assert found("i*16 + j*2", domain) == (0, 138)


@pytest.mark.parametrize(
    "condition, lo, hi",
    [
        ("i == 4", 4, 4),
        ("i != 0", 1, 9),
        ("i != 9", 0, 8),
        ("i != 4", 0, 9),
        ("i*3 < 10", 0, 3),
        ("7 - i*2 >= 0", 0, 3),
        ("not i > 3", 0, 3),
        ("not (i > 3 or i < 2)", 2, 3),
        ("i // 2 == 3", 6, 7),
        ("(i + 1) // 2 <= 2", 0, 4),
        ("i < 3 or i < 5", 0, 9),
    ],
)
def test_conditions(condition, lo, hi):
    assert found("i", DOMAIN.given(parse(condition))) == (lo, hi)


def test_facts_about_what_is_read_hold_inside_an_expression_only():
    condition = parse("D[i] >= 0 and D[i] < 9")
    assert found("D[i]", DOMAIN.given(condition)) == (None, None)
    assert found("D[i]", DOMAIN.given(condition, loads=True)) == (0, 8)
    assert found("if_then_else(D[i] >= 0, D[i], 0)") == (0, None)


def test_conditions_on_integers_that_wrap():
    assert bounds(U, Domain().given(U < const(7, uint8))) == Interval(0, 6)
    assert bounds(U, Domain().given(const(7, uint8) <= U)) == Interval(7, 255)


def test_contradictions_do_no_harm():
    domain = DOMAIN.given(parse("i > 20 and i // 3 < x"))
    assert bounds(parse("x % i"), domain) is not None
    assert bounds(I, Domain().bind(I, 0, 0)) is not None


# ---- symbolic extents ----


def test_symbolic_extents():
    domain = Domain().bind(I, 0, N)
    assert found("i", domain) == (0, None)
    assert found("n - i", domain) == (1, None)
    assert found("n", domain) == (1, None)
    assert found("i - n", domain) == (None, -1)


def test_symbolic_starts():
    domain = Domain().bind(I, N * 8, 8)
    assert found("i - n*8", domain) == (0, 7)


def test_extents_of_tails():
    domain = Domain().bind(I, 0, 13).bind(J, 0, minimum(index(8), 100 - I * 8))
    assert found("i*8 + j", domain) == (0, 99)


def test_a_variable_bound_again_is_another():
    domain = Domain().bind(I, 0, N).bind(I, 0, 4)
    assert found("i", domain) == (0, 3)
    assert not can_prove(I < N, domain)


def test_domains_do_not_change():
    DOMAIN.bind(X, 0, 4).given(parse("i < 2"))
    assert found("x") == (None, None) and found("i") == (0, 9)


def test_factors_of_a_product_that_is_at_least_one():
    counted = Domain().given(parse("n >= 0"))
    inside = counted.bind(I, 0, N * X)  # n is 0 or more, n*x is 1 or more: so both are
    assert (found("n", inside), found("x", inside)) == ((1, None), (1, None))
    assert can_prove(parse("i // x < n"), inside) and can_prove(parse("i // x >= 0"), inside)
    blind = Domain().bind(I, 0, N * X)  # both may be negative
    assert found("x", blind) == (None, None)
    below = Domain().given(parse("n <= -1")).bind(I, 0, N * X)
    assert found("x", below)[0] is None
