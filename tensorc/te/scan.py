"""`scan`: tensors one of whose axes runs in order, each step computed from those before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat

from tensorc.arith import Domain, can_prove
from tensorc.errors import ExpressionError
from tensorc.ir.expr import Expr, IfThenElse, Load, Var, index, sub
from tensorc.ir.printer import show
from tensorc.ir.stmt import Block, Check, For, Stmt, seq
from tensorc.ir.walk import children
from tensorc.te.access import Axes, Demand, demands, negate, reads_of, with_ranges, written
from tensorc.te.assume import take_off
from tensorc.te.maker import Description, Maker
from tensorc.te.math import const
from tensorc.te.nest import Nests, Step
from tensorc.te.tensor import Tensor, TensorBuffer, check_name, described, is_integer


def scan(
    init: Tensor | Sequence[Tensor],
    update: Tensor | Sequence[Tensor],
    state: Tensor | Sequence[Tensor],
    name: str = "scan",
    axis: int = 0,
) -> Tensor | tuple[Tensor, ...]:
    """The tensor whose step t along `axis` is computed from the steps before.

    `state` is a placeholder that stands for the result in the definition of `update`, a compute of
    the same shape, which may read it at steps before its own; `init`, which differs in shape only
    along `axis`, gives the first steps. Cumulative sums over the rows of X:

        state = te.placeholder((m, n), name="state")
        step = te.compute((m, n), lambda t, i: state[t - 1, i] + X[t, i])
        total = te.scan(te.compute((1, n), lambda t, i: X[t, i]), step, state)

    For several states, give a sequence for each; the result is then a tuple. Tensors between a state
    and an update, and reductions in them, are computed in each step: they have the axis of steps, too,
    and are read at the step at hand. Where extents are symbolic, the kernel checks that `init` has a step
    and no more of them than the result. Raises ExpressionError where shapes or dtypes do not fit, and
    where a step is not proved to read only steps before it.
    """
    what = f"scan {check_name('scan', name)!r}"
    is_one = isinstance(state, Tensor)
    states, updates, inits = (_tensors(what, w, v) for w, v in (("state", state), ("update", update), ("init", init)))
    if not len(states) == len(updates) == len(inits):
        counts = f"{len(inits)} init, {len(updates)} update and {len(states)} state tensors"
        raise ExpressionError(f"{what}: {counts}; give as many of each")
    for each in zip(inits, updates, states):
        _check_state(what, axis, *each)
    first, start, extent = states[0], inits[0].buffer.shape[axis], states[0].buffer.shape[axis]
    for other, begin in zip(states, inits):
        if other.buffer.shape[axis] != extent or begin.buffer.shape[axis] != start:
            raise ExpressionError(f"{what}: the states {first.name!r} and {other.name!r} differ in their steps")
    maker = _scan(what, axis, start, extent, inits, updates, states)
    names = [name] if is_one else [f"{name}.v{n}" for n in range(len(states))]
    made = tuple([Tensor(n, s.buffer.shape, s.dtype, origin=name, maker=maker) for n, s in zip(names, states)])
    maker.makes(made)
    return made[0] if is_one else made


def _tensors(what: str, which: str, value) -> tuple[Tensor, ...]:
    value = (value,) if isinstance(value, Tensor) else value
    if not isinstance(value, (tuple, list)) or not value or not all(isinstance(t, Tensor) for t in value):
        raise ExpressionError(f"{what}: {which} is {described(value)}, not a tensor or a sequence of tensors")
    return tuple(value)


def _check_state(what: str, axis: int, init: Tensor, update: Tensor, state: Tensor) -> None:
    if not state.is_placeholder:
        raise ExpressionError(f"{what}: state {state.name!r} is computed; it must be a placeholder of its own")
    if update.body is None:
        raise ExpressionError(f"{what}: update {update.name!r} is no compute; it must tell each element of a step")
    if not is_integer(axis) or not 0 <= axis < state.ndim:
        problem = f"axis {described(axis)} is none of the {state.ndim} axes of state {state.name!r}"
        raise ExpressionError(f"{what}: {problem}")
    for tensor in (init, update):
        if tensor.dtype is not state.dtype:
            problem = f"{tensor.name!r} is {tensor.dtype}, state {state.name!r} is {state.dtype}"
            raise ExpressionError(f"{what}: {problem}; cast one of them")
        same = [a == b for a, b in zip(tensor.buffer.shape, state.buffer.shape)]
        if tensor is init and axis < len(same):
            same[axis] = True
        if tensor.ndim != state.ndim or not all(same):
            tail = f" but for axis {axis}" if tensor is init else ""
            raise ExpressionError(
                f"{what}: {tensor.name!r} has shape {_shape(tensor)}, which must be that of state "
                f"{state.name!r}, {_shape(state)}{tail}"
            )
    steps, extent = init.buffer.shape[axis], state.buffer.shape[axis]
    if can_prove(steps < 1, Domain()):
        raise ExpressionError(f"{what}: init {init.name!r} has no step along axis {axis}")
    if can_prove(steps > extent, Domain()):
        raise ExpressionError(
            f"{what}: init {init.name!r} has {show(steps)} steps, state {state.name!r} has {show(extent)}"
        )


def _axes(stage: Tensor) -> Axes:
    return [*zip(stage.axes, stage.buffer.shape), *zip(stage.reduce_axes, stage.reduce_extents)]


def _shape(tensor: Tensor) -> str:
    return f"({', '.join([show(e) for e in tensor.buffer.shape])})"


@dataclass(frozen=True, slots=True)
class _Cell:
    """A stage that is computed in each step: `time` is its iterator of the steps."""

    stage: Tensor
    time: Var


def _scan(what, axis, start, extent, inits, updates, states) -> _Scan:
    cells = _cells(what, axis, updates, states)
    inner = {*states, *[sibling for cell in cells for sibling in cell.stage.siblings]}
    outer = dict.fromkeys(inits)
    for cell in cells:
        outer.update(dict.fromkeys([tensor for tensor in cell.stage.inputs if tensor not in inner]))
    scalars = dict.fromkeys([var for cell in cells for var in cell.stage.scalars])
    found = _Scan(
        inputs=tuple(outer),
        scalars=tuple(scalars),
        hidden=(*states, *dict.fromkeys([s for cell in cells for s in cell.stage.siblings])),
        what=what,
        axis=axis,
        start=start,
        extent=extent,
        inits=inits,
        updates=updates,
        states=states,
        cells=cells,
    )
    found.check_order()
    return found


def _cells(what: str, axis: int, updates, states) -> tuple[_Cell, ...]:
    """The stages from the states to the updates, each after what it reads."""
    order: dict[Tensor, bool] = {}  # whether a tensor depends on a state
    for update in updates:
        _visit(update, states, order)
    times: dict[Tensor, Var] = {update: update.axes[axis] for update in updates}
    cells = []
    for stage in reversed([t for t, depends in order.items() if depends or t in updates]):
        if stage in states or (stage is not stage.siblings[0] and stage.siblings[0] in order):
            continue
        time = times[stage]
        cells.append(_Cell(stage, time))
        for load, tensor, _ in _loads(stage, Domain()):
            if tensor in states or not (order.get(tensor) or tensor in updates):
                continue
            at = [n for n, e in enumerate(load.indices) if e is time]
            if len(at) != 1 or times.get(tensor, tensor.axes[at[0]]) is not tensor.axes[at[0]]:
                raise ExpressionError(
                    f"{what}: {stage.name!r} reads {written(load)}, which is computed in each step; it must "
                    f"be read at the step {time.name!r}, along one and the same of its axes"
                )
            for sibling in tensor.siblings:
                times[sibling] = tensor.axes[at[0]]
    return tuple(reversed(cells))


def _visit(tensor: Tensor, states, order: dict[Tensor, bool]) -> bool:
    if tensor in order:
        return order[tensor]
    if tensor in states:
        order[tensor] = True
        return True
    if tensor.body is None and tensor.maker is None:
        order[tensor] = False
        return False
    found = [_visit(t, states, order) for t in tensor.inputs]
    order[tensor] = any(found)
    return order[tensor]


def _loads(stage: Tensor, domain: Domain) -> Iterator[tuple[Load, Tensor, Domain]]:
    """The loads in the definition of a stage, the tensors that they are from, and what is known where they are read."""
    axes = _axes(stage)
    around = _bound(domain, axes[: len(stage.axes)])
    inside = _bound(around, axes[len(stage.axes) :])
    for sibling in stage.siblings:
        ranges = zip(sibling.reduce_extents, repeat(around))
        for root, known in ((sibling.body, inside), (sibling.init, around), *ranges):
            for load, reached in () if root is None else _guarded_loads(root, known, {}):
                if isinstance(load.buffer, TensorBuffer):
                    yield load, load.buffer.tensor, reached


def _bound(domain: Domain, axes: Axes) -> Domain:
    for var, extent in axes:
        plain, promised = take_off(extent)
        for condition in promised:
            domain = domain.given(condition, loads=True)
        domain = domain.bind(var, 0, plain)
    return domain


def _guarded_loads(
    expr: Expr, domain: Domain, seen: dict[tuple[int, int], Domain]
) -> Iterator[tuple[Load, Domain]]:
    """The loads in an expression, each with the domain in which it is evaluated; `seen` keeps the domains alive, so
    that their ids stay different."""
    if (id(expr), id(domain)) in seen:
        return
    seen[id(expr), id(domain)] = domain
    if type(expr) is IfThenElse:
        yield from _guarded_loads(expr.condition, domain, seen)
        condition, promised = take_off(expr.condition)
        for promise in promised:
            domain = domain.given(promise, loads=True)
        yield from _guarded_loads(expr.true, domain.given(condition, loads=True), seen)
        yield from _guarded_loads(expr.false, domain.given(negate(condition), loads=True), seen)
        return
    for operand in children(expr):
        yield from _guarded_loads(operand, domain, seen)
    if type(expr) is Load:
        yield expr, domain


@dataclass(eq=False, slots=True, kw_only=True)
class _Scan(Maker):
    what: str
    axis: int
    start: Expr
    extent: Expr
    inits: tuple[Tensor, ...]
    updates: tuple[Tensor, ...]
    states: tuple[Tensor, ...]
    cells: tuple[_Cell, ...]

    def check_order(self) -> None:
        """Refuse a step that may read one that is not computed yet."""
        for cell in self.cells:
            runs = Domain()
            for condition in self._runs(cell.time):
                runs = runs.given(condition)
            for load, tensor, inside in _loads(cell.stage, runs):
                if tensor not in self.states:
                    continue
                at, promised = take_off(load.indices[self.axis])
                for condition in promised:
                    inside = inside.given(condition, loads=True)
                if not can_prove(at < cell.time, inside):
                    raise ExpressionError(
                        f"{self.what}: {cell.stage.name!r} reads {written(load)}, which is not proved to be "
                        f"a step before {cell.time.name!r}"
                    )

    def nests(self, into: Nests) -> list[Stmt]:
        for state, update, made in zip(self.states, self.updates, self.tensors):
            into.buffers[state] = into.buffers[update] = into.buffers[made]
        stmts = self._steps_check(into)
        later: dict[Tensor, list[Demand]] = {}
        for cell in self.cells:
            for stage in cell.stage.siblings:
                if stage not in self.updates:
                    into.add(stage, is_internal=True)
                before, later[stage] = self._demands(into, stage, cell.time)
                stmts += self._checks(into, stage, cell, before)
        for init, made in zip(self.inits, self.tensors):
            buffer = into.buffers[made]
            stmts.append(into.copy(into.unique(f"{buffer.name}_init"), init, buffer))
        name = self.cells[-1].time.name
        loop = Var(into.unique(f"{into.buffers[self.tensors[0]].name}.{name}"))
        step = Step(loop, self.start, sub(self.extent, self.start))
        body: list[Stmt] = []
        for cell in self.cells:
            for stage in cell.stage.siblings:
                body += self._checks(into, stage, cell, later[stage], step)
            body.append(into.stage(cell.stage.siblings[0], step, self._time(cell)))
        return [*stmts, For(loop, index(0), step.extent, "serial", seq(*body))]

    def _runs(self, time: Var) -> tuple[Expr, ...]:
        """What holds in each step: `init` has one at least."""
        from_start = (time >= self.start,)
        return from_start if can_prove(self.start >= 1, Domain()) else (*from_start, time >= 1)

    def _unproved(self) -> list[tuple[Expr, str]]:
        """What the steps of `init` must fulfil and is not known to, and what is wrong where they do not."""
        wanted = (
            (self.start >= 1, "one at least is needed"),
            (self.start <= self.extent, "the scan has {0}"),
        )
        return [(condition, wrong) for condition, wrong in wanted if not can_prove(condition, Domain())]

    def _steps_check(self, into: Nests) -> list[Stmt]:
        init = self.inits[0].name
        checks = [
            Check(condition, self.start, f"{self.what}: init {init!r} has {{value}} steps, {wrong}", (self.extent,))
            for condition, wrong in self._unproved()
        ]
        name = f"{into.buffers[self.tensors[0]].name}_check"
        return [Block(into.unique(name), (), const(True), None, seq(*checks), (("check", True),))] if checks else []

    def _time(self, cell: _Cell) -> Var:
        at = cell.stage.axes.index(cell.time)
        return cell.stage.siblings[0].axes[at]

    def _demands(self, into: Nests, stage: Tensor, time: Var) -> tuple[list[Demand], list[Demand]]:
        """What is to be checked of a stage's indices: before the first step, and, of what steps compute, in each."""
        axes = _axes(stage)
        what, runs = f"{self.what}: compute {stage.origin!r}", self._runs(time)
        spatial = axes[: len(stage.axes)]
        start = [] if stage.init is None else [stage.init]
        body = [] if stage.body is None else [stage.body]
        found = [
            *demands(what, [], start, spatial, into.scalars, runs),
            *demands(what, [*stage.reduce_extents], body, axes, into.scalars, runs),
        ]
        own = {tensor.buffer for tensor in (*self.states, *[s for cell in self.cells for s in cell.stage.siblings])}
        before: list[Demand] = []
        within: list[Demand] = []
        for demand in with_ranges(found, axes):
            (within if reads_of(demand, axes, own) else before).append(demand)
        return before, within

    def _checks(
        self, into: Nests, stage: Tensor, cell: _Cell, found: list[Demand], step: Step | None = None
    ) -> list[Stmt]:
        if step is None:
            runs = self._runs(cell.time)
            found = [replace(demand, guards=(*runs, *demand.guards)) for demand in found]
        starts = dict(zip(stage.reduce_axes, stage.reduce_starts))
        return into.checks(into.buffers[stage].name, found, _axes(stage), starts, step, cell.time)

    def description(self) -> Description:
        return Description(
            f"scan {self.axis}",
            (*self.inits, *self.updates, *self.states),
            (),
            (self.start, self.extent),
            is_checked=bool(self._unproved()),
        )
