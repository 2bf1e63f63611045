"""Computing a block inside its consumers instead of storing it."""

from __future__ import annotations

from typing import NoReturn

from tensorc.arith import Domain, simplify
from tensorc.ir.expr import Expr, Load, Var, is_const
from tensorc.ir.function import Function
from tensorc.ir.stmt import Block, Stmt, Store
from tensorc.ir.walk import map_exprs, map_substmts, rewrite, substitute
from tensorc.schedule.locate import find_block, refuse, remove
from tensorc.schedule.regions import block_domain, loads, readers, refuse_late_writer, writers


def compute_inline(function: Function, block: str) -> Function:
    """Substitute a block's value into every place that loads it, and drop the block and its buffer.

    ``T[i, j] = f(i, j)`` ... ``C[x] = g(T[a(x), b(x)])``  ->  ``C[x] = g(f(a(x), b(x)))``

    Requires: the block has only spatial iterators and no init; its body is one store whose indices
    are its distinct iterators in any order; its predicate is true; it does not read what it writes;
    its buffer is internal, written by no other block and read by some; nothing that it reads is
    written after it.

    Raises ScheduleError where one of these does not hold.
    """
    place = find_block(function, block)
    store = _single_store(function, place.node)
    refuse_late_writer(function, place.node, f"compute_inline(block {block!r})")
    body = _inline(remove(place).body, store, Domain())
    allocs = tuple([buffer for buffer in function.allocs if buffer is not store.buffer])
    return function.with_(body=body, allocs=allocs)


def _single_store(function: Function, block: Block) -> Store:
    """The store of a block that can be inlined."""
    step = f"compute_inline(block {block.name!r})"

    def deny(reason: str) -> NoReturn:
        refuse(function, f"{step}: {reason}", mark=block.name)

    store = block.body
    if block.init is not None or any(it.kind != "spatial" for it in block.iters):
        kind = next((it.kind for it in block.iters if it.kind != "spatial"), "reduce")
        deny(f"it has {kind} iterators; only a block without a reduction can be inlined")
    if type(store) is not Store:
        deny("its body is not a single store, which inlining needs")
    if not is_const(block.predicate, True):
        deny("it has a predicate; inline it before its loops are split")
    if any(buffer is store.buffer for buffer in function.outputs):
        deny(f"it writes the output {store.buffer.name!r}, which must be stored")
    if loads(store, store.buffer):
        deny(f"it reads {store.buffer.name!r}, which it writes itself")
    iterators = {it.var for it in block.iters}
    if set(store.indices) != iterators or len(store.indices) != len(iterators):
        reason = "the indices of its store are not exactly its iterators, each once"
        deny(f"{reason}; inline it before changing its layout")
    if len(writers(function, store.buffer)) > 1:
        others = ", ".join(w.name for w in writers(function, store.buffer) if w is not block)
        deny(f"{store.buffer.name!r} is also written by {others}")
    if not readers(function, store.buffer):
        deny(f"nothing reads {store.buffer.name!r}, so there is no place to inline it to")
    return store


def _inline(stmt: Stmt, store: Store, domain: Domain) -> Stmt:
    """The statement with loads of the stored buffer replaced by the stored value."""

    def on_load(e: Expr) -> Expr | None:
        if type(e) is not Load or e.buffer is not store.buffer:
            return None
        values = {var: value for var, value in zip(store.indices, e.indices) if type(var) is Var}
        return simplify(substitute(store.value, values), domain)

    inner_domain = block_domain(stmt, domain) if type(stmt) is Block else domain
    stmt = map_substmts(stmt, lambda inner: _inline(inner, store, inner_domain))
    return map_exprs(stmt, lambda e: rewrite(e, on_load))
