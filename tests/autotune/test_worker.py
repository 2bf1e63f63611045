"""The lines that a worker process reads and writes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from autotune.bench import Setup, key_of
from autotune.worker import answer
from tests.autotune.workloads import HANGS, TEXT, doubled, workload

ROOT = Path(__file__).resolve().parents[2]


def setup(folder: Path, **options) -> Setup:
    folder.chmod(0o700)
    return Setup.of(workload(doubled()), str(folder), effort=0.002, **options)


def served(setup: Setup, *requests: dict) -> tuple[list[dict], int]:
    """The replies of a process to these requests, and its exit code."""
    lines = "\n".join([setup.line(), *[json.dumps({"seconds": 10.0, **request}) for request in requests]])
    done = subprocess.run(
        [sys.executable, "-m", "autotune.worker"], input=lines, cwd=ROOT, capture_output=True, text=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()], done.returncode


def test_a_setup_is_a_line(tmp_path):
    made = setup(tmp_path, values=(1, 2), cores=(0,), memory=1 << 40, cold=True)
    assert Setup.read(made.line()) == made and "\n" not in made.line()
    assert Setup.read(setup(tmp_path).line()) == setup(tmp_path)


def test_requests_are_answered_in_order_until_there_are_no_more(tmp_path):
    key = key_of(TEXT)
    replies, code = served(
        setup(tmp_path, cores=(min(os.sched_getaffinity(0)),)),
        {"do": "compile", "key": key, "text": TEXT},
        {"do": "measure", "key": key, "best": None},
        {"do": "compare", "keys": [key, key]},
        {"do": "sing"},
    )
    ready, compiled, measured, compared, refused = replies
    assert code == 0 and ready == {"ready": True} and compiled["status"] == "ok" and compiled["compile"] > 0
    assert measured["status"] == "ok" and len(measured["samples"]) >= 3
    assert [len(samples) for samples in compared["rounds"]] == [len(compared["rounds"][0])] * 2
    assert refused == {"status": "refused", "reason": "a worker does not sing"}


def test_a_request_that_takes_too_long_ends_the_process(tmp_path):
    key = key_of(HANGS)
    compiled = {"do": "compile", "key": key, "text": HANGS}
    replies, code = served(setup(tmp_path), compiled, {"do": "measure", "key": key, "best": None, "seconds": 0.3})
    assert [reply.get("status") for reply in replies] == [None, "ok"] and code == -signal.SIGALRM


def test_what_is_raised_is_a_reply():
    class Raises:
        def __init__(self, error: Exception) -> None:
            self.error = error

        def prepare(self):
            raise self.error

    reply = lambda error: answer(Raises(error), {"do": "prepare"})  # type: ignore[arg-type]
    assert reply(ValueError("no")) == {"status": "refused", "reason": "ValueError: no"}
    assert reply(MemoryError()) == {"status": "memory", "reason": "it needs more memory than there is"}
    assert reply(MemoryError("64 GiB")) == {"status": "memory", "reason": "it needs more memory than there is: 64 GiB"}
