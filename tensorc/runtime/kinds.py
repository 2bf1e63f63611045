"""Arrays of other libraries: what a call makes is of the kind of what it was given.

Nothing here imports a library: an object of one is there only if its library has been imported.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from tensorc.artifact import Artifact, Param

__all__ = ["Kind", "kind_of", "tensor_exchange", "tensor_makers"]

_ALIGNMENT = 64  # what both libraries want of memory that they take over without a copy


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of array: `wrap` makes one over the memory of a NumPy array, whose data must start at
    a multiple of `alignment` bytes."""

    wrap: Callable[[np.ndarray], object]
    alignment: int = _ALIGNMENT


def kind_of(given: Sequence[object]) -> Kind | None:
    """The kind that all of these are; None for NumPy's, and where they differ."""
    torch = sys.modules.get("torch")
    if torch is not None and given and all(isinstance(one, torch.Tensor) for one in given):
        return Kind(partial(_to_torch, torch))
    jax = sys.modules.get("jax")
    if jax is not None and given and all(isinstance(one, jax.Array) for one in given):
        return Kind(partial(_to_jax, jax, given[0]))
    return None


def _to_torch(torch: Any, array: np.ndarray) -> object:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _to_jax(jax: Any, beside: Any, array: np.ndarray) -> object:
    return jax.device_put(array, beside.device)  # keeps the memory of an aligned array


def tensor_makers(artifact: Artifact) -> tuple[object, ...]:
    """For each parameter what makes a torch tensor for it, of its shape if that is symbolic."""
    return tuple(_tensor_maker(param) for param in artifact.params)


def _tensor_maker(param: Param) -> Callable[..., object]:
    torch = sys.modules["torch"]
    if any(isinstance(extent, str) for extent in param.shape):
        return partial(torch.empty, dtype=getattr(torch, param.dtype), device=torch.device("cpu"))
    # From a template, torch makes a tensor in half the time; this one has the memory of one element.
    one = torch.empty((), dtype=getattr(torch, param.dtype), device=torch.device("cpu"))
    return partial(torch.empty_like, one.expand(param.shape), memory_format=torch.contiguous_format)


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("nd", ctypes.c_int32), ("type", ctypes.c_uint32), ("dims", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64),
    )  # fmt: skip


@cache
def tensor_exchange() -> int:
    """The address of torch's `int (PyObject *, DLTensor *)` that shows a tensor without making
    anything; 0 if this torch has none that does what is expected of it."""
    torch = sys.modules["torch"]
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return 0
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    try:
        table = pointer(capsule, b"dlpack_exchange_api")
    except (TypeError, ValueError):
        return 0
    words = (ctypes.c_uint64 * 7).from_address(table)
    # version and older tables, then functions: allocate, from object, to object, show, stream
    if words[0] & 0xFFFFFFFF != 1 or not words[5]:
        return 0
    show = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(words[5])
    samples = (
        torch.zeros((3, 5)), torch.zeros((2, 4), dtype=torch.int8)[1:, 1:],
        torch.zeros((), dtype=torch.float64),
    )  # fmt: skip
    return words[5] if all(_shows_right(show, sample) for sample in samples) else 0


def _shows_right(show: Callable[[object, int], int], tensor: Any) -> bool:
    seen = _DLTensor()
    return (
        show(tensor, ctypes.addressof(seen)) == 0
        and seen.data + seen.offset == tensor.data_ptr()
        and seen.device == 1
        and seen.nd == tensor.ndim
        and seen.type >> 8 & 0xFF == 8 * tensor.element_size()
        and tuple(seen.dims[: seen.nd]) == tuple(tensor.shape)
        and tuple(seen.strides[: seen.nd]) == tensor.stride()
    )
