"""The place of every buffer in the workspace, and what a caller asks about the sizes of a call."""

from __future__ import annotations

from collections.abc import Sequence

from tensorc.arith import Domain, simplify
from tensorc.codegen.llvm.builder import Builder, Value
from tensorc.codegen.llvm.context import MAX_ALIGNMENT, Context, Module
from tensorc.codegen.llvm.parallel import emit_function
from tensorc.dtypes import float64
from tensorc.errors import UnsupportedError
from tensorc.ir.expr import Buffer, Const, Expr, Var, cast, const, index, maximum, select
from tensorc.ir.stmt import Alloc, For, Stmt
from tensorc.ir.walk import substmts

LIMIT = 1 << 50  # bytes that no machine has: so many are asked for where the count would not fit int64


def plan_workspace(body: Stmt, domain: Domain) -> tuple[dict[Buffer, Expr], Expr, Expr]:
    """(offset of each "global" internal buffer, bytes of the workspace, of a participant's share).

    Buffers inside a parallel loop lie in the share; those whose lives do not overlap may lie in the
    same place. `domain` tells of the scalars.
    """
    offsets: dict[Buffer, Expr] = {}
    most: list[Expr] = [index(0), index(0)]
    guess: list[Expr] = [const(0, float64), const(0, float64)]

    def visit(stmt: Stmt, top: Expr, shared: int) -> None:
        if type(stmt) is Alloc and stmt.buffer.scope != "local":
            offsets[stmt.buffer] = top
            top = simplify(top + _size(stmt.buffer, domain), domain)
            most[shared] = simplify(maximum(most[shared], top), domain)
            guess[shared] = guess[shared] + _guess(stmt.buffer)
        if type(stmt) is For and stmt.kind == "parallel":
            top, shared = index(0), 1
        for inner in substmts(stmt):
            visit(inner, top, shared)

    visit(body, index(0), 0)
    own, share = [
        size if type(size) is Const else select(all_of > LIMIT, index(4 * LIMIT), size)
        for size, all_of in zip(most, guess)
    ]
    return offsets, own, share


def _size(buffer: Buffer, domain: Domain) -> Expr:
    """Bytes, rounded up to whole lines."""
    if buffer.scope != "global":
        raise UnsupportedError(f"buffer {buffer.name!r}: a CPU has no {buffer.scope} memory")
    size: Expr = index(buffer.dtype.bytes)
    for extent in buffer.shape:
        size = size * simplify(maximum(extent, 0), domain)
    return (size + (MAX_ALIGNMENT - 1)) // MAX_ALIGNMENT * MAX_ALIGNMENT


def _guess(buffer: Buffer) -> Expr:
    """About the bytes, where they may be too many for int64."""
    size: Expr = const(buffer.dtype.bytes, float64)
    for extent in buffer.shape:
        size = size * cast(maximum(extent, 0), float64)
    return size


def emit_sizes(module: Module, scalars: Sequence[Var], sizes: Sequence[Expr]) -> str:
    """Add `void g(const int64 *scalars, int64 *sizes)`, which writes what these expressions are;
    its symbol, or nothing where they are constant."""
    if all(type(size) is Const for size in sizes):
        return ""
    symbol = f"{module.symbol}_sizes"
    build = Builder()
    known = {}
    for position, var in enumerate(scalars):
        place = build.emit(f"getelementptr i64, ptr %scalars, i64 {position}", "ptr")
        known[var] = build.emit(f"load i64, {place.typed}, align 8", "i64")
    nothing = Value("null", "ptr")
    context = Context(module, build, known, {}, nothing, nothing, Value("0", "i64", 0, 0))
    for position, size in enumerate(sizes):
        value = context.emit(size)
        place = build.emit(f"getelementptr i64, ptr %sizes, i64 {position}", "ptr")
        build.do(f"store {value.typed}, {place.typed}, align 8")
    build.end("ret void")
    parameters = ["ptr noalias %scalars", "ptr noalias %sizes"]
    emit_function(module, symbol, parameters, build, result="void", internal=False)
    return symbol
