"""Laying out an internal buffer in another way, such as in packed panels."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature

from tensorc.arith import Domain, IndexMap, can_prove, simplify
from tensorc.errors import ExpressionError
from tensorc.ir.expr import (
    Buffer,
    Const,
    Expr,
    Load,
    Var,
    const,
    eq,
    index,
    is_const,
    logical_and,
    logical_not,
)
from tensorc.ir.function import Function
from tensorc.ir.printer import show
from tensorc.ir.stmt import Block, For, If, Stmt, Store
from tensorc.ir.walk import map_exprs, map_substmts, rewrite, uses
from tensorc.schedule.locate import (
    all_blocks,
    find_block,
    fresh_block,
    insert_before,
    refuse,
    root_domain,
)
from tensorc.schedule.primitives.caching import outermost, spatial_nest
from tensorc.schedule.regions import (
    Span,
    assumed,
    block_domain,
    buffers_read,
    buffers_written,
    relax,
)


def transform_layout(
    function: Function,
    block: str,
    buffer: str,
    index_map: Callable | IndexMap,
    pad_value: int | float | bool | None = None,
) -> Function:
    """Give an internal buffer that a block reads or writes another layout, everywhere at once.

    ``T[i, j]``  ->  ``T[map(i, j)]``

    `index_map` takes one index a dimension and returns the new ones, as in
    ``lambda k, n: (k // 512, n // 48, k % 512, n % 48)``, which packs panels. The new shape holds
    all places that the map sends the old shape to; others, as where an extent is no multiple of 48,
    stay unwritten, or hold `pad_value` if one is given: a block <buffer>_pad writes it there before
    the buffer is first used. Loops and iterators stay as they are.

    Requires: the buffer is internal; the map sends different indices within the shape to different
    places; `pad_value` is a number that the buffer can hold.

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
    body = remap(function.body, old, new, index_map, domain)
    allocs = tuple([new if known is old else known for known in function.allocs])
    changed = function.with_(body=body, allocs=allocs)
    if pad_value is None:
        return changed
    value = _pad_value(function, old, pad_value, step)
    return _padded(changed, new, index_map, old.shape, value)


def _pad_value(function: Function, buffer: Buffer, value, step: str) -> Const:
    try:
        return const(value, buffer.dtype)
    except ExpressionError as error:
        problem = error
    refuse(function, f"{step}: pad_value: {problem}", buffer.name)


def _padded(
    function: Function, buffer: Buffer, index_map: IndexMap, shape: tuple[Expr, ...], value: Const
) -> Function:
    """The function with `value` in all places of the buffer that the map sends nothing to."""
    inverse = index_map.inverse(assumed(shape))
    assert inverse is not None  # the map is injective
    iterators = tuple([Var(f"ax{axis}") for axis in range(len(buffer.shape))])
    domain = root_domain(function)
    for var, extent in zip(iterators, buffer.shape):
        domain = domain.bind(var, 0, extent)
    old = inverse.apply(iterators, domain)
    inside = [simplify(c, domain) for i, n in zip(old, shape) for c in (i >= 0, i < n)]
    inside += [eq(a, b) for a, b in zip(index_map.apply(old, domain), iterators) if a != b]
    condition = simplify(logical_not(logical_and(*inside)), domain)
    if is_const(condition, False):
        return function
    name = fresh_block(function, f"{buffer.name}_pad")
    body = If(condition, Store(buffer, iterators, value))
    first = next(b for b in all_blocks(function) if buffer in (*buffers_written(b), *buffers_read(b)))
    nest = spatial_nest(function, name, iterators, buffer.shape, body)
    return insert_before(outermost(find_block(function, first.name)), nest)


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
    extents: list[Expr] = []
    empty = [var for var, extent in zip(index_map.inputs, shape) if is_const(extent, 0)]
    for axis, output in enumerate(index_map.outputs):
        if uses(output, empty):
            extents.append(index(0))
            continue
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


def remap(stmt: Stmt, old: Buffer, new: Buffer, index_map: IndexMap, domain: Domain) -> Stmt:
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
    return map_substmts(stmt, lambda child: remap(child, old, new, index_map, inner))
