"""Matrix products in float32: squares of even and odd sizes, tall and wide ones, and all transpositions."""

from __future__ import annotations

from benchmarks.operators.products import matmul
from benchmarks.workload import by_name

SQUARES = (128, 256, 512, 1024, 2048, 4096, 127, 255, 511, 1000, 1023)
TALL_AND_WIDE = (
    (4096, 64, 512), (4096, 256, 64), (2048, 2048, 64), (64, 4096, 512), (128, 3072, 768), (32, 1024, 4096),
)  # fmt: skip

WORKLOADS = by_name(
    [
        *[matmul(n, n, n) for n in SQUARES],
        *[matmul(*size) for size in TALL_AND_WIDE],
        *[matmul(n, n, n, a, b) for n in (512, 1000, 1024) for a, b in ((False, True), (True, False), (True, True))],
    ]
)
