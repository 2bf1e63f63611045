"""A last iteration that is not whole does in smaller tiles what is left of it.

    if i < n { for k { for r in 0..9 unrolled { if i*9 + r < n { C[i*9 + r] += A[i*9 + r, k] } } } }
    ->  for t in 0..(n - i*9)//4 { for k { for r in 0..4 unrolled { C[i*9 + t*4 + r] += A[i*9 + t*4 + r, k] } } }
        and the same in twos and in ones for the rest

An unrolled loop of which a number of iterations is left that is known at the call alone would test its guard in each of
them, inside of the loops around it. Instead the loop runs in parts of constant size, largest first, each around all
that its iterations share. That changes the order of iterations, so they must touch elements of their own. Where the
guard reaches into vectors, a part is one vector.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tensorc.arith import Affine, Domain, affine, bounds, simplify
from tensorc.ir.expr import Buffer, Const, Expr, Load, Var, index, is_const
from tensorc.ir.stmt import For, If, Seq, Stmt, Store, annotate, seq
from tensorc.ir.walk import (
    exprs,
    map_substmts,
    substitute,
    substitute_stmt,
    substmts,
    uses,
    variables,
    walk,
    walk_expr,
)  # fmt: skip
from tensorc.passes.common import conjuncts, make_for, requirement


@dataclass(frozen=True, slots=True)
class _Unit:
    """An unrolled loop `of` so many iterations, each of `size` places; `left` of them have something to do."""

    of: int
    size: int
    left: Expr


def in_parts(stmt: Stmt, var: Var, conditions: Iterable[Expr], domain: Domain) -> Stmt:
    """A statement in the iteration `var` of a loop, in which the conditions may fail; in parts as far as that helps."""
    units = _units(stmt, var, conditions, domain)
    return _visit(stmt, units, domain) if units else stmt


def _units(stmt: Stmt, var: Var, conditions: Iterable[Expr], domain: Domain) -> dict[Var, _Unit]:
    """The unrolled loops that the conditions limit, as the next digit after `var`."""
    loops = {s.var: s for s in walk(stmt) if type(s) is For}
    found: dict[Var, _Unit] = {}
    for condition in conditions:
        form = requirement(condition)
        if form is None:
            continue
        inner = [loops[atom] for atom, _ in form.terms if type(atom) is Var and atom in loops]
        digits = [loop for loop in inner if loop.kind == "unrolled"]
        if len(digits) == 1 and len(inner) == sum(uses(atom, loops) for atom, _ in form.terms):
            unit = _unit(form, var, digits[0], [loop for loop in inner if loop is not digits[0]], domain)
            if unit is not None and found.setdefault(digits[0].var, unit) != unit:
                return {}
    return found if len(set(found.values())) == 1 else {}


def _unit(form: Affine, var: Var, digit: For, lanes: list[For], domain: Domain) -> _Unit | None:
    size = -form.coefficient(digit.var)
    if type(digit.extent) is not Const or not is_const(digit.start, 0) or size < 1:
        return None
    of = digit.extent.value
    if form.coefficient(var) != -of * size or of < 2:
        return None
    reach = 0
    for loop in lanes:
        scale = -form.coefficient(loop.var)
        if type(loop.extent) is not Const or not is_const(loop.start, 0) or scale < 0:
            return None
        reach += scale * (loop.extent.value - 1)
    if reach != size - 1:
        return None
    skipped = {digit.var, *[loop.var for loop in lanes]}
    rest = Affine(tuple([(a, s) for a, s in form.terms if a not in skipped]), form.constant + size)
    return _Unit(of, size, simplify(rest.to_expr() // size, domain))


def _visit(stmt: Stmt, units: dict[Var, _Unit], domain: Domain) -> Stmt:
    """The statement in parts if it is made of these loops alone, else what follows in it one after the other."""
    own = {s.var: units[s.var] for s in walk(stmt) if type(s) is For and s.var in units}
    if own and _is_guarded(stmt, own) and _are_apart(stmt, own, domain):
        return _parts(stmt, own, domain)
    if type(stmt) is Seq:
        return map_substmts(stmt, lambda inner: _visit(inner, units, domain))
    return stmt


def _parts(stmt: Stmt, units: dict[Var, _Unit], domain: Domain) -> Stmt:
    unit = next(iter(units.values()))
    name = next(iter(units)).name
    done: list[Stmt] = []
    start: Expr = index(0)
    for size in _sizes(unit):
        var = Var(f"{name}.{size}")
        count = unit.left // size
        extent = simplify(count - start, domain)
        body = _part(stmt, units, var, size)
        notes = annotate((), "tail", "mask") if unit.size > 1 else ()
        done.append(make_for(var, simplify(start, domain), extent, "serial", body, notes))
        start = count * 2
    return seq(*done)


def _sizes(unit: _Unit) -> list[int]:
    """The sizes of the parts, halved from one to the next: about half of the whole at first, or one vector."""
    most = 1 if unit.size > 1 else min(unit.of - 1, (unit.of + 2) // 2)
    largest = 1 << (most.bit_length() - 1)
    return [1 << power for power in reversed(range(largest.bit_length()))]


def _part(stmt: Stmt, units: dict[Var, _Unit], var: Var, size: int) -> Stmt:
    """The statement with part `var` of its unrolled loops."""
    if type(stmt) is For and stmt.var in units:
        digit = stmt.var.copy()
        body = substitute_stmt(stmt.body, {stmt.var: var * size + digit if size > 1 else var})
        if size == 1:
            return body
        return For(digit, index(0), index(size), stmt.kind, body, stmt.annotations)
    return map_substmts(stmt, lambda inner: _part(inner, units, var, size))


def _is_guarded(stmt: Stmt, units: dict[Var, _Unit]) -> bool:
    """Whether every store lies in one of the loops, behind a condition on it."""
    match stmt:
        case For(var) if var in units:
            return _tests(stmt.body, var)
        case For():
            return _is_guarded(stmt.body, units)
        case Seq(stmts):
            return all(_is_guarded(s, units) for s in stmts)
        case If(_, then, None):
            return _is_guarded(then, units)
        case _:
            return False


def _tests(stmt: Stmt, var: Var) -> bool:
    match stmt:
        case If(condition, then, None):
            asks = any(requirement(c) is not None and uses(c, (var,)) for c in conjuncts(condition))
            return asks or _tests(then, var)
        case For():
            return _tests(stmt.body, var)
        case Seq(stmts):
            return all(_tests(s, var) for s in stmts)
        case _:
            return False


def _are_apart(stmt: Stmt, units: dict[Var, _Unit], domain: Domain) -> bool:
    """Whether different iterations of the loops, taken as one, share no element that one of them writes."""
    if any(type(s) not in (For, If, Seq, Store) for s in walk(stmt)):
        return False
    written = {s.buffer for s in walk(stmt) if type(s) is Store}
    places: dict[Buffer, list[tuple[tuple[Expr, ...], Domain]]] = {buffer: [] for buffer in written}
    for buffer, indices, inside in _accesses(stmt, domain):
        if buffer in places:
            places[buffer].append((indices, inside))
    inner = {s.var for s in walk(stmt) if type(s) is For}
    same = Var("unit")
    renaming = dict.fromkeys(units, same)
    return all(
        any(
            _tells_apart([(substitute(indices[axis], renaming), inside) for indices, inside in found], same, inner)
            for axis in range(len(buffer.shape))
        )
        for buffer, found in places.items()
    )


def _accesses(stmt: Stmt, domain: Domain) -> Iterator[tuple[Buffer, tuple[Expr, ...], Domain]]:
    for root in exprs(stmt):
        for e in walk_expr(root):
            if type(e) is Load:
                yield e.buffer, e.indices, domain
    if type(stmt) is Store:
        yield stmt.buffer, stmt.indices, domain
    if type(stmt) is For:
        domain = domain.bind(stmt.var, stmt.start, stmt.extent)
    for inner in substmts(stmt):
        yield from _accesses(inner, domain)


def _tells_apart(found: list[tuple[Expr, Domain]], unit: Var, inner: set[Var]) -> bool:
    """Whether an index is always that of the unit times a number, and less than that added."""
    lows, highs, forms = [], [], set()
    for expr, domain in found:
        form = affine(expr)
        moving = [(a, s) for a, s in form.terms if a is not unit and not variables(a).isdisjoint({*inner, unit})]
        fixed = [(a, s) for a, s in form.terms if a is not unit and (a, s) not in moving]
        spread = bounds(Affine(tuple(moving), form.constant).to_expr(), domain)
        if spread.lo is None or spread.hi is None:
            return False
        lows.append(spread.lo)
        highs.append(spread.hi)
        forms.add((form.coefficient(unit), frozenset(fixed)))
    return len(forms) == 1 and max(highs) - min(lows) < abs(next(iter(forms))[0])
