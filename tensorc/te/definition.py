"""`compute`: from a Python function of indices to tensors, one for each reduction in it."""

from __future__ import annotations

import inspect
from types import FunctionType

from tensorc.dtypes import DType
from tensorc.errors import ExpressionError
from tensorc.ir.expr import (
    Binary,
    Const,
    Expr,
    IfThenElse,
    Load,
    Var,
    as_expr,
    as_index,
    logical_and,
    logical_not,
)
from tensorc.ir.walk import children, rebuild, walk_expr
from tensorc.te.halves import in_float32
from tensorc.te.reduce import Reduce, free_axes
from tensorc.te.reducer import reduction
from tensorc.te.tensor import (
    Axis,
    Tensor,
    TensorBuffer,
    check_bytes,
    check_dtype,
    check_name,
    check_shape,
    described,
)

MAX_DEPTH = 200  # of an expression: every pass recurses over it, some with three frames a level
MAX_SIZE = 100_000  # nodes of an expression as a tree: later passes repeat what is shared here
_VARARGS, _VARKEYWORDS = inspect.CO_VARARGS, inspect.CO_VARKEYWORDS


def compute(
    shape, fcompute, name: str = "compute", dtype: DType | str | None = None
) -> Tensor | tuple[Tensor, ...]:
    """The tensor whose element at (i, j, ...) is `fcompute(i, j, ...)`.

    The function's parameter names name the iterators; `*rest` takes those that are left. A
    reduction may stand anywhere in the body: one that is not the whole body becomes a stage of its
    own, called `<name>_sum` for a sum, over the iterators that it needs. `dtype` is what the
    elements must be, and what a plain number as body becomes.

    A function that returns a tuple defines as many tensors of this shape, which may differ in
    dtype, `<name>.v0`, `<name>.v1` and so on; they are returned as a tuple. If it is what a reducer
    of tuples returns, one stage computes them all; else each has its own.

    Raises ExpressionError where the function does not fit the shape or does not return
    expressions, and for all that te.placeholder refuses.
    """
    what = f"compute {check_name('compute', name)!r}"
    if dtype is not None:
        dtype = check_dtype(what, dtype)
    extents = check_shape(what, shape)
    if not callable(fcompute):
        raise ExpressionError(
            f"{what}: {described(fcompute)} is not callable; give a function of the indices"
        )
    axes = tuple(
        [Axis(n, e) for n, e in zip(_iterator_names(what, fcompute, len(extents)), extents)]
    )
    result = fcompute(*axes)
    is_tuple = isinstance(result, (tuple, list))
    if is_tuple and not result:
        raise ExpressionError(f"{what}: the function returns no expression, but an empty tuple")
    bodies = [_as_body(what, value, dtype) for value in (result if is_tuple else (result,))]
    for body in bodies:
        check_bytes(what, extents, body.dtype)
        _check_size(what, body)
        _check_names(what, axes, body)
    bodies = [in_float32(body) for body in bodies]
    splitter = Splitter(name)
    return splitter.stages(name, axes, bodies) if is_tuple else splitter.stage(name, axes, bodies[0])


def _iterator_names(what: str, fcompute, ndim: int) -> list[str]:
    """The names of the positional parameters without a default, extended by `*args`."""
    names, varargs = _parameters(what, fcompute)
    if varargs is not None:
        names += [f"{varargs}{d}" for d in range(ndim - len(names))]
    if len(names) != ndim:
        raise ExpressionError(
            f"{what}: the function takes {len(names)} "
            f"indices, the shape has {ndim} dimensions; "
            "give one parameter a dimension"
        )
    for name in names:
        check_name(f"{what}: iterator", name)
    return names


def _parameters(what: str, fcompute) -> tuple[list[str], str | None]:
    if type(fcompute) is FunctionType and not fcompute.__defaults__ and not fcompute.__kwdefaults__:
        code = fcompute.__code__  # the common case, an order of magnitude faster than a signature
        if not code.co_flags & (_VARARGS | _VARKEYWORDS) and not code.co_kwonlyargcount:
            return list(code.co_varnames[: code.co_argcount]), None
    try:
        parameters = inspect.signature(fcompute).parameters.values()
    except ValueError:
        raise ExpressionError(
            f"{what}: {fcompute!r} does not tell its parameters; wrap it in a lambda"
        ) from None
    names, varargs = [], None
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            varargs = parameter.name
        elif parameter.default is not parameter.empty or parameter.kind is parameter.VAR_KEYWORD:
            continue
        elif parameter.kind is parameter.KEYWORD_ONLY:
            raise ExpressionError(
                f"{what}: parameter {parameter.name!r} is keyword-only; indices come by position"
            )
        else:
            names.append(parameter.name)
    return names, varargs


def _as_body(what: str, value, dtype: DType | None) -> Expr:
    if isinstance(value, Tensor):
        raise ExpressionError(
            f"{what}: the function returns tensor {value.name!r} itself; index it, "
            f"{value.name}[...]"
        )
    if value is None:
        raise ExpressionError(f"{what}: the function returns None; it must return an expression")
    if isinstance(value, (tuple, list)):
        raise ExpressionError(
            f"{what}: the function returns a {type(value).__name__} in a tuple; an element of the "
            "tuple is one expression"
        )
    try:
        body = as_expr(value, None if isinstance(value, Expr) else dtype)
    except ExpressionError as error:
        raise ExpressionError(f"{what}: {error}") from None
    if body.dtype.lanes != 1:
        raise ExpressionError(
            f"{what}: the body is the vector {body.dtype}; an element is a scalar"
        )
    if dtype is not None and body.dtype is not dtype:
        raise ExpressionError(
            f"{what}: the body is {body.dtype}, dtype asks for {dtype}; cast the body"
        )
    return body


def _check_size(what: str, body: Expr) -> None:
    """Refuse bodies that a recursive walk could not finish.

    This walk is iterative, and goes but once over what is shared.
    """
    known: dict[int, tuple[int, int]] = {}
    stack = [body]
    while stack:
        expr = stack[-1]
        if id(expr) in known:
            stack.pop()
            continue
        operands = children(expr)
        missing = [operand for operand in operands if id(operand) not in known]
        if missing:
            stack.extend(missing)
            continue
        stack.pop()
        depth = size = 1
        for operand in operands:
            inner_depth, inner_size = known[id(operand)]
            depth = inner_depth + 1 if inner_depth >= depth else depth
            size += inner_size
        known[id(expr)] = (depth, size)
    depth, size = known[id(body)]
    if depth > MAX_DEPTH:
        raise ExpressionError(
            f"{what}: the body is {depth} operations deep, more than {MAX_DEPTH}; make "
            "a tensor of a part of it, or a reduction of a long sum"
        )
    if size > MAX_SIZE:
        raise ExpressionError(
            f"{what}: the body written out is {size} operations, more than "
            f"{MAX_SIZE}; make a tensor of a part that it uses more than once"
        )


def _check_names(what: str, axes: tuple[Axis, ...], body: Expr) -> None:
    """A reduce axis that the user named may not be named as an iterator of the result."""
    names = {axis.name for axis in axes}
    for axis in body.axes if type(body) is Reduce else ():
        if axis.is_named and axis.name in names:
            raise ExpressionError(
                f"{what}: reduce axis {axis.name!r} is named as another iterator here; give it a "
                "name of its own"
            )
        names.add(axis.name)


class Splitter:
    """Turns a body into stages: one tensor for it, and one for each reduction inside."""

    def __init__(self, origin: str):
        self.origin = origin
        self.lifted: dict[tuple, tuple[tuple[Tensor, ...], tuple[Axis, ...]]] = {}

    def stages(self, name: str, axes: tuple[Axis, ...], bodies: list[Expr]) -> tuple[Tensor, ...]:
        """The tensors of a tuple: values of one reduction in one stage, else one stage each."""
        first = bodies[0]
        if type(first) is Reduce:
            items = [body.item for body in bodies if type(body) is Reduce]
            if bodies == [first.at(item) for item in items] and len(set(items)) == len(items):
                tensors = self.reduction(name, axes, first)
                return tuple([tensors[item] for item in items])
        return tuple([self.stage(f"{name}.v{n}", axes, body) for n, body in enumerate(bodies)])

    def stage(self, name: str, axes: tuple[Axis, ...], body: Expr) -> Tensor:
        """The tensor `name` over `axes`; a body that is a reduction becomes the stage's own."""
        if type(body) is Reduce:
            return self.reduction(name, axes, body, body.item)[body.item]
        variables = plain_variables(axes)
        converter = Converter(self, name, variables)
        value = converter.convert(body, ())
        return Tensor(
            name,
            tuple([axis.extent for axis in axes]),
            body.dtype,
            axes=tuple([variables[axis] for axis in axes]),
            body=value,
            inputs=tuple(converter.inputs),
            scalars=tuple(converter.scalars),
            origin=self.origin,
        )

    def reduction(
        self, name: str, axes: tuple[Axis, ...], reduce: Reduce, own: int | None = None
    ) -> tuple[Tensor, ...]:
        """The tensors of the stage `name` that reduces; the one numbered `own` has its name."""
        variables = plain_variables((*axes, *reduce.axes))
        converter = Converter(self, name, variables)
        for axis in reduce.axes:
            if axis in axes:
                raise ExpressionError(_reduced_twice(self.origin, axis))
        self.check_ranges(reduce.axes)
        extents = tuple([converter.convert(axis.extent, ()) for axis in reduce.axes])
        starts = tuple([converter.convert(as_index(axis.start), ()) for axis in reduce.axes])
        bodies = [converter.convert(value, ()) for value in reduce.values]
        init: list[Expr | None] = [converter.convert(value, ()) for value in reduce.init]
        init = init or [None] * len(bodies)
        own = 0 if len(bodies) == 1 else own
        tensors = tuple([
            Tensor(
                name if item == own else f"{name}.v{item}",
                tuple([axis.extent for axis in axes]),
                body.dtype,
                axes=tuple([variables[axis] for axis in axes]),
                body=body,
                reduction=reduction(reduce.reducer, tuple([body.dtype for body in bodies])),
                init=start,
                reduce_axes=tuple([variables[axis] for axis in reduce.axes]),
                reduce_extents=extents,
                reduce_starts=starts,
                inputs=tuple(converter.inputs),
                scalars=tuple(converter.scalars),
                origin=self.origin,
                stage=name,
            )
            for item, (body, start) in enumerate(zip(bodies, init))
        ])  # fmt: skip
        for tensor in tensors:
            tensor.siblings = tensors
        return tensors

    def check_ranges(self, axes: tuple[Axis, ...]) -> None:
        """The range of a reduce axis may depend on those before it."""
        for position, axis in enumerate(axes):
            for later in axes[position:]:
                if later in free_axes(axis.extent) | free_axes(as_index(axis.start)):
                    raise ExpressionError(
                        f"compute {self.origin!r}: the range of reduce axis {axis.name!r} depends on "
                        f"{later.name!r}, which does not come before it in axis="
                    )

    def check_box(self, axes: tuple[Axis, ...]) -> None:
        """A reduction in another becomes a tensor over axes of the latter, whose extents must be those of a shape."""
        for axis in axes:
            if any(type(e) is Load or isinstance(e, Axis) for e in walk_expr(axis.extent)):
                raise ExpressionError(
                    f"compute {self.origin!r}: a reduction stands in one over {axis.name!r}, whose "
                    "extent varies; reduce over both axes at once, or make a tensor of the inner one"
                )

    def lift(
        self, name: str, reduce: Reduce, guards: tuple[Expr, ...], scope: dict[Axis, Var]
    ) -> tuple[Tensor, tuple[Axis, ...]]:
        """The tensor that holds a reduction, and the axes in scope that it is over."""
        guards = _useful(guards, reduce)
        key = (reduce.at(0), guards)
        if key not in self.lifted:
            # a load that the definition guards stays guarded in the stage of its own
            inner = reduce.guarded(logical_and(*guards)) if guards else reduce
            free = free_axes(inner)
            axes = tuple([axis for axis in scope if axis in free])
            self.check_box(axes)
            tensors = self.reduction(f"{name}_{reduce.reducer.name}", axes, inner)
            self.lifted[key] = (tensors, axes)
        tensors, axes = self.lifted[key]
        return tensors[reduce.item], axes


class Converter:
    """Puts plain variables for axes and loads for reductions; notes what the body reads."""

    def __init__(self, splitter: Splitter, name: str, scope: dict[Axis, Var]):
        self.splitter = splitter
        self.name = name
        self.scope = scope
        self.inputs: dict[Tensor, None] = {}
        self.scalars: dict[Var, None] = {}
        self.done: dict[tuple, Expr] = {}

    def convert(self, expr: Expr, guards: tuple[Expr, ...]) -> Expr:
        """`expr` in plain variables; `guards` are the conditions under which it is evaluated."""
        if type(expr) is Const:
            return expr
        key = (id(expr), guards)
        done = self.done.get(key)
        if done is None:
            done = self.done[key] = self._convert(expr, guards)
        return done

    def _convert(self, expr: Expr, guards: tuple[Expr, ...]) -> Expr:
        if isinstance(expr, Binary):
            a, b = self.convert(expr.a, guards), self.convert(expr.b, guards)
            return expr if a is expr.a and b is expr.b else type(expr)(a, b)
        match expr:
            case Axis():
                return self._axis(expr)
            case Var():
                self.scalars[expr] = None
                return expr
            case Reduce():
                return self._reduce(expr, guards)
            case IfThenElse(condition, true, false):
                return IfThenElse(
                    self.convert(condition, guards),
                    self.convert(true, (*guards, condition)),
                    self.convert(false, (*guards, logical_not(condition))),
                )
        if type(expr) is Load:
            self._note(expr)
        return rebuild(expr, tuple([self.convert(operand, guards) for operand in children(expr)]))

    def _axis(self, axis: Axis) -> Expr:
        plain = self.scope.get(axis)
        if plain is not None:
            if isinstance(axis.start, Expr):
                return plain + self.convert(axis.start, ())
            return plain + axis.start if axis.start > 0 else plain - -axis.start
        what = f"compute {self.splitter.origin!r}"
        if axis.is_reduce:
            raise ExpressionError(
                f"{what}: reduce axis {axis.name!r} is used outside of a reduction over it; "
                "name it in axis= of te.sum or its kin"
            )
        raise ExpressionError(
            f"{what}: iterator {axis.name!r} belongs to another compute; use the function's own"
        )

    def _reduce(self, reduce: Reduce, guards: tuple[Expr, ...]) -> Expr:
        for axis in reduce.axes:
            if axis in self.scope:
                raise ExpressionError(_reduced_twice(self.splitter.origin, axis))
        stage, axes = self.splitter.lift(self.name, reduce, guards, self.scope)
        self.inputs[stage] = None
        return Load(stage.buffer, tuple([self.scope[axis] for axis in axes]))

    def _note(self, load: Load) -> None:
        if not isinstance(load.buffer, TensorBuffer):
            raise ExpressionError(
                f"compute {self.splitter.origin!r}: buffer {load.buffer.name!r} belongs to no "
                "tensor; read tensors"
            )
        self.inputs[load.buffer.tensor] = None


def _reduced_twice(origin: str, axis: Axis) -> str:
    return (
        f"compute {origin!r}: axis {axis.name!r} is reduced twice, one reduction in another; "
        "declare a second axis"
    )


def plain_variables(axes: tuple[Axis, ...]) -> dict[Axis, Var]:
    """A variable for each axis, with names made different by a suffix."""
    names: set[str] = set()
    variables = {}
    for axis in axes:
        name, count = axis.name, 0
        while name in names:
            count += 1
            name = f"{axis.name}_{count}"
        names.add(name)
        variables[axis] = Var(name)
    return variables


def _useful(guards: tuple[Expr, ...], reduce: Reduce) -> tuple[Expr, ...]:
    """The conditions that may help to prove an access in a reduction.

    They hold no reduction, load something only where indices do, and share an axis with the
    reduction: others only make its stage larger.
    """
    if not guards:
        return ()
    free = free_axes(reduce)
    by_data = any(_is_by_data(e) for value in reduce.values for e in walk_expr(value))

    def is_useful(guard: Expr) -> bool:
        if any(type(e) is Reduce or (type(e) is Load and not by_data) for e in walk_expr(guard)):
            return False
        axes = free_axes(guard)
        return not axes or not free.isdisjoint(axes)

    return tuple([guard for guard in guards if is_useful(guard)])


def _is_by_data(expr: Expr) -> bool:
    """Whether an expression is an access whose index is loaded."""
    return type(expr) is Load and any(type(e) is Load for i in expr.indices for e in walk_expr(i))
