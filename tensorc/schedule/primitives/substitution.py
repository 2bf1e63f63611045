"""Putting another algorithm in the place of a nest: trusted, and tried out on random numbers."""

from __future__ import annotations

import numpy as np

from tensorc.arith import Domain, bounds
from tensorc.errors import TensorcError
from tensorc.ir.expr import Buffer, Const, Expr, Var
from tensorc.ir.function import Function
from tensorc.ir.interpreter import interpret
from tensorc.ir.parser import parse
from tensorc.ir.stmt import Block, For, Seq, Stmt
from tensorc.ir.verifier import verify
from tensorc.ir.walk import (
    copy_nest,
    replace_buffers,
    rewrite_stmts,
    substitute_stmt,
    substmts,
)
from tensorc.schedule.locate import (
    Place,
    block_names,
    blocks_below,
    buffer_names,
    find_block,
    fresh,
    loop_names,
    refuse,
    replace,
)
from tensorc.schedule.primitives.caching import outermost
from tensorc.schedule.regions import buffers_read, buffers_written

MOST_INSTANCES = 200_000  # that a trial by the interpreter may take


def substitute(
    function: Function, block: str, replacement: Function | str, check: bool = True
) -> tuple[Function, tuple[str, ...]]:
    """Put the body of another function in the place of the nest of loops around a block.

    ``for i: for k: C[i] += A[i + k] * W[k]``, and a function of A, W and C that is Winograd's
    ->  the blocks of that function

    The parameters of `replacement`, a function of the IR or its text, are buffers of the function by
    name, with their shapes and types; its outputs are what the nest writes, its inputs some of what
    the nest reads. That both compute the same is not proved but trusted: unless `check` is False, the
    interpreter runs both on random numbers once and compares them, floats to within the square root
    of their precision. Returns the function and the names of the new blocks.

    Requires: the parameters fit; the nest starts from none of its outputs; with `check`, shapes are
    constant, the nest is small enough, and the answers agree.

    Raises ScheduleError where one of these does not hold.
    """
    step = f"substitute(block {block!r})"
    place = outermost(find_block(function, block))
    new = _read(function, block, replacement, step)
    buffers = _matched(place, new, block, step)
    if check:
        _try_out(place, new, block, step)

    taken = buffer_names(function)
    for own in new.allocs:
        name = fresh(own.name, taken)
        taken.add(name)
        buffers[own] = own.with_(name=name)
    removed = {each.name for each in blocks_below(place.node)}
    names = block_names(function) - removed
    made: list[str] = []
    body = copy_nest(replace_buffers(new.body, buffers))
    body = _fresh_loops(_fresh_blocks(body, names, made), _other_loops(place))
    allocs = (*function.allocs, *[buffers[own] for own in new.allocs])
    return replace(place, body).with_(allocs=allocs), tuple(made)


def _read(function: Function, block: str, replacement: Function | str, step: str) -> Function:
    try:
        new = parse(replacement) if isinstance(replacement, str) else replacement
        if not isinstance(new, Function):
            refuse(function, f"{step}: the replacement is no function of the IR: {new!r}", block)
        verify(new)
        return new
    except TensorcError as error:
        if str(error).startswith(step):
            raise
        problem = error
    refuse(function, f"{step}: the replacement is no well-formed function: {problem}", block)


def _matched(place: Place, new: Function, block: str, step: str) -> dict[Buffer, Buffer]:
    """The buffers that the parameters of the replacement stand for."""
    function = place.function
    written, read = buffers_written(place.node), buffers_read(place.node)
    known = {each.name: each for each in (*written, *read)}
    if new.scalars:
        refuse(function, f"{step}: the replacement has scalar parameters", block)
    found: dict[Buffer, Buffer] = {}
    for param in new.params:
        old = known.get(param.name)
        if old is None:
            names = ", ".join(map(repr, known))
            reason = f"the nest does not use the parameter {param.name!r}; it uses {names}"
            refuse(function, f"{step}: {reason}", block)
        if old.dtype is not param.dtype or old.shape != param.shape or param.strides is not None:
            reason = f"the parameter {param.name!r} has another type, shape or layout there"
            refuse(function, f"{step}: {reason}", block)
        found[param] = old
    outputs = {found[each] for each in new.outputs}
    if outputs != set(written):
        names = ", ".join([repr(each.name) for each in written])
        refuse(function, f"{step}: the replacement must write what the nest writes: {names}", block)
    return found


def _try_out(place: Place, new: Function, block: str, step: str) -> None:
    """Refuse a replacement whose answer differs on random numbers."""
    function = place.function
    written, read = buffers_written(place.node), buffers_read(place.node)
    params = tuple(dict.fromkeys([*[each for each in read if each not in written], *written]))
    if any(type(extent) is not Const for each in params for extent in each.shape):
        reason = "a nest of symbolic extents cannot be tried out; check=False trusts it"
        refuse(function, f"{step}: {reason}", block)
    for name, body in (("nest", place.node), ("replacement", new.body)):
        if _instances(body, Domain()) > MOST_INSTANCES:
            reason = f"the {name} is too large to be tried out; try it out on a smaller function, "
            refuse(function, f"{step}: {reason}then trust it with check=False", block)
    old = Function("old", params, written, (), (), place.node)
    rng = np.random.default_rng(0)
    arrays = {
        each.name: _random(rng, [e.value for e in each.shape if type(e) is Const], each)
        for each in params
        if each not in written
    }
    try:
        first = _run(old, arrays)
        second = _run(new, arrays)
    except TensorcError as error:
        problem = error
    else:
        for each in written:
            if not _agree(first[each.name], second[each.name]):
                reason = f"the replacement gives another {each.name!r} for random numbers"
                refuse(function, f"{step}: {reason}", block)
        return
    refuse(function, f"{step}: trying it out failed: {problem}", block)


def _instances(stmt: Stmt, domain: Domain) -> int:
    if type(stmt) is Block:
        return 1 + _instances(stmt.body, domain)
    if type(stmt) is For:
        most = bounds(stmt.extent, domain).hi
        inner = domain.bind(stmt.var, stmt.start, stmt.extent)
        return MOST_INSTANCES + 1 if most is None else max(most, 0) * _instances(stmt.body, inner)
    return 1 + sum([_instances(inner, domain) for inner in substmts(stmt)])


def _random(rng: np.random.Generator, shape: list[int], buffer: Buffer) -> np.ndarray:
    kind = buffer.dtype.numpy
    if buffer.dtype.is_bool:
        return rng.integers(0, 2, shape).astype(kind)
    if buffer.dtype.is_float:
        return rng.standard_normal(shape).astype(kind)
    return rng.integers(0, 8, shape).astype(kind)


def _run(function: Function, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    given = [arrays[each.name] for each in function.params if each not in function.outputs]
    results = interpret(function, *given)
    results = results if isinstance(results, tuple) else (results,)
    return {each.name: found for each, found in zip(function.outputs, results)}


def _agree(first: np.ndarray, second: np.ndarray) -> bool:
    if first.dtype.kind != "f":
        return bool(np.array_equal(first, second))
    wide, other = first.astype(np.float64), second.astype(np.float64)
    scale = np.max(np.abs(wide), initial=0.0, where=np.isfinite(wide))
    near = float(np.sqrt(np.finfo(first.dtype).eps))
    return bool(np.allclose(wide, other, rtol=near, atol=near * scale, equal_nan=True))


def _other_loops(place: Place) -> set[str]:
    """The names of loops but for those at the place."""
    return loop_names(replace(place, Seq(())))


def _fresh_blocks(stmt: Stmt, taken: set[str], made: list[str]) -> Stmt:
    def rename(s: Stmt) -> Stmt | None:
        if type(s) is not Block:
            return None
        name = fresh(s.name, taken)
        taken.add(name)
        made.append(name)
        return Block(name, s.iters, s.predicate, s.init, s.body, s.annotations)

    return rewrite_stmts(stmt, rename)


def _fresh_loops(stmt: Stmt, taken: set[str]) -> Stmt:
    """A statement whose loops and lets have names of their own."""
    values: dict[Var, Expr] = {}

    def rename(s: Stmt) -> Stmt | None:
        if type(s) is not For:
            return None
        name = fresh(s.var.name, taken)
        taken.add(name)
        if name == s.var.name:
            return None
        values[s.var] = var = Var(name)
        return For(var, s.start, s.extent, s.kind, s.body, s.annotations)

    return substitute_stmt(rewrite_stmts(stmt, rename), values)
