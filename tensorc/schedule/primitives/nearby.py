"""Copies of what a block reads or has written, next to the loops around it in which nothing else is in the
way."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensorc.errors import ScheduleError
from tensorc.ir.expr import Buffer, Expr, Load, Var
from tensorc.ir.function import Function
from tensorc.ir.stmt import Block, BlockIter, For, If, Seq, Stmt, Store, seq
from tensorc.ir.walk import all_exprs, replace_buffers, substitute_stmt, uses
from tensorc.schedule.locate import (
    Place,
    blocks_below,
    insert_after,
    insert_before,
    replace,
    version_of,
)
from tensorc.schedule.regions import buffers_written, loads, stores_always
from tensorc.schedule.windows import (
    beside,
    check_parallel,
    fills_window,
    is_defined,
    needed,
    place_of,
    same_instances,
    trimmed,
    window_nest,
)


def copy_read(
    place: Place,
    changed: Function,
    source: Buffer,
    copy: Buffer,
    name: str,
    names: Sequence[str],
    refusal: ScheduleError,
) -> Function:
    """The function, changed so that a block reads `copy`, with a copy of what it reads just before
    the outermost statement around it in which nothing writes the buffer."""
    at = _outermost_without(place, lambda block: source in buffers_written(block))
    inside = place_of(changed, at)
    domain = at.domain()
    spans = tuple([trimmed(span, e) for span, e in zip(needed(inside, copy, domain), copy.shape)])
    if _is_vectorized_around(at) or not is_defined(at, source, spans, domain):
        raise refusal
    nest = window_nest(changed, name, source, copy, spans, domain, names)
    changed = insert_before(inside, nest)
    check_parallel(at, changed, str(refusal).partition(":")[0])
    return changed


def copy_written(
    place: Place, target: Buffer, copy: Buffer, name: str, names: Sequence[str], step: str
) -> Function | None:
    """The function in which a block writes to `copy`, of which what it has written is copied just
    after the outermost statement around it in which no other block reads the buffer; None where that
    may be less than a box."""
    blocks = blocks_below(version_of(place).node)
    later = blocks[next(i for i, block in enumerate(blocks) if block is place.node) + 1 :]
    at = _outermost_without(
        place, lambda block: loads(block, target) > 0 and target not in buffers_written(block)
    )
    domain = at.domain()
    spans = tuple([trimmed(span, e) for span, e in zip(needed(at, target, domain), copy.shape)])
    is_alone = not any(target in buffers_written(block) for block in later)
    if not is_alone or _is_vectorized_around(at) or not fills_window(at, target, spans, domain):
        return None
    changed = replace(at, replace_buffers(at.node, {target: copy}))
    changed = changed.with_(allocs=(*changed.allocs, copy))
    nest = window_nest(changed, name, copy, target, spans, domain, names)
    changed = insert_after(place_of(changed, at), nest)
    check_parallel(at, changed, step)
    return changed


def copy_instances(
    place: Place, target: Buffer, copy: Buffer, name: str, step: str
) -> Function | None:
    """The function in which a block writes to `copy`, and each of its instances copies what it has
    written just after the loops that hold the block alone; None where that is not known."""
    node: Block = place.node
    near = beside(place, target, is_write=True)
    iters = [it for it in node.iters if it.kind != "reduce"]
    new = {it.var: it.var.copy() for it in iters}
    body = _copied_stores(node.body, target, copy)
    if near is None or body is None or (node.init is not None and not stores_always(node, target)):
        return None
    reduced = [it.var for it in node.iters if it.kind == "reduce"]
    if loads(body, target) or any(uses(e, reduced) for e in all_exprs(body)):
        return None
    bound = [BlockIter(new[it.var], it.extent, "spatial", it.binding) for it in iters]
    nest = same_instances(place, near, name, bound, substitute_stmt(body, new))
    if nest is None:
        return None
    changed = replace(place, replace_buffers(node, {target: copy}))
    changed = changed.with_(allocs=(*changed.allocs, copy))
    changed = insert_after(place_of(changed, near), nest)
    check_parallel(near, changed, step)
    return changed


def _copied_stores(stmt: Stmt, target: Buffer, copy: Buffer) -> Stmt | None:
    """Stores to a buffer, under conditions, with what `copy` holds stored instead, and none to others; None for other
    statements."""
    match stmt:
        case Store(buffer) if buffer is not target:
            return seq()
        case Store(_, indices, _, mask) if mask is None:
            return Store(target, indices, Load(copy, indices))
        case If(_, then, None):
            inner = _copied_stores(then, target, copy)
            return None if inner is None else If(stmt.condition, inner)
        case Block(_, iters, predicate, None, body):
            values: dict[Var, Expr] = {it.var: it.binding for it in iters}
            inner = _copied_stores(substitute_stmt(body, values), target, copy)
            return None if inner is None else If(predicate, inner)
        case Seq(stmts):
            parts = [_copied_stores(part, target, copy) for part in stmts]
            known = [part for part in parts if part is not None]
            return seq(*known) if len(known) == len(parts) else None
        case _:
            return None


def _outermost_without(place: Place, is_user: Callable[[Block], bool]) -> Place:
    """The outermost loop around a block, or the block itself, in which no block is such a user."""
    for stmt in place.path:
        if type(stmt) in (For, Block) and not any(map(is_user, blocks_below(stmt))):
            return place.up_to(stmt)
    return place


def _is_vectorized_around(place: Place) -> bool:
    return any(loop.kind == "vectorized" for loop in place.loops)
