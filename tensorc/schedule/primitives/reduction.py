"""Reduction primitives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from tensorc.arith import Domain, can_prove, simplify
from tensorc.errors import ScheduleError
from tensorc.ir.empty import empty_condition, empty_start, reduce_loops
from tensorc.ir.expr import Expr, Var, eq, index, is_const, logical_and, logical_not
from tensorc.ir.function import Function
from tensorc.ir.reducer import without_identities
from tensorc.ir.stmt import Block, BlockIter, For, Stmt, annotate
from tensorc.ir.walk import copy_nest, rewrite_stmts, substitute, substitute_stmt, uses, variables
from tensorc.schedule.legality import conjuncts, is_injective, is_zero_only_first
from tensorc.schedule.locate import (
    Place,
    block_names,
    blocks_below,
    find_block,
    find_loop,
    fresh,
    fresh_block,
    insert_before,
    loop_names,
    refuse,
    replace,
    root_domain,
)  # fmt: skip
from tensorc.schedule.regions import buffers_read, buffers_written


def decompose_reduction(function: Function, block: str, loop: str) -> tuple[Function, str]:
    """Make the init of a reduction a block of its own, which runs just before a loop around it.

    for i: for k: C[i] = 0 where k is 0; C[i] = C[i] + f(i, k)   with loop k
      ->  for i: { C_init: C[i] = 0;  for k: C[i] = C[i] + f(i, k) }

    The loops of spatial iterators from `loop` inward are copied for the new block, with their
    kinds. Where reduce loops stay outside, it runs only in their first iteration, and if they may
    have none, a block <block>_empty before them makes the init for that case. Requires a block
    with an init, a loop around it, no ordered iterator bound to the loops from `loop` inward, and that
    these meet each point of the block once. Returns the function and the name of the new block. Raises
    ScheduleError where a requirement is not met.
    """
    place = find_block(function, block)
    at = find_loop(function, loop).node
    step = f"decompose_reduction(block {block!r}, loop {loop!r})"
    inner = _loops_from(step, place, at)
    _check_block(step, place, at, inner)
    copied, dropped = _sorted_loops(place, inner)
    for each in inner:
        if uses(each.extent, dropped) or uses(each.start, dropped):
            refuse(
                function,
                f"{step}: the range of {each.var.name!r} depends on a reduce loop",
                each.var.name,
            )
    name = fresh_block(function, f"{block}_init")
    new = _init_nest(place, name, at, copied, dropped)
    outside = len(place.loops) - (len(inner) if dropped else 0)
    function = _with_empty_start(insert_before(place.up_to(at), new), block, outside)
    return _without_init(function, block), name


def mark_starts(function: Function, loop: str, mark: Callable[[Function, str], Function]) -> Function:
    """Mark, as a loop was, its copies in the blocks that `decompose_reduction` made of the starts of blocks below it,
    so that it makes no difference which of the two steps came first.

    Copies that have a kind of their own keep it; one that may not have this kind stays serial.
    """
    for block in blocks_below(find_loop(function, loop).node):
        for start in (f"{block.name}_init", f"{block.name}_empty"):
            copy = _renamed(loop, block.name, start)
            if _is_start(function, start, copy, block):
                with suppress(ScheduleError):
                    function = mark(function, copy)
    return function


def _is_start(function: Function, name: str, loop: str, block: Block) -> bool:
    """Whether a block of this name, in a serial loop of this name, makes the start of another block."""
    if block.init is not None or name not in block_names(function) or loop not in loop_names(function):
        return False
    start = find_block(function, name)
    made, changed = buffers_written(start.node), buffers_written(block)
    around = next((each for each in start.loops if each.var.name == loop), None)
    return around is not None and around.kind == "serial" and made == changed and start.node.init is None


def _loops_from(step: str, place: Place, at: For) -> tuple[For, ...]:
    loops = place.loops
    for i, each in enumerate(loops):
        if each is at:
            return loops[i:]
    refuse(place.function, f"{step}: the loop is not around the block", at.var.name)


def _check_block(step: str, place: Place, at: For, inner: Sequence[For]) -> None:
    node, function = place.node, place.function
    if node.init is None:
        refuse(
            function,
            f"{step}: the block has no init: it reduces nothing, or was decomposed",
            node.name,
        )
    for other in blocks_below(at):
        for buffer in buffers_read(node.init):
            if other is not node and buffer in buffers_written(other):
                message = f"its init reads {buffer.name!r}, which {other.name!r} writes in that loop"
                refuse(function, f"{step}: {message}", other.name)
    moving = [each.var for each in inner]
    for it in node.iters:
        if it.kind == "ordered" and uses(it.binding, moving):
            message = f"the ordered iterator {it.var.name!r} moves in the loops from there inward"
            refuse(function, f"{step}: {message}", node.name)
    reducing = [it.binding for it in node.iters if it.kind == "reduce"]
    for each in place.loops[: -len(inner)]:
        if each.kind == "vectorized" and any(uses(binding, (each.var,)) for binding in reducing):
            message = f"it lies in the vectorized reduce loop {each.var.name!r}; choose that one"
            refuse(function, f"{step}: {message}", at.var.name)
    domain = place.domain()
    if not is_const(node.predicate):
        domain = domain.given(node.predicate)
    if not is_injective([it.binding for it in node.iters], inner, domain):
        message = "the loops from there inward may meet a point of the block twice"
        refuse(function, f"{step}: {message}", at.var.name)


def _sorted_loops(place: Place, inner: Sequence[For]) -> tuple[list[For], dict[Var, Expr]]:
    """The loops to copy, and the reduce loops to leave out, with the values that they have at their
    start.

    Reduce loops are left out if the reduce iterators are 0 nowhere but at their start; else they
    are copied like the others, and the predicate of the new block finds the iteration. So they are
    for a result without elements, where it may be any loop that never runs.
    """
    if any(it.kind == "spatial" and is_const(it.extent, 0) for it in place.node.iters):
        return list(inner), {}
    spatial = [it.binding for it in place.node.iters if it.kind == "spatial"]
    only = [loop for loop in inner if not any(uses(binding, (loop.var,)) for binding in spatial)]
    if not is_zero_only_first(place, only):
        return list(inner), {}
    dropped: dict[Var, Expr] = {loop.var: index(0) for loop in only}
    return [loop for loop in inner if loop.var not in dropped], dropped


def _init_nest(place: Place, name: str, at: For, copied: Sequence[For], dropped) -> Stmt:
    node: Block = place.node
    domain = place.up_to(at).domain()
    taken = loop_names(place.function)
    values: dict[Var, Expr] = dict(dropped)
    loops: list[For] = []
    for loop in copied:
        var = loop.var.copy(fresh(_renamed(loop.var.name, node.name, name), taken))
        taken.add(var.name)
        start, extent = substitute(loop.start, values), substitute(loop.extent, values)
        loops.append(For(var, start, extent, loop.kind, node, loop.annotations))
        values[loop.var] = var
        domain = domain.bind(var, start, extent)
    predicate = substitute(_without_reduced(place, at, dropped), values)
    nest: Stmt = _init_block(node, name, values, simplify(predicate, domain), domain)
    for loop in reversed(loops):
        nest = For(loop.var, loop.start, loop.extent, loop.kind, nest, loop.annotations)
    return nest


def _with_empty_start(function: Function, block: str, outside: int) -> Function:
    """The function with a block for the case that reduce loops among the first do not run."""
    place = find_block(function, block)
    node: Block = place.node
    empty = empty_condition(node)
    if empty is None or can_prove(logical_not(empty), root_domain(function)):
        return function
    reducing = reduce_loops(node)
    for at, each in enumerate(place.loops[:outside]):
        if each.var in reducing:
            name = fresh_block(function, f"{block}_empty")
            taken = loop_names(function)

            def renamed(loop: str) -> str:
                taken.add(new := fresh(_renamed(loop, block, name), taken))  # noqa: B023 - it is called at once
                return new

            conditions = place.conditions_from(each)
            nest = empty_start(place.loops[at:], node, name, conditions, renamed)
            return insert_before(place.up_to(each), _with_own_blocks(nest, block_names(function)))
    return function


def _with_own_blocks(stmt: Stmt, taken: set[str]) -> Stmt:
    """A copy of a nest whose blocks, and those in them, have iterators and names of their own."""

    def rename(inner: Stmt) -> Stmt | None:
        if type(inner) is not Block or inner.name not in taken:
            return None
        new = Block(fresh(inner.name, taken), inner.iters, inner.predicate, inner.init, inner.body, inner.annotations)
        taken.add(new.name)
        return new

    return rewrite_stmts(copy_nest(stmt), rename)


def _renamed(loop: str, block: str, new: str) -> str:
    loop = loop.removeprefix(f"{block}_init.")
    return f"{new}.{loop[len(block) + 1 :]}" if loop.startswith(f"{block}.") else f"{new}.{loop}"


def _without_reduced(place: Place, at: For, dropped) -> Expr:
    """The predicate of a block, and the conditions around it from `at` inward, but for what tells where
    the reduction ends: its start is before.

    Where that depends on loops that stay, it is what holds at the start of a range that is not empty.
    """
    node, conditions = place.node, place.conditions_from(at)
    domain = place.up_to(at).domain() if conditions else place.domain()
    spatial = [it.binding for it in node.iters if it.kind == "spatial"]
    around = {var for binding in spatial for var in variables(binding)}
    for it in node.iters:
        if it.kind == "reduce":
            domain = domain.given(simplify(it.extent, domain) >= 1, loads=True)

    def is_end(c: Expr) -> bool:
        return not uses(c, around) or can_prove(substitute(c, dropped), domain)

    held = conjuncts(logical_and(*conditions, node.predicate))
    return logical_and(*[c for c in held if not uses(c, dropped) or not is_end(c)])


def _init_block(node: Block, name: str, values, predicate: Expr, domain: Domain) -> Block:
    iters, inner = [], {}
    for it in node.iters:
        binding = simplify(substitute(it.binding, values), domain)
        if it.kind != "reduce":
            inner[it.var] = var = it.var.copy()
            iters.append(BlockIter(var, it.extent, it.kind, binding))
        else:
            predicate = logical_and(predicate, simplify(eq(binding, 0), domain))
    assert node.init is not None  # or there would be nothing to take apart
    body = substitute_stmt(node.init, inner)
    notes = annotate(without_identities(node.annotations), "tensorize", None)  # the init is no part of it
    return Block(name, tuple(iters), predicate, None, body, notes)


def _without_init(function: Function, block: str) -> Function:
    place = find_block(function, block)
    node: Block = place.node
    new = Block(node.name, node.iters, node.predicate, None, node.body, node.annotations)
    return replace(place, new)
