"""Kernels inside functions that Numba compiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tensorc.artifact import Artifact, Param
from tensorc.dtypes import dtype
from tensorc.errors import UnsupportedError
from tensorc.runtime.arrays import Signature
from tensorc.runtime.numba_code import Addresses, Emitter

__all__ = ["numba_function"]

_MADE_ALIGNMENT = 32  # of the data of arrays that Numba makes


@dataclass(frozen=True, slots=True)
class _Callee:
    """The kernel that is called."""

    artifact: Artifact
    signature: Signature
    threads: int
    at: Addresses

    @property
    def inputs(self) -> tuple[Param, ...]:
        return tuple([param for param in self.artifact.params if not param.is_output])

    @property
    def outputs(self) -> tuple[Param, ...]:
        return tuple([param for param in self.artifact.params if param.is_output])

    def emitter(self, context: Any, builder: Any) -> Emitter:
        return Emitter(context, builder, self.artifact, str(self.signature), self.at)


@cache  # keeps the kernel too: compiled callers hold its address for ever
def numba_function(
    artifact: Artifact, signature: Signature, threads: int, at: Addresses, owner: object
) -> Callable:
    """An @njit function that calls a kernel with arrays, as the kernel itself is called, and then with
    the scalars that these do not determine, as ints, in the order of the signature.

    `owner` keeps what is at the addresses. Raises UnsupportedError for kernels whose arguments Numba
    cannot show.
    """
    import numba

    _check(artifact, str(signature))
    callee = _Callee(artifact, signature, threads, at)
    run, outputs = _run(callee), callee.outputs
    make = _maker(callee, outputs) if outputs and all(map(_can_be_made, outputs)) else None
    everything, inputs = len(artifact.params), len(callee.inputs)

    def kernel(*arguments):
        raise NotImplementedError

    @numba.extending.overload(kernel, strict=False)
    def choose(*arguments):
        is_tuple = len(arguments) == 1 and isinstance(arguments[0], numba.types.BaseTuple)
        given = tuple(arguments[0] if is_tuple else arguments)
        arrays = len(given) - _trailing_ints(given)
        if (arrays, len(given) - arrays) == (everything, len(signature.undetermined)):
            return lambda *arguments: run(arguments, ())
        if make is not None and (arrays, len(given) - arrays) == (inputs, len(signature.late)):
            return _returning(run, make, len(outputs))
        raise numba.errors.TypingError(_miscounted(callee, make is not None, arrays, len(given) - arrays))

    @numba.njit
    def call(*arguments):
        return kernel(*arguments)

    return call


def _trailing_ints(kinds: Sequence[Any]) -> int:
    import numba

    count = 0
    while count < len(kinds) and isinstance(kinds[-1 - count], numba.types.Integer):
        count += 1
    return count


def _miscounted(callee: _Callee, makes: bool, arrays: int, numbers: int) -> str:
    inputs, everything = len(callee.inputs), len(callee.artifact.params)
    signature = callee.signature
    needed = f"{inputs} or {everything}" if makes else f"{everything}"
    text = f"{signature}: got {arrays} of {needed} arguments"
    wanted = signature.late if makes and arrays == inputs else signature.undetermined
    if numbers or wanted:
        text += f" and {numbers} of {len(wanted)} ints after them ({', '.join(wanted) or 'none'})"
    return text


def _returning(run: Any, make: Any, count: int) -> Callable:
    """What makes the outputs, and returns them as the kernel does."""
    if count == 1:

        def one(*arguments):
            made = make(arguments)
            run(arguments, made)
            return made[0]

        return one

    def several(*arguments):
        made = make(arguments)
        run(arguments, made)
        return made

    return several


def _check(artifact: Artifact, signature: str) -> None:
    if any(param.strides is not None for param in artifact.params):
        raise UnsupportedError(f"{signature}: numba() takes contiguous arrays only")
    for param in artifact.params:
        if param.dtype == "bfloat16":
            raise UnsupportedError(f"{signature}: Numba has no {param.dtype}")


def _can_be_made(param: Param) -> bool:
    return param.alignment <= _MADE_ALIGNMENT


def _maker(callee: _Callee, outputs: Sequence[Param]) -> Any:
    """An @njit function that makes a tuple of these arrays for a call's arguments."""
    import numba
    import numpy as np

    shape, kind = _shape(callee, outputs[-1]), dtype(outputs[-1].dtype).numpy
    last = numba.njit(lambda given: (np.empty(shape(given), kind),))
    if len(outputs) == 1:
        return last
    before = _maker(callee, outputs[:-1])
    return numba.njit(lambda given: before(given) + last(given))


def _shape(callee: _Callee, output: Param) -> Any:
    """`shape(given)`: the extents of an output for a call without outputs, as a tuple."""
    import numba

    @numba.extending.intrinsic
    def shape(typing, given):
        _check_types(callee, callee.inputs, given)
        extents = numba.types.UniTuple(numba.types.intp, len(output.shape))

        def generate(context, builder, call, args):
            emit = callee.emitter(context, builder)
            arrays = _arrays(context, builder, callee.inputs, args[0], call.args[0])
            emit.bind(arrays, _numbers(context, builder, callee.signature.late, args[0], call.args[0]))
            return context.make_tuple(builder, extents, emit.shape(output))

        return extents(given), generate

    return shape


def _run(callee: _Callee) -> Callable:
    """`run(given, made)`: the kernel on arrays and the numbers after them; the outputs are in `made` if
    it is not empty."""
    import numba

    @numba.extending.intrinsic
    def run(typing, given, made):
        is_made = bool(len(made))
        _check_types(callee, callee.inputs if is_made else callee.artifact.params, given)
        names = callee.signature.late if is_made else callee.signature.undetermined

        def generate(context, builder, call, args):
            first = callee.inputs if is_made else callee.artifact.params
            found = dict(_arrays(context, builder, first, args[0], call.args[0]))
            if is_made:
                found.update(_arrays(context, builder, callee.outputs, args[1], call.args[1]))
            arrays = [(param, found[param]) for param in callee.artifact.params]
            emit = callee.emitter(context, builder)
            emit.bind(arrays, _numbers(context, builder, names, args[0], call.args[0]))
            emit.check_memory(arrays, is_made)
            emit.call(arrays, callee.threads)
            return context.get_dummy_value()

        return numba.types.none(given, made), generate

    return run


def _arrays(
    context: Any, builder: Any, params: Sequence[Param], values: Any, kinds: Any
) -> list[tuple[Param, Any]]:
    """The first elements of a tuple, as arrays."""
    return [
        (param, context.make_array(kind)(context, builder, value=builder.extract_value(values, position)))
        for position, (param, kind) in enumerate(zip(params, kinds))
    ]


def _numbers(context: Any, builder: Any, names: Sequence[str], values: Any, kinds: Any) -> dict[str, Any]:
    """The last elements of a tuple, as words by these names."""
    import numba

    start = len(kinds) - len(names)
    return {
        name: context.cast(
            builder, builder.extract_value(values, start + n), kinds[start + n], numba.types.int64
        )
        for n, name in enumerate(names)
    }


def _check_types(callee: _Callee, params: Sequence[Param], kinds: Any) -> None:
    for param, kind in zip(params, kinds):
        _check_type(str(callee.signature), param, kind)


def _check_type(signature: str, param: Param, kind: Any) -> None:
    import numba

    def refuse(what: str):
        raise numba.errors.TypingError(f"{signature}: argument {param.name} {what}")

    if not isinstance(kind, numba.types.Array):
        refuse(f"is {kind}, an array is needed")
    if kind.dtype != numba.from_dtype(dtype(param.dtype).numpy):
        refuse(f"is {kind.dtype}, {param.dtype} is needed")
    if kind.ndim != len(param.shape):
        refuse(f"has rank {kind.ndim}, {len(param.shape)} is needed")
    if kind.layout != "C" and kind.ndim:
        refuse("may have strides, row-major and contiguous is needed; np.ascontiguousarray copies")
    if param.is_output and not kind.mutable:
        refuse("is read-only, an output must be writable")
