"""Floor division and remainder of linear forms, and the sums in which they cancel.

Every rule is an identity of the integers; where it needs a range, `range_of` is asked. What a rule writes is computed
modulo 2**64, so that it writes only what surely fits (`_fits`). A form is a pair (terms,
constant). Throughout, N is the form divided, c > 0 the divisor, and N // c and N % c are taken apart in the same way:

    N = c*Q + R                 terms with multiples of c go to Q, what is left of the constant is in [0, c)
    R in [q*c, q*c + c)      -> R // c = q                       R % c = R - q*c
    R = d*H + L, d divides c,
    L in [k*d, k*d + d)      -> R // c = (H + k) // (c/d)        R % c = d*((H + k) % (c/d)) + L - k*d
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import gcd

from tensorc.arith.affine import Terms, add_scaled, build, drop_zeros, factors, product
from tensorc.arith.intervals import Range
from tensorc.arith.wrapping import is_value, is_wild, operand
from tensorc.dtypes import int64
from tensorc.ir.expr import Const, Expr, FloorDiv, Max, Min, Mod, index
from tensorc.ir.walk import walk_expr

Form = tuple[Terms, int]
RangeOf = Callable[[Terms, int], Range]


def divide(terms: Terms, constant: int, c: int, range_of: RangeOf) -> Form:
    """N // c."""
    if c == 0:
        return {}, 0
    if c < 0:  # x // -c  ->  -x // c
        if not _fits(_negative(terms), -constant, range_of) or -c > int64.max:
            return {FloorDiv(build(terms, constant), index(c)): 1}, 0
        return divide(_negative(terms), -constant, -c, range_of)
    quotient, rest, whole, constant = _multiples(terms, constant, c)
    if not rest:  # (c*Q + r) // c  ->  Q, for r in [0, c)
        return quotient, whole
    at = _one_quotient(rest, constant, c, range_of)
    if at is not None:  # (c*Q + R) // c  ->  Q + q
        return quotient, whole + at
    split = _split(rest, constant, c, range_of)
    if split is not None:  # (d*H + L) // c  ->  (H + k) // (c/d)
        d, high, k = split
        inner = divide(high, k, c // d, range_of)
    else:
        inner = _divide_atom(rest, constant, c, range_of)
    add_scaled(quotient, inner[0], 1)
    return drop_zeros(quotient), whole + inner[1]


def _divide_atom(terms: Terms, constant: int, c: int, range_of: RangeOf) -> Form:
    """N // c where only what the one atom of N is can help."""
    if len(terms) == 1:
        (atom, scale), = terms.items()
        if scale == 1 and isinstance(atom, (FloorDiv, Mod)) and type(atom.b) is Const:
            m = atom.b.value
            x = operand(atom.a)
            if x is not None and type(atom) is FloorDiv and m > 0 and m * c <= int64.max:
                moved = x[1] + m * constant  # (x // m + b) // c  ->  (x + m*b) // (m*c)
                if _fits(x[0], moved, range_of):
                    return divide(x[0], moved, m * c, range_of)
            # x % (c*m) // c  ->  x // c % m
            if x is not None and type(atom) is Mod and m > 0 and m % c == 0 and constant == 0:
                return remainder(*divide(*x, c, range_of), m // c, range_of)
    return {FloorDiv(build(terms, constant), index(c)): 1}, 0


def remainder(terms: Terms, constant: int, c: int, range_of: RangeOf) -> Form:
    """N % c."""
    if c == 0:
        return {}, 0
    if c < 0:  # x % -c  ->  -(-x % c)
        if not _fits(_negative(terms), -constant, range_of) or -c > int64.max:
            return {Mod(build(terms, constant), index(c)): 1}, 0
        found, offset = remainder(_negative(terms), -constant, -c, range_of)
        return _negative(found), -offset
    terms, constant = _without_mods(terms, constant, c, range_of)
    _, rest, _, constant = _multiples(terms, constant, c)
    if not rest:  # (c*Q + r) % c  ->  r
        return {}, constant
    at = _one_quotient(rest, constant, c, range_of)
    if at is not None:  # (c*Q + R) % c  ->  R - q*c
        return rest, constant - at * c
    split = _split(rest, constant, c, range_of)
    if split is None:
        return {Mod(build(rest, constant), index(c)): 1}, 0
    # (d*H + L) % c  ->  d*((H + k) % (c/d)) + L - k*d
    d, high, k = split
    inner, offset = remainder(high, k, c // d, range_of)
    return _exchange(rest, high, inner, d), constant - k * d + d * offset


def _without_mods(terms: Terms, constant: int, c: int, range_of: RangeOf) -> Form:
    """(a*(x % m) + N) % c  ->  (a*x + N) % c where c divides a*m."""
    for atom, scale in terms.items():
        if type(atom) is Mod and type(atom.b) is Const and atom.b.value and scale * atom.b.value % c == 0:
            x = operand(atom.a)
            if x is None:
                continue
            found, offset = _exchange(terms, (atom,), x[0], scale), constant + scale * x[1]
            # (a sum that wraps has the same remainder where c divides 2**64)
            if c & (c - 1) == 0 or _fits(found, offset, range_of):
                return _without_mods(found, offset, c, range_of)
    return terms, constant


def _exchange(terms: Terms, removed: Collection[Expr], more: Terms, scale: int) -> Terms:
    """The terms with `scale * more` where the first of those removed stood."""
    found: Terms = {}
    for atom, coefficient in terms.items():
        if atom not in removed:
            found[atom] = found.get(atom, 0) + coefficient
        elif more:
            add_scaled(found, more, scale)
            more = {}
    return drop_zeros(found)


def _fits(terms: Terms, constant: int, range_of: RangeOf) -> bool:
    """Whether a sum that a rule is to write surely does not wrap."""
    if not int64.min <= constant <= int64.max:
        return False
    if is_value(terms, constant) or not any([is_wild(e) for atom in terms for e in walk_expr(atom)]):
        return True
    lo, hi = range_of(terms, constant)
    return lo is not None and hi is not None and int64.min <= lo and hi <= int64.max


def _negative(terms: Terms) -> Terms:
    return {atom: -scale for atom, scale in terms.items()}


def _multiples(terms: Terms, constant: int, c: int) -> tuple[Terms, Terms, int, int]:
    """Q, the other terms, the quotient of the constant, and its remainder."""
    quotient = {atom: scale // c for atom, scale in terms.items() if scale % c == 0}
    rest = {atom: scale for atom, scale in terms.items() if scale % c} if quotient else terms
    return quotient, rest, constant // c, constant % c


def _one_quotient(terms: Terms, constant: int, c: int, range_of: RangeOf) -> int | None:
    """The q with N in [q*c, q*c + c), if there is one."""
    lo, hi = range_of(terms, constant)
    return lo // c if lo is not None and hi is not None and lo // c == hi // c else None


def _split(terms: Terms, constant: int, c: int, range_of: RangeOf) -> tuple[int, Terms, int] | None:
    """The largest divisor d of c with N = d*H + L and L + constant in [k*d, k*d + d): (d, H, k)."""
    divisors = {gcd(scale, c) for scale in terms.values()}
    divisors.discard(1)
    for d in sorted(divisors, reverse=True):
        low = {atom: scale for atom, scale in terms.items() if scale % d}
        k = _one_quotient(low, constant, d, range_of)
        if k is not None:
            return d, {atom: scale // d for atom, scale in terms.items() if scale % d == 0}, k
    return None


def divide_symbolic(form: Form, divisor: Form, range_of: RangeOf) -> Form | None:
    """N // d for a divisor that is a multiple of one atom and at least 1; None if no rule applies."""
    if not _is_positive_monomial(divisor, range_of):
        return None
    quotient, rest = _symbolic_multiples(form[0], divisor[0])
    if _within_symbolic(rest, form[1], divisor, range_of):  # (d*Q + R) // d  ->  Q for R in [0, d)
        return _constants_apart(quotient)
    if not quotient:
        return None
    # (d*Q + R) // d  ->  Q + R // d
    found, offset = _constants_apart(quotient)
    found = dict(found)
    add_scaled(found, {FloorDiv(build(rest, form[1]), build(*divisor)): 1}, 1)
    return found, offset


def remainder_symbolic(form: Form, divisor: Form, range_of: RangeOf) -> Form | None:
    """N % d for a divisor that is a multiple of one atom and at least 1; None if no rule applies."""
    if not _is_positive_monomial(divisor, range_of):
        return None
    quotient, rest = _symbolic_multiples(form[0], divisor[0])
    if _within_symbolic(rest, form[1], divisor, range_of):  # (d*Q + R) % d  ->  R for R in [0, d)
        return rest, form[1]
    if not quotient:
        return None
    return {Mod(build(rest, form[1]), build(*divisor)): 1}, 0  # (d*Q + R) % d  ->  R % d


def _is_positive_monomial(divisor: Form, range_of: RangeOf) -> bool:
    if len(divisor[0]) != 1 or divisor[1]:
        return False
    least = range_of(*divisor)[0]
    return least is not None and least >= 1


_ONE = index(1)


def _symbolic_multiples(terms: Terms, divisor: Terms) -> tuple[Terms, Terms]:
    """Q (in which the atom 1 stands for a constant) and the terms that are no multiples of the divisor."""
    (unit, multiple), = divisor.items()
    needed = factors(unit)
    quotient: Terms = {}
    rest: Terms = {}
    for atom, scale in terms.items():
        left = factors(atom)
        if scale % multiple or not all([_remove(left, factor) for factor in needed]):
            rest[atom] = scale
        else:
            quotient[product(*left) if left else _ONE] = scale // multiple
    return quotient, rest


def _remove(items: list[Expr], item: Expr) -> bool:
    if item not in items:
        return False
    items.remove(item)
    return True


def _constants_apart(terms: Terms) -> Form:
    return {atom: scale for atom, scale in terms.items() if atom is not _ONE}, terms.get(_ONE, 0)


def _within_symbolic(terms: Terms, constant: int, divisor: Form, range_of: RangeOf) -> bool:
    """Whether N is in [0, d)."""
    least = range_of(terms, constant)[0]
    if least is None or least < 0:
        return False
    slack = dict(divisor[0])
    add_scaled(slack, terms, -1)
    least = range_of(drop_zeros(slack), divisor[1] - constant - 1)[0]  # d - 1 - N
    return least is not None and least >= 0


_CANCELLING = (FloorDiv, Mod, Min, Max)


def cancel(terms: Terms, constant: int, range_of: RangeOf) -> Form:
    """A sum with those quotients and remainders put together that give back what they were taken from."""
    if len(terms) < 2 or not any([type(atom) in _CANCELLING for atom in terms]):
        return terms, constant
    for atom, scale in terms.items():
        if type(atom) is Mod:
            found = _join(terms, atom, scale, range_of)
        elif type(atom) is FloorDiv:
            found = _complement(terms, atom, scale, range_of)
        elif isinstance(atom, (Min, Max)) and scale == 1:
            found = _into_choice(terms, atom, range_of)
        else:
            continue
        if found is not None:
            return cancel(drop_zeros(found[0]), constant + found[1], range_of)
    return terms, constant


def _join(terms: Terms, mod: Mod, scale: int, range_of: RangeOf) -> Form | None:
    """What s*(x % c) makes with another term of the sum, if anything."""
    x = operand(mod.a)
    if x is None:
        return None
    if type(mod.b) is not Const:
        return _join_symbolic(terms, mod, x, scale, range_of)
    c = mod.b.value
    if c <= 0:
        return None
    quotient, offset = divide(*x, c, range_of)
    if not offset and quotient and all([terms.get(atom) == scale * c * k for atom, k in quotient.items()]):
        # s*(x % c) + s*c*(x // c)  ->  s*x
        return _exchange(terms, {mod, *quotient}, x[0], scale), scale * x[1]
    for atom, k in terms.items():
        # s*(x % c) + s*c*((x // c) % m)  ->  s*(x % (c*m))
        if type(atom) is not Mod or type(atom.b) is not Const or k != scale * c or atom.b.value <= 0:
            continue
        if operand(atom.a) == (quotient, offset) and c * atom.b.value <= int64.max:
            joined, constant = remainder(*x, c * atom.b.value, range_of)
            return _exchange(terms, (mod, atom), joined, scale), scale * constant
    return None


def _join_symbolic(terms: Terms, mod: Mod, x: Form, scale: int, range_of: RangeOf) -> Form | None:
    """s*(x % d) + s*d*(x // d)  ->  s*x  for d >= 1."""
    divisor = operand(mod.b)
    if divisor is None or not _is_positive_monomial(divisor, range_of):
        return None
    (unit, multiple), = divisor[0].items()
    partner = product(FloorDiv(mod.a, mod.b), unit)
    if terms.get(partner) != scale * multiple:
        return None
    return _exchange(terms, (mod, partner), x[0], scale), scale * x[1]


def _complement(terms: Terms, quotient: FloorDiv, scale: int, range_of: RangeOf) -> Form | None:
    """s*x - s*c*(x // c)  ->  s*(x % c), where all of x is there."""
    if type(quotient.b) is not Const or quotient.b.value <= 0 or scale % quotient.b.value:
        return None
    s = -(scale // quotient.b.value)
    form = operand(quotient.a)
    if form is None:
        return None
    x, offset = form
    if not all([terms.get(atom) == s * k for atom, k in x.items()]):
        return None
    found, constant = remainder(x, offset, quotient.b.value, range_of)
    return _exchange(terms, {quotient, *x}, found, s), s * (constant - offset)


def _into_choice(terms: Terms, choice: Min | Max, range_of: RangeOf) -> Form | None:
    """min(t + a, b) - t  ->  min(a, b - t): what cancels in one of the alternatives moves into both."""
    a, b = operand(choice.a), operand(choice.b)
    if a is None or b is None:
        return None
    moved = {
        atom: scale
        for atom, scale in terms.items()
        if atom is not choice and (a[0].get(atom) == -scale or b[0].get(atom) == -scale)
    }
    if not moved:
        return None
    sides = []
    for side, constant in (a, b):
        side = dict(side)
        add_scaled(side, moved, 1)
        sides.append(build(*cancel(drop_zeros(side), constant, range_of)))
    return _exchange(terms, {choice, *moved}, {type(choice)(*sides): 1}, 1), 0
