"""Arguments that are made for a function."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import tensorc as tc
from autotune.data import Arguments, Guarded, values_of, variables_of
from tensorc import te
from tensorc.errors import TuningError
from tensorc.ir.function import Function
from tests.autotune.workloads import doubled


def gathered(rows: int = 50, offset: int = 0) -> Function:
    x, at = te.placeholder((rows, 4), name="X"), te.placeholder((200,), "int32", name="at")
    return tc.schedule([x, at, te.compute((200, 4), lambda i, j: x[at[i] + offset, j], name="Y")]).function


def test_the_same_seed_gives_the_same_small_integers():
    one, other, third = (Arguments(doubled(), (), seed).arrays[0] for seed in (1, 1, 2))
    assert (one == other).all() and not (one == third).all()
    assert set(np.unique(one)) == {-2, -1, 0, 1, 2}
    assert set(np.unique(Arguments(doubled(), (), 1, positive=True).arrays[0])) == {1, 2, 3, 4}


def test_indices_are_in_range():
    at = Arguments(gathered(), (), 0).arrays[1]
    assert at.min() >= 0 and 40 < at.max() < 50
    assert not Arguments(gathered(), (), 0, plain=True).arrays[1].any()
    assert not Arguments(gathered(offset=1), (), 0).arrays[1].any()  # what else is fine is not known


def test_variables_are_ordered_by_their_appearance():
    n, m = te.var("n"), te.var("m")
    x = te.placeholder((n, 3), name="X")
    function = tc.schedule([x, te.compute((n, 3), lambda i, j: x[i, j] * te.cast(m, "float32"), name="Y")]).function
    assert [var.name for var in variables_of(function)] == ["n", "m"]
    assert values_of(function, {"m": 7, "n": 5}) == (5, 7)
    assert [array.shape for array in Arguments(function, (5, 7), 0).arrays] == [(5, 3), (5, 3)]
    with pytest.raises(TuningError, match="sizes: n of main must be given a value to measure with"):
        values_of(function, {"m": 7})


def test_a_write_beside_an_array_is_seen():
    guarded = Guarded((3, 5), None, np.dtype("float32"))
    guarded.poison()
    assert guarded.stray is None and np.isnan(guarded.array).all()
    for place in (60, 64, -1):
        beside = ctypes.c_uint8.from_address(guarded.array.ctypes.data + place)
        before, beside.value = beside.value, 1
        assert guarded.stray == place
        beside.value = before


def test_strides_leave_room():
    guarded = Guarded((3, 4), (10, 2), np.dtype("int16"))
    assert guarded.array.strides == (20, 4) and guarded.size == 2 * (2 * 10 + 3 * 2 + 1)
