"""From tensors to a function: one loop nest a stage, unscheduled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorc.arith import Domain, can_prove
from tensorc.errors import ExpressionError
from tensorc.ir.expr import Buffer, Const, Expr, Load, Var, index, is_const
from tensorc.ir.function import Function
from tensorc.ir.reducer import identity_annotations, operation_of, update
from tensorc.ir.stmt import Annotations, Block, BlockIter, For, IterKind, Stmt, Store, seq
from tensorc.ir.walk import children, rebuild, substitute, variables
from tensorc.te.access import check_accesses
from tensorc.te.assume import Assume
from tensorc.te.checks import check_demands
from tensorc.te.graph import check_arguments, in_order
from tensorc.te.math import const
from tensorc.te.tensor import Tensor, TensorBuffer, check_name

_ZERO = index(0)
_TRUE = const(True)


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
    taken: set[str] = set()
    buffers = {
        t: Buffer(_unique(t.name, taken), t.buffer.shape, t.dtype) for t in (*tensors, *internal)
    }
    nests: list[Stmt] = []
    flags: list[Buffer] = []
    for stage in stages:
        checks, more = _checks(stage, buffers, taken)
        nests += checks
        flags += more
        if stage is stage.siblings[-1]:
            nests.append(_nest(stage.siblings[0], buffers, taken))
    determined, scalars = _symbols(tensors, order)
    extents = _symbolic_extents(tensors, determined)
    return Function(
        name,
        params=tuple([buffers[t] for t in tensors]),
        outputs=tuple([buffers[t] for t in tensors if not t.is_placeholder]),
        scalars=scalars,
        allocs=(*[buffers[t] for t in internal], *flags),
        body=seq(*nests),
        assumptions=tuple([extent >= 0 for extent in extents]),
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


def _unique(name: str, taken: set[str]) -> str:
    """`name`, with a suffix where it is taken; the result is taken from now on."""
    unique, count = name, 0
    while unique in taken:
        count += 1
        unique = f"{name}_{count}"
    taken.add(unique)
    return unique


def symbols(tensors: Sequence[Tensor] | Tensor) -> tuple[Var, ...]:
    """The variables of te.var that these tensors depend on, those that extents determine first."""
    tensors = check_arguments(tensors)
    return sum(_symbols(tensors, in_order(tensors)), ())


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
    return tuple(determined), tuple([variable for variable in used if variable not in determined])


def _checks(
    stage: Tensor, buffers: Mapping[Tensor, Buffer], taken: set[str]
) -> tuple[list[Stmt], list[Buffer]]:
    """The checks of indices that a stage needs as it runs, with the buffers for them."""
    demands = check_accesses(stage)
    if not demands:
        return [], []
    axes = [*zip(stage.axes, stage.buffer.shape), *zip(stage.reduce_axes, stage.reduce_extents)]
    starts = dict(zip(stage.reduce_axes, stage.reduce_starts))
    done: dict[int, Expr] = {}
    return check_demands(
        buffers[stage].name,
        demands,
        axes,
        starts,
        lambda expr: _with_buffers(expr, buffers, done),
        lambda name: _unique(name, taken),
    )


def _nest(stage: Tensor, buffers: Mapping[Tensor, Buffer], taken: set[str]) -> Stmt:
    """The loops over the stage's axes, around its block."""
    buffer = buffers[stage]
    name = buffer.name if len(stage.siblings) == 1 else _unique_stage(stage, buffers, taken)
    init, body, reduce_axes, annotations = _computation(stage, buffers)
    iters: list[BlockIter] = []
    loops: list[Var] = []
    for var, extent in (*zip(stage.axes, buffer.shape), *reduce_axes):
        loop = Var(_unique(f"{name}.{var.name}", taken))
        kind: IterKind = "spatial" if len(iters) < len(stage.axes) else "reduce"
        around = {it.var: it.binding for it in iters}
        iters.append(BlockIter(var, substitute(extent, around), kind, loop))
        loops.append(loop)
    body = Block(name, tuple(iters), _TRUE, init, body, annotations)
    for loop, it in zip(reversed(loops), reversed(iters)):
        body = For(loop, _ZERO, it.extent, "serial", body)
    return body


def _unique_stage(stage: Tensor, buffers: Mapping[Tensor, Buffer], taken: set[str]) -> str:
    """The name of the block of several tensors: the stage's, which one of them may have."""
    own = next((t for t in stage.siblings if t.name == stage.stage), None)
    return _unique(stage.stage, taken) if own is None else buffers[own].name


def _computation(
    stage: Tensor, buffers: Mapping[Tensor, Buffer]
) -> tuple[Stmt | None, Stmt, tuple[tuple[Var, Expr], ...], Annotations]:
    """What the block does at first and in each instance, the axes it reduces, its annotations."""
    assert stage.body is not None  # only a placeholder has none
    done: dict[int, Expr] = {}
    reduction, tensors = stage.reduction, stage.siblings
    if reduction is None:
        value = _with_buffers(stage.body, buffers, done)
        return None, Store(buffers[stage], stage.axes, value), (), ()
    starts = [
        neutral if tensor.init is None else _with_buffers(tensor.init, buffers, done)
        for tensor, neutral in zip(tensors, reduction.identities)
    ]
    init = seq(*[Store(buffers[t], t.axes, start) for t, start in zip(tensors, starts)])
    if any(is_const(extent, 0) for extent in stage.reduce_extents):
        return None, init, (), ()  # no term: the loops would never reach the block to write anything
    body = update(
        [Load(buffers[tensor], tensor.axes) for tensor in tensors],
        [_with_buffers(t.body, buffers, done) for t in tensors if t.body is not None],
        reduction.old,
        reduction.new,
        reduction.combined,
    )
    operation = operation_of(reduction.combined, reduction.old, reduction.new)
    annotations = identity_annotations(operation, reduction.identities)
    extents = [_with_buffers(extent, buffers, done) for extent in stage.reduce_extents]
    return init, body, tuple(zip(stage.reduce_axes, extents)), annotations


def _with_buffers(expr: Expr, buffers: Mapping[Tensor, Buffer], done: dict[int, Expr]) -> Expr:
    """The expression with each tensor's loads from its buffer in this function."""
    operands = children(expr)
    if not operands and type(expr) is not Load:
        return expr
    if type(expr) is Assume:
        return _with_buffers(expr.value, buffers, done)
    new = done.get(id(expr))
    if new is None:
        operands = tuple([_with_buffers(operand, buffers, done) for operand in operands])
        if type(expr) is Load and isinstance(expr.buffer, TensorBuffer):
            new = Load(buffers[expr.buffer.tensor], operands)
        else:
            new = rebuild(expr, operands)
        done[id(expr)] = new
    return new
