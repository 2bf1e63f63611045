"""Walking and rewriting the IR. A rewrite that changes nothing returns the same object."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace

from tensorc.ir.expr import (
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    IfThenElse,
    Load,
    Neg,
    Not,
    Ramp,
    Select,
    Var,
)
from tensorc.ir.stmt import (
    Alloc,
    Barrier,
    Block,
    BlockIter,
    Check,
    Evaluate,
    For,
    If,
    Let,
    Prefetch,
    Seq,
    Stmt,
    Store,
    While,
    seq,
)

Rule = Callable[[Expr], "Expr | None"]


def children(expr: Expr) -> tuple[Expr, ...]:
    """The operands of an expression, in order of evaluation."""
    match expr:
        case Const() | Var():
            return ()
        case Binary(a, b):
            return (a, b)
        case Not(value) | Neg(value) | Cast(value) | Broadcast(value):
            return (value,)
        case Load(_, indices, mask):
            return indices if mask is None else (*indices, mask)
        case Select(condition, true, false) | IfThenElse(condition, true, false):
            return (condition, true, false)
        case Call(_, args):
            return args
        case Ramp(base, stride):
            return (base, stride)
        case _:
            return expr.operands


def rebuild(expr: Expr, operands: tuple[Expr, ...]) -> Expr:
    """The expression with other operands; the very same object where all operands are the same objects."""
    if all(map(_is, children(expr), operands)):
        return expr
    match expr:
        case Binary():
            return type(expr)(*operands)
        case Not() | Neg():
            return type(expr)(*operands)
        case Cast(_, dtype):
            return Cast(operands[0], dtype.with_lanes(operands[0].dtype.lanes))
        case Broadcast(_, lanes):
            return Broadcast(operands[0], lanes)
        case Load(buffer, indices, mask):
            count = len(indices)
            return Load(buffer, operands[:count], None if mask is None else operands[count])
        case Select() | IfThenElse():
            return type(expr)(*operands)
        case Call(name, _, dtype):
            return Call(name, operands, dtype)
        case Ramp(_, _, lanes):
            return Ramp(operands[0], operands[1], lanes)
        case _:
            return expr.with_operands(operands)


def _is(a, b) -> bool:
    return a is b


def rewrite(expr: Expr, rule: Rule) -> Expr:
    """Apply `rule` bottom-up: each node after its operands; a rule returns None for "no change"."""
    cls = type(expr)
    if isinstance(expr, Binary):  # most nodes are binary or leaves: no tuples for them
        a, b = rewrite(expr.a, rule), rewrite(expr.b, rule)
        if a is not expr.a or b is not expr.b:
            expr = type(expr)(a, b)
    elif cls is not Var and cls is not Const:
        expr = rebuild(expr, tuple([rewrite(operand, rule) for operand in children(expr)]))
    changed = rule(expr)
    return expr if changed is None else changed


def rewrite_top(expr: Expr, rule: Rule) -> Expr:
    """Apply `rule` top-down: what it returns is final, where it returns None the operands are visited."""
    changed = rule(expr)
    if changed is not None:
        return changed
    operands = children(expr)
    if not operands:
        return expr
    return rebuild(expr, tuple([rewrite_top(operand, rule) for operand in operands]))


def substitute(expr: Expr, values: Mapping[Var, Expr]) -> Expr:
    """The expression with variables replaced."""
    if not values:
        return expr
    return rewrite(expr, lambda e: values.get(e) if type(e) is Var else None)


def exprs(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions that a statement itself evaluates, without those of statements in it."""
    match stmt:
        case Store(_, indices, value, mask):
            return (*indices, value) if mask is None else (*indices, value, mask)
        case Prefetch(_, indices):
            return indices
        case For(_, start, extent):
            return (start, extent)
        case If(condition) | While(condition):
            return (condition,)
        case Let(_, value):
            return (value,)
        case Check(condition, value, _, at):
            return (condition, value, *at)
        case Evaluate(call):
            return (call,)
        case Block(_, iters, predicate):
            return (*[expr for it in iters for expr in (it.extent, it.binding)], predicate)
        case _:
            return ()


def substmts(stmt: Stmt) -> tuple[Stmt, ...]:
    """The statements directly inside a statement."""
    match stmt:
        case Seq(stmts):
            return stmts
        case For() | Let() | Alloc() | While():
            return (stmt.body,)
        case If(_, then, orelse):
            return (then,) if orelse is None else (then, orelse)
        case Block(init=init, body=body):
            return (body,) if init is None else (init, body)
        case _:
            return ()


def map_exprs(stmt: Stmt, change: Callable[[Expr], Expr]) -> Stmt:
    """A statement with `change` applied to the expressions that it itself evaluates."""
    match stmt:
        case Store(buffer, indices, value, mask, stream):
            new_indices, new_value = _map(indices, change), change(value)
            new_mask = None if mask is None else change(mask)
            if new_indices is indices and new_value is value and new_mask is mask:
                return stmt
            return Store(buffer, new_indices, new_value, new_mask, stream)
        case Prefetch(buffer, indices):
            new_indices = _map(indices, change)
            return stmt if new_indices is indices else Prefetch(buffer, new_indices)
        case For(var, start, extent, kind, body, annotations):
            new_start, new_extent = change(start), change(extent)
            if new_start is start and new_extent is extent:
                return stmt
            return For(var, new_start, new_extent, kind, body, annotations)
        case If(condition, then, orelse):
            new = change(condition)
            return stmt if new is condition else If(new, then, orelse)
        case While(condition, body):
            new = change(condition)
            return stmt if new is condition else While(new, body)
        case Let(var, value, body):
            new = change(value)
            return stmt if new is value else Let(var, new, body)
        case Check(condition, value, message, at):
            new, new_value, new_at = change(condition), change(value), _map(at, change)
            if new is condition and new_value is value and new_at is at:
                return stmt
            return Check(new, new_value, message, new_at)
        case Evaluate(call):
            new = change(call)
            return stmt if new is call else Evaluate(new)  # type: ignore[arg-type]  # calls with effects stay calls
        case Block(name, iters, predicate, init, body, annotations):
            new_iters = _map(iters, lambda it: _map_iter(it, change))
            new = change(predicate)
            if new_iters is iters and new is predicate:
                return stmt
            return Block(name, new_iters, new, init, body, annotations)
        case _:
            return stmt


def _map_iter(it: BlockIter, change) -> BlockIter:
    extent, binding = change(it.extent), change(it.binding)
    return it if extent is it.extent and binding is it.binding else BlockIter(it.var, extent, it.kind, binding)


def _map(items: tuple, change) -> tuple:
    new = tuple([change(item) for item in items])
    return items if all(map(_is, new, items)) else new


def map_substmts(stmt: Stmt, change: Callable[[Stmt], Stmt]) -> Stmt:
    """A statement with `change` applied to the statements directly inside it."""
    match stmt:
        case Seq(stmts):
            new = _map(stmts, change)
            return stmt if new is stmts else seq(*new)
        case For() | Let() | Alloc() | While():
            body = change(stmt.body)
            return stmt if body is stmt.body else replace_body(stmt, body)
        case If(condition, then, orelse):
            new_then = change(then)
            new_orelse = None if orelse is None else change(orelse)
            return stmt if new_then is then and new_orelse is orelse else If(condition, new_then, new_orelse)
        case Block(name, iters, predicate, init, body, annotations):
            new_init = None if init is None else change(init)
            new_body = change(body)
            if new_init is init and new_body is body:
                return stmt
            return Block(name, iters, predicate, new_init, new_body, annotations)
        case _:
            return stmt


def replace_body(stmt, body: Stmt):
    """A statement with another body."""
    match stmt:
        case For(var, start, extent, kind, _, annotations):
            return For(var, start, extent, kind, body, annotations)
        case Let(var, value):
            return Let(var, value, body)
        case Alloc(buffers):
            return Alloc(buffers, body)
        case While(condition):
            return While(condition, body)
        case Block(name, iters, predicate, init, _, annotations):
            return Block(name, iters, predicate, init, body, annotations)
        case _:
            raise TypeError(f"{type(stmt).__name__} has no body")


def rewrite_exprs(stmt: Stmt, rule: Rule) -> Stmt:
    """Apply an expression rule bottom-up everywhere in a statement."""

    def visit(s: Stmt) -> Stmt:
        return map_exprs(map_substmts(s, visit), lambda e: rewrite(e, rule))

    return visit(stmt)


def rewrite_stmts(stmt: Stmt, rule: Callable[[Stmt], Stmt | None]) -> Stmt:
    """Apply a statement rule bottom-up; a rule returns None for "no change"."""
    new = map_substmts(stmt, lambda s: rewrite_stmts(s, rule))
    changed = rule(new)
    return new if changed is None else changed


def substitute_stmt(stmt: Stmt, values: Mapping[Var, Expr]) -> Stmt:
    """A statement with variables replaced."""
    return rewrite_exprs(stmt, lambda e: values.get(e) if type(e) is Var else None) if values else stmt


def replace_buffers(stmt: Stmt, buffers: Mapping[Buffer, Buffer]) -> Stmt:
    """A statement whose loads, stores and allocations name other buffers."""

    def on_expr(e: Expr) -> Expr | None:
        if type(e) is Load and e.buffer in buffers:
            return Load(buffers[e.buffer], e.indices, e.mask)
        return None

    def on_stmt(s: Stmt) -> Stmt | None:
        if type(s) is Store and s.buffer in buffers:
            return Store(buffers[s.buffer], s.indices, s.value, s.mask, s.stream)
        if type(s) is Prefetch and s.buffer in buffers:
            return Prefetch(buffers[s.buffer], s.indices)
        if type(s) is Alloc and any(buffer in buffers for buffer in s.buffers):
            return Alloc(tuple([buffers.get(buffer, buffer) for buffer in s.buffers]), s.body)
        return None

    return rewrite_stmts(rewrite_exprs(stmt, on_expr), on_stmt) if buffers else stmt


def walk(stmt: Stmt) -> Iterator[Stmt]:
    """Every statement in a statement, itself first."""
    stack = [stmt]
    while stack:
        s = stack.pop()
        yield s
        inner = substmts(s)
        stack.extend(inner if len(inner) < 2 else reversed(inner))


def actions(stmt: Stmt) -> Iterator[Stmt]:
    """The statements, outside the blocks in a statement, that do something themselves."""
    if type(stmt) in (Store, While, Check, Barrier, Evaluate):
        yield stmt
    for inner in () if type(stmt) is Block else substmts(stmt):
        yield from actions(inner)


def is_nest(stmt: Stmt) -> bool:
    """Whether a statement does nothing but by the blocks in it, of which there are some."""
    return next(actions(stmt), None) is None and any(type(each) is Block for each in walk(stmt))


def is_sized(stmt: Alloc, sizes: Collection[Var]) -> bool:
    """Whether no variable but these tells how large the buffers of an `alloc` are."""
    return all(variables(extent) <= set(sizes) for buffer in stmt.buffers for extent in buffer.shape)


def walk_expr(expr: Expr) -> Iterator[Expr]:
    """Every node of an expression, itself first."""
    stack = [expr]
    while stack:
        e = stack.pop()
        yield e
        if type(e) is not Var and type(e) is not Const:
            stack.extend(reversed(children(e)))


def all_exprs(stmt: Stmt) -> Iterator[Expr]:
    """Every expression node in a statement and the statements in it."""
    for inner in walk(stmt):
        for expr in exprs(inner):
            yield from walk_expr(expr)


def variables(expr: Expr) -> set[Var]:
    """The variables that an expression reads."""
    return {e for e in walk_expr(expr) if type(e) is Var}


def uses(expr: Expr, names) -> bool:
    """Whether an expression reads any of these variables."""
    if type(expr) is Var:
        return expr in names
    if isinstance(expr, Binary):
        return uses(expr.a, names) or uses(expr.b, names)
    return any([uses(operand, names) for operand in children(expr)])


def copy_nest(stmt: Stmt, values: Mapping[Var, Expr] | None = None) -> Stmt:
    """A copy with fresh variables for every loop, `let` and block iterator, so that both may stand in one function."""
    mapping: dict[Var, Expr] = dict(values or {})

    def fresh(var: Var) -> Var:
        mapping[var] = new = var.copy()
        return new

    def change(e: Expr) -> Expr:
        return substitute(e, mapping)

    def visit(s: Stmt) -> Stmt:
        match s:
            case For(var, start, extent, kind, body, annotations):
                start, extent = change(start), change(extent)
                return For(fresh(var), start, extent, kind, visit(body), annotations)
            case Let(var, value, body):
                value = change(value)
                return Let(fresh(var), value, visit(body))
            case Block(name, iters, predicate, init, body, annotations):
                predicate = change(predicate)
                iters = tuple([replace(_map_iter(it, change), var=fresh(it.var)) for it in iters])
                return Block(name, iters, predicate, init and visit(init), visit(body), annotations)
            case Barrier():
                return s
            case _:
                return map_substmts(map_exprs(s, change), visit)

    return visit(stmt)
