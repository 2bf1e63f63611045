"""Random steps on whole nests: parts, versions, neighbours, other algorithms."""

from __future__ import annotations

import random
from itertools import pairwise

from tensorc.ir.expr import Load, Var
from tensorc.ir.function import Function
from tensorc.ir.printer import show
from tensorc.ir.stmt import For
from tensorc.ir.walk import all_exprs
from tensorc.schedule import Schedule
from tensorc.schedule.locate import all_blocks, blocks_below, find_block
from tensorc.schedule.regions import own_buffers
from tests.fuzz.looks import is_spatial, node, reads, writes

MOST_BLOCKS = 16  # that copies of nests may lead to


def loop_partition(s: Schedule, rng: random.Random, block, loops):
    if len(s.blocks()) > MOST_BLOCKS // 2:
        return None
    loop = rng.choice(loops)
    extent = s.extent(loop) or 8
    first = rng.randint(1, max(1, extent - 1))
    left = max(1, extent - first)
    kinds = [(first,), (first, None), (None, first), (first, None, max(1, left // 2)), (first, left)]
    return "loop_partition", (loop, rng.choice(kinds))


def merge(s: Schedule, rng: random.Random, block, loops):
    pairs = _neighbours(s)
    if rng.random() < 0.1:
        others = [loop.name for loop in s.loops(rng.choice(s.blocks()))]
        return "merge", ((rng.choice(loops), rng.choice(others or loops)),)
    return ("merge", (rng.choice(pairs)[:2],)) if pairs else None


def compute_with(s: Schedule, rng: random.Random, block, loops):
    if rng.random() < 0.1:
        return "compute_with", (rng.choice(s.blocks()).name, block, rng.choice(loops))
    pairs = _neighbours(s, of_one_extent=False)
    if not pairs:
        return None
    loop, _, first, second = rng.choice(pairs)
    return "compute_with", (second, first, loop)


def _neighbours(s: Schedule, of_one_extent: bool = True) -> list[tuple[str, str, str, str]]:
    """Loops that could be one, of blocks side by side, with the blocks: where the nests part, and
    further in, perhaps as far as the extents are the same."""
    found = []
    blocks = s.blocks()
    for a, b in [*pairwise(blocks), *zip(blocks, blocks[2:])]:
        mine, its = s.loops(a), s.loops(b)
        depth = next((d for d, (x, y) in enumerate(zip(mine, its)) if x != y), None)
        if depth is None:
            continue
        for x, y in zip(mine[depth:], its[depth:]):
            if of_one_extent and s.extent(x) != s.extent(y):
                break
            found.append((x.name, y.name, a.name, b.name))
            found.append((y.name, x.name, b.name, a.name))
    return found


def fission(s: Schedule, rng: random.Random, block, loops):
    """After a block in a loop that another one shares with it."""
    pairs = [
        (loop.name, a.name)
        for a, b in pairwise(s.blocks())
        for loop in s.loops(a)
        if loop in s.loops(b)
    ]
    return ("fission", rng.choice(pairs)) if pairs else None


def reorder_block_iters(s: Schedule, rng: random.Random, block, loops):
    count = len(node(s, block).iters)
    return "reorder_block_iters", (block, tuple(rng.sample(range(count), count)))


def reverse_compute_inline(s: Schedule, rng: random.Random, block, loops):
    """A block that alone reads what another one makes, at one place."""
    if rng.random() < 0.05:
        return "reverse_compute_inline", (block,)
    fitting = []
    blocks = all_blocks(s.function)
    for buffer in s.function.allocs:
        makers = [b for b in blocks if buffer in writes(b)]
        users = [b for b in blocks if buffer in reads(b)]
        if len(makers) == len(users) == 1 and all(map(is_spatial, (*makers, *users))):
            places = {e.indices for e in all_exprs(users[0]) if type(e) is Load and e.buffer is buffer}
            if len(places) == 1:
                fitting.append(users[0].name)
    return ("reverse_compute_inline", (rng.choice(fitting),)) if fitting else None


def specialize(s: Schedule, rng: random.Random, block, loops):
    names = [e.name for p in s.function.params for e in p.shape if type(e) is Var]
    if not names or len(s.blocks()) > MOST_BLOCKS // 2:
        return None
    name, number = rng.choice(names), rng.choice((2, 4, 8, 16))
    texts = (
        f"{name} % {number} == 0", f"{name} >= {number}", f"{name} < {number}", f"{name} == {number}",
    )  # fmt: skip
    return "specialize", (rng.choice(texts),)


def substitute(s: Schedule, rng: random.Random, block, loops):
    """The nest of a block by another schedule of itself."""
    place = find_block(s.function, block)
    top = next(stmt for stmt in place.path if type(stmt) is For)
    below = blocks_below(top)
    written = {buffer for b in below for buffer in writes(b)}
    read = {buffer for b in below for buffer in reads(b)} - written
    read |= {e.buffer for e in all_exprs(top) if type(e) is Load} - written - own_buffers(top)  # ranges may be data
    sizes = {e for p in s.function.params for e in p.shape if type(e) is Var}
    if s.function.scalars or sizes & {e for e in all_exprs(top) if type(e) is Var}:
        return None
    if any(type(e) is Var for b in written | read for e in b.shape):
        return None
    inputs, outputs = [sorted(group, key=lambda b: b.name) for group in (read, written)]
    nest = Function("other", (*inputs, *outputs), tuple(outputs), (), (), top)
    trial = Schedule(nest)
    names = [loop.name for loop in trial.loops(block)]
    trial.split(names[rng.randrange(len(names))], (None, rng.choice((2, 3))))
    return "substitute", (block, show(trial.function), rng.random() < 0.7)


MAKERS = {
    "loop_partition": (3, loop_partition), "merge": (8, merge), "compute_with": (8, compute_with),
    "fission": (7, fission), "reorder_block_iters": (2, reorder_block_iters),
    "reverse_compute_inline": (14, reverse_compute_inline), "specialize": (5, specialize),
    "substitute": (3, substitute),
}  # fmt: skip
