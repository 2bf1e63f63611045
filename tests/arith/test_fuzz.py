"""Random expressions: what is simplified, bounded and proved must be so at every point."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tensorc.arith import bounds, can_prove, simplify
from tensorc.ir.expr import Var
from tests.arith.semantics import Box, conditions, evaluate, expressions

I, J, K, N = Var("i"), Var("j"), Var("k"), Var("n")
NUMERIC = Box([(I, 0, 5), (J, 0, 8), (K, -3, 5)])
SYMBOLIC = Box([(I, 0, N), (J, 0, 4), (K, I - 1, N - I)], {N: range(0, 5)})
BOXES = st.sampled_from([NUMERIC, SYMBOLIC])

seeded = settings(
    max_examples=150,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@st.composite
def places(draw, make):
    """A box, up to two conditions that hold, and what `make` draws over its variables."""
    box = draw(BOXES)
    facts = draw(st.lists(conditions(box.variables, 1), max_size=2))
    return box, facts, draw(make(box.variables))


@seeded
@given(places(expressions))
def test_simplified_expressions_keep_their_value(place):
    box, facts, expr = place
    new = simplify(expr, box.domain(*facts))
    for env in box.points(*facts):
        assert evaluate(new, env) == evaluate(expr, env)


@seeded
@given(places(conditions))
def test_simplified_conditions_keep_their_value(place):
    box, facts, expr = place
    new = simplify(expr, box.domain(*facts))
    for env in box.points(*facts):
        assert evaluate(new, env) == evaluate(expr, env)


@seeded
@given(places(expressions))
def test_bounds_hold_every_value(place):
    box, facts, expr = place
    found = bounds(expr, box.domain(*facts))
    for env in box.points(*facts):
        value = evaluate(expr, env)
        assert (found.lo is None or found.lo <= value) and (found.hi is None or value <= found.hi)


@seeded
@given(places(conditions))
def test_what_is_proved_holds(place):
    box, facts, condition = place
    if can_prove(condition, box.domain(*facts)):
        assert all([evaluate(condition, env) for env in box.points(*facts)])


@seeded
@given(expressions(NUMERIC.variables))
def test_canonical_forms_stay_as_they_are(expr):
    domain = NUMERIC.domain()
    once = simplify(expr, domain)
    assert simplify(once, domain) is once
