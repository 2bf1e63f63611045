"""What Python may ask of an object that only an element of an array could answer: refused."""

from __future__ import annotations

from collections.abc import Callable

from tensorc.errors import ExpressionError

__all__ = ["NoNumber", "refusal"]


def refusal(message: str) -> Callable:
    """A method that raises ExpressionError with this message, `{0.name}` being the object's name."""

    def method(self, *_, **__):
        raise ExpressionError(message.format(self))

    return method


def _number(what: str, instead: str) -> Callable:
    return refusal(f"{what}: an expression has no value while it is being built; {instead}")


def _parts(what: str) -> Callable:
    return refusal(f"{what}: an expression is one element and has no parts; index the tensor, X[i, j]")


class NoNumber:
    """The protocols of numbers and sequences, for an element that is not computed yet."""

    __slots__ = ()

    __float__ = _number("float()", "use te.cast, and te.exp and its kin in the place of math.exp")
    __int__ = _number("int()", "use te.cast")
    __complex__ = _number("complex()", "there are no complex numbers")
    __index__ = _number("an integer is needed", "a loop over it is a dimension of te.compute or a te.reduce_axis")
    __array__ = _number("np.array()", "use the operators and the functions of te")
    __round__ = _number("round()", "use te.round")
    __floor__ = _number("math.floor()", "use te.floor")
    __ceil__ = _number("math.ceil()", "use te.ceil")
    __trunc__ = _number("math.trunc()", "use te.trunc")
    __matmul__ = __rmatmul__ = refusal(
        "a @ b: an expression is one element; a matrix product is te.sum(A[i, k] * B[k, j], axis=k)"
    )
    __len__ = _parts("len()")
    __iter__ = _parts("iteration")
    __getitem__ = _parts("a[...]")
    __contains__ = _parts("in")

    def __format__(self, form: str) -> str:
        if form:
            raise ExpressionError(f"format {form!r}: an expression has no value while it is being built")
        return str(self)
