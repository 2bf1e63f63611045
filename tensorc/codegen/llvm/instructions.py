"""Hardware instructions: calls of the intrinsics that LLVM has for them."""

from __future__ import annotations

from tensorc.codegen.llvm.builder import Value
from tensorc.codegen.llvm.context import Context, llvm_type, vector_type
from tensorc.dtypes import DType
from tensorc.errors import UnsupportedError
from tensorc.intrinsics import INSTRUCTIONS
from tensorc.intrinsics.instructions import Instruction
from tensorc.ir.expr import Call


def emit_whole(ctx: Context, call: Call) -> Value:
    """The result of an intrinsic that takes vectors as such."""
    values = [ctx.emit(arg) for arg in call.args]
    found = INSTRUCTIONS.get(call.name)
    if call.name in ("interleave.low", "interleave.high"):
        return _interleave(ctx, values[0], values[1], call)
    if found is None:
        return _repeat(ctx, values[0], call.args[0].dtype, call.dtype)
    target = ctx.module.target
    if not found.runs_on(target):
        needed = " or ".join([" and ".join(each) for each in found.features])
        problem = f"{target.mcpu} lacks it; {found.machine} with {needed} has it"
        raise UnsupportedError(f"instruction {call.name!r}: {problem}")
    return _instruction(ctx, found, call, values)


def _instruction(ctx: Context, found: Instruction, call: Call, values: list[Value]) -> Value:
    operands = [_as(ctx, value, _operand_type(arg.dtype)) for arg, value in zip(call.args, values)]
    kind = _operand_type(call.dtype)
    ctx.module.declare(found.llvm, f"{kind} ({', '.join([each.type for each in operands])})")
    text = f"call {kind} @{found.llvm}({', '.join([each.typed for each in operands])})"
    return _as(ctx, ctx.builder.pure(text, kind, _depth(operands)), llvm_type(call.dtype))


def _operand_type(dtype: DType) -> str:
    """bfloat16 is held as its bits, but LLVM's intrinsics take its own type."""
    return vector_type("bfloat", dtype.lanes) if dtype.kind == "bfloat" else llvm_type(dtype)


def _as(ctx: Context, value: Value, kind: str) -> Value:
    if value.type == kind:
        return value
    return ctx.builder.pure(f"bitcast {value.typed} to {kind}", kind, value.depth)


def _depth(values: list[Value]) -> int:
    return max([value.depth for value in values])


def _interleave(ctx: Context, a: Value, b: Value, call: Call) -> Value:
    lanes = call.dtype.lanes
    first = lanes // 2 if call.name == "interleave.high" else 0
    places = ", ".join([f"i32 {first + n}, i32 {first + n + lanes}" for n in range(lanes // 2)])
    text = f"shufflevector {a.typed}, {b.typed}, <{lanes} x i32> <{places}>"
    return ctx.builder.pure(text, a.type, _depth([a, b]))


def _repeat(ctx: Context, value: Value, dtype: DType, result: DType) -> Value:
    """As one wide element in every lane where there is such a type: processors load and repeat it at once."""
    bits = dtype.bits * dtype.lanes
    if bits in (16, 32, 64) and dtype.lanes > 1:
        count = result.lanes // dtype.lanes
        element = _as(ctx, value, f"i{bits}")
        kind = vector_type(f"i{bits}", count)
        zeros = f"<{count} x i32> zeroinitializer"
        build = ctx.builder
        first = build.pure(f"insertelement {kind} poison, {element.typed}, i64 0", kind, value.depth)
        every = build.pure(f"shufflevector {first.typed}, {kind} poison, {zeros}", kind, value.depth)
        return _as(ctx, every, llvm_type(result))
    kind = llvm_type(result)
    if dtype.lanes == 1:
        scalars = f"<1 x {value.type}>"
        value = ctx.builder.pure(f"insertelement {scalars} poison, {value.typed}, i64 0", scalars, value.depth)
    places = ", ".join([f"i32 {lane % dtype.lanes}" for lane in range(result.lanes)])
    text = f"shufflevector {value.typed}, {value.type} poison, <{result.lanes} x i32> <{places}>"
    return ctx.builder.pure(text, kind, value.depth)
