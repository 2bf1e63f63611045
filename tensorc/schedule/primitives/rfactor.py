"""Splitting a reduction into partial ones that are independent, and one over their results."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tensorc.arith import Domain, can_prove, simplify
from tensorc.ir.expr import (
    Buffer,
    Expr,
    IfThenElse,
    Load,
    Var,
    is_const,
    logical_and,
)
from tensorc.ir.function import Function
from tensorc.ir.reducer import Update, update_of
from tensorc.ir.stmt import Block, BlockIter, For, IterKind, Stmt, Store, seq
from tensorc.ir.walk import copy_nest, substitute, substitute_stmt, uses, variables, walk_expr
from tensorc.schedule.legality import conjuncts
from tensorc.schedule.locate import (
    Place,
    block_places,
    find_loop,
    fresh,
    fresh_block,
    fresh_buffer,
    insert_after,
    kind_text,
    loop_names,
    refuse,
    replace,
    root_domain,
    starts_at_zero,
)


def rfactor(function: Function, loop: str, factor_axis: int = 0) -> tuple[Function, str]:
    """Let each iteration of a reduce loop have a result of its own, and reduce those afterwards.

    for i: for k0: for k1: C[i] += f(i, k0*8 + k1)   with loop k1
      ->  for i: for k0: for k1: C_rf[k1, i] += f(i, k0*8 + k1)
          for i: for k1: C[i] += C_rf[k1, i]

    The block C_rf makes the partial results in a buffer of that name, which has the loop as axis
    `factor_axis` besides those of C; there the loop is spatial. The block itself reduces over them,
    in a nest of its own behind the outermost loop that holds nothing else. A reducer of several
    buffers, such as argmax, gets a new buffer for each.

    Requires one block below the loop, which combines terms by a reducer whose identity is known;
    serial reduce loops from 0 that hold nothing else and are bound to no spatial iterator; and an
    axis from -n-1 to n, n being the number of axes of what the block writes. Returns the function
    and the name of the new block. Raises ScheduleError where a requirement is not met.
    """
    step = f"rfactor(loop {loop!r})"
    at = find_loop(function, loop)
    place = _only_block(step, at)
    node: Block = place.node
    update = _update(step, place)
    nest = _own_nest(place)
    reducing = _reduce_loops(step, place, at.node, nest)
    ndim = len(update.elements[0].indices)
    if type(factor_axis) is not int or not -ndim - 1 <= factor_axis <= ndim:
        message = f"axis {factor_axis!r} is none of {-ndim - 1} to {ndim}"
        refuse(function, f"{step}: {message}", node.name)
    axis = factor_axis % (ndim + 1)

    for load in walk_expr(at.node.extent):
        if type(load) is Load:
            message = f"the results would be as many as {load.buffer.name!r} says, and a call knows its memory before"
            refuse(function, f"{step}: {message}; split the loop by a number", loop)
    name = fresh_block(function, f"{node.name}_rf")
    buffers = _partial_buffers(function, update, axis, at.node.extent)
    spatial, limits = _split_predicate(step, place, reducing)
    partial = _partial_block(place, name, update, buffers, axis, at.node, reducing, spatial, limits)
    final = _final_nest(place, nest, update, buffers, axis, at.node, reducing, spatial)
    function = replace(place, partial)
    function = function.with_(allocs=(*function.allocs, *buffers))
    return insert_after(find_loop(function, nest[0].var.name), final), name


def _only_block(step: str, at: Place) -> Place:
    places = block_places(at)
    if len(places) != 1 or any(
        type(stmt) not in (For, Block) for stmt in places[0].path[len(at.path) :]
    ):
        names = ", ".join([repr(p.node.name) for p in places]) or "none"
        message = f"the loop must hold one block and nothing else, it holds {names}"
        refuse(at.function, f"{step}: {message}", at.node.var.name)
    return places[0]


def _update(step: str, place: Place) -> Update:
    node: Block = place.node
    found = update_of(node)
    if not any(it.kind == "reduce" for it in node.iters):
        refuse(place.function, f"{step}: block {node.name!r} reduces nothing", node.name)
    if found is None or not found.identities:
        message = f"block {node.name!r} combines its terms by no reducer whose identity is known"
        refuse(place.function, f"{step}: {message}", node.name)
    return found


def _own_nest(place: Place) -> tuple[For, ...]:
    """The loops around a block that hold nothing else, outermost first."""
    own: list[For] = []
    for stmt in reversed(place.path[:-1]):
        if type(stmt) is not For:
            break
        own.insert(0, stmt)
    return tuple(own)


def _reduce_loops(step: str, place: Place, at: For, nest: Sequence[For]) -> tuple[For, ...]:
    """The loops that are bound to reduce iterators, all of them in the nest; refuses what rfactor
    cannot take apart."""
    node, function = place.node, place.function

    def deny(loop: For, message: str):
        refuse(function, f"{step}: loop {loop.var.name!r} {message}", loop.var.name)

    kinds = {
        loop: {it.kind for it in node.iters if uses(it.binding, (loop.var,))}
        for loop in place.loops
    }
    if not kinds[at] and is_const(at.extent, 1):
        kinds[at] = {"reduce"}  # a loop of one iteration, which bindings leave out
    if kinds[at] != {"reduce"}:
        told = " and ".join(sorted(kinds[at])) or "no"
        deny(at, f"is bound to {told} iterators of block {node.name!r}, not to reduce ones alone")
    if at.kind != "serial":
        deny(at, f"is {kind_text(at)}; only serial loops can be factored")
    reducing = tuple([loop for loop in place.loops if "reduce" in kinds[loop]])
    for loop in reducing:
        if loop not in nest:
            deny(loop, "reduces in the block, too, but holds other statements")
        if kinds[loop] != {"reduce"}:
            deny(loop, "is bound to spatial and reduce iterators; they cannot be told apart")
        if not starts_at_zero(loop):
            deny(loop, "does not start at 0")
        if any(uses(loop.extent, (each.var,)) for each in place.loops):
            deny(loop, "has a range that depends on another loop")
    own = [it.binding for it in node.iters if it.kind == "spatial"]
    for it in node.iters:
        if it.kind == "reduce" and any(uses(it.extent, (e.var,)) and e.var not in own for e in place.loops):
            deny(at, f"reduces over {it.var.name!r}, whose range depends on a loop that is no iterator of the block")
    if any(it.kind == "ordered" for it in node.iters):
        deny(at, f"lies around block {node.name!r}, which has ordered iterators")
    for loop in nest:
        if any(uses(e, [each.var for each in reducing]) for e in (loop.start, loop.extent)):
            deny(loop, "has a range that depends on a reduce loop")
    return reducing


def _partial_buffers(function: Function, update: Update, axis: int, extent: Expr) -> list[Buffer]:
    buffers: list[Buffer] = []
    for element in update.elements:
        old = element.buffer
        shape = (*old.shape[:axis], extent, *old.shape[axis:])
        name = fresh_buffer(function, f"{old.name}_rf")
        buffers.append(Buffer(name, shape, old.dtype))
    return buffers


def _split_predicate(step: str, place: Place, reducing) -> tuple[Expr, Expr]:
    """What of a block's predicate is about spatial iterators, and what is about reduce loops."""
    moving = [loop.var for loop in reducing]
    spatial: list[Expr] = []
    limits: list[Expr] = []
    for part in conjuncts(place.node.predicate):
        (limits if uses(part, moving) else spatial).append(part)
    for part in limits:
        others = variables(part) - set(moving)
        if any(loop.var in others for loop in place.loops):
            message = "its predicate ties reduce loops to spatial ones"
            refuse(place.function, f"{step}: {message}", place.node.name)
    return logical_and(*spatial), logical_and(*limits)


def _partial_block(
    place: Place,
    name: str,
    update: Update,
    buffers: Sequence[Buffer],
    axis: int,
    at: For,
    reducing: Sequence[For],
    predicate: Expr,
    limits: Expr,
) -> Block:
    """The block of the partial results: `at` is spatial, each other reduce loop an iterator."""
    node: Block = place.node
    spatial = [it for it in node.iters if it.kind == "spatial"]
    iters = [BlockIter(it.var.copy(), it.extent, "spatial", it.binding) for it in spatial]
    values: dict[Var, Expr] = {old.var: new.var for old, new in zip(spatial, iters)}
    taken = {it.var.name for it in iters}
    loops: dict[Var, Expr] = {}
    domain = Domain()
    for loop in reducing:
        var = loop.var.copy(fresh(_leaf(loop.var.name), taken))
        taken.add(var.name)
        loops[loop.var] = var
        kind: IterKind = "spatial" if loop is at else "reduce"
        iters.append(BlockIter(var, loop.extent, kind, loop.var))
        domain = domain.bind(var, 0, loop.extent)
    for it in node.iters:
        if it.kind == "reduce":
            values[it.var] = value = simplify(substitute(it.binding, loops), domain)
            limits = logical_and(
                limits,
                *[c for c in (value >= 0, value < it.extent) if not can_prove(c, domain)],
            )
    ours = {old.binding: new.var for old, new in zip(spatial, iters) if type(old.binding) is Var}
    guard = simplify(substitute(limits, {**ours, **loops}), domain)
    terms = [_guarded(substitute(t, values), c, guard) for t, c in zip(update.terms, update.identities)]
    elements = [
        _element(e, buffer, axis, loops[at.var], values)
        for e, buffer in zip(update.elements, buffers)
    ]
    starts = [Store(e.buffer, e.indices, c) for e, c in zip(elements, update.identities)]
    if len(reducing) == 1:
        body = seq(*[Store(e.buffer, e.indices, t) for e, t in zip(elements, terms)])
        return Block(name, tuple(iters), predicate, None, body)
    body = update.stmt(elements, terms)
    return Block(name, tuple(iters), predicate, seq(*starts), body, node.annotations)


def _guarded(term: Expr, identity: Expr, guard: Expr) -> Expr:
    return term if is_const(guard, True) else IfThenElse(guard, term, identity)


def _element(e: Load, buffer: Buffer, axis: int, at: Expr, values: Mapping[Var, Expr]) -> Load:
    indices = [substitute(each, values) for each in e.indices]
    return Load(buffer, (*indices[:axis], at, *indices[axis:]))


def _leaf(name: str) -> str:
    """A name for an iterator: that of a loop without its block, "C.k.0" being k0."""
    rest = name.partition(".")[2] or name
    return re.sub(r"\.(\d+)", r"\1", rest).replace(".", "_")


def _final_nest(
    place: Place,
    nest: Sequence[For],
    update: Update,
    buffers: Sequence[Buffer],
    axis: int,
    at: For,
    reducing: Sequence[For],
    predicate: Expr,
) -> Stmt:
    """The loops of the spatial iterators and of the factored one, around the block itself."""
    node: Block = place.node
    spatial = [it for it in node.iters if it.kind == "spatial"]
    taken = loop_names(place.function)
    values: dict[Var, Expr] = {}
    loops: list[For] = []
    domain = root_domain(place.function)
    bindings = [it.binding for it in spatial]
    for loop in nest:
        may_be_empty = loop not in reducing and not can_prove(loop.extent >= 1, domain)
        if may_be_empty or any(uses(e, (loop.var,)) for e in (*bindings, predicate)):
            loops.append(_again(loop, loop.kind, node.name, values, taken))
    loops.append(_again(at, "serial", node.name, values, taken))
    iters = [
        BlockIter(it.var.copy(), it.extent, "spatial", substitute(it.binding, values))
        for it in spatial
    ]
    inner: dict[Var, Expr] = {old.var: new.var for old, new in zip(spatial, iters)}
    factored = Var(fresh(_leaf(at.var.name), [it.var.name for it in iters]))
    iters.append(BlockIter(factored, at.extent, "reduce", loops[-1].var))
    terms = [
        _element(e, buffer, axis, factored, inner) for e, buffer in zip(update.elements, buffers)
    ]
    elements = [Load(e.buffer, tuple([substitute(i, inner) for i in e.indices])) for e in update.elements]
    init = None if node.init is None else copy_nest(substitute_stmt(node.init, inner))
    new: Stmt = Block(
        node.name,
        tuple(iters),
        substitute(predicate, values),
        init,
        update.stmt(elements, terms),
        node.annotations,
    )
    for loop in reversed(loops):
        new = For(loop.var, loop.start, loop.extent, loop.kind, new, loop.annotations)
    return new


def _again(loop: For, kind, block: str, values: dict[Var, Expr], taken: set[str]) -> For:
    prefix, _, rest = loop.var.name.partition(".")
    var = Var(fresh(f"{block}.{rest or prefix}", taken))
    taken.add(var.name)
    start, extent = substitute(loop.start, values), substitute(loop.extent, values)
    values[loop.var] = var
    notes = loop.annotations if kind == loop.kind else ()
    return For(var, start, extent, kind, loop.body, notes)
