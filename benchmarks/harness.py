"""Interleaved rounds over peers, each in a process of its own, so that a drift of the machine hits all alike."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

ROUNDS = 15
SECONDS = 0.12  # each peer's share of a round
BUDGET = 2.0  # seconds that a peer may take for a workload; what takes longer is measured once
MOST = 2.0  # that a row counts in a geometric mean
THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TENSORC_NUM_THREADS", "TVM_NUM_THREADS",
)  # fmt: skip
# Results are allocated anew by each call of a peer: from memory that the process has, not page by page from the system.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 32)}


class Worker:
    """A peer's process."""

    def __init__(self, peer: str, threads: int):
        self.peer = peer
        env = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads)), **KEEP_MEMORY}
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


def run(
    suite: str,
    workloads: list[str],
    peers: list[str],
    threads: int,
    report,
    rounds: int = ROUNDS,
    seconds: float = SECONDS,
) -> list[dict]:
    """A row for each workload; `report` is called with each row as soon as it is known."""
    workers = [Worker(peer, threads) for peer in ("machine", "tensorc", *peers)]
    rows = []
    try:
        for workload in workloads:
            rows.append(_row(suite, workload, workers, threads, rounds, seconds))
            report(rows[-1])
    finally:
        for worker in workers:
            worker.close()
    return rows


def _row(suite: str, workload: str, workers: list[Worker], threads: int, rounds: int, seconds: float) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        command = {"do": "prepare", "suite": suite, "workload": workload, "expected": f"{folder}/expected.npy"}
        ready = {worker.peer: worker.ask(**command) for worker in workers}
    active = [worker for worker in workers if "ok" in ready[worker.peer]]
    facts = ready["tensorc"]
    once = {worker.peer: ready[worker.peer].get("seconds", 0.0) for worker in active}
    samples = {peer: [time] if time > BUDGET else [] for peer, time in once.items()}
    peaks, bandwidths = [], []
    for turn in range(rounds):
        # Each round starts with another peer, so that none always follows the same one.
        at = turn % len(active)
        for worker in active[at:] + active[:at]:
            if turn * max(seconds, once[worker.peer]) >= BUDGET or once[worker.peer] > BUDGET:
                continue
            answer = worker.ask(do="measure", seconds=seconds)
            if worker.peer == "machine":
                peaks.append(answer["peak"])
                bandwidths.append(answer["bandwidth"])
            else:
                samples[worker.peer].append(statistics.median(answer["times"]))
    ours = samples["tensorc"]
    flops, size = facts["flops"], facts["bytes"]
    peak, bandwidth, time = map(statistics.median, (peaks, bandwidths, ours))
    return {
        "suite": suite,
        "workload": workload,
        "threads": threads,
        "tensorc_ms": time * 1e3,
        "tensorc_tuned_ms": None,
        "peers": {
            worker.peer: statistics.median(samples[worker.peer]) * 1e3
            for worker in active
            if worker.peer not in ("machine", "tensorc")
        },
        "gflops": flops / time * 1e-9,
        "peak_fraction": flops / time / peak,
        "gbps": size / time * 1e-9,
        "bandwidth_fraction": size / time / bandwidth,
        "spread": spread(ours),
        "peak_gflops": peak * 1e-9,
        "copy_gbps": bandwidth * 1e-9,
        "build_ms": facts["build_seconds"] * 1e3,
        "is_apart": facts["is_apart"],
    }


def ratio(row: dict) -> float | None:
    """The best peer's time over ours; None where there is no peer."""
    return min(row["peers"].values()) / row["tensorc_ms"] if row["peers"] else None


def summary(rows: list[dict]) -> str:
    """The geometric mean of the ratios, of which each counts at most `MOST`, and the worst row; those rows are left out
    for which neither torch nor JAX has the operator."""
    counted = [row for row in rows if ratio(row) is not None and not row.get("is_apart")]
    if not counted:
        return "no row has a peer"
    logs = [math.log(min(MOST, ratio(row))) for row in counted]
    worst = min(counted, key=ratio)
    text = f"geometric mean {math.exp(statistics.fmean(logs)):.3f} of {len(counted)} rows"
    text += f", worst {ratio(worst):.2f} ({worst['workload']})"
    apart = [row["workload"] for row in rows if row not in counted]
    return text + (f"; apart, as neither torch nor JAX has them: {', '.join(apart)}" if apart else "")


def spread(values: list[float]) -> float:
    """The distance of the quartiles over the median; 0 of a single value."""
    if len(values) < 2:
        return 0.0
    low, _, high = statistics.quantiles(values, n=4)
    return (high - low) / statistics.median(values)
