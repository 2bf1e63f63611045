"""The database: what is kept, by whom, and what it says to files that are none."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import tensorc as tc
from autotune.database import VERSION, Database, Record
from autotune.hardware import hardware
from autotune.naming import renamed
from autotune.record import Measurement, Workload
from tensorc import ops, te
from tensorc.errors import TuningError
from tensorc.target import as_target

ROOT = Path(__file__).resolve().parents[2]


def matmul(m=32, n=48, k=16, name="C", relu=False):
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    c = ops.matmul(a, b, name=name)
    return [a, b, ops.relu(c) if relu else c]


def workload(threads=1, **shape) -> Workload:
    return Workload.of(tc.schedule(matmul(**shape)).function, None, threads)


def record(seconds=1.0, tile=(4, 2), of: Workload | None = None, **fields) -> Record:
    decisions = {"block0.tile": tile, "block0.pack": True}
    return Record(of or workload(), decisions, Measurement("ok", (seconds, 2 * seconds, seconds)), **fields)


@pytest.fixture
def database(tmp_path):
    return Database(tmp_path / "t.db")


def test_what_is_added_is_there_in_another_connection(database):
    failed = Record(workload(), {}, Measurement("crashed", reason="signal 11"), trace="{}", origin="evolved", at=2.5)
    database.add(record(), failed)
    one, other = Database(database.path).records()
    assert one.decisions == {"block0.tile": (4, 2), "block0.pack": True} and one.measurement.seconds == 1.0
    assert (other.measurement, other.trace, other.origin, other.at) == (failed.measurement, "{}", "evolved", 2.5)
    assert one.hardware == hardware() and one.version == tc.__version__ and one.created and one.compiler
    assert len(database) == 2 and database.records(workload(m=8)) == []


def test_the_best_ran_here_for_the_same_threads_and_was_compared(database):
    quick, compared = record(1.0, (1, 1)), record(2.0, (2, 2), is_winner=True)
    elsewhere = record(0.1, (3, 3), hardware="another machine")
    database.add(quick, compared, elsewhere, record(0.1, (5, 5), workload(threads=2)))
    database.add(Record(workload(), {}, Measurement("wrong", reason="C[0] is 1, not 2")))
    assert [each.decisions["block0.tile"] for each in database.best(workload(), count=9)] == [(2, 2), (1, 1)]
    assert database.best(workload(), "another machine")[0].decisions["block0.tile"] == (3, 3)


def test_build_takes_the_schedule_of_a_function_by_other_names(database):
    database.add(record(tile=(3, 2)))
    made = tc.default_schedule(matmul(name="P"), threads=1, schedules=database)
    assert made.decisions["P.tile"] == (3, 2)
    assert tc.build(matmul(name="P"), threads=1, schedules=database).source("ir") == made.show()
    assert tc.default_schedule(matmul(name="P"), threads=2, schedules=database).decisions["P.tile"] != (3, 2)
    assert tc.default_schedule(matmul(m=31), threads=1, schedules=database).decisions["C.tile"] != (3, 2)


def test_what_no_longer_fits_is_left_out_with_a_warning(database):
    database.add(record(1.0, (4, 900)), record(2.0, (3, 2)))
    with pytest.warns(UserWarning, match=r"t.db: a record of main no longer fits: knob 'C.tile'"):
        made = tc.default_schedule(matmul(), threads=1, schedules=database)
    assert made.decisions["C.tile"] == (3, 2)


def test_neighbours_are_the_same_loops_of_other_extents_or_with_other_epilogues(database):
    shapes = [dict(m=64), dict(m=40), dict(m=32, relu=True), dict(m=512, n=512)]
    database.add(*[record(tile=(number, 1), of=workload(**shape)) for number, shape in enumerate(shapes, 1)])
    a = te.placeholder((32, 48), name="A")
    other = Workload.of(tc.schedule([a, ops.softmax(a)]).function, None, 1)
    database.add(record(tile=(9, 9), of=other))
    assert [each.decisions["block0.tile"][0] for each in database.nearest(workload())] == [2, 1, 4, 3]
    assert database.nearest(workload(threads=2)) == []


def test_blocks_are_told_by_their_names():
    decisions = {"block0.tile": 1, "block0_products.tile": 2, "block1.x": 3, "block10.y": 4, "free": 5}
    found = renamed(decisions, ("block0", "block1"), ("C", "C_pad"))
    assert found == {"C.tile": 1, "C_products.tile": 2, "C_pad.x": 3, "block10.y": 4, "free": 5}
    assert renamed(found, ("C", "C_pad"), ("a", "b")) == {
        "a.tile": 1, "a_products.tile": 2, "b.x": 3, "block10.y": 4, "free": 5
    }  # fmt: skip


def test_json_lines_go_from_one_file_to_another(database, tmp_path):
    database.add(record(), record(0.5, is_winner=True), Record(workload(m=7), {}, Measurement("timeout", reason="1 s")))
    assert database.export(tmp_path / "t.jsonl") == 3
    other = Database(tmp_path / "other.db")
    assert other.load(tmp_path / "t.jsonl") == 3 and other.load(tmp_path / "t.jsonl") == 0
    assert other.records() == database.records()
    other.add(record(0.1))
    assert database.merge(other) == 1 and len(database) == 4


LINE = json.loads(replace(record(), hardware="x").line())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("{", "no JSON"),
        ("[1]", "an object is needed, not list"),
        ({"threads": "2"}, "threads is '2', an integer is needed"),
        ({"threads": True}, "threads is True, an integer is needed"),
        ({"is_winner": 1}, "is_winner is 1, true or false is needed"),
        ({"decisions": []}, r"decisions is \[\], an object is needed"),
        ({"samples": None}, "samples is None, a list is needed"),
        ({"samples": ["1"]}, "samples must be seconds, numbers of 0 or more"),
        ({"samples": []}, "status 'ok' with 0 samples"),
        ({"status": "fine"}, "status 'fine' is none of ok, refused, wrong, crashed, timeout, memory"),
        ({"at": "now"}, "at is 'now', a number is needed"),
        ({"workload": "import os"}, "the workload cannot be read: line 1"),
        ({"workload": LINE["workload"].replace("block0", "C")}, "not in the canonical form"),
        ({"target": "toaster"}, "the workload cannot be read: target text 'toaster'"),
        ({"reason": ...}, "reason is missing, text is needed"),
    ],
)
def test_a_line_that_is_no_record(change, message, database, tmp_path):
    fields = {**LINE, **change} if isinstance(change, dict) else None
    line = change if fields is None else json.dumps({name: each for name, each in fields.items() if each is not ...})
    (tmp_path / "bad.jsonl").write_text(json.dumps(LINE) + "\n\n" + line + "\n")
    with pytest.raises(TuningError, match=f"bad.jsonl, line 3: .*{message}"):
        database.load(tmp_path / "bad.jsonl")
    assert len(database) == 0  # nothing of a file with an error


def test_files_that_are_none(database, tmp_path):
    with pytest.raises(TuningError, match="none.jsonl: .*No such file"):
        database.load(tmp_path / "none.jsonl")
    with pytest.raises(TuningError, match="unable to open database file"):
        Database(tmp_path / "no" / "t.db")
    text = tmp_path / "text.db"
    text.write_text("some text, which is no database\n" * 99)
    with pytest.raises(TuningError, match="text.db: file is not a database"):
        Database(text)
    assert text.read_text().startswith("some text")
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE mine (x)")
    with pytest.raises(TuningError, match="foreign.db: the database of another program; choose another file"):
        Database(foreign)
    database.add(record())
    with sqlite3.connect(database.path) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    with pytest.raises(TuningError, match="of version 2, this one reads up to 1; upgrade tensorc"):
        Database(database.path)


WRITER = """
import sys
from tests.autotune.test_database import record
from autotune.database import Database
database = Database(sys.argv[1])
print("ready", flush=True)
for number in range(int(sys.argv[2])):
    database.add(record(1.0 + number), record(2.0 + number))
"""


def writer(path: Path, count: int) -> subprocess.Popen:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-c", WRITER, path, str(count)], env=env, stdout=subprocess.PIPE)


def test_processes_write_at_once(tmp_path):
    writers = [writer(tmp_path / "t.db", 20) for _ in range(3)]  # of which one makes the file
    assert [each.wait(60) for each in writers] == [0, 0, 0]
    assert len(Database(tmp_path / "t.db")) == 120


def test_a_process_is_killed_while_it_writes(tmp_path):
    killed = writer(tmp_path / "t.db", 100_000)
    assert killed.stdout is not None and killed.stdout.readline() == b"ready\n"
    time.sleep(0.2)
    killed.send_signal(signal.SIGKILL)
    killed.wait(60)
    database = Database(tmp_path / "t.db")
    count = len(database)
    assert count > 0 and count % 2 == 0  # what is added together is there together
    database.add(record())
    assert len(database.records()) == count + 1
    with sqlite3.connect(database.path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_it_is_used_by_threads(database):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: database.add(record(1.0 + n)), range(20)))
    assert len(database) == 20 and as_target(None).text == database.records()[0].workload.target
