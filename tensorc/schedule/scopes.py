"""Steps in a block that holds blocks: what it does is a function of its own, on which a step is what it
is elsewhere.

    block X { spatial v: 8 = io: for i in 0 .. 4 { block B ... } }, a step on loop i
    ->  the step on function X(v: int64) where v >= 0, v < 8 { for i in 0 .. 4 { block B ... } },
        whose body then stands in the block again

To it, the buffers of the function are parameters, and those that it writes outputs. What a step makes is
named apart from all names of the whole function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed

from tensorc.arith import Affine, affine, can_prove
from tensorc.errors import ScheduleError
from tensorc.ir.expr import Buffer, Expr, Load, Var, eq, index, is_const
from tensorc.ir.function import Function
from tensorc.ir.stmt import (
    Alloc,
    Block,
    BlockIter,
    For,
    Let,
    Stmt,
    Store,
    annotation,
)  # fmt: skip
from tensorc.ir.walk import (
    actions,
    all_exprs,
    is_nest,
    is_sized,
    map_substmts,
    rewrite_stmts,
    substitute_stmt,
    substmts,
    uses,
    variables,
    walk,
    walk_expr,
)  # fmt: skip
from tensorc.schedule.legality import CONCURRENT
from tensorc.schedule.locate import (
    Place,
    block_names,
    constant,
    fresh,
    kind_text,
    refuse,
    replace,
    restated,
    root_domain,
    starts_at_zero,
)  # fmt: skip
from tensorc.schedule.regions import buffers_written

Name = tuple[str, str]  # "loop", "block" or "place", and the name
Call = Callable[[Function], tuple[Function, tuple[str, ...]]]

TENSORIZED = "tensorize"  # the annotation of a block that an intrinsic does


@dataclass(frozen=True, slots=True)
class Scope:
    """The body or the init of a block that holds blocks, at `place`; `block` is that block."""

    place: Place

    @property
    def block(self) -> Block:
        found = self.place.path[-2]
        assert type(found) is Block  # a scope is a part of one
        return found

    def function(self) -> Function:
        """What the scope does, as a function. Raises ScheduleError where a block in it has no meaning of its own."""
        return _as_function(self)


def scope_of(function: Function, names: Sequence[Name]) -> Scope | None:
    """The scope in which the first of these loops and blocks lies; None for that of the whole function,
    also where there is none of that name."""
    if not names or _is_in(function.body, *names[0]):
        return None
    return _find(function, *names[0])


def function_at(function: Function, kind: str, name: str) -> Function:
    """The function, or what a block in it does as one: that in which a loop or block of this name lies."""
    scope = scope_of(function, [(kind, name)])
    return function if scope is None else scope.function()


def perform_at(
    function: Function, step: str, names: Sequence[Name], call: Call, inner: Call | None, has_buffers: bool
) -> tuple[Function, tuple[str, ...]]:
    """Make a step where the loops and blocks that it names lie: by `call`, or by `inner` in a block, where None
    is for a step that is not made there; `has_buffers` says that it makes or moves what fills buffers. Returns the
    function and the names made.

    Raises ScheduleError where they lie in different scopes, and as the step does.
    """
    scope = scope_of(function, names)
    body = function.body if scope is None else scope.place.node
    for what, name in names:
        if isinstance(name, str) and not _is_in(body, what, name):
            _refuse_outside(function, step, scope, what, name)
    if scope is None:
        new, made = call(function)
        if new is not function and _holds_scopes(new.body):
            _check_below(function, new.body, step, ())
        return new, made
    _refuse_part(function, step, scope, names[0][1])
    if inner is None:
        reason = f"{names[0][1]!r} lies in block {scope.block.name!r}, where this step is not made"
        refuse(function, f"{step}: {reason}; make it before blockize does the block", names[0][1])
    before = scope.function()
    try:
        after, made = inner(before)
    except ScheduleError as error:
        raise restated(str(error), error, function) from error
    if after is before:
        return function, made
    if after.allocs and scope.place.node is scope.block.init:
        reason = f"the start of block {scope.block.name!r} has no buffers of its own"
        refuse(function, f"{step}: {reason}; decompose_reduction makes it a block", scope.block.name)
    if has_buffers:
        _check_reads(function, step, scope, before, after)
    after, made = _named_apart(scope, before, after, made)
    new = _put_back(scope, after)
    _check_below(function, new.body, step, ())
    return new, made


# Looking into blocks.


def _is_in(stmt: Stmt, kind: str, name: str) -> bool:
    """Whether a loop or block of this name lies in a statement, but in no block in it."""
    if type(stmt) is For:
        if kind != "block" and stmt.var.name == name:
            return True
    elif type(stmt) is Block:
        return kind != "loop" and stmt.name == name
    return any([_is_in(inner, kind, name) for inner in substmts(stmt)])


def _find(function: Function, kind: str, name: str) -> Scope | None:
    for path in _parts(function.body, ()):
        if _is_in(path[-1], kind, name):
            return Scope(Place(function, path))
    return None


def _parts(stmt: Stmt, path: tuple[Stmt, ...]) -> Iterator[tuple[Stmt, ...]]:
    """The paths to the bodies and inits of blocks, outer ones first."""
    path = (*path, stmt)
    inner = substmts(stmt)
    if type(stmt) is Block:
        for part in inner:
            yield (*path, part)
    for part in inner:
        yield from _parts(part, path)


def _holds_scopes(stmt: Stmt) -> bool:
    return any(type(each) is Block and any(type(s) is For for s in walk(each)) for each in walk(stmt))


def _refuse_outside(
    function: Function, step: str, scope: Scope | None, what: str, name: str
) -> None:
    """Refuse a name that lies in another scope; one that is nowhere is left to the step."""
    other = _find(function, what, name)
    if other is None and not _is_in(function.body, what, name):
        return
    there = "outside all blocks" if other is None else f"in block {other.block.name!r}"
    here = "outside all blocks" if scope is None else f"in block {scope.block.name!r}"
    refuse(function, f"{step}: {name!r} lies {there} and the step is {here}; a step stays in one block", name)


def _refuse_part(function: Function, step: str, scope: Scope, name: str) -> None:
    """Refuse a step on what is no nest of blocks, but a part of what one block does."""
    for stmt in scope.place.path:
        if type(stmt) is Block and annotation(stmt, TENSORIZED) is not None:
            reason = f"{name!r} lies in block {stmt.name!r}, which is tensorized and stays what its intrinsic does"
            refuse(function, f"{step}: {reason}; make the step before", stmt.name)
    action = next(actions(scope.place.node), None)
    if action is not None:
        does = f"which does more than run blocks, by {type(action).__name__.lower()} statements of its own"
        refuse(function, f"{step}: {name!r} lies in block {scope.block.name!r}, {does}", scope.block.name)


# A block's part as a function, and back.


def _as_function(scope: Scope) -> Function:
    function, path = scope.place.function, scope.place.path
    body, own = _unwrapped(path[-1], _sizes(function))
    body = _counted_here(function, scope, body)
    written = set(buffers_written(path[-1]))
    around = [b for stmt in path[:-1] if type(stmt) is Alloc for b in stmt.buffers]
    given = [*function.params, *function.allocs, *around]
    inner = {id(each) for each in walk(path[-1])}
    outside = [s for s in walk(function.body) if id(s) not in inner]
    # What else has a name is there for that only.
    others = [b for s in outside if type(s) is Alloc for b in s.buffers if b not in around]
    scalars = [*function.scalars, *[s.var for s in outside if isinstance(s, (For, Let))]]
    scalars += [it.var for s in path if type(s) is Block for it in s.iters]
    return Function(
        function.name,
        (*given, *others),
        tuple([b for b in given if b in function.outputs or b in written]),
        tuple(scalars),
        own,
        body,
        (*function.assumptions, *_known(path)),
        is_proved=function.is_proved,
    )


def _sizes(function: Function) -> set[Var]:
    """What is known outside of all loops and blocks."""
    return {*function.scalars, *[var for b in function.params for e in b.shape for var in variables(e)]}


def _unwrapped(stmt: Stmt, sizes: set[Var]) -> tuple[Stmt, tuple[Buffer, ...]]:
    """A statement without the `alloc`s around all of it, and their buffers: those that are placed as others are."""
    own: tuple[Buffer, ...] = ()
    while isinstance(stmt, Alloc) and is_sized(stmt, sizes):
        own = (*own, *stmt.buffers)
        stmt = stmt.body
    return stmt, own


def _check_reads(function: Function, step: str, scope: Scope, before: Function, after: Function) -> None:
    """Refuse new reads of what is written somewhere: other instances may be about to write there."""
    written = {each.buffer for each in walk(function.body) if type(each) is Store}.difference(before.allocs)
    old = {e for e in all_exprs(before.body) if type(e) is Load}
    for e in all_exprs(after.body):
        if type(e) is Load and e.buffer in written and e not in old:
            reason = f"block {scope.block.name!r} would read {e.buffer.name!r}, which the function writes"
            refuse(function, f"{step}: {reason}, at other places", scope.block.name)


def _known(path: Sequence[Stmt]) -> tuple[Expr, ...]:
    """The ranges of the iterators of blocks on a path, but for those that loops or data tell."""
    hidden = {stmt.var for stmt in path if type(stmt) is For}
    found: list[Expr] = []
    for it in [it for stmt in path if type(stmt) is Block for it in stmt.iters]:
        if not uses(it.extent, hidden) and not any(type(e) is Load for e in walk_expr(it.extent)):
            found += [it.var >= 0, it.var < it.extent]
    return tuple(found)


def _counted_here(function: Function, scope: Scope, stmt: Stmt) -> Stmt:
    """A statement of a block in which the blocks count from 0 what they visit there: steps take it that
    a block's whole domain is visited.

    ``block X {v: 8 = io: for x in 0 .. 16: block B {i: 128 = v * 16 + x: B[i] = ...}}``
    ->  ``... block B {i: 16 = x: B[v * 16 + i] = ...}``
    """
    path = scope.place.path
    around = {it.var for s in path if type(s) is Block for it in s.iters}
    around |= {s.var for s in path if type(s) is Let}

    def visit(stmt: Stmt, loops: Mapping[Var, For]) -> Stmt:
        if type(stmt) is For:
            loops = {**loops, stmt.var: stmt}
        elif type(stmt) is Block:
            return _block_here(function, scope, stmt, loops, around)
        return map_substmts(stmt, lambda inner: visit(inner, loops))

    return visit(stmt, {})


def _block_here(
    function: Function, scope: Scope, block: Block, loops: Mapping[Var, For], around: set[Var]
) -> Block:
    iters: list[BlockIter] = []
    values: dict[Var, Expr] = {}
    for it in block.iters:
        if not uses(it.binding, around):
            iters.append(it)
            continue
        form = affine(it.binding)
        mine = tuple([term for term in form.terms if not variables(term[0]) <= around])
        rest = Affine(tuple([term for term in form.terms if term not in mine]), form.constant)
        reach = _reach(mine, loops)
        is_start = block.init is not None and it.kind == "reduce"
        if reach is None or is_start or not is_const(block.predicate, True):
            reason = f"iterator {it.var.name!r} of block {block.name!r} runs over a part of its domain there"
            message = f"a step in block {scope.block.name!r}: {reason}, which is not known as a tile"
            refuse(function, message, block.name)
        var = it.var.copy()
        iters.append(BlockIter(var, reach, it.kind, Affine(mine, 0).to_expr()))
        values[it.var] = rest.to_expr() + var
    if not values:
        return block
    init = None if block.init is None else substitute_stmt(block.init, values)
    body = substitute_stmt(block.body, values)
    return Block(block.name, tuple(iters), block.predicate, init, body, block.annotations)


def _reach(terms: Sequence[tuple[Expr, int]], loops: Mapping[Var, For]) -> Expr | None:
    """How many values a sum of multiples of loops takes, where they are all from 0; None where that is not known."""
    most = 1
    for atom, factor in sorted(terms, key=lambda term: term[1]):
        loop = loops.get(atom) if type(atom) is Var else None
        if loop is None or not starts_at_zero(loop) or not 1 <= factor <= most:
            return None
        extent = constant(loop.extent)
        if extent is None or extent < 1:
            is_alone = len(terms) == 1 and not uses(loop.extent, loops)
            return loop.extent if is_alone else None
        most += (extent - 1) * factor
    return index(most)


def _named_apart(
    scope: Scope, before: Function, after: Function, made: tuple[str, ...]
) -> tuple[Function, tuple[str, ...]]:
    """The function after a step, with its new blocks named apart from those of other scopes."""
    old, everywhere = block_names(before), block_names(scope.place.function)
    new = block_names(after) - old
    names: dict[str, str] = {}
    for name in sorted(new & everywhere):
        names[name] = fresh(name, everywhere.union(new, names.values()))
    if not names:
        return after, made

    def rename(stmt: Stmt) -> Stmt | None:
        return changed(stmt, name=names[stmt.name]) if type(stmt) is Block and stmt.name in names else None

    after = after.with_(body=rewrite_stmts(after.body, rename))
    return after, tuple([names.get(name, name) for name in made])


def _put_back(scope: Scope, after: Function) -> Function:
    function = scope.place.function
    body = Alloc(after.allocs, after.body) if after.allocs else after.body
    is_proved = function.is_proved and after.is_proved
    return replace(scope.place, body).with_(is_proved=is_proved)


# Kinds of loops, which reach across blocks.


def _check_below(
    function: Function, stmt: Stmt, step: str, around: tuple[For, ...], is_inside: bool = False
) -> None:
    """Refuse what a loop in a block may not be because of the loops around the block."""
    if type(stmt) is For:
        name = stmt.var.name
        lanes = next((each for each in around if each.kind == "vectorized"), None)
        if is_inside and lanes is not None and stmt.kind in (*CONCURRENT, "vectorized"):
            reason = f"loop {name!r}, which is {kind_text(stmt)}, would lie in the vectorized {lanes.var.name!r}"
            refuse(function, f"{step}: {reason}", name)
        if is_inside and stmt.kind == "thread":
            _check_thread(function, stmt, step, around)
        around = (*around, stmt)
    if type(stmt) is Block and type(stmt.body) is Alloc and is_nest(stmt.body):
        many = next((each for each in around if each.kind in ("vectorized", "thread")), None)
        if many is not None:
            reason = f"a buffer of block {stmt.name!r} would lie in loop {many.var.name!r}, which is {kind_text(many)}"
            refuse(function, f"{step}: {reason}", many.var.name)
    is_inside = is_inside or type(stmt) is Block
    for inner in substmts(stmt):
        _check_below(function, inner, step, around, is_inside)


def _check_thread(function: Function, loop: For, step: str, around: tuple[For, ...]) -> None:
    axis, name = annotation(loop, "thread"), loop.var.name
    one_number = "a kernel starts with one number of threads"
    twice = next((each for each in around if annotation(each, "thread") == axis), None)
    if twice is not None:
        message = f"loop {twice.var.name!r} around it is bound to that axis, which has one index"
        refuse(function, f"{step}: {message}", name)
    if variables(loop.extent) - _sizes(function):
        refuse(function, f"{step}: the extent depends on the block around it; {one_number}", name)
    domain = root_domain(function)
    for each in walk(around[0]) if around else ():
        if type(each) is not For or annotation(each, "thread") != axis:
            continue
        if not can_prove(eq(each.extent, loop.extent), domain):
            message = f"loop {each.var.name!r} of the same kernel has another extent on that axis"
            refuse(function, f"{step}: {message}; {one_number}", name)
