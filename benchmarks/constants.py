"""What it brings that an input is constant: kernels that were built with `constants=` against such without, in turns.

Of a matrix product m x n x k the right operand is constant, with "T" stored transposed, with "left" the left one; of a
convolution, of one image, the weights are.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np

import tensorc as tc
from benchmarks.harness import spread
from benchmarks.workload import expression
from tensorc import ops, te

SECONDS = 0.02  # of calls in a row, at least

Case = tuple[Callable[[], list[te.Tensor]], int]  # the tensors, and the number of the constant one


def product(m: int, n: int, k: int, is_turned: bool = False) -> Case:
    return expression(lambda a, b: ops.matmul(a, b, False, is_turned), (m, k), (n, k) if is_turned else (k, n)), 1


def turned_left(m: int, n: int, k: int) -> Case:
    return expression(lambda a, b: ops.matmul(a, b, True), (k, m), (k, n)), 0


def convolution(size: int, channels: int) -> Case:
    shapes = (1, size, size, channels), (3, 3, channels, channels)
    return expression(lambda data, weight: ops.conv2d(data, weight, padding=1), *shapes), 1


WORKLOADS: dict[str, Case] = {
    "32x1024x4096": product(32, 1024, 4096),
    "32x1024x4096 T": product(32, 1024, 4096, is_turned=True),
    "8x1024x4096": product(8, 1024, 4096),
    "8x1024x4096 T": product(8, 1024, 4096, is_turned=True),
    "128x3072x768": product(128, 3072, 768),
    "1024x32x4096 left T": turned_left(1024, 32, 4096),
    "7x7x512": convolution(7, 512),
    "56x56x64": convolution(56, 64),
}


def run(wanted: list[str], threads: int, report, rounds: int = 15) -> list[dict]:
    """A row for each case; `tensorc_ms` is the median over the rounds, the peer the kernel that is given all inputs."""
    rows = []
    for name in wanted:
        make, constant = WORKLOADS[name]
        tensors, rng = make(), np.random.default_rng(0)
        arrays = [rng.standard_normal([e.value for e in t.buffer.shape]).astype(np.float32) for t in tensors]
        plain = tc.build(tensors, threads=threads)
        fixed = tc.build(tensors, threads=threads, constants={tensors[constant]: arrays[constant]})
        left = [array for n, array in enumerate(arrays) if n != constant]
        calls = [partial(fixed, *left), partial(plain, *arrays)]
        clock = time.process_time if threads == 1 else time.perf_counter
        number = max(1, int(SECONDS / min(seconds(clock, call, 3) for call in calls)))
        times = [[seconds(clock, call, number) for call in calls] for _ in range(rounds)]
        ours, theirs = zip(*times)
        row = {
            "suite": "constants", "workload": name, "threads": threads, "tensorc_ms": statistics.median(ours) * 1e3,
            "tensorc_tuned_ms": None, "peers": {"without": statistics.median(theirs) * 1e3}, "gflops": None,
            "peak_fraction": None, "gbps": None, "bandwidth_fraction": None, "spread": spread(list(ours)),
        }  # fmt: skip
        rows.append(row)
        report(row)
    return rows


def seconds(clock: Callable[[], float], call: Callable[[], object], number: int) -> float:
    """Of a call, the mean of so many."""
    start = clock()
    for _ in range(number):
        call()
    return max(clock() - start, 1e-9) / number
