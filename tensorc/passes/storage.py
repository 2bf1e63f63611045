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

from tensorc.arith import Affine, Domain, simplify
from tensorc.ir.expr import Buffer, Const, Expr, Load, index, logical_not
from tensorc.ir.function import Function
from tensorc.ir.stmt import Alloc, For, If, Let, Seq, Stmt, Store, seq
from tensorc.ir.walk import exprs, map_substmts, replace_body, substmts, walk_expr
from tensorc.passes.common import conjuncts, entry_domain
from tensorc.passes.flatten import ZERO, Flattener, Layout, padded, strides_of
from tensorc.passes.reach import are_covered, hull, inside, touched
from tensorc.passes.skips import Access

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
    return function.with_(body=Flattener(layouts).visit(body, 0), allocs=())


class _Record:
    """The accesses to internal buffers in order, and which of them lie in each statement."""

    def __init__(self, buffers: tuple[Buffer, ...]):
        self.accesses: dict[Buffer, list[Access]] = {buffer: [] for buffer in buffers}
        self.ranges: dict[int, dict[Buffer, tuple[int, int]]] = {}

    def collect(self, stmt: Stmt, path, conditions, domain: Domain) -> None:
        before = {buffer: len(found) for buffer, found in self.accesses.items()}
        for expr in exprs(stmt):
            for e in walk_expr(expr):
                if type(e) is Load and e.buffer in self.accesses:
                    self.accesses[e.buffer].append(
                        Access(e.indices, e.mask, False, path, conditions, domain)
                    )
        match stmt:
            case Store(buffer, indices, _, mask):
                if buffer in self.accesses:
                    self.accesses[buffer].append(
                        Access(indices, mask, True, path, conditions, domain)
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
        accesses: dict[Buffer, list[Access]],
        ranges: dict[int, dict[Buffer, tuple[int, int]]],
    ):
        self.accesses = accesses
        self.ranges = ranges
        self.layouts: dict[Buffer, tuple[Buffer, Layout]] = {}
        self.parts: dict[Buffer, int] = {}

    def place(self, stmt: Stmt, buffers: list[Buffer], depth: int, room: int) -> Stmt:
        """The statement with memory for each of the buffers in it or around it, as nothing else
        needs their values."""
        if not buffers:
            return stmt
        if type(stmt) is Seq:
            return self._sequence(stmt.stmts, buffers, depth, room)
        if type(stmt) is Alloc:
            room -= sum([max(0, _bytes(buffer)) for buffer in stmt.buffers])
            return replace_body(stmt, self.place(stmt.body, buffers, depth, room))
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

    def _found(self, buffer: Buffer, stmts: Sequence[Stmt]) -> list[Access]:
        """The accesses in statements that follow one another."""
        ranges = [self._uses(stmt)[buffer] for stmt in stmts if buffer in self._uses(stmt)]
        return self.accesses[buffer][ranges[0][0] : ranges[-1][1]]

    def _is_private(self, buffer: Buffer, stmts: Sequence[Stmt], depth: int) -> bool:
        """Whether statements, with the loops outside `depth` standing still, read only what they
        wrote themselves."""
        found = self._found(buffer, stmts)
        stores = [other for other in self.accesses[buffer] if other.is_store]
        for at, access in enumerate(found):
            if not access.is_store:
                writes = [other for other in found[:at] if other.is_store]
                if not are_covered(access, writes, stores, buffer, depth):
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
            strides = strides_of(new)
            if buffer.padding:
                strides = padded(shape, buffer.padding)
                size = shape[0] * strides[0]
                new = new.with_(shape=(simplify(size),), padding=())
            if buffer.scope in ("global", "local"):
                fits = 0 <= _bytes(new) <= room
                room -= _bytes(new) if fits else 0
                new = new.with_(scope="local" if fits else "global")
            self.layouts[new] = (buffer, Layout(new, origins, strides))
            result.append(new)
        return result, room

    def _needed(
        self, buffer: Buffer, stmts: Sequence[Stmt], depth: int
    ) -> tuple[tuple[Expr, ...], tuple[Affine, ...]]:
        """The shape that the accesses need, and what their indices start from."""
        regions = [touched(access, depth) for access in self._found(buffer, stmts)]
        shape, origins = [], []
        for axis, extent in enumerate(buffer.shape):
            span = hull([region[axis] for region in regions])
            if span is not None:
                span = inside(span, extent)
            if span is None:
                shape.append(extent)
                origins.append(ZERO)
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
    return Alloc(tuple(new), body) if new else body


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
