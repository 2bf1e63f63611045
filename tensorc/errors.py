"""The errors that users meet; one sentence each: what was asked, what is wrong, what would be right."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

__all__ = [
    "ArgumentError",
    "ExpressionError",
    "InternalError",
    "ScheduleError",
    "TargetError",
    "TensorcError",
    "TuningError",
    "UnsupportedError",
    "failure",
]


class TensorcError(Exception):
    """Base of every error that tensorc raises on purpose."""

    __notes__: list[str]  # set where there are any; tracebacks print them from Python 3.11 on


class ExpressionError(TensorcError):
    """The definition of a tensor expression is wrong."""


class ScheduleError(TensorcError):
    """A schedule step is not legal at this place; the schedule is left as it was.

    `nest` is the printed nest with the place marked; it is a note of the error, too.
    """

    nest: str = ""

    def _repr_html_(self) -> str:
        shown = getattr(self.nest, "_repr_html_", lambda: "")()
        return f"<b>{type(self).__name__}</b>: {escape(str(self))}{shown}"


class UnsupportedError(TensorcError):
    """A legal program that this target cannot run."""


class TargetError(TensorcError):
    """The target does not exist, or its hardware is not here."""


class ArgumentError(TensorcError):
    """The arguments of a call do not fit the kernel; nothing was written."""


class TuningError(TensorcError):
    """A tuning session cannot go on."""


class InternalError(TensorcError):
    """A bug of tensorc; the message names a file that holds the function at fault."""


def failure(message: str, value: int, at: Sequence[int]) -> str:
    """What a failed check says: its message with the value and the places put in (see `ir.stmt.Check`)."""
    if "{value}" not in message:
        return f"{message}: {value}"
    text = message.replace("{value}", str(value))
    for number, place in enumerate(at):
        text = text.replace(f"{{{number}}}", str(place))
    return text
