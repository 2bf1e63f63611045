"""Random steps of a schedule: any that is legal, whether it makes sense or not."""

from __future__ import annotations

import random
from collections.abc import Callable

from tensorc.arith import Domain, bounds
from tensorc.errors import ScheduleError
from tensorc.ir.expr import IfThenElse, Load, Select
from tensorc.ir.stmt import Block, For, Stmt, Store
from tensorc.ir.walk import all_exprs, substmts, walk
from tensorc.schedule import Schedule
from tensorc.schedule.locate import all_blocks, all_loops, constant
from tests.fuzz import nests

TAILS = ("auto", "auto", "guard", "mask", "shift", "cut")
ANYWHERE = Domain()
MOST_INSTANCES = 30_000  # of all blocks, those that a tail skips included
MOST_COPIES = 64  # that unrolled loops make of a body


def random_steps(s: Schedule, rng: random.Random, count: int) -> int:
    """Perform `count` random steps, refused ones left out; loops get kinds in the later half.

    Returns how many were refused.
    """
    refused = 0
    for number in range(count):
        for primitive, args in _plan(s, rng, 2 * number < count):
            try:
                trial = s.copy()
                trial.perform(primitive, args)
            except ScheduleError:
                refused += 1
                break
            if instances(trial.function.body) > MOST_INSTANCES:
                break
            s.perform(primitive, args)
    return refused


def instances(stmt: Stmt, domain: Domain = ANYWHERE) -> int:
    """How often the blocks of a nest are reached at most."""
    match stmt:
        case For(var, start, extent):
            most = bounds(extent, domain).hi
            times = MOST_INSTANCES if most is None else max(0, most)
            return times and times * instances(stmt.body, domain.bind(var, start, extent))
        case Block():
            return 1
        case _:
            return sum([instances(each, domain) for each in substmts(stmt)])


def _plan(s: Schedule, rng: random.Random, is_early: bool) -> list[tuple[str, tuple]]:
    """A step, or some that need one another."""
    makers = [
        (6, _split), (4, _reorder), (3, _fuse), (2, _cache_read), (2, _cache_write),
        (4, _compute_at), (1, _compute_inline), (2, _transform_layout), (2, _decompose),
        (2, _reindex), (2, _reindex_cache), (4, _stage), (6, _rolling_buffer), (1, _blockize),
        (2, _transform_block), (3, _pad_einsum),
        (8, _decompose_padding), *nests.MAKERS,
    ]  # fmt: skip
    if not is_early:
        makers += [(4, _unroll), (7, _vectorize), (4, _parallel)]
    while True:
        maker: Callable = rng.choices([m for _, m in makers], [w for w, _ in makers])[0]
        block = rng.choice(s.blocks()).name
        loops = [loop.name for loop in s.loops(block)]
        if not loops and maker not in (_cache_read, _cache_write, _compute_inline):
            if not any(s.loops(each) for each in s.blocks()):
                maker = _cache_write
            else:
                continue
        found = maker(s, rng, block, loops)
        if found is not None:
            return found if type(found) is list else [found]


def _split(s, rng, block, loops):
    loop = rng.choice(loops)
    extent = s.extent(loop)
    inner = rng.choice((1, 2, 3, 4, 7, 8, 16, 16, 32))
    kinds = [(None, inner), (None, inner), (inner, None), (None, rng.choice((2, 3, 5)), inner)]
    if extent:
        kinds.append((-(-extent // inner), inner))
        kinds.append((2, -(-extent // (2 * inner)), inner))
    return "split", (loop, rng.choice(kinds), rng.choice(TAILS))


def _reorder(s, rng, block, loops):
    if len(loops) < 2:
        return None
    chosen = rng.sample(loops, rng.randint(2, len(loops)))
    return "reorder", (tuple(chosen),)


def _fuse(s, rng, block, loops):
    if len(loops) < 2:
        return None
    first = rng.randrange(len(loops) - 1)
    return "fuse", (tuple(loops[first : first + rng.choice((2, 2, 3))]),)


def _unroll(s, rng, block, loops):
    copies = 1
    for loop in _loop_kinds(s, "unrolled"):
        copies *= s.extent(loop) or 1
    fitting = [loop for loop in loops if copies * (s.extent(loop) or 1000) <= MOST_COPIES]
    return ("unroll", (rng.choice(fitting),)) if fitting else None


def _vectorize(s, rng, block, loops):
    fitting = [loop for loop in loops if (s.extent(loop) or 1000) <= 65]
    if not fitting:
        return None
    return "vectorize", (rng.choice((fitting[-1], rng.choice(fitting))),)


def _parallel(s, rng, block, loops):
    return "parallel", (rng.choice((loops[0], rng.choice(loops))),)


def _cache_read(s, rng, block, loops):
    node = _node(s, block)
    names = sorted({e.buffer.name for e in all_exprs(node) if type(e) is Load})
    if not names:
        return None
    return "cache_read", (block, rng.choice(names), _scope(rng))


def _cache_write(s, rng, block, loops):
    return "cache_write", (block, _scope(rng))


def _stage(s, rng, block, loops):
    place = rng.choice((block, *loops))
    buffers = _buffers(_node(s, block))
    if not buffers:
        return None
    mode = rng.choice(("auto", "auto", "auto", "in", "out", "inout"))
    return "stage", (place, rng.choice(buffers), None, mode, _scope(rng))


def _blockize(s, rng, block, loops):
    return "blockize", (rng.choice(loops[-3:]),)


def _rolling_buffer(s, rng, block, loops):
    """For a stage and one that reads it at neighbouring places: in a loop of that one."""
    pairs = [pair for each in all_blocks(s.function) for pair in _windows(s, each)]
    if rng.random() < 0.9:
        if not pairs:
            return None
        made, buffer, reader = rng.choice(pairs)
        places = [loop.name for loop in s.loops(reader)]
        roll = ("rolling_buffer", (made, buffer))
        if any(loop.name in places for loop in s.loops(made)):
            return roll
        plans = [[("compute_at", (made, loop)), roll] for loop in rng.sample(places, len(places))]
        return next((plan for plan in plans if _is_legal(s, plan)), plans[0])
    inner = [
        (b.name, w.buffer.name)
        for b in all_blocks(s.function)
        for w in walk(b)
        if type(w) is Store and w.buffer in s.function.allocs and s.loops(b.name)
    ]
    return ("rolling_buffer", rng.choice(inner)) if inner else None


def _is_legal(s: Schedule, plan) -> bool:
    trial = s.copy()
    try:
        for primitive, args in plan:
            trial.perform(primitive, args)
    except ScheduleError:
        return False
    return True


def _windows(s: Schedule, reader) -> list[tuple[str, str, str]]:
    """The blocks that fill an internal buffer of which a block in loops reads several places, with
    the buffer and the block."""
    if not s.loops(reader.name):
        return []
    places: dict = {}
    for e in all_exprs(reader):
        if type(e) is Load and e.buffer in s.function.allocs:
            places.setdefault(e.buffer, set()).add(e.indices)
    return [
        (b.name, w.buffer.name, reader.name)
        for b in all_blocks(s.function)
        for w in walk(b)
        if b is not reader and type(w) is Store and len(places.get(w.buffer, ())) > 1
    ]


def _reindex(s, rng, block, loops):
    names = _buffers(_node(s, block))
    return ("reindex", (block, rng.choice(names))) if names else None


def _reindex_cache(s, rng, block, loops):
    node = _node(s, block)
    names = [it.var.name for it in node.iters]
    if not names or not _buffers(node):
        return None
    kept = [it.var.name for it in node.iters if it.kind == "spatial" or rng.random() < 0.6]
    rng.shuffle(kept)
    buffer = rng.choice(_buffers(node))
    written = {w.buffer.name for w in walk(node) if type(w) is Store}
    step = "reindex_cache_write" if buffer in written else "reindex_cache_read"
    return step, (block, buffer, _scope(rng), _map(names, _digits(rng, kept) or ["0"]))


def _digits(rng, parts):
    """The indices with one of them, often, taken apart."""
    parts = list(parts)
    if parts and rng.random() < 0.5:
        axis, factor = rng.randrange(len(parts)), rng.choice((2, 3, 4, 8))
        parts[axis : axis + 1] = [f"{parts[axis]} // {factor}", f"{parts[axis]} % {factor}"]
        rng.shuffle(parts)
    return parts


def _map(names, outputs) -> str:
    plain = [f"d{axis}" for axis in range(len(names))]
    renamed = []
    for output in outputs:
        name, _, rest = output.partition(" ")
        at = plain[names.index(name)] if name in names else name
        renamed.append(f"{at} {rest}".strip())
    comma = "," if len(renamed) == 1 else ""
    return f"lambda {', '.join(plain)}: ({', '.join(renamed)}{comma})"


def _buffers(node) -> list[str]:
    """The buffers that a block touches."""
    names = {e.buffer.name for e in all_exprs(node) if type(e) is Load}
    return sorted(names | {w.buffer.name for w in walk(node) if type(w) is Store})


def _compute_at(s, rng, block, loops):
    block = rng.choice((block, *_inner(s)))
    other = rng.choice(s.blocks()).name
    places = [loop.name for loop in s.loops(other)]
    return ("compute_at", (block, rng.choice(places))) if places and other != block else None


def _compute_inline(s, rng, block, loops):
    return "compute_inline", (rng.choice((block, *_inner(s))),)


def _transform_layout(s, rng, block, loops):
    buffers = [each for each in s.function.allocs if each.shape]
    if not buffers:
        return None
    buffer = rng.choice(buffers)
    names = [f"d{axis}" for axis in range(len(buffer.shape))]
    parts = list(names)
    if rng.random() < 0.7:
        axis, factor = rng.randrange(len(parts)), rng.choice((2, 3, 4, 8))
        parts[axis : axis + 1] = [f"{parts[axis]} // {factor}", f"{parts[axis]} % {factor}"]
    rng.shuffle(parts)
    comma = "," if len(parts) == 1 else ""
    return "transform_layout", (
        block,
        buffer.name,
        f"lambda {', '.join(names)}: ({', '.join(parts)}{comma})",
        rng.choice((None, None, 0, 1)),
    )


def _transform_block(s, rng, block, loops):
    iters = _node(s, block).iters
    if not iters:
        return None
    names = [f"d{axis}" for axis in range(len(iters))]
    parts = list(names)
    pairs = [
        (a, b) for a in range(len(iters)) for b in range(len(iters))
        if a != b and iters[a].kind == iters[b].kind
    ]  # fmt: skip
    if pairs and rng.random() < 0.6:
        a, b = rng.choice(pairs)
        parts[a] = f"{names[a]} * {constant(iters[b].extent) or 1} + {names[b]}"
        parts.remove(names[b])
    elif rng.random() < 0.6:
        axis = rng.randrange(len(iters))
        factors = [f for f in (2, 3, 4, 5) if (constant(iters[axis].extent) or 1) % f == 0]
        factor = rng.choice(factors or [2])
        parts[axis : axis + 1] = [f"{names[axis]} // {factor}", f"{names[axis]} % {factor}"]
    rng.shuffle(parts)
    comma = "," if len(parts) == 1 else ""
    return "transform_block_layout", (
        block, f"lambda {', '.join(names)}: ({', '.join(parts)}{comma})"
    )  # fmt: skip


def _pad_einsum(s, rng, block, loops):
    reducing = [b for b in all_blocks(s.function) if b.init is not None]
    node = rng.choice(reducing) if reducing else _node(s, block)
    return "pad_einsum", (node.name, tuple([rng.choice((1, 2, 3, 4)) for _ in node.iters]))


def _decompose_padding(s, rng, block, loops):
    pads = [
        b.name for b in all_blocks(s.function)
        if type(b.body) is Store and type(b.body.value) in (IfThenElse, Select)
    ]  # fmt: skip
    block = rng.choice(pads) if pads else block
    loops = [loop.name for loop in s.loops(block)]
    return ("decompose_padding", (block, rng.choice(loops))) if loops and pads else None


def _decompose(s, rng, block, loops):
    return "decompose_reduction", (block, rng.choice(loops))


def _inner(s: Schedule) -> list[str]:
    """The blocks whose results stay inside the function."""
    writes = [
        (b.name, w.buffer) for b in all_blocks(s.function) for w in walk(b) if type(w) is Store
    ]
    return [name for name, buffer in writes if buffer in s.function.allocs]


def _scope(rng) -> str:
    return rng.choice(("global", "global", "local"))


def _node(s: Schedule, name: str):
    return next(block for block in all_blocks(s.function) if block.name == name)


def _loop_kinds(s: Schedule, kind: str) -> list[str]:
    return [loop.var.name for loop in all_loops(s.function) if loop.kind == kind]
