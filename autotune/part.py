"""A part of a function: some elements of each output, and what they need of all stages before.

It tells what those elements are, by loops as the definition has them, where all of them would take too long.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tensorc.arith import Domain, bounds
from tensorc.ir.count import count
from tensorc.ir.expr import Buffer, Expr, Load, Var, index
from tensorc.ir.function import Function
from tensorc.ir.interpreter import evaluate
from tensorc.ir.stmt import Block, For, Seq, Stmt, Store, seq
from tensorc.ir.walk import all_exprs, variables, walk_expr

Box = tuple[tuple[int, int], ...]  # for each axis the first and the last index
Values = Mapping[Var, int]


def operations(function: Function, values: Values) -> int:
    """How many operations a call makes by the definition, moved elements counted as such."""
    ops, size = [number(each, values) for each in count(function)]
    return max(ops, size // 4)


def number(expr: int | Expr, values: Values) -> int:
    return int(evaluate(expr, values)) if isinstance(expr, Expr) else expr


def part(function: Function, values: Values, most: float, rng: np.random.Generator) -> Function | None:
    """A function that computes neighbouring elements of each output, at random places, by about `most` operations at
    most; None where even one of them takes more."""
    shapes = {buffer: [number(extent, values) for extent in buffer.shape] for buffer in function.outputs}
    if any([0 in shape for shape in shapes.values()]):
        return function
    starts = {buffer: [int(rng.integers(n)) for n in shape] for buffer, shape in shapes.items()}
    size = max([n for shape in shapes.values() for n in shape], default=1)
    while True:
        boxes = {
            buffer: tuple([_around(start, size, n) for start, n in zip(starts[buffer], shape)])
            for buffer, shape in shapes.items()
        }
        cut = _Cut(values, dict(boxes))
        body = cut.statement(function.body)
        if cut.operations <= most:
            return function.with_(body=body)
        if size == 1:
            return None
        size //= 2


def _around(start: int, size: int, extent: int) -> tuple[int, int]:
    first = max(0, min(start, extent - size))
    return first, min(extent, first + size) - 1


@dataclass
class _Cut:
    """Statements without what the elements in `needed` do not need, from the last to the first."""

    values: Values
    needed: dict[Buffer, Box]
    operations: float = 0

    def statement(self, stmt: Stmt) -> Stmt:
        if type(stmt) is Seq:
            return seq(*reversed([self.statement(each) for each in reversed(stmt.stmts)]))
        loops, block = _nest(stmt)
        store = None if block is None else _store(block)
        if block is None or store is None or not all([self._knows(loop) for loop in loops]):
            self._read_all(stmt)
            return stmt
        if store.buffer not in self.needed:
            return Seq(())
        return self._nest(loops, block, store)

    def _knows(self, loop: For) -> bool:
        return (variables(loop.start) | variables(loop.extent)) <= self.values.keys() and not any(
            [type(e) is Load for extent in (loop.start, loop.extent) for e in walk_expr(extent)]
        )

    def _nest(self, loops: Sequence[For], block: Block, store: Store) -> Stmt:
        ranges = {loop.var: self._range(loop) for loop in loops}
        whole = math.prod([max(0, hi - lo + 1) for lo, hi in ranges.values()])
        bindings = {it.var: it.binding for it in block.iters}
        for place, box in zip(store.indices, self.needed[store.buffer]):
            var = bindings.get(place) if type(place) is Var else None
            if type(var) is Var and var in ranges:
                lo, hi = ranges[var]
                ranges[var] = max(lo, box[0]), min(hi, box[1])
        left = math.prod([max(0, hi - lo + 1) for lo, hi in ranges.values()])
        domain = self._domain()
        for each, (lo, hi) in ranges.items():
            domain = domain.bind(each, lo, hi - lo + 1)
        for it in block.iters:
            reach = bounds(it.binding, domain)
            lo, hi = reach.lo or 0, number(it.extent, self.values) - 1 if reach.hi is None else reach.hi
            domain = domain.bind(it.var, lo, hi - lo + 1)
        for expr in all_exprs(block):
            if type(expr) is Load and expr.buffer is not store.buffer:
                self._need(expr, domain)
        ops = _operations(block, self.values)
        self.operations += max(ops, whole) * (left / max(1, whole))
        body: Stmt = block
        for loop in reversed(loops):
            lo, hi = ranges[loop.var]
            body = For(loop.var, index(lo), index(max(0, hi - lo + 1)), loop.kind, body, loop.annotations)
        return body

    def _domain(self) -> Domain:
        domain = Domain()
        for var, value in self.values.items():
            domain = domain.bind(var, value, 1)
        return domain

    def _range(self, loop: For) -> tuple[int, int]:
        first = number(loop.start, self.values)
        return first, first + number(loop.extent, self.values) - 1

    def _need(self, access: Load, domain: Domain) -> None:
        shape = [number(extent, self.values) for extent in access.buffer.shape]
        box = []
        for place, extent in zip(access.indices, shape):
            reach = bounds(place, domain)
            lo = 0 if reach.lo is None else max(0, min(reach.lo, extent - 1))
            hi = extent - 1 if reach.hi is None else max(0, min(reach.hi, extent - 1))
            box.append((lo, hi))
        known = self.needed.get(access.buffer, box)
        self.needed[access.buffer] = tuple([(min(a, c), max(b, d)) for (a, b), (c, d) in zip(known, box)])

    def _read_all(self, stmt: Stmt) -> None:
        reads = {each.buffer for each in all_exprs(stmt) if type(each) is Load}
        for buffer in reads:
            self.needed[buffer] = tuple([(0, number(extent, self.values) - 1) for extent in buffer.shape])
        self.operations += _operations(stmt, self.values)


def _operations(stmt: Stmt, values: Values) -> int:
    return number(count(Function("part", (), (), (), (), stmt))[0], values)


def _nest(stmt: Stmt) -> tuple[list[For], Block | None]:
    """The loops around a block, and the block; None where there is no such nest."""
    loops: list[For] = []
    while isinstance(stmt, For):
        loops.append(stmt)
        stmt = stmt.body
    return loops, stmt if isinstance(stmt, Block) else None


def _store(block: Block) -> Store | None:
    """What a block stores, where no instance of it needs another but to go on with its sum."""
    store = block.body
    if type(store) is not Store or any([it.kind == "ordered" for it in block.iters]):
        return None
    own = [e for e in all_exprs(store) if type(e) is Load and e.buffer is store.buffer]
    return store if all([e.indices == store.indices for e in own]) else None
