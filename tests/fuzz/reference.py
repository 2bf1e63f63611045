"""What an unscheduled function computes, by NumPy, and how far another answer may be from it.

Each value is a pair: the value itself, floats in extended precision, and a bound of the rounding
errors that the meaning of the IR allows on the way to it. Where arithmetic is exact the bound is 0
and the answer must be the same bit for bit; where it is infinite (a comparison that rounding may
turn, an overflow that a fused multiply-add avoids) any answer will do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tensorc.dtypes import DType
from tensorc.ir import expr as ir
from tensorc.ir.function import Function
from tensorc.ir.intrinsic import TABLE
from tensorc.ir.reducer import Update, update_of
from tensorc.ir.stmt import Block, For, Seq, Stmt, Store, annotation
from tensorc.ir.walk import all_exprs, walk

WIDE = np.longdouble
EXACT = WIDE(0)
UNKNOWN = WIDE("inf")
ULPS = {"exp": 2, "exp2": 2, "sigmoid": 8, "pow": 8}  # of an intrinsic's result; the others 4
_COMPARE = {
    ir.EQ: np.equal, ir.NE: np.not_equal, ir.LT: np.less, ir.LE: np.less_equal,
    ir.GT: np.greater, ir.GE: np.greater_equal,
}  # fmt: skip
_PLAIN = {
    ir.Add: np.add, ir.Sub: np.subtract, ir.Mul: np.multiply, ir.Div: np.divide,
    ir.Min: np.minimum, ir.Max: np.maximum, ir.FloorDiv: np.floor_divide, ir.Mod: np.remainder,
    ir.BitAnd: np.bitwise_and, ir.BitOr: np.bitwise_or, ir.BitXor: np.bitwise_xor,
    ir.And: np.logical_and, ir.Or: np.logical_or,
}  # fmt: skip
_WHOLE = ("floor", "ceil", "trunc", "round")


@dataclass(frozen=True)
class Value:
    value: np.ndarray
    error: np.ndarray  # 0 or more; of integers and bools 0 or infinite


def reference(function: Function, arrays: dict[str, np.ndarray]) -> dict[str, Value]:
    """The outputs by name; `arrays` are the inputs."""
    contracts = any(
        type(e) in (ir.Add, ir.Sub) and e.dtype.is_float for e in all_exprs(function.body)
    )
    run = _Reference(contracts)
    for buffer in function.params:
        if buffer.name in arrays:
            run.buffers[buffer] = _input(arrays[buffer.name])
    with np.errstate(all="ignore"):
        run.stmt(function.body)
    return {buffer.name: run.buffers[buffer] for buffer in function.outputs}


def _input(array: np.ndarray) -> Value:
    value = array.astype(WIDE) if array.dtype.kind == "f" else array.copy()
    return Value(value, np.zeros(array.shape, WIDE))


class _Reference:
    def __init__(self, contracts: bool):
        self.contracts = contracts
        self.buffers: dict[ir.Buffer, Value] = {}
        self.variables: dict[ir.Var, Value] = {}
        self.done: dict[int, Value] = {}
        self.elements: dict[ir.Expr, Value] = {}  # what a reducer combines, by how it is loaded

    def stmt(self, stmt: Stmt) -> None:
        match stmt:
            case Seq(stmts):
                for each in stmts:
                    self.stmt(each)
            case For():
                self.stmt(stmt.body)
            case Block() if not annotation(stmt, "check"):
                self.block(stmt)

    def block(self, block: Block) -> None:
        """A whole block at once, one axis of the arrays an iterator."""
        shape = tuple([it.extent.value for it in block.iters])
        self.done = {}
        for axis, it in enumerate(block.iters):
            along = [1] * len(shape)
            along[axis] = shape[axis]
            self.variables[it.var] = Value(np.arange(shape[axis]).reshape(along), EXACT)
        rank = sum([it.kind == "spatial" for it in block.iters])  # they come first
        if rank == len(shape):
            for store in _stores(block.body):
                found = _spread(self.expr(store.value), shape)
                self.buffers[store.buffer] = Value(np.array(found.value), np.array(found.error))
            return
        update = update_of(block)
        assert update is not None and block.init is not None
        terms = [_flat(_spread(self.expr(term), shape), rank) for term in update.terms]
        starts = [
            _flat(self._start(store.value, shape[:rank]), rank) for store in _stores(block.init)
        ]
        if update.operation is None:
            self.fold(update, starts, terms)
            return
        buffer = update.elements[0].buffer
        every = [np.concatenate(parts, -1) for parts in zip(*map(_parts, (*starts, *terms)))]
        found = _reduce(update.operation, Value(*every), (rank,), buffer.dtype)
        self.buffers[buffer] = Value(np.array(found.value), np.array(found.error))

    def _start(self, value: ir.Expr, shape: tuple[int, ...]) -> Value:
        """What a reduction starts from at each point of the result, which axes of reduction follow."""
        found = self.expr(value)
        trailing = found.value.ndim - len(shape)
        if trailing > 0:
            last = (0,) * trailing
            error = np.broadcast_to(found.error, found.value.shape)
            found = Value(found.value[(..., *last)], error[(..., *last)])
        return _spread(found, shape)

    def fold(self, update: Update, starts: list[Value], terms: list[Value]) -> None:
        """Combine terms one by one, as a reducer of the program's own does it; one axis of them."""
        buffers = [element.buffer for element in update.elements]
        state = [Value(each.value[..., 0], each.error[..., 0]) for each in starts]
        for at in range(terms[0].value.shape[-1]):
            self.done = {}
            self.elements = dict(zip(update.elements, state))
            for var, term in zip(update.new, terms):
                self.variables[var] = Value(term.value[..., at], term.error[..., at])
            state = [_spread(self.expr(e), state[0].value.shape) for e in update.combined]
        self.elements = {}
        for buffer, each in zip(buffers, state):
            self.buffers[buffer] = Value(np.array(each.value), np.array(each.error))

    def expr(self, e: ir.Expr) -> Value:
        found = self.done.get(id(e))
        if found is None:
            found = self.done[id(e)] = self._expr(e)
        return found

    def _expr(self, e: ir.Expr) -> Value:
        match e:
            case ir.Var():
                return self.variables[e]
            case ir.Const(value):
                kind = WIDE if e.dtype.is_float else e.dtype.numpy.type
                return Value(np.asarray(kind(value)), EXACT)
            case ir.Load() if e in self.elements:
                return self.elements[e]
            case ir.Load(buffer, indices):
                return self._load(buffer, [self.expr(index).value for index in indices])
            case ir.Select(condition, a, b) | ir.IfThenElse(condition, a, b):
                return _choose(self.expr(condition), self.expr(a), self.expr(b))
            case ir.Cast(value):
                return _cast(self.expr(value), value.dtype, e.dtype)
            case ir.Neg(value):
                found = self.expr(value)
                return Value(np.negative(found.value), found.error)
            case ir.Not(value):
                found = self.expr(value)
                return Value(np.logical_not(found.value), found.error)
            case ir.Call(name, args):
                return _call(name, [self.expr(arg) for arg in args], args[0].dtype)
            case ir.Binary(a, b):
                return self._binary(type(e), self.expr(a), self.expr(b), a.dtype)
        raise TypeError(type(e).__name__)

    def _load(self, buffer: ir.Buffer, indices: list[np.ndarray]) -> Value:
        stored = self.buffers[buffer]
        shape = np.broadcast_shapes(*[index.shape for index in indices])
        if not stored.value.size:
            return Value(np.zeros(shape, stored.value.dtype), EXACT)
        place = tuple([np.clip(i, 0, n - 1) for i, n in zip(indices, stored.value.shape)])
        return Value(stored.value[place], stored.error[place])

    def _binary(self, cls: type, a: Value, b: Value, dtype: DType) -> Value:
        if cls in _COMPARE:
            return _compare(cls, a, b, dtype)
        if not dtype.is_float:
            return Value(_integer(cls, a.value, b.value, dtype), _either(a.error, b.error))
        value = _PLAIN[cls](a.value, b.value)
        if cls in (ir.Min, ir.Max):
            return Value(value, np.maximum(a.error, b.error))
        if cls is ir.Mul:
            error = _times(a.error, abs(b.value) + b.error) + _times(b.error, abs(a.value))
            if self.contracts:
                return _rounded(value, error, dtype)
        elif cls is ir.Div:
            error = _quotient_error(a, b, value)
        else:
            error = a.error + b.error
        narrow = dtype.numpy.type
        return _rounded(
            value, error, dtype, _PLAIN[cls](a.value.astype(narrow), b.value.astype(narrow))
        )


def _rounded(value, error, dtype: DType, native=None) -> Value:
    """A result with the error of one rounding; `native` is the result in its own precision, which
    holds where the operands are exact and nothing else may be computed instead."""
    narrow = np.asarray(value).astype(dtype.numpy)
    info = np.finfo(dtype.numpy)
    is_same = (narrow == value) | np.isnan(value)
    more = np.where(is_same, 0, abs(value) * WIDE(info.eps) / 2 + WIDE(info.smallest_subnormal))
    more = np.where(np.isinf(narrow) & np.isfinite(value), UNKNOWN, more)
    if native is None:
        return Value(value, error + more)
    is_exact = error == 0
    return Value(
        np.where(is_exact, native.astype(WIDE), value), np.where(is_exact, 0, error + more)
    )


def _stores(stmt: Stmt) -> list[Store]:
    return [each for each in walk(stmt) if isinstance(each, Store)]


def _spread(found: Value, shape: tuple[int, ...]) -> Value:
    return Value(np.broadcast_to(found.value, shape), np.broadcast_to(_known(found.error), shape))


def _flat(found: Value, rank: int) -> Value:
    """The axes from `rank` on as one."""
    shape = (*found.value.shape[:rank], int(np.prod(found.value.shape[rank:])))
    return Value(found.value.reshape(shape), found.error.reshape(shape))


def _parts(found: Value) -> tuple[np.ndarray, np.ndarray]:
    return found.value, found.error


def _reduce(cls: type, terms: Value, axes: tuple[int, ...], dtype: DType) -> Value:
    value, error = terms.value, terms.error
    if not dtype.is_float:
        if cls in (ir.Min, ir.Max):
            start = dtype.max if cls is ir.Min else dtype.min
            result = _PLAIN[cls].reduce(value, axes, initial=start)
        else:
            result = _PLAIN[cls].reduce(value, axes, dtype=dtype.numpy)
        return Value(result, np.max(error, axes, initial=0))
    if cls in (ir.Min, ir.Max):
        start = UNKNOWN if cls is ir.Min else -UNKNOWN
        result = _PLAIN[cls].reduce(value, axes, initial=start)
        return Value(result, np.max(error, axes, initial=0))
    return (_sum if cls is ir.Add else _product)(value, error, axes, dtype)


def _sum(value, error, axes: tuple[int, ...], dtype: DType) -> Value:
    """In any order: exact where all terms are whole multiples of one small enough power of two."""
    info = np.finfo(dtype.numpy)
    finite = np.isfinite(value)
    size = np.sum(np.where(finite, abs(value), 0), axes)
    count = int(np.prod([value.shape[axis] for axis in axes]))
    is_exact = np.zeros(size.shape, bool)
    for scale in (0, 4, 12):
        scaled = np.ldexp(np.where(finite, value, 0), scale)
        is_whole = np.all(scaled == np.rint(scaled), axes)
        is_exact |= is_whole & (np.ldexp(size, scale) <= WIDE(2) ** (info.nmant + 1))
    is_special = ~np.all(finite, axes)
    rounding = count * (WIDE(info.eps) / 2) * 1.01 * (size + np.sum(error, axes))
    rounding = np.where(is_exact | is_special, 0, rounding)
    rounding = np.where(size > WIDE(info.max), UNKNOWN, rounding)
    return Value(np.sum(value, axes), np.sum(error, axes) + rounding)


def _product(value, error, axes: tuple[int, ...], dtype: DType) -> Value:
    info = np.finfo(dtype.numpy)
    size = np.prod(abs(value), axes)
    greatest = np.prod(np.maximum(abs(value) + error, 1), axes)
    least = np.prod(np.minimum(np.where(value == 0, 1, abs(value)), 1), axes)
    count = int(np.prod([value.shape[axis] for axis in axes]))
    is_whole = np.all(value == np.rint(value), axes) & (greatest < WIDE(2) ** (info.nmant + 1))
    mantissa, _ = np.frexp(value)
    is_power = np.all((abs(mantissa) == 0.5) | (mantissa == 0), axes)
    spread = np.prod(abs(value) + error, axes) - size
    rounding = count * WIDE(info.eps) * np.prod(abs(value) + error, axes)
    rounding = np.where(is_whole | is_power, 0, rounding + WIDE(info.smallest_subnormal))
    is_tame = (greatest < WIDE(info.max)) & (least > WIDE(info.tiny)) & (spread < UNKNOWN)
    total = np.where(is_tame, spread + rounding, UNKNOWN)
    is_nan = np.any(np.isnan(value), axes) & np.all(error == 0, axes)
    return Value(np.prod(value, axes), np.where(is_nan, 0, total))


def _choose(condition: Value, a: Value, b: Value) -> Value:
    error = np.where(condition.value, a.error, b.error)
    error = np.where(condition.error > 0, UNKNOWN, error)
    return Value(np.where(condition.value, a.value, b.value), error)


def _compare(cls: type, a: Value, b: Value, dtype: DType) -> Value:
    value = _COMPARE[cls](a.value, b.value)
    both = _known(a.error + b.error)
    if dtype.is_float:
        return Value(value, np.where((both > 0) & ~(abs(a.value - b.value) > both), UNKNOWN, 0))
    return Value(value, both)


def _cast(found: Value, source: DType, target: DType) -> Value:
    value, error = found.value, found.error
    if target.is_bool:
        if source.is_float:
            error = np.where((error > 0) & (abs(value) <= error), UNKNOWN, 0)
        return Value(value != 0, error)
    if target.is_float:
        narrow = value.astype(target.numpy).astype(WIDE)
        if not source.is_float:
            return Value(narrow, error)
        return _rounded(value, error, target, value.astype(source.numpy).astype(target.numpy))
    if not source.is_float:
        return Value(value.astype(target.numpy), error)
    whole = _saturated(value, target)
    turns = (_saturated(value - error, target) != whole) | (
        _saturated(value + error, target) != whole
    )
    return Value(whole, np.where((error > 0) & turns, UNKNOWN, 0))


def _saturated(value, target: DType) -> np.ndarray:
    whole = np.trunc(np.where(np.isnan(value), 0, value))
    inside = np.clip(whole, WIDE(target.min), WIDE(target.max))
    return inside.astype(target.numpy)


def _integer(cls: type, a, b, dtype: DType) -> np.ndarray:
    if cls in (ir.ShiftLeft, ir.ShiftRight):
        inside = (b >= 0) & (b < dtype.bits)
        amount = np.where(inside, b, 0).astype(dtype.numpy)
        if cls is ir.ShiftLeft:
            return np.where(inside, np.left_shift(a, amount), dtype.numpy.type(0))
        sign = np.right_shift(a, dtype.numpy.type(dtype.bits - 1)) if dtype.is_signed else a * 0
        return np.where(inside, np.right_shift(a, amount), sign)
    return _PLAIN[cls](a, b)


def _call(name: str, args: list[Value], dtype: DType) -> Value:
    if not dtype.is_float:
        return Value(TABLE[name].meaning(args[0].value).astype(dtype.numpy), args[0].error)
    if len(args) == 2:
        return _call_of_two(name, *args, dtype)
    x, error = args[0].value, args[0].error
    if name in ("isnan", "isinf", "isfinite"):
        return Value(TABLE[name].meaning(x), np.where(error == 0, 0, UNKNOWN))
    meaning: Callable = TABLE[name].meaning
    value = meaning(x)
    around = np.maximum(abs(meaning(x + error) - value), abs(meaning(x - error) - value))
    if name in ("sin", "cos", "abs"):
        around = error
    elif name == "tan":
        around = np.where(error == 0, 0, 2 * around + UNKNOWN * (error > 0.1))
    around = np.where(error == 0, 0, around)
    if name in _WHOLE or name == "abs":
        return Value(value, around)
    if name == "sqrt":
        return _rounded(value, around, dtype, np.sqrt(x.astype(dtype.numpy)))
    return Value(value, around + _ulps(name, value, dtype))


def _call_of_two(name: str, a: Value, b: Value, dtype: DType) -> Value:
    value = TABLE[name].meaning(a.value, b.value)
    if name == "copysign":
        return Value(
            value, np.where((b.error > 0) | (b.value == 0) | np.isnan(b.value), UNKNOWN, a.error)
        )
    is_exact = (a.error == 0) & (b.error == 0)
    if name == "fmod":
        return Value(value, np.where(is_exact, 0, UNKNOWN))
    is_zero = (a.value == 0) & (b.value < 0)  # the sign of a zero is not followed
    error = np.where(is_exact & ~is_zero, _ulps(name, value, dtype), UNKNOWN)
    return Value(value, error)


def _ulps(name: str, value, dtype: DType) -> np.ndarray:
    info = np.finfo(dtype.numpy)
    most = WIDE(info.max) * (1 - ULPS.get(name, 4) * WIDE(info.eps))
    error = ULPS.get(name, 4) * (abs(value) * WIDE(info.eps) + WIDE(info.smallest_subnormal))
    error = np.where(np.isfinite(value), error, 0)
    return np.where(np.isfinite(value) & (abs(value) > most), UNKNOWN, error)


def _quotient_error(a: Value, b: Value, value) -> np.ndarray:
    size = abs(b.value)
    error = np.where(
        a.error + b.error == 0, 0, (a.error + _times(b.error, abs(value))) / (size - b.error)
    )
    is_unsure = (size <= b.error) & ~((b.value == 0) & (a.value == 0) & (a.error + b.error == 0))
    return np.where(is_unsure, UNKNOWN, error)  # also a / 0: the sign of the zero is not followed


def _times(error, factor) -> np.ndarray:
    return np.where(error == 0, 0, error * factor)


def _either(a, b) -> np.ndarray:
    """The error of what is either right or unknown, from two such operands."""
    return np.where((a > 0) | (b > 0), UNKNOWN, 0)


def _known(error) -> np.ndarray:
    return np.where(np.isnan(error), UNKNOWN, error)
