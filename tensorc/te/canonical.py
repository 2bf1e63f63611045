"""The key of a definition: two lists of tensors share it just where they define one function."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tensorc.ir.expr import Binary, Buffer, Call, Cast, Const, Expr, Load, Var
from tensorc.ir.reducer import operation_of
from tensorc.ir.walk import children, walk_expr
from tensorc.te.graph import check_arguments, in_order
from tensorc.te.maker import Maker
from tensorc.te.tensor import Tensor


def canonical_text(tensors: Sequence[Tensor] | Tensor) -> str:
    """The graph of tensors as text: arguments in order, then each tensor after what it reads.

    Names are replaced by the order of appearance, so that renaming tensors, axes and variables
    leaves the text, and equal subexpressions are written once, so that sharing them in Python does.
    Raises ExpressionError where the arguments are not different tensors.
    """
    arguments = check_arguments(tensors)
    order = [part for tensor in in_order(arguments) for part in _with_hidden(tensor)]
    numbers: dict[Buffer, int] = {tensor.buffer: number for number, tensor in enumerate(order)}
    listed = " ".join([str(numbers[tensor.buffer]) for tensor in arguments])
    scalars: dict[Var, str] = {}
    texts = [_Text(tensor, numbers, scalars).text for tensor in order]
    return "\n".join([f"arguments {listed}", *texts, *map(_names, filter(is_checked, order))])


def _with_hidden(tensor: Tensor) -> tuple[Tensor, ...]:
    """A tensor after those that only its maker knows."""
    if tensor.maker is None or tensor is not tensor.siblings[0]:
        return (tensor,)
    return (*tensor.maker.hidden, tensor)


def is_checked(tensor: Tensor) -> bool:
    """Whether the kernel may check indices of a tensor's definition, and name them in an error."""
    maker = tensor.maker.description() if tensor.maker is not None else None
    roots = (tensor.body, tensor.init, *tensor.reduce_extents, *(maker.exprs if maker else ()))
    exprs = [e for root in roots if root is not None for e in walk_expr(root)]
    loads = [e for e in exprs if type(e) is Load]
    if maker is not None and (maker.is_checked or (maker.axes and loads)):
        return True
    is_ragged = any(type(e) is Load for extent in tensor.reduce_extents for e in walk_expr(extent))
    return is_ragged or any(type(e) is Load for l in loads for i in l.indices for e in walk_expr(i))


def _names(tensor: Tensor) -> str:
    """The names that an error may tell."""
    maker = tensor.maker.description() if tensor.maker is not None else None
    axes = (*tensor.axes, *tensor.reduce_axes, *(maker.axes if maker else ()))
    return " ".join(["names", *[t.name for t in (*tensor.inputs, tensor)], *[axis.name for axis in axes]])


class _Text:
    """One tensor: each different subexpression is a line, and later lines name it by its number."""

    def __init__(self, tensor: Tensor, tensors: dict[Buffer, int], scalars: dict[Var, str]):
        self.tensors = tensors
        self.scalars = scalars
        self.lines: dict[str, str] = {}
        self.known: dict[int, str] = {}
        self.axes = {axis: f"i{d}" for d, axis in enumerate((*tensor.axes, *tensor.reduce_axes))}
        head = f"{tensor.dtype.name}[{self._list(tensor.buffer.shape)}]"
        if tensor.body is not None:
            reduced = self._list(tensor.reduce_extents)
            head += f" {self._reduction(tensor)}[{reduced}] {self._expr(tensor.body)}"
        if tensor.maker is not None:
            head += self._maker(tensor, tensor.maker)
        self.text = ";".join([head, *self.lines])

    def _maker(self, tensor: Tensor, maker: Maker) -> str:
        """What makes the tensor, and which of its tensors this is."""
        told = maker.description()
        self.axes.update({axis: f"i{d}" for d, axis in enumerate(told.axes)})
        used = ",".join([str(self.tensors[each.buffer]) for each in told.tensors])
        return f" {maker.tensors.index(tensor)} {told.word}({used})[{self._list(told.exprs)}]"

    def _reduction(self, tensor: Tensor) -> str:
        """How a stage combines and what it starts from; a user's reducer is written out."""
        reduction = tensor.reduction
        if reduction is None:
            return ""
        combined = reduction.combined
        operation = operation_of(combined, reduction.old, reduction.new)
        if operation is not None:
            text = operation.__name__
        else:
            for side, variables in (("x", reduction.old), ("y", reduction.new)):
                self.axes.update({var: f"{side}{n}" for n, var in enumerate(variables)})
            made = [str(self.tensors[sibling.buffer]) for sibling in tensor.siblings]
            text = f"({self._list(combined)} {' '.join(made)})"
        starts = "" if tensor.init is None else f" from {self._expr(tensor.init)}"
        return f"{text} {self._list(reduction.identities)}{starts}"

    def _list(self, exprs: tuple[Expr, ...]) -> str:
        return ",".join([self._expr(expr) for expr in exprs])

    def _expr(self, root: Expr) -> str:
        """The number of an expression, once its operands have theirs."""
        known = self.known
        stack = [root]
        while stack:
            expr = stack[-1]
            if id(expr) in known:
                stack.pop()
                continue
            operands = (expr.a, expr.b) if isinstance(expr, Binary) else children(expr)
            missing = [operand for operand in operands if id(operand) not in known]
            if missing:
                stack.extend(missing[::-1])
                continue
            stack.pop()
            known[id(expr)] = self._name(expr, [known[id(operand)] for operand in operands])
        return known[id(root)]

    def _name(self, expr: Expr, operands: list[str]) -> str:
        match expr:
            case Var():
                return self.axes.get(expr) or self.scalars.setdefault(expr, f"s{len(self.scalars)}")
            case Const(value, dtype):
                return f"{dtype.name}({_number(value)})"
            case Load(buffer):
                line = f"load {self.tensors[buffer]}"
            case Call(name, _, dtype) | Cast(name, dtype):
                line = f"{name if isinstance(name, str) else 'cast'} {dtype.name}"
            case _:
                line = type(expr).__name__
        line = " ".join([line, *operands])
        return self.lines.setdefault(line, f"n{len(self.lines)}")


def _number(value: int | float | bool) -> str:
    if value != value:  # the bits of a NaN
        return struct.pack(">d", value).hex()
    return repr(value)
