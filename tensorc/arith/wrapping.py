"""Where index arithmetic may wrap: what is taken to be of moderate size, and what may be any number of 64 bits.

A linear form is a sum of the integers; the expression that it is the form of is computed modulo 2**64. The two are the
same where the form surely lies in int64 (`bounds.exact`). Where it may not, nothing that is known of the sum tells
of the value: it is then an atom of its own, `Wrapped`, of which conditions may tell.

Sizes and counts (extents, and the loops over them) are taken to be at most `LARGEST`, which calls see to. Data, and the
scalars that are no sizes, may be anything.
"""

from __future__ import annotations

from dataclasses import field

from tensorc.arith.affine import Terms, build, linear
from tensorc.dtypes import DType, int64
from tensorc.ir.expr import Call, Cast, Expr, Load, Mul, Var, node
from tensorc.ir.walk import walk_expr

LARGEST = 1 << 40  # size of an axis that depends on the call


@node
class Wrapped(Expr):
    """The value of a sum that may wrap; it lives only in what a domain knows."""

    value: Expr
    dtype: DType = field(init=False, repr=False)

    def __post_init__(self):
        object.__setattr__(self, "dtype", int64)

    @property
    def operands(self) -> tuple[Expr, ...]:
        return (self.value,)

    def with_operands(self, operands: tuple[Expr, ...]) -> Wrapped:
        return Wrapped(*operands)


def wrapped(terms: Terms, constant: int) -> Wrapped:
    """The value of a form that may wrap; equal for equal forms, whatever the order of their terms."""
    ordered = dict(sorted(terms.items(), key=lambda item: (hash(item[0]), item[1])))
    return Wrapped(build(ordered, constant))


def is_value(terms: Terms, constant: int) -> bool:
    """Whether a form is an atom as it stands, which is what it is."""
    if len(terms) != 1 or constant:
        return False
    (atom, scale), = terms.items()
    return scale == 1 and type(atom) is not Mul


def is_wild(expr: Expr) -> bool:
    """Whether an expression may hold any number, so that a sum with it may wrap."""
    return expr.wraps if type(expr) is Var else type(expr) in (Load, Call, Cast, Wrapped)


def operand(expr: Expr) -> tuple[Terms, int] | None:
    """The form of an operand of a division, if without more knowledge its value surely is that of the form."""
    form = linear(expr)
    if is_value(*form) or not any([is_wild(e) for e in walk_expr(expr)]):
        return form
    return None
