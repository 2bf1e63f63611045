"""The database of tunings: one SQLite file with what was tried, on which machine, and what came of it.

Several processes may write at once, and any of them may be killed at any moment: what was added is there, or not at
all. A record holds text and numbers; nothing in it is executed or unpickled. As JSON lines it goes from one file to
another.
"""

from __future__ import annotations

import json
import math
import os
import re
import sqlite3
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from autotune.hardware import hardware
from autotune.naming import block_names, renamed
from autotune.record import STATUSES, Measurement, Workload
from tensorc.errors import ExpressionError, ScheduleError, TargetError, TuningError
from tensorc.ir.function import Function
from tensorc.runtime import compiler_version
from tensorc.schedule import Planner, Trace
from tensorc.schedule.knobs import Decisions, Replay
from tensorc.schedule.recipes.custom import registered
from tensorc.target import Target
from tensorc.version import __version__

APPLICATION = 0x74756E65  # marks the file as ours
VERSION = 1
BUSY_SECONDS = 60.0  # that a writer waits for another one
NEAREST = 4  # neighbours to start from
_NUMBER = re.compile(r"\b\d+\b")

_SCHEMA = """
CREATE TABLE workloads (
    id INTEGER PRIMARY KEY,
    hash TEXT NOT NULL UNIQUE,
    structure TEXT NOT NULL,
    text TEXT NOT NULL
);
CREATE INDEX by_structure ON workloads (structure);
CREATE TABLE records (
    id INTEGER PRIMARY KEY,
    workload INTEGER NOT NULL REFERENCES workloads (id),
    target TEXT NOT NULL,
    threads INTEGER NOT NULL,
    hardware TEXT NOT NULL,
    decisions TEXT NOT NULL,
    trace TEXT NOT NULL,
    origin TEXT NOT NULL,
    status TEXT NOT NULL,
    reason TEXT NOT NULL,
    seconds REAL,
    samples TEXT NOT NULL,
    compile_seconds REAL NOT NULL,
    at REAL NOT NULL,
    is_winner INTEGER NOT NULL,
    version TEXT NOT NULL,
    compiler TEXT NOT NULL,
    created TEXT NOT NULL
);
CREATE INDEX by_workload ON records (workload, target, threads, hardware, is_winner, seconds);
"""


@dataclass(frozen=True, slots=True)
class Record:
    """One measured schedule.

    `decisions` name blocks as the workload's text does. `trace` is the schedule's steps as JSON, empty where they were
    not kept; `at` seconds since its tuning began, `is_winner` tells that it was measured again, against the others and
    the default, and won.
    """

    workload: Workload
    decisions: Mapping[str, Any]
    measurement: Measurement
    hardware: str = ""
    trace: str = ""
    origin: str = "default"
    at: float = 0.0
    is_winner: bool = False
    version: str = ""
    compiler: str = ""
    created: str = ""

    def line(self) -> str:
        """One line of JSON, for `Record.read`."""
        m = self.measurement
        return json.dumps({
            "workload": self.workload.text, "target": self.workload.target, "threads": self.workload.threads,
            "hardware": self.hardware, "decisions": dict(self.decisions), "trace": self.trace, "origin": self.origin,
            "status": m.status, "reason": m.reason, "samples": list(m.samples), "compile_seconds": m.compile_seconds,
            "at": self.at, "is_winner": self.is_winner, "version": self.version, "compiler": self.compiler,
            "created": self.created,
        })  # fmt: skip

    @staticmethod
    def read(line: str) -> Record:
        """A record from its line. Raises TuningError where it is none."""
        try:
            fields = json.loads(line)
        except ValueError as error:
            raise TuningError(f"no JSON: {error}") from None
        if not isinstance(fields, dict):
            raise TuningError(f"an object is needed, not {type(fields).__name__}")
        for name, kind in _FIELDS.items():
            value = fields.get(name)
            is_bool = isinstance(value, bool)
            if name not in fields or not isinstance(value, kind) or (is_bool and kind is not bool):
                told = "missing" if name not in fields else repr(value)
                raise TuningError(f"{name} is {told}, {_told(kind)} is needed")
        if fields["status"] not in STATUSES:
            raise TuningError(f"status {fields['status']!r} is none of {', '.join(STATUSES)}")
        samples = fields["samples"]
        if not all(type(each) in (int, float) and each >= 0 and math.isfinite(each) for each in samples):
            raise TuningError("samples must be seconds, numbers of 0 or more")
        if (fields["status"] == "ok") != bool(samples):
            raise TuningError(f"status {fields['status']!r} with {len(samples)} samples: those that are ok have some")
        workload = Workload(fields["workload"], fields["target"], fields["threads"])
        try:
            again = Workload.of(workload.function, Target.parse(workload.target), workload.threads)
        except (ExpressionError, TargetError) as error:
            raise TuningError(f"the workload cannot be read: {error}") from error
        if again.text != workload.text:
            raise TuningError("the workload is not in the canonical form")
        measurement = Measurement(fields["status"], tuple(samples), fields["reason"], float(fields["compile_seconds"]))
        kept = ("hardware", "trace", "origin", "is_winner", "version", "compiler", "created")
        rest = {name: fields[name] for name in kept}
        return Record(workload, _answers(fields["decisions"]), measurement, at=float(fields["at"]), **rest)


_FIELDS: dict[str, Any] = {
    "workload": str, "target": str, "threads": int, "hardware": str, "decisions": dict, "trace": str, "origin": str,
    "status": str, "reason": str, "samples": list, "compile_seconds": (int, float), "at": (int, float),
    "is_winner": bool, "version": str, "compiler": str, "created": str,
}  # fmt: skip


def _told(kind: Any) -> str:
    return "a number" if isinstance(kind, tuple) else {str: "text", int: "an integer", bool: "true or false"}.get(
        kind, "a list" if kind is list else "an object"
    )


def _answers(decisions: Mapping[str, Any]) -> dict[str, Any]:
    """Decisions as they were before JSON made lists of tuples."""
    return {name: tuple(answer) if isinstance(answer, list) else answer for name, answer in decisions.items()}


class Database:
    """The records in a file, which is made where there is none.

    As `schedules=` of `tc.build`, it gives the best schedule that was measured on this kind of machine. Raises
    TuningError where the file is no database of tunings, or of a newer version.
    """

    def __init__(self, path: str | os.PathLike) -> None:
        self.path = Path(path)
        self._local = threading.local()
        with self._open() as connection:
            self._prepare(connection)

    def __len__(self) -> int:
        with self._open() as connection:
            return connection.execute("SELECT count(*) FROM records").fetchone()[0]

    def __repr__(self) -> str:
        return f"Database({str(self.path)!r})"

    def add(self, *records: Record) -> None:
        """Keep records, all of them or none; what a record does not tell of the machine, the version and the time is
        that of here and now."""
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        with self._open() as connection, _transaction(connection):
            for record in records:
                self._insert(connection, _completed(record, now))

    def records(
        self, workload: Workload | None = None, *, machine: str | None = None, winners: bool = False
    ) -> list[Record]:
        """What there is, in the order in which it was added; of a workload, a machine, or the winners only."""
        where, values = _conditions(workload, machine)
        if winners:
            where.append("is_winner")
        told = f" WHERE {' AND '.join(where)}" if where else ""
        with self._open() as connection:
            rows = connection.execute(f"{_SELECT}{told} ORDER BY records.id", values).fetchall()
        return [_record(row) for row in rows]

    def best(self, workload: Workload, machine: str | None = None, count: int = 1) -> list[Record]:
        """The quickest of what ran, those first that were measured against others."""
        where, values = _conditions(workload, machine or hardware())
        told = f" WHERE {' AND '.join(where)} AND status = 'ok'"
        order = " ORDER BY is_winner DESC, seconds, records.id DESC LIMIT ?"
        with self._open() as connection:
            rows = connection.execute(f"{_SELECT}{told}{order}", (*values, count)).fetchall()
        return [_record(row) for row in rows]

    def nearest(self, workload: Workload, machine: str | None = None, count: int = NEAREST) -> list[Record]:
        """The best records of other workloads that are like this one: of the same loops with other extents, the
        nearest first, then of those that begin with the same loops, as with another epilogue."""
        wanted, extents = _structure(workload.text), _extents(workload.text)
        with self._open() as connection:
            known = connection.execute(
                "SELECT DISTINCT workloads.text FROM records JOIN workloads ON workloads.id = records.workload"
                " WHERE target = ? AND threads = ? AND hardware = ? AND status = 'ok' AND hash != ?",
                (workload.target, workload.threads, machine or hardware(), workload.hash),
            ).fetchall()
        ranked = []
        for (text,) in known:
            if _structure(text) == wanted:
                ranked.append((0, _distance(extents, _extents(text)), text))
            elif (shared := _shared(text, workload.text)) is not None:
                ranked.append((1, shared, text))
        found = [self.best(Workload(text, workload.target, workload.threads), machine) for *_, text in sorted(ranked)]
        return [records[0] for records in found if records][:count]

    def lookup(self, function: Function, target: Target, threads: int) -> Decisions | Trace | None:
        """The decisions of the best record for an unscheduled function on this machine; None where there is none.

        A record whose decisions the recipes do not take any more is left out, with a warning.
        """
        workload = Workload.of(function, target, threads)
        for record in self.best(workload, count=3):
            decisions = renamed(record.decisions, block_names(workload.function), block_names(function))
            try:
                Planner(function, target, threads, registered()).schedule(Replay(decisions))
            except ScheduleError as error:
                warnings.warn(f"{self.path.name}: a record of {function.name} no longer fits: {error}", stacklevel=2)
                continue
            return decisions
        return None

    def export(self, path: str | os.PathLike) -> int:
        """Write all records as JSON lines; how many."""
        records = self.records()
        temporary = Path(f"{path}.part")
        with temporary.open("w") as file:
            file.writelines(f"{record.line()}\n" for record in records)
        temporary.replace(path)
        return len(records)

    def load(self, path: str | os.PathLike) -> int:
        """Add the records of a file of JSON lines, without those that are there; how many were new.

        Raises TuningError, with the number of the line, for the first that is no record; nothing is added then.
        """
        found = []
        try:
            with open(path, encoding="utf-8") as file:
                for number, line in enumerate(file, 1):
                    if line.strip():
                        found.append(_numbered(line, f"{path}, line {number}"))
        except (OSError, UnicodeDecodeError) as error:
            raise TuningError(f"{path}: {error}") from error
        return self._merge(found)

    def merge(self, other: Database) -> int:
        """Add the records of another database, without those that are there; how many were new."""
        return self._merge(other.records())

    def close(self) -> None:
        """Close the file in this thread."""
        known = self._local.__dict__.pop("connection", None)
        if known is not None:
            known[1].close()

    def _merge(self, records: Iterable[Record]) -> int:
        with self._open() as connection, _transaction(connection):
            known = {_record(row).line() for row in connection.execute(_SELECT)}
            new = {record.line(): record for record in records}
            for line, record in new.items():
                if line not in known:
                    self._insert(connection, record)
        return len(new.keys() - known)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """This thread's connection; what SQLite refuses is told as what it is."""
        known = getattr(self._local, "connection", None)
        try:
            if known is None or known[0] != os.getpid():  # a connection does not survive a fork
                connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
                self._local.connection = known = (os.getpid(), connection)
            yield known[1]
        except sqlite3.Error as error:
            raise TuningError(f"{self.path}: {error}") from error

    def _prepare(self, connection: sqlite3.Connection) -> None:
        with _transaction(connection):  # of two that make the file, one waits and finds it made
            mark = connection.execute("PRAGMA application_id").fetchone()[0]
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            is_new = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
            if is_new and mark == 0:
                for statement in _SCHEMA.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {APPLICATION}")
                connection.execute(f"PRAGMA user_version = {VERSION}")
            elif mark != APPLICATION:
                raise TuningError(f"{self.path}: the database of another program; choose another file")
            elif version > VERSION:
                raise TuningError(f"{self.path}: of version {version}, this one reads up to {VERSION}; upgrade tensorc")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")

    def _insert(self, connection: sqlite3.Connection, record: Record) -> None:
        workload, m = record.workload, record.measurement
        row = (workload.hash, _structure(workload.text), workload.text)
        connection.execute("INSERT OR IGNORE INTO workloads (hash, structure, text) VALUES (?, ?, ?)", row)
        (key,) = connection.execute("SELECT id FROM workloads WHERE hash = ?", (workload.hash,)).fetchone()
        seconds = None if math.isinf(m.seconds) else m.seconds
        values = (
            key, workload.target, workload.threads, record.hardware, json.dumps(dict(record.decisions)), record.trace,
            record.origin, m.status, m.reason, seconds, json.dumps(list(m.samples)), m.compile_seconds, record.at,
            record.is_winner, record.version, record.compiler, record.created,
        )  # fmt: skip
        connection.execute(f"INSERT INTO records VALUES (NULL{', ?' * len(values)})", values)


_SELECT = (
    "SELECT workloads.text, target, threads, decisions, status, samples, reason, compile_seconds, hardware, trace,"
    " origin, at, is_winner, version, compiler, created"
    " FROM records JOIN workloads ON workloads.id = records.workload"
)


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _conditions(workload: Workload | None, machine: str | None) -> tuple[list[str], tuple[Any, ...]]:
    where: list[str] = []
    values: list[Any] = []
    if workload is not None:
        where += ["hash = ?", "target = ?", "threads = ?"]
        values += [workload.hash, workload.target, workload.threads]
    if machine is not None:
        where.append("hardware = ?")
        values.append(machine)
    return where, tuple(values)


def _record(row: Sequence[Any]) -> Record:
    text, target, threads, decisions, status, samples, reason, compile_seconds, *rest = row
    measurement = Measurement(status, tuple(json.loads(samples)), reason, compile_seconds)
    machine, trace, origin, at, is_winner, version, compiler, created = rest
    return Record(
        Workload(text, target, threads), _answers(json.loads(decisions)), measurement, machine, trace, origin, at,
        bool(is_winner), version, compiler, created,
    )  # fmt: skip


def _completed(record: Record, now: str) -> Record:
    return replace(
        record,
        hardware=record.hardware or hardware(),
        version=record.version or __version__,
        compiler=record.compiler or compiler_version(),
        created=record.created or now,
    )


def _numbered(line: str, place: str) -> Record:
    try:
        return Record.read(line)
    except TuningError as error:
        raise TuningError(f"{place}: {error}") from error


def _structure(text: str) -> str:
    """A workload without its numbers: which loops, not how long."""
    return _NUMBER.sub("#", text)


def _extents(text: str) -> list[int]:
    return [int(number) for number in _NUMBER.findall(text)]


def _distance(one: Sequence[int], other: Sequence[int]) -> float:
    """How far two lists of extents are apart, in octaves."""
    return sum([abs(math.log2((a + 1) / (b + 1))) for a, b in zip(one, other)])


def _shared(one: str, other: str) -> float | None:
    """How far two workloads are apart that begin with the same loops around their first reduction; None where they do
    not."""
    parts = [_first_reduction(each) for each in (one, other)]
    if not all(parts) or _structure(parts[0]) != _structure(parts[1]):
        return None
    return _distance(_extents(parts[0]), _extents(parts[1]))


def _first_reduction(text: str) -> str:
    """The loops of a workload up to its first reduction: the lines from the outermost loop to the update."""
    lines = text.splitlines()
    at = next((number for number, line in enumerate(lines) if line.lstrip().startswith("reduce ")), None)
    if at is None:
        return ""
    first = max([number for number in range(at) if lines[number].startswith("  for ")], default=at)
    last = next((n for n in range(at, len(lines)) if not lines[n].startswith("    ")), len(lines))
    names: dict[str, str] = {}
    return re.sub(r"\b[bv]\d+\b", lambda m: names.setdefault(m[0], f"x{len(names)}"), "\n".join(lines[first:last]))
