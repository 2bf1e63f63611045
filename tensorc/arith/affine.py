"""Linear forms of index expressions: sums of integer multiples of atoms, and a constant.

An atom is a variable, a product of atoms, or an expression that is not linear (`//`, `%`, `min`, a load ...).
Index arithmetic (int64) is taken as exact integer arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tensorc.dtypes import int64
from tensorc.ir.expr import (
    Add,
    Binary,
    Const,
    Expr,
    Mul,
    Neg,
    ShiftLeft,
    Sub,
    Var,
    index,
    is_const,
    wrap,
)

Terms = dict[Expr, int]
Leaf = Callable[[Expr, int, Terms], int]


@dataclass(frozen=True, slots=True)
class Affine:
    """The sum of `coefficient * atom` over `terms`, in order of first appearance, and a constant."""

    terms: tuple[tuple[Expr, int], ...]
    constant: int

    def coefficient(self, atom: Expr) -> int:
        """The multiple of an atom in the sum; 0 if it is not there as an atom of its own."""
        for term, coefficient in self.terms:
            if term is atom or term == atom:
                return coefficient
        return 0

    def to_expr(self) -> Expr:
        """The sum as an int64 expression, its constant last."""
        return build(dict(self.terms), self.constant)


def affine(expr: Expr) -> Affine:
    """The linear form of an integer expression. Atoms are kept as they stand: simplify first for canonical ones."""
    terms, constant = linear(expr)
    return Affine(tuple(terms.items()), constant)


def linear(expr: Expr) -> tuple[Terms, int]:
    """The linear form as a dict from atoms to nonzero multiples, and the constant."""
    terms: Terms = {}
    if expr.dtype is not int64:
        return ({}, expr.value) if type(expr) is Const else ({expr: 1}, 0)
    constant = accumulate(expr, 1, terms, keep)
    return drop_zeros(terms), constant


def keep(atom: Expr, scale: int, terms: Terms) -> int:
    """The leaf that takes every atom as it stands."""
    terms[atom] = terms.get(atom, 0) + scale
    return 0


def drop_zeros(terms: Terms) -> Terms:
    """The terms without those that cancelled."""
    return terms if all(terms.values()) else {atom: scale for atom, scale in terms.items() if scale}


def accumulate(expr: Expr, scale: int, terms: Terms, leaf: Leaf) -> int:
    """Add `scale * expr` to `terms`, and return what it adds to the constant.

    `leaf(atom, scale, terms)` does the same for what is not a sum or a product: it decides what an atom stands for.
    """
    cls = type(expr)
    if type(expr) is Const:
        return scale * expr.value
    if isinstance(expr, Binary):
        if cls is Add:
            return accumulate(expr.a, scale, terms, leaf) + accumulate(expr.b, scale, terms, leaf)
        if cls is Sub:
            return accumulate(expr.a, scale, terms, leaf) + accumulate(expr.b, -scale, terms, leaf)
        if cls is Mul:
            if type(expr.b) is Const:
                return accumulate(expr.a, scale * expr.b.value, terms, leaf)
            return _accumulate_product(expr, scale, terms, leaf)
        if cls is ShiftLeft and type(expr.b) is Const and 0 <= expr.b.value < 63:
            return accumulate(expr.a, scale << expr.b.value, terms, leaf)
    elif type(expr) is Neg:
        return accumulate(expr.value, -scale, terms, leaf)
    return leaf(expr, scale, terms)


_MOST_PRODUCTS = 8  # a product of sums is multiplied out while the result has at most so many terms


def _accumulate_product(expr: Binary, scale: int, terms: Terms, leaf: Leaf) -> int:
    a: Terms = {}
    b: Terms = {}
    constant_a = accumulate(expr.a, 1, a, leaf)
    constant_b = accumulate(expr.b, 1, b, leaf)
    form = multiply(drop_zeros(a), constant_a, drop_zeros(b), constant_b)
    add_scaled(terms, form[0], scale)
    return scale * form[1]


def add_scaled(terms: Terms, more: Terms, scale: int) -> None:
    """Add `scale` times the terms `more` to `terms`."""
    for atom, coefficient in more.items():
        terms[atom] = terms.get(atom, 0) + scale * coefficient


def multiply(a: Terms, constant_a: int, b: Terms, constant_b: int) -> tuple[Terms, int]:
    """The product of two linear forms: multiplied out if it is small, else one atom."""
    if len(a) * len(b) > _MOST_PRODUCTS:
        return {Mul(build(a, constant_a), build(b, constant_b)): 1}, 0
    terms: Terms = {}
    for atom_a, scale_a in a.items():
        for atom_b, scale_b in b.items():
            atom = product(atom_a, atom_b)
            terms[atom] = terms.get(atom, 0) + scale_a * scale_b
        if constant_b:
            terms[atom_a] = terms.get(atom_a, 0) + scale_a * constant_b
    if constant_a:
        add_scaled(terms, b, constant_a)
    return drop_zeros(terms), constant_a * constant_b


def factors(atom: Expr) -> list[Expr]:
    """The atoms whose product an atom is."""
    return [*factors(atom.a), *factors(atom.b)] if type(atom) is Mul else [atom]


def product(*atoms: Expr) -> Expr:
    """The product of atoms, as an atom: variables first and by name, so that i*n and n*i are one."""
    parts = [factor for atom in atoms for factor in factors(atom)]
    parts.sort(key=_rank)
    result = parts[0]
    for part in parts[1:]:
        result = Mul(result, part)
    return result


def _rank(atom: Expr) -> tuple[bool, str]:
    return (False, atom.name) if type(atom) is Var else (True, type(atom).__name__)


def build(terms: Terms, constant: int, like: Expr | None = None) -> Expr:
    """The int64 expression of a linear form: a positive term leads if there is one, the constant comes last.

    Returns `like` itself where that is the expression.
    """
    items = list(terms.items())
    if items and items[0][1] < 0:
        lead = next((at for at, item in enumerate(items) if item[1] > 0), 0)
        items.insert(0, items.pop(lead))
    if like is not None and _is_built(like, items, constant):
        return like
    if not items:
        return index(wrap(constant, int64))
    if items[0][1] > 0:
        result = _scaled(*items.pop(0))
    elif constant > 0:
        result, constant = index(wrap(constant, int64)), 0
    else:
        atom, scale = items.pop(0)
        result = Neg(atom) if scale == -1 else Mul(atom, index(wrap(scale, int64)))
    for atom, scale in items:
        result = Add(result, _scaled(atom, scale)) if scale > 0 else Sub(result, _scaled(atom, -scale))
    if constant > 0:
        return Add(result, index(wrap(constant, int64)))
    return Sub(result, index(wrap(-constant, int64))) if constant else result


def _scaled(atom: Expr, scale: int) -> Expr:
    return atom if scale == 1 else Mul(atom, index(wrap(scale, int64)))


def _is_built(expr: Expr, items: list[tuple[Expr, int]], constant: int) -> bool:
    """Whether `build` makes this expression, found without making it."""
    if not items:
        return type(expr) is Const and expr.value == constant
    leading = items[0][1] < 0 and constant > 0  # constant - terms
    if constant and not leading:
        if type(expr) is not (Add if constant > 0 else Sub) or not is_const(expr.b, abs(constant)):
            return False
        expr = expr.a
    for at in range(len(items) - 1, -1 if leading else 0, -1):
        atom, scale = items[at]
        if type(expr) is not (Add if scale > 0 else Sub) or not _is_scaled(expr.b, atom, abs(scale)):
            return False
        expr = expr.a
    if leading:
        return is_const(expr, constant)
    atom, scale = items[0]
    if scale == -1:
        return type(expr) is Neg and (expr.value is atom or expr.value == atom)
    return _is_scaled(expr, atom, scale)


def _is_scaled(expr: Expr, atom: Expr, scale: int) -> bool:
    if scale != 1:
        if type(expr) is not Mul or not is_const(expr.b, scale):
            return False
        expr = expr.a
    return expr is atom or expr == atom
