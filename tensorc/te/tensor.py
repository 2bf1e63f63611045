"""Tensors, the iterators of their definitions, and the checks that names and shapes share."""

from __future__ import annotations

import operator
import re

from tensorc.dtypes import DType, int64
from tensorc.dtypes import dtype as as_dtype
from tensorc.errors import ExpressionError, UnsupportedError
from tensorc.ir.expr import Buffer, Const, Expr, Load, Var, as_index, const, index
from tensorc.ir.printer import show
from tensorc.ir.walk import walk_expr
from tensorc.te.maker import Maker
from tensorc.te.reducer import Reduction
from tensorc.te.whole import NoElements

_LONGEST_NAME = 200  # LLVM cuts names off, and steps of a schedule make longer ones of them
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*", re.ASCII)


class Axis(Var):
    """An iterator while a definition is written; `compute` puts a plain variable in its place.

    It takes the values start, start + 1, ... start + extent - 1. `is_named` tells a name that the
    user chose, which may not be taken twice, from one that may get a suffix.
    """

    __slots__ = ("extent", "is_named", "is_reduce", "start")

    def __init__(
        self, name: str, extent: Expr, start: int | Expr = 0, is_reduce=False, is_named=True
    ):
        super().__init__(name)
        self.extent = extent
        self.start = start
        self.is_reduce = is_reduce
        self.is_named = is_named

    def __repr__(self) -> str:
        return f"Axis({self.name!r})"


class TensorBuffer(Buffer):
    """The buffer of a tensor, by which a load finds it; lowering puts a plain one in its place."""

    __slots__ = ("tensor",)
    tensor: Tensor


class Tensor(NoElements):
    """An array by its definition: `body` at each point, combined over `reduce_axes`.

    A placeholder has no body. `axes` are the iterators, one a dimension and counted from 0;
    `reduce_extents` belong to `reduce_axes`, which `reduce_starts` were added to where the body uses
    them. `inputs` are the tensors that the body reads and
    `scalars` the variables of `te.var` in it, in order of appearance. `origin` is the name under
    which the user defined it, which differs from `name` for the stages that `compute` splits off.

    A reduction has a `reduction`, how it combines, and perhaps `init`, what it starts from. One of
    tuples makes several tensors at once, the `siblings`, itself included; `body` and `init` are the
    tensor's own, all else they share. `stage` names what computes them. What is not told by an
    expression of its elements has no body either, but a `maker`.
    """

    __slots__ = (
        "axes",
        "body",
        "buffer",
        "init",
        "inputs",
        "maker",
        "origin",
        "reduce_axes",
        "reduce_extents",
        "reduce_starts",
        "reduction",
        "scalars",
        "siblings",
        "stage",
    )

    def __init__(
        self,
        name: str,
        shape: tuple[Expr, ...],
        dtype: DType,
        *,
        axes: tuple[Var, ...] = (),
        body: Expr | None = None,
        reduction: Reduction | None = None,
        init: Expr | None = None,
        reduce_axes: tuple[Var, ...] = (),
        reduce_extents: tuple[Expr, ...] = (),
        reduce_starts: tuple[Expr, ...] = (),
        inputs: tuple[Tensor, ...] = (),
        scalars: tuple[Var, ...] = (),
        origin: str | None = None,
        stage: str | None = None,
        maker: Maker | None = None,
    ):
        self.buffer = TensorBuffer(name, shape, dtype)
        self.buffer.tensor = self
        self.axes = axes
        self.body = body
        self.reduction = reduction
        self.init = init
        self.reduce_axes = reduce_axes
        self.reduce_extents = reduce_extents
        self.reduce_starts = reduce_starts
        self.inputs = inputs
        self.scalars = scalars
        self.origin = origin or name
        self.stage = stage or name
        self.siblings: tuple[Tensor, ...] = (self,)
        self.maker = maker
        if maker is not None:
            self.inputs, self.scalars = maker.inputs, maker.scalars

    @property
    def name(self) -> str:
        return self.buffer.name

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype

    @property
    def ndim(self) -> int:
        return len(self.buffer.shape)

    @property
    def shape(self) -> tuple[int | Expr, ...]:
        """The extents: ints where they are constant."""
        return tuple([int(e.value) if type(e) is Const else e for e in self.buffer.shape])

    @property
    def ranges(self) -> tuple[Expr, ...]:
        """The starts and extents of the axes that are reduced, or updated in order."""
        own = (*self.reduce_starts, *self.reduce_extents)
        return own if self.maker is None else (*own, *self.maker.ranges)

    @property
    def reducer(self) -> str | None:
        """The name of the reducer, if the tensor is a reduction."""
        return None if self.reduction is None else self.reduction.name

    @property
    def is_placeholder(self) -> bool:
        return self.body is None and self.maker is None

    def __getitem__(self, indices) -> Load:
        """The element at these integer indices, one a dimension; of rank 0, `S[()]`."""
        if type(indices) is not tuple:
            indices = (indices,)
        if len(indices) != len(self.buffer.shape):
            raise ExpressionError(
                f"access {self.name}[...]: {len(indices)} indices for {self.ndim} dimensions; "
                "give one a dimension"
            )
        return Load(self.buffer, tuple([self._index(d, i) for d, i in enumerate(indices)]))

    def __array_ufunc__(self, ufunc, method, *_, **__):
        raise ExpressionError(
            f"np.{ufunc.__name__}: tensor {self.name!r} has no elements yet; index it in the function "
            f"of a te.compute, {self.name}[...], and use the functions of te"
        )

    def _index(self, dimension: int, value) -> Expr:
        if isinstance(value, Expr):
            if value.dtype is int64:
                return value
            if not value.dtype.is_int:
                raise ExpressionError(
                    f"access {self.name}[...]: index {dimension} is {value.dtype}; cast it to an "
                    "integer"
                )
        elif not is_integer(value):
            raise ExpressionError(
                f"access {self.name}[...]: index {dimension} is {described(value)}, not an integer or an "
                "expression"
            )
        return as_index(value)

    def __repr__(self) -> str:
        shape = ", ".join([show(extent) for extent in self.buffer.shape])
        return f"Tensor({self.name}: {self.dtype}[{shape}])"


def placeholder(shape, dtype: DType | str = "float32", name: str = "placeholder") -> Tensor:
    """A tensor that the caller gives.

    `shape` holds ints, or index expressions over `te.var` variables; `()` is one element. Raises
    ExpressionError for an extent that is negative, no integer, or makes more bytes than int64
    counts, and for a name that is no name.
    """
    what = f"placeholder {check_name('placeholder', name)!r}"
    dtype = check_dtype(what, dtype)
    extents = check_shape(what, shape)
    check_bytes(what, extents, dtype)
    return Tensor(name, extents, dtype)


def var(name: str, dtype: DType | str = "int64") -> Var:
    """A variable for symbolic extents, or a scalar parameter that bodies may read; int64."""
    check_name("var", name)
    if as_dtype(dtype) is not int64:
        raise UnsupportedError(
            f"var {name!r}: dtype {as_dtype(dtype)} is not supported, only int64; pass other "
            "scalars as a tensor of "
            "shape ()"
        )
    return Var(name)


def described(value) -> str:
    """What was given in the place of something else, for a message."""
    if isinstance(value, Expr):
        return f"the expression {show(value)}"
    if isinstance(value, (tuple, list)):
        inner = ", ".join([show(one) if isinstance(one, Expr) else repr(one) for one in value])
        return f"({inner})" if isinstance(value, tuple) else f"[{inner}]"
    return repr(value)


def check_name(what: str, name: str) -> str:
    """`name`, if it is one: ASCII letters, digits and `_`, in parts joined by dots."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ExpressionError(
            f"{what}: name {described(name)} is not a name; it is letters, digits and _, in parts joined "
            "by dots"
        )
    if len(name) > _LONGEST_NAME:
        raise ExpressionError(
            f"{what}: name {name[:20] + '...'!r} has {len(name)} letters, {_LONGEST_NAME} are the most"
        )
    return name


def is_integer(value) -> bool:
    """Whether Python and NumPy take a value for one integer; a bool is none."""
    return (
        hasattr(value, "__index__")
        and not isinstance(value, bool)
        and getattr(value, "ndim", 0) == 0
        and not isinstance(value, Expr)
    )


def check_dtype(what: str, dtype: DType | str) -> DType:
    dtype = as_dtype(dtype)
    if dtype.lanes != 1:
        raise ExpressionError(
            f"{what}: dtype {dtype} is a vector; elements of a tensor are scalars"
        )
    return dtype


def check_shape(what: str, shape) -> tuple[Expr, ...]:
    """The extents as index expressions; a single one stands for a vector's shape."""
    if isinstance(shape, (int, Expr)) or is_integer(shape):
        shape = (shape,)
    if isinstance(shape, Tensor):
        raise ExpressionError(f"{what}: shape {described(shape)} is not a tuple of extents")
    try:
        shape = tuple(shape)
    except TypeError:
        raise ExpressionError(f"{what}: shape {described(shape)} is not a tuple of extents") from None
    return tuple([check_extent(f"{what}: dimension {d}", e) for d, e in enumerate(shape)])


def check_bytes(what: str, shape: tuple[Expr, ...], dtype: DType) -> None:
    """An int64 must be able to count the bytes of a tensor."""
    size = dtype.bytes
    for extent in shape:
        size *= int(extent.value) if type(extent) is Const else 1
    if size > int64.max:
        raise ExpressionError(
            f"{what}: it takes {size} bytes, more than int64 can count ({int64.max})"
        )


def check_extent(where: str, extent, varies: bool = False) -> Expr:
    """An extent as an index expression, from an int or an expression over `te.var` variables; one that
    `varies` may depend on iterators and on data, too."""
    if type(extent) is int and 0 <= extent <= 4096:
        return index(extent)
    if isinstance(extent, Expr) and type(extent) is not Const:
        return _symbolic_extent(where, extent, varies)
    value = extent.value if type(extent) is Const else extent
    if not is_integer(value):
        raise ExpressionError(f"{where}: extent {described(value)} is not an integer")
    value = operator.index(value)
    if value < 0:
        raise ExpressionError(f"{where}: extent {value} is negative; an extent is 0 or more")
    if value > int64.max:
        raise ExpressionError(
            f"{where}: extent {value} does not fit int64, which ends at {int64.max}"
        )
    return const(value, int64)


def _symbolic_extent(where: str, extent: Expr, varies: bool) -> Expr:
    if not extent.dtype.is_int:
        raise ExpressionError(f"{where}: the extent is {extent.dtype}, not an integer")
    for inner in () if varies else walk_expr(extent):
        if type(inner) is Load:
            raise ExpressionError(
                f"{where}: the extent is loaded from {inner.buffer.name!r}; a shape depends on "
                "te.var only"
            )
        if isinstance(inner, Axis):
            raise ExpressionError(
                f"{where}: the extent depends on iterator {inner.name!r}; it may depend on "
                "te.var only"
            )
    return as_index(extent)
