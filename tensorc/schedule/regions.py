"""What a part of a function touches of a buffer: for each dimension the first and the last place,
symbolic in the loops outside that part and taken over the whole range of the loops inside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import overload

from tensorc.arith import Domain, IndexMap, affine, bounds, can_prove, simplify
from tensorc.dtypes import bool_
from tensorc.ir.expr import (
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
    Select,
    Var,
    index,
    is_const,
    logical_and,
    maximum,
    minimum,
)
from tensorc.ir.function import Function
from tensorc.ir.stmt import Block, For, Let, Seq, Stmt, Store
from tensorc.ir.walk import all_exprs, exprs, substitute, substmts, uses, walk, walk_expr
from tensorc.schedule.locate import (
    Place,
    all_blocks,
    blocks_below,
    constant,
    find_block,
    refuse,
    version_of,
)

_LARGE = 1 << 31


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
        """The span of an expression over the variables of the indices; None if unbounded."""
        return relax(self.over_loops(expr), self.ranges, self.domain)

    def is_fixed(self, expr: Expr) -> bool:
        """Whether an expression over loops is the same in all iterations inside the part."""
        return not _varies(expr, self.ranges)


def read_region(place: Place, buffer: Buffer) -> tuple[Span, ...] | None:
    """What the loop or block at `place` loads of `buffer`, one span a dimension within the shape;
    None for nothing.

    The spans are over the loops around `place`: everything below it is taken as a whole.
    """
    return _region(place, buffer, lambda access: not access.is_store)


def write_region(place: Place, buffer: Buffer) -> tuple[Span, ...] | None:
    """What the loop or block at `place` stores to `buffer`; as `read_region`."""
    return _region(place, buffer, lambda access: access.is_store)


def _region(
    place: Place, buffer: Buffer, wanted: Callable[[Access], bool]
) -> tuple[Span, ...] | None:
    domain = place.domain()
    found = [access for access in accesses(place.node, buffer, domain) if wanted(access)]
    if not found:
        return None
    region = []
    for axis, extent in enumerate(buffer.shape):
        spans = [clamp(each.span(each.indices[axis]), extent, each.domain) for each in found]
        region.append(unite(spans, domain))
    return tuple(region)


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
    None if unknown."""
    if not _varies(expr, inner):
        return Span(expr, expr)
    form = affine(expr)
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


def assumed(extents: Iterable[Expr]) -> tuple[int, ...]:
    """Extents as numbers, a large one for each symbolic one: a map that can be undone over a larger
    shape can be over a smaller one."""
    return tuple([constant(extent) or _LARGE for extent in extents])


def loads(stmt: Stmt, buffer: Buffer) -> int:
    """How many loads of `buffer` a statement holds."""
    return sum(type(e) is Load and e.buffer is buffer for e in all_exprs(stmt))


def buffers_read(stmt: Stmt) -> tuple[Buffer, ...]:
    """The buffers that a statement loads from, in order of the first load."""
    return tuple(dict.fromkeys([e.buffer for e in all_exprs(stmt) if type(e) is Load]))


def buffers_written(stmt: Stmt) -> tuple[Buffer, ...]:
    """The buffers that a statement stores to, in order of the first store."""
    return tuple(dict.fromkeys([s.buffer for s in walk(stmt) if type(s) is Store]))


def stores_always(block: Block, buffer: Buffer) -> bool:
    """Whether each store to `buffer` in a block's body is made by each instance."""

    def is_sure(stmt: Stmt) -> bool:
        match stmt:
            case Store():
                return stmt.buffer is not buffer or stmt.mask is None
            case Let() | Seq():
                return all(map(is_sure, substmts(stmt)))
            case For(_, _, Const(extent)) if extent > 0:
                return is_sure(stmt.body)
            case _:
                return buffer not in buffers_written(stmt)

    return is_sure(block.body)


def readers(function: Function, buffer: Buffer) -> tuple[Block, ...]:
    """The blocks that load from `buffer`, in program order."""
    return tuple([block for block in all_blocks(function) if loads(block, buffer)])


def writers(function: Function, buffer: Buffer) -> tuple[Block, ...]:
    """The blocks that store to `buffer`, in program order."""
    return tuple([block for block in all_blocks(function) if buffer in buffers_written(block)])


def refuse_late_writer(function: Function, block: Block, users: Sequence[Place], step: str) -> None:
    """Raise ScheduleError if a buffer that `block` reads may hold something else where it would run
    later, at `users`: written after it, or in later iterations of a loop that is not around those."""
    place = find_block(function, block.name)
    blocks = blocks_below(version_of(place).node)
    at = next(i for i, other in enumerate(blocks) if other is block)
    inputs = buffers_read(block)
    for later in blocks[at + 1 :]:
        for buffer in buffers_written(later):
            if buffer in inputs:
                reason = f"it reads {buffer.name!r}, which {later.name!r} changes after it"
                refuse(function, f"{step}: {reason}", later.name)
    kept = [[id(loop) for loop in user.loops] for user in users]
    left = next((x for x in place.loops if any(id(x) not in around for around in kept)), None)
    for other in blocks_below(left) if left is not None else ():
        for buffer in buffers_written(other):
            if buffer in inputs and other is not block and not _gives_own_places(other, buffer):
                reason = f"it reads {buffer.name!r}, whose places {other.name!r} uses again in "
                refuse(function, f"{step}: {reason}later iterations", other.name)


def _gives_own_places(block: Block, buffer: Buffer) -> bool:
    """Whether different points of a block have different places in a buffer, so that one that runs
    again writes what is there."""
    values: dict[Var, Expr] = {}
    loops: dict[Var, Expr] = {it.var: it.extent for it in block.iters if it.kind != "reduce"}
    for stmt in walk(block.body):
        if type(stmt) is For:
            loops[stmt.var] = stmt.extent
        elif type(stmt) is Block:
            values.update({it.var: substitute(it.binding, values) for it in stmt.iters})
    stores = [stmt for stmt in walk(block) if type(stmt) is Store and stmt.buffer is buffer]
    for store in stores:
        places = tuple([substitute(e, values) for e in store.indices])
        used = tuple([var for var in loops if any(uses(e, (var,)) for e in places)])
        moving = [it.var for it in block.iters if it.kind != "reduce" and not is_const(it.extent, 1)]
        if not set(moving) <= set(used):
            return False
        if not IndexMap(used, places).is_injective(assumed([loops[var] for var in used])):
            return False
    return True
