"""Arrays at the edge of memory that may not be touched."""

from __future__ import annotations

import ctypes
import mmap
import random

import numpy as np

PAGE = mmap.PAGESIZE
FILL = 0xA5
_NONE, _READ = 0, 1
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class GuardedArray:
    """An array with a page behind it (or before it) that ends the process when it is touched.

    The bytes around it on its own pages hold a pattern; `is_intact` tells whether they still do.
    Where it ends at its guard, the array starts where it happens to; where it starts behind one,
    it is up to 15 elements away from the edge.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, rng: random.Random):
        count = int(np.prod(shape))
        size = count * dtype.itemsize
        gap = rng.choice((0, 0, 1, 3, 15)) * dtype.itemsize
        pages = max(1, -(-(size + gap) // PAGE))
        self.memory = mmap.mmap(-1, (pages + 2) * PAGE)
        self.bytes = np.frombuffer(self.memory, np.uint8)[PAGE : (pages + 1) * PAGE]
        self.bytes[:] = FILL
        self.start = gap if rng.random() < 0.3 else pages * PAGE - size
        self.size = size
        flat = np.frombuffer(self.memory, dtype, count, PAGE + self.start)
        self.array = flat.reshape(shape)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.pages = pages
        self._protect(self.address, PAGE, _NONE)
        self._protect(self.address + (pages + 1) * PAGE, PAGE, _NONE)

    def make_read_only(self) -> None:
        """A write to the array ends the process from now on."""
        self._protect(self.address + PAGE, self.pages * PAGE, _READ)

    def is_intact(self) -> bool:
        """Whether nothing was written beside the array."""
        before, after = self.bytes[: self.start], self.bytes[self.start + self.size :]
        return bool((before == FILL).all() and (after == FILL).all())

    def _protect(self, address: int, size: int, access: int) -> None:
        if _libc.mprotect(address, size, access):
            raise OSError(ctypes.get_errno(), "mprotect")
