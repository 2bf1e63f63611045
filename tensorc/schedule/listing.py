"""The text of a nest with places in it: plain as a value, highlighted in a terminal and in a notebook."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from difflib import SequenceMatcher
from html import escape

_NAMED = re.compile(r">?\s*(?:for|block|alloc)\s+([^\s:]+)")  # the loop, block or buffer that a line begins
_QUOTED = re.compile(r"'([^\s']+)'")
_COLOURS = {"new": ("\x1b[32m", "#e6ffec"), "fault": ("\x1b[31;1m", "#ffd7d5"), "related": ("\x1b[33m", "#fff8c5")}
_PLAIN = "\x1b[0m"


class Listing(str):
    """Text whose lines may be "new" (made or changed by a step), at "fault" or "related" to it.

    It is a plain string in every respect but two: printed to a terminal, these lines have colours (unless NO_COLOR is
    set), and a notebook shows it as HTML.
    """

    _find: Callable[[], dict[int, str]]

    def __new__(cls, text: str, find: Callable[[], dict[int, str]]) -> Listing:
        new = super().__new__(cls, text)
        new._find = find
        return new

    @property
    def places(self) -> dict[int, str]:
        """What there is to say of lines, by their number from 0."""
        return self._find()

    def __str__(self) -> str:
        plain = str.__str__(self)
        return self.ansi() if "NO_COLOR" not in os.environ and _is_terminal() else plain

    def __format__(self, spec: str) -> str:
        return format(str.__str__(self), spec)  # a part of another text, which may go anywhere

    def ansi(self) -> str:
        """The text with the colours of a terminal."""
        places = self.places
        lines = self.split("\n")
        for number, kind in places.items():
            lines[number] = f"{_COLOURS[kind][0]}{lines[number]}{_PLAIN}"
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        places = self.places
        lines = []
        for number, line in enumerate(self.split("\n")):
            kind = places.get(number)
            text = escape(line)
            lines.append(text if kind is None else f'<span style="background:{_COLOURS[kind][1]}">{text}</span>')
        return f"<pre>{chr(10).join(lines)}</pre>"


def _is_terminal() -> bool:
    stream = sys.stdout
    return stream is not None and hasattr(stream, "isatty") and stream.isatty()


def after_step(text: str, before: Callable[[], str] | None) -> Listing:
    """The text of a nest, with the lines that are not in the one before; none without one."""

    def find() -> dict[int, str]:
        if before is None:
            return {}
        old, new = ([line.strip() for line in each.split("\n")] for each in (before(), text))
        matcher = SequenceMatcher(None, old, new, autojunk=False)
        kept = {b + n for _, b, size in matcher.get_matching_blocks() for n in range(size)}
        return {number: "new" for number in range(len(new)) if number not in kept}

    return Listing(text, find)


def of_refusal(text: str, message: str) -> Listing:
    """The text of a nest with one line marked by `>`, and underlines where that and what a message names begin."""
    named = set(_QUOTED.findall(message))
    lines: list[str] = []
    places: dict[int, str] = {}
    for line in text.split("\n"):
        found = _NAMED.match(line)
        kind = "fault" if line.startswith(">") else "related" if found and found[1] in named else None
        lines.append(line)
        if kind is None:
            continue
        places[len(lines) - 1] = kind
        if found:
            places[len(lines)] = kind
            lines.append(" " * found.start(1) + "^" * len(found[1]))
    return Listing("\n".join(lines), lambda: places)
