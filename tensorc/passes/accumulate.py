"""Elements that a loop updates again and again are kept in local accumulators while it runs.

    for k in 0..n { for i in 0..8 unrolled { C[i] = C[i] + A[i, k] } }
    ->  alloc acc[8]   for i { acc[i] = C[i] }   for k { for i { acc[i] = acc[i] + A[i, k] } }
        for i { C[i] = acc[i] }

The loop is the outermost one that leaves the indices unchanged; unrolled loops inside it that the
indices depend on index the accumulators. `C[i] = C[i] + reduce_add(v)` keeps one accumulator a lane
and reduces them after the loop. What initialises the elements just before the loop, or in its first
iteration, initialises the accumulators instead.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field

from tensorc.arith import Domain, affine, can_prove, simplify
from tensorc.arith.bounds import at_lane
from tensorc.ir.expr import (
    EQ,
    Add,
    Binary,
    Broadcast,
    Buffer,
    Call,
    Const,
    Expr,
    FloorDiv,
    Load,
    Mod,
    Ramp,
    Var,
    broadcast,
    index,
    is_const,
    logical_not,
    maximum,
    sub,
)  # fmt: skip
from tensorc.ir.function import Function
from tensorc.ir.stmt import Alloc, For, If, Let, Seq, Stmt, Store, seq
from tensorc.ir.walk import (
    all_exprs,
    exprs,
    map_exprs,
    map_substmts,
    rewrite,
    substitute,
    substitute_stmt,
    substmts,
    variables,
    walk,
    walk_expr,
)  # fmt: skip
from tensorc.passes.common import (
    NOTHING,
    Lets,
    as_update,
    conjunction,
    conjuncts,
    depends_on,
    entry_domain,
    is_nothing,
    loads_from,
    make_for,
    make_if,
)
from tensorc.passes.vectorize import REDUCTIONS, identity, is_inside

MOST_BYTES = 4096  # of accumulators around one loop: 64 vectors of 64 bytes


def promote_accumulators(function: Function) -> Function:
    """The function with local accumulators for what its loops update in place."""
    taken = {buffer.name for buffer in (*function.params, *function.allocs)}
    return function.with_(body=_Promoter(taken).visit(function.body, entry_domain(function)))


@dataclass(frozen=True, slots=True)
class _Site:
    """A store inside a loop: the loops and conditions between them. An update computes the new value
    from the old one."""

    store: Store
    loops: tuple[For, ...]
    conditions: tuple[Expr, ...]
    is_update: bool


@dataclass(slots=True)
class _Group:
    """One element a setting of `loops` that is kept in `local` while `loop` runs.

    `guards` are the conditions under which it is touched at all. `start` is what it begins with
    where the conditions `fresh` hold, else what memory holds; `is_first` says that this was written
    ahead of the loop. `reducer` is set where each lane accumulates for itself.
    """

    loop: For
    buffer: Buffer
    indices: tuple[Expr, ...]
    mask: Expr | None
    loops: tuple[For, ...]
    guards: tuple[Expr, ...]
    local: Buffer
    place: tuple[Expr, ...]
    reducer: type[Binary] | None = None
    start: Expr | None = None
    fresh: tuple[Expr, ...] = ()
    is_first: bool = False
    dropped: list[Store] = field(default_factory=list)

    def nest(self, body: Stmt, guarded: bool = True) -> Stmt:
        """A statement done for every element."""
        fresh = {loop.var: loop.var.copy() for loop in self.loops}
        if guarded:
            body = make_if(conjunction(self.guards), body)
        body = substitute_stmt(body, fresh)
        for loop in reversed(self.loops):
            body = make_for(fresh[loop.var], loop.start, loop.extent, "unrolled", body)
        return body

    def before(self) -> Stmt:
        if self.reducer is None:
            load = self.nest(
                Store(self.local, self.place, Load(self.buffer, self.indices, self.mask))
            )
            return self._start_or(load, self.local, self.place)
        lanes = self.place[-1].dtype.lanes
        nothing = broadcast(identity(self.reducer, self.local.dtype), lanes)
        zero = self.nest(Store(self.local, self.place, nothing), guarded=False)
        return seq(zero, self._start_or(NOTHING, self.buffer, self.indices))

    def _start_or(self, otherwise: Stmt, buffer: Buffer, place: tuple[Expr, ...]) -> Stmt:
        """The start stored there, where there is one and it is due."""
        if self.start is None:
            return otherwise
        start = self.nest(Store(buffer, place, self.start))
        return make_if(conjunction(self.fresh), start, otherwise)

    def after(self) -> Stmt:
        value: Expr = Load(self.local, self.place)
        if self.reducer is not None:
            total = Call(REDUCTIONS[self.reducer], (value,), value.dtype.scalar)
            value = self.reducer(Load(self.buffer, self.indices), total)
        return self.nest(Store(self.buffer, self.indices, value, self.mask))

    def inside(self, store: Store) -> Stmt:
        """What a store to the element becomes."""
        match as_update(store):
            case _, Call(args=(term,)) if self.reducer is not None:
                return Store(self.local, self.place, self.reducer(Load(self.local, self.place), term))
        return Store(self.local, self.place, rewrite(store.value, self.load))

    def load(self, expr: Expr) -> Expr | None:
        """What a load of the element becomes; None for other expressions."""
        if type(expr) is Load and expr.buffer is self.buffer:
            return Load(self.local, self.place)
        return None


class _Promoter:
    def __init__(self, taken: set[str]):
        self.taken = taken
        self.locals: set[Buffer] = set()

    def visit(self, stmt: Stmt, domain: Domain) -> Stmt:
        match stmt:
            case Seq(stmts):
                return self._sequence(stmts, domain)
            case For():
                return self._sequence((stmt,), domain)
            case If(condition, then, orelse):
                then = self.visit(then, domain.given(condition))
                return make_if(
                    condition, then, None if orelse is None else self.visit(orelse, domain)
                )
            case _:
                return map_substmts(stmt, lambda s: self.visit(s, domain))

    def _sequence(self, stmts: tuple[Stmt, ...], domain: Domain) -> Stmt:
        done: list[Stmt] = []
        for stmt in stmts:
            if type(stmt) is not For:
                done.append(self.visit(stmt, domain))
                continue
            groups = self._groups(stmt, domain)
            for group in groups:
                _take_start_before(group, done)
            done.append(self._loop(stmt, groups, domain))
        return seq(*[s for s in done if not is_nothing(s)])

    def _loop(self, loop: For, groups: list[_Group], domain: Domain) -> Stmt:
        inside = {group.buffer: group for group in groups}
        body = _moved(loop.body, inside) if groups else loop.body
        body = self.visit(body, domain.bind(loop.var, loop.start, loop.extent))
        result: Stmt = make_for(
            loop.var, loop.start, loop.extent, loop.kind, body, loop.annotations
        )
        if not groups:
            return result
        result = seq(*[g.before() for g in groups], result, *[g.after() for g in groups])
        if not any(g.is_first for g in groups):  # with no iteration, there is nothing to keep
            result = make_if(simplify(loop.extent >= 1, domain), result)
        for group in reversed(groups):
            result = Alloc((group.local,), result)
        return result

    def _groups(self, loop: For, domain: Domain) -> list[_Group]:
        if loop.kind not in ("serial", "unrolled"):
            return []
        sites: dict[Buffer, list[_Site]] = {}
        _collect(loop.body, (), (), {}, sites)
        groups, room = [], MOST_BYTES
        for buffer, found in sites.items():
            if buffer in self.locals or not any(site.is_update for site in found):
                continue
            group = self._group(loop, buffer, found, domain)
            if group is None or _bytes(group.local) > room:
                continue
            room -= _bytes(group.local)
            self.locals.add(group.local)
            self.taken.add(group.local.name)
            groups.append(group)
        return groups

    def _group(
        self, loop: For, buffer: Buffer, sites: list[_Site], domain: Domain
    ) -> _Group | None:
        site = next(site for site in sites if site.is_update)
        store = site.store
        used = {
            var
            for e in (*store.indices, *([] if store.mask is None else [store.mask]))
            for var in variables(e)
        }
        inner = [each for each in site.loops if each.var in used]
        if not _is_steady(loop, site, inner, used) or not _is_one_element(loop, store, sites):
            return None
        guards = _guards(loop, sites, inner)
        reached, runs = _reached(site, domain.bind(loop.var, loop.start, loop.extent))
        is_vague = guards is None or (guards and _is_read_elsewhere(loop.body, buffer))
        if (is_vague or not runs) and not _always_inside(buffer, store, reached):
            return None
        guards = () if guards is None or is_vague else guards
        lanes = max([e.dtype.lanes for e in store.indices], default=1)
        reducer = None
        match as_update(store):
            case op, Call(name, (term,)) if lanes == 1 and name == REDUCTIONS[op]:
                if len(sites) > 1 or _is_read_elsewhere(loop.body, buffer):
                    return None
                reducer, lanes = op, term.dtype.lanes
        if not _is_injective(store.indices, inner):
            return None
        local, place = self._local(buffer, inner, lanes)
        group = _Group(
            loop, buffer, store.indices, store.mask, tuple(inner), guards, local, place, reducer
        )
        _take_start_inside(group, sites, site, domain.bind(loop.var, loop.start, loop.extent))
        plain = [site for site in sites if not site.is_update]
        return group if len(plain) == len(group.dropped) else None  # memory may hold nothing yet

    def _local(
        self, buffer: Buffer, inner: list[For], lanes: int
    ) -> tuple[Buffer, tuple[Expr, ...]]:
        shape: list[Expr | int] = [each.extent for each in inner]
        place: list[Expr] = [sub(each.var, each.start) for each in inner]
        if lanes > 1:
            shape.append(lanes)
            place.append(Ramp(index(0), index(1), lanes))
        name, number = f"{buffer.name}.acc", 0
        while name in self.taken:
            number += 1
            name = f"{buffer.name}.acc{number}"
        local = Buffer(name, shape or [1], buffer.dtype, "local", alignment=64)
        return local, tuple(place) or (index(0),)


def _collect(
    stmt: Stmt,
    loops: tuple[For, ...],
    conditions: tuple[Expr, ...],
    lets: Lets,
    sites: dict[Buffer, list[_Site]],
):
    """The stores in a statement, by buffer; `lets` are the variables around it."""
    match stmt:
        case Store(buffer, _, value):
            is_update = as_update(stmt) is not None or depends_on(value, buffer, lets)
            sites.setdefault(buffer, []).append(_Site(stmt, loops, conditions, is_update))
        case For():
            _collect(stmt.body, (*loops, stmt), conditions, lets, sites)
        case If(condition, then, orelse):
            _collect(then, loops, (*conditions, *conjuncts(condition)), lets, sites)
            if orelse is not None:
                _collect(orelse, loops, (*conditions, logical_not(condition)), lets, sites)
        case Let(var, value, body):
            _collect(body, loops, conditions, {**lets, var: value}, sites)
        case _:
            for inner in substmts(stmt):
                _collect(inner, loops, conditions, lets, sites)


def _is_steady(loop: For, site: _Site, inner: list[For], used: set[Var]) -> bool:
    """Whether the element stays the same while the loop runs, apart from the unrolled loops in
    it."""
    if loop.var in used or any(each.kind in ("parallel", "thread") for each in site.loops):
        return False
    if any(
        each.kind != "unrolled" or type(each.extent) is not Const or type(each.start) is not Const
        for each in inner
    ):
        return False
    hidden = {s.var for s in walk(loop.body) if type(s) is Let}
    places = (*site.store.indices, *([] if site.store.mask is None else [site.store.mask]))
    return used.isdisjoint(hidden) and not any(
        type(e) is Load for place in places for e in walk_expr(place)
    )


def _is_one_element(loop: For, store: Store, sites: list[_Site]) -> bool:
    """Whether nothing in the loop touches the buffer but at the place of this store."""
    if any(s.store.indices != store.indices or s.store.mask != store.mask for s in sites):
        return False
    return all(
        e.indices == store.indices and e.mask == store.mask
        for e in all_exprs(loop.body)
        if type(e) is Load and e.buffer is store.buffer
    )


def _guards(loop: For, sites: list[_Site], inner: list[For]) -> tuple[Expr, ...] | None:
    """The conditions under which the loop touches the element, however often; None if they change
    as it runs."""
    own = {each.var for each in inner}
    hidden = [s.var for s in walk(loop.body) if type(s) is Let]
    for site in sites:
        changing = {loop.var, *[each.var for each in site.loops], *hidden} - own
        if not all(_is_steady_condition(c, changing) for c in site.conditions):
            continue
        if all(c in other.conditions for other in sites for c in site.conditions):
            return site.conditions
    return None


def _is_steady_condition(condition: Expr, changing: set[Var]) -> bool:
    return all(type(e) is not Load and e not in changing for e in walk_expr(condition))


def _is_read_elsewhere(stmt: Stmt, buffer: Buffer) -> bool:
    """Whether anything but the stores to a buffer reads it."""
    return any(
        loads_from(e, buffer)
        for s in walk(stmt)
        if not (type(s) is Store and s.buffer is buffer)
        for e in exprs(s)
    )


def _reached(site: _Site, domain: Domain) -> tuple[Domain, bool]:
    """What is known in the loops of a site, and whether all of them surely run: of one that may not,
    it is not taken as known that it does."""
    runs = True
    for each in site.loops:
        extent = each.extent
        if not is_const(extent) and not can_prove(extent >= 1, domain):
            extent, runs = maximum(extent, 1), False
        domain = domain.bind(each.var, each.start, extent)
    return domain, runs


def _always_inside(buffer: Buffer, store: Store, domain: Domain) -> bool:
    """Whether the element exists whether or not the conditions around it hold."""
    if store.mask is not None or any(e.dtype.lanes > 1 for e in store.indices):
        return False
    return is_inside(buffer, store.indices, domain)


def _is_injective(indices: tuple[Expr, ...], inner: list[For]) -> bool:
    """Whether different settings of the unrolled loops, and different lanes, name different
    elements."""
    known: set[Var | None] = set()
    places: list[Expr] = []  # whose lanes are no ramp, such as those of a tile over several dimensions
    wanted: set[Var | None] = {each.var for each in inner}
    extents = {each.var: each.extent.value for each in inner if type(each.extent) is Const}
    for expr in _rejoined(indices, wanted):
        base = expr
        terms: list[tuple[int, int, Var | None]] = []
        if type(expr) is Ramp:
            base = expr.base
            if type(expr.stride) is not Const:
                return False
            terms.append((abs(expr.stride.value), expr.lanes, None))
            wanted.add(None)
        elif expr.dtype.lanes > 1:
            wanted.add(None)
            places.append(expr)
            continue
        for atom, scale in affine(base).terms:
            if type(atom) is Var and atom in extents:
                terms.append((abs(scale), extents[atom], atom))
            elif not variables(atom).isdisjoint(extents):
                break
        else:
            known |= _told_apart(terms)
    if places and _are_different_lanes(places):
        known.add(None)
    return wanted <= known


def _rejoined(indices: tuple[Expr, ...], moving: Collection[Var | None]) -> list[Expr]:
    """Indices that differ only where these do: beside an index x // n, another one that has x % n has x instead, as
    places of one x // n are as far apart by the remainder as by x itself. What does not change with the variables
    `moving` may be added to x // n."""
    found = list(indices)
    for expr in indices:
        pair = _quotient(expr, moving)
        if pair is None:
            continue
        others = [each for each in found if each is not expr]
        whole = [_without_remainder(each, *pair) for each in others]
        if any(new is not old for new, old in zip(whole, others)):
            found = whole
    return found


def _quotient(expr: Expr, moving: Collection[Var | None]) -> tuple[Expr, Expr] | None:
    """The operands of the `//` that an index is, but for what stands still."""
    while type(expr) is Add and expr.dtype.lanes > 1:
        a, b = expr.a, expr.b
        if type(a) is not Broadcast or not variables(a).isdisjoint(moving):
            a, b = b, a
        if type(a) is not Broadcast or not variables(a).isdisjoint(moving):
            return None
        expr = b
    if expr.dtype.lanes == 1:
        atoms = [atom for atom, _ in affine(expr).terms if not variables(atom).isdisjoint(moving)]
        expr = atoms[0] if len(atoms) == 1 else expr
    if type(expr) is not FloorDiv or not variables(expr.b).isdisjoint(moving):
        return None
    return expr.a, expr.b


def _without_remainder(expr: Expr, divided: Expr, by: Expr) -> Expr:
    """The expression with x in the place of x % n; the same object if there is none."""
    new = rewrite(expr, lambda e: divided if type(e) is Mod and e.a == divided and e.b == by else None)
    return expr if new is expr else simplify(new)


def _are_different_lanes(places: list[Expr]) -> bool:
    """Whether vectors of constants differ, taken together, in any two lanes."""
    lanes = range(places[0].dtype.lanes)
    found = [tuple([simplify(at_lane(expr, index(lane))) for expr in places]) for lane in lanes]
    return len(set(found)) == len(found) and all([type(e) is Const for place in found for e in place])


def _told_apart(terms: list[tuple[int, int, Var | None]]) -> set[Var | None]:
    """The digits of a number in a mixed radix: all of them, or none if they overlap."""
    reach = 0
    for scale, extent, _ in sorted(terms, key=lambda term: term[0]):
        if scale <= reach:
            return set()
        reach += scale * (extent - 1)
    return {digit for _, _, digit in terms}


def _bytes(buffer: Buffer) -> int:
    return math.prod([e.value for e in buffer.shape]) * buffer.dtype.bytes


def _moved(stmt: Stmt, groups: dict[Buffer, _Group]) -> Stmt:
    """The body of the loop, working on the accumulators."""

    def load(expr: Expr) -> Expr | None:
        if type(expr) is Load and expr.buffer in groups:
            return groups[expr.buffer].load(expr)
        return None

    def visit(s: Stmt) -> Stmt:
        if type(s) is Store and s.buffer in groups:
            group = groups[s.buffer]
            if any(s is d for d in group.dropped):
                return NOTHING
            s = group.inside(s)
        if type(s) is If:
            return make_if(
                rewrite(s.condition, load),
                visit(s.then),
                None if s.orelse is None else visit(s.orelse),
            )
        return map_exprs(map_substmts(s, visit), lambda e: rewrite(e, load))

    return visit(stmt)


def _take_start_inside(group: _Group, sites: list[_Site], update: _Site, domain: Domain) -> None:
    """`if k == 0 { C[i] = 0 }` ahead of the update: accumulators start with 0."""
    site = sites[0]
    value = site.store.value
    if site is update or site.loops != update.loops or variables(value) or _loads(value):
        return
    own = {each.var for each in group.loops}
    chain = [each for each in (group.loop, *site.loops) if each.var not in own]
    if any(not can_prove(each.extent >= 1, domain) for each in chain[1:]):
        return
    firsts = [EQ(each.var, each.start) for each in chain]
    starts = {each.var: each.start for each in chain}
    rest = [c for c in site.conditions if c not in firsts and c not in group.guards]
    rest = [simplify(substitute(c, starts), domain) for c in rest]
    rest = [c for c in rest if not is_const(c, True)]
    inside = {each.var for each in (group.loop, *site.loops)}
    if any(_loads(c) or not variables(c).isdisjoint(inside) for c in rest):
        return
    if all(first in site.conditions for first in firsts):
        group.start, group.fresh = value, tuple(rest)
        group.dropped.append(site.store)


def _take_start_before(group: _Group, done: list[Stmt]) -> None:
    """`for i { C[i] = 0 }` just before the loop: accumulators start with 0, and the statement
    goes."""
    if group.start is not None:
        return
    for at in range(len(done) - 1, -1, -1):
        if not _touches(done[at], group.buffer):
            continue
        start = _as_start(done[at], group)
        if start is not None:
            group.start, group.fresh = start
            group.is_first = True
            del done[at]
        return


def _as_start(stmt: Stmt, group: _Group) -> tuple[Expr, tuple[Expr, ...]] | None:
    """The value and the conditions of a nest that writes just the elements of a group."""
    names: dict[Var, Expr] = {}
    conditions: list[Expr] = []
    while type(stmt) is not Store:
        if (
            type(stmt) is For
            and len(names) < len(group.loops)
            and stmt.kind in ("serial", "unrolled")
        ):
            like = group.loops[len(names)]
            if stmt.start != like.start or stmt.extent != like.extent:
                return None
            names[stmt.var] = like.var
            stmt = stmt.body
        elif type(stmt) is If and stmt.orelse is None:
            conditions += conjuncts(stmt.condition)
            stmt = stmt.then
        else:
            return None
    store, value = stmt, stmt.value
    if (
        store.buffer is not group.buffer
        or len(names) < len(group.loops)
        or variables(value)
        or _loads(value)
    ):
        return None
    mask = None if store.mask is None else substitute(store.mask, names)
    if tuple([substitute(e, names) for e in store.indices]) != group.indices or mask != group.mask:
        return None
    conditions = [substitute(c, names) for c in conditions]
    own = {each.var for each in group.loops}
    fresh = tuple([c for c in conditions if c not in group.guards])
    if any(g not in conditions for g in group.guards) or any(
        _loads(c) or not variables(c).isdisjoint(own) for c in fresh
    ):
        return None
    return value, fresh


def _touches(stmt: Stmt, buffer: Buffer) -> bool:
    return any(
        (type(s) is Store and s.buffer is buffer) or any(loads_from(e, buffer) for e in exprs(s))
        for s in walk(stmt)
    )


def _loads(expr: Expr) -> bool:
    """Whether an expression reads memory."""
    return any(type(e) is Load for e in walk_expr(expr))
