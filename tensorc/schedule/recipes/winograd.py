"""Winograd's algorithm for convolutions of 3 x 3 in float32: fewer multiplications, a larger error.

Of a tile of m x m results, F(m x m, 3 x 3), with the matrices A, B and G of Lavin and Gray, "Fast Algorithms for
Convolutional Neural Networks" (CVPR 2016):

    Y = A^T [ sum over channels of (G g G^T) * (B^T d B) ] A

takes (m + 2)^2 multiplications a channel instead of 9 m^2: 2.25 times fewer for m = 2, 4 times for m = 4. The
convolution becomes four blocks: <block>_weights and <block>_tiles transform the kernel and the tiles of the data,
<block>_products multiplies them as (m + 2)^2 matrices, which is a contraction for the recipes, and <block> gives the
results their places.

It is no rewrite of loops: results differ by rounding, by up to `amplification` times the error bound of the direct
sum. So it is for the knob "algorithm" to ask for it; by default it is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tensorc.arith import affine
from tensorc.dtypes import float32
from tensorc.ir.expr import Add, Buffer, Const, Expr, Load, Mul, Var, is_const
from tensorc.ir.stmt import Block, Store
from tensorc.schedule.recipes.parallel import share, worth_threads
from tensorc.schedule.schedule import Schedule
from tensorc.target import Target

ALGORITHMS = {"direct": 1, "winograd2": 2, "winograd4": 4}  # results of a tile, each way

Matrix = tuple[tuple[Fraction, ...], ...]


def _matrix(text: str) -> Matrix:
    return tuple([tuple(map(Fraction, row.split())) for row in text.split(",")])


# Transposed A, transposed B, and G, for tiles of 2 x 2 and of 4 x 4 results.
RESULTS = {
    2: _matrix("1 1 1 0, 0 1 -1 -1"),
    4: _matrix("1 1 1 1 1 0, 0 1 -1 2 -2 0, 0 1 1 4 4 0, 0 1 -1 8 -8 1"),
}
DATA = {
    2: _matrix("1 0 -1 0, 0 1 1 0, 0 -1 1 0, 0 1 0 -1"),
    4: _matrix("4 0 -5 0 1 0, 0 -4 -4 1 1 0, 0 4 -4 -1 1 0, 0 -2 -1 2 1 0, 0 2 -1 -2 1 0, 0 4 0 -5 0 1"),
}
KERNEL = {
    2: _matrix("1 0 0, 1/2 1/2 1/2, 1/2 -1/2 1/2, 0 0 1"),
    4: _matrix("1/4 0 0, -1/6 -1/6 -1/6, -1/6 1/6 -1/6, 1/24 1/12 1/6, 1/24 -1/12 1/6, 0 0 1"),
}


@dataclass(frozen=True, slots=True)
class Convolution:
    """A sum over 3 x 3 places and channels: the buffers, and which dimension of each is what.

    `out` tells the dimensions of the results n, y, x, co, `data` those of the data n, y, x, ci, and `kernel` those of
    the kernel ky, kx, ci, co.
    """

    block: str
    results: Buffer
    inputs: Buffer
    weights: Buffer
    out: tuple[int, ...]
    data: tuple[int, ...]
    kernel: tuple[int, ...]

    @property
    def is_channels_last(self) -> bool:
        return self.data[3] == 3 and self.out[3] == 3


def recognize(block: Block) -> Convolution | None:
    """The convolution that a block is, if it is one of 3 x 3 and stride 1 in float32, of constant extents."""
    if not isinstance(block.init, Store) or not is_const(block.init.value, 0.0) or not isinstance(block.body, Store):
        return None
    store, value = block.body, block.body.value
    if not isinstance(value, Add) or not isinstance(value.b, Mul) or not is_const(block.predicate, True):
        return None
    factors = [each for each in (value.b.a, value.b.b) if isinstance(each, Load)]
    if value.a != Load(store.buffer, store.indices) or len(factors) != 2:
        return None
    extents = {it.var: it.extent for it in block.iters}
    spatial = {it.var for it in block.iters if it.kind == "spatial"}
    reduce = {it.var for it in block.iters if it.kind == "reduce"}
    if len(spatial) != 4 or len(reduce) != 3 or set(store.indices) != spatial:
        return None
    for data, kernel in (factors, factors[::-1]):
        found = _read(block.name, store, data, kernel, extents, reduce)
        if found is not None:
            return found
    return None


def _read(name: str, store: Store, data: Load, kernel: Load, extents, reduce) -> Convolution | None:
    buffers = (store.buffer, data.buffer, kernel.buffer)
    if any(each.dtype is not float32 or not all(type(e) is Const for e in each.shape) for each in buffers):
        return None
    if len(data.indices) != 4 or len(kernel.indices) != 4 or not all(type(e) is Var for e in kernel.indices):
        return None
    sums = [(number, _taps(each, reduce)) for number, each in enumerate(data.indices)]
    moved = [(number, taps) for number, taps in sums if taps is not None]
    plain = [number for number, taps in sums if taps is None]
    if len(moved) != 2 or not all(type(data.indices[number]) is Var for number in plain):
        return None
    (y_at, (y, ky)), (x_at, (x, kx)) = moved
    inside = [number for number in plain if data.indices[number] in reduce]
    if len(inside) != 1 or {ky, kx, data.indices[inside[0]]} != reduce:
        return None
    ci, (n_at,) = data.indices[inside[0]], [number for number in plain if number not in inside]
    n = data.indices[n_at]
    rest = [each for each in store.indices if each not in (n, y, x)]
    if len(rest) != 1 or set(kernel.indices) != {ky, kx, ci, rest[0]}:
        return None
    if not all(is_const(extents[k], 3) for k in (ky, kx)) or any(extents[v].value < 1 for v in extents):
        return None
    out = tuple([store.indices.index(each) for each in (n, y, x, rest[0])])
    places = tuple([kernel.indices.index(each) for each in (ky, kx, ci, rest[0])])
    return Convolution(name, *buffers, out, (n_at, y_at, x_at, inside[0]), places)


def _taps(index: Expr, reduce: Collection[Var]) -> tuple[Var, Var] | None:
    """The iterators of which an index is the sum, a spatial one and one that is reduced."""
    form = affine(index)
    if form.constant or [factor for _, factor in form.terms] != [1, 1]:
        return None
    atoms = [atom for atom, _ in form.terms]
    mine = [atom for atom in atoms if atom not in reduce]
    taps = [atom for atom in atoms if atom in reduce]
    return (mine[0], taps[0]) if len(mine) == len(taps) == 1 and type(mine[0]) is type(taps[0]) is Var else None


def amplification(m: int) -> Fraction:
    """How many times larger the bound of the rounding error is than that of the direct sum, where all data and all
    weights are as large as the largest."""
    ends = [_sizes(matrix) for matrix in (DATA[m], KERNEL[m])]
    rows = [sum([abs(a) * d * k for a, d, k in zip(row, *ends)]) for row in RESULTS[m]]
    return max(rows) ** 2 / 9


def _sizes(matrix: Matrix) -> list[Fraction]:
    return [sum(map(abs, row), Fraction(0)) for row in matrix]


def substitute(s: Schedule, found: Convolution, m: int, target: Target, threads: int) -> tuple[str, ...]:
    """Put the algorithm for tiles of m x m in the place of a convolution, and schedule its transforms; the blocks that
    are done. The products of matrices are left."""
    s.substitute(found.block, text(found, m), check=False)
    done = (f"{found.block}_weights", f"{found.block}_tiles", found.block)
    for name in done:
        loops = s.loops(name)
        lanes = _lanes(s.extent(loops[-1]) or 1, target)
        work = math.prod([s.extent(loop) or 1 for loop in loops]) * (m + 2) ** 3 * 2 / lanes
        _, lane = s.split(loops[-1], factors=(None, lanes), tail="auto" if found.is_channels_last else "mask")
        s.vectorize(lane)
        if worth_threads(work, threads):
            share(s, loops[:2])
    return done


def _lanes(extent: int, target: Target) -> int:
    """The lanes of a vector, or of the least part of one that is long enough."""
    lanes = target.lanes(float32.bytes)
    while lanes // 2 >= extent:
        lanes //= 2
    return lanes


def text(found: Convolution, m: int) -> str:
    """The convolution by tiles of m x m results, as a function of its buffers."""
    return _Writer(found, m).text()


class _Writer:
    """Writes the function; `t` is the width of a tile of the data."""

    def __init__(self, found: Convolution, m: int) -> None:
        self.found, self.m, self.t = found, m, m + 2
        shape = [_number(e) for e in found.results.shape]
        self.n, self.height, self.width, self.co = [shape[at] for at in found.out]
        sizes = [_number(e) for e in found.inputs.shape]
        self.rows, self.columns, self.ci = [sizes[at] for at in found.data[1:]]
        self.down, self.across = -(-self.height // m), -(-self.width // m)
        self.lines: list[str] = []

    def text(self) -> str:
        block, count, points = self.found.block, self.t**2, self.n * self.down * self.across
        params = [self._declared(self.found.inputs), self._declared(self.found.weights)]
        self._put(0, f"function winograd({', '.join(params)}, out {self._declared(self.found.results)})")
        last = self.found.is_channels_last
        shapes = {"weights": (self.ci, self.co), "tiles": (points, self.ci), "products": (points, self.co)}
        for name, pair in shapes.items():
            self._put(1, f"alloc {block}_{name}: float32[{count}, {', '.join(map(str, pair if last else pair[::-1]))}]")
        self._weights()
        self._tiles()
        self._products(points)
        self._results()
        return "\n".join(self.lines) + "\n"

    def _weights(self) -> None:
        iters = self._ordered({"ci": self.ci}, {"co": self.co})
        at = self._open(f"{self.found.block}_weights", iters)

        def element(a: int, b: int) -> str:
            return self._load(self.found.weights, self.found.kernel, (a, b, "ci", "co"))

        target = f"{self.found.block}_weights[{{}}, {', '.join(iters)}]"
        self._transform(at, KERNEL[self.m], 3, element, lambda i, j: (target.format(i * self.t + j), None))

    def _tiles(self) -> None:
        tile = {"n": self.n, "ty": self.down, "tx": self.across}
        iters = {**tile, "ci": self.ci} if self.found.is_channels_last else {"n": self.n, "ci": self.ci, **tile}
        at = self._open(f"{self.found.block}_tiles", iters)

        def element(a: int, b: int) -> str:
            y, x = self._place("ty", a), self._place("tx", b)
            load = self._load(self.found.inputs, self.found.data, ("n", y, x, "ci"))
            inside = self._inside(((a, y, self.down, self.rows), (b, x, self.across, self.columns)))
            return f"if_then_else({inside}, {load}, float32(0.0))" if inside else load

        point = f"(n * {self.down} + ty) * {self.across} + tx"
        pair = f"{point}, ci" if self.found.is_channels_last else f"ci, {point}"
        target = f"{self.found.block}_tiles[{{}}, {pair}]"
        self._transform(at, DATA[self.m], self.t, element, lambda i, j: (target.format(i * self.t + j), None))

    def _products(self, points: int) -> None:
        block = self.found.block
        iters = {"e": self.t**2, **self._ordered({"p": points}, {"co": self.co})}
        at = self._open(f"{block}_products", iters, {"ci": self.ci})
        result = f"{block}_products[{', '.join(iters)}]"
        tile, weight = ("p, ci", "ci, co") if self.found.is_channels_last else ("ci, p", "co, ci")
        self._put(at, "init")
        self._put(at + 1, f"{result} = float32(0.0)")
        self._put(at, f"{result} = {result} + {block}_tiles[e, {tile}] * {block}_weights[e, {weight}]")

    def _results(self) -> None:
        tile = {"n": self.n, "ty": self.down, "tx": self.across}
        iters = {**tile, "co": self.co} if self.found.is_channels_last else {"n": self.n, "co": self.co, **tile}
        at = self._open(self.found.block, iters)
        point = f"(n * {self.down} + ty) * {self.across} + tx"
        pair = f"{point}, co" if self.found.is_channels_last else f"co, {point}"

        def element(a: int, b: int) -> str:
            return f"{self.found.block}_products[{a * self.t + b}, {pair}]"

        def place(i: int, j: int) -> tuple[str, str | None]:
            y, x = self._place("ty", i), self._place("tx", j)
            inside = self._inside(((i, y, self.down, self.height), (j, x, self.across, self.width)))
            return self._load(self.found.results, self.found.out, ("n", y, x, "co")), inside

        self._transform(at, RESULTS[self.m], self.t, element, place)

    def _transform(
        self,
        at: int,
        matrix: Matrix,
        width: int,
        element: Callable[[int, int], str],
        place: Callable[[int, int], tuple[str, str | None]],
    ) -> None:
        """Statements that store `matrix` x elements x transposed `matrix`, of `width` x `width` elements."""
        for column in range(width):
            for i, row in enumerate(matrix):
                value = _combined(row, [element(a, column) for a in range(width)])
                self._put(at, f"let v{i}_{column}: float32 = {value}")
                at += 1
        for i in range(len(matrix)):
            for j, row in enumerate(matrix):
                where, inside = place(i, j)
                if inside is not None:
                    self._put(at, f"if {inside}")
                value = _combined(row, [f"v{i}_{column}" for column in range(width)])
                self._put(at + (inside is not None), f"{where} = {value}")

    def _open(self, block: str, spatial: dict[str, int], reduce: dict[str, int] | None = None) -> int:
        """The head of a block in loops of its own; how deep its body is."""
        extents = spatial | (reduce or {})
        for depth, (name, extent) in enumerate(extents.items()):
            self._put(1 + depth, f"for {block}.{name} in 0 .. {extent}")
        at = 1 + len(extents)
        self._put(at, f"block {block}")
        for name, extent in extents.items():
            self._put(at + 1, f"{'spatial' if name in spatial else 'reduce'} {name}: {extent} = {block}.{name}")
        return at + 1

    def _ordered(self, first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
        return {**first, **second} if self.found.is_channels_last else {**second, **first}

    def _place(self, tile: str, offset: int) -> str:
        return f"{tile} * {self.m} + {offset}"

    def _inside(self, places: Sequence[tuple[int, str, int, int]]) -> str | None:
        """Where elements, `offset` into tiles of which there are `count`, lie in a buffer; None where they all do."""
        checks = [f"{each} < {size}" for offset, each, count, size in places if (count - 1) * self.m + offset >= size]
        return " and ".join(checks) or None

    def _load(self, buffer: Buffer, dims: Sequence[int], indices: Sequence[str | int]) -> str:
        placed = sorted(zip(dims, indices))
        return f"{buffer.name}[{', '.join([str(each) for _, each in placed])}]"

    def _declared(self, buffer: Buffer) -> str:
        return f"{buffer.name}: float32[{', '.join([str(_number(e)) for e in buffer.shape])}]"

    def _put(self, depth: int, line: str) -> None:
        self.lines.append("  " * depth + line)


def _number(extent: Expr) -> int:
    assert isinstance(extent, Const)  # `recognize` has seen to it
    return int(extent.value)


def _combined(row: Sequence[Fraction], terms: Sequence[str]) -> str:
    """The sum of multiples of terms, those of even and of odd number apart: rows of the matrices come in pairs that
    differ in the sign of the odd ones, so that these sums are the same."""
    parts: list[tuple[bool, str]] = []
    for first in (0, 1):
        own = [(factor, term) for factor, term in zip(row[first::2], terms[first::2]) if factor]
        if own:
            sign = own[0][0] < 0
            told = [(factor * (-1 if sign else 1), term) for factor, term in own]
            parts.append((sign, _sum(told)))
    if len(parts) == 2 and parts[0][0] and not parts[1][0]:
        parts.reverse()
    (sign, value), *rest = parts
    value = f"-({value})" if sign else value
    return value if not rest else f"({value}) {'-' if rest[0][0] else '+'} ({rest[0][1]})"


def _sum(terms: Sequence[tuple[Fraction, str]]) -> str:
    made = ""
    for factor, term in terms:
        size = abs(factor)
        value = term if size == 1 else f"float32({np.float32(float(size))}) * {term}"
        made = value if not made else f"{made} {'-' if factor < 0 else '+'} {value}"
    return made
