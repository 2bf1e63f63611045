"""The analytical model: what each limit says, and that it finds the default good."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.roofline import cost
from autotune.space import Sampler
from tensorc.schedule.recipes.access import Access
from tensorc.schedule.recipes.outline import Copy, Level, Outline, inner, lanes, level
from tests.autotune.spaces import TARGET, matmul, softmax, space


def _access(buffer: str, axes: str, sizes: dict[str, int]) -> Access:
    steps, step = {}, 1
    for axis in reversed(axes):
        steps[axis], step = step, step * sizes[axis]
    dims = tuple(frozenset(axis) for axis in axes)
    return Access(buffer, 4, step, frozenset(axes), steps, tuple(axes), frozenset(axes), dims=dims)


def _product(rows: int, vectors: int, size: int = 240, packed: bool = True, **options) -> Outline:
    sizes = dict.fromkeys("ijk", size)
    levels = (
        level("j", size, vectors * 8, 8), level("i", size, rows), Level("k", size),
        inner("i", rows), inner("j", vectors, 8), lanes("j", 8),
    )  # fmt: skip
    loads = (_access("A", "ik", sizes), _access("B", "kj", sizes))
    names = frozenset(["B"] if packed else [])
    return Outline("C", levels, _access("C", "ij", sizes), loads, 8, 1.0, frozenset("k"), names, **options)


def _cost(outline: Outline, threads: int = 1):
    return cost(outline, TARGET, threads)


def test_multiply_adds_are_counted():
    assert _cost(_product(6, 2)).arithmetic == 240**3 / 8 / TARGET.fma_per_cycle


def test_small_tiles_wait_and_load_more():
    small, large = _cost(_product(1, 1)), _cost(_product(6, 2))
    assert small.latency == TARGET.fma_latency * 240**3 / 8 and small.loads > 2 * large.loads
    assert small.cycles > 3 * large.cycles


def test_large_tiles_spill():
    assert _cost(_product(6, 2)).spills == 0 < _cost(_product(10, 3)).spills


def test_tails_count_for_their_part():
    assert level("i", 10, 4).trips == 2.5 and level("i", 9, 4, 2).trips == 2.5 and level("i", 8, 4).trips == 2


def test_what_no_cache_holds_is_moved_again():
    near, far = _cost(_product(6, 2)), _cost(_product(6, 2, size=4800))
    assert far.far / 20**3 > 3 * near.far / 1  # per multiply-add


def test_copies_cost_what_they_move():
    plain = _cost(_product(6, 2))
    copied = _cost(_product(6, 2, copies=(Copy(240 * 240, 4),)))
    assert copied.copies > 240 * 240 / 8 and copied.arithmetic == plain.arithmetic


def test_threads_share_whole_tasks():
    assert _cost(_product(6, 2, tasks=3), threads=2).share == 2 / 3
    assert _cost(_product(6, 2, tasks=1), threads=2).share == 1


@pytest.mark.parametrize("function", [matmul(512, 512, 512), softmax(128, 256)], ids=["matmul", "softmax"])
def test_the_default_is_among_the_best(function):
    made, sampler = space(function), Sampler(np.random.default_rng(0))
    default = made.draft()
    drafts = [made.draft({}, sampler) for _ in range(200)]
    better = [draft for draft in drafts if draft and default and draft.cycles < 0.9 * default.cycles]
    assert len(better) <= 10


def test_vectors_that_do_not_fill_registers_cost_more():
    plain, torn = [_lanes(count) for count in (16, 12)]
    assert torn.arithmetic > 3 * plain.arithmetic and _lanes(6).arithmetic > 1.4 * _lanes(8).arithmetic


def _lanes(count: int):
    sizes = dict.fromkeys("ijk", 240)
    levels = (level("j", 240, count), level("i", 240), Level("k", 240), lanes("j", count))
    loads = (_access("A", "ik", sizes), _access("B", "kj", sizes))
    return _cost(Outline("C", levels, _access("C", "ij", sizes), loads, count, 1.0, frozenset("k")))
