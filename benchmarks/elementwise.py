"""What memory limits, over matrices: chains of functions of each element, softmax, norms, sums along either axis."""

from __future__ import annotations

from benchmarks.operators import rows
from benchmarks.workload import by_name, shapes_of

CHAINS = {
    "exp": lambda name, shape: rows.unary(name, "exp", shape),
    "tanh": lambda name, shape: rows.unary(name, "tanh", shape),
    "gelu": rows.gelu,
    "bias gelu residual": rows.bias_gelu_residual,
    "softmax": rows.softmax,
    "layer_norm": rows.layer_norm,
    "rms_norm": rows.rms_norm,
    "sum of rows": lambda name, shape: rows.total(name, shape, 1),
    "sum of columns": lambda name, shape: rows.total(name, shape, 0),
}

WORKLOADS = by_name(
    [
        make(f"{chain} {m}x{n}", (m, n))
        for chain, make in CHAINS.items()
        for m, n in shapes_of("networks", "elementwise", "shapes")
    ]
)
