"""What depends on constant parameters alone, to be computed once, before any call.

    for k, j: W_global[j // 16, k, j % 16] = W[k, j]            prepare(W, out W_global)
    for i, j, k: C[i, j] += X[i, k] * W_global[...]        ->   rest(X, out C, W_global)

A statement outside of all loops is taken whole or not at all; what is moved is therefore for a schedule to say, by
where it puts a copy.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tensorc.ir.expr import Buffer, Const, Var
from tensorc.ir.function import Function
from tensorc.ir.stmt import Alloc, Barrier, Block, Evaluate, For, Let, Seq, Stmt, seq
from tensorc.ir.walk import all_exprs, variables, walk
from tensorc.schedule.regions import buffers_read, buffers_written

__all__ = ["Parts", "fixed_parts", "prepared"]


@dataclass(frozen=True, slots=True)
class Parts:
    """A function in two: `prepare` makes buffers of constants, `rest` does the remaining work.

    The parameters of `prepare` are the constants that it reads, then the buffers that it makes for `rest`. Those of
    `rest` are the parameters that are no constants, then `bound`: constants that it reads itself, and what was made.
    """

    prepare: Function
    rest: Function
    bound: tuple[Buffer, ...]


def prepared(function: Function, constants: Collection[str]) -> Parts:
    """A function of which the parameters of these names, all inputs, are constant, in two."""
    first, made = fixed_parts(function, constants)
    moved = set(map(id, first))
    last = [stmt for stmt in _outermost(function) if id(stmt) not in moved]
    needed = {buffer for stmt in last for buffer in buffers_read(stmt)}
    fixed = [buffer for buffer in function.params if buffer.name in constants]
    given = {buffer for stmt in first for buffer in buffers_read(stmt)}
    passed = tuple([buffer for buffer in function.allocs if buffer in made and buffer in needed])
    bound = (*[buffer for buffer in fixed if buffer in needed], *passed)
    prepare = function.with_(
        params=(*[buffer for buffer in fixed if buffer in given], *passed),
        outputs=passed,
        scalars=(),
        allocs=tuple([buffer for buffer in function.allocs if buffer in made and buffer not in needed]),
        body=seq(*first),
        assumptions=(),
    )
    rest = function.with_(
        params=(*[buffer for buffer in function.params if buffer not in fixed], *bound),
        allocs=tuple([buffer for buffer in function.allocs if buffer not in made]),
        body=seq(*last),
    )
    return Parts(prepare, rest, bound)


def fixed_parts(function: Function, constants: Collection[str]) -> tuple[list[Stmt], set[Buffer]]:
    """The outermost statements that depend on nothing but the constants, and the internal buffers that they make; none
    where there are no constants."""
    if not constants:
        return [], set()
    stmts = _outermost(function)
    known = {buffer for buffer in function.params if buffer.name in constants}
    touched = [_Touched.of(stmt) for stmt in stmts]
    internal = {buffer for buffer in function.allocs if _is_passed(buffer)}
    fixed = [each.is_free and each.writes <= internal and each.reads <= internal | known for each in touched]
    while True:
        made = {buffer for each, is_fixed in zip(touched, fixed) if is_fixed for buffer in each.writes}
        late: set[Buffer] = set()  # what something that stays has touched: it must not be written before that
        for each, is_fixed in zip(touched, fixed):
            if not is_fixed:
                made -= each.writes
                late |= each.reads
            elif late & each.writes:
                made -= each.writes
        now = [
            is_fixed and each.writes <= made and each.reads <= made | known for each, is_fixed in zip(touched, fixed)
        ]
        if now == fixed:
            return [stmt for stmt, is_fixed in zip(stmts, fixed) if is_fixed], made
        fixed = now


def _outermost(function: Function) -> tuple[Stmt, ...]:
    return function.body.stmts if type(function.body) is Seq else (function.body,)


def _is_passed(buffer: Buffer) -> bool:
    """Whether a buffer may be an argument: memory of a known size, in which rows lie side by side."""
    return buffer.scope == "global" and not buffer.padding and all(type(extent) is Const for extent in buffer.shape)


@dataclass(frozen=True, slots=True)
class _Touched:
    """What a statement reads and writes of the function's buffers. `is_free`: it depends on nothing besides."""

    reads: frozenset[Buffer]
    writes: frozenset[Buffer]
    is_free: bool

    @staticmethod
    def of(stmt: Stmt) -> _Touched:
        inner = list(walk(stmt))
        own = {buffer for each in inner if type(each) is Alloc for buffer in each.buffers}
        bound: set[Var] = {each.var for each in inner if isinstance(each, For | Let)}
        bound |= {it.var for each in inner if type(each) is Block for it in each.iters}
        used = {e for e in all_exprs(stmt) if type(e) is Var}
        sizes = {e for buffer in own for extent in buffer.shape for e in variables(extent)}
        has_effects = any(type(each) in (Barrier, Evaluate) for each in inner)
        return _Touched(
            frozenset(buffers_read(stmt)) - own,
            frozenset(buffers_written(stmt)) - own,
            used | sizes <= bound and not has_effects,
        )
