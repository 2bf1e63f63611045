"""Bounds, linear forms, simplification and proofs of index arithmetic."""

from tensorc.arith.accesses import checked
from tensorc.arith.affine import Affine, affine
from tensorc.arith.bounds import Domain, Interval, bounds
from tensorc.arith.index_map import IndexMap, is_injective
from tensorc.arith.prove import can_prove
from tensorc.arith.simplify import simplify
from tensorc.arith.wrapping import LARGEST, is_wild

__all__ = [
    "LARGEST",
    "Affine",
    "Domain",
    "IndexMap",
    "Interval",
    "affine",
    "bounds",
    "can_prove",
    "checked",
    "is_injective",
    "is_wild",
    "simplify",
]
