"""The work of a definition: floating-point and integer operations, and bytes."""

from __future__ import annotations

from tensorc.ir.expr import (
    Add,
    Binary,
    BitAnd,
    BitOr,
    BitXor,
    Buffer,
    Call,
    Const,
    Div,
    Expr,
    FloorDiv,
    IfThenElse,
    Load,
    Max,
    Min,
    Mod,
    Mul,
    Neg,
    ShiftLeft,
    ShiftRight,
    Sub,
    Var,
    add,
    floordiv,
    maximum,
    mul,
    sub,
)
from tensorc.ir.function import Function
from tensorc.ir.stmt import Block, For, If, Let, Stmt, Store, annotation
from tensorc.ir.walk import children, rewrite, substmts, walk_expr

_OPERATIONS = frozenset(
    (
        Add,
        Sub,
        Mul,
        Div,
        FloorDiv,
        Mod,
        Min,
        Max,
        Neg,
        Call,
        BitAnd,
        BitOr,
        BitXor,
        ShiftLeft,
        ShiftRight,
    )
)


def count(function: Function) -> tuple[int | Expr, int | Expr]:
    """(operations, bytes) of an unscheduled function: numbers, or expressions over its variables
    where extents are symbolic.

    Operations are the arithmetic of the blocks' bodies, as written, at each point of their domains:
    a multiply and an add are two, an intrinsic is one; comparisons, choices, casts, and arithmetic
    on nothing but iterators and literals are none. A guard counts as its costlier side. Bytes are
    those of the parameters, each once. An extent that depends on iterators counts as it is in their
    middle, and one that is loaded from data as 1; blocks with the
    annotation "check" do not count.
    """
    total = sum([_bytes(buffer) for buffer in function.params])
    return _operations(function.body, {}), total


def _bytes(buffer: Buffer) -> int | Expr:
    size: int | Expr = buffer.dtype.bytes
    for extent in buffer.shape:
        size *= _extent(extent)
    return size


def _extent(extent: Expr) -> int | Expr:
    return max(int(extent.value), 0) if type(extent) is Const else maximum(extent, 0)


Middles = dict[Var, Expr]  # what the variable of a loop is halfway


def _mean(extent: Expr, middles: Middles) -> int | Expr:
    if type(extent) is Const:
        return _extent(extent)
    if any([type(e) is Load for e in walk_expr(extent)]):
        return 1
    return _extent(rewrite(extent, lambda e: _folded(middles.get(e, e) if type(e) is Var else e)))


def _folded(expr: Expr) -> Expr:
    """A sum, difference or product of literals as a literal."""
    if not isinstance(expr, Binary) or type(expr) not in _FOLDED:
        return expr
    return _FOLDED[type(expr)](expr.a, expr.b) if type(expr.a) is Const and type(expr.b) is Const else expr


_FOLDED = {Add: add, Sub: sub, Mul: mul, FloorDiv: floordiv}


def _operations(stmt: Stmt, middles: Middles) -> int | Expr:
    """Operations of a statement; not the loops around a block count but its domain."""
    match stmt:
        case Store(_, _, value):
            return _cost(value, {})[0]
        case Block() if annotation(stmt, "check"):
            return 0
        case Block(iters=iters, body=body):
            points = _operations(body, middles)
            for it in iters:
                points *= _mean(it.extent, middles)
            return points
        case For(var, start, extent, _, body):
            size = _mean(extent, middles)
            inside = {**middles, var: start + (size - 1) // 2}
            return (1 if _holds_block(body) else size) * _operations(body, inside)
        case If(_, then):
            return _operations(then, middles)
        case Let(_, value, body):
            return _cost(value, {})[0] + _operations(body, middles)
        case _:
            return sum([_operations(inner, middles) for inner in substmts(stmt)])


def _holds_block(stmt: Stmt) -> bool:
    return type(stmt) is Block or any([_holds_block(inner) for inner in substmts(stmt)])


def _cost(expr: Expr, known: dict[int, tuple[int, bool]]) -> tuple[int, bool]:
    """Operations, and whether it is index arithmetic: integers of iterators and literals only."""
    done = known.get(id(expr))
    if done is None:
        done = known[id(expr)] = _cost_once(expr, known)
    return done


def _cost_once(expr: Expr, known: dict[int, tuple[int, bool]]) -> tuple[int, bool]:
    match expr:
        case Var() | Const():
            return 0, expr.dtype.is_int
        case Load():
            return 0, False
        case IfThenElse(_, true, false):
            return max(_cost(true, known)[0], _cost(false, known)[0]), False
        case _:
            costs = [_cost(operand, known) for operand in children(expr)]
    if expr.dtype.is_int and type(expr) is not Call and all([is_index for _, is_index in costs]):
        return 0, True
    return sum([cost for cost, _ in costs]) + (type(expr) in _OPERATIONS), False
