"""The C side of a call: a compiled function that serves every kernel, driven by a table.

`call` is the vectorcall function of the kernel type. It reads the fields of NumPy arrays directly,
and those of torch tensors by torch's DLPack exchange function, once torch has been met; it
compares them with the table of the kernel, and runs the kernel's code. Whatever it does not know
how to handle (other objects, keywords, anything that does not fit) goes to the table's Python
function, which does all checks again and says what is wrong; so nothing here needs to explain
itself. `invoke` is the same without the checks, for that Python function. It adds the
buffers that the kernel holds itself, for which there is room after those of the arguments.

Both give the kernel its workspace from a small set of blocks shared by the process: a caller takes
one by an atomic exchange, so that threads calling side by side settle with one block each.

The table is an array of 64-bit words, the header and then a record for each parameter; `Table`
writes it. The layout of array objects is checked on real arrays before any of this is used
(`arrays_as_expected`).
"""

from __future__ import annotations

import ctypes
import re
import sys
import sysconfig
from collections.abc import Callable, Sequence
from functools import cache, cached_property, partial

import numpy as np

from tensorc.artifact import ERROR_WORDS, Artifact, Param
from tensorc.dtypes import dtype
from tensorc.runtime import cpu
from tensorc.runtime.wrapper_call import CALL
from tensorc.runtime.wrapper_code import BLOCKS, IMPORTED, PYTHON, RUN
from tensorc.runtime.wrapper_general import ABSENT, GENERAL

__all__ = ["MOST_PARAMS", "Table", "Wrapper", "arrays_as_expected", "kernel_type", "wrapper"]

MOST_PARAMS = 64  # of a kernel that is called through `call`
MOST_SCALARS = 31
MOST_DERIVED = 16

# A kernel that has more to do than this, some 10 us, lets other Python threads run; letting go of the
# lock and taking it back costs about 0.1 us.
LONG_FLOPS, LONG_BYTES = 200_000, 100_000

RELEASE_GIL = 1
ONLY_SLOW = 2

# Words of the header.
_HEADER = ("function", "params", "inputs", "flags", "slow", "fail", "array", "threads", "keyword",
           "scalars", "workspace", "thread_workspace", "sizes", "tensor", "exchange", "requires_grad",
           "is_neg", "bound", "bound_addresses")  # fmt: skip
# Words of a parameter's record; the extents follow, and the strides in bytes if `strided`. An
# extent < 0 is that of scalar -1 - extent, and past the scalars a derived one. What makes an output
# takes its shape if that is `symbolic`, else nothing.
_RECORD = ("descr", "rank", "flags", "align", "output", "itemsize", "make", "strided",
           "make_tensor", "dltype", "symbolic")  # fmt: skip

_C_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400
_ARRAY = {"type": 8, "data": 16, "nd": 24, "dims": 32, "strides": 40, "descr": 56, "flags": 64}
_TENSOR = {"data": 0, "device": 8, "nd": 16, "type": 20, "dims": 24, "strides": 32, "offset": 40}


class Table:
    """The table of a kernel in memory. Holds references to all Python objects that it points to."""

    def __init__(
        self,
        artifact: Artifact,
        function: int,
        threads: int,
        release: bool,
        slow: object,
        fail: object,
        makers: tuple[object, ...],
        sizes: int = 0,
        bound: Sequence[int] = (),
    ):
        params = artifact.params
        addresses = (ctypes.c_int64 * (len(bound) or 1))(*bound)
        flags = RELEASE_GIL * release + ONLY_SLOW * _only_slow(artifact)
        self._objects = [slow, fail, makers, np.ndarray, _THREADS, addresses]
        header = (
            function, len(params), sum(not p.is_output for p in params), flags, id(slow), id(fail),
            id(np.ndarray), threads, id(_THREADS), len(artifact.scalars), artifact.workspace,
            artifact.thread_workspace, sizes, 0, 0, id(_REQUIRES_GRAD), id(_IS_NEG),
            len(bound), ctypes.addressof(addresses),
        )  # fmt: skip
        words = [*header]
        self._records: list[int] = []
        symbols = (*artifact.scalars, *artifact.derived)
        numbers = {name: -1 - number for number, name in enumerate(symbols)}
        for param, make in zip(params, makers):
            descr = dtype(param.dtype).numpy
            self._objects.append(descr)
            strided = param.strides is not None
            self._records.append(len(words))
            needed = _ALIGNED | (0 if strided else _C_CONTIGUOUS)
            needed |= _WRITEABLE if param.is_output else 0
            words += (
                id(descr), len(param.shape), needed, param.alignment - 1, param.is_output,
                descr.itemsize, 0 if make is None else id(make), strided, 0, _dlpack_type(param.dtype),
                is_symbolic(param),
            )  # fmt: skip
            words += (numbers[n] if isinstance(n, str) else n for n in param.shape)
            words += (n * descr.itemsize for n in param.strides or () if isinstance(n, int))
        self.memory = (ctypes.c_int64 * len(words))(*words)
        self.address = ctypes.addressof(self.memory)

    def admit_tensors(self, kind: type, exchange: int, makers: tuple[object, ...]) -> None:
        """From now on, take objects of this type too; `exchange` fills a DLTensor with one, `makers`
        make outputs that are."""
        self._objects += [kind, makers]
        for start, make in zip(self._records, makers):
            self.memory[start + _RECORD.index("make_tensor")] = 0 if make is None else id(make)
        self.memory[_HEADER.index("exchange")] = exchange
        self.memory[_HEADER.index("tensor")] = id(kind)

    @property
    def admits_tensors(self) -> bool:
        return self.memory[_HEADER.index("tensor")] != 0


_THREADS, _REQUIRES_GRAD, _IS_NEG = map(sys.intern, ("threads", "requires_grad", "is_neg"))
_DLPACK_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6}


def _dlpack_type(name: str) -> int:
    """code, bits and lanes of a type as they stand in a DLTensor."""
    kind = dtype(name)
    return _DLPACK_CODES[kind.kind] | kind.bits << 8 | 1 << 16


def is_symbolic(param: Param) -> bool:
    """Whether the shape depends on the call."""
    return any(isinstance(extent, str) for extent in param.shape)


def _only_slow(artifact: Artifact) -> bool:
    """Whether a call needs what the table cannot say."""
    named = {n for p in artifact.params for n in p.shape if isinstance(n, str)}
    return (
        len(artifact.params) + len(artifact.bound) > MOST_PARAMS
        or len(artifact.scalars) > MOST_SCALARS
        or len(artifact.derived) > MOST_DERIVED
        or not named.issuperset(artifact.scalars)
        or any(isinstance(n, str) for p in artifact.params for n in p.strides or ())
    )


class Wrapper:
    """The compiled module: the address of `call`, and `invoke(table, buffers, scalars, error)`.

    `call` takes NumPy arrays for parameters of constant shapes without strides. `general`, which
    takes the others and torch tensors, too, is compiled only when a kernel or an argument needs it:
    LLVM's work on either is most of what the first kernel on a machine costs.
    """

    def __init__(self, table_offset: int):
        self._offset = table_offset
        library = cpu.helper(f"wrapper {table_offset}", self._small, ("call", *_SHARED))
        self.call = library["call"]
        self._shared = {name: library[name] for name in _SHARED}
        self.invoke_address = library["invoke"]
        pointer = ctypes.c_void_p
        self.invoke = ctypes.CFUNCTYPE(ctypes.c_int32, pointer, pointer, pointer, pointer)(
            self.invoke_address
        )

    @cached_property
    def general(self) -> int:
        """The address of the function that every kernel may be called through."""
        name = f"general wrapper {self._offset}"
        return cpu.helper(name, self._large, ("call",), self._shared)["call"]

    def call_for(self, artifact: Artifact) -> int:
        """The function through which a kernel is called, until it meets a tensor."""
        symbolic = artifact.scalars or artifact.sizes or any(map(is_symbolic, artifact.params))
        strided = any(param.strides is not None for param in artifact.params)
        return self.general if symbolic or strided else self.call

    def _small(self) -> str:
        parts = PYTHON + BLOCKS + RUN + ABSENT + CALL
        return _filled(parts, self._offset, GENERAL="false", PLAIN="true")

    def _large(self) -> str:
        parts = PYTHON + IMPORTED + GENERAL + CALL
        return _filled(parts, self._offset, GENERAL="true", PLAIN="false")


_SHARED = ("invoke", "slow", "raise")


@cache
def wrapper(table_offset: int) -> Wrapper:
    """The module for kernel objects that hold their table's address at `table_offset` bytes."""
    return Wrapper(table_offset)


@cache
def arrays_as_expected() -> bool:
    """Whether this Python and this NumPy lay objects out as `call` reads them."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return False
    if ctypes.sizeof(ctypes.c_void_p) != 8 or sys.byteorder != "little":
        return False
    samples = (
        np.zeros((3, 5), np.float32), np.zeros((2, 3, 4), np.int8)[:, ::2, 1:], np.zeros((), "f8"),
        np.frombuffer(bytes(16), np.int64), np.zeros((0, 7), np.bool_),
    )  # fmt: skip
    return all(_reads_right(sample) for sample in samples)


def _reads_right(array: np.ndarray) -> bool:
    def word(at: int) -> int:
        return ctypes.c_int64.from_address(at).value

    base = {name: id(array) + offset for name, offset in _ARRAY.items()}
    flags = array.flags
    expected = _C_CONTIGUOUS * flags.c_contiguous + _ALIGNED * flags.aligned
    expected += _WRITEABLE * flags.writeable
    mask = _C_CONTIGUOUS | _ALIGNED | _WRITEABLE
    return (
        word(base["type"]) == id(np.ndarray)
        and word(base["data"]) == array.ctypes.data
        and ctypes.c_int32.from_address(base["nd"]).value == array.ndim
        and word(base["descr"]) == id(array.dtype)
        and ctypes.c_int32.from_address(base["flags"]).value & mask == expected
        and all(word(word(base["dims"]) + 8 * k) == n for k, n in enumerate(array.shape))
        and all(word(word(base["strides"]) + 8 * k) == n for k, n in enumerate(array.strides))
    )


class _Member(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("type", ctypes.c_int), ("offset", ctypes.c_ssize_t),
        ("flags", ctypes.c_int), ("doc", ctypes.c_char_p),
    )  # fmt: skip


class _Slot(ctypes.Structure):
    _fields_ = (("slot", ctypes.c_int), ("value", ctypes.c_void_p))


class _Spec(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("basicsize", ctypes.c_int), ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_uint), ("slots", ctypes.POINTER(_Slot)),
    )  # fmt: skip


_PY_TP_CALL, _PY_TP_MEMBERS = 50, 72
_T_PYSSIZET, _READONLY = 19, 1
_HAVE_VECTORCALL = 1 << 11


def kernel_type(base: type) -> tuple[type, int]:
    """A subclass of `base` whose instances are called in C, and the offset of two words in them:
    the vectorcall function and the address of the table, both to be filled in before the first
    call."""
    offset = -(-base.__basicsize__ // 8) * 8
    members = (_Member * 2)(_Member(b"__vectorcalloffset__", _T_PYSSIZET, offset, _READONLY, None))
    call = ctypes.cast(ctypes.pythonapi.PyVectorcall_Call, ctypes.c_void_p).value
    slots = (_Slot * 3)(
        _Slot(_PY_TP_CALL, call), _Slot(_PY_TP_MEMBERS, ctypes.addressof(members)), _Slot(0, None)
    )  # fmt: skip
    name = f"{base.__module__}.{base.__qualname__}".encode()
    spec = _Spec(name, offset + 16, 0, _HAVE_VECTORCALL, slots)
    make = ctypes.pythonapi.PyType_FromSpecWithBases
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object)
    made = make(ctypes.addressof(spec), (base,))
    _kept.append((members, slots, spec))
    return made, offset


_kept: list[object] = []  # the type goes on pointing to what it was made from


def empty_maker(
    shape: tuple[int, ...] | None, descr: np.dtype, alignment: int
) -> Callable[..., np.ndarray]:
    """A function that makes an output: without arguments, or of a shape and the dtype if it is None."""
    make = np.empty if alignment <= 16 else partial(empty_aligned, alignment=alignment)
    return make if shape is None else partial(make, shape, descr)  # 16 is the least of NumPy


def empty_aligned(shape: tuple[int, ...], descr: np.dtype, alignment: int) -> np.ndarray:
    """An uninitialised array whose data starts at a multiple of `alignment` bytes."""
    size = int(np.prod(shape, dtype=np.int64)) * descr.itemsize
    raw = np.empty(size + alignment, np.uint8)
    start = -raw.ctypes.data % alignment
    return raw[start : start + size].view(descr).reshape(shape)


def _filled(text: str, table_offset: int, **choices: str) -> str:
    """A module with the layout filled in."""
    numbers: dict[str, int | str] = {f"H_{name}": number for number, name in enumerate(_HEADER)}
    numbers |= {f"R_{name}": number for number, name in enumerate(_RECORD)}
    numbers |= {f"A_{name}": offset for name, offset in _ARRAY.items()}
    numbers |= {f"T_{name}": offset for name, offset in _TENSOR.items()}
    numbers |= {
        "HEADER_BYTES": 8 * len(_HEADER), "RECORD_WORDS": len(_RECORD), "TABLE": table_offset + 8,
        "ERROR_WORDS": ERROR_WORDS, "MOST_PARAMS": MOST_PARAMS, "MOST_SCALARS": MOST_SCALARS + 1,
        "MOST_DERIVED": MOST_DERIVED, "MOST_SIZES": 4 + MOST_DERIVED,
        "LONG_FLOPS": LONG_FLOPS, "LONG_BYTES": LONG_BYTES, **choices,
    }  # fmt: skip
    text = re.sub(r"\$(\w+)", lambda found: str(numbers[found[1]]), text)
    text = _LOAD.sub(r"\1.p = getelementptr i64, ptr \3, i64 \4\n  \1 = load \2, ptr \1.p", text)
    return _LOAD_AT.sub(r"\1.p = getelementptr i8, ptr \3, i64 \4\n  \1 = load \2, ptr \1.p", text)


_LOAD = re.compile(r"(%[\w.]+) = field (\w+) (%[\w.]+), (\S+)")
_LOAD_AT = re.compile(r"(%[\w.]+) = at (\w+) (%[\w.]+), (\S+)")
