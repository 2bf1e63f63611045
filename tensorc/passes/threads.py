"""One level of parallel loops: a parallel loop in another runs serially, and so does one of a
single iteration."""

from __future__ import annotations

from tensorc.ir.expr import Const
from tensorc.ir.function import Function
from tensorc.ir.stmt import For, Stmt
from tensorc.ir.walk import map_substmts


def assign_threads(function: Function) -> Function:
    """The function without parallel loops inside parallel loops."""
    return function.with_(body=_visit(function.body, False))


def _visit(stmt: Stmt, in_parallel: bool) -> Stmt:
    if type(stmt) is not For or stmt.kind != "parallel":
        return map_substmts(stmt, lambda s: _visit(s, in_parallel))
    if in_parallel or (type(stmt.extent) is Const and stmt.extent.value <= 1):
        body = _visit(stmt.body, in_parallel)
        return For(stmt.var, stmt.start, stmt.extent, "serial", body, stmt.annotations)
    body = _visit(stmt.body, True)
    return (
        stmt
        if body is stmt.body
        else For(stmt.var, stmt.start, stmt.extent, "parallel", body, stmt.annotations)
    )
