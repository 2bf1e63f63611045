"""What Python may ask of a whole array, which a tensor does not have yet: refused."""

from __future__ import annotations

from collections.abc import Callable

from tensorc.ir.refusals import refusal

__all__ = ["NoElements"]


def _refusal(what: str) -> Callable:
    return refusal(
        f"{what}: tensor {{0.name!r}} has no elements yet; index it in the function of a te.compute, "
        "{0.name}[...], and compute with what that gives"
    )


class NoElements:
    """Arithmetic, order, truth and the protocols of sequences. Equality of tensors is identity."""

    __slots__ = ()

    __add__ = __radd__ = _refusal("a + b")
    __sub__ = __rsub__ = _refusal("a - b")
    __mul__ = __rmul__ = _refusal("a * b")
    __matmul__ = __rmatmul__ = _refusal("a @ b")
    __truediv__ = __rtruediv__ = _refusal("a / b")
    __floordiv__ = __rfloordiv__ = _refusal("a // b")
    __mod__ = __rmod__ = _refusal("a % b")
    __divmod__ = __rdivmod__ = _refusal("divmod()")
    __pow__ = __rpow__ = _refusal("a ** b")
    __and__ = __rand__ = _refusal("a & b")
    __or__ = __ror__ = _refusal("a | b")
    __xor__ = __rxor__ = _refusal("a ^ b")
    __lshift__ = __rlshift__ = _refusal("a << b")
    __rshift__ = __rrshift__ = _refusal("a >> b")
    __lt__ = _refusal("a < b")
    __le__ = _refusal("a <= b")
    __gt__ = _refusal("a > b")
    __ge__ = _refusal("a >= b")
    __neg__ = _refusal("-a")
    __pos__ = _refusal("+a")
    __abs__ = _refusal("abs()")
    __invert__ = _refusal("~a")
    __bool__ = _refusal("truth")
    __float__ = _refusal("float()")
    __int__ = _refusal("int()")
    __round__ = _refusal("round()")
    __len__ = _refusal("len()")
    __iter__ = _refusal("iteration")
    __contains__ = _refusal("in")
    __array__ = _refusal("np.array()")
    __setitem__ = _refusal("a[...] = b")
