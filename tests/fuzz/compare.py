"""Running one case: build it, call the kernel at the edge of memory, and compare the answers."""

from __future__ import annotations

import contextlib
import random
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

import tensorc as tc
from tensorc import te
from tensorc.errors import ExpressionError, InternalError, TensorcError
from tensorc.ir import Function, interpret, show, verify
from tensorc.ir.walk import variables
from tensorc.passes.pipeline import lower as lower_passes
from tensorc.schedule import Schedule
from tensorc.target import as_target
from tests.fuzz.memory import GuardedArray
from tests.fuzz.programs import Case, data, extents, limit, tensors
from tests.fuzz.reference import Value, reference
from tests.fuzz.steps import instances, random_steps

INTERPRETED = 3000  # instances that the interpreter runs in a moment


@dataclass(frozen=True)
class Verdict:
    """How a case went: "ok", "refused" (the definition), or a failure, with what was seen.

    `kind` tells failures apart: shrinking keeps it.
    """

    kind: str
    message: str = ""
    note: str = ""  # functions to look at

    @property
    def is_failure(self) -> bool:
        return self.kind not in ("ok", "refused")


def run(case: Case, announce: Callable[[Case], None] = lambda case: None) -> Verdict:
    """Build and run a case. `announce` is told the case with all its steps before code runs."""
    try:
        function = te.lower(tensors(replace(case.program, symbolic=())))
        case, scalars, named = _with_symbols(case)
    except ExpressionError as error:
        return Verdict("refused", str(error))
    except Exception as error:
        return _escaped("lowering", error)
    inputs = _inputs(case)
    expected = reference(function, inputs)
    is_small = instances(function.body) <= INTERPRETED
    if is_small:
        complaint = _interpreted(function, inputs, expected)
        if complaint:
            return Verdict("interpreter", f"the unscheduled function: {complaint}", show(function))
    scheduled = None
    try:
        what: object = tensors(case.program)
        if case.steps is not None:
            what = scheduled = tc.schedule(tensors(case.program))
            case = _perform(scheduled, case)
            announce(case)
            verify(scheduled.function)
        kernel = tc.build(what, _target(case), threads=case.threads, cache=False)
    except Exception as error:
        return _escaped("building", error, scheduled)
    if scheduled is not None and is_small:
        complaint = _interpreted(scheduled.function, inputs, expected, scalars)
        if complaint:
            return Verdict(
                "schedule", f"the scheduled function: {complaint}", show(scheduled.function)
            )
    announce(case)
    try:
        complaint = _called(kernel, function, inputs, expected, case, named)
    except TensorcError as error:
        return _escaped("calling", error, scheduled)
    if not complaint:
        return Verdict("ok")
    return Verdict(
        "kernel",
        f"the kernel: {complaint}",
        _where(kernel.function, case, inputs, expected, scalars),
    )


def _with_symbols(case: Case) -> tuple[Case, dict[str, int], dict[str, int]]:
    """The case, the values of its variables, and those that a call gives by name; without variables
    where te cannot prove its accesses for all of their values."""
    program = case.program
    if not program.symbolic:
        return case, {}, {}
    try:
        function = te.lower(tensors(program))
    except ExpressionError:
        return replace(case, program=replace(program, symbolic=())), {}, {}
    used = {var.name for assumption in function.assumptions for var in variables(assumption)}
    free = {var.name for var in function.scalars}
    scalars = {name: value for name, value in program.dims if name in used | free}
    return case, scalars, {name: scalars[name] for name in free}


def _perform(s: Schedule, case: Case) -> Case:
    """Make the steps; the case with those that were legal, the random ones among them."""
    for primitive, args in case.steps or ():
        with contextlib.suppress(tc.ScheduleError):
            s.perform(primitive, args)
    try:
        random_steps(s, random.Random(case.seed), case.random_steps)
    finally:
        steps = tuple([(step.primitive, step.args) for step in s.trace])
    return replace(case, steps=steps, random_steps=0)


def _target(case: Case) -> tc.Target:
    return as_target(None) if case.mcpu is None else tc.Target("cpu", mcpu=case.mcpu)


def _inputs(case: Case) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(case.seed)
    program = case.program
    return {
        each.name: np.asarray(data(each, extents(program, each.shape), rng, limit(program, each)))
        for each in program.inputs
    }


def _escaped(when: str, error: Exception, scheduled: Schedule | None = None) -> Verdict:
    cause = error.__cause__ if isinstance(error, InternalError) and error.__cause__ else error
    text = f"{when}: {type(error).__name__}: {error}"
    at = cause.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    place = f"{at.tb_frame.f_code.co_filename}:{at.tb_lineno}" if at is not None else "?"
    note = "".join(traceback.format_exception(cause))
    note += show(scheduled.function) if scheduled is not None else ""
    return Verdict(f"{type(cause).__name__} at {place}", text, note)


def _interpreted(
    function: Function,
    inputs: dict,
    expected: dict[str, Value],
    scalars: dict[str, int] | None = None,
) -> str:
    """What is wrong with the interpreter's answer, or nothing."""
    arrays = [inputs[buffer.name] for buffer in function.params if buffer.name in inputs]
    try:
        found = interpret(function, *arrays, scalars=scalars)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    found = found if isinstance(found, tuple) else (found,)
    return _differences({b.name: f for b, f in zip(function.outputs, found)}, expected)


def _called(kernel, function: Function, inputs, expected, case: Case, named) -> str:
    """What is wrong with the kernel's answer or with what else it did, or nothing."""
    rng = random.Random(case.seed)
    guarded, arrays = {}, []
    for buffer in function.params:
        shape = tuple([extent.value for extent in buffer.shape])
        guarded[buffer.name] = held = GuardedArray(shape, buffer.dtype.numpy, rng)
        if buffer.name in inputs:
            held.array[...] = inputs[buffer.name]
            held.make_read_only()
        arrays.append(held.array)
    kernel(*arrays, **named)
    for name, held in guarded.items():
        if not held.is_intact():
            return f"memory beside {name} was written"
    found = {b.name: guarded[b.name].array for b in function.outputs}
    return _differences(found, expected)


def _differences(found: dict[str, np.ndarray], expected: dict[str, Value]) -> str:
    for name, value in expected.items():
        array = found[name]
        if array.dtype == bool and (array.view(np.uint8) > 1).any():
            return f"{name} holds a bool that is neither 0 nor 1"
        wrong = _wrong(array, value)
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            wanted = value.value[at].astype(array.dtype)
            within = f" within {value.error[at]:.3g}" if value.error[at] > 0 else ""
            return (
                f"{name}{list(at)} is {array[at]}, not {wanted}{within} "
                f"({int(wrong.sum())} of {wrong.size} elements)"
            )
    return ""


def _wrong(array: np.ndarray, value: Value) -> np.ndarray:
    if array.dtype.kind != "f":
        return (array != value.value) & (value.error == 0)
    with np.errstate(all="ignore"):
        wide = array.astype(np.longdouble)
        exact = value.value.astype(array.dtype)
        same = (array == exact) | (np.isnan(array) & np.isnan(exact))
        half = abs(wide) * np.finfo(array.dtype).eps / 2  # the rounding of what is stored
        near = abs(wide - value.value) <= value.error + np.where(value.error > 0, half, 0)
    return ~(same | near | np.isinf(value.error))


def _where(function: Function, case: Case, inputs, expected, scalars) -> str:
    """The first form of a function whose answer is wrong by the interpreter, to look at."""
    flat = lower_passes(function, _target(case))
    for name, form in (("the scheduled function", function), ("the flat function", flat)):
        complaint = _interpreted(form, inputs, expected, scalars)
        if complaint:
            return f"{name} is wrong already: {complaint}\n{show(form)}"
    return f"the flat function is right, its machine code is not\n{show(flat)}"
