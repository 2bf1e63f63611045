"""The place of every buffer in the workspace, and what a caller asks about the sizes of a call."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from tensorc.arith import LARGEST, Domain, simplify
from tensorc.codegen.llvm.builder import Builder, Value
from tensorc.codegen.llvm.context import MAX_ALIGNMENT, Context, Module
from tensorc.codegen.llvm.parallel import emit_function
from tensorc.dtypes import float64, int64
from tensorc.errors import UnsupportedError
from tensorc.ir.expr import (
    Add,
    Buffer,
    Const,
    Expr,
    Load,
    Mul,
    Sub,
    Var,
    cast,
    const,
    index,
    logical_and,
    maximum,
    select,
)  # fmt: skip
from tensorc.ir.function import Function
from tensorc.ir.printer import show
from tensorc.ir.stmt import MOST_PLACES, Alloc, Check, For, Let, Stmt
from tensorc.ir.walk import children, exprs, substitute, substmts, variables, walk_expr

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
        for buffer in stmt.buffers if type(stmt) is Alloc else ():
            if buffer.scope == "local":
                continue
            offsets[buffer] = top
            top = simplify(top + _size(buffer, domain), domain)
            most[shared] = simplify(maximum(most[shared], top), domain)
            guess[shared] = guess[shared] + _guess(buffer)
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
        if any(type(e) is Load for e in walk_expr(extent)):
            reason = f"its extent {show(extent)} depends on data, and a call knows its memory before"
            raise UnsupportedError(f"buffer {buffer.name!r}: {reason}")
        size = size * simplify(maximum(extent, 0), domain)
    return (size + (MAX_ALIGNMENT - 1)) // MAX_ALIGNMENT * MAX_ALIGNMENT


def _guess(buffer: Buffer) -> Expr:
    """About the bytes, where they may be too many for int64."""
    size: Expr = const(buffer.dtype.bytes, float64)
    for extent in buffer.shape:
        size = size * cast(maximum(extent, 0), float64)
    return size


def size_checks(function: Function) -> list[Stmt]:
    """What a call's sizes must fulfil for index arithmetic with them to be exact: none is past `LARGEST`, and
    extents that are computed from them are about what int64 holds, of factors that are not negative."""
    sizes: dict[Var, None] = {}
    computed: dict[Expr, None] = {}
    for extent in [extent for buffer in function.params for extent in buffer.shape]:
        if type(extent) is Var:
            sizes[extent] = None
        elif type(extent) is not Const:
            computed[extent] = None
    sizes.update(dict.fromkeys([var for var in function.scalars if not var.wraps]))
    checks: list[Stmt] = []
    factors: dict[Var, None] = {}
    for var in sizes:
        fits = logical_and(var <= LARGEST, var >= -LARGEST)
        checks.append(Check(fits, var, f"{var.name} is {{value}}, sizes are up to {LARGEST}"))
    for extent in computed:
        used = sorted(variables(extent), key=lambda var: var.name)[: MOST_PLACES - 1]
        known = ", ".join([f"{var.name} = {{{n}}}" for n, var in enumerate(used)])
        message = f"extent {show(extent)} is too large with {known}: in 64 bits it is {{value}}"
        checks.append(Check(_most(extent) <= float(LIMIT), extent, message, tuple(used)))
        products = [e for e in walk_expr(extent) if type(e) is Mul and not any([type(f) is Const for f in (e.a, e.b)])]
        factors.update(dict.fromkeys([e for product in products for e in walk_expr(product) if type(e) is Var]))
    for var in sorted(factors, key=lambda var: var.name):
        checks.append(Check(var >= 0, var, f"{var.name} is {{value}}, a factor of an extent is 0 or more"))
    names = tuple(sizes)[:MOST_PLACES]
    places = ("{value}", *[f"{{{n}}}" for n in range(len(names))])
    told = ", ".join([f"{var.name} = {place}" for var, place in zip(names, places)])
    for product in _products(function.body, {}):
        inside = variables(product)
        if inside and inside <= sizes.keys():
            message = f"indices are past what 64 bits hold where {told}"
            checks.append(Check(_most(product) <= float(LIMIT), names[0], message, names[1:]))
    return checks


def _products(stmt: Stmt, values: dict[Var, Expr]) -> dict[Expr, None]:
    """The products in index arithmetic, of two numbers or more that are not constant, with loops at their ends."""
    found: dict[Expr, None] = {}
    for root in exprs(stmt):
        for e in walk_expr(root):
            if type(e) is Mul and e.dtype is int64 and type(e.a) is not Const and type(e.b) is not Const:
                found[substitute(e, values)] = None
    match stmt:
        case For(var, start, extent):
            values = {**values, var: substitute(start + extent, values)}
        case Let(var, value) if var.dtype is int64:
            values = {**values, var: substitute(value, values)}
    for inner in substmts(stmt):
        found.update(_products(inner, values))
    return found


def _most(extent: Expr) -> Expr:
    """More or less the largest number, its sign aside, on the way to an extent."""
    match extent:
        case Const(value):
            return const(float(abs(value)), float64)
        case Add(a, b) | Sub(a, b):
            return _most(a) + _most(b)
        case Mul(a, b):
            return _most(a) * _most(b)
        case _ if children(extent):
            parts = [_most(e) for e in children(extent) if e.dtype is int64]
            return reduce(maximum, parts[1:], parts[0]) if parts else const(0.0, float64)
        case _:
            number = cast(extent, float64)
            return maximum(number, -number)


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
