"""What names a dtype, and what does not."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from tensorc import te
from tensorc.dtypes import dtype, float32
from tensorc.errors import ExpressionError

FOREIGN = ">f4" if sys.byteorder == "little" else "<f4"


@pytest.mark.parametrize(
    ("of", "name"),
    [
        ("float32", "float32"), ("f4", "float32"), ("single", "float32"), ("=f4", "float32"), (np.float32, "float32"),
        (np.dtype("f4"), "float32"), (np.float32(1).dtype, "float32"), ("half", "float16"), ("f2", "float16"),
        ("double", "float64"), (float, "float64"), ("i8", "int64"), ("u1", "uint8"), ("?", "bool"), (bool, "bool"),
        (np.int16, "int16"), ("bfloat16", "bfloat16"), ("f4x8", "float32x8"), ("float32x8", "float32x8"),
    ],
)  # fmt: skip
def test_names_of_types(of, name):
    assert dtype(of) is dtype(name) and dtype(of).name == name


@pytest.mark.parametrize("of", ["float33", "complex64", "i4,i4", "O", "", "x", FOREIGN])
def test_names_that_are_none(of):
    with pytest.raises(ExpressionError, match=f"^dtype '{of}': unknown; known are bool, int8, "):
        dtype(of)


@pytest.mark.parametrize("of", [None, 3, [1, 2]])
def test_things_that_are_no_types(of):
    with pytest.raises(ExpressionError, match="not a name, a NumPy type or a tensorc dtype"):
        dtype(of)


def test_tensors_of_types_by_names_of_numpy():
    assert te.placeholder((2,), np.float32).dtype is float32
    A = te.placeholder((2,), "f4")
    assert te.compute((2,), lambda i: te.cast(A[i], "half")).dtype is dtype("float16")
