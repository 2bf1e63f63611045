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
    output, or a schedule of them; `peers` maps a peer's name to a function from its own arrays to its result. `terms`
    is the length of the longest sum, `epsilon` the step of the type that results are rounded to.
    """

    name: str
    inputs: Callable[[], list[np.ndarray]]
    tensors: Callable[[], Any]
    reference: Callable[..., np.ndarray]
    peers: dict[str, Callable[..., Any]] = field(default_factory=dict)
    terms: int = 1
    epsilon: float = 2.0**-23
