"""For each name of the table in `ir/intrinsic.py` the function that emits it."""

from __future__ import annotations

from collections.abc import Callable

from tensorc.codegen.llvm.builder import Value
from tensorc.codegen.llvm.context import Context, emits
from tensorc.codegen.llvm.convert import convert, is_half
from tensorc.codegen.llvm.instructions import emit_whole
from tensorc.codegen.llvm.math.lanes import Lanes
from tensorc.dtypes import float32
from tensorc.errors import UnsupportedError
from tensorc.ir.expr import Call
from tensorc.ir.intrinsic import TABLE

Emitter = Callable[..., Lanes]  # of the arguments
INTRINSICS: dict[str, Emitter] = {}
_ON_BITS = ("nextafter", "float_bits", "bits_float")  # not the same in float32


def implements(*names: str):
    """Register a function as the implementation of these intrinsics."""

    def register(emitter: Emitter) -> Emitter:
        for name in names:
            INTRINSICS[name] = emitter
        return emitter

    return register


@emits(Call)
def emit_call(ctx: Context, call: Call) -> Value:
    """The result of an intrinsic; 16-bit floats are computed in float32."""
    entry = TABLE.get(call.name)
    if entry is not None and entry.whole:
        return emit_whole(ctx, call)
    emitter = INTRINSICS.get(call.name)
    if emitter is None:
        raise UnsupportedError(f"intrinsic {call.name!r}: the LLVM code generator has no implementation of it")
    args = [Lanes(ctx, arg.dtype, ctx.emit(arg)) for arg in call.args]
    if call.name in _ON_BITS or not is_half(call.args[0].dtype):
        return emitter(*args).value
    wide = float32.with_lanes(args[0].kind.lanes)
    result = emitter(*[Lanes(ctx, wide, convert(ctx, arg.value, arg.kind, wide)) for arg in args])
    return convert(ctx, result.value, result.kind, call.dtype)
