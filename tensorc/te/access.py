"""The proof that a definition reads no tensor outside its buffer, and what is left to be checked at run time."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tensorc.arith import LARGEST, Domain, Interval, affine, bounds, can_prove
from tensorc.arith.affine import linear
from tensorc.arith.bounds import exact
from tensorc.dtypes import int64
from tensorc.errors import ExpressionError
from tensorc.ir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    And,
    Buffer,
    Cast,
    Compare,
    Const,
    Expr,
    IfThenElse,
    Load,
    Not,
    Or,
    Sub,
    Var,
    as_index,
    logical_and,
    logical_not,
    logical_or,
    select,
)
from tensorc.ir.printer import show
from tensorc.ir.walk import children, rewrite, substitute, uses, variables, walk_expr
from tensorc.te.assume import Assume, take_off
from tensorc.te.tensor import Tensor

_OPPOSITE = {EQ: NE, NE: EQ, LT: GE, GE: LT, GT: LE, LE: GT}


@dataclass(frozen=True, slots=True)
class Demand:
    """An index of an access that depends on data or a scalar, and is to be checked as the kernel runs.

    `guards` are the conditions under which the access is evaluated, the outermost first; `low` and
    `high` tell which ends are not proved. `reached` says that the loops run whose iterators do not matter here.
    """

    load: Load
    dimension: int
    index: Expr
    guards: tuple[Expr, ...]
    low: bool
    high: bool
    axis: str = ""  # of a demand that a range from data has no more than `LARGEST` elements: its iterator
    reached: tuple[Expr, ...] = ()

    @property
    def extent(self) -> Expr:
        return as_index(LARGEST + 1) if self.axis else self.load.buffer.shape[self.dimension]


Axes = list[tuple[Var, Expr]]  # iterators that count from 0, and their extents


Values = Mapping[Var, Expr]


def check_accesses(stage: Tensor, scalars: Values) -> tuple[Demand, ...]:
    """Refuse a stage that may read outside a buffer; return what is to be checked as it runs.

    `scalars` has the variables of the function for scalar parameters. Raises ExpressionError for the first
    access that is not proved to stay in its buffer under the conditions of the if_then_else around it, and
    depends neither on data nor on such a parameter.
    """
    if stage.body is None:
        return ()
    what = f"compute {stage.origin!r}"
    axes = [*zip(stage.axes, stage.buffer.shape)]
    sizes = _sizes(stage)
    starts = () if stage.init is None else demands(what, [], [stage.init], axes, scalars, sizes=sizes)
    reduced = [*zip(stage.reduce_axes, stage.reduce_extents)]
    found = demands(what, [*stage.reduce_extents], [stage.body], [*axes, *reduced], scalars, sizes=sizes)
    return (*starts, *with_ranges(found, [*axes, *reduced]))


def with_ranges(found: Sequence[Demand], axes: Axes) -> tuple[Demand, ...]:
    """Demands, and that ranges from data end: those over which no index is looked at that ends them."""
    result = list(found)
    for var, extent in axes:
        loads = [e for e in walk_expr(extent) if type(e) is Load]
        if not loads or take_off(extent)[1] or can_prove(extent <= LARGEST, Domain()):
            continue
        length = extent
        if any([d.high and not (d.guards or d.reached) and affine(d.index).coefficient(var) > 0 for d in found]):
            length = as_index(0)
        length = _unless_it_wraps(extent, length)
        if type(length) is Const:
            continue
        using = [at for at, d in enumerate(result) if any([uses(e, (var,)) for e in (d.index, *d.guards)])]
        at = using[0] if using else len(result)
        result.insert(at, Demand(loads[0], 0, length, (), False, True, var.name))
    return tuple(result)


def _unless_it_wraps(extent: Expr, length: Expr) -> Expr:
    """A length, or the largest number where the ends of the range are so far apart that their difference wraps."""
    if type(extent) is not Sub or exact(*linear(extent), Domain()):
        return length
    hi, lo = extent.a, extent.b
    wraps = ((hi ^ lo) & (hi ^ extent)) < 0
    return select(wraps, Const(int64.max, int64), length)


def _sizes(stage: Tensor) -> tuple[Expr, ...]:
    """That the variables are 0 or more which are extents of arrays that the stage reads."""
    extents = [extent for tensor in stage.inputs if tensor.is_placeholder for extent in tensor.buffer.shape]
    return tuple([extent >= 0 for extent in dict.fromkeys(extents) if type(extent) is Var])


def demands(
    what: str,
    ranges: list[Expr],
    bodies: list[Expr],
    axes: Axes,
    scalars: Values,
    given: Sequence[Expr] = (),
    sizes: Sequence[Expr] = (),
) -> tuple[Demand, ...]:
    """The accesses in expressions over `axes`, under conditions, that are to be checked at run time.

    `bodies` are evaluated where each of the axes has an iteration; `ranges`, which are extents of axes, also where
    another axis has none: a schedule is free to read them before it comes to that one. `scalars` has the variables of
    the function for scalar parameters, `sizes` are conditions that hold for the call, whatever the axes.
    """
    if any(type(extent) is Const and extent.value == 0 for _, extent in axes):
        return ()  # nothing is ever read
    domain = Domain()
    for condition in sizes:
        domain = domain.given(condition)
    for var, extent in axes:
        plain, promised = take_off(extent)
        for condition in promised:
            domain = domain.given(condition, loads=True)
        domain = domain.bind(var, 0, plain)
    for condition in given:
        domain = domain.given(condition, loads=True)
    visitor = _Accesses(what, dict(axes))
    for expr in ranges:
        visitor.visit(substitute(expr, scalars), domain)
    first = len(visitor.demands)
    for expr in bodies:
        visitor.visit(substitute(expr, scalars), domain)
    return (*visitor.demands[:first], *[_where_reached(d, axes) for d in visitor.demands[first:]])


def _where_reached(demand: Demand, axes: Axes) -> Demand:
    """A demand under the condition that the axes which it does not depend on are not empty."""
    used = set().union(*map(variables, (demand.index, demand.extent, *demand.guards)))
    reached: list[Expr] = []
    for var, extent in reversed(axes):
        extent = take_off(extent)[0]
        if var not in used:
            if can_prove(extent >= 1, Domain()):
                continue
            reached.append(extent >= 1)
        used |= variables(extent)
    return replace(demand, reached=tuple(reversed(reached)))


class _Accesses:
    """Visits every expression once for each domain in which it is evaluated."""

    def __init__(self, what: str, extents: dict[Var, Expr]):
        self.what = what
        self.extents = extents
        self.ragged = {var for var, extent in extents.items() if _reads(extent)}
        self.demands: list[Demand] = []
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
                condition, promised = take_off(condition)
                for promise in promised:
                    domain = domain.given(promise, loads=True)
                for guard, side in ((condition, true), (negate(condition), false)):
                    if type(guard) is Const and not guard.value:
                        continue  # this side is never taken
                    inside = domain.given(guard, loads=True)
                    if inside is not domain:
                        self.guards[id(inside)] = (inside, guard, domain)
                    self.visit(side, inside)
            case _:
                for operand in operands:
                    self.visit(operand, domain)
                if type(expr) is Load:
                    self._check(expr, domain)

    def _check(self, load: Load, domain: Domain) -> None:
        for dimension, (index, extent) in enumerate(zip(load.indices, load.buffer.shape)):
            if type(index) is Var and self._is_within(index, extent):
                continue
            index, promised = take_off(index)
            inside = domain
            for promise in promised:
                inside = inside.given(promise, loads=True)
            low, high = not _is_low(index, inside), not _is_high(index, extent, inside)
            if not (low or high) or self._is_dead(domain):
                continue
            if not self._is_data(index) or _is_outside(index, extent, inside):
                raise ExpressionError(
                    f"{self.what}: access {written(load)} "
                    f"{_complaint(index, extent, dimension, inside)}; guard it with "
                    "te.if_then_else"
                )
            self.demands.append(Demand(load, dimension, index, self._around(domain), low, high))

    def _is_data(self, index: Expr) -> bool:
        """Whether an index, or the range of an iterator in it, is loaded or a scalar of the call."""
        return uses(index, self.ragged) or any([type(e) is Load or _is_scalar(e) for e in walk_expr(index)])

    def _around(self, domain: Domain) -> tuple[Expr, ...]:
        """The conditions that guard a place, the outermost first."""
        found: list[Expr] = []
        while id(domain) in self.guards:
            _, guard, domain = self.guards[id(domain)]
            found.append(guard)
        return tuple(reversed(found))

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


def _is_scalar(expr: Expr) -> bool:
    return type(expr) is Var and expr.wraps


def _reads(expr: Expr) -> bool:
    return any(type(e) is Load for e in walk_expr(expr))


def _is_low(index: Expr, domain: Domain) -> bool:
    lo = bounds(index, domain).lo
    return (lo is not None and lo >= 0) or can_prove(index >= 0, domain)


def _is_high(index: Expr, extent: Expr, domain: Domain) -> bool:
    hi = bounds(index, domain).hi
    is_high = type(extent) is Const and hi is not None and hi < extent.value
    return is_high or can_prove(index < extent, domain)


def _is_outside(index: Expr, extent: Expr, domain: Domain) -> bool:
    """Whether no value of an index is inside."""
    return can_prove(index < 0, domain) or can_prove(index >= extent, domain)


def written(expr: Expr) -> str:
    """The text of an expression without the conversions of indices, and without promises."""

    def rule(e: Expr) -> Expr | None:
        if type(e) is Assume or (type(e) is Cast and e.dtype is int64 and e.value.dtype.is_int):
            return e.value
        return None

    return show(rewrite(expr, rule))


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


def reads_of(demand: Demand, axes: Axes, own: Collection[Buffer]) -> bool:
    """Whether an index, a condition around it, or the range of an iterator in them depends on these buffers."""
    found = [demand.index, demand.extent, *demand.guards, *demand.reached]
    used = set().union(*map(variables, found))
    for var, extent in reversed(axes):
        if var in used:
            used |= variables(extent)
            found.append(extent)
    return any([type(e) is Load and e.buffer in own for expr in found for e in walk_expr(expr)])
