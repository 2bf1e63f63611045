"""Blocks with a tensor intrinsic get its implementation, where the target has what it needs.

    block C_o {tensorize = "x86.vpdpbusd.512"} { for j: for r: C[jo*16 + j] += A[ko*4 + r] * B[jo, ko, j, r] }
    ->  block C_o { C[jo*16 + ramp] = x86.vpdpbusd.512(C[jo*16 + ramp], repeat.16(A[ko*4 + ramp]), B[jo, ko, ...]) }

Elsewhere, and where later steps have changed the nest so that it is not the intrinsic's any more, it runs as it is.
"""

from __future__ import annotations

from tensorc.intrinsics import find, implement, match
from tensorc.ir.expr import Const, Var
from tensorc.ir.function import Function
from tensorc.ir.stmt import Block, For, LoopKind, Stmt, annotate, annotation
from tensorc.ir.walk import map_substmts
from tensorc.target import Target

NOTE = "tensorize"
SHORT = 16  # loops of so few iterations are unrolled


def apply_intrinsics(function: Function, target: Target | None = None) -> Function:
    """The function with implementations in the place of tensorized blocks; without a target, in that of all."""
    return function.with_(body=_visit(function.body, target))


def _visit(stmt: Stmt, target: Target | None) -> Stmt:
    name = annotation(stmt, NOTE) if type(stmt) is Block else None
    if type(stmt) is not Block or name is None:
        return map_substmts(stmt, lambda inner: _visit(inner, target))
    notes = annotate(stmt.annotations, NOTE, None)
    return Block(stmt.name, stmt.iters, stmt.predicate, stmt.init, _body(stmt, str(name), target), notes)


def _body(block: Block, name: str, target: Target | None) -> Stmt:
    intrin = find(name)
    found = None if intrin is None else match(intrin, block.body)
    if intrin is None or found is None or isinstance(found, str):
        return block.body
    if intrin.runs_on(target):
        return implement(found)
    loops = found.tiles[intrin.meaning.outputs[0]].loops
    return _in_vectors(block.body, loops[-1]) if loops else block.body


def _in_vectors(stmt: Stmt, lane: Var) -> Stmt:
    """The nest with the loop over neighbours of the result in vectors, the others unrolled where they are short."""
    if type(stmt) is not For:
        return stmt
    is_short = type(stmt.extent) is Const and stmt.extent.value <= SHORT
    kind: LoopKind = "vectorized" if stmt.var is lane else "unrolled" if is_short else "serial"
    return For(stmt.var, stmt.start, stmt.extent, kind, _in_vectors(stmt.body, lane), stmt.annotations)


def obstacle(block: Block, target: Target | None) -> str | None:
    """Why the nest of a tensorized block runs as it is; None where its implementation does."""
    name = str(annotation(block, NOTE))
    intrin = find(name)
    if intrin is None:
        return f"{name} is not registered"
    if not intrin.runs_on(target):
        return f"{name} needs {intrin.needs}"
    found = match(intrin, block.body)
    return f"{name} does not fit any more: {found}" if isinstance(found, str) else None
