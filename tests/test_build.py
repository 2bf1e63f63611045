"""From definitions to kernels through the public face, and every way in which that may fail."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

import tensorc as tc
from tensorc import te
from tensorc.ir import equal, interpret, parse
from tensorc.ir.stmt import For
from tensorc.ir.walk import walk
from tensorc.schedule.locate import all_blocks, loops_above

README = Path(__file__).resolve().parent.parent / "README.md"


def matmul(m=24, n=40, k=16, dtype="float32"):
    A = te.placeholder((m, k), dtype, name="A")
    B = te.placeholder((k, n), dtype, name="B")
    r = te.reduce_axis(k, name="k")
    return [A, B, te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")]


def add(n=100, dtype="float32"):
    A = te.placeholder((n,), dtype, name="A")
    B = te.placeholder((n,), dtype, name="B")
    return [A, B, te.compute((n,), lambda i: A[i] + B[i], name="C")]


def row_sum(m=9, n=100):
    A = te.placeholder((m, n), name="A")
    r = te.reduce_axis(n, name="r")
    return [A, te.compute((m,), lambda i: te.sum(A[i, r], axis=r), name="S")]


def softmax(m=6, n=50):
    X = te.placeholder((m, n), name="X")
    k, r = te.reduce_axis(n, name="k"), te.reduce_axis(n, name="r")
    top = te.compute((m,), lambda i: te.max(X[i, k], axis=k), name="top")
    e = te.compute((m, n), lambda i, j: te.exp(X[i, j] - top[i]), name="e")
    total = te.compute((m,), lambda i: te.sum(e[i, r], axis=r), name="total")
    return [X, te.compute((m, n), lambda i, j: e[i, j] / total[i], name="S")]


def whole(*shape, dtype="f4"):
    """Small whole numbers, with which all arithmetic is exact."""
    return np.random.default_rng(0).integers(-4, 5, shape).astype(dtype)


@pytest.fixture
def abc():
    return whole(24, 16), whole(16, 40), np.full((24, 40), np.nan, "f4")


@pytest.fixture
def kernels_only(fresh_cache):
    """The folder of the cache without the thread pool, which the first kernel of a process puts there."""
    tc.build(add())
    for entry in fresh_cache.glob("*/*"):
        entry.unlink()
    return fresh_cache


# What works.


def test_the_example_of_the_readme(abc):
    M, N, K = 64, 64, 64
    A = te.placeholder((M, K), "float32", name="A")
    B = te.placeholder((K, N), "float32", name="B")
    k = te.reduce_axis(K, name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    kernel = tc.build([A, B, C])
    a, b = whole(M, K), whole(K, N)
    c = kernel(a, b)
    np.testing.assert_array_equal(c, a @ b)
    c[:] = 0
    assert kernel(a, b, c) is None
    np.testing.assert_array_equal(c, a @ b)
    assert kernel.source("ir").startswith("function main(A: float32[64, 64]")
    s = tc.schedule([A, B, C])
    i, j, k = s.loops("C")
    j0, j1 = s.split(j, factors=(None, 16))
    s.reorder(i, j0, k, j1)
    s.vectorize(j1)
    assert "vectorized" in s.show()
    assert "s.vectorize(j1)" in s.trace.python()
    np.testing.assert_array_equal(tc.build(s)(a, b), a @ b)


def test_the_code_of_the_readme_runs():
    code = README.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    small = code.replace("1024, 1024, 1024", "48, 48, 48").replace("kernel.time(a, b, c)", "")
    assert small.count("48") == 3
    names: dict = {"print": lambda *args, **named: None}
    exec(small, names)
    np.testing.assert_allclose(names["c"], names["a"] @ names["b"], rtol=1e-4)


def test_outputs_are_returned_or_written(abc):
    a, b, c = abc
    kernel = tc.build(matmul())
    made = kernel(a, b)
    assert type(made) is np.ndarray and made.dtype == np.float32 and made.shape == (24, 40)
    assert kernel(a, b, c) is None
    np.testing.assert_array_equal(made, c)
    np.testing.assert_array_equal(c, a @ b)


def test_hundreds_of_stages_do_not_become_deep():
    """Elementwise and reduced stages in turn; all their buffers live in one place."""
    last = A = te.placeholder((8,), "float32", name="A")
    for at in range(300):
        last = te.compute((8,), lambda i, P=last: P[7 - i] * 0.5 + P[i] * 0.5, name=f"T{at}")
        k = te.reduce_axis(8, name="k")
        last = te.compute((8,), lambda i, P=last, k=k: te.sum(P[k] * 0.125, axis=k), name=f"R{at}")
    kernel = tc.build(tc.schedule([A, last]))
    a = np.arange(8, dtype="f4")
    assert np.array_equal(kernel(a), np.full(8, 3.5, "f4"))
    assert kernel.source("flat").count("\n  alloc ") == 1


def test_several_outputs_and_internal_stages():
    A = te.placeholder((5, 7), "int32", name="A")
    r = te.reduce_axis(7, name="r")
    S = te.compute((5,), lambda i: te.sum(A[i, r], axis=r), name="S")
    D = te.compute((5, 7), lambda i, j: A[i, j] * 7 - S[i], name="D")
    P = te.compute((5, 7), lambda i, j: te.cast(D[i, j] > 0, "uint8"), name="P")
    a = whole(5, 7, dtype="i4")
    d = a * 7 - a.sum(1, keepdims=True)
    first, second = tc.build([A, P, D])(a)
    np.testing.assert_array_equal(first, d > 0)
    np.testing.assert_array_equal(second, d)
    np.testing.assert_array_equal(tc.build([P, A])(a), d > 0)


def test_rank_0_and_empty_extents():
    x = te.placeholder((), name="x")
    kernel = tc.build([x, te.compute((), lambda: x[()] + 1.0, name="y")])
    assert kernel(np.float32(2).reshape(())) == 3
    for tensors, arrays in (
        (add(0), (np.zeros(0, "f4"),) * 2),
        (matmul(0, 4, 3), (np.zeros((0, 3), "f4"), np.zeros((3, 4), "f4"))),
        (matmul(3, 0, 3), (np.zeros((3, 3), "f4"), np.zeros((3, 0), "f4"))),
    ):
        assert tc.build(tensors)(*arrays).size == 0
    nothing = tc.build(matmul(3, 4, 0))(np.zeros((3, 0), "f4"), np.zeros((0, 4), "f4"))
    np.testing.assert_array_equal(nothing, np.zeros((3, 4)))  # a sum of no terms


def test_names_and_dtypes_do_not_matter_to_the_cache(kernels_only):
    first = tc.build(add(), name="first")
    A, B = te.placeholder((100,), name="X"), te.placeholder((100,), name="Y")
    other = tc.build([A, B, te.compute((100,), lambda x: A[x] + B[x], name="Z")], name="other")
    assert len(list(kernels_only.glob("*/*"))) == 1
    assert str(first.signature).startswith("first(A: ") and str(other.signature).startswith(
        "other(X: "
    )
    tc.build(add(dtype="float64"))
    assert len(list(kernels_only.glob("*/*"))) == 2


@pytest.mark.parametrize("cache", [True, False])
def test_arguments_of_one_name_get_names_of_their_own(cache):
    one, two = te.placeholder((4,), name="A"), te.placeholder((4,), name="A")
    tensors = [one, two, te.compute((4,), lambda i: one[i] - two[i], name="A")]
    for _ in range(2):  # the second may come from the cache
        kernel = tc.build(tensors, cache=cache)
        assert str(kernel.signature) == "main(A: float32[4], A_1: float32[4], out A_2: float32[4])"
        assert [param.name for param in kernel.function.params] == ["A", "A_1", "A_2"]
        with pytest.raises(tc.ArgumentError, match="argument A_1 has shape"):
            kernel(np.ones(4, "f4"), np.ones(5, "f4"))


def test_a_single_tensor_is_a_list_of_one():
    ones = te.compute((3,), lambda i: te.const(1.0), name="ones")
    np.testing.assert_array_equal(tc.build(ones)(), np.ones(3))
    np.testing.assert_array_equal(tc.build(tc.schedule(ones))(), np.ones(3))
    np.testing.assert_array_equal(tc.build(tc.default_schedule(ones))(), np.ones(3))


def test_threads(monkeypatch):
    assert tc.build(matmul(), threads=1).threads == 1
    assert tc.build(matmul(512, 512, 512), threads=2).threads == 2
    kernel = tc.build(matmul(256, 256, 256), threads=2)
    a, b = whole(256, 256), whole(256, 256)
    for named in ({}, {"threads": 1}, {"threads": 2}, {"threads": 64}):
        np.testing.assert_array_equal(kernel(a, b, **named), a @ b)
    monkeypatch.setenv("TENSORC_NUM_THREADS", "3")
    assert tc.build(matmul(512, 512, 512)).threads == 3
    monkeypatch.setenv("TENSORC_NUM_THREADS", "1")
    assert "parallel" not in tc.build(matmul(512, 512, 512)).source("ir")


def test_what_a_kernel_tells():
    kernel = tc.build(matmul())
    assert kernel.source() == kernel.source("ir")
    assert "ramp(" in kernel.source("flat") and "block" not in kernel.source("flat")
    assert "define" in kernel.source("llvm") and "<" in kernel.source("llvm")
    assert ".text" in kernel.source("asm")
    assert {block.name for block in all_blocks(kernel.function)} >= {"C"}
    a, b = whole(24, 16), whole(16, 40)
    np.testing.assert_array_equal(interpret(kernel.function, a, b), a @ b)
    assert kernel.name == "main"
    told = kernel.time(a, b, np.empty((24, 40), "f4"), repeat=2, seconds=0.01)
    assert told.seconds > 0


def test_a_schedule_by_hand(abc):
    a, b, c = abc
    s = tc.schedule(matmul(), name="tiled")
    block = s.block("C")
    i, j, k = s.loops(block)
    i0, i1 = s.split(i, factors=(None, 5))
    j0, j1 = s.split(j, factors=(None, 16))
    s.reorder(i0, j0, k, i1, j1)
    s.unroll(i1)
    s.vectorize(j1)
    s.parallel(i0)
    s.decompose_reduction(block, k)
    kernel = tc.build(s, "cpu", threads=2)
    assert equal(kernel.function, s.function) and kernel.name == "tiled"
    kernel(a, b, c)
    np.testing.assert_array_equal(c, a @ b)
    again = tc.Trace.from_json(s.trace.json()).apply(tc.schedule(matmul()))
    assert equal(again.function, s.function)


def test_the_default_schedule_to_go_on_from(abc):
    a, b, _ = abc
    s = tc.default_schedule(matmul(), threads=1)
    assert len(s.trace) > 3
    np.testing.assert_array_equal(tc.build(s)(a, b), a @ b)


@pytest.mark.parametrize("cpu", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_kernels_for_other_processors(cpu, abc):
    a, b, _ = abc
    try:
        target = tc.Target("cpu", mcpu=cpu)
    except tc.TargetError:
        pytest.skip("not a processor of this architecture")
    if not target.is_host:
        pytest.skip(f"no {cpu} here")
    np.testing.assert_array_equal(tc.build(matmul(), target)(a, b), a @ b)


@pytest.mark.parametrize("tensors", [
    add(100), add(5), add(17, "int8"), row_sum(), row_sum(3, 4), row_sum(100, 3), matmul(),
    matmul(5, 7, 3), softmax(), softmax(3, 5),
])  # fmt: skip
@pytest.mark.parametrize("cpu", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_nobody_gets_scalar_loops(tensors, cpu):
    """Each block that has an axis of 4 or more runs in vectors by the default schedule."""
    function = tc.default_schedule(tensors, tc.Target("cpu", mcpu=cpu), threads=2).function
    for block in all_blocks(function):
        loops = loops_above(function, block.name)
        if any(it.extent.value >= 4 for it in block.iters) and not block.name.endswith("_init"):
            assert any(loop.kind == "vectorized" for loop in loops), f"{block.name} is scalar"
    assert any(type(s) is For and s.kind == "vectorized" for s in walk(function.body))


# What is refused: a sentence of the right class, and nothing written.


def refused(kind, call, message):
    with pytest.raises(kind) as caught:
        call()
    assert message in str(caught.value)
    assert type(caught.value) is kind


def test_arguments_that_do_not_fit(abc):
    a, b, c = abc
    kernel = tc.build(matmul(), name="matmul")
    before = c.copy()
    read_only = c.copy()
    read_only.flags.writeable = False
    memory = np.zeros(24 * 40 + 8, "f4")
    shared = memory[8:].reshape(24, 40)
    cases = [
        ((a.astype("f8"), b, c), "argument A is float64, float32 is needed"),
        ((a, b, np.zeros((24, 40), "i4")), "argument C is int32, float32 is needed"),
        ((a.ravel(), b, c), "argument A has rank 1 (shape (384,)), float32[24, 16] is needed"),
        ((a[:-1], b, c), "argument A has shape (23, 16), (24, 16) is needed"),
        ((a, b.T, c), "argument B has shape (40, 16), (16, 40) is needed"),
        ((a, np.zeros((16, 80), "f4")[:, ::2], c), "argument B has strides (80, 2) in elements"),
        ((a, np.asfortranarray(b), c), "argument B has strides (1, 16) in elements"),
        ((a, b, read_only), "argument C is read-only, an output must be writable"),
        ((memory[: 24 * 16].reshape(24, 16), b, shared), "overlap"),
        ((a, "b", c), "argument B is"),
        ((None, b, c), "argument A is"),
        ((a.tolist(), b, c), "argument A is"),
        ((a,), "1 argument was given, 2 or 3 needed"),
        ((a, b, c, c), "4 arguments were given, 2 or 3 needed"),
    ]
    for arguments, message in cases:
        refused(tc.ArgumentError, lambda args=arguments: kernel(*args), message)
        refused(
            tc.ArgumentError, lambda args=arguments: kernel(*args), "matmul(A: float32[24, 16], "
        )
    refused(tc.ArgumentError, lambda: kernel(a, b, c, threads=0), "threads is 0")
    refused(tc.ArgumentError, lambda: kernel(a, b, c, size=3), "unknown keyword 'size'")
    np.testing.assert_array_equal(c, before)
    assert not memory.any()


def test_extents_that_are_none():
    refused(tc.ExpressionError, lambda: add(-1), "extent -1 is negative; an extent is 0 or more")
    refused(tc.ExpressionError, lambda: add(1 << 63), "does not fit int64")
    refused(
        tc.ExpressionError, lambda: matmul(1 << 31, 1 << 31, 1 << 31), "more than int64 can count"
    )
    refused(tc.ExpressionError, lambda: te.reduce_axis(-2, name="k"), "extent -2 is negative")
    refused(tc.ExpressionError, lambda: add(1.5), "extent 1.5 is not an integer")


def test_definitions_that_are_wrong():
    A, B, C = matmul()
    refused(
        tc.ExpressionError, lambda: tc.build([A, C]), "placeholder 'B' is read but not in the list"
    )
    refused(tc.ExpressionError, lambda: tc.build([A, B]), "no tensor of the list is computed")
    D = te.compute((24,), lambda i: A[i + 1, 0], name="D")
    message = "access A[i + 1, 0] reads index 1..24 of dimension 0, whose extent is 24; guard it"
    refused(tc.ExpressionError, lambda: tc.build([A, D]), message)


@pytest.mark.parametrize("make", [tc.build, tc.schedule, tc.default_schedule])
def test_arguments_that_are_no_tensors(make):
    with pytest.raises(tc.ExpressionError, match="arguments: 7 is not a list of tensors"):
        make(7)
    with pytest.raises(tc.ExpressionError, match="argument 1 is 'B', not a tensor"):
        make([add()[0], "B"])
    with pytest.raises(tc.ExpressionError, match=r"tc.Schedule\(function\) is a schedule of it, to go on from"):
        make(tc.schedule(add()).function)


def test_strides_are_numbers_or_variables():
    text = "function f(n: int64, A: float32[8], out C: float32[8] strides [n + 2])\n  for i in 0 .. 8\n    C[i] = A[0]"
    message = "parameter 'C': a stride is neither a number nor a variable"
    refused(tc.UnsupportedError, lambda: tc.build(tc.Schedule(parse(text))), message)


def test_a_schedule_is_built_under_a_name_of_its_own(fresh_cache):
    s = tc.schedule(add())
    for _ in range(2):  # made, and from the cache
        kernel = tc.build(s, name="plus")
        assert kernel.name == kernel.schedule.function.name == "plus"
        assert kernel.source("ir").startswith("function plus(")
    assert tc.build(s).name == s.function.name == "main"
    with pytest.raises(tc.ExpressionError, match="build: name '1'"):
        tc.build(s, name="1")


def test_names_that_are_none(fresh_cache):
    tc.build(add())
    for cache in (True, False):
        with pytest.raises(tc.ExpressionError, match="build: name 'a b' is not a name; it is letters"):
            tc.build(add(), name="a b", cache=cache)


def test_targets_that_are_none():
    for target, message in (("tpu", "unknown kind; known are cpu, cuda"), (3, "not a Target")):
        refused(tc.TargetError, lambda target=target: tc.build(add(), target), message)
    refused(tc.TargetError, lambda: tc.Target("cpu", mcpu="z80"), "z80")
    refused(tc.UnsupportedError, lambda: tc.build(add(), "cuda"), "target 'cuda'")


def test_steps_that_are_refused():
    s, other = tc.schedule(matmul()), tc.schedule(add())
    before = s.function
    foreign = other.loops("C")[0]
    own = s.loops("C")[0]
    for step, message in (
        (lambda: s.split(foreign, factors=(None, 4)), "belongs to another schedule"),
        (lambda: s.vectorize(foreign), "belongs to another schedule"),
        (lambda: s.split(own, factors=(None, 0)), "factor"),
        (lambda: s.split(own, factors=(0, None)), "factor"),
        (lambda: s.split(own, factors=(None, -2)), "factor"),
        (lambda: s.split(own, factors=(5, 4)), "multiply to 20, the extent is 24"),
        (lambda: s.split("C.x", factors=(None, 4)), "'C.x'"),
        (lambda: s.parallel("C.k"), "reduces"),
        (lambda: s.compute_inline("C"), "reduce"),
    ):
        refused(tc.ScheduleError, step, message)
        with pytest.raises(tc.ScheduleError) as caught:
            step()
        assert "for C.i in 0 .. 24" in "".join(
            getattr(caught.value, "__notes__", ["for C.i in 0 .. 24"])
        )
    assert s.function is before and len(s.trace) == 0


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2", True])
def test_threads_that_are_none(threads):
    refused(
        tc.ArgumentError, lambda: tc.build(add(), threads=threads), "a positive number is needed"
    )


def test_sources_that_are_none():
    refused(tc.ArgumentError, lambda: tc.build(add()).source("ptx"), "a CPU kernel has")


@pytest.mark.parametrize("found", [3, "C.tile", [1]])
def test_schedules_that_are_none(found):
    refused(tc.ArgumentError, lambda: tc.build(add(), schedules=found), "or an object with lookup")
    source = type("Source", (), {"lookup": lambda self, function, target, threads: found})()
    refused(tc.ScheduleError, lambda: tc.build(add(), schedules=source), "a dict of decisions or None")


def broken(*_):
    """What fails in a way of its own."""
    raise KeyError("no such thing")


def test_an_error_of_a_source_of_schedules_is_its_own():
    source = type("Source", (), {"lookup": broken})()
    with pytest.raises(KeyError, match="no such thing"):
        tc.build(add(), schedules=source)


def test_other_errors_are_bugs_and_leave_the_function_in_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(sys.modules["tensorc.build"], "schedule_function", broken)
    with pytest.raises(
        tc.InternalError, match="KeyError: 'no such thing'; this is a bug"
    ) as caught:
        tc.build(matmul(), cache=False)
    (file,) = tmp_path.glob("tensorc-bug-*.txt")
    assert str(file) in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)
    text = file.read_text()
    assert "KeyError" in text and "function main(A: float32[24, 16]" in text


# Files of the cache, processes and threads.


def test_damaged_files_of_the_cache_are_made_anew(kernels_only, abc):
    a, b, _ = abc
    tc.build(matmul())
    (entry,) = kernels_only.glob("*/*")
    whole_file = entry.read_bytes()
    damages = (
        whole_file[: len(whole_file) // 2], b"", b"not a kernel at all", whole_file[:-1] + b"\1",
        whole_file + b"more", bytes(len(whole_file)),
    )  # fmt: skip
    for damage in damages:
        entry.write_bytes(damage)
        np.testing.assert_array_equal(tc.build(matmul())(a, b), a @ b)
        assert entry.read_bytes() != damage
    tc.build(add())
    (foreign,) = [path for path in kernels_only.glob("*/*") if path != entry]
    entry.write_bytes(foreign.read_bytes())  # an entry of another key
    np.testing.assert_array_equal(tc.build(matmul())(a, b), a @ b)


def test_no_cache(kernels_only, monkeypatch):
    tc.build(add(), cache=False)
    monkeypatch.setenv("TENSORC_CACHE", "0")
    tc.build(add())
    assert not list(kernels_only.glob("*/*"))


def python(code, *args, **environment):
    """Start a Python process on a text."""
    text = textwrap.dedent(code)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    return subprocess.Popen(
        [sys.executable, "-c", text, *map(str, args)], env=env, stdout=subprocess.PIPE, text=True
    )


def test_processes_share_the_cache(fresh_cache):
    code = """
        import numpy as np, tensorc as tc
        from tests.test_build import add, matmul, row_sum, whole
        a, b = whole(24, 16), whole(16, 40)
        for n in range(1, 6):
            x = whole(n * 7)
            assert (tc.build(add(n * 7))(x, x) == x + x).all()
            assert (tc.build(matmul())(a, b) == a @ b).all()
        print("right")
    """
    running = [python(code) for _ in range(3)]
    for process in running:
        assert process.communicate(timeout=600)[0] == "right\n" and process.returncode == 0
    assert len(list(fresh_cache.glob("*/*"))) >= 6
    assert not list(fresh_cache.glob("*/.*"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_parallel_kernel_in_a_child():
    code = """
        import os, numpy as np, tensorc as tc
        from tests.test_build import matmul, whole
        kernel = tc.build(matmul(256, 256, 256), threads=2)
        assert "parallel" in kernel.source("ir")
        a, b = whole(256, 256), whole(256, 256)
        expected = a @ b
        assert (kernel(a, b) == expected).all()
        child = os.fork()
        if child == 0:
            right = (kernel(a, b) == expected).all()
            half = tc.build(matmul(256, 256, 128), threads=2)  # built and run after the fork
            right = right and (half(a[:, :128].copy(), b[:128]) == a[:, :128] @ b[:128]).all()
            os._exit(0 if right else 1)
        assert (kernel(a, b) == expected).all()
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    process = python(code, TENSORC_CACHE="0")
    assert process.communicate(timeout=600)[0] == "0\n" and process.returncode == 0


def test_one_kernel_in_many_threads():
    kernel = tc.build(softmax(64, 256), threads=2)  # internal buffers: a workspace for each caller
    inputs = [whole(64, 256) + n for n in range(6)]
    expected = [kernel(x, threads=1) for x in inputs]
    wrong = []

    def work(n):
        for _ in range(20):
            if not np.allclose(kernel(inputs[n]), expected[n], rtol=1e-5):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_builds_in_many_threads(abc):
    a, b, _ = abc
    results = []

    def work(n):
        results.append((tc.build(matmul(24, 40, 16), cache=False)(a, b) == a @ b).all())

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4


def test_decisions_and_traces_are_schedules_as_they_are():
    kernel = tc.build(add(), schedules={}, threads=1)
    decisions = kernel.decisions
    name = next(iter(decisions)).partition(".")[0]
    again = tc.build(add(), schedules={**decisions, f"{name}.lanes": 2 * decisions[f"{name}.lanes"]}, threads=1)
    assert again.decisions[f"{name}.lanes"] == 2 * decisions[f"{name}.lanes"]
    assert tc.build(add(), schedules=kernel.schedule.trace).source("ir") == kernel.source("ir")
