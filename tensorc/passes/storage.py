"""Internal buffers get a place, a size and a kind of memory; every access gets one index.

    for i in 0..n { for j { T[i, j] = A[i, j] }   for j { B[i, j] = T[i, j] } }
    ->  for i in 0..n { alloc T[m] @local
            for j { T[j] = A[i*m + j] }   for j { B[i*m + j] = T[j] } }

A buffer lives in the innermost statement that holds all its accesses, unless an iteration of a loop
reads what an earlier one wrote: then outside that loop. There it needs only the part that is
touched while the loops outside stand still. Small buffers of constant size are local (the stack),
others are slices of the workspace. The index of an access is its offset in elements, outer loops'
terms first, the constant last.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tensorc.arith import Affine, Domain, bounds, simplify
from tensorc.arith.affine import Terms, build, linear, multiply
from tensorc.ir.expr import (
    EQ,
    LE,
    LT,
    Add,
    Broadcast,
    Buffer,
    Const,
    Expr,
    FloorDiv,
    Load,
    Mod,
    Mul,
    Ramp,
    Var,
    add,
    broadcast,
    index,
    is_const,
    logical_not,
    mul,
)  # fmt: skip
from tensorc.ir.function import Function
from tensorc.ir.stmt import Alloc, For, If, Let, Prefetch, Seq, Stmt, Store, seq
from tensorc.ir.walk import (
    exprs,
    map_exprs,
    map_substmts,
    replace_body,
    rewrite,
    substmts,
    variables,
    walk_expr,
)
from tensorc.passes.common import NOTHING, conjuncts, entry_domain, requirement

LOCAL_BYTES = 16 * 1024  # of local buffers alive at one place
ALIGNMENT = 64


def place_buffers(function: Function) -> Function:
    """The function with every internal buffer in an `Alloc`, and one index for every access."""
    body, layouts = function.body, {}
    if function.allocs:
        record = _Record(function.allocs)
        record.collect(body, (), (), entry_domain(function))
        placer = _Placer(record.accesses, record.ranges)
        body = placer.place(
            body, [b for b in function.allocs if record.accesses[b]], 0, LOCAL_BYTES
        )
        layouts = placer.layouts
    return function.with_(body=_Flattener(layouts).visit(body, 0), allocs=())


@dataclass(frozen=True, slots=True)
class _Access:
    """One load or store; `path` holds the loops and lets around it, outermost first."""

    indices: tuple[Expr, ...]
    mask: Expr | None
    is_store: bool
    path: tuple[For | Let, ...]
    conditions: tuple[Expr, ...]
    domain: Domain


@dataclass(frozen=True, slots=True)
class _Span:
    """The places base + lo ... base + hi of one dimension; `base` has only variables from
    outside."""

    base: Affine
    lo: int
    hi: int


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the elements of a buffer lie: `buffer` stands for it, `origins` are what its indices
    start from."""

    buffer: Buffer
    origins: tuple[Affine, ...]
    strides: tuple[Expr, ...]


_ZERO = Affine((), 0)


def _whole(buffer: Buffer) -> _Layout:
    return _Layout(buffer, (_ZERO,) * len(buffer.shape), _strides(buffer))


def _strides(buffer: Buffer) -> tuple[Expr, ...]:
    if buffer.strides is not None:
        return buffer.strides
    strides: list[Expr] = [index(1)]
    for extent in reversed(buffer.shape[1:]):
        strides.append(mul(extent, strides[-1]))
    return tuple(reversed(strides)) if buffer.shape else ()


def _padded(shape: Sequence[Expr], padding) -> tuple[Expr, ...]:
    """Row-major strides, each longer by what makes it `offset` more than a multiple of `factor`."""
    rules = {axis: (factor, offset) for axis, factor, offset in padding}
    strides: list[Expr] = []
    following: Expr = index(1)
    for axis in range(len(shape) - 1, -1, -1):
        factor, offset = rules.get(axis, (1, 0))
        stride = simplify(following + (offset - following) % factor)
        strides.append(stride)
        following = shape[axis] * stride
    return tuple(reversed(strides))


class _Record:
    """The accesses to internal buffers in order, and which of them lie in each statement."""

    def __init__(self, buffers: tuple[Buffer, ...]):
        self.accesses: dict[Buffer, list[_Access]] = {buffer: [] for buffer in buffers}
        self.ranges: dict[int, dict[Buffer, tuple[int, int]]] = {}

    def collect(self, stmt: Stmt, path, conditions, domain: Domain) -> None:
        before = {buffer: len(found) for buffer, found in self.accesses.items()}
        for expr in exprs(stmt):
            for e in walk_expr(expr):
                if type(e) is Load and e.buffer in self.accesses:
                    self.accesses[e.buffer].append(
                        _Access(e.indices, e.mask, False, path, conditions, domain)
                    )
        match stmt:
            case Store(buffer, indices, _, mask):
                if buffer in self.accesses:
                    self.accesses[buffer].append(
                        _Access(indices, mask, True, path, conditions, domain)
                    )
            case For(var, start, extent, _, body):
                self.collect(body, (*path, stmt), conditions, domain.bind(var, start, extent))
            case Let(_, _, body):
                self.collect(body, (*path, stmt), conditions, domain)
            case If(condition, then, orelse):
                self.collect(
                    then, path, (*conditions, *conjuncts(condition)), domain.given(condition)
                )
                if orelse is not None:
                    self.collect(orelse, path, (*conditions, logical_not(condition)), domain)
            case _:
                for inner in substmts(stmt):
                    self.collect(inner, path, conditions, domain)
        ranges = self.ranges.setdefault(id(stmt), {})
        for buffer, begin in before.items():
            if len(self.accesses[buffer]) > begin:
                ranges[buffer] = (
                    min(begin, ranges.get(buffer, (begin,))[0]),
                    len(self.accesses[buffer]),
                )


class _Placer:
    """`layouts` tells what each placed buffer stands for, and how."""

    def __init__(
        self,
        accesses: dict[Buffer, list[_Access]],
        ranges: dict[int, dict[Buffer, tuple[int, int]]],
    ):
        self.accesses = accesses
        self.ranges = ranges
        self.layouts: dict[Buffer, tuple[Buffer, _Layout]] = {}
        self.parts: dict[Buffer, int] = {}

    def place(self, stmt: Stmt, buffers: list[Buffer], depth: int, room: int) -> Stmt:
        """The statement with memory for each of the buffers in it or around it, as nothing else
        needs their values."""
        if not buffers:
            return stmt
        if type(stmt) is Seq:
            return self._sequence(stmt.stmts, buffers, depth, room)
        if type(stmt) is Alloc:
            return replace_body(
                stmt, self.place(stmt.body, buffers, depth, room - max(0, _bytes(stmt.buffer)))
            )
        parts = substmts(stmt)
        here = [b for b in buffers if not self._goes_in(stmt, parts, b, depth)]
        there = [b for b in buffers if b not in here]
        new, room = self._placed(here, [stmt], depth, room)
        depth += type(stmt) is For or type(stmt) is Let

        def inside(part: Stmt) -> Stmt:
            return self.place(part, [b for b in there if b in self._uses(part)], depth, room)

        return _wrapped(new, map_substmts(stmt, inside) if there else stmt)

    def _sequence(
        self, stmts: tuple[Stmt, ...], buffers: list[Buffer], depth: int, room: int
    ) -> Stmt:
        """Buffers used by one statement go there, others around all those that share their
        values."""
        ranges: list[tuple[int, int, list[Buffer]]] = []
        inner: dict[int, list[Buffer]] = {}
        for buffer in buffers:
            for users in self._segments(stmts, buffer, depth):
                if len(users) == 1:
                    inner.setdefault(users[0], []).append(buffer)
                else:
                    ranges.append((users[0], users[-1] + 1, [buffer]))
        result: list[Stmt] = []
        at = 0
        for begin, end, group in _merged(ranges):
            result += [
                self.place(stmts[i], inner.get(i, []), depth, room) for i in range(at, begin)
            ]
            new, left = self._placed(list(dict.fromkeys(group)), stmts[begin:end], depth, room)
            inside = [[b for b in inner.get(i, []) if b not in group] for i in range(begin, end)]
            body = [self.place(s, of, depth, left) for s, of in zip(stmts[begin:end], inside)]
            result.append(_wrapped(new, seq(*body)))
            at = end
        result += [
            self.place(stmts[i], inner.get(i, []), depth, room) for i in range(at, len(stmts))
        ]
        return seq(*result)

    def _segments(self, stmts: tuple[Stmt, ...], buffer: Buffer, depth: int) -> Iterator[list[int]]:
        """The statements that use a buffer, apart where the later ones read nothing that the
        earlier ones wrote."""
        users = [at for at, stmt in enumerate(stmts) if buffer in self._uses(stmt)]
        current = users[:1]
        for at in users[1:]:
            if self._is_private(buffer, stmts[at:], depth):
                yield current
                current = []
            current.append(at)
        yield current

    def _uses(self, stmt: Stmt) -> Mapping[Buffer, tuple[int, int]]:
        return self.ranges.get(id(stmt), {})

    def _found(self, buffer: Buffer, stmts: Sequence[Stmt]) -> list[_Access]:
        """The accesses in statements that follow one another."""
        ranges = [self._uses(stmt)[buffer] for stmt in stmts if buffer in self._uses(stmt)]
        return self.accesses[buffer][ranges[0][0] : ranges[-1][1]]

    def _is_private(self, buffer: Buffer, stmts: Sequence[Stmt], depth: int) -> bool:
        """Whether statements, with the loops outside `depth` standing still, read only what they
        wrote themselves."""
        found = self._found(buffer, stmts)
        for at, access in enumerate(found):
            if not access.is_store:
                writes = [other for other in found[:at] if other.is_store]
                if not _are_covered(access, writes, buffer, depth):
                    return False
        return True

    def _goes_in(self, stmt: Stmt, parts: tuple[Stmt, ...], buffer: Buffer, depth: int) -> bool:
        """Whether a buffer may live in the parts of the statement, in each for itself."""
        if any(
            type(e) is Load and e.buffer is buffer for expr in exprs(stmt) for e in walk_expr(expr)
        ):
            return False
        users = [part for part in parts if buffer in self._uses(part)]
        if type(stmt) is For:
            return stmt.kind == "parallel" or self._is_private(buffer, users, depth + 1)
        return type(stmt) is If or type(stmt) is Let  # of two branches only one runs

    def _placed(
        self, buffers: list[Buffer], stmts: Sequence[Stmt], depth: int, room: int
    ) -> tuple[list[Buffer], int]:
        """New buffers, as small as the statements allow, and the room for local ones that is
        left."""
        result = []
        for buffer in buffers:
            shape, origins = self._needed(buffer, stmts, depth)
            part = self.parts[buffer] = self.parts.get(buffer, -1) + 1
            name = f"{buffer.name}.{part}" if part else buffer.name
            new = buffer.with_(name=name, shape=shape, alignment=max(ALIGNMENT, buffer.alignment))
            strides = _strides(new)
            if buffer.padding:
                strides = _padded(shape, buffer.padding)
                size = shape[0] * strides[0]
                new = new.with_(shape=(simplify(size),), padding=())
            if buffer.scope in ("global", "local"):
                fits = 0 <= _bytes(new) <= room
                room -= _bytes(new) if fits else 0
                new = new.with_(scope="local" if fits else "global")
            self.layouts[new] = (buffer, _Layout(new, origins, strides))
            result.append(new)
        return result, room

    def _needed(
        self, buffer: Buffer, stmts: Sequence[Stmt], depth: int
    ) -> tuple[tuple[Expr, ...], tuple[Affine, ...]]:
        """The shape that the accesses need, and what their indices start from."""
        regions = [_region(access, depth) for access in self._found(buffer, stmts)]
        shape, origins = [], []
        for axis, extent in enumerate(buffer.shape):
            span = _hull([region[axis] for region in regions])
            if span is None or (not span.base.terms and _covers_all(span, extent)):
                shape.append(extent)
                origins.append(_ZERO)
                continue
            shape.append(index(span.hi - span.lo + 1))
            origins.append(Affine(span.base.terms, span.base.constant + span.lo))
        return tuple(shape), tuple(origins)


def _bytes(buffer: Buffer) -> int:
    """The size of a buffer; -1 if it is not constant."""
    if any(type(extent) is not Const for extent in buffer.shape):
        return -1
    return math.prod([extent.value for extent in buffer.shape]) * buffer.dtype.bytes


def _wrapped(new: list[Buffer], body: Stmt) -> Stmt:
    for buffer in reversed(new):
        body = Alloc(buffer, body)
    return body


def _merged(ranges: list[tuple[int, int, list[Buffer]]]) -> Iterator[tuple[int, int, list[Buffer]]]:
    """Ranges that overlap made one, in order."""
    current = None
    for begin, end, group in sorted(ranges, key=lambda r: (r[0], -r[1])):
        if current is not None and begin < current[1]:
            current = (current[0], max(end, current[1]), current[2] + group)
            continue
        if current is not None:
            yield current
        current = (begin, end, group)
    if current is not None:
        yield current


# What an access touches while the loops outside `depth` stand still.


def _region(access: _Access, depth: int) -> tuple[_Span | None, ...]:
    """One span a dimension; None where it is not known."""
    inner = {binder.var for binder in access.path[depth:]}
    return tuple([_span(e, access.mask, inner, access.domain) for e in access.indices])


def _span(expr: Expr, mask: Expr | None, inner: set[Var], domain: Domain) -> _Span | None:
    more = 0
    base = expr
    if type(expr) is Ramp:
        if type(expr.stride) is not Const:
            return None
        more = expr.stride.value * (expr.lanes - 1)
        base = expr.base
    elif type(expr) is Broadcast:
        base = expr.value
    elif expr.dtype.lanes > 1:
        return None
    terms, constant = linear(base)
    outer, moving = [], {}
    for atom, scale in terms.items():
        if any(type(e) is Load for e in walk_expr(atom)):
            return None
        if variables(atom).isdisjoint(inner):
            outer.append((atom, scale))
        else:
            moving[atom] = scale
    found = bounds(build(moving, constant), domain)
    if found.lo is None or found.hi is None:
        return None
    outer.sort(key=lambda term: repr(term[0]))
    hi = found.hi + max(more, 0)
    limit = _limit(expr, mask)
    if limit is not None and not outer:
        hi = min(hi, limit)
    return _Span(Affine(tuple(outer), 0), found.lo + min(more, 0), hi)


def _limit(expr: Expr, mask: Expr | None) -> int | None:
    """The greatest index that a mask `ramp < constant` lets through."""
    if mask is None or type(expr) is not Ramp:
        return None
    limits = []
    for condition in conjuncts(mask):
        match condition:
            case LT(Ramp(base, stride, _), Broadcast(Const(end), _)) if stride == expr.stride:
                terms, apart = linear(expr.base - base)
                if not terms:
                    limits.append(end - 1 + apart)
    return min(limits, default=None)


def _hull(spans: list[_Span | None]) -> _Span | None:
    known = [span for span in spans if span is not None]
    if len(known) < len(spans) or any(span.base != known[0].base for span in known):
        return None
    return _Span(known[0].base, min(span.lo for span in known), max(span.hi for span in known))


def _covers_all(span: _Span, extent: Expr) -> bool:
    return type(extent) is Const and span.lo <= 0 and span.hi >= extent.value - 1


def _are_covered(read: _Access, writes: list[_Access], buffer: Buffer, depth: int) -> bool:
    """Whether writes, each time before a read, write all that is read: one alone, or several side
    by side."""
    found = [pair for write in writes if (pair := _regions(write, read, depth)) is not None]
    extents = buffer.shape
    for region, wanted in found:
        if all(map(_span_covers, region, wanted, extents)):
            return True
    for axis in range(len(extents)):
        beside = [
            (region[axis], wanted[axis])
            for region, wanted in found
            if all(
                _span_covers(region[at], wanted[at], extents[at])
                for at in range(len(extents))
                if at != axis
            )
        ]
        union = _joined([span for span, _ in beside]) if len(beside) > 1 else None
        if union is not None and all(
            _span_covers(union, wanted, extents[axis]) for _, wanted in beside
        ):
            return True
    return False


def _regions(write: _Access, read: _Access, depth: int):
    """What a write ahead of a read surely writes and what is read; None if the write may not have
    happened.

    Both within one iteration of the loops that they share, but for loops in whose first iteration
    the write happens.
    """
    common = depth
    while common < min(len(write.path), len(read.path)) and write.path[common] is read.path[common]:
        common += 1
    first: dict[Expr, int] = {
        EQ(loop.var, loop.start): at
        for at, loop in enumerate(write.path)
        if at >= depth and type(loop) is For
    }
    starting = [first[c] for c in write.conditions if c in first]
    if any(variables(e) & {write.path[at].var for at in starting} for e in write.indices):
        return None
    common = min([common, *starting])
    inner = {binder.var for binder in write.path[common:]}
    for condition in write.conditions:
        if (
            condition not in first
            and condition not in read.conditions
            and not _cuts_tail(condition, inner)
        ):
            return None
    if write.mask is not None and not all(type(c) in (LT, LE) for c in conjuncts(write.mask)):
        return None
    if not _is_dense(write, common):
        return None
    return _region(write, common), _region(read, common)


def _is_dense(access: _Access, depth: int) -> bool:
    """Whether an access, while the loops outside `depth` stand still, touches all places between the
    least and the greatest of each dimension: each has loops of its own, without gaps between what
    the lesser ones reach; or two share one, `x // c` with `x % c` of whole periods."""
    sizes: dict[Var, int | None] = {}
    for binder in access.path[depth:]:
        extent = binder.extent if isinstance(binder, For) else None
        sizes[binder.var] = extent.value if isinstance(extent, Const) else None
    taken: set[Var] = set()
    parts: dict[tuple[Expr, int], set[type]] = {}
    for expr in access.indices:
        lanes: list[tuple[int, int | None]] = []
        if type(expr) is Ramp:
            if type(expr.stride) is not Const:
                return False
            lanes = [(abs(expr.stride.value), expr.lanes)]
            expr = expr.base
        elif type(expr) is Broadcast:
            expr = expr.value
        terms, _ = linear(expr)
        moving = {atom: scale for atom, scale in terms.items() if not sizes.keys().isdisjoint(variables(atom))}
        only = next(iter(moving), None)
        if (
            isinstance(only, (FloorDiv, Mod))
            and is_const(only.b)
            and only.b.value > 0
            and len(moving) == 1
            and not lanes
            and moving[only] == 1
        ):
            parts.setdefault((only.a, only.b.value), set()).add(type(only))
            continue
        if not _is_gapless(moving, lanes, sizes, taken):
            return False
    for (divided, period), kinds in parts.items():
        moving = {a: s for a, s in linear(divided)[0].items() if not sizes.keys().isdisjoint(variables(a))}
        if not _is_gapless(moving, [], sizes, taken):
            return False
        found = bounds(divided, access.domain)
        if kinds != {FloorDiv} and (
            found.lo is None or found.hi is None or found.lo % period or (found.hi + 1) % period
        ):
            return False
    return True


def _is_gapless(
    moving: Mapping[Expr, int],
    lanes: list[tuple[int, int | None]],
    sizes: Mapping[Var, int | None],
    taken: set[Var],
) -> bool:
    """Whether a sum of loops takes every value between its least and its greatest; notes the loops."""
    steps = list(lanes)
    for atom, scale in moving.items():
        if type(atom) is not Var or atom in taken:
            return False
        taken.add(atom)
        steps.append((abs(scale), sizes[atom]))
    reach: int | None = 1
    for scale, size in sorted(steps, key=lambda step: step[0]):
        if reach is None or scale > reach:
            return False
        reach = None if size is None else reach + scale * (size - 1)
    return True


def _joined(spans: list[_Span | None]) -> _Span | None:
    """The union of spans, from the first on as far as there is no gap."""
    known = sorted([span for span in spans if span is not None], key=lambda span: span.lo)
    if len(known) < len(spans) or any(span.base != known[0].base for span in known):
        return None
    hi = known[0].hi
    for span in known[1:]:
        if span.lo <= hi + 1:
            hi = max(hi, span.hi)
    return _Span(known[0].base, known[0].lo, hi)


def _cuts_tail(condition: Expr, inner: set[Var]) -> bool:
    """Whether a condition just limits inner loops from above, as the guards of inexact splits
    do."""
    form = requirement(condition)
    if form is None:
        return False
    scales = [scale for atom, scale in form.terms if atom in inner]
    return bool(scales) and max(scales) < 0


def _span_covers(write: _Span | None, read: _Span | None, extent: Expr) -> bool:
    if write is None:
        return False
    if not write.base.terms and _covers_all(write, extent):
        return True
    return (
        read is not None and write.base == read.base and write.lo <= read.lo and write.hi >= read.hi
    )


class _Flattener:
    """Gives every access one index. `placed` tells what the buffers of `Alloc`s stand for."""

    def __init__(self, placed: Mapping[Buffer, tuple[Buffer, _Layout]]):
        self.placed = placed
        self.internal = {original for original, _ in placed.values()}
        self.layouts: dict[Buffer, _Layout] = {}
        self.depths: dict[Var, int] = {}  # how far in each loop is

    def visit(self, stmt: Stmt, depth: int) -> Stmt:
        match stmt:
            case For(var) | Let(var):
                self.depths[var] = depth + 1
                new = map_exprs(stmt, self.expr)
                body = self.visit(stmt.body, depth + 1)
                return new if body is stmt.body else replace_body(new, body)
            case Alloc(buffer, body) if buffer in self.placed:
                original, layout = self.placed[buffer]
                self.layouts[original] = layout
                body = self.visit(body, depth)
                del self.layouts[original]
                return Alloc(buffer, body)
            case Store(buffer, indices, value, mask, stream):
                layout = self._layout(buffer)
                mask = None if mask is None else self.expr(mask)
                at = self._flat(layout, tuple(map(self.expr, indices)))
                return Store(layout.buffer, (at,), self.expr(value), mask, stream)
            case Prefetch(buffer, indices):
                if buffer in self.internal and buffer not in self.layouts:
                    return NOTHING  # it does not exist here yet
                layout = self._layout(buffer)
                return Prefetch(layout.buffer, (self._flat(layout, tuple(map(self.expr, indices))),))
            case _:
                return map_substmts(map_exprs(stmt, self.expr), lambda s: self.visit(s, depth))

    def expr(self, expr: Expr) -> Expr:
        return rewrite(expr, self._rule)

    def _rule(self, expr: Expr) -> Expr | None:
        if type(expr) is not Load:
            return None
        layout = self._layout(expr.buffer)
        return Load(layout.buffer, (self._flat(layout, expr.indices),), expr.mask)

    def _layout(self, buffer: Buffer) -> _Layout:
        layout = self.layouts.get(buffer)
        if layout is None:
            layout = self.layouts[buffer] = _whole(buffer)
        return layout

    def _flat(self, layout: _Layout, indices: tuple[Expr, ...]) -> Expr:
        terms: Terms = {}
        constant, lanes = 0, 1
        step: Expr = index(0)
        gathered: list[tuple[Expr, Expr]] = []
        for expr, origin, stride in zip(indices, layout.origins, layout.strides):
            lanes = max(lanes, expr.dtype.lanes)
            if type(expr) is Ramp:
                step = add(step, mul(expr.stride, stride))
                expr = expr.base
            elif type(expr) is Broadcast:
                expr = expr.value
            elif expr.dtype.lanes > 1:
                gathered.append((expr, stride))
                continue
            constant += _add_scaled(terms, expr, origin, stride)
        base = self._sum(terms, constant)
        if lanes == 1:
            return base
        result: Expr = Broadcast(base, lanes) if is_const(step, 0) else Ramp(base, step, lanes)
        for expr, stride in gathered:
            scaled = expr if is_const(stride, 1) else Mul(expr, broadcast(stride, lanes))
            result = (
                Add(result, scaled)
                if not is_const(base, 0) or type(result) is not Broadcast
                else scaled
            )
        # Dimensions that are irregular each may run on together: v//3*3 + v%3 is the ramp v.
        return simplify(result) if gathered else result

    def _sum(self, terms: Terms, constant: int) -> Expr:
        if any(type(atom) is FloorDiv for atom in terms) and any(
            type(atom) is Mod for atom in terms
        ):
            terms, more = linear(simplify(build(terms, 0)))
            constant += more
        return build(dict(sorted(terms.items(), key=self._depth)), constant)

    def _depth(self, term: tuple[Expr, int]) -> int:
        atom = term[0]
        if type(atom) is Var:
            return self.depths.get(atom, 0)
        return max([self.depths.get(var, 0) for var in variables(atom)], default=0)


def _add_scaled(terms: Terms, expr: Expr, origin: Affine, stride: Expr) -> int:
    """Add (expr - origin) * stride to `terms`, and return what it adds to the constant."""
    form, constant = linear(expr)
    if origin is not _ZERO:
        form = dict(form)
        for atom, scale in origin.terms:
            form[atom] = form.get(atom, 0) - scale
        constant -= origin.constant
    if type(stride) is Const:
        form, constant = (
            {atom: scale * stride.value for atom, scale in form.items()},
            constant * stride.value,
        )
    else:
        form, constant = multiply(form, constant, *linear(stride))
    for atom, scale in form.items():
        terms[atom] = terms.get(atom, 0) + scale
        if terms[atom] == 0:
            del terms[atom]
    return constant
