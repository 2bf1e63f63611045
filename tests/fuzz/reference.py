"""What an unscheduled function computes, by NumPy, and how far another answer may be from it.

A nest whose instances need no order is computed at once, one axis of the arrays a loop. Where order
counts (steps, updates, functions written by hand), the loops run one after the other.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tensorc.dtypes import DType
from tensorc.ir import expr as ir
from tensorc.ir.function import Function
from tensorc.ir.reducer import Update, update_of
from tensorc.ir.stmt import Alloc, Block, BlockIter, For, If, Let, Seq, Stmt, Store, annotation
from tensorc.ir.walk import all_exprs, rewrite_exprs, rewrite_stmts, variables, walk
from tests.fuzz import rounding
from tests.fuzz.rounding import EXACT, UNKNOWN, WIDE, Value, spread


def reference(function: Function, arrays: dict[str, np.ndarray]) -> dict[str, Value]:
    """The outputs by name; `arrays` are the inputs."""
    contracts = any(
        type(e) in (ir.Add, ir.Sub) and e.dtype.is_float for e in all_exprs(function.body)
    )
    run = _Reference(contracts)
    for buffer in function.params:
        if buffer.name in arrays:
            run.buffers[buffer] = _input(arrays[buffer.name], buffer.dtype)
    with np.errstate(all="ignore"):
        run.stmt(function.body)
    return {buffer.name: run.memory(buffer) for buffer in function.outputs}


def _input(array: np.ndarray, dtype: DType) -> Value:
    value = array.astype(WIDE) if dtype.is_float else array.copy()
    return Value(value, np.zeros(array.shape, WIDE))


class _Reference:
    def __init__(self, contracts: bool):
        self.contracts = contracts
        self.buffers: dict[ir.Buffer, Value] = {}
        self.variables: dict[ir.Var, Value] = {}
        self.loops: set[ir.Var] = set()  # those around, which are axes of arrays
        self.done: dict[int, Value] = {}
        self.elements: dict[ir.Expr, Value] = {}  # what a reducer combines, by how it is loaded
        self.is_unsure = False  # whether what is stored may not be

    # Statements.

    def stmt(self, stmt: Stmt) -> None:
        self.done = {}
        match stmt:
            case Seq(stmts):
                for each in stmts:
                    self.stmt(each)
            case For() if _is_axis(stmt):
                self.loops.add(stmt.var)
                self.stmt(stmt.body)
                self.loops.remove(stmt.var)
            case For(var, start, extent):
                first = int(self.expr(start).value)
                for at in range(first, first + int(self.expr(extent).value)):
                    self.variables[var] = Value(np.asarray(at), EXACT)
                    self.stmt(stmt.body)
            case Block() if not annotation(stmt, "check"):
                self.block(stmt)
            case Store(buffer, indices, value):
                places = [self.expr(index) for index in indices]
                self.put(buffer, places, self.expr(value))
            case If():
                self.branch(stmt)
            case Let(var, value):
                self.variables[var] = self.expr(value)
                self.stmt(stmt.body)
            case Alloc(buffers):
                for buffer in buffers:
                    self.buffers.pop(buffer, None)
                self.stmt(stmt.body)

    def branch(self, stmt: If) -> None:
        """Both ways where a condition is not known."""
        condition = self.expr(stmt.condition)
        was_unsure, is_known = self.is_unsure, not condition.error
        self.is_unsure |= not is_known
        if condition.value or not is_known:
            self.stmt(stmt.then)
        if stmt.orelse is not None and not (condition.value and is_known):
            self.stmt(stmt.orelse)
        self.is_unsure = was_unsure

    def block(self, block: Block) -> None:
        """A whole block at once, one axis of the arrays an iterator that no loop runs through."""
        axes = [it for it in block.iters if it.binding in self.loops]
        shape, mask = self._bind(block.iters, axes)
        rank = sum([it.kind == "spatial" for it in axes])  # they come first
        if rank == len(shape):
            if block.init is not None and not _reduces_past_first(block, self.variables):
                self.stmt(block.init)
            if axes:
                self._stores(block, axes, shape)
            else:
                self.stmt(block.body)
            return
        update = update_of(block) or update_of(_apart(block))
        assert update is not None
        terms = [_flat(spread(self.expr(term), shape), rank) for term in update.terms]
        if block.init is None:
            begin: list[ir.Expr] = _elements(block)
        else:
            begin = [store.value for store in _stores(block.init)]
        starts = [_flat(self._start(value, shape[:rank]), rank) for value in begin]
        counts = _flat(spread(Value(mask, EXACT), shape), rank).value
        if update.operation is None:
            found = self.fold(update, starts, terms, counts)
        else:
            neutral = [_constant(each) for each in update.identities]
            terms = [_counted(term, counts, each) for term, each in zip(terms, neutral)]
            every = [np.concatenate(parts, -1) for parts in zip(*map(_parts, (*starts, *terms)))]
            dtype = update.elements[0].buffer.dtype
            found = [rounding.reduced(update.operation, Value(*every), (rank,), dtype)]
        self.done = {}
        for element, each in zip(_elements(block), found):
            self.put(element.buffer, [self._point(i, rank) for i in element.indices], each)

    def _bind(self, iters: tuple[BlockIter, ...], axes: list[BlockIter]):
        """Give iterators their values; the shape of the axes, and which points of it there are."""
        shape: list[int] = []
        mask = np.asarray(True)
        for it in iters:
            if it not in axes:
                self.variables[it.var] = self.expr(it.binding)
                continue
            extent = self.expr(it.extent).value
            shape.append(max(int(np.max(extent, initial=0)), 0))
            along = [1] * len(axes)
            along[len(shape) - 1] = shape[-1]
            value = Value(np.arange(shape[-1]).reshape(along), EXACT)
            self.variables[it.var] = self.variables[it.binding] = value
            if np.ndim(extent):
                mask = mask & (value.value < extent)
        return tuple(shape), mask

    def _stores(self, block: Block, axes: list[BlockIter], shape: tuple[int, ...]) -> None:
        for store in _stores(block.body):
            found = spread(self.expr(store.value), shape)
            is_whole = self.memory(store.buffer).value.shape == shape
            if is_whole and store.indices == tuple([it.var for it in axes]):
                self.buffers[store.buffer] = Value(np.array(found.value), np.array(found.error))
            else:
                places = [self.expr(index) for index in store.indices]
                self.put(store.buffer, places, found)

    def _start(self, value: ir.Expr, shape: tuple[int, ...]) -> Value:
        """What a reduction starts from at each point of the result, which axes of reduction follow."""
        found = self.expr(value)
        trailing = found.value.ndim - len(shape)
        if trailing > 0:
            last = (0,) * trailing
            error = np.broadcast_to(found.error, found.value.shape)
            found = Value(found.value[(..., *last)], error[(..., *last)])
        return spread(found, shape)

    def _point(self, index: ir.Expr, rank: int) -> Value:
        """An index of a result, which does not depend on what is reduced."""
        found = self.expr(index)
        extra = found.value.ndim - rank
        return found if extra <= 0 else Value(found.value[(..., *(0,) * extra)], EXACT)

    def put(self, buffer: ir.Buffer, places: list[Value], found: Value) -> None:
        """Store values at places that differ from one another."""
        old = self.memory(buffer)
        at = tuple([np.clip(p.value, 0, n - 1) for p, n in zip(places, old.value.shape)])
        error = np.asarray(rounding.known(found.error))
        if self.is_unsure or any([np.any(place.error > 0) for place in places]):
            error = np.full(error.shape, UNKNOWN)
        if any([np.any(place.error > 0) for place in places]):
            old.error[...] = UNKNOWN
        shape = np.broadcast_shapes(*[np.shape(i) for i in at])
        old.value[at] = np.broadcast_to(found.value, shape)
        old.error[at] = np.broadcast_to(error, shape)

    def memory(self, buffer: ir.Buffer) -> Value:
        if buffer not in self.buffers:
            shape = tuple([int(self.expr(extent).value) for extent in buffer.shape])
            kind = WIDE if buffer.dtype.is_float else buffer.dtype.numpy
            self.buffers[buffer] = Value(np.zeros(shape, kind), np.zeros(shape, WIDE))
        return self.buffers[buffer]

    def fold(self, update: Update, starts: list[Value], terms: list[Value], counts) -> list[Value]:
        """Combine the terms that count one by one, as a reducer of the program's own does it."""
        state = [Value(each.value[..., 0], each.error[..., 0]) for each in starts]
        shape = state[0].value.shape
        for at in range(terms[0].value.shape[-1]):
            self.done = {}
            self.elements = dict(zip(update.elements, state))
            for var, term in zip(update.new, terms):
                self.variables[var] = Value(term.value[..., at], term.error[..., at])
            new = [spread(self.expr(e), shape) for e in update.combined]
            state = [_counted(e, counts[..., at], old) for e, old in zip(new, state)]
        self.elements = {}
        return state

    # Expressions.

    def expr(self, e: ir.Expr) -> Value:
        found = self.done.get(id(e))
        if found is None:
            found = self.done[id(e)] = self._expr(e)
        return found

    def _expr(self, e: ir.Expr) -> Value:
        match e:
            case ir.Var():
                return self.variables[e]
            case ir.Const():
                return _constant(e)
            case ir.Load() if e in self.elements:
                return self.elements[e]
            case ir.Load(buffer, indices):
                return self._load(buffer, [self.expr(index) for index in indices])
            case ir.Select(condition, a, b) | ir.IfThenElse(condition, a, b):
                return rounding.chosen(self.expr(condition), self.expr(a), self.expr(b))
            case ir.Cast(value):
                return rounding.converted(self.expr(value), value.dtype, e.dtype)
            case ir.Neg(value):
                found = self.expr(value)
                return Value(np.negative(found.value), found.error)
            case ir.Not(value):
                found = self.expr(value)
                return Value(np.logical_not(found.value), found.error)
            case ir.Call(name, args):
                operands = [self.expr(arg) for arg in args]
                return rounding.called(name, operands, args[0].dtype, e.dtype)
            case ir.Binary(a, b):
                operands = [self.expr(a), self.expr(b)]
                return rounding.binary(type(e), *operands, a.dtype, self.contracts)
        raise TypeError(type(e).__name__)

    def _load(self, buffer: ir.Buffer, indices: list[Value]) -> Value:
        stored = self.memory(buffer)
        shape = np.broadcast_shapes(*[index.value.shape for index in indices])
        if not stored.value.size:
            return Value(np.zeros(shape, stored.value.dtype), EXACT)
        place = tuple([np.clip(i.value, 0, n - 1) for i, n in zip(indices, stored.value.shape)])
        error = stored.error[place]
        for index in indices:
            if np.any(index.error > 0):
                error = np.where(index.error > 0, UNKNOWN, error)
        return Value(stored.value[place], error)


def _is_axis(loop: For) -> bool:
    """Whether the instances of a loop need no order and are those of iterators bound to it."""
    blocks = [each for each in walk(loop.body) if type(each) is Block]
    bound = [
        it.binding == loop.var and it.kind != "ordered"
        for block in blocks
        for it in block.iters
        if loop.var in variables(it.binding)
    ]
    return bool(blocks) and all(bound)


def _reduces_past_first(block: Block, values: dict[ir.Var, Value]) -> bool:
    return any([it.kind == "reduce" and values[it.var].value > 0 for it in block.iters])


def _apart(block: Block) -> Block:
    """A block with its elements in buffers of their own, so that its terms may read others there."""
    elements = _elements(block)
    own = {e: ir.Load(e.buffer.with_(name=f"{e.buffer.name}.own"), e.indices) for e in elements}

    def rule(stmt: Stmt) -> Stmt | None:
        if type(stmt) is not Store:
            return None
        return replace(stmt, buffer=own[ir.Load(stmt.buffer, stmt.indices)].buffer)

    body = rewrite_exprs(block.body, lambda e: own.get(e) if type(e) is ir.Load else None)
    return replace(block, body=rewrite_stmts(body, rule))


def _elements(block: Block) -> list[ir.Load]:
    return [ir.Load(store.buffer, store.indices) for store in _stores(block.body)]


def _stores(stmt: Stmt) -> list[Store]:
    return [each for each in walk(stmt) if isinstance(each, Store)]


def _constant(e: ir.Const) -> Value:
    kind = WIDE if e.dtype.is_float else e.dtype.numpy.type
    return Value(np.asarray(kind(e.value)), EXACT)


def _flat(found: Value, rank: int) -> Value:
    """The axes from `rank` on as one."""
    shape = (*found.value.shape[:rank], int(np.prod(found.value.shape[rank:])))
    error = np.broadcast_to(found.error, found.value.shape)
    return Value(found.value.reshape(shape), error.reshape(shape))


def _counted(found: Value, counts, other: Value) -> Value:
    """The value where it counts, else another one."""
    if np.all(counts):
        return found
    value = np.where(counts, found.value, other.value)
    return Value(value, np.where(counts, found.error, other.error))


def _parts(found: Value) -> tuple[np.ndarray, np.ndarray]:
    return found.value, found.error
