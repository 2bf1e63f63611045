from __future__ import annotations

import ctypes

import numpy as np
import pytest

import tensorc as tc
from tensorc import te
from tensorc.artifact import ERROR_WORDS
from tensorc.errors import ArgumentError, UnsupportedError
from tensorc.runtime import load
from tests.runtime import kernels

numba = pytest.importorskip("numba")
SIGNATURE = r"add\(A: float32\[16\], B: float32\[16\], out C: float32\[16\]\): "


@pytest.fixture(scope="module")
def add():
    return load(kernels.add()).numba()


@pytest.fixture
def arrays():
    return np.arange(16, dtype="f4"), np.ones(16, "f4"), np.zeros(16, "f4")


def test_called_from_a_compiled_loop(add, arrays):
    @numba.njit
    def power(a, rounds):
        c = np.empty_like(a)
        for _ in range(rounds):
            add(a, a, c)
            a = c.copy()
        return a

    a, _, _ = arrays
    assert (power(a, 5) == 32 * a).all()


def test_makes_its_output(add, arrays):
    @numba.njit
    def twice(a, b):
        return add(add(a, b), b)

    a, b, c = arrays
    assert (twice(a, b) == a + 2).all()
    assert (add(a, b) == a + 1).all() and add(a, b, c) is None and (c == a + 1).all()


def test_a_matrix_product():
    A = te.placeholder((24, 40), "float32", name="A")
    B = te.placeholder((40, 56), "float32", name="B")
    k = te.reduce_axis(40, name="k")
    C = te.compute((24, 56), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    product = tc.build([A, B, C], cache=False).numba()

    @numba.njit
    def trace_of(a, b):
        c = product(a, b)
        total = 0.0
        for i in range(24):
            total += c[i, i]
        return total

    a, b = (np.random.default_rng(s).integers(-3, 4, n).astype("f4") for s, n in ((0, (24, 40)), (1, (40, 56))))
    assert trace_of(a, b) == np.trace(a @ b)


def test_several_outputs_and_sizes(arrays):
    a, b, c = arrays
    p = kernels.param
    both = kernels.artifact(kernels.add_code(), p("A", 16), p("B", 16, out=True), p("C", 16, out=True))
    made = load(both).numba()(a)
    assert isinstance(made, tuple) and [x.shape for x in made] == [(16,), (16,)]
    grows = load(kernels.add_n()).numba()
    for n in (0, 1, 16):
        c[:] = 0
        grows(a[:n], b[:n], c[:n])
        assert (c[:n] == a[:n] + 1).all() and not c[n:].any()
    with pytest.raises(ArgumentError, match="argument B has another extent than n in axis 0"):
        grows(a, b[:3], c)
    assert (grows(a, b) == a + 1).all()
    with pytest.raises(numba.TypingError, match=r"got 2 of 2 or 3 arguments and 1 of 0 ints after them \(none\)"):
        grows(a, b, 16)


def test_symbolic_sizes():
    n, m, shift = te.var("n"), te.var("m"), te.var("shift")
    A, V = te.placeholder((n, m), name="A"), te.placeholder((n // 2,), name="V")
    k = te.reduce_axis(m, name="k")
    row = te.compute((n,), lambda i: te.sum(A[i, (k + shift) % m] * te.cast(k + 1, "float32"), axis=k), name="row")
    half = te.compute((n // 2,), lambda i: row[2 * i] + V[i], name="half")
    kernel = tc.build([A, V, row, half], cache=False)
    call = kernel.numba()

    @numba.njit
    def twice(a, v, by):
        total, first = call(a, v, by)
        call(a, v, total, first, by + 1)
        return total, first

    for shape in ((8, 5), (7, 3), (0, 4), (1, 1)):
        a = np.random.default_rng(1).integers(-4, 5, shape).astype("f4")
        v = np.arange(shape[0] // 2, dtype="f4")
        for found, wanted in zip(twice(a, v, 1), kernel(a, v, shift=2)):
            assert np.array_equal(found, wanted)
    a, v = np.zeros((8, 5), "f4"), np.zeros(4, "f4")
    with pytest.raises(ArgumentError, match="argument V has another extent than n // 2 in axis 0"):
        call(a, v[:3], 0)
    with pytest.raises(numba.TypingError, match=r"got 2 of 2 or 4 arguments and 0 of 1 ints after them \(shift\)"):
        call(a, v)
    with pytest.raises(numba.TypingError, match="got 3 of 2 or 4 arguments"):
        call(a, v, 1.0)


def test_sizes_that_only_the_output_tells():
    n = te.var("n")
    counted = te.compute((n, 2), lambda i, j: 2 * i + j, name="counted")
    call = tc.build([counted], cache=False).numba()
    assert np.array_equal(call(3), np.arange(6).reshape(3, 2))
    out = np.zeros((4, 2), np.int64)
    call(out)
    assert np.array_equal(out, np.arange(8).reshape(4, 2))
    with pytest.raises(ArgumentError, match="output counted has a negative extent in axis 0"):
        call(-1)


def test_workspace_and_failed_checks():
    space, fails = load(kernels.workspace()).numba(), load(kernels.fail()).numba()
    count = np.zeros((), "i4")
    space(np.array(7, "i4"), count)
    assert count == 4096
    with pytest.raises(ArgumentError, match="a check in the kernel failed"):
        fails(np.zeros(16, "f4"))


def test_refusals_as_it_runs(add, arrays):
    a, b, c = arrays
    space = np.zeros(48, "f4")
    start = -space.ctypes.data % 64 // 4 + 1
    odd = space[start : start + 16]
    with pytest.raises(ArgumentError, match=SIGNATURE + "argument B has another extent than 16 in axis 0"):
        add(a, b[:8], c)
    with pytest.raises(ArgumentError, match="output C overlaps argument A, an output needs its own"):
        add(a, b, a)
    memory = np.zeros(24, "f4")
    with pytest.raises(ArgumentError, match="output C overlaps argument B"):
        add(a, memory[:16], memory[8:])
    aligned = kernels.param("A", 16, alignment=64)
    one = load(kernels.artifact(kernels.add_code(), aligned, *kernels.add().params[1:])).numba()
    with pytest.raises(ArgumentError, match="argument A is not aligned to 64"):
        one(odd, b, c)
    assert not c.any() and not memory.any()


def test_refusals_as_it_compiles(add, arrays):
    a, b, c = arrays
    read_only = c.copy()
    read_only.flags.writeable = False
    for given, text in [
        ((a, b.astype("f8"), c), "argument B is float64, float32 is needed"),
        ((a, 1.0, c), "argument B is float64, an array is needed"),
        ((a, b.reshape(4, 4), c), "argument B has rank 2, 1 is needed"),
        ((a, np.zeros(32, "f4")[::2], c), "argument B may have strides"),
        ((a, b, read_only), "argument C is read-only"),
        ((a,), "add.*: got 1 of 2 or 3 arguments"),
    ]:
        with pytest.raises(numba.TypingError, match=text):
            add(*given)


def test_kernels_that_numba_cannot_call():
    p = kernels.param
    strided = kernels.artifact(kernels.add_code(), p("A", 16, strides=(2,)), p("B", 16), p("C", 16, out=True))
    with pytest.raises(UnsupportedError, match="takes contiguous arrays only"):
        load(strided).numba()


def test_the_bare_address(arrays):
    kernel = load(kernels.add())
    words = [ctypes.c_void_p] * 4
    function = ctypes.CFUNCTYPE(ctypes.c_int32, *words)(kernel.address)

    @numba.njit
    def call(a, b, c):
        buffers = np.array([a.ctypes.data, b.ctypes.data, c.ctypes.data])
        scalars = np.array([1])
        error = np.zeros(ERROR_WORDS, np.int64)
        return function(buffers.ctypes, scalars.ctypes, 0, error.ctypes)

    a, b, c = arrays
    assert call(a, b, c) == 0 and (c == a + 1).all()
