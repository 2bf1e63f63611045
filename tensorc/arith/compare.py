"""Comparisons of linear forms: decided by what is known, else brought to a canonical form.

D is the difference of the two sides without its constant. An inequality is D <= bound or D >= bound, an equation
D == bound or D != bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Literal

from tensorc.arith.affine import Terms, add_scaled, build, drop_zeros, linear
from tensorc.arith.bounds import Domain, exact, nonnegative, range_of_form
from tensorc.arith.division import Form
from tensorc.dtypes import bool_, int64
from tensorc.ir.expr import EQ, GE, GT, LE, LT, NE, Compare, Const, Expr, FloorDiv

Operator = Literal["<=", ">=", "==", "!="]
_PLAIN: dict[type[Compare], Operator] = {LE: "<=", GE: ">=", EQ: "==", NE: "!="}
_OPPOSITE: dict[Operator, Operator] = {"<=": ">=", ">=": "<=", "==": "==", "!=": "!="}


@dataclass(frozen=True, slots=True)
class Comparison:
    """terms <operator> bound, or a known truth where `holds` is not None."""

    terms: Terms
    operator: Operator
    bound: int
    holds: bool | None = None

    @staticmethod
    def of(cls: type[Compare], a: Form, b: Form) -> Comparison:
        """The comparison of two forms."""
        terms = dict(a[0])
        add_scaled(terms, b[0], -1)
        bound = b[1] - a[1]
        if cls is LT:  # D < c  ->  D <= c - 1
            return Comparison(drop_zeros(terms), "<=", bound - 1)
        if cls is GT:
            return Comparison(drop_zeros(terms), ">=", bound + 1)
        return Comparison(drop_zeros(terms), _PLAIN[cls], bound)

    def simplified(self, domain: Domain) -> Comparison:
        """The canonical comparison that holds at the same places of the domain."""
        holds = self._decided(domain)
        if holds is not None:
            return Comparison({}, "==", 0, holds)
        if next(iter(self.terms.values())) < 0:  # -D <= c  ->  D >= -c
            terms = {atom: -scale for atom, scale in self.terms.items()}
            return Comparison(terms, _OPPOSITE[self.operator], -self.bound).simplified(domain)
        common = gcd(*self.terms.values())
        if common > 1:
            return self._divided(common).simplified(domain)
        if self.operator in ("<=", ">="):
            return self._without_low_part(domain) or self._without_quotient(domain) or self
        return self

    def _decided(self, domain: Domain) -> bool | None:
        terms, bound = self.terms, self.bound
        if not terms:
            return {"<=": bound >= 0, ">=": bound <= 0, "==": bound == 0, "!=": bound != 0}[self.operator]
        opposite = {atom: -scale for atom, scale in terms.items()}
        if self.operator == "<=":
            if nonnegative(opposite, bound, domain):
                return True
            return False if nonnegative(terms, -bound - 1, domain) else None
        if self.operator == ">=":
            if nonnegative(terms, -bound, domain):
                return True
            return False if nonnegative(opposite, bound - 1, domain) else None
        equal = self.operator == "=="
        if nonnegative(terms, -bound - 1, domain) or nonnegative(opposite, bound - 1, domain):
            return not equal
        if nonnegative(terms, -bound, domain) and nonnegative(opposite, bound, domain):
            return equal
        return None

    def _divided(self, common: int) -> Comparison:
        """g*D <= c  ->  D <= c // g; g*D >= c  ->  D >= ceil(c / g); g*D == c needs that g divides c."""
        terms = {atom: scale // common for atom, scale in self.terms.items()}
        if self.operator == "<=":
            return Comparison(terms, "<=", self.bound // common)
        if self.operator == ">=":
            return Comparison(terms, ">=", -(-self.bound // common))
        if self.bound % common:
            return Comparison({}, "==", 0 if self.operator == "!=" else 1)
        return Comparison(terms, self.operator, self.bound // common)

    def _without_low_part(self, domain: Domain) -> Comparison | None:
        """d*H + L <= c  ->  H <= (c - L) // d, where that is the same number for every L."""
        for d in sorted({scale if scale > 0 else -scale for scale in self.terms.values()} - {1}, reverse=True):
            low = {atom: scale for atom, scale in self.terms.items() if scale % d}
            lo, hi = range_of_form(low, 0, domain)
            if lo is None or hi is None:
                continue
            high = {atom: scale // d for atom, scale in self.terms.items() if scale % d == 0}
            if self.operator == "<=" and (self.bound - lo) // d == (self.bound - hi) // d:
                return Comparison(high, "<=", (self.bound - lo) // d).simplified(domain)
            if self.operator == ">=" and (lo - self.bound) // d == (hi - self.bound) // d:
                return Comparison(high, ">=", -((lo - self.bound) // d)).simplified(domain)
        return None

    def _without_quotient(self, domain: Domain) -> Comparison | None:
        """x // c <= q  ->  x <= c*q + c - 1; x // c >= q  ->  x >= c*q."""
        atom = next(iter(self.terms))
        if len(self.terms) > 1 or type(atom) is not FloorDiv or type(atom.b) is not Const or atom.b.value <= 0:
            return None
        terms, constant = linear(atom.a)
        if not exact(terms, constant, domain):
            return None
        c = atom.b.value
        bound = c * self.bound + (c - 1 if self.operator == "<=" else 0) - constant
        if not int64.min <= bound < int64.max:  # a number that no int64 is
            return None
        return Comparison(terms, self.operator, bound).simplified(domain)

    def to_expr(self, like: Compare, domain: Domain) -> Expr | None:
        """The comparison as an expression: what has negative multiples goes to the right, the constant too.

        None where a side of it may wrap, though none of `like` does: x < 3 - j is not x + j < 3 for the largest x.
        """
        if self.holds is not None:
            return Const(self.holds, bool_)
        left = {atom: scale for atom, scale in self.terms.items() if scale > 0}
        right = {atom: -scale for atom, scale in self.terms.items() if scale < 0}
        cls, constant = self._written(bool(right))
        if not (exact(left, 0, domain) and exact(right, constant, domain)):
            return None
        a, b = build(left, 0, like.a), build(right, constant, like.b)
        return like if type(like) is cls and a is like.a and b is like.b else cls(a, b)

    def _written(self, two_sided: bool) -> tuple[type[Compare], int]:
        """The operator and the constant to write: i < 8, i >= 8; between two terms i < n, i <= n, i >= n, i > n."""
        bound = self.bound
        match self.operator:
            case "<=":
                return (LE, 0) if two_sided and bound == 0 else (LT, bound + 1)
            case ">=":
                return (GT, 0) if two_sided and bound == 1 else (GE, bound)
            case "==":
                return EQ, bound
        return NE, bound
