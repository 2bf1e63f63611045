"""Every rule of the simplifier: what it makes of an expression, and that this has the same value.

The rules are checked at every point of small ranges, and by z3 for all integers at once.
"""

from __future__ import annotations

import itertools
import math

import pytest

from tensorc.arith import Domain, simplify
from tensorc.dtypes import dtype, float32, float64, int32, uint8
from tensorc.ir import parse_expr, show
from tensorc.ir.expr import (
    Add,
    And,
    Broadcast,
    Buffer,
    Cast,
    Const,
    Div,
    FloorDiv,
    IfThenElse,
    Load,
    Max,
    Min,
    Mod,
    Mul,
    Neg,
    Not,
    Or,
    Ramp,
    Select,
    Sub,
    Var,
    const,
    if_then_else,
    index,
    logical_and,
    select,
)  # fmt: skip
from tests.arith.semantics import Box, evaluate

# i, j, l and k are loops; x, y and n are any integers at all, but n >= 1 wherever k is in [0, n)
I, J, L, K, M, N, X, Y = (Var(name) for name in "ijlkmnxy")
P, Q = Var("p", "bool"), Var("q", "bool")
A = Buffer("A", (64,), "int32")
A_ZERO = const(0, "int32")
NAMES = {var.name: var for var in (I, J, L, K, M, N, X, Y, P, Q)} | {"A": A}

WIDE = range(-13, 20)
LOOPS = Box([(I, 0, 6), (J, 0, 8)], {X: WIDE, Y: range(-4, 5)})
SYMBOLIC = Box([(I, 0, M), (K, 0, N)], {M: range(1, 4), N: range(1, 5), X: range(-6, 7)})
TILES = Box([(I, 0, 5), (J, 0, 3), (L, 0, 16)], {X: range(-3, 4)})

SUMS = """
3 + i*8 + j                      -> i*8 + j + 3
x + y + x                        -> x*2 + y
x - x                            -> 0
x - (y - x)                      -> x*2 - y
(x + 1)*4 - 4                    -> x*4
-(x - y)                         -> y - x
-x - y                           -> -x - y
2 - x                            -> 2 - x
y - 3 - x                        -> y - x - 3
x*y - y*x                        -> 0
(x + 1)*(y + 2)                  -> x*y + x*2 + y + 2
x << 3                           -> x*8
x*0 + 7                          -> 7
(i*8 + j)*16 + x                 -> i*128 + j*16 + x
"""

DIVISIONS = """
x // 1                           -> x
x % 1                            -> 0
x // 0                           -> 0
x % 0                            -> 0
x // -3                          -> -x // 3
x % -3                           -> -(-x % 3)
(x*4 + y) // 4                   -> x + y // 4
(x*4 + y) % 4                    -> y % 4
(x*4 + 9) // 4                   -> x + 2
(x*4 + 9) % 4                    -> 1
(x + 9) // 4                     -> (x + 1) // 4 + 2
(x + 9) % 4                      -> (x + 1) % 4
(x*6) // 4                       -> x*3 // 2
(x*6 + 3) // 4                   -> (x*3 + 1) // 2
(x*6) % 4                        -> x*3 % 2 * 2
(i*8 + j) // 8                   -> i
(i*8 + j) % 8                    -> j
(x*8 + j) // 8                   -> x
(x*8 + j) // 16                  -> x // 2
(x*8 + j) % 16                   -> x % 2 * 8 + j
(x*8 + j + 8) % 16               -> (x + 1) % 2 * 8 + j
(x*8 - j + 7) // 8               -> x
(x*8 - j + 7) // 4               -> x*2 + (3 - j) // 4 + 1
j // 8                           -> 0
(j - 8) // 8                     -> -1
j % 8                            -> j
(j + 8) % 8                      -> j
(j - 3) // 8                     -> (j + 5) // 8 - 1
i // 4                           -> i // 4
x // 4 // 8                      -> x // 32
(x // 4 + 3) // 8                -> (x + 12) // 32
x % 32 // 8                      -> x // 8 % 4
x % 32 % 8                       -> x % 8
x % 8 % 32                       -> x % 8
(x % 32 + y) % 8                 -> (x + y) % 8
(x % 4 * 2 + y) % 8              -> (x*2 + y) % 8
x // 8 * 8 + x % 8               -> x
x // 8 * 24 + x % 8 * 3 + y      -> x*3 + y
x % 4 + x // 4 % 8 * 4           -> x % 32
x // 32 * 8 + x // 4 % 8         -> x // 4
x - x // 8 * 8                   -> x % 8
x*3 + y - x // 8 * 24            -> x % 8 * 3 + y
(x + y) // 8 * 8 + (x + y) % 8   -> x + y
(i*8 + j) // 16 * 16 + (i*8 + j) % 16 -> i*8 + j
x >> 3                           -> x // 8
x & 7                            -> x % 8
(x & 7) + (x >> 3) * 8           -> x
"""

TILE_DIVISIONS = """
(i*48 + j*16 + l) // 48          -> i
(i*48 + j*16 + l) % 48           -> j*16 + l
(i*48 + j*16 + l) // 16          -> i*3 + j
(i*48 + j*16 + l) % 16           -> l
(x*48 + j*16 + l) // 96          -> x // 2
(i*48 + j*16 + l) // 48 * 48 + j*16 + l -> i*48 + j*16 + l
"""

SYMBOLIC_DIVISIONS = """
(x*n + k) // n                   -> x
(x*n + k) % n                    -> k
k // n                           -> 0
k % n                            -> k
(x*n + m) // n                   -> x + m // n
(x*n + m) % n                    -> m % n
x // n * n + x % n               -> x
(x*m*n + i*n + k) // (m*n)       -> x
(x*m*n + i*n + k) // n           -> m*x + i
(x*8*n + k) // (n*8)             -> x
"""

CHOICES = """
min(j, 7)                        -> j
min(j, x)                        -> min(j, x)
max(j, 0)                        -> j
max(j, 8)                        -> 8
min(x, x + 1)                    -> x
min(min(x, 7), 5)                -> min(x, 5)
max(5, max(x, 7))                -> max(x, 7)
min(x + y, x + 3)                -> x + min(y, 3)
min(x*8 + 8, y) - x*8            -> min(8, y - x*8)
max(x + 1, y) - x                -> max(1, y - x)
min(x, 5) - min(x, 5)            -> 0
select(j < 8, x, y)              -> x
select(x < 3, y, y)              -> y
select(not (p and q), x, y)      -> select(not p or not q, x, y)
select(not p, x, y)              -> select(p, y, x)
if_then_else(x < 5, min(x, 5), x + 1) -> if_then_else(x < 5, x, x + 1)
if_then_else(x >= 0, max(x - 1, -1), 0) -> if_then_else(x >= 0, x - 1, 0)
"""

COMPARISONS = """
x - 1 >= 0                       -> x >= 1
x <= 6                           -> x < 7
x > 6                            -> x >= 7
7 > x                            -> x < 7
7 == x                           -> x == 7
x + 3 < y                        -> x < y - 3
x < y + 1                        -> x <= y
x >= y + 1                       -> x > y
-x < y                           -> x + y >= 1
2 - x < 5                        -> x >= -2
x*8 < 60                         -> x < 8
x*8 >= 60                        -> x >= 8
x*8 == 60                        -> false
x*8 != 60                        -> true
x*8 == y*4                       -> x*2 == y
x*8 + j < 64                     -> x < 8
x*8 + j < y*8                    -> x < y
x*8 + j >= 64                    -> x >= 8
x*8 + j <= 62                    -> x*8 + j < 63
x // 8 < 4                       -> x < 32
x // 8 >= 4                      -> x >= 32
(x + 3) // 8 <= 4                -> x < 37
x // 8 == 4                      -> x // 8 == 4
j < 8                            -> true
j >= 8                           -> false
j == 8                           -> false
j != 8                           -> true
i*8 + j < 48                     -> true
x < x + 1                        -> true
x % 4 < 4                        -> true
x // 4 * 4 <= x                  -> true
x < x // 4 * 4 + 4               -> true
min(x, y) <= x                   -> true
max(x, y) < x                    -> false
not x < 5                        -> x >= 5
not x == 5                       -> x != 5
"""

LOGIC = """
true and p                       -> p
p and false                      -> false
p or true                        -> true
false or p                       -> p
p and p                          -> p
p and not p                      -> false
p or not p                       -> true
not not p                        -> p
not (p and q)                    -> not p or not q
not (p or q)                     -> not p and not q
p and (p or q)                   -> p
p or (p and q)                   -> p
(p and q) or p                   -> p
x < 5 and x < 4                  -> x < 4
x < 4 and x < 5                  -> x < 4
x < 4 or x < 5                   -> x < 5
x < 4 and x > 6                  -> false
x < 4 or x >= 4                  -> true
x >= 0 and x < 1 and x == 0      -> x >= 0 and x < 1
j < 8 and x < 4                  -> x < 4
x < 4 and max(x, 4) == 4         -> x < 4
p == true                        -> p
p == false                       -> not p
select(p, true, false)           -> p
select(p, false, true)           -> not p
"""


def rules(text: str, box: Box) -> list:
    lines = [line.split("->") for line in text.strip().splitlines()]
    return [pytest.param(left.strip(), right.strip(), box, id=left.strip()) for left, right in lines]


RULES = [
    *rules(SUMS, LOOPS), *rules(DIVISIONS, LOOPS), *rules(TILE_DIVISIONS, TILES), *rules(CHOICES, LOOPS),
    *rules(COMPARISONS, LOOPS), *rules(LOGIC, LOOPS), *rules(SYMBOLIC_DIVISIONS, SYMBOLIC),
]  # fmt: skip


def parse(text: str):
    return parse_expr(text, NAMES)


@pytest.mark.parametrize("left, right, box", RULES)
def test_rule(left, right, box):
    expr, domain = parse(left), box.domain()
    new = simplify(expr, domain)
    assert show(new) == show(parse(right))
    assert simplify(new, domain) is new


@pytest.mark.parametrize("left, right, box", RULES)
def test_rule_at_every_point(left, right, box):
    expr, new = parse(left), parse(right)
    for env in box.points():
        for p, q in itertools.product((False, True), repeat=2) if "p" in left else [(False, False)]:
            assert evaluate(expr, {**env, P: p, Q: q}) == evaluate(new, {**env, P: p, Q: q})


# ---- for all integers ----


def to_z3(expr, z3):
    """The expression for z3, whose division leaves a remainder that is never negative."""

    def floor_divide(a, b):
        return z3.If(b == 0, 0, z3.If(b > 0, a / b, -a / -b))

    def convert(e):
        match e:
            case Const():
                return z3.BoolVal(e.value) if e.dtype.is_bool else z3.IntVal(e.value)
            case Var():
                return z3.Bool(e.name) if e.dtype.is_bool else z3.Int(e.name)
            case Neg(a):
                return -convert(a)
            case Not(a):
                return z3.Not(convert(a))
            case Select(c, a, b) | IfThenElse(c, a, b):
                return z3.If(convert(c), convert(a), convert(b))
        a, b = convert(e.a), convert(e.b)
        match e:
            case FloorDiv():
                return floor_divide(a, b)
            case Mod():
                return z3.If(b == 0, 0, a - b * floor_divide(a, b))
            case Min():
                return z3.If(a <= b, a, b)
            case Max():
                return z3.If(a >= b, a, b)
            case And():
                return z3.And(a, b)
            case Or():
                return z3.Or(a, b)
        match e.symbol:
            case "<<":
                return a * 2 ** e.b.value
            case ">>":
                return floor_divide(a, z3.IntVal(2**e.b.value))
            case "&":
                return a - (e.b.value + 1) * floor_divide(a, z3.IntVal(e.b.value + 1))
        return {
            "+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "==": lambda: a == b, "!=": lambda: a != b,
            "<": lambda: a < b, "<=": lambda: a <= b, ">": lambda: a > b, ">=": lambda: a >= b,
        }[e.symbol]()  # fmt: skip

    return convert(expr)


@pytest.mark.parametrize("left, right, box", [rule for rule in RULES if rule.values[2] is not SYMBOLIC])
def test_rule_for_all_integers(left, right, box):
    z3 = pytest.importorskip("z3", reason="z3-solver is not installed")
    solver = z3.Solver()
    solver.set("timeout", 300_000)
    for var, start, extent in box.loops:
        solver.add(z3.Int(var.name) >= start, z3.Int(var.name) < start + extent)
    solver.add(to_z3(parse(left), z3) != to_z3(parse(right), z3))
    assert solver.check() == z3.unsat


# ---- what is known at a place ----


def test_a_loop_of_one_iteration_is_its_start():
    domain = Domain().bind(I, 3, 1).bind(J, 0, 8)
    assert show(simplify(I * 8 + J, domain)) == "j + 24"


def test_conditions_that_hold_are_true_and_their_negations_false():
    domain = Domain().given(parse("p and not q and x < 5"))
    assert simplify(parse("p and not q"), domain) == const(True, "bool")
    assert simplify(parse("q or x >= 5"), domain) == const(False, "bool")


def test_an_equation_gives_the_value():
    assert show(simplify(parse("x*4 + y"), Domain().given(parse("x == 2")))) == "y + 8"
    assert show(simplify(parse("x // 4 + y"), Domain().given(parse("x >= 4 and x < 8")))) == "y + 1"


def test_conditions_over_divisions_are_known_in_canonical_form_too():
    domain = Domain().bind(J, 0, 2).given(parse("(x*2 + j) // 4 < 3"))
    assert simplify(parse("x // 2 < 3"), domain) == const(True, "bool")
    assert simplify(parse("x < 6"), domain) == const(True, "bool")


def test_conditions_that_read_memory_are_not_remembered_over_stores():
    condition = Load(A, (I,)) < 3
    assert simplify(condition, Domain().given(condition)) is condition
    assert simplify(condition, Domain().given(condition, loads=True)) == const(True, "bool")


def test_what_is_read_is_known_inside_one_expression():
    value = Cast(Load(A, (I,)), dtype("int64"))
    expr = if_then_else((value >= 0) & (value < 9), value // 9, 0)
    assert simplify(expr) == index(0)


# ---- identity and order ----


@pytest.mark.parametrize("text", ["i*8 + j + 3", "n - i", "2 - x", "-x - 3", "x // 4 * 4 + y % 3", "i*8 + j < n", "x"])
def test_canonical_expressions_are_returned_as_they_are(text):
    expr = parse(text)
    assert simplify(expr, LOOPS.domain()) is expr


def test_terms_stand_in_the_order_of_the_reader():
    assert show(simplify(parse("1 + j + i*8"))) == "j + i * 8 + 1"
    assert show(simplify(parse("1 + i*8 + j"))) == "i * 8 + j + 1"


# ---- data: sums of what is read from memory may wrap ----


def test_sums_with_int64_data_are_not_divided():
    data = Load(Buffer("D", (4,), "int64"), (I,))
    expr = (data * 8 + J) // 8
    domain = LOOPS.domain()
    assert simplify(expr, domain) is expr
    assert show(simplify(expr, domain.given((data >= 0) & (data < 100), loads=True))) == "D[i]"
    wraps = data + 1 > data
    assert simplify(wraps, domain) is wraps


def test_narrow_indices_are_exact():
    data = Cast(Load(A, (I,)), dtype("int64"))
    assert simplify((data * 8 + J) // 8, LOOPS.domain()) == data


# ---- integers that wrap ----

S = Var("s", int32)
U = Var("u", uint8)


@pytest.mark.parametrize(
    "expr, expected",
    [
        (Add(Add(S, const(3, int32)), const(4, int32)), Add(S, const(7, int32))),
        (Mul(Mul(U, const(16, uint8)), const(16, uint8)), const(0, uint8)),
        (Add(const(200, uint8), const(100, uint8)), const(44, uint8)),
        (Sub(S, S), const(0, int32)),
        (Add(S, const(0, int32)), S),
        (Mul(S, const(1, int32)), S),
        (Min(S, S), S),
        (Neg(Neg(S)), S),
        (FloorDiv(S, const(1, int32)), S),
        (S >= S, const(True, "bool")),
        (U < Cast(const(300, int32), uint8) + U, U < const(44, uint8) + U),
        (Cast(const(300, int32), uint8), const(44, uint8)),
    ],
)
def test_integers_that_wrap(expr, expected):
    assert simplify(expr) == expected


@pytest.mark.parametrize(
    "expr",
    [
        FloorDiv(Add(Mul(U, const(8, uint8)), const(3, uint8)), const(8, uint8)),
        Add(U, const(1, uint8)) > U,
        Sub(Add(S, const(1, int32)), const(1, int32)),
        Mod(Add(U, const(6, uint8)), const(6, uint8)),
    ],
)
def test_integers_that_wrap_are_not_taken_as_exact(expr):
    assert simplify(expr) is expr


def test_ranges_of_integers_that_wrap_decide():
    assert simplify(U >= const(0, uint8)) == const(True, "bool")
    wide = Cast(U, int32)
    assert simplify(wide * const(2, int32) < const(511, int32)) == const(True, "bool")


# ---- floats: only what holds for -0, NaN and infinity ----

F = Var("f", float32)


def number(value, of=float32):
    return const(value, of)


@pytest.mark.parametrize(
    "expr, expected",
    [
        (Mul(F, number(1.0)), F),
        (Mul(number(1.0), F), F),
        (Div(F, number(1.0)), F),
        (Sub(F, number(0.0)), F),
        (Add(F, number(-0.0)), F),
        (Neg(Neg(F)), F),
        (Max(F, F), F),
        (Add(number(0.1), number(0.2)), number(0.1 + 0.2)),
        (Mul(number(0.1, float64), number(3.0, float64)), number(0.1 * 3.0, float64)),
        (Div(number(1.0), number(3.0)), number(1.0 / 3.0)),
        (number(1.0) < number(2.0), const(True, "bool")),
        (Cast(number(2.75), int32), const(2, int32)),
        (Select(I < 0, F, Neg(F)), Neg(F)),
    ],
)
def test_floats(expr, expected):
    assert simplify(expr, LOOPS.domain()) == expected


@pytest.mark.parametrize(
    "expr",
    [
        Add(F, number(0.0)), Sub(F, number(-0.0)), Sub(F, F), Mul(F, number(0.0)), Div(F, F), Not(F < F),
        Add(Add(F, number(1.0)), number(2.0)), number(1.0, float64) < Var("g", float64),
        Div(number(1.0), number(0.0)), Mul(number(math.inf), number(0.0)), Neg(Sub(F, number(2.0))),
    ],
    ids=show,
)  # fmt: skip
def test_floats_are_left_alone(expr):
    assert simplify(expr) is expr


def test_indices_inside_floats_are_simplified():
    load = Load(Buffer("B", (64,), float32), ((I * 8 + J) % 8,))
    assert show(simplify(load + 1.0, LOOPS.domain())) == "B[j] + float32(1.0)"


# ---- vectors ----


def ramp(text: str, stride: int = 1, lanes: int = 16) -> Ramp:
    return Ramp(parse(text), index(stride), lanes)


def same(text: str, lanes: int = 16) -> Broadcast:
    return Broadcast(parse(text), lanes)


VECTORS = [
    (same("x") + same("y"), "broadcast(x + y, 16)"),
    (ramp("x") + same("y"), "ramp(x + y, 1, 16)"),
    (same("y") - ramp("x"), "ramp(y - x, -1, 16)"),
    (ramp("x") + ramp("y", 2), "ramp(x + y, 3, 16)"),
    (ramp("x") - ramp("y"), "broadcast(x - y, 16)"),
    (ramp("x") * same("4"), "ramp(x*4, 4, 16)"),
    (ramp("x") * same("y"), "ramp(x*y, y, 16)"),
    (Neg(ramp("x")), "ramp(-x, -1, 16)"),
    (ramp("x", 0), "broadcast(x, 16)"),
    (ramp("x*16") // same("16"), "broadcast(x, 16)"),
    (ramp("x*16") % same("16"), "ramp(0, 1, 16)"),
    (ramp("x*16") // same("48"), "broadcast(x // 3, 16)"),
    (ramp("x*16") % same("48"), "ramp(x % 3 * 16, 1, 16)"),
    (ramp("i*48 + j % 3 * 16") // same("48"), "broadcast(i, 16)"),
    (ramp("x", 4) // same("4"), "ramp(x // 4, 1, 16)"),
    (ramp("x", 4) % same("4"), "broadcast(x % 4, 16)"),
    (ramp("x", 1) // same("4"), "ramp(x, 1, 16) // broadcast(4, 16)"),
    (ramp("x*16") < same("y*16"), "broadcast(x < y, 16)"),
    (ramp("j") < same("23"), "broadcast(true, 16)"),
    (ramp("j") >= same("23"), "broadcast(false, 16)"),
    (ramp("j + 1 - 1") < same("22"), "ramp(j, 1, 16) < broadcast(22, 16)"),
    (And(ramp("j") < same("23"), ramp("x") < same("y")), "ramp(x, 1, 16) < broadcast(y, 16)"),
    (Or(ramp("j") < same("23"), ramp("x") < same("y")), "broadcast(true, 16)"),
    (Select(ramp("j") < same("23"), ramp("x"), same("y")), "ramp(x, 1, 16)"),
    (Add(Broadcast(F, 4), Broadcast(number(2.0), 4)), "broadcast(f + float32(2), 4)"),
    (Cast(Broadcast(F, 4), dtype("float64x4")), "broadcast(cast(float64, f), 4)"),
    (Load(A, (ramp("i*8 + j - i*8"),), ramp("j") < same("23")), "A[ramp(j, 1, 16)]"),
]


@pytest.mark.parametrize("expr, expected", VECTORS, ids=[show(expr) for expr, _ in VECTORS])
def test_vectors(expr, expected):
    domain = LOOPS.domain()
    new = simplify(expr, domain)
    names = {**NAMES, "f": F}
    assert show(new) == show(parse_expr(expected, names))
    assert simplify(new, domain) is new
    if not expr.dtype.is_float and type(expr) is not Load:
        for env in itertools.islice(LOOPS.points(), 0, None, 97):
            for lane in range(16):
                assert evaluate(new, env, lane) == evaluate(expr, env, lane)


def test_a_ramp_stays_in_one_quotient_where_its_base_is_known_to():
    domain = Domain().given(parse("x % 48 <= 32"))
    assert show(simplify(ramp("x") // same("48"), domain)) == "broadcast(x // 48, 16)"
    assert show(simplify(ramp("x") % same("48"), domain)) == "ramp(x % 48, 1, 16)"


@pytest.mark.parametrize("choose", [select, if_then_else])
def test_loads_move_where_a_condition_does_not_guard_them(choose):
    domain = Domain().bind(X, 0, 4)
    new = simplify(choose(X < 3, Load(A, (X % 3,)), A_ZERO), domain)
    assert show(new.true) == ("A[x]" if choose is if_then_else else "A[x % 3]")
    both = logical_and(X < 3, Load(A, (X % 3,)) > 0)
    assert simplify(both, domain) == both


def test_select_of_literals():
    assert simplify(select(P, True, False)) is P


def test_a_choice_of_data_takes_nothing_in():
    """min(a, b) - a is min(0, b - a) for indices, but b - a of any int64 may wrap."""
    buffer = Buffer("A", (4,), "int64")
    a, b = (Load(buffer, (index(at),)) for at in (0, 1))
    for choice in (Min(a, b), Max(a, b)):
        assert simplify(choice - a) == choice - a
    i, j = Var("i"), Var("j")
    assert simplify(Min(i, j) - i) != Min(i, j) - i
