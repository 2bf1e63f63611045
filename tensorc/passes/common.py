"""What several passes share: conjunctions, loops and branches that drop what is dead, what holds at
the entry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tensorc.arith import Affine, Domain, affine, is_wild
from tensorc.ir.expr import (
    GE,
    GT,
    LE,
    LT,
    And,
    Binary,
    Buffer,
    Const,
    Expr,
    Load,
    Var,
    is_const,
    logical_and,
)  # fmt: skip
from tensorc.ir.function import Function
from tensorc.ir.reducer import OPERATIONS
from tensorc.ir.stmt import Annotations, For, If, LoopKind, Seq, Stmt, Store
from tensorc.ir.walk import children, uses, walk_expr

NOTHING = Seq(())
Lets = Mapping[Var, Expr]  # the values of the variables of `let` around a place


def is_nothing(stmt: Stmt) -> bool:
    """Whether a statement is the empty sequence."""
    return type(stmt) is Seq and not stmt.stmts


def entry_domain(function: Function) -> Domain:
    """What is known as a function is called: extents are not negative, and the assumptions hold."""
    domain = Domain()
    symbols = {
        e
        for buffer in function.params
        for e in (*buffer.shape, *(buffer.strides or ()))
        if type(e) is Var
    }
    for symbol in sorted(symbols, key=lambda var: var.name):
        domain = domain.given(symbol >= 0)
    for assumption in function.assumptions:
        domain = domain.given(assumption)
    return domain


def conjuncts(condition: Expr) -> list[Expr]:
    """The conditions that must hold together; none for `true`."""
    if type(condition) is And:
        return conjuncts(condition.a) + conjuncts(condition.b)
    return [] if is_const(condition, True) else [condition]


def conjunction(conditions: Iterable[Expr]) -> Expr:
    """All of the conditions as one."""
    return logical_and(*conditions)


def as_update(stmt: Store) -> tuple[type[Binary], Expr] | None:
    """The reducer and the new term of a store that combines a term with the element that it
    overwrites."""
    value = stmt.value
    if not isinstance(value, Binary) or type(value) not in OPERATIONS:
        return None
    for old, term in ((value.a, value.b), (value.b, value.a)):
        if (
            type(old) is Load
            and old.buffer is stmt.buffer
            and old.indices == stmt.indices
            and old.mask == stmt.mask
        ):
            return None if loads_from(term, stmt.buffer) else (type(value), term)
    return None


def loads_from(expr: Expr, buffer: Buffer) -> bool:
    """Whether an expression reads a buffer."""
    return any(type(e) is Load and e.buffer is buffer for e in walk_expr(expr))


def depends_on(expr: Expr, buffer: Buffer, lets: Lets) -> bool:
    """Whether an expression, or the value of a variable in it, reads a buffer."""
    return loads_from(expr, buffer) or any(
        type(e) is Var and e in lets and depends_on(lets[e], buffer, lets) for e in walk_expr(expr)
    )


def make_if(condition: Expr, then: Stmt, orelse: Stmt | None = None) -> Stmt:
    """A branch without what cannot run. Two are one where the inner condition, which `and` evaluates
    in any case, loads nothing that the outer one guards."""
    if type(condition) is Const:
        return then if condition.value else NOTHING if orelse is None else orelse
    if orelse is not None and is_nothing(orelse):
        orelse = None
    if is_nothing(then) and orelse is None:
        return NOTHING
    if orelse is None and type(then) is If and then.orelse is None and not _may_fail(then.condition):
        return If(logical_and(condition, then.condition), then.then)
    return If(condition, then, orelse)


def _may_fail(condition: Expr) -> bool:
    return any(type(e) is Load for e in walk_expr(condition))


def make_for(
    var: Var, start: Expr, extent: Expr, kind: LoopKind, body: Stmt, annotations: Annotations = ()
) -> Stmt:
    """A loop, or nothing if it does nothing; conditions that do not change in it are tested
    outside."""
    if is_nothing(body) or (type(extent) is Const and extent.value <= 0):
        return NOTHING
    if type(body) is not If or body.orelse is not None or kind in ("parallel", "thread"):
        return For(var, start, extent, kind, body, annotations)
    inside: list[Expr] = []
    outside: list[Expr] = []
    for condition in conjuncts(body.condition):
        (outside if _is_invariant(condition, var) else inside).append(condition)
    if not outside:
        return For(var, start, extent, kind, body, annotations)
    inner = If(conjunction(inside), body.then) if inside else body.then
    return If(conjunction(outside), make_for(var, start, extent, kind, inner, annotations))


def _is_invariant(condition: Expr, var: Var) -> bool:
    return all(e is not var and type(e) is not Load for e in walk_expr(condition))


def requirement(condition: Expr) -> Affine | None:
    """The linear form that is >= 0 where a comparison holds."""
    match condition:
        case LT(a, b) if a.dtype.is_int:
            return affine(b - a - 1)
        case LE(a, b) if a.dtype.is_int:
            return affine(b - a)
        case GT(a, b) if a.dtype.is_int:
            return affine(a - b - 1)
        case GE(a, b) if a.dtype.is_int:
            return affine(a - b)
        case _:
            return None


def direction(condition: Expr, var: Var) -> int:
    """1 where a condition, once it holds, holds for all greater values of a variable; -1 for all
    smaller; else 0."""
    form = requirement(condition)
    if form is None or any(atom is not var and uses(atom, (var,)) for atom, _ in form.terms):
        return 0
    if any([is_wild(e) for side in children(condition) if uses(side, (var,)) for e in walk_expr(side)]):
        return 0  # the side that moves may wrap
    coefficient = form.coefficient(var)
    return (coefficient > 0) - (coefficient < 0)
