"""One thing to measure: its inputs, and how tensorc and each peer compute it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Workload:
    """A definition that every peer implements.

    `inputs` makes the argument arrays; `tensors` the tensor expressions whose arguments are those inputs and then the
    output; `peers` maps a peer's name to a function from its own arrays to its result. `tolerance` bounds the
    relative error against NumPy in units of float32 epsilon times the length of the longest sum.
    """

    name: str
    inputs: Callable[[], list[np.ndarray]]
    tensors: Callable[[], list[Any]]
    reference: Callable[..., np.ndarray]
    peers: dict[str, Callable[..., Any]] = field(default_factory=dict)
    terms: int = 1
