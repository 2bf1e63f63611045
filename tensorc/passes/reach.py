"""What accesses touch while the loops outside stand still, and whether writes cover what is read."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tensorc.arith import Affine, Domain, bounds, can_prove
from tensorc.arith.affine import build, linear
from tensorc.ir.expr import (
    EQ,
    LT,
    Broadcast,
    Buffer,
    Const,
    Expr,
    FloorDiv,
    Load,
    Min,
    Mod,
    Ramp,
    Var,
    index,
    is_const,
)  # fmt: skip
from tensorc.ir.stmt import For
from tensorc.ir.walk import uses, variables, walk_expr
from tensorc.passes.common import conjuncts, requirement
from tensorc.passes.skips import Access, ends_of_loops, skips_nothing_read


@dataclass(frozen=True, slots=True)
class Span:
    """The places base + lo ... base + hi of one dimension; `base` has only variables from
    outside."""

    base: Affine
    lo: int
    hi: int


def touched(access: Access, depth: int) -> tuple[Span | None, ...]:
    """One span a dimension; None where it is not known."""
    inner = {binder.var for binder in access.path[depth:]}
    return tuple([_span(e, access.mask, inner, access.domain) for e in access.indices])


def _span(expr: Expr, mask: Expr | None, inner: set[Var], domain: Domain) -> Span | None:
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
    return Span(Affine(tuple(outer), 0), found.lo + min(more, 0), hi)


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


def hull(spans: list[Span | None]) -> Span | None:
    known = [span for span in spans if span is not None]
    if len(known) < len(spans) or any(span.base != known[0].base for span in known):
        return None
    return Span(known[0].base, min(span.lo for span in known), max(span.hi for span in known))


def inside(span: Span, extent: Expr) -> Span | None:
    """The part of a span that a dimension has; None where that may be all of it. What bounds are known of an index
    that is loaded, or made of one, may be far wider."""
    if type(extent) is not Const or span.lo > span.hi:
        return span
    if span.base.terms:
        return span if span.hi - span.lo + 1 < extent.value else None
    lo, hi = max(span.lo, 0), min(span.hi, extent.value - 1)
    return None if hi - lo + 1 >= extent.value or lo > hi else replace(span, lo=lo, hi=hi)


def covers_all(span: Span, extent: Expr) -> bool:
    return type(extent) is Const and span.lo <= 0 and span.hi >= extent.value - 1


def are_covered(
    read: Access, writes: list[Access], stores: list[Access], buffer: Buffer, depth: int
) -> bool:
    """Whether writes, each time before a read, write all that is read: one alone, or several side
    by side. `stores` are all of the buffer."""
    regions = [_regions(write, read, stores, buffer, depth) for write in writes]
    found = [pair for pair in regions if pair is not None]
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
    longer = _side_by_side(writes, read, depth)
    return bool(longer) and are_covered(read, longer, stores, buffer, depth)


def _side_by_side(writes: list[Access], read: Access, depth: int) -> list[Access]:
    """The writes, as longer vectors where loops or several of them put vectors side by side; empty where none do.
    Loops around the read stay as they are."""
    longer: list[Access] = []
    count = 0
    for old in [write for write in writes if write.mask is None]:
        write = _lengthened(old, _shared(old, read, depth))
        count += write is not old
        joined = _appended(longer[-1], write) if longer else None
        if joined is None:
            longer.append(write)
        else:
            longer[-1] = joined
            count += 1
    return longer if count else []


def _lengthened(write: Access, outside: int) -> Access:
    """The write, of all iterations of the innermost loops whose vectors follow one another or overlap, down to the
    `outside` outermost ones."""
    while len(write.path) > outside:
        loop = write.path[-1]
        using = [at for at, e in enumerate(write.indices) if uses(e, (loop.var,))]
        run = _run(write.indices[using[0]]) if len(using) == 1 else None
        if type(loop) is not For or run is None or any(uses(c, (loop.var,)) for c in write.conditions):
            break
        base, lanes = run
        terms, constant = linear(base)
        moving = [atom for atom in terms if uses(atom, (loop.var,))]
        reach = _reach(loop, moving[0], terms[moving[0]], lanes) if len(moving) == 1 else None
        if reach is None:
            break
        rest = {atom: scale for atom, scale in terms.items() if atom is not moving[0]}
        indices = list(write.indices)
        indices[using[0]] = Ramp(build(rest, constant), index(1), reach + lanes)
        write = replace(write, indices=tuple(indices), path=write.path[:-1])
    return write


def _reach(loop: For, atom: Expr, scale: int, lanes: int) -> int | None:
    """How far `atom * scale` moves from 0 while the loop runs, by steps of no more than `lanes`."""
    if not is_const(loop.start, 0) or type(loop.extent) is not Const or loop.extent.value < 1:
        return None
    most = None
    if type(atom) is Min and type(atom.b) is Const and scale == 1:  # the last vector starts earlier
        terms, constant = linear(atom.a)
        if len(terms) != 1 or constant:
            return None
        most = atom.b.value
        ((atom, scale),) = terms.items()
    if atom is not loop.var or not 0 < scale <= lanes:
        return None
    reach = scale * (loop.extent.value - 1)
    return reach if most is None else min(reach, most)


def _appended(first: Access, second: Access) -> Access | None:
    """Two writes as one, if the second begins in the first or where it ends."""
    is_beside = len(first.path) == len(second.path) and all(map(operator.is_, first.path, second.path))
    if not is_beside or first.conditions != second.conditions:
        return None
    differ = [at for at, (a, b) in enumerate(zip(first.indices, second.indices)) if a != b]
    runs = [_run(each.indices[differ[0]]) for each in (first, second)] if len(differ) == 1 else [None]
    if None in runs:
        return None
    (base, lanes), (after, more) = [run for run in runs if run is not None]
    moving, step = linear(after - base)
    if moving or not 0 <= step <= lanes:
        return None
    indices = list(first.indices)
    indices[differ[0]] = Ramp(base, index(1), max(lanes, step + more))
    return replace(first, indices=tuple(indices))


def _run(expr: Expr) -> tuple[Expr, int] | None:
    """The first of the places side by side that an index names, and how many."""
    if type(expr) is Ramp:
        return (expr.base, expr.lanes) if is_const(expr.stride, 1) else None
    return (expr, 1) if expr.dtype.lanes == 1 else None


def _regions(write: Access, read: Access, stores: list[Access], buffer: Buffer, depth: int):
    """What a write ahead of a read surely writes and what is read; None if the write may not have
    happened.

    Both within one iteration of the loops that they share, but for loops in whose first iteration
    the write happens.
    """
    common = shared = _shared(write, read, depth)
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
            and not (
                _cuts_tail(condition, inner)
                and skips_nothing_read(write, condition, stores, buffer)
            )
        ):
            return None
    ends = ends_of_loops(write.path[common:], write.indices)
    if ends is None or not _is_reached(write, read, shared):
        return None
    cuts = (*ends, *(conjuncts(write.mask) if write.mask is not None else ()))
    if any(not skips_nothing_read(write, cut, stores, buffer) for cut in cuts):
        return None
    if not _is_dense(write, common):
        return None
    return touched(write, common), touched(read, common)


def _shared(write: Access, read: Access, depth: int) -> int:
    """How many loops and lets both are in, counted from the outermost; those outside `depth` are taken to be."""
    common = depth
    while common < min(len(write.path), len(read.path)) and write.path[common] is read.path[common]:
        common += 1
    return common


def _is_reached(write: Access, read: Access, shared: int) -> bool:
    """Whether a write is made where a read is reached: no loop around it alone is empty, but for those
    that its indices use, whose ends are looked at for themselves."""
    used = {var for e in write.indices for var in variables(e)}
    domain = read.domain
    for loop in write.path[shared:]:
        if type(loop) is For:
            if loop.var not in used and not can_prove(loop.extent >= 1, domain):
                return False
            domain = domain.bind(loop.var, loop.start, loop.extent)
    return True


def _is_dense(access: Access, depth: int) -> bool:
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


def _joined(spans: list[Span | None]) -> Span | None:
    """The union of spans, from the first on as far as there is no gap."""
    known = sorted([span for span in spans if span is not None], key=lambda span: span.lo)
    if len(known) < len(spans) or any(span.base != known[0].base for span in known):
        return None
    hi = known[0].hi
    for span in known[1:]:
        if span.lo <= hi + 1:
            hi = max(hi, span.hi)
    return Span(known[0].base, known[0].lo, hi)


def _cuts_tail(condition: Expr, inner: set[Var]) -> bool:
    """Whether a condition just limits inner loops from above, as the guards of inexact splits
    do."""
    form = requirement(condition)
    if form is None:
        return False
    scales = [scale for atom, scale in form.terms if atom in inner]
    return bool(scales) and max(scales) < 0


def _span_covers(write: Span | None, read: Span | None, extent: Expr) -> bool:
    if write is None:
        return False
    if not write.base.terms and covers_all(write, extent):
        return True
    return (
        read is not None and write.base == read.base and write.lo <= read.lo and write.hi >= read.hi
    )
