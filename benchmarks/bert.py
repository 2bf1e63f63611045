"""The layers of BERT-base, at sequence 128 and batch 1, attention in one."""

from __future__ import annotations

from benchmarks.operators import products, rows
from benchmarks.workload import by_name, shapes_of

SHAPES = shapes_of("networks", "bert_base")

WORKLOADS = by_name(
    [
        *[products.matmul(m, n, k) for m, n, k in SHAPES["matmul_mnk"]],
        *[products.matmul(m, n, k, False, True) for m, n, k in SHAPES["matmul_mnk"]],
        *[products.batch_matmul(*shape) for shape in SHAPES["batched_matmul_bmnk"]],
        *[rows.softmax(f"softmax {m}x{n}", (m, n)) for m, n in SHAPES["softmax"]],
        *[rows.layer_norm(f"layer_norm {m}x{n}", (m, n)) for m, n in SHAPES["layer_norm"]],
        *[rows.gelu(f"gelu {m}x{n}", (m, n)) for m, n in SHAPES["gelu"]],
        products.attention(1, 12, 128, 64, False, "attention"),
        products.attention(1, 12, 128, 64, True, "attention causal"),
    ]
)
