"""Reductions over nothing: their start is written, by the interpreter and in the explicit form."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc.ir.empty import start_empty_reductions
from tensorc.ir.interpreter import interpret
from tensorc.ir.parser import parse
from tensorc.ir.printer import show

SUM = """function main(A: float32[m, n], out C: float32[m])
  for k in 0 .. {blocks}
    for i in 0 .. m
      for l in 0 .. 4
        block C
          spatial x: m = i
          reduce r: {extent} = k * 4 + l
          where k * 4 + l < {extent}
          init
            C[x] = float32(0.0)
          C[x] = C[x] + A[x, r]
"""


def test_the_start_stands_before_the_outermost_reduce_loop_over_the_spatial_ones():
    function = start_empty_reductions(parse(SUM.format(blocks="(n + 3) // 4", extent="n")))
    start, loop = function.body.stmts
    assert show(start) == (
        "for i in 0 .. m\n"
        "  block C\n"
        "    spatial x: m = i\n"
        "    where n <= 0\n"
        "    C[x] = float32(0.0)"
    )
    assert show(loop).startswith("for k in 0 .. (n + 3) // 4")


def test_a_reduction_that_is_never_empty_stays_as_it_is():
    function = parse(SUM.format(blocks="2", extent="8"))
    assert start_empty_reductions(function) is function


@pytest.mark.parametrize("n", [0, 1, 5])
def test_the_interpreter_writes_the_start(n):
    function = parse(SUM.format(blocks="(n + 3) // 4", extent="n"))
    a = np.arange(3 * n, dtype=np.float32).reshape(3, n)
    np.testing.assert_array_equal(interpret(function, a), a.sum(axis=1))
