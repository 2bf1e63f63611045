"""`pytest -p tests.resume`: a run that was cut short goes on where it stopped.

Tests that passed are remembered under a hash of the sources; a change of any file starts afresh.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("tensorc", "autotune", "benchmarks", "examples", "tests")


def _sources() -> str:
    digest = hashlib.sha256()
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


class Resume:
    """Deselects what passed before, and writes down what passes now."""

    def __init__(self, config: pytest.Config):
        self.file = Path(config.cache.mkdir("resume")) / _sources()
        self.passed = set(self.file.read_text().splitlines()) if self.file.exists() else set()
        self.called: set[str] = set()

    def pytest_collection_modifyitems(self, config, items):
        done = [item for item in items if item.nodeid in self.passed]
        if done:
            config.hook.pytest_deselected(items=done)
            items[:] = [item for item in items if item.nodeid not in self.passed]

    def pytest_sessionfinish(self, session, exitstatus):
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.passed:
            session.exitstatus = pytest.ExitCode.OK

    def pytest_runtest_logreport(self, report):
        if report.when == "call" and report.passed:
            self.called.add(report.nodeid)
        elif report.when == "teardown" and report.passed and report.nodeid in self.called:
            with self.file.open("a") as file:
                file.write(f"{report.nodeid}\n")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Resume(config))
