"""The products of GPT-2 small for one token: a row by a matrix, stored as it is and transposed."""

from __future__ import annotations

from benchmarks.operators.products import matmul
from benchmarks.workload import by_name, shapes_of

WORKLOADS = by_name(
    [
        matmul(m, n, k, False, is_transposed)
        for is_transposed in (False, True)
        for m, n, k in shapes_of("networks", "gpt2_decode", "matmul_mnk")
    ]
)
