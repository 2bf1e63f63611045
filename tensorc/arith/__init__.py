"""Bounds, linear forms, simplification and proofs of index arithmetic."""

from tensorc.arith.affine import Affine, affine
from tensorc.arith.bounds import Domain, Interval, bounds
from tensorc.arith.index_map import IndexMap, is_injective
from tensorc.arith.prove import can_prove
from tensorc.arith.simplify import simplify

__all__ = [
    "Affine",
    "Domain",
    "IndexMap",
    "Interval",
    "affine",
    "bounds",
    "can_prove",
    "is_injective",
    "simplify",
]
