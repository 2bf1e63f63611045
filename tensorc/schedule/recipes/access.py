"""What a recipe needs to know of a block: its axes, and how each access walks memory. Plain data, no IR in it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from tensorc.arith import affine
from tensorc.dtypes import DType, int64
from tensorc.ir.expr import (
    Binary,
    Buffer,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    IfThenElse,
    Load,
    Select,
    Var,
)
from tensorc.ir.reducer import update_of
from tensorc.ir.stmt import Block, If, Store
from tensorc.ir.walk import all_exprs, children, exprs, variables, walk, walk_expr
from tensorc.schedule.legality import accumulates
from tensorc.schedule.schedule import LoopRef, Schedule


@dataclass(frozen=True, slots=True)
class Axis:
    """One iterator of a block; `extent` is None where it is symbolic. It may depend on the iterators `within`."""

    name: str
    extent: int | None
    kind: str
    within: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Access:
    """One load or store of a block.

    `axes` are the iterators that the indices depend on; `strides` gives, for those that all indices depend on
    linearly, how many elements the address moves when the iterator grows by one. `plain` names for each dimension the
    iterator that its index consists of, if it is just one; those in `whole` run through all of a dimension of a
    row-major buffer. `size` is the buffer's element count. `wide` names the type
    that all loads of a buffer of floats are cast to, if there is one and it has more bytes. `is_guarded` tells that a
    condition decides whether the element is read, `is_constant` that the buffer holds the same at every call. `dims`
    are the iterators in the index of each dimension.
    """

    buffer: str
    itemsize: int
    size: int | None
    axes: frozenset[str]
    strides: dict[str, int]
    plain: tuple[str | None, ...]
    whole: frozenset[str]
    wide: str | None = None
    is_guarded: bool = False
    dims: tuple[frozenset[str], ...] = ()
    is_constant: bool = False

    def stride(self, axis: str) -> int | None:
        """Elements that a step of the axis moves the address by; None if that is not one number."""
        if axis not in self.axes:
            return 0
        return self.strides.get(axis)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A block as recipes see it: `store` is its widest write, `loads` its distinct reads other than of what it updates.

    `cost` estimates the arithmetic of one instance in simple operations; an intrinsic such as exp counts 20. `itemsize`
    is of the widest element that is moved or computed: float16 elements are computed in four bytes. `in_place` says
    that the block reads what it writes, `has_lanes` whether the lanes of a vector may each keep a result of their own
    along an axis that is reduced. `positions` are the iterators that are read other than by the indices of accesses.
    """

    block: str
    axes: tuple[Axis, ...]
    store: Access
    loads: tuple[Access, ...]
    cost: int
    itemsize: int
    in_place: bool = False
    has_lanes: bool = True
    positions: frozenset[str] = frozenset()

    @property
    def spatial(self) -> tuple[Axis, ...]:
        return tuple([axis for axis in self.axes if axis.kind == "spatial"])

    @property
    def reduce(self) -> tuple[Axis, ...]:
        return tuple([axis for axis in self.axes if axis.kind == "reduce"])

    def loops(self, s: Schedule) -> list[LoopRef]:
        """The loops of the axes, in a schedule that has done nothing to them yet: the innermost ones."""
        loops = s.loops(self.block)
        return loops[len(loops) - len(self.axes) :]

    @property
    def is_box(self) -> bool:
        """Whether no extent depends on another axis, and no axis runs in order."""
        return not any(axis.within or axis.kind == "ordered" for axis in self.axes)


@dataclass(frozen=True, slots=True)
class Group:
    """Connected blocks that one recipe schedules together: `main`, an `epilogue` that every result of it goes through,
    element by element, and a `prologue` that makes what only it reads. `is_alone`: the loops of the main block are its
    own, and as they were made."""

    main: Pattern
    epilogue: Pattern | None = None
    prologue: Pattern | None = None
    is_alone: bool = False


def pattern(
    block: Block, loops: Mapping[str, int | None] | None = None, constants: Collection[str] = ()
) -> Pattern:
    """The access pattern of a block; of those of its iterators that one of these `loops` moves, step by step, if they
    are given with their extents: the others stand still. `constants` names buffers that hold the same at every call."""
    stores = [stmt for stmt in walk(block.body) if type(stmt) is Store]
    stored = {store.buffer for store in stores}
    store = max(stores, key=lambda store: store.buffer.dtype.bytes)
    values = [expr for stmt in walk(block.body) for expr in exprs(stmt)]
    loads = {e: None for value in values for e in walk_expr(value) if type(e) is Load}
    own = [load for load in loads if load.buffer in stored]
    axes = _axes(block, loops)
    written = _access(store.buffer, store.indices, block, axes)
    wide, guarded = _widened(values), _guarded(block)
    reads = tuple([
        replace(
            _access(load.buffer, load.indices, block, axes),
            wide=wide.get(load.buffer),
            is_guarded=load.buffer in guarded,
            is_constant=load.buffer.name in constants,
        )
        for load in loads
        if load not in own
    ])
    itemsize = _itemsize(block, stores, reads)
    has_lanes = not any(it.kind == "reduce" for it in block.iters) or accumulates(block)
    cost = sum(map(_cost, values))
    return Pattern(block.name, axes, written, reads, cost, itemsize, bool(own), has_lanes, _positions(block))


def _axes(block: Block, loops: Mapping[str, int | None] | None) -> tuple[Axis, ...]:
    names = {it.binding: it.var.name for it in block.iters}
    found: list[Axis] = []
    for it in block.iters:
        within = frozenset([names[var] for var in variables(it.extent) if var in names])
        if loops is None:
            found.append(Axis(it.var.name, _extent(it.extent), it.kind, within))
            continue
        own = [var.name for var, factor in affine(it.binding).terms if factor == 1 and type(var) is Var]
        own = [name for name in own if name in loops]
        if own:
            found.append(Axis(it.var.name, loops[own[0]], it.kind, within))
    return tuple(found)


def _positions(block: Block) -> frozenset[str]:
    names = {it.var: it.var.name for it in block.iters}
    found: set[str] = set()

    def visit(expr: Expr) -> None:
        if type(expr) is Var and expr in names:
            found.add(names[expr])
        elif type(expr) is not Load:
            for inner in children(expr):
                visit(inner)

    for stmt in walk(block.body):
        for expr in (stmt.value,) if type(stmt) is Store else exprs(stmt):
            visit(expr)
    return frozenset(found)


def _widened(values: list[Expr]) -> dict[Buffer, str]:
    """The buffers of floats whose loads are all cast to one type of more bytes, with its name. Integers stay narrow:
    products of numbers that are known to be small are cheaper ones."""
    casts: dict[Buffer, list[DType]] = {}
    plain: dict[Buffer, int] = {}
    for value in values:
        for e in walk_expr(value):
            if type(e) is Load:
                plain[e.buffer] = plain.get(e.buffer, 0) + 1
            elif type(e) is Cast and type(e.value) is Load:
                casts.setdefault(e.value.buffer, []).append(e.dtype)
    return {
        buffer: to[0].name
        for buffer, to in casts.items()
        if len(to) == plain[buffer] and len(set(to)) == 1
        if buffer.dtype.is_float and to[0].bytes > buffer.dtype.bytes
    }


def _guarded(block: Block) -> set[Buffer]:
    """The buffers of which some element is read under a condition."""
    under = [e for stmt in walk(block.body) if type(stmt) is If for e in all_exprs(stmt)]
    under += [e for each in all_exprs(block.body) if type(each) is IfThenElse for e in walk_expr(each)]
    return {e.buffer for e in under if type(e) is Load}


def _itemsize(block: Block, stores: list[Store], reads: tuple[Access, ...]) -> int:
    """Bytes of the widest element; of a tuple that is reduced, positions aside, which lanes keep in fewer bits."""
    update = update_of(block) if len(stores) > 1 else None
    widths = [stored.buffer.dtype.bytes for stored in stores]
    if update is not None:
        data = [any(type(e) is Load for e in walk_expr(term)) for term in update.terms]
        widths = [width for width, reads_data in zip(widths, data) if reads_data] or widths
        return max([*widths, *[read.itemsize for read in reads], *map(_width, update.terms)])
    return max([*widths, *[read.itemsize for read in reads], *[_width(stored.value) for stored in stores]])


def _extent(extent: Expr) -> int | None:
    return extent.value if type(extent) is Const else None


def _access(buffer: Buffer, indices: tuple[Expr, ...], block: Block, axes: tuple[Axis, ...]) -> Access:
    names = {it.var: it.var.name for it in block.iters}
    used = {names[e] for expr in indices for e in variables(expr) if e in names}
    pitch = _pitches(buffer)
    strides: dict[str, int] = dict.fromkeys(used, 0)
    for expr, step in zip(indices, pitch):
        for atom, factor in affine(expr).terms:
            inside = {names[e] for e in variables(atom) if e in names}
            for name in inside & strides.keys():
                if type(atom) is Var and step is not None:
                    strides[name] += factor * step
                else:
                    del strides[name]
    plain = tuple([names.get(expr) if type(expr) is Var else None for expr in indices])
    size: int | None = 1
    for extent in buffer.shape:
        size = None if size is None or type(extent) is not Const else size * extent.value
    moving = {axis.name: axis.extent for axis in axes}
    extents = {it.var: it.extent for it in block.iters if moving.get(it.var.name, -1) == _extent(it.extent)}
    pairs = zip(indices, buffer.shape) if buffer.strides is None else ()
    whole = frozenset([names[at] for at, extent in pairs if type(at) is Var and extents.get(at) == extent])
    dims = tuple([frozenset([names[e] for e in variables(expr) if e in names]) for expr in indices])
    return Access(buffer.name, buffer.dtype.bytes, size, frozenset(used), strides, plain, whole, dims=dims)


def _pitches(buffer: Buffer) -> list[int | None]:
    """Elements between neighbours along each dimension; None where that is symbolic."""
    if buffer.strides is not None:
        return [_extent(stride) for stride in buffer.strides]
    pitches: list[int | None] = []
    step: int | None = 1
    for extent in reversed(buffer.shape):
        pitches.append(step)
        step = None if step is None or type(extent) is not Const else step * extent.value
    return pitches[::-1]


def _cost(expr: Expr) -> int:
    cost = 0
    for e in walk_expr(expr):
        if type(e) is Call:
            cost += 20
        elif isinstance(e, (Binary, Cast, Select)) and not e.dtype.is_bool:
            cost += 1
    return cost


def _width(expr: Expr) -> int:
    """Bytes of the widest number computed in a value, its indices and conditions left out."""
    match expr:
        case Load() | Const() | Var():
            return 0
        case Select(_, true, false) | IfThenElse(_, true, false):
            return max(_width(true), _width(false))
        case Compare(a, b):
            return 0 if a.dtype is int64 else max(_width(a), _width(b))
        case _:
            return max([expr.dtype.bytes, *map(_width, children(expr))])
