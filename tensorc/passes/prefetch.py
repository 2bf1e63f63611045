"""Loops annotated `prefetch.A = n` ask, in each iteration, for what the n-th iteration after it reads of A.

    for i in 0..N {prefetch.A = 2} { for k in 0..32 { S(A[i, k]) } }
    ->  for i in 0..N { prefetch A[i + 2, 0]  prefetch A[i + 2, 16]  for k in 0..32 { S(A[i, k]) } }

One element of each cache line is asked for; of a window that moves by a part of itself, only what is new. An address
may lie outside the buffer, since a prefetch reads nothing; but where an index is itself loaded from data, that load is
guarded, so that it stays inside. A wish that cannot be followed is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tensorc.arith import Domain, affine, can_prove, simplify
from tensorc.arith.spans import Span, window
from tensorc.ir.expr import Buffer, Const, Expr, Load, Var, index, logical_and
from tensorc.ir.function import Function
from tensorc.ir.stmt import PREFETCH, Alloc, For, If, Let, Prefetch, Stmt, Store, seq
from tensorc.ir.walk import children, exprs, map_substmts, replace_body, substitute, substmts, uses, walk, walk_expr
from tensorc.passes.common import NOTHING, entry_domain, make_for, make_if

LINE = 64  # bytes of a cache line
FEW = 8  # so many prefetches are written one after the other


def prefetch_ahead(function: Function) -> Function:
    """The function with the prefetches that its loops are annotated with."""
    statements = list(walk(function.body))
    if not any(_wishes(stmt) for stmt in statements):
        return function
    placed = [buffer for stmt in statements if type(stmt) is Alloc for buffer in stmt.buffers]
    internal = (*function.allocs, *placed)
    buffers = {buffer.name: buffer for buffer in (*internal, *function.params)}
    written = frozenset([stmt.buffer for stmt in statements if type(stmt) is Store])
    fetcher = _Fetcher(buffers, frozenset(internal), written)
    return function.with_(body=fetcher.visit(function.body, entry_domain(function)))


def _wishes(stmt: Stmt) -> list[tuple[str, int]]:
    """The buffers to be prefetched in a loop, by name, and how many iterations ahead."""
    if type(stmt) is not For or not stmt.annotations or stmt.kind in ("vectorized", "thread"):
        return []
    return [(key[len(PREFETCH) :], int(ahead)) for key, ahead in stmt.annotations if key.startswith(PREFETCH)]


@dataclass(frozen=True, slots=True)
class _Fetcher:
    """`buffers` are all by name, `written` those that the function writes."""

    buffers: Mapping[str, Buffer]
    internal: frozenset[Buffer]
    written: frozenset[Buffer]

    def visit(self, stmt: Stmt, domain: Domain) -> Stmt:
        match stmt:
            case For(var, start, extent, _, body):
                inside = domain.bind(var, start, extent)
                new = self.visit(body, inside)
                wishes = [(self.buffers[name], ahead) for name, ahead in _wishes(stmt) if name in self.buffers]
                found = [self.fetch(stmt, buffer, ahead, inside) for buffer, ahead in wishes]
                new = seq(*found, new) if found else new
                return stmt if new is body else replace_body(stmt, new)
            case If(condition, then, orelse):
                new = self.visit(then, domain.given(condition))
                return If(condition, new, None if orelse is None else self.visit(orelse, domain))
            case _:
                return map_substmts(stmt, lambda s: self.visit(s, domain))

    def fetch(self, loop: For, buffer: Buffer, ahead: int, domain: Domain) -> Stmt:
        """The prefetches of one buffer in an iteration of a loop."""
        if buffer in self.internal and any(type(s) is Store and s.buffer is buffer for s in walk(loop.body)):
            return NOTHING  # what it will hold is not there yet
        region = window(loop.body, buffer, domain)
        parts = [] if region is None else [_lines(loop, buffer, region, ahead, domain)]
        for gather in dict.fromkeys(_gathers(loop.body, buffer, (), {})):
            if not any(e.buffer in self.written for e in gather.data()):
                parts.append(_gathered(loop, buffer, gather, ahead, domain))
        return seq(*parts)


def _lines(loop: For, buffer: Buffer, region: tuple[Span, ...], ahead: int, domain: Domain) -> Stmt:
    """Prefetches of the lines of a region that lies `ahead` iterations further on."""
    region = _news(loop, region, domain)
    if not region:
        return NOTHING
    later = {loop.var: loop.var + ahead}
    loops: list[tuple[Var, Expr]] = []
    places = []
    for axis, span in enumerate(region):
        step = max(1, LINE // buffer.dtype.bytes) if _is_row_major(buffer, axis) else 1
        count = simplify((span.hi - span.lo + step) // step, domain)
        place = substitute(span.lo, later)
        if count != index(1):
            var = Var(f"{loop.var.name}.ahead{axis}")
            loops.append((var, substitute(count, later)))
            place = place + var * step
        places.append(simplify(place, domain))
    return _nest(loops, Prefetch(buffer, tuple(places)))


def _nest(loops: Iterable[tuple[Var, Expr]], body: Stmt) -> Stmt:
    for var, extent in reversed(list(loops)):
        is_short = type(extent) is Const and extent.value <= FEW
        body = make_for(var, index(0), extent, "unrolled" if is_short else "serial", body)
    return body


def _news(loop: For, region: tuple[Span, ...], domain: Domain) -> tuple[Span, ...]:
    """What of a region the iteration before has not; nothing if they are the same."""
    following = {loop.var: loop.var + 1}
    moves = []
    for span in region:
        steps = [simplify(substitute(end, following) - end, domain) for end in (span.lo, span.hi)]
        moves.append(steps[0] if steps[0] == steps[1] else None)
    moving = [axis for axis, step in enumerate(moves) if step != index(0)]
    if len(moving) != 1:
        return region if moving else ()
    axis, step = moving[0], moves[moving[0]]
    size = simplify(region[axis].hi - region[axis].lo + 1, domain)
    if type(step) is not Const or type(size) is not Const or abs(step.value) >= size.value:
        return region
    lo, hi = region[axis].lo, region[axis].hi
    new = Span(hi - (step - 1), hi) if step.value > 0 else Span(lo, lo - (step + 1))
    new = Span(simplify(new.lo, domain), simplify(new.hi, domain))
    return (*region[:axis], new, *region[axis + 1 :])


@dataclass(frozen=True, slots=True)
class _Gather:
    """A load at places that are loaded themselves, and the loops between the place of interest and it."""

    indices: tuple[Expr, ...]
    loops: tuple[tuple[Var, Expr, Expr], ...]

    def data(self) -> Iterator[Load]:
        """What is loaded for the places, that for which something else is loaded last."""
        for _, start, extent in self.loops:
            yield from (*_loads(start), *_loads(extent))
        for expr in self.indices:
            yield from _loads(expr)


def _loads(expr: Expr) -> Iterator[Load]:
    for operand in children(expr):
        yield from _loads(operand)
    if type(expr) is Load:
        yield expr


def _gathers(stmt: Stmt, buffer: Buffer, loops: tuple, lets: Mapping[Var, Expr]) -> Iterator[_Gather]:
    for value in exprs(stmt):
        for e in walk_expr(value):
            if type(e) is Load and e.buffer is buffer:
                indices = tuple([substitute(i, lets) for i in e.indices])
                is_vector = any(i.dtype.lanes > 1 for i in indices)
                if not is_vector and any(type(inner) is Load for i in indices for inner in walk_expr(i)):
                    yield _Gather(indices, loops)
    match stmt:
        case For(var, start, extent):
            loops = (*loops, (var, substitute(start, lets), substitute(extent, lets)))
        case Let(var, value):
            lets = {**lets, var: substitute(value, lets)}
    for inner in substmts(stmt):
        yield from _gathers(inner, buffer, loops, lets)


def _gathered(loop: For, buffer: Buffer, gather: _Gather, ahead: int, domain: Domain) -> Stmt:
    """Prefetches at the places that are found `ahead` iterations further on."""
    later: dict[Var, Expr] = {loop.var: loop.var + ahead}
    loops: list[tuple[Var, Expr, tuple[Load, ...]]] = []
    for var, start, extent in gather.loops:
        start, extent = simplify(substitute(start, later), domain), simplify(substitute(extent, later), domain)
        own = Var(f"{var.name}.ahead")
        step = _step(buffer, gather, var)
        count = simplify((extent + step - 1) // step, domain)
        if count == index(1):
            later[var] = start
            continue
        loops.append((own, count, (*_loads(start), *_loads(extent))))
        domain = domain.bind(own, 0, count)
        later[var] = simplify(start + own * step, domain)
    places = tuple([simplify(substitute(i, later), domain) for i in gather.indices])
    body = _guarded(Prefetch(buffer, places), [e for i in places for e in _loads(i)], domain)
    for own, extent, loads in reversed(loops):
        body = _guarded(_nest([(own, extent)], body), loads, domain)
    return body


def _step(buffer: Buffer, gather: _Gather, var: Var) -> int:
    """How many iterations of a loop stay within one line."""
    data = [e for i in gather.indices for e in _loads(i)]
    if not gather.indices or any(uses(e, (var,)) for e in (*data, *gather.indices[:-1])):
        return 1
    form = affine(gather.indices[-1])
    if not _is_row_major(buffer, len(gather.indices) - 1) or any(
        atom is not var and uses(atom, (var,)) for atom, _ in form.terms
    ):
        return 1
    return max(1, LINE // (buffer.dtype.bytes * max(1, abs(form.coefficient(var)))))


def _is_row_major(buffer: Buffer, axis: int) -> bool:
    """Whether elements along the last axis are neighbours, and `axis` is it."""
    is_last = axis == len(buffer.shape) - 1
    return is_last and (buffer.strides is None or buffer.strides[axis] == index(1))


def _guarded(stmt: Stmt, loads: Iterable[Load], domain: Domain) -> Stmt:
    """A statement where all loads are inside their buffers, each tested before what depends on it."""
    for load in reversed(list(dict.fromkeys(loads))):
        inside = [(i >= 0, i < extent) for i, extent in zip(load.indices, load.buffer.shape)]
        unsure = [c for pair in inside for c in pair if not can_prove(c, domain)]
        stmt = make_if(logical_and(*unsure), stmt) if unsure else stmt
    return stmt
