"""prefetch and stream: steps that change how caches are used, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

import tensorc as tc
from tensorc import te
from tensorc.ir.parser import parse
from tensorc.ir.printer import show
from tensorc.schedule.primitives.caching import cache_read
from tensorc.schedule.primitives.loops import split, vectorize
from tensorc.schedule.primitives.memory import prefetch, stream
from tests.schedule.same import assert_same
from tests.schedule.test_loops import matmul, refused


def doubled(size=100):
    X = te.placeholder((size,), name="X")
    return [X, te.compute((size,), lambda i: X[i] * 2, name="Y")]


def gather():
    index = te.placeholder((40,), "int64", name="I")
    X = te.placeholder((90,), name="X")
    return [index, X, te.compute((40,), lambda i: X[index[i]], name="Y")]


def test_prefetch():
    function = prefetch(matmul(), "C.i", "A", 2)
    assert "  for C.i in 0 .. 8 {prefetch.A = 2}\n" in show(function)
    assert show(parse(show(function))) == show(function)
    assert_same(matmul(), function)
    again = prefetch(prefetch(function, "C.i", "A", 3), "C.i", "C")
    assert "{prefetch.A = 3, prefetch.C = 1}" in show(again)


def test_prefetch_at_a_block():
    function = vectorize(split(matmul(), "C.k", (None, 4))[0], "C.k.1")
    assert "for C.k.0 in 0 .. 3 {prefetch.B = 1}" in show(prefetch(function, "C", "B"))
    s = tc.schedule(doubled(16))
    s.vectorize("Y.i")
    message = "there is no loop around the block that runs one iteration after the other"
    assert refused(prefetch, s.function, "Y", "X") == f"prefetch(block 'Y', 'X'): {message}"


def test_stream():
    X, Y = doubled()
    function = tc.schedule([X, Y]).function
    new = stream(function, "Y")
    assert "    block Y {stream = true}\n" in show(new)
    assert show(parse(show(new))) == show(new)
    assert_same(function, new)


@pytest.mark.parametrize(
    "step, message",
    [
        (lambda f: prefetch(f, "C.i", "B"), "prefetch(loop 'C.i', 'B'): each iteration reads 'B' at the same places"),
        (
            lambda f: prefetch(f, "C.i", "D"),
            "prefetch(loop 'C.i', 'D'): no block below the loop reads 'D'; they read C, A, B",
        ),
        (
            lambda f: prefetch(f, "C.i", "A", 0),
            "prefetch(loop 'C.i', 'A'): 0 is no number of iterations, 1 or more",
        ),
        (
            lambda f: prefetch(vectorize(f, "C.j"), "C.j", "B"),
            "prefetch(loop 'C.j', 'B'): it is a vectorized loop, whose iterations have no order to run ahead in",
        ),
        (
            lambda f: stream(f, "C"),
            "stream(block 'C'): it reads 'C', which it writes, and would come back from memory each time; "
            "only blocks that do not read what they write stream",
        ),
    ],
)
def test_refusals(step, message):
    assert refused(step, matmul()) == message


def test_what_is_made_in_the_loop_is_not_prefetched():
    s = tc.schedule(doubled())
    copy = s.cache_read("Y", "X")
    s.compute_at(copy, "Y.i")
    with pytest.raises(tc.ScheduleError, match="'X_global' is made below the loop, and does not exist before"):
        s.prefetch("Y.i", "X_global")


def test_places_that_the_function_computes_are_not_known_ahead():
    index = te.placeholder((40,), "int64", name="I")
    T = te.compute((40,), lambda i: (index[i] * 7) % 90, name="T")
    X = te.placeholder((90,), name="X")
    s = tc.schedule([index, X, te.compute((40,), lambda i: X[T[i]], name="Y")])
    message = r"prefetch\(loop 'Y.i', 'X'\): where it is read depends on 'T', which 'T' writes"
    with pytest.raises(tc.ScheduleError, match=message):
        s.prefetch("Y.i", "X")


def test_traces_hold_the_steps_and_fit_other_shapes():
    s = tc.schedule(doubled())
    s.prefetch("Y.i", "X", offset=4)
    s.stream("Y")
    assert s.trace.python() == 's.prefetch("Y.i", "X", offset=4)\ns.stream("Y")'
    again = tc.Trace.from_json(s.trace.json())
    assert again == s.trace
    assert "{prefetch.X = 4}" in again.apply(tc.schedule(doubled(7))).show()
    fresh = tc.schedule(doubled(9))
    exec(s.trace.python(), {"s": fresh})
    assert fresh.trace == s.trace
    with pytest.raises(tc.ScheduleError, match="step 1 of the trace, prefetch.*no block below the loop reads 'X'"):
        again.apply(tc.schedule([te.placeholder((4,), name="Z"), te.compute((4,), lambda i: 1.0, name="Y")]))


def test_the_notes_are_not_for_writing():
    s = tc.schedule(doubled())
    for place, key in (("Y.i", "prefetch.X"), ("Y", "stream")):
        with pytest.raises(tc.ScheduleError, match="steps write that note themselves"):
            s.annotate(place, key, 3)


def test_steps_may_follow():
    """The window is worked out when code is made, whatever the nest has become."""
    function = prefetch(matmul(), "C.i", "A", 2)
    function = split(function, "C.i", (None, 4))[0]
    assert "for C.i.0 in 0 .. 2 {prefetch.A = 2}" in show(function)
    assert_same(matmul(), cache_read(function, "C", "A")[0])


@pytest.mark.parametrize("start", range(5))
@pytest.mark.parametrize("dtype, size", [("float32", 203), ("float64", 75), ("int8", 300), ("bool", 200)])
def test_streamed_stores_at_any_alignment(start, dtype, size):
    X = te.placeholder((size,), dtype, name="X")
    Y = te.compute((size,), lambda i: X[i] if dtype == "bool" else X[i] + X[i], name="Y")
    s = tc.schedule([X, Y])
    _, lane = s.split("Y.i", (None, 32))
    s.vectorize(lane)
    s.stream("Y")
    kernel = tc.build(s)
    x = np.random.default_rng(0).integers(0, 2, size).astype(dtype)
    memory = np.zeros(size + 64, dtype)
    y = memory[start : start + size]
    kernel(x, y)
    np.testing.assert_array_equal(y, x if dtype == "bool" else x + x)
    assert not memory[:start].any() and not memory[start + size :].any()


def test_streams_are_settled_before_tasks_and_calls_end():
    s = tc.schedule(doubled(1 << 12))
    task, _, lane = s.split("Y.i", (4, None, 16))
    s.vectorize(lane)
    s.parallel(task)
    s.stream("Y")
    text = tc.build(s, tc.Target("cpu", mcpu="x86-64-v3"), threads=2).source("asm")
    assert "ntps" in text and text.count("sfence") == 1
    assert text.index("ntps") < text.index("sfence")
    arm = tc.build(s, tc.Target("cpu", mcpu="neoverse-n1"), threads=2).source("asm")
    assert "stnp" in arm
    other = tc.build(s, tc.Target("cpu", mcpu="rv64gcv"), threads=2).source("llvm")
    assert "nontemporal" not in other and "store <16 x float>" in other


def test_a_gather_prefetches_where_its_data_says():
    s = tc.schedule(gather())
    s.prefetch("Y.i", "X", 16)
    kernel = tc.build(s)
    flat = kernel.source("flat")
    assert "    if Y.i + 16 < 40\n      prefetch X[I[Y.i + 16]]\n" in flat
    x, at = np.arange(90, dtype="f4"), np.random.default_rng(0).integers(0, 90, 40)
    np.testing.assert_array_equal(kernel(at, x), x[at])


def test_what_an_intrinsic_reads_is_prefetched():
    X = te.placeholder((64,), name="X")
    s = tc.schedule([X, te.compute((64,), lambda i: X[i], name="Y")])
    outer, inner = s.split("Y.i", (None, 8))
    s.tensorize(inner, "copy.8.float32")
    s.prefetch(outer, "X", 2)
    kernel = tc.build(s)
    assert "prefetch X[Y.i.0 * 8 + 16]" in kernel.source("flat")
    x = np.arange(64, dtype="f4")
    np.testing.assert_array_equal(kernel(x), x)
