"""Loops whose last iterations are guarded are cut in two: a main part without the guard, and a
tail.

    for i in 0..n//8+1 { for j in 0..8 { if i*8 + j < n S } }
    ->  for i in 0..n//8 { for j in 0..8 S }
        if n//8*8 < n { for j in 0..8 { if n//8*8 + j < n S' } }

Below a loop annotated `tail = "cut"`, every guard that is linear in the loops around it is looked
at. The place of the cut is the innermost loop of many iterations that the guard depends on, since
what lies inside it exists twice afterwards: where the guard holds for all or none of such an
iteration, the loop just ends earlier and nothing is doubled. In a tail, unrolled loops are
shortened to the iterations that can do something, and vectorized ones where that leaves a power of
two; what is left of a guard stays, and becomes a mask if a vectorized loop depends on it. A
parallel loop stays one loop with a branch inside, so that its tail runs beside the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tensorc.arith import Affine, Domain, affine, bounds, can_prove, is_wild, simplify
from tensorc.ir.expr import (
    Const,
    Expr,
    FloorDiv,
    Var,
    index,
    is_const,
    logical_and,
    maximum,
    minimum,
)  # fmt: skip
from tensorc.ir.function import Function
from tensorc.ir.stmt import Alloc, For, If, Let, Seq, Stmt, annotate, annotation, seq
from tensorc.ir.walk import children, map_substmts, substmts, walk_expr
from tensorc.passes.blocks import specialize
from tensorc.passes.common import (
    NOTHING,
    conjunction,
    conjuncts,
    entry_domain,
    make_for,
    make_if,
    requirement,
)
from tensorc.passes.tails import in_parts

FEW = 4  # loops of so few iterations are duplicated with what they hold, not cut


def partition_loops(function: Function) -> Function:
    """The function with its loops cut where their guards begin to fail."""
    return function.with_(body=_partition(function.body, entry_domain(function), False))


def _partition(stmt: Stmt, domain: Domain, in_tail: bool) -> Stmt:
    if not in_tail and not _has_cuts(stmt):
        return stmt
    plan = _Plan(in_tail)
    plan.visit(stmt, (), domain, in_tail)
    return _Cutter(plan).visit(stmt, domain, frozenset())


def _has_cuts(stmt: Stmt) -> bool:
    return _is_cut(stmt) or any(map(_has_cuts, substmts(stmt)))


def _is_cut(stmt: Stmt) -> bool:
    return type(stmt) is For and bool(stmt.annotations) and annotation(stmt, "tail") == "cut"


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition seen from one loop around it: true in all iterations before `sure`, in none from
    `never` on.

    `narrow` says that at most one iteration lies between them.
    """

    condition: Expr
    sure: Expr
    never: Expr
    narrow: bool


@dataclass(frozen=True, slots=True)
class _Scope:
    """A loop on the way to a guard, and what is known outside it."""

    loop: For
    domain: Domain


@dataclass(slots=True)
class _Plan:
    """Which guards each loop is to be cut or, in a tail, shortened for."""

    in_tail: bool
    cuts: dict[Var, list[Guard]] = field(default_factory=dict)
    trims: dict[Var, list[Guard]] = field(default_factory=dict)

    def visit(self, stmt: Stmt, scopes: tuple[_Scope, ...], domain: Domain, active: bool) -> None:
        match stmt:
            case For(var, start, extent, _, body):
                inside = (*scopes, _Scope(stmt, domain))
                self.visit(body, inside, domain.bind(var, start, extent), active or _is_cut(stmt))
            case If(condition, then, orelse):
                if active and orelse is None:
                    for conjunct in conjuncts(condition):
                        self._place(conjunct, scopes, domain)
                self.visit(then, scopes, domain.given(condition), active)
                if orelse is not None:
                    self.visit(orelse, scopes, domain, active)
            case _:
                for inner in substmts(stmt):
                    self.visit(inner, scopes, domain, active)

    def _place(self, condition: Expr, scopes: tuple[_Scope, ...], domain: Domain) -> None:
        form = requirement(condition)
        if form is None or not _is_sound(condition, scopes):
            return
        depending = [at for at, scope in enumerate(scopes) if form.coefficient(scope.loop.var) < 0]
        if not self.in_tail and not any(_is_cut(scopes[at].loop) for at in depending):
            return
        for at in reversed(depending):
            if _is_place(scopes[at].loop):
                self._add(self.cuts, condition, form, scopes, at, domain)
                return
        if self.in_tail:
            for at in depending:
                self._add(self.trims, condition, form, scopes, at, domain)

    def _add(self, table, condition: Expr, form: Affine, scopes, at: int, domain: Domain) -> None:
        guard = _seen_from(condition, form, scopes, at, domain)
        if guard is not None:
            table.setdefault(scopes[at].loop.var, []).append(guard)


def _is_place(loop: For) -> bool:
    if loop.kind == "vectorized" or loop.kind == "thread":
        return False
    if _is_cut(loop):
        return True
    return loop.kind != "unrolled" and not (type(loop.extent) is Const and loop.extent.value <= FEW)


def _is_sound(condition: Expr, scopes: tuple[_Scope, ...]) -> bool:
    """Whether a cut, computed from the sides of a condition, cannot wrap; or the loop that is cut does not run where
    it does, since its extent is computed from the same number."""
    left, right = children(condition)
    wild = [side for side in (left, right) if any([is_wild(e) for e in walk_expr(side)])]
    if not wild:
        return True
    number = dict(affine(wild[0]).terms)
    ends = [dict(affine(e.a if type(e) is FloorDiv else e).terms) for e in [scope.loop.extent for scope in scopes]]
    return len(wild) == 1 and number in ends


def _seen_from(condition: Expr, form: Affine, scopes, at: int, domain: Domain) -> Guard | None:
    """The guard as the loop `at` sees it; None where it is not linear in that loop, or unbounded
    inside."""
    loop, outside = scopes[at].loop, scopes[at].domain
    inner_vars = {scope.loop.var for scope in scopes[at + 1 :]}
    step = -form.coefficient(loop.var)
    outer: list[tuple[Expr, int]] = []
    inner: list[tuple[Expr, int]] = []
    for atom, scale in form.terms:
        if atom is loop.var:
            continue
        used = {e for e in walk_expr(atom) if type(e) is Var}
        if loop.var in used:
            return None
        (outer if used.isdisjoint(inner_vars) else inner).append((atom, scale))
    spread = bounds(Affine(tuple(inner), 0).to_expr(), domain)
    if spread.lo is None or spread.hi is None:
        return None
    base = Affine(tuple(outer), form.constant).to_expr()
    sure = simplify((base + spread.lo) // step + 1, outside)
    never = simplify((base + spread.hi) // step + 1, outside)
    return Guard(condition, sure, never, spread.hi - spread.lo < step)


class _Cutter:
    def __init__(self, plan: _Plan):
        self.plan = plan

    def visit(self, stmt: Stmt, domain: Domain, dropped: frozenset[Expr]) -> Stmt:
        match stmt:
            case For(var):
                guards = [g for g in self.plan.cuts.get(var, ()) if g.condition not in dropped]
                if guards:
                    return self._cut(stmt, guards, domain, dropped)
                guards = [g for g in self.plan.trims.get(var, ()) if g.condition not in dropped]
                if guards:
                    return self._trim(stmt, guards, domain, dropped)
                return self._loop(stmt, stmt.extent, domain, dropped)
            case If(condition, then, orelse):
                left = conjunction(c for c in conjuncts(condition) if c not in dropped)
                then = self.visit(then, domain.given(condition), dropped)
                return make_if(
                    left, then, None if orelse is None else self.visit(orelse, domain, dropped)
                )
            case _:
                return map_substmts(stmt, lambda s: self.visit(s, domain, dropped))

    def _loop(self, loop: For, extent: Expr, domain: Domain, dropped: frozenset[Expr]) -> Stmt:
        """The loop with another extent, and without some conditions in it."""
        body = self.visit(loop.body, domain.bind(loop.var, loop.start, extent), dropped)
        if is_const(extent, 1):
            body = specialize(body, {loop.var: loop.start}, domain)
            return _partition(body, domain, True) if self.plan.in_tail else body
        return make_for(loop.var, loop.start, extent, loop.kind, body, _without_cut(loop))

    def _trim(
        self, loop: For, guards: list[Guard], domain: Domain, dropped: frozenset[Expr]
    ) -> Stmt:
        end = _latest([g.never for g in guards]) - loop.start
        if (
            not is_const(end)
            or type(loop.extent) is not Const
            or not _is_guarded(loop.body, _conditions(guards))
        ):
            return self._loop(loop, loop.extent, domain, dropped)
        extent = min(end.value, loop.extent.value)
        if loop.kind == "vectorized" and extent & (
            extent - 1
        ):  # full vectors with a mask beat odd ones
            return self._loop(loop, loop.extent, domain, dropped)
        held = [g.condition for g in guards if can_prove(g.sure >= loop.start + extent, domain)]
        return self._loop(loop, index(extent), domain, dropped.union(held))

    def _cut(
        self, loop: For, guards: list[Guard], domain: Domain, dropped: frozenset[Expr]
    ) -> Stmt:
        start, end = loop.start, simplify(loop.start + loop.extent, domain)
        guarded = _is_guarded(loop.body, _conditions(guards))
        if guarded:
            never = _clamp(_latest([g.never for g in guards]), start, end, domain)
            if loop.kind != "unrolled" or type(simplify(never - start, domain)) is Const:
                end = never
        split = _clamp(_earliest([g.sure for g in guards]), start, end, domain)
        before = simplify(split - start, domain)
        if loop.kind == "unrolled" and type(before) is not Const:
            return self._loop(loop, loop.extent, domain, dropped)
        if annotation(loop, "tail") == "mask" and type(before) is not Const and split != end:
            return self._loop(loop, simplify(end - start, domain), domain, dropped)
        held = dropped.union(_conditions(guards))
        if is_const(before, 0):
            return self._tail(loop, guards, start, end, None, domain)
        at = _only_place(guards) if guarded else None
        if loop.kind == "parallel":
            return self._branch(loop, guards, split, end, at, domain, held)
        main = self._loop(loop, before, domain, held)
        return seq(main, self._tail(loop, guards, split, end, at, domain))

    def _tail(
        self, loop: For, guards, split: Expr, end: Expr, at: Expr | None, domain: Domain
    ) -> Stmt:
        """What runs from `split` to `end`; where that is just iteration `at` or nothing, without a
        loop, unless `at` is symbolic: a variable is shorter than what it stands for."""
        rest = simplify(end - split, domain)
        if can_prove(rest <= 0, domain):
            return NOTHING
        if at is not None and is_const(at):
            runs = [at >= loop.start, at < loop.start + loop.extent, at < guards[0].never]
            condition = simplify(logical_and(*runs), domain)
            return make_if(condition, _copy(loop.body, {loop.var: at}, domain.given(condition)))
        if is_const(rest, 1):
            return _copy(loop.body, {loop.var: split}, domain)
        var = loop.var.copy()
        inside = domain.bind(var, split, rest)
        body = loop.body
        if at is not None:
            body = in_parts(body, loop.var, _conditions(guards), domain.bind(loop.var, split, rest))
        body = _copy(body, {loop.var: var}, inside)
        return make_for(var, split, rest, loop.kind, body, _without_cut(loop))

    def _branch(
        self, loop: For, guards, split: Expr, end: Expr, at: Expr | None, domain: Domain, held
    ) -> Stmt:
        """One loop whose body chooses between main part and tail."""
        before, rest = simplify(split - loop.start, domain), simplify(end - split, domain)
        if can_prove(rest <= 0, domain):
            return self._loop(loop, before, domain, held)
        main = self.visit(loop.body, domain.bind(loop.var, loop.start, before), held)
        at = split if is_const(rest, 1) else at
        inside = domain.bind(loop.var, split, rest)
        tail = loop.body
        if at is not None and not is_const(at):
            tail = in_parts(tail, loop.var, _conditions(guards), inside)
        values = {loop.var: at} if at is not None and is_const(at) else {}
        tail = _copy(tail, values, inside)
        body = make_if(loop.var < split, main, tail)
        extent = simplify(end - loop.start, domain)
        return make_for(loop.var, loop.start, extent, loop.kind, body, _without_cut(loop))


def _copy(body: Stmt, values, domain: Domain) -> Stmt:
    """The body of a loop again, for its tail."""
    return _partition(specialize(body, values, domain, fresh=True), domain, True)


def _only_place(guards: list[Guard]) -> Expr | None:
    """The one iteration in which the guards may hold in part, if they agree on it."""
    first = guards[0]
    if all(g.narrow and g.sure == first.sure and g.never == first.never for g in guards):
        return first.sure
    return None


def _conditions(guards: Iterable[Guard]) -> set[Expr]:
    return {guard.condition for guard in guards}


def _is_guarded(stmt: Stmt, conditions: set[Expr]) -> bool:
    """Whether a statement does nothing where none of the conditions holds."""
    match stmt:
        case If(condition, then, None):
            return any(c in conditions for c in conjuncts(condition)) or _is_guarded(
                then, conditions
            )
        case Seq(stmts):
            return all(_is_guarded(s, conditions) for s in stmts)
        case For() | Let() | Alloc():
            return _is_guarded(stmt.body, conditions)
        case _:
            return False


def _earliest(places: list[Expr]) -> Expr:
    result = places[0]
    for place in places[1:]:
        result = result if place == result else minimum(result, place)
    return result


def _latest(places: list[Expr]) -> Expr:
    result = places[0]
    for place in places[1:]:
        result = result if place == result else maximum(result, place)
    return result


def _clamp(value: Expr, lo: Expr, hi: Expr, domain: Domain) -> Expr:
    """The value limited to lo..hi."""
    if value == hi:
        return hi
    if not can_prove(value >= lo, domain):
        value = maximum(value, lo)
    if not can_prove(value <= hi, domain):
        value = minimum(value, hi)
    return simplify(value, domain)


def _without_cut(loop: For):
    return annotate(loop.annotations, "tail", None) if _is_cut(loop) else loop.annotations
