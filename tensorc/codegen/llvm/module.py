"""From a flat function to LLVM text, and from that to an object file."""

from __future__ import annotations

import re
from functools import cache
from threading import Lock

import llvmlite.binding as llvm  # type: ignore[import-untyped]

import tensorc.codegen.llvm.math  # noqa: F401 - adds the emitter of calls
from tensorc.arith import Domain
from tensorc.artifact import Artifact, Param
from tensorc.codegen.llvm.builder import Builder, Value
from tensorc.codegen.llvm.context import MAX_ALIGNMENT, Context, Module, Pointer
from tensorc.codegen.llvm.memory import settle_streams
from tensorc.codegen.llvm.parallel import argument, declare_pointer, emit_function, find_parts
from tensorc.codegen.llvm.stmt import emit_stmt
from tensorc.codegen.llvm.workspace import emit_sizes, plan_workspace, size_checks
from tensorc.errors import UnsupportedError
from tensorc.ir.expr import Buffer, Const, Expr, Var, as_index
from tensorc.ir.function import Function
from tensorc.ir.printer import show
from tensorc.ir.stmt import Store
from tensorc.ir.walk import walk
from tensorc.target import Target

_LLVM = Lock()  # LLVM's target machines and pass managers serve one thread at a time


def emit(function: Function, target: Target) -> str:
    """The LLVM text of a flat function, not yet optimised.

    Raises UnsupportedError for what a CPU cannot run.
    """
    return _emit(function, target).text()


def optimize(text: str, target: Target) -> str:
    """LLVM text after the passes that `compile` runs."""
    with _LLVM:
        machine = _machine(target.triple, target.cpu, target.features)
        return str(_optimized(text, machine))


def assembly(function: Function, target: Target) -> str:
    """The machine code of a flat function as assembler text."""
    text = emit(function, target)
    with _LLVM:
        machine = _machine(target.triple, target.cpu, target.features)
        return machine.emit_assembly(_optimized(text, machine))


def verbose_assembly(function: Function, target: Target) -> str:
    """As `assembly`, with comments that tell loops, the names of blocks, and spills."""
    text = emit(function, target)
    with _LLVM:
        machine = _machine.__wrapped__(target.triple, target.cpu, target.features)
        machine.set_asm_verbosity(True)
        return machine.emit_assembly(_optimized(text, machine))


def compile(
    function: Function,
    target: Target,
    *,
    flops: int | Expr,
    bytes: int | Expr,
    most: int | None = None,
) -> Artifact:
    """Machine code of a flat function, with what a caller must know of it.

    `flops` and `bytes` are those of the definition. Raises UnsupportedError for what a CPU cannot
    run, and for more than `most` characters of LLVM text, whose compilation would take long.
    """
    module = _emit(function, target)
    derived = _derived(function)
    sizes = (module.workspace, module.thread_workspace, as_index(flops), as_index(bytes))
    symbol = emit_sizes(module, _scalars(function), (*sizes, *derived.values()))
    numbers = [size.value if type(size) is Const and not symbol else 0 for size in sizes]
    # What is refused is refused before LLVM has a module: a traceback that held one would let it outlive its context.
    params = tuple([_param(buffer, function) for buffer in function.params])
    text = module.text()
    if most is not None and len(text) > most:
        raise UnsupportedError(f"its code has {len(text)} characters of LLVM text, {most} are allowed")
    bitcode, code = _made(text, target)
    return Artifact(
        name=function.name,
        symbol=module.symbol,
        params=params,
        scalars=tuple([var.name for var in _scalars(function)]),
        workspace=numbers[0],
        thread_workspace=numbers[1],
        flops=numbers[2],
        bytes=numbers[3],
        parallel=module.parallel,
        kind="object",
        triple=target.triple,
        cpu=target.cpu,
        code=code,
        features=target.features,
        bitcode=bitcode,
        sizes=symbol,
        derived=tuple(derived),
    )


def _made(text: str, target: Target) -> tuple[bytes, bytes]:
    """Bitcode and object code of LLVM text."""
    with _LLVM:
        machine = _machine(target.triple, target.cpu, target.features)
        optimized = _optimized(text, machine)
        bitcode = optimized.as_bitcode()  # first: making code changes the module
        return bitcode, machine.emit_object(optimized)


def _emit(function: Function, target: Target) -> Module:
    symbol = "tensorc_" + re.sub(r"\W", "_", function.name, flags=re.ASCII)
    offsets, workspace, thread_workspace = plan_workspace(function.body, _domain(function))
    module = Module(symbol, target, offsets, workspace, thread_workspace, parts=find_parts(function.body))
    written = {stmt.buffer for stmt in walk(function.body) if type(stmt) is Store}
    pointers = {}
    for position, buffer in enumerate(function.params):
        value = argument("buffer", position, buffer.name, "ptr")
        pointers[buffer] = Pointer(value, buffer.alignment, buffer not in written)
    scalars = {
        var: argument("scalar", position, var.name, "i64")
        for position, var in enumerate(_scalars(function))
    }
    context = Context(
        module,
        Builder(),
        dict(scalars),
        dict(pointers),
        Value("%workspace", "ptr"),
        Value("%error", "ptr"),
        Value("%threads", "i64"),
    )
    for check in size_checks(function):
        emit_stmt(context, check)
    emit_stmt(context, function.body)
    settle_streams(context)
    context.builder.end("ret i32 0")
    parameters = [
        *[declare_pointer(pointer) for pointer in pointers.values()],
        *[value.typed for value in scalars.values()],
        "i64 %threads", f"ptr noalias align {MAX_ALIGNMENT} %workspace", "ptr noalias %error",
    ]  # fmt: skip
    emit_function(module, f"{symbol}.body", parameters, context.builder)
    _emit_entry(module, len(pointers), len(scalars))
    return module


def _emit_entry(module: Module, buffers: int, scalars: int) -> None:
    """The exported function: passes the buffers on one by one, as arguments can be noalias."""
    build = Builder()
    passed = [
        *[_element(build, "%buffers", "ptr", position) for position in range(buffers)],
        *[_element(build, "%scalars", "i64", position, ", align 8") for position in range(scalars + 1)],
        Value("%workspace", "ptr"),
        Value("%error", "ptr"),
    ]
    operands = ", ".join([value.typed for value in passed])
    status = build.emit(f"call i32 @{module.symbol}.body({operands})", "i32")
    build.end(f"ret {status.typed}")
    parameters = ["ptr %buffers", "ptr %scalars", "ptr %workspace", "ptr %error"]
    emit_function(module, module.symbol, parameters, build, internal=False)


def _element(build: Builder, array: str, kind: str, position: int, alignment: str = "") -> Value:
    place = build.emit(f"getelementptr {kind}, ptr {array}, i64 {position}", "ptr")
    return build.emit(f"load {kind}, {place.typed}{alignment}", kind)


def _domain(function: Function) -> Domain:
    """What the caller vouches for."""
    domain = Domain()
    for assumption in function.assumptions:
        domain = domain.given(assumption)
    return domain


def _derived(function: Function) -> dict[str, Expr]:
    """The extents that are expressions, by their text."""
    extents = [extent for buffer in function.params for extent in buffer.shape]
    return {show(e): e for e in extents if type(e) is not Const and type(e) is not Var}


def _scalars(function: Function) -> tuple[Var, ...]:
    """Symbolic extents and strides in order of appearance, then the other scalar parameters."""
    found: dict[Var, None] = {}
    for buffer in function.params:
        for extent in (*buffer.shape, *(buffer.strides or ())):
            if type(extent) is Var:
                found[extent] = None
    found.update(dict.fromkeys(function.scalars))
    return tuple(found)


def _param(buffer: Buffer, function: Function) -> Param:
    strides = buffer.strides
    return Param(
        buffer.name,
        buffer.dtype.name,
        tuple([_extent(extent) for extent in buffer.shape]),
        buffer in function.outputs,
        None if strides is None else tuple([_stride(buffer, stride) for stride in strides]),
        buffer.alignment,
    )


def _extent(extent: Expr) -> int | str:
    if type(extent) is Var:
        return extent.name  # as callers know it, even where it is printed as another
    return int(extent.value) if type(extent) is Const else show(extent)


def _stride(buffer: Buffer, stride: Expr) -> int | str:
    match stride:
        case Const(value):
            return int(value)
        case Var(name=name):
            return name
        case _:
            raise UnsupportedError(
                f"parameter {buffer.name!r}: a stride is neither a number nor a variable"
            )


@cache
def _machine(triple: str, cpu: str, features: str) -> llvm.TargetMachine:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=features, opt=3, reloc="pic", codemodel="small"
    )


def _optimized(text: str, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    # The builder has numbered, hoisted and unrolled already: the rest takes a tenth of O2's time.
    module = llvm.parse_assembly(text, context=llvm.create_context())
    module.data_layout = str(machine.target_data)
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.run(
        module,
        llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2)),
    )
    return module
