"""What a worker does, without its process."""

from __future__ import annotations

import numpy as np
import pytest

import tensorc as tc
from autotune import bench as module
from autotune.bench import Bench, Setup, key_of
from tensorc import te
from tensorc.errors import TuningError, UnsupportedError
from tensorc.ir.function import Function
from tensorc.ir.printer import show
from tensorc.target import Target
from tests.autotune.spaces import matmul, softmax
from tests.autotune.test_data import gathered
from tests.autotune.workloads import workload


def made(function: Function, folder, **options) -> Bench:
    return Bench(Setup.of(workload(function), str(folder), effort=0.002, **options))


def measured(bench: Bench, text: str) -> dict:
    bench.compile(key_of(text), text)
    return bench.measure(key_of(text), None)


def scheduled(function: Function) -> str:
    return show(module.Planner(function, Target.host(), 1).schedule(module.Defaults()).function)


@pytest.fixture
def folder(tmp_path):
    tmp_path.chmod(0o700)
    return tmp_path


@pytest.mark.parametrize(
    "function", [matmul(), softmax(), gathered()], ids=["matmul", "softmax", "gathered"]
)
def test_the_definition_tells_what_is_right(function, folder):
    bench = made(function, folder)
    assert bench.prepare() == {"status": "ok", "reason": "the definition"}
    assert measured(bench, scheduled(function))["status"] == "ok"


def test_parts_of_the_definition_confirm_the_default_schedule(folder, monkeypatch):
    monkeypatch.setattr(module, "PLAIN_RATE", 1e5)
    bench = made(matmul(), folder)
    assert bench.prepare()["reason"].startswith("the default schedule, ")
    text = scheduled(matmul())
    assert measured(bench, text)["status"] == "ok"
    assert measured(bench, text.replace(" * ", " + "))["status"] == "wrong"


def test_a_default_schedule_that_is_wrong_is_found(folder, monkeypatch):
    monkeypatch.setattr(module, "PLAIN_RATE", 1e5)
    monkeypatch.setattr(Bench, "_default", lambda self: module.parse(self.setup.text.replace(" * ", " + ")))
    with pytest.raises(TuningError, match="the default schedule computes something else than the definition: b2"):
        made(matmul(), folder).prepare()


def test_functions_that_want_positive_numbers_get_them(folder):
    x = te.placeholder((64,), name="X")
    function = tc.schedule([x, te.compute((64,), lambda i: te.sqrt(x[i]) / x[i], name="Y")]).function
    bench = made(function, folder)
    assert measured(bench, show(function))["status"] == "ok"
    arguments, answer, _ = bench._prepared
    assert answer.is_finite and (arguments.arrays[0] > 0).all()


def test_a_candidate_that_is_right_only_once_is_found(folder):
    x = te.placeholder((8,), "int32", name="X")
    function = tc.schedule([x, te.compute((8,), lambda i: x[i] * 2, name="Y")]).function
    # adds what was there before: right where outputs are all ones in their bits, which is -1
    text = show(function).replace("X[i] * int32(2)", "X[i] * int32(2) + (Y[i] + int32(1)) * int32(1)")
    found = measured(made(function, folder), text)
    assert found["status"] == "wrong" and found["reason"].startswith("called once more, Y[")


def test_inputs_hold_their_values_in_all_calls(folder):
    bench = made(matmul(), folder)
    before = [array.copy() for array in bench._prepared[0].arrays[:2]]
    measured(bench, scheduled(matmul()))
    assert all([np.array_equal(a, b) for a, b in zip(before, bench._prepared[0].arrays)])


def test_code_that_is_not_there_is_refused(folder):
    with pytest.raises(TuningError, match="the code of a candidate is not in"):
        made(matmul(), folder).measure(key_of("nothing"), None)


def test_a_candidate_that_is_hopeless_is_called_once(folder, monkeypatch):
    monkeypatch.setattr(module, "COLD", 0.0)
    bench = made(matmul(), folder)
    text = show(matmul())
    bench.compile(key_of(text), text)
    assert len(bench.measure(key_of(text), 1e-9)["samples"]) == 1


def test_code_that_would_take_long_to_compile_is_refused(folder, monkeypatch):
    monkeypatch.setattr(module, "LEAST_TEXT", 10)
    monkeypatch.setattr(module, "TEXT_PER_BLOCK", 5)
    with pytest.raises(UnsupportedError, match=r"its code has \d+ characters of LLVM text, 15 are allowed"):
        made(matmul(), folder).compile(key_of("a"), show(matmul()))
