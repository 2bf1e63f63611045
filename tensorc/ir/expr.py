"""Expressions of the IR: frozen, slotted dataclasses; docs/ir.md gives their grammar and meaning.

Construct nodes through the operators and the functions below, which check dtypes, let Python literals adopt the
dtype of the other operand, and fold constants; the classes themselves check nothing and are for passes.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeGuard

from tensorc.dtypes import DType, bool_, int64
from tensorc.dtypes import dtype as as_dtype
from tensorc.errors import ExpressionError
from tensorc.ir.refusals import NoNumber
from tensorc.ir.ufuncs import advice

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:  # tells type checkers that `node` makes dataclasses; at run time it is nothing

    def dataclass_transform(**_):
        return lambda function: function


_set = object.__setattr__


class Node:
    """Structural equality and a cached hash for every node of the IR."""

    __slots__ = ("_hash",)
    _hash: int
    _fields: ClassVar[tuple[str, ...]] = ()

    def _key(self) -> tuple:
        return tuple([getattr(self, name) for name in self._fields])

    def __eq__(self, other) -> bool:
        if self is other:
            return True
        if type(self) is not type(other) or hash(self) != hash(other):
            return False
        return self._key() == other._key()

    def __ne__(self, other) -> bool:
        return not self == other

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            _set(self, "_hash", hash((type(self).__name__, self._key())))
            return self._hash


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def node(cls):
    """Make a class a node of the IR: frozen, slotted, its fields in order of declaration."""
    cls = dataclass(frozen=True, slots=True, eq=False)(cls)
    cls._fields = tuple(cls.__match_args__)
    return cls


class Expr(Node, NoNumber):
    """A value: scalar, or a vector where its dtype has lanes. `dtype` is set when a node is made."""

    __slots__ = ()
    dtype: DType

    @property
    def operands(self) -> tuple[Expr, ...]:
        """Of a node that a layer above adds; `ir.walk.children` knows those of the IR's own."""
        raise NotImplementedError(type(self).__name__)

    def with_operands(self, operands: tuple[Expr, ...]) -> Expr:
        """Such a node with others in their place."""
        raise NotImplementedError(type(self).__name__)

    def __bool__(self):
        raise ExpressionError(
            "an expression has no truth value while it is being built: use te.all, te.any, te.if_then_else or te.eq"
        )

    def __add__(self, other):
        return add(self, other)

    def __radd__(self, other):
        return add(other, self)

    def __sub__(self, other):
        return sub(self, other)

    def __rsub__(self, other):
        return sub(other, self)

    def __mul__(self, other):
        return mul(self, other)

    def __rmul__(self, other):
        return mul(other, self)

    def __truediv__(self, other):
        return div(self, other)

    def __rtruediv__(self, other):
        return div(other, self)

    def __floordiv__(self, other):
        return floordiv(self, other)

    def __rfloordiv__(self, other):
        return floordiv(other, self)

    def __mod__(self, other):
        return mod(self, other)

    def __rmod__(self, other):
        return mod(other, self)

    def __divmod__(self, other):
        return floordiv(self, other), mod(self, other)

    def __rdivmod__(self, other):
        return floordiv(other, self), mod(other, self)

    def __pow__(self, other):
        return power(self, other)

    def __rpow__(self, other):
        return power(other, self)

    def __neg__(self):
        return neg(self)

    def __abs__(self):
        return absolute(self)

    def __array_ufunc__(self, ufunc, method, *inputs, **_):
        """NumPy's operators leave theirs to ours, whichever side an array or a scalar of NumPy stands on."""
        operation = _UFUNCS.get(ufunc.__name__) if method == "__call__" else None
        if operation is None:
            raise ExpressionError(advice(ufunc.__name__, method))
        return operation(*inputs)

    def __lt__(self, other):
        return _compare(LT, self, other)

    def __le__(self, other):
        return _compare(LE, self, other)

    def __gt__(self, other):
        return _compare(GT, self, other)

    def __ge__(self, other):
        return _compare(GE, self, other)

    def __and__(self, other):
        return _bitwise(BitAnd, self, other)

    def __rand__(self, other):
        return _bitwise(BitAnd, other, self)

    def __or__(self, other):
        return _bitwise(BitOr, self, other)

    def __ror__(self, other):
        return _bitwise(BitOr, other, self)

    def __xor__(self, other):
        return _bitwise(BitXor, self, other)

    def __rxor__(self, other):
        return _bitwise(BitXor, other, self)

    def __lshift__(self, other):
        return _bitwise(ShiftLeft, self, other)

    def __rlshift__(self, other):
        return _bitwise(ShiftLeft, other, self)

    def __rshift__(self, other):
        return _bitwise(ShiftRight, self, other)

    def __rrshift__(self, other):
        return _bitwise(ShiftRight, other, self)

    def __invert__(self):
        if self.dtype.is_bool:
            return logical_not(self)
        return _bitwise(BitXor, self, -1 if self.dtype.is_signed else self.dtype.max)


@node
class Const(Expr):
    """A literal; compared by bits, so that 0.0 is not -0.0 and NaN is NaN."""

    value: Any  # int, float or bool: whichever the dtype says
    dtype: DType

    def _key(self) -> tuple:
        value = struct.pack("d", self.value) if isinstance(self.value, float) else self.value
        return (value, self.dtype.name)


class Var(Expr):
    """A scalar variable: loop variable, block iterator, `let`, or parameter. Two variables are never equal.

    `wraps` tells one that may hold any number, so that sums with it may wrap; others count or measure something.
    """

    __slots__ = ("dtype", "name", "wraps")

    def __init__(self, name: str, dtype: DType | str = int64, wraps: bool = False):
        self.name = name
        self.dtype = as_dtype(dtype)
        self.wraps = wraps

    def __eq__(self, other) -> bool:
        return self is other

    def __ne__(self, other) -> bool:
        return self is not other

    def __hash__(self) -> int:
        return id(self) >> 4

    def copy(self, name: str | None = None) -> Var:
        """Another variable of this kind, by this or another name."""
        return Var(self.name if name is None else name, self.dtype, self.wraps)

    def __repr__(self) -> str:
        return f"Var({self.name!r})"


@node
class Binary(Expr):
    """An operation on two operands of one dtype; its kinds are the subclasses below."""

    a: Expr
    b: Expr
    dtype: DType = field(init=False, repr=False)
    symbol: ClassVar[str] = ""

    def __post_init__(self):
        _set(self, "dtype", self.a.dtype)


class Compare(Binary):
    """A comparison: bool, with the lanes of its operands."""

    __slots__ = ()

    def __post_init__(self):
        lanes = self.a.dtype.lanes
        _set(self, "dtype", bool_ if lanes == 1 else bool_.with_lanes(lanes))


class Add(Binary):
    """a + b."""

    __slots__ = ()
    symbol = "+"


class Sub(Binary):
    """a - b."""

    __slots__ = ()
    symbol = "-"


class Mul(Binary):
    """a * b."""

    __slots__ = ()
    symbol = "*"


class Div(Binary):
    """a / b of floats."""

    __slots__ = ()
    symbol = "/"


class FloorDiv(Binary):
    """a // b of integers, rounded down; 0 where b is 0."""

    __slots__ = ()
    symbol = "//"


class Mod(Binary):
    """a - a // b * b of integers; 0 where b is 0."""

    __slots__ = ()
    symbol = "%"


class Min(Binary):
    """The smaller; NaN if either is."""

    __slots__ = ()
    symbol = "min"


class Max(Binary):
    """The larger; NaN if either is."""

    __slots__ = ()
    symbol = "max"


class BitAnd(Binary):
    """The bits of both."""

    __slots__ = ()
    symbol = "&"


class BitOr(Binary):
    """The bits of either."""

    __slots__ = ()
    symbol = "|"


class BitXor(Binary):
    """The bits of just one."""

    __slots__ = ()
    symbol = "^"


class ShiftLeft(Binary):
    """a * 2**b; 0 at or past the width."""

    __slots__ = ()
    symbol = "<<"


class ShiftRight(Binary):
    """a // 2**b; 0 or the sign at or past the width."""

    __slots__ = ()
    symbol = ">>"


class And(Binary):
    """Both hold; both are evaluated."""

    __slots__ = ()
    symbol = "and"


class Or(Binary):
    """Either holds; both are evaluated."""

    __slots__ = ()
    symbol = "or"


class EQ(Compare):
    """a equals b."""

    __slots__ = ()
    symbol = "=="


class NE(Compare):
    """a differs from b."""

    __slots__ = ()
    symbol = "!="


class LT(Compare):
    """a is less than b."""

    __slots__ = ()
    symbol = "<"


class LE(Compare):
    """a is at most b."""

    __slots__ = ()
    symbol = "<="


class GT(Compare):
    """a is more than b."""

    __slots__ = ()
    symbol = ">"


class GE(Compare):
    """a is at least b."""

    __slots__ = ()
    symbol = ">="


@node
class Not(Expr):
    """The other bool."""

    value: Expr
    dtype: DType = field(init=False, repr=False)

    def __post_init__(self):
        _set(self, "dtype", self.value.dtype)


@node
class Neg(Expr):
    """The negative; of a float, the sign bit flipped."""

    value: Expr
    dtype: DType = field(init=False, repr=False)

    def __post_init__(self):
        _set(self, "dtype", self.value.dtype)


@node
class Cast(Expr):
    """Conversion to a dtype of as many lanes: saturating from float to integer, NaN to 0; wrapping between integers."""

    value: Expr
    dtype: DType


@node
class Select(Expr):
    """`true` where the condition holds, else `false`; both are evaluated."""

    condition: Expr
    true: Expr
    false: Expr
    dtype: DType = field(init=False, repr=False)

    def __post_init__(self):
        _set(self, "dtype", self.true.dtype)


@node
class IfThenElse(Expr):
    """As Select, but only the chosen side is evaluated, so that the condition guards the loads in it."""

    condition: Expr
    true: Expr
    false: Expr
    dtype: DType = field(init=False, repr=False)

    def __post_init__(self):
        _set(self, "dtype", self.true.dtype)


@node
class Load(Expr):
    """An element of a buffer, or the vector of elements that vector indices name; lanes off in `mask` read as 0."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    mask: Expr | None = None
    dtype: DType = field(init=False, repr=False)

    def __post_init__(self):
        lanes = 1
        for index in self.indices:
            if index.dtype.lanes > lanes:
                lanes = index.dtype.lanes
        _set(self, "dtype", self.buffer.dtype if lanes == 1 else self.buffer.dtype.with_lanes(lanes))


@node
class Call(Expr):
    """An intrinsic of the table in `ir/intrinsic.py`, by name."""

    name: str
    args: tuple[Expr, ...]
    dtype: DType


@node
class Ramp(Expr):
    """The vector base, base + stride, ... of `lanes` integers."""

    base: Expr
    stride: Expr
    lanes: int
    dtype: DType = field(init=False, repr=False)

    def __post_init__(self):
        _set(self, "dtype", self.base.dtype.with_lanes(self.lanes))


@node
class Broadcast(Expr):
    """A scalar in every lane."""

    value: Expr
    lanes: int
    dtype: DType = field(init=False, repr=False)

    def __post_init__(self):
        _set(self, "dtype", self.value.dtype.with_lanes(self.lanes))


class Buffer:
    """Memory that a function reads and writes: a name, a shape, a dtype and a scope; two buffers are never equal.

    `strides` is None for the contiguous layout, else one element stride (an Expr) a dimension. Scopes: "global"
    (arguments and workspace), "local" (the stack or registers of one thread), "shared", "warp", "fragment".
    `alignment` is what the address of element 0 is known to be a multiple of, in bytes. `padding` asks of internal
    buffers that the stride of `axis` be `offset` more than a multiple of `factor`, for each (axis, factor, offset).
    """

    __slots__ = ("alignment", "dtype", "name", "padding", "scope", "shape", "strides")

    def __init__(self, name, shape, dtype, scope="global", strides=None, alignment=None, padding=()):
        self.name = name
        self.shape = tuple(as_index(extent) for extent in shape)
        self.dtype = as_dtype(dtype)
        self.scope = scope
        self.strides = None if strides is None else tuple(as_index(stride) for stride in strides)
        self.alignment = alignment or self.dtype.bytes
        self.padding = padding

    def with_(self, **changes) -> Buffer:
        """A new buffer that differs in the named attributes."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return Buffer(**{**fields, **changes})

    def __repr__(self) -> str:
        return f"Buffer({self.name!r})"


def const(value, dtype: DType | str) -> Const:
    """The literal `value` of a dtype; floats are rounded to it. Raises ExpressionError if it does not fit."""
    dtype = as_dtype(dtype)
    if not isinstance(value, (int, float)):
        value = _plain_number(value, dtype)
    if dtype.is_bool:
        if value not in (0, 1):
            raise ExpressionError(f"literal {value!r} is no bool")
        return Const(bool(value), dtype)
    if dtype.is_int:
        number = int(value) if math.isfinite(value) else 0
        if number != value:
            raise ExpressionError(f"literal {value!r} is no {dtype}: cast one of the operands")
        if not dtype.min <= number <= dtype.max:
            raise ExpressionError(f"literal {value!r} does not fit {dtype}, which holds {dtype.min} to {dtype.max}")
        return Const(number, dtype)
    try:
        return Const(_round(float(value), dtype), dtype)
    except OverflowError:
        raise ExpressionError(f"literal of {value.bit_length()} bits does not fit {dtype}") from None


def _plain_number(value, dtype: DType) -> int | float:
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    if isinstance(value, (int, float)):
        return value
    given = "an expression" if isinstance(value, Expr) else repr(value)
    raise ExpressionError(f"{given} is not a number, which a literal of {dtype} must be")


def _round(value: float, dtype: DType) -> float:
    if dtype.bits == 64 or not math.isfinite(value):
        return value
    if dtype.kind == "bfloat":
        return float(dtype.numpy.type(value))
    try:
        code = "e" if dtype.bits == 16 else "f"
        return struct.unpack(code, struct.pack(code, value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


@lru_cache(maxsize=4096)
def index(value: int) -> Const:
    """The int64 literal."""
    return Const(int(value), int64)


def as_index(value) -> Expr:
    """An index expression from an int or an Expr; other integer dtypes are cast to int64."""
    if type(value) is int:
        return index(value) if -4096 <= value <= 4096 else const(value, int64)
    if isinstance(value, Expr):
        if value.dtype.scalar is int64:
            return value
        if value.dtype.is_int:
            return cast(value, int64.with_lanes(value.dtype.lanes))
        raise ExpressionError(f"an index must be an integer, not {value.dtype}")
    try:
        return const(value.__index__(), int64)
    except AttributeError:
        raise ExpressionError(f"an index must be an integer, not {value!r}") from None


def as_expr(value, like: DType | None = None) -> Expr:
    """An Expr from an Expr or a literal; a literal adopts the dtype `like`, by default int64, float32 or bool."""
    if isinstance(value, Expr):
        return value
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # a NumPy scalar keeps its own dtype
        return const(value.item(), as_dtype(value.dtype))
    if not isinstance(value, (bool, int, float)):
        raise ExpressionError(f"{value!r} is neither an expression nor a number")
    if like is None:
        like = bool_ if isinstance(value, bool) else int64 if isinstance(value, int) else as_dtype("float32")
    if like.is_bool != isinstance(value, bool):
        raise ExpressionError(f"literal {value!r} cannot stand beside {like}: cast one of the operands")
    scalar = const(value, like.scalar)
    return scalar if like.lanes == 1 else Broadcast(scalar, like.lanes)


def match_dtypes(what: str, a, b) -> tuple[Expr, Expr]:
    """Both operands as expressions of one dtype; raises ExpressionError where they differ."""
    if isinstance(a, Expr):
        if not isinstance(b, Expr):
            b = as_expr(b, a.dtype)
    elif isinstance(b, Expr):
        a = as_expr(a, b.dtype)
    else:
        a, b = as_expr(a), as_expr(b)
    if a.dtype is not b.dtype:
        raise ExpressionError(f"{what}: operands are {a.dtype} and {b.dtype}; cast one of them")
    return a, b


def is_const(expr: Expr, value=None) -> TypeGuard[Const]:
    """Whether `expr` is a literal (of this value)."""
    return type(expr) is Const and (value is None or expr.value == value)


def wrap(value: int, dtype: DType) -> int:
    """`value` modulo the width of an integer dtype."""
    value &= (1 << dtype.bits) - 1
    if dtype.is_signed and value >> (dtype.bits - 1):
        value -= 1 << dtype.bits
    return value


def _both_int_consts(a: Expr, b: Expr) -> bool:
    return type(a) is Const and type(b) is Const and a.dtype.is_int


def _numeric(what: str, dtype: DType) -> None:
    if dtype.is_bool:
        raise ExpressionError(f"{what}: bool has no arithmetic; cast it, or use te.all, te.any and ~")


def add(a, b) -> Expr:
    a, b = match_dtypes("a + b", a, b)
    _numeric("a + b", a.dtype)
    if a.dtype.is_int:
        if _both_int_consts(a, b):
            return Const(wrap(a.value + b.value, a.dtype), a.dtype)
        if is_const(a, 0):
            return b
        if is_const(b, 0):
            return a
    return Add(a, b)


def sub(a, b) -> Expr:
    a, b = match_dtypes("a - b", a, b)
    _numeric("a - b", a.dtype)
    if a.dtype.is_int:
        if _both_int_consts(a, b):
            return Const(wrap(a.value - b.value, a.dtype), a.dtype)
        if is_const(b, 0):
            return a
    return Sub(a, b)


def mul(a, b) -> Expr:
    a, b = match_dtypes("a * b", a, b)
    _numeric("a * b", a.dtype)
    if a.dtype.is_int:
        if _both_int_consts(a, b):
            return Const(wrap(a.value * b.value, a.dtype), a.dtype)
        if is_const(a, 1) or is_const(b, 0):
            return b
        if is_const(b, 1) or is_const(a, 0):
            return a
    return Mul(a, b)


def div(a, b) -> Expr:
    a, b = match_dtypes("a / b", a, b)
    if not a.dtype.is_float:
        raise ExpressionError(f"a / b: operands are {a.dtype}; use // for integers, or cast to a float")
    return Div(a, b)


def floordiv(a, b) -> Expr:
    a, b = match_dtypes("a // b", a, b)
    _numeric("a // b", a.dtype)
    if a.dtype.is_float:
        return Call("floor", (Div(a, b),), a.dtype)
    if _both_int_consts(a, b):
        return Const(wrap(a.value // b.value, a.dtype) if b.value else 0, a.dtype)
    return a if is_const(b, 1) else FloorDiv(a, b)


def mod(a, b) -> Expr:
    a, b = match_dtypes("a % b", a, b)
    if not a.dtype.is_int:
        raise ExpressionError(f"a % b: operands are {a.dtype}; use te.fmod for floats")
    if _both_int_consts(a, b):
        return Const(wrap(a.value % b.value, a.dtype) if b.value else 0, a.dtype)
    return Const(0, a.dtype) if is_const(b, 1) else Mod(a, b)


MOST_FACTORS = 8  # that a power of integers is multiplied out to


def power(a, b) -> Expr:
    """a**b of floats; of integers where b is a small number, as multiplications."""
    a, b = match_dtypes("a ** b", a, b)
    if a.dtype.is_float:
        is_square = type(b) is Const and b.value == 2  # multiplied, it is rounded as well
        return Mul(a, a) if is_square else Call("pow", (a, b), a.dtype)
    _numeric("a ** b", a.dtype)
    if type(b) is not Const or not 0 <= b.value <= MOST_FACTORS:
        exponent = f"exponent {b.value}" if type(b) is Const else "the exponent"
        raise ExpressionError(
            f"a ** b: {exponent} of {a.dtype} is not a number from 0 to {MOST_FACTORS}; cast to a float, or use << "
            "for powers of 2"
        )
    return _multiplied(a, b.value)


def _multiplied(value: Expr, times: int) -> Expr:
    if times == 0:
        return const(1, value.dtype)
    if times == 1:
        return value
    half = _multiplied(value, times // 2)
    square = mul(half, half)
    return mul(square, value) if times % 2 else square


def absolute(value) -> Expr:
    """The absolute value of an integer or a float."""
    value = as_expr(value)
    _numeric("abs(a)", value.dtype)
    return Call("abs", (value,), value.dtype)


def neg(value) -> Expr:
    value = as_expr(value)
    _numeric("-a", value.dtype)
    if type(value) is Const:
        return const(wrap(-value.value, value.dtype) if value.dtype.is_int else -value.value, value.dtype)
    return Neg(value)


def minimum(a, b) -> Expr:
    a, b = match_dtypes("min(a, b)", a, b)
    _numeric("min(a, b)", a.dtype)
    return Const(min(a.value, b.value), a.dtype) if _both_int_consts(a, b) else Min(a, b)


def maximum(a, b) -> Expr:
    a, b = match_dtypes("max(a, b)", a, b)
    _numeric("max(a, b)", a.dtype)
    return Const(max(a.value, b.value), a.dtype) if _both_int_consts(a, b) else Max(a, b)


_COMPARE = {
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b,
}


def _compare(cls, a, b) -> Expr:
    a, b = match_dtypes(f"a {cls.symbol} b", a, b)
    if cls is not EQ and cls is not NE:
        _numeric(f"a {cls.symbol} b", a.dtype)
    if type(a) is Const and type(b) is Const:
        return Const(_COMPARE[cls.__name__](a.value, b.value), bool_)
    return cls(a, b)


def eq(a, b) -> Expr:
    return _compare(EQ, a, b)


def ne(a, b) -> Expr:
    return _compare(NE, a, b)


def _bitwise(cls, a, b) -> Expr:
    a, b = match_dtypes(f"a {cls.symbol} b", a, b)
    if a.dtype.is_bool and cls in (BitAnd, BitOr):
        return logical_and(a, b) if cls is BitAnd else logical_or(a, b)
    if a.dtype.is_bool and cls is BitXor:
        return NE(a, b)
    if not a.dtype.is_int:
        raise ExpressionError(f"a {cls.symbol} b: operands are {a.dtype}, not integers")
    return cls(a, b)


_UFUNCS = {  # by what NumPy calls its operators
    "add": add,
    "subtract": sub,
    "multiply": mul,
    "divide": div,
    "floor_divide": floordiv,
    "remainder": mod,
    "power": power,
    "negative": neg,
    "equal": lambda a, b: a is b,  # as of nodes: no array or scalar is one
    "not_equal": lambda a, b: a is not b,
    "less": lambda a, b: _compare(LT, a, b),
    "less_equal": lambda a, b: _compare(LE, a, b),
    "greater": lambda a, b: _compare(GT, a, b),
    "greater_equal": lambda a, b: _compare(GE, a, b),
    "bitwise_and": lambda a, b: _bitwise(BitAnd, a, b),
    "bitwise_or": lambda a, b: _bitwise(BitOr, a, b),
    "bitwise_xor": lambda a, b: _bitwise(BitXor, a, b),
    "left_shift": lambda a, b: _bitwise(ShiftLeft, a, b),
    "right_shift": lambda a, b: _bitwise(ShiftRight, a, b),
}


def logical_and(*conditions) -> Expr:
    """All of the conditions; true for none."""
    return _logic("all", And, True, conditions)


def logical_or(*conditions) -> Expr:
    """Any of the conditions; false for none."""
    return _logic("any", Or, False, conditions)


def _logic(what: str, cls, neutral: bool, conditions) -> Expr:
    result = None
    for condition in conditions:
        condition = as_expr(condition)
        if not condition.dtype.is_bool:
            raise ExpressionError(f"{what}: a condition is {condition.dtype}, not bool")
        if is_const(condition):
            if condition.value is neutral:
                continue
            return condition
        result = condition if result is None else cls(result, condition)
    return Const(neutral, bool_) if result is None else result


def logical_not(condition) -> Expr:
    condition = as_expr(condition)
    if not condition.dtype.is_bool:
        raise ExpressionError(f"not: the operand is {condition.dtype}, not bool")
    if type(condition) is Const:
        return Const(not condition.value, bool_)
    return condition.value if type(condition) is Not else Not(condition)


def cast(value, dtype: DType | str) -> Expr:
    """`value` converted to a dtype; a literal is converted at once."""
    dtype = as_dtype(dtype)
    value = as_expr(value)
    if value.dtype is dtype:
        return value
    if type(value) is Const and dtype.lanes == 1:
        return const(convert(value.value, dtype), dtype)
    return Cast(value, dtype.with_lanes(value.dtype.lanes))


def convert(value, dtype: DType):
    """A Python number converted as Cast does it: saturating from float to integer, NaN to 0, wrapping otherwise."""
    if dtype.is_bool:
        return value != 0
    if not dtype.is_int:
        return float(_round_integer(value, 24) if type(value) is int and dtype.bits < 64 else value)
    if not isinstance(value, float):
        return wrap(int(value), dtype)
    if math.isnan(value):
        return 0
    return int(max(dtype.min, min(dtype.max, math.trunc(value)))) if math.isfinite(value) else (
        dtype.max if value > 0 else dtype.min
    )


def _round_integer(value: int, bits: int) -> int:
    """The nearest integer of so many significant bits, ties to even: a float32 is rounded once, not twice."""
    size = abs(value)
    excess = max(0, size.bit_length() - bits)
    half = (1 << excess) >> 1
    size = (size + half - (half > 0) + (size >> excess & (half > 0))) >> excess << excess
    return size if value >= 0 else -size


def select(condition, true, false) -> Expr:
    return _choose(Select, "select", condition, true, false)


def if_then_else(condition, true, false) -> Expr:
    return _choose(IfThenElse, "if_then_else", condition, true, false)


def _choose(cls, what: str, condition, true, false) -> Expr:
    condition = as_expr(condition)
    if not condition.dtype.is_bool:
        raise ExpressionError(f"{what}: the condition is {condition.dtype}, not bool")
    true, false = match_dtypes(what, true, false)
    if type(condition) is Const:
        return true if condition.value else false
    return cls(condition, true, false)


def broadcast(value: Expr, lanes: int) -> Expr:
    """`value` in every lane; a vector stays as it is."""
    return value if lanes == 1 or value.dtype.lanes == lanes else Broadcast(value, lanes)
