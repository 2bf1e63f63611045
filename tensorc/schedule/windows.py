"""Copies of a window of a buffer: what a place touches of it, whether that is written, and the loops
that copy it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as replaced

from tensorc.arith import Domain, can_prove, simplify
from tensorc.ir.expr import Buffer, Expr, Load, Var, cast, index, is_const, logical_and
from tensorc.ir.function import Function
from tensorc.ir.stmt import Block, BlockIter, For, Stmt, Store, annotate
from tensorc.ir.walk import substitute, uses, variables, walk
from tensorc.schedule.legality import (
    CONCURRENT,
    Touch,
    are_reads_covered,
    covers,
    filled_box,
    overlap,
    touches,
)
from tensorc.schedule.locate import Place, block_places, find_block, find_loop, fresh, loop_names, refuse
from tensorc.schedule.regions import Span, accesses, clamp, loads, unite, writers


def name_of(place: Place) -> str:
    """The name of the loop or block at a place."""
    return place.node.var.name if type(place.node) is For else place.node.name


def place_of(function: Function, place: Place) -> Place:
    """The place of the loop or block of the same name in a function that was changed there."""
    find = find_loop if type(place.node) is For else find_block
    return find(function, name_of(place))


def needed(at: Place, old: Buffer, domain: Domain) -> tuple[Span, ...]:
    """What the place touches of a buffer, over the loops around it."""
    found = accesses(at.node, old, domain)
    spans = []
    for axis, extent in enumerate(old.shape):
        span = unite([access.span(access.indices[axis]) for access in found], domain)
        spans.append(clamp(None, extent, domain) if span is None else span)
    return tuple(spans)


def trimmed(span: Span, extent: Expr) -> Span:
    """A span of constants without what lies outside the buffer."""
    lo, hi = span.lo, span.hi
    if is_const(lo) and lo.value < 0:
        lo = index(0)
    if is_const(hi) and is_const(extent) and hi.value >= extent.value:
        hi = extent - 1
    return Span(lo, hi)


def fills_window(at: Place, old: Buffer, spans: Sequence[Span], domain: Domain) -> bool:
    """Whether what lies at the place writes the whole window, and reads only what it has written."""
    depth = len(at.path) - 1
    around = {loop.var for loop in at.loops}
    found = [touch for touch in touches(block_places(at)) if touch.buffer is old]
    for touch in found:
        for it in touch.block.node.iters:
            if it.kind != "spatial" and uses(it.binding, around):
                return False
    if len(found) < len(accesses(at.node, old, domain)) or not are_reads_covered(found):
        return False
    boxes = [filled_box(touch, depth - 1) for touch in found if _is_sure(touch)]
    return any(
        box is not None
        and all(
            can_prove(each.lo <= larger_lo, domain) and can_prove(each.hi >= smaller_hi, domain)
            for each, (larger_lo, smaller_hi) in zip(box, _within(spans, old, domain))
        )
        for box in boxes
    )


def _is_sure(touch: Touch) -> bool:
    """Whether a store reaches each element of the buffer that its loops lead to: what a predicate
    skips must lie outside the buffer."""
    block, shape = touch.block.node, touch.buffer.shape
    extents: dict[Expr, Expr] = {it.var: it.extent for it in block.iters}
    return touch.is_store and (
        is_const(block.predicate, True)
        or all(
            tuple([extents.get(each) for each in stmt.indices]) == shape
            for stmt in walk(block)
            if type(stmt) is Store and stmt.buffer is touch.buffer
        )
    )


def is_defined(at: Place, old: Buffer, spans: Sequence[Span], domain: Domain) -> bool:
    """Whether each element of a window was written before the place runs."""
    function = at.function
    if old in function.params and old not in function.outputs:
        return True
    ends = [tuple([span.lo for span in spans]), tuple([span.hi for span in spans])]
    reads = [Touch(at, domain, frozenset(), old, indices, False) for indices in ends]
    root = Place(function, (function.body,))
    return any(
        write.buffer is old and _is_sure(write) and all(covers(write, read) for read in reads)
        for write in touches(block_places(root))
    )


def _within(spans: Sequence[Span], old: Buffer, domain: Domain) -> list[tuple[Expr, Expr]]:
    found = [clamp(span, extent, domain) for span, extent in zip(spans, old.shape)]
    return [(span.lo, span.hi) for span in found]


def window_nest(
    function: Function,
    name: str,
    source: Buffer,
    target: Buffer,
    spans: Sequence[Span],
    domain: Domain,
    names: Sequence[str] = (),
) -> Stmt:
    """Loops around a block that copies a window from one buffer to the other, whose elements may be
    wider; `names` are those of its iterators, if not ax0, ax1, ..."""
    names = names or [f"ax{axis}" for axis in range(len(spans))]
    taken = loop_names(function)
    loops: list[tuple[Var, Expr, bool]] = []
    iters: list[BlockIter] = []
    conditions: list[Expr] = []
    inner = domain
    for axis, (span, whole) in enumerate(zip(spans, source.shape)):
        extent, binding, var = span.extent(domain), span.lo, None
        if not is_const(extent, 1):
            var = Var(fresh(f"{name}.{names[axis]}", taken))
            taken.add(var.name)
            inner = inner.bind(var, 0, extent)
            binding = simplify(span.lo + var, inner)
        guards = []
        if not can_prove(span.lo >= 0, domain):
            guards.append(simplify(binding >= 0, inner))
        if not can_prove(span.hi < whole, domain):
            guards.append(simplify(binding < whole, inner))
        if var is not None:
            loops.append((var, extent, bool(guards)))
        conditions += guards
        iters.append(BlockIter(Var(names[axis]), whole, "spatial", binding))
    indices = tuple([it.var for it in iters])
    body = Store(target, indices, cast(Load(source, indices), target.dtype))
    nest: Stmt = Block(name, tuple(iters), logical_and(*conditions), None, body)
    for var, extent, is_masked in reversed(loops):
        notes = annotate((), "tail", "mask") if is_masked else ()
        nest = For(var, index(0), extent, "serial", nest, notes)
    return nest


def check_parallel(at: Place, changed: Function, step: str) -> None:
    """Refuse where iterations of a parallel or thread loop around would now meet."""
    for loop in at.loops:
        if loop.kind in CONCURRENT:
            spread = find_loop(changed, loop.var.name)
            problem = overlap(spread, block_places(spread))
            if problem is not None:
                refuse(at.function, f"{step}: in {loop.kind} {loop.var.name!r}, {problem}", name_of(at))


def beside(place: Place, old: Buffer, is_write: bool) -> Place | None:
    """The outermost loop that holds a block alone, or the block, if next to it a copy may stand of what
    its instances touch of a buffer; else None."""
    node = place.node
    if any(loop.kind == "vectorized" for loop in place.loops):
        return None
    others = [other for other in writers(place.function, old) if other is not node]
    is_update = node.init is None and loads(node, old) > 0
    if is_write and (others or is_update):
        return None
    reducing = [it.extent for it in node.iters if it.kind == "reduce"]
    if node.init is not None and not all(is_const(e) and e.value >= 1 for e in reducing):
        return None  # the init may run where no instance does
    inner = len(place.path) - 1
    while inner > 0 and type(place.path[inner - 1]) is For:
        inner -= 1
    return Place(place.function, place.path[: inner + 1])


def same_instances(
    place: Place, near: Place, name: str, iters: Sequence[BlockIter], body: Stmt
) -> Stmt | None:
    """A block of these iterators in copies of the loops around a block, which runs when that does; None
    where the loops that it leaves out are needed to tell."""
    node = place.node
    loops = place.loops[len(near.loops) :]
    needed = [it.binding for it in iters] + [node.predicate]
    kept: list[For] = []
    for loop in reversed(loops):
        if any(uses(each, (loop.var,)) for each in needed):
            kept.append(loop)
            needed += [loop.start, loop.extent]
        elif not can_prove(loop.extent >= 1, place.up_to(loop).domain()):
            return None
    reducing = {v for it in node.iters if it.kind == "reduce" for v in variables(it.binding)}
    if uses(node.predicate, reducing):
        return None
    taken = loop_names(place.function)
    values: dict[Var, Var] = {}
    for loop in kept:
        tail = loop.var.name.removeprefix(f"{node.name}.")
        var = loop.var.copy(fresh(f"{name}.{tail}", taken))
        taken.add(var.name)
        values[loop.var] = var
    bound = [replaced(it, binding=substitute(it.binding, values)) for it in iters]
    nest: Stmt = Block(name, tuple(bound), substitute(node.predicate, values), None, body)
    for loop in kept:
        start, extent = substitute(loop.start, values), substitute(loop.extent, values)
        nest = For(values[loop.var], start, extent, "serial", nest)
    return nest
