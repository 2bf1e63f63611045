"""Reducers that choose among positions: what lanes need not keep, and need not compare.

`argmax` keeps the position of the best value so far, an int64, and asks of equal values which position is the
smaller one. In a lane, positions come in their order, so that the old one always is; and where all of them fit
int32, the lane keeps them so: integers that are only compared and chosen stay in their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorc.arith import Domain, affine, can_prove
from tensorc.dtypes import bool_, int32, int64
from tensorc.ir.expr import (
    GE,
    GT,
    LE,
    LT,
    Compare,
    Const,
    Expr,
    Load,
    Max,
    Min,
    Select,
    Var,
    cast,
    const,
    eq,
    logical_and,
    logical_not,
    logical_or,
    select,
)  # fmt: skip
from tensorc.ir.reducer import Update
from tensorc.ir.stmt import For
from tensorc.ir.walk import children, rewrite, substitute, uses, walk_expr

MOST_STEP = 1 << 16  # of a position in an iteration: no loop takes the time in which it would wrap


def narrow_positions(update: Update, domain: Domain) -> tuple[bool, ...]:
    """For each element of an update, whether lanes can keep it as int32.

    It is int64, terms and identity fit, and the reducer does nothing with it but compare and choose. `domain` bounds
    what the terms are made of.
    """
    return tuple([_is_narrow(update, n, domain) for n in range(len(update.elements))])


def _is_narrow(update: Update, n: int, domain: Domain) -> bool:
    element, term, identity = update.elements[n], update.terms[n], update.identities[n]
    if element.dtype is not int64 or not _is_end_or_inside(identity):
        return False
    leaves = (element, update.new[n])
    if not _is_chosen(update.combined[n], leaves):
        return False
    if not all(_only_compares(e, leaves) for m, e in enumerate(update.combined) if m != n):
        return False
    if any(type(e) is Load for e in walk_expr(term)):
        return False
    return can_prove(logical_and(term > int32.min, term < int32.max), domain)


def _is_end_or_inside(identity: Const) -> bool:
    return identity.value in (int64.min, int64.max) or int32.min < identity.value < int32.max


def _is_chosen(expr: Expr, leaves: Sequence[Expr]) -> bool:
    """Whether an expression is always one of the leaves, by conditions that only compare them."""
    match expr:
        case Select(condition, true, false):
            return _only_compares(condition, leaves) and _is_chosen(true, leaves) and _is_chosen(false, leaves)
        case Min(a, b) | Max(a, b):
            return a in leaves and b in leaves
        case _:
            return expr in leaves


def _only_compares(expr: Expr, leaves: Sequence[Expr]) -> bool:
    """Whether the leaves in an expression are compared with one another and nothing else."""
    if expr in leaves:
        return False
    if isinstance(expr, Compare) and expr.a in leaves and expr.b in leaves:
        return True
    return all(_only_compares(operand, leaves) for operand in children(expr))


def narrowed(value: Const) -> Const:
    """An identity in int32: an end of int64 becomes the end of int32."""
    number = value.value
    return const(int32.min if number == int64.min else int32.max if number == int64.max else number, int32)


def widened(value: Expr, identity: Const) -> Expr:
    """A position that lanes kept as int32; the identity is what it was."""
    return select(eq(value, narrowed(identity)), identity, cast(value, int64))


def in_order(update: Update, loops: Sequence[For], lane: Var, values: Mapping[Var, Expr]) -> Update | None:
    """The update for all but the first term of a lane, where some terms grow with every iteration of the loops.

    What is chosen among earlier terms is less than a later one. None where nothing is known to grow. `loops` run around
    one another, outermost first, and `lane` stays; `values` are those of the iterators in the terms.
    """
    known: dict[Expr, Expr] = {}
    for n, (element, new) in enumerate(zip(update.elements, update.new)):
        grows = _grows(substitute(update.terms[n], values), loops, lane)
        if grows and element.dtype.is_int and _is_chosen(update.combined[n], (element, new)):
            for compare, holds in ((LT, True), (LE, True), (GT, False), (GE, False)):
                known[compare(element, new)] = Const(holds, bool_)
                known[compare(new, element)] = Const(not holds, bool_)
    if not any(e in known for value in update.combined for e in walk_expr(value)):
        return None
    combined = tuple([rewrite(value, lambda e: _folded(known.get(e, e))) for value in update.combined])
    return Update(update.elements, update.terms, update.new, combined, update.identities)


def _grows(term: Expr, loops: Sequence[For], lane: Var) -> bool:
    """Whether an integer gets larger with every iteration, each loop counting for more than those in it together."""
    form = affine(term)
    own = [loop.var for loop in loops]
    if any(type(atom) is not Var and uses(atom, (*own, lane)) for atom, _ in form.terms):
        return False
    reach = 0
    for loop in reversed(loops):
        scale = form.coefficient(loop.var)
        if not reach < scale <= MOST_STEP:
            return False
        if loop is not loops[0]:
            if type(loop.extent) is not Const:
                return False
            reach += scale * (loop.extent.value - 1)
    return True


def _folded(expr: Expr) -> Expr:
    """select(c, true, b) -> c or b;   select(c, false, b) -> not c and b;   select(true, a, b) -> a"""
    match expr:
        case Select(Const(chosen), true, false):
            return true if chosen else false
        case Select(condition, Const(value=True), false) if expr.dtype.is_bool:
            return logical_or(condition, false)
        case Select(condition, Const(value=False), false) if expr.dtype.is_bool:
            return logical_and(logical_not(condition), false)
        case _:
            return expr
