"""Random steps on what blocks read, write and are indexed by: copies, layouts, tiles, padding."""

from __future__ import annotations

import random

from tensorc.errors import ScheduleError
from tensorc.ir.expr import IfThenElse, Load, Select
from tensorc.ir.stmt import Store
from tensorc.ir.walk import all_exprs, walk
from tensorc.schedule import Schedule
from tensorc.schedule.locate import all_blocks, constant
from tests.fuzz.looks import buffers, inner, node, reads, writes

WITHOUT_LOOPS = (
    "cache_read", "cache_write", "compute_inline", "add_unit_loop", "annotate", "set_scope", "reindex",
)  # fmt: skip


def cache_read(s: Schedule, rng: random.Random, block, loops):
    names = sorted(each.name for each in reads(node(s, block)))
    return ("cache_read", (block, rng.choice(names), _scope(rng))) if names else None


def cache_write(s: Schedule, rng: random.Random, block, loops):
    names = sorted(each.name for each in writes(node(s, block)))
    return "cache_write", (block, _scope(rng), rng.choice((0, *names)))


def stage(s: Schedule, rng: random.Random, block, loops):
    place = rng.choice((block, *loops))
    names = buffers(node(s, block))
    if not names:
        return None
    mode = rng.choice(("auto", "auto", "auto", "in", "out", "inout"))
    return "stage", (place, rng.choice(names), None, mode, _scope(rng))


def blockize(s: Schedule, rng: random.Random, block, loops):
    loop = rng.choice(loops[-3:])
    if rng.random() < 0.3:
        return "blockize", (loop,)
    extent = s.extent(loop) or 0
    factors = [f for f in (1, 2, 3, 4, 5, 8) if extent and extent % f == 0]
    if not factors:
        return None
    trial = s.copy()
    _, made = trial.split(loop, (None, rng.choice(factors)))
    return [*[(step.primitive, step.args) for step in trial.trace][len(s.trace) :], ("blockize", (made.name,))]


def tensorize(s: Schedule, rng: random.Random, block, loops):
    """A tile of a loop, of the nest itself or of a copy that it reads."""
    trial = s.copy()
    if rng.random() < 0.5:
        found = node(s, block)
        names = sorted({each.name for each in reads(found)} - {each.name for each in writes(found)})
        if not names:
            return None
        block = trial.cache_read(block, rng.choice(names)).name
        loops = [loop.name for loop in trial.loops(block)]
    store = node(trial, block).body
    if not loops or type(store) is not Store:
        return None
    lanes, kind = rng.choice((2, 2, 4, 8)), store.buffer.dtype
    divided = [loop for loop in loops if (trial.extent(loop) or 1) % lanes == 0]
    if not divided:
        return None
    *_, tile = trial.split(rng.choice(divided), (None, lanes))
    inside = trial.loops(block)[trial.loops(block).index(tile) - 1 :]
    trial.reorder(*[loop for loop in inside if loop != tile], tile)
    plan = [(step.primitive, step.args) for step in trial.trace][len(s.trace) :]
    for name in rng.sample(("copy", "sum", "dot", "axpy"), 4):
        whole = [*plan, ("tensorize", (tile.name, f"{name}.{lanes}.{kind}"))]
        if _is_legal(s, whole) or rng.random() < 0.1:
            return whole
    return None


def rolling_buffer(s: Schedule, rng: random.Random, block, loops):
    """For a stage and one that reads it at neighbouring places: in a loop of that one."""
    if rng.random() < 0.1:
        found = [(b.name, w.name) for b in all_blocks(s.function) for w in writes(b)]
        return ("rolling_buffer", rng.choice(found)) if found else None  # in a scope, maybe none
    pairs = [pair for each in all_blocks(s.function) for pair in _windows(s, each)]
    if not pairs:
        return None
    made, buffer, reader = rng.choice(pairs)
    places = [loop.name for loop in s.loops(reader)]
    roll = ("rolling_buffer", (made, buffer))
    if any(loop.name in places for loop in s.loops(made)):
        return roll if _is_legal(s, [roll]) or rng.random() < 0.1 else None
    plans = [[("compute_at", (made, loop)), roll] for loop in rng.sample(places, len(places))]
    found = next((plan for plan in plans if _is_legal(s, plan)), None)
    return found or (plans[0] if rng.random() < 0.1 else None)


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


def reindex(s: Schedule, rng: random.Random, block, loops):
    names = buffers(node(s, block))
    return ("reindex", (block, rng.choice(names))) if names else None


def reindex_cache_read(s: Schedule, rng: random.Random, block, loops):
    return _reindex_cache(s, rng, block, "reindex_cache_read")


def reindex_cache_write(s: Schedule, rng: random.Random, block, loops):
    return _reindex_cache(s, rng, block, "reindex_cache_write")


def _reindex_cache(s: Schedule, rng: random.Random, block, step):
    found = node(s, block)
    names = [it.var.name for it in found.iters]
    written = writes(found)
    fitting = written if step.endswith("write") else reads(found) - written
    if rng.random() < 0.05:
        fitting = reads(found) | written
    if not names or not fitting:
        return None
    buffer = rng.choice(sorted(each.name for each in fitting))
    kept = [it.var.name for it in found.iters if it.kind == "spatial" or rng.random() < 0.6]
    rng.shuffle(kept)
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


def transform_layout(s: Schedule, rng: random.Random, block, loops):
    found = [each for each in s.function.allocs if each.shape]
    if not found:
        return None
    buffer = rng.choice(found)
    users = [b.name for b in all_blocks(s.function) if buffer in reads(b) | writes(b)]
    names = [f"d{axis}" for axis in range(len(buffer.shape))]
    parts = list(names)
    if rng.random() < 0.7:
        axis, factor = rng.randrange(len(parts)), rng.choice((2, 3, 4, 8))
        parts[axis : axis + 1] = [f"{parts[axis]} // {factor}", f"{parts[axis]} % {factor}"]
    rng.shuffle(parts)
    comma = "," if len(parts) == 1 else ""
    return "transform_layout", (
        rng.choice(users) if users else block,
        buffer.name,
        f"lambda {', '.join(names)}: ({', '.join(parts)}{comma})",
        rng.choice((None, None, 0, 1)),
    )


def transform_block_layout(s: Schedule, rng: random.Random, block, loops):
    iters = node(s, block).iters
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


def pad_einsum(s: Schedule, rng: random.Random, block, loops):
    reducing = [b for b in all_blocks(s.function) if b.init is not None]
    if not reducing:
        return None
    found = rng.choice(reducing)
    plan = ("pad_einsum", (found.name, tuple([rng.choice((1, 2, 3, 4)) for _ in found.iters])))
    return plan if rng.random() < 0.2 or _is_legal(s, [plan]) else None


def decompose_padding(s: Schedule, rng: random.Random, block, loops):
    pads = [
        b.name for b in all_blocks(s.function)
        if type(b.body) is Store and type(b.body.value) in (IfThenElse, Select)
    ]  # fmt: skip
    if rng.random() < 0.05:
        pads = [block]
    if not pads:
        return None
    name = rng.choice(pads)
    places = [loop.name for loop in s.loops(name)]
    if not places:
        return None
    plan = ("decompose_padding", (name, rng.choice(places)))
    return plan if rng.random() < 0.3 or _is_legal(s, [plan]) else None


def set_scope(s: Schedule, rng: random.Random, block, loops):
    return "set_scope", (*_held(s, rng, block), rng.choice(("global", "local")))


def storage_align(s: Schedule, rng: random.Random, block, loops):
    factor = rng.choice((2, 4, 16, 5))
    rule = (rng.choice((0, 0, -1, -2, 1)), factor, rng.randrange(factor))
    return "storage_align", (*_held(s, rng, block), *rule)


def _held(s: Schedule, rng: random.Random, block: str) -> tuple[str, str | int]:
    """A block and a buffer that it touches, mostly an internal one, or a number."""
    made = inner(s)
    if not made or rng.random() < 0.1:
        return block, rng.choice((0, 0, 1, "A"))
    block = rng.choice(made)
    return block, rng.choice(sorted(each.name for each in writes(node(s, block))))


def _scope(rng: random.Random) -> str:
    return rng.choice(("global", "global", "local"))


MAKERS = {
    "cache_read": (3, cache_read), "cache_write": (3, cache_write), "stage": (4, stage),
    "blockize": (12, blockize), "tensorize": (16, tensorize),
    "rolling_buffer": (21, rolling_buffer), "reindex": (4, reindex),
    "reindex_cache_read": (4, reindex_cache_read), "reindex_cache_write": (4, reindex_cache_write),
    "transform_layout": (4, transform_layout),
    "transform_block_layout": (7, transform_block_layout), "pad_einsum": (26, pad_einsum),
    "decompose_padding": (18, decompose_padding), "set_scope": (3, set_scope),
    "storage_align": (3, storage_align),
}  # fmt: skip
