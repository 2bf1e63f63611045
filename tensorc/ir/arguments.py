"""The memory of the interpreter, and the arguments of a call checked against the parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn

import numpy as np

from tensorc.dtypes import int64
from tensorc.errors import ArgumentError
from tensorc.ir.expr import Buffer, Const, Expr, Var
from tensorc.ir.function import Function
from tensorc.ir.meaning import as_array, as_lanes
from tensorc.ir.printer import show
from tensorc.ir.walk import variables

__all__ = ["Arguments", "Memory"]


class Memory:
    """The elements of a buffer as lanes, None where undefined, and how indices find them."""

    __slots__ = ("buffer", "data", "dtype", "shape", "strides")

    def __init__(self, buffer: Buffer):
        self.buffer = buffer
        self.dtype = buffer.dtype
        self.data: list = []
        self.shape: tuple[int, ...] = ()
        self.strides: tuple[int, ...] = ()

    def allocate(self, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> None:
        """Undefined elements; strides count elements, None means row-major."""
        shape = tuple(max(0, extent) for extent in shape)
        self.shape = shape
        self.strides = _row_major(shape) if strides is None else strides
        last = sum((extent - 1) * stride for extent, stride in zip(shape, self.strides))
        self.data = [None] * (0 if 0 in shape else last + 1)

    def read_from(self, array: np.ndarray) -> None:
        lanes = as_lanes(array, self.dtype)
        if self.strides == _row_major(self.shape):
            self.data = lanes
            return
        for place, value in zip(self._places(), lanes):
            self.data[place] = value

    def write_to(self, array: np.ndarray) -> None:
        lanes = [self.data[place] for place in self._places()]
        array[...] = as_array(lanes, self.dtype).reshape(self.shape)

    def new_array(self) -> np.ndarray:
        dtype = self.dtype.numpy
        elements = np.zeros(max(1, len(self.data)), dtype)
        return np.ndarray(
            self.shape, dtype, elements, 0, [stride * dtype.itemsize for stride in self.strides]
        )

    def _places(self) -> list[int]:
        """The offset of each element, in row-major order."""
        places = np.zeros(self.shape, np.int64)
        for axis, (extent, stride) in enumerate(zip(self.shape, self.strides)):
            steps = np.arange(extent) * stride
            places += steps.reshape(
                [-1 if other == axis else 1 for other in range(len(self.shape))]
            )
        return places.ravel().tolist()


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


class Arguments:
    """Arrays for a function's parameters, or its inputs alone, and the values of its variables.

    `evaluate` computes an expression from the values of its variables. Raises ArgumentError for
    what does not fit. After construction `arrays` holds an array for every parameter, `memories`
    their contents, `values` the variables.
    """

    def __init__(
        self,
        function: Function,
        arrays: tuple[np.ndarray, ...],
        scalars: Mapping[str, int],
        evaluate: Callable[[Expr, dict[Var, int]], int],
    ):
        self.function = function
        self.evaluate = evaluate
        self.values: dict[Var, int] = {}
        self.memories: dict[Buffer, Memory] = {}
        self.arrays = self._by_param(arrays)
        for buffer, array in self.arrays.items():
            self._check_array(buffer, array)
        self._bind_scalars(dict(scalars))
        for buffer, array in self.arrays.items():
            self._bind_extents(buffer, array)
        for buffer in function.params:
            self._fill(buffer)
        self._check_assumptions()
        self._check_overlap()

    def fail(self, problem: str) -> NoReturn:
        raise ArgumentError(f"{self.function.name}: {problem}")

    def _by_param(self, arrays: tuple[np.ndarray, ...]) -> dict[Buffer, np.ndarray]:
        outputs = set(self.function.outputs)
        inputs = tuple(buffer for buffer in self.function.params if buffer not in outputs)
        for params in (self.function.params, inputs):
            if len(arrays) == len(params):
                return dict(zip(params, arrays))
        alone = f", or {len(inputs)} for the inputs alone" if outputs else ""
        self.fail(f"{len(arrays)} arrays were given; it takes {len(self.function.params)}{alone}")

    def _check_array(self, buffer: Buffer, array) -> None:
        if not isinstance(array, np.ndarray):
            self.fail(f"argument {buffer.name!r} is a {type(array).__name__}, not a NumPy array")
        if array.dtype != buffer.dtype.numpy:
            self.fail(f"argument {buffer.name!r} is {array.dtype}, not {buffer.dtype}")
        if array.ndim != len(buffer.shape):
            self.fail(f"argument {buffer.name!r} has {array.ndim} axes, not {len(buffer.shape)}")
        if buffer in self.function.outputs and not array.flags.writeable:
            self.fail(f"argument {buffer.name!r} is an output, but read-only")
        if buffer.strides is None and not array.flags.c_contiguous:
            self.fail(f"argument {buffer.name!r} is not contiguous")
        if array.size and any(stride < 0 or stride % array.itemsize for stride in array.strides):
            strides = f"strides {array.strides} bytes, not whole elements upward"
            self.fail(f"argument {buffer.name!r} has {strides}")

    def _bind_scalars(self, scalars: dict[str, int]) -> None:
        extents = [extent for buffer in self.function.params for extent in buffer.shape]
        given = [e for e in dict.fromkeys(extents) if type(e) is Var and e.name in scalars]
        for var in (*self.function.scalars, *given):
            if var.name not in scalars:
                self.fail(f"scalar {var.name!r} is not given")
            value = scalars.pop(var.name)
            if not hasattr(value, "__index__") or not int64.min <= value.__index__() <= int64.max:
                self.fail(f"scalar {var.name!r} is {value!r}, not an int64")
            self.values[var] = value.__index__()
        if scalars:
            self.fail(f"there is no scalar {next(iter(scalars))!r}")

    def _bind_extents(self, buffer: Buffer, array: np.ndarray) -> None:
        for extent, found in zip(buffer.shape, array.shape):
            if type(extent) is Var:
                self.values.setdefault(extent, found)
        for stride, found in zip(buffer.strides or (), array.strides):
            if type(stride) is Var:
                self.values.setdefault(stride, found // array.itemsize)

    def _value(self, e: Expr) -> int:
        if type(e) is Const:
            return e.value
        for var in variables(e) - self.values.keys():
            self.fail(f"no argument determines {var.name!r}")
        return self.evaluate(e, self.values)

    def _fill(self, buffer: Buffer) -> None:
        shape = tuple([self._value(extent) for extent in buffer.shape])
        strides = (
            None
            if buffer.strides is None
            else tuple([self._value(stride) for stride in buffer.strides])
        )
        memory = self.memories[buffer] = Memory(buffer)
        array = self.arrays.get(buffer)
        if array is None:
            memory.allocate(shape, strides)
            self.arrays[buffer] = memory.new_array()
            return
        self._check_layout(buffer, array, shape, strides)
        memory.allocate(shape, strides)
        memory.read_from(array)

    def _check_layout(self, buffer: Buffer, array: np.ndarray, shape, strides) -> None:
        for axis, (wanted, found) in enumerate(zip(shape, array.shape)):
            if wanted != found:
                extent = buffer.shape[axis]
                symbol = "" if type(extent) is Const else f" ({show(extent)})"
                problem = f"has extent {found} on axis {axis}, not {wanted}{symbol}"
                self.fail(f"argument {buffer.name!r} {problem}")
        for axis, (wanted, found) in enumerate(zip(strides or (), array.strides)):
            if wanted * array.itemsize != found and array.shape[axis] > 1:
                problem = f"has stride {found // array.itemsize} on axis {axis}, not {wanted}"
                self.fail(f"argument {buffer.name!r} {problem}")

    def _check_assumptions(self) -> None:
        for assumption in self.function.assumptions:
            if not self._value(assumption):
                self.fail(f"the arguments break the assumption '{show(assumption)}'")

    def _check_overlap(self) -> None:
        for output in self.function.outputs:
            for buffer, array in self.arrays.items():
                if buffer is not output and np.may_share_memory(array, self.arrays[output]):
                    self.fail(
                        f"argument {output.name!r} is an output, but overlaps {buffer.name!r}"
                    )
