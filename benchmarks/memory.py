"""What stores past the caches and prefetches bring, against the same kernel without them, in turns.

stream     an array of 64 MB doubled into another, by stores that go past the caches
prefetch   rows of 256 bytes gathered at random from a table of 256 MB, asked for 16 rows ahead
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

import tensorc as tc
from benchmarks.harness import spread
from tensorc import te

ELEMENTS = 16 * 1024 * 1024
TABLE, PICKED, WIDTH = 1024 * 1024, 200_000, 64
LANES, AHEAD = 16, 16

Pair = tuple[tc.Schedule, list[np.ndarray]]


def stream(is_helped: bool) -> Pair:
    A = te.placeholder((ELEMENTS,), name="A")
    s = tc.schedule([A, te.compute((ELEMENTS,), lambda i: A[i] * 2.0, name="C")])
    s.vectorize(s.split("C.i", (None, LANES))[1])
    if is_helped:
        s.stream("C")
    return s, [np.ones(ELEMENTS, np.float32) for _ in range(2)]


def prefetch(is_helped: bool) -> Pair:
    I = te.placeholder((PICKED,), "int64", name="I")
    T = te.placeholder((TABLE, WIDTH), name="T")
    rows = te.compute((PICKED, WIDTH), lambda i, j: T[te.assume(I[i], 0, TABLE), j] + 1.0, name="C")
    s = tc.schedule([I, T, rows])
    s.vectorize("C.j")
    if is_helped:
        s.prefetch("C.i", "T", AHEAD)
    index = np.random.default_rng(0).integers(0, TABLE, PICKED)
    return s, [index, np.ones((TABLE, WIDTH), np.float32), np.empty((PICKED, WIDTH), np.float32)]


WORKLOADS: dict[str, Callable[[bool], Pair]] = {"stream": stream, "prefetch": prefetch}


def run(wanted: list[str], threads: int, report, rounds: int = 11) -> list[dict]:
    """A row for each case; `tensorc_ms` is the median over the rounds, the peer the kernel without the step."""
    rows = []
    for name in wanted:
        helped, arrays = WORKLOADS[name](True)
        plain, _ = WORKLOADS[name](False)
        kernels = [tc.build(s, threads=threads) for s in (helped, plain)]
        times: list[list[float]] = [[], []]
        for _ in range(rounds):
            for kernel, own in zip(kernels, times):
                start = time.perf_counter()
                kernel(*arrays)
                own.append(time.perf_counter() - start)
        row = {
            "suite": "memory", "workload": name, "threads": threads, "tensorc_ms": statistics.median(times[0]) * 1e3,
            "tensorc_tuned_ms": None, "peers": {"without": statistics.median(times[1]) * 1e3}, "gflops": None,
            "peak_fraction": None, "gbps": None, "bandwidth_fraction": None, "spread": spread(times[0]),
        }  # fmt: skip
        rows.append(row)
        report(row)
    return rows
