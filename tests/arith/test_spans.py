"""Bounds of expressions over whole loops."""

from __future__ import annotations

from tensorc.arith import Domain
from tensorc.arith.spans import Span, relax
from tensorc.ir import Ramp, Var, broadcast, show
from tensorc.ir.expr import index


def test_the_lanes_of_a_vector_are_all_in_its_span():
    i, n = Var("i"), Var("n")
    inner = {i: Span(index(0), index(3))}
    for expr, expected in (
        (Ramp(i * 8 + n, index(2), 4), ("n", "n + 30")),
        (Ramp(i * 8, index(-2), 4), ("-6", "24")),
        (broadcast(i + n, 4), ("n", "n + 3")),
    ):
        span = relax(expr, inner, Domain())
        assert span is not None and (show(span.lo), show(span.hi)) == expected
