"""tensorc: from tensor expressions to kernels at the machine's peak.

    import tensorc as tc
    from tensorc import te

    A = te.placeholder((M, K), name="A")
    B = te.placeholder((K, N), name="B")
    k = te.reduce_axis(K, name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    kernel = tc.build([A, B, C])
    c = kernel(a, b)
"""

from tensorc import ops, te
from tensorc.build import build, default_schedule, schedule
from tensorc.errors import (
    ArgumentError,
    ExpressionError,
    InternalError,
    ScheduleError,
    TargetError,
    TensorcError,
    TuningError,
    UnsupportedError,
)
from tensorc.runtime import Kernel
from tensorc.schedule import Schedule, Trace, recipe
from tensorc.target import Target
from tensorc.version import __version__

__all__ = [
    "ArgumentError",
    "ExpressionError",
    "InternalError",
    "Kernel",
    "Schedule",
    "ScheduleError",
    "Target",
    "TargetError",
    "TensorcError",
    "Trace",
    "TuningError",
    "UnsupportedError",
    "__version__",
    "build",
    "default_schedule",
    "ops",
    "recipe",
    "schedule",
    "te",
]
