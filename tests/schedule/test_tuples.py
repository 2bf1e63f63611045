"""Schedule steps on blocks that update several buffers: they keep the answer, or say why not."""

import pytest

from tensorc import te
from tensorc.errors import ScheduleError
from tensorc.ir.printer import show
from tensorc.schedule import Schedule
from tensorc.schedule.trace import Trace
from tests.schedule.same import assert_same

M, K = 6, 20


def best(parts: str = "index") -> Schedule:
    A = te.placeholder((M, K), "float32", name="A")
    k = te.reduce_axis(K, name="k")
    if parts == "index":
        C = te.compute((M,), lambda i: te.argmax(A[i, k], axis=k), name="C")
        return Schedule(te.lower([A, C]))
    if parts == "after":
        C = te.compute((M,), lambda i: te.argmax(A[i, k], axis=k), name="C")
        D = te.compute((M,), lambda i: C[i] * 2, name="D")
        return Schedule(te.lower([A, D]))
    if parts == "before":
        B = te.compute((M, K), lambda i, k: A[i, k] * 2.0, name="B")
        C, V = te.compute((M,), lambda i: te.argmax(B[i, k], axis=k, value=True), name="C")
        return Schedule(te.lower([A, C, V]))
    C, V = te.compute((M,), lambda i: te.argmax(A[i, k], axis=k, value=True), name="C")
    return Schedule(te.lower([A, C, V]))


def check(s: Schedule) -> None:
    assert_same(s.origin, s.function)


def test_split_and_reorder():
    s = best()
    i, k = s.loops("C")
    s.reorder(k, i)
    s.split(k, factors=(None, 8))
    check(s)
    s = best("pair")
    i, k = s.loops("C")
    _, i1 = s.split(i, factors=(None, 4))
    s.reorder(k, i1)
    s.decompose_reduction("C", k)
    check(s)


def test_the_init_block_writes_every_buffer_and_names_no_identity():
    s = best("pair")
    init = s.decompose_reduction("C", s.loops("C")[1])
    text = s.show()
    assert "block C_init\n" in text and "block C {identity.0" in text
    assert len(s.loops(init)) == 1
    check(s)


@pytest.mark.parametrize("axis", [0, 1])
def test_vectorize(axis):
    s = best("pair")
    loops = list(s.loops("C"))
    _, lane = s.split(loops[axis], factors=(None, 8))
    if axis == 0:
        s.reorder(loops[1], lane)
    s.vectorize(lane)
    check(s)


def test_parallel_and_unroll():
    s = best("pair")
    i, k = s.loops("C")
    s.parallel(i)
    _, k1 = s.split(k, factors=(None, 4))
    s.unroll(k1)
    check(s)


def test_reduce_loops_are_not_for_tasks():
    s = best()
    with pytest.raises(ScheduleError) as caught:
        s.parallel(s.loops("C")[1])
    assert str(caught.value) == (
        "parallel(loop 'C.k'): iterator 'k' of block 'C', which reduces, is bound to it; its "
        "iterations depend on one another"
    )


def test_a_producer_is_inlined_and_placed():
    s = best("before")
    s.compute_inline("B")
    check(s)
    s = best("before")
    s.compute_at("B", s.loops("C")[0])
    check(s)


def test_a_tuple_is_placed_in_the_consumer_of_one_of_its_buffers():
    s = best("after")
    i0, _ = s.split(s.loops("D")[0], factors=(None, 4))
    s.compute_at("C", i0)
    text = str(s.show())
    assert (
        """\
  for D.i.0 in 0 .. 2 {tail = "cut"}
    for C.i in 0 .. 4 {tail = "mask"}
      for C.k in 0 .. 20
        block C {"""
        in text
    )
    assert "spatial i: 6 = D.i.0 * 4 + C.i\n" in text
    check(s)


def both(shift: int = 0) -> Schedule:
    """A tuple of which one consumer reads both buffers, the second at another place."""
    A = te.placeholder((M, K), "float32", name="A")
    k = te.reduce_axis(K, name="k")
    C, V = te.compute((M,), lambda i: te.argmax(A[i, k], axis=k, value=True), name="C")
    D = te.compute((M - shift,), lambda i: C[i] + te.cast(V[i + shift] * 8, "int64"), name="D")
    return Schedule(te.lower([A, D]))


def test_a_tuple_is_placed_where_all_that_is_needed_of_its_buffers_is_computed():
    s = both(2)
    s.compute_at("C", s.loops("D")[0])
    text = str(s.show())
    assert "for D.i in 0 .. 4\n    for C.i in 0 .. 3\n      for C.k in 0 .. 20\n" in text
    assert "spatial i: 6 = D.i + C.i\n" in text
    check(s)


def test_a_tuple_is_not_placed_where_a_reader_of_one_buffer_is_elsewhere():
    A = te.placeholder((M, K), "float32", name="A")
    k = te.reduce_axis(K, name="k")
    C, V = te.compute((M,), lambda i: te.argmax(A[i, k], axis=k, value=True), name="C")
    D = te.compute((M,), lambda i: C[i] * 2, name="D")
    E = te.compute((M,), lambda i: V[i] * 2, name="E")
    s = Schedule(te.lower([A, D, E]))
    with pytest.raises(ScheduleError) as caught:
        s.compute_at("C", s.loops("D")[0])
    assert str(caught.value) == (
        "compute_at(block 'C', loop 'D.i'): 'E' reads 'C.v1' outside of that loop; all consumers "
        "must be below it"
    )


def test_copies_of_what_a_tuple_reads():
    s = best("pair")
    s.cache_read("C", "A")
    check(s)


def test_a_tuple_is_not_inlined():
    s = best("after")
    with pytest.raises(ScheduleError) as caught:
        s.compute_inline("C")
    assert str(caught.value) == (
        "compute_inline(block 'C'): it has reduce iterators; only a block without a reduction can "
        "be inlined"
    )


def test_the_layout_of_one_buffer_changes():
    s = best("after")
    s.transform_layout("C", "C", lambda i: (i // 4, i % 4))
    check(s)


@pytest.mark.parametrize("buffer", [0, 1, "C.v0", "C.v1"])
def test_one_buffer_of_a_tuple_is_written_through_a_copy(buffer):
    s = best("pair")
    copy = s.cache_write("C", "local", buffer)
    name = buffer if isinstance(buffer, str) else f"C.v{buffer}"
    other = "C.v1" if name == "C.v0" else "C.v0"
    assert copy.name == f"{name}_local"
    text = str(s.show())
    assert f"{name}_local[i] = {name}.next\n" in text and f"{other}[i] = {other}.next\n" in text
    assert text.endswith(
        f"  for {name}_local.i in 0 .. 6\n"
        f"    block {name}_local\n"
        f"      spatial i: 6 = {name}_local.i\n"
        f"      {name}[i] = {name}_local[i]"
    )
    check(s)
    again = Trace.from_json(s.trace.json()).apply(s.origin)
    assert show(again) == text
    local = {"s": Schedule(s.origin)}
    exec(s.trace.python(), local)
    assert str(local["s"].show()) == text


def test_both_buffers_of_a_tuple_are_written_through_copies():
    s = best("pair")
    s.cache_write("C", "local", "C.v0")
    s.cache_write("C", "local", "C.v1")
    check(s)


@pytest.mark.parametrize("buffer", ["A", 2, -1])
def test_a_copy_of_what_a_tuple_does_not_write(buffer):
    s = best("pair")
    with pytest.raises(ScheduleError) as caught:
        s.cache_write("C", "local", buffer)
    assert str(caught.value) == (
        f"cache_write(block 'C', buffer {buffer!r}): the block does not write that; it writes "
        "'C.v0', 'C.v1'"
    )


def test_traces_replay():
    s = best("pair")
    i, k = s.loops("C")
    _, lane = s.split(k, factors=(None, 8))
    s.vectorize(lane)
    s.decompose_reduction("C", s.loops("C")[1])
    again = s.trace.apply(best("pair"))
    assert again.show() == s.show()
