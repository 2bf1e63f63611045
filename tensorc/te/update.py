"""`update`: a tensor after stores at places of one's choice, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorc.errors import ExpressionError
from tensorc.ir.expr import Const, Expr, IfThenElse, Load, Var, as_expr, as_index, const, index
from tensorc.ir.stmt import Block, BlockIter, For, If, Stmt, Store, seq
from tensorc.ir.walk import substitute, walk_expr
from tensorc.te.access import Demand, demands, reads_of, written
from tensorc.te.checks import check_here
from tensorc.te.definition import Converter, Splitter, plain_variables
from tensorc.te.halves import in_float32
from tensorc.te.maker import Description, Maker
from tensorc.te.nest import Nests
from tensorc.te.tensor import Axis, Tensor, check_name, described

_TRUE = as_expr(True)


def update(
    tensor: Tensor,
    at,
    value,
    axis: Axis | Sequence[Axis] | None = None,
    where=None,
    name: str = "update",
) -> Tensor:
    """What `tensor` is after `tensor[at] = value` for each point of reduce axes, in order.

    `at` is an index or a tuple of them, `value` and the condition `where` are expressions, over the
    reduce axes `axis`, the last of which runs fastest; by default they are those that appear, in order
    of appearance. In all of them `tensor` stands for what it holds at that moment. A histogram:

        r = te.reduce_axis(n, name="r")
        H = te.update(te.compute((256,), lambda i: 0, dtype="int64"), I[r], H0[I[r]] + 1)

    with H0 the tensor that is updated. Indices that depend on data are checked as the kernel runs.
    Raises ExpressionError where dtypes or ranks do not fit, or an access is not proved.
    """
    what = f"update {check_name('update', name)!r}"
    if not isinstance(tensor, Tensor):
        raise ExpressionError(f"{what}: {described(tensor)} is not a tensor")
    element = tensor[at]
    stored = as_expr(value, None if isinstance(value, Expr) else tensor.dtype)
    if stored.dtype is not tensor.dtype:
        raise ExpressionError(
            f"{what}: the value is {stored.dtype}, tensor {tensor.name!r} is {tensor.dtype}; cast the value"
        )
    condition = _TRUE if where is None else as_expr(where)
    if not condition.dtype.is_bool:
        raise ExpressionError(f"{what}: where is {condition.dtype}, not a condition")
    exprs = (*element.indices, in_float32(stored), in_float32(condition))
    axes = _axes(what, axis, exprs)
    splitter = Splitter(name)
    splitter.check_ranges(axes)
    variables = plain_variables(axes)
    converter = Converter(splitter, name, variables)
    *places, stored, condition = [converter.convert(e, ()) for e in exprs]
    extents = tuple([converter.convert(a.extent, ()) for a in axes])
    starts = tuple([converter.convert(as_index(a.start), ()) for a in axes])
    for stage in converter.inputs:
        if stage is not tensor and stage.origin == name and tensor in stage.inputs:
            raise ExpressionError(
                f"{what}: a reduction in the value reads {tensor.name!r}, which is being updated; make a "
                "tensor of it before"
            )
    maker = _Update(
        inputs=tuple(dict.fromkeys((tensor, *converter.inputs))),
        scalars=tuple(converter.scalars),
        ranges=(*starts, *extents),
        what=what,
        tensor=tensor,
        axes=tuple([variables[a] for a in axes]),
        extents=extents,
        starts=starts,
        places=tuple(places),
        value=stored,
        condition=condition,
    )
    made = Tensor(name, tensor.buffer.shape, tensor.dtype, origin=name, maker=maker)
    maker.makes((made,))
    return made


def _axes(what: str, axis, exprs: Sequence[Expr]) -> tuple[Axis, ...]:
    if axis is None:
        found = [e for expr in exprs for e in walk_expr(expr) if isinstance(e, Axis)]
        axes = tuple(dict.fromkeys(found))
    else:
        axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    for one in axes:
        if not isinstance(one, Axis) or not one.is_reduce:
            given = repr(one.name) if isinstance(one, Var) else described(one)
            raise ExpressionError(f"{what}: axis {given} is not a te.reduce_axis")
    if len(set(axes)) < len(axes):
        raise ExpressionError(f"{what}: an axis is given twice; each runs once")
    return axes


@dataclass(eq=False, slots=True, kw_only=True)
class _Update(Maker):
    what: str
    tensor: Tensor
    axes: tuple[Var, ...]
    extents: tuple[Expr, ...]
    starts: tuple[Expr, ...]
    places: tuple[Expr, ...]
    value: Expr
    condition: Expr

    def nests(self, into: Nests) -> list[Stmt]:
        (made,) = self.tensors
        buffer = into.buffers[made]
        checks, at_stores = self._checks(into, buffer.name)
        stmts = [*checks, into.copy(into.unique(f"{buffer.name}_init"), self.tensor, buffer)]
        before = into.buffers[self.tensor]
        into.buffers[self.tensor] = buffer
        stmts.append(self._stores(into, buffer, at_stores))
        into.buffers[self.tensor] = before
        return stmts

    def _checks(self, into: Nests, name: str) -> tuple[list[Stmt], list[Stmt]]:
        """The checks before the first store, and, of what stores change, those at each of them."""
        axes = [*zip(self.axes, self.extents)]
        element = Load(self.tensor.buffer, self.places)
        own = {self.tensor.buffer}
        starts = dict(zip(self.axes, self.starts))
        before: list[Demand] = []
        at_stores: list[Demand] = []
        for demand in demands(self.what, [*self.extents], [], axes, into.scalars):
            if reads_of(demand, axes, own):
                raise ExpressionError(
                    f"{self.what}: access {written(demand.load)} in the range of an axis has an index that depends on "
                    "what the update writes; promise its range with te.assume, or guard it with te.if_then_else"
                )
            before.append(demand)
        exprs: list[Expr] = [IfThenElse(self.condition, e, const(0, element.dtype)) for e in (element, self.value)]
        for demand in demands(self.what, [], exprs, axes, into.scalars):
            (at_stores if reads_of(demand, axes, own) else before).append(demand)
        checks = into.checks(name, before, axes, starts)
        into.buffers[self.tensor], source = into.buffers[self.tensors[0]], into.buffers[self.tensor]
        here = [check_here(demand, axes, starts, lambda e: into.lowered(e, {})) for demand in at_stores]
        into.buffers[self.tensor] = source
        return checks, here

    def _stores(self, into: Nests, buffer, checks: list[Stmt]) -> Stmt:
        done: dict[int, Expr] = {}
        name = buffer.name
        loops = [Var(into.unique(f"{name}.{var.name}")) for var in self.axes]
        around: dict[Var, Expr] = {}
        iters = []
        for var, loop, extent in zip(self.axes, loops, self.extents):
            iters.append(BlockIter(var, substitute(into.lowered(extent, done), around), "ordered", loop))
            around[var] = loop
        places = tuple([into.lowered(e, done) for e in self.places])
        body: Stmt = Store(buffer, places, into.lowered(self.value, done))
        condition = into.lowered(self.condition, done)
        if not (type(condition) is Const and condition.value):
            body = If(condition, body)
        nest: Stmt = Block(name, tuple(iters), _TRUE, None, seq(*checks, body))
        for loop, it in zip(reversed(loops), reversed(iters)):
            nest = For(loop, index(0), it.extent, "serial", nest)
        return nest

    def description(self) -> Description:
        exprs = (*self.extents, *self.places, self.value, self.condition)
        return Description("update", (self.tensor,), self.axes, exprs)


__all__ = ["update"]
