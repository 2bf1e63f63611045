"""The meaning of the IR made executable: slow, exact and checked; the oracle for all else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from tensorc.errors import (
    ArgumentError,
    ExpressionError,
    InternalError,
    UnsupportedError,
    failure,
)
from tensorc.ir.arguments import Arguments, Memory
from tensorc.ir.empty import start_empty_reductions
from tensorc.ir.expr import (
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    IfThenElse,
    Load,
    Neg,
    Not,
    Ramp,
    Select,
    Var,
    wrap,
)
from tensorc.ir.function import Function
from tensorc.ir.intrinsic import TABLE
from tensorc.ir.meaning import conversion, intrinsic, lane, negation, operation, whole_intrinsic
from tensorc.ir.stmt import (
    Alloc,
    Barrier,
    Block,
    Check,
    Evaluate,
    For,
    If,
    Let,
    Prefetch,
    Seq,
    Stmt,
    Store,
    While,
)
from tensorc.ir.walk import walk

__all__ = ["interpret"]

Frame = list  # the values of variables, by slot
Run = Callable[[Frame], Any]  # a value is a lane (ir/meaning.py), or a list of them for a vector
Around = tuple[
    tuple[str, str, int], ...
]  # the loops and blocks at a place: block or "", variable, slot


def interpret(function: Function, *arrays: np.ndarray, scalars: Mapping[str, int] | None = None):
    """Run a function at any stage, exactly as docs/ir.md says, with its loops in serial order.

    `arrays` are NumPy arrays for the parameters in order, or for the inputs alone; `scalars` gives
    the parameters that no shape determines, by name, and may give extents that only outputs tell. Returns the
    outputs, written in place where
    they were given: one array, a tuple of several, or None. Elements that the function does not
    write are NaN, or the greatest integer.

    Raises ArgumentError for arguments that do not fit and where a `check` of the function fails;
    ExpressionError for an access outside its buffer, a read of an element that was never written,
    and an iterator outside its block's domain; UnsupportedError for a barrier in thread loops.
    """
    with np.errstate(all="ignore"):
        arguments = Arguments(function, arrays, scalars or {}, evaluate)
        compiler = _Compiler(arguments.memories, _is_flat(function))
        for var, value in arguments.values.items():
            compiler.frame[compiler.slot(var)] = value
        for buffer in function.allocs:
            compiler.alloc_buffer(buffer)(compiler.frame)
        compiler.stmt(start_empty_reductions(function).body)(compiler.frame)
    for buffer in function.outputs:
        arguments.memories[buffer].write_to(arguments.arrays[buffer])
    results = tuple([arguments.arrays[buffer] for buffer in function.outputs])
    return results[0] if len(results) == 1 else results or None


def evaluate(e: Expr, values: Mapping[Var, int]):
    """The value of an expression that loads nothing: a number, or a tuple of the lanes of a vector."""
    compiler = _Compiler({}, flat=False)
    for var, value in values.items():
        compiler.frame[compiler.slot(var)] = value
    return compiler.expr(e)(compiler.frame)


def _is_flat(function: Function) -> bool:
    """Whether the one index of a buffer with a stride on its one axis is an offset."""
    return not function.allocs and not any(type(s) is Block for s in walk(function.body))


class _Compiler:
    """Turns the IR into closures over a frame, so that running it walks no tree."""

    def __init__(self, memories: dict[Buffer, Memory], flat: bool):
        self.memories = memories
        self.flat = flat
        self.slots: dict[Var, int] = {}
        self.frame: Frame = []
        self.around: Around = ()
        self.in_threads = False

    def slot(self, var: Var) -> int:
        slot = self.slots.get(var)
        if slot is None:
            slot = self.slots[var] = len(self.frame)
            self.frame.append(None)
        return slot

    # expressions

    def expr(self, e: Expr) -> Run:
        if isinstance(e, Binary):
            return self.binary(e)
        make = _EXPRS.get(type(e))
        if make is None:
            raise InternalError(f"interpret: {type(e).__name__} is no expression of the IR")
        return make(self, e)

    def const(self, e: Const) -> Run:
        value = lane(e.value, e.dtype)
        return lambda f: value

    def var(self, e: Var) -> Run:
        slot = self.slots.get(e)
        if slot is None:
            raise InternalError(f"interpret: variable {e.name!r} is not bound")
        return lambda f: f[slot]

    def binary(self, e: Binary) -> Run:
        op = operation(type(e), e.a.dtype.scalar)  # type: ignore[arg-type]  # a class is hashable
        a, b = self.expr(e.a), self.expr(e.b)
        if e.dtype.lanes == 1:
            return lambda f: op(a(f), b(f))
        return lambda f: list(map(op, a(f), b(f)))

    def mapped(self, op: Callable, e: Expr) -> Run:
        """`op` on each lane of an expression."""
        value = self.expr(e)
        if e.dtype.lanes == 1:
            return lambda f: op(value(f))
        return lambda f: list(map(op, value(f)))

    def logical_not(self, e: Not) -> Run:
        return self.mapped(lambda a: not a, e.value)

    def neg(self, e: Neg) -> Run:
        return self.mapped(negation(e.dtype.scalar), e.value)

    def cast(self, e: Cast) -> Run:
        return self.mapped(conversion(e.value.dtype.scalar, e.dtype.scalar), e.value)

    def select(self, e: Select) -> Run:
        condition, true, false = self.expr(e.condition), self.expr(e.true), self.expr(e.false)
        if e.condition.dtype.lanes == 1:
            return lambda f: _choose(condition(f), true(f), false(f))
        return lambda f: list(map(_choose, condition(f), true(f), false(f)))

    def if_then_else(self, e: IfThenElse) -> Run:
        if e.condition.dtype.lanes != 1:
            raise InternalError(f"interpret: the condition of if_then_else is {e.condition.dtype}")
        condition, true, false = self.expr(e.condition), self.expr(e.true), self.expr(e.false)
        return lambda f: true(f) if condition(f) else false(f)

    def ramp(self, e: Ramp) -> Run:
        base, stride, dtype = self.expr(e.base), self.expr(e.stride), e.dtype.scalar
        steps = range(e.lanes)

        def run(f):
            start, step = base(f), stride(f)
            return [wrap(start + step * i, dtype) for i in steps]

        return run

    def broadcast(self, e: Broadcast) -> Run:
        value, lanes = self.expr(e.value), e.lanes
        return lambda f: [value(f)] * lanes

    def call(self, e: Call) -> Run:
        args = [self.expr(arg) for arg in e.args]
        operand = e.args[0].dtype
        if e.name in TABLE and TABLE[e.name].whole:
            whole = whole_intrinsic(e.name, tuple([arg.dtype for arg in e.args]), e.dtype)
            return lambda f: whole(*[arg(f) for arg in args])
        op = intrinsic(e.name, operand.scalar, e.dtype.scalar)
        if operand.lanes == 1 or TABLE[e.name].reduces:
            return lambda f: op(*[arg(f) for arg in args])
        return lambda f: list(map(op, *[arg(f) for arg in args]))

    def load(self, e: Load) -> Run:
        memory, place = self.place("load", e.buffer, e.indices)
        fail = _Undefined(memory, self.around)
        if e.mask is not None:
            return self.masked_load(e, e.mask, memory, fail)
        if e.dtype.lanes == 1:

            def read(f):
                at = place(f)
                value = memory.data[at]
                return fail(at, f) if value is None else value

            return read

        def read_vector(f):
            data = memory.data
            places = place(f)
            values = [data[at] for at in places]
            return [fail(at, f) if value is None else value for at, value in zip(places, values)]

        return read_vector

    def masked_load(self, e: Load, mask: Expr, memory: Memory, fail: Callable) -> Run:
        places = self.masked_places("load", e.buffer, e.indices, mask)
        nothing = lane(0, e.dtype.scalar)

        def read(f):
            on = places(f)
            values = [nothing if at is None else memory.data[at] for at in on]
            return [fail(at, f) if value is None else value for at, value in zip(on, values)]

        return read if e.dtype.lanes > 1 else lambda f: read(f)[0]

    # places: from indices to offsets in a memory, checked

    def place(self, what: str, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Memory, Run]:
        """The memory of a buffer, and the offset that indices name there: a list for vectors."""
        memory = self.memories.get(buffer)
        if memory is None:
            raise InternalError(f"interpret: buffer {buffer.name!r} is not declared")
        offset = _Offset(what, memory, self.is_offset(buffer, indices), self.around)
        runs = [self.expr(index) for index in indices]
        lanes = max([index.dtype.lanes for index in indices], default=1)
        if lanes > 1:
            rows = self.rows(indices, runs, lanes)
            return memory, lambda f: [offset(row, f) for row in rows(f)]
        if offset.is_offset:
            index = runs[0]

            def run_flat(f):
                i = index(f)
                return i if 0 <= i < len(memory.data) else offset((i,), f)

            return memory, run_flat
        if len(runs) == 2:
            first, second = runs

            def run_2d(f):
                i, j = first(f), second(f)
                rows, columns = memory.shape
                if 0 <= i < rows and 0 <= j < columns:
                    return i * memory.strides[0] + j * memory.strides[1]
                return offset((i, j), f)

            return memory, run_2d
        return memory, lambda f: offset([run(f) for run in runs], f)

    def rows(self, indices: tuple[Expr, ...], runs: list[Run], lanes: int) -> Run:
        """The indices of each lane."""
        wide = [index.dtype.lanes > 1 for index in indices]
        return lambda f: list(
            zip(*[run(f) if vector else [run(f)] * lanes for run, vector in zip(runs, wide)])
        )

    def is_offset(self, buffer: Buffer, indices: tuple[Expr, ...]) -> bool:
        rank = len(buffer.shape)
        if len(indices) not in (1, rank):
            raise InternalError(
                f"interpret: buffer {buffer.name!r} takes {rank} indices, not {len(indices)}"
            )
        return len(indices) == 1 and (rank != 1 or self.flat)

    def masked_places(
        self, what: str, buffer: Buffer, indices: tuple[Expr, ...], mask: Expr
    ) -> Run:
        """The offset of each lane, None for those that are off."""
        memory = self.memories[buffer]
        offset = _Offset(what, memory, self.is_offset(buffer, indices), self.around)
        lanes = mask.dtype.lanes
        rows = self.rows(indices, [self.expr(index) for index in indices], lanes)
        on = self.expr(mask)
        if lanes == 1:
            return lambda f: [offset(rows(f)[0], f) if on(f) else None]
        return lambda f: [offset(row, f) if is_on else None for row, is_on in zip(rows(f), on(f))]

    # statements

    def stmt(self, s: Stmt) -> Run:
        make = _STMTS.get(type(s))
        if make is None:
            raise InternalError(f"interpret: {type(s).__name__} is no statement of the IR")
        return make(self, s)

    def store(self, s: Store) -> Run:
        memory, place = self.place("store", s.buffer, s.indices)
        value = self.expr(s.value)
        if s.mask is not None:
            return self.masked_store(s, s.mask, memory, value)
        if s.value.dtype.lanes == 1:

            def write(f):
                at = place(f)
                memory.data[at] = value(f)

            return write

        def write_vector(f):
            for at, element in zip(place(f), value(f)):
                memory.data[at] = element

        return write_vector

    def masked_store(self, s: Store, mask: Expr, memory: Memory, value: Run) -> Run:
        places = self.masked_places("store", s.buffer, s.indices, mask)
        is_scalar = s.value.dtype.lanes == 1

        def write(f):
            elements = value(f)
            for at, element in zip(places(f), [elements] if is_scalar else elements):
                if at is not None:
                    memory.data[at] = element

        return write

    def seq(self, s: Seq) -> Run:
        steps = [self.stmt(inner) for inner in s.stmts]

        def run(f):
            for step in steps:
                step(f)

        return run

    def loop(self, s: For) -> Run:
        start, extent, slot = self.expr(s.start), self.expr(s.extent), self.slot(s.var)
        around, in_threads = self.around, self.in_threads
        self.around = (*around, ("", s.var.name, slot))
        self.in_threads = in_threads or s.kind == "thread"
        body = self.stmt(s.body)
        self.around, self.in_threads = around, in_threads

        def run(f):
            first = start(f)
            for value in range(first, first + extent(f)):
                f[slot] = value
                body(f)

        return run

    def block(self, s: Block) -> Run:
        predicate = (
            None if type(s.predicate) is Const and s.predicate.value else self.expr(s.predicate)
        )
        bindings = [(self.expr(it.binding), self.expr(it.extent)) for it in s.iters]
        outside = self.around
        iters = [(*runs, self.slot(it.var), it.var.name) for runs, it in zip(bindings, s.iters)]
        self.around = (*outside, *[(s.name, name, slot) for _, _, slot, name in iters])
        reduced = [self.slot(it.var) for it in s.iters if it.kind == "reduce"]
        init = None if s.init is None else self.stmt(s.init)
        body = self.stmt(s.body)
        self.around = outside

        def run(f):
            if predicate is not None and not predicate(f):
                return
            for binding, extent, slot, name in iters:
                value = f[slot] = binding(f)
                if not 0 <= value < extent(f):
                    _outside_domain(s.name, name, value, extent(f), outside, f)
            if init is not None and not any([f[slot] for slot in reduced]):
                init(f)
            body(f)

        return run

    def branch(self, s: If) -> Run:
        condition, then = self.expr(s.condition), self.stmt(s.then)
        orelse = self.stmt(Seq(()) if s.orelse is None else s.orelse)
        return lambda f: then(f) if condition(f) else orelse(f)

    def let(self, s: Let) -> Run:
        value, slot = self.expr(s.value), self.slot(s.var)
        body = self.stmt(s.body)

        def run(f):
            f[slot] = value(f)
            body(f)

        return run

    def alloc_buffer(self, buffer: Buffer) -> Run:
        memory = self.memories[buffer] = Memory(buffer)
        shape = [self.expr(extent) for extent in buffer.shape]
        strides = (
            None if buffer.strides is None else [self.expr(stride) for stride in buffer.strides]
        )

        def run(f):
            steps = None if strides is None else tuple([stride(f) for stride in strides])
            memory.allocate(tuple([extent(f) for extent in shape]), steps)

        return run

    def alloc(self, s: Alloc) -> Run:
        fresh = [self.alloc_buffer(buffer) for buffer in s.buffers]
        body = self.stmt(s.body)

        def run(f):
            for make in fresh:
                make(f)
            body(f)

        return run

    def loop_while(self, s: While) -> Run:
        condition, body = self.expr(s.condition), self.stmt(s.body)

        def run(f):
            while condition(f):
                body(f)

        return run

    def check(self, s: Check) -> Run:
        condition, value, message = self.expr(s.condition), self.expr(s.value), s.message
        at = [self.expr(each) for each in s.at]

        def run(f):
            if not condition(f):
                raise ArgumentError(failure(message, value(f), [each(f) for each in at]))

        return run

    def barrier(self, s: Barrier) -> Run:
        if self.in_threads:
            raise UnsupportedError(
                f"barrier {s.scope}: the interpreter runs threads one after the other"
            )
        return lambda f: None

    def prefetch(self, s: Prefetch) -> Run:
        indices = [self.expr(e) for e in s.indices]  # what is loaded for an address must exist

        def run(f):
            for each in indices:
                each(f)

        return run

    def evaluate(self, s: Evaluate) -> Run:
        return self.expr(s.call)


def _choose(condition, true, false):
    return true if condition else false


class _Offset:
    """From the indices of one lane to an offset in a memory, with every check."""

    __slots__ = ("around", "is_offset", "memory", "what")

    def __init__(self, what: str, memory: Memory, is_offset: bool, around: Around):
        self.what = what
        self.memory = memory
        self.is_offset = is_offset
        self.around = around

    def __call__(self, indices, f: Frame) -> int:
        memory = self.memory
        shape, strides = memory.shape, memory.strides
        if self.is_offset:
            shape, strides = (len(memory.data),), (1,)
        at = 0
        for axis, index in enumerate(indices):
            if not 0 <= index < shape[axis]:
                self.fail(indices, axis, shape[axis], f)
            at += index * strides[axis]
        return at

    def fail(self, indices, axis: int, extent: int, f: Frame) -> NoReturn:
        access = f"{self.what} of {self.memory.buffer.name}[{', '.join(map(str, indices))}]"
        on = f" on axis {axis}" if len(indices) > 1 else ""
        raise ExpressionError(
            f"{access}: index {indices[axis]}{on} is not in 0 .. {extent}{_where(self.around, f)}"
        )


class _Undefined:
    """Refuses to read an element that nothing wrote."""

    __slots__ = ("around", "memory")

    def __init__(self, memory: Memory, around: Around):
        self.memory = memory
        self.around = around

    def __call__(self, at: int, f: Frame) -> NoReturn:
        memory = self.memory
        indices = []
        rest = at
        for extent, stride in zip(memory.shape, memory.strides):
            indices.append(min(extent - 1, rest // stride) if stride else 0)
            rest -= indices[-1] * stride
        access = f"load of {memory.buffer.name}[{', '.join(map(str, indices))}]"
        raise ExpressionError(
            f"{access}: the element is read before it is written{_where(self.around, f)}"
        )


def _outside_domain(
    block: str, name: str, value: int, extent: int, around: Around, f: Frame
) -> NoReturn:
    problem = f"iterator {name} = {value} is not in 0 .. {extent}, though the predicate holds"
    raise ExpressionError(f"block {block}: {problem}{_where(around, f)}")


def _where(around: Around, f: Frame) -> str:
    """The values of the loops and iterators at a place."""
    parts: list[str] = []
    last = ""
    for block, name, slot in around:
        label = f"block {block}: " if block and block != last else ""
        last = block
        parts.append(f"{label}{name} = {f[slot]}")
    return f"; at {', '.join(parts)}" if parts else ""


_EXPRS: dict[type, Callable[..., Run]] = {
    Broadcast: _Compiler.broadcast,
    Call: _Compiler.call,
    Cast: _Compiler.cast,
    Const: _Compiler.const,
    IfThenElse: _Compiler.if_then_else,
    Load: _Compiler.load,
    Neg: _Compiler.neg,
    Not: _Compiler.logical_not,
    Ramp: _Compiler.ramp,
    Select: _Compiler.select,
    Var: _Compiler.var,
}

_STMTS: dict[type, Callable[..., Run]] = {
    Alloc: _Compiler.alloc,
    Barrier: _Compiler.barrier,
    Block: _Compiler.block,
    Check: _Compiler.check,
    Evaluate: _Compiler.evaluate,
    Prefetch: _Compiler.prefetch,
    For: _Compiler.loop,
    If: _Compiler.branch,
    Let: _Compiler.let,
    Seq: _Compiler.seq,
    Store: _Compiler.store,
    While: _Compiler.loop_while,
}
