"""Laying out an internal buffer in another way, such as in packed panels."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature

from tensorc.arith import Domain, IndexMap, can_prove, simplify
from tensorc.errors import ExpressionError
from tensorc.ir.expr import Buffer, Expr, Load, index
from tensorc.ir.function import Function
from tensorc.ir.printer import show
from tensorc.ir.stmt import Block, For, Stmt, Store
from tensorc.ir.walk import map_exprs, map_substmts, rewrite
from tensorc.schedule.locate import find_block, refuse, root_domain
from tensorc.schedule.regions import (
    Span,
    assumed,
    block_domain,
    buffers_read,
    buffers_written,
    relax,
)


def transform_layout(
    function: Function, block: str, buffer: str, index_map: Callable | IndexMap
) -> Function:
    """Give an internal buffer that a block reads or writes another layout, everywhere at once.

    ``T[i, j]``  ->  ``T[map(i, j)]``

    `index_map` takes one index a dimension and returns the new ones, as in
    ``lambda k, n: (k // 512, n // 48, k % 512, n % 48)``, which packs panels. The new shape holds
    all places that the map sends the old shape to; others, as where an extent is no multiple of 48,
    stay unwritten. Loops and iterators stay as they are.

    Requires: the buffer is internal; the map sends different indices within the shape to different
    places.

    Raises ScheduleError where one of these does not hold.
    """
    step = f"transform_layout(block {block!r}, buffer {buffer!r})"
    old = _internal(function, block, buffer, step)
    index_map = as_map(function, index_map, len(old.shape), step)
    if len(index_map.inputs) != len(old.shape):
        reason = f"the map takes {len(index_map.inputs)} indices, the buffer has {len(old.shape)}"
        refuse(function, f"{step}: {reason}", block)
    if not index_map.is_injective(assumed(old.shape)):
        shape = ", ".join([show(extent) for extent in old.shape])
        reason = f"the map may send several elements of the shape ({shape}) to one place"
        refuse(function, f"{step}: {reason}", block)

    domain = root_domain(function)
    shape = image_of(function, index_map, old.shape, domain, step)
    new = old.with_(shape=shape, strides=None, padding=())
    body = _remap(function.body, old, new, index_map, domain)
    allocs = tuple([new if known is old else known for known in function.allocs])
    return function.with_(body=body, allocs=allocs)


def as_map(function: Function, index_map: Callable | IndexMap, ndim: int, step: str) -> IndexMap:
    if isinstance(index_map, IndexMap):
        return index_map
    try:
        signature(index_map).bind(*range(ndim))
        return IndexMap.from_function(index_map, ndim)
    except (TypeError, ExpressionError) as error:
        problem = error
    refuse(function, f"{step}: the map does not take {ndim} indices to indices: {problem}")


def image_of(
    function: Function, index_map: IndexMap, shape: tuple[Expr, ...], domain: Domain, step: str
):
    """The extents of the new indices over a shape."""
    ranges = {var: Span(index(0), extent - 1) for var, extent in zip(index_map.inputs, shape)}
    for var, extent in zip(index_map.inputs, shape):
        domain = domain.bind(var, 0, extent)
    extents = []
    for axis, output in enumerate(index_map.outputs):
        span = relax(simplify(output, domain), ranges, domain)
        if span is None or not can_prove(span.lo >= 0, domain):
            reason = f"index {axis} of the new layout, {show(output)},"
            refuse(function, f"{step}: {reason} may be negative or has no bound")
        extents.append(simplify(span.hi + 1, domain))
    return tuple(extents)


def _internal(function: Function, block: str, buffer: str, step: str) -> Buffer:
    node = find_block(function, block).node
    touched = dict.fromkeys((*buffers_written(node), *buffers_read(node)))
    old = next((known for known in touched if known.name == buffer), None)
    if old is None:
        names = ", ".join([repr(known.name) for known in touched])
        refuse(function, f"{step}: the block does not touch that buffer; it touches {names}", block)
    if old in function.params:
        fix = "cache_write" if old in function.outputs else "cache_read"
        reason = "it is a parameter, whose layout the caller decides"
        refuse(function, f"{step}: {reason}; cache it first with {fix}", block)
    return old


def _remap(stmt: Stmt, old: Buffer, new: Buffer, index_map: IndexMap, domain: Domain) -> Stmt:
    """The statement with accesses to `old` put to the mapped place in `new`; indices are simplified
    by what is known where they stand."""

    def place(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return index_map.apply(indices, domain)

    def on_load(e: Expr) -> Expr | None:
        return Load(new, place(e.indices)) if type(e) is Load and e.buffer is old else None

    stmt = map_exprs(stmt, lambda e: rewrite(e, on_load))
    inner = domain
    match stmt:
        case Store(buffer, indices, value) if buffer is old:
            return Store(new, place(indices), value)
        case For(var, start, extent):
            inner = domain.bind(var, start, extent)
        case Block():
            inner = block_domain(stmt, domain)
    return map_substmts(stmt, lambda child: _remap(child, old, new, index_map, inner))
