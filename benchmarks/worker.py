"""A peer in a process of its own: reads commands as JSON lines, answers with times.

{"do": "prepare", "suite": ..., "workload": ...}  ->  {"ok": true, "flops": ..., "bytes": ...} or {"missing": why}
{"do": "measure", "seconds": s}                   ->  {"times": [seconds of each call]}
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable

import numpy as np

BATCH = 50e-6  # seconds that calls are timed together for, at least


def prepare_tensorc(workload, inputs, threads):
    import tensorc as tc

    start = time.perf_counter()
    kernel = tc.build(workload.tensors(), threads=threads)
    facts = {"flops": kernel.artifact.flops, "bytes": kernel.artifact.bytes, "is_apart": workload.is_apart}
    facts["build_seconds"] = time.perf_counter() - start
    output = kernel(*inputs)
    return (lambda: kernel(*inputs, output)), output, facts


def prepare_numpy(workload, inputs, threads):
    arrays = _arranged(workload, "numpy", inputs)
    function = workload.peers["numpy"]
    return (lambda: function(*arrays)), function(*arrays), {}


def prepare_torch(workload, inputs, threads):
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    arrays = _arranged(workload, "torch", [_in_torch(array) for array in inputs])
    function = workload.peers["torch"]
    result = function(*arrays)
    return (lambda: function(*arrays)), np.asarray(result.float() if result.dtype is torch.bfloat16 else result), {}


def _in_torch(array):
    """An array as a tensor; torch does not know NumPy's bfloat16."""
    import torch

    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def prepare_jax(workload, inputs, threads):
    # XLA has no setting for its threads: it takes as many as the process may use.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    import jax

    function = jax.jit(workload.peers["jax"])
    arrays = _arranged(workload, "jax", [jax.numpy.asarray(array) for array in inputs])
    return (lambda: function(*arrays).block_until_ready()), np.asarray(function(*arrays)), {}


def prepare_tvm(workload, inputs, threads):
    os.environ["TVM_NUM_THREADS"] = str(threads)
    import tvm

    module = tvm.compile(workload.peers["tvm"](), tvm.target.Target.from_device("cpu"))
    arrays = [tvm.runtime.tensor(array) for array in inputs]
    output = tvm.runtime.tensor(np.zeros_like(workload.reference(*inputs)))
    module(*arrays, output)
    return (lambda: module(*arrays, output)), output.numpy(), {}


PREPARE = {
    "tensorc": prepare_tensorc,
    "numpy": prepare_numpy,
    "torch": prepare_torch,
    "jax": prepare_jax,
    "tvm": prepare_tvm,
}


def _arranged(workload, peer, arrays):
    return workload.arrange[peer](*arrays) if peer in workload.arrange else arrays


def _check(workload, inputs, output, path):
    expected = _expected(workload, inputs, path)
    if expected.shape != output.shape:
        raise ValueError(f"{workload.name}: the result has shape {output.shape}, not {expected.shape}")
    scale = np.abs(expected).max() + 1e-30
    error = np.abs(np.asarray(output, np.float64) - expected).max() / scale
    bound = 4 * workload.epsilon * max(1, workload.terms) ** 0.5 + 1e-6
    if not error <= bound:
        raise ValueError(f"{workload.name}: relative error {error:.2e} exceeds {bound:.2e}")


def _expected(workload, inputs, path):
    """The result in float64; the peers share it as a file, as some take long."""
    if path is None or not os.path.exists(path):
        found = np.asarray(workload.reference(*[array.astype(np.float64) for array in inputs]))
        if path is None:
            return found
        np.save(path, found)
    return np.load(path)


def _clock(threads: int) -> Callable[[], float]:
    return time.process_time if threads == 1 else time.perf_counter


def measure(call, seconds, clock, once):
    """The seconds of calls, for about so many seconds; `once` is what one took before."""
    number = max(1, int(BATCH / once))
    least = 1 if once > seconds else 3
    times = []
    if least > 1:
        call()
    end = time.perf_counter() + seconds
    while len(times) < least or time.perf_counter() < end:
        start = clock()
        for _ in range(number):
            call()
        times.append((clock() - start) / number)
    return times


def _seconds(call, clock) -> float:
    start = clock()
    call()
    return max(clock() - start, 1e-7)


def measure_machine(threads):
    from tensorc.runtime import timing

    return {"peak": timing.peak(threads), "bandwidth": timing.bandwidth(threads)}


def serve(peer, threads):
    call, once, clock = None, 0.0, _clock(threads)
    for line in sys.stdin:
        command = json.loads(line)
        if peer == "machine":
            answer = {"ok": True} if command["do"] == "prepare" else measure_machine(threads)
        elif command["do"] == "measure":
            answer = {"times": measure(call, command["seconds"], clock, once)}
        else:
            call, answer = prepare(peer, threads, command)
            if call is not None:
                once = answer["seconds"] = _seconds(call, clock)
        answer_to.write(json.dumps(answer) + "\n")
        answer_to.flush()


def prepare(peer, threads, command):
    """What to call, and the answer; no call where the peer has no such operator, or is not installed."""
    suite = importlib.import_module(f"benchmarks.{command['suite']}")
    workload = suite.WORKLOADS[command["workload"]]
    if peer != "tensorc" and peer not in workload.peers:
        return None, {"missing": "not defined"}
    inputs = workload.inputs()
    try:
        call, output, answer = PREPARE[peer](workload, inputs, threads)
    except ImportError as error:
        return None, {"missing": str(error)}
    _check(workload, inputs, output, command.get("expected"))
    return call, {**answer, "ok": True}


if __name__ == "__main__":
    # What libraries print must not get between the answers.
    answer_to = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(sys.argv[1], int(sys.argv[2]))
