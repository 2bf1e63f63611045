"""Kernels inside functions that Numba compiles."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from tensorc.artifact import ERROR_WORDS, Artifact, Param
from tensorc.dtypes import dtype
from tensorc.errors import ArgumentError, UnsupportedError

__all__ = ["numba_function"]

_MADE_ALIGNMENT = 32  # of the data of arrays that Numba makes


@cache  # keeps the kernel too: compiled callers hold its address for ever
def numba_function(
    artifact: Artifact, signature: str, threads: int, invoke: int, table: int, owner: object
) -> Callable:
    """An @njit function that calls a kernel with arrays, as the kernel itself is called.

    `invoke` is the address of the wrapper's function of that name, `table` that of the kernel's
    table, which `owner` keeps. Raises UnsupportedError for kernels whose arguments Numba cannot
    show.
    """
    import numba

    _check(artifact, signature)
    run = _intrinsic(artifact, signature, threads, invoke, table)
    outputs = [param for param in artifact.params if param.is_output]
    everything = len(artifact.params)
    make = _maker(outputs) if outputs and all(map(_can_be_made, outputs)) else None

    def kernel(*arrays):
        raise NotImplementedError

    @numba.extending.overload(kernel, strict=False)
    def choose(*arrays):
        given = arrays[0] if len(arrays) == 1 and isinstance(arrays[0], numba.types.BaseTuple) else arrays
        if len(given) == everything:
            return lambda *arrays: run(arrays, ())
        if len(given) != everything - len(outputs) or make is None:
            needed = f"{everything}" if make is None else f"{everything - len(outputs)} or {everything}"
            raise numba.errors.TypingError(f"{signature}: got {len(given)} of {needed} arguments")
        return _returning(run, make, len(outputs))

    @numba.njit
    def call(*arrays):
        return kernel(*arrays)

    return call


def _returning(run: Any, make: Any, count: int) -> Callable:
    """What makes the outputs, and returns them as the kernel does."""
    if count == 1:

        def one(*arrays):
            made = make()
            run(arrays, made)
            return made[0]

        return one

    def several(*arrays):
        made = make()
        run(arrays, made)
        return made

    return several


def _check(artifact: Artifact, signature: str) -> None:
    named = {n for param in artifact.params for n in param.shape}
    if artifact.derived or not named.issuperset(artifact.scalars):
        raise UnsupportedError(
            f"{signature}: numba() needs sizes that are extents of the arrays; call the kernel from Python"
        )
    if any(param.strides is not None for param in artifact.params):
        raise UnsupportedError(f"{signature}: numba() takes contiguous arrays only")
    for param in artifact.params:
        if param.dtype == "bfloat16":
            raise UnsupportedError(f"{signature}: Numba has no {param.dtype}")


def _can_be_made(param: Param) -> bool:
    return all(isinstance(n, int) for n in param.shape) and param.alignment <= _MADE_ALIGNMENT


def _maker(outputs: list[Param]) -> Any:
    """An @njit function that makes a tuple of these arrays."""
    import numba
    import numpy as np

    shape = tuple(n for n in outputs[-1].shape if isinstance(n, int))
    kind = dtype(outputs[-1].dtype).numpy
    last = numba.njit(lambda: (np.empty(shape, kind),))
    if len(outputs) == 1:
        return last
    before = _maker(outputs[:-1])
    return numba.njit(lambda: before() + last())


def _intrinsic(artifact: Artifact, signature: str, threads: int, invoke: int, table: int) -> Callable:
    """`run(given, made)`: the kernel on two tuples of arrays, the outputs in the second if any."""
    import numba

    params = artifact.params

    @numba.extending.intrinsic
    def run(typing, given, made):
        places = _places(params, bool(len(made)))
        for param, (which, position) in zip(params, places):
            _check_type(signature, param, (given, made)[which][position])

        def generate(context, builder, call, args):
            arrays = []
            for which, position in places:
                value = builder.extract_value(args[which], position)
                kind = call.args[which][position]
                arrays.append(context.make_array(kind)(context, builder, value=value))
            emit = _Emitter(context, builder, signature)
            sizes = emit.check(artifact, arrays, skip_overlap=bool(len(made)))
            emit.call(arrays, [*sizes, threads], invoke, table)
            return context.get_dummy_value()

        return numba.types.none(given, made), generate

    return run


def _places(params: tuple[Param, ...], made: bool) -> list[tuple[int, int]]:
    """For each parameter the tuple that it is in, 0 or 1, and its place there."""
    counts, places = [0, 0], []
    for param in params:
        which = int(made and param.is_output)
        places.append((which, counts[which]))
        counts[which] += 1
    return places


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


class _Emitter:
    """Code at one place of a function that Numba compiles."""

    def __init__(self, context: Any, builder: Any, signature: str):
        self.context = context
        self.builder = builder
        self.signature = signature

    def check(self, artifact: Artifact, arrays: list[Any], skip_overlap: bool) -> list[Any]:
        """Raise ArgumentError if extents, alignment or overlap do not fit; the scalars' values."""
        builder, word = self.builder, self.word
        values: dict[str, Any] = {}
        spans = []
        for param, array in zip(artifact.params, arrays):
            extents = [builder.extract_value(array.shape, axis) for axis in range(len(param.shape))]
            for axis, (have, want) in enumerate(zip(extents, param.shape)):
                need = values.setdefault(want, have) if isinstance(want, str) else word(want)
                text = f"argument {param.name} has another extent than {want} in axis {axis}"
                self.refuse(builder.icmp_signed("!=", have, need), text)
            start = builder.ptrtoint(array.data, word(0).type)
            if param.alignment > 1:
                off = builder.and_(start, word(param.alignment - 1))
                text = f"argument {param.name} is not aligned to {param.alignment}"
                self.refuse(builder.icmp_signed("!=", off, word(0)), text)
            size = word(dtype(param.dtype).bytes)
            for extent in extents:
                size = builder.mul(size, extent)
            spans.append((param, start, builder.add(start, size)))
        if not skip_overlap:
            self.check_overlap(spans)
        return [values[name] for name in artifact.scalars]

    def check_overlap(self, spans: list[tuple[Param, Any, Any]]) -> None:
        builder = self.builder
        for out, start, end in spans:
            for other, start2, end2 in spans:
                if out is other or not out.is_output:
                    continue
                low = builder.icmp_unsigned("<", start, end2)
                high = builder.icmp_unsigned("<", start2, end)
                text = f"output {out.name} overlaps argument {other.name}, an output needs its own memory"
                self.refuse(builder.and_(low, high), text)

    def call(self, arrays: list[Any], scalars: list[Any], invoke: int, table: int) -> None:
        builder, word = self.builder, self.word
        data = [builder.ptrtoint(array.data, word(0).type) for array in arrays]
        numbers = [word(value) if isinstance(value, int) else value for value in scalars]
        error = self.words([word(0)] * ERROR_WORDS)
        operands = [word(table), self.words(data), self.words(numbers), error]
        code = builder.call(self.function(invoke), operands)
        self.refuse(builder.icmp_signed("==", code, code.type(-1)), "no memory for its workspace", MemoryError)
        self.refuse(builder.icmp_signed("!=", code, code.type(0)), "a check in the kernel failed")

    def function(self, address: int) -> Any:
        """int32 of four words, which are addresses."""
        from llvmlite import ir

        kind = ir.FunctionType(ir.IntType(32), [self.word(0).type] * 4)
        return self.builder.inttoptr(self.word(address), kind.as_pointer())

    def words(self, values: list[Any]) -> Any:
        """The address of these words on the stack."""
        from numba.core import cgutils

        kind = self.word(0).type
        place = cgutils.alloca_once(self.builder, kind, size=max(1, len(values)))
        for position, value in enumerate(values):
            self.builder.store(value, self.builder.gep(place, [self.word(position)]))
        return self.builder.ptrtoint(place, kind)

    def word(self, value: int) -> Any:
        from llvmlite import ir

        return ir.Constant(ir.IntType(64), value)

    def refuse(self, condition: Any, text: str, kind: type[Exception] = ArgumentError) -> None:
        with self.builder.if_then(condition, likely=False):
            message = (f"{self.signature}: {text}",)
            self.context.call_conv.return_user_exc(self.builder, kind, message)
