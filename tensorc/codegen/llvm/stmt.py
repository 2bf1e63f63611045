"""Statements: loops, branches, allocations, checks."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from tensorc.arith import is_wild
from tensorc.codegen.llvm.builder import Value
from tensorc.codegen.llvm.context import MAX_ALIGNMENT, Context, Pointer, index, llvm_type
from tensorc.codegen.llvm.convert import convert
from tensorc.codegen.llvm.expr import intrinsic
from tensorc.codegen.llvm.memory import emit_prefetch, emit_store, mark_written
from tensorc.dtypes import int64
from tensorc.errors import UnsupportedError
from tensorc.ir.expr import Buffer, Const
from tensorc.ir.expr import index as index_expr
from tensorc.ir.stmt import (
    Alloc,
    Barrier,
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
from tensorc.ir.walk import walk, walk_expr

LOOPS: dict[str, Callable[[Context, For], None]] = {}  # by kind; "parallel" is added by parallel.py
PARTS: list[Callable[[Context, Stmt], None]] = []  # what makes a function of a part; parallel.py adds it


def emit_stmt(ctx: Context, stmt: Stmt) -> None:
    """Append a statement to the function at hand."""
    ctx.memo = {}
    if id(stmt) in ctx.module.parts:
        ctx.module.parts.discard(id(stmt))
        PARTS[0](ctx, stmt)
        return
    match stmt:
        case Store(mask=mask) if mask is not None and stmt.indices[0].dtype.lanes == 1:
            emit_stmt(ctx, If(mask, Store(stmt.buffer, stmt.indices, stmt.value)))
        case Store():
            emit_store(ctx, stmt)
        case Seq(stmts):
            for inner in stmts:
                emit_stmt(ctx, inner)
        case For(kind=kind):
            emitter = LOOPS.get(kind)
            if emitter is None:
                raise UnsupportedError(
                    f"loop {stmt.var.name!r}: a {kind} loop does not run on a CPU"
                )
            emitter(ctx, stmt)
        case If():
            _branch(ctx, stmt)
        case Let(var, value, body):
            ctx.variables[var] = ctx.emit(value)
            known = var.dtype is int64
            if known:
                ctx.loops.append((var, value, index_expr(1)))
            emit_stmt(ctx, body)
            if known:
                ctx.loops.pop()
        case Alloc():
            _alloc(ctx, stmt)
        case While():
            _while(ctx, stmt)
        case Check():
            _check(ctx, stmt)
        case Prefetch():
            emit_prefetch(ctx, stmt)
        case Evaluate(call):
            ctx.emit(call)
        case Barrier(scope):
            raise UnsupportedError(f"barrier {scope}: a CPU has no thread loops")
        case _:
            raise UnsupportedError(f"{type(stmt).__name__}: not a statement of a flat function")


def _serial(ctx: Context, loop: For) -> None:
    start, extent = ctx.emit(loop.start), ctx.emit(loop.extent)
    if extent.const is not None and extent.const <= 0:
        return
    if extent.const == 1:
        ctx.variables[loop.var] = start
        emit_stmt(ctx, loop.body)
        return
    wild = any([is_wild(e) for e in walk_expr(loop.start)])  # it ends no later than at the last number there is
    end = intrinsic(ctx, "sadd.sat", int64, start, extent) if wild else add(ctx, start, extent)

    def body(value: Value) -> None:
        ctx.variables[loop.var] = value
        ctx.loops.append((loop.var, loop.start, loop.extent))
        emit_stmt(ctx, loop.body)
        ctx.loops.pop()

    emit_loop(ctx, loop.var.name, start, end, extent.const is not None and not wild, body, written_in(ctx, loop))


def _unrolled(ctx: Context, loop: For) -> None:
    if type(loop.extent) is not Const:
        raise UnsupportedError(f"loop {loop.var.name!r}: an unrolled loop needs a constant extent")
    start = ctx.emit(loop.start)
    for step in range(int(loop.extent.value)):
        ctx.variables[loop.var] = add(ctx, start, index(step))
        ctx.loops.append((loop.var, loop.start, loop.extent))
        emit_stmt(ctx, loop.body)
        ctx.loops.pop()


LOOPS["serial"] = _serial
LOOPS["unrolled"] = _unrolled


def add(ctx: Context, a: Value, b: Value) -> Value:
    """The sum of two int64 values."""
    if a.const is not None and b.const is not None:
        return index(a.const + b.const)
    if b.const == 0:
        return a
    if a.const == 0:
        return b
    return ctx.builder.hoist(f"add nsw {a.typed}, {b.ref}", "i64", max(a.depth, b.depth))


def written_in(ctx: Context, loop: Stmt) -> frozenset[Buffer]:
    """The buffers that a statement writes."""
    known = ctx.module.written
    if id(loop) not in known:
        known[id(loop)] = frozenset([stmt.buffer for stmt in walk(loop) if type(stmt) is Store])
    return known[id(loop)]


def emit_loop(
    ctx: Context,
    name: str,
    start: Value,
    end: Value,
    runs: bool,
    body: Callable[[Value], None],
    written: frozenset[Buffer],
) -> None:
    """A loop from `start` up to `end`; `runs` says that it is known to run at least once."""
    build = ctx.builder
    plain = re.sub(r"[^\w.]", "_", name[:200], flags=re.ASCII)  # LLVM cuts long names off
    labels = build.label("ready"), build.label(f"loop.{plain}"), build.label("done")
    if not runs:
        test = build.hoist(f"icmp slt {start.typed}, {end.ref}", "i1", max(start.depth, end.depth))
        build.enter()
        build.end(f"br {test.typed}, label %{labels[0]}, label %{labels[2]}")
        build.start(labels[0])
    build.enter(always=True, written=written)
    for buffer in written:  # an iteration may read what the one before it wrote
        mark_written(ctx, buffer)
    before = build.block
    build.end(f"br label %{labels[1]}")
    build.start(labels[1])
    top = build.block
    counter = Value(build.name(), "i64", build.depth)
    body(counter)
    following = build.emit(
        f"add nuw nsw {counter.typed}, 1" if start.const == 0 else f"add nsw {counter.typed}, 1",
        "i64",
    )
    again = build.emit(f"icmp slt {following.typed}, {end.ref}", "i1")
    arrivals = f"[ {start.ref}, %{before.label} ], [ {following.ref}, %{build.block.label} ]"
    top.lines.insert(0, f"{counter.ref} = phi i64 {arrivals}")
    build.end(f"br {again.typed}, label %{labels[1]}, label %{labels[2]}")
    build.leave()
    if not runs:
        build.leave()
    build.start(labels[2])


def _branch(ctx: Context, stmt: If) -> None:
    condition = ctx.emit(stmt.condition)
    if condition.const is not None:
        chosen = stmt.then if condition.const else stmt.orelse
        if chosen is not None:
            emit_stmt(ctx, chosen)
        return
    build = ctx.builder
    origin = build.block
    labels = build.label("then"), build.label("else"), build.label("end")
    for label, side in zip(labels, (stmt.then, stmt.orelse)):
        if side is None:
            continue
        build.block = origin
        build.enter()
        build.start(label)
        emit_stmt(ctx, side)
        build.leave()
        build.end(f"br label %{labels[2]}")
    otherwise = labels[2] if stmt.orelse is None else labels[1]
    origin.terminator = f"br {condition.typed}, label %{labels[0]}, label %{otherwise}"
    build.start(labels[2])


def _while(ctx: Context, stmt: While) -> None:
    build = ctx.builder
    labels = build.label("while"), build.label("do"), build.label("done")
    written = written_in(ctx, stmt)
    build.enter(written=written)
    for buffer in written:
        mark_written(ctx, buffer)
    build.end(f"br label %{labels[0]}")
    build.start(labels[0])
    condition = ctx.emit(stmt.condition)
    build.enter()
    build.end(f"br {condition.typed}, label %{labels[1]}, label %{labels[2]}")
    build.start(labels[1])
    emit_stmt(ctx, stmt.body)
    build.end(f"br label %{labels[0]}")
    build.leave()
    build.leave()
    build.start(labels[2])


def _alloc(ctx: Context, stmt: Alloc) -> None:
    lives = []
    for buffer in stmt.buffers:
        if buffer.scope == "local":
            lives.append(_on_stack(ctx, buffer))
        else:
            _in_workspace(ctx, buffer)
    emit_stmt(ctx, stmt.body)
    for where in reversed(lives):
        ctx.builder.do(f"call void @llvm.lifetime.end.p0({where.typed})")


def _in_workspace(ctx: Context, buffer: Buffer) -> None:
    offset = ctx.emit(ctx.module.offsets[buffer])
    text = f"getelementptr i8, {ctx.slice.typed}, {offset.typed}"
    where = ctx.builder.hoist(text, "ptr", max(ctx.slice.depth, offset.depth))
    ctx.pointers[buffer] = Pointer(where, MAX_ALIGNMENT)


def _on_stack(ctx: Context, buffer: Buffer) -> Value:
    """The buffer's memory, from here to where its life is ended."""
    build = ctx.builder
    if not all(type(extent) is Const for extent in buffer.shape):
        raise UnsupportedError(f"buffer {buffer.name!r}: a local buffer needs constant extents")
    count = math.prod(extent.value for extent in buffer.shape)
    where = Value(build.name(), "ptr")
    kind = f"[{count} x {llvm_type(buffer.dtype, memory=True)}]"
    build.allocas.append(f"{where.ref} = alloca {kind}, align {MAX_ALIGNMENT}")
    ctx.pointers[buffer] = Pointer(where, MAX_ALIGNMENT)
    for edge in ("start", "end"):
        ctx.module.declare(f"llvm.lifetime.{edge}.p0", "void (ptr)")
    build.do(f"call void @llvm.lifetime.start.p0({where.typed})")
    return where


def _check(ctx: Context, stmt: Check) -> None:
    condition = ctx.emit(stmt.condition)
    if condition.const == 1:
        return

    def last_words() -> None:  # what they tell is looked at only here: it may lie where the condition guards
        value = convert(ctx, ctx.emit(stmt.value), stmt.value.dtype, int64)
        report(ctx, ctx.module.text_constant(stmt.message), [value, *[ctx.emit(place) for place in stmt.at]])

    fail(ctx, condition, last_words)


def fail(ctx: Context, condition: Value, last_words: Callable[[], None]) -> None:
    """Leave the function with 1 where the condition does not hold."""
    build = ctx.builder
    labels = build.label("fail"), build.label("pass")
    build.enter()
    build.end(f"br {condition.typed}, label %{labels[1]}, label %{labels[0]}")
    build.start(labels[0])
    last_words()
    build.end("ret i32 1")
    build.leave()
    build.start(labels[1])
    for scope in build.scopes:  # what follows is no longer certain to be reached
        scope.always = False


def report(ctx: Context, message: Value, numbers: list[Value]) -> None:
    """Store the message of a failed check, its value and its places; of several tasks only the
    first does."""
    build = ctx.builder
    stores = [f"store {message.typed}, {ctx.error.typed}, align 8"]
    for position, number in enumerate(numbers, 1):
        place = build.emit(f"getelementptr i8, {ctx.error.typed}, i64 {8 * position}", "ptr")
        stores.append(f"store {number.typed}, {place.typed}, align 8")
    if ctx.flag is None:
        for store in stores:
            build.do(store)
        return
    pair = build.emit(f"cmpxchg {ctx.flag.typed}, i32 0, i32 1 monotonic monotonic", "{ i32, i1 }")
    first = build.emit(f"extractvalue {pair.typed}, 1", "i1")
    labels = build.label("first"), build.label("late")
    build.end(f"br {first.typed}, label %{labels[0]}, label %{labels[1]}")
    build.start(labels[0])
    for store in stores:
        build.do(store)
    build.end(f"br label %{labels[1]}")
    build.start(labels[1])
