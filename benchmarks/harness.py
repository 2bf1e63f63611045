"""Interleaved rounds over peers, each in a process of its own, so that a drift of the machine hits all alike."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys

ROUNDS = 15
SECONDS = 0.12  # each peer's share of a round
THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TENSORC_NUM_THREADS", "TVM_NUM_THREADS",
)  # fmt: skip


class Worker:
    """A peer's process."""

    def __init__(self, peer: str, threads: int):
        self.peer = peer
        env = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads))}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", peer, str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env,
        )  # fmt: skip

    def ask(self, **command) -> dict:
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process of {self.peer} ended; its message stands above")
        return json.loads(line)

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(timeout=30)


def run(suite: str, workloads: list[str], peers: list[str], threads: int, report, rounds: int = ROUNDS) -> list[dict]:
    """A row for each workload; `report` is called with each row as soon as it is known."""
    workers = [Worker(peer, threads) for peer in ("machine", "tensorc", *peers)]
    rows = []
    try:
        for workload in workloads:
            rows.append(_row(suite, workload, workers, threads, rounds))
            report(rows[-1])
    finally:
        for worker in workers:
            worker.close()
    return rows


def _row(suite: str, workload: str, workers: list[Worker], threads: int, rounds: int) -> dict:
    ready = {worker.peer: worker.ask(do="prepare", suite=suite, workload=workload) for worker in workers}
    active = [worker for worker in workers if "ok" in ready[worker.peer]]
    facts = ready["tensorc"]
    samples: dict[str, list[float]] = {worker.peer: [] for worker in active}
    peaks, bandwidths = [], []
    for turn in range(rounds):
        # Each round starts with another peer, so that none always follows the same one.
        at = turn % len(active)
        for worker in active[at:] + active[:at]:
            answer = worker.ask(do="measure", seconds=SECONDS)
            if worker.peer == "machine":
                peaks.append(answer["peak"])
                bandwidths.append(answer["bandwidth"])
            else:
                samples[worker.peer].append(statistics.median(answer["times"]))
    ours = samples["tensorc"]
    flops, size = facts["flops"], facts["bytes"]
    seconds = statistics.median(ours)
    return {
        "suite": suite,
        "workload": workload,
        "threads": threads,
        "tensorc_ms": seconds * 1e3,
        "tensorc_tuned_ms": None,
        "peers": {
            worker.peer: statistics.median(samples[worker.peer]) * 1e3
            for worker in active
            if worker.peer not in ("machine", "tensorc")
        },
        "gflops": flops / seconds * 1e-9,
        "peak_fraction": statistics.median([flops / time / peak for time, peak in zip(ours, peaks)]),
        "gbps": size / seconds * 1e-9,
        "bandwidth_fraction": statistics.median([size / time / rate for time, rate in zip(ours, bandwidths)]),
        "spread": spread(ours),
        "peak_gflops": statistics.median(peaks) * 1e-9,
        "copy_gbps": statistics.median(bandwidths) * 1e-9,
    }


def spread(values: list[float]) -> float:
    """The distance of the quartiles over the median."""
    low, _, high = statistics.quantiles(values, n=4)
    return (high - low) / statistics.median(values)
