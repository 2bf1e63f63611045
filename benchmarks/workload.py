"""One thing to measure: its inputs, and how tensorc and each peer compute it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tensorc import te


@dataclass(frozen=True)
class Workload:
    """A definition that every peer implements.

    `inputs` makes the argument arrays; `tensors` the tensor expressions whose arguments are those inputs and then the
    output, or a schedule of them; `peers` maps a peer's name to a function from its own arrays to its result. `arrange`
    tells for a peer what it makes of its arrays once and for all, before it is measured: other layouts of constant
    weights, say. `terms` is the length of the longest sum, `epsilon` the step of the type that results are rounded to.
    """

    name: str
    inputs: Callable[[], list[np.ndarray]]
    tensors: Callable[[], Any]
    reference: Callable[..., np.ndarray]
    peers: dict[str, Callable[..., Any]] = field(default_factory=dict)
    arrange: dict[str, Callable[..., Sequence]] = field(default_factory=dict)
    terms: int = 1
    epsilon: float = 2.0**-23

    @property
    def is_apart(self) -> bool:
        """Whether neither torch nor JAX has the operator."""
        return not {"torch", "jax"} & set(self.peers)


def normal(*shapes: tuple[int, ...], dtype: str = "float32") -> Callable[[], list[np.ndarray]]:
    """What makes arrays of these shapes, of normally distributed elements."""

    def inputs():
        rng = np.random.default_rng(0)
        return [rng.standard_normal(shape).astype(dtype) for shape in shapes]

    return inputs


def expression(operator: Callable, *shapes: tuple[int, ...]) -> Callable[[], list[te.Tensor]]:
    """What makes placeholders of these shapes in float32, and the tensor that the operator makes of them."""

    def tensors():
        given = [te.placeholder(shape, "float32", name=name) for shape, name in zip(shapes, "ABCDEFG")]
        return [*given, operator(*given)]

    return tensors


def shapes_of(*path: str) -> Any:
    """A part of workloads.json, which lists what the field measures itself on."""
    found = json.loads((Path(__file__).parent / "workloads.json").read_text())
    for key in path:
        found = found[key]
    return found


def by_name(workloads: Sequence[Workload]) -> dict[str, Workload]:
    return {workload.name: workload for workload in workloads}
