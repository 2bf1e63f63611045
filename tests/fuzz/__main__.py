"""`python -m tests.fuzz --programs N --seed S`: random programs against their meaning.

Exits with 1 where a kernel's answer is wrong, a kernel crashes, or anything but an error of its
own class escapes; the case is made smaller and printed as code that shows it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from dataclasses import replace

import tensorc as tc
from tensorc.errors import TargetError
from tests.fuzz.compare import Verdict
from tests.fuzz.coverage import held, table
from tests.fuzz.generate import CPUS, case
from tests.fuzz.programs import Case, script
from tests.fuzz.shrink import shrink
from tests.fuzz.steps import MAKERS
from tests.fuzz.workers import Worker, run_all


def main(argv: list[str] | None = None) -> int:
    """Run the fuzzer. Returns the exit status."""
    options = _options(argv)
    cpus = tuple([cpu for cpu in CPUS if _runs_here(cpu)])
    seeds = range(options.seed, options.seed + options.programs)
    cases = (case(seed, cpus, options.schedules) for seed in seeds)
    start, counts, failures = time.monotonic(), Counter[str](), 0
    tally: Counter[tuple[str, bool]] = Counter()
    kinds: Counter[str] = Counter()
    seen: set[str] = set()
    for done, verdict in run_all(cases, options.jobs):
        counts["failed" if verdict.is_failure else verdict.kind] += 1
        tally += verdict.tally
        kinds += held(done)
        if verdict.kind == "refused" and options.verbose:
            print(f"seed {done.seed} refused: {verdict.message}")
        if not verdict.is_failure:
            continue
        failures += 1
        print(f"seed {done.seed} FAILED ({verdict.kind}): {verdict.message}", flush=True)
        if options.shrink and verdict.kind not in seen:
            seen.add(verdict.kind)
            _explain(done, verdict, options.verbose)
        if failures >= options.failures:
            break
    print(table(kinds))
    if options.schedules:
        print(_table(tally))
    seconds = time.monotonic() - start
    told = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    print(f"{sum(counts.values())} programs in {seconds:.1f} s: {told}")
    return 1 if failures else 0


def _table(tally: Counter[tuple[str, bool]]) -> str:
    """How often each step was accepted and refused."""
    lines = [f"{'step':28}{'accepted':>9}{'refused':>9}"]
    for name in sorted({name for name, _ in tally} | set(MAKERS) - {"split"}):
        lines.append(f"{name:28}{tally[name, True]:9}{tally[name, False]:9}")
    return "\n".join(lines)


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--programs", type=int, default=100, help="how many (default 100)")
    parser.add_argument("--seed", type=int, default=0, help="of the first; the others count on")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time (default 1)")
    parser.add_argument("--schedules", action="store_true", help="random steps, not the default")
    parser.add_argument("--failures", type=int, default=10, help="stop after so many (default 10)")
    parser.add_argument("--no-shrink", dest="shrink", action="store_false", help="print as found")
    parser.add_argument("--verbose", "-v", action="store_true", help="refusals and IR, too")
    return parser.parse_args(argv)


def _runs_here(cpu: str | None) -> bool:
    try:
        return cpu is None or tc.Target("cpu", mcpu=cpu).is_host
    except TargetError:
        return False


def _explain(failed: Case, verdict: Verdict, is_verbose: bool) -> None:
    """Make a failing case smaller, and print it."""
    worker = Worker()

    def fails(candidate: Case) -> bool:
        return worker.run(candidate)[1].kind == verdict.kind

    try:
        small = shrink(replace(failed, random_steps=0), fails)
        small, last = worker.run(small)
    finally:
        worker.stop()
    print(f"smaller, data of seed {small.seed}: {last.message or verdict.message}")
    print("\n".join(f"    {line}" for line in script(small).splitlines()))
    if is_verbose and last.note:
        print("\n".join(f"  | {line}" for line in last.note.splitlines()))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
