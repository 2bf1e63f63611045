"""What the columns of a contraction are: one axis or two, and how the operand that has them is read.

    C[c, h, w] += W[c, k] * X[k, h * 2, w * 2]   ->   C[c, hw] += W[c, k] * X_global[k, hw]

The results lie side by side over both axes, which are joined, so that vectors are full where rows are short. Where the
operand does not lie as they do, as of a convolution with taps, by steps or of padded data, it is gathered: chunks of
whole rows are copied into a buffer that stays in the level-2 cache (im2col, chunk by chunk).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tensorc.errors import ScheduleError
from tensorc.schedule.knobs import Knobs
from tensorc.schedule.recipes.access import Access, Axis, Pattern
from tensorc.schedule.recipes.tiles import (
    PANEL_SHARE,
    VECTOR_LOAD,
    WAYS,
    Product,
    best_tile,
    depth_block,
    size,
)
from tensorc.schedule.schedule import BlockRef, LoopRef, Schedule
from tensorc.target import Target

MOST_GROWTH = 2  # of a constant operand by its copy
WIDEST_STEP = 4  # between neighbours, up to which vectors are picked out of wider loads
STRIDED_LOAD = 2.5  # cycles that such a load takes from the multiply-adds beside it
FAR_LOAD = 0.3  # the same of a vector on another page than the one before
PAGE = 4096  # bytes
SCATTERED_LOAD = 16.0  # the same of elements one by one
GATHERED = 7.0  # cycles to copy a vector
MOST_COLUMNS = 1024  # of a chunk
LEAST_DEPTH = 128  # of a chunk in the cache, so that results are seldom added to
UNROLLED = 8  # vectors of a row


@dataclass(frozen=True, slots=True)
class Columns:
    """The pattern with what is joined as one axis, and which axis is the columns; `joined` names the two that it is
    made of. With `chunk`, the wide operand is gathered for so many columns at a time, and `run` of them lie side by
    side in it, or at equal steps; `is_once`: it is constant, and gathered for all of them before."""

    pattern: Pattern
    axis: Axis
    joined: tuple[str, str] | None = None
    chunk: int | None = None
    run: int | None = None
    is_once: bool = False


@dataclass(frozen=True, slots=True)
class _Choice:
    cycles: float
    chunk: int | None


def column_axis(pattern: Pattern) -> Axis | None:
    """The axis along which the output is contiguous: the one that becomes vectors."""
    for axis in reversed(pattern.spatial):
        if axis.extent != 1 and pattern.store.stride(axis.name) == 1:
            return axis
    return None


def row_axis(pattern: Pattern, column: Axis) -> Axis | None:
    """The innermost axis along which the wide operands are reused: the one that the register tile spans."""
    wide = [load for load in pattern.loads if column.name in load.axes]
    candidates = [
        axis
        for axis in pattern.spatial
        if axis is not column and axis.extent != 1 and not any(axis.name in load.axes for load in wide)
    ]
    roomy = [axis for axis in candidates if size(axis) >= 4]
    found = roomy or candidates
    return found[-1] if found else None


def depth_axis(pattern: Pattern) -> Axis:
    """The longest reduction axis, the innermost of them: the one that is cut into blocks."""
    return max(reversed(pattern.reduce), key=size)


def product_of(pattern: Pattern, column: Axis, target: Target, by_rows: Access | None = None) -> Product:
    """The matrix product that one setting of the outer axes is; the rows of the operand `by_rows` lie side by side."""
    row = row_axis(pattern, column)
    streams = [load.stride(row.name) for load in pattern.loads if row and row.name in load.axes and load is not by_rows]
    way = target.l1 // WAYS
    crowded = any(stride and stride * pattern.itemsize % way == 0 for stride in streams)
    depth = math.prod(map(size, pattern.reduce))
    return Product(size(row) if row else 1, size(column), depth, target.lanes(pattern.itemsize), crowded)


def choose_columns(pattern: Pattern, knobs: Knobs, target: Target, is_alone: bool) -> Columns:
    """What the columns are made of. `is_alone`: the loops of the block are its own, and as they were made."""
    column = column_axis(pattern)
    assert column is not None  # `matches` has seen to it
    apart = Columns(pattern, column)
    operand = _operand(pattern, column) if is_alone else None
    if operand is None:
        return apart
    is_plain = column.name in operand.plain  # then it is packed as it is
    step, other = operand.stride(column.name), _neighbour(pattern, column, operand)
    if other is None and (step == 1 or is_plain):
        return apart
    if _is_laid_once(pattern, operand):
        return _once(pattern, knobs, apart, other, operand)
    options = _options(pattern, column, other, operand, target)
    best = min(options, key=lambda option: options[option].cycles)
    is_joined = other is not None and knobs.choice("join", (True, False), default=best[0])
    if not is_joined and (step == 1 or is_plain):
        return apart
    default = options[is_joined, True]
    is_packed = knobs.choice("pack", (True, False), default=default.cycles < options[is_joined, False].cycles)
    view = _joined(pattern, other, column) if is_joined and other is not None else apart
    if not is_packed:
        return view
    chunks = _chunks(column, other if is_joined else None, pattern, target)
    run = size(view.axis) if _runs_on(other, column, operand) else size(column)
    return replace(view, chunk=knobs.choice("chunk", chunks, default=default.chunk), run=run)


def _operand(pattern: Pattern, column: Axis) -> Access | None:
    """The one operand that has the columns, if a copy of it can be laid out anew."""
    wide = [load for load in pattern.loads if column.name in load.axes]
    if len(wide) != 1 or column.extent is None or wide[0].wide is not None or wide[0].is_guarded:
        return None
    shared = [load.buffer for load in pattern.loads].count(wide[0].buffer) > 1
    step = wide[0].stride(column.name)
    if shared or step is None or step <= 0:
        return None
    return wide[0] if step <= WIDEST_STEP or _is_laid_once(pattern, wide[0]) else None


def are_alone(pattern: Pattern, column: Axis) -> bool:
    """Whether nothing lies beside the columns that could be joined with them."""
    wide = [load for load in pattern.loads if column.name in load.axes]
    return len(wide) != 1 or _neighbour(pattern, column, wide[0]) is None


def _is_laid_once(pattern: Pattern, operand: Access) -> bool:
    """Whether an operand is constant, and a copy by axes hardly larger than it: not where taps read elements again."""
    count = math.prod([size(axis) for axis in pattern.axes if axis.name in operand.axes])
    return operand.is_constant and operand.size is not None and count <= MOST_GROWTH * operand.size


def _once(pattern: Pattern, knobs: Knobs, apart: Columns, other: Axis | None, operand: Access) -> Columns:
    """What the columns are made of where a copy of the operand costs nothing: vectors are full at the least."""
    column = apart.axis
    is_joined = other is not None and knobs.choice("join", (True, False), default=True)
    if not is_joined and (operand.stride(column.name) == 1 or column.name in operand.plain):
        return apart
    view = _joined(pattern, other, column) if is_joined and other is not None else apart
    if not knobs.choice("pack", (True, False), default=True):
        return view
    run = size(view.axis) if _runs_on(other, column, operand) else size(column)
    return replace(view, run=run, is_once=True)


def _neighbour(pattern: Pattern, column: Axis, operand: Access) -> Axis | None:
    """The axis next to the columns, if the results lie side by side over both and just the operand has it."""
    spatial = pattern.spatial
    at = spatial.index(column)
    if at == 0 or pattern.axes.index(column) != pattern.axes.index(spatial[at - 1]) + 1:
        return None
    axis = spatial[at - 1]
    if axis.extent in (None, 1) or pattern.store.stride(axis.name) != column.extent:
        return None
    others = [load for load in pattern.loads if load is not operand]
    is_own = axis.name in operand.strides and not any(axis.name in load.axes for load in others)
    return axis if is_own else None


def _runs_on(other: Axis | None, column: Axis, operand: Access) -> bool:
    """Whether the operand lies side by side over both axes."""
    return other is not None and operand.stride(column.name) == 1 and operand.stride(other.name) == column.extent


def _options(
    pattern: Pattern, column: Axis, other: Axis | None, operand: Access, target: Target
) -> dict[tuple[bool, bool], _Choice]:
    """What (joined or not, gathered or not) would take."""
    product = product_of(pattern, column, target)
    step, runs_on = operand.stride(column.name), _runs_on(other, column, operand)
    load = VECTOR_LOAD if step == 1 else STRIDED_LOAD
    row = row_axis(pattern, column)
    free = [axis for axis in pattern.spatial if axis not in (column, other, row) and axis.name not in operand.axes]
    repeats = math.prod(map(size, free))
    times = 1 if other is None else size(other)
    apart = best_tile(replace(product, load=load), target).cycles * times * repeats
    options = {(False, False): _Choice(apart, None)}
    for is_joined in (True, False) if other is not None else (False,):
        if not is_joined and (step == 1 or column.name in operand.plain):
            continue
        columns = product.columns * times if is_joined else product.columns
        outside = 1 if is_joined else times
        if is_joined:
            load = _load(operand, pattern) if runs_on else SCATTERED_LOAD
            whole = best_tile(replace(product, columns=columns, load=load), target).cycles
            options[True, False] = _Choice(whole * repeats, None)
        vectors = columns / product.lanes if runs_on else times // outside * -(-product.columns // product.lanes)
        copying = GATHERED * vectors * product.depth
        options[is_joined, True] = min(
            [
                _Choice(outside * (repeats * _by_chunks(product, columns, chunk, pattern, target) + copying), chunk)
                for chunk in _chunks(column, other if is_joined else None, pattern, target)
            ],
            key=lambda choice: choice.cycles,
        )
    return options


def _load(operand: Access, pattern: Pattern) -> float:
    """Cycles to load a vector of an operand that lies as the columns do."""
    steps = [operand.stride(axis.name) for axis in pattern.reduce if axis.extent != 1]
    is_far = any(step is None or step * operand.itemsize >= PAGE for step in steps)
    return FAR_LOAD if is_far else VECTOR_LOAD


def _by_chunks(product: Product, columns: int, chunk: int, pattern: Pattern, target: Target) -> float:
    """Cycles for all columns, so many at a time."""
    axis = depth_axis(pattern)
    block = depth_block(axis, product.depth, chunk * pattern.itemsize, target, is_even=True)
    parts = -(-size(axis) // block)
    total = 0.0
    for count, width in ((columns // chunk, chunk), (1, columns % chunk)):
        if count and width:
            part = replace(product, columns=width, depth=-(-product.depth // parts))
            total += count * parts * best_tile(part, target).cycles
    return total


def _chunks(column: Axis, other: Axis | None, pattern: Pattern, target: Target) -> tuple[int, ...]:
    """Numbers of columns that may be gathered at a time, whole rows where they are joined."""
    depth = min(LEAST_DEPTH, math.prod(map(size, pattern.reduce)))
    most = min(MOST_COLUMNS, int(target.l2 * PANEL_SHARE) // (depth * pattern.itemsize))
    width = size(column)
    if other is not None:
        rows = [n for n in range(1, size(other) + 1) if size(other) % n == 0]
        return tuple([n * width for n in rows if n == 1 or n * width <= most])
    if width <= most:
        return (width,)
    lanes = target.lanes(pattern.itemsize)
    return tuple([vectors * lanes for vectors in (4, 8, 12, 16)])


def _joined(pattern: Pattern, other: Axis, column: Axis) -> Columns:
    """The pattern with the two axes as one."""
    assert other.extent is not None and column.extent is not None
    axis = Axis(f"{other.name}_{column.name}", other.extent * column.extent, "spatial")
    pair = {other.name, column.name}

    def of(access: Access) -> Access:
        if access.axes.isdisjoint(pair):
            return access
        strides = {name: step for name, step in access.strides.items() if name not in pair}
        if access.strides.get(other.name) == access.strides.get(column.name, 0) * size(column):
            strides[axis.name] = access.strides[column.name]
        plain = tuple([None if name in pair else name for name in access.plain])
        axes = (access.axes - pair) | {axis.name}
        return replace(access, axes=axes, strides=strides, plain=plain, whole=access.whole - pair)

    axes = [axis if each is column else each for each in pattern.axes if each is not other]
    store, loads = of(pattern.store), tuple(map(of, pattern.loads))
    return Columns(replace(pattern, axes=tuple(axes), store=store, loads=loads), axis, (other.name, column.name))


def join(s: Schedule, block: str, at: int, width: int) -> None:
    """Give a block one iterator for the one at this place and the next, which has `width` values."""
    s.transform_block_layout(block, _together(at, width))


def join_results(s: Schedule, pattern: Pattern, at: int, width: int) -> None:
    """Give the results of a block, which are internal, one dimension for two."""
    s.transform_layout(pattern.block, pattern.store.buffer, _together(at, width))


def _together(at: int, width: int):
    return lambda *indices: (*indices[:at], indices[at] * width + indices[at + 1], *indices[at + 2 :])


def gathered(s: Schedule, columns: Columns) -> BlockRef | None:
    """A copy of the wide operand by the outer axes, the reduction and the columns; None where it cannot be made."""
    pattern = columns.pattern
    operand = next(load for load in pattern.loads if columns.axis.name in load.axes)
    at = [place for place, axis in enumerate(pattern.axes) if axis.name in operand.axes and axis is not columns.axis]
    order = [*at, pattern.axes.index(columns.axis)]
    try:
        return s.reindex_cache_read(
            pattern.block, operand.buffer, "global", lambda *it: tuple([it[i] for i in order])
        )
    except ScheduleError:
        return None


def fill(s: Schedule, copy: BlockRef, columns: Columns, place: LoopRef | None, lanes: int, is_shared: bool) -> None:
    """Let the copy be made in the loop `place`, row by row in vectors; by all threads where `is_shared`."""
    if place is not None:
        s.compute_at(copy, place)
    # compute_at leaves out loops of extent 1, so the rest are told by their names.
    own = {loop.name: loop for loop in s.loops(copy) if loop.name.startswith(f"{copy.name}.")}
    column = own.pop(f"{copy.name}.{columns.axis.name}", None)
    if column is None:
        return
    run, extent = columns.run or 1, s.extent(column)
    rows: list[LoopRef] = []
    if extent is not None and run < extent:
        row, column = s.split(column, factors=(None, run))
        rows.append(row)
    if min(run, extent or run) > lanes:
        vector, column = s.split(column, factors=(None, lanes), tail="shift")
        if run <= UNROLLED * lanes:
            s.unroll(vector)
        rows.append(vector)
    s.reorder(*own.values(), *rows, column)
    s.vectorize(column)
    if is_shared and own:
        s.parallel(next(iter(own.values())))
