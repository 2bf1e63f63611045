"""The graph of tensors behind a list of arguments."""

from __future__ import annotations

from collections.abc import Sequence

from tensorc.errors import ExpressionError
from tensorc.ir.function import Function
from tensorc.te.tensor import Tensor, described


def check_arguments(tensors: Sequence[Tensor] | Tensor) -> tuple[Tensor, ...]:
    """The arguments as a tuple of different tensors."""
    if isinstance(tensors, Tensor):
        tensors = (tensors,)
    if isinstance(tensors, Function):
        problem = "a function of the IR is no list of tensors; tc.Schedule(function) is a schedule of it"
        raise ExpressionError(f"arguments: {problem}, to go on from and to build")
    if isinstance(tensors, (set, frozenset)):
        raise ExpressionError("arguments: a set has no order; give a list of tensors")
    try:
        tensors = tuple(tensors)
    except TypeError:
        raise ExpressionError(f"arguments: {described(tensors)} is not a list of tensors") from None
    for position, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            raise ExpressionError(f"arguments: argument {position} is {described(tensor)}, not a tensor")
    if len(set(tensors)) < len(tensors):
        name = next(tensor.name for tensor in tensors if tensors.count(tensor) > 1)
        raise ExpressionError(f"arguments: tensor {name!r} is given twice; list each tensor once")
    return tensors


def in_order(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Every tensor that these need, and they themselves, each after what it reads."""
    order: dict[Tensor, None] = {}
    stack = [(tensor, False) for tensor in reversed(tensors)]
    while stack:
        tensor, is_ready = stack.pop()
        if tensor in order:
            continue
        if is_ready or not tensor.inputs:
            order.update(dict.fromkeys(tensor.siblings))
            continue
        stack.append((tensor, True))
        stack.extend([(producer, False) for producer in reversed(tensor.inputs)])
    return tuple(order)


def argument_names(tensors: Sequence[Tensor]) -> tuple[str, ...]:
    """What a function calls its arguments: the names of the tensors, with a suffix from the second of a name on."""
    taken: set[str] = set()
    return tuple([unique_name(tensor.name, taken) for tensor in tensors])


def unique_name(name: str, taken: set[str]) -> str:
    """`name`, with a suffix where it is taken; the result is taken from now on."""
    unique, count = name, 0
    while unique in taken:
        count += 1
        unique = f"{name}_{count}"
    taken.add(unique)
    return unique
