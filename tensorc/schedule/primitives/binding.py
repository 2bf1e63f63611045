"""The loop primitive that binds loops to the axes of hardware threads."""

from __future__ import annotations

from tensorc.arith import can_prove
from tensorc.ir.expr import Load, eq
from tensorc.ir.function import Function
from tensorc.ir.stmt import THREAD_AXES, For, annotate, annotation
from tensorc.ir.walk import uses, walk, walk_expr
from tensorc.schedule.legality import check_iterations_apart
from tensorc.schedule.locate import Place, block_places, constant, find_loop, refuse, replace, root_domain
from tensorc.schedule.primitives.loops import check_iterators
from tensorc.schedule.primitives.reduction import mark_starts

_ONE_NUMBER = "a kernel starts with one number of threads"


def bind(function: Function, loop: str, thread_axis: str) -> Function:
    """Let the iterations of a loop be the threads of an axis: "blockIdx.x", "threadIdx.y", "vthread.z".

    for v in 0 .. E: B  ->  for v in 0 .. E thread {thread = "threadIdx.x"}: B

    A kernel is an outermost loop with all below it. On a CPU, loops bound to "blockIdx" are parallel and the others
    serial.

    A kind or an axis that the loop had is no more.

    Requires what `parallel` does; that no loop around or below is bound to the same axis, which would be one and the
    same index there; and an extent that the kernel's start can tell: constant for "vthread", else made of the
    function's scalars, and that of the kernel's other loops of this axis. Raises ScheduleError where a requirement is
    not met.
    """
    step = f"bind(loop {loop!r}, {thread_axis!r})"
    if thread_axis not in THREAD_AXES:
        refuse(function, f"{step}: there is no such thread axis; known are {', '.join(THREAD_AXES)}", loop)
    place = find_loop(function, loop)
    node: For = place.node
    if node.kind == "thread" and _axis(node) == thread_axis:
        return function
    _check_path(step, place, thread_axis)
    _check_extent(step, place, thread_axis)
    places = block_places(place)
    check_iterators(step, place, places, "rfactor gives each iteration a result of its own")
    check_iterations_apart(step, place, places)
    notes = annotate(node.annotations, "thread", thread_axis)
    function = replace(place, For(node.var, node.start, node.extent, "thread", node.body, notes))
    return mark_starts(function, loop, lambda f, copy: bind(f, copy, thread_axis))


def _axis(loop: For) -> str | None:
    return annotation(loop, "thread")


def _check_path(step: str, place: Place, axis: str) -> None:
    loop = place.node.var.name
    outer = next((each for each in place.loops if each.kind == "vectorized"), None)
    if outer is not None:
        refuse(place.function, f"{step}: it lies in the vectorized loop {outer.var.name!r}", loop)
    below = [stmt for stmt in walk(place.node.body) if type(stmt) is For]
    twice = next((each for each in (*place.loops, *below) if _axis(each) == axis), None)
    if twice is not None:
        message = f"loop {twice.var.name!r} around or in it is bound to that axis, which has one index"
        refuse(place.function, f"{step}: {message}", loop)


def _check_extent(step: str, place: Place, axis: str) -> None:
    function, node, loop = place.function, place.node, place.node.var.name
    if axis.startswith("vthread"):
        if constant(node.extent) is None:
            refuse(function, f"{step}: the extent is not constant; split it first", loop)
        return
    outer = next((each.var.name for each in place.loops if uses(node.extent, (each.var,))), None)
    if outer is not None:
        refuse(function, f"{step}: the extent depends on loop {outer!r}; {_ONE_NUMBER}", loop)
    if any(type(each) is Load for each in walk_expr(node.extent)):
        refuse(function, f"{step}: the extent is loaded from data; {_ONE_NUMBER}", loop)
    domain = root_domain(function)
    kernel = (*place.loops, node)[0]
    for each in walk(kernel):
        if type(each) is For and _axis(each) == axis and not can_prove(eq(each.extent, node.extent), domain):
            message = f"loop {each.var.name!r} of the same kernel has another extent on that axis"
            refuse(function, f"{step}: {message}; {_ONE_NUMBER}", loop)
