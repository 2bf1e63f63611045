"""The contents page: te -> schedule -> passes -> codegen -> runtime. Only here do these five meet."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from tensorc import te
from tensorc.arith import simplify
from tensorc.artifact import Artifact, Param
from tensorc.codegen import llvm
from tensorc.errors import ArgumentError, InternalError, ScheduleError, TensorcError, UnsupportedError
from tensorc.intrinsics import find
from tensorc.ir.count import count
from tensorc.ir.expr import Buffer, Const, Expr, Var
from tensorc.ir.function import Function
from tensorc.ir.printer import show
from tensorc.ir.stmt import Block, annotation
from tensorc.ir.walk import walk
from tensorc.passes.pipeline import lower as lower_passes
from tensorc.passes.summary import summarize
from tensorc.report import Loop, Report
from tensorc.runtime import (
    Cache,
    Kernel,
    bound_arrays,
    compiler_version,
    constant_array,
    default_threads,
    load,
)
from tensorc.schedule import Schedule, Trace
from tensorc.schedule.knobs import Decisions, Replay, ScheduleSource
from tensorc.schedule.preparation import Parts, prepared
from tensorc.schedule.recipes.choose import schedule_function
from tensorc.schedule.recipes.custom import Recipe, registered
from tensorc.target import Target, as_target
from tensorc.te.graph import argument_names, check_arguments
from tensorc.te.tensor import check_name, is_integer

__all__ = ["build", "default_schedule", "schedule"]

Result = TypeVar("Result")


def schedule(tensors: Sequence[te.Tensor] | te.Tensor, name: str = "main") -> Schedule:
    """The unscheduled loop nest of the tensors, to be transformed by hand.

    `tensors` are the arguments of the kernel in order, inputs and outputs; a tensor stands for a list of it alone.
    Raises ExpressionError.
    """
    return Schedule(_guarded(lambda: te.lower(tensors, name)))


def default_schedule(
    tensors: Sequence[te.Tensor] | te.Tensor,
    target: Target | str | None = None,
    *,
    threads: int | None = None,
    schedules: ScheduleSource | Decisions | Trace | None = None,
    name: str = "main",
    constants: Iterable[te.Tensor | str] = (),
) -> Schedule:
    """What `build` does when it is given tensors: the recipes' schedule for a target, to read or to go on from.

    `constants` are the inputs, or their names, that `build` would be given as such.
    """
    fixed = tuple(_positions(constants, _arguments(tensors)))
    return _default(tensors, _cpu(target), _threads(threads), schedules, registered(), name, fixed)


def _default(
    tensors, target: Target, threads: int, schedules, own: Sequence[Recipe], name: str, fixed: tuple[int, ...]
) -> Schedule:
    function = _guarded(lambda: te.lower(tensors, name))
    found = _looked_up(schedules, function, target, threads)
    names = [function.params[position].name for position in fixed]
    return _guarded(lambda: _schedule(function, target, threads, found, own, names), function)


def build(
    what: Sequence[te.Tensor] | te.Tensor | Schedule,
    target: Target | str | None = None,
    *,
    threads: int | None = None,
    schedules: ScheduleSource | Decisions | Trace | None = None,
    name: str | None = None,
    cache: bool = True,
    constants: Mapping[te.Tensor | str, object] | None = None,
) -> Kernel:
    """A kernel from tensors (arguments in order, inputs and outputs), scheduled by default, or from a schedule.

    `threads` bounds the threads that the kernel is scheduled for and uses; None is TENSORC_NUM_THREADS, or the cores
    that this process may use. `schedules` supplies tuned schedules: a source of them, decisions, or a trace. With
    `cache`, compiled code is kept on disk. `name` is the kernel's; None is the schedule's function's, or "main".
    `constants` gives arrays for inputs, by tensor or name, which calls are then not given; what depends on nothing else
    is computed now. The arrays may change afterwards.
    Raises ExpressionError, ScheduleError, TargetError, UnsupportedError; ArgumentError for constants that do not fit.
    """
    target = _cpu(target)
    limit = _threads(threads)
    plan: Callable[[], Schedule]
    if name is not None:
        check_name("build", name)
    chosen = name or (what.function.name if isinstance(what, Schedule) else "main")
    held = _held(constants, what)
    fixed = tuple(held)
    found: Decisions | Trace | None = None
    if not isinstance(what, Schedule):
        given = check_arguments(what)
        if schedules is not None:
            function = _guarded(lambda: te.lower(given, chosen))
            found = _looked_up(schedules, function, target, limit)
        own = registered()
        made = _default(given, target, limit, found, own, chosen, fixed) if own else None
        if made is not None and not {recipe.name for recipe in own}.isdisjoint(made.recipes.values()):
            what = made  # known by what its recipes did to it: their code may change
    if isinstance(what, Schedule):
        snapshot = what.copy()  # the caller may go on with the schedule
        snapshot.function = function = what.function.with_(name=chosen)
        symbols = _symbols(function)
        text = show(function, canonical=True) + _intrinsics(function)
        plan = lambda: snapshot
        names = [buffer.name for buffer in function.params]
    else:
        tensors = check_arguments(what)
        symbols = te.symbols(tensors)
        text = _guarded(lambda: te.canonical_text(tensors))
        if found is not None:  # which tells blocks by their names
            text = show(function) + (found.json() if isinstance(found, Trace) else repr(dict(found)))
        plan = lambda: made or _default(tensors, target, limit, found, (), chosen, fixed)
        names = list(argument_names(tensors))
    store = Cache.default() if cache else None
    text += "".join([f"\n{var.name}" for var in symbols])  # by which callers pass them
    keys = [_key(text, target, limit)]
    if fixed:
        text += f"\nconstants {fixed}"
        keys = [_key(text, target, limit), _key(f"{text} for {Target.host().text}", target, limit)]
    artifact, *once = _kept(store, keys, lambda: _compiled_parts(plan(), target, fixed))
    params = [replace(param, name=new) for param, new in zip(artifact.params, _left(names, fixed))]
    artifact = replace(artifact, name=chosen, params=tuple(params))
    bound = [array for prepare in once for array in bound_arrays(artifact.bound, prepare, held, names, limit)]
    return load(artifact, describe=_describer(plan, target, fixed), threads=limit, bound=bound)


def _left(names: Sequence[str], fixed: Collection[int]) -> list[str]:
    return [name for position, name in enumerate(names) if position not in fixed]


def _kept(store: Cache | None, keys: Sequence[str], make: Callable[[], list[Artifact]]) -> list[Artifact]:
    """What the cache has under these keys, or what is made and put there."""
    found = [store.get(key) if store else None for key in keys]
    known = [artifact for artifact in found if artifact is not None]
    if len(known) < len(keys):
        known = make()
        for key, artifact in zip(keys, known):
            if store:
                store.put(key, artifact)
    return known


@dataclass(frozen=True, slots=True)
class _Argument:
    name: str
    buffer: Buffer
    is_output: bool
    tensor: te.Tensor | None = None


def _arguments(what: Sequence[te.Tensor] | te.Tensor | Schedule) -> list[_Argument]:
    if isinstance(what, Schedule):
        function = what.function
        return [_Argument(buffer.name, buffer, buffer in function.outputs) for buffer in function.params]
    tensors = check_arguments(what)
    names = argument_names(tensors)
    return [_Argument(name, t.buffer, not t.is_placeholder, t) for name, t in zip(names, tensors)]


def _positions(constants: Iterable[te.Tensor | str], arguments: Sequence[_Argument]) -> dict[int, te.Tensor | str]:
    """The numbers of the arguments that are constant, in order, and what told each. Raises ArgumentError."""
    found: dict[int, te.Tensor | str] = {}
    for told in constants:
        known = [n for n, each in enumerate(arguments) if each.tensor is told or each.name == told]
        if not known:
            name, names = getattr(told, "name", told), [each.name for each in arguments]
            hint = "; give its name" if name in names else ""  # the tensor is another one, or a schedule has none
            raise ArgumentError(f"constants: {name!r} is none of the arguments {', '.join(names)}{hint}")
        position = known[0]
        name, buffer = arguments[position].name, arguments[position].buffer
        if arguments[position].is_output:
            raise ArgumentError(f"constants: {name} is an output, only inputs can be constant")
        if position in found:
            raise ArgumentError(f"constants: {name} is given twice, as a tensor and by its name")
        if not all([type(extent) is Const for extent in buffer.shape]):
            shape = ", ".join(map(show, buffer.shape))
            raise ArgumentError(f"constants: {name} has the shape ({shape}), a constant one is needed")
        if buffer.strides is not None:
            raise ArgumentError(f"constants: {name} asks for strides, a contiguous parameter is needed")
        found[position] = told
    return dict(sorted(found.items()))


def _held(
    constants: Mapping[te.Tensor | str, object] | None, what: Sequence[te.Tensor] | te.Tensor | Schedule
) -> dict[int, np.ndarray]:
    """The arrays of the constant arguments, by their numbers. Raises ArgumentError where they do not fit."""
    if constants is None:
        return {}
    if not isinstance(constants, Mapping):
        raise ArgumentError(f"constants={constants!r}: a dict of arrays by tensors or names is needed")
    arguments = _arguments(what)
    return {n: _array(arguments[n], constants[told]) for n, told in _positions(constants, arguments).items()}


def _array(argument: _Argument, given: object) -> np.ndarray:
    buffer = argument.buffer
    shape = tuple([int(extent.value) for extent in buffer.shape if type(extent) is Const])
    return constant_array(Param(argument.name, buffer.dtype.name, shape, False), given)


def _parts(function: Function, fixed: Collection[int]) -> Parts:
    return prepared(function, [function.params[position].name for position in fixed])


def _compiled_parts(scheduled: Schedule, target: Target, fixed: Collection[int]) -> list[Artifact]:
    """Machine code for what a call does, and, where there are constants, for what is done once, on this machine.

    Names in it are not the caller's, since others may find it in the cache: constants are called by their numbers among
    the arguments.
    """
    if not fixed:
        return [compile_schedule(scheduled, target)]
    parts = _parts(scheduled.function, fixed)
    rest = compile_function(parts.rest, target, count(scheduled.origin))
    prepare = compile_function(parts.prepare, Target.host(), count(parts.prepare))
    labels = {buffer: f"made {number}" for number, buffer in enumerate(parts.bound)}
    labels |= {buffer: str(position) for position, buffer in enumerate(scheduled.function.params)}
    first = len(rest.params) - len(parts.bound)
    bound = _renamed(rest.params[first:], parts.bound, labels)
    rest = replace(rest, params=rest.params[:first], bound=bound)
    return [rest, replace(prepare, params=_renamed(prepare.params, parts.prepare.params, labels))]


def _renamed(
    params: Sequence[Param], buffers: Sequence[Buffer], labels: Mapping[Buffer, str]
) -> tuple[Param, ...]:
    return tuple([replace(param, name=labels[buffer]) for param, buffer in zip(params, buffers)])


def _intrinsics(function: Function) -> str:
    """The tensor intrinsics that the blocks of a function name, in full: users may have registered them."""
    called = {str(note) for s in walk(function.body) if type(s) is Block and (note := annotation(s, "tensorize"))}
    return "".join([f"\n{name}\n{found.text}" for name in sorted(called) if (found := find(name))])


def _symbols(function: Function) -> tuple[Var, ...]:
    extents = [e for buffer in function.params for e in (*buffer.shape, *(buffer.strides or ()))]
    return (*[extent for extent in extents if type(extent) is Var], *function.scalars)


def compile_schedule(scheduled: Schedule, target: Target) -> Artifact:
    """Machine code for a scheduled function."""
    return compile_function(scheduled.function, target, count(scheduled.origin))


def compile_function(
    function: Function, target: Target, work: tuple[int | Expr, int | Expr], most: int | None = None
) -> Artifact:
    """Machine code for a scheduled function; `work` is what `count` says of the unscheduled one, with the variables of
    this one.

    Raises UnsupportedError for what the target cannot run, and for more than `most` characters of LLVM text.
    """
    flops, size = work
    flat = _guarded(lambda: lower_passes(function, target), function)
    return _guarded(lambda: llvm.compile(flat, target, flops=flops, bytes=size, most=most), function)


def _looked_up(
    schedules: ScheduleSource | Decisions | Trace | None, function: Function, target: Target, threads: int
) -> Decisions | Trace | None:
    """What the caller has for a function; what a source of the caller's raises is the caller's."""
    if schedules is None or isinstance(schedules, (Mapping, Trace)):
        return schedules
    if not hasattr(schedules, "lookup"):
        raise ArgumentError(f"schedules={schedules!r}: decisions, a Trace or an object with lookup is needed")
    found = schedules.lookup(function, target, threads)
    if found is not None and not isinstance(found, (Mapping, Trace)):
        raise ScheduleError(f"schedules: lookup gave {found!r}; a Trace, a dict of decisions or None is needed")
    return found


def _schedule(
    function: Function,
    target: Target,
    threads: int,
    found: Decisions | Trace | None,
    own: Sequence[Recipe],
    constants: Collection[str],
) -> Schedule:
    if isinstance(found, Trace):
        return found.apply(Schedule(function))
    return schedule_function(function, target, threads, None if found is None else Replay(found), own, constants)


def _describer(plan: Callable[[], Schedule], target: Target, fixed: tuple[int, ...]) -> Callable[[str], object]:
    """What a kernel tells of itself, derived when it is asked for: after a cache hit nothing has been lowered."""

    def describe(what: str) -> object:
        scheduled = plan()
        parts = _parts(scheduled.function, fixed)
        function = parts.rest
        match what:
            case "function":
                return function
            case "schedule":
                return scheduled.copy()
            case "ir":
                return show(function)
            case "prepare" if fixed:
                return show(parts.prepare)
            case "flat":
                return show(lower_passes(function, target))
            case "llvm":
                return llvm.optimize(llvm.emit(lower_passes(function, target), target), target)
            case "asm":
                return llvm.assembly(lower_passes(function, target), target)
            case "report":
                return _report(scheduled, function, _parts(scheduled.origin, fixed).rest, target)
            case _:
                kinds = "'ir', 'flat', 'llvm', 'asm'" + ", 'prepare'" * bool(fixed)
                raise ArgumentError(f"source({what!r}): a CPU kernel has {kinds}")

    return describe


def _report(scheduled: Schedule, function: Function, origin: Function, target: Target) -> Report:
    """What a call of `function` does, which is what it does of the definition `origin`."""
    flat = lower_passes(function, target)
    nests = summarize(origin, function, flat, target)
    flops, size = [show(simplify(n)) if isinstance(n, Expr) else n for n in count(scheduled.origin)]
    made: dict[str, list[llvm.MachineLoop]] = {}
    for loop in llvm.machine_loops(flat, target):
        made.setdefault(loop.name, []).append(loop)
    measured = [replace(nest, loops=tuple([_measured(loop, made) for loop in nest.loops])) for nest in nests]
    return Report(function.name, target.mcpu, flops, size, tuple(measured), tuple(scheduled.recipes.items()))


def _measured(loop: Loop, made: dict[str, list[llvm.MachineLoop]]) -> Loop:
    """A loop with what LLVM made of it: loops of one name come in the same order."""
    found = made.get(loop.name)
    if not found:
        return loop
    machine = found.pop(0)
    return replace(loop, instructions=machine.instructions, spills=machine.spills)


def _cpu(target: Target | str | None) -> Target:
    target = as_target(target)
    if target.kind != "cpu":
        raise UnsupportedError(f"target {target.kind!r}: code is generated for 'cpu' only so far")
    return target


def _threads(threads: int | None) -> int:
    if threads is None:
        return default_threads()
    if not is_integer(threads) or threads < 1:
        raise ArgumentError(f"threads={threads!r}: a positive number is needed")
    return int(threads)


def _key(text: str, target: Target, threads: int) -> str:
    parts = (compiler_version(), target.text, str(threads), text)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _guarded(step: Callable[[], Result], function: Function | None = None) -> Result:
    """The result of a step; what escapes it other than a TensorcError is a bug of ours, reported with the function."""
    try:
        return step()
    except TensorcError:
        raise
    except Exception as error:
        handle, path = tempfile.mkstemp(prefix="tensorc-bug-", suffix=".txt")
        with os.fdopen(handle, "w") as file:
            file.write(f"{type(error).__name__}: {error}\n\n{'' if function is None else show(function)}\n")
        problem = f"{type(error).__name__}: {error}; this is a bug of tensorc, the function is in {path}"
        raise InternalError(problem) from error
