"""Random steps on the loops of one nest."""

from __future__ import annotations

import random

from tensorc.ir.stmt import THREAD_AXES, For
from tensorc.ir.walk import uses
from tensorc.schedule import Schedule
from tensorc.schedule.locate import all_blocks, all_loops, find_block
from tests.fuzz.looks import inner, is_spatial, loops_of_kind, node, reads

TAILS = ("auto", "guard", "mask", "shift", "shift", "cut")
MOST_COPIES = 32  # that unrolled loops make of a body
KINDS = ("vectorize", "parallel", "unroll", "bind")


def split(s: Schedule, rng: random.Random, block, loops):
    loop = rng.choice(loops)
    extent = s.extent(loop)
    small = rng.choice((1, 2, 3, 4, 7, 8, 16, 32))
    kinds = [(None, small), (None, small), (small, None), (None, rng.choice((2, 3, 5)), small)]
    if extent:
        kinds.append((-(-extent // small), small))
        kinds.append((2, -(-extent // (2 * small)), small))
    return "split", (loop, rng.choice(kinds), rng.choice(TAILS))


def reorder(s: Schedule, rng: random.Random, block, loops):
    if len(loops) < 2:
        return None
    if rng.random() < 0.8:
        loops = _chain(s, rng.choice(loops))
        if len(loops) < 2:
            return None
    return "reorder", (tuple(rng.sample(loops, rng.randint(2, len(loops)))),)


def fuse(s: Schedule, rng: random.Random, block, loops):
    if rng.random() < 0.8:
        loops = _chain(s, rng.choice(loops))
    if len(loops) < 2:
        return None
    first = rng.randrange(len(loops) - 1)
    return "fuse", (tuple(loops[first : first + rng.choice((2, 2, 3))]),)


def _chain(s: Schedule, name: str) -> list[str]:
    """A loop and those below it, each the only child of the one above."""
    node = next(loop for loop in all_loops(s.function) if loop.var.name == name)
    names = [name]
    while type(node.body) is For:
        node = node.body
        names.append(node.var.name)
    return names


def unroll(s: Schedule, rng: random.Random, block, loops):
    copies = 1
    for loop in loops_of_kind(s, "unrolled"):
        copies *= s.extent(loop) or 1
    fitting = [loop for loop in loops if copies * (s.extent(loop) or 1000) <= MOST_COPIES]
    return ("unroll", (rng.choice(fitting),)) if fitting else None


def vectorize(s: Schedule, rng: random.Random, block, loops):
    fitting = [loop for loop in loops if (s.extent(loop) or 1000) <= 65]
    if not fitting:
        return None
    return "vectorize", (rng.choice((fitting[-1], rng.choice(fitting))),)


def parallel(s: Schedule, rng: random.Random, block, loops):
    return "parallel", (rng.choice((loops[0], rng.choice(loops))),)


def bind(s: Schedule, rng: random.Random, block, loops):
    return "bind", (rng.choice((loops[0], rng.choice(loops))), rng.choice(THREAD_AXES))


def add_unit_loop(s: Schedule, rng: random.Random, block, loops):
    return "add_unit_loop", (rng.choice((block, *loops)),)


def annotate(s: Schedule, rng: random.Random, block, loops):
    place = rng.choice((block, *loops))
    return "annotate", (place, "note", rng.choice((1, 2.5, True, "text")))


def unannotate(s: Schedule, rng: random.Random, block, loops):
    noted = [b.name for b in all_blocks(s.function) if "note" in dict(b.annotations)]
    noted += [x.var.name for x in all_loops(s.function) if "note" in dict(x.annotations)]
    if noted:
        return "unannotate", (rng.choice(noted), "note")
    place = rng.choice((block, *loops))
    return [("annotate", (place, "note", 1)), ("unannotate", (place, "note"))]


def decompose_reduction(s: Schedule, rng: random.Random, block, loops):
    started = [b.name for b in all_blocks(s.function) if b.init is not None]
    started = [name for name in started if s.loops(name)]
    if rng.random() < 0.1:
        return "decompose_reduction", (block, rng.choice(loops))
    if not started:
        return None
    name = rng.choice(started)
    return "decompose_reduction", (name, rng.choice(s.loops(name)).name)


def rfactor(s: Schedule, rng: random.Random, block, loops):
    reducing = [
        loop.var.name
        for each in all_blocks(s.function)
        for loop in find_block(s.function, each.name).loops
        if any(it.kind == "reduce" and uses(it.binding, (loop.var,)) for it in each.iters)
    ]
    return ("rfactor", (rng.choice(reducing), rng.choice((0, 0, 1, -1, 2)))) if reducing else None


def compute_at(s: Schedule, rng: random.Random, block, loops):
    """A producer under a loop of one of its consumers; now and then anything anywhere."""
    if rng.random() < 0.1:
        other = rng.choice(s.blocks()).name
        places = [loop.name for loop in s.loops(other)]
        return ("compute_at", (block, rng.choice(places))) if places and other != block else None
    pairs = [
        (name, loop.name)
        for name in inner(s)
        for consumer in s.consumers(name)
        for loop in s.loops(consumer)
        if loop not in s.loops(name)
    ]
    return ("compute_at", rng.choice(pairs)) if pairs else None


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


def compute_inline(s: Schedule, rng: random.Random, block, loops):
    fitting = [name for name in inner(s) if is_spatial(node(s, name))]
    if rng.random() < 0.1:
        return "compute_inline", (block,)
    return ("compute_inline", (rng.choice(fitting),)) if fitting else None


def prefetch(s: Schedule, rng: random.Random, block, loops):
    loop = rng.choice(loops)
    names = {each.name for b in s.child_blocks(loop) for each in reads(node(s, b.name))}
    offset = rng.choice((1, 1, 2, 5, 0))
    return ("prefetch", (loop, rng.choice(sorted(names)), offset)) if names else None


def stream(s: Schedule, rng: random.Random, block, loops):
    fitting = [b.name for b in all_blocks(s.function) if is_spatial(b)]
    if rng.random() < 0.1:
        return "stream", (block,)
    return ("stream", (rng.choice(fitting),)) if fitting else None


MAKERS = {
    "split": (12, split), "reorder": (5, reorder), "fuse": (5, fuse), "unroll": (4, unroll),
    "vectorize": (6, vectorize), "parallel": (5, parallel), "bind": (6, bind), "add_unit_loop": (2, add_unit_loop),
    "annotate": (2, annotate), "unannotate": (2, unannotate),
    "decompose_reduction": (6, decompose_reduction), "rfactor": (6, rfactor),
    "compute_at": (6, compute_at), "reverse_compute_at": (5, reverse_compute_at),
    "compute_inline": (4, compute_inline), "prefetch": (4, prefetch), "stream": (3, stream),
}  # fmt: skip
