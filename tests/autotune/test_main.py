"""The command line."""

from __future__ import annotations

import json

import pytest

from autotune.__main__ import main, tensors_of
from autotune.database import Database
from tensorc import ops, te
from tests.autotune.test_database import record


def doubled(n):
    """What a user tunes by its name."""
    a = te.placeholder((n, 16), name="A")
    return [a, ops.add(a, a)]


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    status = main([str(each) for each in arguments])
    told = capsys.readouterr()
    return status, told.out, told.err


def test_a_product_is_tuned_and_explained(capsys, tmp_path):
    file = tmp_path / "t.db"
    options = ("--trials", 4, "--threads", 1, "--database", file)
    status, out, _ = run(capsys, "tune", "matmul", 32, 48, 16, *options, "--json")
    told = json.loads(out)
    assert status == 0 and told["trials"] == 4 and told["seconds"] <= told["default_seconds"]
    assert [each["status"] for each in told["history"]] == ["ok"] * 4 and "C.tile" in told["decisions"]
    status, out, _ = run(capsys, "explain", file)
    assert status == 0 and out.startswith("function f(b0: float32[32, 16], b1: float32[16, 48], out b2")
    status, out, err = run(capsys, "tune", "tests.autotune.test_main:doubled", 8, "--trials", 2, "--threads", 1)
    assert status == 0 and "x the default schedule's" in out and err.startswith("tuning main: 2 trials")


def test_databases_are_merged_and_exported(capsys, tmp_path):
    one, other = Database(tmp_path / "1.db"), Database(tmp_path / "2.db")
    one.add(record(1.0))
    other.add(record(2.0), record(3.0))
    assert run(capsys, "export", one.path, tmp_path / "1.jsonl")[1] == "1 records\n"
    status, out, _ = run(capsys, "merge", tmp_path / "all.db", tmp_path / "1.jsonl", other.path)
    assert status == 0 and out.endswith("2.db: 2 new records\n") and len(Database(tmp_path / "all.db")) == 3
    assert run(capsys, "explain", one.path)[1] == "no winners yet\n"


def test_operators():
    shapes = {(8, 9, 10): "matmul", (8, 3, 4): "conv2d", (8, 3, 4, 5, 2): "conv2d", (4, 8): "softmax"}
    assert [len(tensors_of(what, sizes)) for sizes, what in shapes.items()] == [3, 3, 3, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tune", "fft", 3), "tune fft: no operator; there are matmul, conv2d, softmax, and MODULE:NAME is a function"),
        (("tune", "matmul", 3), "tune matmul: _matmul() missing 2 required positional arguments: 'n' and 'k'"),
        (("tune", "no_such_module:f"), "tune no_such_module:f: No module named 'no_such_module'"),
        (("tune", "json:f"), "tune json:f: module 'json' has no attribute 'f'"),
        (("tune", "softmax", 4, 4, "--size", "n"), "--size n: NAME=N is needed, as in n=128"),
        (("tune", "softmax", 4, 4, "--seconds", "-1"), "seconds=-1.0: a positive number is needed"),
        (("explain", "none.db"), "none.db: no such file"),
        (("export", "none.db", "x"), "none.db: no such file"),
    ],
)
def test_errors_are_one_line(arguments, message, capsys):
    status, out, err = run(capsys, *arguments)
    assert (status, out, err) == (1, "", f"python -m autotune: {message}\n")
