"""Maps from indices to indices, and the analysis of digits that tells which of them can be undone.

An expression such as i*8 + j with j in [0, 8) shows i and j as digits of one number. Knowing the number is knowing
its digits; and a variable is known once the digits that other expressions take from it (`v % 8`, `v // 8 % 4`,
`v // 32`) follow one another without a gap. This is the idea of TVM's iterator maps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tensorc.arith.affine import Terms, linear
from tensorc.arith.bounds import Domain, bounds, range_of_form
from tensorc.arith.simplify import simplify
from tensorc.errors import ExpressionError
from tensorc.ir.expr import Const, Expr, FloorDiv, Mod, Var, as_index, index
from tensorc.ir.walk import substitute


@dataclass(frozen=True, slots=True)
class IndexMap:
    """A map from a tuple of indices to a tuple of indices, such as (i, j) -> (i // 8, j, i % 8)."""

    inputs: tuple[Var, ...]
    outputs: tuple[Expr, ...]

    @staticmethod
    def from_function(fn: Callable, ndim: int) -> IndexMap:
        """The map that a Python function of `ndim` index variables computes; it returns one index or several."""
        names = fn.__code__.co_varnames if hasattr(fn, "__code__") else ()
        inputs = tuple([Var(names[axis] if axis < len(names) else f"i{axis}") for axis in range(ndim)])
        outputs = fn(*inputs)
        if not isinstance(outputs, (tuple, list)):
            outputs = (outputs,)
        return IndexMap(inputs, tuple([as_index(output) for output in outputs]))

    def apply(self, indices: Sequence[Expr | int], domain: Domain | None = None) -> tuple[Expr, ...]:
        """The outputs for these indices, simplified. Raises ExpressionError for a wrong number of indices."""
        values = dict(zip(self.inputs, map(as_index, self._checked(indices))))
        domain = Domain() if domain is None else domain
        return tuple([simplify(substitute(output, values), domain) for output in self.outputs])

    def image(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The extent of each output over a shape; raises ExpressionError where an output does not start at 0."""
        domain = self._domain(shape)
        extents = []
        for axis, output in enumerate(self.outputs):
            found = bounds(simplify(output, domain), domain)
            if found.lo != 0 or found.hi is None:
                raise ExpressionError(
                    f"index map: output {axis} runs from {found.lo} to {found.hi} over the shape {tuple(shape)}; "
                    "it must start at 0 and be bounded"
                )
            extents.append(found.hi + 1)
        return tuple(extents)

    def is_injective(self, shape: Sequence[int]) -> bool:
        """Whether no two indices of the shape have the same outputs; False means "not proved"."""
        return is_injective(self.outputs, dict(zip(self.inputs, self._checked(shape))))

    def inverse(self, shape: Sequence[int]) -> IndexMap | None:
        """The map from outputs back to the indices of the shape that gave them, or None if none is found.

        Outputs that no index of the shape has may be sent anywhere.
        """
        values = tuple([Var(f"o{axis}") for axis in range(len(self.outputs))])
        known = _solve(self.outputs, values, self._domain(shape), self.inputs)
        if known is None:
            return None
        domain = Domain()
        for var, output in zip(values, self.outputs):
            found = bounds(output, self._domain(shape))
            if found.lo is not None and found.hi is not None:
                domain = domain.bind(var, found.lo, found.hi - found.lo + 1)
        return IndexMap(values, tuple([simplify(known[var], domain) for var in self.inputs]))

    def _domain(self, shape: Sequence[int]) -> Domain:
        domain = Domain()
        for var, extent in zip(self.inputs, self._checked(shape)):
            domain = domain.bind(var, 0, extent)
        return domain

    def _checked(self, items: Sequence) -> Sequence:
        if len(items) != len(self.inputs):
            raise ExpressionError(f"index map: it takes {len(self.inputs)} indices, not {len(items)}")
        return items


def is_injective(exprs: Sequence[Expr], extents: Mapping[Var, int | Expr]) -> bool:
    """Whether the tuple of expressions takes each value at most once while each variable runs over 0 .. extent.

    False means "not proved".
    """
    domain = Domain()
    for var, extent in extents.items():
        domain = domain.bind(var, 0, extent)
    exprs = [as_index(expr) for expr in exprs]
    return _solve(exprs, exprs, domain, tuple(extents)) is not None


def _solve(
    exprs: Sequence[Expr], values: Sequence[Expr], domain: Domain, wanted: Sequence[Var]
) -> dict[Expr, Expr] | None:
    """What the variables are, in terms of the values of the expressions; None if some are not determined."""
    solver = _Solver(domain)
    pending = [(*linear(simplify(expr, domain)), value) for expr, value in zip(exprs, values)]
    missing = [var for var in wanted if not solver.settle(var)]
    while missing:
        before = len(pending), len(solver.known)
        pending = [equation for equation in pending if not solver.take(*equation)]
        solver.join()
        missing = [var for var in missing if var not in solver.known]
        if (len(pending), len(solver.known)) == before:
            return None
    return solver.known


class _Solver:
    """Atoms of which the values are known, in a domain: `known` maps each to an expression of the given values."""

    def __init__(self, domain: Domain):
        self.domain = domain
        self.known: dict[Expr, Expr] = {}
        self._joined: set[Expr] = set()

    def settle(self, var: Var) -> bool:
        """Whether a variable needs no equation, for it has one value only."""
        lo, hi = range_of_form({var: 1}, 0, self.domain)
        if lo is None or lo != hi:
            return False
        self.known[var] = index(lo)
        return True

    def take(self, terms: Terms, constant: int, value: Expr) -> bool:
        """Read off digits from terms + constant == value; False if its terms are not digits of one number (yet)."""
        unknown: list[tuple[Expr, int]] = []
        for atom, scale in terms.items():
            if atom in self.known:
                value = value - self.known[atom] * scale
            else:
                unknown.append((atom, scale))
        value = value - constant
        unknown.sort(key=lambda item: abs(item[1]))
        digits: list[tuple[Expr, int, int]] = []  # atom, scale, what it stands for at its least
        reach = 0  # the most that the digits below come to, each counted from its least
        for at, (atom, scale) in enumerate(unknown):
            lo, hi = range_of_form({atom: scale}, 0, self.domain)
            if reach >= abs(scale):
                return False
            if len(unknown) == 1:  # alone, it needs no range
                self.known[atom] = value // scale
                return True
            if lo is None or (hi is None and at + 1 < len(unknown)):
                return False
            reach = 0 if hi is None else reach + hi - lo
            digits.append((atom, scale, lo))
        value = value - sum([lo for _, _, lo in digits])
        for atom, scale, lo in reversed(digits):
            # counted from its least, scale*atom - lo is |scale| times a number that rises or falls with the atom
            size = abs(scale)
            quotient, value = value // size, value % size
            self.known[atom] = quotient + lo // scale if scale > 0 else lo // scale - quotient
        return True

    def join(self) -> None:
        """Numbers of which the known digits follow one another without a gap become known, and so their own digits."""
        bases: dict[Expr, dict[int, tuple[int | None, Expr]]] = {}
        for atom, value in self.known.items():
            digit = _digit(atom)
            if digit is not None:
                base, low, high = digit
                bases.setdefault(base, {})[low] = (high, value)
        for base, digits in bases.items():
            if base not in self._joined and base not in self.known:
                whole = self._whole(base, digits)
                if whole is not None and self.take(*linear(base), whole):
                    self._joined.add(base)

    def _whole(self, base: Expr, digits: Mapping[int, tuple[int | None, Expr]]) -> Expr | None:
        """A number from its digits in [1, a), [a, b), ... as far as it goes."""
        lo, hi = bounds(base, self.domain).lo, bounds(base, self.domain).hi
        parts: list[Expr] = []
        at: int | None = 1
        while at is not None and at in digits:
            high, digit = digits[at]
            parts.append(digit * at)
            at = high
        value: Expr = index(0)
        for part in reversed(parts):
            value = value + part
        if at is None:
            return value
        # x // at is 0 where x is in [0, at): there is no more to know
        return value if at > 1 and lo is not None and hi is not None and lo >= 0 and hi < at else None


def _digit(atom: Expr) -> tuple[Expr, int, int | None] | None:
    """The number that an atom is a digit of, and its place: x // low % (high // low); high is None without the %."""
    match atom:
        case Mod(FloorDiv(base, Const(low)), Const(count)) if low > 0 and count > 0:
            return base, low, low * count
        case Mod(base, Const(count)) if count > 0:
            return base, 1, count
        case FloorDiv(base, Const(low)) if low > 0:
            return base, low, None
    return None
