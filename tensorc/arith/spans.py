"""The places that a statement touches of a buffer, and bounds of expressions over whole loops, symbolic in what is
outside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import overload

from tensorc.arith.affine import affine
from tensorc.arith.bounds import Domain, bounds, exact, scalarise
from tensorc.arith.prove import can_prove
from tensorc.arith.simplify import simplify
from tensorc.arith.wrapping import is_wild
from tensorc.dtypes import bool_
from tensorc.ir.expr import (
    Broadcast,
    Buffer,
    Const,
    Expr,
    FloorDiv,
    IfThenElse,
    Load,
    Max,
    Min,
    Mod,
    Mul,
    Ramp,
    Select,
    Var,
    index,
    is_const,
    logical_and,
    maximum,
    minimum,
)
from tensorc.ir.stmt import Block, For, Let, Stmt, Store
from tensorc.ir.walk import exprs, substitute, substmts, walk_expr


@dataclass(frozen=True, slots=True)
class Span:
    """The integers from `lo` to `hi`, both included."""

    lo: Expr
    hi: Expr

    def extent(self, domain: Domain) -> Expr:
        """How many they are, simplified."""
        return simplify(self.hi - self.lo + 1, domain)


@dataclass(frozen=True, slots=True)
class Access:
    """One load or store in the part that is looked at.

    `indices` are over block iterators, loops and lets; `values` gives the iterators and lets in
    terms of loops; `ranges` are those of the loops between the part and the access; `domain` and
    `predicate` are what holds there.
    """

    indices: tuple[Expr, ...]
    is_store: bool
    values: Mapping[Var, Expr]
    ranges: Mapping[Var, Span | None]
    domain: Domain
    predicate: Expr

    def over_loops(self, expr: Expr) -> Expr:
        """An expression over the variables of the indices, in terms of loops."""
        return simplify(substitute(expr, self.values), self.domain)

    def span(self, expr: Expr) -> Span | None:
        """The span of an expression over the variables of the indices, and over its lanes; None if
        unbounded."""
        match expr:
            case Ramp(base, Const(stride), lanes):
                first, last = self.span(base), self.span(base + stride * (lanes - 1))
                ends = (first, last) if stride >= 0 else (last, first)
                return Span(ends[0].lo, ends[1].hi) if ends[0] and ends[1] else None
            case Broadcast(value):
                return self.span(value)
        if expr.dtype.lanes > 1:
            return None
        return relax(self.over_loops(expr), self.ranges, self.domain)

    def is_fixed(self, expr: Expr) -> bool:
        """Whether an expression over loops is the same in all iterations inside the part."""
        return not _varies(expr, self.ranges)


@overload
def unite(spans: Iterable[Span], domain: Domain) -> Span: ...


@overload
def unite(spans: Iterable[Span | None], domain: Domain) -> Span | None: ...


def unite(spans, domain):
    """The smallest span around all of these; None where one is unbounded."""
    return reduce(lambda a, b: _union(a, b, domain), spans)


def clamp(span: Span | None, extent: Expr, domain: Domain) -> Span:
    """The part of a span within 0 .. extent."""
    if span is None:
        return Span(index(0), simplify(extent - 1, domain))
    return Span(larger(span.lo, index(0), domain), smaller(span.hi, extent - 1, domain))


def window(stmt: Stmt, buffer: Buffer, domain: Domain) -> tuple[Span, ...] | None:
    """What a statement loads of a buffer, other than at places that are loaded themselves; None for
    nothing."""
    found = [
        each
        for each in accesses(stmt, buffer, domain)
        if not each.is_store
        and not any(type(e) is Load for i in each.indices for e in walk_expr(each.over_loops(i)))
    ]
    if not found:
        return None
    region = []
    for axis, extent in enumerate(buffer.shape):
        spans = [clamp(_lanes_span(each, each.indices[axis]), extent, each.domain) for each in found]
        region.append(unite(spans, domain))
    return tuple(region)


def _lanes_span(access: Access, expr: Expr) -> Span | None:
    """The span of an index, in all lanes of it."""
    if expr.dtype.lanes == 1:
        return access.span(expr)
    match expr:
        case Ramp(base, Const(stride), lanes):
            ends = [access.span(base), access.span(base + stride * (lanes - 1))]
            return unite(ends, access.domain)
        case Broadcast(value):
            return access.span(value)
        case _:
            return None


def accesses(stmt: Stmt, buffer: Buffer, domain: Domain) -> tuple[Access, ...]:
    """The loads and stores of `buffer` in a statement; `domain` is what is known outside it."""
    return tuple(_accesses(stmt, buffer, Access((), False, {}, {}, domain, Const(True, bool_))))


def _accesses(stmt: Stmt, buffer: Buffer, around: Access) -> Iterator[Access]:
    for expr in exprs(stmt):
        for e in walk_expr(expr):
            if type(e) is Load and e.buffer is buffer:
                yield replace(around, indices=e.indices)
    if type(stmt) is Store and stmt.buffer is buffer:
        yield replace(around, indices=stmt.indices, is_store=True)
    around = _enter(stmt, around)
    for inner in substmts(stmt):
        yield from _accesses(inner, buffer, around)


def _enter(stmt: Stmt, around: Access) -> Access:
    """What an access inside a statement has besides what it has around it."""
    match stmt:
        case For(var, start, extent):
            start, extent = substitute(start, around.values), substitute(extent, around.values)
            ranges = {**around.ranges, var: _loop_span(start, extent, around)}
            return replace(around, ranges=ranges, domain=around.domain.bind(var, start, extent))
        case Let(var, value):
            return replace(around, values={**around.values, var: around.over_loops(value)})
        case Block(_, iters, predicate):
            bindings = {it.var: substitute(it.binding, around.values) for it in iters}
            predicate = logical_and(around.predicate, substitute(predicate, around.values))
            domain = block_domain(stmt, around.domain)
            return replace(
                around, values={**around.values, **bindings}, domain=domain, predicate=predicate
            )
        case _:
            return around


def _loop_span(start: Expr, extent: Expr, around: Access) -> Span | None:
    """The values of a loop's variable over the whole ranges of the loops around it."""
    if is_const(start) and is_const(extent):
        return Span(start, start + extent - 1)
    first, last = around.span(start), around.span(start + extent - 1)
    return None if first is None or last is None else Span(first.lo, last.hi)


def block_domain(block: Block, domain: Domain) -> Domain:
    """What is known in a block's body: the ranges of its iterators, and its predicate."""
    if not is_const(block.predicate):
        domain = domain.given(block.predicate)
    for it in block.iters:
        domain = domain.bind(it.var, 0, it.extent)
    return domain


def relax(expr: Expr, inner: Mapping[Var, Span | None], domain: Domain) -> Span | None:
    """Bounds of `expr` over all values of the variables `inner`, in terms of its other variables;
    None if unknown. Those of a vector are the bounds over its lanes."""
    if expr.dtype.lanes > 1:
        lanes = Span(index(0), index(expr.dtype.lanes - 1))
        expr, domain = scalarise(expr, domain, lane := Var("lane"))
        inner = {**inner, lane: lanes}
        expr = simplify(expr, domain)
    if not _varies(expr, inner):
        return Span(expr, expr)
    form = affine(expr)
    if any([is_wild(e) for e in walk_expr(expr)]) and not exact(dict(form.terms), form.constant, domain):
        return None  # it may wrap, between bounds of its parts or around them
    lo = hi = index(form.constant)
    for atom, factor in form.terms:
        span = _relax_atom(atom, inner, domain)
        if span is None:
            return None
        least, most = (span.lo, span.hi) if factor > 0 else (span.hi, span.lo)
        lo, hi = lo + least * factor, hi + most * factor
    return Span(simplify(lo, domain), simplify(hi, domain))


def _varies(expr: Expr, inner: Mapping[Var, Span | None]) -> bool:
    """Whether the value may change inside: what is loaded may."""
    return any(e in inner if type(e) is Var else type(e) is Load for e in walk_expr(expr))


def _relax_atom(atom: Expr, inner: Mapping[Var, Span | None], domain: Domain) -> Span | None:
    if not _varies(atom, inner):
        return Span(atom, atom)
    match atom:
        case Var():
            return inner[atom]
        case FloorDiv(a, b) if is_const(b) and b.value > 0:
            span = relax(a, inner, domain)
            return span and Span(span.lo // b, span.hi // b)
        case Mod(a, b) if is_const(b) and b.value > 0:
            return _relax_mod(relax(a, inner, domain), b, domain)
        case Mul(a, b):
            return _relax_product(a, b, inner, domain) or _constant_span(atom, domain)
        case Min(a, b):
            return _pair(relax(a, inner, domain), relax(b, inner, domain), smaller, smaller, domain)
        case Max(a, b):
            return _pair(relax(a, inner, domain), relax(b, inner, domain), larger, larger, domain)
        case Select(_, a, b) | IfThenElse(_, a, b):
            return _union(relax(a, inner, domain), relax(b, inner, domain), domain)
        case _:
            return _constant_span(atom, domain)


def _relax_product(
    a: Expr, b: Expr, inner: Mapping[Var, Span | None], domain: Domain
) -> Span | None:
    """x * n runs from lo * n to hi * n where n does not vary and is not negative."""
    if _varies(b, inner):
        a, b = b, a
    if _varies(b, inner) or not can_prove(b >= 0, domain):
        return None
    span = relax(a, inner, domain)
    return span and Span(span.lo * b, span.hi * b)


def _relax_mod(span: Span | None, divisor: Expr, domain: Domain) -> Span:
    """x % c runs from lo % c to hi % c where lo and hi lie in one period, else over 0 .. c."""
    if span is not None:
        first, last = simplify(span.lo // divisor, domain), simplify(span.hi // divisor, domain)
        if first == last:
            return Span(span.lo % divisor, span.hi % divisor)
    return Span(index(0), divisor - 1)


def _constant_span(expr: Expr, domain: Domain) -> Span | None:
    interval = bounds(expr, domain)
    if interval.lo is None or interval.hi is None:
        return None
    return Span(index(interval.lo), index(interval.hi))


def _union(a: Span | None, b: Span | None, domain: Domain) -> Span | None:
    return _pair(a, b, smaller, larger, domain)


def _pair(a: Span | None, b: Span | None, low, high, domain: Domain) -> Span | None:
    if a is None or b is None:
        return None
    return Span(low(a.lo, b.lo, domain), high(a.hi, b.hi, domain))


def smaller(a: Expr, b: Expr, domain: Domain) -> Expr:
    """min(a, b): one of the two where that can be told."""
    sign = _sign(a, b, domain)
    return simplify(minimum(a, b), domain) if sign is None else a if sign <= 0 else b


def larger(a: Expr, b: Expr, domain: Domain) -> Expr:
    """max(a, b): one of the two where that can be told."""
    sign = _sign(a, b, domain)
    return simplify(maximum(a, b), domain) if sign is None else a if sign >= 0 else b


def _sign(a: Expr, b: Expr, domain: Domain) -> int | None:
    """-1 where a <= b, 1 where a >= b, 0 where they are equal, None where it cannot be told."""
    if a == b:
        return 0
    interval = bounds(simplify(a - b, domain), domain)
    if interval.hi is not None and interval.hi <= 0:
        return -1
    if interval.lo is not None and interval.lo >= 0:
        return 1
    return None
