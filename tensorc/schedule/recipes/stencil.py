"""Stencils: sums, or the like, over a few taps around each place: depthwise convolutions, pooling, blurs.

Vectors go over the channels where these are contiguous, else along the image. All taps of a tile of neighbours are
unrolled, so that what several of them read is loaded once, and weights stay in registers. A stage that pads is made as
it is needed: row by row into a window that rolls, or slice by slice, but never as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tensorc.errors import ScheduleError
from tensorc.ir.function import Function
from tensorc.schedule.knobs import Knobs
from tensorc.schedule.recipes import contraction, groups, nests
from tensorc.schedule.recipes.access import Access, Axis, Group, Pattern
from tensorc.schedule.recipes.parallel import share, worth_threads
from tensorc.schedule.schedule import LoopRef, Schedule
from tensorc.target import Target

MOST_TAPS = 128
UNROLLED = 80  # updates of a vector that the code of a tile may have
ROWS = 4  # of a tile along whose rows vectors go
TILE = (2, 4)  # rows and columns of one whose vectors go over channels
WIDEST_STEP = 4  # between the elements of a vector, up to which they are loaded as one and picked
PARTIAL = 1.5  # times that guards take longer where columns do not fill whole registers
COPY = 9  # updates that take as long as to copy an element of padding and what it surrounds
IMPLICIT = 2  # columns of a tile where its code is there once with guards and once without
UNKNOWN_EXTENT = 256


@dataclass(frozen=True, slots=True)
class Plan:
    """`column` becomes vectors of `lanes`; a tile is `rows` of the axis `row` by `across` of the axis `beside`.

    `taps` are unrolled, after the loops of `outer`. The stage that is read is made in the loop of `place`, in a window
    that rolls there if `rolls`; with `phases` its last axis lies by remainders, as columns go by so many elements.
    `parts` are the tasks of the first sliding axis, where threads share that one, else 0; `tail` is that of the
    vectors. With `edges`, padding is decided in the stencil itself, and so many tiles of rows at either end have code
    of their own.
    """

    column: str
    lanes: int
    row: str | None
    rows: int
    beside: str | None
    across: int
    outer: tuple[str, ...]
    taps: tuple[str, ...]
    place: str | None
    rolls: bool
    phases: int
    tail: str
    parallel: bool
    parts: int
    epilogue: bool
    edges: int = 0


def matches(pattern: Pattern) -> bool:
    """Whether few taps are combined, all of them at places that slide along the results."""
    column = _column(pattern)
    if column is None or not pattern.is_box or not pattern.has_lanes or not pattern.reduce:
        return False
    taps = [axis.extent for axis in pattern.reduce]
    if None in taps or not 1 < math.prod([tap or 1 for tap in taps]) <= MOST_TAPS:
        return False
    steps = [load.stride(column.name) for load in pattern.loads]
    if any([step is None or not 0 <= step <= WIDEST_STEP for step in steps]):
        return False
    return _window(pattern) is not None


def producer(function: Function, main: Pattern, others: Sequence[Pattern]) -> Pattern | None:
    """The one among other blocks that makes, element by element, what a stencil alone reads in windows."""
    window = _window(main)
    return None if window is None else groups.producer(function, main, window.buffer, others)


def decide(group: Group, knobs: Knobs, target: Target, threads: int) -> Plan:
    """Choose the tile, where the producer goes and what threads share; touches no IR."""
    pattern = group.main
    column, window = _column(pattern), _window(pattern)
    assert column is not None and window is not None  # `matches` has seen to it
    slides = [axis for axis in pattern.spatial if axis.name in _sliding(pattern, window) and axis.extent != 1]
    along = column in slides
    image = [axis for axis in slides if axis is not column]
    lanes = _lanes(column, target.lanes(pattern.itemsize))
    row = image[-1] if along and image else image[-2] if len(image) > 1 else None
    beside = image[-1] if image and not along else None
    rows, across = _tile(pattern, row, beside, along)
    rows, across = knobs.split("tile", _size(row) if row else 1, 3, default=(rows, across))
    if rows * across > contraction.MOST_VECTORS:
        problem = f"{rows} rows of {across} vectors are more than the {contraction.MOST_VECTORS} vectors of a tile"
        raise ScheduleError(f"knob '{pattern.block}.tile': {problem}")
    rows, across = rows if row else 1, across if beside else 1
    free = [axis for axis in pattern.spatial if axis not in slides and axis is not column]
    place, rolls = _place(pattern, window, free, slides, along, target)
    if group.prologue is None or not knobs.choice("prologue", (True, False), default=place is not None):
        place, rolls = None, False
    edges = 0
    if place is not None and rolls and not along and row is image[0] and group.prologue is not None:
        least = _edges(pattern, window, row, rows)
        few = min(across, IMPLICIT)
        tiles = min(_size(row) // rows, _size(beside or row) // few)
        possible = tiles > 2 * least and window.size is not None and _is_pad(group.prologue, slides)
        pays = _spares_copies(pattern, window, tiles, _size(column) % target.lanes(pattern.itemsize) == 0)
        if possible and knobs.choice("implicit", (True, False), default=pays):
            edges, place, rolls, across = least, None, False, few
    step = window.stride(column.name) or 1
    split = step > 1 and place is not None and not rolls and window.plain[-1] is None
    order = [*free, *image] if not along else [*free, *image, column]
    order = [axis for axis in order if axis is not beside]
    work = math.prod(map(_size, pattern.axes)) * max(1, pattern.cost) / lanes
    parallel = knobs.choice("parallel", (True, False), default=worth_threads(work, threads)) and threads > 1
    shares = math.prod(map(_size, free)) < 4 * threads and bool(image) and (place is None or rolls)
    through = group.epilogue is not None and knobs.choice("epilogue", (True, False), default=True)
    return Plan(
        column=column.name,
        lanes=lanes,
        row=row.name if row else None,
        rows=rows,
        beside=beside.name if beside else None,
        across=across,
        outer=tuple([axis.name for axis in order if axis is not column]),
        taps=tuple([axis.name for axis in pattern.reduce]),
        place=place,
        rolls=rolls,
        phases=step if split else 1,
        tail="mask" if target.has("avx512f") else "auto",
        parallel=parallel,
        parts=2 * threads if parallel and shares else 0,
        epilogue=through,
        edges=edges,
    )


def taken(group: Group, plan: Plan) -> frozenset[str]:
    """The other blocks of the group that a plan is for as well."""
    made = group.prologue if plan.place is not None or plan.edges else None
    found = (group.epilogue if plan.epilogue else None, made)
    return frozenset([each.block for each in found if each is not None])


def apply(s: Schedule, group: Group, plan: Plan) -> None:
    """Perform the plan with schedule steps."""
    pattern = group.main
    loops = dict(zip([axis.name for axis in pattern.axes], pattern.loops(s)))
    extents = {axis.name: axis.extent for axis in pattern.axes}
    outer: list[LoopRef] = []
    tile: list[LoopRef] = []
    tasks = [axis for axis in plan.outer if axis not in _image(pattern)]
    shared = [] if plan.edges and plan.parts else [loops[name] for name in tasks]
    places = dict(loops)
    for name in plan.outer:
        first = bool(plan.parts) and name == next(each for each in plan.outer if each not in tasks)
        rows = plan.rows if name == plan.row else 1
        task, around, inner = _cut(s, loops[name], extents[name], plan.parts if first and not plan.edges else 0, rows)
        outer += [] if task is None else [task]
        shared += [] if task is None else [task]
        outer.append(around)
        places[name] = around
        tile += [] if inner is None else [inner]
    vector, lane = s.split(loops[plan.column], factors=(None, plan.lanes), tail=plan.tail)
    outer.append(vector)
    if plan.beside is not None:
        beside, inner = s.split(loops[plan.beside], factors=(None, plan.across))
        outer.append(beside)
        places[plan.beside] = beside
        tile.append(inner)
    taps = [loops[name] for name in plan.taps]
    s.reorder(*outer, *taps, *tile, lane)
    for loop in tile:
        s.unroll(loop)
    size = math.prod([extents[name] or 1 for name in plan.taps]) * plan.rows * plan.across
    s.vectorize(lane)
    if plan.edges and group.prologue is not None:
        s.compute_inline(group.prologue.block)
    if plan.parallel and shared:
        share(s, shared)  # before buffers roll, whose places are harder to tell apart
    if plan.place is not None and group.prologue is not None:
        _make_there(s, plan, group.prologue, places[plan.place])
    s.decompose_reduction(pattern.block, taps[0])
    if plan.epilogue and group.epilogue is not None:
        nests.finish(s, plan.lanes, group.epilogue, outer[-1])
    if plan.edges and plan.row is not None:
        at = slice(len(outer), len(outer) + len(taps))
        middle, taps = _apart(s, plan, places[plan.row], at)
        if plan.parts:
            s.parallel(middle)
    for loop in taps if size <= 2 * UNROLLED else taps[-1:]:
        s.unroll(loop)


def _apart(s: Schedule, plan: Plan, rows: LoopRef, at: slice) -> tuple[LoopRef, list[LoopRef]]:
    """Give the rows at the edges loops of their own; the loop of the others, and those of the taps in it."""
    middle = s.loop_partition(rows, (plan.edges, None, plan.edges))[1]
    chains = [s.loops(block) for block in s.blocks()]
    inner = max([chain for chain in chains if middle in chain], key=len)
    return middle, inner[at]


def _cut(
    s: Schedule, loop: LoopRef, extent: int | None, parts: int, rows: int
) -> tuple[LoopRef | None, LoopRef, LoopRef | None]:
    """A loop as tasks, if it has `parts`, a loop of each, and some rows of that together, if they are several."""
    task = inner = None
    if parts:
        size = max(1, (extent or UNKNOWN_EXTENT) // (parts * rows))
        task, loop, inner = s.split(loop, factors=(None, size, rows))
        if rows == 1:
            s.unroll(inner)
    elif rows > 1:
        loop, inner = s.split(loop, factors=(None, rows))
    return task, loop, inner


def _make_there(s: Schedule, plan: Plan, stage: Pattern, place: LoopRef) -> None:
    """Move the stage that is read to where it is needed; it stays where it is if it cannot be moved."""
    before = len(s.trace)
    buffer = stage.store.buffer
    try:
        if plan.phases > 1:
            phases = plan.phases
            s.transform_layout(stage.block, buffer, lambda *at: (*at[:-1], at[-1] % phases, at[-1] // phases))
        s.compute_at(stage.block, place)
        if plan.rolls:
            s.rolling_buffer(stage.block, buffer)
    except ScheduleError:
        s.undo(len(s.trace) - before)
        return
    loops = s.loops(stage.block)
    own = loops[loops.index(place) + 1 :]
    if not own:
        return
    if plan.phases > 1:
        _, run = s.split(own[-1], factors=(None, plan.lanes * plan.phases))
        lane, phase = s.split(run, factors=(None, plan.phases))
        s.reorder(phase, lane)
        s.unroll(phase)
    elif plan.beside is not None and len(own) > 1 and None not in [s.extent(loop) for loop in own[-2:]]:
        wide = plan.lanes if (s.extent(own[-1]) or 1) % (4 * plan.lanes) else 4 * plan.lanes
        _, lane = s.split(s.fuse(*own[-2:]), factors=(None, wide))
    else:
        _, lane = s.split(own[-1], factors=(None, 2 * plan.lanes if plan.lanes < 16 else plan.lanes))
    s.vectorize(lane)


def _column(pattern: Pattern) -> Axis | None:
    """The axis along which results are contiguous."""
    for axis in reversed(pattern.spatial):
        if axis.extent != 1 and pattern.store.stride(axis.name) == 1:
            return axis
    return None


def _window(pattern: Pattern) -> Access | None:
    """The load whose place depends on an axis of the results and on a tap in one dimension."""
    taps = {axis.name for axis in pattern.reduce if axis.extent != 1}
    results = {axis.name for axis in pattern.spatial}
    for load in pattern.loads:
        known = all([load.stride(name) is not None for name in load.axes])
        if known and any([dim & taps and dim & results for dim in load.dims]):
            return load
    return None


def _sliding(pattern: Pattern, window: Access) -> frozenset[str]:
    """The axes of the results along which a window slides."""
    taps = {axis.name for axis in pattern.reduce}
    return frozenset([name for dim in window.dims if dim & taps for name in dim - taps])


def _image(pattern: Pattern) -> frozenset[str]:
    window = _window(pattern)
    return frozenset() if window is None else _sliding(pattern, window)


def _lanes(column: Axis, lanes: int) -> int:
    """Lanes of which few are idle: half a register where that divides the columns and a register does not."""
    extent = _size(column)
    while lanes > 1 and lanes // 2 >= extent:
        lanes //= 2
    return lanes // 2 if lanes > 8 and extent % lanes and extent % (lanes // 2) == 0 else lanes


def _tile(pattern: Pattern, row: Axis | None, beside: Axis | None, along: bool) -> tuple[int, int]:
    taps = _size(pattern.reduce[-1])  # the others stay loops if together they are too many
    rows = min(ROWS if along else TILE[0], _size(row)) if row else 1
    across = min(TILE[1], _size(beside)) if beside else 1
    while rows * across > 1 and rows * across * taps > UNROLLED:
        rows, across = (rows // 2, across) if rows >= across else (rows, across // 2)
    return max(1, rows), max(1, across)


def _is_pad(stage: Pattern, slides: list[Axis]) -> bool:
    """Whether a stage does little more than to move what it reads."""
    return stage.cost <= len(slides) and len(stage.loads) == 1


def _spares_copies(pattern: Pattern, window: Access, tiles: int, fills: bool) -> bool:
    """Whether copies of padding cost enough, beside the taps, for code of its own at the edges: with more taps, more of
    the tiles are at these, and each has more guards. `fills`: the columns fill whole registers."""
    if window.size is None:
        return False
    taps = math.prod(map(_size, pattern.reduce))
    copies = window.size / math.prod([_size(axis) for axis in pattern.spatial if axis.name in window.axes])
    guards = taps * taps * (1 if fills else PARTIAL)
    return COPY * copies >= taps and COPY * copies * tiles >= guards


def _edges(pattern: Pattern, window: Access, row: Axis, rows: int) -> int:
    """Tiles of rows that padding of less than a window reaches."""
    dim = next(dim for dim in window.dims if row.name in dim)
    step = window.stride(row.name) or 1
    reach = sum([(_size(axis) - 1) * (window.stride(axis.name) or 0) for axis in pattern.reduce if axis.name in dim])
    return max(1, -(-reach // (2 * step * rows)))


def _place(
    pattern: Pattern, window: Access, free: list[Axis], slides: list[Axis], along: bool, target: Target
) -> tuple[str | None, bool]:
    """The axis in whose loop the stage that is read is made, and whether in a window that rolls."""
    own = [axis for axis in free if axis.name in window.axes]
    image = [axis for axis in slides if axis.name != (_column(pattern) or axis).name or not along]
    if along and own and window.size is not None:
        slice_bytes = window.size * window.itemsize // math.prod(map(_size, own))
        if slice_bytes <= target.l2 // 2 or not image:
            return free[-1].name, False
    return (image[0].name, True) if image and image[0].extent is not None else (None, False)


def _size(axis: Axis) -> int:
    return UNKNOWN_EXTENT if axis.extent is None else axis.extent
