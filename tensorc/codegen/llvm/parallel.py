"""Parallel loops as tasks on the thread pool, and parts of long functions.

The body of a loop becomes a function of its own, which gets what it uses through a closure on the
stack. A part is called with what it uses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tensorc.codegen.llvm.builder import Builder, Value
from tensorc.codegen.llvm.context import MAX_ALIGNMENT, Context, Module, Pointer, index
from tensorc.codegen.llvm.expr import intrinsic
from tensorc.codegen.llvm.memory import mark_written, settle_streams
from tensorc.codegen.llvm.stmt import LOOPS, PARTS, add, emit_loop, emit_stmt, fail, written_in
from tensorc.dtypes import int64
from tensorc.ir.expr import Buffer, Const, Expr, Load, Var
from tensorc.ir.stmt import Alloc, Check, For, Prefetch, Seq, Stmt, Store
from tensorc.ir.walk import exprs, walk, walk_expr

MANY_PARTS = 12  # from so many nests on, each is a function of its own
PART_LOOPS = 8  # around which an allocation belongs to the part
PART_ELEMENTS = 1024  # of a buffer that may be accumulators

_PROTOTYPE = "void (ptr, ptr, i64, i64)"


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of an internal function: its declaration, and its value where the caller is."""

    declared: str
    passed: Value


def emit_parallel(ctx: Context, loop: For) -> None:
    """Outline the body as a task, and hand it to the pool."""
    module, build = ctx.module, ctx.builder
    start, extent = ctx.emit(loop.start), ctx.emit(loop.extent)
    if extent.const is None:
        extent = intrinsic(ctx, "smax", int64, extent, index(0))
    name = f"{module.symbol}.task{module.tasks}"
    module.tasks += 1
    module.parallel = True
    can_fail = any(type(stmt) is Check for stmt in walk(loop.body))
    flag = _new_flag(ctx) if can_fail else None
    task, arguments = _capture(ctx, loop.body, start, flag)
    begin, end = Value("%begin", "i64"), Value("%end", "i64")
    emit_loop(
        task,
        loop.var.name,
        begin,
        end,
        False,
        lambda value: _iteration(task, loop, value, start),
        written_in(ctx, loop),
    )
    settle_streams(task)
    task.builder.end("ret i32 0")
    emit_function(
        module,
        f"{name}.body",
        [a.declared for a in arguments] + [begin.typed, end.typed],
        task.builder,
    )
    share = _pass_shares(ctx, arguments)
    _emit_task(module, name, arguments, share)
    data = _closure(ctx, [*[a.passed for a in arguments], *([] if share is None else [share])])
    module.declare("tensorc_parallel_for", _PROTOTYPE)
    operands = f"{data.typed}, {extent.typed}, {ctx.threads.typed}"
    build.do(f"call void @tensorc_parallel_for(ptr @{name}, {operands})")
    for buffer in written_in(ctx, loop):
        mark_written(ctx, buffer)
    if flag is not None:
        failed = build.emit(f"load i32, {flag.typed}, align 4", "i32")
        fail(ctx, build.emit(f"icmp eq {failed.typed}, 0", "i1"), lambda: None)


LOOPS["parallel"] = emit_parallel


def find_parts(stmt: Stmt) -> set[int]:
    """The ids of the statements of a long function that become functions of their own: loops, with what they
    accumulate in. LLVM takes more than twice the time for twice the code in one function."""
    found: list[Stmt] = []

    def visit(s: Stmt) -> None:
        match s:
            case For(kind="serial"):
                found.append(s)
            case Seq(stmts):
                for inner in stmts:
                    visit(inner)
            case Alloc(buffers, body):
                loops = [inner for inner in walk(body) if type(inner) is For] if all(map(_is_small, buffers)) else []
                if 0 < len(loops) <= PART_LOOPS and not any(loop.kind == "parallel" for loop in loops):
                    found.append(s)
                else:
                    visit(body)

    visit(stmt)
    return {id(s) for s in found} if len(found) >= MANY_PARTS else set()


def _is_small(buffer: Buffer) -> bool:
    """Whether a buffer may be held in registers."""
    return buffer.scope == "local" and math.prod([e.value for e in buffer.shape if type(e) is Const]) <= PART_ELEMENTS


def emit_part(ctx: Context, stmt: Stmt) -> None:
    """A statement as a function of its own."""
    module, build = ctx.module, ctx.builder
    name = f"{module.symbol}.part{module.tasks}"
    module.tasks += 1
    part, arguments = _capture(ctx, stmt, index(0), None)
    arguments += [Argument("ptr noalias %error", ctx.error), Argument("i64 %threads", ctx.threads)]
    part.threads = Value("%threads", "i64")
    emit_stmt(part, stmt)
    settle_streams(part)
    part.builder.end("ret i32 0")
    emit_function(module, name, [a.declared for a in arguments], part.builder)
    status = build.emit(f"call i32 @{name}({', '.join([a.passed.typed for a in arguments])})", "i32")
    for buffer in written_in(ctx, stmt):
        mark_written(ctx, buffer)
    if any(type(inner) is Check for inner in walk(stmt)):
        fail(ctx, build.emit(f"icmp eq {status.typed}, 0", "i1"), lambda: None)


PARTS.append(emit_part)


def _iteration(task: Context, loop: For, value: Value, start: Value) -> None:
    task.variables[loop.var] = add(
        task, value, start if start.const is not None else Value("%start", "i64")
    )
    task.loops.append((loop.var, loop.start, loop.extent))
    emit_stmt(task, loop.body)
    task.loops.pop()


def _new_flag(ctx: Context) -> Value:
    flag = Value(ctx.builder.name(), "ptr")
    ctx.builder.allocas.append(f"{flag.ref} = alloca i32, align 4")
    ctx.builder.do(f"store i32 0, {flag.typed}, align 4")
    return flag


def _capture(
    ctx: Context, body: Stmt, start: Value, flag: Value | None
) -> tuple[Context, list[Argument]]:
    """A context for the task, with all that the body reads of the surroundings as arguments."""
    variables, buffers, written = _free(body, ctx.module.offsets)
    inner: dict[Var, Value] = {}
    pointers: dict[Buffer, Pointer] = {}
    arguments: list[Argument] = []
    for buffer in buffers:
        outer = ctx.pointers.get(buffer)
        if outer is None:
            continue
        value = argument("buffer", len(arguments), buffer.name, "ptr")
        pointers[buffer] = pointer = Pointer(value, outer.alignment, buffer not in written)
        arguments.append(Argument(declare_pointer(pointer), outer.value))
    for var in variables:
        known = ctx.variables.get(var)
        if known is None:
            continue
        inner[var] = known
        if known.const is None:
            inner[var] = argument("scalar", len(arguments), var.name, known.type)
            arguments.append(Argument(inner[var].typed, known))
    if start.const is None:
        arguments.append(Argument("i64 %start", start))
    if flag is not None:
        arguments.append(Argument("ptr %flag", flag))
        arguments.append(Argument("ptr %error", ctx.error))
    arguments.append(Argument(f"ptr noalias align {MAX_ALIGNMENT} %workspace", ctx.slice))
    task = Context(
        ctx.module,
        Builder(),
        inner,
        pointers,
        Value("%workspace", "ptr"),
        Value("%error", "ptr"),
        index(1),  # a parallel loop in a task would be serial
        flag and Value("%flag", "ptr"),
        loops=list(ctx.loops),
    )
    return task, arguments


def argument(what: str, position: int, name: str, kind: str) -> Value:
    """A named argument; the position keeps equal names apart, and LLVM knows names of any length only
    by their start."""
    return Value(f'%"{what}{position}.{name[:200]}"', kind)


def declare_pointer(pointer: Pointer) -> str:
    """The declaration of a buffer as an argument."""
    readonly = " readonly" if pointer.readonly else ""
    return (
        f"ptr noalias{readonly} align {min(pointer.alignment, MAX_ALIGNMENT)} {pointer.value.ref}"
    )


def _free(
    body: Stmt, offsets: dict[Buffer, Expr]
) -> tuple[dict[Var, None], dict[Buffer, None], set[Buffer]]:
    """The variables and buffers that a statement uses, in order, and the buffers that it writes."""
    variables: dict[Var, None] = {}
    buffers: dict[Buffer, None] = {}
    written = set()
    for stmt in walk(body):
        roots = exprs(stmt)
        if type(stmt) is Store:
            buffers[stmt.buffer] = None
            written.add(stmt.buffer)
        elif type(stmt) is Prefetch:
            buffers[stmt.buffer] = None
        elif type(stmt) is Alloc:
            roots = tuple([offsets[buffer] for buffer in stmt.buffers if buffer in offsets])
        for root in roots:
            for expr in walk_expr(root):
                if type(expr) is Var:
                    variables[expr] = None
                elif type(expr) is Load:
                    buffers[expr.buffer] = None
    return variables, buffers, written


def _closure(ctx: Context, values: list[Value]) -> Value:
    build = ctx.builder
    data = Value(build.name(), "ptr")
    build.allocas.append(f"{data.ref} = alloca [{len(values)} x i64], align 8")
    for position, value in enumerate(values):
        place = build.emit(f"getelementptr i64, {data.typed}, i64 {position}", "ptr")
        build.do(f"store {value.typed}, {place.typed}, align 8")
    return data


def _pass_shares(ctx: Context, arguments: list[Argument]) -> Value | None:
    """Let the workspace, the last argument, start at the participants' shares; the size of one,
    passed behind the arguments where it is no constant. None: there are none."""
    size = ctx.emit(ctx.module.thread_workspace)
    if size.const == 0:
        return None
    skip = ctx.emit(ctx.module.workspace)
    workspace = arguments.pop()
    text = f"getelementptr i8, {workspace.passed.typed}, {skip.typed}"
    arguments.append(Argument(workspace.declared, ctx.builder.emit(text, "ptr")))
    return size


def _emit_task(module: Module, name: str, arguments: list[Argument], share: Value | None) -> None:
    """What the pool calls: takes the closure apart and finds the participant's share of memory."""
    build = Builder()
    passed = []
    for position, argument in enumerate(arguments):
        passed.append(_captured(build, position, argument.passed.type))
    if share is not None:
        size = share if share.const is not None else _captured(build, len(arguments), "i64")
        start = build.emit(f"mul i64 %slot, {size.ref}", "i64")
        passed[-1] = build.emit(f"getelementptr i8, {passed[-1].typed}, {start.typed}", "ptr")
    operands = ", ".join([*[value.typed for value in passed], "i64 %begin", "i64 %end"])
    build.do(f"call i32 @{name}.body({operands})")
    build.end("ret void")
    parameters = ["ptr %data", "i64 %begin", "i64 %end", "i64 %slot"]
    emit_function(module, name, parameters, build, result="void")


def _captured(build: Builder, position: int, kind: str) -> Value:
    place = build.emit(f"getelementptr i64, ptr %data, i64 {position}", "ptr")
    return build.emit(f"load {kind}, {place.typed}, align 8", kind)


def emit_function(
    module: Module,
    name: str,
    parameters: list[str],
    build: Builder,
    result: str = "i32",
    internal: bool = True,
) -> None:
    """Add a finished function to the module."""
    linkage = "internal " if internal else ""
    head = f"define {linkage}{result} @{name}({', '.join(parameters)}) nounwind {{"
    module.functions.append(f"{head}\n{build.text()}\n}}")
