"""The command line: `python -m autotune tune matmul 1024 1024 1024 --seconds 30`, and what to do with a database."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from autotune.database import Database
from autotune.explain import explain
from autotune.progress import duration
from autotune.tune import Result, tune
from tensorc import ops, te
from tensorc.errors import TensorcError, TuningError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Returns the exit status: 1 for an error, which is one line."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        options.command(options)
    except TensorcError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m autotune", description="Find quick schedules by measuring.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    known = ", ".join(f"{name} {told}" for name, (_, told) in OPERATORS.items())
    one = commands.add_parser("tune", help="tune one function", description=f"Operators: {known}.")
    one.add_argument("what", metavar="OPERATOR", help="an operator, or MODULE:NAME, a function that returns tensors")
    one.add_argument("sizes", metavar="SIZE", nargs="*", type=int, help="its arguments")
    one.add_argument("--seconds", type=float, help="the budget; by default 30, or none with --trials")
    one.add_argument("--trials", type=int)
    one.add_argument("--threads", type=int, help="by default those that this process may use")
    one.add_argument("--database", metavar="FILE", help="keep what is measured, and start from what is known")
    one.add_argument("--size", metavar="NAME=N", action="append", default=[], help="the value of a symbolic extent")
    one.add_argument("--search", choices=("model", "random", "exhaustive"), default="model")
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--algorithms", action="store_true", help="allow those that round more, such as Winograd's")
    one.add_argument("--json", action="store_true", help="print the result as one JSON object, and nothing else")
    one.set_defaults(command=_tune)
    told = commands.add_parser("explain", help="how winners differ from the default schedules")
    told.add_argument("database")
    told.set_defaults(command=_explain)
    out = commands.add_parser("export", help="write a database as JSON lines")
    out.add_argument("database")
    out.add_argument("file")
    out.set_defaults(command=_export)
    merge = commands.add_parser("merge", help="add databases, or files of JSON lines, to a database")
    merge.add_argument("database")
    merge.add_argument("others", metavar="OTHER", nargs="+")
    merge.set_defaults(command=_merge)
    return parser


def _tune(options: argparse.Namespace) -> None:
    tensors = tensors_of(options.what, options.sizes)
    result = tune(
        tensors, seconds=options.seconds, trials=options.trials, threads=options.threads, database=options.database,
        sizes=_named(options.size), search=options.search, seed=options.seed, algorithms=options.algorithms,
        progress=not options.json,
    )  # fmt: skip
    print(json.dumps(as_json(result)) if options.json else summary(result))


def tensors_of(what: str, sizes: Sequence[int]) -> Sequence[te.Tensor]:
    """The tensors of an operator of these sizes, or what a function of the user's returns for them."""
    module, colon, name = what.partition(":")
    if colon:
        sys.path.insert(0, "")
        try:
            make = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise TuningError(f"tune {what}: {error}") from error
    elif what in OPERATORS:
        make = OPERATORS[what][0]
    else:
        raise TuningError(f"tune {what}: no operator; there are {', '.join(OPERATORS)}, and MODULE:NAME is a function")
    try:
        return make(*sizes)
    except TypeError as error:
        raise TuningError(f"tune {what}: {error}") from error


def _matmul(m: int, n: int, k: int) -> list[te.Tensor]:
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    return [a, b, ops.matmul(a, b, name="C")]


def _conv2d(size: int, ci: int, co: int, kernel: int = 3, stride: int = 1) -> list[te.Tensor]:
    x, w = te.placeholder((1, size, size, ci), name="X"), te.placeholder((kernel, kernel, ci, co), name="W")
    return [x, w, ops.conv2d(x, w, stride=stride, padding=kernel // 2, name="C")]


def _softmax(rows: int, columns: int) -> list[te.Tensor]:
    x = te.placeholder((rows, columns), name="X")
    return [x, ops.softmax(x)]


OPERATORS: dict[str, tuple[Callable[..., list[te.Tensor]], str]] = {
    "matmul": (_matmul, "M N K"),
    "conv2d": (_conv2d, "SIZE CI CO [KERNEL [STRIDE]]"),
    "softmax": (_softmax, "ROWS COLUMNS"),
}


def summary(result: Result) -> str:
    """What a person wants to know."""
    failed = sum([not trial.measurement.samples for trial in result.history])
    lines = [
        f"{duration(result.seconds)}, {result.speedup:.2f}x the default schedule's {duration(result.default_seconds)}; "
        f"{len(result.history)} trials, {failed} failed{', interrupted' if result.is_interrupted else ''}",
        explain(result.record),
    ]
    return "\n".join(lines)


def as_json(result: Result) -> dict[str, Any]:
    """What a machine wants to know; times in seconds."""
    return {
        "seconds": result.seconds,
        "default_seconds": result.default_seconds,
        "decisions": dict(result.decisions),
        "trials": len(result.history),
        "failed": sum([not trial.measurement.samples for trial in result.history]),
        "interrupted": result.is_interrupted,
        "history": [
            {"at": trial.at, "origin": trial.candidate.origin, "status": trial.measurement.status,
             "seconds": trial.measurement.seconds if trial.measurement.samples else None}
            for trial in result.history
        ],
    }  # fmt: skip


def _named(sizes: Sequence[str]) -> dict[str, int]:
    found = {}
    for each in sizes:
        name, equals, value = each.partition("=")
        if not name or not equals or not value.isdigit():
            raise TuningError(f"--size {each}: NAME=N is needed, as in n=128")
        found[name] = int(value)
    return found


def _explain(options: argparse.Namespace) -> None:
    winners = _existing(options.database).records(winners=True)
    print("\n\n".join([explain(record) for record in winners]) or "no winners yet")


def _export(options: argparse.Namespace) -> None:
    print(f"{_existing(options.database).export(options.file)} records")


def _merge(options: argparse.Namespace) -> None:
    database = Database(options.database)
    for other in options.others:
        is_lines = Path(other).suffix in (".jsonl", ".json")
        count = database.load(other) if is_lines else database.merge(_existing(other))
        print(f"{other}: {count} new records")


def _existing(path: str) -> Database:
    if not Path(path).exists():
        raise TuningError(f"{path}: no such file")
    return Database(path)


if __name__ == "__main__":
    sys.exit(main())
