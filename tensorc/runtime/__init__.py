"""From an artifact to a kernel that is called: JIT, arrays, threads, cache, timing."""

from tensorc.runtime.arrays import constant_array
from tensorc.runtime.cache import Cache, compiler_version
from tensorc.runtime.kernel import Kernel, load
from tensorc.runtime.preparation import bound_arrays
from tensorc.runtime.threads import default_threads
from tensorc.runtime.timing import Timing, bandwidth, peak

__all__ = [
    "Cache",
    "Kernel",
    "Timing",
    "bandwidth",
    "bound_arrays",
    "compiler_version",
    "constant_array",
    "default_threads",
    "load",
    "peak",
]
