"""The contents page: te -> schedule -> passes -> codegen -> runtime. Only here do these five meet."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from tensorc import te
from tensorc.arith import simplify
from tensorc.artifact import Artifact
from tensorc.codegen import llvm
from tensorc.errors import ArgumentError, InternalError, ScheduleError, TensorcError, UnsupportedError
from tensorc.intrinsics import find
from tensorc.ir.count import count
from tensorc.ir.expr import Expr, Var
from tensorc.ir.function import Function
from tensorc.ir.printer import show
from tensorc.ir.stmt import Block, annotation
from tensorc.ir.walk import walk
from tensorc.passes.pipeline import lower as lower_passes
from tensorc.passes.summary import summarize
from tensorc.report import Loop, Report
from tensorc.runtime import Cache, Kernel, compiler_version, default_threads, load
from tensorc.schedule import Schedule, Trace
from tensorc.schedule.knobs import Decisions, Replay, ScheduleSource
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
) -> Schedule:
    """What `build` does when it is given tensors: the recipes' schedule for a target, to read or to go on from."""
    return _default(tensors, _cpu(target), _threads(threads), schedules, registered(), name)


def _default(tensors, target: Target, threads: int, schedules, own: Sequence[Recipe], name: str) -> Schedule:
    function = _guarded(lambda: te.lower(tensors, name))
    found = _looked_up(schedules, function, target)
    return _guarded(lambda: _schedule(function, target, threads, found, own), function)


def build(
    what: Sequence[te.Tensor] | te.Tensor | Schedule,
    target: Target | str | None = None,
    *,
    threads: int | None = None,
    schedules: ScheduleSource | Decisions | Trace | None = None,
    name: str | None = None,
    cache: bool = True,
) -> Kernel:
    """A kernel from tensors (arguments in order, inputs and outputs), scheduled by default, or from a schedule.

    `threads` bounds the threads that the kernel is scheduled for and uses; None is TENSORC_NUM_THREADS, or the cores
    that this process may use. `schedules` supplies tuned schedules: a source of them, decisions, or a trace. With
    `cache`, compiled code is kept on disk. `name` is the kernel's; None is the schedule's function's, or "main".
    Raises ExpressionError, ScheduleError, TargetError, UnsupportedError.
    """
    target = _cpu(target)
    limit = _threads(threads)
    plan: Callable[[], Schedule]
    if name is not None:
        check_name("build", name)
    chosen = name or (what.function.name if isinstance(what, Schedule) else "main")
    if not isinstance(what, Schedule):
        own = registered()
        made = _default(check_arguments(what), target, limit, schedules, own, chosen) if own else None
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
        plan = lambda: made or _default(tensors, target, limit, schedules, (), chosen)
        names = list(argument_names(tensors))
    store = Cache.default() if cache and schedules is None else None
    text += "".join([f"\n{var.name}" for var in symbols])  # by which callers pass them
    key = _key(text, target, limit)
    artifact = store.get(key) if store else None
    if artifact is None:
        scheduled = plan()
        artifact = compile_schedule(scheduled, target)
        if store:
            store.put(key, artifact)
    params = tuple([replace(param, name=new) for param, new in zip(artifact.params, names)])
    artifact = replace(artifact, name=chosen, params=params)
    return load(artifact, describe=_describer(plan, target), threads=limit)


def _intrinsics(function: Function) -> str:
    """The tensor intrinsics that the blocks of a function name, in full: users may have registered them."""
    called = {str(note) for s in walk(function.body) if type(s) is Block and (note := annotation(s, "tensorize"))}
    return "".join([f"\n{name}\n{found.text}" for name in sorted(called) if (found := find(name))])


def _symbols(function: Function) -> tuple[Var, ...]:
    extents = [e for buffer in function.params for e in (*buffer.shape, *(buffer.strides or ()))]
    return (*[extent for extent in extents if type(extent) is Var], *function.scalars)


def compile_schedule(scheduled: Schedule, target: Target) -> Artifact:
    """Machine code for a scheduled function."""
    function = scheduled.function
    flops, size = count(scheduled.origin)
    flat = _guarded(lambda: lower_passes(function, target), function)
    return _guarded(lambda: llvm.compile(flat, target, flops=flops, bytes=size), function)


def _looked_up(
    schedules: ScheduleSource | Decisions | Trace | None, function: Function, target: Target
) -> Decisions | Trace | None:
    """What the caller has for a function; what a source of the caller's raises is the caller's."""
    if schedules is None or isinstance(schedules, (Mapping, Trace)):
        return schedules
    if not hasattr(schedules, "lookup"):
        raise ArgumentError(f"schedules={schedules!r}: decisions, a Trace or an object with lookup is needed")
    found = schedules.lookup(function, target)
    if found is not None and not isinstance(found, (Mapping, Trace)):
        raise ScheduleError(f"schedules: lookup gave {found!r}; a Trace, a dict of decisions or None is needed")
    return found


def _schedule(
    function: Function, target: Target, threads: int, found: Decisions | Trace | None, own: Sequence[Recipe]
) -> Schedule:
    if isinstance(found, Trace):
        return found.apply(Schedule(function))
    return schedule_function(function, target, threads, None if found is None else Replay(found), own)


def _describer(plan: Callable[[], Schedule], target: Target) -> Callable[[str], object]:
    """What a kernel tells of itself, derived when it is asked for: after a cache hit nothing has been lowered."""

    def describe(what: str) -> object:
        scheduled = plan()
        function = scheduled.function
        match what:
            case "function":
                return function
            case "schedule":
                return scheduled.copy()
            case "ir":
                return show(function)
            case "flat":
                return show(lower_passes(function, target))
            case "llvm":
                return llvm.optimize(llvm.emit(lower_passes(function, target), target), target)
            case "asm":
                return llvm.assembly(lower_passes(function, target), target)
            case "report":
                return _report(scheduled, target)
            case _:
                kinds = "'ir', 'flat', 'llvm', 'asm'"
                raise ArgumentError(f"source({what!r}): a CPU kernel has {kinds}")

    return describe


def _report(scheduled: Schedule, target: Target) -> Report:
    function = scheduled.function
    flat = lower_passes(function, target)
    nests = summarize(scheduled.origin, function, flat, target)
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
