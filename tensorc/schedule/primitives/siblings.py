"""Nests that stand side by side: one loop made two, and two or more made one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorc.arith import Domain, can_prove
from tensorc.ir.expr import Expr, Load, Var, eq, logical_and
from tensorc.ir.function import Function
from tensorc.ir.printer import show
from tensorc.ir.stmt import Block, For, Seq, Stmt, annotate, seq
from tensorc.ir.walk import map_substmts, substmts, walk, walk_expr
from tensorc.schedule.dependence import common_sequence, conflict, meeting, parts_of, position
from tensorc.schedule.legality import check_only_blocks
from tensorc.schedule.locate import (
    Place,
    blocks_below,
    find_block,
    find_loop,
    fresh,
    kind_text,
    loop_names,
    refuse,
    replace,
    starts_at_zero,
)  # fmt: skip
from tensorc.schedule.primitives.loops import found_loops, loops_text, substituted
from tensorc.schedule.regions import larger


def fission(function: Function, loop: str, after: str) -> tuple[Function, tuple[str, ...]]:
    """Make two loops of one: what follows a block below it moves to a loop of its own.

    for i: { S;  T }  with the block of S  ->  for i: S;  for i: T

    The gap is behind the innermost statement around the block that something follows; the loops
    between it and `loop` are made two as well. The loops of the second part are named after its
    first block: "C.i" becomes "D.i", unless the block C is there. Requires serial or unrolled loops
    from `loop` to the gap with nothing but loops between, and that no iteration of the second part
    touches what a later iteration of the first one writes (nor writes what it touches), save that
    the first part may write again the values that were there. Returns the function and the names of
    the two outermost loops. Raises ScheduleError where a requirement is not met.
    """
    step = f"fission(loop {loop!r}, after {after!r})"
    place, last = find_loop(function, loop), find_block(function, after)
    if not any(stmt is place.node for stmt in last.path):
        refuse(function, f"{step}: the loop is not around the block", loop)
    check_only_blocks(step, place)
    start, path = len(place.path) - 1, last.path
    gap = _gap(step, place, last)
    sequence, at = path[gap], position(path[gap], path[gap + 1]) + 1
    first, second = seq(*substmts(sequence)[:at]), seq(*substmts(sequence)[at:])
    taken = loop_names(function)
    names: tuple[str, ...] = ()
    for depth in range(gap - 1, start - 1, -1):
        node = path[depth]
        if type(node) is Seq:
            number = position(node, path[depth + 1])
            first = seq(*node.stmts[:number], first)
            second = seq(second, *node.stmts[number + 1 :])
            continue
        if type(node) is not For or node.kind not in ("serial", "unrolled"):
            what = f"the {node.kind} loop {node.var.name!r}" if type(node) is For else "a condition"
            refuse(function, f"{step}: {what} cannot be made two; only serial and unrolled loops can", loop)
        _check_apart(step, Place(function, path[:depth]), node, first, second)
        first, second = _loops(node, first, second, taken)
        names = (first.var.name, second.var.name)
    return replace(place, seq(first, second)), names


def _gap(step: str, place: Place, last: Place) -> int:
    """The position in the path to a block of the innermost sequence that goes on behind it."""
    for depth in range(len(last.path) - 2, len(place.path) - 1, -1):
        node = last.path[depth]
        if type(node) is Seq and node.stmts[-1] is not last.path[depth + 1]:
            return depth
    name = last.node.name
    refuse(place.function, f"{step}: nothing in the loop follows {name!r}", name)


def _check_apart(step: str, around: Place, node: For, first: Stmt, second: Stmt) -> None:
    """Refuse where `second` may not run after all iterations of `first`."""
    loop = For(node.var, node.start, node.extent, node.kind, seq(first, second), node.annotations)
    count = len(first.stmts) if type(first) is Seq else 1
    problem = conflict(Place(around.function, (*around.path, loop)), *parts_of(
        Place(around.function, (*around.path, loop)), count
    ))  # fmt: skip
    if problem is not None:
        refuse(around.function, f"{step}: {problem}", node.var.name)


def _loops(node: For, first: Stmt, second: Stmt, taken: set[str]) -> tuple[For, For]:
    """The two loops; the one that holds the block which the loop is named after keeps its name."""
    block, _, rest = node.var.name.partition(".")
    names = [each.name for each in blocks_below(second)]
    stays = block not in names
    other = blocks_below(first)[0].name if not stays else names[0]
    new = Var(fresh(f"{other}.{rest or block}", taken))
    taken.add(new.name)
    old = node.var
    a, b = (old, new) if stays else (new, old)
    return _with_var(node, a, first), _with_var(node, b, second)


def _with_var(node: For, var: Var, body: Stmt) -> For:
    if var is not node.var:
        body = substituted(body, {node.var: var}, None, Domain())
    return For(var, node.start, node.extent, node.kind, body, node.annotations)


def merge(function: Function, loops: Sequence[str]) -> tuple[Function, str]:
    """Make one loop of loops in nests side by side, which run in the order of the program.

    for i: for j: S;  for p: for q: T   with (j, q)   ->   for i: for j: { S;  T }

    The loops around each, out to where the nests part, are merged as well; the names are those of
    the first one given. Requires two or more serial loops that start at 0, as deep in their nests
    and of the same extents, each but the innermost with one child; that the nests can be brought
    together past the statements between them; and that nothing that a nest does depends on later
    iterations of one before it. Returns the function and the name of the merged loop. Raises
    ScheduleError where a requirement is not met.
    """
    step = f"merge({loops_text(loops)})"
    places = found_loops(step, function, loops)
    if len(places) < 2:
        refuse(function, f"{step}: give two loops or more", places[0].node.var.name)
    kept = loops[0]
    for other in loops[1:]:
        function = _merge(step, function, find_loop(function, kept), find_loop(function, other))
    return function, kept


def compute_with(function: Function, block: str, other: str, loop: str) -> Function:
    """Run the nest of a block in the loops of another one's, from the outermost to `loop`.

    for i: for j: D;  for y: for x: C   with loop i of D   ->   for i: { for j: D;  for x: C }

    The two keep their order: what came first comes first in each iteration. Where the extents of two
    loops differ, or may, the one loop has the greater one, and the blocks of the shorter one a
    condition; the loop is annotated ("tail", "cut"). Requires `loop` to be around `other` and not
    around the block, and of the loops what `merge` does but for the extents. Raises ScheduleError
    where a requirement is not met.
    """
    step = f"compute_with(block {block!r}, other {other!r}, loop {loop!r})"
    source, target = find_block(function, block), find_block(function, other)
    place = find_loop(function, loop)
    if not any(stmt is place.node for stmt in target.path):
        refuse(function, f"{step}: the loop is not around {other!r}", loop)
    if any(stmt is place.node for stmt in source.path):
        refuse(function, f"{step}: the loop is around {block!r} already", loop)
    shared = _parting(step, source, place)
    depth = len([stmt for stmt in place.path[shared:] if type(stmt) is For])
    own = [stmt for stmt in source.path[shared:] if type(stmt) is For]
    if len(own) < depth:
        message = f"{block!r} has {len(own)} loops of its own there, {loop!r} is number {depth}"
        refuse(function, f"{step}: {message}", block)
    return _merge(step, function, place, source.up_to(own[depth - 1]), is_guarded=True)


def _parting(step: str, a: Place, b: Place) -> int:
    shared = common_sequence(a, b)
    if shared is None:
        refuse(a.function, f"{step}: they do not lie in nests side by side", b.node.var.name)
    return shared


def _merge(
    step: str, function: Function, kept: Place, other: Place, is_guarded: bool = False
) -> Function:
    """The function with the loops of two nests made one, under the names of `kept`; `is_guarded`
    where their extents may differ."""
    shared = _parting(step, kept, other)
    sequence = kept.path[shared]
    chains = [_chain(step, place, shared) for place in (kept, other)]
    if len(chains[0]) != len(chains[1]):
        counts = f"{len(chains[0])} and {len(chains[1])} loops"
        refuse(function, f"{step}: where the nests part they are {counts} deep", other.node.var.name)
    for place in (kept, other):
        check_only_blocks(step, place.up_to(place.path[shared + 1]))
    tops = sorted([position(sequence, place.path[shared + 1]) for place in (kept, other)])
    at = _together(step, function, sequence, tops)
    is_first = substmts(sequence)[tops[0]] is kept.path[shared + 1]
    around = Place(function, kept.path[: shared + 1])
    guards = _Guards() if is_guarded else None
    merged = _merged(step, around, chains[0], chains[1], is_first, guards)
    stmts = [stmt for i, stmt in enumerate(substmts(sequence)) if i not in tops]
    stmts.insert(at, merged)
    return replace(around, seq(*stmts))


def _chain(step: str, place: Place, shared: int) -> list[For]:
    chain: list[For] = []
    for node in place.path[shared + 1 :]:
        if type(node) is not For:
            message = f"{place.node.var.name!r} is not the only child of the loops around it"
            refuse(place.function, f"{step}: {message}", place.node.var.name)
        if node.kind != "serial":
            message = f"loop {node.var.name!r} is {kind_text(node)}; only serial loops can be merged"
            refuse(place.function, f"{step}: {message}", node.var.name)
        if not starts_at_zero(node):
            refuse(
                place.function,
                f"{step}: loop {node.var.name!r} does not start at 0",
                node.var.name,
            )
        chain.append(node)
    return chain


def _together(step: str, function: Function, sequence: Stmt, tops: Sequence[int]) -> int:
    """Where in the sequence, without the two nests, they can stand together."""
    first, second = [blocks_below(substmts(sequence)[top]) for top in tops]
    between = [b for stmt in substmts(sequence)[tops[0] + 1 : tops[1]] for b in blocks_below(stmt)]
    problem = meeting(between, second)
    if problem is None:
        return tops[0]
    if meeting(first, between) is None:
        return tops[1] - 1
    refuse(
        function,
        f"{step}: the nests cannot come together past what stands between: {problem}",
        second[0].name,
    )


def _merged(
    step: str,
    around: Place,
    kept: Sequence[For],
    other: Sequence[For],
    is_first: bool,
    guards: _Guards | None,
) -> For:
    """The nest of both, checked from the outermost loop inward; without guards the extents must be
    the same."""
    a, b = kept[0], other[0]
    extent = a.extent
    if not can_prove(eq(a.extent, b.extent), around.domain()):
        if guards is None:
            message = (
                f"loop {a.var.name!r} has {show(a.extent)} iterations, {b.var.name!r} has "
                f"{show(b.extent)}"
            )
            refuse(around.function, f"{step}: {message}", b.var.name)
        extent, guards = guards.within(a, b, around.domain())
    mine, its = a.body, substituted(b.body, {b.var: a.var}, None, Domain())
    if guards is not None:
        for loop, conditions in ((a, guards.mine), (b, guards.its)):
            ragged = _loaded_range(loop.body) if conditions else None
            if ragged is not None:
                message = (
                    f"the range of {ragged.var.name!r} is loaded, which is not known to be there "
                    f"past the end of {loop.var.name!r}, the shorter one"
                )
                refuse(around.function, f"{step}: {message}", ragged.var.name)
        mine, its = _guarded(mine, guards.mine), _guarded(its, guards.its)
    first, second = (mine, its) if is_first else (its, mine)
    notes = tuple(sorted({**dict(b.annotations), **dict(a.annotations)}.items()))
    if extent is not a.extent or extent != b.extent:
        notes = annotate(notes, "tail", "cut")
    loop = For(a.var, a.start, extent, a.kind, seq(first, second), notes)
    place = Place(around.function, (*around.path, loop))
    count = len(first.stmts) if type(first) is Seq else 1
    problem = conflict(place, *parts_of(place, count))
    if problem is not None:
        refuse(around.function, f"{step}: {problem}", b.var.name)
    if len(kept) == 1:
        return loop
    inner = _substituted_chain(other[1:], {b.var: a.var})
    body = _merged(step, place, kept[1:], inner, is_first, guards)
    return For(a.var, a.start, extent, a.kind, body, notes)


def _loaded_range(stmt: Stmt) -> For | None:
    """A loop in a statement whose range is told by data."""
    for each in walk(stmt):
        if type(each) is For and any(
            type(e) is Load for end in (each.start, each.extent) for e in walk_expr(end)
        ):
            return each
    return None


@dataclass(frozen=True, slots=True)
class _Guards:
    """Where the blocks of either nest run, in the loops made one of two of other extents."""

    mine: tuple[Expr, ...] = ()
    its: tuple[Expr, ...] = ()

    def within(self, a: For, b: For, domain: Domain) -> tuple[Expr, _Guards]:
        """The extent of the loop made of two, under the variable of the first, and the guards in it."""
        extent = larger(a.extent, b.extent, domain)
        mine, its = [
            () if can_prove(extent <= each, domain) else (a.var < each,)
            for each in (a.extent, b.extent)
        ]
        return extent, _Guards((*self.mine, *mine), (*self.its, *its))


def _guarded(stmt: Stmt, conditions: Sequence[Expr]) -> Stmt:
    """A statement whose blocks run only where conditions hold."""
    if not conditions:
        return stmt
    if type(stmt) is Block:
        predicate = logical_and(*conditions, stmt.predicate)
        return Block(stmt.name, stmt.iters, predicate, stmt.init, stmt.body, stmt.annotations)
    return map_substmts(stmt, lambda inner: _guarded(inner, conditions))


def _substituted_chain(chain: Sequence[For], values) -> list[For]:
    new = substituted(chain[0], values, None, Domain())
    return [stmt for stmt in walk(new) if type(stmt) is For][: len(chain)]
