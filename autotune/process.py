"""Worker processes as their caller sees them: asked for one thing at a time, replaced when they end."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping
from typing import Any

from autotune.bench import Reply, Setup
from tensorc.errors import TuningError

STARTING = 60.0  # seconds that a process may take until it is ready
GRACE = 2.0  # seconds after which a process that should have ended itself is ended
NO_MEMORY = ("bad_alloc", "out of memory", "cannot allocate memory", "memoryerror")  # among last words


class Worker:
    """A process of `autotune.worker`; where it has ended, the next request starts another.

    It has a session of its own, so that Ctrl-C reaches the caller alone, and it ends when its caller does.
    """

    def __init__(self, setup: Setup, environment: Mapping[str, str] | None = None) -> None:
        self._setup = setup
        self.is_busy = False  # an answer is due
        self._is_ready = self._was_asked = False
        self._seconds = self._until = 0.0
        self._rest = b""
        self._environment = {**os.environ, **(environment or {}), "PYTHONPATH": os.pathsep.join(_path())}
        self._start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_new(self) -> bool:
        """Whether the next request is the first of its process."""
        return not self._was_asked or self._process.poll() is not None

    def fileno(self) -> int:
        return self._output.fileno()

    def ask(self, seconds: float, **request: Any) -> None:
        """Send a request that may take so long; `reply` gives the answer."""
        if self._process.poll() is not None:
            self._start()
        self._was_asked = self.is_busy = True
        self._seconds = seconds
        self._until = time.monotonic() + seconds + (GRACE if self._is_ready else STARTING)
        self._send(json.dumps({**request, "seconds": seconds}))

    def reply(self) -> Reply | None:
        """The answer, if there is one by now. Raises TuningError for a process that never became ready."""
        while self.is_busy and select.select([self], [], [], 0)[0]:
            data = os.read(self.fileno(), 1 << 16)
            if not data:
                return self._ended()
            *lines, self._rest = (self._rest + data).split(b"\n")
            for reply in map(json.loads, lines):
                if "ready" not in reply:
                    self.is_busy = False
                    return reply
                self._is_ready = True
                self._until = min(self._until, time.monotonic() + self._seconds + GRACE)
        if self.is_busy and time.monotonic() > self._until:
            self.stop()
            return {"status": "timeout", "reason": self._late}
        return None

    def stop(self) -> None:
        """End the process, whatever it does."""
        self.is_busy = False
        with contextlib.suppress(OSError):
            self._input.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        self._output.close()
        self._errors.close()

    def _start(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "autotune.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._errors, cwd=self._setup.folder, env=self._environment, start_new_session=True, bufsize=0,
        )  # fmt: skip
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        self._rest = b""
        self._is_ready = self._was_asked = self.is_busy = False
        self._send(self._setup.line())

    def _send(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # its end is its answer
            left = memoryview(line.encode() + b"\n")
            while left:
                left = left[self._input.write(left) :]

    @property
    def _late(self) -> str:
        return f"it gave no answer within {self._seconds:.3g} seconds"

    def _ended(self) -> Reply:
        """Why the process is no more, as an answer."""
        code = self._process.wait()
        words = self._last_words()
        self.stop()
        name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        if not self._is_ready:
            raise TuningError(f"a worker process ended by {name} before it was ready: {words or 'it said nothing'}")
        if -code == signal.SIGALRM:
            return {"status": "timeout", "reason": self._late}
        if any([sign in words.lower() for sign in NO_MEMORY]):
            return {"status": "memory", "reason": f"it needs more memory than there is: {words}"}
        if -code == signal.SIGKILL:
            return {"status": "memory", "reason": "its process was killed, as the system does where memory runs out"}
        return {"status": "crashed", "reason": f"its process ended by {name}{words and ': '}{words}"}

    def _last_words(self) -> str:
        """The last line that the process wrote to its standard error."""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - 4096))
        lines = self._errors.read().decode(errors="replace").split("\n")
        return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")


def _path() -> list[str]:
    """Where this process finds modules, for one that runs elsewhere."""
    return [os.path.abspath(folder or os.curdir) for folder in sys.path]


def wait(workers: Collection[Worker]) -> None:
    """Until one of the workers may have answered, or is late."""
    busy = [worker for worker in workers if worker.is_busy]
    if busy:
        select.select(busy, [], [], 0.2)
