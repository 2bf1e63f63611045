"""What it costs to make a kernel and to call one.

import           `import tensorc` in a fresh interpreter, less the start of the interpreter itself
build first      definition to callable for a 512 matmul, the first kernel of a process, the disk cache empty
build            the same for later kernels of a process
build from disk  definition to callable when the disk cache has the kernel
30 steps         thirty steps on the nests of a convolution in three stages, each proved; less than 60 ms is wanted
copy             a copy of that schedule; the peer is an empty Python function
call             three arrays of 16 floats; the peer is an empty Python function, the bar their difference
launch           what sharing a kernel's loop between two threads adds to a call
first share      how much longer two threads take for two equal shares than one thread for one: until the second
                 thread has its first share, and until the first one knows that it is done
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable

import numpy as np

from benchmarks.convolution import convolution, thirty_steps
from benchmarks.harness import spread
from tensorc import te

DEFINE = """
import time, sys
import tensorc as tc
from tensorc import te
def define(n):
    A = te.placeholder((n, n), "float32", name="A")
    B = te.placeholder((n, n), "float32", name="B")
    k = te.reduce_axis(n, name="k")
    return [A, B, te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")]
def timed(n, cache=True):
    start = time.perf_counter()
    tc.build(define(n), threads=1, cache=cache)
    return time.perf_counter() - start
"""


def _python(code: str, cache: str | None = None) -> list[float]:
    """The numbers that a fresh interpreter prints."""
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # as where the package is installed, its bytecode is kept
    if cache is not None:
        env["TENSORC_CACHE_DIR"] = cache
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def _import(rounds: int) -> tuple[list[float], dict]:
    code = "import time; s = time.perf_counter(); import tensorc; print(time.perf_counter() - s)"
    _python(code)  # the first writes the bytecode
    return [_python(code)[0] for _ in range(rounds)], {}


def _first(rounds: int) -> tuple[list[float], dict]:
    times = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            times += _python(DEFINE + "print(timed(512))", folder)
    return times, {}


def _build(rounds: int) -> tuple[list[float], dict]:
    code = f"timed(512, False)\nfor _ in range({max(rounds, 5)}): print(timed(512, False))"
    return _python(DEFINE + code), {}


def _disk(rounds: int) -> tuple[list[float], dict]:
    with tempfile.TemporaryDirectory() as folder:
        _python(DEFINE + "timed(512)", folder)
        return [_python(DEFINE + "timed(256); print(timed(512))", folder)[0] for _ in range(rounds)], {}


def _steps(rounds: int) -> tuple[list[float], dict]:
    times = []
    for _ in range(rounds):
        s = convolution()
        start = time.perf_counter()
        thirty_steps(s)
        times.append(time.perf_counter() - start)
    return times, {}


def _copy(rounds: int) -> tuple[list[float], dict]:
    s = convolution()
    thirty_steps(s)
    number = 20_000
    times = [timeit.timeit(s.copy, number=number) / number for _ in range(rounds)]
    theirs = [timeit.timeit(lambda: None, number=number) / number for _ in range(rounds)]
    return times, {"empty_call": statistics.median(theirs) * 1e3}


def _add(shape, schedule: Callable | None = None):
    import tensorc as tc

    a = te.placeholder(shape, "float32", name="A")
    b = te.placeholder(shape, "float32", name="B")
    s = tc.schedule([a, b, te.compute(shape, lambda *i: a[i] + b[i], name="C")])
    if schedule is not None:
        schedule(s)
    return tc.build(s, threads=2)


def _per_call(function: Callable, *args) -> float:
    timer = timeit.Timer("f(x, y, z)", globals=dict(zip("fxyz", (function, *args))))
    number = 20_000
    return timer.timeit(number) / number


def _undisturbed(function: Callable, *args, calls: int = 1000) -> float:
    """Seconds of a call: a fiftieth of the calls is as fast, since others take the cores away most of the time."""
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        function(*args)
        times.append(time.perf_counter() - start)
    return float(np.quantile(times, 0.02))


def _call(rounds: int) -> tuple[list[float], dict]:
    kernel = _add((16,))
    arrays = [np.ones(16, np.float32) for _ in range(3)]
    empty = lambda a, b, c: None
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(_per_call(kernel, *arrays))
        theirs.append(_per_call(empty, *arrays))
    return ours, {"empty_call": statistics.median(theirs) * 1e3}


def _launch(rounds: int) -> tuple[list[float], dict]:
    arrays = [np.ones((2, 16), np.float32) for _ in range(3)]
    serial = _add((2, 16))
    parallel = _add((2, 16), lambda s: s.parallel(s.loops("C")[0]))
    added = []
    for _ in range(rounds):
        alone = _per_call(serial, *arrays)
        added.append(_per_call(parallel, *arrays) - alone)
    return added, {}


def _chain(rows: int, parallel: bool):
    """Sums that one core takes some 30 us for, each an add after the other, so that memory plays no part."""
    import tensorc as tc

    x = te.placeholder((rows, 64), "float32", name="X")
    k, l = te.reduce_axis(384, name="k"), te.reduce_axis(64, name="l")
    s = tc.schedule([x, te.compute((rows,), lambda i: te.sum(x[i, l], axis=(k, l)), name="S")])
    if parallel:
        s.parallel(s.loops("S")[0])
    return tc.build(s, threads=2)


def _share(rounds: int) -> tuple[list[float], dict]:
    one, two = _chain(1, False), _chain(2, True)
    x = np.ones((2, 64), np.float32)
    arrays = (x[:1], np.empty(1, np.float32)), (x, np.empty(2, np.float32))
    late = []
    for _ in range(rounds):
        alone = _undisturbed(one, *arrays[0])
        late.append(_undisturbed(two, *arrays[1]) - alone)
    return late, {}


WORKLOADS = {
    "import": _import,
    "build first": _first,
    "build": _build,
    "build from disk": _disk,
    "30 steps": _steps,
    "copy": _copy,
    "call": _call,
    "launch": _launch,
    "first share": _share,
}


def run(wanted: list[str], threads: int, report, rounds: int = 11) -> list[dict]:
    """A row for each case; `tensorc_ms` is the median over the rounds."""
    rows = []
    for name in wanted:
        times, peers = WORKLOADS[name](rounds)
        row = {
            "suite": "latency", "workload": name, "threads": 2 if name in ("launch", "first share") else 1,
            "tensorc_ms": statistics.median(times) * 1e3, "tensorc_tuned_ms": None, "peers": peers,
            "gflops": None, "peak_fraction": None, "gbps": None, "bandwidth_fraction": None, "spread": spread(times),
        }  # fmt: skip
        rows.append(row)
        report(row)
    return rows
