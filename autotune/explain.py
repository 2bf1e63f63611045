"""How a recorded schedule differs from the default one."""

from __future__ import annotations

from autotune.database import Record
from autotune.progress import duration
from autotune.space import Space
from tensorc.errors import ScheduleError
from tensorc.schedule import Trace
from tensorc.target import Target


def explain(record: Record) -> str:
    """The workload, the knobs that differ from the default's, the time and the steps, as text."""
    workload = record.workload
    target = Target.parse(workload.target)
    space = Space(workload.function, target, workload.threads)
    default = space.draft()
    known = {} if default is None else default.decisions
    lines = [workload.text.splitlines()[0], f"{workload.threads} thread(s) of {target.mcpu}: {_time(record)}"]
    changed = [name for name in record.decisions if record.decisions[name] != known.get(name)]
    for name in changed:
        lines.append(f"  {name}: {record.decisions[name]!r}, by default {known.get(name, 'not asked')!r}")
    lines += [] if changed else ["  as the default schedule"]
    return "\n".join([*lines, *_steps(record, space)])


def _time(record: Record) -> str:
    if not record.measurement.samples:
        return f"{record.measurement.status}: {record.measurement.reason}"
    return f"{duration(record.measurement.seconds)}, spread {record.measurement.spread:.1%}"


def _steps(record: Record, space: Space) -> list[str]:
    """The schedule as Python."""
    try:
        trace = Trace.from_json(record.trace) if record.trace else space.schedule(record.decisions).trace
    except ScheduleError as error:
        return [f"  the recipes do not take it any more: {error}"]
    return [f"    {line}" for line in trace.python().splitlines()]
