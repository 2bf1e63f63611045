"""The steps of a schedule as a value: printed as Python, kept as JSON, performed again.

`PRIMITIVES` is the table of all steps: for each its pure function and what its arguments are.
"""

from __future__ import annotations

import inspect
import json
import keyword
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import numpy as np

from tensorc.arith import IndexMap
from tensorc.errors import ExpressionError, ScheduleError
from tensorc.ir.expr import Add, Const, FloorDiv, Mod, Mul, Neg, Sub, Var, as_index
from tensorc.ir.function import Function
from tensorc.ir.parser import parse_expr
from tensorc.ir.printer import show
from tensorc.ir.walk import walk_expr
from tensorc.schedule.locate import restated
from tensorc.schedule.primitives.annotations import (
    add_unit_loop,
    annotate,
    reorder_block_iters,
    unannotate,
)
from tensorc.schedule.primitives.binding import bind
from tensorc.schedule.primitives.blocking import blockize
from tensorc.schedule.primitives.caching import cache_read, cache_write
from tensorc.schedule.primitives.domains import transform_block_layout
from tensorc.schedule.primitives.inlining import compute_inline, reverse_compute_inline
from tensorc.schedule.primitives.layout import transform_layout
from tensorc.schedule.primitives.loops import fuse, parallel, reorder, split, unroll, vectorize
from tensorc.schedule.primitives.memory import prefetch, stream
from tensorc.schedule.primitives.padding import decompose_padding, pad_einsum
from tensorc.schedule.primitives.placement import compute_at, reverse_compute_at
from tensorc.schedule.primitives.reduction import decompose_reduction
from tensorc.schedule.primitives.reindexing import (
    reindex,
    reindex_cache_read,
    reindex_cache_write,
)
from tensorc.schedule.primitives.rfactor import rfactor
from tensorc.schedule.primitives.rolling import rolling_buffer
from tensorc.schedule.primitives.siblings import compute_with, fission, merge
from tensorc.schedule.primitives.staging import stage
from tensorc.schedule.primitives.storage import set_scope, storage_align
from tensorc.schedule.primitives.substitution import substitute
from tensorc.schedule.primitives.tensorize import tensorize
from tensorc.schedule.primitives.versions import loop_partition, specialize
from tensorc.schedule.scopes import perform_at

VERSION = 1


@dataclass(frozen=True, slots=True)
class Primitive:
    """A kind of step: the pure function, the names and kinds of its arguments, and the kind of what
    it makes.

    Kinds of arguments: "loop", "block" and "place", which is either (names), "loops" (a tuple of
    them), "factors" (integers and None), "numbers" (a tuple of integers), "number" (or None), "buffer"
    (a name, or the number of a read), "word" (a string), "text" (a string
    or None), "value" (a number, string or bool), "map"
    (the text of an index map).
    """

    call: Callable
    arguments: tuple[tuple[str, str], ...]
    makes: str | None = None
    defaults: tuple[tuple[str, Any], ...] = ()
    inside: Callable | None = None  # in its place for what is in a block, if another


_MAPPED_CACHE = (
    ("block", "block"), ("buffer", "buffer"), ("scope", "word"), ("index_map", "map"),
)  # fmt: skip

PRIMITIVES: Mapping[str, Primitive] = {
    "split": Primitive(
        split,
        (("loop", "loop"), ("factors", "factors"), ("tail", "word")),
        makes="loops",
        defaults=(("tail", "auto"),),
    ),
    "fuse": Primitive(fuse, (("loops", "loops"),), makes="loop"),
    "loop_partition": Primitive(
        loop_partition, (("loop", "loop"), ("factors", "factors")), makes="loops"
    ),
    "merge": Primitive(merge, (("loops", "loops"),), makes="loop"),
    "fission": Primitive(fission, (("loop", "loop"), ("after", "block")), makes="loops"),
    "add_unit_loop": Primitive(add_unit_loop, (("place", "place"),), makes="loop"),
    "reorder_block_iters": Primitive(
        reorder_block_iters, (("block", "block"), ("order", "numbers"))
    ),
    "annotate": Primitive(annotate, (("place", "place"), ("key", "word"), ("value", "value"))),
    "unannotate": Primitive(unannotate, (("place", "place"), ("key", "word"))),
    "specialize": Primitive(specialize, (("condition", "word"),), makes="blocks"),
    "reorder": Primitive(reorder, (("loops", "loops"),)),
    "parallel": Primitive(parallel, (("loop", "loop"),)),
    "vectorize": Primitive(vectorize, (("loop", "loop"),)),
    "unroll": Primitive(unroll, (("loop", "loop"),)),
    "bind": Primitive(bind, (("loop", "loop"), ("thread_axis", "word"))),
    "prefetch": Primitive(
        prefetch,
        (("place", "place"), ("buffer", "buffer"), ("offset", "number")),
        defaults=(("offset", 1),),
    ),
    "stream": Primitive(stream, (("block", "block"),)),
    "decompose_reduction": Primitive(
        decompose_reduction, (("block", "block"), ("loop", "loop")), makes="block"
    ),
    "rfactor": Primitive(
        rfactor,
        (("loop", "loop"), ("factor_axis", "number")),
        makes="block",
        defaults=(("factor_axis", 0),),
    ),
    "compute_inline": Primitive(compute_inline, (("block", "block"),)),
    "reverse_compute_inline": Primitive(reverse_compute_inline, (("block", "block"),)),
    "compute_at": Primitive(compute_at, (("block", "block"), ("loop", "loop"))),
    "reverse_compute_at": Primitive(reverse_compute_at, (("block", "block"), ("loop", "loop"))),
    "compute_with": Primitive(
        compute_with, (("block", "block"), ("other", "block"), ("loop", "loop"))
    ),
    "set_scope": Primitive(
        set_scope, (("block", "block"), ("buffer", "buffer"), ("scope", "word"))
    ),
    "storage_align": Primitive(
        storage_align,
        (
            ("block", "block"),
            ("buffer", "buffer"),
            ("axis", "number"),
            ("factor", "number"),
            ("offset", "number"),
        ),
        defaults=(("offset", 0),),
    ),
    "cache_read": Primitive(
        cache_read,
        (("block", "block"), ("buffer", "buffer"), ("scope", "word"), ("dtype", "text")),
        makes="block",
        defaults=(("scope", "global"), ("dtype", None)),
        inside=partial(cache_read, is_near=True),
    ),
    "cache_write": Primitive(
        cache_write,
        (("block", "block"), ("scope", "word"), ("buffer", "buffer")),
        makes="block",
        defaults=(("scope", "global"), ("buffer", 0)),
    ),
    "stage": Primitive(
        stage,
        (
            ("place", "place"), ("buffer", "buffer"), ("window", "text"), ("mode", "word"),
            ("scope", "word"),
        ),
        makes="blocks",
        defaults=(("window", None), ("mode", "auto"), ("scope", "global")),
    ),
    "substitute": Primitive(
        substitute,
        (("block", "block"), ("replacement", "word"), ("check", "value")),
        makes="blocks",
        defaults=(("check", True),),
    ),
    "blockize": Primitive(blockize, (("loop", "loop"),), makes="block"),
    "tensorize": Primitive(tensorize, (("place", "place"), ("intrin", "word")), makes="block"),
    "rolling_buffer": Primitive(
        rolling_buffer, (("block", "block"), ("buffer", "buffer"))
    ),
    "reindex": Primitive(reindex, (("block", "block"), ("buffer", "buffer")), makes="block"),
    "reindex_cache_read": Primitive(reindex_cache_read, _MAPPED_CACHE, makes="block"),
    "reindex_cache_write": Primitive(reindex_cache_write, _MAPPED_CACHE, makes="block"),
    "transform_layout": Primitive(
        transform_layout,
        (("block", "block"), ("buffer", "buffer"), ("index_map", "map"), ("pad_value", "number")),
        defaults=(("pad_value", None),),
    ),
    "transform_block_layout": Primitive(
        transform_block_layout, (("block", "block"), ("index_map", "map"))
    ),
    "pad_einsum": Primitive(
        pad_einsum, (("block", "block"), ("padding", "factors")), makes="blocks"
    ),
    "decompose_padding": Primitive(
        decompose_padding, (("block", "block"), ("loop", "loop")), makes="block"
    ),
}

# The steps that are also made on loops and blocks in a block. No other instance of the block meets what they do: they
# leave what an instance touches as it is, or have buffers that live in it.
WITH_BUFFERS = frozenset((
    "cache_read", "cache_write", "compute_at", "reverse_compute_at", "compute_inline", "reverse_compute_inline",
    "set_scope", "storage_align", "transform_layout",
))  # fmt: skip
IN_BLOCKS = WITH_BUFFERS.union((
    "split", "fuse", "reorder", "add_unit_loop", "loop_partition", "merge", "fission",
    "parallel", "vectorize", "unroll", "bind",
    "decompose_reduction", "blockize", "tensorize", "reorder_block_iters", "transform_block_layout",
    "annotate", "unannotate", "prefetch", "stream",
))  # fmt: skip

# What an index map may be made of: it prints as Python, and is read back by our own parser.
_MAP_NODES = (Var, Const, Add, Sub, Mul, FloorDiv, Mod, Neg)
_MAP = re.compile(r"\s*lambda\s+([^:()]*):\s*\((.*)\)\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Step:
    """One step: a primitive's name, its arguments in order, and the names of the loops or the block
    that it made.

    Arguments are names, numbers, None and tuples of these; an index map is its text. The last may be
    left out where they have defaults.
    """

    primitive: str
    args: tuple[Any, ...]
    results: tuple[str, ...] = ()

    def __str__(self) -> str:
        arguments = PRIMITIVES[self.primitive].arguments
        inner = ", ".join([f"{name}={value!r}" for (name, _), value in zip(arguments, self.args)])
        return f"{self.primitive}({inner})"


def perform(
    function: Function, primitive: str, args: tuple[Any, ...]
) -> tuple[Function, tuple[str, ...]]:
    """The function after one step, and the names that the step made. Raises ScheduleError if it
    is refused."""
    kind = PRIMITIVES[primitive]
    most = len(kind.arguments)
    if not isinstance(args, tuple) or not most - len(kind.defaults) <= len(args) <= most:
        names = ", ".join([name for name, _ in kind.arguments])
        raise ScheduleError(f"{primitive}: a tuple of its arguments ({names}) is needed, not {args!r}")
    values = [
        read_map(value) if what == "map" else value
        for (_, what), value in zip(kind.arguments, args)
    ]

    def call(how: Callable, function: Function) -> tuple[Function, tuple[str, ...]]:
        result = how(function, *values)
        if kind.makes is None:
            return result, ()
        function, made = result
        return function, made if kind.makes in ("loops", "blocks") else (made,)

    inner = partial(call, kind.inside or kind.call) if primitive in IN_BLOCKS else None
    places = _names_in(kind, args)
    return perform_at(function, primitive, places, partial(call, kind.call), inner, primitive in WITH_BUFFERS)


def _names_in(kind: Primitive, args: tuple[Any, ...]) -> list[tuple[str, str]]:
    """The loops and blocks that a step names."""
    found: list[tuple[str, str]] = []
    for (_, what), value in zip(kind.arguments, args):
        if what == "loops" and isinstance(value, tuple):
            found += [("loop", name) for name in value]
        elif what in ("loop", "block", "place"):
            found.append((what, value))
    return found


def plain(value):
    """An argument of a step as traces hold it: NumPy's numbers as Python's, sequences as tuples."""
    if isinstance(value, (list, tuple)):
        return tuple([plain(one) for one in value])
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())
    return value


@dataclass(frozen=True, slots=True)
class Trace:
    """The steps that led from an unscheduled function to a scheduled one."""

    steps: tuple[Step, ...] = ()

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def then(self, step: Step) -> Trace:
        """The trace with one more step."""
        return Trace((*self.steps, step))

    def python(self) -> str:
        """Python text that performs the steps on a schedule `s`."""
        return _python(self.steps)

    def json(self) -> str:
        """One line of JSON, for `from_json`."""
        return json.dumps({"version": VERSION, "steps": [_to_record(step) for step in self.steps]})

    @staticmethod
    def from_json(text: str) -> Trace:
        """The trace that `json` wrote. Raises ScheduleError for any other text."""
        try:
            data = json.loads(text)
        except (ValueError, TypeError, RecursionError) as error:
            raise ScheduleError(f"trace: the text is not JSON: {error}") from None
        if not isinstance(data, dict) or data.get("version") != VERSION:
            raise ScheduleError(f"trace: the JSON is no trace of version {VERSION}")
        if not isinstance(data.get("steps"), list):
            raise ScheduleError("trace: the JSON has no list of steps")
        return Trace(tuple([_from_record(i, record) for i, record in enumerate(data["steps"], 1)]))

    def apply(self, target):
        """Perform the steps on a function, returning the new one, or on a schedule, returning it
        changed.

        Loops and blocks that get other names than those recorded, because the target had taken
        them, are followed. Raises ScheduleError, naming the step, where one no longer fits; a
        schedule is then as it was.
        """
        names: dict[tuple[str, str], str] = {}
        if not isinstance(target, Function) and not hasattr(target, "perform"):
            raise ScheduleError(f"trace: {target!r} is neither a schedule nor a function of the IR")
        trial = target if isinstance(target, Function) else target.copy()
        for number, step in enumerate(self.steps, 1):
            args = _renamed(step, names)
            try:
                if isinstance(trial, Function):
                    trial, made = perform(trial, step.primitive, args)
                else:
                    made = trial.perform(step.primitive, args)
            except ScheduleError as error:
                _misfit(number, step, error)
            kind = _kind_made(step)
            names.update({(kind, old): new for old, new in zip(step.results, made) if old != new})
        if isinstance(trial, Function):
            return trial
        target.become(trial)
        return target


def _kind_made(step: Step) -> str:
    return "block" if PRIMITIVES[step.primitive].makes in ("block", "blocks") else "loop"


def _renamed(step: Step, names: Mapping[tuple[str, str], str]) -> tuple[Any, ...]:
    if not names:
        return step.args
    args: list[Any] = []
    for (_, kind), value in zip(PRIMITIVES[step.primitive].arguments, step.args):
        if kind == "loops":
            args.append(tuple([names.get(("loop", name), name) for name in value]))
        elif kind == "place":
            args.append(names.get(("loop", value)) or names.get(("block", value), value))
        elif kind == "buffer":  # a copy made by a step has the name of its block
            args.append(names.get(("block", value), value))
        else:
            args.append(names.get((kind, value), value) if kind in ("loop", "block") else value)
    return tuple(args)


def _misfit(number: int, step: Step, error: ScheduleError) -> NoReturn:
    raise restated(f"step {number} of the trace, {step}, does not fit here: {error}", error) from error


# JSON.


def _to_record(step: Step) -> dict[str, Any]:
    arguments = PRIMITIVES[step.primitive].arguments
    record: dict[str, Any] = {"step": step.primitive}
    record.update({name: value for (name, _), value in zip(arguments, step.args)})
    if step.results:
        record["results"] = step.results
    return record


def _from_record(number: int, record) -> Step:
    name = record.get("step") if isinstance(record, dict) else None
    if not isinstance(name, str) or name not in PRIMITIVES:
        raise ScheduleError(f"trace: step {number} is none that is known: {_short(record)}")
    primitive = PRIMITIVES[name]
    defaults = dict(primitive.defaults)
    known = {"step", "results", *[argument for argument, _ in primitive.arguments]}
    if record.keys() - known:
        raise ScheduleError(f"trace: step {number} has unknown fields: {_short(record)}")
    args = [
        _checked(number, argument, kind, record.get(argument, defaults.get(argument)))
        for argument, kind in primitive.arguments
    ]
    results = _checked(number, "results", "loops", record.get("results", []))
    return Step(name, tuple(args), results)


def _checked(number: int, name: str, kind: str, value):
    match kind:
        case "loops" if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return tuple(value)
        case "factors" if isinstance(value, list) and all(_is_factor(each) for each in value):
            return tuple(value)
        case "numbers" if isinstance(value, list) and all(type(each) is int for each in value):
            return tuple(value)
        case "value" if isinstance(value, (bool, int, float, str)):
            return value
        case "buffer" if isinstance(value, str) or type(value) is int:
            return value
        case "map" if isinstance(value, str):
            read_map(value)
            return value
        case "text" if value is None or isinstance(value, str):
            return value
        case "number" if value is None or isinstance(value, (bool, int, float)):
            return value
        case "loop" | "block" | "place" | "word" if isinstance(value, str):
            return value
        case _:
            raise ScheduleError(f"trace: step {number}: {_short(value)} is no value of {name!r}")


def _is_factor(value) -> bool:
    return value is None or type(value) is int


def _short(value) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


# Index maps.


def map_text(index_map, ndim: int) -> str:
    """The text of an index map given as text, IndexMap or Python function of `ndim` indices.

    Raises ScheduleError unless it is made of + - * // % of its indices and integers.
    """
    if isinstance(index_map, str):
        index_map = read_map(index_map)
    elif not isinstance(index_map, IndexMap):
        index_map = _from_function(index_map, ndim)
    names = _input_names(index_map)
    fresh = tuple([Var(name) for name in names])
    outputs = index_map.apply(fresh)
    for output in outputs:
        for e in walk_expr(output):
            if type(e) not in _MAP_NODES or (type(e) is Var and e not in fresh):
                raise ScheduleError(
                    f"index map: {show(output)} is not made of the map's indices, integers "
                    "and + - * // %"
                )
    inner = ", ".join([show(output) for output in outputs])
    return f"lambda {', '.join(names)}: ({inner}{',' if len(outputs) == 1 else ''})"


def _from_function(function, ndim: int) -> IndexMap:
    if not callable(function):
        raise ScheduleError(f"index map: {function!r} is no function of the indices")
    parameters = inspect.signature(function).parameters.values()
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        inputs = tuple([Var(f"i{axis}") for axis in range(ndim)])
    else:
        inputs = tuple([Var(each.name) for each in parameters])
    outputs = function(*inputs)
    if not isinstance(outputs, (tuple, list)) or not outputs:
        raise ScheduleError(
            f"index map: the function must return a tuple of indices, not {outputs!r}"
        )
    try:
        return IndexMap(inputs, tuple([as_index(output) for output in outputs]))
    except ExpressionError as error:
        raise ScheduleError(f"index map: {error}") from None


def _input_names(index_map: IndexMap) -> list[str]:
    names = [var.name for var in index_map.inputs]
    if len(set(names)) == len(names) and all(map(_is_name, names)):
        return names
    return [f"i{axis}" for axis in range(len(names))]


def _is_name(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name)


def read_map(text: str) -> IndexMap:
    """The index map of a text like `lambda i, j: (i // 8, j, i % 8)`, which is parsed, not
    evaluated.

    Raises ScheduleError for any other text.
    """
    found = _MAP.fullmatch(text)
    names = [name.strip() for name in found.group(1).split(",")] if found else []
    if not found or not all(map(_is_name, names)) or len(set(names)) != len(names):
        raise ScheduleError(
            f"index map {text!r}: not of the form `lambda i, j: (i // 8, j, i % 8)`"
        )
    inputs = {name: Var(name) for name in names}
    try:
        outputs = tuple([as_index(parse_expr(part, inputs)) for part in _parts(found.group(2))])
    except (ExpressionError, RecursionError) as error:
        raise ScheduleError(f"index map {text!r}: {error}") from None
    if not outputs:
        raise ScheduleError(f"index map {text!r}: it has no outputs")
    return IndexMap(tuple(inputs.values()), outputs)


def _parts(text: str) -> list[str]:
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts if parts[-1].strip() else parts[:-1]


# Python text.


def _python(steps: tuple[Step, ...]) -> str:
    variables: dict[tuple[str, str], str] = {}
    lines = []
    for step in steps:
        primitive = PRIMITIVES[step.primitive]
        call = f"s.{step.primitive}({', '.join(_arguments(primitive, step, variables))})"
        kind = _kind_made(step)
        made = [_variable(kind, name, variables) for name in step.results]
        if primitive.makes in ("loops", "blocks") and len(made) == 1:
            lines.append(f"({made[0]},) = {call}")
        else:
            lines.append(f"{', '.join(made)} = {call}" if made else call)
    return "\n".join(lines)


def _arguments(primitive: Primitive, step: Step, variables) -> Iterator[str]:
    defaults = dict(primitive.defaults)
    for (name, kind), value in zip(primitive.arguments, step.args):
        if name in defaults:
            if value != defaults[name]:
                yield f"{name}={_quoted(value)}"
        elif kind == "factors":
            inner = ", ".join(map(str, value))
            yield f"{name}=({inner}{',' if len(value) == 1 else ''})"
        elif kind == "loops":
            yield from [variables.get(("loop", each)) or _quoted(each) for each in value]
        elif kind in ("loop", "block"):
            yield variables.get((kind, value)) or _quoted(value)
        elif kind == "place":
            made = variables.get(("loop", value)) or variables.get(("block", value))
            yield made or _quoted(value)
        else:
            yield value if kind == "map" else _quoted(value)


def _quoted(value) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _variable(kind: str, name: str, variables: dict[tuple[str, str], str]) -> str:
    """A variable for a loop or block: "C.k.0.1" is k0_1, or C_k0_1 where that is taken."""
    if (kind, name) in variables:
        return variables[kind, name]
    block, _, rest = name.partition(".") if kind == "loop" else ("", "", name)
    short = _joined(rest or block)
    taken = {"s", *variables.values()}
    chosen = short if short not in taken else f"{_joined(block)}_{short}" if block else short
    number = 1
    while chosen in taken:
        number += 1
        chosen = f"{short}_{number}"
    variables[kind, name] = chosen
    return chosen


def _joined(name: str) -> str:
    text = re.sub(r"(?<=[^\W\d_])\.(\d+)", r"\1", name)
    text = re.sub(r"\W", "_", text)
    return text if _is_name(text) else f"v_{text}"
