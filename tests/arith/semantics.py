"""What expressions mean, in plain Python: int64 as exact integers, other integers wrapping, one lane at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from hypothesis import strategies as st

from tensorc.arith import Domain
from tensorc.dtypes import int64
from tensorc.ir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    BitAnd,
    Broadcast,
    Cast,
    Const,
    Expr,
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
    ShiftLeft,
    ShiftRight,
    Sub,
    Var,
    convert,
    index,
    wrap,
)

Env = Mapping[Var, int]

OPERATIONS = {
    Add: lambda a, b: a + b,
    Sub: lambda a, b: a - b,
    Mul: lambda a, b: a * b,
    FloorDiv: lambda a, b: a // b if b else 0,
    Mod: lambda a, b: a % b if b else 0,
    Min: min,
    Max: max,
    BitAnd: lambda a, b: a & b,
    ShiftLeft: lambda a, b: a << b if 0 <= b < 64 else 0,
    ShiftRight: lambda a, b: a >> b if 0 <= b < 64 else -(a < 0),
    And: lambda a, b: a and b,
    Or: lambda a, b: a or b,
    EQ: lambda a, b: a == b,
    NE: lambda a, b: a != b,
    LT: lambda a, b: a < b,
    LE: lambda a, b: a <= b,
    GT: lambda a, b: a > b,
    GE: lambda a, b: a >= b,
}


def evaluate(expr: Expr, env: Env, lane: int = 0):
    """The value of an expression (of one lane of a vector) where the variables have these values.

    A load gives a number made of its indices, the same for the same indices.
    """

    def value(e: Expr):
        match e:
            case Const():
                return e.value
            case Var():
                return env[e]
            case Neg(a):
                found = -value(a)
            case Not(a):
                return not value(a)
            case Cast(a, dtype):
                return convert(value(a), dtype)
            case Select(c, a, b) | IfThenElse(c, a, b):
                return value(a) if value(c) else value(b)
            case Ramp(a, b):
                found = value(a) + lane * value(b)
            case Broadcast(a):
                return value(a)
            case Load(_, indices):
                found = sum([7919 * value(i) % 23 for i in indices]) - 9
            case _:
                found = OPERATIONS[type(e)](value(e.a), value(e.b))
        if e.dtype.is_int and e.dtype.scalar is not int64:
            return wrap(found, e.dtype.scalar)
        return found

    return value(expr)


class Box:
    """Loops: for each variable a start and an extent, numbers or expressions of the variables before it."""

    def __init__(self, loops: list[tuple[Var, int | Expr, int | Expr]], free: Mapping[Var, range] = {}):
        self.loops = loops
        self.free = free

    @property
    def variables(self) -> list[Var]:
        return [*self.free, *[var for var, _, _ in self.loops]]

    def domain(self, *conditions: Expr) -> Domain:
        domain = Domain()
        for var, start, extent in self.loops:
            domain = domain.bind(var, start, extent)
        for condition in conditions:
            domain = domain.given(condition)
        return domain

    def points(self, *conditions: Expr) -> Iterator[Env]:
        """Every point of the loops at which the conditions hold."""
        for values in itertools.product(*self.free.values()):
            yield from self._inside(dict(zip(self.free, values)), self.loops, conditions)

    def _inside(self, env: Env, loops, conditions) -> Iterator[Env]:
        if not loops:
            if all([evaluate(condition, env) for condition in conditions]):
                yield env
            return
        var, start, extent = loops[0]
        first = evaluate(index(start) if isinstance(start, int) else start, env)
        count = evaluate(index(extent) if isinstance(extent, int) else extent, env)
        for at in range(first, first + count):
            yield from self._inside({**env, var: at}, loops[1:], conditions)


CONSTANTS = st.sampled_from([-9, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 8, 12, 16, 24])
DIVISORS = st.sampled_from([-4, -3, -1, 0, 1, 2, 2, 3, 4, 4, 6, 8, 8, 12])


KINDS = st.sampled_from(
    ["leaf", "sum", "sum", "scaled", "divided", "divided", "divided", "symbolic", "extreme", "choice", "bits", "neg"]
)
SUMS = st.sampled_from([Add, Add, Sub])
DIVISIONS = st.sampled_from([FloorDiv, Mod])
SYMBOLIC = st.sampled_from([FloorDiv, Mod, Mul])
EXTREMES = st.sampled_from([Min, Max])
CHOICES = st.sampled_from([Select, IfThenElse])
BITS = st.sampled_from([BitAnd, ShiftRight, ShiftLeft])
AMOUNTS = st.sampled_from([0, 1, 2, 3, 7])
COMPARISONS = st.sampled_from([EQ, NE, LT, LE, GT, GE])
LOGIC = st.sampled_from(["compare", "compare", "and", "or", "not"])


@st.composite
def expressions(draw, variables: list[Var], depth: int = 4) -> Expr:
    """Index expressions, made of the bare nodes so that nothing folds."""

    def make(depth: int) -> Expr:
        match draw(KINDS) if depth else "leaf":
            case "sum":
                return draw(SUMS)(make(depth - 1), make(depth - 1))
            case "scaled":
                return Mul(make(depth - 1), index(draw(CONSTANTS)))
            case "divided":
                return draw(DIVISIONS)(make(depth - 1), index(draw(DIVISORS)))
            case "symbolic":
                return draw(SYMBOLIC)(make(depth - 1), make(0))
            case "extreme":
                return draw(EXTREMES)(make(depth - 1), make(depth - 1))
            case "choice":
                return draw(CHOICES)(draw(conditions(variables, 0, 1)), make(depth - 1), make(depth - 1))
            case "bits":
                return draw(BITS)(make(depth - 1), index(draw(AMOUNTS)))
            case "neg":
                return Neg(make(depth - 1))
        if draw(st.integers(0, 3)):
            return draw(st.sampled_from(variables))
        return index(draw(CONSTANTS))

    return make(depth)


@st.composite
def conditions(draw, variables: list[Var], depth: int = 2, size: int = 2) -> Expr:
    """Bool expressions over index expressions of a depth of at most `size`."""

    def make(depth: int) -> Expr:
        match draw(LOGIC) if depth else "compare":
            case "and":
                return And(make(depth - 1), make(depth - 1))
            case "or":
                return Or(make(depth - 1), make(depth - 1))
            case "not":
                return Not(make(depth - 1))
        return draw(COMPARISONS)(draw(expressions(variables, size)), draw(expressions(variables, size)))

    return make(depth)
