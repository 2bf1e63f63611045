"""Hardware instructions, and tensor intrinsics: pairs of what a nest computes and what may be run in its place.

`instruction` adds to the IR's table of intrinsics; `tensor_intrin` registers a pair for `Schedule.tensorize`.
"""

import tensorc.intrinsics.arm
import tensorc.intrinsics.generic
import tensorc.intrinsics.x86  # noqa: F401 - each fills the registries
from tensorc.intrinsics.instructions import INSTRUCTIONS, Instruction, instruction
from tensorc.intrinsics.match import Match, implement, match
from tensorc.intrinsics.tensor import TensorIntrin, find, names, tensor_intrin, try_out

__all__ = [
    "INSTRUCTIONS",
    "Instruction",
    "Match",
    "TensorIntrin",
    "find",
    "implement",
    "instruction",
    "match",
    "names",
    "tensor_intrin",
    "try_out",
]
