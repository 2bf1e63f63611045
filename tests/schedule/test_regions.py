"""Regions: what a part of a function touches, over the loops around it."""

from __future__ import annotations

import itertools

import pytest

from tensorc.arith import Domain
from tensorc.ir.expr import Var, index
from tensorc.ir.parser import parse, parse_expr
from tensorc.ir.printer import show
from tensorc.schedule.locate import find_block, find_loop
from tensorc.schedule.regions import (
    Span,
    buffers_read,
    buffers_written,
    read_region,
    relax,
    write_region,
)

STENCIL = """
function blur(A: float32[64], out C: float32[62])
  for C.i.0 in 0 .. 8
    for C.i.1 in 0 .. 8
      block C
        spatial i: 62 = C.i.0 * 8 + C.i.1
        where C.i.0 * 8 + C.i.1 < 62
        C[i] = A[i] + A[i + 1] + A[i + 2]
"""

PACKED = """
function mm(A: float32[8, 40], B: float32[2, 3, 32, 4], out C: float32[8, 10])
  for C.k.0 in 0 .. 2
    for C.i in 0 .. 8
      for C.j in 0 .. 10
        for C.k.1 in 0 .. 32
          block C
            spatial i: 8 = C.i
            spatial j: 10 = C.j
            reduce k: 40 = C.k.0 * 32 + C.k.1
            where C.k.0 * 32 + C.k.1 < 40
            init
              C[i, j] = float32(0.0)
            C[i, j] = C[i, j] + A[i, k] * B[k // 32, j // 4, k % 32, j % 4]
"""


def spans(region) -> list[tuple[str, str]]:
    return [(show(span.lo), show(span.hi)) for span in region]


def buffer_of(function, name):
    return next(buffer for buffer in function.params if buffer.name == name)


def test_several_reads_unite():
    function = parse(STENCIL)
    place = find_loop(function, "C.i.1")
    assert spans(read_region(place, buffer_of(function, "A"))) == [
        ("C.i.0 * 8", "min(C.i.0 * 8 + 9, 63)")
    ]


def test_a_whole_function_and_a_single_instance():
    function = parse(STENCIL)
    a, c = buffer_of(function, "A"), buffer_of(function, "C")
    assert spans(read_region(find_loop(function, "C.i.0"), a)) == [("0", "63")]
    assert spans(write_region(find_loop(function, "C.i.0"), c)) == [("0", "61")]
    block = find_block(function, "C")
    assert spans(write_region(block, c)) == [("C.i.0 * 8 + C.i.1", "C.i.0 * 8 + C.i.1")]
    assert read_region(block, c) is None


def test_a_block_of_a_packed_buffer():
    function = parse(PACKED)
    region = read_region(find_loop(function, "C.i"), buffer_of(function, "B"))
    assert spans(region) == [("C.k.0", "C.k.0"), ("0", "2"), ("0", "31"), ("0", "3")]


def test_what_is_loaded_has_no_bounds():
    function = parse("""
function gather(I: int64[8], A: float32[100], out C: float32[8])
  for C.i in 0 .. 8
    block C
      spatial i: 8 = C.i
      C[i] = A[I[i]]
""")
    assert spans(read_region(find_loop(function, "C.i"), buffer_of(function, "A"))) == [("0", "99")]


def test_symbolic_extents():
    function = parse("""
function rows(A: float32[n, m], out C: float32[n, m])
  for C.i in 0 .. n
    for C.j in 0 .. m
      block C
        spatial i: n = C.i
        spatial j: m = C.j
        C[i, j] = A[i, j]
""")
    a = buffer_of(function, "A")
    assert spans(read_region(find_loop(function, "C.j"), a)) == [("C.i", "C.i"), ("0", "m - 1")]


def test_buffers_of_a_statement():
    function = parse(PACKED)
    block = find_block(function, "C").node
    assert [buffer.name for buffer in buffers_read(block)] == ["C", "A", "B"]
    assert [buffer.name for buffer in buffers_written(block)] == ["C"]


@pytest.mark.parametrize(
    "text",
    [
        "i * 4 + x",
        "x - i",
        "i * 3 - x * 2 + 1",
        "(i * 4 + x) // 4",
        "(i * 4 + x) % 4",
        "(i + x) // 3",
        "(i + x) % 3",
        "x % 2 + i",
        "min(i * 4, 5) + x",
        "max(x, i)",
        "min(x, 2) * 3",
        "x * i",
        "x * x",
        "x // 2 * 2",
        "-x // 2",
        "select(i < 2, x, i + 1)",
    ],
)
def test_relaxed_bounds_hold_for_every_value(text):
    i, x = Var("i"), Var("x")
    domain = Domain().bind(i, 0, 4).bind(x, 0, 4)
    expr = parse_expr(text, {"i": i, "x": x})
    span = relax(expr, {x: Span(index(0), index(3))}, domain)
    assert span is not None
    for i_value in range(4):
        values = [evaluate(expr, {i: i_value, x: x_value}) for x_value in range(4)]
        lo, hi = evaluate(span.lo, {i: i_value}), evaluate(span.hi, {i: i_value})
        assert lo <= min(values) and max(values) <= hi


def evaluate(expr, values: dict[Var, int]) -> int:
    text = show(expr)
    names = {var.name: value for var, value in values.items()}
    return eval(text, {"min": min, "max": max, "select": lambda c, a, b: a if c else b, **names})


def test_unknown_variables_leave_no_bounds():
    i, x = Var("i"), Var("x")
    assert relax(i + x, {x: None}, Domain()) is None


def test_exact_where_the_form_is_linear():
    i, x, y = Var("i"), Var("x"), Var("y")
    inner = {x: Span(index(0), index(6)), y: Span(index(1), index(2))}
    span = relax(i * 10 + x * 2 - y, inner, Domain())
    for value in range(3):
        every = [value * 10 + a * 2 - b for a, b in itertools.product(range(7), (1, 2))]
        assert evaluate(span.lo, {i: value}) == min(every)
        assert evaluate(span.hi, {i: value}) == max(every)
