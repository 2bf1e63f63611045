"""What kinds of things the programs of a run held, by their text: so that nothing is missing unseen."""

from __future__ import annotations

import re
from collections import Counter

from tensorc import te
from tests.fuzz.programs import FLOATS, INTEGERS, Case, External, Scan, Stage, Update, source

_CALL = re.compile(r"te\.(\w+)\(")
_NOT_DRAWN = ("Tensor", "canonical_text", "lower", "symbols", "var", "placeholder", "compute")
FUNCTIONS = tuple([name for name in te.__all__ if name not in _NOT_DRAWN])
DTYPES = ("bool", *INTEGERS, *FLOATS)
OPERATORS = ("//", "%", "&", "|", "^", "<<", ">>", "**", "~", "/")
KINDS = (
    "stage", "tuple", "scan", "scan of two", "update", "update where", "function", "ragged",
    "ragged by data", "where=", "init=", "own reducer", "gather", "stray index", "wrapping guard",
    "promise", "symbolic", "symbolic of several", "extent 0", "extent 1", "several outputs",
    "half type", "mixed types", "threads",
)  # fmt: skip


def held(case: Case) -> Counter[str]:
    """One of each kind of thing that a case holds."""
    text = source(case.program)
    found = {f"te.{name}" for name in _CALL.findall(text)}
    types = {each.dtype for each in case.program.inputs}
    types |= {dtype for stage in case.program.stages for _, dtype in stage.made()}
    found |= types | {name for name in KINDS if _has(name, case, text, types)}
    found |= {each for each in OPERATORS if f" {each} " in text or (each == "~" and "(~" in text)}
    return Counter(found)


def _has(name: str, case: Case, text: str, types: set[str]) -> bool:
    program = case.program
    stages, values = program.stages, {each.values.partition(" ")[0] for each in program.inputs}
    plain = [each for each in stages if type(each) is Stage]
    ranges = [extent for each in plain for _, extent in each.reduce_axes if extent[0] == "("]
    sizes = {value for _, value in program.dims}
    updates = [each for each in stages if type(each) is Update]
    scans = [each for each in stages if type(each) is Scan]
    return {
        "stage": bool(plain),
        "tuple": any(each.parts for each in plain),
        "scan": bool(scans),
        "scan of two": any(len(each.parts) > 1 for each in scans),
        "update": bool(updates),
        "update where": any(each.where is not None for each in updates),
        "function": any(type(each) is External for each in stages),
        "ragged": bool(ranges),
        "ragged by data": any("[" in each for each in ranges),
        "where=": "where=" in text,
        "init=": "init=" in text,
        "own reducer": "comm_reducer" in text,
        "gather": bool(values & {"below", "stray", "edges"}),
        "stray index": "stray" in values,
        "wrapping guard": "edges" in values,
        "promise": "te.assume" in text,
        "symbolic": bool(program.symbolic),
        "symbolic of several": len(program.symbolic) > 1,
        "extent 0": 0 in sizes or any(0 in dict(dims).values() for dims in case.others),
        "extent 1": 1 in sizes or any(1 in dict(dims).values() for dims in case.others),
        "several outputs": len(program.outputs) > 1,
        "half type": bool(types & {"float16", "bfloat16"}),
        "mixed types": len(types) > 1,
        "threads": case.threads > 1,
    }[name]


def table(counts: Counter[str]) -> str:
    """How many programs held each kind of thing, and what none did."""
    functions = [f"te.{name}" for name in FUNCTIONS]
    groups = (
        ("kinds", KINDS),
        ("types", DTYPES),
        ("operators", OPERATORS),
        ("functions", functions),
    )
    lines = []
    for title, names in groups:
        told = ", ".join([f"{name} {counts[name]}" for name in names if counts[name]])
        lines.append(f"{title}: {told}")
    never = [name for _, names in groups for name in names if not counts[name]]
    lines.append(f"never: {', '.join(never) or 'nothing'}")
    return "\n".join(lines)
