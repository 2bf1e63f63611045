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

import numpy as np


def prepare_tensorc(workload, inputs, threads):
    import tensorc as tc

    kernel = tc.build(workload.tensors(), threads=threads)
    output = kernel(*inputs)
    _check(workload, inputs, output)
    return (lambda: kernel(*inputs, output)), {"flops": kernel.artifact.flops, "bytes": kernel.artifact.bytes}


def prepare_numpy(workload, inputs, threads):
    function = workload.peers["numpy"]
    return (lambda: function(*inputs)), {}


def prepare_torch(workload, inputs, threads):
    import torch

    torch.set_num_threads(threads)
    arrays = [_in_torch(array) for array in inputs]
    function = workload.peers["torch"]
    result = function(*arrays)
    _check(workload, inputs, np.asarray(result.float() if result.dtype is torch.bfloat16 else result))

    def call():
        with torch.inference_mode():
            function(*arrays)

    return call, {}


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
    arrays = [jax.numpy.asarray(array) for array in inputs]
    _check(workload, inputs, np.asarray(function(*arrays)))
    return (lambda: function(*arrays).block_until_ready()), {}


def prepare_tvm(workload, inputs, threads):
    os.environ["TVM_NUM_THREADS"] = str(threads)
    import tvm

    module = tvm.compile(workload.peers["tvm"](), tvm.target.Target.from_device("cpu"))
    arrays = [tvm.runtime.tensor(array) for array in inputs]
    output = tvm.runtime.tensor(np.zeros_like(workload.reference(*inputs)))
    module(*arrays, output)
    _check(workload, inputs, output.numpy())
    return (lambda: module(*arrays, output)), {}


PREPARE = {
    "tensorc": prepare_tensorc,
    "numpy": prepare_numpy,
    "torch": prepare_torch,
    "jax": prepare_jax,
    "tvm": prepare_tvm,
}


def _check(workload, inputs, output):
    expected = workload.reference(*[array.astype(np.float64) for array in inputs])
    scale = np.abs(expected).max() + 1e-30
    error = np.abs(np.asarray(output, np.float64) - expected).max() / scale
    bound = 4 * workload.epsilon * max(1, workload.terms) ** 0.5 + 1e-6
    if not error <= bound:
        raise ValueError(f"{workload.name}: relative error {error:.2e} exceeds {bound:.2e}")


def measure(call, seconds):
    """The seconds of each call, for about so many seconds and three calls at least."""
    times = []
    clock = time.perf_counter
    call()
    end = clock() + seconds
    while len(times) < 3 or clock() < end:
        start = clock()
        call()
        times.append(clock() - start)
    return times


def measure_machine(seconds, threads):
    from tensorc.runtime import timing

    return {"peak": timing.peak(threads), "bandwidth": timing.bandwidth(threads)}


def serve(peer, threads):
    call = None
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "measure":
            answer = measure_machine(0, threads) if peer == "machine" else {"times": measure(call, command["seconds"])}
        elif peer == "machine":
            answer = {"ok": True}
        else:
            suite = importlib.import_module(f"benchmarks.{command['suite']}")
            workload = suite.WORKLOADS[command["workload"]]
            if peer != "tensorc" and peer not in workload.peers:
                answer = {"missing": "not defined"}
            else:
                try:
                    call, answer = PREPARE[peer](workload, workload.inputs(), threads)
                    answer["ok"] = True
                except ImportError as error:
                    answer = {"missing": str(error)}
        answer_to.write(json.dumps(answer) + "\n")
        answer_to.flush()


if __name__ == "__main__":
    # What libraries print must not get between the answers.
    answer_to = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(sys.argv[1], int(sys.argv[2]))
