"""Vectorized loops become vector operations: the loop's variable turns into a ramp of all its
values.

    for v in 0..16 vectorized { if j + v < n { C[j + v] = A[j + v] * x[0] } }
    ->  C[ramp(j, 1, 16)] = A[ramp(j, 1, 16)] mask(m) * broadcast(x[0], 16)  mask m
        where m = ramp(j, 1, 16) < n

Loops inside are widened where they stand. A store that combines all lanes into one element reduces
them first: `C[i] = C[i] + f(v)` becomes `C[i] = C[i] + reduce_add(f(ramp))`. A loop that has no
vector form runs serially.
"""

from __future__ import annotations

from typing import TypeGuard

from tensorc.arith import Domain, can_prove, simplify
from tensorc.dtypes import DType, bool_
from tensorc.ir.expr import (
    EQ,
    Add,
    And,
    Binary,
    Broadcast,
    Buffer,
    Call,
    Const,
    Expr,
    IfThenElse,
    Load,
    Max,
    Min,
    Mul,
    Neg,
    Or,
    Ramp,
    Select,
    Sub,
    Var,
    add,
    broadcast,
    const,
    if_then_else,
    index,
    is_const,
    logical_and,
    logical_not,
    mul,
    neg,
    sub,
)  # fmt: skip
from tensorc.ir.function import Function
from tensorc.ir.intrinsic import TABLE
from tensorc.ir.stmt import Evaluate, For, If, Let, Prefetch, Seq, Stmt, Store, annotate, seq
from tensorc.ir.walk import children, map_substmts, rebuild, substitute, substmts, uses, walk_expr
from tensorc.passes.common import (
    NOTHING,
    as_update,
    conjunction,
    conjuncts,
    depends_on,
    direction,
    entry_domain,
    make_for,
    make_if,
)

REDUCTIONS = {
    Add: "reduce_add", Mul: "reduce_mul", Min: "reduce_min", Max: "reduce_max",
    And: "reduce_and", Or: "reduce_or",
}  # fmt: skip

SCALAR = "scalar"  # the annotation of a loop that was to become vectors and runs serially: why
_VECTORS = "it holds vectors already"


def identity(op: type[Binary], dtype: DType) -> Const:
    """What `op` leaves the other operand unchanged by."""
    scalar = dtype.scalar
    if op is And or op is Or:
        return Const(op is And, scalar)
    if op is Add or op is Mul:
        value = int(op is Mul)
        return Const(float(value) if scalar.is_float else value, scalar)
    return Const(scalar.max if op is Min else scalar.min, scalar)


def vectorize_loops(function: Function) -> Function:
    """The function with vectors in place of vectorized loops."""
    return function.with_(body=_visit(function.body, entry_domain(function)))


def _visit(stmt: Stmt, domain: Domain) -> Stmt:
    match stmt:
        case For(var, start, extent, "vectorized", body, annotations):
            if type(extent) is Const:
                try:
                    return _Vectorizer(stmt, extent.value, domain).run()
                except _NoVectorForm as obstacle:
                    reason = str(obstacle)
            else:
                reason = "vectors need a constant number of lanes"
            body = _visit(body, domain.bind(var, start, extent))
            return make_for(var, start, extent, "serial", body, annotate(annotations, SCALAR, reason or None))
        case For(var, start, extent):
            inner = domain.bind(var, start, extent)
            return map_substmts(stmt, lambda s: _visit(s, inner))
        case If(condition, then, orelse):
            orelse = None if orelse is None else _visit(orelse, domain)
            return make_if(condition, _visit(then, domain.given(condition)), orelse)
        case _:
            return map_substmts(stmt, lambda s: _visit(s, domain))


class _NoVectorForm(Exception):
    """The loop is to run serially, for a reason."""


class _Vectorizer:
    """One vectorized loop. `values` gives what depends on the lane; `mask` tells which lanes run,
    None for all; `domain` is what holds whether or not any of them does.

    `unsure` is set where code under a mask loads, lane or no lane, one element that is not known to
    exist unless some lane runs.
    """

    def __init__(self, loop: For, lanes: int, domain: Domain):
        self.loop = loop
        self.lanes = lanes
        self.domain = domain.bind(loop.var, loop.start, loop.extent)
        self.values: dict[Var, Expr] = {loop.var: Ramp(loop.start, index(1), self.lanes)}
        self.memo: dict[Expr, Expr | None] = {}
        self.mask: Expr | None = None
        self.unsure = False
        self.own: set[Buffer] = set()
        self.partly: set[Buffer] = set()
        self.lets: dict[Var, Expr] = {}

    def run(self) -> Stmt:
        self._find_own(self.loop.body, ())
        return self.stmt(self.loop.body)

    def _find_own(self, stmt: Stmt, conditions: tuple[Expr, ...]) -> None:
        """Buffers that every lane, or some lanes, fill anew at the same place: what is added up
        there is no sum over lanes. The start of a sum, in the first lane alone, does not count."""
        if type(stmt) is If:
            conditions = (*conditions, *conjuncts(stmt.condition))
        if type(stmt) is Let:
            self.lets[stmt.var] = stmt.value
        for inner in substmts(stmt):
            self._find_own(inner, conditions)
        if type(stmt) is not Store or any(uses(e, self.values) for e in stmt.indices):
            return
        if depends_on(stmt.value, stmt.buffer, self.lets):
            return
        if not any(uses(c, self.values) for c in conditions):
            self.own.add(stmt.buffer)
        elif not self._is_first_lane(conditions):
            self.partly.add(stmt.buffer)

    def _is_first_lane(self, conditions: tuple[Expr, ...]) -> bool:
        """Whether conditions hold together in no lane but the first."""
        first = self.loop.start
        if EQ(self.loop.var, first) in conditions:
            return True
        together = conjunction(conditions)
        others = [{self.loop.var: add(first, lane)} for lane in range(1, self.lanes)]
        return all(
            is_const(simplify(substitute(together, lane), self.domain), False) for lane in others
        )

    def stmt(self, stmt: Stmt) -> Stmt:
        match stmt:
            case Store():
                return self._store(stmt)
            case Seq(stmts):
                return seq(*[self.stmt(s) for s in stmts])
            case If():
                return self._branch(stmt)
            case For(var, start, extent, kind, body, annotations):
                if kind in ("vectorized", "thread"):
                    raise _NoVectorForm  # the inner loop's vectors stay
                if self.expr(start) is not start or self.expr(extent) is not extent:
                    raise _NoVectorForm(f"loop {var.name!r} in it differs from one iteration to another")
                outside, self.domain = self.domain, self.domain.bind(var, start, extent)
                body = self.stmt(body)
                self.domain = outside
                return make_for(
                    var, start, extent, "serial" if kind == "parallel" else kind, body, annotations
                )
            case Let(var, value, body):
                wide = self.expr(value)
                if wide is value:
                    return Let(var, value, self.stmt(body))
                self.values[var] = new = Var(var.name, wide.dtype, var.wraps)
                return Let(new, wide, self.stmt(body))
            case Prefetch(buffer, indices):
                first = tuple([substitute(e, {self.loop.var: self.loop.start}) for e in indices])
                is_known = not any(uses(e, self.values) or _loads(e) for e in first)
                return Prefetch(buffer, first) if self.mask is None and is_known else NOTHING
            case Evaluate(call) if self.mask is None and self.expr(call) is call:
                return stmt
            case _:
                raise _NoVectorForm(f"it holds a {type(stmt).__name__} statement")

    def _branch(self, stmt: If) -> Stmt:
        condition, then, orelse = stmt.condition, stmt.then, stmt.orelse
        if orelse is not None and self.expr(condition) is not condition:
            return seq(self._masked(condition, then), self._masked(logical_not(condition), orelse))
        uniform = conjunction(c for c in conjuncts(condition) if self.expr(c) is c)
        varying = conjunction(c for c in conjuncts(condition) if self.expr(c) is not c)
        outside, self.domain = self.domain, self.domain.given(uniform)
        then = self.stmt(then) if is_const(varying, True) else self._masked(varying, then)
        self.domain = outside
        return make_if(uniform, then, None if orelse is None else self.stmt(orelse))

    def _masked(self, condition: Expr, body: Stmt) -> Stmt:
        """The body in the lanes where the condition holds."""
        outside = self._enter(condition)
        body = self.stmt(body)
        unsure = self._leave(outside)
        return make_if(self._any(condition), body) if unsure else body

    def _enter(self, condition: Expr) -> tuple[Expr | None, bool]:
        outside = self.mask, self.unsure
        wide = self.expr(condition)
        self.mask = wide if self.mask is None else And(self.mask, wide)
        self.unsure = False
        self.memo = {}
        return outside

    def _leave(self, outside: tuple[Expr | None, bool]) -> bool:
        unsure = self.unsure
        self.mask, self.unsure = outside
        self.memo = {}
        return unsure

    def _any(self, condition: Expr) -> Expr:
        """Whether any lane runs. Where all conditions get weaker toward one end, the lane there
        tells."""
        var, start = self.loop.var, self.loop.start
        directions = {direction(c, var) for c in conjuncts(condition)}
        outer = self.mask is not None
        if not outer and directions == {-1}:
            return simplify(substitute(condition, {var: start}), self.domain)
        if not outer and directions == {1}:
            return simplify(substitute(condition, {var: add(start, self.lanes - 1)}), self.domain)
        wide = self.expr(condition)
        return Call("reduce_or", (wide if self.mask is None else And(self.mask, wide),), bool_)

    def _store(self, stmt: Store) -> Stmt:
        buffer, value = stmt.buffer, stmt.value
        indices = tuple([self.expr(e) for e in stmt.indices])
        if any(e.dtype.lanes > 1 for e in (value, *stmt.indices)):
            raise _NoVectorForm(_VECTORS)
        wide = self.expr(value)
        if stmt.mask is not None or wide.dtype.lanes not in (1, self.lanes):
            raise _NoVectorForm(_VECTORS)
        if any(e.dtype.lanes > 1 for e in indices):
            return Store(buffer, indices, broadcast(wide, self.lanes), self.mask, stmt.stream)
        if self.mask is not None:
            self.unsure = True
        update = as_update(stmt)
        if update is not None and buffer in self.partly:
            raise _NoVectorForm(f"some of its iterations set, and all update, one element of {buffer.name}")
        if update is not None and buffer not in self.own:
            op, term = update
            return Store(
                buffer, indices, op(Load(buffer, indices), self._combined(op, self.expr(term)))
            )
        if wide is not value or (
            depends_on(value, buffer, self.lets) and buffer not in self.own
        ):
            raise _NoVectorForm(f"its iterations write one element of {buffer.name} one after the other")
        return stmt

    def _combined(self, op: type[Binary], term: Expr) -> Expr:
        """All lanes that run, combined by a reducer."""
        term = broadcast(term, self.lanes)
        if self.mask is not None:
            term = Select(self.mask, term, broadcast(identity(op, term.dtype), self.lanes))
        return Call(REDUCTIONS[op], (term,), term.dtype.scalar)

    def expr(self, expr: Expr) -> Expr:
        """What an expression is in all lanes: the same object if it is one value for all of
        them."""
        if type(expr) is Const:
            return expr
        if type(expr) is Var:
            return self.values.get(expr, expr)
        known = self.memo.get(expr, expr)
        if known is not expr:
            return expr if known is None else known
        wide = self._expr(expr)
        self.memo[expr] = (
            None if wide is expr else wide
        )  # an equal expression is not the same object
        return wide

    def _expr(self, expr: Expr) -> Expr:
        if type(expr) is IfThenElse and self.expr(expr.condition) is not expr.condition:
            return self._choice(expr)
        operands = children(expr)
        wide = tuple([self.expr(e) for e in operands])
        if type(expr) is Load:
            return self._load(expr, wide)
        if all(new is old for new, old in zip(wide, operands)):
            return expr
        if any(e.dtype.lanes > 1 for e in (expr, *operands)):
            raise _NoVectorForm(_VECTORS)
        if expr.dtype.is_int:
            moved = _on_ramps(expr, wide)
            if moved is not None:
                return moved
        if type(expr) is IfThenElse:
            return IfThenElse(
                wide[0], broadcast(wide[1], self.lanes), broadcast(wide[2], self.lanes)
            )
        wide = tuple([broadcast(e, self.lanes) for e in wide])
        if any(e.dtype.lanes != self.lanes for e in wide):
            raise _NoVectorForm(_VECTORS)
        if type(expr) is Call:
            if TABLE[expr.name].reduces or TABLE[expr.name].whole:
                raise _NoVectorForm(_VECTORS)
            return Call(expr.name, wide, expr.dtype.with_lanes(self.lanes))
        return rebuild(expr, wide)

    def _load(self, load: Load, indices: tuple[Expr, ...]) -> Expr:
        if load.mask is not None:
            raise _NoVectorForm(_VECTORS)
        if any(e.dtype.lanes > 1 for e in indices):
            return Load(load.buffer, indices, self.mask)
        if self.mask is not None and not is_inside(load.buffer, load.indices, self.domain):
            self.unsure = True
        return load

    def _choice(self, expr: IfThenElse) -> Expr:
        """Each side only in its own lanes."""
        condition = self.expr(expr.condition)
        true = self._side(expr.condition, expr.true)
        false = self._side(logical_not(expr.condition), expr.false)
        return Select(condition, true, false)

    def _side(self, condition: Expr, value: Expr) -> Expr:
        outside = self._enter(condition)
        wide = broadcast(self.expr(value), self.lanes)
        unsure = self._leave(outside)
        if not unsure:
            return wide
        zero = broadcast(const(0, wide.dtype.scalar), self.lanes)
        return if_then_else(self._any(condition), wide, zero)


def is_inside(buffer: Buffer, indices: tuple[Expr, ...], domain: Domain) -> bool:
    """Whether an access is proved to touch only what the buffer has."""
    return all(
        can_prove(logical_and(i >= 0, i < extent), domain)
        for i, extent in zip(indices, buffer.shape)
    )


def _loads(expr: Expr) -> bool:
    return any(type(e) is Load for e in walk_expr(expr))


def _on_ramps(expr: Expr, wide: tuple[Expr, ...]) -> Expr | None:
    """Sums and multiples of ramps are ramps; None for anything else."""
    a, b = wide[0], wide[-1]
    match expr:
        case Add():
            if type(a) is Ramp and type(b) is Ramp:
                return _ramp(add(a.base, b.base), add(a.stride, b.stride), a.lanes)
            if type(b) is Ramp:
                a, b = b, a
            return Ramp(add(a.base, b), a.stride, a.lanes) if _is_shift(a, b) else None
        case Sub():
            if type(a) is Ramp and type(b) is Ramp:
                return _ramp(sub(a.base, b.base), sub(a.stride, b.stride), a.lanes)
            if type(b) is Ramp and a.dtype.lanes == 1:
                return Ramp(sub(a, b.base), neg(b.stride), b.lanes)
            return Ramp(sub(a.base, b), a.stride, a.lanes) if _is_shift(a, b) else None
        case Mul():
            if type(b) is Ramp:
                a, b = b, a
            return _ramp(mul(a.base, b), mul(a.stride, b), a.lanes) if _is_shift(a, b) else None
        case Neg() if type(a) is Ramp:
            return Ramp(neg(a.base), neg(a.stride), a.lanes)
        case _:
            return None


def _is_shift(a: Expr, b: Expr) -> TypeGuard[Ramp]:
    return type(a) is Ramp and b.dtype.lanes == 1


def _ramp(base: Expr, stride: Expr, lanes: int) -> Expr:
    return Broadcast(base, lanes) if is_const(stride, 0) else Ramp(base, stride, lanes)
