"""What a register tile and a block of the depth cost: the model behind the contraction's sizes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tensorc.schedule.recipes.access import Axis
from tensorc.target import Target

VECTOR_LOAD = 0.2  # of a cycle that loading a vector of the panel takes from the multiply-adds beside it
BROADCAST = 0.08  # the same for an element of the other operand, in every lane
CROWDING = 0.5  # cycles for each row over WAYS whose elements fall into one set of the level-1 cache
WAYS = 8  # of the level-1 cache
TILE_OVERHEAD = 30  # cycles to enter and leave a tile, besides moving its accumulators in and out
PANEL_SHARE = 0.65  # of the level-2 cache for the packed panel; what streams past it needs little
UNKNOWN_EXTENT = 1024  # what a symbolic extent is taken for


@dataclass(frozen=True, slots=True)
class Product:
    """A product of `rows` x `depth` and `depth` x `columns`, in vectors of `lanes`.

    `is_crowded`: the rows lie a multiple of the level-1 cache's way apart, so that they compete for one set of it.
    `load` is what loading a vector takes, in cycles.
    """

    rows: int
    columns: int
    depth: int
    lanes: int
    is_crowded: bool = False
    load: float = VECTOR_LOAD


@dataclass(frozen=True, slots=True)
class Tile:
    """A register tile of `rows` x `vectors`, and the cycles that the whole product takes by it."""

    rows: int
    vectors: int
    cycles: float


def size(axis: Axis) -> int:
    """The extent, or what stands for one that is symbolic."""
    return UNKNOWN_EXTENT if axis.extent is None else axis.extent


@lru_cache(4096)  # thousands of plans ask for the same ones
def best_tile(product: Product, target: Target) -> Tile:
    """The register tile that the model finds quickest, tails included."""
    room = target.vector_registers - 1  # one holds the broadcast element
    cycles, rows, vectors = min(
        (
            (_cycles(product, r, v, target), r, v)
            for r in range(1, min(product.rows, 14) + 1)
            for v in range(1, min(8, -(-product.columns // product.lanes)) + 1)
            if r * v + v <= room
        ),
        default=(0.0, 1, 1),
    )
    return Tile(rows, vectors, cycles)


def _cycles(product: Product, r: int, v: int, target: Target) -> float:
    """Cycles for the whole product by tiles of r rows and v vectors."""
    full_rows, last_rows = divmod(product.rows, r)
    vectors = -(-product.columns // product.lanes)
    full_panels, last_vectors = divmod(vectors, v)
    total = 0.0
    for height, down in ((r, full_rows), (last_rows, last_rows > 0)):
        for breadth, across in ((v, full_panels), (last_vectors, last_vectors > 0)):
            if height and breadth:
                fma = max(height * breadth / target.fma_per_cycle, target.fma_latency)
                step = fma + product.load * breadth + BROADCAST * height
                step += CROWDING * max(0, height - WAYS) if product.is_crowded else 0.0
                total += down * across * (product.depth * step + TILE_OVERHEAD + 2 * height * breadth)
    return total


def depth_block(axis: Axis, total: int, row_bytes: int, target: Target, is_even: bool = False) -> int:
    """The block of a reduction axis that keeps a panel in its share of the level-2 cache: equal parts of it, of which
    none is shorter where `is_even` and there are few such. `total` is the product of all reduction axes."""
    extent = size(axis)
    rest = total // max(1, extent)
    most = max(-(-64 // max(1, rest)), int(target.l2 * PANEL_SHARE) // (row_bytes * max(1, rest)))
    parts = max(1, -(-extent // most))
    if is_even:
        parts = next((n for n in range(parts, 2 * parts + 1) if extent % n == 0), parts)
    return max(1, -(-extent // parts))
