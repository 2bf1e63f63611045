"""The values of the tuner."""

from __future__ import annotations

import math

import tensorc as tc
from autotune.record import Measurement, Workload
from tensorc import te


def _double(name: str):
    a = te.placeholder((8,), "float32", name=name)
    return tc.schedule([a, te.compute((8,), lambda i: a[i] * 2.0, name=f"{name}_out")]).function


def test_a_workload_is_the_same_under_other_names():
    one, other = Workload.of(_double("A"), None, 1), Workload.of(_double("B"), None, 2)
    assert one.text == other.text and one.hash == other.hash and one != other


def test_a_workload_gives_its_function_back():
    workload = Workload.of(_double("A"), "cpu", 1)
    assert Workload.of(workload.function, "cpu", 1) == workload


def test_a_workload_with_values_that_have_names_gives_its_function_back():
    x = te.placeholder((5, 7), "float32", name="X")
    workload = Workload.of(tc.schedule([x, tc.ops.argmax(x, axis=1)]).function, "cpu", 1)
    assert "float32 = b0[" in workload.text
    assert Workload.of(workload.function, "cpu", 1) == workload


def test_a_measurement_without_samples_is_infinitely_slow():
    assert Measurement("timeout", reason="no answer in 1 s").seconds == math.inf
    assert Measurement("ok", (3.0, 1.0, 2.0)).seconds == 2.0
    assert Measurement("ok", (1.0, 2.0, 3.0, 4.0, 5.0)).spread == (4.0 - 2.0) / 3.0
