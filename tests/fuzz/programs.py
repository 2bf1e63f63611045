"""Programs of the fuzzer as values: text of te code that can be run, taken apart and pasted."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from tensorc import ir, te

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
HALVES = ("float16", "bfloat16")
FLOATS = (*HALVES, "float32", "float64")
_NAME = re.compile(r"\w+")


@dataclass(frozen=True)
class Code:
    """A piece of an expression: text with `{}` for each operand, and the dtype of its value.

    Index expressions have dtype "index", so that shrinking does not mix them with values.
    """

    text: str
    operands: tuple[Code, ...] = ()
    dtype: str = "index"

    def __str__(self) -> str:
        return self.text.format(*self.operands)

    @property
    def size(self) -> int:
        return 1 + sum(operand.size for operand in self.operands)


@dataclass(frozen=True)
class Input:
    """A placeholder, and the kind of values that fill it."""

    name: str
    shape: tuple[str, ...]
    dtype: str
    values: str


@dataclass(frozen=True)
class Stage:
    """A computed tensor; `reduce_axes` are the names and the extents of its reduce axes.

    An extent in parentheses is a range, `(lo, hi)`, which may use the axes and data. A body that is
    a tuple makes several tensors: the names and the dtypes of `parts`.
    """

    name: str
    shape: tuple[str, ...]
    axes: tuple[str, ...]
    reduce_axes: tuple[tuple[str, str], ...]
    body: Code
    parts: tuple[tuple[str, str], ...] = ()

    def made(self) -> tuple[tuple[str, str], ...]:
        return self.parts or ((self.name, self.body.dtype),)

    def text(self) -> str:
        axes = [
            f'{name} = te.reduce_axis({extent}, name="{name}")' for name, extent in self.reduce_axes
        ]
        body = f"lambda{_names(self.axes)}: {self.body}"
        if any(extent.startswith("(") for _, extent in self.reduce_axes):
            body = f"{self.name}_at"
            inside = "".join([f"    {line}\n" for line in (*axes, f"return {self.body}")])
            axes = [f"def {body}({', '.join(self.axes)}):\n{inside.rstrip()}"]
        names = ", ".join([name for name, _ in self.made()])
        made = f'{names} = te.compute({listed(self.shape)}, {body}, name="{self.name}")'
        return "\n".join([*axes, made])


@dataclass(frozen=True)
class State:
    """What stands for the result of a scan in the definition of a step."""

    name: str
    shape: tuple[str, ...]
    dtype: str

    def made(self) -> tuple[tuple[str, str], ...]:
        return ((self.name, self.dtype),)

    def text(self) -> str:
        return f'{self.name} = te.placeholder({listed(self.shape)}, "{self.dtype}", name="{self.name}")'


@dataclass(frozen=True)
class Scan:
    """The results `parts` of steps that are stages, from states by way of updates."""

    name: str
    parts: tuple[tuple[str, str], ...]
    inits: tuple[str, ...]
    updates: tuple[str, ...]
    states: tuple[str, ...]
    axis: int
    shape: tuple[str, ...]

    def made(self) -> tuple[tuple[str, str], ...]:
        return self.parts

    def text(self) -> str:
        if len(self.parts) == 1:
            given = ", ".join([self.inits[0], self.updates[0], self.states[0]])
        else:
            given = ", ".join(
                [f"({', '.join(e)})" for e in (self.inits, self.updates, self.states)]
            )
        names = ", ".join([name for name, _ in self.parts])
        return f'{names} = te.scan({given}, name="{self.name}", axis={self.axis})'


@dataclass(frozen=True)
class Update:
    """A tensor after stores at places over reduce axes, where a condition holds."""

    name: str
    dtype: str
    shape: tuple[str, ...]
    tensor: str
    reduce_axes: tuple[tuple[str, str], ...]
    at: tuple[Code, ...]
    value: Code
    where: Code | None = None

    def made(self) -> tuple[tuple[str, str], ...]:
        return ((self.name, self.dtype),)

    def text(self) -> str:
        lines = [
            f'{name} = te.reduce_axis({extent}, name="{name}")' for name, extent in self.reduce_axes
        ]
        axes = listed(tuple([name for name, _ in self.reduce_axes]))
        where = "" if self.where is None else f", where={self.where}"
        at = listed(tuple([str(each) for each in self.at]))
        given = f"{self.tensor}, {at}, {self.value}, axis={axes}{where}"
        return "\n".join([*lines, f'{self.name} = te.update({given}, name="{self.name}")'])


@dataclass(frozen=True)
class External:
    """Tensors that a function of the IR makes of others."""

    name: str
    parts: tuple[tuple[str, str], ...]
    shape: tuple[str, ...]
    function: str
    inputs: tuple[str, ...]

    def made(self) -> tuple[tuple[str, str], ...]:
        return self.parts

    def text(self) -> str:
        names = ", ".join([name for name, _ in self.parts])
        given = f'parse("""{self.function}"""), [{", ".join(self.inputs)}], name="{self.name}"'
        return f"{names} = te.function({given})"


Definition = Stage | State | Scan | Update | External


@dataclass(frozen=True)
class Program:
    """Stages over inputs; shapes are text over the named extents `dims`, of which those `symbolic`
    are known at the call alone."""

    dims: tuple[tuple[str, int], ...]
    inputs: tuple[Input, ...]
    stages: tuple[Definition, ...]
    outputs: tuple[str, ...]
    symbolic: tuple[str, ...] = ()

    def arguments(self) -> tuple[str, ...]:
        return (*[each.name for each in self.inputs], *self.outputs)


@dataclass(frozen=True)
class Case:
    """What one worker runs: a program, the machine, the data, and how it is scheduled.

    `steps` are None for the default schedule, else the steps made by hand; a step that is refused
    is left out. `random_steps` many are drawn in addition by the data's seed. `others` are values of
    the symbolic extents with which the kernel is called, too.
    """

    program: Program
    mcpu: str | None
    threads: int
    seed: int
    steps: tuple[tuple[str, tuple[Any, ...]], ...] | None = None
    random_steps: int = 0
    others: tuple[tuple[tuple[str, int], ...], ...] = ()


def source(program: Program) -> str:
    """The program as Python code that makes the list `tensors`."""
    lines = [
        f'{name} = te.var("{name}")  # {value}' if name in program.symbolic else f"{name} = {value}"
        for name, value in program.dims
    ]
    for each in program.inputs:
        lines.append(
            f'{each.name} = te.placeholder({listed(each.shape)}, "{each.dtype}", '
            f'name="{each.name}")  # {each.values}'
        )
    lines += [stage.text() for stage in program.stages]
    lines.append(f"tensors = [{', '.join(program.arguments())}]")
    return "\n".join(lines)


def script(case: Case) -> str:
    """Python code that builds a case as the fuzzer does."""
    target = 'tc.Target("cpu")' if case.mcpu is None else f'tc.Target("cpu", mcpu="{case.mcpu}")'
    lines = ["import tensorc as tc", "from tensorc import te"]
    if any(type(stage) is External for stage in case.program.stages):
        lines.append("from tensorc.ir import parse")
    lines += ["", source(case.program)]
    what = "tensors"
    if case.steps is not None:
        what = "s"
        lines.append("s = tc.schedule(tensors)")
        lines += [f"s.perform({name!r}, {args!r})" for name, args in case.steps]
    lines.append(f"kernel = tc.build({what}, {target}, threads={case.threads}, cache=False)")
    return "\n".join(lines)


def tensors(program: Program) -> list[te.Tensor]:
    """The tensors of a program. Raises what te raises."""
    names: dict[str, Any] = {"te": te, "parse": ir.parse}
    exec(source(program), names)
    return names["tensors"]


def extents(program: Program, shape: tuple[str, ...]) -> tuple[int, ...]:
    """The numbers of a shape."""
    dims = dict(program.dims)
    return tuple([eval(text, {}, dims) for text in shape])


def pruned(program: Program) -> Program:
    """The program without the stages, axes, inputs and extents that nothing needs."""
    needed = set(program.outputs)
    stages: list[Definition] = []
    for stage in reversed(program.stages):
        if not needed.isdisjoint([name for name, _ in stage.made()]):
            if type(stage) is Stage:
                stage = _with_axes_used(stage)
            needed |= set(_NAME.findall(stage.text()))
            stages.append(stage)
    inputs = tuple([each for each in program.inputs if each.name in needed])
    texts = [text for each in inputs for text in (*each.shape, each.values)]
    needed |= {word for text in texts for word in _NAME.findall(text)}
    dims = tuple([dim for dim in program.dims if dim[0] in needed])
    symbolic = tuple([name for name, _ in dims if name in program.symbolic])
    return Program(dims, inputs, tuple(stages[::-1]), program.outputs, symbolic)


def _with_axes_used(stage: Stage) -> Stage:
    """A stage with the reduce axes that its body, or the range of such an axis, names."""
    words = set(_NAME.findall(str(stage.body)))
    kept = []
    for name, extent in reversed(stage.reduce_axes):
        if name in words:
            words |= set(_NAME.findall(extent))
            kept.append((name, extent))
    return replace(stage, reduce_axes=tuple(kept[::-1]))


def _names(parts: tuple[str, ...]) -> str:
    return f" {', '.join(parts)}" if parts else ""


def listed(parts: tuple[str, ...]) -> str:
    """A tuple as code."""
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
