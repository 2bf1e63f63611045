"""Sliding windows: a stage computes what the iteration before has not, into a circular buffer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from tensorc.arith import IndexMap, can_prove, simplify
from tensorc.errors import ScheduleError
from tensorc.ir.expr import Buffer, Expr, Var, eq, index, is_const, logical_and, logical_or
from tensorc.ir.function import Function
from tensorc.ir.stmt import Block, For, Seq, Store
from tensorc.ir.walk import substitute, uses, variables, walk
from tensorc.schedule.legality import conjuncts
from tensorc.schedule.locate import (
    Place,
    blocks_below,
    constant,
    find_block,
    kind_text,
    refuse,
    replace,
    root_domain,
    starts_at_zero,
)
from tensorc.schedule.primitives.layout import remap
from tensorc.schedule.regions import Span, accesses, buffers_read, buffers_written, loads, writers

_MOST_ITERATIONS = 256  # as many places of a window that moves unevenly are looked at one by one


def rolling_buffer(function: Function, block: str, buffer: str) -> Function:
    """Let a stage inside a loop of its consumer compute only what the iteration before did not.

    ``for i: {for r in 0..3: T[i + r] = f(i + r);  C[i] = g(T[i], T[i + 1], T[i + 2])}``
    ->  ``for i: {for r in 0..3: T[(i + r) % 3] = f(i + r) where i == 0 or r >= 2;
    C[i] = g(T[i % 3], T[(i + 1) % 3], T[(i + 2) % 3])}``

    The loop is the innermost one around all that uses the buffer in which parts overlap; the
    dimension of the buffer along which they do becomes as long as one part. Put the stage there with
    `compute_at` first; make loops around that one parallel before this step.

    Requires: the block alone writes the buffer, which is internal, with its iterators as the
    indices; only one iterator moves with the loop, as ``loop * step + r``, or ``loop * 5 // 2 + r``,
    r being a loop over more than a step; what is read of the buffer in an iteration lies in the part
    that it computes; the loop, and those in it that are around all uses, are serial or unrolled; what
    the block reads is made by blocks that are whole by themselves.

    Raises ScheduleError where one of these does not hold.
    """
    step = f"rolling_buffer(block {block!r}, buffer {buffer!r})"
    place = find_block(function, block)
    old = _own_buffer(place, buffer, step)
    at, window = _rolled(place, old, step)
    _check_invariant(place, at, window, step)
    _check_inputs(place, at, step)
    _check_reads(place, at, old, window, step)

    is_new = logical_or(eq(at.node.var, 0), window.inner.var >= window.size - window.step)
    node: Block = place.node
    predicate = logical_and(is_new, node.predicate)
    rolled = Block(node.name, node.iters, predicate, node.init, node.body, node.annotations)
    shape = list(old.shape)
    shape[window.axis] = index(window.size)
    new = old.with_(shape=tuple(shape), strides=None)
    inputs = tuple([Var(f"d{axis}") for axis in range(len(shape))])
    outputs: list[Expr] = list(inputs)
    outputs[window.axis] = inputs[window.axis] % window.size
    function = replace(place, rolled)
    body = remap(function.body, old, new, IndexMap(inputs, tuple(outputs)), root_domain(function))
    allocs = tuple([new if known is old else known for known in function.allocs])
    return function.with_(body=body, allocs=allocs)


@dataclass(frozen=True, slots=True)
class _Window:
    """An iteration computes `size` places from `first` on of the dimension `axis`, in the loop
    `inner`, and moves on by `step` at most."""

    axis: int
    inner: For
    size: int
    step: int
    first: Expr


def _own_buffer(place: Place, buffer: str, step: str) -> Buffer:
    function, node = place.function, place.node

    def deny(reason: str) -> NoReturn:
        refuse(function, f"{step}: {reason}", node.name)

    written = buffers_written(node)
    old = next((each for each in written if each.name == buffer), None)
    if old is None:
        names = ", ".join([repr(each.name) for each in written]) or "nothing"
        deny(f"the block does not write that buffer; it writes {names}")
    if len(written) > 1:
        deny("the block writes several buffers")
    if old not in function.allocs:
        deny("it is an output, whose elements must all be kept")
    others = [other.name for other in writers(function, old) if other is not node]
    if others:
        deny(f"{old.name!r} is also written by {', '.join(others)}")
    kinds = {it.kind for it in node.iters}
    if "ordered" in kinds or ("reduce" in kinds and node.init is None):
        deny("the block is neither complete nor a reduction with its init")
    spatial = {it.var for it in node.iters if it.kind == "spatial"}
    for store in walk(node):
        if type(store) is Store and (
            set(store.indices) != spatial or len(store.indices) != len(spatial)
        ):
            deny("the indices of its store are not exactly its spatial iterators, each once")
    if kinds == {"spatial"} and loads(node, old):
        deny(f"it reads {old.name!r}, which it writes itself")
    return old


def _rolled(place: Place, old: Buffer, step: str) -> tuple[Place, _Window]:
    """The innermost loop around all that uses the buffer whose iterations share a part, and its window."""
    refusal: ScheduleError | None = None
    for at in _loops(place, old, step):
        try:
            return at, _window(place, at, step)
        except ScheduleError as error:
            refusal = refusal or error
    assert refusal is not None  # there is a loop, and it has no window
    raise refusal


def _loops(place: Place, old: Buffer, step: str) -> list[Place]:
    """The loops around all that uses the buffer, innermost first, as far out as they run in order."""
    function = place.function
    total = loads(function.body, old)
    found: list[Place] = []
    for loop in reversed(place.loops):
        users = [each for each in blocks_below(loop) if loads(each, old) and each is not place.node]
        if constant(loop.extent) == 1 or loads(loop.body, old) < total or not users:
            continue
        reason = _disorder(place, loop, old)
        if reason is not None and not found:
            refuse(function, f"{step}: {reason}", loop.var.name)
        if reason is not None:
            break
        found.append(place.up_to(loop))
    if not found:
        reason = f"no loop is around both the block and all that reads {old.name!r}"
        refuse(function, f"{step}: {reason}; put it there with compute_at", place.node.name)
    return found


def _disorder(place: Place, loop: For, old: Buffer) -> str | None:
    """Why what an iteration of a loop leaves is not there for the block in the next one."""
    if loop.kind not in ("serial", "unrolled") or not starts_at_zero(loop):
        return f"loop {loop.var.name!r} is {kind_text(loop)}; its iterations must run in order"
    depth = len(place.up_to(loop).path)
    branch = place.path[depth]
    inside = place.path[depth + 1] if type(branch) is Seq else branch
    stmts = branch.stmts if type(branch) is Seq else (branch,)
    if any(loads(stmt, old) for stmt in stmts[: next(i for i, s in enumerate(stmts) if s is inside)]):
        return f"{old.name!r} is read before the block in the loop"
    return None


def _window(place: Place, at: Place, step: str) -> _Window:
    function, node, loop = place.function, place.node, at.node
    moving = [it for it in node.iters if uses(it.binding, (loop.var,))]
    if len(moving) != 1 or moving[0].kind != "spatial":
        names = ", ".join([repr(it.var.name) for it in moving]) or "none"
        reason = f"one spatial iterator must move with loop {loop.var.name!r}, not {names}"
        refuse(function, f"{step}: {reason}", loop.var.name)
    it = moving[0]
    own = [each for each in place.loops[len(at.loops) + 1 :] if uses(it.binding, (each.var,))]
    paces = None
    if len(own) == 1 and starts_at_zero(own[0]):
        first = simplify(it.binding - own[0].var, place.domain())
        paces = None if uses(first, (own[0].var,)) else _paces(first, at)
    if paces is None or paces[0] < 0 or paces[1] < 1:
        reason = f"{it.var.name!r} is not of the form {loop.var.name} * step + another loop"
        refuse(function, f"{step}: {reason}", node.name)
    size, pace = constant(own[0].extent), paces[1]
    if size is None or size <= pace:
        reason = f"iterations of {loop.var.name!r} compute parts that do not overlap"
        refuse(function, f"{step}: {reason}, so nothing can be kept", loop.var.name)
    store = next(stmt for stmt in walk(node.body) if type(stmt) is Store)
    axis = next(i for i, each in enumerate(store.indices) if each is it.var)
    return _Window(axis, own[0], size, pace, first)


def _paces(first: Expr, at: Place) -> tuple[int, int] | None:
    """By how much a place moves on from an iteration to the next, at least and at most; None where that
    is not known."""
    loop: For = at.node
    moved = simplify(substitute(first, {loop.var: loop.var + 1}) - first, at.domain())
    if is_const(moved):
        return moved.value, moved.value
    count = constant(loop.extent)
    if count is None or count > _MOST_ITERATIONS or variables(moved) - {loop.var}:
        return None
    paces = [constant(simplify(substitute(moved, {loop.var: index(n)}))) for n in range(count - 1)]
    known = [pace for pace in paces if pace is not None]
    return (min(known), max(known)) if known and len(known) == len(paces) else None


def _check_invariant(place: Place, at: Place, window: _Window, step: str) -> None:
    """Refuse where an instance that both an iteration and the next reach is not run by both."""
    function, loop = place.function, at.node
    at_place = {window.inner.var: Var("place") - window.first}
    for part in conjuncts(place.node.predicate):
        if uses(simplify(substitute(part, at_place)), (loop.var,)):
            reason = "its predicate is not the same for what two iterations share"
            refuse(function, f"{step}: {reason}", place.node.name)
    for each in place.loops[len(at.loops) + 1 :]:
        if uses(each.extent, (loop.var,)) or uses(each.start, (loop.var,)):
            reason = f"the range of {each.var.name!r} changes with loop {loop.var.name!r}"
            refuse(function, f"{step}: {reason}", each.var.name)


def _check_inputs(place: Place, at: Place, step: str) -> None:
    """Refuse where what the block reads may change between two iterations."""
    function, node = place.function, place.node
    below = blocks_below(at.node)
    for source in buffers_read(node):
        if source in buffers_written(node):
            continue
        changing = [each for each in below if source in buffers_written(each)]
        for each in changing:
            ordered = any(it.kind == "ordered" for it in each.iters)
            alone = len(writers(function, source)) == 1
            own = loads(each, source) and each.init is None
            if ordered or own or not alone:
                reason = f"it reads {source.name!r}, which {each.name!r} changes in the loop"
                refuse(function, f"{step}: {reason}", each.name)


def _check_reads(place: Place, at: Place, old: Buffer, window: _Window, step: str) -> None:
    """Refuse where an iteration reads what lies outside the part that it would compute."""
    function = place.function
    body = at.node.body
    domain = Place(function, (*at.path, body)).domain()
    last = window.first + (window.size - 1)
    for access in accesses(body, old, domain):
        span = access.span(access.indices[window.axis])
        if span is None or not _lies_in(span, window.first, last, access.domain):
            reason = f"an iteration may read {old.name!r} outside the {window.size} places that it "
            refuse(function, f"{step}: {reason}computes", place.node.name)


def _lies_in(span: Span, first: Expr, last: Expr, domain) -> bool:
    return can_prove(span.lo >= first, domain) and can_prove(span.hi <= last, domain)
