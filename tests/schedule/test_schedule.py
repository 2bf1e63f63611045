"""The facade: handles, refusals that leave no trace, and the same answers after random steps."""

from __future__ import annotations

import random

import pytest

from tensorc import te
from tensorc.errors import ScheduleError
from tensorc.ir.expr import Sub
from tensorc.ir.function import Function
from tensorc.ir.printer import show
from tensorc.ir.stmt import For, Stmt
from tensorc.ir.walk import map_substmts, substitute_stmt
from tensorc.schedule import Schedule, Trace
from tests.schedule.same import assert_same


def matmul(m=6, n=5, k=7) -> Function:
    A = te.placeholder((m, k), "float32", name="A")
    B = te.placeholder((k, n), "float32", name="B")
    r = te.reduce_axis(k, name="k")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    return te.lower([A, B, C])


def elementwise(m=5, n=7) -> Function:
    A = te.placeholder((m, n), "float32", name="A")
    B = te.compute((m, n), lambda i, j: A[i, j] * 2, name="B")
    C = te.compute((m, n), lambda i, j: B[i, j] + A[i, j], name="C")
    return te.lower([A, C])


def convolution(size=6, channels=2, filters=3) -> Function:
    X = te.placeholder((channels, size, size), "float32", name="X")
    W = te.placeholder((filters, channels, 3, 3), "float32", name="W")
    c, y, x = (te.reduce_axis(e, name=n) for e, n in ((channels, "c"), (3, "y"), (3, "x")))
    shape = (filters, size - 2, size - 2)
    C = te.compute(
        shape,
        lambda f, i, j: te.sum(X[c, i + y, j + x] * W[f, c, y, x], axis=(c, y, x)),
        name="C",
    )
    return te.lower([X, W, C])


def test_handles():
    s = Schedule(matmul())
    block = s.block("C")
    assert [each.name for each in s.blocks()] == ["C"]
    assert [each.name for each in s.loops(block)] == ["C.i", "C.j", "C.k"]
    assert repr(block) == "BlockRef(name='C')" and str(s.loops("C")[0]) == "C.i"
    assert s.extent("C.k") == 7
    assert repr(s) == "Schedule('main', 0 steps)"
    k0, k1 = s.split(s.loops(block)[2], factors=(None, 2))
    assert (k0.name, k1.name) == ("C.k.0", "C.k.1")
    assert s.loops("C")[2:] == [k0, k1]
    assert len(s.trace) == 1
    assert s.show() == show(s.function)
    assert_same(s.origin, s.function)


def test_a_whole_schedule():
    s = Schedule(matmul())
    i, j, k = s.loops("C")
    i0, i1 = s.split(i, (None, 3))
    j0, j1 = s.split(j, (None, 4))
    s.reorder(i0, j0, k, i1, j1)
    s.unroll(i1)
    s.vectorize(j1)
    s.parallel(s.fuse(i0, j0))
    init = s.decompose_reduction("C", k)
    assert [loop.name for loop in s.loops(init)] == ["C.i.0_j.0", "C_init.i.1", "C_init.j.1"]
    assert_same(s.origin, s.function)


def test_the_steps_of_other_files_are_forwarded():
    s = Schedule(elementwise())
    s.compute_inline("B")
    assert [each.name for each in s.blocks()] == ["C"]
    assert_same(s.origin, s.function)
    s = Schedule(elementwise())
    i0, _ = s.split("C.i", (None, 2))
    s.compute_at("B", i0)
    assert_same(s.origin, s.function)
    s = Schedule(matmul())
    copy = s.cache_read("C", "B")
    s.transform_layout(copy, copy.name, lambda k, n: (n, k))
    out = s.cache_write("C")
    assert {each.name for each in s.blocks()} == {"C", copy.name, out.name}
    assert_same(s.origin, s.function)


def test_a_copy_goes_its_own_way_and_takes_the_same_handles():
    s = Schedule(matmul())
    i, j, _ = s.loops("C")
    other = s.copy()
    other.split(i, (None, 2))
    assert len(s.trace) == 0 and s.function is s.origin
    s.vectorize(j)
    other.vectorize(j)
    assert "vectorized" in other.show()


def test_a_loop_of_another_schedule_is_refused():
    s, other = Schedule(matmul()), Schedule(matmul())
    with pytest.raises(ScheduleError) as caught:
        s.split(other.loops("C")[0], (None, 2))
    assert str(caught.value) == "loop 'C.i' belongs to another schedule"
    with pytest.raises(ScheduleError, match="block 'C' belongs to another schedule"):
        s.loops(other.block("C"))
    with pytest.raises(ScheduleError, match="a loop is needed, not BlockRef"):
        s.vectorize(s.block("C"))
    with pytest.raises(ScheduleError, match="a block is needed, not 7"):
        s.loops(7)


def test_a_refused_step_leaves_the_schedule():
    s = Schedule(matmul())
    s.split("C.k", (None, 2))
    function, trace = s.function, s.trace
    for step in (
        lambda: s.split("C.i", (0, None)),
        lambda: s.parallel("C.k.0"),
        lambda: s.fuse("C.j", "C.i"),
        lambda: s.decompose_reduction("D", "C.k.0"),
        lambda: s.transform_layout("C", "A", lambda i, j: (j, i)),
        lambda: s.cache_read("C", "Q"),
    ):
        with pytest.raises(ScheduleError):
            step()
        assert s.function is function and s.trace is trace


def test_a_loop_that_is_gone_is_explained():
    s = Schedule(matmul())
    k = s.loops("C")[2]
    s.split(k, (None, 2))
    with pytest.raises(ScheduleError) as caught:
        s.vectorize(k)
    assert str(caught.value) == (
        "vectorize: loop 'C.k' is gone, split(loop='C.k', factors=(None, 2), tail='auto') "
        "replaced it by 'C.k.0', 'C.k.1'"
    )
    assert "    for C.k.0 in 0 .. 4" in caught.value.nest and caught.value.nest.count("^" * 5) == 2


def test_a_loop_that_is_gone_is_explained_where_a_block_might_stand():
    s = Schedule(matmul())
    s.split("C.j", (None, 4))
    for step in (
        lambda: s.stage("C.j", "A"),
        lambda: s.tensorize("C.j", "dot.4.float32"),
        lambda: s.prefetch("C.j", "B"),
        lambda: s.add_unit_loop("C.j"),
        lambda: s.annotate("C.j", "note", 1),
    ):
        with pytest.raises(ScheduleError, match=r"loop 'C.j' is gone, split\(loop='C.j'"):
            step()
    with pytest.raises(ScheduleError, match="no loop is named 'C.z'"):
        s.stage("C.z", "A")


def test_names_are_suggested():
    with pytest.raises(ScheduleError, match="no block is named 'c'; there are C"):
        Schedule(matmul()).block("c")


def test_a_schedule_is_of_a_function():
    with pytest.raises(ScheduleError, match="takes a function of the IR, not int"):
        Schedule(3)


# Random steps.


def random_step(s: Schedule, rng: random.Random) -> None:
    block = rng.choice(s.blocks())
    loops = s.loops(block)
    loop = rng.choice(loops)
    match rng.randrange(8):
        case 0 | 1:
            factors = [None, *[rng.choice((1, 2, 3, 4)) for _ in range(rng.randint(1, 2))]]
            rng.shuffle(factors)
            s.split(loop, factors, rng.choice(("auto", "guard", "mask", "cut", "shift")))
        case 2:
            first = rng.randrange(len(loops))
            s.fuse(*loops[first : first + 2])
        case 3:
            s.reorder(*rng.sample(loops, rng.randint(1, len(loops))))
        case 4:
            s.parallel(loop)
        case 5:
            s.vectorize(loop)
        case 6:
            s.unroll(loop)
        case 7:
            s.decompose_reduction(block, loop)


def random_schedule(function: Function, seed: int, steps: int = 14) -> Schedule:
    rng = random.Random(seed)
    s = Schedule(function)
    for _ in range(steps):
        before = s.function
        try:
            random_step(s, rng)
        except ScheduleError:
            assert s.function is before
    return s


def backwards(stmt: Stmt) -> Stmt:
    """The nest with its parallel loops run from the last iteration to the first."""
    stmt = map_substmts(stmt, backwards)
    if type(stmt) is not For or stmt.kind != "parallel":
        return stmt
    value = Sub(stmt.extent - 1, stmt.var)
    body = substitute_stmt(stmt.body, {stmt.var: value})
    return For(stmt.var, stmt.start, stmt.extent, stmt.kind, body, stmt.annotations)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("make", [matmul, elementwise, convolution])
def test_random_steps_keep_the_answer(make, seed):
    function = make()
    s = random_schedule(function, seed)
    assert_same(function, s.function)
    assert_same(function, s.function.with_(body=backwards(s.function.body)))
    replayed = Trace.from_json(s.trace.json()).apply(Schedule(function))
    assert replayed.show() == s.show()
    namespace = {"s": Schedule(function)}
    exec(s.trace.python(), namespace)
    assert namespace["s"].show() == s.show()


# undo


def test_undo_and_at():
    s = Schedule(matmul())
    shown = [s.show()]
    s.split("C.i", (None, 4))
    shown.append(s.show())
    s.unroll("C.i.1")
    other = s.copy()
    s.undo()
    assert s.show() == shown[1] and len(s.trace) == 1 and len(other.trace) == 2
    s.vectorize("C.i.1")
    assert [s.at(n).show() for n in (0, 1)] == shown and s.at(-1).show() == shown[1] and s.at(2).show() == s.show()
    other.undo(2)
    assert other.show() == shown[0] and len(other.trace) == 0
    i = s.at(0).loops("C")[0]
    other.parallel(i)  # handles of one are good for the other
    assert len(s.trace) == 2


@pytest.mark.parametrize(
    "wrong, message",
    [
        (lambda s: s.undo(2), "undo(2): the schedule has 1 step"),
        (lambda s: s.undo(-1), "undo(-1): the schedule has 1 step"),
        (lambda s: s.at(2), "at(2): the schedule has 1 step"),
        (lambda s: s.at(-2), "at(-2): the schedule has 1 step"),
        (lambda s: s.at("C"), "at('C'): the schedule has 1 step"),
        (lambda s: s.undo(True), "undo(True): the schedule has 1 step"),
    ],
)
def test_there_are_not_so_many_steps(wrong, message):
    s = Schedule(matmul())
    s.unroll("C.i")
    shown = s.show()
    with pytest.raises(ScheduleError) as caught:
        wrong(s)
    assert str(caught.value) == message and s.show() == shown


def test_an_applied_trace_can_be_undone():
    s = Schedule(matmul())
    s.split("C.i", (None, 4))
    s.unroll("C.i.1")
    again = s.trace.apply(Schedule(matmul()))
    again.undo()
    assert again.show() == s.at(1).show()
