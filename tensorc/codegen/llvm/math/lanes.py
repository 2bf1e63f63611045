"""Arithmetic on emitted values with operators, so that an algorithm reads as its formula.

Every operator is one IEEE instruction: nothing is reassociated or contracted, which is what the
error-free transformations at the end rely on. Only `fma` differs between machines: one rounding
where there is such an instruction, else two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tensorc.codegen.llvm.builder import Value
from tensorc.codegen.llvm.context import Context, constant, llvm_type
from tensorc.codegen.llvm.expr import choice, compare, intrinsic
from tensorc.dtypes import DType, bool_, dtype

Number = float | int


class Lanes:
    """A scalar or a vector of one dtype. Python numbers beside it adopt that dtype."""

    __slots__ = ("ctx", "kind", "value")

    def __init__(self, ctx: Context, kind: DType, value: Value):
        self.ctx = ctx
        self.kind = kind
        self.value = value

    def literal(self, number: Number) -> Lanes:
        """A number in every lane, rounded to this dtype."""
        if self.kind.is_float:
            with np.errstate(over="ignore"):
                number = float(self.kind.numpy.type(number))
        elif self.kind.is_signed:  # a pattern of bits may be written without its sign
            half = 1 << (self.kind.bits - 1)
            number = (int(number) + half) % (2 * half) - half
        return Lanes(self.ctx, self.kind, constant(number, self.kind))

    def like(self, other: Lanes | Number) -> Lanes:
        return other if isinstance(other, Lanes) else self.literal(other)

    def _op(self, text: str, other: Lanes | Number) -> Lanes:
        a, b = self.value, self.like(other).value
        value = self.ctx.builder.pure(f"{text} {a.typed}, {b.ref}", a.type, max(a.depth, b.depth))
        return Lanes(self.ctx, self.kind, value)

    def _arithmetic(self, name: str, other: Lanes | Number) -> Lanes:
        return self._op(f"f{name}" if self.kind.is_float else name, other)

    def __add__(self, other: Lanes | Number) -> Lanes:
        return self._arithmetic("add", other)

    def __sub__(self, other: Lanes | Number) -> Lanes:
        return self._arithmetic("sub", other)

    def __rsub__(self, other: Number) -> Lanes:
        return self.literal(other) - self

    def __mul__(self, other: Lanes | Number) -> Lanes:
        return self._arithmetic("mul", other)

    def __truediv__(self, other: Lanes | Number) -> Lanes:
        return self._op("fdiv", other)

    def __rtruediv__(self, other: Number) -> Lanes:
        return self.literal(other) / self

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Lanes:
        if not self.kind.is_float:
            return self.literal(0) - self
        value = self.ctx.builder.pure(f"fneg {self.value.typed}", self.value.type, self.value.depth)
        return Lanes(self.ctx, self.kind, value)

    def __and__(self, other: Lanes | Number) -> Lanes:
        return self._op("and", other)

    def __or__(self, other: Lanes | Number) -> Lanes:
        return self._op("or", other)

    def __xor__(self, other: Lanes | Number) -> Lanes:
        return self._op("xor", other)

    def __invert__(self) -> Lanes:
        return self._op("xor", True if self.kind.is_bool else -1)

    def __lshift__(self, amount: Lanes | int) -> Lanes:
        return self._op("shl", amount)

    def __rshift__(self, amount: Lanes | int) -> Lanes:
        return self._op("ashr" if self.kind.is_signed else "lshr", amount)

    def _compare(self, name: str, other: Lanes | Number) -> Lanes:
        """False where an operand is NaN, but for `ne`."""
        if self.kind.is_float:
            op = f"fcmp {'u' if name == 'ne' else 'o'}{name}"
        else:
            sign = "" if name in ("eq", "ne") else "s" if self.kind.is_signed else "u"
            op = f"icmp {sign}{name}"
        value = compare(self.ctx, op, self.value, self.like(other).value, self.kind)
        return Lanes(self.ctx, bool_.with_lanes(self.kind.lanes), value)

    def __lt__(self, other: Lanes | Number) -> Lanes:
        return self._compare("lt", other)

    def __le__(self, other: Lanes | Number) -> Lanes:
        return self._compare("le", other)

    def __gt__(self, other: Lanes | Number) -> Lanes:
        return self._compare("gt", other)

    def __ge__(self, other: Lanes | Number) -> Lanes:
        return self._compare("ge", other)

    def equals(self, other: Lanes | Number) -> Lanes:
        return self._compare("eq", other)

    def differs(self, other: Lanes | Number) -> Lanes:
        return self._compare("ne", other)

    def is_nan(self) -> Lanes:
        return self.differs(self)

    def call(self, name: str, *others: Lanes | Number) -> Lanes:
        """LLVM's intrinsic `name` on operands of this dtype."""
        values = [self.like(other).value for other in others]
        value = intrinsic(self.ctx, name, self.kind, self.value, *values)
        return Lanes(self.ctx, self.kind, value)

    def fma(self, factor: Lanes | Number, term: Lanes | Number) -> Lanes:
        """self * factor + term, fused where the machine can."""
        if self.ctx.module.target.fma:
            return self.call("fma", factor, term)
        return self * factor + term

    def abs(self) -> Lanes:
        return self.call("fabs")

    def sqrt(self) -> Lanes:
        return self.call("sqrt")

    def copysign(self, sign: Lanes | Number) -> Lanes:
        return self.call("copysign", sign)

    def least(self, other: Lanes | Number) -> Lanes:
        """The smaller of two; self where either is NaN."""
        other = self.like(other)
        return where(other < self, other, self)

    def most(self, other: Lanes | Number) -> Lanes:
        """The larger of two; self where either is NaN."""
        other = self.like(other)
        return where(other > self, other, self)

    def to(self, name: str) -> Lanes:
        """A conversion that is exact or rounds to nearest; no float is given to become an int."""
        kind = dtype(name).with_lanes(self.kind.lanes)
        if kind is self.kind:
            return self
        if self.kind.is_float and kind.is_float:
            op = "fpext" if kind.bits > self.kind.bits else "fptrunc"
        elif kind.is_float:
            op = "sitofp" if self.kind.is_signed else "uitofp"
        elif kind.bits < self.kind.bits:
            op = "trunc"
        else:
            op = "sext" if self.kind.is_signed else "zext"
        return self._cast(op, kind)

    def bits(self) -> Lanes:
        """The bits of a float as a signed integer."""
        kind = dtype(f"int{self.kind.bits}").with_lanes(self.kind.lanes)
        return Lanes(self.ctx, kind, self.value) if self.kind.bits == 16 else self._cast("bitcast", kind)

    def unsigned(self) -> Lanes:
        kind = dtype(f"uint{self.kind.bits}").with_lanes(self.kind.lanes)
        return Lanes(self.ctx, kind, self.value)

    def as_float(self) -> Lanes:
        """The float that has these bits."""
        return self._cast("bitcast", dtype(f"float{self.kind.bits}").with_lanes(self.kind.lanes))

    def _cast(self, op: str, kind: DType) -> Lanes:
        to = llvm_type(kind)
        text = f"{op} {self.value.typed} to {to}"
        return Lanes(self.ctx, kind, self.ctx.builder.pure(text, to, self.value.depth))

    def any(self) -> Value:
        """Whether some lane of a bool is true, as a scalar."""
        if self.kind.lanes == 1:
            return self.value
        return intrinsic(self.ctx, "vector.reduce.or", bool_, self.value, overload=self.kind)


def where(condition: Lanes, true: Lanes | Number, false: Lanes | Number) -> Lanes:
    """One of two, lane by lane."""
    model = true if isinstance(true, Lanes) else false
    assert isinstance(model, Lanes)
    ctx = condition.ctx
    value = choice(ctx, condition.value, model.like(true).value, model.like(false).value)
    return Lanes(ctx, model.kind, value)


def rarely(
    condition: Lanes,
    unusual: Callable[[], tuple[Lanes, ...]],
    usual: Callable[[], tuple[Lanes, ...]],
) -> tuple[Lanes, ...]:
    """What `unusual` gives for all lanes if the condition holds in any, else `usual`: a branch."""
    ctx, build, memo = condition.ctx, condition.ctx.builder, condition.ctx.memo
    labels = build.label("rare"), build.label("usual"), build.label("end")
    test, origin = condition.any(), build.block
    results, ends = [], []
    for label, compute in zip(labels, (unusual, usual)):
        build.block, ctx.memo = origin, dict(memo)
        build.enter()
        build.start(label)
        results.append(compute())
        build.leave()
        build.end(f"br label %{labels[2]}")
        ends.append(build.block.label)
    origin.terminator = f"br {test.typed}, label %{labels[0]}, label %{labels[1]}"
    ctx.memo = memo
    build.start(labels[2])
    merged = []
    for pair in zip(*results):
        kind = pair[0].value.type
        arrivals = [f"[ {side.value.ref}, %{end} ]" for side, end in zip(pair, ends)]
        merged.append(Lanes(ctx, pair[0].kind, build.emit(f"phi {kind} {', '.join(arrivals)}", kind)))
    return tuple(merged)


def while_any(start: Lanes, condition: Callable[[Lanes], Lanes], step: Callable[[Lanes], Lanes]) -> Lanes:
    """`step` applied again and again, to all lanes, while the condition holds in any."""
    ctx, build = start.ctx, start.ctx.builder
    labels = build.label("while"), build.label("do"), build.label("done")
    before = build.block
    build.enter()
    build.end(f"br label %{labels[0]}")
    build.start(labels[0])
    top, kind = build.block, start.value.type
    state = Lanes(ctx, start.kind, Value(build.name(), kind, build.depth))
    test = condition(state).any()
    build.enter()
    build.end(f"br {test.typed}, label %{labels[1]}, label %{labels[2]}")
    build.start(labels[1])
    following = step(state).value.ref
    build.end(f"br label %{labels[0]}")
    arrivals = f"[ {start.value.ref}, %{before.label} ], [ {following}, %{build.block.label} ]"
    top.lines.insert(0, f"{state.value.ref} = phi {kind} {arrivals}")
    build.leave()
    build.leave()
    build.start(labels[2])
    return Lanes(ctx, start.kind, Value(state.value.ref, kind, build.depth))


def polynomial(x: Lanes, coefficients: Sequence[float]) -> Lanes:
    """c0 + c1 x + c2 x^2 + ... by Horner's rule."""
    result = x.literal(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = result.fma(x, coefficient)
    return result


# Error-free transformations (Dekker 1971, Knuth): a pair (high, low) whose exact sum is the result.


def two_sum(a: Lanes, b: Lanes) -> tuple[Lanes, Lanes]:
    """a + b exactly."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


def fast_two_sum(a: Lanes, b: Lanes) -> tuple[Lanes, Lanes]:
    """a + b exactly, where |a| >= |b| or a is 0."""
    total = a + b
    return total, b - (total - a)


def two_product(a: Lanes, b: Lanes | Number) -> tuple[Lanes, Lanes]:
    """a * b exactly, unless it under- or overflows."""
    b = a.like(b)
    product = a * b
    if a.ctx.module.target.fma:
        return product, a.fma(b, -product)
    (a1, a2), (b1, b2) = split(a), split(b)
    return product, a2 * b2 - (((product - a1 * b1) - a2 * b1) - a1 * b2)


def split(a: Lanes) -> tuple[Lanes, Lanes]:
    """a as the sum of two numbers of half as many bits."""
    shifted = a * float((1 << (12 if a.kind.bits == 32 else 27)) + 1)
    high = shifted - (shifted - a)
    return high, a - high


def power_of_two(exponent: Lanes) -> Lanes:
    """2**exponent of an integer whose power is a normal number."""
    mantissa, bias = (23, 127) if exponent.kind.bits == 32 else (52, 1023)
    return ((exponent + bias) << mantissa).as_float()


def nearest(x: Lanes, factor: float = 1.0) -> tuple[Lanes, Lanes]:
    """(n, k): the integer nearest to x * factor, give or take a rounding, as float and as integer.

    It must be below 2^22 (2^51 in float64). Adding 1.5 * 2^23 leaves it in the low bits.
    """
    rounder = 1.5 * 2.0 ** (23 if x.kind.bits == 32 else 52)
    shifted = x + rounder if factor == 1.0 else x.fma(factor, rounder)
    return shifted - rounder, shifted.bits() - x.literal(rounder).bits()


def float_of(k: Lanes) -> Lanes:
    """A small integer as a float of its width; few machines convert from 64 bits."""
    if k.kind.bits == 32:
        return k.to("float32")
    rounder = 1.5 * 2.0**52
    bits = int(np.float64(rounder).view(np.int64))
    return (k + bits).as_float() - rounder
