"""Caches laid out by the iterators of the block that uses them, such as im2col makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensorc.arith import Domain, IndexMap, can_prove
from tensorc.errors import ScheduleError
from tensorc.ir.expr import Buffer, Expr, IfThenElse, Load, Var
from tensorc.ir.function import Function
from tensorc.ir.stmt import Block, BlockIter, If, Stmt, Store
from tensorc.ir.walk import (
    all_exprs,
    exprs,
    rewrite_exprs,
    rewrite_stmts,
    substitute,
    uses,
    variables,
    walk,
    walk_expr,
)
from tensorc.schedule.locate import (
    Place,
    find_block,
    fresh_block,
    fresh_buffer,
    insert_after,
    insert_before,
    refuse,
    replace,
    root_domain,
)
from tensorc.schedule.primitives.caching import (
    cache_of,
    check_written_alone,
    check_written_outside,
    is_run_whole,
    outermost,
    refuse_unwritten,
    spatial_nest,
)
from tensorc.schedule.primitives.layout import as_map, image_of
from tensorc.schedule.regions import (
    accesses,
    assumed,
    buffers_read,
    buffers_written,
    stores_always,
    writers,
)
from tensorc.schedule.windows import beside, check_parallel, place_of, same_instances


def reindex(function: Function, block: str, buffer: str) -> tuple[Function, str]:
    """Let a block read or write a copy of a buffer that its own iterators index.

    ``for i: for k: C[i] += A[i + k] * W[k]``
    ->  ``for i: for k: A_reindex[i, k] = A[i + k]``, ``for i: for k: C[i] += A_reindex[i, k] * W[k]``

    The copy, <buffer>_reindex, has one dimension for each iterator that the access uses, in the
    block's order. A block of that name fills it just before the outermost loop of `block`, or
    copies it to the buffer just after that loop, if `block` writes the buffer. So a convolution
    becomes a matrix product (im2col). Returns the function and the new block's name.

    Requires: all accesses of the block to the buffer have the same indices, made of its iterators,
    and inside the buffer for all values of those; no block in the same nest of loops writes what it
    reads; for a write, the block alone writes the buffer, without starting from what it held, and
    nothing reads it before the copy.

    Raises ScheduleError where one of these does not hold.
    """
    step = f"reindex(block {block!r}, buffer {buffer!r})"
    place = find_block(function, block)
    old, indices = _single_access(place, buffer, None, step)
    used = _iterators_in(place.node, indices)
    copy = Buffer(
        fresh_buffer(function, f"{old.name}_reindex"), tuple([it.extent for it in used]), old.dtype
    )
    return _cache(place, old, copy, used, tuple([it.var for it in used]), step)


def reindex_cache_read(
    function: Function, block: str, buffer: str, scope: str, index_map: Callable | IndexMap
) -> tuple[Function, str]:
    """Let a block read a copy of an input whose place for each instance is `index_map` of the
    block's iterators.

    ``C[i, j] = f(B[j, i])``, map ``lambda i, j: (j // 8, i, j % 8)``
    ->  ``B_global[j // 8, i, j % 8] = B[j, i]``, ``C[i, j] = f(B_global[j // 8, i, j % 8])``

    `index_map` takes one index for each iterator of the block. The copy, <buffer>_<scope>, is
    filled by a block of that name just before the outermost loop of `block`, or, where other blocks in
    that loop stand in the way, the outermost one that holds `block` alone. Returns the function and the
    new block's name.

    Requires: what `reindex` does of a read; that instances which read different elements have
    different places; and that an init which reads the input is of the same place in all steps.

    Raises ScheduleError where one of these does not hold.
    """
    step = f"reindex_cache_read(block {block!r}, buffer {buffer!r})"
    return _mapped(function, block, buffer, scope, index_map, False, step)


def reindex_cache_write(
    function: Function, block: str, buffer: str, scope: str, index_map: Callable | IndexMap
) -> tuple[Function, str]:
    """Let a block write to a copy of its output whose place for each instance is `index_map` of
    the block's iterators.

    ``C[j, i] = f(i, j)``, map ``lambda i, j: (i, j)``
    ->  ``C_global[i, j] = f(i, j)``, ``C[j, i] = C_global[i, j]``

    `index_map` takes one index for each iterator of the block and uses the spatial ones. The copy,
    <buffer>_<scope>, is copied to the output by a block of that name just after the outermost loop
    of `block`, or the outermost that holds it alone. Returns the function and the new block's name.

    Requires: what `reindex` does of a write; and that different spatial points have different
    places.

    Raises ScheduleError where one of these does not hold.
    """
    step = f"reindex_cache_write(block {block!r}, buffer {buffer!r})"
    return _mapped(function, block, buffer, scope, index_map, True, step)


def _mapped(
    function: Function, block: str, buffer: str, scope: str, index_map, is_write: bool, step: str
) -> tuple[Function, str]:
    place = find_block(function, block)
    iters = place.node.iters
    old, indices = _single_access(place, buffer, is_write, step)
    index_map = as_map(function, index_map, len(iters), step)
    if len(index_map.inputs) != len(iters):
        reason = f"the map takes {len(index_map.inputs)} indices, the block has {len(iters)}"
        refuse(function, f"{step}: {reason} iterators", block)
    outputs = index_map.apply([it.var for it in iters], _domain(function, iters))
    used = _iterators_in(place.node, (*indices, *outputs))
    _check_init(place, old, outputs, step)
    reducing = next((it for it in used if is_write and it.kind != "spatial"), None)
    if reducing is not None:
        reason = f"the map uses the {reducing.kind} iterator {reducing.var.name!r}"
        refuse(function, f"{step}: {reason}, but an element is one place in all its steps", block)
    shape = image_of(
        function, IndexMap(tuple([it.var for it in used]), outputs),
        tuple([it.extent for it in used]), root_domain(function), step,
    )  # fmt: skip
    if not IndexMap(tuple([it.var for it in used]), outputs).is_injective(
        assumed([it.extent for it in used])
    ):
        names = ", ".join([it.var.name for it in used])
        reason = f"the map may send several points of ({names}) to one place"
        refuse(function, f"{step}: {reason}", block)
    copy = cache_of(function, old, scope, step).with_(shape=shape, strides=None)
    return _cache(place, old, copy, used, outputs, step)


def _check_init(place: Place, old: Buffer, outputs: Sequence[Expr], step: str) -> None:
    """Refuse where an init that reads the buffer would need a place in each step of a reduction."""
    init = place.node.init
    if init is None or not any(type(e) is Load and e.buffer is old for e in all_exprs(init)):
        return
    for it in place.node.iters:
        if it.kind != "spatial" and any(uses(each, (it.var,)) for each in outputs):
            reason = f"the init reads {old.name!r} before the first step of the {it.kind} iterator"
            reason += f" {it.var.name!r}, which the map uses"
            refuse(place.function, f"{step}: {reason}", place.node.name)


def _single_access(
    place: Place, buffer: str, is_write: bool | None, step: str
) -> tuple[Buffer, tuple[Expr, ...]]:
    """The buffer of this name and the indices at which the block accesses it; `is_write` tells
    whether it must write it, None allows both."""
    function, node = place.function, place.node
    written, read = buffers_written(node), buffers_read(node)
    known = {None: (*written, *read), True: written, False: read}[is_write]
    old = next((each for each in known if each.name == buffer), None)
    if old is None:
        verb, does = {None: ("touch", "touches"), True: ("write", "writes"), False: ("read", "reads")}[
            is_write
        ]
        names = ", ".join([repr(name) for name in dict.fromkeys([b.name for b in known])])
        reason = f"the block does not {verb} that buffer; it {does} {names or 'nothing'}"
        refuse(function, f"{step}: {reason}", node.name)
    if is_write is False and old in written:
        refuse(function, f"{step}: the block writes that buffer; use reindex_cache_write", node.name)
    found = dict.fromkeys([access.indices for access in accesses(node, old, Domain())])
    if len(found) > 1:
        reason = f"the block accesses {old.name!r} at {len(found)} places; a copy needs a single one"
        refuse(function, f"{step}: {reason}", node.name)
    indices = next(iter(found))
    inside = {it.var for it in node.iters}
    if any(type(e) is Load and e.buffer is old for each in exprs(node) for e in walk_expr(each)):
        refuse(function, f"{step}: its extents or predicate depend on {old.name!r}", node.name)
    for each in indices:
        for e in walk_expr(each):
            if type(e) is Load or (type(e) is Var and e not in inside):
                reason = f"an index of {old.name!r} is not made of the block's iterators alone"
                refuse(function, f"{step}: {reason}", node.name)
    return old, indices


def _iterators_in(block: Block, indices: Sequence[Expr]) -> tuple[BlockIter, ...]:
    return tuple([it for it in block.iters if any(uses(each, (it.var,)) for each in indices)])


def _domain(function: Function, iters: Sequence[BlockIter]) -> Domain:
    domain = root_domain(function)
    for it in iters:
        domain = domain.bind(it.var, 0, it.extent)
    return domain


def _cache(
    place: Place, old: Buffer, copy: Buffer, used: tuple[BlockIter, ...], at: tuple[Expr, ...], step
) -> tuple[Function, str]:
    """The function in which the block uses `copy` at the places `at` instead of `old`."""
    function, node = place.function, place.node
    _check_extents(place, used, step)
    is_write = old in buffers_written(node)
    indices = accesses(node, old, Domain())[0].indices
    refusal: ScheduleError | None = None
    try:
        (_check_write if is_write else _check_read)(place, old, used, indices, step)
    except ScheduleError as error:
        refusal = error
    name = fresh_block(function, copy.name)
    changed = replace(place, _redirected(node, old, copy, at))
    changed = changed.with_(allocs=(*function.allocs, copy))
    values = {it.var: it.var.copy() for it in used}
    mine = tuple([substitute(each, values) for each in indices])
    places = tuple([substitute(each, values) for each in at])
    body = Store(old, mine, Load(copy, places)) if is_write else Store(copy, places, Load(old, mine))
    insert = insert_after if is_write else insert_before
    if refusal is None:
        extents = [it.extent for it in used]
        nest = spatial_nest(changed, name, tuple(values.values()), extents, body)
        return insert(outermost(find_block(changed, node.name)), nest), name
    near = _near(place, old, is_write)
    iters = [BlockIter(values[it.var], it.extent, "spatial", it.binding) for it in used]
    copied = None if near is None else same_instances(place, near, name, iters, body)
    if near is None or copied is None:
        raise refusal
    changed = insert(place_of(changed, near), copied)
    check_parallel(near, changed, step)
    return changed, name


def _near(place: Place, old: Buffer, is_write: bool) -> Place | None:
    """The outermost loop that holds the block alone, or the block, next to which a copy of what its
    instances touch may stand; None where that is nowhere."""
    if _is_guarded(place.node, old) or (is_write and not stores_always(place.node, old)):
        return None
    return beside(place, old, is_write)


def _check_extents(place: Place, used: Sequence[BlockIter], step: str) -> None:
    """Refuse where the extent of an iterator is not known outside the loops."""
    known = {e for b in (*place.function.params, *place.function.allocs) for e in b.shape}
    known.update(place.function.scalars)
    for it in used:
        if any(type(e) is Load for e in walk_expr(it.extent)) or not variables(it.extent) <= known:
            reason = f"the extent of its iterator {it.var.name!r} depends on other iterators"
            refuse(place.function, f"{step}: {reason}", place.node.name)


def _check_read(place: Place, old: Buffer, used, indices: tuple[Expr, ...], step: str) -> None:
    function = place.function
    check_written_outside(function, place, old, step)
    is_guarded = _is_guarded(place.node, old)
    if not _is_inside(indices, old, _domain(function, used)):
        reason = f"the block reads {old.name!r} under a condition, and elsewhere its index"
        fix = "pad it in a stage of its own"
        if not is_guarded:
            reason = f"where the block does not run, its index of {old.name!r}"
            fix = "the copy would read there"
        refuse(function, f"{step}: {reason} may lie outside; {fix}", place.node.name)
    if is_guarded or not is_run_whole(place) or _empty(place, used) is not None:
        refuse_unwritten(place, old, step)


def _empty(place: Place, used: Sequence[BlockIter]) -> BlockIter | None:
    """An iterator besides these that may have no instance, so that the block does not run where a copy would."""
    domain = root_domain(place.function)
    others = [it for it in place.node.iters if it not in used]
    return next((it for it in others if not can_prove(it.extent >= 1, domain)), None)


def _is_inside(indices: Sequence[Expr], buffer: Buffer, domain: Domain) -> bool:
    return all(
        can_prove(each >= 0, domain) and can_prove(each < extent, domain)
        for each, extent in zip(indices, buffer.shape)
    )


def _is_guarded(block: Block, buffer: Buffer) -> bool:
    """Whether some load of the buffer in the block depends on a condition."""
    guarded = [e for s in walk(block.body) if type(s) is If for e in all_exprs(s)]
    guarded += [e for each in all_exprs(block) if type(each) is IfThenElse for e in walk_expr(each)]
    return any(type(e) is Load and e.buffer is buffer for e in guarded)


def _check_write(place: Place, old: Buffer, used, indices: tuple[Expr, ...], step: str) -> None:
    function, node = place.function, place.node
    others = [other.name for other in writers(function, old) if other is not node]
    if others:
        reason = f"{old.name!r} is also written by {', '.join(others)}"
        refuse(function, f"{step}: {reason}; reindex the block before decomposing it", node.name)
    check_written_alone(function, place, old, step)
    if any(type(s) is If for s in walk(node.body)):
        reason = "its body stores under a condition, so that elements may stay unwritten"
        refuse(function, f"{step}: {reason}", node.name)
    reducing = next((it for it in used if it.kind != "spatial"), None)
    if reducing is not None:
        reason = f"it stores at an index with the {reducing.kind} iterator {reducing.var.name!r}"
        refuse(function, f"{step}: {reason}", node.name)
    empty = _empty(place, [*used, *[it for it in node.iters if it.kind != "spatial"]])
    if empty is not None:
        reason = f"the iterator {empty.var.name!r} may be empty, and then the block writes nothing to copy"
        refuse(function, f"{step}: {reason}", node.name)
    if old in function.allocs and not is_run_whole(place):
        reason = "not every point of the block is known to run"
        refuse(function, f"{step}: {reason}; reindex it before moving it", node.name)


def _redirected(block: Block, old: Buffer, copy: Buffer, at: tuple[Expr, ...]) -> Stmt:
    def on_load(e: Expr) -> Expr | None:
        return Load(copy, at, e.mask) if type(e) is Load and e.buffer is old else None

    def on_store(s: Stmt) -> Stmt | None:
        return Store(copy, at, s.value, s.mask) if type(s) is Store and s.buffer is old else None

    return rewrite_stmts(rewrite_exprs(block, on_load), on_store)
