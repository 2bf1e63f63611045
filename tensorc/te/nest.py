"""The nest of loops of each stage, and what all nests of a function share: buffers and names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tensorc.ir.expr import Buffer, Expr, Load, Var, index, is_const
from tensorc.ir.reducer import identity_annotations, operation_of, update
from tensorc.ir.stmt import Annotations, Block, BlockIter, For, IterKind, Stmt, Store, seq
from tensorc.ir.walk import children, rebuild, substitute, substitute_stmt, uses
from tensorc.te.access import Axes, Demand, check_accesses
from tensorc.te.assume import Assume
from tensorc.te.checks import NOTHING_AROUND, Around, check_demands, stepped
from tensorc.te.graph import unique_name
from tensorc.te.math import const
from tensorc.te.tensor import Tensor, TensorBuffer

_ZERO = index(0)
_TRUE = const(True)


@dataclass(frozen=True, slots=True)
class Step:
    """The axis of stages that runs in order around them: `loop` counts it from `start`, `extent` times."""

    loop: Var
    start: Expr
    extent: Expr


class Nests:
    """What the nests of one function share: `buffers` of tensors, names that are `taken`, internal buffers.

    `scalars` has variables that may hold any number, for those of the definition that are no sizes.
    """

    def __init__(self, scalars: Mapping[Var, Expr] | None = None) -> None:
        self.scalars = {} if scalars is None else scalars
        self.buffers: dict[Tensor, Buffer] = {}
        self.allocs: list[Buffer] = []
        self.taken: set[str] = set()

    def add(self, tensor: Tensor, is_internal: bool = False) -> Buffer:
        """The buffer of a tensor, made now."""
        buffer = Buffer(self.unique(tensor.name), tensor.buffer.shape, tensor.dtype)
        self.buffers[tensor] = buffer
        if is_internal:
            self.allocs.append(buffer)
        return buffer

    def unique(self, name: str) -> str:
        """`name`, with a suffix where it is taken; the result is taken from now on."""
        return unique_name(name, self.taken)

    def computation(self, stage: Tensor) -> list[Stmt]:
        """What writes a tensor and its siblings, with the checks that this needs."""
        if stage.maker is not None:
            return stage.maker.nests(self)
        checks = [stmt for sibling in stage.siblings for stmt in self.stage_checks(sibling)]
        return [*checks, self.stage(stage.siblings[0])]

    def stage_checks(self, stage: Tensor) -> list[Stmt]:
        """The checks of indices that a stage needs as it runs."""
        demands = check_accesses(stage, self.scalars)
        axes = [*zip(stage.axes, stage.buffer.shape), *zip(stage.reduce_axes, stage.reduce_extents)]
        starts = dict(zip(stage.reduce_axes, stage.reduce_starts))
        return self.checks(self.buffers[stage].name, demands, axes, starts)

    def checks(
        self,
        name: str,
        demands: Sequence[Demand],
        axes: Axes,
        starts: dict[Var, Expr],
        step: Step | None = None,
        time: Var | None = None,
    ) -> list[Stmt]:
        """The nests that check demands of the stage `name`, be it in a step around them; see `check_demands`."""
        around = NOTHING_AROUND if step is None or time is None else _in_step(step, time)
        stmts, flags = check_demands(
            name, demands, axes, starts, lambda expr: self.lowered(expr, {}), self.unique, around
        )
        self.allocs += flags
        return stmts

    def stage(self, stage: Tensor, step: Step | None = None, time: Var | None = None) -> Stmt:
        """The loops over a stage's axes, around its block; the axis `time` is that of a step around them."""
        buffer = self.buffers[stage]
        name = buffer.name if len(stage.siblings) == 1 else self._stage_name(stage)
        init, body, reduce_axes, annotations = self._computation(stage)
        axes: list[tuple[Var, Expr, IterKind]] = [
            *[(var, extent, "spatial") for var, extent in zip(stage.axes, buffer.shape)],
            *[(var, extent, "reduce") for var, extent in reduce_axes],
        ]
        iters: list[BlockIter] = []
        around: dict[Var, Expr] = {}
        if step is not None and time is not None:
            own = Var(time.name)
            iters.append(BlockIter(own, step.extent, "ordered", step.loop))
            around[time] = step.loop + step.start
            values: dict[Var, Expr] = {time: own + step.start}
            init = init and stepped(init, values)
            body = stepped(body, values)
        loops: list[Var] = []
        before: list[Stmt] = []
        reduced = [var for var, _ in reduce_axes]
        if init is not None and any(uses(extent, reduced) for _, extent in reduce_axes):
            # the first of its ranges may be empty, and what begins with it would not begin
            before.append(self._start(name, init, iters, dict(around), axes, time))
            init = None
        for var, extent, kind in axes:
            if var is time:
                continue
            loop = Var(self.unique(f"{name}.{var.name}"))
            iters.append(BlockIter(var, substitute(extent, around), kind, loop))
            around[var] = loop
            loops.append(loop)
        nest: Stmt = Block(name, tuple(iters), _TRUE, init, body, annotations)
        for loop, it in zip(reversed(loops), reversed(iters)):
            nest = For(loop, _ZERO, it.extent, "serial", nest)
        return seq(*before, nest)

    def _start(self, name: str, init: Stmt, iters, around, axes, time: Var | None) -> Stmt:
        """The nest of a stage's start alone."""
        name = self.unique(f"{name}_init")
        own: dict[Var, Expr] = {it.var: Var(it.var.name) for it in iters}
        iters = [replace(it, var=own[it.var]) for it in iters]
        loops: list[Var] = []
        for var, extent, kind in axes:
            if kind == "spatial" and var is not time:
                loop = Var(self.unique(f"{name}.{var.name}"))
                own[var] = new = Var(var.name)
                iters.append(BlockIter(new, substitute(extent, around), kind, loop))
                loops.append(loop)
        nest: Stmt = Block(name, tuple(iters), _TRUE, None, substitute_stmt(init, own))
        for loop, it in zip(reversed(loops), reversed(iters)):
            nest = For(loop, _ZERO, it.extent, "serial", nest)
        return nest

    def copy(self, name: str, source: Tensor, target: Buffer, length: Expr | None = None, axis: int = 0) -> Stmt:
        """A nest that copies a tensor into a buffer; along `axis`, only `length` of it."""
        iters, loops = [], []
        for dimension, extent in enumerate(source.buffer.shape):
            if length is not None and dimension == axis:
                extent = length
            var, loop = Var(f"i{dimension}"), Var(self.unique(f"{name}.i{dimension}"))
            iters.append(BlockIter(var, extent, "spatial", loop))
            loops.append(loop)
        indices = tuple([it.var for it in iters])
        body = Store(target, indices, Load(self.buffers[source], indices))
        nest: Stmt = Block(name, tuple(iters), _TRUE, None, body)
        for loop, it in zip(reversed(loops), reversed(iters)):
            nest = For(loop, _ZERO, it.extent, "serial", nest)
        return nest

    def _stage_name(self, stage: Tensor) -> str:
        """The name of the block of several tensors: the stage's, which one of them may have."""
        own = next((t for t in stage.siblings if t.name == stage.stage), None)
        return self.unique(stage.stage) if own is None else self.buffers[own].name

    def _computation(
        self, stage: Tensor
    ) -> tuple[Stmt | None, Stmt, tuple[tuple[Var, Expr], ...], Annotations]:
        """What the block does at first and in each instance, the axes it reduces, its annotations."""
        assert stage.body is not None  # only a placeholder has none
        done: dict[int, Expr] = {}
        buffers = self.buffers
        reduction, tensors = stage.reduction, stage.siblings
        if reduction is None:
            value = self.lowered(stage.body, done)
            return None, Store(buffers[stage], stage.axes, value), (), ()
        starts = [
            neutral if tensor.init is None else self.lowered(tensor.init, done)
            for tensor, neutral in zip(tensors, reduction.identities)
        ]
        init = seq(*[Store(buffers[t], t.axes, start) for t, start in zip(tensors, starts)])
        if any(is_const(extent, 0) for extent in stage.reduce_extents):
            return None, init, (), ()  # no term: the loops would never reach the block to write anything
        body = update(
            [Load(buffers[tensor], tensor.axes) for tensor in tensors],
            [self.lowered(t.body, done) for t in tensors if t.body is not None],
            reduction.old,
            reduction.new,
            reduction.combined,
        )
        operation = operation_of(reduction.combined, reduction.old, reduction.new)
        annotations = identity_annotations(operation, reduction.identities)
        extents = [self.lowered(extent, done) for extent in stage.reduce_extents]
        return init, body, tuple(zip(stage.reduce_axes, extents)), annotations

    def lowered(self, expr: Expr, done: dict[int, Expr]) -> Expr:
        """The expression with each tensor's loads from its buffer in this function, without promises."""
        operands = children(expr)
        if not operands and type(expr) is not Load:
            return self.scalars.get(expr, expr) if type(expr) is Var else expr
        if type(expr) is Assume:
            return self.lowered(expr.value, done)
        new = done.get(id(expr))
        if new is None:
            operands = tuple([self.lowered(operand, done) for operand in operands])
            if type(expr) is Load and isinstance(expr.buffer, TensorBuffer):
                new = Load(self.buffers[expr.buffer.tensor], operands)
            else:
                new = rebuild(expr, operands)
            done[id(expr)] = new
        return new


def _in_step(step: Step, time: Var) -> Around:
    def iters() -> tuple[tuple[BlockIter, ...], dict[Var, Expr]]:
        own = Var(time.name)
        return (BlockIter(own, step.extent, "ordered", step.loop),), {time: own + step.start}

    return Around({time: step.loop + step.start}, iters)
