"""Whether parts of a nest may run in another order: no element that one writes is touched by the
other at the wrong time, or it gets the same value again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from tensorc.arith import Domain, bounds, can_prove, simplify
from tensorc.ir.empty import empty_condition, reduce_loops
from tensorc.ir.expr import Buffer, Expr, Load, Var, index, logical_not
from tensorc.ir.stmt import Block, For, If, Seq, Stmt
from tensorc.ir.walk import substitute, substmts, uses, walk_expr
from tensorc.schedule.legality import (
    Touch,
    are_reads_covered,
    fills_box,
    is_injective,
    loaded,
    splits_buffer,
    stored,
    touches,
)  # fmt: skip
from tensorc.schedule.locate import Place, block_places, refuse
from tensorc.schedule.regions import Span, buffers_read, gives_own_places, relax


def parts_of(loop: Place, count: int) -> tuple[tuple[Place, ...], tuple[Place, ...]]:
    """The places of the blocks in the first `count` statements of a loop's body, and of the rest."""
    body = loop.node.body
    found: tuple[list[Place], list[Place]] = ([], [])
    for number, stmt in enumerate(body.stmts):
        at = Place(loop.function, (*loop.path, body, stmt))
        found[number >= count].extend(block_places(at))
    return tuple(found[0]), tuple(found[1])


def conflict(loop: Place, first: Sequence[Place], second: Sequence[Place]) -> str | None:
    """Why blocks of `second`, which stand after those of `first` in a loop, must not run before the
    later iterations of `first`; None if they may.

    What must not be is that such two touch one element and one of them writes it, unless the
    value that is written has been there before.
    """
    touched = [
        {buffer for p in part for buffer in stored(p.node) | loaded(p.node)}
        for part in (first, second)
    ]
    written = {buffer for p in (*first, *second) for buffer in stored(p.node)}
    shared = [buffer for buffer in _shared(*touched) if buffer in written]
    early, late = touches(first, shared), touches(second, shared)
    for buffer in shared:
        a = [touch for touch in early if touch.buffer is buffer]
        b = [touch for touch in late if touch.buffer is buffer]
        if splits_buffer(loop, (*a, *b)) or _is_settled(loop, first, a, b):
            continue
        for x in a:
            for y in b:
                if (x.is_store or y.is_store) and _may_meet_later(loop, x, y):
                    return _told(x, y)
    return None


def meeting(first: Iterable[Block], second: Iterable[Block]) -> str | None:
    """A buffer that blocks of both kinds touch and some of them write, as words; None if there is
    none."""
    for a in first:
        for b in second:
            for buffer in _shared(stored(a) | loaded(a), stored(b) | loaded(b)):
                if buffer in stored(a) or buffer in stored(b):
                    return f"{a.name!r} and {b.name!r} share buffer {buffer.name!r}"
    return None


def _shared(a: Iterable[Buffer], b: Iterable[Buffer]) -> list[Buffer]:
    others = set(b)
    return sorted({buffer for buffer in a if buffer in others}, key=lambda buffer: buffer.name)


def _told(a: Touch, b: Touch) -> str:
    does = "writes" if b.is_store else "reads"
    did = "writes" if a.is_store else "reads"
    return (
        f"block {b.block.node.name!r} {does} elements of buffer {b.buffer.name!r} that block "
        f"{a.block.node.name!r} {did} in later iterations"
    )


def _is_settled(loop: Place, first: Sequence[Place], a: list[Touch], b: list[Touch]) -> bool:
    """Whether all that is read of a buffer was written in the same iteration, by blocks of `first`
    that write the same values when they run again."""
    if any(touch.is_store for touch in b):
        return False
    return _writes_again(loop, first, a[0].buffer, set()) and are_reads_covered((*a, *b))


def _writes_again(loop: Place, blocks: Sequence[Place], buffer: Buffer, seen: set[Buffer]) -> bool:
    """Whether the blocks that write a buffer in a loop write what they wrote before where a later iteration runs a
    point of theirs again: it has a place of its own, is not added to, and reads nothing that has changed."""
    if buffer in seen:
        return True
    seen.add(buffer)
    for p in blocks:
        if buffer in stored(p.node):
            moving = [it.binding for it in p.node.iters if it.kind != "spatial"]
            if any(uses(binding, (loop.node.var,)) for binding in moving) or not gives_own_places(p.node, buffer):
                return False
            if not all([_writes_again(loop, blocks, read, seen) for read in loaded(p.node)]):
                return False
    return True


def _may_meet_later(loop: Place, a: Touch, b: Touch) -> bool:
    """Whether `a`, in some iteration of the loop, may touch what `b` touches in an earlier one."""
    node: For = loop.node
    gap = Var("gap")
    inside = [stmt for stmt in a.block.path[len(loop.path) :] if type(stmt) is For]
    own = {each.var: each.var.copy() for each in (*inside, *a.inner)}  # loops around both are at other places, too
    after: dict[Var, Expr] = {node.var: node.var + (gap + 1), **own}
    domain = loop.domain().bind(node.var, node.start, node.extent)
    domain = domain.bind(gap, 0, simplify(node.start + node.extent - 1 - node.var, domain))
    for touch, values in ((a, after), (b, {})):
        entered = _entered(domain, touch.block.path[len(loop.path) :], values)
        if entered is None:
            return False
        domain = entered
    for mine, other in zip(a.indices, b.indices):
        between = bounds(substitute(mine, after) - other, domain)
        if (between.lo is not None and between.lo > 0) or (
            between.hi is not None and between.hi < 0
        ):
            return False
    return True


def _entered(domain: Domain, path: Sequence[Stmt], values) -> Domain | None:
    """What is known at the end of a path, with variables replaced; None if nothing runs there."""
    for depth, stmt in enumerate(path):
        match stmt:
            case For(var, start, extent):
                domain = domain.bind(values.get(var, var), substitute(start, values), substitute(extent, values))
            case If(condition, then) | Block(predicate=condition, body=then):
                if type(stmt) is If and path[depth + 1] is not then:
                    continue
                condition = substitute(condition, values)
                if can_prove(logical_not(condition), domain):
                    return None
                domain = domain.given(condition)
    return domain


def fills(values: Sequence[Expr], loops: Sequence[For], domain: Domain) -> bool:
    """Whether loops take expressions over all places of the box around their values."""
    if fills_box(values, {loop.var: loop.extent for loop in loops}):
        return True
    used = [loop for loop in loops if any(uses(value, (loop.var,)) for value in values)]
    ranges = {loop.var: Span(loop.start, loop.start + loop.extent - 1) for loop in used}
    count: Expr = index(1)
    box: Expr = index(1)
    for loop in used:
        count = count * loop.extent
    for value in values:
        span = relax(value, ranges, domain)
        if span is None:
            return False
        box = box * span.extent(domain)
    return simplify(count - box, domain) == index(0) and is_injective(values, used, domain)


def refuse_early_start(made: Place, reader: Block, buffer: Buffer, step: str) -> None:
    """Raise ScheduleError if a block may start a reduction over nothing from what is made of a buffer at a place: it
    does so before the outermost loop of the reduction, which must not be around that place, then."""
    empty = empty_condition(reader)
    if empty is None or reader.init is None:
        return
    looked_at = {e.buffer for e in walk_expr(reader.predicate) if type(e) is Load}
    reducing = reduce_loops(reader)
    outermost = next((loop for loop in made.loops if loop.var in reducing), None)
    if outermost is None or buffer not in looked_at.union(buffers_read(reader.init)):
        return
    if not can_prove(logical_not(empty), made.up_to(outermost).domain()):
        reason = f"{reader.name!r} starts from {buffer.name!r}, also where loop {outermost.var.name!r} has no iteration"
        refuse(made.function, f"{step}: {reason}", reader.name)


def in_branches(place: Place) -> tuple[Stmt, ...]:
    """The branches of `if` statements that a place lies in, outermost first."""
    return tuple([inner for stmt, inner in pairwise(place.path) if type(stmt) is If])


def common_sequence(a: Place, b: Place) -> int | None:
    """The position in both paths of the sequence in which two places part; None if they part
    elsewhere."""
    for depth, (x, y) in enumerate(zip(a.path, b.path)):
        if x is not y:
            return depth - 1 if type(a.path[depth - 1]) is Seq else None
    return None


def position(sequence: Stmt, stmt: Stmt) -> int:
    """Where a statement stands in a sequence."""
    return next(i for i, each in enumerate(substmts(sequence)) if each is stmt)
