"""Checks of indices that are loaded from data: they run before the stage that uses them, and stop the call.

    for i { C_ok[] = C_ok[] and (I[i] >= 0 and I[i] < 10) }         a reduction, which runs in lanes
    if not C_ok[] { for i { check I[i] >= 0 and I[i] < 10, I[i], i, "access X[I[i]]: ..." } }

Of what a step of a scan computes it is known only then: these nests stand inside its loop, and what an update reads of
itself is checked in its block.

The reduction may ask for more than is needed, where that makes it shorter: of an index that is linear in an iterator it
looks at both ends. What counts are the checks, which look at every index as it is used; none of them fails for what
only the reduction finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tensorc.arith import LARGEST, Domain, affine, can_prove, simplify
from tensorc.dtypes import bool_
from tensorc.ir.expr import (
    Buffer,
    Const,
    Expr,
    Load,
    Var,
    const,
    if_then_else,
    index,
    logical_and,
    logical_not,
    logical_or,
)  # fmt: skip
from tensorc.ir.stmt import MOST_PLACES, Annotations, Block, BlockIter, Check, For, If, Stmt, Store, seq
from tensorc.ir.walk import rewrite_exprs, substitute, substitute_stmt, uses, variables, walk_expr
from tensorc.te.access import Axes, Demand, written
from tensorc.te.assume import take_off

_TRUE = const(True, bool_)
_SPAN = 1 << 58  # how far apart the ends of an index in one axis may lie, if it is looked at only there
_CHECK: Annotations = (("check", True),)  # no part of the work that the definition asks for
Lowered = Callable[[Expr], Expr]  # with the buffers of the function, and without promises


@dataclass(frozen=True, slots=True)
class Around:
    """What stands still while a nest of checks runs: `outer` gives its value outside blocks, `inner` inside them,
    by iterators that `iters` makes anew for each block."""

    outer: Mapping[Var, Expr] = field(default_factory=dict)
    iters: Callable[[], tuple[tuple[BlockIter, ...], dict[Var, Expr]]] = lambda: ((), {})


NOTHING_AROUND = Around()


def check_demands(
    name: str,
    demands: Iterable[Demand],
    axes: Axes,
    starts: dict[Var, Expr],
    lowered: Lowered,
    unique: Callable[[str], str],
    around: Around = NOTHING_AROUND,
) -> tuple[list[Stmt], list[Buffer]]:
    """The nests that check what a stage demands, and the buffers that they need besides.

    `axes` are the iterators of the stage, `starts` what is added to an iterator where an error tells its value,
    `unique` makes names. Iterators that stand still `around` the nests are not looped over.
    """
    nests: list[Stmt] = []
    buffers: list[Buffer] = []
    extents = {var: take_off(extent)[0] for var, extent in axes}
    guarded = [replace(d, guards=(*d.reached, *d.guards)) for d in demands]
    for group in _groups(guarded, extents):
        nest = _Nest(name, group, extents, starts, lowered, unique, around)
        ok, scan = nest.scan()
        nests += scan
        nests.append(nest.report(ok))
        buffers += [] if ok is None else [ok]
    return nests, buffers


def _groups(demands: list[Demand], extents: dict[Var, Expr]) -> list[list[Demand]]:
    """Demands over the same iterators together; one whose index reads by the index of another comes after it."""
    groups: list[list[Demand]] = []
    found: dict[tuple, int] = {}  # the group of a condition
    checked: set[Load] = set()  # by the last group
    for demand in demands:
        key = (demand.index, demand.extent, demand.guards)
        if found.get(key) is not None:
            if found[key] == len(groups) - 1:
                checked.add(demand.load)
            continue
        last = groups[-1] if groups else []
        loads = {e for expr in (demand.index, *demand.guards) for e in walk_expr(expr) if type(e) is Load}
        if last and _needed(last[0], extents) == _needed(demand, extents) and not loads & checked:
            last.append(demand)
        else:
            groups.append([demand])
            checked = set()
        found[key] = len(groups) - 1
        checked.add(demand.load)
    return groups


def _needed(demand: Demand, extents: dict[Var, Expr]) -> list[Var]:
    """The iterators that a demand depends on, in order."""
    return _closed(set().union(*map(variables, (demand.index, demand.extent, *demand.guards))), extents)


def _closed(used: set[Var], extents: dict[Var, Expr]) -> list[Var]:
    """Iterators with those that their extents depend on, in order."""
    for var in reversed(extents):
        if var in used:
            used |= variables(extents[var])
    return [var for var in extents if var in used]


class _Nest:
    """The checks of one group of demands."""

    def __init__(self, name, group: list[Demand], extents, starts, lowered: Lowered, unique, around: Around):
        self.name = name
        self.group = group
        self.extents: dict[Var, Expr] = extents
        self.starts: dict[Var, Expr] = starts
        self.lowered = lowered
        self.unique = unique
        self.around = around

    def scan(self) -> tuple[Buffer | None, list[Stmt]]:
        """The flag, and the nests that find it; None where there is nothing to loop over."""
        conditions = [self._shortened(demand) for demand in self.group]
        condition = logical_and(*conditions)
        axes = self._moving(_closed(variables(condition), self.extents))
        if not axes:
            return None, []
        name = self.unique(f"{self.name}_ok")
        ok = Buffer(name, (), bool_)
        body = Store(ok, (), logical_and(Load(ok, ()), self.lowered(condition)))
        init = Store(ok, (), _TRUE)
        if not any(uses(self.extents[var], axes) for var in axes):
            return ok, [self._loops(name, axes, init, body)]
        # the first of its ranges may be empty, and what begins with it would not begin
        before = self._block(self.unique(f"{name}_init"), (), None, init)
        return ok, [before, self._loops(name, axes, None, body)]

    def report(self, ok: Buffer | None) -> Stmt:
        """The block that looks at every index where the flag is down."""
        name = self.unique(f"{self.name}_check")
        checks = [self._check(name, demand) for demand in self.group]
        body = seq(*checks)
        if ok is not None:
            body = If(logical_not(Load(ok, ())), body)
        return self._block(name, (), None, body)

    def _moving(self, axes: list[Var]) -> list[Var]:
        return [var for var in axes if var not in self.around.outer]

    def _block(self, name: str, iters: tuple[BlockIter, ...], init: Stmt | None, body: Stmt) -> Stmt:
        still, values = self.around.iters()
        if values:
            body, init = stepped(body, values), init and stepped(init, values)
            iters = tuple([replace(it, extent=substitute(it.extent, self.around.outer)) for it in iters])
        return Block(name, (*still, *iters), _TRUE, init, body, _CHECK)

    def _loops(self, name: str, axes: list[Var], init: Stmt | None, body: Stmt) -> Stmt:
        loops = {var: Var(self.unique(f"{name}.{var.name}")) for var in axes}
        outer = {**self.around.outer, **loops}
        extents = {var: substitute(self.lowered(self.extents[var]), outer) for var in axes}
        own = {var: Var(var.name) for var in axes}  # those of the stage are its own
        iters = tuple([BlockIter(own[var], extents[var], "reduce", loops[var]) for var in axes])
        nest: Stmt = self._block(name, iters, init, substitute_stmt(body, own))
        for var in reversed(axes):
            nest = For(loops[var], index(0), extents[var], "serial", nest)
        return nest

    def _shortened(self, demand: Demand) -> Expr:
        """That an index is inside, for both ends of the iterators that it is linear in."""
        low = high = demand.index
        skip: list[Expr] = []
        short: list[Expr] = []  # so few steps that an index which is inside at both ends cannot wrap between them
        axes = _needed(demand, self.extents)
        for var in reversed(self._moving(axes)):
            extent = self.extents[var]
            steady = [*demand.guards, *skip, demand.extent, *[self.extents[v] for v in axes]]
            scale = _factor(low, var)
            if scale is None or scale != _factor(high, var) or any(uses(e, (var,)) for e in steady):
                continue
            most = _SPAN // abs(scale)
            if type(extent) is Const and extent.value > most:
                continue
            if not (type(extent) is Const or (type(extent) is Var and most >= LARGEST)):
                short.append(extent <= most)
            first, last = {var: index(0)}, {var: extent - 1}
            low = substitute(low, first if scale > 0 else last)
            high = substitute(high, last if scale > 0 else first)
            if not can_prove(extent >= 1, Domain()):
                skip.append(extent <= 0)
        low, high = simplify(low), simplify(high)
        inside = _inside(demand, low, high)
        return _guarded(demand.guards, logical_or(*skip, logical_and(*short, inside)))

    def _check(self, block: str, demand: Demand) -> Stmt:
        axes = _needed(demand, self.extents)
        moving = self._moving(axes)
        loops: dict[Var, Expr] = {var: Var(self.unique(f"{block}.{var.name}")) for var in moving}

        def at(expr: Expr) -> Expr:
            return substitute(self.lowered(expr), loops)

        condition = at(_guarded(demand.guards, _inside(demand, demand.index, demand.index)))
        places = [at(var + self.starts.get(var, 0)) for var in axes][: MOST_PLACES - 1]
        message, limit = _message(demand, axes[: len(places)])
        nest: Stmt = Check(condition, at(demand.index), message, (*places, *map(at, limit)))
        for var in reversed(moving):
            loop = loops[var]
            assert isinstance(loop, Var)
            nest = For(loop, index(0), at(self.extents[var]), "serial", nest)
        return nest


def stepped(stmt: Stmt, values: Mapping[Var, Expr]) -> Stmt:
    """A body at a step; `S[t + 1 - 1]` is `S[t]`."""

    def rule(expr: Expr) -> Expr | None:
        if type(expr) is Load:
            return Load(expr.buffer, tuple([simplify(index) for index in expr.indices]))
        return None

    return rewrite_exprs(substitute_stmt(stmt, values), rule)


def check_here(demand: Demand, axes: Axes, starts: dict[Var, Expr], lowered: Lowered) -> Stmt:
    """The check of an index where it is used, inside a block with the iterators `axes`."""
    extents = {var: take_off(extent)[0] for var, extent in axes}
    needed = _needed(demand, extents)[: MOST_PLACES - 1]
    message, limit = _message(demand, needed)
    condition = _guarded(demand.guards, _inside(demand, demand.index, demand.index))
    places = [var + starts.get(var, 0) for var in needed]
    return Check(lowered(condition), lowered(demand.index), message, tuple(map(lowered, [*places, *limit])))


def _factor(expr: Expr, var: Var) -> int | None:
    """How often an index counts an iterator; None where it is not linear in it, or does not depend on it."""
    form = affine(expr)
    if any(atom is not var and uses(atom, (var,)) for atom, _ in form.terms):
        return None
    return form.coefficient(var) or None


def _inside(demand: Demand, low: Expr, high: Expr) -> Expr:
    """That an index is inside from its low end to its high end, which may have wrapped."""
    ends = ([low >= 0] if low == high else [low >= 0, high >= 0]) if demand.low else []
    return logical_and(*ends, *([high < demand.extent] if demand.high else []))


def _guarded(guards: Sequence[Expr], condition: Expr) -> Expr:
    for guard in reversed(guards):
        condition = if_then_else(guard, condition, _TRUE)
    return condition


def _message(demand: Demand, axes: list[Var]) -> tuple[str, tuple[Expr, ...]]:
    """What the check says, and the numbers in it after the iterators."""
    load, extent = demand.load, demand.extent
    if demand.axis:
        where = " at " * bool(axes) + ", ".join([f"{var.name} = {{{n}}}" for n, var in enumerate(axes)])
        return f"range of {demand.axis}: {{value}} elements{where}, {LARGEST} are the most", ()
    which = f" of dimension {demand.dimension}" if len(load.indices) > 1 else ""
    places = ", ".join([f"{var.name} = {{{n}}}" for n, var in enumerate(axes)])
    where = f" at {places}" if places else ""
    limit: tuple[Expr, ...] = ()
    if type(extent) is Const:
        last = str(extent.value - 1)
        if extent.value == 0:
            return f"access {written(load)}: index {{value}}{which}{where}, where there is no element", ()
    else:
        last, limit = f"{{{len(axes)}}}", (extent - 1,)
    return f"access {written(load)}: index {{value}}{which}{where} is outside 0..{last}", limit
