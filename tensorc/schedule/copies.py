"""Copies of a nest beside the original: the same statements under names of their own."""

from __future__ import annotations

from collections.abc import Mapping

from tensorc.ir.expr import Buffer, Var
from tensorc.ir.function import Function
from tensorc.ir.stmt import Alloc, Block, For, Let, Stmt
from tensorc.ir.walk import copy_nest, replace_buffers, rewrite_stmts, substitute_stmt, walk
from tensorc.schedule.locate import block_names, buffer_names, fresh, loop_names


class Names:
    """Names for copies of a function's blocks and loops: block "C" becomes "C_1" in the first copy,
    and its loops "C.i" become "C_1.i"."""

    def __init__(self, function: Function):
        self.blocks = block_names(function)
        self.loops = loop_names(function)
        self.buffers = buffer_names(function)

    def copy(self, stmt: Stmt) -> tuple[Stmt, dict[str, str]]:
        """A copy of a statement, and the new names of its blocks by the old ones."""
        renamed: dict[str, str] = {}
        for block in [each for each in walk(stmt) if type(each) is Block]:
            renamed[block.name] = new = self._numbered(block.name)
            self.blocks.add(new)
        new_stmt = copy_nest(stmt)
        values: dict[Var, Var] = {}
        for each in walk(new_stmt):
            if isinstance(each, (For, Let)):
                values[each.var] = each.var.copy(self._loop(each.var.name, renamed))
        own: dict[Buffer, Buffer] = {}
        for buffer in [b for each in walk(new_stmt) if type(each) is Alloc for b in each.buffers]:
            own[buffer] = buffer.with_(name=fresh(buffer.name, self.buffers))
            self.buffers.add(own[buffer].name)
        return _with_names(replace_buffers(new_stmt, own), values, renamed), renamed

    def _numbered(self, name: str) -> str:
        number = 1
        while f"{name}_{number}" in self.blocks:
            number += 1
        return f"{name}_{number}"

    def _loop(self, name: str, renamed: Mapping[str, str]) -> str:
        block, dot, rest = name.partition(".")
        new = fresh(f"{renamed.get(block, block)}{dot}{rest}", self.loops)
        self.loops.add(new)
        return new


def _with_names(stmt: Stmt, values: Mapping[Var, Var], blocks: Mapping[str, str]) -> Stmt:
    def on_stmt(s: Stmt) -> Stmt | None:
        match s:
            case For(var, start, extent, kind, body, annotations) if var in values:
                return For(values[var], start, extent, kind, body, annotations)
            case Let(var, value, body) if var in values:
                return Let(values[var], value, body)
            case Block(name, iters, predicate, init, body, annotations) if name in blocks:
                return Block(blocks[name], iters, predicate, init, body, annotations)
        return None

    return rewrite_stmts(substitute_stmt(stmt, values), on_stmt)
