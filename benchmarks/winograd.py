"""Winograd's algorithm for convolutions of 3 x 3, NHWC and NCHW, of one image, the weights constant: against the same
kernel without it, and torch's convolution, in turns. The number in a row
is the width of a tile of results.
"""

from __future__ import annotations

import statistics
import time
from functools import partial

import numpy as np

import tensorc as tc
from benchmarks.constants import SECONDS, seconds
from benchmarks.harness import spread
from tensorc import ops, te

LAYERS = ((56, 64), (28, 128), (14, 256), (7, 512))  # of a ResNet: rows of the image, channels

WORKLOADS = {
    f"{size}x{size}x{channels} {layout} {tile}": (size, channels, layout, tile)
    for layout in ("NHWC", "NCHW")
    for size, channels in LAYERS
    for tile in (2, 4)
}


def run(wanted: list[str], threads: int, report, rounds: int = 15) -> list[dict]:
    """A row for each case; `tensorc_ms` is the median over the rounds, "direct" the same without the algorithm."""
    import torch

    torch.set_num_threads(threads)
    rows = []
    for name in wanted:
        size, channels, layout, tile = WORKLOADS[name]
        last = layout == "NHWC"
        x = te.placeholder((1, size, size, channels) if last else (1, channels, size, size), name="X")
        k = te.placeholder((3, 3, channels, channels) if last else (channels, channels, 3, 3), name="K")
        tensors = [x, k, ops.conv2d(x, k, padding=1, layout=layout, name="C")]
        rng = np.random.default_rng(0)
        data, weights = [rng.standard_normal(each.shape).astype(np.float32) for each in (x, k)]
        own = tc.build(tensors, threads=threads, constants={k: weights}, schedules={"C.algorithm": f"winograd{tile}"})
        direct = tc.build(tensors, threads=threads, constants={k: weights})
        image, kernel = torch.from_numpy(data), torch.from_numpy(weights)
        if last:
            image = image.permute(0, 3, 1, 2)
            kernel = kernel.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
        convolve = partial(torch.nn.functional.conv2d, image, kernel, padding=1)
        calls = [partial(own, data), partial(direct, data), convolve]
        clock = time.process_time if threads == 1 else time.perf_counter
        number = max(1, int(SECONDS / min(seconds(clock, call, 3) for call in calls)))
        times = list(zip(*[[seconds(clock, call, number) for call in calls] for _ in range(rounds)]))
        ours, *theirs = [statistics.median(each) * 1e3 for each in times]
        row = {
            "suite": "winograd", "workload": name, "threads": threads, "tensorc_ms": ours, "tensorc_tuned_ms": None,
            "peers": dict(zip(("direct", "torch"), theirs)), "gflops": None, "peak_fraction": None, "gbps": None,
            "bandwidth_fraction": None, "spread": spread(list(times[0])),
        }  # fmt: skip
        rows.append(row)
        report(row)
    return rows
