"""What the stores to an internal buffer leave out where conditions or the ends of loops cut them short.

    for io in 0..7 { for ii in 0..16 { if io*16 + ii < 100 { T[io*16 + ii] = ... } } }     T: float32[100]

A store may be taken to write all places that its loops reach where what it skips is never read: places outside the
buffer, or places that no store writes, since each of them skips the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tensorc.arith import Affine, Domain
from tensorc.arith.affine import linear
from tensorc.ir.expr import (
    GE,
    GT,
    LE,
    LT,
    Broadcast,
    Buffer,
    Const,
    Expr,
    FloorDiv,
    Max,
    Min,
    Mod,
    Ramp,
    is_const,
)
from tensorc.ir.stmt import For, Let
from tensorc.ir.walk import variables
from tensorc.passes.common import conjuncts, requirement


@dataclass(frozen=True, slots=True)
class Access:
    """One load or store; `path` holds the loops and lets around it, outermost first."""

    indices: tuple[Expr, ...]
    mask: Expr | None
    is_store: bool
    path: tuple[For | Let, ...]
    conditions: tuple[Expr, ...]
    domain: Domain


@dataclass(frozen=True, slots=True)
class _Limit:
    """A condition on the element alone: `factor * element <= rest`, where the element is the index of
    an axis, or `divided` of the indices `divided // c` and `divided % c`."""

    axis: int
    divisor: int
    factor: int
    rest: frozenset[tuple[Expr, int]]
    constant: int


def skips_nothing_read(
    write: Access, condition: Expr, stores: Sequence[Access], buffer: Buffer
) -> bool:
    """Whether the elements that a store skips for a condition are outside the buffer, or skipped by all
    stores to it."""
    limits = _limits(write, condition)
    if any(_ends_with(limit, buffer) for limit in limits):
        return True
    others = [{x for c in _conditions(each) for x in _limits(each, c)} for each in stores]
    return any(all(limit in known for known in others) for limit in limits)


def ends_of_loops(path: Sequence[For | Let], indices: Sequence[Expr]) -> Iterator[Expr] | None:
    """The conditions, besides constant ones, up to which loops take the indices; None where a loop
    does not begin at a constant."""
    used = {var for e in indices for var in variables(e)}
    loops = [each for each in path if type(each) is For and each.var in used]
    if any(type(loop.start) is not Const for loop in loops):
        return None
    return (
        LT(loop.var, part + loop.start)
        for loop in loops
        for part in _parts(loop.extent)
        if type(part) is not Const
    )


def _parts(extent: Expr) -> list[Expr]:
    """The expressions of which an extent is the least; one of 0 or less makes it empty."""
    match extent:
        case Min(a, b):
            return _parts(a) + _parts(b)
        case Max(a, b) if is_const(b, 0):
            return _parts(a)
        case _:
            return [extent]


def _conditions(access: Access) -> Iterator[Expr]:
    yield from access.conditions
    yield from conjuncts(access.mask) if access.mask is not None else ()
    yield from ends_of_loops(access.path, access.indices) or ()


def _limits(access: Access, condition: Expr) -> set[_Limit]:
    """What a condition says of the element that is accessed, if of nothing else."""
    scalar = _of_first_lane(condition)
    form = None if scalar is None else requirement(scalar[0])
    if form is None or scalar is None:
        return set()
    moving, rest = _apart(form, access)
    found = set()
    for axis, divisor, expr in _elements(access.indices):
        lane = _lane(expr)
        if lane is None:
            continue
        terms, constant = linear(lane[0])
        own, fixed = _apart(Affine(tuple(terms.items()), constant), access)
        if not own or fixed:
            continue
        atom, scale = next(iter(own.items()))
        factor, odd = divmod(-moving.get(atom, 0), scale)
        if odd or factor < 1 or {a: -factor * s for a, s in own.items()} != moving:
            continue
        if scalar[1] == -factor * lane[1]:
            total = form.constant + factor * constant
            found.add(_Limit(axis, divisor, factor, frozenset(rest.items()), total))
    return found


def _apart(form: Affine, access: Access) -> tuple[dict[Expr, int], dict[Expr, int]]:
    """The terms of the loops and lets around an access, and the others."""
    around = {binder.var for binder in access.path}
    moving = {atom: scale for atom, scale in form.terms if not variables(atom).isdisjoint(around)}
    return moving, {atom: scale for atom, scale in form.terms if atom not in moving}


def _elements(indices: Sequence[Expr]) -> Iterator[tuple[int, int, Expr]]:
    """What tells elements apart: each index, and what is divided into two of them."""
    for axis, expr in enumerate(indices):
        yield axis, 0, expr
        if type(expr) is FloorDiv and type(expr.b) is Const:
            rests = [e for e in indices if type(e) is Mod and (e.a, e.b) == (expr.a, expr.b)]
            if rests:
                yield axis, expr.b.value, expr.a


def _lane(expr: Expr) -> tuple[Expr, int] | None:
    """The value in the first lane, and the step to the next."""
    match expr:
        case Ramp(base, Const(stride), _):
            return base, stride
        case Broadcast(value):
            return value, 0
        case _:
            return (expr, 0) if expr.dtype.lanes == 1 else None


def _of_first_lane(condition: Expr) -> tuple[Expr, int] | None:
    """A comparison in the first lane, and how much what is at least 0 in it grows to the next."""
    if not isinstance(condition, (LT, LE, GT, GE)):
        return None
    a, b = _lane(condition.a), _lane(condition.b)
    if a is None or b is None:
        return None
    growth = b[1] - a[1] if isinstance(condition, (LT, LE)) else a[1] - b[1]
    return type(condition)(a[0], b[0]), growth


def _ends_with(limit: _Limit, buffer: Buffer) -> bool:
    """Whether all elements within a buffer are within a limit."""
    if limit.divisor:
        return False
    terms, constant = linear(buffer.shape[limit.axis])
    spare: dict[Expr, int] = dict(limit.rest)
    for atom, scale in terms.items():
        spare[atom] = spare.get(atom, 0) - limit.factor * scale
    return not any(spare.values()) and limit.constant - limit.factor * (constant - 1) >= 0
