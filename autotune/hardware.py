"""The machine that measured, as text: times are compared only where it is the same."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

from tensorc.target import Target


@cache
def hardware() -> str:
    """The processor's name, and its target: features, caches and cores."""
    return f"{_processor()}; {Target.host().text}"


def _processor() -> str:
    known = Path("/proc/cpuinfo")
    if known.exists():
        for line in known.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "Processor", "uarch"):
                return value.strip()
    return platform.processor() or platform.machine()
