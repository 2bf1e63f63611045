"""Arguments of a call: any array-like object to a NumPy array that fits the kernel, or a sentence
that says why not.

This is the complete road of a call; the compiled wrapper takes the short one when every argument is
a plain array that fits.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tensorc.artifact import Artifact, Param
from tensorc.dtypes import dtype
from tensorc.errors import ArgumentError

__all__ = ["Signature", "address", "constant_array"]

_CPU_DEVICES = (1, 3, 11, 13)  # DLPack's codes: plain, pinned and managed memory


class _Refusal(Exception):
    """What is wrong with one argument, without the kernel's signature."""


class Signature:
    """The parameters of a kernel, and the complete checks of a call's arguments against them.

    `undetermined` are the scalars that no array determines, which are passed by name; `late` those that
    no input does, which are, too, if the outputs are not given.
    """

    __slots__ = ("_alignments", "_dtypes", "_inputs", "artifact", "late", "undetermined")

    def __init__(self, artifact: Artifact):
        self.artifact = artifact
        self.undetermined = _undetermined(artifact, artifact.params)
        inputs = [param for param in artifact.params if not param.is_output]
        self.late = _undetermined(artifact, inputs)
        self._inputs = sum(not param.is_output for param in artifact.params)
        self._dtypes = tuple(dtype(param.dtype).numpy for param in artifact.params)
        self._alignments = tuple(
            max(param.alignment, kind.alignment)
            for param, kind in zip(artifact.params, self._dtypes)
        )

    def __str__(self) -> str:
        """`matmul(A: float32[8, 8], B: float32[8, 8], out C: float32[8, 8])`."""
        params = [f"{'out ' * p.is_output}{p.name}: {_type_text(p)}" for p in self.artifact.params]
        named = [f"{name}: int64" for name in self.undetermined]
        return f"{self.artifact.name}({', '.join([*params, *named])})"

    def arrays(self, args: Sequence[object]) -> list[np.ndarray]:
        """Plain arrays over the memory of the arguments, not looked at any further.

        Raises ArgumentError for what is no array, and for a wrong number of arguments.
        """
        try:
            given = zip(self.artifact.params, self._by_param(args))
            chosen = [pair for pair in given if not pair[0].is_output or self._all(args)]
            return [_as_array(value, param) for param, value in chosen]
        except _Refusal as refusal:
            raise ArgumentError(f"{self}: {refusal}") from None

    def _all(self, args: Sequence[object]) -> bool:
        """Whether the outputs are among the arguments."""
        return len(args) == len(self.artifact.params)

    def bind(
        self,
        args: Sequence[object],
        named: Mapping[str, object],
        derive: Callable[[dict[str, int]], dict[str, int]] = lambda values: {},
    ) -> tuple[list[np.ndarray | None], dict[str, int]]:
        """(arrays in the order of the parameters, values of the scalars and the derived extents).

        An output is None if only the inputs are given. `derive` gives the derived extents for the
        scalars. Raises ArgumentError if anything does not fit.
        """
        params = self.artifact.params
        try:
            objects = self._by_param(args)
            given = self._all(args)
            values = self._named_scalars(named, given)
            facts = zip(params, self._dtypes, self._alignments, objects)
            arrays = [
                _checked(param, kind, alignment, value, values, self.artifact.derived)
                if given or not param.is_output
                else None
                for param, kind, alignment, value in facts
            ]
            if self.artifact.derived:
                derived = derive(values)
                for param, array in zip(params, arrays):
                    _check_derived(param, array, derived, values)
                values |= derived
            _check_overlap(params, arrays)
        except _Refusal as refusal:
            raise ArgumentError(f"{self}: {refusal}") from None
        return arrays, values

    def _by_param(self, args: Sequence[object]) -> list[object]:
        """The argument of each parameter; None for outputs if only the inputs are given."""
        params, inputs = self.artifact.params, self._inputs
        if len(args) == len(params):
            return list(args)
        if len(args) == inputs:
            rest = iter(args)
            return [None if p.is_output else next(rest) for p in params]
        needed = f"{len(params)}" if inputs == len(params) else f"{inputs} or {len(params)}"
        verb = "was" if len(args) == 1 else "were"
        noun = "argument" if len(args) == 1 else "arguments"
        raise _Refusal(f"{len(args)} {noun} {verb} given, {needed} needed")

    def _named_scalars(self, named: Mapping[str, Any], given: bool) -> dict[str, int]:
        """The values passed by name; `given` says whether the outputs are there to tell others."""
        for name, value in named.items():
            if name not in self.late:
                known = ", ".join(["threads", *self.late])
                raise _Refusal(f"unknown keyword {name!r}; known are {known}")
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise _Refusal(f"{name} is {value!r}, an int is needed")
            if not -(1 << 63) <= int(value) < 1 << 63:
                raise _Refusal(f"{name} is {value!r}, a number of 64 bits is needed")
        for name in self.undetermined if given else self.late:
            if name not in named:
                reason = "no array determines it" if name in self.undetermined else "only the output tells"
                raise _Refusal(f"{name} is not given; {reason}: pass {name}=...")
        return {name: int(value) for name, value in named.items()}


def constant_array(param: Param, given: object) -> np.ndarray:
    """A plain array over the memory of what is given once for a parameter of a constant shape; it may have strides.

    Raises ArgumentError for what is no array, and for another shape or type.
    """
    try:
        array = _as_array(given, param)
        _check_type(f"argument {param.name}", param, dtype(param.dtype).numpy, array)
        _check_extents(f"argument {param.name}", param, array, {}, ())
    except _Refusal as refusal:
        raise ArgumentError(f"constants: {refusal}") from None
    return array


def _type_text(param: Param) -> str:
    text = f"{param.dtype}[{', '.join(map(str, param.shape))}]"
    if param.strides is not None:
        text += f" strides [{', '.join(map(str, param.strides))}]"
    return text


def _undetermined(artifact: Artifact, params: Sequence[Param]) -> tuple[str, ...]:
    """Scalars that none of the arrays determines: passed by name."""
    named = {n for p in params for n in (*p.shape, *(p.strides or ()))}
    return tuple(name for name in artifact.scalars if name not in named)


def address(array: np.ndarray) -> int:
    """Of the first element."""
    return array.__array_interface__["data"][0]


def _checked(
    param: Param,
    kind: np.dtype,
    alignment: int,
    given: object,
    values: dict[str, int],
    derived: tuple[str, ...],
) -> np.ndarray:
    array = _as_array(given, param)
    what = f"argument {param.name}"
    _check_type(what, param, kind, array)
    _check_extents(what, param, array, values, derived)
    _check_layout(what, param, alignment, array, given, values)
    if param.is_output and not array.flags.writeable:
        raise _Refusal(f"{what} is read-only, an output must be writable")
    return array


def _check_type(what: str, param: Param, kind: np.dtype, array: np.ndarray) -> None:
    if array.dtype == kind:
        return
    if array.dtype == kind.newbyteorder("S"):
        order = "big-endian" if sys.byteorder == "little" else "little-endian"
        raise _Refusal(f"{what} is {order}, the byte order of this machine is needed")
    raise _Refusal(f"{what} is {array.dtype}, {param.dtype} is needed")


def _check_extents(
    what: str, param: Param, array: np.ndarray, values: dict[str, int], derived: tuple[str, ...]
) -> None:
    if array.ndim != len(param.shape):
        needed = f"{_type_text(param)}" if param.shape else "a scalar array of rank 0"
        raise _Refusal(f"{what} has rank {array.ndim} (shape {array.shape}), {needed} is needed")
    for axis, (have, want) in enumerate(zip(array.shape, param.shape)):
        if want in derived:
            continue  # until all scalars are known
        if isinstance(want, str):
            need = values.setdefault(want, have)
            if have != need:
                place = f"{what} has extent {have} in axis {axis}"
                raise _Refusal(f"{place}, {want} is {need} by the arguments before it")
        elif have != want:
            wanted = "(" + ", ".join(map(str, param.shape)) + "," * (array.ndim == 1) + ")"
            raise _Refusal(f"{what} has shape {array.shape}, {wanted} is needed")


def _check_derived(
    param: Param, array: np.ndarray | None, derived: dict[str, int], values: dict[str, int]
) -> None:
    """The extents that are expressions, of an array or of an output that is to be made."""
    for axis, want in enumerate(param.shape):
        if want not in derived:
            continue
        need, have = derived[want], None if array is None else array.shape[axis]
        if have == need or (have is None and need >= 0):
            continue
        known = ", ".join([f"{name} = {value}" for name, value in values.items()])
        place = f"argument {param.name} has extent {have}" if have is not None else f"output {param.name}"
        raise _Refusal(f"{place} in axis {axis}, {want} is {need} with {known}")


def _check_layout(
    what: str,
    param: Param,
    alignment: int,
    array: np.ndarray,
    given: object,
    values: dict[str, int],
) -> None:
    size = array.itemsize
    if array.size == 0:
        _bind_strides(param, array, values)
        return
    if param.strides is None:
        if not array.flags.c_contiguous:
            steps = ", ".join(f"{s / size:g}" for s in array.strides)
            form = f"row-major and contiguous is needed; {_copier(given)} copies"
            raise _Refusal(f"{what} has strides ({steps}) in elements, {form}")
    else:
        _check_strides(what, param, array, values)
    off = address(array) % alignment
    if off:
        place = f"{what} starts {off} bytes past a multiple of {alignment}"
        raise _Refusal(f"{place}, alignment to {alignment} is needed")


def _copier(given: object) -> str:
    """What makes a contiguous array of the caller's kind."""
    torch = sys.modules.get("torch")
    is_tensor = torch is not None and isinstance(given, torch.Tensor)
    return "its .contiguous()" if is_tensor else "np.ascontiguousarray"


def _check_strides(what: str, param: Param, array: np.ndarray, values: dict[str, int]) -> None:
    for axis, (have, want) in enumerate(zip(array.strides, param.strides or ())):
        if array.shape[axis] == 1 and not isinstance(want, str):
            continue
        if have % array.itemsize or have < 0:
            fits = "a whole number of elements is needed"
            raise _Refusal(f"{what} has a stride of {have} bytes in axis {axis}, {fits}")
        have //= array.itemsize
        need = values.setdefault(want, have) if isinstance(want, str) else want
        if have != need:
            wanted = f"{want} = {need}" if isinstance(want, str) else need
            raise _Refusal(f"{what} has stride {have} in axis {axis}, {wanted} is needed")


def _bind_strides(param: Param, array: np.ndarray, values: dict[str, int]) -> None:
    """An empty array has no strides to speak of, yet its scalars need some value."""
    for stride, want in zip(array.strides, param.strides or ()):
        if isinstance(want, str):
            values.setdefault(want, max(stride // array.itemsize, 0))


def _check_overlap(params: tuple[Param, ...], arrays: list[np.ndarray | None]) -> None:
    spans = [None if a is None or a.size == 0 else _span(a) for a in arrays]
    for i, (out, mine) in enumerate(zip(params, spans)):
        if not out.is_output or mine is None:
            continue
        for j, (other, theirs) in enumerate(zip(params, spans)):
            if i == j or theirs is None or mine[0] >= theirs[1] or theirs[0] >= mine[1]:
                continue
            if other.is_output:
                same = "are the same memory" if mine == theirs else "overlap"
                raise _Refusal(f"outputs {out.name} and {other.name} {same}, each needs its own")
            raise _Refusal(
                f"output {out.name} overlaps argument {other.name}, an output needs its own memory"
            )


def _span(array: np.ndarray) -> tuple[int, int]:
    """The addresses that a non-empty array touches: first byte, byte after the last."""
    start = address(array)
    reach = [(n - 1) * s for n, s in zip(array.shape, array.strides)]
    low = sum(r for r in reach if r < 0)
    high = sum(r for r in reach if r > 0)
    return start + low, start + high + array.itemsize


def _as_array(given: Any, param: Param) -> np.ndarray:
    """A plain NumPy array that shares the memory of an array, of an object with the buffer
    protocol, or of a DLPack object in the CPU's memory."""
    what = f"argument {param.name}"
    if type(given) is np.ndarray:
        return given
    if isinstance(given, np.ma.MaskedArray):
        raise _Refusal(f"{what} is a masked array, its mask would be lost; pass its .data")
    if isinstance(given, np.ndarray):
        return given.view(np.ndarray)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(given, torch.Tensor):
        return _from_torch(torch, given, what)
    if hasattr(given, "__dlpack__") and hasattr(given, "__dlpack_device__"):
        return _from_dlpack(given, what)
    try:
        return np.asarray(memoryview(given))
    except (TypeError, ValueError, NotImplementedError):
        name = type(given).__name__
        article = "an" if name[:1].lower() in "aeiou" else "a"
        kind = "None" if given is None else f"{article} {name}"
        form = "an array, or an object with __dlpack__ or the buffer protocol"
        raise _Refusal(f"{what} is {kind}, {_type_text(param)} ({form}) is needed") from None


def _from_torch(torch, tensor, what: str) -> np.ndarray:
    try:
        return tensor.numpy()  # refuses what it cannot show, which is cheaper than to ask first
    except (TypeError, RuntimeError) as error:
        reason = error
    if tensor.device.type != "cpu":
        raise _Refusal(f"{what} is a tensor on {tensor.device}, the CPU's memory is needed")
    if tensor.requires_grad:
        raise _Refusal(f"{what} is a tensor that requires grad; pass its .detach()")
    if tensor.layout != torch.strided:
        raise _Refusal(f"{what} is a {tensor.layout} tensor, a dense one is needed")
    if tensor.is_conj() or tensor.is_neg():
        raise _Refusal(f"{what} is a lazily negated tensor; pass its .resolve_conj().resolve_neg()")
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(dtype("bfloat16").numpy)
    raise _Refusal(f"{what} is a {tensor.dtype} tensor that NumPy cannot see ({reason})")


def _from_dlpack(given: Any, what: str) -> np.ndarray:
    what = f"{what} ({type(given).__name__})"
    try:
        device = int(given.__dlpack_device__()[0])
    except Exception as error:
        raise _Refusal(f"{what} does not tell its device: {error}") from None
    if device not in _CPU_DEVICES:
        raise _Refusal(f"{what} is in device memory, the CPU's is needed")
    try:
        return np.from_dlpack(given)
    except Exception as error:
        # Types that NumPy's DLPack does not know, such as bfloat16, may still come as arrays.
        if hasattr(given, "__array__"):
            return _read_only(np.asarray(given))
        raise _Refusal(f"{what} cannot be read through DLPack: {error}") from None


def _read_only(array: np.ndarray) -> np.ndarray:
    """It may be a copy: no place for an output."""
    view = array.view()
    view.flags.writeable = False
    return view
