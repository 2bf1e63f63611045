"""Random expressions of an element: arithmetic, functions, choices, conversions, conditions."""

from __future__ import annotations

from tests.fuzz.accesses import Accesses, Axis, condition_of
from tests.fuzz.programs import FLOATS, INTEGERS, Code

UNARY = (
    "exp", "exp2", "exp10", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "cbrt",
    "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
    "erf", "erfc", "sigmoid",
)  # fmt: skip
WHOLE = (
    "(-{})", "te.abs({})", "te.floor({})", "te.ceil({})", "te.trunc({})", "te.round({})",
    "te.nearbyint({})",
)  # fmt: skip
PLAIN = ("({} + {})", "({} - {})", "({} * {})", "te.minimum({}, {})", "te.maximum({}, {})")
OF_TWO = (
    "({} / {})", "te.pow({}, {})", "te.power({}, {})", "te.fmod({}, {})", "te.copysign({}, {})",
    "te.atan2({}, {})", "te.hypot({}, {})", "te.logaddexp({}, {})", "te.nextafter({}, {})",
)  # fmt: skip
OF_TWO_INTEGERS = (
    "({} // {})", "({} % {})", "({} & {})", "({} | {})", "({} ^ {})", "({} << {})", "({} >> {})",
    "te.truncdiv({}, {})", "te.truncmod({}, {})", "te.floordiv({}, {})", "te.floormod({}, {})",
    "te.mod({}, {})", "te.ceildiv({}, {})",
)  # fmt: skip
RELATIONS = (
    "({} < {})", "({} <= {})", "({} > {})", "({} >= {})", "te.eq({}, {})", "te.ne({}, {})",
    "te.lt({}, {})", "te.le({}, {})", "te.gt({}, {})", "te.ge({}, {})",
)  # fmt: skip
LOGIC = (
    "te.all({}, {})", "te.any({}, {})", "te.logical_not({})", "te.logical_and({}, {})",
    "te.logical_or({}, {})", "({} & {})", "({} | {})", "(~{})",
)  # fmt: skip
_NEIGHBOURS = {
    "float16": ("int16", "uint16"), "float32": ("int32", "uint32"), "float64": ("int64", "uint64")
}  # fmt: skip


class Expressions(Accesses):
    """Expressions over axes, of a dtype and about a depth."""

    def expr(self, dtype: str, depth: int, scope: list[Axis]) -> Code:
        if depth <= 0:
            return self.leaf(dtype, scope)
        if self.rng.random() < 0.12:
            return self.choice(dtype, depth, scope)
        if self.rng.random() < 0.1:
            return self.cast(self.expr(self.other(dtype), depth - 1, scope), dtype)
        if dtype == "bool":
            return self.condition(depth, scope)
        return (self.float_op if dtype in FLOATS else self.int_op)(dtype, depth, scope)

    def leaf(self, dtype: str, scope: list[Axis]) -> Code:
        roll = self.rng.random()
        if roll < 0.1:
            return self.const(dtype)
        if roll < 0.18 and scope:
            return self.cast(Code(self.rng.choice(scope)[0], (), "int64"), dtype)
        return self.load(dtype, scope)

    def other(self, dtype: str) -> str:
        others = (
            "bool", "int32", "float32", "float64", "uint8", "int64", self.rng.choice(INTEGERS),
            self.rng.choice(FLOATS),
        )  # fmt: skip
        return self.rng.choice([each for each in others if each != dtype])

    def choice(self, dtype: str, depth: int, scope: list[Axis]) -> Code:
        name = self.rng.choice(("select", "if_then_else"))
        parts = self.condition(depth - 1, scope), *self.two(dtype, depth, scope)
        return Code(f"te.{name}({{}}, {{}}, {{}})", parts, dtype)

    def condition(self, depth: int, scope: list[Axis]) -> Code:
        roll = self.rng.random()
        if roll < 0.2 and depth > 0:
            name = self.rng.choice(LOGIC)
            count = name.count("{}")
            return Code(name, tuple(self.condition(depth - 1, scope) for _ in range(count)), "bool")
        if roll < 0.3 and scope:
            name, text, _ = self.rng.choice(scope)
            relation = self.rng.choice(("< 3", "> 0", f"< {text} - 1", "% 2 < 1", ">= 1"))
            return condition_of(f"({name} {relation})")
        dtype = self.rng.choice((self.dtype, self.dtype, "float32", "int32"))
        if roll < 0.45 and dtype in FLOATS:
            name = self.rng.choice(("isnan", "isinf", "isfinite"))
            return Code(f"te.{name}({{}})", (self.expr(dtype, depth - 1, scope),), "bool")
        return Code(self.rng.choice(RELATIONS), self.two(dtype, depth, scope), "bool")

    def two(self, dtype: str, depth: int, scope: list[Axis]) -> tuple[Code, Code]:
        return self.expr(dtype, depth - 1, scope), self.expr(dtype, depth - 2, scope)

    def float_op(self, dtype: str, depth: int, scope: list[Axis]) -> Code:
        rng = self.rng
        roll = rng.random()
        if roll < 0.6:
            return Code(rng.choice(PLAIN), self.two(dtype, depth, scope), dtype)
        if roll < 0.7:
            return Code(rng.choice(WHOLE), (self.expr(dtype, depth - 1, scope),), dtype)
        if roll < 0.73:
            return Code(
                "te.fma({}, {}, {})",
                (*self.two(dtype, depth, scope), self.leaf(dtype, scope)),
                dtype,
            )
        if roll < 0.75:
            parts = (self.expr(dtype, depth - 1, scope), self.expr("int32", 0, scope))
            return Code("te.ldexp({}, {})", parts, dtype)
        if roll < 0.78:
            return self.reinterpreted(dtype, depth, scope)
        if self.is_exact:
            return Code(rng.choice(WHOLE), (self.expr(dtype, depth - 1, scope),), dtype)
        if roll < 0.87:
            return Code(rng.choice(OF_TWO), self.two(dtype, depth, scope), dtype)
        name = rng.choice(UNARY)
        return Code(f"te.{name}({{}})", (self.expr(dtype, depth - 1, scope),), dtype)

    def reinterpreted(self, dtype: str, depth: int, scope: list[Axis]) -> Code:
        """The bits of another type of the same width."""
        bits = dtype.lstrip("abcdefghijklmnopqrstuvwxyz")
        others = [
            each for each in (*_NEIGHBOURS, *INTEGERS) if each.endswith(bits) and each != dtype
        ]
        if dtype == "bfloat16" or not others:
            return Code(f'te.cast({{}}, "{dtype}")', (self.expr(dtype, depth - 1, scope),), dtype)
        inner = self.expr(self.rng.choice(others), depth - 1, scope)
        return Code(f'te.reinterpret({{}}, "{dtype}")', (inner,), dtype)

    def int_op(self, dtype: str, depth: int, scope: list[Axis]) -> Code:
        rng = self.rng
        roll = rng.random()
        if roll < 0.15:
            one = ("(-{})", "te.popcount({})", "te.clz({})", "({} ** 2)", "({} ** 3)")
            one += ("te.abs({})",) if not dtype.startswith("u") else ()
            return Code(rng.choice(one), (self.expr(dtype, depth - 1, scope),), dtype)
        if roll < 0.18:
            return self.reinterpreted(dtype, depth, scope)
        if roll < 0.3 and dtype == "int32":
            q, shift = rng.choice(((31, 0), (15, 2), (31, -3), (2, 1)))
            text = f"te.q_multiply_shift({{}}, {{}}, {q}, {shift})"
            return Code(text, self.two(dtype, depth, scope), dtype)
        text = rng.choice(PLAIN if roll < 0.55 else OF_TWO_INTEGERS)
        if rng.random() < 0.25:  # by a number
            return Code(text, (self.expr(dtype, depth - 1, scope), self.const(dtype)), dtype)
        return Code(text, self.two(dtype, depth, scope), dtype)
