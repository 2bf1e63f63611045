"""float16 and bfloat16 in definitions: stored as such, computed in float32, rounded once.

    C[i] = A[i] * B[i] + D[i]
    ->  C[i] = cast(float16, cast(float32, A[i]) * cast(float32, B[i]) + cast(float32, D[i]))

What only moves an element or turns its sign stays in its type. A reduction combines float32 terms.
"""

from __future__ import annotations

from tensorc.dtypes import DType, float32
from tensorc.ir.expr import Binary, Call, Cast, Const, Expr, IfThenElse, Neg, Select, Var, cast
from tensorc.ir.intrinsic import TABLE
from tensorc.ir.walk import children, rebuild
from tensorc.te.reduce import Reduce


def in_float32(body: Expr) -> Expr:
    """The body of a definition with the arithmetic of its 16-bit floats in float32."""
    return cast(_Widener().expr(body), body.dtype)


def _is_half(dtype: DType) -> bool:
    return dtype.is_float and dtype.bits == 16


def _wide(expr: Expr) -> Expr:
    return cast(expr, float32) if _is_half(expr.dtype) else expr


class _Widener:
    """Rewrites expressions; the result has a 16-bit type just where no rounding is due."""

    def __init__(self) -> None:
        self.done: dict[int, Expr] = {}

    def expr(self, expr: Expr) -> Expr:
        if type(expr) is Const or isinstance(expr, Var):
            return expr
        new = self.done.get(id(expr))
        if new is None:
            new = self.done[id(expr)] = self._expr(expr)
        return new

    def _expr(self, expr: Expr) -> Expr:
        old = children(expr)
        new = tuple([self.expr(operand) for operand in old])
        if not any(_is_half(operand.dtype) for operand in old):
            return expr if all(a is b for a, b in zip(old, new)) else rebuild(expr, new)
        match expr:
            case Cast(dtype=dtype):
                return cast(new[0], dtype)
            case Neg() | Select() | IfThenElse() if all(a.dtype is b.dtype for a, b in zip(old, new)):
                return rebuild(expr, new)
            case Call(name, _, dtype) if TABLE[name].native:  # of the bits of its own type
                return Call(name, tuple([cast(b, a.dtype) for a, b in zip(old, new)]), dtype)
            case Call(name, _, dtype):
                wide = tuple(map(_wide, new))
                return Call(name, wide, float32 if _is_half(dtype) else dtype)
            case Binary() | Neg() | Select() | IfThenElse() | Reduce():
                return rebuild(expr, tuple(map(_wide, new)))
            case _:
                return rebuild(expr, new)
