"""Rounding up the domain of a product of tensors, and taking the padding of a stage apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as replaced
from itertools import takewhile
from typing import NoReturn

from tensorc.arith import affine, simplify
from tensorc.ir.expr import (
    GE,
    GT,
    LE,
    LT,
    Add,
    Buffer,
    Cast,
    Const,
    Expr,
    IfThenElse,
    Load,
    Mul,
    Select,
    Var,
    const,
    if_then_else,
    index,
    is_const,
    logical_and,
    maximum,
    minimum,
)
from tensorc.ir.function import Function
from tensorc.ir.reducer import identity, update_of
from tensorc.ir.stmt import Block, BlockIter, For, Seq, Stmt, Store
from tensorc.ir.walk import replace_buffers, substitute, substitute_stmt, uses, walk_expr
from tensorc.schedule.legality import (
    CONCURRENT,
    are_reads_covered,
    conjuncts,
    is_plain,
    overlap,
    touches,
)
from tensorc.schedule.locate import (
    Place,
    block_places,
    find_block,
    find_loop,
    fresh,
    fresh_block,
    fresh_buffer,
    insert_after,
    insert_before,
    kind_text,
    loop_names,
    refuse,
    replace,
    root_domain,
)
from tensorc.schedule.primitives.caching import (
    check_written_alone,
    check_written_outside,
    outermost,
    spatial_nest,
)
from tensorc.schedule.primitives.domains import own_loops, reiterated
from tensorc.schedule.regions import is_one_place_each, spots, writers


def pad_einsum(
    function: Function, block: str, padding: Sequence[int]
) -> tuple[Function, tuple[str, ...]]:
    """Round the extents of a product of tensors up to multiples of `padding`, one number for each
    iterator of the block.

    ``for i in 0..100: for k in 0..100: C[i] += A[i, k] * B[k]``, padding (16, 8)
    ->  ``A_pad = A, else 0``, ``B_pad = B, else 0``,
    ``for i in 0..112: for k in 0..104: C_pad[i] += A_pad[i, k] * B_pad[k]``, ``C[i] = C_pad[i]``

    Each input that a padded iterator indexes is copied, with what changes nothing in its padding, by
    a block <input>_pad before the nest; an output that is padded is computed in <output>_pad and
    copied by a block of that name after it. Loops can then be split without tails. Returns the
    function and the names of the new blocks.

    Requires: the block reduces by one operation; its iterators are bound to innermost serial loops
    of their own, each over its whole extent; the term is one element, or a product of elements that
    are summed; their indices are single iterators; the output has each padded spatial iterator; of
    floats, each factor has each padded reduce iterator, since 0 * inf is no 0; nothing else in the nest
    writes the inputs or uses the output.

    Raises ScheduleError where one of these does not hold.
    """
    step = f"pad_einsum(block {block!r})"
    place = find_block(function, block)
    node: Block = place.node
    loops = own_loops(place, step)
    iters = _rounded(place, padding, step)
    for it in iters:
        if any(type(e) is Load for e in walk_expr(it.extent)):
            reason = f"the range of {it.var.name!r} is loaded, and a padded copy would be as long"
            refuse(function, f"{step}: {reason}", block)
    padded = {old.var: old for old, new in zip(node.iters, iters) if new is not old}
    operation, factors = _einsum(place, padded, step)
    store = _stored(place, padded, step)
    made: list[str] = []
    if not padded:
        return function, ()

    extents = {it.var: it.extent for it in iters}
    whole = {it.var: it.extent for it in node.iters}
    buffers: dict[Buffer, Buffer] = {}
    for load in factors:
        if load.buffer not in buffers and uses_any(load.indices, padded):
            check_written_outside(function, place, load.buffer, step)
            buffers[load.buffer] = _padded_buffer(function, load.buffer, load.indices, extents)
    inputs = dict(buffers)
    if uses_any(store.indices, padded):
        others = [each.name for each in writers(function, store.buffer) if each is not node]
        if others:
            reason = f"{store.buffer.name!r} is also written by {', '.join(others)}"
            refuse(function, f"{step}: {reason}; pad the block before decomposing it", block)
        check_written_alone(function, place, store.buffer, step)
        buffers[store.buffer] = _padded_buffer(function, store.buffer, store.indices, extents)

    nest = _nest(node, loops, iters, buffers, _padded_init(node, padded, operation, buffers))
    function = replace(place.up_to(loops[0] if loops else node), nest)
    function = function.with_(allocs=(*function.allocs, *buffers.values()))
    for old, new in inputs.items():
        indices = next(load.indices for load in factors if load.buffer is old)
        value = _neutral(operation, old, len(factors))
        inside = {each: whole[each] for each in indices if isinstance(each, Var) and each in padded}
        function, name = _pad_before(function, block, old, new, indices, inside, value)
        made.append(name)
    if store.buffer in buffers:
        new = buffers[store.buffer]
        name = fresh_block(function, new.name)
        stored = [each for each in store.indices if isinstance(each, Var)]
        iterators = [Var(each.name) for each in stored]
        body = Store(store.buffer, tuple(iterators), Load(new, tuple(iterators)))
        shape = [whole[each] for each in stored]
        nest = spatial_nest(function, name, iterators, shape, body)
        function = insert_after(outermost(find_block(function, block)), nest)
        made.append(name)
    return function, tuple(made)


def uses_any(indices: Sequence[Expr], names) -> bool:
    """Whether some of the indices read some of these variables."""
    return any(uses(each, names) for each in indices)


def _rounded(place: Place, padding: Sequence[int], step: str) -> list[BlockIter]:
    node, function = place.node, place.function
    if not isinstance(padding, (list, tuple)) or len(padding) != len(node.iters):
        reason = f"padding must be a number for each of the {len(node.iters)} iterators"
        refuse(function, f"{step}: {reason}, not {padding!r}", node.name)
    domain = root_domain(function)
    found = []
    for it, factor in zip(node.iters, padding):
        if type(factor) is not int or factor < 1:
            refuse(function, f"{step}: padding {factor!r} is no integer of 1 or more", node.name)
        extent = simplify((it.extent + (factor - 1)) // factor * factor, domain)
        found.append(it if extent == it.extent else replaced(it, extent=extent))
    return found


def _einsum(place: Place, padded, step: str) -> tuple[type, list[Load]]:
    """The operation by which a block reduces, and the elements whose product is its term."""
    function, node = place.function, place.node

    def deny(reason: str) -> NoReturn:
        refuse(function, f"{step}: {reason}", node.name)

    update = update_of(node)
    if update is None or update.operation is None or node.init is None:
        deny("the block is no reduction by one operation with its init")
    operation, term = update.operation, update.terms[0]
    factors, others = _factors(term)
    if others or not factors or (operation is not Add and type(term) is not Load):
        deny("its term is neither one element nor, in a sum, a product of elements")
    inside = {it.var for it in node.iters}
    for load in factors:
        if not set(load.indices) <= inside or len(set(load.indices)) < len(load.indices):
            deny(f"the indices of {load.buffer.name!r} are not single iterators, each once")
        if any(each.buffer is load.buffer and each.indices != load.indices for each in factors):
            deny(f"the block reads {load.buffer.name!r} at several places")
    for it in padded.values():
        lacking = [load for load in factors if it.var not in load.indices]
        if it.kind == "reduce" and lacking and (len(lacking) == len(factors) or term.dtype.is_float):
            name = lacking[0].buffer.name
            deny(f"{name!r} has no index {it.var.name!r}, and a padded 0 times it may be no 0")
    return operation, factors


def _factors(term: Expr) -> tuple[list[Load], bool]:
    """The elements whose product an expression is, and whether it holds anything else."""
    match term:
        case Load():
            return [term], False
        case Cast(value, dtype) if not dtype.is_bool and not value.dtype.is_bool:
            return _factors(value)
        case Mul(a, b):
            (left, one), (right, other) = _factors(a), _factors(b)
            return left + right, one or other
        case _:
            return [], True


def _stored(place: Place, padded, step: str) -> Store:
    """The store of an update, whose indices must be single iterators, those padded among them."""
    store = place.node.body
    inside = {it.var for it in place.node.iters}
    if type(store) is not Store or not set(store.indices) <= inside:
        reason = "the indices of its store are not single iterators"
        refuse(place.function, f"{step}: {reason}", place.node.name)
    for it in padded.values():
        if it.kind != "reduce" and it.var not in store.indices:
            reason = f"no index of {store.buffer.name!r} is the {it.kind} iterator {it.var.name!r}"
            more = "in its padding elements would be reduced again"
            refuse(place.function, f"{step}: {reason}; {more}", place.node.name)
    return store


def _padded_buffer(function: Function, old: Buffer, indices, extents) -> Buffer:
    shape = tuple([extents[each] for each in indices])
    return Buffer(fresh_buffer(function, f"{old.name}_pad"), shape, old.dtype)


def _neutral(operation: type, buffer: Buffer, factors: int) -> Const:
    if operation is Add:
        return const(0, buffer.dtype)
    return identity(operation, buffer.dtype)


def _padded_init(node: Block, padded, operation: type, buffers) -> Stmt:
    """The init of a padded block: where it depends on a padded iterator it reads nothing in the
    padding."""
    init = node.init
    assert type(init) is Store  # that of a reduction by one operation
    value = init.value
    inside = [it.var < it.extent for it in padded.values() if uses(value, (it.var,))]
    if inside:
        value = if_then_else(logical_and(*inside), value, identity(operation, value.dtype))
    return Store(buffers.get(init.buffer, init.buffer), init.indices, value)


def _nest(
    node: Block, loops: Sequence[For], iters: Sequence[BlockIter], buffers, init: Stmt
) -> Stmt:
    extents = {it.binding: it.extent for it in iters}
    body = replace_buffers(node.body, buffers)
    nest: Stmt = Block(node.name, tuple(iters), node.predicate, init, body, node.annotations)
    for loop in reversed(loops):
        extent = extents[loop.var]
        nest = For(loop.var, loop.start, extent, loop.kind, nest, loop.annotations)
    return nest


def _pad_before(
    function: Function, block: str, old: Buffer, new: Buffer, indices, inside, value: Const
) -> tuple[Function, str]:
    """The function with a block that copies a buffer into another one, what lies inside of the
    extents of some indices, and a value around it."""
    name = fresh_block(function, new.name)
    iterators = tuple([Var(each.name) for each in indices])
    limits = [var < inside[each] for var, each in zip(iterators, indices) if each in inside]
    element: Expr = Load(old, iterators)
    if limits:
        element = if_then_else(logical_and(*limits), element, value)
    body = Store(new, iterators, element)
    nest = spatial_nest(function, name, iterators, new.shape, body)
    return insert_before(outermost(find_block(function, block)), nest), name


def decompose_padding(function: Function, block: str, loop: str) -> tuple[Function, str]:
    """Fill the padding that a block makes in a block of its own, just before a loop around it.

    ``for i in 0..12: P[i] = if_then_else(i >= 1 and i < 11, A[i - 1], 0)``
    ->  ``for i in 0..12: P[i] = 0``, ``for i in 0..10: P[i + 1] = A[i]``

    The new block <block>_pad fills all that the loops from `loop` inward reach; the block itself
    then runs over the interior only, without the conditions that held just there. Returns the
    function and the new block's name.

    Where the iterators that the condition bounds are bound to loops in another way, as after
    `compute_at`, or to loops outside, the loops stay, and the block gets the condition as its
    predicate.

    Requires: the block stores ``if_then_else(condition, value, constant)`` or such a select, and
    reads not what it writes; the loops from `loop` inward are serial; the condition bounds an
    iterator. Where these loops hold other blocks: the block alone writes the buffer, each of its
    points a place of its own, and all that is read of it was written in the same iterations.

    Raises ScheduleError where one of these does not hold.
    """
    step = f"decompose_padding(block {block!r}, loop {loop!r})"
    place, at = find_block(function, block), find_loop(function, loop)
    node: Block = place.node
    loops = _loops_inside(place, at.node, step)
    store, condition, value, filler = _padding(place, step)
    own = _own_loops(place, loops)
    if len(own) < len(loops):
        _check_lifted(place, at, store, step)
    whole = _whole_ranges(node, own)
    moving = [it for it in node.iters if uses(it.binding, [each.var for each in loops])]
    ranges, rest = _interior(node, moving, condition, root_domain(function))
    if not ranges:
        ranges, rest = _interior(node, node.iters, condition, root_domain(function))
    if not ranges:
        refuse(function, f"{step}: the condition bounds none of the iterators", block)

    domain = place.domain()
    for it in node.iters:
        domain = domain.bind(it.var, 0, it.extent)
    if rest:
        value = if_then_else(logical_and(*rest), value, filler)
    extents, values, iters, inside = {}, {}, [], []
    for it in node.iters:
        if it.var not in ranges:
            iters.append(it)
            continue
        lo, hi = ranges[it.var]
        extent = simplify(maximum(hi - lo, index(0)), root_domain(function))
        var = it.var.copy()
        values[it.var] = var + lo
        domain = domain.bind(var, 0, extent)
        if it in whole:
            extents[it.binding] = extent
            iters.append(BlockIter(var, extent, it.kind, it.binding))
            continue
        inside += [it.binding >= lo, it.binding < hi]
        binding = simplify(it.binding - lo, place.domain())
        iters.append(BlockIter(var, extent, it.kind, binding))
    body = reiterated(Store(store.buffer, store.indices, value), values, domain)
    simple = [simplify(each, place.domain()) for each in inside]
    predicate = logical_and(node.predicate, *[each for each in simple if not is_const(each, True)])
    inner: Stmt = Block(node.name, tuple(iters), predicate, None, body, node.annotations)
    for each in reversed(own):
        extent = extents.get(each.var, each.extent)
        inner = For(each.var, each.start, extent, each.kind, inner, each.annotations)
    name = fresh_block(function, f"{block}_pad")
    fill = _fill(function, node, loops, name, Store(store.buffer, store.indices, filler))
    changed = replace(place.up_to(own[0] if own else node), inner)
    changed = insert_before(find_loop(changed, loop), fill)
    for each in at.loops:
        if each.kind in (*CONCURRENT, "vectorized"):
            spread = find_loop(changed, each.var.name)
            problem = overlap(spread, block_places(spread))
            if problem is not None:
                refuse(function, f"{step}: {problem}", each.var.name)
    return changed, name


def _loops_inside(place: Place, at: For, step: str) -> tuple[For, ...]:
    """The loops from `at` inward to the block, which are serial."""
    function = place.function
    position = next((i for i, stmt in enumerate(place.path) if stmt is at), None)
    if position is None:
        refuse(function, f"{step}: the loop is not around the block", at.var.name)
    loops = tuple([stmt for stmt in place.path[position:-1] if type(stmt) is For])
    if any(type(stmt) not in (For, Seq) for stmt in place.path[position:-1]):
        refuse(function, f"{step}: the block stands under a condition there", at.var.name)
    for each in loops:
        if each.kind != "serial":
            reason = f"loop {each.var.name!r} is {kind_text(each)}; do this while it is serial"
            refuse(function, f"{step}: {reason}", each.var.name)
    return loops


def _own_loops(place: Place, loops: Sequence[For]) -> tuple[For, ...]:
    """Those of the loops, the innermost ones, that hold nothing but the block."""
    inner = list(takewhile(lambda stmt: type(stmt) is For, reversed(place.path[:-1])))
    return tuple([loop for loop in loops if any(loop is each for each in inner)])


def _check_lifted(place: Place, at: Place, store: Store, step: str) -> None:
    """Refuse to fill the padding ahead of other blocks' iterations where it may not last, or cover
    what they read."""
    function, node, buffer = place.function, place.node, store.buffer
    others = [other.name for other in writers(function, buffer) if other is not node]
    if others:
        reason = f"{buffer.name!r} is also written by {', '.join(others)}"
        refuse(function, f"{step}: the loop holds more than the block, and {reason}", node.name)
    spot = spots(node, buffer, is_store=True)[0]
    if not is_one_place_each(node, spot):
        reason = f"different points of it may be one place of {buffer.name!r}"
        refuse(function, f"{step}: the loop holds more than the block, and {reason}", node.name)
    root = Place(function, (function.body,))
    found = touches(block_places(root), (buffer,))
    if not are_reads_covered(found):
        reason = f"{buffer.name!r} may be read in other iterations than it is written in"
        refuse(function, f"{step}: the loop holds more than the block, and {reason}", at.node.var.name)


def _whole_ranges(node: Block, loops: Sequence[For]) -> list[BlockIter]:
    """The iterators whose whole ranges are loops of their own among these, which can be shortened:
    the block has no predicate that counts on them."""
    found = []
    for each in loops if is_const(node.predicate, True) else ():
        bound = [it for it in node.iters if uses(it.binding, (each.var,))]
        ranged = any(uses(other.extent, (each.var,)) or uses(other.start, (each.var,)) for other in loops)
        is_own = len(bound) == 1 and bound[0].binding is each.var and not ranged
        if is_own and bound[0].extent == each.extent and is_const(each.start, 0):
            found.append(bound[0])
    return found


def _padding(place: Place, step: str) -> tuple[Store, Expr, Expr, Const]:
    """The store of a padding block, its condition, what it stores inside, and the constant."""
    function, node = place.function, place.node
    store = node.body
    if not is_plain(node):
        reason = "it must be spatial, and not read what it writes"
        refuse(function, f"{step}: {reason}", node.name)
    match store:
        case Store(_, _, (IfThenElse() | Select()) as choice, None):
            if type(choice.false) is Const:
                return store, choice.condition, choice.true, choice.false
    reason = "it stores no if_then_else(condition, value, constant)"
    refuse(function, f"{step}: {reason}", node.name)


def _interior(node: Block, moving: Sequence[BlockIter], condition: Expr, domain):
    """The range of each iterator that the condition bounds, and the conditions that are left."""
    ranges: dict[Var, tuple[Expr, Expr]] = {}
    rest: list[Expr] = []
    for part in conjuncts(condition):
        bound = _bound(part, moving, {it.var for it in node.iters})
        if bound is None:
            rest.append(part)
            continue
        it, lo, hi = bound
        old_lo, old_hi = ranges.get(it.var, (index(0), it.extent))
        lo = old_lo if lo is None else simplify(maximum(old_lo, lo), domain)
        hi = old_hi if hi is None else simplify(minimum(old_hi, hi), domain)
        ranges[it.var] = lo, hi
    return ranges, rest


def _bound(part: Expr, moving: Sequence[BlockIter], iterators: set[Var]):
    """The iterator that a condition bounds, and its least value or its end, if it is of the form
    ``iterator + constant < constant``."""
    match part:
        case LT(a, b) | GT(b, a):
            form = affine(b - a - 1)
        case LE(a, b) | GE(b, a):
            form = affine(b - a)
        case _:
            return None
    names: dict[Expr, BlockIter] = {it.var: it for it in moving}
    terms = dict(form.terms)
    found = [atom for atom in terms if uses(atom, names)]
    if len(found) != 1 or found[0] not in names or abs(terms[found[0]]) != 1:
        return None
    var = found[0]
    rest: Expr = index(form.constant)
    for atom, factor in form.terms:
        if atom is not var:
            if type(atom) is not Var or atom in iterators:
                return None
            rest = rest + atom * factor
    it = names[var]
    # factor * var + rest >= 0
    return (it, -rest, None) if terms[var] > 0 else (it, None, rest + 1)


def _fill(function: Function, node: Block, loops: Sequence[For], name: str, store: Store) -> Stmt:
    """The loops and the block that store the constant wherever the block stored."""
    taken = loop_names(function)
    values: dict[Var, Expr] = {}
    new: list[tuple[Var, For]] = []
    for each in loops:
        tail = each.var.name.removeprefix(f"{node.name}.")
        var = Var(fresh(f"{name}.{tail}", taken))
        taken.add(var.name)
        values[each.var] = var
        new.append((var, each))
    copies = {it.var: it.var.copy() for it in node.iters}
    iters = tuple([
        BlockIter(copies[it.var], it.extent, it.kind, substitute(it.binding, values))
        for it in node.iters
    ])  # fmt: skip
    predicate = substitute(node.predicate, values)
    nest: Stmt = Block(name, iters, predicate, None, substitute_stmt(store, copies))
    for var, each in reversed(new):
        start, extent = substitute(each.start, values), substitute(each.extent, values)
        nest = For(var, start, extent, each.kind, nest, each.annotations)
    return nest
