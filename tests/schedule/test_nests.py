"""Contractions by other decisions than the default: the nest that is asked for, and the oracle's answer."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc import te
from tensorc.errors import ScheduleError
from tensorc.ir.interpreter import interpret
from tensorc.ir.stmt import For
from tensorc.ir.walk import walk
from tensorc.schedule.knobs import Replay
from tensorc.schedule.recipes.choose import schedule_function
from tensorc.target import Target

TARGET = Target("cpu", mcpu="x86-64-v3")


def _matmul(m: int, n: int, k: int, transposed: bool = False):
    a, b = te.placeholder((k, m) if transposed else (m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis(k, name="k")

    def body(i, j):
        return te.sum((a[r, i] if transposed else a[i, r]) * b[r, j], axis=r)

    return te.lower([a, b, te.compute((m, n), body, name="C")])


def _conv():
    data, weight = te.placeholder((8, 8, 4), name="data"), te.placeholder((3, 3, 4, 20), name="weight")
    y, x = te.reduce_axis(3, name="ky"), te.reduce_axis(3, name="kx")
    c = te.reduce_axis(4, name="c")

    def body(i, j, o):
        return te.sum(data[i + y, j + x, c] * weight[y, x, c, o], axis=(y, x, c))

    return te.lower([data, weight, te.compute((6, 6, 20), body, name="C")])


def _scheduled(function, threads: int = 1, **decisions):
    return schedule_function(function, TARGET, threads, Replay({f"C.{name}": each for name, each in decisions.items()}))


def _assert_right(s):
    rng = np.random.default_rng(0)
    sizes = [tuple(int(extent.value) for extent in buffer.shape) for buffer in s.origin.params]
    arrays = [rng.integers(-3, 4, size).astype("float32") for size in sizes]
    np.testing.assert_array_equal(interpret(s.function, *arrays), interpret(s.origin, *arrays))


def _order(s, block: str = "C") -> list[str]:
    """The loops around a block, by the axes and how these are cut."""
    return [loop.name.removeprefix(f"{block}.") for loop in s.loops(block)]


def test_blocks_of_columns_go_around_those_of_the_depth_and_of_rows():
    decisions = {"tile": (4, 2), "depth": (16,), "height": 2, "breadth": 2, "pack": True}
    s = _scheduled(_matmul(30, 70, 40), **decisions)
    assert _order(s)[:5] == ["j.0", "k.0", "i.0", "j.1", "i.1"]
    assert _order(s, "B_global")[:2] == ["C.j.0", "C.k.0"]
    _assert_right(s)


def test_panels_go_inside_rows():
    s = _scheduled(_matmul(30, 70, 40), tile=(4, 2), around="rows", pack=True)
    assert _order(s)[:2] == ["i.0", "j.0"] and not _order(s, "B_global")[0].startswith("C.")
    _assert_right(s)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("height", [0, 2])
def test_rows_of_the_other_operand_are_packed_in_their_blocks(transposed, height):
    s = _scheduled(_matmul(30, 70, 40, transposed), tile=(4, 2), depth=(16,), height=height, pack_rows=True)
    assert _order(s, "A_global")[: 1 + (height > 0)] == ["C.k.0", "C.i.0"][: 1 + (height > 0)]
    _assert_right(s)


def test_steps_of_the_reduction_are_unrolled():
    s = _scheduled(_matmul(30, 70, 40), tile=(4, 1), unroll=4)
    kinds = {each.var.name: each.kind for each in walk(s.function.body) if type(each) is For}
    assert kinds["C.k.1"] == "unrolled"
    _assert_right(s)


def test_unrolling_asks_for_whole_steps():
    with pytest.raises(ScheduleError, match=r"knob 'C.unroll': 4 is none of 1, 2"):
        _scheduled(_matmul(30, 70, 42), unroll=4)


@pytest.mark.parametrize("axis", ["ky", "kx", "c"])
def test_any_reduction_is_the_innermost(axis):
    s = _scheduled(_conv(), tile=(3, 1), innermost=axis)
    names = [name.split(".")[0] for name in _order(s)]
    taps = [name for name in names if name in ("ky", "kx", "c")]
    assert taps[-1] == axis and sorted(taps) == ["c", "kx", "ky"]
    _assert_right(s)


@pytest.mark.parametrize("parallel", ["columns", "rows"])
@pytest.mark.parametrize("around", ["panels", "rows"])
@pytest.mark.parametrize("pack", [False, True])
def test_threads_share_blocks(parallel, around, pack):
    blocks = {"tile": (4, 1), "height": 2, "breadth": 2, "depth": (16,)}
    s = _scheduled(_matmul(30, 70, 40), threads=2, parallel=parallel, around=around, pack=pack, **blocks)
    kinds = {each.var.name: each.kind for each in walk(s.function.body) if type(each) is For}
    assert kinds["C.j.0" if parallel == "columns" else "C.i.0"] == "parallel"
    _assert_right(s)


def test_panels_inside_rows_are_no_tasks():
    with pytest.raises(ScheduleError, match=r"knob 'C.parallel': 'columns' is none of 'rows', 'none'"):
        _scheduled(_matmul(30, 70, 40), threads=2, around="rows", parallel="columns")


def test_half_a_register_may_do():
    s = _scheduled(_matmul(30, 68, 40), lanes=4, tile=(4, 3))
    assert s.extent("C.j.2") == 4
    _assert_right(s)
