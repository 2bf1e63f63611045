"""Measuring in processes of this machine, and candidates that fail there."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tensorc as tc
from autotune.data import values_of
from autotune.measure import AHEAD, LocalRunner
from autotune.record import Candidate, Measurement
from tensorc import te
from tensorc.errors import TuningError
from tensorc.ir.printer import show
from tests.autotune.workloads import (
    CRASHES,
    HANGS,
    HUNGRY,
    STRAYS,
    TEXT,
    UNREADABLE,
    WRONG,
    candidates,
    doubled,
    workload,
)

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def runner():
    with LocalRunner(workload(doubled()), timeout=0.5, effort=0.01) as made:
        yield made


def measured(runner: LocalRunner, *texts: str) -> list[Measurement]:
    found = dict(runner.measure(candidates(*texts)))
    return [found[number] for number in range(len(texts))]


def is_alive(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_good_candidates_have_times(runner):
    for each in measured(runner, TEXT, TEXT.replace("C.j", "C.column")):
        assert each.status == "ok" and len(each.samples) >= 3 and 0 < each.seconds < 1 and each.compile_seconds > 0


@pytest.mark.parametrize(
    "text, status, reason",
    [
        (WRONG, "wrong", "running: C[0, 0] is "),
        (STRAYS, "wrong", "running: it wrote outside of output C, which has 4096 bytes, at byte 4096"),
        (CRASHES, "crashed", "running: its process ended by SIGSEGV"),
        (HANGS, "timeout", "running: it gave no answer within 0.5 seconds"),
        (HUNGRY, "memory", "running: it needs more memory than there is"),
        (UNREADABLE, "refused", "compiling: line 7: 'float31' is no operation, intrinsic or dtype"),
    ],
    ids=["wrong", "strays", "crashes", "hangs", "hungry", "unreadable"],
)
def test_a_candidate_that_fails_has_a_reason_and_the_next_one_is_measured(runner, text, status, reason):
    failed, good = measured(runner, text, TEXT)
    assert failed.status == status and failed.reason.startswith(reason) and not failed.samples
    assert good.status == "ok"


def test_winners_are_compared_in_alternation(runner):
    good, wrong, other = runner.compare(candidates(TEXT, UNREADABLE, TEXT))
    assert good.status == other.status == "ok" and len(good.samples) == len(other.samples) >= 3
    assert wrong.status == "refused"


def test_any_number_of_winners_are_compared(runner):
    number = AHEAD * (len(runner.pids) - 1) + 1
    assert [each.status for each in runner.compare(candidates(*[TEXT] * number))] == ["ok"] * number


def test_the_wrong_one_among_winners_is_found(runner):
    good, wrong = runner.compare(candidates(TEXT, WRONG))
    assert good.status == "ok" and wrong.status == "wrong"


def test_a_process_that_is_killed_costs_its_candidate_only(runner):
    measured(runner, TEXT)
    os.kill(runner.pids[0], signal.SIGKILL)
    assert [each.status for each in measured(runner, TEXT, TEXT)] == ["ok", "ok"]


def test_what_is_given_up_halfway_does_not_disturb_what_follows(runner):
    for _, first in runner.measure(candidates(TEXT, HANGS, TEXT)):
        assert first.status == "ok"
        break
    assert measured(runner, TEXT)[0].status == "ok"


@pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])
def test_all_cores_compile_and_run_in_turn(cold):
    threads = len(os.sched_getaffinity(0))
    function = doubled(64)
    with LocalRunner(workload(function, threads), effort=0.01, cold=cold) as runner:
        texts = [show(function)] * 3
        assert [each.status for each in measured(runner, *texts)] == ["ok"] * 3
        assert runner.reference == "the definition"


def test_variables_have_the_values_that_are_given():
    n, m = te.var("n"), te.var("m")
    x = te.placeholder((n, 8), name="X")
    function = tc.schedule([x, te.compute((n, 8), lambda i, j: x[i, j] + te.cast(m, "float32"), name="Y")]).function
    values = values_of(function, {"m": 3, "n": 100})
    with LocalRunner(workload(function), values, effort=0.01) as runner:
        good, wrong = measured(runner, show(function), show(function).replace("+", "-"))
    assert good.status == "ok"
    assert wrong.status == "wrong" and wrong.reason.endswith("800 of 800 elements differ")


def test_a_workload_that_cannot_be_run_is_refused():
    n = te.var("n")
    x = te.placeholder((n,), name="X")
    function = tc.schedule([x, te.compute((n,), lambda i: x[i] * 2.0, name="Y")]).function
    with LocalRunner(workload(function), (1 << 50,)) as runner, pytest.raises(TuningError, match="cannot be run: "):
        list(runner.measure([Candidate({}, show(function))]))


def test_closing_ends_processes_and_removes_files():
    runner = LocalRunner(workload(doubled()))
    folder = Path(runner.folder)
    assert folder.is_dir() and folder.stat().st_mode & 0o77 == 0 and all(map(is_alive, runner.pids))
    runner.close()
    assert not folder.exists() and not any(map(is_alive, runner.pids))


def test_nothing_is_left_of_a_caller_that_is_interrupted_or_killed():
    code = """if True:
        from autotune.measure import LocalRunner
        from tests.autotune.workloads import HANGS, TEXT, candidates, doubled, workload
        with LocalRunner(workload(doubled()), timeout=3.0) as runner:
            print(*runner.pids, flush=True)
            for number, found in runner.measure(candidates(TEXT, HANGS)):
                print(found.status, flush=True)
    """
    for end, code_of in ((signal.SIGINT, -signal.SIGINT), (signal.SIGKILL, -signal.SIGKILL)):
        caller = subprocess.Popen(
            [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert caller.stdout is not None
        pids = [int(pid) for pid in caller.stdout.readline().split()]
        assert len(pids) >= 2 and caller.stdout.readline() == "ok\n"
        for _ in range(4):  # Python may lose a KeyboardInterrupt that is raised as something is finalized
            caller.send_signal(end)
            with contextlib.suppress(subprocess.TimeoutExpired):
                caller.wait(0.4)
                break
        assert caller.wait() == code_of
        stop = time.monotonic() + 10
        while any(map(is_alive, pids)) and time.monotonic() < stop:
            time.sleep(0.05)
        assert not any(map(is_alive, pids))
        caller.stdout.close()
