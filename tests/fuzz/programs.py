"""Programs of the fuzzer as values: text of te code that can be run, taken apart and pasted."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tensorc import te

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float32", "float64")
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
    """A computed tensor; `reduce_axes` are the names and the extents of its reduce axes."""

    name: str
    shape: tuple[str, ...]
    axes: tuple[str, ...]
    reduce_axes: tuple[tuple[str, str], ...]
    body: Code


@dataclass(frozen=True)
class Program:
    """Stages over inputs; shapes are text over the named extents `dims`, of which those `symbolic`
    are known at the call alone."""

    dims: tuple[tuple[str, int], ...]
    inputs: tuple[Input, ...]
    stages: tuple[Stage, ...]
    outputs: tuple[str, ...]
    symbolic: tuple[str, ...] = ()

    def arguments(self) -> tuple[str, ...]:
        return (*[each.name for each in self.inputs], *self.outputs)


@dataclass(frozen=True)
class Case:
    """What one worker runs: a program, the machine, the data, and how it is scheduled.

    `steps` are None for the default schedule, else the steps made by hand; a step that is refused
    is left out. `random_steps` many are drawn in addition by the data's seed.
    """

    program: Program
    mcpu: str | None
    threads: int
    seed: int
    steps: tuple[tuple[str, tuple[Any, ...]], ...] | None = None
    random_steps: int = 0


def source(program: Program) -> str:
    """The program as Python code that makes the list `tensors`."""
    lines = [
        f'{name} = te.var("{name}")  # {value}' if name in program.symbolic else f"{name} = {value}"
        for name, value in program.dims
    ]
    for each in program.inputs:
        lines.append(
            f'{each.name} = te.placeholder({_tuple(each.shape)}, "{each.dtype}", '
            f'name="{each.name}")  # {each.values}'
        )
    for stage in program.stages:
        for name, extent in stage.reduce_axes:
            lines.append(f'{name} = te.reduce_axis({extent}, name="{name}")')
        lines.append(
            f"{stage.name} = te.compute({_tuple(stage.shape)}, "
            f'lambda{_names(stage.axes)}: {stage.body}, name="{stage.name}")'
        )
    lines.append(f"tensors = [{', '.join(program.arguments())}]")
    return "\n".join(lines)


def script(case: Case) -> str:
    """Python code that builds a case as the fuzzer does."""
    target = 'tc.Target("cpu")' if case.mcpu is None else f'tc.Target("cpu", mcpu="{case.mcpu}")'
    lines = ["import tensorc as tc", "from tensorc import te", "", source(case.program)]
    what = "tensors"
    if case.steps is not None:
        what = "s"
        lines.append("s = tc.schedule(tensors)")
        lines += [f"s.perform({name!r}, {args!r})" for name, args in case.steps]
    lines.append(f"kernel = tc.build({what}, {target}, threads={case.threads}, cache=False)")
    return "\n".join(lines)


def tensors(program: Program) -> list[te.Tensor]:
    """The tensors of a program. Raises what te raises."""
    names: dict[str, Any] = {"te": te}
    exec(source(program), names)
    return names["tensors"]


def extents(program: Program, shape: tuple[str, ...]) -> tuple[int, ...]:
    """The numbers of a shape."""
    dims = dict(program.dims)
    return tuple([eval(text, {}, dims) for text in shape])


def pruned(program: Program) -> Program:
    """The program without the stages, axes, inputs and extents that nothing needs."""
    needed = set(program.outputs)
    stages = []
    for stage in reversed(program.stages):
        if stage.name in needed:
            words = set(_NAME.findall(str(stage.body)))
            needed |= words | set(_NAME.findall(" ".join(stage.shape)))
            kept = tuple([axis for axis in stage.reduce_axes if axis[0] in words])
            needed |= set(_NAME.findall(" ".join(extent for _, extent in kept)))
            stages.append(replace(stage, reduce_axes=kept))
    inputs = tuple([each for each in program.inputs if each.name in needed])
    texts = [text for each in inputs for text in (*each.shape, each.values)]
    needed |= {word for text in texts for word in _NAME.findall(text)}
    dims = tuple([dim for dim in program.dims if dim[0] in needed])
    symbolic = tuple([name for name, _ in dims if name in program.symbolic])
    return Program(dims, inputs, tuple(stages[::-1]), program.outputs, symbolic)


def limit(program: Program, each: Input) -> int:
    """What the values of an input lie below, if they are of the kind "below extent"."""
    text = each.values.removeprefix("below ")
    return 0 if text == each.values else extents(program, (text,))[0]


def data(
    each: Input, shape: tuple[int, ...], rng: np.random.Generator, most: int = 0
) -> np.ndarray:
    """Values of an input's kind; with `most`, of 0 .. most - 1."""
    if most:
        return rng.integers(0, most, shape).astype(each.dtype)
    if each.dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if each.dtype in INTEGERS:
        info = np.iinfo(each.dtype)
        if each.values == "small":
            return rng.integers(max(info.min, -4), 5, shape).astype(each.dtype)
        return rng.integers(info.min, info.max, shape, each.dtype, endpoint=True)
    if each.values == "small":
        return rng.integers(-4, 5, shape).astype(each.dtype)
    if each.values == "powers":
        return np.ldexp(rng.choice([-1.0, 1.0], shape), rng.integers(-3, 4, shape)).astype(
            each.dtype
        )
    values = rng.standard_normal(shape).astype(each.dtype)
    if each.values == "special":
        info = np.finfo(each.dtype)
        odd = [np.nan, np.inf, -np.inf, 0.0, -0.0, info.max, info.tiny, info.tiny / 8, 3e9, -1e19]
        mask = rng.random(shape) < 0.3
        values = np.where(mask, rng.choice(np.array(odd, each.dtype), shape), values)
    return values


def _names(parts: tuple[str, ...]) -> str:
    return f" {', '.join(parts)}" if parts else ""


def _tuple(parts: tuple[str, ...]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
