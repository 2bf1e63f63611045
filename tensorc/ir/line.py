"""One line of the IR's text: its tokens, and the expressions and declarations in it."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable
from typing import NoReturn, TypeVar

from tensorc.dtypes import DType, float64, int64
from tensorc.dtypes import dtype as as_dtype
from tensorc.errors import ExpressionError
from tensorc.ir.expr import (
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    IfThenElse,
    Load,
    Max,
    Min,
    Neg,
    Not,
    Ramp,
    Select,
    Var,
    const,
    index,
)
from tensorc.ir.intrinsic import TABLE
from tensorc.ir.printer import COMPARISON, LEVEL, RESERVED
from tensorc.ir.stmt import Annotations, annotate
from tensorc.ir.verifier import SCOPES, expr_problem

__all__ = ["Line", "Scope"]

Word = TypeVar("Word", bound=str)
Node = TypeVar("Node", bound=Expr)

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<load_mask>mask\()
  | (?P<name>[^\W\d]\w*(?:\.\w+)*)
  | (?P<number>0x[0-9a-f]{1,16}|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
  | (?P<string>"(?:[^"\\]|\\.)*")
  | (?P<sign>\.\.|//|<<|>>|==|!=|<=|>=|[-+*/%&|^<>()\[\]{},:=@])
  )""",
    re.VERBOSE,
)
_INFIX = {cls.symbol: (cls, level) for cls, level in LEVEL.items() if issubclass(cls, Binary)}


class Scope:
    """The variables and buffers that are visible."""

    __slots__ = ("buffers", "vars")

    def __init__(self, vars: dict[str, Var], buffers: dict[str, Buffer]):
        self.vars = vars
        self.buffers = buffers

    def with_vars(self, *bound: Var) -> Scope:
        return Scope({**self.vars, **{var.name: var for var in bound}}, self.buffers)

    def with_buffer(self, buffer: Buffer) -> Scope:
        return Scope(self.vars, {**self.buffers, buffer.name: buffer})


class Line:
    """The tokens of one line and a place among them."""

    def __init__(self, number: int, text: str, start: int):
        self.row = number
        self.indent = start
        self.at = 0
        self.adopts = False
        self.loose: list[Const] = []  # numbers with a point that have no dtype yet
        self.scope = Scope({}, {})
        self.tokens: list[tuple[str, str]] = []  # kind and text
        text = text.rstrip()
        while start < len(text):
            match = _TOKEN.match(text, start)
            if match is None:
                raise ExpressionError(
                    f"line {number}: unexpected character {text[start:].lstrip()[0]!r}"
                )
            kind = str(match.lastgroup)  # every alternative has a name
            self.tokens.append((kind, match.group(kind)))
            start = match.end()
        self.tokens.append(("end", "the end of the line"))

    # tokens

    def fail(self, problem: str) -> NoReturn:
        raise ExpressionError(f"line {self.row}: {problem}")

    def expected(self, what: str) -> NoReturn:
        kind, text = self.tokens[self.at]
        self.fail(f"expected {what}, found {text if kind == 'end' else repr(text)}")

    def ahead(self, count: int) -> str:
        """The text of the token `count` places on."""
        return self.tokens[min(self.at + count, len(self.tokens) - 1)][1]

    def next_is(self, text: str) -> bool:
        return self.tokens[self.at][1] == text and self.tokens[self.at][0] != "end"

    def accept(self, text: str) -> bool:
        if self.next_is(text):
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            self.expected(repr(text))

    def take(self, kind: str, what: str) -> str:
        """The text of the next token, which must be of this kind."""
        found, text = self.tokens[self.at]
        if found != kind:
            self.expected(what)
        self.at += 1
        return text

    def name(self, what: str) -> str:
        return self.take("name", what)

    def one_of(self, what: str, words: tuple[Word, ...]) -> Word:
        for word in words:
            if word == self.tokens[self.at][1]:
                self.name(what)
                return word
        self.expected(f"{what} ({', '.join(words)})")

    def integer(self, what: str) -> int:
        sign = -1 if self.accept("-") else 1
        text = self.take("number", what)
        if not text.isdigit():
            self.at -= 1
            self.expected(what)
        return sign * int(text)

    def end(self) -> None:
        if self.tokens[self.at][0] != "end":
            self.expected("the end of the line")

    def is_statement(self, word: str) -> bool:
        """Whether the line begins with this keyword, and is no store to a buffer of that name."""
        return self.tokens[0][1] == word and self.tokens[1][1] != "["

    def list(self, closing: str, item: Callable) -> tuple:
        """Items with commas between them, up to and with the closing sign."""
        items = []
        if self.accept(closing):
            return ()
        while True:
            items.append(item())
            if self.accept(closing):
                return tuple(items)
            if not self.accept(","):
                self.expected(f"',' or {closing!r}")

    # expressions

    def checked(self, e: Node) -> Node:
        problem = expr_problem(e)
        if problem is not None:
            self.fail(problem)
        return e

    def expr(self, level: int = 1) -> Expr:
        """An expression whose operators bind at least as tightly as `level`."""
        left = self.prefix(level)
        while True:
            infix = _INFIX.get(self.tokens[self.at][1])
            if infix is None or infix[1] < level:
                return left
            cls, own = infix
            self.at += 1
            left = self.checked(cls(*self.alike(left, self.expr(own + 1))))
            following = _INFIX.get(self.tokens[self.at][1])
            if own == COMPARISON and following is not None and following[1] == COMPARISON:
                self.fail("comparisons do not chain; put one of them in parentheses")

    def prefix(self, level: int) -> Expr:
        if self.next_is("not"):
            if level > LEVEL[Not]:
                self.expected("an expression ('not' needs parentheses here)")
            self.at += 1
            return self.checked(Not(self.expr(LEVEL[Not])))
        if self.accept("-"):
            if self.tokens[self.at][0] == "number":
                self.at -= 1
                return self.bare()
            return self.checked(Neg(self.prefix(LEVEL[Neg])))
        return self.atom()

    def int64(self) -> Const:
        value = self.integer("an integer")
        if not int64.min <= value <= int64.max:
            self.fail(f"the literal {value} does not fit int64")
        return index(value)

    def bare(self) -> Const:
        if self.adopts and not self.ahead(self.tokens[self.at][1] == "-").isdigit():
            self.loose.append(const(self.number(), float64))
            return self.loose[-1]
        return self.int64()

    def alike(self, a: Expr, b: Expr) -> tuple[Expr, Expr]:
        """Two operands; where numbers adopt dtypes, one of them that of the other."""
        if not self.adopts or a.dtype == b.dtype:
            return a, b
        return self.adopted(a, b), self.adopted(b, a)

    def adopted(self, e: Expr, beside: Expr) -> Expr:
        if type(e) is not Const or beside.dtype.is_bool or (type(beside) is Const and e.dtype is float64):
            return e
        if e.dtype is not int64 and not any([e is each for each in self.loose]):
            return e
        try:
            return const(e.value, beside.dtype)
        except ExpressionError as error:
            self.fail(str(error))

    def atom(self) -> Expr:
        kind, text = self.tokens[self.at]
        if kind == "number":
            return self.bare()
        if self.accept("("):
            inner = self.expr()
            self.expect(")")
            return inner
        if kind == "load_mask":  # a call of something named mask
            self.fail("'mask(' stands only behind a load")
        if kind != "name" or text in RESERVED - {"true", "false"}:
            self.expected("an expression")
        self.at += 1
        if text in ("true", "false"):
            return const(text == "true", "bool")
        if self.accept("("):
            return self.call(text)
        if self.accept("["):
            return self.load(text)
        var = self.scope.vars.get(text)
        if var is None:
            self.fail(f"variable {text!r} is not bound here")
        return var

    def load(self, name: str) -> Expr:
        buffer = self.buffer(name)
        indices = self.list("]", self.expr)
        mask = None
        if self.tokens[self.at][0] == "load_mask":
            self.at += 1
            mask = self.expr()
            self.expect(")")
        return self.access(buffer, indices, mask)

    def access(self, buffer: Buffer, indices: tuple[Expr, ...], mask: Expr | None) -> Load:
        rank = len(buffer.shape)
        if len(indices) not in (1, rank):
            self.fail(
                f"buffer {buffer.name!r} takes {rank} indices, or one offset, not {len(indices)}"
            )
        return self.checked(Load(buffer, indices, mask))

    def buffer(self, name: str) -> Buffer:
        buffer = self.scope.buffers.get(name)
        if buffer is None:
            self.fail(f"buffer {name!r} is not declared here")
        return buffer

    def call(self, name: str) -> Expr:
        """What follows `name(`."""
        form = _FORMS.get(name)
        if form is not None:
            return form(self)
        intrinsic = TABLE.get(name)
        if intrinsic is None:
            return self.literal(name)
        args = self.list(")", self.expr)
        if len(args) != intrinsic.arity:
            self.fail(f"{name} takes {intrinsic.arity} operands, not {len(args)}")
        return self.checked(Call(name, args, intrinsic.result(args[0].dtype)))

    def dtype(self) -> DType:
        text = self.tokens[self.at][1]
        try:
            dtype = as_dtype(text)
        except ExpressionError:
            self.expected("a dtype")
        self.at += 1
        return dtype

    def literal(self, name: str) -> Const:
        try:
            dtype = as_dtype(name)
        except ExpressionError:
            self.fail(f"{name!r} is no operation, intrinsic or dtype")
        value = self.number()
        self.expect(")")
        if dtype.is_bool or dtype.lanes != 1:
            form = "true or false" if dtype.is_bool else "broadcast(...)"
            self.fail(f"a literal of {dtype} is written {form}")
        if dtype.is_int and isinstance(value, float):
            self.fail(f"the literal {value!r} is no {dtype}")
        try:
            return const(value, dtype)
        except ExpressionError as error:
            self.fail(str(error))

    def number(self) -> int | float:
        sign = -1 if self.accept("-") else 1
        text = self.tokens[self.at][1]
        if text in ("inf", "nan"):
            self.at += 1
            return sign * math.inf if text == "inf" else math.nan
        text = self.take("number", "a number")
        if text.startswith("0x"):  # the bits of a float64
            return struct.unpack("<d", int(text, 16).to_bytes(8, "little"))[0]
        return sign * int(text) if text.isdigit() else sign * float(text)

    def comma(self) -> Expr:
        self.expect(",")
        return self.expr()

    def lanes(self) -> int:
        self.expect(",")
        lanes = self.integer("a number of lanes")
        self.expect(")")
        return lanes

    def minimum(self) -> Expr:
        return self.closed(Min(self.expr(), self.comma()))

    def maximum(self) -> Expr:
        return self.closed(Max(self.expr(), self.comma()))

    def select(self) -> Expr:
        return self.closed(Select(self.expr(), self.comma(), self.comma()))

    def if_then_else(self) -> Expr:
        return self.closed(IfThenElse(self.expr(), self.comma(), self.comma()))

    def cast(self) -> Expr:
        dtype = self.dtype()
        return self.closed(Cast(self.comma(), dtype))

    def ramp(self) -> Expr:
        base, stride = self.expr(), self.comma()
        return self.vector(base.dtype, lambda lanes: Ramp(base, stride, lanes))

    def broadcast(self) -> Expr:
        value = self.expr()
        return self.vector(value.dtype, lambda lanes: Broadcast(value, lanes))

    def vector(self, dtype: DType, make: Callable[[int], Expr]) -> Expr:
        lanes = self.lanes()
        if lanes < 2:
            self.fail(f"a vector has at least 2 lanes, not {lanes}")
        if dtype.lanes != 1:
            self.fail(f"expected a scalar in a vector, found {dtype}")
        return self.checked(make(lanes))

    def closed(self, e: Expr) -> Expr:
        self.expect(")")
        return self.checked(e)

    # declarations

    def annotations(self) -> Annotations:
        if not self.accept("{"):
            return ()
        result: Annotations = ()
        for key, value in self.list("}", self.annotation):
            result = annotate(result, key, value)
        return result

    def annotation(self) -> tuple[str, int | float | str | bool]:
        key = self.string() if self.tokens[self.at][0] == "string" else self.name("a key")
        self.expect("=")
        if self.tokens[self.at][0] == "string":
            return key, self.string()
        if self.next_is("true") or self.next_is("false"):
            return key, self.name("a literal") == "true"
        return key, self.number()

    def string(self) -> str:
        text = self.take("string", "a string")
        try:
            return json.loads(text)
        except ValueError:
            self.fail(f"the string {text} is not written as JSON writes strings")

    def declaration(self) -> Buffer:
        name = self.name("the name of a buffer")
        self.expect(":")
        dtype = self.dtype()
        self.expect("[")
        shape = self.list("]", self.expr)
        strides = None
        if self.accept("strides"):
            self.expect("[")
            strides = self.list("]", self.expr)
        padding = ()
        if self.accept("pad"):
            self.expect("[")
            padding = self.list("]", self.padding)
        scope = self.one_of("a scope", SCOPES) if self.accept("@") else "global"
        alignment = self.integer("an alignment") if self.accept("align") else None
        for e in (*shape, *(strides or ())):
            if e.dtype is not int64:
                self.fail(f"an extent or stride of {name!r} is {e.dtype}, not int64")
        return Buffer(name, shape, dtype, scope, strides, alignment, padding)

    def padding(self) -> tuple[int, int, int]:
        axis = self.integer("an axis")
        self.expect(":")
        factor = self.integer("a factor")
        self.expect("+")
        return axis, factor, self.integer("an offset")


_FORMS = {
    "broadcast": Line.broadcast,
    "cast": Line.cast,
    "if_then_else": Line.if_then_else,
    "max": Line.maximum,
    "min": Line.minimum,
    "ramp": Line.ramp,
    "select": Line.select,
}
