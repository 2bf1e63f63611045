"""Promises about indices that are loaded from data: what a definition may rely on without a check."""

from __future__ import annotations

from dataclasses import field

from tensorc.dtypes import DType, int64
from tensorc.errors import ExpressionError
from tensorc.ir.expr import Expr, as_index, node
from tensorc.ir.walk import rewrite


@node
class Assume(Expr):
    """`value`, which the caller promises to lie in lo .. hi - 1; it lives only until a definition is lowered."""

    value: Expr
    lo: Expr
    hi: Expr
    dtype: DType = field(init=False, repr=False)

    def __post_init__(self):
        object.__setattr__(self, "dtype", int64)

    @property
    def operands(self) -> tuple[Expr, ...]:
        return (self.value, self.lo, self.hi)

    def with_operands(self, operands: tuple[Expr, ...]) -> Assume:
        return Assume(*operands)


def assume(expr, lo, hi) -> Expr:
    """The integer `expr` as an index, with the promise that lo <= expr < hi wherever it is evaluated.

    `X[te.assume(I[i], 0, n)]` is not checked as the kernel runs. A promise that is broken is undefined behaviour: the
    kernel may read outside its arguments. Raises ExpressionError for what is no integer.
    """
    try:
        return Assume(as_index(expr), as_index(lo), as_index(hi))
    except ExpressionError as error:
        raise ExpressionError(f"te.assume: {error}") from None


def take_off(expr: Expr) -> tuple[Expr, tuple[Expr, ...]]:
    """The expression without its promises, and the conditions that they promise."""
    promised: dict[Expr, None] = {}

    def rule(e: Expr) -> Expr | None:
        if type(e) is not Assume:
            return None
        promised[e.value >= e.lo] = None
        promised[e.value < e.hi] = None
        return e.value

    return rewrite(expr, rule), tuple(promised)
