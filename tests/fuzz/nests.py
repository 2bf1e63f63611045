"""Random steps on whole nests: parts, versions, neighbours, consumers, partial results, notes."""

from __future__ import annotations

import random
from itertools import pairwise

from tensorc.ir.expr import Load, Var
from tensorc.ir.stmt import Store
from tensorc.ir.walk import all_exprs, uses, walk
from tensorc.schedule import Schedule
from tensorc.schedule.locate import all_blocks, find_block

MOST_BLOCKS = 24  # that copies of nests may lead to


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
    other = _apart(s, rng, loops)
    if not other:
        return None
    depths = [d for d, (a, b) in enumerate(zip(loops, other)) if s.extent(a) == s.extent(b)]
    if rng.random() < 0.1:
        return "merge", ((rng.choice(loops), rng.choice(other)),)
    if not depths:
        return None
    depth = rng.choice(depths)
    return "merge", ((loops[depth], other[depth]),)


def compute_with(s: Schedule, rng: random.Random, block, loops):
    others = [b.name for b in s.blocks() if b.name != block and s.loops(b)]
    if not others:
        return None
    other = rng.choice(others)
    around = {loop.name for loop in s.loops(other)}
    own = [loop for loop in loops if loop not in around]
    alike = [
        mine for mine, its in zip(own, [loop.name for loop in s.loops(other) if loop.name not in loops])
        if s.extent(mine) == s.extent(its)
    ]  # fmt: skip
    if rng.random() < 0.1:
        return "compute_with", (other, block, rng.choice(loops))
    return ("compute_with", (other, block, rng.choice(alike))) if alike else None


def fission(s: Schedule, rng: random.Random, block, loops):
    """After a block in a loop that another one shares with it."""
    pairs = [
        (loop.name, a.name)
        for a, b in pairwise(s.blocks())
        for loop in s.loops(a)
        if loop in s.loops(b)
    ]
    return ("fission", rng.choice(pairs)) if pairs else None


def add_unit_loop(s: Schedule, rng: random.Random, block, loops):
    return "add_unit_loop", (rng.choice((block, *loops)),)


def reorder_block_iters(s: Schedule, rng: random.Random, block, loops):
    count = len(_node(s, block).iters)
    return "reorder_block_iters", (block, tuple(rng.sample(range(count), count)))


def annotate(s: Schedule, rng: random.Random, block, loops):
    place = rng.choice((block, *loops))
    if rng.random() < 0.3:
        return "unannotate", (place, "note")
    return "annotate", (place, "note", rng.choice((1, 2.5, True, "text")))


def rfactor(s: Schedule, rng: random.Random, block, loops):
    reducing = [
        loop.var.name
        for each in all_blocks(s.function)
        for loop in find_block(s.function, each.name).loops
        if any(it.kind == "reduce" and uses(it.binding, (loop.var,)) for it in each.iters)
    ]
    return ("rfactor", (rng.choice(reducing), rng.choice((0, 0, 1, -1, 2)))) if reducing else None


def reverse_compute_at(s: Schedule, rng: random.Random, block, loops):
    """A consumer under a loop of one of its producers."""
    pairs = [
        (b.name, loop.name)
        for b in s.blocks()
        for p in s.producers(b)
        for loop in s.loops(p)
        if loop not in s.loops(b)
    ]
    return ("reverse_compute_at", rng.choice(pairs)) if pairs else None


def reverse_compute_inline(s: Schedule, rng: random.Random, block, loops):
    served = [
        b.name for b in s.blocks()
        if s.producers(b) and all(
            it.kind == "spatial" for each in (b, *s.producers(b)) for it in _node(s, each.name).iters
        )
    ]  # fmt: skip
    if not served and rng.random() < 0.9:
        return None
    return "reverse_compute_inline", (rng.choice(served or [block]),)


def set_scope(s: Schedule, rng: random.Random, block, loops):
    return "set_scope", (block, _buffer(s, rng, block), rng.choice(("global", "local")))


def storage_align(s: Schedule, rng: random.Random, block, loops):
    factor = rng.choice((2, 4, 16, 5))
    rule = (rng.choice((0, 0, -1, -2, 1)), factor, rng.randrange(factor))
    return "storage_align", (block, _buffer(s, rng, block), *rule)


def specialize(s: Schedule, rng: random.Random, block, loops):
    names = [e.name for p in s.function.params for e in p.shape if type(e) is Var]
    if not names or len(s.blocks()) > MOST_BLOCKS // 2:
        return None
    name, number = rng.choice(names), rng.choice((2, 4, 8, 16))
    texts = (f"{name} % {number} == 0", f"{name} >= {number}", f"{name} < {number}")
    return "specialize", (rng.choice(texts),)


MAKERS = (
    (2, loop_partition), (2, merge), (2, compute_with), (2, fission), (1, add_unit_loop),
    (1, reorder_block_iters), (1, annotate), (3, rfactor), (4, reverse_compute_at),
    (2, reverse_compute_inline), (1, set_scope), (1, storage_align), (1, specialize),
)  # fmt: skip


def _buffer(s: Schedule, rng: random.Random, block: str):
    """A buffer that a block touches, mostly an internal one, or a number."""
    node = _node(s, block)
    buffers = {e.buffer for e in all_exprs(node) if type(e) is Load}
    buffers |= {stmt.buffer for stmt in walk(node) if type(stmt) is Store}
    inner = sorted(each.name for each in buffers if each in s.function.allocs)
    return rng.choice(inner) if inner and rng.random() < 0.8 else rng.choice((0, 0, 1, "A"))


def _apart(s: Schedule, rng: random.Random, loops) -> list[str]:
    """The loops of a block that has some of its own."""
    found = [[loop.name for loop in s.loops(b)] for b in s.blocks()]
    found = [names for names in found if names and names[0] not in loops]
    return rng.choice(found) if found else []


def _node(s: Schedule, name: str):
    return next(block for block in all_blocks(s.function) if block.name == name)
