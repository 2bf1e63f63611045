"""The command line: `python -m benchmarks SUITE [--peers numpy,torch,jax,tvm] [--threads N] [--json FILE]`."""

from __future__ import annotations

import argparse
import importlib
import json

from benchmarks import harness

SUITES = (
    "gemm", "ansor", "resnet50", "mobilenet", "elementwise", "bert", "gpt2",
    "constants", "latency", "lowprecision", "math", "memory", "symbolic", "winograd",
)  # fmt: skip
QUICK = 0.02  # seconds of a turn
PEERS = ("numpy", "torch", "jax", "tvm")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument(
        "--peers", default="numpy,torch,jax", help=f"comma-separated, of {', '.join(PEERS)}; empty for none"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", metavar="FILE", help="write the rows as one JSON array")
    parser.add_argument("--only", help="comma-separated names of workloads")
    parser.add_argument("--rounds", type=int, help="how often each peer has its turn")
    parser.add_argument("--quick", action="store_true", help="a few short rounds: minutes for a suite, more noise")
    options = parser.parse_args()
    peers = [peer for peer in options.peers.split(",") if peer]
    for peer in peers:
        if peer not in PEERS:
            parser.error(f"peer {peer!r} is none of {', '.join(PEERS)}")
    if options.threads < 1:
        parser.error("--threads needs a positive number")
    suite = importlib.import_module(f"benchmarks.{options.suite}")
    wanted = options.only.split(",") if options.only else list(suite.WORKLOADS)
    for name in wanted:
        if name not in suite.WORKLOADS:
            parser.error(f"workload {name!r} is none of {', '.join(suite.WORKLOADS)}")
    rows = suite_rows(options.suite, suite, wanted, peers, options)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


def suite_rows(name, suite, wanted, peers, options) -> list[dict]:
    """The rows of a suite, each printed as it comes."""
    rounds = {"rounds": 5} if options.quick else {}
    if options.rounds is not None:
        rounds = {"rounds": options.rounds}
    if hasattr(suite, "run"):
        return suite.run(wanted, options.threads, print_row, **rounds)
    seconds = {"seconds": QUICK} if options.quick else {}
    rows = harness.run(name, wanted, peers, options.threads, print_row, **rounds, **seconds)
    print(f"{name}: {harness.summary(rows)}")
    return rows


def print_row(row: dict) -> None:
    """One line: our time, the fractions of the machine, each peer's time over ours."""
    peers = "  ".join(f"{name} {ms / row['tensorc_ms']:.2f}x" for name, ms in row["peers"].items())
    line = f"{row['suite']:8} {row['workload']:28} {row['threads']} thread(s)  {row['tensorc_ms']:10.5f} ms"
    if row["gflops"]:
        line += f"  {row['gflops']:7.1f} GFLOP/s ({row['peak_fraction']:.1%} of peak)"
        line += f"  {row['gbps']:6.1f} GB/s ({row['bandwidth_fraction']:.0%} of copy)"
    print(f"{line}  spread {row['spread']:.1%}  {peers}", flush=True)


if __name__ == "__main__":
    main()
