"""Arguments for a function: inputs whose sums are exact, outputs that tell what was written and what beside them."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Mapping, Sequence

import numpy as np

from tensorc.errors import TuningError
from tensorc.ir.expr import Buffer, Cast, Expr, Load, Var
from tensorc.ir.function import Function
from tensorc.ir.interpreter import evaluate
from tensorc.ir.stmt import Block, For, Store
from tensorc.ir.walk import exprs, variables, walk, walk_expr

PAGE = mmap.PAGESIZE
HUGE = 4 << 20  # bytes from which on NumPy asks for huge pages
POISON = 0xFF  # in all bytes: no number for floats, -1 or the greatest for integers
GUARD = 0xA5
MOST = 2  # the magnitude of inputs: sums of a million products are exact in float32
_READ = 1
_libc = ctypes.CDLL(None, use_errno=True)


def variables_of(function: Function) -> tuple[Var, ...]:
    """Symbolic extents and strides in order of appearance, then the other scalar parameters."""
    extents = [e for buffer in function.params for e in (*buffer.shape, *(buffer.strides or ()))]
    return tuple(dict.fromkeys([*[e for e in extents if type(e) is Var], *function.scalars]))


def values_of(function: Function, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The values of a function's variables, in their order. Raises TuningError where one is missing."""
    names = [var.name for var in variables_of(function)]
    missing = [name for name in names if name not in sizes]
    if missing:
        raise TuningError(f"sizes: {', '.join(missing)} of {function.name} must be given a value to measure with")
    return tuple([int(sizes[name]) for name in names])


class Guarded:
    """An array between bytes that hold a pattern; it begins at a page."""

    def __init__(self, shape: Sequence[int], strides: Sequence[int] | None, dtype: np.dtype) -> None:
        length = 1 + sum([(n - 1) * s for n, s in zip(shape, strides)]) if strides else int(np.prod(shape, dtype=int))
        self.size = max(0, length) * dtype.itemsize
        pages = -(-self.size // PAGE)
        self._memory = mmap.mmap(-1, (pages + 2) * PAGE)
        if self.size >= HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
            self._memory.madvise(mmap.MADV_HUGEPAGE)
        self._bytes = np.frombuffer(self._memory, np.uint8)
        self._bytes[:] = GUARD
        self.content = self._bytes[PAGE : PAGE + self.size]
        steps = [s * dtype.itemsize for s in strides] if strides else None
        self.array: np.ndarray = np.ndarray(tuple(shape), dtype, self._memory, PAGE, steps)

    def poison(self) -> None:
        self.content[:] = POISON

    def make_read_only(self) -> None:
        """From now on a write to the array ends the process."""
        address = ctypes.c_void_p(self._bytes.ctypes.data + PAGE)
        pages = -(-self.size // PAGE)
        if pages and _libc.mprotect(address, ctypes.c_size_t(pages * PAGE), _READ):
            raise OSError(ctypes.get_errno(), "mprotect")

    @property
    def stray(self) -> int | None:
        """The place of a byte beside the array that was written to, counted from its beginning; None: there is none."""
        before, after = self._bytes[:PAGE], self._bytes[PAGE + self.size :]
        for start, part in ((-PAGE, before), (self.size, after)):
            changed = np.flatnonzero(part != GUARD)
            if changed.size:
                return start + int(changed[0])
        return None


class Arguments:
    """Arrays for the parameters of a function whose variables have `values`; the same for the same seed.

    With `plain`, inputs that may serve as indices are 0; with `positive`, no input is 0 or less.
    """

    def __init__(
        self, function: Function, values: Sequence[int], seed: int, plain: bool = False, positive: bool = False
    ) -> None:
        self.function = function
        self.values = dict(zip(variables_of(function), values, strict=True))
        rng = np.random.default_rng(seed)
        ranges = _index_ranges(function, self.values)
        self._guarded: list[Guarded] = []
        for buffer in function.params:
            shape = self._numbers(buffer.shape)
            strides = None if buffer.strides is None else self._numbers(buffer.strides)
            guarded = Guarded(shape, strides, buffer.dtype.numpy)
            if buffer not in function.outputs:
                most = 1 if plain and buffer in ranges else ranges.get(buffer)
                guarded.array[...] = _numbers(shape, buffer.dtype.numpy, rng, most, positive)
                guarded.make_read_only()
            self._guarded.append(guarded)
        self._outputs = [k for k, buffer in enumerate(function.params) if buffer in function.outputs]

    @property
    def arrays(self) -> list[np.ndarray]:
        return [each.array for each in self._guarded]

    @property
    def outputs(self) -> list[np.ndarray]:
        return [self._guarded[k].array for k in self._outputs]

    @property
    def bytes(self) -> int:
        return sum([each.size for each in self._guarded])

    def poison(self) -> None:
        for k in self._outputs:
            self._guarded[k].poison()

    def stray(self, names: Sequence[str]) -> str:
        """What was written beside an output, of these names, in words, or nothing."""
        for name, k in zip(names, self._outputs, strict=True):
            place = self._guarded[k].stray
            if place is not None:
                where = f"{-place} bytes before its beginning" if place < 0 else f"byte {place}"
                return f"it wrote outside of output {name}, which has {self._guarded[k].size} bytes, at {where}"
        return ""

    def _numbers(self, extents: Sequence[Expr]) -> tuple[int, ...]:
        return tuple([int(evaluate(extent, self.values)) for extent in extents])


def _numbers(shape: Sequence[int], dtype: np.dtype, rng: np.random.Generator, most: int | None, positive: bool):
    if most is not None:
        return rng.integers(0, max(1, most), shape)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape)
    if positive:
        return rng.integers(1, 2 * MOST + 1, shape)
    if dtype.kind == "u":
        return rng.integers(0, 2 * MOST + 1, shape)
    return rng.integers(-MOST, MOST + 1, shape)


def _index_ranges(function: Function, values: Mapping[Var, int]) -> dict[Buffer, int]:
    """The parameters whose elements help to find others, or tell how many there are, and below what those must be: 1
    where an element is not an index as it stands."""
    found: dict[Buffer, int] = {}

    def note(buffer: Buffer, most: int) -> None:
        found[buffer] = min(found.get(buffer, most), most)

    for stmt in walk(function.body):
        loads = [each for e in exprs(stmt) for each in walk_expr(e) if isinstance(each, Load)]
        accesses: list[Load | Store] = [*loads, *([stmt] if isinstance(stmt, Store) else [])]
        for access in accesses:
            for index, extent in zip(access.indices, access.buffer.shape):
                inner = index.value if type(index) is Cast else index
                if type(inner) is Load and variables(extent) <= values.keys():
                    note(inner.buffer, int(evaluate(extent, values)))
                    continue
                for each in walk_expr(inner):
                    if type(each) is Load:
                        note(each.buffer, 1)
        if type(stmt) in (For, Block):
            for each in loads:
                note(each.buffer, 1)
    return found
