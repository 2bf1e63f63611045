"""Functions by hand: each access is proved to stay in its buffer, or checked where it is made.

    B[i] = A[I[i]]    ->    check I[i] >= 0 and I[i] < n, I[i], i, n - 1, "access A[I[i]]: ..."
                            B[i] = A[I[i]]

What a program says of itself is not relied on: that an iterator lies in its domain is proved or checked, too, and
iterations that run side by side do not do so where a check reads what others of them write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tensorc.arith.bounds import Domain
from tensorc.arith.prove import can_prove
from tensorc.arith.wrapping import is_wild
from tensorc.dtypes import bool_, int64
from tensorc.errors import ExpressionError, InternalError
from tensorc.ir.empty import empty_condition
from tensorc.ir.expr import (
    And,
    Buffer,
    Const,
    Expr,
    IfThenElse,
    Load,
    Var,
    const,
    if_then_else,
    logical_and,
    logical_not,
    logical_or,
)  # fmt: skip
from tensorc.ir.function import Function
from tensorc.ir.printer import show
from tensorc.ir.stmt import MOST_PLACES, Alloc, Block, Check, For, If, Let, Prefetch, Seq, Stmt, Store, While, seq
from tensorc.ir.verifier import verify
from tensorc.ir.walk import (
    children,
    exprs,
    map_substmts,
    rewrite,
    substitute,
    substitute_stmt,
    uses,
    variables,
    walk,
    walk_expr,
)  # fmt: skip

_TRUE = const(True, bool_)
_LARGEST_LOCAL = 1 << 20  # bytes of a buffer on the stack


def checked(function: Function) -> Function:
    """The function with a check before each access that is not proved to stay in its buffer.

    One that lowering has made is as it should be, and stays as it is. Raises ExpressionError for a function that is
    not well formed.
    """
    if function.is_proved:
        return function
    try:
        verify(function)
    except InternalError as error:
        raise ExpressionError(str(error)) from None
    placed = [buffer for s in walk(function.body) if type(s) is Alloc for buffer in s.buffers]
    for buffer in (*function.allocs, *placed):
        _check_internal(function.name, buffer)
    checker = _Checker(function)
    return function.with_(body=checker.visit(function.body, checker.entry), is_proved=True)


def _check_internal(name: str, buffer: Buffer) -> None:
    if buffer.strides is not None:
        raise ExpressionError(f"function {name}: internal buffer {buffer.name!r} has strides; only parameters may")
    if any([type(e) is Load for extent in buffer.shape for e in walk_expr(extent)]):
        raise ExpressionError(f"function {name}: the shape of internal buffer {buffer.name!r} depends on data")
    if buffer.scope == "local":
        size = buffer.dtype.bytes
        for extent in buffer.shape:
            size *= extent.value if type(extent) is Const else 1
        if size > _LARGEST_LOCAL:
            raise ExpressionError(
                f"function {name}: local buffer {buffer.name!r} takes {size} bytes of the stack, which has room for "
                f"{_LARGEST_LOCAL}; leave it global"
            )


@dataclass(frozen=True, slots=True)
class _At:
    """What is known at a place: `values` of iterators, and the loops around it."""

    domain: Domain
    values: Mapping[Var, Expr]
    loops: tuple[For, ...] = ()

    def given(self, conditions: Iterable[Expr]) -> _At:
        domain = self.domain
        for condition in conditions:
            domain = domain.given(substitute(condition, self.values), loads=True)
        return replace(self, domain=domain)


class _Checker:
    """Visits statements in order, with what is known there."""

    def __init__(self, function: Function):
        self.written = {s.buffer for s in walk(function.body) if type(s) is Store}
        self.entry = _At(_entry(function), {})

    def visit(self, stmt: Stmt, at: _At) -> Stmt:
        match stmt:
            case Seq(stmts):
                return self._sequence(stmts, at)
            case For():
                return self._loop(stmt, at)
            case Block():
                return self._block(stmt, at)
            case If(condition, then, orelse):
                checks, at = self._checks((condition,), at)
                new = If(
                    condition,
                    self.visit(then, at.given(self._steady(condition))),
                    None if orelse is None else self.visit(orelse, at.given(self._steady(logical_not(condition)))),
                )
                return seq(*checks, new)
            case Let():
                return self._let(stmt, at)
            case While(condition, body):
                checks, _ = self._checks((condition,), at)
                body = self.visit(body, at.given(self._steady(condition)))
                return seq(*checks, While(condition, seq(body, *checks)))
            case Store(buffer, indices):
                checks, _ = self._checks((*exprs(stmt), Load(buffer, indices)), at)
                return seq(*checks, stmt)
            case Prefetch(_, indices):
                checks, _ = self._checks(indices, at)
                return seq(*checks, stmt)
            case _:
                checks, at = self._checks(exprs(stmt), at)
                return seq(*checks, map_substmts(stmt, lambda inner: self.visit(inner, at)))

    def _sequence(self, stmts: Sequence[Stmt], at: _At) -> Stmt:
        found: list[Stmt] = []
        for stmt in stmts:
            found.append(self.visit(stmt, at))
            if type(stmt) is Check:
                at = at.given(self._steady(stmt.condition))
        return seq(*found)

    def _loop(self, loop: For, at: _At) -> Stmt:
        checks, at = self._checks((loop.start, loop.extent), at)
        if _is_wild(loop.start):
            loop = _wild_loop(loop)
            checks.append(_end_check(loop))
        start, extent = (self._still(substitute(e, at.values)) for e in (loop.start, loop.extent))
        inside = _At(at.domain.bind(loop.var, start, extent), at.values, (*at.loops, loop))
        new = replace(loop, body=self.visit(loop.body, inside))
        if loop.kind != "serial" and self._is_racing(loop.body, new.body):
            new = replace(new, kind="serial")
        return seq(*checks, new)

    def _is_racing(self, old: Stmt, new: Stmt) -> bool:
        """Whether a check that is new in a loop reads what the loop writes."""
        known = [s for s in walk(old) if type(s) is Check]
        added = [s for s in walk(new) if type(s) is Check and not any(s is each for each in known)]
        written = {s.buffer for s in walk(old) if type(s) is Store}
        roots = [root for s in added for root in exprs(s)]
        return any([type(e) is Load and e.buffer in written for root in roots for e in walk_expr(root)])

    def _let(self, let: Let, at: _At) -> Stmt:
        checks, at = self._checks((let.value,), at)
        value = self._still(substitute(let.value, at.values))
        var = let.var
        if not var.wraps and _is_wild(value):
            var = Var(var.name, var.dtype, wraps=True)
            let = Let(var, let.value, substitute_stmt(let.body, {let.var: var}))
        if var.dtype is int64:
            at = replace(at, domain=at.domain.bind(var, value, 1))
        elif var.dtype is bool_:
            at = replace(at, values={**at.values, var: value})
        return seq(*checks, Let(var, let.value, self.visit(let.body, at)))

    def _block(self, block: Block, at: _At) -> Stmt:
        checks, at = self._checks([e for it in block.iters for e in (it.extent, it.binding)], at)
        more, at = self._checks((block.predicate,), at)
        block = _wild_iters(block)
        values = {**at.values, **{it.var: substitute(it.binding, at.values) for it in block.iters}}
        inside = at.given(self._steady(block.predicate))
        bounds = [check for it in block.iters if (check := self._domain_check(block, it, inside)) is not None]
        body = self.visit(block.body, replace(inside, values=values))
        init = None if block.init is None else self.visit(block.init, self._at_start(block, inside, values))
        return seq(*checks, *more, *bounds, replace(block, init=init, body=body))

    def _domain_check(self, block: Block, it, at: _At) -> Stmt | None:
        """The check that an iterator lies in its domain, if that is not proved."""
        binding, extent = (self._still(substitute(e, at.values)) for e in (it.binding, it.extent))
        inside = logical_and(it.binding >= 0, it.binding < it.extent)
        if can_prove(binding >= 0, at.domain) and can_prove(binding < extent, at.domain):
            return None
        message = f"block {block.name}: iterator {it.var.name} is {{value}}, outside 0..{{0}}"
        return Check(if_then_else(block.predicate, inside, _TRUE), it.binding, message, (it.extent - 1,))

    def _at_start(self, block: Block, at: _At, values: Mapping[Var, Expr]) -> _At:
        """What is known where a block starts, be it of a reduction over nothing: then no loop that reduces runs."""
        if empty_condition(block) is None:
            return replace(at, values=values)
        others = [it.binding for it in block.iters if it.kind != "reduce"]
        domain, dropped = self.entry.domain, []
        for loop in at.loops:
            if not any([uses(e, (loop.var,)) for e in others]):
                dropped.append(loop.var)
                continue
            start, extent = (self._still(substitute(e, at.values)) for e in (loop.start, loop.extent))
            if uses(start, dropped) or uses(extent, dropped):
                continue
            domain = domain.bind(loop.var, start, extent)
        kept = [c for c in self._steady(block.predicate) if not uses(c, dropped)]
        return replace(_At(domain, at.values, at.loops).given(kept), values=values)

    def _steady(self, condition: Expr) -> list[Expr]:
        """The parts of a condition that go on to hold, whatever is stored."""
        parts = _steady_parts(condition)
        return [part for part in parts if not self._changes(part)]

    def _changes(self, expr: Expr) -> bool:
        return any([type(e) is Load and e.buffer in self.written for e in walk_expr(expr)])

    def _still(self, expr: Expr) -> Expr:
        """The expression with a variable for each load from what may change."""

        def rule(e: Expr) -> Expr | None:
            if type(e) is Load and e.buffer in self.written:
                return Var(e.buffer.name, e.dtype, wraps=True)
            return None

        return rewrite(expr, rule)

    def _checks(self, roots: Iterable[Expr], at: _At) -> tuple[list[Stmt], _At]:
        """What is to be checked before these are evaluated, and what is known then."""
        found: dict[Stmt, None] = {}
        for root in roots:
            for check, guards in self._accesses(root, at, ()):
                found[check] = None
                if not guards:
                    at = at.given(self._steady(check.condition))
        return list(found), at

    def _accesses(self, expr: Expr, at: _At, guards: tuple[Expr, ...]) -> Iterator[tuple[Check, tuple[Expr, ...]]]:
        if type(expr) is IfThenElse:
            yield from self._accesses(expr.condition, at, guards)
            for guard, side in ((expr.condition, expr.true), (logical_not(expr.condition), expr.false)):
                yield from self._accesses(side, at.given((guard,)), (*guards, guard))
            return
        for operand in children(expr):
            yield from self._accesses(operand, at, guards)
        if type(expr) is Load:
            for dimension in range(len(expr.indices)):
                check = _check(expr, dimension, at, guards)
                if check is not None:
                    yield check, guards


def _check(load: Load, dimension: int, at: _At, guards: tuple[Expr, ...]) -> Check | None:
    index, extent = load.indices[dimension], load.buffer.shape[dimension]
    value = substitute(index, at.values)
    low, high = not can_prove(value >= 0, at.domain), not can_prove(value < extent, at.domain)
    if not (low or high):
        return None
    condition = logical_and(*([index >= 0] if low else []), *([index < extent] if high else []))
    for guard in reversed(guards):
        condition = if_then_else(guard, condition, _TRUE)
    used = sorted([var for var in variables(index) if var.dtype is int64], key=lambda var: var.name)
    used = used[: MOST_PLACES - 1]
    places = ", ".join([f"{var.name} = {{{n}}}" for n, var in enumerate(used)])
    which = f" of dimension {dimension}" if len(load.indices) > 1 else ""
    where = f" at {places}" if places else ""
    message = f"access {show(load)}: index {{value}}{which}{where} is outside 0..{{{len(used)}}}"
    return Check(condition, index, message, (*used, extent - 1))


def _entry(function: Function) -> Domain:
    domain = Domain()
    for extent in dict.fromkeys([extent for buffer in function.params for extent in buffer.shape]):
        if type(extent) is Var:
            domain = domain.given(extent >= 0)
    for condition in function.assumptions:
        domain = domain.given(condition)
    return domain


def _steady_parts(condition: Expr) -> list[Expr]:
    return [*_steady_parts(condition.a), *_steady_parts(condition.b)] if type(condition) is And else [condition]


def _is_wild(expr: Expr) -> bool:
    return any([is_wild(e) for e in walk_expr(expr)])


def _end_check(loop: For) -> Check:
    """That a range which starts at any number ends at one."""
    message = f"loop {loop.var.name}: its range from {{value}} on has {{0}} elements and passes {int64.max}"
    fits = logical_or(loop.extent <= 0, loop.start <= int64.max - loop.extent)
    return Check(fits, loop.start, message, (loop.extent,))


def _wild_loop(loop: For) -> For:
    """The loop with a variable that may be any number."""
    var = Var(loop.var.name, wraps=True)
    return replace(loop, var=var, body=substitute_stmt(loop.body, {loop.var: var}))


def _wild_iters(block: Block) -> Block:
    wild = [it.var for it in block.iters if not it.var.wraps and _is_wild(it.binding)]
    if not wild:
        return block
    own = {var: Var(var.name, wraps=True) for var in wild}
    new: dict[Var, Expr] = {**own}
    iters = tuple([replace(it, var=own.get(it.var, it.var)) for it in block.iters])
    init = None if block.init is None else substitute_stmt(block.init, new)
    return replace(block, iters=iters, init=init, body=substitute_stmt(block.body, new))
