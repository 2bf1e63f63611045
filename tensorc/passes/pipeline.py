"""The contents page of the passes: from a scheduled nest to flat, vector, threaded code."""

from __future__ import annotations

import os
from collections.abc import Callable

from tensorc.ir.function import Function
from tensorc.ir.verifier import verify
from tensorc.passes.accumulate import promote_accumulators
from tensorc.passes.bindings import unbind_threads
from tensorc.passes.blocks import lower_blocks
from tensorc.passes.interior import split_interiors
from tensorc.passes.lanes import reduce_in_lanes
from tensorc.passes.partition import partition_loops
from tensorc.passes.prefetch import prefetch_ahead
from tensorc.passes.storage import place_buffers
from tensorc.passes.tensorize import apply_intrinsics
from tensorc.passes.threads import assign_threads
from tensorc.passes.transposes import transpose_tiles
from tensorc.passes.vectorize import vectorize_loops
from tensorc.target import Target

Pass = Callable[[Function], Function]
PASSES: tuple[tuple[str, Pass], ...] = (
    ("bindings", unbind_threads),
    ("lanes", reduce_in_lanes),
    ("blocks", lower_blocks),
    ("partition", partition_loops),
    ("interior", split_interiors),
    ("prefetch", prefetch_ahead),
    ("vectorize", vectorize_loops),
    ("accumulate", promote_accumulators),
    ("storage", place_buffers),
    ("transposes", transpose_tiles),
    ("threads", assign_threads),
)


def lower(
    function: Function,
    target: Target | None = None,
    dump: Callable[[str, Function], None] | None = None,
    check: bool | None = None,
) -> Function:
    """The flat form of a nest (docs/ir.md, Stages).

    Tensor intrinsics are used where the target has them; None is a target that has all.
    `dump` is called with the name of each pass and the function that it made. `check`, by default
    the environment variable TENSORC_VERIFY, verifies the function before and after; InternalError
    names what a pass broke.
    """
    if check is None:
        check = os.environ.get("TENSORC_VERIFY", "") not in ("", "0")
    if check:
        verify(function, "nest")
    function = apply_intrinsics(function, target)
    if dump is not None:
        dump("tensorize", function)
    for name, step in PASSES:
        function = step(function)
        if dump is not None:
            dump(name, function)
    if check:
        verify(function, "flat")
    return function
