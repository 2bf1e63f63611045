"""Proofs of conditions."""

from __future__ import annotations

from tensorc.arith.bounds import Domain
from tensorc.arith.simplify import simplify
from tensorc.ir.expr import And, Broadcast, Expr, is_const


def can_prove(condition: Expr, domain: Domain) -> bool:
    """Whether a condition is found to hold everywhere in a domain, in every lane; False means "not proved".

    The simplifier decides comparisons by the bounds of the difference of their sides, which combine the ranges of
    variables and the facts of the domain.
    """
    if type(condition) is And:
        return can_prove(condition.a, domain) and can_prove(condition.b, domain)
    found = simplify(condition, domain)
    return is_const(found.value if type(found) is Broadcast else found, True)
