"""A recipe of one's own: three levels of tiles for sums of products, whose sizes are left to a search.

Nothing here knows of caches or registers: the recipe only says what may be chosen. `main` schedules a matrix product
by two of the choices; `autotune.tune` finds good ones.
"""

from __future__ import annotations

import numpy as np

import tensorc as tc
from tensorc import te

MOST = 512  # elements of the innermost tile: each is code of its own, or a lane


def is_product(group) -> bool:
    """Whether results are summed up that have an axis along which they are contiguous."""
    main = group.main
    return bool(main.reduce) and len(main.loads) == 2 and main.is_box and main.store.stride(main.spatial[-1].name) == 1


def decide(group, knobs, target, threads) -> dict[str, tuple[int, ...]]:
    """The sizes of the tiles: two for each axis of the result, one for each that is summed over."""
    sizes = {}
    for axis in group.main.axes:
        parts = 3 if axis.kind == "spatial" else 2
        sizes[axis.name] = knobs.split(axis.name, axis.extent, parts, default=(1,) * (parts - 1))
    tile = np.prod([sizes[axis.name][-1] for axis in group.main.spatial])
    if tile > MOST:
        raise tc.ScheduleError(f"a tile of {tile} elements is more than {MOST}")
    return sizes


def apply(s, group, sizes) -> None:
    """Tiles of tiles of tiles: the outermost, the outer sums, those in the caches, the inner sums, the registers."""
    outer, middle, inner, sums, terms = [], [], [], [], []
    for axis, loop in zip(group.main.axes, group.main.loops(s)):
        parts = s.split(loop, factors=(None, *sizes[axis.name]))
        for level, part in zip((outer, middle, inner) if axis.kind == "spatial" else (sums, terms), parts):
            level.append(part)
    s.reorder(*outer, *sums, *middle, *terms, *inner)
    for loop in inner[:-1]:
        s.unroll(loop)
    s.vectorize(inner[-1])
    s.decompose_reduction(group.main.block, sums[0])


tiling = tc.recipe(is_product, decide=decide, name="tiling", register=False)(apply)


def main() -> None:
    a, b = te.placeholder((256, 256), name="A"), te.placeholder((256, 256), name="B")
    k = te.reduce_axis(256, name="k")
    c = te.compute((256, 256), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    with tiling:
        kernel = tc.build([a, b, c], schedules={"C.i": (8, 8), "C.j": (4, 32), "C.k": (64,)})
    x, y = np.random.default_rng(0).standard_normal((2, 256, 256), dtype=np.float32)
    np.testing.assert_allclose(kernel(x, y), x @ y, rtol=1e-4, atol=1e-4)
    print(kernel.schedule.trace.python())


if __name__ == "__main__":
    main()
