"""`function`: tensors made by a hand-written function of the IR."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tensorc.arith import Domain, can_prove, checked
from tensorc.errors import ExpressionError, InternalError
from tensorc.ir.expr import Buffer, Expr, Var, as_expr
from tensorc.ir.function import Function
from tensorc.ir.printer import show
from tensorc.ir.stmt import Alloc, Block, For, Stmt, seq
from tensorc.ir.verifier import verify
from tensorc.ir.walk import (
    copy_nest,
    map_exprs,
    map_substmts,
    replace_buffers,
    rewrite,
    substitute,
    variables,
    walk,
)  # fmt: skip
from tensorc.te.maker import Description, Maker
from tensorc.te.nest import Nests
from tensorc.te.tensor import Tensor, check_name, described

_TRUE = as_expr(True)


def function(func: Function, inputs: Sequence[Tensor] | Tensor, name: str | None = None) -> Tensor | tuple[Tensor, ...]:
    """The tensors that a function of the IR makes of others: one, or a tuple of several.

    The parameters of `func` that are no outputs take `inputs` in order; extents that are variables
    follow from their shapes, and all dimensions must agree. The function becomes a part of the
    kernel: its blocks are there to be scheduled, or, if it has none, it is one block without
    iterators. Accesses that are not proved to stay in their buffers are checked as it runs. Raises
    ExpressionError where inputs do not fit, or the function is not well formed, has parameters that
    are no buffers, or no outputs.
    """
    if not isinstance(func, Function):
        raise ExpressionError(f"te.function: {described(func)} is not a function of the IR")
    name = func.name if name is None else name
    what = f"function {check_name('function', name)!r}"
    try:
        verify(func)
    except InternalError as error:
        raise ExpressionError(f"{what}: {error}") from None
    func = checked(func)
    if func.scalars:
        raise ExpressionError(f"{what}: parameter {func.scalars[0].name!r} is no buffer; pass it as a tensor")
    if not func.outputs:
        raise ExpressionError(f"{what}: it has no output")
    given = (inputs,) if isinstance(inputs, Tensor) else inputs
    if not isinstance(given, (tuple, list)):
        raise ExpressionError(f"{what}: inputs {described(inputs)} is not a list of tensors")
    given = tuple(given)
    taken = [param for param in func.params if param not in func.outputs]
    if len(given) != len(taken):
        raise ExpressionError(f"{what}: {len(given)} inputs for {len(taken)} parameters")
    extents: dict[Var, Expr] = {}
    for param, tensor in zip(taken, given):
        _bind(what, param, tensor, extents)
    for condition in func.assumptions:
        if not can_prove(substitute(condition, extents), Domain()):
            raise ExpressionError(f"{what}: {show(condition)} is not known to hold")
    maker = _External(inputs=given, func=func, extents=extents, taken=tuple(taken))
    made = []
    for output in func.outputs:
        shape = tuple([substitute(extent, extents) for extent in output.shape])
        unknown = [var for extent in output.shape for var in variables(extent) if var not in extents]
        if unknown:
            raise ExpressionError(
                f"{what}: extent {unknown[0].name!r} of output {output.name!r} follows from no input"
            )
        title = name if len(func.outputs) == 1 else f"{name}.{output.name}"
        made.append(Tensor(title, shape, output.dtype, origin=name, maker=maker))
    maker.makes(tuple(made))
    return made[0] if len(made) == 1 else tuple(made)


def _bind(what: str, param: Buffer, tensor: Tensor, extents: dict[Var, Expr]) -> None:
    if not isinstance(tensor, Tensor):
        raise ExpressionError(f"{what}: the input for {param.name!r} is {described(tensor)}, not a tensor")
    if tensor.dtype is not param.dtype:
        raise ExpressionError(
            f"{what}: tensor {tensor.name!r} is {tensor.dtype}, parameter {param.name!r} is {param.dtype}"
        )
    if param.strides is not None:
        raise ExpressionError(f"{what}: parameter {param.name!r} has strides; tensors are contiguous")
    if tensor.ndim != len(param.shape):
        raise ExpressionError(
            f"{what}: tensor {tensor.name!r} has {tensor.ndim} dimensions, parameter {param.name!r} has "
            f"{len(param.shape)}"
        )
    for dimension, (extent, wanted) in enumerate(zip(tensor.buffer.shape, param.shape)):
        if type(wanted) is Var:
            wanted = extents.setdefault(wanted, extent)
        if wanted != extent:
            raise ExpressionError(
                f"{what}: dimension {dimension} of tensor {tensor.name!r} is {show(extent)}, parameter "
                f"{param.name!r} has {show(wanted)}"
            )


@dataclass(eq=False, slots=True, kw_only=True)
class _External(Maker):
    func: Function
    extents: dict[Var, Expr]
    taken: tuple[Buffer, ...]

    def nests(self, into: Nests) -> list[Stmt]:
        func, name = self.func, into.buffers[self.tensors[0]].name
        buffers = {param: into.buffers[tensor] for param, tensor in zip(self.taken, self.inputs)}
        buffers |= {output: into.buffers[tensor] for output, tensor in zip(func.outputs, self.tensors)}
        inner = [buffer for s in walk(func.body) if type(s) is Alloc for buffer in s.buffers]
        for buffer in (*func.allocs, *inner):
            shape = tuple([substitute(extent, self.extents) for extent in buffer.shape])
            buffers[buffer] = buffer.with_(name=into.unique(f"{name}.{buffer.name}"), shape=shape)
        into.allocs += [buffers[buffer] for buffer in func.allocs]
        body = _renamed(replace_buffers(copy_nest(func.body, self.extents), buffers), name, into)
        if any(type(stmt) is Block for stmt in walk(body)):
            return [body]
        return [Block(name, (), _TRUE, None, body)]

    def description(self) -> Description:
        return Description(f"function {show(self.func, canonical=True)!r}", self.inputs)


def _renamed(body: Stmt, name: str, into: Nests) -> Stmt:
    """A nest with names of its own for loops and blocks."""
    loops: dict[Var, Expr] = {}

    def visit(stmt: Stmt) -> Stmt:
        match stmt:
            case For(var):
                loops[var] = new = var.copy(into.unique(f"{name}.{var.name}"))
                return replace(stmt, var=new, body=visit(stmt.body))
            case Block():
                return replace(stmt, name=into.unique(f"{name}.{stmt.name}"))
            case _:
                return map_substmts(stmt, visit)

    def on_expr(expr: Expr) -> Expr:
        return rewrite(expr, lambda e: loops.get(e) if type(e) is Var else None)

    def finish(stmt: Stmt) -> Stmt:
        return map_substmts(map_exprs(stmt, on_expr), finish)

    return finish(visit(seq(body)))


__all__ = ["function"]
