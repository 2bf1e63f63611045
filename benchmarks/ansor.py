"""The single operators of Ansor (OSDI 2020), four shapes each, batch 1, in float32."""

from __future__ import annotations

from benchmarks.operators import conv, products, rows
from benchmarks.workload import Workload, by_name, shapes_of


def workload(operator: str, name: str, shape: dict) -> Workload:
    """One operator at one shape, whose numbers have the names of workloads.json."""
    at = dict(shape)
    at.pop("n" if operator not in ("GMM", "NRM", "SFM") else "", None)
    match operator:
        case "C1D":
            return conv.conv(name, (at.pop("l"),), **at)
        case "C2D" | "GRP" | "DIL":
            return conv.conv(name, (at.pop("h"), at.pop("w")), **at)
        case "CBR":
            return conv.conv(name, (at.pop("h"), at.pop("w")), **at, batch_norm=True)
        case "C3D":
            return conv.conv(name, (at.pop("d"), at.pop("h"), at.pop("w")), **at)
        case "GMM":
            return products.batch_matmul(at["b"], at["n"], at["m"], at["k"], name)
        case "DEP":
            return conv.depthwise(name, **at)
        case "T2D":
            return conv.transposed(name, **at)
        case "CAP":
            return conv.capsule(name, size=at.pop("capsule"), **at)
        case "NRM":
            return rows.norm(name, (at["b"], at["m"], at["n"]))
        case "SFM":
            return rows.softmax(name, (at["m"], at["n"]))
        case "TBG":
            return products.scores(**at, name=name)
    raise ValueError(f"operator {operator!r} is not known")


WORKLOADS = by_name(
    [
        workload(operator, f"{operator} {number}", shape)
        for operator, what in shapes_of("operators").items()
        for number, shape in enumerate(what["shapes"])
    ]
)
