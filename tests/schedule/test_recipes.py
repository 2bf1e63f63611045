"""The default schedules: the right recipe for each access pattern, and the oracle's answer for awkward extents."""

from __future__ import annotations

import numpy as np
import pytest

import tensorc as tc
from tensorc import te
from tensorc.errors import ScheduleError
from tensorc.ir.interpreter import interpret
from tensorc.ir.stmt import For
from tensorc.ir.walk import walk, walk_expr
from tensorc.schedule.knobs import Defaults, Replay
from tensorc.schedule.locate import all_blocks
from tensorc.schedule.recipes import contraction, elementwise, reduction, stencil
from tensorc.schedule.recipes.access import Group, pattern
from tensorc.schedule.recipes.choose import RECIPES, schedule_function
from tensorc.target import Target

ASKED = "C.pack_rows, C.lanes, C.tile, C.depth, C.height, C.pack, C.around, C.parallel, C.unroll"
TARGETS = [Target("cpu", mcpu=name) for name in ("x86-64-v2", "x86-64-v3", "x86-64-v4")]


def matmul(m, n, k, a_axes="ik", b_axes="kj"):
    extents = {"i": m, "j": n, "k": k}
    a = te.placeholder([extents[x] for x in a_axes], name="A")
    b = te.placeholder([extents[x] for x in b_axes], name="B")
    r = te.reduce_axis(k, name="k")

    def body(i, j):
        at = {"i": i, "j": j, "k": r}
        return te.sum(a[tuple(at[x] for x in a_axes)] * b[tuple(at[x] for x in b_axes)], axis=r)

    return [a, b, te.compute((m, n), body, name="C")]


def conv(h, ci, co, kernel, stride=1):
    data = te.placeholder((h, h, ci), name="data")
    weight = te.placeholder((kernel, kernel, ci, co), name="weight")
    y, x = te.reduce_axis(kernel, name="ky"), te.reduce_axis(kernel, name="kx")
    c = te.reduce_axis(ci, name="c")
    out = (h - kernel) // stride + 1

    def body(i, j, o):
        return te.sum(data[i * stride + y, j * stride + x, c] * weight[y, x, c, o], axis=(y, x, c))

    return [data, weight, te.compute((out, out, co), body, name="conv")]


def depthwise(h, c):
    data = te.placeholder((h + 2, h + 2, c), name="data")
    weight = te.placeholder((3, 3, c), name="weight")
    y, x = te.reduce_axis(3, name="ky"), te.reduce_axis(3, name="kx")

    def body(i, j, k):
        return te.sum(data[i + y, j + x, k] * weight[y, x, k], axis=(y, x))

    return [data, weight, te.compute((h, h, c), body, name="out")]


def row_sum(m, n):
    a = te.placeholder((m, n), name="A")
    r = te.reduce_axis(n, name="r")
    return [a, te.compute((m,), lambda i: te.sum(a[i, r], axis=r), name="S")]


def column_max(m, n):
    a = te.placeholder((m, n), "int32", name="A")
    r = te.reduce_axis(m, name="r")
    return [a, te.compute((n,), lambda j: te.max(a[r, j], axis=r), name="S")]


def matvec(m, n):
    a, x = te.placeholder((m, n), name="A"), te.placeholder((n,), name="x")
    r = te.reduce_axis(n, name="r")
    return [a, x, te.compute((m,), lambda i: te.sum(a[i, r] * x[r], axis=r), name="y")]


def bias_add(m, n):
    a, b = te.placeholder((m, n), name="A"), te.placeholder((n,), name="b")
    return [a, b, te.compute((m, n), lambda i, j: a[i, j] * 2.0 + b[j], name="C")]


def transpose(m, n):
    a = te.placeholder((m, n), name="A")
    return [a, te.compute((n, m), lambda i, j: a[j, i], name="T")]


def softmax(m, n):
    x = te.placeholder((m, n), name="x")
    k, r = te.reduce_axis(n, name="k"), te.reduce_axis(n, name="r")
    top = te.compute((m,), lambda i: te.max(x[i, k], axis=k), name="top")
    e = te.compute((m, n), lambda i, j: te.exp(x[i, j] - top[i]), name="e")
    total = te.compute((m,), lambda i: te.sum(e[i, r], axis=r), name="total")
    return [x, te.compute((m, n), lambda i, j: e[i, j] / total[i], name="S")]


def blur(h, w):
    image = te.placeholder((h, w, 3), "uint8", name="image")

    def body(y, x, c):
        left, right = te.maximum(x - 1, 0), te.minimum(x + 1, w - 1)
        taps = [te.cast(image[y, at, c], "float32") for at in (left, x, right)]
        return te.cast((taps[0] + taps[1] + taps[2]) / 3.0, "uint8")

    return [image, te.compute((h, w, 3), body, name="blur")]


def no_column(m, n):
    """Two operands with axes of their own, neither of which is the last one."""
    a = te.placeholder((m,), name="A")
    r = te.reduce_axis(n, name="r")
    return [a, te.compute((m, m, n), lambda i, j, k: te.sum(a[i] * a[j], axis=r), name="S")]


def half_matmul(m, n, k):
    a, b = te.placeholder((m, k), "float16", name="A"), te.placeholder((k, n), "float16", name="B")
    r = te.reduce_axis(k, name="k")
    return [a, b, te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")]


def main_pattern(tensors):
    return pattern(all_blocks(te.lower(tensors))[-1])


@pytest.mark.parametrize(
    ("tensors", "recipe"),
    [
        (matmul(8, 8, 8), contraction),
        (conv(10, 4, 8, 3), contraction),
        (matmul(1, 64, 64), reduction),  # a vector times a matrix has nothing to reuse
        (matvec(8, 8), reduction),
        (depthwise(8, 16), stencil),
        (row_sum(4, 64), reduction),
        (no_column(4, 8), reduction),
        (bias_add(4, 4), elementwise),
    ],
)
def test_the_recipe_follows_the_access_pattern(tensors, recipe):
    found = main_pattern(tensors)
    assert next(each for each in RECIPES if each.matches(found)) is recipe


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.mcpu)
@pytest.mark.parametrize("extents", [(64, 64, 64), (512, 512, 512), (7, 100, 3), (1000, 17, 1000), (5, 1, 9)])
def test_the_register_tile_fits_the_registers(target, extents):
    m, n, k = extents
    group = Group(main_pattern(matmul(m, max(n, 2), k)))
    plan = contraction.decide(group, Defaults(), target, 1)
    assert plan.rows * plan.vectors + plan.vectors < target.vector_registers
    assert plan.lanes == target.vector_bytes // 4
    assert plan.rows <= m


def test_large_products_are_packed_in_blocks_that_fit_the_cache():
    target = Target("cpu", mcpu="x86-64-v4")
    plan = contraction.decide(Group(main_pattern(matmul(4096, 4096, 4096))), Defaults(), target, 2)
    assert plan.packed.buffer == "B"
    assert plan.depth * plan.vectors * plan.lanes * 4 <= target.l2 / 2
    assert plan.parallel == "columns"


def test_halves_are_converted_once():
    target = Target("cpu", mcpu="x86-64-v4")
    function = te.lower(half_matmul(300, 400, 70))
    s = schedule_function(function, target, 1)
    panels = next(line for line in s.show().splitlines() if "C_sum[i, j] = C_sum[i, j]" in line)
    assert panels.strip() == "C_sum[i, j] = C_sum[i, j] + A_global[i, k] * B_global[j // 48, k, j % 48]"
    narrow = schedule_function(function, target, 1, Replay({"C_sum.pack": False}))
    assert "A_global[i, k] * cast(float32, B[k, j])" in narrow.show()


def test_long_rows_are_walked_along():
    target = Target("cpu", mcpu="x86-64-v4")
    A = te.placeholder((100, 10000), name="A")
    k = te.reduce_axis(100, name="k")
    C = te.compute((10000,), lambda j: te.sum(A[k, j], axis=k), name="C")
    s = schedule_function(te.lower([A, C]), target, 1)
    assert [str(loop) for loop in s.loops("C")] == ["C.j.0", "C.k.0", "C.j.1", "C.k.1", "C.j.2"]
    assert [s.extent(loop) for loop in s.loops("C")] == [3, 13, 256, 8, 16]


def test_decisions_can_be_replayed():
    function = te.lower(matmul(64, 64, 64))
    knobs = Defaults()
    first = schedule_function(function, TARGETS[2], 1, knobs)
    again = schedule_function(function, TARGETS[2], 1, Replay(knobs.decisions))
    assert first.show() == again.show()
    other = schedule_function(function, TARGETS[2], 1, Replay({**knobs.decisions, "C.tile": (2, 1)}))
    assert "C.i.1 in 0 .. 2 unrolled" in other.show()


@pytest.mark.parametrize(
    ("decisions", "message"),
    [
        ({"C.tile": (10000, 50)}, "knob 'C.tile': 10000 rows of 50 vectors are more than the 256 vectors of a tile"),
        ({"C.tile": (4,)}, "knob 'C.tile': (4,) are not 2 positive factors"),
        (
            {"C.tiles": (4, 2)},
            f"knob 'C.tiles': no recipe asks for that; there are {ASKED}",
        ),
        (
            {"C.tile": (4, 2), "D.lanes": 8, "tile": (4, 2)},
            f"knobs 'D.lanes', 'tile': no recipe asks for that; there are {ASKED}",
        ),
    ],
)
def test_decisions_that_do_not_fit_are_refused(decisions, message):
    with pytest.raises(ScheduleError) as caught:
        schedule_function(te.lower(matmul(64, 64, 64)), TARGETS[2], 1, Replay(decisions))
    assert str(caught.value) == message


CASES = {
    "matmul": [matmul(m, n, k) for m, n, k in ((1, 1, 1), (5, 17, 3), (16, 33, 20), (9, 100, 7))],
    "half_matmul": [half_matmul(9, 150, 7), half_matmul(3, 20, 5)],
    "transposed": [matmul(9, 33, 5, a, b) for a in ("ik", "ki") for b in ("kj", "jk")],
    "conv": [conv(6, 3, 5, 3), conv(9, 2, 17, 2, 2)],
    "depthwise": [depthwise(3, 5), depthwise(4, 33)],
    "row_sum": [row_sum(m, n) for m, n in ((1, 1), (3, 5), (2, 100), (5, 64))],
    "column_max": [column_max(m, n) for m, n in ((1, 1), (5, 3), (7, 100), (2, 0), (37, 270))],
    "no_column": [no_column(4, 3), no_column(0, 2)],
    "matvec": [matvec(3, 70), matvec(20, 2), matvec(9, 300)],
    "bias_add": [bias_add(m, n) for m, n in ((1, 1), (3, 5), (5, 100), (0, 4))],
    "transpose": [transpose(3, 40), transpose(17, 17)],
    "softmax": [softmax(3, 5), softmax(2, 100)],
    "blur": [blur(3, 40), blur(2, 1), blur(1, 7)],
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_schedules_keep_the_answer(case, threads, monkeypatch):
    for module in (contraction, reduction, elementwise):
        monkeypatch.setattr(module, "worth_threads", lambda cycles, count: count > 1)
    rng = np.random.default_rng(1)
    for tensors in CASES[case]:
        function = te.lower(tensors)
        arrays = [
            rng.integers(0, 9, [int(n) for n in tensor.shape]).astype(tensor.dtype.numpy) for tensor in tensors[:-1]
        ]
        expected = interpret(function, *arrays)
        for target in TARGETS:
            scheduled = schedule_function(function, target, threads).function
            np.testing.assert_allclose(interpret(scheduled, *arrays), expected, rtol=1e-5)


@pytest.mark.parametrize("case", [case for case in CASES if case not in ("blur",)])
def test_nobody_gets_scalar_loops(case):
    """Every block with a long axis runs in vectors."""
    for tensors in CASES[case]:
        function = schedule_function(te.lower(tensors), TARGETS[2], 1).function
        for nest in _nests(function.body):
            blocks = [block for block in all_blocks(function.with_(body=nest)) if not block.name.endswith("_init")]
            long = any(it.extent.value >= 16 for block in blocks for it in block.iters)
            kinds = {stmt.kind for stmt in walk(nest) if type(stmt) is For}
            assert "vectorized" in kinds or not long


def _nests(stmt):
    return getattr(stmt, "stmts", (stmt,))


@pytest.mark.parametrize("size", [64, te.var("n")])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_product_of_a_matrix_with_itself_transposed(size, threads):
    a = te.placeholder((size, size), name="A")
    r = te.reduce_axis(size, name="k")
    c = te.compute((size, size), lambda i, j: te.sum(a[i, r] * a[j, r], axis=r), name="C")
    s = schedule_function(te.lower([a, c]), TARGETS[1], threads)
    data = np.random.default_rng(0).integers(-4, 5, (64, 64)).astype(np.float32)[:20, :20]
    if size == 64:
        data = np.pad(data, (0, 44))
    data = np.ascontiguousarray(data)
    assert np.array_equal(interpret(s.function, data), data @ data.T)


def test_tasks_of_symbolic_loops(monkeypatch):
    """Loops of unknown extents inside others are not fused into tasks: that would not be proved apart."""
    for module in (contraction, reduction, elementwise):
        monkeypatch.setattr(module, "worth_threads", lambda cycles, count: count > 1)
    n, m = te.var("n"), te.var("m")
    a = te.placeholder((n, m, 3, 5), name="A")
    r = te.reduce_axis(5, name="r")
    total = te.compute((n, m, 3), lambda i, j, k: te.sum(a[i, j, k, r], axis=r), name="S")
    flipped = te.compute((n, m, 3, 5), lambda i, j, k, x: a[n - 1 - i, j, k, x], name="F")
    data = np.arange(2 * 3 * 3 * 5, dtype=np.float32).reshape(2, 3, 3, 5)
    for output, expected in ((total, data.sum(3)), (flipped, data[::-1])):
        scheduled = schedule_function(te.lower([a, output]), TARGETS[2], 2)
        assert "parallel" in scheduled.show()
        np.testing.assert_array_equal(interpret(scheduled.function, data), expected)


def chain(stages, link):
    last = first = te.placeholder((16,), name="X")
    for q in range(stages):
        last = te.compute((16,), lambda i, t=last: link(t, i), name=f"T{q}")
    return [first, last]


def test_what_was_inlined_counts():
    """Each stage reads the one before twice: inlined one and all they would be 2^30 operations."""
    s = schedule_function(te.lower(chain(30, lambda t, i: t[i] * t[15 - i])), TARGETS[0], 1)
    assert 5 < len(all_blocks(s.function)) < 20


def test_long_chains_are_inlined_in_parts():
    s = schedule_function(te.lower(chain(400, lambda t, i: t[i] * 0.5 + 1.0)), TARGETS[0], 1)
    assert 2 < len(all_blocks(s.function)) < 20


def test_values_used_twice_again_and_again_do_not_double_without_end():
    tensors = [te.placeholder((8,), name="A")]
    for step in range(24):
        tensors.append(te.compute((8,), lambda i, last=tensors[-1]: last[i] * last[i] + 1.0, name=f"S{step}"))
    function = schedule_function(te.lower([tensors[0], tensors[-1]]), TARGETS[2], 1).function
    assert len(all_blocks(function)) < 24
    assert max(len(list(walk_expr(block.body.value))) for block in all_blocks(function)) < 2000


def test_products_without_columns():
    function = te.lower(matmul(4, 0, 2, b_axes="jk"))
    schedule_function(function, TARGETS[2], 1)


@pytest.mark.parametrize("elements, streams", [(1 << 20, False), ((1 << 22) + 1, True)])
def test_output_larger_than_the_caches_goes_past_them(elements, streams):
    target = Target("cpu", mcpu="x86-64-v3")  # 16 MiB of last-level cache
    X = te.placeholder((elements,), name="X")
    s = schedule_function(te.lower([X, te.compute((elements,), lambda i: X[i] * 2, name="Y")]), target, 1)
    assert ("block Y {stream = true}" in s.show()) == streams
    knobs = Replay({"Y.stream": not streams})
    assert ("{stream = true}" in schedule_function(s.origin, target, 1, knobs).show()) != streams


def test_what_takes_time_to_compute_does_not_wait_for_memory():
    X = te.placeholder((1 << 24,), name="X")
    s = schedule_function(te.lower([X, te.compute((1 << 24,), lambda i: te.exp(X[i]), name="Y")]), TARGETS[1], 1)
    assert "stream" not in s.show()


def test_rows_that_share_an_operand_are_reduced_side_by_side():
    function = te.lower(matvec(20, 700))
    s = schedule_function(function, TARGETS[2], 1)
    assert [s.extent(loop) for loop in s.loops("y")] == [5, 11, 4, 64]
    alone = schedule_function(function, TARGETS[2], 1, Replay({"y.beside": False}))
    assert [alone.extent(loop) for loop in alone.loops("y")] == [20, 11, 64]
    sums = schedule_function(te.lower(row_sum(20, 700)), TARGETS[2], 1)  # nothing is shared here
    assert [sums.extent(loop) for loop in sums.loops("S")] == [20, 11, 64]


def test_a_contraction_of_the_states_of_a_scan():
    """Several blocks write the states, so that they are read as they are."""
    first, rest = te.placeholder((6, 2), "float16", name="F"), te.placeholder((6, 9), "float16", name="R")
    state = te.placeholder((6, 9), "float16", name="S")
    states = te.scan(first, te.compute((6, 9), lambda i, t: state[i, t - 1] + rest[i, t], name="step"), state, axis=1)
    b, k = te.placeholder((9, 40), "float16", name="B"), te.reduce_axis(9, name="k")
    c = te.compute((6, 40), lambda i, j: te.sum(states[i, k] * b[k, j], axis=k), name="C")
    kernel = tc.build([first, rest, b, c])
    x, y, z = np.ones((6, 2), "f2"), np.ones((6, 9), "f2"), np.ones((9, 40), "f2")
    assert np.array_equal(kernel(x, y, z), np.full((6, 40), 1 + sum(range(1, 9)), "f2"))


def test_a_single_half_element_in_a_contraction():
    """It is converted as one, in no loop."""
    A, B = te.placeholder((33, 20), name="A"), te.placeholder((20, 300), name="B")
    h = te.placeholder((), "float16", name="h")
    k = te.reduce_axis(20, name="k")
    product = lambda i, j: te.sum(A[i, k] * B[k, j] * te.cast(h[()], "float32"), axis=k)
    kernel = tc.build([A, B, h, te.compute((33, 300), product, name="C")], threads=1, cache=False)
    a, b = np.ones((33, 20), "float32"), np.ones((20, 300), "float32")
    np.testing.assert_array_equal(kernel(a, b, np.array(2, "float16")), np.full((33, 300), 40, "float32"))
