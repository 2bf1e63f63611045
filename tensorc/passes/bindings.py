"""Loops bound to thread axes, as a CPU runs them: those of thread blocks in parallel, the others one by one."""

from __future__ import annotations

from tensorc.ir.function import Function
from tensorc.ir.stmt import For, LoopKind, Stmt, annotate, annotation
from tensorc.ir.walk import map_substmts


def unbind_threads(function: Function) -> Function:
    """The function without thread loops. Any order of their iterations gives the same answer, but for barriers, which
    a CPU refuses."""
    return function.with_(body=_visit(function.body))


def _visit(stmt: Stmt) -> Stmt:
    stmt = map_substmts(stmt, _visit)
    if type(stmt) is not For or stmt.kind != "thread":
        return stmt
    kind: LoopKind = "parallel" if annotation(stmt, "thread", "").startswith("blockIdx") else "serial"
    return For(stmt.var, stmt.start, stmt.extent, kind, stmt.body, annotate(stmt.annotations, "thread", None))
