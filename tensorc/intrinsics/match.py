"""Finding a tensor intrinsic in a nest: the same loops and the same expression, but for names, layouts of buffers, the
order of loops, and the sides of sums and products."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations

from tensorc.arith import affine, simplify
from tensorc.arith.affine import Affine
from tensorc.intrinsics.tensor import TensorIntrin
from tensorc.ir.expr import (
    Add,
    And,
    Binary,
    Broadcast,
    Buffer,
    Call,
    Const,
    Expr,
    Load,
    Max,
    Min,
    Mul,
    Or,
    Ramp,
    Var,
    add,
    floordiv,
    index,
    is_const,
    mod,
    mul,
)
from tensorc.ir.printer import show
from tensorc.ir.stmt import For, Stmt, Store
from tensorc.ir.walk import children, copy_nest, rewrite, rewrite_stmts, substitute_stmt, uses

_COMMUTATIVE = (Add, Mul, Min, Max, And, Or)


@dataclass(frozen=True, slots=True)
class Tile:
    """What a parameter stands for: the element at `indices` for each setting of `loops`, one a dimension."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    loops: tuple[Var, ...]


@dataclass(frozen=True, slots=True)
class Match:
    """A nest that computes what an intrinsic does: the tile of each parameter."""

    intrin: TensorIntrin
    tiles: Mapping[Buffer, Tile]


def match(intrin: TensorIntrin, nest: Stmt) -> Match | str:
    """How a nest of loops around one store is the meaning of an intrinsic; else a phrase that says why it is not."""
    loops, store = _taken_apart(nest)
    if store is None:
        return "it is not loops around one store"
    wanted = [_size(loop) for loop in intrin.loops]
    sizes = [_size(loop) for loop in loops]
    if sorted(wanted) != sorted(sizes):
        return f"its loops run {_times(sizes)} times, those of {intrin.name} {_times(wanted)}"
    reasons: list[tuple[int, str]] = []
    for order in permutations(loops):
        if [_size(loop) for loop in order] == wanted:
            names = {own.var: loop.var for own, loop in zip(intrin.loops, order)}
            matcher = _Matcher(intrin, names)
            tiles = matcher.run(store)
            if tiles is not None:
                problem = _problem(intrin, tiles, loops)
                return Match(intrin, tiles) if problem is None else problem
            reasons += matcher.reasons
    most = max([depth for depth, _ in reasons])
    return "; or ".join(dict.fromkeys([reason for depth, reason in reasons if depth == most]))


def _taken_apart(nest: Stmt) -> tuple[list[For], Store | None]:
    """The loops of more than one iteration, and the store in them."""
    loops: list[For] = []
    stmt = nest
    while type(stmt) is For:
        if type(stmt.extent) is not Const or not is_const(stmt.start, 0):
            return [], None
        if stmt.extent.value == 1:
            stmt = substitute_stmt(stmt.body, {stmt.var: index(0)})
            continue
        loops.append(stmt)
        stmt = stmt.body
    return loops, stmt if type(stmt) is Store and stmt.mask is None else None


def _size(loop: For) -> int:
    return loop.extent.value if type(loop.extent) is Const else -1


def _times(sizes: list[int]) -> str:
    return " x ".join(map(str, sizes)) or "1"


class _Matcher:
    """One order of the loops: `names` are the loops of the nest for those of the meaning."""

    def __init__(self, intrin: TensorIntrin, names: Mapping[Var, Var]):
        self.intrin = intrin
        self.names = names
        self.reasons: list[tuple[int, str]] = []  # how much had matched, and what did not
        self.own = set(names.values())

    def run(self, store: Store) -> dict[Buffer, Tile] | None:
        wanted = self.intrin.store
        tiles = self.access(wanted.buffer, wanted.indices, store.buffer, store.indices, {})
        if tiles is None:
            return None
        return next(self.values(wanted.value, store.value, tiles, 1), None)

    def fail(self, depth: int, reason: str) -> None:
        self.reasons.append((depth, reason))

    def values(self, wanted: Expr, found: Expr, tiles: dict, depth: int) -> Iterator[dict[Buffer, Tile]]:
        """The ways in which an expression is the wanted one."""
        if type(wanted) is Load and type(found) is Load:
            if found.mask is None:
                bound = self.access(wanted.buffer, wanted.indices, found.buffer, found.indices, tiles, depth)
                if bound is not None:
                    yield bound
            return
        if type(wanted) is Var or type(wanted) is Const:
            if found == (self.names[wanted] if type(wanted) is Var else wanted):
                yield tiles
            else:
                self.fail(depth, f"it has '{show(found)}' where {self.intrin.name} has '{show(wanted)}'")
            return
        if type(found) is not type(wanted) or not _same_kind(wanted, found):
            self.fail(depth, f"it has '{show(found)}' where {self.intrin.name} has '{show(wanted)}'")
            return
        if isinstance(wanted, Binary) and isinstance(found, Binary):
            sides = [(found.a, found.b)]
            if isinstance(wanted, _COMMUTATIVE):
                sides.append((found.b, found.a))
            for a, b in sides:
                for half in self.values(wanted.a, a, tiles, depth + 1):
                    yield from self.values(wanted.b, b, half, depth + 2)
            return
        yield from self.all(children(wanted), children(found), tiles, depth + 1)

    def all(self, wanted, found, tiles: dict, depth: int) -> Iterator[dict[Buffer, Tile]]:
        if not wanted:
            yield tiles
            return
        for some in self.values(wanted[0], found[0], tiles, depth):
            yield from self.all(wanted[1:], found[1:], some, depth + 1)

    def access(self, param: Buffer, places, buffer: Buffer, indices: tuple[Expr, ...], tiles: dict, depth: int = 0):
        """The tiles with what a parameter stands for; None where this access is none of such a tile."""
        loops = tuple([self.names[place] for place in places])
        tile = Tile(buffer, indices, loops)
        if param in tiles:
            known = tiles[param]
            if known == tile:
                return tiles
            self.fail(depth, f"it reads '{show(Load(buffer, indices))}' where it should read what it writes")
            return None
        if buffer.dtype is not param.dtype:
            names = f"{buffer.name!r} is {buffer.dtype}, {param.name!r} of {self.intrin.name} is {param.dtype}"
            self.fail(depth - 1, names)  # less telling than another misfit: it may be the other side of a product
            return None
        for expr in indices:
            for atom, _ in affine(expr).terms:
                if type(atom) is not Var and (uses(atom, self.own) or any(type(e) is Load for e in _inside(atom))):
                    what = f"'{show(expr)}', an index of {buffer.name!r}"
                    self.fail(depth + 1, f"{what}, is no sum of multiples of loops")
                    return None
                if type(atom) is Var and atom in self.own and atom not in loops:
                    still = f"{param.name!r} of {self.intrin.name} does not"
                    self.fail(depth + 1, f"{buffer.name!r} moves with the loop {atom.name!r}, {still}")
                    return None
        for loop in loops:
            if not any(affine(expr).coefficient(loop) for expr in indices):
                does = f"{param.name!r} of {self.intrin.name} does"
                self.fail(depth + 1, f"{buffer.name!r} does not move with the loop {loop.name!r}, {does}")
                return None
        return {**tiles, param: tile}


def _inside(expr: Expr) -> Iterator[Expr]:
    yield expr
    for operand in children(expr):
        yield from _inside(operand)


def _same_kind(wanted: Expr, found: Expr) -> bool:
    if wanted.dtype is not found.dtype:
        return False
    return not isinstance(wanted, Call) or (isinstance(found, Call) and wanted.name == found.name)


def _problem(intrin: TensorIntrin, tiles: Mapping[Buffer, Tile], loops: list[For]) -> str | None:
    """Why tiles that fit are not what the implementation can work on."""
    output = intrin.store.buffer
    for param, tile in tiles.items():
        if param is not output and tile.buffer is tiles[output].buffer:
            return f"it reads {tile.buffer.name!r}, which it writes, as {param.name!r} as well"
        if intrin.dense:
            wanted, found = _row_major(param), _steps(tile)
            if any(step is not None and step != own for step, own in zip(found, wanted)) or None in found:
                steps = ", ".join(["?" if step is None else str(step) for step in found])
                wishes = ", ".join(map(str, wanted))
                return (
                    f"the elements of {tile.buffer.name!r} are {steps} apart, {intrin.name} takes {param.name!r} with "
                    f"{wishes}; lay them out so (cache_read, then transform_layout)"
                )
    return None


def _row_major(param: Buffer) -> list[int]:
    steps, step = [], 1
    for extent in reversed(param.shape):
        steps.append(step)
        step *= extent.value if type(extent) is Const else 1
    return steps[::-1]


def _steps(tile: Tile) -> list[int | None]:
    """How many elements apart the steps of each loop lie in memory; None where that is no number."""
    strides = _strides(tile.buffer)
    forms = [affine(expr) for expr in tile.indices]
    found: list[int | None] = []
    for var in tile.loops:
        total: int | None = 0
        for form, stride in zip(forms, strides):
            scale = form.coefficient(var)
            if scale:
                total = None if total is None or stride is None else total + scale * stride
        found.append(total)
    return found


def _strides(buffer: Buffer) -> list[int | None]:
    if buffer.strides is not None:
        return [each.value if type(each) is Const else None for each in buffer.strides]
    padded = max([axis for axis, _, _ in buffer.padding], default=-1)
    strides: list[int | None] = []
    step: int | None = 1
    for axis in range(len(buffer.shape) - 1, -1, -1):
        step = None if axis <= padded else step
        strides.append(step)
        extent = buffer.shape[axis]
        step = step * extent.value if step is not None and type(extent) is Const else None
    return strides[::-1]


# The implementation in the place of the nest.


def implement(found: Match) -> Stmt:
    """The implementation, working on the tiles."""

    def load(e: Expr) -> Expr | None:
        if type(e) is Load and e.buffer in tiles:
            tile, param = tiles[e.buffer]
            return Load(tile.buffer, _places(tile, param, e.indices[0]), e.mask)
        return None

    def store(s: Stmt) -> Stmt | None:
        if type(s) is not Store:
            return None
        tile, param = tiles[s.buffer]
        mask = None if s.mask is None else rewrite(s.mask, load)
        return Store(tile.buffer, _places(tile, param, s.indices[0]), rewrite(s.value, load), mask)

    implementation = found.intrin.implementation
    named = {param.name: (tile, param) for param, tile in found.tiles.items()}
    tiles = {param: named[param.name] for param in implementation.params}
    return rewrite_stmts(copy_nest(implementation.body), store)


def _places(tile: Tile, param: Buffer, offset: Expr) -> tuple[Expr, ...]:
    """The indices of the element, or the lanes, at an offset in the row-major tile."""
    values: dict[Expr, Expr] = {}
    outer = len(tile.loops)
    for var, step in zip(tile.loops, _row_major(param)):
        outer -= 1
        extent = _extent(param, len(tile.loops) - outer - 1)
        place = floordiv(offset, _like(step, offset)) if step > 1 else offset
        first = outer == len(tile.loops) - 1
        values[var] = simplify(place if first else mod(place, _like(extent, offset)))
    return tuple([_moved(affine(expr), values, offset.dtype.lanes) for expr in tile.indices])


def _extent(param: Buffer, axis: int) -> int:
    extent = param.shape[axis]
    return extent.value if type(extent) is Const else 1


def _like(number: int, offset: Expr) -> Expr:
    lanes = offset.dtype.lanes
    return index(number) if lanes == 1 else Broadcast(index(number), lanes)


def _moved(form: Affine, values: Mapping[Expr, Expr], lanes: int) -> Expr:
    """A linear form with the loops' places put in."""
    base: Expr = index(form.constant)
    wide: list[Expr] = []
    for atom, scale in form.terms:
        value = values.get(atom, atom)
        if type(value) is Broadcast:
            value = value.value
        if type(value) is Ramp:
            base = add(base, mul(value.base, index(scale)))
            wide.append(Ramp(index(0), mul(value.stride, index(scale)), lanes))
        elif value.dtype.lanes > 1:
            wide.append(value if scale == 1 else mul(value, _like(scale, value)))
        else:
            base = add(base, mul(value, index(scale)))
    base = simplify(base)
    if not wide:
        return base
    total = wide[0]
    for value in wide[1:]:
        total = add(total, value)
    if type(total) is Ramp:
        return Ramp(base, total.stride, lanes)
    return total if is_const(base, 0) else add(Broadcast(base, lanes), total)
