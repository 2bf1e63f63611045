"""What is known of the values of expressions at a place in a program: ranges of atoms, and linear facts.

Bounds come from interval arithmetic over linear forms, sharpened by Fourier-Motzkin elimination: where a fact says
f >= 0, the expression e is at least e - k*f for every k > 0, and k is chosen so that an atom of e cancels. "Don't
know" (None, False) is always a right answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from tensorc.arith.affine import Terms, add_scaled, drop_zeros, factors, linear, multiply
from tensorc.arith.intervals import UNKNOWN, Range, hull, meet, operation, ordered, within
from tensorc.arith.wrapping import LARGEST, is_value, is_wild, wrapped
from tensorc.dtypes import bool_, int64
from tensorc.errors import ExpressionError
from tensorc.ir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    And,
    Broadcast,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    FloorDiv,
    IfThenElse,
    Load,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    Ramp,
    Select,
    Var,
    as_index,
    index,
    logical_not,
    sub,
)  # fmt: skip
from tensorc.ir.intrinsic import TABLE
from tensorc.ir.walk import children, rebuild, uses, walk_expr

Fact = tuple[Terms, int]  # terms + constant >= 0


@dataclass(frozen=True, slots=True)
class Interval:
    """The integers from `lo` to `hi`, both included; None is unbounded."""

    lo: int | None
    hi: int | None


class Domain:
    """What holds at a place in a program. Immutable: `bind` and `given` return domains that know more.

    `ranges` gives atoms their numeric ranges, `facts` are linear forms that are at least 0, and `truths` are
    conditions known to hold (True) or not to hold (False).
    """

    __slots__ = ("_about", "_canonical", "_memo", "_own", "_search", "_sizes", "facts", "opaque", "ranges", "truths")

    def __init__(
        self,
        ranges: dict[Expr, Range] | None = None,
        facts: tuple[Fact, ...] = (),
        truths: dict[Expr, bool] | None = None,
        opaque: tuple[Expr, ...] = (),
    ):
        self.ranges = {} if ranges is None else ranges
        self.facts = facts
        self.truths = {} if truths is None else truths
        self.opaque = opaque  # the conditions with atoms that simplification may change
        self._memo: dict[Expr, Range] = {}
        self._sizes: dict[Expr, int | None] = {}
        self._about: dict[Expr, list[Fact]] | None = None
        self._own: dict[Expr, list[Fact]] = {}
        self._search = _Search()
        self._canonical: Domain | None = None

    def bind(self, var: Var, start: Expr | int, extent: Expr | int) -> Domain:
        """The domain in which `var` is one of start, start + 1, ... start + extent - 1.

        It is the inside of a loop: that the extent is at least 1 is taken as known, too.
        """
        if var in self.ranges:
            return self._forget(var).bind(var, start, extent)
        start = start.value if type(start) is Const else start
        extent = extent.value if type(extent) is Const else extent
        if type(start) is int and type(extent) is int:
            return self._with_range(var, (start, start + extent - 1))
        first, below = value_form(as_index(start), self), value_form(as_index(extent), self)
        last = dict(first[0])
        add_scaled(last, below[0], 1)
        last, end = drop_zeros(last), first[1] + below[1] - 1
        domain = self._with_range(var, (range_of_form(*first, self)[0], range_of_form(last, end, self)[1]))
        if first[0]:  # var - start >= 0
            domain = domain._with_fact({var: 1, **{atom: -scale for atom, scale in first[0].items()}}, -first[1])
        if last:  # start + extent - 1 - var >= 0
            domain = domain._with_fact({**last, var: -1}, end)
        if below[0]:  # extent - 1 >= 0
            domain = domain._with_fact(below[0], below[1] - 1)
        return domain

    def given(self, condition: Expr, loads: bool = False) -> Domain:
        """The domain in which a condition holds, too. Conjunctions are taken apart, comparisons become facts.

        A part that reads memory is left out, since a store may change what it reads; with `loads` it is kept, which
        is right where the memory stays as it is, such as inside one expression.
        """
        match condition:
            case And(a, b):
                return self.given(a, loads).given(b, loads)
            case Not(Or(a, b)):
                return self.given(logical_not(a), loads).given(logical_not(b), loads)
            case Const():
                return self
        if condition.dtype is not bool_ or (not loads and _reads(condition)):
            return self
        holds = type(condition) is not Not
        truth = condition.value if type(condition) is Not else condition
        if self.truths.get(truth) is holds:
            return self
        domain = self._copy(truths={**self.truths, truth: holds})
        if not isinstance(truth, Compare) or not truth.a.dtype.is_int:
            return domain._copy(opaque=(*self.opaque, condition)) if isinstance(truth, Or | And) else domain
        domain = domain._with_comparison(_OPERATORS[type(truth) if holds else NEGATED[type(truth)]], truth.a, truth.b)
        if domain is not self and not all(type(e) is Var for e in _atoms(truth)):
            domain = domain._copy(opaque=(*self.opaque, condition))
        return domain

    def _copy(self, ranges=None, facts=None, truths=None, opaque=None) -> Domain:
        domain = Domain(
            self.ranges if ranges is None else ranges,
            self.facts if facts is None else facts,
            self.truths if truths is None else truths,
            self.opaque if opaque is None else opaque,
        )
        if self._search.nesting:
            domain._search = self._search
        return domain

    def _forget(self, var: Var) -> Domain:
        """The domain without all that mentions a variable, which is about to stand for something else."""

        def keep(expr: Expr) -> bool:
            return not uses(expr, (var,))

        return Domain(
            {atom: found for atom, found in self.ranges.items() if keep(atom)},
            tuple([fact for fact in self.facts if all(map(keep, fact[0]))]),
            {condition: holds for condition, holds in self.truths.items() if keep(condition)},
            tuple(filter(keep, self.opaque)),
        )

    def _with_range(self, atom: Expr, found: Range) -> Domain:
        return self._copy({**self.ranges, atom: ordered(*found)})

    def _with_comparison(self, operator: str, a: Expr, b: Expr) -> Domain:
        if a.dtype is not int64:
            return self._with_typed(operator, a, b)
        left, right = value_form(a, self), value_form(b, self)
        terms = dict(left[0])
        add_scaled(terms, right[0], -1)
        terms, constant = drop_zeros(terms), left[1] - right[1]
        if not terms:
            return self
        opposite = {atom: -scale for atom, scale in terms.items()}
        if operator == "!=":  # a number that differs from its least value is larger
            lo, hi = range_of_form(terms, constant, self)
            domain = self._with_fact(terms, constant - 1) if lo == 0 else self
            return domain._with_fact(opposite, -constant - 1) if hi == 0 else domain
        domain = self
        if operator in (">", ">=", "=="):  # a - b >= 0, or 1
            domain = domain._with_fact(terms, constant - (operator == ">"))
        if operator in ("<", "<=", "=="):
            domain = domain._with_fact(opposite, -constant - (operator == "<"))
        return domain

    def _with_typed(self, operator: str, a: Expr, b: Expr) -> Domain:
        """A comparison of integers that wrap narrows each side by the other's range."""
        if a.dtype.lanes != 1 or operator == "!=":
            return self
        domain = self
        strict = operator in ("<", ">")
        for one, other, below in ((a, b, "<"), (b, a, ">")):
            lo, hi = range_of(other, self)
            most = hi - strict if hi is not None and (operator == "==" or operator[0] == below) else None
            least = lo + strict if lo is not None and (operator == "==" or operator[0] != below) else None
            if type(one) is not Const:
                domain = domain._with_range(one, meet(range_of(one, domain), (least, most)))
        return domain

    def _with_fact(self, terms: Terms, constant: int) -> Domain:
        """The domain in which terms + constant >= 0, the ranges of its atoms narrowed by it."""
        ranges = dict(self.ranges)
        for atom, scale in terms.items():
            rest = 0 if len(terms) == 1 else _without(terms, atom, self)
            if rest is None:
                continue
            # scale * atom >= -(constant + the most that the rest can be)
            bound = -(constant + rest)
            new = (-(-bound // scale), None) if scale > 0 else (None, bound // scale)
            ranges[atom] = meet(ranges.get(atom, UNKNOWN), new)
        facts = self.facts if len(terms) == 1 else (*self.facts, (terms, constant))
        domain = self._copy(ranges, facts)
        for atom, scale in terms.items():
            if type(atom) is (Min if scale > 0 else Max):  # min(a, b) >= c  is  a >= c and b >= c
                for operand in (atom.a, atom.b):
                    form, offset = _replaced(terms, constant, atom, operand, domain)
                    domain = domain._with_fact(form, offset) if form else domain
                return domain
        if len(terms) == 1:
            return domain._with_numerator(*next(iter(terms.items())), constant)._with_factors(terms, constant)
        return domain

    def _with_factors(self, terms: Terms, constant: int) -> Domain:
        """A product of at least 1 whose factors are 0 or more has factors of at least 1."""
        (atom, scale), = terms.items()
        if type(atom) is not Mul or scale < 0 or constant >= 0:
            return self
        known = factors(atom)
        negative = [factor for factor in known if (range_of_atom(factor, self)[0] or 0) < 0]
        unknown = [factor for factor in known if range_of_atom(factor, self)[0] is None]
        if negative or len(unknown) > 1:
            return self  # two of them may be negative
        ranges = {factor: meet(range_of_atom(factor, self), (1, None)) for factor in known}
        return self._copy({**self.ranges, **ranges})

    def _with_numerator(self, atom: Expr, scale: int, constant: int) -> Domain:
        """A bound of x // c bounds x."""
        if type(atom) is not FloorDiv or type(atom.b) is not Const or atom.b.value <= 0:
            return self
        terms, offset = value_form(atom.a, self)
        divisor = atom.b.value
        if scale > 0:  # x // c >= q  is  x >= c * q
            return self._with_fact(terms, offset - divisor * -(constant // scale)) if terms else self
        # x // c <= q  is  x <= c * q + c - 1
        opposite = {term: -coefficient for term, coefficient in terms.items()}
        return self._with_fact(opposite, divisor * (constant // -scale) + divisor - 1 - offset) if terms else self

    def knows(self, atom: Expr) -> bool:
        """Whether a condition tells something of this very atom."""
        return atom in self.ranges or atom in self._mentions()

    def _mentions(self) -> dict[Expr, list[Fact]]:
        """For each atom the facts that mention it."""
        if self._about is None:
            self._about = {}
            for fact in self.facts:
                for mentioned in fact[0]:
                    self._about.setdefault(mentioned, []).append(fact)
        return self._about

    def about(self, atom: Expr) -> list[Fact]:
        """The facts that mention an atom, with those that its own operation gives."""
        known = self._mentions().get(atom)
        if type(atom) is Var:
            return known or []
        own = self._own.get(atom)
        if own is None:
            self._own[atom] = []  # while they are looked for, it has none
            with self._search:
                self._own[atom] = own = _own_facts(atom, self)
        return own + known if known else own


_DEPTH = 4  # how many facts one bound may combine
_NESTING = 6  # how deep the search for one range may call for others before it takes no more facts
_STEPS = 300  # how many forms one search may look at before it takes no more facts


class _Search:
    """How far a search for a bound has come, with all those that it calls for: what keeps it short."""

    __slots__ = ("left", "nesting")

    def __init__(self):
        self.nesting = 0
        self.left = 0

    def __enter__(self) -> None:
        if not self.nesting:
            self.left = _STEPS
        self.nesting += 1

    def __exit__(self, *error) -> None:
        self.nesting -= 1


_OPERATORS = {EQ: "==", NE: "!=", LT: "<", LE: "<=", GT: ">", GE: ">="}
NEGATED = {EQ: NE, NE: EQ, LT: GE, GE: LT, GT: LE, LE: GT}


def _reads(expr: Expr) -> bool:
    return any(type(e) is Load for e in walk_expr(expr))


def _atoms(comparison: Compare) -> set[Expr]:
    return {*linear(comparison.a)[0], *linear(comparison.b)[0]}


def _without(terms: Terms, atom: Expr, domain: Domain) -> int | None:
    """The most that a form can be but for one atom, by the ranges alone."""
    total = 0
    for other, scale in terms.items():
        if other is not atom:
            most = range_of_atom(other, domain)[1 if scale > 0 else 0]
            if most is None:
                return None
            total += scale * most
    return total


def bounds(expr: Expr, domain: Domain) -> Interval:
    """The least interval found that holds every value (of every lane) of an integer or bool expression.

    Raises ExpressionError for a float.
    """
    if expr.dtype.is_float:
        raise ExpressionError(f"bounds: {expr.dtype} has none; ask for an integer expression")
    if expr.dtype.lanes > 1:
        expr, domain = scalarise(expr, domain)
    if type(expr) is Var and not domain.facts:
        return Interval(*range_of_atom(expr, domain))
    return Interval(*range_of(expr, domain))


def scalarise(expr: Expr, domain: Domain, lane: Var | None = None) -> tuple[Expr, Domain]:
    """One lane of a vector expression, its number a new variable of the domain."""
    lane = Var("lane") if lane is None else lane
    return at_lane(expr, lane), domain.bind(lane, 0, expr.dtype.lanes)


def at_lane(expr: Expr, lane: Expr) -> Expr:
    """What a vector expression is in one lane. Horizontal reductions in it are left as they are."""
    match expr:
        case Ramp(base, stride):
            return base + Cast(lane, base.dtype) * stride if base.dtype is not int64 else base + lane * stride
        case Broadcast(value):
            return value
        case Call(name) if expr.dtype.lanes == 1 or TABLE[name].whole:
            return expr
    operands = tuple([at_lane(operand, lane) for operand in children(expr)])
    if type(expr) is Call:
        return Call(expr.name, operands, expr.dtype.scalar)
    return rebuild(expr, operands)


def range_of(expr: Expr, domain: Domain) -> Range:
    """The range of a scalar integer or bool expression, by ranges and facts."""
    if expr.dtype is not int64:
        return range_of_atom(expr, domain)
    return range_of_form(*value_form(expr, domain), domain)


def range_of_form(terms: Terms, constant: int, domain: Domain) -> Range:
    """The range of a linear form, by ranges and facts."""
    if not domain.facts and all([type(atom) is Var for atom in terms]):
        return range_of_variables(terms, constant, domain.ranges)
    with domain._search:
        return ordered(lower(terms, constant, domain), upper(terms, constant, domain))


def range_of_variables(terms: Terms, constant: int, ranges: dict[Expr, Range]) -> Range:
    """The range of a linear form of variables by their ranges alone."""
    lo: int | None = constant
    hi: int | None = constant
    for atom, scale in terms.items():
        least, most = ranges.get(atom, UNKNOWN)
        if scale < 0:
            least, most = most, least
        lo = None if lo is None or least is None else lo + scale * least
        hi = None if hi is None or most is None else hi + scale * most
    return lo, hi


def range_of_atom(atom: Expr, domain: Domain) -> Range:
    """The range of an atom by itself."""
    known = domain.ranges.get(atom)
    if type(atom) is Var:
        if known is None or atom.dtype is not int64:
            return within(known or UNKNOWN, atom.dtype)
        return known
    found = domain._memo.get(atom)
    if found is None:
        domain._memo[atom] = UNKNOWN if known is None else known  # while it is looked for
        with domain._search:
            match atom:
                case Select(condition, true, false) | IfThenElse(condition, true, false):
                    holds = range_of(true, domain.given(condition, loads=True))
                    found = hull(holds, range_of(false, domain.given(logical_not(condition), loads=True)))
                case _:
                    found = operation(atom, lambda operand: range_of(operand, domain))
        if known is not None:
            found = meet(found, known)
        domain._memo[atom] = found
    return found


def upper(terms: Terms, constant: int, domain: Domain) -> int | None:
    """The least upper bound found of a linear form."""
    least = lower({atom: -scale for atom, scale in terms.items()}, -constant, domain)
    return None if least is None else -least


def lower(
    terms: Terms, constant: int, domain: Domain, enough: int | None = None, depth: int = _DEPTH
) -> int | None:
    """The greatest lower bound found of a linear form; the search ends once it is `enough`."""
    best, loose = _by_ranges(terms, constant, domain)
    search = domain._search
    search.left -= 1
    depth = min(depth, _NESTING - search.nesting) if search.left > 0 else 0
    if depth <= 0 or not terms or (enough is not None and best is not None and best >= enough):
        return best
    if not domain.facts and all([type(atom) is Var for atom in terms]):
        return best
    if loose is None:
        depth = min(depth, 2)
    plain = all([type(atom) is Var for atom in terms])
    for atom in terms if loose is None else (loose,):
        for fact in _facts_for(atom, terms, domain):
            if loose is None and not _related(fact[0], atom, terms, plain):
                continue  # it cannot beat the ranges, which know it already
            found = _eliminate(terms, constant, atom, fact, domain, enough, depth - 1)
            if found is not None and (best is None or found > best):
                best = found
                if enough is not None and best >= enough:
                    return best
    found = _by_cases(terms, constant, domain, enough, depth - 1) if len(terms) > 1 else None
    return found if best is None else best if found is None else max(found, best)


def _related(fact: Terms, atom: Expr, terms: Terms, plain: bool) -> bool:
    """Whether a fact about one atom of a form tells of others of them, too (or of what is inside of them)."""
    return any([other is not atom and (not plain or other in terms or type(other) is not Var) for other in fact])


def _facts_for(atom: Expr, terms: Terms, domain: Domain) -> list[Fact]:
    """The facts that mention an atom, with those by which other atoms of a form tell of it."""
    facts = domain.about(atom)
    for other in terms:
        if type(other) is not Var and other is not atom:
            facts = facts + [fact for fact in domain.about(other) if atom in fact[0] and fact not in facts]
    return facts


def _by_ranges(terms: Terms, constant: int, domain: Domain) -> tuple[int | None, Expr | None]:
    """The lower bound that the ranges of the atoms give, or None and the first atom without the range it takes."""
    total = constant
    ranges = domain.ranges
    for atom, scale in terms.items():
        found = ranges.get(atom, UNKNOWN) if type(atom) is Var else range_of_atom(atom, domain)
        least = found[0 if scale > 0 else 1]
        if least is None:
            return None, atom
        total += scale * least
    return total, None


def _eliminate(terms: Terms, constant: int, atom: Expr, fact: Fact, domain: Domain, enough, depth: int) -> int | None:
    """A lower bound of m*e - k*f, with m and k positive such that `atom` cancels, brought back to e."""
    scale, other = terms[atom], fact[0][atom]
    if (scale > 0) != (other > 0):
        return None
    common = gcd(scale, other)
    m, k = abs(other) // common, abs(scale) // common
    rest = {term: m * coefficient for term, coefficient in terms.items()}
    add_scaled(rest, fact[0], -k)
    need = None if enough is None else m * (enough - 1) + 1
    found = lower(drop_zeros(rest), m * constant - k * fact[1], domain, need, depth)
    return None if found is None else -(-found // m)


def _replaced(terms: Terms, constant: int, atom: Expr, value: Expr, domain: Domain) -> Fact:
    """A form with a value in the place of one of its atoms."""
    rest = dict(terms)
    scale = rest.pop(atom)
    form, offset = value_form(value, domain)
    add_scaled(rest, form, scale)
    return drop_zeros(rest), constant + scale * offset


def _by_cases(terms: Terms, constant: int, domain: Domain, enough, depth: int) -> int | None:
    """A form with a choice in it is at least the least of what it is for the alternatives."""
    for atom, scale in terms.items():
        if isinstance(atom, Min if scale > 0 else Max):
            cases = ((atom.a, domain), (atom.b, domain))
        elif scale < 0 and type(atom) is Call and _is_distance(atom, domain):  # |x| is x or -x
            cases = ((atom.args[0], domain), (sub(index(0), atom.args[0]), domain))
        elif isinstance(atom, (Select, IfThenElse)):
            otherwise = logical_not(atom.condition)
            cases = (
                (atom.true, domain.given(atom.condition, loads=True)),
                (atom.false, domain.given(otherwise, loads=True)),
            )
        else:
            continue
        least = None
        for value, inside in cases:
            found = lower(*_replaced(terms, constant, atom, value, inside), inside, enough, depth)
            if found is None:
                return None
            least = found if least is None else min(least, found)
        return least
    return None


def nonnegative(terms: Terms, constant: int, domain: Domain) -> bool:
    """Whether a linear form is proved to be at least 0."""
    with domain._search:
        found = lower(terms, constant, domain, enough=0)
    if found is not None and found >= 0:
        return True
    for atom, scale in terms.items():
        if type(atom) is FloorDiv and type(atom.b) is not Const and abs(scale) == 1:
            return _nonnegative_quotient(terms, constant, atom, scale, domain)
    return False


def _nonnegative_quotient(terms: Terms, constant: int, quotient: FloorDiv, scale: int, domain: Domain) -> bool:
    """For d > 0: x // d <= r where x < (r + 1) * d, and x // d >= -r where x >= -r * d."""
    divisor = value_form(quotient.b, domain)
    least = range_of_form(*divisor, domain)[0]
    if least is None or least < 1:
        return False
    numerator = value_form(quotient.a, domain)
    rest = {atom: coefficient for atom, coefficient in terms.items() if atom is not quotient}
    form, offset = multiply(rest, constant + (scale < 0), *divisor)
    form = dict(form)
    add_scaled(form, numerator[0], scale)
    return nonnegative(drop_zeros(form), offset + scale * numerator[1] - (scale < 0), domain)


def _own_facts(atom: Expr, domain: Domain) -> list[Fact]:
    """What an operation tells of its own value."""
    match atom:
        case FloorDiv(x, Const(c)) if c > 0:  # c * (x // c) <= x <= c * (x // c) + c - 1
            facts = [_difference(domain, x, atom, c, 0), _difference(domain, atom, x, 1, c - 1, c)]
            rest = Mod(x, atom.b)
            if domain.knows(rest):  # x - c * (x // c) == x % c
                facts += [_minus(facts[0], rest, 1, 0), _minus(facts[1], rest, -1, 1 - c)]
            return facts
        case Mod(x, divisor):
            facts = []
            least = range_of(divisor, domain)[0]
            if least is not None and least >= 1:
                if type(divisor) is not Const:  # x % d <= d - 1
                    facts.append(_difference(domain, divisor, atom, 1, -1))
                lo = range_of(x, domain)[0]
                if lo is not None and lo >= 0:  # x % d <= x
                    facts.append(_difference(domain, x, atom, 1, 0))
            return facts
        case Min(a, b):
            return [_difference(domain, a, atom, 1, 0), _difference(domain, b, atom, 1, 0)]
        case Max(a, b):
            facts = [_difference(domain, atom, a, 1, 0), _difference(domain, atom, b, 1, 0)]
            if facts[0][0].keys() == facts[1][0].keys():  # 2 * max(a, b) >= a + b, as of max(i - j, j - i)
                facts.append(_sum(*facts))
            return facts
        case Call(args=(x,)) if _is_distance(atom, domain):
            facts = [_difference(domain, atom, x, 1, 0), _difference(domain, atom, sub(index(0), x), 1, 0)]
            return [*facts, _sum(*facts)]
        case Mul():
            return _product_facts(atom, domain)
    return []


def _is_distance(atom: Call, domain: Domain) -> bool:
    """Whether an atom is |x| of an x that has a positive opposite."""
    return atom.name == "abs" and atom.dtype is int64 and exact(*linear(atom.args[0]), domain)


def _sum(a: Fact, b: Fact) -> Fact:
    terms = dict(a[0])
    add_scaled(terms, b[0], 1)
    return drop_zeros(terms), a[1] + b[1]


def _difference(domain: Domain, a: Expr, b: Expr, scale: int, constant: int, scale_a: int = 1) -> Fact:
    """The fact scale_a * a - scale * b + constant >= 0."""
    terms: Terms = {}
    (terms_a, constant_a), (terms_b, constant_b) = value_form(a, domain), value_form(b, domain)
    add_scaled(terms, terms_a, scale_a)
    add_scaled(terms, terms_b, -scale)
    return drop_zeros(terms), constant + scale_a * constant_a - scale * constant_b


def _minus(fact: Fact, atom: Expr, scale: int, constant: int) -> Fact:
    return {**fact[0], atom: fact[0].get(atom, 0) - scale}, fact[1] + constant


def _product_facts(atom: Mul, domain: Domain) -> list[Fact]:
    """A fact about one factor holds multiplied by the others, where these are at least 0."""
    parts = factors(atom)
    facts: list[Fact] = []
    for at, part in enumerate(parts):
        others: tuple[Terms, int] = ({}, 1)
        for other in parts[:at] + parts[at + 1 :]:
            least = range_of(other, domain)[0]
            if least is None or least < 0:
                break
            others = multiply(*others, *linear(other))
        else:
            lo, hi = range_of(part, domain)
            known = [] if type(part) is Mul else list(domain.about(part))
            known += [({part: 1}, -lo)] if lo is not None else []
            known += [({part: -1}, hi)] if hi is not None else []
            facts += [multiply(*fact, *others) for fact in known]
    # atoms of more factors than this one would call for facts about them in turn, without an end
    return [fact for fact in facts if atom in fact[0] and all([len(factors(e)) <= len(parts) for e in fact[0]])]


def exact(terms: Terms, constant: int, domain: Domain) -> bool:
    """Whether the value of a form surely is the exact sum, which does not leave int64."""
    if is_value(terms, constant):
        return True
    total = abs(constant)
    for atom, scale in terms.items():
        most = magnitude(atom, domain)
        if most is None:
            return False
        total += abs(scale) * most
    return total <= int64.max


def settled(terms: Terms, constant: int, domain: Domain) -> tuple[Terms, int]:
    """The form of a value: a sum if it is exact, else an atom of its own."""
    return (terms, constant) if exact(terms, constant, domain) else ({wrapped(terms, constant): 1}, 0)


def value_form(expr: Expr, domain: Domain) -> tuple[Terms, int]:
    """The form that the value of an expression surely is."""
    return settled(*linear(expr), domain)


def magnitude(atom: Expr, domain: Domain) -> int | None:
    """The most that an atom may be, its sign aside; None for any number of 64 bits."""
    if type(atom) is Var:
        lo, hi = domain.ranges.get(atom, UNKNOWN)
        if lo is not None and hi is not None:
            return max(abs(lo), abs(hi))
        if not atom.wraps:
            return LARGEST
    if atom not in domain._sizes:
        domain._sizes[atom] = None  # while it is looked for
        domain._sizes[atom] = _magnitude(atom, domain)
    return domain._sizes[atom]


def _magnitude(atom: Expr, domain: Domain) -> int | None:
    lo, hi = range_of_atom(atom, domain)
    if lo is not None and hi is not None:
        return max(abs(lo), abs(hi))
    if type(atom) is Mul:
        return _product_magnitude(atom, domain)
    is_operation = type(atom) is not Var and not is_wild(atom)
    if is_operation and all([_is_moderate(e, domain) for e in children(atom) if e.dtype is int64]):
        return LARGEST
    least, most = _end(atom, -1, lo, domain), _end(atom, 1, hi, domain)
    return None if least is None or most is None else max(least, most)


def _product_magnitude(atom: Mul, domain: Domain) -> int | None:
    """The product of sizes is a size, too."""
    known, is_size = 1, False
    for factor in factors(atom):
        most = magnitude(factor, domain)
        if most is None:
            return None
        if most == LARGEST:
            is_size = True
        else:
            known *= most
    return known * LARGEST if is_size else known


def _is_moderate(expr: Expr, domain: Domain) -> bool:
    terms, constant = linear(expr)
    return exact(terms, constant, domain) and all([magnitude(atom, domain) is not None for atom in terms])


def _end(atom: Expr, sign: int, known: int | None, domain: Domain) -> int | None:
    """How far from 0 one end of an atom may lie, by its range, or by a fact with nothing but sizes besides."""
    if known is not None:
        return abs(known)
    for terms, constant in domain._mentions().get(atom, ()):
        if terms[atom] * sign > 0:
            continue
        total = abs(constant)
        for other, scale in terms.items():
            if other == atom:
                continue
            lo, hi = range_of_atom(other, domain)
            if lo is not None and hi is not None:
                total += abs(scale) * max(abs(lo), abs(hi))
            elif not any([is_wild(e) for e in walk_expr(other)]):
                total += abs(scale) * LARGEST
            else:
                break
        else:
            return total
    return None
