"""Proofs that passes and schedule steps rely on: guards of padding, of splits, of tails."""

from __future__ import annotations

import pytest

from tensorc.arith import Domain, can_prove
from tensorc.ir import parse_expr
from tensorc.ir.expr import Broadcast, Buffer, Ramp, Var, index, minimum

H, W, R, I, J, K, F, M, N, X = (Var(name) for name in "hwrijkfmnx")
O, P = Var("o"), Var("p")
D = Buffer("D", (64,), "int64")
NAMES = {var.name: var for var in (H, W, R, I, J, K, F, M, N, X, O, P)} | {"D": D}


def parse(text: str):
    return parse_expr(text, NAMES)


def proved(text: str, domain: Domain) -> bool:
    return can_prove(parse(text), domain)


# ---- numbers ----


def test_padding_of_a_convolution():
    domain = Domain().bind(H, 0, 58)
    inside = domain.given(parse("h >= 1 and h < 57"))
    assert proved("h - 1 >= 0 and h - 1 < 56", inside)
    assert not proved("h - 1 >= 0", domain)
    assert not proved("h - 1 < 55", inside)


def test_windows_of_a_convolution():
    domain = Domain().bind(H, 0, 56).bind(R, 0, 3)
    assert proved("h + r < 58", domain)
    inside = domain.given(parse("h + r >= 1 and h + r < 57"))
    assert proved("h + r - 1 >= 0 and h + r - 1 < 56", inside)
    strided = Domain().bind(H, 0, 28).bind(R, 0, 7).given(parse("h*2 + r - 3 >= 0 and h*2 + r < 59"))
    assert proved("h*2 + r - 3 < 56", strided)


def test_guard_of_a_split():
    domain = Domain().bind(I, 0, 13).bind(J, 0, 8)
    assert proved("i*8 + j < 104", domain)
    assert not proved("i*8 + j < 100", domain)
    guarded = domain.given(parse("i*8 + j < 100"))
    assert proved("i*8 + j <= 99", guarded)
    assert proved("(i*8 + j) // 4 < 25", guarded)


def test_tail_of_a_split_that_is_cut():
    assert proved("i*8 + j < 100", Domain().bind(I, 0, 12).bind(J, 0, 8))
    assert proved("i*8 + j < 100", Domain().bind(I, 12, 1).bind(J, 0, 4))


def test_tail_of_a_split_that_is_shifted():
    domain = Domain().bind(I, 0, 13).bind(J, 0, 8)
    assert proved("min(i*8, 92) + j < 100 and min(i*8, 92) + j >= 0", domain)


def test_tiles_of_tiles():
    domain = Domain().bind(I, 0, 4).bind(J, 0, 3).bind(K, 0, 16)
    assert proved("(i*48 + j*16 + k) // 48 == i", domain)
    assert proved("(i*48 + j*16 + k) % 48 == j*16 + k", domain)
    assert proved("i*48 + j*16 + k < 192", domain)


def test_fused_loops():
    domain = Domain().bind(F, 0, 60)
    assert proved("f // 12 < 5 and f // 3 % 4 < 4 and f % 3 < 3", domain)
    assert proved("f // 12 * 12 + f // 3 % 4 * 3 + f % 3 == f", domain)


def test_every_lane():
    ramp = Ramp(I * 8, index(1), 8)
    domain = Domain().bind(I, 0, 12)
    assert can_prove(ramp < Broadcast(index(96), 8), domain)
    assert not can_prove(ramp < Broadcast(index(95), 8), domain)


# ---- symbols ----

LOOP = Domain().bind(I, 0, N)


@pytest.mark.parametrize(
    "text", ["i < n", "i <= n - 1", "n >= 1", "i + 1 <= n", "i*2 < n*2", "i - n < 0", "n - i > 0", "i < n + m % 4"]
)
def test_symbolic_loops(text):
    assert proved(text, LOOP)


@pytest.mark.parametrize("text", ["i < n - 1", "i > 0", "n > 1", "i < m", "i*2 < n"])
def test_what_does_not_hold_is_not_proved(text):
    assert not proved(text, LOOP)


SPLIT = Domain().bind(O, 0, parse("(n + 7) // 8")).bind(J, 0, 8)


def test_symbolic_splits():
    assert proved("o*8 + j < n + 7", SPLIT)
    assert proved("o*8 < n", SPLIT)
    assert not proved("o*8 + j < n", SPLIT)
    guarded = SPLIT.given(parse("o*8 + j < n"))
    assert proved("o*8 + j < n", guarded)
    assert proved("o*8 + j + 1 <= n", guarded)
    assert proved("o < n", guarded)


def test_full_tiles_of_symbolic_splits():
    domain = Domain().bind(O, 0, N // 8).bind(J, 0, 8)
    assert proved("o*8 + j < n", domain)
    assert proved("n // 8 * 8 <= n", domain)
    tail = Domain().bind(J, 0, N % 8)
    assert proved("n // 8 * 8 + j < n", tail)


def test_trimmed_symbolic_tails():
    domain = Domain().bind(O, 0, parse("(n + 7) // 8")).bind(J, 0, minimum(index(8), N - O * 8))
    assert proved("o*8 + j < n", domain)
    assert proved("min(o*8 + 8, n) - o*8 <= 8", domain)
    assert proved("min(8, n - o*8) >= 1", domain)


def test_shifted_symbolic_tails():
    domain = SPLIT.given(parse("n >= 8"))
    assert proved("min(o*8, n - 8) + j < n", domain)
    assert proved("min(o*8, n - 8) + j >= 0", domain)


def test_fused_symbolic_loops():
    domain = Domain().given(parse("n >= 1 and m >= 1")).bind(F, 0, M * N)
    assert proved("f // n < m", domain)
    assert proved("f % n < n and f % n >= 0", domain)
    assert proved("f // n * n + f % n == f", domain)


def test_rows_of_symbolic_matrices():
    domain = Domain().bind(I, 0, M).bind(J, 0, N)
    assert proved("i*n + j < m*n", domain)
    assert proved("i*n + j >= 0", domain)
    assert not proved("i*n + j < m*n - 1", domain)


def test_windows_of_symbolic_convolutions():
    domain = Domain().bind(H, 0, N - 2).bind(R, 0, 3)
    assert proved("h + r < n", domain)
    padded = Domain().bind(H, 0, N).bind(R, 0, 3).given(parse("h + r >= 1 and h + r <= n"))
    assert proved("h + r - 1 >= 0 and h + r - 1 < n", padded)


def test_triangles():
    domain = Domain().bind(I, 0, N).bind(J, 0, I + 1)
    assert proved("j < n", domain)
    assert proved("j <= i", domain)
    assert not proved("j < i", domain)


def test_two_facts_together():
    domain = Domain().given(parse("x < i")).given(parse("i*2 < n")).given(parse("n < 20"))
    assert proved("x*2 < 17", domain)
    assert proved("x < 9", domain)
    assert proved("x + i < n", domain)


def test_choices():
    domain = Domain().given(parse("x < i")).given(parse("x < j"))
    assert proved("x < min(i, j)", domain)
    assert proved("max(i, j) > x", domain)
    assert proved("select(k < 3, i, j) > x", domain)
    assert not proved("min(i, j) < max(i, j)", domain)


def test_either_or():
    domain = Domain().bind(I, 0, 8)
    assert proved("i < 4 or i >= 4", domain)
    assert proved("x < 4 or x > 3", domain)
    assert not proved("x < 4 or x > 4", domain)
    assert proved("x < 4 or i < 3", domain.given(parse("i < 3 or x < 4")).given(parse("x < 2")))


def test_a_condition_proves_itself_whatever_it_is():
    condition = parse("x*x*x % 7 == 3 or x // n > m")
    assert can_prove(condition, Domain().given(condition))


def test_guarded_gather():
    guard = parse("D[i] >= 0 and D[i] < n")
    assert proved("D[i] < n and D[i]*4 + 3 < n*4", Domain().given(guard, loads=True))
    assert not proved("D[i] < n", Domain().given(guard))


def test_dead_places_prove_anything_without_failing():
    can_prove(parse("x < 3"), Domain().bind(I, 0, 0).given(parse("i > 4 and i < 3")))
