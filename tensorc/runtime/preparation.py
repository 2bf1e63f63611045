"""What is done once with the constants that a kernel is built for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tensorc.artifact import Artifact, Param
from tensorc.runtime.constants import copied, zeros
from tensorc.runtime.kernel import load

__all__ = ["bound_arrays"]


def bound_arrays(
    bound: Sequence[Param],
    prepare: Artifact,
    constants: Mapping[int, np.ndarray],
    names: Sequence[str],
    threads: int,
) -> tuple[np.ndarray, ...]:
    """The arrays for the parameters `bound`: copies of constants, and what `prepare` makes of these.

    `constants` are by their numbers among the arguments, whose `names` errors tell. In both artifacts
    a parameter is named by such a number, or otherwise where it is made. Raises ArgumentError where
    a check of `prepare` fails.
    """
    given = {str(position): array for position, array in constants.items()}
    made = {param.name: zeros(param) for param in prepare.params if param.is_output}
    arguments = [
        made[param.name] if param.is_output else np.asarray(given[param.name], order="C")
        for param in prepare.params
    ]
    told = tuple([p if p.is_output else replace(p, name=names[int(p.name)]) for p in prepare.params])
    load(replace(prepare, params=told), threads=threads)(*arguments)
    for array in made.values():
        array.flags.writeable = False
    return tuple([made[p.name] if p.name in made else copied(p, given[p.name]) for p in bound])
