"""The thread pool behind `tensorc_parallel_for`, as one LLVM module.

    void tensorc_parallel_for(void (*task)(void *data, int64 begin, int64 end, int64 slot),
                              void *data, int64 extent, int64 threads)

runs the task on ranges that cover 0 .. extent, on at most `threads` threads at a time; `slot` <
threads numbers those that take part. A participant claims a share of what is left by
compare-and-swap, large shares first and single iterations last, so that a thread that the system
holds back delays nothing but its own share.

One word is the whole state of a launch: generation << 32 | free seats << 16 | threads at work. A
worker joins by taking a seat, the caller closes the launch by taking all seats away, and waits for
none but those at work. Workers spin for about half a millisecond, giving way to other processes,
and then sleep on the generation (futex). A launch from within a launch, or beside one, runs on its
own thread alone.

Where GNU OpenMP is in the process (torch brings it), launches go through its pool: two pools that
spin on the same cores cost milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from functools import cache

from tensorc.errors import ArgumentError
from tensorc.runtime import cpu
from tensorc.runtime.threads_code import POOL, SLEEP_FUTEX, SLEEP_POLL
from tensorc.target import available_cores

__all__ = ["default_threads", "parallel_for", "pool_text"]

MOST_THREADS = 1024
_SPINS = 20000  # pauses of a worker before it sleeps
_RTLD_NOLOAD = 4


def default_threads() -> int:
    """How many threads a kernel uses: TENSORC_NUM_THREADS, or the cores this process may use."""
    text = os.environ.get("TENSORC_NUM_THREADS", "").strip()
    if not text:
        return min(available_cores(), MOST_THREADS)
    if not text.isdigit() or int(text) == 0:
        raise ArgumentError(f"TENSORC_NUM_THREADS is {text!r}, a positive number is needed")
    return min(int(text), MOST_THREADS)


def parallel_for() -> int:
    """The address of `tensorc_parallel_for`; the pool looks again at the number of threads and at
    the OpenMP library that this process has."""
    pool = _pool()
    pool.limit.value = default_threads()
    pool.cores.value = available_cores()
    if pool.openmp.value is None and not pool.alone.value:
        pool.openmp.value = _find_openmp()
    return pool.launch


class _Pool:
    """Addresses and variables of the pool's module."""

    def __init__(self):
        names = ("tensorc_parallel_for", "reset", "limit", "cores", "openmp", "alone", "workers")
        library = cpu.helper(
            "threads", lambda: pool_text(platform.machine(), sys.platform == "linux"), names
        )
        self.launch = library["tensorc_parallel_for"]
        self.limit = ctypes.c_int64.from_address(library["limit"])
        self.cores = ctypes.c_int64.from_address(library["cores"])
        self.openmp = ctypes.c_void_p.from_address(library["openmp"])
        self.alone = ctypes.c_int32.from_address(library["alone"])
        self.workers = ctypes.c_int64.from_address(library["workers"])
        self._reset = ctypes.PYFUNCTYPE(None)(library["reset"])
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)


@cache
def _pool() -> _Pool:
    return _Pool()


def _find_openmp() -> int | None:
    """The address of GOMP_parallel in a GNU OpenMP library that is already loaded."""
    if sys.platform != "linux":
        return None
    for name in ("libgomp.so.1", *_bundled_openmp()):
        try:
            library = ctypes.CDLL(name, mode=_RTLD_NOLOAD | os.RTLD_LAZY)
            return ctypes.cast(library.GOMP_parallel, ctypes.c_void_p).value
        except (OSError, AttributeError):
            continue
    return None


def _bundled_openmp() -> list[str]:
    """Paths of loaded libraries that look like a wheel's renamed copy of libgomp."""
    return _mapped("libgomp") if "torch" in sys.modules else []


@cache
def _mapped(name: str) -> list[str]:
    try:
        with open("/proc/self/maps") as maps:
            return sorted({line.split(None, 5)[-1].strip() for line in maps if name in line})
    except OSError:
        return []


def pool_text(machine: str, linux: bool) -> str:
    """The module for processors of a kind, named as `platform.machine` does."""
    pauses = {"x86_64": "pause", "AMD64": "pause", "aarch64": "yield", "arm64": "yield"}
    pause = pauses.get(machine, "")
    futex = {"x86_64": 202, "aarch64": 98, "riscv64": 98, "ppc64le": 221, "s390x": 238}
    number = futex.get(machine) if linux else None
    text = POOL.replace("SPINS", str(_SPINS)).replace("PAUSE", pause)
    text = text.replace("SETMASK", "2" if linux else "3")
    return text + (SLEEP_POLL if number is None else SLEEP_FUTEX.replace("FUTEX", str(number)))
