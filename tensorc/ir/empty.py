"""Reductions over nothing: what `init` does where the extent of a reduce iterator is 0.

    for k in 0..K { for i in 0..8 { block C { spatial i, reduce k : K, init C[i] = 0, C[i] = C[i] + A[k, i] } } }
    ->  for i in 0..8 { block C { spatial i, where K <= 0, C[i] = 0 } }   for k ...

No instance of the block runs then, so that its start is written where the outermost loop of a reduce iterator stands.
This is what docs/ir.md says in words; the interpreter and the passes both go by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tensorc.ir.expr import And, Const, Expr, Var, logical_and, logical_not, logical_or
from tensorc.ir.function import Function
from tensorc.ir.stmt import Block, BlockIter, For, If, Let, Stmt, seq
from tensorc.ir.walk import map_substmts, substitute, substitute_stmt, substmts, uses, variables


def start_empty_reductions(function: Function) -> Function:
    """The function with a nest for each reduction that may be empty, which writes its start."""
    return function.with_(body=_visit(function.body, ()))


def empty_condition(block: Block) -> Expr | None:
    """Where a block with an init reduces over nothing; None if that is nowhere."""
    extents = [it.extent for it in block.iters if it.kind == "reduce"]
    extents = [e for e in extents if type(e) is not Const or e.value < 1]
    return logical_or(*[extent <= 0 for extent in extents]) if block.init is not None and extents else None


def reduce_loops(block: Block) -> frozenset[Var]:
    """The loops that run over a block's reduce iterators: not those that only tell how long a range is, as the row
    does of a split range of a row, whose binding is `r.0 * ((L[i] + 7) // 8) + r.1`."""
    reducing = [it for it in block.iters if it.kind == "reduce"]
    others = {var for it in block.iters if it.kind != "reduce" for var in variables(it.binding)}
    telling = others & {var for it in reducing for var in variables(it.extent)}
    return frozenset([
        var
        for it in reducing
        for var in variables(it.binding) - variables(it.extent) - telling
    ])  # fmt: skip


def starting_loops(stmt: Stmt) -> frozenset[Var]:
    """The loops that a block in a statement starts before, should they be empty: those that reduce iterators
    are bound to. That they have an iteration is not known where it starts."""
    found = [block for *_, block in _blocks(stmt) if empty_condition(block) is not None]
    return frozenset([var for block in found for var in reduce_loops(block)])


def _visit(stmt: Stmt, outer: tuple[Var, ...]) -> Stmt:
    """The statement, with the starts of the blocks whose outermost reduce loop lies in it."""
    if type(stmt) is not For:
        return map_substmts(stmt, lambda inner: _visit(inner, outer))
    found = [each for each in _blocks(stmt) if _is_outermost(stmt, outer, each[2])]
    starts = [empty_start(loops, block, block.name, conditions) for loops, conditions, block in found]
    new = map_substmts(stmt, lambda inner: _visit(inner, (*outer, stmt.var)))
    return seq(*starts, new) if starts else new


def _is_outermost(loop: For, outer: tuple[Var, ...], block: Block) -> bool:
    """Whether a block may reduce over nothing, and a loop is the outermost that tells over what."""
    reducing = reduce_loops(block)
    return empty_condition(block) is not None and loop.var in reducing and reducing.isdisjoint(outer)


def _blocks(
    stmt: Stmt, loops: tuple[For, ...] = (), conditions: tuple[Expr, ...] = ()
) -> Iterator[tuple[tuple[For, ...], tuple[Expr, ...], Block]]:
    """The blocks in a statement, each with the loops and the conditions around it from there on."""
    if type(stmt) is Block:
        yield loops, conditions, stmt
    if type(stmt) is For:
        loops = (*loops, stmt)
    if type(stmt) is If:
        yield from _blocks(stmt.then, loops, (*conditions, stmt.condition))
        if stmt.orelse is not None:
            yield from _blocks(stmt.orelse, loops, (*conditions, logical_not(stmt.condition)))
        return
    for inner in substmts(stmt) if type(stmt) is not Let else ():
        yield from _blocks(inner, loops, conditions)


def empty_start(
    loops: tuple[For, ...],
    block: Block,
    name: str,
    conditions: tuple[Expr, ...] = (),
    fresh: Callable[[str], str] = str,
) -> Stmt:
    """The block `name` that writes what a block under these loops and conditions starts from, where it reduces over
    nothing.

    `fresh` gives the names of its loops, which are copies of those that are not only reduced, and of those inside.
    """
    others = [it for it in block.iters if it.kind != "reduce"]
    values: dict[Var, Expr] = {}
    kept: list[For] = []
    dropped: list[Var] = []
    for loop in loops:
        start, extent = substitute(loop.start, values), substitute(loop.extent, values)
        if any(uses(it.binding, (loop.var,)) for it in others):
            values[loop.var] = var = loop.var.copy(fresh(loop.var.name))
            kept.append(For(var, start, extent, "serial", block))
        else:
            values[loop.var] = start
            dropped.append(loop.var)
    assert block.init is not None  # or it starts from what is there
    new = {it.var: it.var.copy() for it in others}
    iters = [BlockIter(new[it.var], it.extent, it.kind, substitute(it.binding, values)) for it in others]
    around = [loop.var for loop in loops if loop.var not in dropped]
    if any(uses(it.extent, around) for it in block.iters if it.kind == "reduce"):
        around = []  # what tells where such a range ends depends on them, too
    held = _conjuncts(logical_and(*conditions, block.predicate))
    where = [c for c in held if not uses(c, dropped) or uses(c, around)]
    predicate = substitute(logical_and(*where, empty_condition(block)), values)  # which may load where those hold
    body = _with_loops(substitute_stmt(block.init, new), fresh)
    nest: Stmt = Block(name, tuple(iters), predicate, None, body)
    for loop in reversed(kept):
        nest = For(loop.var, loop.start, loop.extent, "serial", nest)
    return nest


def _with_loops(stmt: Stmt, fresh: Callable[[str], str]) -> Stmt:
    """A statement with loops of its own, copies of those that it has."""
    if type(stmt) is For:
        var = stmt.var.copy(fresh(stmt.var.name))
        body = substitute_stmt(stmt.body, {stmt.var: var})
        stmt = For(var, stmt.start, stmt.extent, stmt.kind, body, stmt.annotations)
    return map_substmts(stmt, lambda inner: _with_loops(inner, fresh))


def _conjuncts(condition: Expr) -> list[Expr]:
    return _conjuncts(condition.a) + _conjuncts(condition.b) if type(condition) is And else [condition]
