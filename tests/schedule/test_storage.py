"""set_scope and storage_align: where internal buffers live, and how far apart their rows lie."""

from __future__ import annotations

import numpy as np
import pytest

import tensorc as tc
from tensorc import te
from tensorc.ir import interpret, verify
from tensorc.ir.parser import parse
from tensorc.ir.printer import show
from tensorc.passes.pipeline import lower
from tensorc.schedule.primitives.caching import cache_read
from tensorc.schedule.primitives.layout import transform_layout
from tensorc.schedule.primitives.storage import set_scope, storage_align
from tests.schedule.same import assert_same
from tests.schedule.test_loops import matmul, refused


def cached():
    return cache_read(matmul(), "C", "B")[0]


def test_set_scope():
    function = set_scope(cached(), "B_global", 0, "local")
    assert "alloc B_global: float32[12, 6] @local\n" in show(function)
    assert set_scope(function, "C", "B_global", "local") is function
    assert_same(matmul(), function)


def test_storage_align():
    function = storage_align(cached(), "B_global", 0, 0, 16, 3)
    assert "alloc B_global: float32[12, 6] pad[0: 16 + 3]\n" in show(function)
    assert show(parse(show(function))) == show(function)
    assert_same(matmul(), function)
    again = storage_align(function, "C", "B_global", -2, 8)
    assert "pad[0: 8 + 0]" in show(again)
    assert "pad[0: 8 + 0, 1: 2 + 0]" in show(storage_align(again, "C", "B_global", 1, 2))


@pytest.mark.parametrize(
    "axis, factor, offset, row", [(0, 16, 3, 19), (0, 4, 0, 8), (0, 6, 0, 6), (1, 4, 1, 6), (1, 3, 2, 12)]
)
def test_rows_lie_as_asked(axis, factor, offset, row):
    function = lower(storage_align(cached(), "B_global", 0, axis, factor, offset))
    verify(function, "flat")
    text = show(function)
    assert f"alloc B_global: float32[{12 * row}]" in text
    a, b = np.arange(96, dtype="f4").reshape(8, 12), np.arange(72, dtype="f4").reshape(12, 6)
    np.testing.assert_array_equal(interpret(function, a, b), a @ b)


def test_a_part_that_is_kept_is_padded_and_symbolic_rows_too():
    n = te.var("n")
    A = te.placeholder((n, n), "float32", name="A")
    T = te.compute((n, n), lambda i, j: A[i, j] * 2.0, name="T")
    C = te.compute((n, n), lambda i, j: T[j, i] + 1.0, name="C")
    s = tc.schedule([A, C])
    s.storage_align("T", 0, 0, 16, offset=1)
    kernel = tc.build(s, cache=False)
    for size in (0, 3, 40):
        a = np.arange(size * size, dtype="f4").reshape(size, size)
        np.testing.assert_array_equal(kernel(a), a.T * 2 + 1)


def test_another_layout_forgets_the_rule():
    function = storage_align(cached(), "B_global", 0, 0, 16, 3)
    function = transform_layout(function, "C", "B_global", lambda i, j: (j, i))
    assert "pad" not in show(function)


def test_refusals():
    function = cached()
    assert refused(set_scope, function, "C", "A", "local") == (
        "set_scope(block 'C', buffer 'A'): it is a parameter, whose memory the caller gives; cache it "
        "first with cache_read"
    )
    assert refused(set_scope, function, "C", 0, "local").endswith("cache it first with cache_write")
    assert refused(set_scope, function, "C", "X", "local") == (
        "set_scope(block 'C', buffer 'X'): the block does not touch that buffer; it touches 'C', 'A', "
        "'B_global'"
    )
    assert refused(set_scope, function, "B_global", 0, "attic") == (
        "set_scope(block 'B_global', buffer 0): scope 'attic' is unknown; known are global, local, "
        "shared, warp, fragment"
    )
    assert refused(storage_align, function, "B_global", 0, 2, 4, 0) == (
        "storage_align(block 'B_global', buffer 0): axis 2 is not one of -2 to 1"
    )
    assert refused(storage_align, function, "B_global", 0, 0, 0, 0) == (
        "storage_align(block 'B_global', buffer 0): factor 0 is no integer of 1 or more"
    )
    assert refused(storage_align, function, "B_global", 0, 0, 4, 4) == (
        "storage_align(block 'B_global', buffer 0): offset 4 is no integer from 0 to 3, below the "
        "factor"
    )
