"""One index for every access: its offset in elements, outer loops' terms first, the constant last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tensorc.arith import Affine, simplify
from tensorc.arith.affine import Terms, build, linear, multiply
from tensorc.ir.expr import (
    Add,
    Broadcast,
    Buffer,
    Const,
    Expr,
    FloorDiv,
    Load,
    Mod,
    Mul,
    Ramp,
    Var,
    add,
    broadcast,
    index,
    is_const,
    mul,
)  # fmt: skip
from tensorc.ir.stmt import Alloc, For, Let, Prefetch, Stmt, Store
from tensorc.ir.walk import map_exprs, map_substmts, replace_body, rewrite, variables
from tensorc.passes.common import NOTHING


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the elements of a buffer lie: `buffer` stands for it, `origins` are what its indices
    start from."""

    buffer: Buffer
    origins: tuple[Affine, ...]
    strides: tuple[Expr, ...]


ZERO = Affine((), 0)


def whole(buffer: Buffer) -> Layout:
    return Layout(buffer, (ZERO,) * len(buffer.shape), strides_of(buffer))


def strides_of(buffer: Buffer) -> tuple[Expr, ...]:
    if buffer.strides is not None:
        return buffer.strides
    strides: list[Expr] = [index(1)]
    for extent in reversed(buffer.shape[1:]):
        strides.append(mul(extent, strides[-1]))
    return tuple(reversed(strides)) if buffer.shape else ()


def padded(shape: Sequence[Expr], padding) -> tuple[Expr, ...]:
    """Row-major strides, each longer by what makes it `offset` more than a multiple of `factor`."""
    rules = {axis: (factor, offset) for axis, factor, offset in padding}
    strides: list[Expr] = []
    following: Expr = index(1)
    for axis in range(len(shape) - 1, -1, -1):
        factor, offset = rules.get(axis, (1, 0))
        stride = simplify(following + (offset - following) % factor)
        strides.append(stride)
        following = shape[axis] * stride
    return tuple(reversed(strides))


class Flattener:
    """Gives every access one index. `placed` tells what the buffers of `Alloc`s stand for."""

    def __init__(self, placed: Mapping[Buffer, tuple[Buffer, Layout]]):
        self.placed = placed
        self.internal = {original for original, _ in placed.values()}
        self.layouts: dict[Buffer, Layout] = {}
        self.depths: dict[Var, int] = {}  # how far in each loop is

    def visit(self, stmt: Stmt, depth: int) -> Stmt:
        match stmt:
            case For(var) | Let(var):
                self.depths[var] = depth + 1
                new = map_exprs(stmt, self.expr)
                body = self.visit(stmt.body, depth + 1)
                return new if body is stmt.body else replace_body(new, body)
            case Alloc(buffers, body) if any(buffer in self.placed for buffer in buffers):
                placed = dict([self.placed[buffer] for buffer in buffers if buffer in self.placed])
                self.layouts |= placed
                body = self.visit(body, depth)
                for original in placed:
                    del self.layouts[original]
                return Alloc(buffers, body)
            case Store(buffer, indices, value, mask, stream):
                layout = self._layout(buffer)
                mask = None if mask is None else self.expr(mask)
                at = self._flat(layout, tuple(map(self.expr, indices)))
                return Store(layout.buffer, (at,), self.expr(value), mask, stream)
            case Prefetch(buffer, indices):
                if buffer in self.internal and buffer not in self.layouts:
                    return NOTHING  # it does not exist here yet
                layout = self._layout(buffer)
                return Prefetch(layout.buffer, (self._flat(layout, tuple(map(self.expr, indices))),))
            case _:
                return map_substmts(map_exprs(stmt, self.expr), lambda s: self.visit(s, depth))

    def expr(self, expr: Expr) -> Expr:
        return rewrite(expr, self._rule)

    def _rule(self, expr: Expr) -> Expr | None:
        if type(expr) is not Load:
            return None
        layout = self._layout(expr.buffer)
        return Load(layout.buffer, (self._flat(layout, expr.indices),), expr.mask)

    def _layout(self, buffer: Buffer) -> Layout:
        layout = self.layouts.get(buffer)
        if layout is None:
            layout = self.layouts[buffer] = whole(buffer)
        return layout

    def _flat(self, layout: Layout, indices: tuple[Expr, ...]) -> Expr:
        terms: Terms = {}
        constant, lanes = 0, 1
        step: Expr = index(0)
        gathered: list[tuple[Expr, Expr]] = []
        for expr, origin, stride in _rejoined(layout, indices):
            lanes = max(lanes, expr.dtype.lanes)
            if type(expr) is Ramp:
                step = add(step, mul(expr.stride, stride))
                expr = expr.base
            elif type(expr) is Broadcast:
                expr = expr.value
            elif expr.dtype.lanes > 1:
                gathered.append((expr, stride))
                continue
            constant += _add_scaled(terms, expr, origin, stride)
        base = self._sum(terms, constant)
        if lanes == 1:
            return base
        result: Expr = Broadcast(base, lanes) if is_const(step, 0) else Ramp(base, step, lanes)
        for expr, stride in gathered:
            scaled = expr if is_const(stride, 1) else Mul(expr, broadcast(stride, lanes))
            result = (
                Add(result, scaled)
                if not is_const(base, 0) or type(result) is not Broadcast
                else scaled
            )
        # Dimensions that are irregular each may run on together: v//3*3 + v%3 is the ramp v.
        return simplify(result) if gathered else result

    def _sum(self, terms: Terms, constant: int) -> Expr:
        if any(type(atom) is FloorDiv for atom in terms) and any(
            type(atom) is Mod for atom in terms
        ):
            terms, more = linear(simplify(build(terms, 0)))
            constant += more
        return build(dict(sorted(terms.items(), key=self._depth)), constant)

    def _depth(self, term: tuple[Expr, int]) -> int:
        atom = term[0]
        if type(atom) is Var:
            return self.depths.get(atom, 0)
        return max([self.depths.get(var, 0) for var in variables(atom)], default=0)


def _rejoined(layout: Layout, indices: tuple[Expr, ...]) -> Iterator[tuple[Expr, Affine, Expr]]:
    """(index, origin, stride) of each dimension; two whose indices are x//n and x%n, n the extent
    of the second, are one of index x. That n is not 0, or there were no element to access."""
    at = 0
    while at < len(indices):
        joined = _joined(layout, indices, at)
        if joined is None:
            yield indices[at], layout.origins[at], layout.strides[at]
        else:
            yield joined, ZERO, layout.strides[at + 1]
        at += 1 if joined is None else 2


def _joined(layout: Layout, indices: tuple[Expr, ...], at: int) -> Expr | None:
    """The index that a dimension and the next have together, if n is symbolic."""
    outer, inner = indices[at], indices[at + 1] if at + 1 < len(indices) else None
    if type(outer) is not FloorDiv or type(inner) is not Mod or layout.buffer.strides is not None:
        return None
    if len(layout.buffer.shape) != len(indices):  # padded, which is one run of places
        return None
    n, lanes = layout.buffer.shape[at + 1], outer.dtype.lanes
    if type(n) is not Var or layout.origins[at : at + 2] != (ZERO, ZERO):
        return None
    by = n if lanes == 1 else Broadcast(n, lanes)
    is_run = layout.strides[at] == mul(n, layout.strides[at + 1])
    return outer.a if is_run and outer.a == inner.a and outer.b == inner.b == by else None


def _add_scaled(terms: Terms, expr: Expr, origin: Affine, stride: Expr) -> int:
    """Add (expr - origin) * stride to `terms`, and return what it adds to the constant."""
    form, constant = linear(expr)
    if origin is not ZERO:
        form = dict(form)
        for atom, scale in origin.terms:
            form[atom] = form.get(atom, 0) - scale
        constant -= origin.constant
    if type(stride) is Const:
        form, constant = (
            {atom: scale * stride.value for atom, scale in form.items()},
            constant * stride.value,
        )
    else:
        form, constant = multiply(form, constant, *linear(stride))
    for atom, scale in form.items():
        terms[atom] = terms.get(atom, 0) + scale
        if terms[atom] == 0:
            del terms[atom]
    return constant
