"""Loops bound to thread axes: the text before and after, the same answers, the refusals."""

from __future__ import annotations

import numpy as np
import pytest

import tensorc as tc
from tensorc import te
from tensorc.ir.parser import parse
from tensorc.ir.printer import show
from tensorc.ir.stmt import THREAD_AXES
from tensorc.schedule import Schedule, Trace
from tensorc.schedule.primitives.binding import bind
from tensorc.schedule.primitives.loops import fuse, parallel, reorder, split, unroll, vectorize
from tensorc.schedule.primitives.siblings import merge
from tests.schedule.same import assert_same
from tests.schedule.test_loops import TRIANGLE, TWO, body, copy, lines, matmul, refused


def test_threads_of_blocks():
    function, _ = split(copy(), "C.i", (None, 4))
    function = bind(function, "C.i.0", "blockIdx.x")
    function = bind(function, "C.i.1", "vthread.x")
    function = bind(function, "C.j", "threadIdx.x")
    assert body(function) == lines("""
for C.i.0 in 0 .. 2 thread {thread = "blockIdx.x"}
  for C.i.1 in 0 .. 4 thread {thread = "vthread.x"}
    for C.j in 0 .. 6 thread {thread = "threadIdx.x"}
      block C
        spatial i: 8 = C.i.0 * 4 + C.i.1
        spatial j: 6 = C.j
        C[i, j] = A[i, j] + float32(1.0)
""")
    assert show(parse(show(function))) == show(function)
    assert_same(copy(), function)


@pytest.mark.parametrize("axis", THREAD_AXES)
def test_every_axis(axis):
    function = bind(copy(), "C.i", axis)
    assert f'for C.i in 0 .. 8 thread {{thread = "{axis}"}}' in show(function)
    assert bind(function, "C.i", axis) is function
    assert_same(copy(), function)


def test_notes_of_a_loop_stay():
    function, (outer, _) = split(copy(), "C.i", (None, 3))
    assert '{tail = "cut", thread = "blockIdx.x"}' in show(bind(function, outer, "blockIdx.x"))


def test_a_symbolic_number_of_blocks():
    function, (outer, inner) = split(copy("n"), "C.i", (None, 4))
    function = bind(bind(function, outer, "blockIdx.x"), inner, "threadIdx.x")
    for n in (0, 1, 9):
        assert_same(copy("n"), function, n=n)


def test_one_axis_twice_side_by_side():
    function = bind(bind(parse(TWO.strip()), "i", "threadIdx.x"), "j", "threadIdx.x")
    assert_same(parse(TWO.strip()), function)


SIDE_BY_SIDE = """
function side(A: float32[8, 6], out C: float32[8, 6], out D: float32[8, {m}])
  for i in 0 .. 8
    for j in 0 .. 6
      block C
        spatial i0: 8 = i
        spatial j0: 6 = j
        C[i0, j0] = A[i0, j0]
    for k in 0 .. {m}
      block D
        spatial i1: 8 = i
        spatial k1: {m} = k
        D[i1, k1] = A[i1, k1]
"""


def test_one_extent_in_a_kernel():
    function = bind(parse(SIDE_BY_SIDE.format(m=6).strip()), "j", "threadIdx.x")
    assert_same(function, bind(function, "k", "threadIdx.x"))
    function = bind(parse(SIDE_BY_SIDE.format(m=5).strip()), "j", "threadIdx.x")
    assert refused(bind, function, "k", "threadIdx.x") == (
        "bind(loop 'k', 'threadIdx.x'): loop 'j' of the same kernel has another extent on that axis; "
        "a kernel starts with one number of threads"
    )
    bind(function, "k", "threadIdx.y")
    bind(bind(parse(SIDE_BY_SIDE.format(m=5).strip()), "j", "vthread.x"), "k", "vthread.x")


def test_refusals_of_an_axis():
    assert refused(bind, copy(), "C.i", "threadIdx.w") == (
        "bind(loop 'C.i', 'threadIdx.w'): there is no such thread axis; known are "
        + ", ".join(THREAD_AXES)
    )
    function = bind(copy(), "C.i", "blockIdx.x")
    assert show(bind(function, "C.i", "blockIdx.y")) == show(bind(copy(), "C.i", "blockIdx.y"))
    assert refused(bind, function, "C.j", "blockIdx.x") == (
        "bind(loop 'C.j', 'blockIdx.x'): loop 'C.i' around or in it is bound to that axis, which has one index"
    )
    function = bind(copy(), "C.j", "blockIdx.x")
    assert "loop 'C.j' around or in it is bound to that axis" in refused(bind, function, "C.i", "blockIdx.x")


def test_refusals_of_an_extent():
    assert refused(bind, copy("n"), "C.i", "vthread.x") == (
        "bind(loop 'C.i', 'vthread.x'): the extent is not constant; split it first"
    )
    assert refused(bind, parse(TRIANGLE.strip()), "C.j", "threadIdx.x") == (
        "bind(loop 'C.j', 'threadIdx.x'): the extent depends on loop 'C.i'; "
        "a kernel starts with one number of threads"
    )
    by_data = parse(
        "function f(n: int64[], A: float32[8], out C: float32[8])\n"
        "  for i in 0 .. n[]\n    block C\n      spatial v: 8 = i\n      C[v] = A[v]"
    )
    assert refused(bind, by_data, "i", "threadIdx.x") == (
        "bind(loop 'i', 'threadIdx.x'): the extent is loaded from data; a kernel starts with one number of threads"
    )


def test_refusals_of_iterations():
    assert refused(bind, matmul(), "C.k", "threadIdx.x") == (
        "bind(loop 'C.k', 'threadIdx.x'): iterator 'k' of block 'C', which reduces, is bound to it; "
        "rfactor gives each iteration a result of its own"
    )
    meeting = parse(SIDE_BY_SIDE.format(m=6).strip().replace("A[i1, k1]", "C[7 - i1, k1]"))
    assert refused(bind, meeting, "i", "threadIdx.x") == (
        "bind(loop 'i', 'threadIdx.x'): iterations of the loop may touch the same elements of buffer 'C', "
        "which block 'C' writes"
    )


def test_the_last_kind_of_a_loop_counts():
    function = bind(copy(), "C.j", "threadIdx.x")
    for step in (parallel, vectorize, unroll):
        assert show(step(function, "C.j")) == show(step(copy(), "C.j"))
        assert show(bind(step(copy(), "C.j"), "C.j", "threadIdx.x")) == show(function)
    assert refused(split, function, "C.j", (None, 2)) == (
        "split(loop 'C.j'): the loop is bound to threadIdx.x; only serial loops can be"
    )
    assert refused(fuse, function, ("C.i", "C.j")) == (
        "fuse(loop 'C.j'): the loop is bound to threadIdx.x; only serial loops can be"
    )
    assert refused(vectorize, function, "C.i") == (
        "vectorize(loop 'C.i'): loop 'C.j' around or in it is bound to threadIdx.x"
    )


def test_threads_lie_in_no_vectors():
    function = vectorize(copy(), "C.i")
    assert refused(bind, function, "C.j", "threadIdx.x") == (
        "bind(loop 'C.j', 'threadIdx.x'): it lies in the vectorized loop 'C.i'"
    )
    function = vectorize(bind(copy(), "C.i", "threadIdx.x"), "C.j")
    assert refused(reorder, function, ("C.j", "C.i")) == (
        "reorder(loops 'C.j', 'C.i'): a thread loop would lie in the vectorized 'C.j'"
    )


def test_bound_loops_change_places():
    function = bind(bind(matmul(), "C.i", "blockIdx.x"), "C.j", "threadIdx.x")
    assert_same(matmul(), reorder(function, ("C.i", "C.k", "C.j")))


def test_what_meets_in_threads_is_refused_later_as_well():
    function = bind(parse(TWO.strip()), "i", "threadIdx.x")
    assert refused(merge, function, ("i", "j")) == (
        "merge(loops 'i', 'j'): loop 'i' is bound to threadIdx.x; only serial loops can be merged"
    )


def test_a_trace_holds_it_and_a_cpu_runs_it():
    M, N, K = 33, 20, 17
    A = te.placeholder((M, K), "float32", name="A")
    B = te.placeholder((K, N), "float32", name="B")
    r = te.reduce_axis(K, name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    s = tc.schedule([A, B, C])
    i, j, k = s.loops("C")
    i0, i1, i2 = s.split(i, (None, 2, 4))
    j0, j1 = s.split(j, (None, 8))
    s.reorder(i0, j0, i1, i2, j1, k)
    for loop, axis in ((i0, "blockIdx.y"), (j0, "blockIdx.x"), (i1, "vthread.y"), (i2, "threadIdx.y")):
        s.bind(loop, axis)
    s.vectorize(j1)
    assert 's.bind(i0, "blockIdx.y")' in s.trace.python()
    again = Trace.from_json(s.trace.json()).apply(Schedule(s.origin))
    assert again.show() == s.show()
    kernel = tc.build(s, threads=2)
    a, b = np.random.rand(M, K).astype("f4"), np.random.rand(K, N).astype("f4")
    assert np.allclose(kernel(a, b), a @ b, rtol=1e-5)
    assert "parallel" in kernel.source("flat") and "thread " not in kernel.source("flat")
    assert "thread" in kernel.source("ir")
