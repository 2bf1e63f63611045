"""How loads and stores use the caches: asked for ahead of time, or passed by."""

from __future__ import annotations

from tensorc.arith import simplify
from tensorc.arith.spans import accesses, window
from tensorc.ir.expr import Buffer, Load, index
from tensorc.ir.function import Function
from tensorc.ir.stmt import PREFETCH, Block, For
from tensorc.ir.stmt import annotate as with_annotation
from tensorc.ir.walk import substitute, walk_expr
from tensorc.schedule.locate import (
    Place,
    block_names,
    find_block,
    find_loop,
    loop_names,
    refuse,
    replace,
)
from tensorc.schedule.regions import buffers_read, buffers_written, writers


def prefetch(function: Function, place: str, buffer: str, offset: int = 1) -> Function:
    """Ask for what a loop will read of a buffer `offset` iterations later, so that it is in the caches by then.

    for v in 0 .. 8: B   with ("A", 2)   ->   for v in 0 .. 8 {prefetch.A = 2}: B

    `place` is the loop, or a block, for the innermost loop around it that runs one iteration after the other.
    What is computed does not change, nor what may be accessed. The window is worked out when code is made, so that
    other steps may follow; what then cannot be followed, such as a window that the loop does not move any more, is
    left out.

    Requires a loop that is neither vectorized nor bound to threads, an offset of 1 or more, and that blocks below read
    the buffer, elsewhere in each iteration, and do not make it there. Where its indices are loaded from data, this
    must be data that the function does not write. Raises ScheduleError where a requirement is not met.
    """
    at = _loop_of(function, place, buffer)
    node: For = at.node
    loop = node.var.name
    step = f"prefetch(loop {loop!r}, {buffer!r})"
    if node.kind in ("vectorized", "thread"):
        refuse(function, f"{step}: it is a {node.kind} loop, whose iterations have no order to run ahead in", loop)
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < 1:
        refuse(function, f"{step}: {offset!r} is no number of iterations, 1 or more", loop)
    found = _read_below(step, at, buffer)
    _check_moves(step, at, found)
    notes = with_annotation(node.annotations, PREFETCH + found.name, offset)
    return replace(at, For(node.var, node.start, node.extent, node.kind, node.body, notes))


def _loop_of(function: Function, name: str, buffer: str) -> Place:
    """The place of the loop of this name, or of the innermost one around the block of this name."""
    if name not in block_names(function) or name in loop_names(function):
        return find_loop(function, name)
    place = find_block(function, name)
    around = [loop for loop in place.loops if loop.kind in ("serial", "parallel")]
    if not around:
        message = "there is no loop around the block that runs one iteration after the other"
        refuse(function, f"prefetch(block {name!r}, {buffer!r}): {message}", name)
    return place.up_to(around[-1])


def _read_below(step: str, place: Place, name: str) -> Buffer:
    function, loop = place.function, place.node.var.name
    read = {buffer.name: buffer for buffer in buffers_read(place.node.body)}
    if name not in read:
        there = ", ".join(read) or "nothing"
        refuse(function, f"{step}: no block below the loop reads {name!r}; they read {there}", loop)
    found = read[name]
    if found in function.allocs and found in buffers_written(place.node.body):
        refuse(function, f"{step}: {name!r} is made below the loop, and does not exist before", loop)
    return found


def _check_moves(step: str, place: Place, buffer: Buffer) -> None:
    """Refuse what is at the same place in each iteration, and places that are not known ahead."""
    function, loop = place.function, place.node
    domain = place.domain().bind(loop.var, loop.start, loop.extent)
    following = {loop.var: loop.var + 1}
    ends = [end for span in window(loop.body, buffer, domain) or () for end in (span.lo, span.hi)]
    moves = any(simplify(substitute(end, following) - end, domain) != index(0) for end in ends)
    for access in accesses(loop.body, buffer, domain):
        for expr in map(access.over_loops, access.indices):
            data = [e for e in walk_expr(expr) if type(e) is Load]
            for load in data if not access.is_store else ():
                made = writers(function, load.buffer)
                if made:
                    problem = f"where it is read depends on {load.buffer.name!r}, which {made[0].name!r} writes"
                    refuse(function, f"{step}: {problem}", loop.var.name)
            moves = moves or bool(data)
    if not moves:
        message = f"each iteration reads {buffer.name!r} at the same places"
        refuse(function, f"{step}: {message}", loop.var.name)


def stream(function: Function, block: str) -> Function:
    """Let the stores of a block go to memory past the caches, for output that is larger than these.

    block C: C[i] = S   ->   block C {stream = true}: C[i] = S

    An ordinary store first fetches the line that it writes into, and drives others out of the caches. What is computed
    does not change. Only vectors of consecutive elements go past the caches, and only where they start at a multiple of
    16 bytes as the kernel runs; others are stored as ever.

    Requires a block that does not read what it writes: it would wait for memory each time. Raises ScheduleError where a
    requirement is not met.
    """
    step = f"stream(block {block!r})"
    place = find_block(function, block)
    node: Block = place.node
    for buffer in buffers_written(node):
        if buffer in buffers_read(node):
            reason = "would come back from memory each time; only blocks that do not read what they write stream"
            refuse(function, f"{step}: it reads {buffer.name!r}, which it writes, and {reason}", block)
    notes = with_annotation(node.annotations, "stream", True)
    return replace(place, Block(node.name, node.iters, node.predicate, node.init, node.body, notes))
