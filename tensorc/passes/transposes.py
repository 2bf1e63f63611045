"""Tiles that are copied across: contiguous where they are read along one axis, and where they are stored along another.

    for r in 0..4 unrolled { C[ramp(r * 64, 1, 4)] = A[ramp(r, 48, 4)] }
    ->  let t0 = A[ramp(0, 1, 4)] ... let t3 = A[ramp(144, 1, 4)], two rounds of interleaving, C[ramp(0, 1, 4)] = u0 ...

Each round takes the elements of row i and of row i + n/2 in turn, which makes two rows; after log2(n) rounds a tile of
n by n stands across, since each of these perfect shuffles rotates the digits of a place by one. So n vectors are read,
n log2(n) times shuffled and n stored, instead of n * n elements gathered.
"""

from __future__ import annotations

from functools import partial

from tensorc.arith import affine, simplify
from tensorc.ir.expr import Const, Expr, IfThenElse, Load, Ramp, Var, index
from tensorc.ir.function import Function
from tensorc.ir.intrinsic import call
from tensorc.ir.stmt import For, Let, Stmt, Store, seq
from tensorc.ir.walk import children, rewrite, rewrite_stmts, substitute, uses, walk_expr

SIZES = (4, 8, 16)


def transpose_tiles(function: Function) -> Function:
    """The function with its tiles that go across read and stored by rows."""
    return function.with_(body=rewrite_stmts(function.body, _transposed))


def _transposed(stmt: Stmt) -> Stmt | None:
    match stmt:
        case For(var, Const(0), Const(count), "unrolled", Store(buffer, (Ramp(_, Const(1), lanes),), value, None)):
            found = _across(value, var, count)
            if count != lanes or count not in SIZES or found is None or found.buffer is buffer:
                return None
            if any(type(e) is Load and (e.buffer is buffer or e.mask is not None) for e in walk_expr(value)):
                return None
            return _tile(stmt, found)
    return None


def _across(value: Expr, var: Var, count: int) -> Load | None:
    """The one load in a value whose next element lies in the next iteration; None unless all others lie along the
    vector, or are the same in all of it."""
    found: list[Load] = []
    for e in _loads(value):
        at = e.indices[0]
        if type(at) is Ramp and type(at.stride) is Const and abs(at.stride.value) <= 1:
            continue
        if at.dtype.lanes == 1:
            continue
        if type(at) is not Ramp or uses(at.stride, (var,)) or affine(at.base).coefficient(var) != 1:
            return None
        if any(atom is not var and uses(atom, (var,)) for atom, _ in affine(at.base).terms):
            return None
        found.append(e)
    guarded = [e for branch in walk_expr(value) if type(branch) is IfThenElse for e in _loads_in(branch)]
    if any(e in found for e in guarded):
        return None  # the rows would be read whole, also where the elements are not
    is_one = len(set(found)) == 1 and found[0].dtype.lanes == count and found[0].dtype.bits in (8, 16, 32, 64)
    return found[0] if is_one and not found[0].dtype.is_bool else None


def _loads_in(chosen: IfThenElse) -> list[Load]:
    return [*_loads(chosen.true), *_loads(chosen.false)]


def _loads(expr: Expr) -> list[Load]:
    """The loads in a value, without those that tell where others lie."""
    if type(expr) is Load:
        return [expr]
    return [load for operand in children(expr) for load in _loads(operand)]


def _replaced(load: Load, row: Var, e: Expr) -> Expr | None:
    return row if e == load else None


def _tile(stmt: For, load: Load) -> Stmt:
    store = stmt.body
    assert type(store) is Store and type(load.indices[0]) is Ramp
    count, place = load.dtype.lanes, load.indices[0]
    base = simplify(substitute(place.base, {stmt.var: index(0)}))
    lets: list[tuple[Var, Expr]] = []

    def let(value: Expr) -> Var:
        lets.append((var := Var(f"{stmt.var.name}.{len(lets)}", value.dtype), value))
        return var

    starts = [simplify(base + place.stride * n) for n in range(count)]
    rows = [let(Load(load.buffer, (Ramp(start, index(1), count),))) for start in starts]
    for _ in range(count.bit_length() - 1):
        pairs = zip(rows[: count // 2], rows[count // 2 :])
        rows = [let(call(f"interleave.{half}", a, b)) for a, b in pairs for half in ("low", "high")]
    stores: list[Stmt] = []
    for n, row in enumerate(rows):
        at = {stmt.var: index(n)}
        value = rewrite(store.value, partial(_replaced, load, row))
        places = (simplify(substitute(store.indices[0], at)),)
        stores.append(Store(store.buffer, places, substitute(value, at), None, store.stream))
    result = seq(*stores)
    for var, value in reversed(lets):
        result = Let(var, value, result)
    return result
