"""The proof that a definition reads no tensor outside its buffer."""

from __future__ import annotations

from tensorc.arith import Domain, Interval, bounds, can_prove
from tensorc.errors import ExpressionError, UnsupportedError
from tensorc.ir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    And,
    Compare,
    Const,
    Expr,
    IfThenElse,
    Load,
    Not,
    Or,
    Var,
    logical_and,
    logical_not,
    logical_or,
)
from tensorc.ir.printer import show
from tensorc.ir.walk import children, walk_expr
from tensorc.te.tensor import Tensor

_OPPOSITE = {EQ: NE, NE: EQ, LT: GE, GE: LT, GT: LE, LE: GT}


def check_accesses(stage: Tensor) -> None:
    """Refuse a stage that may read outside a buffer.

    Raises ExpressionError for the first access that is not proved to stay in its buffer under the
    conditions of the if_then_else around it, UnsupportedError for an index that is loaded.
    """
    if stage.body is None:
        return
    if stage.init is not None:
        _check(stage, stage.init, [*zip(stage.axes, stage.buffer.shape)])
    _check(stage, stage.body, [*zip(stage.axes, stage.buffer.shape), *zip(stage.reduce_axes, stage.reduce_extents)])


def _check(stage: Tensor, body: Expr, axes: list[tuple[Var, Expr]]) -> None:
    if any(type(extent) is Const and extent.value == 0 for _, extent in axes):
        return  # nothing is ever read
    domain = Domain()
    for var, extent in axes:
        domain = domain.bind(var, 0, extent)
    _Accesses(stage, dict(axes)).visit(body, domain)


class _Accesses:
    """Visits every expression once for each domain in which it is evaluated."""

    def __init__(self, stage: Tensor, extents: dict[Var, Expr]):
        self.what = f"compute {stage.origin!r}"
        self.extents = extents
        self.seen: set[tuple[int, int]] = set()
        # The condition that made each guarded domain, and where; kept alive, so that ids stay different.
        self.guards: dict[int, tuple[Domain, Expr, Domain]] = {}

    def visit(self, expr: Expr, domain: Domain) -> None:
        operands = children(expr)
        if not operands:
            return
        key = (id(expr), id(domain))
        if key in self.seen:
            return
        self.seen.add(key)
        match expr:
            case IfThenElse(condition, true, false):
                self.visit(condition, domain)
                for guard, side in ((condition, true), (negate(condition), false)):
                    inside = domain.given(guard)
                    self.guards[id(inside)] = (inside, guard, domain)
                    self.visit(side, inside)
            case Load():
                self._check(expr, domain)
            case _:
                for operand in operands:
                    self.visit(operand, domain)

    def _check(self, load: Load, domain: Domain) -> None:
        for dimension, (index, extent) in enumerate(zip(load.indices, load.buffer.shape)):
            if type(index) is Var and self._is_within(index, extent):
                continue
            if any(type(e) is Load for e in walk_expr(index)):
                raise UnsupportedError(
                    f"{self.what}: access {show(load)} has an index that is loaded from data, "
                    "which is not supported; index by iterators"
                )
            if not _is_proved(index, extent, domain) and not self._is_dead(domain):
                raise ExpressionError(
                    f"{self.what}: access {show(load)} "
                    f"{_complaint(index, extent, dimension, domain)}; guard it with "
                    "te.if_then_else"
                )

    def _is_dead(self, domain: Domain) -> bool:
        """Whether one of the conditions that guard this place is never true."""
        while id(domain) in self.guards:
            _, guard, domain = self.guards[id(domain)]
            if can_prove(negate(guard), domain):
                return True
        return False

    def _is_within(self, var: Var, extent: Expr) -> bool:
        """Whether an iterator's axis is no longer than the dimension; most accesses are such."""
        own = self.extents.get(var)
        if type(own) is Const and type(extent) is Const:
            return own.value <= extent.value
        return own is extent


def _is_proved(index: Expr, extent: Expr, domain: Domain) -> bool:
    interval = bounds(index, domain)
    is_low = interval.lo is not None and interval.lo >= 0
    is_high = type(extent) is Const and interval.hi is not None and interval.hi < extent.value
    return (is_low or can_prove(index >= 0, domain)) and (
        is_high or can_prove(index < extent, domain)
    )


def _complaint(index: Expr, extent: Expr, dimension: int, domain: Domain) -> str:
    """`reads index 5..104 of dimension 0, whose extent is 100`."""
    reads = _range_text(bounds(index, domain))
    return f"reads index {reads} of dimension {dimension}, whose extent is {show(extent)}"


def _range_text(interval: Interval) -> str:
    match interval:
        case Interval(None, None):
            return "of unknown range"
        case Interval(None, hi):
            return f"{hi} or less"
        case Interval(lo, None):
            return f"{lo} or more"
        case Interval(lo, hi):
            return f"{lo}..{hi}" if lo != hi else f"{lo}"


def negate(condition: Expr) -> Expr:
    """The opposite of a condition, with the `not` moved inward to the comparisons of integers."""
    match condition:
        case Not(value):
            return value
        case And(a, b):
            return logical_or(negate(a), negate(b))
        case Or(a, b):
            return logical_and(negate(a), negate(b))
        case Compare(a, b) if a.dtype.is_int:
            return _OPPOSITE[type(condition)](a, b)
        case _:
            return logical_not(condition)
