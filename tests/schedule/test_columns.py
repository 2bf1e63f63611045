"""What the columns of a contraction are made of, and that gathered operands keep the answer."""

from __future__ import annotations

import numpy as np
import pytest

import tensorc as tc
from tensorc import ops, te
from tensorc.errors import ScheduleError
from tensorc.ir import interpret
from tensorc.ir.stmt import Alloc
from tensorc.ir.walk import walk
from tensorc.passes.pipeline import lower
from tensorc.schedule.knobs import Defaults, Replay
from tensorc.schedule.locate import all_blocks, loops_above
from tensorc.schedule.recipes import contraction, elementwise, reduction
from tensorc.schedule.recipes.access import Group, pattern
from tensorc.schedule.recipes.choose import schedule_function
from tensorc.target import Target

ZEN4 = Target("cpu", mcpu="znver4")


def conv(size=(7, 7), ci=8, co=16, kernel=(3, 3), layout="NCHW", dtype="float32", n=1, tail=None, **numbers):
    last = layout == "NHWC"
    X = te.placeholder((n, *size, ci) if last else (n, ci, *size), dtype, name="X")
    part = ci // numbers.get("groups", 1)
    W = te.placeholder((*kernel, part, co) if last else (co, part, *kernel), dtype, name="W")
    C = ops.conv2d(X, W, layout=layout, name="C", **numbers)
    return [X, W, C if tail is None else tail(C)]


def conv1d(width, ci, co, kernel, **numbers):
    X, W = te.placeholder((2, ci, width), name="X"), te.placeholder((co, ci, kernel), name="W")
    return [X, W, ops.conv1d(X, W, layout="NCW", name="C", **numbers)]


def conv3d(size, ci, co, kernel, **numbers):
    X, W = te.placeholder((1, ci, *size), name="X"), te.placeholder((co, ci, *kernel), name="W")
    return [X, W, ops.conv3d(X, W, layout="NCDHW", name="C", **numbers)]


def guarded(size=9, ci=4, co=32):
    """A convolution that is padded as it reads."""
    X, W = te.placeholder((ci, size, size), name="X"), te.placeholder((co, ci, 3, 3), name="W")
    c, y, x = te.reduce_axis(ci, name="ci"), te.reduce_axis(3, name="kh"), te.reduce_axis(3, name="kw")

    def padded(i, j):
        inside = te.all(i >= 1, i <= size, j >= 1, j <= size)
        return te.if_then_else(inside, X[c, i - 1, j - 1], 0.0)

    value = lambda k, i, j: te.sum(padded(i + y, j + x) * W[k, c, y, x], axis=(c, y, x))
    return [X, W, te.compute((co, size, size), value, name="C")]


def planes(m=64, k=32):
    """A matrix times three-dimensional data, without a convolution."""
    A, B, r = te.placeholder((m, k), name="A"), te.placeholder((k, 5, 9), name="B"), te.reduce_axis(k, name="k")
    return [A, B, te.compute((m, 5, 9), lambda i, j, l: te.sum(A[i, r] * B[r, j, l], axis=r), name="C")]


def with_bias(C):
    bias = te.compute((C.shape[1],), lambda c: te.cast(c, C.dtype) - 3, name="b")
    return ops.relu(ops.bias_add(C, bias, 1), name="D")


def plan_of(tensors, threads=1, is_alone=True, decisions=()):
    main = next(block for block in all_blocks(te.lower(tensors)) if block.name in ("C", "C_sum"))
    knobs = Replay(dict(decisions)) if decisions else Defaults()
    return contraction.decide(Group(pattern(main), is_alone=is_alone), knobs, ZEN4, threads)


@pytest.mark.parametrize(
    ("tensors", "joined", "chunk"),
    [
        (conv((7, 7), 512, 64, (1, 1)), ("h", "w"), None),  # the data lies as the columns do
        (conv((56, 56), 64, 256, (1, 1)), ("h", "w"), None),
        (planes(), ("j", "l"), None),
        (conv((7, 7), 512, 512, padding=1), ("h", "w"), 49),
        (conv((14, 14), 1024, 512, (1, 1), stride=2), ("h", "w"), 49),
        (conv((14, 14), 1024, 512, (1, 1), stride=2, n=te.var("n")), ("h", "w"), 49),
        (conv((14, 14), 256, 256, padding=1, n=2), ("h", "w"), 196),
        (conv((128, 128), 16, 8, padding=1), None, None),  # full vectors of long rows, and little to make of a copy
        (conv((7, 7), 512, 512, padding=1, layout="NHWC"), None, None),
        (conv((7, 7), 64, 64, padding=1, dtype="float16"), None, None),  # converted as it is packed
        (conv((14, 14), 1024, 512, (1, 1), stride=7), None, None),  # no vectors of such steps
        (conv((te.var("h"), te.var("w")), 64, 64), None, None),
        (guarded(), None, None),
        (conv1d(1000, 64, 64, 3, stride=2), None, 499),
        (conv1d(1000, 64, 64, 3), None, None),
        (conv1d(8000, 64, 64, 3, stride=2), None, 192),
    ],
)
def test_what_the_columns_are(tensors, joined, chunk):
    columns = plan_of(tensors).columns
    assert (columns.joined, columns.chunk) == (joined, chunk)


def test_blocks_in_loops_of_others_keep_their_columns():
    plan = plan_of(conv((7, 7), 512, 512, padding=1), is_alone=False)
    assert plan.columns.joined is None and plan.columns.chunk is None and plan.column == "w"


def test_a_chunk_stays_in_the_cache():
    for size, ci, co in ((56, 128, 128), (28, 256, 256), (14, 512, 512), (56, 64, 64)):
        plan = plan_of(conv((size, size), ci, co, padding=1, stride=2))
        assert plan.columns.chunk % (size // 2) == 0
        assert plan.columns.chunk * (plan.depth or ci) * 9 * 4 <= ZEN4.l2
        s = tc.default_schedule(conv((size, size), ci, co, padding=1, stride=2), ZEN4, threads=1)
        made = [buffer for stmt in walk(lower(s.function).body) if type(stmt) is Alloc for buffer in stmt.buffers]
        copy = next(buffer for buffer in made if buffer.name == "C_pad_global")
        assert np.prod([extent.value for extent in copy.shape]) * 4 <= ZEN4.l2


@pytest.mark.parametrize(
    "tensors", [conv((14, 14), 32, 64, padding=1), conv((224, 20), 3, 64, (7, 7), stride=2, padding=3), planes()]
)
def test_sums_stay_in_registers(tensors):
    report = tc.build(tc.default_schedule(tensors, ZEN4, threads=1), ZEN4, threads=1).report()
    innermost = [loop for loop in report.loops if "ci" in loop.name or loop.name == "C.k"]
    assert max([loop.accumulators or 0 for loop in innermost]) >= 8


@pytest.mark.parametrize("case", ["epilogue", "epilogue of taps"])
def test_the_epilogue_has_the_same_columns(case):
    s = tc.default_schedule(CASES[case], ZEN4, threads=1, schedules={"C.join": True})
    assert s.recipes["D"] == "contraction" and "= max(C[0, i1, i2_i3] + " in s.show()


def test_the_knobs():
    tensors = conv((14, 14), 32, 64, padding=1)
    function = te.lower(tensors)
    knobs = Defaults()
    schedule_function(function, ZEN4, 1, knobs)
    asked = [name for name in knobs.decisions if name.startswith("C.")]
    names = ["algorithm", "join", "pack", "chunk", "pack_rows", "lanes", "tile", "depth", "height", "around"]
    assert asked == [f"C.{name}" for name in (*names, "parallel", "innermost", "unroll")]
    apart = schedule_function(function, ZEN4, 1, Replay({"C.join": False}))
    assert [str(loop) for loop in apart.loops("C")][:4] == ["C.w.0", "C.n", "C.h", "C.c.0"]
    small = schedule_function(function, ZEN4, 1, Replay({"C.join": True, "C.pack": True, "C.chunk": 28}))
    assert small.extent("C.h_w.0") == 7
    with pytest.raises(ScheduleError) as caught:
        schedule_function(function, ZEN4, 1, Replay({"C.join": True, "C.pack": True, "C.chunk": 20}))
    assert str(caught.value) == "knob 'C.chunk': 20 is none of 14, 28, 98, 196"


KNOBS = [
    {},
    {"join": True, "pack": True},
    {"join": True, "pack": False},
    {"join": True, "pack": True, "tile": (3, 1), "depth": (3,)},
    {"join": False},
]
CASES = {
    "pointwise": conv((5, 7), 6, 9, (1, 1)),
    "taps": conv((5, 7), 6, 9, padding=1),
    "steps": conv((9, 11), 4, 20, (1, 1), stride=2),
    "taps by steps": conv((13, 12), 5, 9, stride=(2, 3), padding=1),
    "dilated": conv((9, 12), 4, 9, dilation=2, padding=2),
    "two images": conv((6, 20), 4, 9, padding=1, n=2),
    "groups": conv((6, 5), 8, 20, padding=1, groups=2),
    "long rows": conv((3, 50), 4, 9, padding=1),
    "epilogue": conv((5, 7), 6, 9, (1, 1), tail=with_bias),
    "epilogue of taps": conv((5, 7), 6, 9, padding=1, stride=2, tail=with_bias),
    "bytes": conv((6, 7), 6, 9, padding=1, dtype="int8", out_dtype="int32"),
    "guarded": guarded(5, 3, 8),
    "planes": planes(9, 7),
    "cubes": conv3d((3, 4, 5), 3, 9, (2, 2, 2), padding=1),
    "rows": conv1d(100, 3, 9, 3, stride=2),
    "far rows": conv1d(4500, 1, 8, 2, stride=2),
}


@pytest.mark.parametrize("knobs", range(len(KNOBS)))
@pytest.mark.parametrize("case", CASES)
def test_gathered_columns_keep_the_answer(case, knobs, monkeypatch):
    for module in (contraction, reduction, elementwise):
        monkeypatch.setattr(module, "worth_threads", lambda cycles, count: count > 1)
    tensors = CASES[case]
    function = te.lower(tensors)
    rng = np.random.default_rng(1)
    recorded = {f"C.{name}": value for name, value in KNOBS[knobs].items()}
    arrays = [rng.integers(-4, 5, [int(e) for e in t.shape]).astype(t.dtype.numpy) for t in tensors[:-1]]
    expected = tc.build(tc.schedule(tensors))(*arrays)
    for threads, ways in ((1, ("none",)), (2, ("columns", "rows"))):
        for way in ways:
            s = _scheduled(function, threads, {**recorded, "C.parallel": way})
            assert np.array_equal(tc.build(s, threads=threads)(*arrays), expected)


def _scheduled(function, threads, decisions):
    """A schedule by those of the decisions that are asked for."""
    while True:
        try:
            return schedule_function(function, Target("cpu"), threads, Replay(decisions))
        except ScheduleError as error:
            unknown = [name for name in decisions if f"'{name}'" in str(error).split(";")[0]]
            decisions = {name: value for name, value in decisions.items() if name not in unknown}


SHAPES = [
    (56, 64, 64, 3, 1),
    (56, 128, 128, 3, 2),
    (28, 256, 256, 3, 2),
    (7, 512, 512, 3, 1),
    (56, 256, 512, 1, 2),
    (14, 1024, 2048, 1, 2),
    (7, 2048, 512, 1, 1),
    (224, 3, 64, 7, 2),
    (55, 127, 61, 3, 1),
    (57, 31, 129, 5, 3),
]


@pytest.mark.parametrize("way", ["columns", "rows"])
@pytest.mark.parametrize("shape", SHAPES)
def test_convolutions_of_networks_have_tasks(shape, way):
    hw, ci, co, kernel, stride = shape
    tensors = conv((hw, hw), ci, co, (kernel, kernel), stride=stride, padding=kernel // 2)
    decisions = {"C.join": True, "C.pack": True, "C.parallel": way}
    s = tc.default_schedule(tensors, ZEN4, threads=2, schedules=decisions)
    kinds = [stmt.kind for stmt in loops_above(s.function, "C")]
    assert kinds.count("parallel") == 1


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_all_targets(target):
    tensors = conv((6, 7), 4, 9, padding=1, stride=2)
    function = te.lower(tensors)
    rng = np.random.default_rng(1)
    x, w = rng.integers(-4, 5, (1, 4, 6, 7)), rng.integers(-4, 5, (9, 4, 3, 3))
    arrays = x.astype("float32"), w.astype("float32")
    scheduled = schedule_function(function, Target("cpu", mcpu=target), 1).function
    assert np.array_equal(interpret(scheduled, *arrays), interpret(function, *arrays))


def test_a_batch_of_any_size():
    n = te.var("n")
    tensors = conv((5, 6), 4, 20, padding=1, n=n)
    kernel = tc.build(tensors, threads=1, schedules={"C.join": True, "C.pack": True})
    rng = np.random.default_rng(1)
    w = rng.integers(-4, 5, (20, 4, 3, 3)).astype("float32")
    plain = tc.build(tc.schedule(tensors))
    for count in (0, 1, 3):
        x = rng.integers(-4, 5, (count, 4, 5, 6)).astype("float32")
        assert np.array_equal(kernel(x, w), plain(x, w))
