"""From tensors to a function: one loop nest a stage, unscheduled."""

from __future__ import annotations

from collections.abc import Sequence

from tensorc.arith import Domain, can_prove
from tensorc.errors import ExpressionError
from tensorc.ir.expr import Const, Expr, Var
from tensorc.ir.function import Function
from tensorc.ir.stmt import Stmt, seq
from tensorc.ir.walk import variables
from tensorc.te.graph import argument_names, check_arguments, in_order
from tensorc.te.nest import Nests
from tensorc.te.tensor import Tensor, check_name


def lower(tensors: Sequence[Tensor] | Tensor, name: str = "main") -> Function:
    """The function of these tensors: those computed are outputs, the others inputs.

    What is needed besides becomes internal buffers. Each stage is one nest of loops named
    `<block>.<iterator>` around one block. Raises ExpressionError where an access is not proved to
    stay in its buffer, where an input is missing from the list, and where nothing is computed.
    """
    check_name("lower", name)
    tensors = check_arguments(tensors)
    order = in_order(tensors)
    _check_inputs(tensors, order)
    stages = [tensor for tensor in order if not tensor.is_placeholder]
    given = set(tensors)
    internal = [stage for stage in stages if stage not in given]
    determined, scalars = _symbols(tensors, order)
    sizes = _sizes(order)
    numbers = {var: var if var in sizes else Var(var.name, wraps=True) for var in scalars}
    nests = Nests({old: new for old, new in numbers.items() if new is not old})
    buffers = {tensor: nests.add(tensor) for tensor in tensors}
    for stage in internal:
        nests.add(stage, is_internal=True)
    body: list[Stmt] = []
    for stage in stages:
        if stage is stage.siblings[-1]:
            body += nests.computation(stage)
    extents = _symbolic_extents(tensors, determined)
    return Function(
        name,
        params=tuple([buffers[t] for t in tensors]),
        outputs=tuple([buffers[t] for t in tensors if not t.is_placeholder]),
        scalars=tuple(numbers.values()),
        allocs=tuple(nests.allocs),
        body=seq(*body),
        assumptions=tuple([extent >= 0 for extent in extents]),
        is_proved=True,
    )


def _check_inputs(tensors: tuple[Tensor, ...], order: tuple[Tensor, ...]) -> None:
    if all(tensor.is_placeholder for tensor in tensors):
        raise ExpressionError("lower: no tensor of the list is computed; list the results, too")
    given = set(tensors)
    for tensor in order:
        if tensor.is_placeholder and tensor not in given:
            raise ExpressionError(
                f"lower: placeholder {tensor.name!r} is read but not in the list of tensors; add it"
            )


def symbols(tensors: Sequence[Tensor] | Tensor) -> tuple[Var, ...]:
    """The variables of te.var that these tensors depend on, those that extents determine first."""
    tensors = check_arguments(tensors)
    return sum(_symbols(tensors, in_order(tensors)), ())


def _sizes(order: Sequence[Tensor]) -> set[Var]:
    """The variables that extents and ranges of axes are made of."""
    hidden = [tensor for one in order if one.maker is not None for tensor in one.maker.hidden]
    extents = [e for tensor in (*order, *hidden) for e in (*tensor.buffer.shape, *tensor.ranges)]
    return set().union(*[variables(extent) for extent in extents if type(extent) is not Const])


def _symbolic_extents(tensors: tuple[Tensor, ...], determined: tuple[Var, ...]) -> list[Expr]:
    """Extents of the arguments that together say that none is negative, as no array's is."""
    found: list[Expr] = list(determined)
    domain = Domain()
    for variable in determined:
        domain = domain.given(variable >= 0)
    for tensor in tensors:
        for extent in tensor.buffer.shape:
            if type(extent) is not Const and not can_prove(extent >= 0, domain):
                found.append(extent)
                domain = domain.given(extent >= 0)
    return found


def _symbols(tensors, order) -> tuple[tuple[Var, ...], tuple[Var, ...]]:
    """The variables that shapes of parameters determine, and the others; in order of appearance."""
    determined = dict.fromkeys(
        extent for tensor in tensors for extent in tensor.buffer.shape if type(extent) is Var
    )
    used: dict[Var, None] = {}
    for tensor in (*tensors, *order):
        for extent in tensor.buffer.shape:
            if type(extent) is not Const:
                used.update(dict.fromkeys(sorted(variables(extent), key=lambda v: v.name)))
        used.update(dict.fromkeys(tensor.scalars))
    names: set[str] = set()
    for variable in used:
        if variable.name in names:
            raise ExpressionError(
                f"lower: two variables are named {variable.name!r}; use one te.var, or two names"
            )
        names.add(variable.name)
    others = tuple([variable for variable in used if variable not in determined])
    arguments = set(argument_names(tensors))
    for variable in others:
        if variable.name == "threads":
            raise ExpressionError(
                "lower: variable 'threads' would be passed to the kernel by a name that calls use already; rename it"
            )
        if variable.name in arguments:
            raise ExpressionError(
                f"lower: variable {variable.name!r} and a tensor have one name, by which the kernel takes them; "
                "rename one"
            )
    return tuple(determined), others
