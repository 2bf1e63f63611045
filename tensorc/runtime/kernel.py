"""A compiled kernel as a Python object."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from tensorc.artifact import ERROR_WORDS, Artifact, Param
from tensorc.dtypes import dtype
from tensorc.errors import ArgumentError, InternalError, TargetError, UnsupportedError, failure
from tensorc.report import Report
from tensorc.runtime import cpu, threads, timing, wrapper
from tensorc.runtime.arrays import Signature, address
from tensorc.runtime.constants import settled
from tensorc.runtime.export import export
from tensorc.runtime.kinds import Kind, kind_of, tensor_exchange, tensor_makers
from tensorc.runtime.numba_call import numba_function
from tensorc.runtime.numba_code import Addresses

__all__ = ["Kernel", "load"]

_SIZES = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


class Kernel:
    """Machine code that is called with arrays: `kernel(a, b, c)` writes the outputs, `kernel(a, b)`
    makes and returns them (several as a tuple), as torch tensors or JAX arrays if all inputs are, else
    as NumPy arrays. `threads=n` bounds the threads of one call.

    Arguments are NumPy arrays or objects with `__dlpack__` or the buffer protocol, row-major and
    contiguous unless the parameter asks for strides. Raises ArgumentError, with nothing written, if
    an argument does not fit.

    Kernels are made by `load`. They may be called from several threads at once and after a fork. A
    pickled kernel is its artifact, with the arrays that it holds.
    """

    __slots__ = (
        "__weakref__", "_bound", "_describe", "_library", "_sizes", "_table", "_wrapper", "artifact",
        "signature", "threads",
    )  # fmt: skip

    def __init__(
        self,
        artifact: Artifact,
        describe: Callable[[str], object] | None = None,
        threads: int | None = None,
        bound: Sequence[np.ndarray] = (),
    ):
        if not isinstance(artifact, Artifact):
            raise ArgumentError(f"kernels are made by tc.build, not of {artifact!r}")
        self.artifact = artifact
        self.signature = Signature(artifact)  # prints as the refusals do
        self._describe = describe
        self._bound = tuple([settled(*pair) for pair in zip(artifact.bound, bound, strict=True)])
        self.threads = _thread_count(self, threads)
        self._library = _load_code(artifact)
        makers = tuple(_maker(param) for param in artifact.params)
        release = artifact.flops > wrapper.LONG_FLOPS or artifact.bytes > wrapper.LONG_BYTES
        sizes = self._library[artifact.sizes] if artifact.sizes else 0
        self._sizes = _SIZES(sizes) if sizes else None
        self._table = wrapper.Table(
            artifact, self.address, self.threads, release, _call_slowly, _raise_failed, makers, sizes,
            [address(array) for array in self._bound],
        )  # fmt: skip
        offset = _fast_offset()
        self._wrapper = wrapper.wrapper(offset)
        if offset:
            place = (ctypes.c_void_p * 2).from_address(id(self) + offset)
            place[1] = self._table.address
            place[0] = self._wrapper.call_for(artifact)

    def __call__(self, *args, **named):
        return _call_slowly(self, *args, **named)

    @property
    def name(self) -> str:
        return self.artifact.name

    @property
    def address(self) -> int:
        """The address of the compiled function, valid as long as the kernel is alive.

        Its prototype: `ctypes.CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p, c_void_p)`, of the
        addresses of the buffers' addresses (those of the arguments, then those of the artifact's
        `bound`), of the scalars (int64: the sizes in the artifact's order, then the greatest number of
        threads), of the workspace and of 16 int64 for an error, as `Artifact` describes it.
        """
        return self._library[self.artifact.symbol]

    @property
    def schedule(self):
        """The schedule, with its trace and the recipes of a default one, derived when asked for; steps
        on it do not change the kernel."""
        return self._ask("schedule")

    @property
    def decisions(self) -> dict[str, object]:
        """What the recipes of a default schedule decided, by the names of block and knob; plain data,
        which `build` takes back as `schedules`. There is nothing for a schedule by hand."""
        return dict(self.schedule.decisions)

    @property
    def function(self):
        """The scheduled function in the IR, derived when asked for."""
        return self._ask("function")

    def source(self, kind: str = "ir") -> str:
        """The kernel as text: "ir" (scheduled), "llvm" or "asm".

        Raises UnsupportedError for a kind that this kernel does not have.
        """
        return self._ask(kind)

    def report(self) -> Report:
        """Loop by loop what the kernel became: vectors, accumulators, spills, and why a loop is
        scalar. It prints as a table.

        Raises UnsupportedError for a kernel that was loaded from an artifact.
        """
        return self._ask("report")

    def time(
        self,
        *arrays: object,
        repeat: int = 20,
        seconds: float = 1.0,
        threads: int | None = None,
        **scalars: int,
    ) -> timing.Timing:
        """Measure calls with these arguments (outputs included), beside the machine's peak.

        At most `repeat` samples and about `seconds` in all; `scalars` are those that a call is
        given by name. Raises ArgumentError as a call does, and for a `repeat` or `seconds` that is no
        positive number.
        """
        _check_effort(repeat, seconds)
        count = self.threads if threads is None else _thread_count(self, threads)
        named = dict(scalars) if count == self.threads else {**scalars, "threads": count}
        flops, size = self.work(*arrays, **scalars)
        widths = {dtype(param.dtype).bytes for param in self.artifact.params}
        return timing.measure(
            lambda: self(*arrays, **named),
            flops=flops,
            bytes=size,
            threads=count,
            wide=8 in widths and 4 not in widths,
            repeat=repeat,
            seconds=seconds,
        )

    def work(self, *arrays: object, **scalars: int) -> tuple[int, int]:
        """(operations, bytes) of a call with these arguments, by the definition.

        The arrays are not needed if no extent is symbolic. Raises ArgumentError as a call does.
        """
        if self._sizes is None:
            return self.artifact.flops, self.artifact.bytes
        plain = self.signature.arrays(arrays)
        _, values = self.signature.bind(plain, scalars, self._derived)
        flops, size = self._measured(values)[2:4]
        return flops, size

    def _measured(self, values: dict[str, int]) -> list[int]:
        """What the artifact's `sizes` says for these scalars."""
        assert self._sizes is not None  # or nothing depends on them
        names, derived = self.artifact.scalars, self.artifact.derived
        found = (ctypes.c_int64 * (4 + len(derived)))()
        self._sizes((ctypes.c_int64 * len(names))(*[values[name] for name in names]), found)
        return list(found)

    def _derived(self, values: dict[str, int]) -> dict[str, int]:
        return dict(zip(self.artifact.derived, self._measured(values)[4:]))

    def export(
        self, path: str | os.PathLike, *, name: str | None = None, threads: int | None = None
    ) -> Path:
        """Write a library (.so), object (.o) or archive (.a) and a C header, whose path is returned;
        `export.export` says more."""
        return export(self.artifact, path, name=name, threads=threads, bound=self._bound)

    def numba(self) -> Callable:
        """The kernel as a function that Numba's @njit functions may call, with the arrays that the
        kernel takes, and after them, as ints and in the order of `signature`, the sizes and other
        scalars that no array determines. It raises ArgumentError, or fails to compile, where they do
        not fit.

        It holds addresses of this process: Numba cannot cache its callers on disk. Raises
        UnsupportedError if Numba cannot show the arguments.
        """
        sizes = self._library[self.artifact.sizes] if self.artifact.sizes else 0
        at = Addresses(self._wrapper.invoke_address, self._table.address, sizes)
        return numba_function(self.artifact, self.signature, self.threads, at, self)

    def __copy__(self) -> Kernel:
        return self  # nothing of it changes

    def __deepcopy__(self, memo: dict) -> Kernel:
        return self

    def __reduce__(self) -> tuple:
        """Pickled, a kernel is its artifact: machine code, which runs only on such a machine, and
        which has no source to show; and what it has of constants."""
        return load, (self.artifact, None, self.threads, self._bound)

    def __repr__(self) -> str:
        return f"<Kernel {self.signature} for {self.artifact.cpu or self.artifact.triple}>"

    def _ask(self, kind: str):
        if self._describe is None:
            raise UnsupportedError(f"kernel {self.name}: loaded from an artifact, has no {kind!r}")
        return self._describe(kind)


class _Foreign(Kernel):
    """A kernel whose code another machine can run."""

    __slots__ = ("_refusal",)

    def __init__(
        self,
        artifact: Artifact,
        describe: Callable[[str], object] | None,
        bound: Sequence[np.ndarray],
        refusal: str,
    ):
        self.artifact = artifact
        self.signature = Signature(artifact)
        self._bound = tuple([settled(*pair) for pair in zip(artifact.bound, bound, strict=True)])
        self._describe = describe
        self.threads = 1
        self._sizes = None
        self._refusal = refusal

    def __call__(self, *args, **named):
        raise TargetError(self._refusal)

    @property
    def address(self) -> int:
        raise TargetError(self._refusal)

    def numba(self) -> Callable:
        raise TargetError(self._refusal)


def load(
    artifact: Artifact,
    describe: Callable[[str], object] | None = None,
    threads: int | None = None,
    bound: Sequence[np.ndarray] = (),
) -> Kernel:
    """A callable kernel of an artifact with object code.

    `describe(kind)` gives what `Kernel.source` and `Kernel.function` show; `threads` is the
    greatest number of threads of a call, by default that of `TENSORC_NUM_THREADS` or the cores;
    `bound` are arrays for the artifact's `bound`, of their shapes and types, which must not change.
    A kernel of another machine can be looked at and exported; to call it raises TargetError, as does
    loading code that does not link.
    """
    try:
        cpu.check_runs_here(artifact)
    except TargetError as refusal:
        return _Foreign(artifact, describe, bound, str(refusal))
    return _fast_type()[0](artifact, describe, threads, bound)


@cache
def _fast_type() -> tuple[type[Kernel], int]:
    """The type of kernels, and where its instances hold what the C call needs; 0: Python calls."""
    if not wrapper.arrays_as_expected():
        return Kernel, 0
    return wrapper.kernel_type(Kernel)


def _fast_offset() -> int:
    return _fast_type()[1]


def _thread_count(kernel: Kernel, count: object) -> int:
    if count is None:
        return threads.default_threads() if kernel.artifact.parallel else 1
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 1:
        raise ArgumentError(f"{kernel.signature}: threads is {count!r}, a positive int is needed")
    return min(int(count), threads.MOST_THREADS)


def _check_effort(repeat: object, seconds: object) -> None:
    """Refuse what is no number of samples, or no time to take them in."""
    if isinstance(repeat, bool) or not isinstance(repeat, (int, np.integer)) or repeat < 1:
        raise ArgumentError(f"time: repeat is {repeat!r}, a positive int is needed")
    if not isinstance(seconds, (int, float, np.integer, np.floating)) or not 0 < seconds < np.inf:
        raise ArgumentError(f"time: seconds is {seconds!r}, a positive number is needed")


def _load_code(artifact: Artifact) -> cpu.Library:
    imports = {"tensorc_parallel_for": threads.parallel_for()} if artifact.parallel else {}
    symbols = (artifact.symbol, artifact.sizes) if artifact.sizes else (artifact.symbol,)
    return cpu.link(artifact.code, symbols, imports)


def _maker(param: Param) -> Callable[..., np.ndarray] | None:
    """What makes this output when it is not given, of its shape if that is symbolic; None for inputs
    and where Python must tell."""
    if not param.is_output or param.strides is not None:
        return None
    constant = tuple(n for n in param.shape if isinstance(n, int))
    shape = None if wrapper.is_symbolic(param) else constant
    return wrapper.empty_maker(shape, dtype(param.dtype).numpy, param.alignment)


def _call_slowly(kernel: Kernel, /, *args, threads: object = None, **named):
    """A call with all checks and conversions in Python."""
    artifact = kernel.artifact
    kind = kind_of(args) if len(args) < len(artifact.params) else None
    if _fast_offset() and any(type(arg) is not np.ndarray for arg in args):
        bound = {} if threads is None else {"threads": threads}
        if _admits_tensors(kernel, args):
            return kernel(*args, **bound, **named)
        if kind is None:
            # Plain arrays may fit the short road; if not, it comes back with nothing to convert.
            try:
                return kernel(*kernel.signature.arrays(args), **bound, **named)
            except ArgumentError:
                kernel.signature.bind(args, named, kernel._derived)  # refuses what the caller gave
                raise
    count = kernel.threads
    if threads is not None:
        count = min(count, _thread_count(kernel, threads))
    arrays, values = kernel.signature.bind(args, named, kernel._derived)
    made: list[np.ndarray] = []
    for position, (param, array) in enumerate(zip(artifact.params, arrays)):
        if array is None:
            output = arrays[position] = _make_output(param, values, kind)
            made.append(output)
    room = len(arrays) + len(artifact.bound)
    buffers = (ctypes.c_void_p * (room or 1))(*(address(a) for a in arrays if a is not None))
    scalars = (ctypes.c_int64 * (len(values) + 1))(*(values[n] for n in artifact.scalars), count)
    error = (ctypes.c_int64 * ERROR_WORDS)()
    code = kernel._wrapper.invoke(kernel._table.address, buffers, scalars, error)
    if code == -1:
        raise MemoryError(f"kernel {artifact.name}: no memory for its workspace")
    if code:
        _raise_failed(kernel, ctypes.addressof(error))
    if not made:
        return None
    results = tuple(made) if kind is None else tuple([kind.wrap(array) for array in made])
    return results[0] if len(results) == 1 else results


def _admits_tensors(kernel: Kernel, args: tuple[object, ...]) -> bool:
    """Whether the short road has just been opened to the torch tensors among the arguments."""
    torch = sys.modules.get("torch")
    if torch is None or kernel._table.admits_tensors:
        return False
    if all(type(arg) is not torch.Tensor for arg in args) or not tensor_exchange():
        return False
    kernel._table.admit_tensors(torch.Tensor, tensor_exchange(), tensor_makers(kernel.artifact))
    ctypes.c_void_p.from_address(id(kernel) + _fast_offset()).value = kernel._wrapper.general
    return True


def _make_output(param: Param, values: dict[str, int], kind: Kind | None) -> np.ndarray:
    shape = tuple(values[n] if isinstance(n, str) else n for n in param.shape)
    descr = dtype(param.dtype).numpy
    alignment = param.alignment if kind is None else max(param.alignment, kind.alignment)
    if param.strides is None:
        try:
            return wrapper.empty_maker(shape, descr, alignment)()
        except ValueError:
            reason = "sizes are 0 or more" if min(shape) < 0 else "it has too many elements"
            raise ArgumentError(f"output {param.name}: no array has the shape {shape}: {reason}") from None
        except MemoryError:
            raise MemoryError(f"output {param.name}: no memory for the shape {shape}") from None
    strides = [values[s] if isinstance(s, str) else s for s in param.strides]
    if 0 in shape:
        return np.empty(shape, descr)
    length = 1 + sum((n - 1) * s for n, s in zip(shape, strides))
    flat = wrapper.empty_aligned((length,), descr, alignment)
    return np.lib.stride_tricks.as_strided(flat, shape, [s * descr.itemsize for s in strides])


def _raise_failed(kernel: Kernel, record: int) -> None:
    """Raise the failed check that a kernel left in its error record."""
    message, value, *at = (ctypes.c_int64 * ERROR_WORDS).from_address(record)
    if not message:
        raise InternalError(f"kernel {kernel.name}: failed without a message")
    text = ctypes.string_at(message).decode()
    raise ArgumentError(f"{kernel.signature}: {failure(text, value, at)}")
