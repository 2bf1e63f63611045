from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from tensorc.errors import ArgumentError
from tensorc.runtime import default_threads, load, threads
from tests.runtime import kernels


@pytest.fixture
def four_threads(monkeypatch):
    monkeypatch.setenv("TENSORC_NUM_THREADS", "4")


def run(kernel, extent, **named):
    """(how often each iteration ran, iterations of each participant)."""
    hits, slots = np.zeros(extent, "i8"), np.zeros(64, "i8")
    kernel(hits, slots, **named)
    return hits, slots


@pytest.mark.parametrize("extent", [0, 1, 2, 3, 5, 64, 1000, 12345])
def test_every_iteration_runs_once(four_threads, extent):
    kernel = load(kernels.count())
    for _ in range(50):
        hits, slots = run(kernel, extent)
        assert (hits == 1).all()
        assert slots.sum() == extent and not slots[4:].any()


def test_bounds_on_the_threads(four_threads):
    kernel = load(kernels.count())
    assert kernel.threads == 4
    assert not run(kernel, 1000, threads=1)[1][1:].any()
    assert not run(kernel, 1000, threads=2)[1][2:].any()
    assert not run(load(kernels.count(), threads=1), 1000)[1][1:].any()


def test_several_threads_take_part(four_threads):
    kernel = load(kernels.meet())
    if threads._pool().openmp.value and threads.available_cores() < 2:
        pytest.skip("OpenMP's threads are no more than the cores, and there is one")
    slots = np.zeros(2, "i8")
    for _ in range(20):
        slots[:] = 0
        kernel(slots)
        assert (slots == 1).all()


def test_launches_side_by_side(four_threads):
    kernel = load(kernels.count())
    wrong = []

    def work():
        for _ in range(50):
            hits, slots = run(kernel, 777)
            if not (hits == 1).all() or slots.sum() != 777:
                wrong.append(hits)

    workers = [threading.Thread(target=work) for _ in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


SCRIPT = """
import sys
{first}
from tensorc.runtime import load, threads
from tests.runtime import kernels
import numpy as np
kernel = load(kernels.count())
{then}
for _ in range(300):
    hits, slots = np.zeros(5000, "i8"), np.zeros(64, "i8")
    kernel(hits, slots)
    assert (hits == 1).all() and slots.sum() == 5000
print("openmp" if threads._pool().openmp.value else "own", threads._pool().workers.value)
"""


def script(first="", then="", **environment):
    """The output of a fresh process that runs a parallel kernel."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(first=first, then=then)],
        capture_output=True, text=True, timeout=600,
        env={**os.environ, "TENSORC_NUM_THREADS": "3", **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_process_ends_while_workers_wait():
    pool, workers = script()
    assert pool == "own" and int(workers) == 2


def test_one_thread_starts_no_worker():
    assert script(TENSORC_NUM_THREADS="1") == ["own", "0"]


@pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
@pytest.mark.parametrize("place", ["first", "then"])
def test_openmp_in_the_process_is_used(place):
    load_it = "import ctypes; ctypes.CDLL('libgomp.so.1')"
    try:
        subprocess.run([sys.executable, "-c", load_it], check=True, capture_output=True)
    except subprocess.CalledProcessError:
        pytest.skip("no libgomp here")
    assert script(**{place: load_it})[0] == "openmp"


FORK = """
import os
kernel(np.zeros(5000, "i8"), np.zeros(64, "i8"))
for _ in range({generations}):
    child = os.fork()
    if child != 0:
        _, status = os.waitpid(child, 0)
        if {at_once}:
            sys.exit(os.waitstatus_to_exitcode(status))
        assert status == 0
        break
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_after_forks():
    # Parent, child and grandchild each run the loop and print.
    out = script(then=FORK.format(generations=2, at_once=False))
    assert out == ["own", "2"] * 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_openmp_is_left_behind_by_a_fork():
    load_it = "import ctypes; ctypes.CDLL('libgomp.so.1')"
    try:
        subprocess.run([sys.executable, "-c", load_it], check=True, capture_output=True)
    except subprocess.CalledProcessError:
        pytest.skip("no libgomp here")
    assert script(load_it, FORK.format(generations=1, at_once=True)) == ["own", "2"]


def test_default_number_of_threads(monkeypatch):
    monkeypatch.setenv("TENSORC_NUM_THREADS", " 3 ")
    assert default_threads() == 3
    monkeypatch.delenv("TENSORC_NUM_THREADS")
    assert 1 <= default_threads() <= (os.cpu_count() or 1)
    for text in ("0", "-1", "many"):
        monkeypatch.setenv("TENSORC_NUM_THREADS", text)
        with pytest.raises(ArgumentError, match=f"TENSORC_NUM_THREADS is '{text}', a positive"):
            default_threads()
