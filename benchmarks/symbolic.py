"""Kernels that serve every size beside those made for one.

The peer "static" is the kernel of constant extents; for elementwise kernels, "next" is the same symbolic kernel at the
next size, a multiple of the vectors (1024 for 1023). `matmul M` leaves the number of rows open, `matmul MNK` all three.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.harness import SECONDS, spread
from tensorc import te


def matmul(m, n, k):
    a = te.placeholder((m, k), "float32", name="A")
    b = te.placeholder((k, n), "float32", name="B")
    r = te.reduce_axis(k, name="k")
    return [a, b, te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")]


def scale(n):
    a = te.placeholder((n,), "float32", name="A")
    return [a, te.compute((n,), lambda i: a[i] * 2 + 1, name="B")]


def exponential(n):
    a = te.placeholder((n,), "float32", name="A")
    return [a, te.compute((n,), lambda i: te.exp(a[i]), name="B")]


@dataclass(frozen=True)
class Case:
    """A definition over sizes, of which those at `open` are symbolic; `following` is another size to compare with."""

    define: Callable
    sizes: tuple[int, ...]
    open: tuple[int, ...]
    following: tuple[int, ...] | None = None


def _matmuls() -> dict[str, Case]:
    found = {}
    for n in (512, 1000):
        found[f"matmul MNK {n}"] = Case(matmul, (n, n, n), (0, 1, 2))
        found[f"matmul M {n}"] = Case(matmul, (n, n, n), (0,))
    for m in (1, 17, 100):
        found[f"matmul M {m}x512x512"] = Case(matmul, (m, 512, 512), (0,))
    return found


WORKLOADS = {
    **_matmuls(),
    **{f"scale {n - 1}": Case(scale, (n - 1,), (0,), (n,)) for n in (1 << 10, 1 << 16)},
    **{f"exp {n - 1}": Case(exponential, (n - 1,), (0,), (n,)) for n in (1 << 10, 1 << 16)},
}


def run(wanted: list[str], threads: int, report, rounds: int = 11) -> list[dict]:
    """A row for each case, the kernels taking turns; each time is the median over the rounds."""
    rows = []
    for name in wanted:
        rows.append(_row(name, WORKLOADS[name], threads, rounds))
        report(rows[-1])
    return rows


def _row(name: str, case: Case, threads: int, rounds: int) -> dict:
    import tensorc as tc
    from tensorc.runtime import timing

    sizes = [te.var(f"n{axis}") if axis in case.open else size for axis, size in enumerate(case.sizes)]
    symbolic = tc.build(case.define(*sizes), threads=threads)
    static = tc.build(case.define(*case.sizes), threads=threads)
    arrays = _arrays(static)
    calls = {"tensorc": lambda: symbolic(*arrays), "static": lambda: static(*arrays)}
    if case.following is not None:
        longer = _arrays(tc.build(case.define(*case.following), threads=threads))
        calls["next"] = lambda: symbolic(*longer)
    samples: dict[str, list[float]] = {peer: [] for peer in calls}
    for turn in range(rounds):
        order = list(calls)[turn % len(calls) :] + list(calls)[: turn % len(calls)]
        for peer in order:
            samples[peer].append(_seconds(calls[peer]))
    medians = {peer: statistics.median(times) for peer, times in samples.items()}
    flops, size = symbolic.work(*arrays)
    seconds = medians.pop("tensorc")
    return {
        "suite": "symbolic", "workload": name, "threads": threads,
        "tensorc_ms": seconds * 1e3, "tensorc_tuned_ms": None,
        "peers": {peer: time * 1e3 for peer, time in medians.items()},
        "gflops": flops / seconds * 1e-9, "peak_fraction": flops / seconds / timing.peak(threads),
        "gbps": size / seconds * 1e-9, "bandwidth_fraction": size / seconds / timing.bandwidth(threads),
        "spread": spread(samples["tensorc"]),
    }  # fmt: skip


def _arrays(kernel) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(param.shape).astype(np.float32) for param in kernel.artifact.params]


def _seconds(call: Callable) -> float:
    """Of one call: the median over batches that each take long enough to be timed."""
    clock = time.perf_counter
    start = clock()
    call()
    number = max(1, int(50e-6 / max(clock() - start, 1e-9)))
    times = []
    end = clock() + SECONDS / 2
    while len(times) < 3 or clock() < end:
        start = clock()
        for _ in range(number):
            call()
        times.append((clock() - start) / number)
    return statistics.median(times)
