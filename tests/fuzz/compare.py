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
from tensorc.errors import ArgumentError, ExpressionError, InternalError, TensorcError
from tensorc.ir import Function, interpret, show, verify
from tensorc.ir.walk import variables
from tensorc.passes.pipeline import lower as lower_passes
from tensorc.schedule import Schedule
from tensorc.target import as_target
from tests.fuzz.memory import GuardedArray
from tests.fuzz.programs import Case, Program, tensors
from tests.fuzz.reference import reference
from tests.fuzz.rounding import Value, limits, narrowed
from tests.fuzz.steps import MOST_INSTANCES, Attempt, Known, instances, random_steps
from tests.fuzz.values import WILD, data


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
class Call:
    """A call of the kernel: the function for its extents, the inputs, the values of variables, those
    of them that are given by name, and what must come out: outputs by name, or the words of an
    error."""

    function: Function
    inputs: dict[str, np.ndarray]
    scalars: dict[str, int]
    named: dict[str, int]
    expected: dict[str, Value] | str
    may_stray: bool  # indices may be outside

    @property
    def known(self) -> Known:
        """The ranges of variables and of data."""
        return {name: (value, value) for name, value in self.scalars.items()} | _ranges(self.inputs)

    @property
    def is_small(self) -> bool:
        """Whether the interpreter runs the function in a moment."""
        return instances(self.function, self.known) <= MOST_INSTANCES

    def interpreted(self, function: Function) -> str:
        """What is wrong with the interpreter's answer, or nothing, or too much to run."""
        if instances(function, self.known) > MOST_INSTANCES:
            return ""
        return _interpreted(function, self)


def run(case: Case, announce: Callable[[Case], None] = lambda case: None) -> Verdict:
    """Build and run a case. `announce` is told the case with all its steps before code runs."""
    try:
        case, names, free = _with_symbols(case)
        calls = [_call(case, case.program.dims, names, free)]
        for dims in _other_dims(case.program, case.others):
            with contextlib.suppress(ExpressionError, ValueError):  # not of these extents
                calls.append(_call(case, dims, names, free))
    except ExpressionError as error:
        return Verdict("refused", str(error))
    except Exception as error:
        return _escaped("lowering", error)
    for call in calls:
        complaint = call.interpreted(call.function)
        if complaint:
            text = f"the unscheduled function: {complaint}"
            return Verdict("interpreter", text, show(call.function))
    if case.steps is None:
        return _compiled(tensors(case.program), calls, case, announce)
    return _by_hand(calls, case, announce)


def _by_hand(calls: list[Call], case: Case, announce: Callable[[Case], None]) -> Verdict:
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
        for number, attempt in enumerate(_attempts(scheduled, case, rng, calls[0].known)):
            tally[attempt.name, attempt.is_accepted] += 1
            complaint = attempt.problem
            if attempt.is_accepted:
                verify(scheduled.function)
                complaint = calls[0].interpreted(scheduled.function)
            if complaint:
                announce(_so_far(case, scheduled))
                text = f"the scheduled function: {complaint}"
                return Verdict("schedule", text, show(scheduled.function))
            if number == between:
                verdict = _compiled(scheduled, calls, _so_far(case, scheduled), announce)
                if verdict.is_failure:
                    return verdict
    except Exception as error:
        announce(_so_far(case, scheduled))
        return _escaped("scheduling", error, scheduled)
    for call in calls[1:]:
        complaint = call.interpreted(scheduled.function)
        if complaint:
            announce(_so_far(case, scheduled))
            text = f"the scheduled function, for other extents: {complaint}"
            return Verdict("schedule", text, show(scheduled.function))
    verdict = _compiled(scheduled, calls, _so_far(case, scheduled), announce)
    return replace(verdict, tally=tally)


def _attempts(
    s: Schedule, case: Case, rng: random.Random, known: Known
) -> Iterator[Attempt]:
    for primitive, args in case.steps or ():
        with contextlib.suppress(tc.ScheduleError):
            s.perform(primitive, args)
            yield Attempt(primitive, True)
    yield from random_steps(s, rng, case.random_steps, known)


def _so_far(case: Case, s: Schedule) -> Case:
    """The case with the steps that were legal, the random ones among them."""
    return replace(case, steps=tuple([(x.primitive, x.args) for x in s.trace]), random_steps=0)


def _compiled(
    what: object, calls: list[Call], case: Case, announce: Callable[[Case], None]
) -> Verdict:
    """Build a program or a schedule, and call the kernel."""
    scheduled = what if isinstance(what, Schedule) else None
    announce(case)
    try:
        kernel = tc.build(what, _target(case), threads=case.threads, cache=False)
    except Exception as error:
        return _escaped("building", error, scheduled)
    for call in calls:
        try:
            complaint = _called(kernel, call, case)
        except TensorcError as error:
            return _escaped("calling", error, scheduled)
        if complaint:
            note = _where(kernel.function, case, call)
            return Verdict("kernel", f"the kernel: {complaint}", note)
    return Verdict("ok")


def _with_symbols(case: Case) -> tuple[Case, set[str], set[str]]:
    """The case, its variables, and those that a call gives by name; without variables where te cannot
    prove its accesses for all of their values."""
    program = case.program
    if not program.symbolic:
        return case, set(), set()
    try:
        function = te.lower(tensors(program))
    except ExpressionError:
        return replace(case, program=replace(program, symbolic=()), others=()), set(), set()
    used = {var.name for assumption in function.assumptions for var in variables(assumption)}
    free = {var.name for var in function.scalars}
    return case, used | free, free


def _ranges(inputs: dict[str, np.ndarray]) -> Known:
    """The least and the greatest element of inputs of integers."""
    data = {name: each for name, each in inputs.items() if each.dtype.kind in "iu" and each.size}
    return {name: (int(each.min()), int(each.max())) for name, each in data.items()}


def _call(case: Case, dims, names: set[str], free: set[str]) -> Call:
    """The call with these extents. Raises ExpressionError, or ValueError where there is no data."""
    program = replace(case.program, dims=dims)
    function = te.lower(tensors(replace(program, symbolic=())))
    inputs = _inputs(program, case.seed)
    scalars = {name: value for name, value in dims if name in names}
    named = {name: scalars[name] for name in free}
    refusal = ""
    may_stray = _is_wild(program) or dims is not case.program.dims  # made for the other extents
    if may_stray and instances(function, _ranges(inputs)) <= MOST_INSTANCES:
        try:
            interpret(function, *_given(function, inputs))
        except ArgumentError as error:
            refusal = str(error)
    expected = refusal or reference(function, inputs)
    return Call(function, inputs, scalars, named, expected, may_stray)


def _other_dims(program: Program, others):
    """Values of all extents, where those that are left open have others."""
    for dims in others if program.symbolic else ():
        values = dict(dims)
        yield tuple([
            (name, values[name] if name in program.symbolic else value)
            for name, value in program.dims
        ])  # fmt: skip


def _is_wild(program: Program) -> bool:
    return any(each.values.partition(" ")[0] in WILD for each in program.inputs)


def _target(case: Case) -> tc.Target:
    return as_target(None) if case.mcpu is None else tc.Target("cpu", mcpu=case.mcpu)


def _inputs(program: Program, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {each.name: data(program, each, rng) for each in program.inputs}


def _given(function: Function, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    return [inputs[buffer.name] for buffer in function.params if buffer.name in inputs]


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


def _interpreted(function: Function, call: Call) -> str:
    """What is wrong with the interpreter's answer, or nothing."""
    is_same = function is call.function
    if is_same and isinstance(call.expected, str):
        return ""  # it said so itself
    try:
        given = _given(function, call.inputs)
        found = interpret(function, *given, scalars=None if is_same else call.scalars)
    except ArgumentError as error:
        return _refusal(str(error), call)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    found = found if isinstance(found, tuple) else (found,)
    return _differences({b.name: f for b, f in zip(function.outputs, found)}, call)


def _called(kernel, call: Call, case: Case) -> str:
    """What is wrong with the kernel's answer or with what else it did, or nothing."""
    rng = random.Random(case.seed)
    guarded, arrays = {}, []
    for buffer in call.function.params:
        shape = tuple([extent.value for extent in buffer.shape])
        guarded[buffer.name] = held = GuardedArray(shape, buffer.dtype.numpy, rng)
        if buffer.name in call.inputs:
            held.array[...] = call.inputs[buffer.name]
            held.make_read_only()
        arrays.append(held.array)
    refusal = ""
    try:
        kernel(*arrays, **call.named)
    except ArgumentError as error:
        refusal = str(error)
    for name, held in guarded.items():
        if not held.is_intact():
            return f"memory beside {name} was written"
    if refusal:
        return _refusal(refusal, call, call.may_stray)
    found = {b.name: guarded[b.name].array for b in call.function.outputs}
    complaint = _differences(found, call)
    return complaint or _strided(kernel, arrays, call)


def _strided(kernel, arrays: list[np.ndarray], call: Call) -> str:
    """Whether a kernel takes an argument whose elements lie otherwise than it counts on."""
    for position, array in enumerate(arrays):
        if array.ndim and min(array.shape) > 1:
            turned = np.zeros(array.shape[::-1], array.dtype).T
            for other in (array[::-1], turned if array.ndim > 1 else np.repeat(array, 2)[::2]):
                try:
                    kernel(*arrays[:position], other, *arrays[position + 1 :], **call.named)
                except ArgumentError:
                    continue
                return f"an array with strides {other.strides} was taken"
            break
    return ""


def _refusal(found: str, call: Call, may_be_wild: bool = False) -> str:
    """What is wrong with a call being refused."""
    if isinstance(call.expected, str):
        wanted = call.expected.rpartition("]: index ")[2]  # extents before it may be symbols
        is_told = found.endswith((wanted, wanted.replace(", where there is no element", " is outside 0..-1")))
        return "" if is_told else f"it says {found!r}, not {call.expected!r}"
    return "" if may_be_wild and not call.is_small else f"refused: {found}"


def _differences(found: dict[str, np.ndarray], call: Call) -> str:
    if isinstance(call.expected, str):
        return f"no error, {call.expected!r} is due"
    for buffer in call.function.outputs:
        name, array, value = buffer.name, found[buffer.name], call.expected[buffer.name]
        if array.dtype == bool and (array.view(np.uint8) > 1).any():
            return f"{name} holds a bool that is neither 0 nor 1"
        wrong = _wrong(array, value, buffer.dtype)
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            wanted = value.value[at].astype(array.dtype)
            within = f" within {value.error[at]:.3g}" if value.error[at] > 0 else ""
            return (
                f"{name}{list(at)} is {array[at]}, not {wanted}{within} "
                f"({int(wrong.sum())} of {wrong.size} elements)"
            )
    return ""


def _wrong(array: np.ndarray, value: Value, dtype) -> np.ndarray:
    if not dtype.is_float:
        return (array != value.value) & (value.error == 0)
    with np.errstate(all="ignore"):
        wide = array.astype(np.longdouble)
        exact = narrowed(value.value, dtype)
        same = (wide == exact) | (np.isnan(wide) & np.isnan(exact))
        half = abs(wide) * limits(dtype).eps / 2  # the rounding of what is stored
        near = abs(wide - value.value) <= value.error + np.where(value.error > 0, half, 0)
    return ~(same | near | np.isinf(value.error))


def _where(function: Function, case: Case, call: Call) -> str:
    """The first form of a function whose answer is wrong by the interpreter, to look at."""
    flat = lower_passes(function, _target(case))
    for name, form in (("the scheduled function", function), ("the flat function", flat)):
        complaint = call.interpreted(form)
        if complaint:
            return f"{name} is wrong already: {complaint}\n{show(form)}"
    return f"the flat function is right, its machine code is not\n{show(flat)}"
