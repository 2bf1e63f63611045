"""RESULTS.md from the rows that the suites wrote: `python -m benchmarks.tables FOLDER > benchmarks/RESULTS.md`."""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path

from benchmarks.harness import summary

HEAD = """# Results

What the suites measured on the machine named below; `make bench` measures afresh and rewrites this page. Times are
medians over interleaved rounds (each peer in a process of its own; of one thread, the time that the process has had),
`spread` is the distance of the quartiles over the median. A peer's ratio is its time over ours: above 1 tensorc is
ahead. `peak` is the fraction of the multiply-add rate that a loop of independent vector FMAs reached in the same
rounds, on as many threads; `copy` the fraction of the bandwidth of a copy. Of a suite, the geometric mean is over the
ratios to the best peer of each row, which count at most 2.
"""


def main(folder: str) -> None:
    print(HEAD)
    print(_machine())
    for path in sorted(Path(folder).glob("*.json")):
        rows = json.loads(path.read_text())
        if rows:
            print(f"\n## {rows[0]['suite']}, {rows[0]['threads']} thread{'s' if rows[0]['threads'] > 1 else ''}\n")
            print(_table(rows))
            if "is_apart" in rows[0]:
                print(f"\n{summary(rows)}".replace("geometric", "Geometric") + ".")


def _machine() -> str:
    from importlib.metadata import version

    from tensorc.target import Target

    target = Target.host()
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "llvmlite"))
    caches = f"{target.l1 >> 10} KiB, {target.l2 >> 10} KiB, {target.l3 >> 10} KiB"
    return (
        f"Machine: {target.cores} cores of {target.mcpu}, caches {caches}; "
        f"Python {platform.python_version()}, {packages}."
    )


def _table(rows: list[dict]) -> str:
    peers = sorted({name for row in rows for name in row["peers"]})
    timed = rows[0]["gflops"] is not None
    columns = ["workload", "time", "spread", *(["GFLOP/s", "peak", "GB/s", "copy"] if timed else []), *peers]
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for row in rows:
        cells = [row["workload"], _time(row["tensorc_ms"]), f"{row['spread']:.1%}"]
        if timed:
            cells += [f"{row['gflops']:.1f}", f"{row['peak_fraction']:.1%}"]
            cells += [f"{row['gbps']:.1f}", f"{row['bandwidth_fraction']:.0%}"]
        cells += [_ratio(row, name) for name in peers]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _ratio(row: dict, name: str) -> str:
    if name not in row["peers"]:
        return ""
    return f"{row['peers'][name] / row['tensorc_ms']:.2f}x ({_time(row['peers'][name])})"


def _time(ms: float) -> str:
    for unit, scale in (("s", 1e-3), ("ms", 1.0), ("us", 1e3)):
        if ms * scale >= 1:
            return f"{ms * scale:.3g} {unit}"
    return f"{ms * 1e6:.3g} ns"


if __name__ == "__main__":
    main(sys.argv[1])
