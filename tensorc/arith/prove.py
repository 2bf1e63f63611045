"""Proofs of conditions."""

from __future__ import annotations

from tensorc.arith.bounds import Domain
from tensorc.arith.simplify import simplify
from tensorc.ir.expr import Expr, is_const


def can_prove(condition: Expr, domain: Domain) -> bool:
    """Whether the condition is found to hold everywhere in the domain; False means "not proved"."""
    return is_const(simplify(condition, domain), True)
