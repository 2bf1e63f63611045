"""Simplification: each expression to a canonical form with the same value everywhere in a domain.

Scalar int64 expressions become linear forms over atoms (`division.py` has the rules of `//` and `%`); vectors of
them are simplified lane by lane and put together again; integers that wrap and floats keep their shape and get only
the rules that are exact for every value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tensorc.arith.affine import Terms, accumulate, add_scaled, build, drop_zeros, linear
from tensorc.arith.bounds import NEGATED, Domain, at_lane, exact, nonnegative, range_of_atom, range_of_form, settled
from tensorc.arith.compare import Comparison
from tensorc.arith.division import (
    Form,
    cancel,
    divide,
    divide_symbolic,
    remainder,
    remainder_symbolic,
)  # fmt: skip
from tensorc.arith.identities import HOLDS, INTEGER, by_ranges, of_floats, of_wrapping
from tensorc.dtypes import bool_, int64
from tensorc.ir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Binary,
    BitAnd,
    Broadcast,
    Cast,
    Compare,
    Const,
    Div,
    Expr,
    FloorDiv,
    IfThenElse,
    Load,
    Max,
    Min,
    Mod,
    Mul,
    Neg,
    Not,
    Or,
    Ramp,
    Select,
    ShiftRight,
    Sub,
    Var,
    cast,
    const,
    floordiv,
    index,
    is_const,
    logical_and,
    logical_not,
    logical_or,
    mod,
    neg,
)  # fmt: skip
from tensorc.ir.walk import children, rebuild, variables, walk_expr

Kind = TypeVar("Kind", bound=Expr)

_NOTHING = Domain()


def simplify(expr: Expr, domain: Domain = _NOTHING) -> Expr:
    """The canonical form of an expression of any dtype in a domain; the same object if nothing changes."""
    if type(expr) is Const:
        return expr
    domain = Domain() if domain is _NOTHING else canonical(domain)  # what a domain remembers is to go with it
    return Simplifier(domain).simplify(expr)


def canonical(domain: Domain) -> Domain:
    """The domain with those of its conditions that have `//` and the like in them in canonical form, too."""
    if not domain.opaque:
        return domain
    if domain._canonical is None:
        domain._canonical = domain  # while it is made, the conditions stay as they are
        plain = Domain({e: r for e, r in domain.ranges.items() if type(e) is Var})
        richer = domain
        for condition in domain.opaque:
            richer = richer.given(Simplifier(plain).simplify(condition), loads=True)
        richer._canonical = richer
        domain._canonical = richer
    return domain._canonical


class Simplifier:
    """Simplification in one domain, with a memory of what it did.

    `simplify` sends an expression by its kind; the methods below it return the new expression, which is the very
    same object where nothing changed.
    """

    __slots__ = ("_forms", "_memo", "domain")

    def __init__(self, domain: Domain):
        self.domain = domain
        self._memo: dict[Expr, Expr] = {}
        self._forms: dict[Expr, Form] = {}

    def simplify(self, expr: Expr) -> Expr:
        cls = type(expr)
        if cls is Const:
            return expr
        if type(expr) is Var:
            return self._variable(expr)
        found = self._memo.get(expr)
        if found is None:
            found = self._memo[expr] = self._by_kind(expr)
        return found

    def _by_kind(self, expr: Expr) -> Expr:
        dtype = expr.dtype
        if dtype is int64:
            return build(*self.form(expr), expr)
        if dtype is bool_ and self.domain.truths:
            known = self._truth(expr)
            if known is not expr:
                return known
        rule = _RULES.get(type(expr))
        if dtype.lanes > 1:
            found = self._vector(expr)
            if found is not None:
                return found
        if rule is not None:
            return rule(self, expr)
        expr = self._operands(expr)
        return self._fixed(expr) if dtype.is_int or dtype.is_bool else expr

    def _operands(self, expr: Kind) -> Kind:
        """The expression with its operands simplified."""
        if isinstance(expr, Binary):
            a, b = self.simplify(expr.a), self.simplify(expr.b)
            return expr if a is expr.a and b is expr.b else type(expr)(a, b)
        new: Any = rebuild(expr, tuple([self.simplify(operand) for operand in children(expr)]))
        return new  # of the same kind

    def _variable(self, var: Var) -> Expr:
        lo, hi = self.domain.ranges.get(var, (None, 1))
        if lo is not None and lo == hi:
            return const(lo, var.dtype)
        return self._truth(var) if var.dtype is bool_ else var

    def _fixed(self, expr: Expr) -> Expr:
        """x  ->  c  where x can only be c."""
        if type(expr) is Const or expr.dtype.lanes > 1:
            return expr
        if expr.dtype is bool_:
            return self._truth(expr)
        lo, hi = range_of_atom(expr, self.domain)
        return const(lo, expr.dtype) if lo is not None and lo == hi else expr

    def _truth(self, condition: Expr) -> Expr:
        known = self.domain.truths.get(condition)
        return condition if known is None else Const(known, bool_)

    def _given(self, condition: Expr) -> Simplifier:
        """The simplifier for what matters only where a condition holds."""
        inside = self.domain.given(condition, loads=True)
        return self if inside is self.domain else Simplifier(inside)

    # ---- int64: linear forms ----

    def form(self, expr: Expr) -> Form:
        """The canonical linear form of a scalar int64 expression."""
        terms: Terms = {}
        constant = accumulate(expr, 1, terms, self._leaf)
        terms = drop_zeros(terms)
        if not exact(terms, constant, self.domain):  # min(a, b) - a  ->  min(0, b - a) where b - a cannot wrap
            return terms, constant
        return cancel(terms, constant, self._range_of)

    def _range_of(self, terms: Terms, constant: int):
        return range_of_form(terms, constant, self.domain)

    def _leaf(self, atom: Expr, scale: int, terms: Terms) -> int:
        if type(atom) is Var:
            lo, hi = self.domain.ranges.get(atom, (None, 1))
            if lo is not None and lo == hi:
                return scale * lo
            terms[atom] = terms.get(atom, 0) + scale
            return 0
        found = self._forms.get(atom)
        if found is None:
            found = self._forms[atom] = self._atom(atom)
        add_scaled(terms, found[0], scale)
        return scale * found[1]

    def _atom(self, expr: Expr) -> Form:
        """The form of an operation that is neither a sum nor a product."""
        rule = _FORMS.get(type(expr))
        terms, constant = self._plain(expr) if rule is None else rule(self, expr)
        if len(terms) == 1 and not constant:
            (atom, scale), = terms.items()
            lo, hi = range_of_atom(atom, self.domain)
            if lo is not None and lo == hi:  # x  ->  c  where x can only be c
                return {}, scale * lo
            if scale == 1 and atom is not expr and atom == expr:
                return {expr: 1}, 0
        return terms, constant

    def _plain(self, expr: Expr) -> Form:
        expr = self._operands(expr)
        return ({}, expr.value) if type(expr) is Const else ({expr: 1}, 0)

    def _division(self, expr: FloorDiv | Mod) -> Form:
        number, divisor = self.form(expr.a), self.form(expr.b)
        quotient = type(expr) is FloorDiv
        if not exact(*number, self.domain) or not exact(*divisor, self.domain):
            return {type(expr)(build(*number, expr.a), build(*divisor, expr.b)): 1}, 0
        if not divisor[0]:
            return (divide if quotient else remainder)(*number, divisor[1], self._range_of)
        if not number[0] and not number[1]:  # 0 // d  ->  0, 0 % d  ->  0
            return {}, 0
        found = (divide_symbolic if quotient else remainder_symbolic)(number, divisor, self._range_of)
        return found or ({type(expr)(build(*number, expr.a), build(*divisor, expr.b)): 1}, 0)

    def _shift_right(self, expr: ShiftRight) -> Form:
        if type(expr.b) is Const and 0 <= expr.b.value < 63:  # x >> b  ->  x // 2**b
            return self._division(FloorDiv(expr.a, index(1 << expr.b.value)))
        return self._plain(expr)

    def _bit_and(self, expr: BitAnd) -> Form:
        mask = expr.b.value if type(expr.b) is Const else 0
        if mask > 0 and mask & (mask + 1) == 0 and mask < int64.max:  # x & (2**n - 1)  ->  x % 2**n
            return self._division(Mod(expr.a, index(mask + 1)))
        return self._plain(expr)

    def _choice(self, expr: Min | Max) -> Form:
        """min and max of any number of operands."""
        cls = type(expr)
        operands = _flat(expr, cls)
        forms = [form for operand in operands for form in _flat_form(self.form(operand), cls)]
        if not all([exact(*form, self.domain) for form in forms]):
            return self._plain(expr)
        kept: list[Form] = []
        for form in forms:  # min(a, b)  ->  a  where a <= b
            if not any([self._beats(other, form, cls) for other in kept]):
                kept = [other for other in kept if not self._beats(form, other, cls)]
                kept.append(form)
        if len(kept) == 1:
            return kept[0]
        common, kept = _common_part(kept)  # min(t + a, t + b)  ->  t + min(a, b)
        if len(kept) == len(operands) and not common:
            new = [build(*form, operand) for form, operand in zip(kept, operands)]
            if all([a is b for a, b in zip(new, operands)]):
                return {expr: 1}, 0
        else:
            new = [build(*form) for form in kept]
        result = new[0]
        for operand in new[1:]:
            result = cls(result, operand)
        terms = dict(common)
        terms[result] = terms.get(result, 0) + 1
        return terms, 0

    def _beats(self, a: Form, b: Form, cls) -> bool:
        """Whether min(a, b), or max, is always a."""
        if cls is Max:
            a, b = b, a
        terms = dict(b[0])
        add_scaled(terms, a[0], -1)
        return nonnegative(drop_zeros(terms), b[1] - a[1], self.domain)

    def _selection(self, expr: Select | IfThenElse) -> Form:
        new = self._select(expr)
        return ({new: 1}, 0) if type(new) is type(expr) else self.form(new)

    def _cast_index(self, expr: Cast) -> Form:
        new = self._cast(expr)
        return self._fixed_form(new) if type(new) is Cast else self.form(new)

    def _fixed_form(self, expr: Expr) -> Form:
        return {expr: 1}, 0

    # ---- bool ----

    def _compare(self, expr: Compare) -> Expr:
        if expr.a.dtype is int64:
            return self._compare_index(expr)
        expr = self._operands(expr)
        a, b = expr.a, expr.b
        if type(a) is Const and type(b) is Const:
            return Const(HOLDS[type(expr)](a.value, b.value), bool_)
        if a.dtype.lanes > 1 or a.dtype.is_float:
            return expr if a.dtype.lanes > 1 else self._truth(expr)
        if a.dtype.is_bool:
            return self._compare_bools(expr)
        if a == b:  # x < x  ->  false, x <= x  ->  true
            return Const(HOLDS[type(expr)](0, 0), bool_)
        decided = by_ranges(expr, range_of_atom(a, self.domain), range_of_atom(b, self.domain))
        return self._truth(expr) if decided is None else decided

    def _compare_bools(self, expr: Compare) -> Expr:
        for value, other in ((expr.a, expr.b), (expr.b, expr.a)):
            if type(value) is Const and type(expr) in (EQ, NE):  # x == true  ->  x, x == false  ->  not x
                same = value.value == (type(expr) is EQ)
                return other if same else self.simplify(logical_not(other))
        return self._truth(expr)

    def _compare_index(self, expr: Compare) -> Expr:
        a, b = self.form(expr.a), self.form(expr.b)
        if not (exact(*a, self.domain) and exact(*b, self.domain)):
            known = Comparison.of(type(expr), settled(*a, self.domain), settled(*b, self.domain))
            known = known.simplified(self.domain)
            return self._truth(self._operands(expr)) if known.holds is None else Const(known.holds, bool_)
        found = Comparison.of(type(expr), a, b).simplified(self.domain).to_expr(expr, self.domain)
        if found is None:
            found = self._operands(expr)
        return found if type(found) is Const else self._truth(found)

    def _not(self, expr: Not) -> Expr:
        value = self.simplify(expr.value)
        cls = type(value)
        if cls is Not or cls is Const:
            return logical_not(value)
        # not a < b  ->  a >= b
        if isinstance(value, Compare) and (not value.a.dtype.is_float or cls is EQ or cls is NE):
            return self.simplify(NEGATED[type(value)](value.a, value.b))
        if type(value) is And:  # not (a and b)  ->  not a or not b
            return self.simplify(Or(logical_not(value.a), logical_not(value.b)))
        if type(value) is Or:
            return self.simplify(And(logical_not(value.a), logical_not(value.b)))
        return expr if value is expr.value else Not(value)

    def _logic(self, expr: And | Or) -> Expr:
        """Conjunctions and disjunctions of any number of operands, each simplified where it matters.

        In `a and b`, b matters only where a holds, and a holds anyway where b implies it; likewise for `or`, with
        everything negated.
        """
        cls = type(expr)
        if expr.dtype.lanes > 1:
            return self._logic_lanes(expr)
        operands = _flat(expr, cls)
        absorbing = cls is Or  # the value of one operand that decides the whole
        kept: list[Expr] = []
        inside = self
        for operand in operands:
            here = self if _reads(operand) else inside
            for part in _flat(here.simplify(operand), cls):
                if type(part) is Const:
                    if part.value is absorbing:
                        return part
                    continue
                if part in kept:
                    continue
                holds = logical_not(part) if absorbing else part
                kept = self._not_implied(kept, holds, absorbing)
                kept.append(part)
                inside = inside._given(holds)
        if len(kept) == len(operands) and all([a is b for a, b in zip(kept, operands)]):
            return self._truth(expr)
        return self._truth((logical_or if absorbing else logical_and)(*kept))

    def _not_implied(self, kept: list[Expr], condition: Expr, absorbing: bool) -> list[Expr]:
        """The conditions that a further one does not settle; it tells of those that share a variable with it only."""
        about = variables(condition)
        near = {part for part in kept if not about.isdisjoint(variables(part))}
        if not near:
            return kept
        inside = self._given(condition)
        return [part for part in kept if part not in near or not is_const(inside.simplify(part), not absorbing)]

    def _logic_lanes(self, expr: And | Or) -> Expr:
        expr = self._operands(expr)
        for one, other in ((expr.a, expr.b), (expr.b, expr.a)):
            if type(one) is Broadcast and type(one.value) is Const:
                return one if one.value.value is (type(expr) is Or) else other
        return expr if expr.a != expr.b else expr.a

    # ---- choices, conversions, memory ----

    def _select(self, expr: Select | IfThenElse) -> Expr:
        condition = self.simplify(expr.condition)
        value = condition.value if type(condition) is Broadcast else condition
        if type(value) is Const:  # select(true, a, b)  ->  a
            return self.simplify(expr.true if value.value else expr.false)
        if type(condition) is Not:  # select(not c, a, b)  ->  select(c, b, a)
            return self.simplify(type(expr)(condition.value, expr.false, expr.true))
        scalar = condition.dtype is bool_
        guards = type(expr) is IfThenElse
        true = (self._where(condition, expr.true, guards) if scalar else self).simplify(expr.true)
        fails = logical_not(condition)
        false = (self._where(fails, expr.false, guards) if scalar else self).simplify(expr.false)
        if true == false:  # select(c, a, a)  ->  a
            return true
        if expr.dtype is bool_ and type(true) is Const and type(false) is Const:  # select(c, true, false)  ->  c
            return condition if true.value else self.simplify(logical_not(condition))
        return rebuild(expr, (condition, true, false))

    def _where(self, condition: Expr, expr: Expr, guards: bool) -> Simplifier:
        """What to simplify an expression by whose value matters only where a condition holds.

        Unless the condition guards it, it is evaluated everywhere, and its loads must stay in their buffers.
        """
        return self._given(condition) if guards or not _reads(expr) else self

    def _cast(self, expr: Cast) -> Expr:
        value = self.simplify(expr.value)
        if value.dtype is expr.dtype:
            return value
        if type(value) is Const:
            return cast(value, expr.dtype)
        if type(value) is Broadcast:  # cast(broadcast(x))  ->  broadcast(cast(x))
            return Broadcast(self.simplify(cast(value.value, expr.dtype.scalar)), value.lanes)
        new = expr if value is expr.value else Cast(value, expr.dtype)
        return self._fixed(new) if expr.dtype.is_int and expr.dtype is not int64 else new

    def _load(self, expr: Load) -> Expr:
        new = self._operands(expr)
        mask = new.mask
        if mask is not None and is_const(mask.value if type(mask) is Broadcast else mask, True):
            return Load(new.buffer, new.indices)
        return new

    def _load_index(self, expr: Load) -> Form:
        return {self._load(expr): 1}, 0

    # ---- arithmetic that wraps or rounds ----

    def _arithmetic(self, expr: Binary) -> Expr:
        """Operations on floats, and on integers that may wrap: only what holds for every value."""
        expr = self._operands(expr)
        a, b = expr.a, expr.b
        dtype = expr.dtype
        if type(a) is Broadcast and type(b) is Broadcast:  # broadcast(a) + broadcast(b)  ->  broadcast(a + b)
            return Broadcast(self.simplify(type(expr)(a.value, b.value)), a.lanes)
        if dtype.is_float:
            return of_floats(expr)
        new = INTEGER[type(expr)](a, b) if type(expr) in INTEGER and dtype.lanes == 1 else expr
        if type(new) is not type(expr):
            return new
        if (new.a, new.b) == (a, b):
            new = expr
        return self._fixed(of_wrapping(new))

    def _negation(self, expr: Neg) -> Expr:
        expr = self._operands(expr)
        value = expr.value
        if type(value) is Neg:  # -(-x)  ->  x
            return value.value
        if type(value) is Broadcast:
            return Broadcast(self.simplify(Neg(value.value)), value.lanes)
        return neg(value) if type(value) is Const else self._fixed(expr) if expr.dtype.is_int else expr

    # ---- vectors ----

    def _vector(self, expr: Expr) -> Expr | None:
        """A vector of int64, or a comparison of two, from what it is in one lane; None if it is not regular."""
        kind = type(expr)
        operand = expr.a if isinstance(expr, Compare) else expr
        if operand.dtype.scalar is not int64 or kind in (Load, Select, IfThenElse, Cast):
            return None
        lanes = expr.dtype.lanes
        lane = Var("lane")
        inside = Simplifier(self.domain.bind(lane, 0, lanes))
        scalar = inside.simplify(at_lane(expr, lane))
        if expr.dtype.is_bool:
            return None if _mentions(scalar, lane) else Broadcast(scalar, lanes)
        terms, constant = linear(scalar)
        steps: Terms = {atom: scale for atom, scale in terms.items() if atom is lane}
        rest = {atom: scale for atom, scale in terms.items() if atom is not lane}
        for atom in [atom for atom in rest if type(atom) is Mul and lane in _flat(atom, Mul)]:
            others = _flat(atom, Mul)
            others.remove(lane)
            stride = others[0]
            for other in others[1:]:
                stride = Mul(stride, other)
            steps[stride] = steps.get(stride, 0) + rest.pop(atom)
        if any([_mentions(atom, lane) for atom in (*rest, *steps) if atom is not lane]):
            return self._divided_ramp(expr) if isinstance(expr, (FloorDiv, Mod)) else None
        step = steps.pop(lane, 0)
        base = build(rest, constant)
        new = Ramp(base, build(steps, step), lanes) if steps or step else Broadcast(base, lanes)
        return expr if new == expr else new


    def _divided_ramp(self, expr: FloorDiv | Mod) -> Expr | None:
        """ramp(b, s, n) // c  ->  broadcast(b // c, n), where b % c + s*(n - 1) is known to be in [0, c)."""
        ramp, divisor = self.simplify(expr.a), self.simplify(expr.b)
        if type(ramp) is not Ramp or type(ramp.stride) is not Const or type(divisor) is not Broadcast:
            return None
        if type(divisor.value) is not Const or divisor.value.value <= 0:
            return None
        first = self.simplify(mod(ramp.base, divisor.value))
        lo, hi = self._range_of(*linear(first))
        reach = ramp.stride.value * (ramp.lanes - 1)
        if lo is None or hi is None or lo + min(reach, 0) < 0 or hi + max(reach, 0) >= divisor.value.value:
            return None
        if type(expr) is Mod:
            return Ramp(first, ramp.stride, ramp.lanes)
        return Broadcast(self.simplify(floordiv(ramp.base, divisor.value)), ramp.lanes)


def _mentions(expr: Expr, var: Var) -> bool:
    return expr is var or any([_mentions(operand, var) for operand in children(expr)])


def _flat(expr: Expr, cls) -> list[Expr]:
    """The operands of nested operations of one kind, from left to right."""
    return [*_flat(expr.a, cls), *_flat(expr.b, cls)] if isinstance(expr, Binary) and type(expr) is cls else [expr]


def _flat_form(form: Form, cls) -> list[Form]:
    """The forms of the operands of a form that is nothing but nested operations of one kind; else itself."""
    terms, constant = form
    if len(terms) == 1 and not constant:
        (atom, scale), = terms.items()
        if type(atom) is cls and scale == 1:
            return [linear(operand) for operand in _flat(atom, cls)]
    return [form]


def _common_part(forms: list[Form]) -> tuple[Terms, list[Form]]:
    """The terms that all forms have alike, and the forms without them."""
    first = forms[0][0]
    common = {atom: k for atom, k in first.items() if all([form[0].get(atom) == k for form in forms[1:]])}
    if not common:
        return common, forms
    return common, [({a: k for a, k in terms.items() if a not in common}, constant) for terms, constant in forms]


def _reads(expr: Expr) -> bool:
    return any(type(e) is Load for e in walk_expr(expr))


def _ramp(s: Simplifier, expr: Ramp) -> Expr:
    new = s._operands(expr)
    return Broadcast(new.base, new.lanes) if is_const(new.stride, 0) else new


_FORMS: dict[type, Callable[..., Form]] = {
    FloorDiv: Simplifier._division,
    Mod: Simplifier._division,
    ShiftRight: Simplifier._shift_right,
    BitAnd: Simplifier._bit_and,
    Min: Simplifier._choice,
    Max: Simplifier._choice,
    Select: Simplifier._selection,
    IfThenElse: Simplifier._selection,
    Cast: Simplifier._cast_index,
    Load: Simplifier._load_index,
}

_RULES: dict[type, Callable[..., Expr]] = {
    **dict.fromkeys((EQ, NE, LT, LE, GT, GE), Simplifier._compare),
    **dict.fromkeys((Add, Sub, Mul, Div, FloorDiv, Mod, Min, Max), Simplifier._arithmetic),
    And: Simplifier._logic,
    Or: Simplifier._logic,
    Not: Simplifier._not,
    Neg: Simplifier._negation,
    Select: Simplifier._select,
    IfThenElse: Simplifier._select,
    Cast: Simplifier._cast,
    Load: Simplifier._load,
    Ramp: _ramp,
}
