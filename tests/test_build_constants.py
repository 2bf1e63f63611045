"""Kernels with constant inputs: what depends only on them is made at build, and no call does it again."""

from __future__ import annotations

import copy
import ctypes
import pickle
import shutil
import sys
import threading

import numpy as np
import pytest

import tensorc as tc
from tensorc import ops, te
from tensorc.dtypes import dtype
from tensorc.ir import interpret
from tensorc.runtime import cache as runtime_cache
from tests.small_programs import programs


def matmul(m=20, n=200, k=33, kind="float32", a_axes="ik", b_axes="kj", names="ABC"):
    extents = {"i": m, "j": n, "k": k}
    A = te.placeholder([extents[x] for x in a_axes], kind, name=names[0])
    B = te.placeholder([extents[x] for x in b_axes], kind, name=names[1])
    r = te.reduce_axis(k, name="k")
    wide = "float32" if dtype(kind).is_float and dtype(kind).bytes == 2 else kind

    def body(i, j):
        at = {"i": i, "j": j, "k": r}
        a, b = A[tuple(at[x] for x in a_axes)], B[tuple(at[x] for x in b_axes)]
        return te.sum(te.cast(a, wide) * te.cast(b, wide), axis=r)

    return [A, B, te.compute((m, n), body, name=names[2])]


def whole(*shape, dtype="f4"):
    """Small whole numbers, with which all arithmetic is exact."""
    return np.random.default_rng(0).integers(-4, 5, shape).astype(dtype)


def arrays_for(tensors):
    kinds = [dtype(t.dtype).numpy for t in tensors if t.is_placeholder]
    shapes = [tuple(e.value for e in t.buffer.shape) for t in tensors if t.is_placeholder]
    return [whole(*shape).astype(kind) for shape, kind in zip(shapes, kinds)]


def check(tensors, constants, **options):
    """A kernel that is given these inputs, told by their names, once: it answers as the interpreter does."""
    arrays = arrays_for(tensors)
    given = {t.name: array for t, array in zip(tensors, arrays) if t.name in constants}
    kernel = tc.build(tensors, constants=given, **options)
    rest = [array for t, array in zip(tensors, arrays) if t.is_placeholder and t.name not in constants]
    expected = interpret(te.lower(tensors), *arrays)
    for _ in range(2):
        assert np.array_equal(kernel(*rest), expected)
    return kernel


# What is packed, and where.


@pytest.mark.parametrize("constants", ["A", "B", "AB"])
@pytest.mark.parametrize("a_axes", ["ik", "ki"])
@pytest.mark.parametrize("b_axes", ["kj", "jk"])
def test_operands_on_either_side(constants, a_axes, b_axes):
    check(matmul(a_axes=a_axes, b_axes=b_axes), constants, threads=1)


@pytest.mark.parametrize("kind", ["int8", "int32", "uint16", "float16", "bfloat16", "float64"])
def test_types(kind):
    for constants in "AB":
        check(matmul(9, 40, 20, kind, a_axes="ki"), constants)


@pytest.mark.parametrize("shape", [(1, 40, 16), (2, 17, 300), (64, 3, 80), (37, 5, 19), (3, 1, 9), (0, 5, 4)])
def test_extents(shape):
    for constants in ("A", "B"):
        check(matmul(*shape), constants)


def test_two_threads():
    tensors = matmul(24, 200, 20)
    for knobs in ("rows", "columns"):
        for constants in ("A", "B"):
            check(tensors, constants, threads=2, schedules={"C.parallel": knobs})


@pytest.mark.parametrize("mcpu", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("constants", ["A", "B"])
def test_the_copies_of_constants_are_parameters(mcpu, constants):
    tensors = matmul(a_axes="ki")
    target, given = tc.Target("cpu", mcpu=mcpu), dict(zip("AB", arrays_for(tensors)))
    scheduled = tc.default_schedule(tensors, target, threads=1, constants=[constants])
    kernel = tc.build(tensors, target, threads=1, constants={constants: given[constants]})
    assert kernel.schedule.show() == scheduled.show()
    assert f"block {constants}_global" in kernel.source("prepare")
    assert f"block {constants}_global" not in kernel.source("ir")
    assert f"{constants}[" not in kernel.source("ir")
    assert [buffer.name for buffer in kernel.function.params][-1] == f"{constants}_global"
    assert [param.name for param in kernel.artifact.params] == [x for x in "ABC" if x != constants]


def test_a_panel_that_is_used_once_is_packed_too():
    tensors = matmul(8, 400, 64)
    assert tc.build(tensors).decisions["C.pack"] is False
    kernel = check(tensors, "B")
    assert kernel.decisions["C.pack"] is True and "B[" not in kernel.source("ir")
    kept = check(tensors, "B", schedules={"C.pack": False})
    assert "B[" in kept.source("ir")


def test_columns_of_two_axes_are_gathered_once():
    A, B, k = te.placeholder((20, 48), name="A"), te.placeholder((5, 10, 48), name="B"), te.reduce_axis(48, name="k")
    C = te.compute((20, 5, 10), lambda i, a, b: te.sum(A[i, k] * B[a, b, k], axis=k), name="C")
    kernel = check([A, B, C], "B")
    assert kernel.decisions["C.join"] is True and "B[" not in kernel.source("ir")
    check([A, B, C], "B", schedules={"C.join": False})
    check([A, B, C], "B", schedules={"C.pack": False})


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions(layout, stride, groups):
    shape, kernel = ((1, 7, 7, 12), (3, 3, 12 // groups, 20))
    if layout == "NCHW":
        shape, kernel = (1, 12, 7, 7), (20, 12 // groups, 3, 3)
    X, W = te.placeholder(shape, name="X"), te.placeholder(kernel, name="W")
    Y = ops.conv2d(X, W, stride=stride, padding=1, groups=groups, layout=layout)
    check([X, W, Y], "W")
    check([X, W, Y], "X")


def test_few_columns_are_laid_along_the_depth_once():
    tensors = matmul(40, 3, 256)
    kernel = check(tensors, "B", target=tc.Target("cpu", mcpu="x86-64-v3"))
    assert "B[" not in kernel.source("ir")


def test_every_family():
    for program in programs():
        inputs = [t for t in program.tensors if t.is_placeholder]
        for t, array in zip(inputs, program.inputs):
            what = program.schedule or program.tensors
            kernel = tc.build(what, constants={t.name: array}, threads=1)
            found = kernel(*[other for other in program.inputs if other is not array])
            program.check(found if isinstance(found, tuple) else (found,))


# Stages of constants.


def test_stages_of_constants_are_computed_once():
    X, W, b = te.placeholder((20, 16), name="X"), te.placeholder((16, 300), name="W"), te.placeholder((300,), name="b")
    scaled = te.compute((16, 300), lambda i, j: W[i, j] * 2 + b[j], name="scaled")
    shifted = te.compute((16, 300), lambda i, j: scaled[i, j] + 1, name="shifted")
    k = te.reduce_axis(16, name="k")
    product = te.compute((20, 300), lambda i, j: te.sum(X[i, k] * shifted[k, j], axis=k), name="product")
    out = te.compute((20, 300), lambda i, j: te.maximum(product[i, j] + b[j], 0.0), name="out")
    kernel = check([X, W, b, out], ["W", "b"])
    assert all(name in kernel.source("prepare") for name in ("block scaled", "block shifted_global"))
    ir = kernel.source("ir")
    assert "scaled" not in ir and "b[" in ir
    assert [param.name for param in kernel.artifact.params] == ["X", "out"]
    assert [nest.stages for nest in kernel.report().nests] == [("product", "out")]
    assert "W[" in check([X, W, b, out], ["b"]).source("ir")


def test_stages_that_would_only_take_memory_are_not_kept():
    W, X = te.placeholder((8,), name="W"), te.placeholder((100, 8), name="X")
    spread = te.compute((100, 8), lambda i, j: W[j] + 1, name="spread")
    far = te.compute((100, 8), lambda i, j: te.exp(W[j]), name="far")
    cheap = check([X, W, te.compute((100, 8), lambda i, j: X[i, j] * spread[i, j], name="Y")], "W")
    assert "spread" not in cheap.source("ir") and "W[" in cheap.source("ir")
    costly = tc.build([X, W, te.compute((100, 8), lambda i, j: X[i, j] * far[i, j], name="Y")], constants={W: whole(8)})
    assert "far[" in costly.source("ir") and "exp" not in costly.source("ir")


def test_rows_of_constants_stay_apart():
    X, W = te.placeholder((6, 50), name="X"), te.placeholder((6, 50), name="W")
    k, r = te.reduce_axis(50, name="k"), te.reduce_axis(50, name="r")
    top = te.compute((6,), lambda i: te.max(W[i, k], axis=k), name="top")
    low = te.compute((6,), lambda i: te.sum(X[i, r] + top[i], axis=r), name="low")
    kernel = check([X, W, te.compute((6, 50), lambda i, j: X[i, j] * low[i] - top[i], name="Y")], "W")
    assert "block top" in kernel.source("prepare") and "W" not in kernel.source("ir")


def test_a_product_of_constants_is_made_once():
    tensors = matmul(20, 30, 16)
    X = te.placeholder((20, 30), name="X")
    kernel = check([*tensors[:2], X, te.compute((20, 30), lambda i, j: tensors[2][i, j] + X[i, j], name="Y")], "AB")
    assert "block C" in kernel.source("prepare") and "block C" not in kernel.source("ir")


def test_all_inputs_constant():
    kernel = check(matmul(), "AB")
    assert str(kernel.signature) == "main(out C: float32[20, 200])"
    out = np.empty((20, 200), "f4")
    assert kernel(out) is None and np.array_equal(out, kernel())


def test_nothing_to_prepare():
    A, B = te.placeholder((20,), name="A"), te.placeholder((20,), name="B")
    kernel = check([A, B, te.compute((20,), lambda i: A[i] + B[i], name="C")], "B")
    assert "block" not in kernel.source("prepare") and "B[" in kernel.source("ir")


def test_a_constant_that_nothing_reads():
    A, B = te.placeholder((20,), name="A"), te.placeholder((20,), name="B")
    kernel = check([A, B, te.compute((20,), lambda i: A[i] + 1, name="C")], "B")
    assert kernel.artifact.bound == ()


def test_scalars():
    A, x = te.placeholder((), name="A"), te.placeholder((20,), name="x")
    twice = te.compute((), lambda: te.exp(A[()]), name="twice")
    y = te.compute((20,), lambda i: x[i] * twice[()], name="y")
    kernel = tc.build([A, x, y], constants={A: np.zeros((), "f4")})
    assert np.array_equal(kernel(whole(20)), whole(20))


def test_symbolic_rows():
    n, W = te.var("n"), te.placeholder((16, 300), name="W")
    X, k = te.placeholder((n, 16), name="X"), te.reduce_axis(16, name="k")
    Y = te.compute((n, 300), lambda i, j: te.sum(X[i, k] * W[k, j], axis=k), name="Y")
    w = whole(16, 300)
    kernel = tc.build([X, W, Y], constants={W: w})
    for rows in (0, 1, 7, 100):
        x = whole(rows, 16)
        assert np.array_equal(kernel(x), x @ w)
    assert "block W_global" in kernel.source("prepare")


def test_indices_are_checked_once():
    table, at = te.placeholder((10, 4), name="table"), te.placeholder((6,), "int32", name="at")
    Y = te.compute((6, 4), lambda i, j: table[at[i], j], name="Y")
    index, rows = np.array([0, 9, 3, 3, 1, 0], "i4"), whole(10, 4)
    kernel = tc.build([table, at, Y], constants={at: index})
    assert np.array_equal(kernel(rows), rows[index]) and "check" not in kernel.source("ir")
    index[2] = 10
    assert np.array_equal(kernel(rows), rows[[0, 9, 3, 3, 1, 0]])
    with pytest.raises(tc.ArgumentError, match=r"at.*10"):
        tc.build([table, at, Y], constants={at: index})


# The arrays.


def test_the_callers_arrays_may_change():
    A, B = te.placeholder((20,), name="A"), te.placeholder((20,), name="B")
    for tensors in (matmul(), [A, B, te.compute((20,), lambda i: A[i] + B[i], name="C")]):
        a, b = arrays_for(tensors)
        kernel = tc.build(tensors, constants={"B": b})
        before = kernel(a)
        b[...] = np.nan
        assert np.array_equal(kernel(a), before)
        assert b.flags.writeable


def test_arrays_of_any_layout_and_kind():
    tensors = matmul()
    a, b = arrays_for(tensors)
    wide = np.zeros((66, 400), "f4")
    wide[::2, ::2] = b
    for given in (wide[::2, ::2], np.asfortranarray(b), memoryview(b), b[:, ::-1][:, ::-1]):
        assert np.array_equal(tc.build(tensors, constants={"B": given})(a), a @ b)


def test_torch():
    torch = pytest.importorskip("torch")
    tensors = matmul()
    a, b = arrays_for(tensors)
    kernel = tc.build(tensors, constants={"B": torch.from_numpy(b)})
    for _ in range(3):
        made = kernel(torch.from_numpy(a))
        assert isinstance(made, torch.Tensor) and np.array_equal(made.numpy(), a @ b)
    assert np.array_equal(kernel(a), a @ b)
    half = matmul(kind="bfloat16")
    a, b = arrays_for(half)
    kernel = tc.build(half, constants={"B": torch.from_numpy(b.astype("f4")).to(torch.bfloat16)})
    assert np.array_equal(kernel(a), a.astype("f4") @ b.astype("f4"))


def test_what_kernels_hold_is_aligned_and_read_only():
    A, B = te.placeholder((20,), "int8", name="A"), te.placeholder((20,), "int8", name="B")
    kernel = tc.build([A, B, te.compute((20,), lambda i: A[i] + B[i], name="C")], constants={B: whole(20, dtype="i1")})
    for each in (kernel, pickle.loads(pickle.dumps(kernel)), tc.build(matmul(), constants={"B": whole(33, 200)})):
        (array,) = each._bound
        assert array.ctypes.data % 64 == 0 and not array.flags.writeable


def test_many_constants():
    inputs = [te.placeholder((20,), name=f"t{i}") for i in range(70)]
    total = te.compute((20,), lambda i: sum([t[i] for t in inputs[1:]], inputs[0][i]), name="total")
    tensors = [*inputs, total]
    check(tensors, [f"t{i}" for i in range(1, 70)])
    check(tensors, [f"t{i}" for i in range(1, 8)])


def test_kernels_share_a_constant():
    b = whole(33, 200)
    kernels = [tc.build(matmul(m), constants={"B": b}) for m in (1, 8, 50)]
    for m, kernel in zip((1, 8, 50), kernels):
        assert np.array_equal(kernel(whole(m, 33)), whole(m, 33) @ b)


# What else kernels do.


def test_calls():
    tensors = matmul()
    a, b = arrays_for(tensors)
    kernel = tc.build(tensors, name="mm", constants={tensors[1]: b})
    assert str(kernel.signature) == "mm(A: float32[20, 33], out C: float32[20, 200])"
    assert repr(kernel).startswith("<Kernel mm(A: float32[20, 33], out C")
    out = np.empty((20, 200), "f4")
    assert kernel(a, out) is None and np.array_equal(out, a @ b)
    assert np.array_equal(kernel(memoryview(a), threads=1), a @ b)
    timing = kernel.time(a, out, seconds=0.02)
    assert (timing.flops, timing.bytes) == kernel.work(a) == (2 * 20 * 200 * 33, 4 * (20 * 33 + 33 * 200 + 20 * 200))
    assert kernel.report().loop("C.k").lanes > 1 and kernel.decisions["C.pack"] is True
    for kind in ("ir", "flat", "llvm", "asm", "prepare"):
        assert kernel.source(kind)
    with pytest.raises(tc.ArgumentError, match="a CPU kernel has 'ir', 'flat', 'llvm', 'asm', 'prepare'"):
        kernel.source("cuda")
    with pytest.raises(tc.ArgumentError, match="3 arguments were given, 1 or 2 needed"):
        kernel(a, b, out)
    packed = interpret(kernel.function, a, *kernel._bound)
    assert np.array_equal(packed, a @ b)


def test_sources_of_kernels_without_constants():
    for constants in (None, {}):
        kernel = tc.build(matmul(), constants=constants)
        assert kernel.artifact.bound == ()
        with pytest.raises(tc.ArgumentError, match="a CPU kernel has 'ir', 'flat', 'llvm', 'asm'$"):
            kernel.source("prepare")


@pytest.mark.parametrize("cache", [True, False])
def test_copies_and_pickles(cache):
    tensors = matmul()
    a, b = arrays_for(tensors)
    kernel = tc.build(tensors, constants={"B": b}, cache=cache)
    assert copy.deepcopy(kernel) is kernel
    again = pickle.loads(pickle.dumps(kernel))
    del kernel
    assert np.array_equal(again(a), a @ b)


def test_several_threads_at_once():
    tensors = matmul()
    a, b = arrays_for(tensors)
    kernel = tc.build(tensors, constants={"B": b})
    results = []
    work = lambda: results.extend([np.array_equal(kernel(a), a @ b) for _ in range(200)])
    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(results) == 800 and all(results)


def test_numba():
    numba = pytest.importorskip("numba")
    tensors = matmul()
    a, b = arrays_for(tensors)
    call = tc.build(tensors, constants={"B": b}).numba()
    assert np.array_equal(numba.njit(lambda x: call(x) + 1)(a), a @ b + 1)


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "int8"])
@pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler here")
def test_libraries_hold_the_constants(tmp_path, kind):
    tensors = matmul(kind=kind)
    a, b = arrays_for(tensors)
    kernel = tc.build(tensors, constants={"B": b}, name="mm")
    header = kernel.export(tmp_path / "libmm.so")
    assert "B" not in header.read_text().split("int mm(")[1].split(")")[0]
    mm = ctypes.CDLL(str(tmp_path / "libmm.so")).mm
    expected = kernel(a)
    c = np.empty_like(expected)
    assert mm(ctypes.c_void_p(a.ctypes.data), ctypes.c_void_p(c.ctypes.data)) == 0
    assert np.array_equal(c, expected)


def test_other_machines(tmp_path):
    tensors = matmul()
    a, b = arrays_for(tensors)
    for mcpu in ("neoverse-n1", "rv64gcv"):
        kernel = tc.build(tensors, tc.Target("cpu", mcpu=mcpu), constants={"B": b}, name="mm")
        assert "B_global" in kernel.source("ir")
        assert kernel.export(tmp_path / f"{mcpu}.o").exists()
        with pytest.raises(tc.TargetError):
            kernel(a)


def test_a_schedule_by_hand():
    tensors = matmul()
    a, b = arrays_for(tensors)
    s = tc.schedule(tensors)
    s.cache_read("C", "B")
    kernel = tc.build(s, constants={"B": b})
    assert "B_global" in kernel.source("prepare") and np.array_equal(kernel(a), a @ b)
    s = tc.schedule(tensors)
    s.compute_at(s.cache_read("C", "B"), s.loops("C")[0])
    kernel = tc.build(s, constants={"B": b})  # the copy is within a loop over what is no constant
    assert "B[" in kernel.source("ir") and np.array_equal(kernel(a), a @ b)


def test_decisions_are_taken_back():
    tensors = matmul(8, 400, 64, a_axes="ki")
    a, b = arrays_for(tensors)
    kernel = tc.build(tensors, constants={"A": a, "B": b})
    assert kernel.decisions["C.pack_rows"] is True
    again = tc.build(tensors, constants={"A": a, "B": b}, schedules=kernel.decisions)
    assert again.source() == kernel.source()
    by_trace = tc.build(tensors, constants={"A": a, "B": b}, schedules=kernel.schedule.trace)
    assert by_trace.source() == kernel.source()


def test_recipes_of_ones_own_know():
    seen = []
    with tc.recipe(lambda group: seen.extend(group.main.loads) or False, register=False)(lambda *_: None):
        tc.build(matmul(), constants={"B": whole(33, 200)})
    assert {load.buffer: load.is_constant for load in seen} == {"A": False, "B": True}


# The cache.


def test_the_cache_keeps_code_and_no_values(fresh_cache, monkeypatch):
    tensors = matmul(b_axes="jk")
    a, b = arrays_for(tensors)
    b[3, 4:8] = 1234567
    assert np.array_equal(tc.build(tensors, constants={"B": b})(a), a @ b.T)
    entries = [entry.read_bytes() for entry in fresh_cache.glob("*/*")]
    assert not any(b[3, 4:8].tobytes() in entry for entry in entries)

    monkeypatch.setattr(sys.modules["tensorc.build"], "_compiled_parts", None)  # all further code comes from the cache
    other = matmul(b_axes="jk", names="XYZ")
    kernel = tc.build(other, constants={other[1]: -b}, name="again")
    assert np.array_equal(kernel(a), a @ -b.T)
    assert str(kernel.signature) == "again(X: float32[20, 33], out Z: float32[20, 200])"
    with pytest.raises(TypeError):
        tc.build(other, constants={other[0]: a})


def test_half_of_what_the_cache_had(fresh_cache):
    tensors = matmul()
    a, b = arrays_for(tensors)
    tc.build(matmul(names="XYZ"), constants={"Y": b})
    for entry in list(fresh_cache.glob("*/*")):
        content = entry.read_bytes()
        entry.unlink()
        assert np.array_equal(tc.build(tensors, constants={"B": b})(a), a @ b)
        if not entry.exists():  # the code of the thread pool, say
            entry.write_bytes(content)


def test_artifacts_of_the_cache_know_what_is_bound(tmp_path):
    kernel = tc.build(matmul(), constants={"B": whole(33, 200)})
    store = runtime_cache.Cache(tmp_path / "store")
    store.put("ab" * 32, kernel.artifact)
    assert store.get("ab" * 32) == kernel.artifact and kernel.artifact.bound


# What is refused.


def refusal(constants, tensors=None, what=tc.build):
    with pytest.raises(tc.ArgumentError) as caught:
        what(tensors or matmul(), constants=constants)
    return str(caught.value)


def test_refusals():
    b = whole(33, 200)
    assert refusal({"D": b}) == "constants: 'D' is none of the arguments A, B, C"
    assert refusal({3: b}) == "constants: 3 is none of the arguments A, B, C"
    assert refusal({te.placeholder((3,), name="D"): b}) == "constants: 'D' is none of the arguments A, B, C"
    assert refusal({matmul()[1]: b}) == "constants: 'B' is none of the arguments A, B, C; give its name"
    assert refusal({"C": b}) == "constants: C is an output, only inputs can be constant"
    assert refusal({"B": b.astype("f8")}) == "constants: argument B is float64, float32 is needed"
    assert refusal({"B": b[:, :-1]}) == "constants: argument B has shape (33, 199), (33, 200) is needed"
    assert "argument B has rank 1" in refusal({"B": b[0]})
    assert "argument B is None" in refusal({"B": None})
    assert "is a list" in refusal({"B": [1.0]})
    assert "big-endian" in refusal({"B": b.astype(">f4")})
    assert refusal(["B"]) == "constants=['B']: a dict of arrays by tensors or names is needed"
    tensors = matmul()
    both = {tensors[1]: b, "B": b}
    assert refusal(both, tensors) == "constants: B is given twice, as a tensor and by its name"
    assert refusal({tensors[1]: b}, tc.schedule(tensors)) == (
        "constants: 'B' is none of the arguments A, B, C; give its name"
    )


def test_symbolic_constants_are_refused():
    n = te.var("n")
    A = te.placeholder((n, 8), name="A")
    tensors = [A, te.compute((n, 8), lambda i, j: A[i, j] + 1, name="B")]
    assert refusal({"A": whole(3, 8)}, tensors) == "constants: A has the shape (n, 8), a constant one is needed"


def test_default_schedules_refuse_as_well():
    assert refusal(["D"], what=tc.default_schedule) == "constants: 'D' is none of the arguments A, B, C"
    assert refusal(["C"], what=tc.default_schedule) == "constants: C is an output, only inputs can be constant"
