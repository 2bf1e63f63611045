"""Maps from indices to indices, and which values tuples of index expressions take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tensorc.arith.bounds import Domain, bounds
from tensorc.arith.simplify import simplify
from tensorc.errors import ExpressionError
from tensorc.ir.expr import Expr, Var, as_index
from tensorc.ir.walk import substitute


@dataclass(frozen=True, slots=True)
class IndexMap:
    """A map from a tuple of indices to a tuple of indices."""

    inputs: tuple[Var, ...]
    outputs: tuple[Expr, ...]

    @staticmethod
    def from_function(fn, ndim: int) -> IndexMap:
        """The map that a Python function of `ndim` index variables computes."""
        inputs = tuple([Var(f"i{axis}") for axis in range(ndim)])
        outputs = fn(*inputs)
        return IndexMap(inputs, tuple([as_index(e) for e in outputs]))

    def apply(self, indices: Sequence[Expr | int], domain: Domain = Domain()) -> tuple[Expr, ...]:
        """The outputs for these indices, simplified."""
        values = {var: as_index(e) for var, e in zip(self.inputs, indices)}
        return tuple([simplify(substitute(e, values), domain) for e in self.outputs])

    def image(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The extent of each output over a shape; raises ExpressionError where an output does not start at 0."""
        domain = Domain()
        for var, extent in zip(self.inputs, shape):
            domain = domain.bind(var, 0, extent)
        extents = []
        for output in self.outputs:
            found = bounds(output, domain)
            if found.lo != 0 or found.hi is None:
                raise ExpressionError(f"index map: an output runs from {found.lo} to {found.hi}, not from 0")
            extents.append(found.hi + 1)
        return tuple(extents)

    def is_injective(self, shape: Sequence[int]) -> bool:
        """Whether no two indices of the shape have the same outputs; False means "not proved"."""
        return is_injective(self.outputs, dict(zip(self.inputs, shape)))

    def inverse(self, shape: Sequence[int]) -> IndexMap | None:
        """The map back, or None if none is found."""
        return None


def is_injective(exprs: Sequence[Expr], extents: Mapping[Var, int]) -> bool:
    """Whether the tuple of expressions takes each value at most once; False means "not proved"."""
    return all(any(e is var for e in exprs) or extent == 1 for var, extent in extents.items())
