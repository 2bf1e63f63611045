"""Making a failing case smaller, as long as it fails in the same way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.fuzz.programs import (
    INTEGERS,
    Case,
    Code,
    Definition,
    Input,
    Program,
    Stage,
    Update,
    pruned,
)

SECONDS = 45.0


def shrink(case: Case, fails: Callable[[Case], bool], seconds: float = SECONDS) -> Case:
    """A smaller case for which `fails` holds, found within about `seconds`."""
    until = time.monotonic() + seconds
    tried: set[Case] = set()
    is_smaller = True
    while is_smaller and time.monotonic() < until:
        is_smaller = False
        for candidate in _candidates(case):
            if time.monotonic() > until:
                break
            if candidate in tried:
                continue
            tried.add(candidate)
            if fails(candidate):
                case, is_smaller = candidate, True
                break
    return case


def _candidates(case: Case) -> Iterator[Case]:
    """Smaller cases, the boldest first."""
    if case.threads > 1:
        yield replace(case, threads=1)
    for dims in case.others:
        symbolic = case.program.symbolic
        values = tuple([(n, dict(dims)[n] if n in symbolic else v) for n, v in case.program.dims])
        yield replace(case, program=replace(case.program, dims=values), others=())
    if case.others:
        yield replace(case, others=())
    for steps in _shorter(case.steps or ()):
        yield replace(case, steps=steps)
    for program in _programs(case.program):
        yield replace(case, program=program)


def _shorter(steps: tuple) -> Iterator[tuple]:
    size = len(steps) // 2
    while size:
        for start in range(0, len(steps), size):
            yield steps[:start] + steps[start + size :]
        size //= 2


def _programs(program: Program) -> Iterator[Program]:
    for name in program.symbolic:
        yield replace(program, symbolic=tuple([each for each in program.symbolic if each != name]))
    for name in program.outputs:
        yield pruned(replace(program, outputs=(name,)))
        rest = tuple([each for each in program.outputs if each != name])
        if rest:
            yield pruned(replace(program, outputs=rest))
    for position, stage in enumerate(program.stages):
        if not {name for name, _ in stage.made()} & set(program.outputs):
            yield _as_input(program, position)
    for position, stage in enumerate(program.stages):
        for less in _simpler(stage):
            yield _with_stage(program, position, less)
    for position, (name, value) in enumerate(program.dims):
        for less in sorted({1, 2, 3, value // 2, value - 1, value - 16} - {value}):
            if 0 < less < value:
                dims = list(program.dims)
                dims[position] = (name, less)
                yield replace(program, dims=tuple(dims))
    for position, stage in enumerate(program.stages):
        if type(stage) is Stage:
            yield from _fewer_axes(program, position, stage)
    for position, each in enumerate(program.inputs):
        if each.values != "small" and " " not in each.values:
            inputs = list(program.inputs)
            inputs[position] = replace(each, values="small")
            yield replace(program, inputs=tuple(inputs))


def _with_stage(program: Program, position: int, stage: Definition) -> Program:
    stages = (*program.stages[:position], stage, *program.stages[position + 1 :])
    return pruned(replace(program, stages=stages))


def _simpler(stage: Definition) -> Iterator[Definition]:
    """The stage with something less in it."""
    if type(stage) is Stage:
        for body in _smaller(stage.body):
            yield replace(stage, body=body)
        for number, (name, extent) in enumerate(stage.reduce_axes):
            for less in ("(0, 2)", "(0, 1)", "2") if extent.startswith("(") else ():
                if less != extent:
                    axes = list(stage.reduce_axes)
                    axes[number] = (name, less)
                    yield replace(stage, reduce_axes=tuple(axes))
    elif type(stage) is Update:
        if stage.where is not None:
            yield replace(stage, where=None)
            for where in _smaller(stage.where):
                yield replace(stage, where=where)
        for value in _smaller(stage.value):
            yield replace(stage, value=value)
        for number, code in enumerate(stage.at):
            for less in _smaller(code):
                yield replace(stage, at=(*stage.at[:number], less, *stage.at[number + 1 :]))


def _as_input(program: Program, position: int) -> Program:
    """A stage given by the caller instead of computed."""
    stage = program.stages[position]
    given = [Input(name, stage.shape, dtype, "small") for name, dtype in stage.made()]
    stages = program.stages[:position] + program.stages[position + 1 :]
    return pruned(replace(program, stages=stages, inputs=(*program.inputs, *given)))


def _fewer_axes(program: Program, position: int, stage: Stage) -> Iterator[Program]:
    """An output without one of its axes, which its body does not use."""
    is_read = any(stage.name in each.text() for each in program.stages if each is not stage)
    is_read |= any(name in extent for name in stage.axes for _, extent in stage.reduce_axes)
    for axis, name in enumerate(stage.axes):
        if is_read or name in str(stage.body):
            continue
        shape = stage.shape[:axis] + stage.shape[axis + 1 :]
        axes = stage.axes[:axis] + stage.axes[axis + 1 :]
        yield _with_stage(program, position, replace(stage, shape=shape, axes=axes))


def _smaller(code: Code) -> Iterator[Code]:
    """Simpler expressions of the same dtype."""
    if code.dtype == "index":
        if code.text != "0" and not code.text.isidentifier():
            yield Code("0")
        return
    yield from [inner for inner in _inside(code) if inner.dtype == code.dtype]
    if code.size > 1 and code.dtype != "tuple":
        yield _one(code.dtype)
    for position, operand in enumerate(code.operands):
        for less in _smaller(operand):
            operands = list(code.operands)
            operands[position] = less
            yield replace(code, operands=tuple(operands))


def _inside(code: Code) -> Iterator[Code]:
    for operand in code.operands:
        yield operand
    for operand in code.operands:
        yield from _inside(operand)


def _one(dtype: str) -> Code:
    if dtype == "bool":
        return Code("te.const(True)", (), dtype)
    return Code(f'te.const({1 if dtype in INTEGERS else 1.0}, "{dtype}")', (), dtype)
