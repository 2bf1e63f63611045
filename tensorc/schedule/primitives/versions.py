"""Several versions of a nest: for parts of a loop's range, or behind a condition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorc.arith import Domain, bounds, can_prove, simplify
from tensorc.errors import ExpressionError
from tensorc.ir.empty import starting_loops
from tensorc.ir.expr import (
    EQ,
    And,
    Buffer,
    Const,
    Expr,
    Load,
    Var,
    index,
    is_const,
    logical_and,
    logical_not,
)
from tensorc.ir.function import Function
from tensorc.ir.parser import parse_expr
from tensorc.ir.printer import show
from tensorc.ir.stmt import Block, BlockIter, For, If, Stmt, Store, seq
from tensorc.ir.walk import (
    map_exprs,
    map_substmts,
    replace_buffers,
    substitute,
    substitute_stmt,
    uses,
    variables,
    walk_expr,
)
from tensorc.schedule.copies import Names
from tensorc.schedule.legality import stored
from tensorc.schedule.locate import (
    Place,
    bind_start,
    blocks_below,
    find_loop,
    fresh,
    fresh_buffer,
    loop_names,
    refuse,
    replace,
)
from tensorc.schedule.primitives.loops import (
    check_factors,
    check_plain_loop,
    factors_text,
    substituted,
)
from tensorc.schedule.regions import Span, relax, smaller


def loop_partition(
    function: Function, loop: str, factors: Sequence[int | None]
) -> tuple[Function, tuple[str, ...]]:
    """Cut the range of a loop into consecutive loops of `factors` iterations; None stands for what
    the others leave, which is the last part where no factor is None.

    for v in 0 .. 10: C(v)   with (2, None)   ->  for v.0 in 0 .. 2: C(v.0);  for v.1 in 0 .. 8:
    C_1(v.1 + 2)

    Blocks and loops below get names of their own from the second part on: C_1, C_1.j. A block that
    reduces over the loop reduces over its part, and starts only in the first.

    Requires a serial loop that starts at 0, factors of 1 or more, at most one None, and a sum that
    is proved to be no more than the extent. Returns the function and the names of the new loops.
    Raises ScheduleError where a requirement is not met.
    """
    step = f"loop_partition(loop {loop!r})"
    place = find_loop(function, loop)
    check_plain_loop(step, place)
    check_factors(step, place, factors)
    domain = place.start_domain()
    extents = _parts(step, place, factors, domain)
    names = Names(function)
    is_starting = place.node.var in starting_loops(place.node)
    start: Expr = index(0)
    taken = loop_names(function)
    parts: list[For] = []
    for number, extent in enumerate(extents):
        var = Var(fresh(f"{loop}.{number}", taken))
        taken.add(var.name)
        names.loops.add(var.name)
        body = place.node.body if number == 0 else names.copy(place.node.body)[0]
        inside = bind_start(domain, var, index(0), extent, {var} if is_starting else ())
        reducing = _reducing(body, place.node.var)
        value = simplify(start + var, inside)
        body = substituted(body, {place.node.var: value}, None, inside)
        ranges = {var: Span(index(0), simplify(extent - 1, domain))}
        body = _reduced(body, reducing, ranges, inside)
        node = place.node
        parts.append(For(var, index(0), extent, "serial", body, node.annotations))
        start = simplify(start + extent, domain)
    return replace(place, seq(*parts)), tuple([part.var.name for part in parts])


def _parts(step: str, place: Place, factors, domain: Domain) -> list[Expr]:
    """The numbers of iterations of the parts."""
    extent, name = place.node.extent, place.node.var.name
    known = sum(factor or 0 for factor in factors)
    left = simplify(extent - known, domain)
    if not can_prove(left >= 0, domain):
        message = f"factors {factors_text(factors)} add up to {known}, the extent is {show(extent)}"
        refuse(place.function, f"{step}: {message}", name)
    parts = [left if factor is None else index(factor) for factor in factors]
    if None not in factors:
        parts.append(left)
    parts = [part for part in parts if not is_const(part, 0)]
    reduces = any(_reducing(place.node.body, place.node.var).values())
    if reduces and not can_prove(parts[0] >= 1, domain):
        message = "the first part may have no iterations, and a block below starts its reduction there"
        refuse(place.function, f"{step}: {message}", name)
    return parts or [index(0)]


def _reducing(stmt: Stmt, var: Var) -> dict[str, set[str]]:
    """The reduce iterators that a loop is bound to, by the block's name."""
    return {
        block.name: {
            it.var.name for it in block.iters if it.kind == "reduce" and uses(it.binding, (var,))
        }
        for block in blocks_below(stmt)
    }


def _reduced(
    stmt: Stmt,
    reducing: Mapping[str, set[str]],
    ranges: Mapping[Var, Span | None],
    domain: Domain,
) -> Stmt:
    """A part whose blocks reduce over just the values that their reduce iterators have there."""
    match stmt:
        case For(inner, start, extent):
            span = Span(start, start + extent - 1) if not uses(extent, ranges) else None
            ranges, domain = {**ranges, inner: span}, domain.bind(inner, start, extent)
        case Block():
            return _reduced_block(stmt, reducing[stmt.name], ranges, domain)
    return map_substmts(stmt, lambda s: _reduced(s, reducing, ranges, domain))


def _reduced_block(block: Block, reducing: set[str], ranges, domain: Domain) -> Block:
    iters, values, init = [], {}, block.init
    for it in block.iters:
        span = relax(it.binding, ranges, domain) if it.var.name in reducing else None
        first = bounds(it.binding, domain).lo if it.var.name in reducing else 0
        init = None if first is not None and first > 0 else init
        if span is None or not _is_free(it.binding, ranges):
            iters.append(it)
            continue
        new = it.var.copy()
        values[it.var] = simplify(new + span.lo, domain)
        binding = simplify(it.binding - span.lo, domain)
        left = simplify(it.extent - span.lo, domain)
        extent = smaller(simplify(span.hi - span.lo + 1, domain), left, domain)
        iters.append(BlockIter(new, extent, it.kind, binding))
    body = substitute_stmt(block.body, values)
    if init is not None:
        init = substitute_stmt(init, values)
    return Block(block.name, tuple(iters), block.predicate, init, body, block.annotations)


def _is_free(binding: Expr, ranges) -> bool:
    """Whether a binding depends on no loop outside the part."""
    return all(e in ranges for e in variables(binding))


def specialize(function: Function, condition: str | Expr) -> tuple[Function, tuple[str, ...]]:
    """Make a version of the function of its own for where a condition holds.

    S  ->  if condition { S_1 } else { S }

    In the version that is made, blocks, loops and internal buffers have names of their own (C_1,
    C_1.i, T_1), so that each version is scheduled for itself; there, the condition is known to hold.
    Where it says that an extent or a scalar is one number, `n == 64`, that number stands in its place
    in the version. Another call makes another version of what is left: conditions are tried in the
    order of the calls. `condition` is over the function's scalars, its symbolic extents, and elements
    of its inputs, as text or expression.

    Requires such a condition, which is neither certain nor excluded, and elements that are known to
    exist. Returns the function and the names of the new version's blocks. Raises ScheduleError where a
    requirement is not met.
    """
    test = _condition(function, condition)
    step = f"specialize({show(test)})"
    place = _general(function)
    domain = place.domain()
    _check_elements(step, function, test, domain)
    taken = [stmt.condition for stmt in place.path if type(stmt) is If and stmt is not place.node]
    for known, what in ((test, "always"), (logical_not(test), "never")):
        if can_prove(known, domain) or (what == "never" and test in taken):
            refuse(function, f"{step}: the condition {what} holds here")
    version, renamed = Names(function).copy(place.node)
    values = _numbers(test, domain)
    inside = domain.given(test)
    version = _fixed(version, values, inside)
    buffers: dict[Buffer, Buffer] = {}
    written = {buffer for block in blocks_below(place.node) for buffer in stored(block)}
    for buffer in function.allocs:
        if buffer in written:
            shape = tuple([simplify(substitute(e, values), inside) for e in buffer.shape])
            buffers[buffer] = buffer.with_(name=fresh_buffer(function, buffer.name), shape=shape)
    version = replace_buffers(version, buffers)
    function = function.with_(allocs=(*function.allocs, *buffers.values()))
    place = Place(function, place.path)
    return replace(place, If(test, version, place.node)), tuple(renamed.values())


def _general(function: Function) -> Place:
    """The place of the version for all that no condition before has taken."""
    path = [function.body]
    while type(path[-1]) is If and path[-1].orelse is not None:
        path.append(path[-1].orelse)
    return Place(function, tuple(path))


def _numbers(test: Expr, domain: Domain) -> dict[Var, Expr]:
    """The variables that are one number each where a condition holds."""
    found: dict[Var, Expr] = {}
    together = [test, simplify(test, domain)]
    while together:
        match together.pop():
            case And(a, b):
                together += [a, b]
            case EQ(Var() as var, Const() as number) | EQ(Const() as number, Var() as var):
                found[var] = number
    return found


def _fixed(stmt: Stmt, values: Mapping[Var, Expr], domain: Domain) -> Stmt:
    """A statement with numbers for variables; what is stored keeps its form, which tells updates."""

    def change(expr: Expr) -> Expr:
        return simplify(substitute(expr, values), domain) if uses(expr, values) else expr

    def visit(s: Stmt) -> Stmt:
        if type(s) is Store:
            return map_exprs(s, lambda e: substitute(e, values))
        return map_exprs(map_substmts(s, visit), change)

    return visit(stmt) if values else stmt


def _check_elements(step: str, function: Function, test: Expr, domain: Domain) -> None:
    for load in [e for e in walk_expr(test) if type(e) is Load]:
        pairs = zip(load.indices, load.buffer.shape)
        if not all(can_prove(logical_and(i >= 0, i < extent), domain) for i, extent in pairs):
            shape = ", ".join([show(extent) for extent in load.buffer.shape])
            message = f"{show(load)} is not known to exist, the shape of {load.buffer.name!r} is ({shape})"
            refuse(function, f"{step}: {message}")


def _condition(function: Function, condition: str | Expr) -> Expr:
    names: dict[str, Var | Buffer] = {var.name: var for var in function.scalars}
    for buffer in (*function.params, *function.allocs):
        for extent in (*buffer.shape, *(buffer.strides or ())):
            names.update({e.name: e for e in walk_expr(extent) if type(e) is Var})
    if not isinstance(condition, (str, Expr)):
        refuse(function, f"specialize: {condition!r} is no condition, nor the text of one")
    text = condition if isinstance(condition, str) else show(condition)
    written = {buffer for block in blocks_below(function.body) for buffer in stored(block)}
    inputs = [b for b in function.params if b not in written and b not in function.outputs]
    names.update({buffer.name: buffer for buffer in inputs if buffer.name not in names})
    known = f"it may read {', '.join(names)}" if names else "there is nothing that it may read"
    try:
        test = parse_expr(text, names, adopts=True)
    except ExpressionError as error:
        problem = str(error).removeprefix("line 1: ")
        refuse(function, f"specialize({text}): {problem}; {known}")
    if not test.dtype.is_bool:
        refuse(function, f"specialize({text}): the condition is {test.dtype}, not bool")
    if not any(type(e) in (Var, Load) for e in walk_expr(test)):
        refuse(function, f"specialize({text}): the condition reads nothing; {known}")
    return test
