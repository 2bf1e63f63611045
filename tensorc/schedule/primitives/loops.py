"""Loop primitives: split, fuse, reorder, and the kinds parallel, vectorized and unrolled."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NoReturn

from tensorc.arith import Domain, can_prove, simplify
from tensorc.ir.empty import empty_condition, starting_loops
from tensorc.ir.expr import (
    Expr,
    FloorDiv,
    Load,
    Mod,
    Var,
    eq,
    index,
    is_const,
    logical_and,
    logical_not,
    minimum,
)  # fmt: skip
from tensorc.ir.function import Function
from tensorc.ir.printer import show
from tensorc.ir.stmt import (
    Alloc,
    Annotations,
    Block,
    BlockIter,
    For,
    If,
    LoopKind,
    Seq,
    Stmt,
    annotate,
)  # fmt: skip
from tensorc.ir.walk import exprs, map_substmts, substitute, substitute_stmt, substmts, uses, walk_expr
from tensorc.schedule.legality import (
    accumulates,
    all_plain,
    check_iterations_apart,
    check_order,
    contains_kind,
    iters_using,
    overlap,
    simplified_predicate,
)  # fmt: skip
from tensorc.schedule.locate import (
    Place,
    bind_start,
    block_places,
    blocks_below,
    chain,
    constant,
    find_loop,
    fresh,
    kind_text,
    loop_names,
    refuse,
    replace,
    root_domain,
    starts_at_zero,
)  # fmt: skip
from tensorc.schedule.primitives.reduction import mark_starts
from tensorc.schedule.regions import buffers_written, gives_own_places, loads

TAILS = ("auto", "guard", "mask", "shift", "cut")
GREATEST_LANES = 1024
GREATEST_UNROLL = 1024
_GREATEST = 2**62


def split(
    function: Function, loop: str, factors: Sequence[int | None], tail: str = "auto"
) -> tuple[Function, tuple[str, ...]]:
    """Split a loop into a nest of `len(factors)` loops, outermost first; None stands for what the
    others leave.

    for v in 0 .. E: B(v)  ->  for v.0 in 0 .. f0: for v.1 in 0 .. f1: B(v.0*f1 + v.1)

    Where the factors do not divide the extent E, the blocks below run only where `v.0*f1 + v.1 <
    E`, and `tail` says what the passes make of it: "guard" leaves a condition, "mask" switches
    lanes off, "cut" makes loops of their own for the part that needs no condition and the rest;
    "auto" is "cut". "shift" needs no condition: the last part
    starts earlier, at `E - f1`, and does some points again.

    Requires a serial loop that starts at 0 and factors of 1 or more, at most one None, whose
    product is the extent or more. "shift" requires that the blocks below reduce nothing, and that E
    is proved to be f1 or more. Returns the function and the names of the new loops. Raises
    ScheduleError where a requirement is not met.
    """
    place = find_loop(function, loop)
    node: For = place.node
    step = f"split(loop {loop!r})"
    check_plain_loop(step, place)
    check_factors(step, place, factors)
    if tail not in TAILS:
        known = ", ".join(TAILS)
        refuse(function, f"{step}: tail {tail!r} is unknown; known are {known}", loop)
    domain = place.start_domain()
    is_starting = node.var in starting_loops(node)
    extents = _extents(step, place, factors, domain)
    names = _names(function, [f"{loop}.{number}" for number in range(len(extents))])
    new = [Var(name) for name in names]
    strides = _strides(extents)
    exact = _is_product(node.extent, extents[0] * strides[0], domain)
    if not exact and tail == "shift":
        value, condition = _shifted(step, place, new, strides, domain), None
    else:
        value = _weighted(new, strides)
        condition = None if exact else value < node.extent
    inside = domain
    for var, extent in zip(new, extents):
        inside = bind_start(inside, var, index(0), extent, (var,) if is_starting else ())
    body = substituted(node.body, {node.var: value}, condition, inside)
    annotations = node.annotations
    if condition is not None:
        annotations = annotate(annotations, "tail", "cut" if tail == "auto" else tail)
    for number in range(len(new) - 1, -1, -1):
        notes = annotations if number == 0 else ()
        body = For(new[number], index(0), extents[number], "serial", body, notes)
    return replace(place, body), tuple(names)


def check_plain_loop(step: str, place: Place) -> None:
    """Refuse a loop that is not serial, or does not start at 0."""
    node: For = place.node
    if node.kind != "serial":
        refuse(
            place.function,
            f"{step}: the loop is {kind_text(node)}; only serial loops can be",
            node.var.name,
        )
    if not starts_at_zero(node):
        refuse(place.function, f"{step}: the loop does not start at 0", node.var.name)


def check_factors(step: str, place: Place, factors) -> None:
    """Refuse what are no factors: integers of 1 or more, and at most one None."""
    name = place.node.var.name
    if not isinstance(factors, (list, tuple)) or not factors:
        refuse(
            place.function,
            f"{step}: factors must be a sequence of at least one, not {factors!r}",
            name,
        )
    for factor in factors:
        if factor is not None and (type(factor) is not int or factor < 1):
            refuse(
                place.function,
                f"{step}: factor {factor!r} is no integer of 1 or more, nor None",
                name,
            )
    if sum(factor is None for factor in factors) > 1:
        refuse(place.function, f"{step}: factors {factors_text(factors)} hold more than one None", name)


def factors_text(factors) -> str:
    """Factors as they are written in Python."""
    return f"({', '.join(map(str, factors))}{',' if len(factors) == 1 else ''})"


def _extents(step: str, place: Place, factors, domain: Domain) -> list[Expr]:
    name, extent = place.node.var.name, place.node.extent
    known = 1
    for factor in factors:
        known *= factor or 1
    if known > _GREATEST:
        refuse(
            place.function,
            f"{step}: factors {factors_text(factors)} multiply to more than an index holds",
            name,
        )
    if None in factors:
        size = constant(extent)
        divides = size is None and can_prove(eq(extent % known, 0), domain)
        rounded = extent if divides else extent + (known - 1)
        left = index(-(-size // known)) if size is not None else rounded // known
        left = simplify(left, domain)
        return [left if factor is None else index(factor) for factor in factors]
    if not can_prove(extent <= known, domain):
        message = (
            f"factors {factors_text(factors)} multiply to {known}, the extent is {_extent_text(extent)}"
        )
        refuse(place.function, f"{step}: {message}", name)
    return [index(factor) for factor in factors]


def _extent_text(extent: Expr) -> str:
    size = constant(extent)
    return "not constant; make one of them None" if size is None else str(size)


def _names(function: Function, wanted: Sequence[str]) -> list[str]:
    taken = loop_names(function)
    names: list[str] = []
    for name in wanted:
        names.append(fresh(name, taken))
        taken.add(names[-1])
    return names


def _strides(extents: Sequence[Expr]) -> list[Expr]:
    strides: list[Expr] = [index(1)]
    for extent in reversed(extents[1:]):
        strides.append(strides[-1] * extent)
    return strides[::-1]


def _weighted(new: Sequence[Var], strides: Sequence[Expr]) -> Expr:
    value: Expr = index(0)
    for var, stride in zip(new, strides):
        value = value + var * stride
    return value


def _is_product(extent: Expr, total: Expr, domain: Domain) -> bool:
    a, b = constant(extent), constant(total)
    if a is not None and b is not None:
        return a == b
    return can_prove(eq(extent, total), domain)


def _shifted(step: str, place: Place, new, strides, domain: Domain) -> Expr:
    node: For = place.node
    block = all_plain(node.body)
    if block is not None:
        message = f"block {block.name!r} below reduces or updates, so that no point may run again"
        refuse(place.function, f"{step}: tail 'shift': {message}", node.var.name)
    for each in blocks_below(node.body):
        for buffer in buffers_written(each):
            if loads(node.body, buffer) and not gives_own_places(each, buffer):
                message = f"{each.name!r} uses places of {buffer.name!r} again, so that no iteration "
                refuse(place.function, f"{step}: tail 'shift': {message}may run again", node.var.name)
    if not can_prove(node.extent >= strides[0], domain):
        message = "the extent is not proved to be as long as one part"
        refuse(place.function, f"{step}: tail 'shift': {message}", node.var.name)
    first = minimum(new[0] * strides[0], node.extent - strides[0])
    return first + _weighted(new[1:], strides[1:])


def substituted(
    stmt: Stmt, values: Mapping[Var, Expr], condition: Expr | None, domain: Domain
) -> Stmt:
    """A nest with loop variables replaced in loops and block bindings, and the blocks run only
    where `condition`; what is loaded to tell whether and how often they run, is loaded only there.

    A block that reduces over nothing starts before the loops that do not run, so that nothing is
    concluded from their running."""
    return _substituted(stmt, values, condition, domain, starting_loops(stmt))


def _substituted(
    stmt: Stmt,
    values: Mapping[Var, Expr],
    condition: Expr | None,
    domain: Domain,
    starting: frozenset[Var],
) -> Stmt:
    if condition is not None and type(stmt) is not Seq and type(stmt) is not Alloc and _has_range_by(stmt, values):
        # above all its loops: what runs where one of them is empty looks at the ranges, too
        return If(condition, _substituted(stmt, values, None, domain.given(condition), starting))
    match stmt:
        case For(var, start, extent, kind, body, annotations):
            start = _replaced(start, values, domain)
            extent = _replaced(extent, values, domain)
            inside = bind_start(domain, var, start, extent, starting)
            body = _substituted(body, values, condition, inside, starting)
            if start is stmt.start and extent is stmt.extent and body is stmt.body:
                return stmt
            return For(var, start, extent, kind, body, annotations)
        case Block(name, iters, predicate, init, body, annotations):
            if condition is None and not any(uses(e, values) for e in _bindings(stmt)):
                return stmt
            iters = tuple([_bound(it, values, domain) for it in iters])
            new = substitute(predicate, values)
            whole = new if condition is None else logical_and(new, condition)
            block = Block(name, iters, whole, init, body, annotations)
            if whole is predicate:
                return block
            predicate = simplified_predicate(block, domain)
            return Block(name, iters, predicate, init, body, annotations)
        case Seq() | Alloc():
            return map_substmts(
                stmt, lambda inner: _substituted(inner, values, condition, domain, starting)
            )
        case _:
            stmt = substitute_stmt(stmt, values)
            return stmt if condition is None else If(condition, stmt)


def _has_range_by(stmt: Stmt, values: Mapping[Var, Expr]) -> bool:
    """Whether the range of a loop is loaded from a place that depends on one of the variables, or on a loop whose
    range does, or what else a statement reads outside blocks, or before a block begins."""
    moved = set(values)
    for inner in (stmt, *_not_inside_blocks(stmt)):
        if any(_reads_by(e, moved) for e in exprs(inner)):
            return True
        if type(inner) is For and (uses(inner.start, moved) or uses(inner.extent, moved)):
            moved.add(inner.var)
    return False


def _not_inside_blocks(stmt: Stmt) -> Iterator[Stmt]:
    for inner in () if type(stmt) is Block else substmts(stmt):
        yield inner
        yield from _not_inside_blocks(inner)


def _reads_by(expr: Expr, values: Collection[Var]) -> bool:
    """Whether an expression loads an element whose place depends on one of the variables."""
    return any(type(e) is Load and uses(e, values) for e in walk_expr(expr))


def _bindings(block: Block) -> tuple[Expr, ...]:
    return (*[e for it in block.iters for e in (it.extent, it.binding)], block.predicate)


def _replaced(expr: Expr, values: Mapping[Var, Expr], domain: Domain) -> Expr:
    new = substitute(expr, values)
    return expr if new is expr else simplify(new, domain)


def _bound(it: BlockIter, values: Mapping[Var, Expr], domain: Domain) -> BlockIter:
    extent = _replaced(it.extent, values, domain)
    binding = _replaced(it.binding, values, domain)
    if binding is it.binding and extent is it.extent:
        return it
    return BlockIter(it.var, extent, it.kind, binding)


def fuse(function: Function, loops: Sequence[str]) -> tuple[Function, str]:
    """Make one loop of nested ones, given outermost first.

    for i in 0 .. E: for j in 0 .. F: B(i, j)  ->  for i_j in 0 .. E*F: B(i_j // F, i_j % F)

    Requires serial loops that start at 0, each the only child of the one before, no extent
    depending on another of them. Returns the function and the name of the new loop; one loop alone
    stays as it is. Raises ScheduleError where a requirement is not met.
    """
    step = f"fuse({loops_text(loops)})"
    places = found_loops(step, function, loops)
    nodes: list[For] = [place.node for place in places]
    for place in places:
        check_plain_loop(f"fuse(loop {place.node.var.name!r})", place)
    for outer, inner in pairwise(nodes):
        if outer.body is not inner:
            message = f"{inner.var.name!r} is not the only child of {outer.var.name!r}"
            refuse(function, f"{step}: {message}", inner.var.name)
    for node in nodes:
        if uses(node.extent, [each.var for each in nodes]):
            refuse(
                function,
                f"{step}: the extent of {node.var.name!r} depends on another of them",
                node.var.name,
            )
    if len(nodes) == 1:
        return function, nodes[0].var.name
    _check_not_empty(step, places[-1], nodes)
    domain = places[0].start_domain()
    extent: Expr = index(1)
    for node in nodes:
        extent = extent * node.extent
    extent = simplify(extent, domain)
    fused = Var(fresh(_fused_name([node.var.name for node in nodes]), loop_names(function)))
    starting = {fused} if nodes[0].var in starting_loops(nodes[0]) else ()
    inside = bind_start(domain, fused, index(0), extent, starting)
    body = substituted(nodes[-1].body, _digits(fused, nodes), None, inside)
    return replace(
        places[0], For(fused, index(0), extent, "serial", body, _merged(nodes))
    ), fused.name


def _check_not_empty(step: str, place: Place, nodes: Sequence[For]) -> None:
    """A reduction over nothing still has its spatial loops, unless they are one with what it
    reduces."""
    for each in blocks_below(place.node):
        empty = empty_condition(each)
        kinds = {it.kind for it in each.iters if uses(it.binding, [node.var for node in nodes])}
        if empty is None or len(kinds) < 2:
            continue
        if not can_prove(logical_not(empty), root_domain(place.function)):
            message = f"they are spatial and reduce loops of {each.name!r}, and where {show(empty)}"
            refuse(
                place.function,
                f"{step}: {message} only the spatial ones would run; fuse loops of one kind",
                place.node.var.name,
            )


def loops_text(loops) -> str:
    """Loops given by names, as steps are described."""
    if isinstance(loops, (list, tuple)) and loops:
        return f"loops {', '.join(map(repr, loops))}"
    return repr(loops)


def found_loops(step: str, function: Function, loops) -> list[Place]:
    """The places of several loops; refuses none, and one that is named twice."""
    if not isinstance(loops, (list, tuple)) or not loops:
        refuse(function, f"{step}: give at least one loop")
    if len(set(loops)) != len(loops):
        twice = next(name for name in loops if list(loops).count(name) > 1)
        refuse(function, f"{step}: loop {twice!r} is named twice", twice)
    return [find_loop(function, name) for name in loops]


def _fused_name(names: Sequence[str]) -> str:
    block = names[0].split(".", 1)[0] + "."
    return "_".join([names[0], *[name.removeprefix(block) for name in names[1:]]])


def _digits(fused: Var, nodes: Sequence[For]) -> dict[Var, Expr]:
    values: dict[Var, Expr] = {}
    stride: Expr = index(1)
    for position in range(len(nodes) - 1, -1, -1):
        value = fused if is_const(stride, 1) else FloorDiv(fused, stride)
        extent = nodes[position].extent
        values[nodes[position].var] = value if position == 0 else Mod(value, extent)
        stride = stride * extent
    return values


def _merged(nodes: Sequence[For]) -> Annotations:
    merged: dict = {}
    for node in reversed(nodes):
        merged.update(node.annotations)
    return tuple(sorted(merged.items()))


def reorder(function: Function, loops: Sequence[str]) -> Function:
    """Put loops in the order given, outermost first; the places that they take together stay the
    same.

    for i: for j: for k: B   with (k, i)   ->   for k: for j: for i: B

    Requires that the loops lie on one chain in which each loop is the only child of the one above,
    that no start or extent there depends on a loop of the chain, that loops of ordered iterators
    keep their place relative to the others, that the init of a block still runs first where a
    reduce loop moves (see `decompose_reduction`), and, where several blocks lie below, that each
    reads only what was written in the same iteration. Raises ScheduleError where a requirement is
    not met.
    """
    step = f"reorder({loops_text(loops)})"
    places = found_loops(step, function, loops)
    outermost = min(places, key=lambda place: len(place.path))
    line = chain(outermost.node)
    rank = {loop.var: i for i, loop in enumerate(line)}
    for place in places:
        if place.node.var not in rank:
            message = f"{place.node.var.name!r} is not on the chain of single children below"
            refuse(function, f"{step}: {message} {outermost.node.var.name!r}", place.node.var.name)
    ranks = sorted([rank[place.node.var] for place in places])
    segment = line[: ranks[-1] + 1]
    _check_rectangular(step, function, segment)
    order = list(segment)
    for position, place in zip(ranks, places):
        order[position] = segment[rank[place.node.var]]
    if all(a is b for a, b in zip(order, segment)):
        return function
    check_order(step, outermost, segment, order)
    body = segment[-1].body
    for node in reversed(order):
        body = For(node.var, node.start, node.extent, node.kind, body, node.annotations)
    return replace(outermost, body)


def _check_rectangular(step: str, function: Function, segment: Sequence[For]) -> None:
    variables = [loop.var for loop in segment]
    for loop in segment:
        if uses(loop.extent, variables) or uses(loop.start, variables):
            message = f"the range of {loop.var.name!r} depends on another loop"
            refuse(function, f"{step}: {message}", loop.var.name)


def parallel(function: Function, loop: str) -> Function:
    """Let the iterations of a loop run as tasks of the thread pool.

    for v in 0 .. E: B  ->  for v in 0 .. E parallel: B

    A kind that the loop had is no more. Requires a loop that is bound to no reduce iterators of the
    blocks below, and iterations that touch no element that another one writes (or only write the same
    values there).
    Loops inside vectorized ones are not for tasks. Raises ScheduleError where a requirement is not
    met.
    """
    step = f"parallel(loop {loop!r})"
    place = find_loop(function, loop)
    if place.node.kind == "parallel":
        return function
    outer = next((each for each in place.loops if each.kind == "vectorized"), None)
    if outer is not None:
        refuse(function, f"{step}: it lies in the vectorized loop {outer.var.name!r}", loop)
    places = block_places(place)
    check_iterators(step, place, places)
    check_iterations_apart(step, place, places)
    return mark_starts(_with_kind(place, "parallel"), loop, parallel)


def check_iterators(
    step: str,
    place: Place,
    places: Sequence[Place],
    reduced: str = "its iterations depend on one another",
) -> None:
    """Refuse a loop of reduce iterators, because of `reduced`, and one of ordered iterators whose
    iterations may meet."""
    for p in places:
        for it in iters_using(p.node, place.node.var):
            if it.kind == "reduce":
                _refuse_kind(step, place, p.node, it, reduced)
            problem = overlap(place, places) if it.kind == "ordered" else None
            if problem is not None:
                _refuse_kind(step, place, p.node, it, problem)


def _refuse_kind(step: str, place: Place, block: Block, it: BlockIter, why: str) -> NoReturn:
    what = "reduces" if it.kind == "reduce" else "is ordered"
    message = f"iterator {it.var.name!r} of block {block.name!r}, which {what}, is bound to it"
    refuse(place.function, f"{step}: {message}; {why}", place.node.var.name)


def _with_kind(place: Place, kind: LoopKind) -> Function:
    node: For = place.node
    notes = annotate(node.annotations, "thread", None)
    return replace(place, For(node.var, node.start, node.extent, kind, node.body, notes))


def vectorize(function: Function, loop: str) -> Function:
    """Let the iterations of a loop be the lanes of vectors.

    for v in 0 .. 8: B  ->  for v in 0 .. 8 vectorized: B

    A kind that the loop had is no more.

    Requires what `parallel` does, a constant extent of at most 1024, and no vectorized or parallel
    loop on the way below it nor a vectorized one above. A loop of reduce iterators may be
    vectorized where it holds one block, which updates its elements by a reducer: an operation such
    as `C[..] = C[..] + term`, or one whose identities the block names. A loop without iterations
    stays as it is. Raises ScheduleError where a requirement is not met.
    """
    step = f"vectorize(loop {loop!r})"
    place = find_loop(function, loop)
    if place.node.kind == "vectorized":
        return function
    lanes = _check_count(step, place, GREATEST_LANES, "lanes")
    if lanes < 1:
        return function
    nested = next((each for each in place.loops if each.kind == "vectorized"), None)
    nested = nested or contains_kind(place.node.body, ("vectorized", "parallel", "thread"))
    if nested is not None:
        refuse(function, f"{step}: loop {nested.var.name!r} around or in it is {kind_text(nested)}", loop)
    places = block_places(place)
    if not _is_lane_reduction(step, place, places):
        check_iterators(step, place, places)
        check_iterations_apart(step, place, places)
    return mark_starts(_with_kind(place, "vectorized"), loop, vectorize)


def _check_count(step: str, place: Place, greatest: int, what: str) -> int:
    count = constant(place.node.extent)
    if count is None:
        refuse(
            place.function,
            f"{step}: the extent is not constant; split it first",
            place.node.var.name,
        )
    if count > greatest:
        message = f"the extent is {count}, more than {greatest} {what}; split it first"
        refuse(place.function, f"{step}: {message}", place.node.var.name)
    return count


def _is_lane_reduction(step: str, place: Place, places: Sequence[Place]) -> bool:
    """Whether the lanes combine into one element; refuses where they must and cannot."""
    for p in places:
        iters = iters_using(p.node, place.node.var)
        other = next((it for it in iters if it.kind == "reduce"), None)
        if other is None:
            continue
        if any(it.kind != "reduce" for it in iters):
            _refuse_kind(step, place, p.node, other, "its iterations depend on one another")
        if len(places) > 1:
            message = f"it reduces in block {p.node.name!r} and holds other blocks"
            refuse(place.function, f"{step}: {message}", place.node.var.name)
        if not accumulates(p.node):
            message = f"block {p.node.name!r} combines its terms by no reducer that is known"
            refuse(place.function, f"{step}: it reduces, and {message}", place.node.var.name)
        return True
    return False


def unroll(function: Function, loop: str) -> Function:
    """Let the body of a loop be repeated instead of looped over.

    for v in 0 .. 4: B  ->  for v in 0 .. 4 unrolled: B

    A kind that the loop had is no more. Requires a constant extent of at most 1024. Raises
    ScheduleError where it is not so.
    """
    step = f"unroll(loop {loop!r})"
    place = find_loop(function, loop)
    if place.node.kind == "unrolled":
        return function
    _check_count(step, place, GREATEST_UNROLL, "copies")
    return mark_starts(_with_kind(place, "unrolled"), loop, unroll)
