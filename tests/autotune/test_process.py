"""Worker processes that end in ways of their own."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest

from autotune.process import Worker, wait
from tensorc.errors import TuningError
from tests.autotune.test_worker import setup


@pytest.fixture
def worker(tmp_path):
    made = Worker(setup(tmp_path))
    yield made
    made.stop()


def answered(worker: Worker) -> dict:
    while (reply := worker.reply()) is None:
        wait([worker])
    return reply


def test_a_worker_is_replaced_when_it_has_ended(worker):
    assert worker.is_new
    worker.ask(10.0, do="prepare")
    assert answered(worker)["status"] == "ok" and not worker.is_new
    os.kill(worker.pid, signal.SIGSTOP)  # lest it answers before it is ended
    worker.ask(10.0, do="prepare")
    os.kill(worker.pid, signal.SIGABRT)
    os.kill(worker.pid, signal.SIGCONT)
    assert answered(worker) == {"status": "crashed", "reason": "its process ended by SIGABRT"}
    assert worker.is_new
    worker.ask(10.0, do="prepare")
    assert answered(worker)["status"] == "ok"


def test_a_worker_that_stands_still_is_ended(worker, monkeypatch):
    monkeypatch.setattr("autotune.process.GRACE", 0.1)
    worker.ask(10.0, do="prepare")
    answered(worker)
    os.kill(worker.pid, signal.SIGSTOP)
    worker.ask(0.2, do="prepare")
    assert answered(worker) == {"status": "timeout", "reason": "it gave no answer within 0.2 seconds"}


def test_a_worker_that_does_not_start_is_an_error(tmp_path):
    worker = Worker(replace(setup(tmp_path), target="cpu of mine"))
    worker.ask(10.0, do="prepare")
    problem = "a worker process ended by exit status 1 before it was ready: .*target text 'cpu of mine'"
    with pytest.raises(TuningError, match=problem):
        answered(worker)
