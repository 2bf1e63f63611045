"""Kernels with symbolic extents, end to end: one kernel is right for every size."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tensorc as tc
from tensorc import te
from tensorc.ir import interpret

SIZES = (0, 1, 2, 15, 16, 17, 100, 1023, 1024)
TARGETS = {
    "v2": lambda: tc.Target("cpu", mcpu="x86-64-v2"),
    "v3": lambda: tc.Target("cpu", mcpu="x86-64-v3"),
    "host": lambda: None,
}
MACHINES = [(name, threads) for name in TARGETS for threads in (1, 2)]
on_machines = pytest.mark.parametrize(("target", "threads"), MACHINES)


def whole(*shape: int) -> np.ndarray:
    """Small whole numbers: sums of their products are exact."""
    return np.random.default_rng(0).integers(-4, 5, shape).astype(np.float32)


def build(tensors, target: str, threads: int):
    try:
        kernel = tc.build(tensors, TARGETS[target](), threads=threads, cache=False)
        kernel.address  # noqa: B018 - refused where this machine cannot run the code
        return kernel
    except tc.TargetError as error:
        pytest.skip(str(error))


def call(kernel, *arrays: np.ndarray, **scalars: int) -> np.ndarray:
    """The result, the same whether the kernel makes the output or gets one."""
    made = kernel(*arrays, **scalars)
    given = np.full_like(made, 77)
    assert kernel(*arrays, given, **scalars) is None
    np.testing.assert_array_equal(made, given)
    return made


def matmul(m, n, k):
    A = te.placeholder((m, k), name="A")
    B = te.placeholder((k, n), name="B")
    r = te.reduce_axis(k, name="k")
    return [A, B, te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")]


@on_machines
def test_matmul(target, threads):
    kernel = build(matmul(te.var("m"), te.var("n"), te.var("k")), target, threads)
    cases = {(n, n, n) for n in SIZES if n <= 100}
    cases |= {(n, 17, 16) for n in SIZES} | {(5, n, 16) for n in SIZES} | {(5, 17, n) for n in SIZES}
    cases |= {(3, 0, 4), (0, 3, 4), (3, 4, 0), (27, 1025, 3), (40, 97, 1500)}
    for m, n, k in sorted(cases):
        a, b = whole(m, k), whole(k, n)
        np.testing.assert_array_equal(call(kernel, a, b), a @ b, err_msg=f"{m}, {n}, {k}")


@pytest.mark.parametrize("symbolic", ["m", "n", "k"])
def test_matmul_of_one_symbolic_extent(symbolic):
    fixed = {"m": 20, "n": 50, "k": 30}
    kernel = build(matmul(**{**fixed, symbolic: te.var(symbolic)}), "host", 1)
    for size in SIZES:
        sizes = {**fixed, symbolic: size}
        a, b = whole(sizes["m"], sizes["k"]), whole(sizes["k"], sizes["n"])
        np.testing.assert_array_equal(call(kernel, a, b), a @ b, err_msg=str(sizes))


@on_machines
def test_elementwise(target, threads):
    n, m = te.var("n"), te.var("m")
    A, B = te.placeholder((n,), name="A"), te.placeholder((m, n), name="B")
    kernel = build(
        [A, B, te.compute((m, n), lambda i, j: A[j] * 2 + B[i, j], name="C")], target, threads
    )
    for rows in (0, 1, 3, 40):
        for size in SIZES:
            a, b = whole(size), whole(rows, size)
            np.testing.assert_array_equal(call(kernel, a, b), a * 2 + b, err_msg=f"{rows}, {size}")


@on_machines
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("reducer", "reference"), [("sum", np.sum), ("max", np.max)])
def test_reductions(target, threads, axis, reducer, reference):
    n, m = te.var("n"), te.var("m")
    A = te.placeholder((m, n), name="A")
    k = te.reduce_axis((m, n)[axis], name="k")
    value = lambda i: getattr(te, reducer)(A[k, i] if axis == 0 else A[i, k], axis=k)
    kernel = build([A, te.compute(((m, n)[1 - axis],), value, name="B")], target, threads)
    start = {"sum": 0, "max": -np.inf}[reducer]
    for rows in (0, 1, 20):
        for size in SIZES:
            a = whole(rows, size)
            expected = reference(a, axis=axis, initial=start)
            np.testing.assert_array_equal(call(kernel, a), expected, err_msg=f"{rows}, {size}")


def test_a_whole_sum():
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    k = te.reduce_axis(n, name="k")
    kernel = build([A, te.compute((), lambda: te.sum(A[k], axis=k), name="B")], "host", 1)
    for size in SIZES:
        a = whole(size)
        assert call(kernel, a) == a.sum()


@on_machines
def test_softmax(target, threads):
    m, n = te.var("m"), te.var("n")
    X = te.placeholder((m, n), name="X")
    k, l = te.reduce_axis(n, name="k"), te.reduce_axis(n, name="l")
    top = te.compute((m,), lambda i: te.max(X[i, k], axis=k), name="top")
    part = te.compute((m, n), lambda i, j: te.exp(X[i, j] - top[i]), name="part")
    total = te.compute((m,), lambda i: te.sum(part[i, l], axis=l), name="total")
    Y = te.compute((m, n), lambda i, j: part[i, j] / total[i], name="Y")
    kernel = build([X, Y], target, threads)
    for rows in (0, 1, 17):
        for size in SIZES:
            x = whole(rows, size)
            e = np.exp(x - x.max(axis=1, keepdims=True, initial=-np.inf))
            np.testing.assert_allclose(call(kernel, x), e / e.sum(axis=1, keepdims=True), rtol=1e-5)


@on_machines
def test_convolution(target, threads):
    n, h, w = te.var("n"), te.var("h"), te.var("w")
    X = te.placeholder((n, 3, h, w), name="X")
    W = te.placeholder((5, 3, 3, 3), name="W")
    c, r, q = te.reduce_axis(3, name="c"), te.reduce_axis(3, name="r"), te.reduce_axis(3, name="q")
    value = lambda b, o, y, x: te.sum(X[b, c, y + r, x + q] * W[o, c, r, q], axis=(c, r, q))
    kernel = build([X, W, te.compute((n, 5, h - 2, w - 2), value, name="Y")], target, threads)
    for batch, height, width in ((0, 5, 5), (1, 2, 9), (1, 3, 3), (2, 4, 17), (1, 20, 34), (3, 7, 101)):
        x, filters = whole(batch, 3, height, width), whole(5, 3, 3, 3)
        expected = sum(
            np.einsum("bcyx,oc->boyx", x[:, :, r : height - 2 + r, q : width - 2 + q], filters[:, :, r, q])
            for r in range(3)
            for q in range(3)
        )
        np.testing.assert_array_equal(call(kernel, x, filters), expected)


@on_machines
def test_stages_of_other_sizes_than_the_arguments(target, threads):
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    wide = te.compute((n * 2 + 1,), lambda i: te.cast(i, "float32") + 1, name="wide")
    k = te.reduce_axis(n * 2 + 1, name="k")
    each = te.compute((n,), lambda i: te.sum(A[i] * wide[k], axis=k), name="each")
    half = te.compute((n // 2,), lambda i: each[i * 2] + each[i * 2 + 1], name="half")
    kernel = build([A, half], target, threads)
    for size in SIZES[:7]:
        a = whole(size)
        each_value = a * np.arange(1, size * 2 + 2).sum()
        expected = each_value[: size // 2 * 2].reshape(-1, 2).sum(axis=1)
        np.testing.assert_array_equal(call(kernel, a), expected)


def test_the_interpreter_agrees_with_schedules_by_hand():
    tensors = matmul(te.var("m"), te.var("n"), te.var("k"))
    s = tc.schedule(tensors)
    i, j, k = s.loops("C")
    i0, i1 = s.split(i, factors=(None, 4))
    j0, j1 = s.split(j, factors=(None, 8))
    k0, k1 = s.split(k, factors=(None, 3))
    s.reorder(k0, i0, j0, k1, i1, j1)
    s.unroll(i1)
    s.vectorize(j1)
    undecomposed = s.copy()
    s.decompose_reduction("C", k1)
    for schedule in (undecomposed, s):
        kernel = tc.build(schedule, threads=1, cache=False)
        for m, n, r in ((3, 9, 0), (0, 3, 2), (5, 8, 7), (9, 17, 4)):
            a, b = whole(m, r), whole(r, n)
            np.testing.assert_array_equal(interpret(schedule.function, a, b), a @ b)
            np.testing.assert_array_equal(call(kernel, a, b), a @ b)


def test_a_variable_that_no_shape_determines_is_passed_by_name():
    n, m = te.var("n"), te.var("m")
    A = te.placeholder((2 * n,), name="A")
    B = te.compute((n,), lambda i: A[2 * i] + te.cast(m, "float32"), name="B")
    kernel = build([A, B], "host", 1)
    for size in (0, 1, 17):
        a = whole(2 * size)
        np.testing.assert_array_equal(kernel(a, n=size, m=3), a[::2] + 3)
        out = np.empty(size, np.float32)
        kernel(a, out, m=4)
        np.testing.assert_array_equal(out, a[::2] + 4)


def refusal(kernel, *arrays, **scalars) -> str:
    with pytest.raises(tc.ArgumentError) as caught:
        kernel(*arrays, **scalars)
    return str(caught.value).removeprefix(f"{kernel.signature}: ")


def test_calls_that_do_not_fit():
    n, m = te.var("n"), te.var("m")
    A, B = te.placeholder((n + 1,), name="A"), te.placeholder((n, 3), name="B")
    C = te.compute((n - 1,), lambda i: A[i] + B[i, 0] + te.cast(m, "float32"), name="C")
    kernel = build([A, B, C], "host", 1)
    assert str(kernel.signature) == (
        "main(A: float32[n + 1], B: float32[n, 3], out C: float32[n - 1], m: int64)"
    )
    five = whole(6), whole(5, 3)
    assert kernel(*five, m=1).shape == (4,)
    assert refusal(kernel, *five) == "m is not given; no array determines it: pass m=..."
    assert refusal(kernel, *five, n=5, m=1) == "unknown keyword 'n'; known are threads, m"
    assert refusal(kernel, *five, m=1.5) == "m is 1.5, an int is needed"
    assert refusal(kernel, whole(7), whole(5, 3), m=1) == (
        "argument A has extent 7 in axis 0, n + 1 is 6 with m = 1, n = 5"
    )
    assert refusal(kernel, *five, whole(5), m=1) == (
        "argument C has extent 5 in axis 0, n - 1 is 4 with m = 1, n = 5"
    )
    assert refusal(kernel, whole(1), whole(0, 3), m=1) == (
        "output C in axis 0, n - 1 is -1 with m = 1, n = 0"
    )


def test_extents_that_must_agree():
    kernel = build(matmul(te.var("m"), te.var("n"), te.var("k")), "host", 1)
    assert refusal(kernel, whole(2, 3), whole(4, 5)) == (
        "argument B has extent 4 in axis 0, k is 3 by the arguments before it"
    )
    assert refusal(kernel, whole(2, 3), whole(3, 5), whole(2, 6)) == (
        "argument C has extent 6 in axis 1, n is 5 by the arguments before it"
    )


def test_what_only_an_output_determines_is_named_when_it_is_made():
    n = te.var("n")
    A = te.placeholder((), name="A")
    kernel = build([A, te.compute((n,), lambda i: A[()], name="B")], "host", 1)
    one = np.float32(1).reshape(())
    np.testing.assert_array_equal(kernel(one, n=5), np.ones(5, np.float32))
    assert refusal(kernel, one) == "n is not given; only the output tells: pass n=..."
    assert "no array has the shape" in refusal(kernel, one, n=1 << 62)


def test_the_workspace_follows_the_call():
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    k = te.reduce_axis(n, name="k")
    square = te.compute((n, n), lambda i, j: te.exp(A[i] * 0 + A[j] * 0) * A[i] + A[j], name="square")
    B = te.compute((n,), lambda i: te.sum(square[i, k] * square[k, i], axis=k), name="B")
    kernel = build([A, B], "host", 1)
    for size in (1024, 0, 3, 700):
        a = whole(size)
        s = a[:, None] + a[None, :]
        np.testing.assert_array_equal(call(kernel, a), (s * s.T).sum(axis=1))


def test_a_workspace_that_no_machine_has_is_no_small_one():
    n = te.var("n")
    A = te.placeholder((4,), name="A")
    k = te.reduce_axis(4, name="k")
    big = te.compute((n, n), lambda i, j: te.exp(A[0]) + te.cast(i + j, "float32"), name="big")
    B = te.compute((4,), lambda i: te.sum(A[k], axis=k), name="B")
    total = te.reduce_axis(n, name="r")
    C = te.compute((4,), lambda i: te.sum(big[total, total] * B[i], axis=total), name="C")
    kernel = build([A, C], "host", 1)
    with pytest.raises(MemoryError):
        kernel(whole(4), n=1 << 31)


def test_the_work_of_a_call():
    kernel = build(matmul(te.var("m"), te.var("n"), te.var("k")), "host", 1)
    a, b = whole(64, 32), whole(32, 16)
    assert kernel.work(a, b) == (2 * 64 * 32 * 16, 4 * (64 * 32 + 32 * 16 + 64 * 16))
    timing = kernel.time(a, b, whole(64, 16), repeat=3, seconds=0.01)
    assert timing.flops == 2 * 64 * 32 * 16


def test_kernels_in_the_cache_go_by_the_names_of_their_variables(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORC_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("n", "size"):
        n = te.var(name)
        A = te.placeholder((2 * n,), name="A")
        kernel = tc.build([A, te.compute((n,), lambda i: A[i] + 1, name="B")], threads=1)
        np.testing.assert_array_equal(kernel(whole(6), **{name: 3}), whole(6)[:3] + 1)


def test_an_array_is_flattened_and_folded():
    n, m = te.var("n"), te.var("m")
    A = te.placeholder((n, m), name="A")
    flat = te.compute((n * m,), lambda i: A[i // m, i % m], name="flat")
    turned = te.compute((m * n,), lambda i: A[i % n, i // n], name="turned")
    kernel = tc.build([A, flat, turned], cache=False)
    for shape in ((3, 5), (0, 4), (4, 0), (1, 17), (33, 8)):
        a = whole(*shape)
        f, t = kernel(a)
        assert np.array_equal(f, a.ravel()) and np.array_equal(t, a.T.ravel())
    V = te.placeholder((n * m,), name="V")  # no array tells that n is 0 or more
    folded = te.compute((n, m), lambda i, j: V[i * m + j], name="folded")
    v = np.arange(15, dtype="float32")
    assert np.array_equal(tc.build([V, folded], cache=False)(v, n=3, m=5), v.reshape(3, 5))
    B = te.placeholder((n * m, 2), name="B")
    with pytest.raises(tc.ExpressionError, match=r"access V\[i // m\] reads index of unknown range"):
        tc.build([B, V, te.compute((n * m,), lambda i: V[i // m] + B[i, 0], name="C")])


def test_sizes_that_no_array_has():
    m, n = te.var("m"), te.var("n")
    flat = te.compute((m * n,), lambda i: 1.0, dtype="float32", name="flat")
    kernel = tc.build([flat])
    assert kernel(m=2, n=3).shape == (6,)
    assert kernel(m=0, n=5).shape == (0,)
    large = 1 << 32
    message = f"extent m * n is too large with m = {large}, n = {large}: in 64 bits it is 0"
    assert refusal(kernel, m=large, n=large).endswith(message)
    assert refusal(kernel, m=-2, n=-3).endswith("m is -2, a factor of an extent is 0 or more")
    assert refusal(kernel, m=1 << 41, n=0).endswith(f"m is {1 << 41}, sizes are up to {1 << 40}")
    grid = tc.build([te.compute((m, n), lambda i, j: 1.0, dtype="float32", name="grid")])
    assert refusal(grid, m=-2, n=3).endswith("output grid: no array has the shape (-2, 3): sizes are 0 or more")
    assert refusal(grid, m=large, n=large).endswith(f"shape ({large}, {large}): it has too many elements")


def test_numbers_of_iterations_are_sizes():
    n, x = te.var("n"), te.placeholder((4,), name="x")
    r = te.reduce_axis(n, name="r")
    kernel = tc.build([x, te.compute((4,), lambda i: te.sum(x[(i + r) % 4], axis=r), name="y")])
    ones = np.ones(4, "float32")
    assert np.array_equal(kernel(ones, n=3), [3] * 4)
    assert np.array_equal(kernel(ones, n=-3), [0] * 4)
    assert refusal(kernel, ones, n=1 << 62).endswith(f"n is {1 << 62}, sizes are up to {1 << 40}")


def test_symbolic_axes_that_memory_runs_on_along_are_one_loop():
    m, n = te.var("m"), te.var("n")
    A = te.placeholder((3, m, n), "float32", name="A")
    B = te.placeholder((3, m, n), "float32", name="B")
    C = te.compute((3, m, n), lambda b, i, j: A[b, i, j] * 2 + B[b, i, j], name="C")
    kernel = tc.build([A, B, C])
    assert "//" not in kernel.source("flat").split("C[")[1].split("]")[0]
    assert "in 0 .. n" not in kernel.source("flat")
    for rows, columns in ((0, 5), (5, 0), (1, 1), (70, 1), (1, 70), (33, 7), (200, 64)):
        a, b = np.random.default_rng(rows).random((2, 3, rows, columns), dtype="f4")
        assert np.allclose(kernel(a, b), a * 2 + b)


@pytest.mark.parametrize("body", ["row", "part", "transposed"])
def test_symbolic_axes_stay_two_loops_where_memory_does_not_run_on(body):
    m, n = te.var("m"), te.var("n")
    A = te.placeholder((m, n + 1 if body == "part" else n), "float32", name="A")
    R = te.placeholder((n,), "float32", name="R")
    T = te.placeholder((n, m), "float32", name="T")
    other = T if body == "transposed" else R
    at = (lambda i, j: T[j, i]) if body == "transposed" else (lambda i, j: R[j])
    kernel = tc.build([A, other, te.compute((m, n), lambda i, j: A[i, j] + at(i, j), name="C")])
    assert re.search(r"for C\.i(\.0)? in", kernel.source("ir"))  # which is cut where tiles of it are turned
    rng = np.random.default_rng(0)
    a = rng.random((9, 12 if body == "part" else 11), dtype="f4")
    b = rng.random((11, 9) if body == "transposed" else 11, dtype="f4")
    assert np.allclose(kernel(a, b), a[:, :11] + b.T, rtol=1e-5)


def test_symbolic_axes_whose_positions_are_read_stay_two_loops():
    m, n = te.var("m"), te.var("n")
    A = te.placeholder((m, n), "float32", name="A")
    C = te.compute((m, n), lambda i, j: A[i, j] + te.cast(i - j, "float32"), name="C")
    kernel = tc.build([A, C])
    assert re.search(r"for C\.i(\.0)? in", kernel.source("ir"))  # which is cut where tiles of it are turned
    i, j = np.indices((9, 11))
    a = np.ones((9, 11), "f4")
    assert np.array_equal(kernel(a), a + (i - j))


def test_padded_rows_of_a_fused_loop():
    """A buffer with padding has one dimension, whatever its indices were."""
    a = te.placeholder((2, 3), "float32", name="A")
    b = te.compute((2, 3), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((2, 3), lambda i, j: b[i, j] * 2.0, name="C")
    s = tc.schedule([a, c])
    s.fuse("C.i", "C.j")
    s.storage_align("B", "B", 0, 4, 1)
    x = np.arange(6, dtype="f4").reshape(2, 3)
    assert np.array_equal(tc.build(s)(x), (x + 1) * 2)
