"""The suites: what they list fits together, and what a summary says of their rows."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import tensorc as tc
from benchmarks import harness, worker
from benchmarks.__main__ import SUITES
from benchmarks.operators import conv, products, rows

COUNTS = {"ansor": 52, "resnet50": 46, "mobilenet": 20, "elementwise": 27, "bert": 13, "gpt2": 10, "gemm": 26}
SMALL = [
    products.matmul(5, 9, 7, True, True),
    products.batch_matmul(2, 5, 9, 7),
    products.matvec(9, 20, "matvec"),
    products.scores(1, 6, 2, 5, "scores"),
    products.attention(1, 2, 7, 4, True, "attention"),
    conv.conv("conv1d", (9,), 4, 6, 3, 2, 1),
    conv.conv("conv2d", (9, 8), 4, 6, 3, 1, 2, dilation=2, groups=2),
    conv.conv("conv2d NCHW", (9, 8), 4, 6, 3, 2, 1, channels_last=False),
    conv.conv("conv3d", (5, 6, 7), 3, 4, 3, 2, 1),
    conv.conv("batch norm", (6, 6), 3, 4, 3, 1, 1, batch_norm=True),
    conv.depthwise("depthwise", 7, 6, 5, 3, 2, 1),
    conv.depthwise("depthwise NCHW", 7, 6, 5, 3, 1, 1, channels_last=False),
    conv.transposed("transposed", 4, 5, 6, 3, 4, 2, 1),
    conv.capsule("capsule", 6, 5, 3, 4, 3, 2, 1, 4),
    rows.unary("tanh", "tanh", (3, 7)),
    rows.gelu("gelu", (3, 7)),
    rows.bias_gelu_residual("chain", (3, 7)),
    rows.softmax("softmax", (3, 7)),
    rows.layer_norm("layer_norm", (3, 7)),
    rows.rms_norm("rms_norm", (3, 7)),
    rows.total("total", (3, 7), 0),
    rows.norm("norm", (2, 3, 7)),
]


@pytest.mark.parametrize("workload", SMALL, ids=lambda w: w.name)
def test_all_compute_the_same(workload):
    for peer in ("tensorc", *workload.peers):
        if peer == "tvm":
            continue
        call, output, _ = prepared(peer, workload)
        call()
        worker._check(workload, workload.inputs(), output, None)


def prepared(peer, workload):
    if peer == "jax":  # as the worker does, but without pinning this process to a core
        import jax

        arrays = worker._arranged(workload, peer, [jax.numpy.asarray(array) for array in workload.inputs()])
        function = jax.jit(workload.peers[peer])
        return lambda: function(*arrays), np.asarray(function(*arrays)), {}
    return worker.PREPARE[peer](workload, workload.inputs(), 1)


@pytest.mark.parametrize("suite", SUITES)
def test_the_workloads_of_a_suite(suite):
    workloads = importlib.import_module(f"benchmarks.{suite}").WORKLOADS
    assert len(workloads) == COUNTS.get(suite, len(workloads))
    for name, workload in workloads.items() if suite in COUNTS else ():
        assert name == workload.name
        assert set(workload.arrange) <= set(workload.peers)
        assert isinstance(workload.tensors()[-1], tc.te.Tensor)


def test_a_wrong_result_is_not_measured():
    workload = rows.total("total", (3, 7), 0)
    inputs = workload.inputs()
    with pytest.raises(ValueError, match=r"total: relative error .* exceeds"):
        worker._check(workload, inputs, inputs[0].sum(0) * 1.01, None)
    with pytest.raises(ValueError, match=r"total: the result has shape \(3,\), not \(7,\)"):
        worker._check(workload, inputs, inputs[0].sum(1), None)


def row(name, ours, apart=False, **peers):
    return {"workload": name, "tensorc_ms": ours, "peers": peers, "is_apart": apart}


def test_the_summary_of_rows():
    rows = [row("a", 1.0, torch=10.0, jax=3.0), row("b", 2.0, torch=1.0, numpy=1.5), row("c", 1.0, True)]
    assert harness.ratio(rows[0]) == 3.0 and harness.ratio(rows[2]) is None
    assert harness.summary(rows) == (
        "geometric mean 1.000 of 2 rows, worst 0.50 (b); apart, as neither torch nor JAX has them: c"
    )
    assert harness.summary(rows[2:]) == "no row has a peer"


def test_the_spread_of_values():
    assert harness.spread([1.0]) == 0.0
    assert harness.spread([1.0, 2.0, 3.0, 4.0, 5.0]) == 1.0


def test_slow_calls_are_measured_once_and_quick_ones_in_batches():
    calls = []
    assert len(worker.measure(lambda: calls.append(1), 0.0, lambda: 0.0, once=5.0)) == 1
    assert len(calls) == 1
    calls.clear()
    times = worker.measure(lambda: calls.append(1), 1e-5, lambda: 0.0, once=1e-6)
    assert len(times) >= 3 and len(calls) == 1 + 50 * len(times)
