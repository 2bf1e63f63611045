"""Small spaces for the tests of the search, and a stand-in for measurements that is the same each time."""

from __future__ import annotations

import zlib

import tensorc as tc
from autotune.record import Candidate, Measurement, Trial
from autotune.space import Space
from tensorc import te
from tensorc.ir.function import Function
from tensorc.target import Target

TARGET = Target("cpu", mcpu="x86-64-v3")


def matmul(m: int = 96, n: int = 96, k: int = 64) -> Function:
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis(k, name="k")
    return tc.schedule([a, b, te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")]).function


def softmax(rows: int = 32, columns: int = 64) -> Function:
    x = te.placeholder((rows, columns), name="X")
    return tc.schedule([x, tc.ops.softmax(x)]).function


def space(function: Function, threads: int = 1, **options) -> Space:
    return Space(function, TARGET, threads, **options)


def measured(candidate: Candidate, made: Space) -> Trial:
    """A trial whose time is what the model says, off by up to a fifth, by the decisions."""
    draft = made.draft(candidate.decisions)
    assert draft is not None
    off = zlib.crc32(repr(sorted(candidate.decisions.items())).encode()) % 1000 / 1000
    seconds = draft.cycles * (0.9 + 0.2 * off) * 1e-9
    return Trial(candidate, Measurement("ok", (seconds, seconds * 1.002, seconds * 0.999)))
