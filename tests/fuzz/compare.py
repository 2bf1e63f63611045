"""Running one case: build it, call the kernel at the edge of memory, and compare the answers."""

from __future__ import annotations

import contextlib
import random
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

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
from tests.fuzz.steps import MOST_INSTANCES, Attempt, instances, random_steps


@dataclass(frozen=True)
class Verdict:
    """How a case went: "ok", "refused" (the definition), or a failure, with what was seen.

    `kind` tells failures apart: shrinking keeps it.
    """

    kind: str
    message: str = ""
    note: str = ""  # functions to look at
    tally: Counter[tuple[str, bool]] = field(default_factory=Counter)  # steps, accepted or not

    @property
    def is_failure(self) -> bool:
        return self.kind not in ("ok", "refused")


@dataclass(frozen=True)
class _Known:
    """A case's program, its data and its answer."""

    function: Function
    inputs: dict[str, np.ndarray]
    expected: dict[str, Value]
    scalars: dict[str, int]  # the values of variables
    named: dict[str, int]  # those that a call gives by name

    def is_small(self, function: Function) -> bool:
        return instances(function, self.scalars) <= MOST_INSTANCES

    def interpreted(self, function: Function, with_scalars: bool = True) -> str:
        """What is wrong with the interpreter's answer, or nothing."""
        return _interpreted(
            function, self.inputs, self.expected, self.scalars if with_scalars else None
        )


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
    known = _Known(function, inputs, reference(function, inputs), scalars, named)
    if known.is_small(function):
        complaint = known.interpreted(function, with_scalars=False)
        if complaint:
            return Verdict("interpreter", f"the unscheduled function: {complaint}", show(function))
    if case.steps is None:
        return _compiled(tensors(case.program), known, case, announce)
    return _by_hand(known, case, announce)


def _by_hand(known: _Known, case: Case, announce: Callable[[Case], None]) -> Verdict:
    """Make the steps of a case, the random ones too: the interpreter runs after each of them,
    compiled code at the end, and of every other case at a step in between."""
    rng = random.Random(case.seed)
    tally: Counter[tuple[str, bool]] = Counter()
    try:
        scheduled = tc.schedule(tensors(case.program))
    except Exception as error:
        return _escaped("building", error)
    between = rng.randrange(2 * case.random_steps) if case.random_steps else -1
    try:
        for number, attempt in enumerate(_attempts(scheduled, case, rng, known.scalars)):
            tally[attempt.name, attempt.is_accepted] += 1
            complaint = attempt.problem
            if attempt.is_accepted:
                verify(scheduled.function)
                complaint = known.interpreted(scheduled.function)
            if complaint:
                announce(_so_far(case, scheduled))
                text = f"the scheduled function: {complaint}"
                return Verdict("schedule", text, show(scheduled.function))
            if number == between:
                verdict = _compiled(scheduled, known, _so_far(case, scheduled), announce)
                if verdict.is_failure:
                    return verdict
    except Exception as error:
        announce(_so_far(case, scheduled))
        return _escaped("scheduling", error, scheduled)
    verdict = _compiled(scheduled, known, _so_far(case, scheduled), announce)
    return replace(verdict, tally=tally)


def _attempts(s: Schedule, case: Case, rng: random.Random, scalars: dict[str, int]) -> Iterator[Attempt]:
    for primitive, args in case.steps or ():
        with contextlib.suppress(tc.ScheduleError):
            s.perform(primitive, args)
            yield Attempt(primitive, True)
    yield from random_steps(s, rng, case.random_steps, scalars)


def _so_far(case: Case, s: Schedule) -> Case:
    """The case with the steps that were legal, the random ones among them."""
    return replace(case, steps=tuple([(x.primitive, x.args) for x in s.trace]), random_steps=0)


def _compiled(
    what: object, known: _Known, case: Case, announce: Callable[[Case], None]
) -> Verdict:
    """Build a program or a schedule, and call the kernel."""
    scheduled = what if isinstance(what, Schedule) else None
    announce(case)
    try:
        kernel = tc.build(what, _target(case), threads=case.threads, cache=False)
    except Exception as error:
        return _escaped("building", error, scheduled)
    try:
        complaint = _called(kernel, known, case)
    except TensorcError as error:
        return _escaped("calling", error, scheduled)
    if not complaint:
        return Verdict("ok")
    return Verdict("kernel", f"the kernel: {complaint}", _where(kernel.function, known, case))


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


def _called(kernel, known: _Known, case: Case) -> str:
    """What is wrong with the kernel's answer or with what else it did, or nothing."""
    function, inputs = known.function, known.inputs
    rng = random.Random(case.seed)
    guarded, arrays = {}, []
    for buffer in function.params:
        shape = tuple([extent.value for extent in buffer.shape])
        guarded[buffer.name] = held = GuardedArray(shape, buffer.dtype.numpy, rng)
        if buffer.name in inputs:
            held.array[...] = inputs[buffer.name]
            held.make_read_only()
        arrays.append(held.array)
    kernel(*arrays, **known.named)
    for name, held in guarded.items():
        if not held.is_intact():
            return f"memory beside {name} was written"
    found = {b.name: guarded[b.name].array for b in function.outputs}
    return _differences(found, known.expected)


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


def _where(function: Function, known: _Known, case: Case) -> str:
    """The first form of a function whose answer is wrong by the interpreter, to look at."""
    flat = lower_passes(function, _target(case))
    for name, form in (("the scheduled function", function), ("the flat function", flat)):
        complaint = known.interpreted(form)
        if complaint:
            return f"{name} is wrong already: {complaint}\n{show(form)}"
    return f"the flat function is right, its machine code is not\n{show(flat)}"
