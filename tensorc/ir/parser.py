"""Reading the printed form of the IR back: the grammar of docs/ir.md, by hand; nothing is ever evaluated."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from typing import NoReturn

from tensorc.dtypes import DType, dtype as as_dtype, int64
from tensorc.errors import ExpressionError
from tensorc.ir.expr import (
    Add, Broadcast, Buffer, Call, Cast, Const, Expr, IfThenElse, Load, Max, Min, Neg, Not, Ramp, Select, Sub, Var,
    const, index, is_const,
)  # fmt: skip
from tensorc.ir.function import Function
from tensorc.ir.intrinsic import TABLE
from tensorc.ir.printer import COMPARISON, LEVEL, RESERVED
from tensorc.ir.stmt import (
    ITER_KINDS, LOOP_KINDS, Alloc, Annotations, Barrier, Block, BlockIter, Check, Evaluate, For, If, Let, Seq, Stmt,
    Store, While, annotate, seq,
)  # fmt: skip
from tensorc.ir.verifier import BARRIER_SCOPES, SCOPES, expr_problem

__all__ = ["parse", "parse_expr"]

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
_INFIX = {cls.symbol: (cls, level) for cls, level in LEVEL.items() if cls is not Not and cls is not Neg}
_TRUE = const(True, "bool")


def parse(text: str) -> Function:
    """The function that a text shows.

    Raises ExpressionError, with the number of the line, for text outside the grammar, names that are not bound and
    operands whose dtypes do not fit.
    """
    return _Parser(text).function()


def parse_expr(text: str, names: Mapping[str, Var | Buffer]) -> Expr:
    """The expression that a text shows, over these variables and buffers; raises as `parse` does."""
    line = _Line(1, text, 0)
    line.scope = _Scope(
        {name: thing for name, thing in names.items() if isinstance(thing, Var)},
        {name: thing for name, thing in names.items() if isinstance(thing, Buffer)},
    )
    result = line.expr()
    line.end()
    return result


class _Scope:
    """The variables and buffers that are visible."""

    __slots__ = ("buffers", "vars")

    def __init__(self, vars: dict[str, Var], buffers: dict[str, Buffer]):
        self.vars = vars
        self.buffers = buffers

    def with_vars(self, *bound: Var) -> _Scope:
        return _Scope({**self.vars, **{var.name: var for var in bound}}, self.buffers)

    def with_buffer(self, buffer: Buffer) -> _Scope:
        return _Scope(self.vars, {**self.buffers, buffer.name: buffer})


class _Line:
    """The tokens of one line and a place among them."""

    def __init__(self, number: int, text: str, start: int):
        self.row = number
        self.indent = start
        self.at = 0
        self.scope = _Scope({}, {})
        self.tokens: list[tuple[str, str]] = []  # kind and text
        text = text.rstrip()
        while start < len(text):
            match = _TOKEN.match(text, start)
            if match is None:
                raise ExpressionError(f"line {number}: unexpected character {text[start:].lstrip()[0]!r}")
            self.tokens.append((match.lastgroup, match.group(match.lastgroup)))
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

    def one_of(self, what: str, words: tuple[str, ...]) -> str:
        if self.tokens[self.at][1] not in words:
            self.expected(f"{what} ({', '.join(words)})")
        return self.name(what)

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

    def checked(self, e: Expr) -> Expr:
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
            left = self.checked(cls(left, self.expr(own + 1)))
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
                return self.int64()
            return self.checked(Neg(self.prefix(LEVEL[Neg])))
        return self.atom()

    def int64(self) -> Const:
        value = self.integer("an integer")
        if not int64.min <= value <= int64.max:
            self.fail(f"the literal {value} does not fit int64")
        return index(value)

    def atom(self) -> Expr:
        kind, text = self.tokens[self.at]
        if kind == "number":
            return self.int64()
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
            self.fail(f"buffer {buffer.name!r} takes {rank} indices, or one offset, not {len(indices)}")
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
            self.fail(f"a literal of {dtype} is written {'true or false' if dtype.is_bool else 'broadcast(...)'}")
        if dtype.is_int and isinstance(value, float):
            self.fail(f"the literal {value!r} is no {dtype}")
        try:
            return const(value, dtype)
        except ExpressionError as error:
            self.fail(str(error))

    def number(self) -> int | float:
        sign = -1 if self.accept("-") else 1
        kind, text = self.tokens[self.at]
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
        scope = self.one_of("a scope", SCOPES) if self.accept("@") else "global"
        alignment = self.integer("an alignment") if self.accept("align") else None
        for e in (*shape, *(strides or ())):
            if e.dtype is not int64:
                self.fail(f"an extent or stride of {name!r} is {e.dtype}, not int64")
        return Buffer(name, shape, dtype, scope, strides, alignment)


_FORMS = {
    "broadcast": _Line.broadcast,
    "cast": _Line.cast,
    "if_then_else": _Line.if_then_else,
    "max": _Line.maximum,
    "min": _Line.minimum,
    "ramp": _Line.ramp,
    "select": _Line.select,
}


def extent_of(start: Expr, stop: Expr) -> Expr:
    """The extent of the range `start .. stop` as the printer writes it."""
    if is_const(start, 0):
        return stop
    if type(start) is Const and type(stop) is Const:
        return index(stop.value - start.value)
    if type(stop) is Add and stop.a == start:
        return stop.b
    return Sub(stop, start)


class _Parser:
    """The lines of a function and a place among them."""

    def __init__(self, text: str):
        self.lines = [
            _Line(number, line, len(line) - len(line.lstrip()))
            for number, line in enumerate(text.expandtabs().splitlines(), 1)
            if line.strip()
        ]
        self.at = 0

    def peek(self) -> _Line | None:
        return self.lines[self.at] if self.at < len(self.lines) else None

    # the function

    def function(self) -> Function:
        line = self.peek()
        if line is None:
            raise ExpressionError("line 1: expected 'function', found no text")
        line.expect("function")
        name = line.name("the name of the function")
        params, outputs, scalars = self.params(line)
        assumptions = []
        if line.accept("where"):
            assumptions.append(self.condition(line))
            while line.accept(","):
                assumptions.append(self.condition(line))
        line.end()
        self.at += 1
        scope = line.scope
        allocs = []
        while (head := self.peek()) is not None and self.declares(head, line.indent):
            head.scope = scope
            allocs.append(self.alloc_head(head))
            scope = scope.with_buffer(allocs[-1])
            self.at += 1
        body = self.body(line.indent, scope) if self.peek() is not None else Seq(())
        if (rest := self.peek()) is not None:
            rest.fail("expected the end of the function, found a line that is not indented")
        return Function(name, params, outputs, scalars, tuple(allocs), body, tuple(assumptions))

    def declares(self, line: _Line, indent: int) -> bool:
        """Whether a line is an `alloc` of the function, and no statement with a body."""
        following = self.lines[self.at + 1] if self.at + 1 < len(self.lines) else None
        deeper = following is not None and following.indent > line.indent
        return line.indent > indent and line.is_statement("alloc") and not deeper

    def params(self, line: _Line) -> tuple[tuple[Buffer, ...], tuple[Buffer, ...], tuple[Var, ...]]:
        """The list in parentheses; what is a scalar or the whole extent of an axis is a variable everywhere in it."""
        line.expect("(")
        line.scope = _Scope(self.symbols(line), {})
        params, outputs, scalars = [], [], []

        def param() -> None:
            if line.ahead(1) == ":" and line.ahead(3) != "[":
                scalars.append(line.scope.vars[line.name("a name")])
                line.expect(":")
                line.expect("int64")
                return
            is_output = line.ahead(1) != ":" and line.accept("out")
            buffer = line.declaration()
            if buffer.name in line.scope.buffers:
                line.fail(f"two parameters are named {buffer.name!r}")
            line.scope.buffers[buffer.name] = buffer
            params.append(buffer)
            if is_output:
                outputs.append(buffer)

        line.list(")", param)
        return tuple(params), tuple(outputs), tuple(scalars)

    def symbols(self, line: _Line) -> dict[str, Var]:
        """The variables that the list in parentheses declares, which later parameters and extents may use."""
        found: dict[str, Var] = {}
        brackets = ["("]
        for at in range(line.at, len(line.tokens) - 1):
            kind, text = line.tokens[at]
            before, after = line.tokens[at - 1][1], line.tokens[at + 1][1]
            if text in ("(", "["):
                brackets.append(text)
            elif text in (")", "]"):
                brackets.pop()
                if not brackets:
                    break
            elif kind != "name" or text in RESERVED:
                continue
            elif len(brackets) == 1 and before in ("(", ",") and after == ":":
                is_scalar = at + 3 < len(line.tokens) and line.tokens[at + 3][1] != "["
                if is_scalar:
                    found.setdefault(text, Var(text))
            elif brackets[-1] == "[" and before in ("[", ",") and after in ("]", ","):
                found.setdefault(text, Var(text))
        return found

    # statements

    def body(self, indent: int, scope: _Scope) -> Stmt:
        """The statements that are indented deeper than `indent`."""
        first = self.peek()
        if first is None or first.indent <= indent:
            previous = self.lines[self.at - 1]
            raise ExpressionError(f"line {previous.row + 1}: expected an indented statement")
        stmts = []
        while (line := self.peek()) is not None and line.indent > indent:
            if line.indent != first.indent:
                line.fail(f"expected {first.indent} spaces before the statement, found {line.indent}")
            line.scope = scope
            self.at += 1
            stmts.append(self.stmt(line))
        return seq(*stmts)

    def stmt(self, line: _Line) -> Stmt:
        for word, make in _STATEMENTS.items():
            if line.is_statement(word):
                line.at += 1
                return make(self, line)
        if line.tokens[0][0] != "name" or line.tokens[1][1] != "[":
            line.expected("a statement")
        return self.store(line)

    def store(self, line: _Line) -> Stmt:
        buffer = line.buffer(line.name("a buffer"))
        line.expect("[")
        indices = line.list("]", line.expr)
        line.expect("=")
        value = line.expr()
        mask = line.expr() if line.accept("mask") else None
        line.end()
        element = line.access(buffer, indices, mask)
        if value.dtype is not element.dtype:
            line.fail(f"a value of {value.dtype} is stored to elements of {element.dtype}")
        return Store(buffer, indices, value, mask)

    def loop(self, line: _Line) -> Stmt:
        name = line.name("the name of a loop")
        line.expect("in")
        start = self.index(line)
        line.expect("..")
        stop = self.index(line)
        kind = "serial"
        if line.tokens[line.at][0] == "name":
            kind = line.one_of("a loop kind", LOOP_KINDS)
        annotations = line.annotations()
        line.end()
        var = Var(name)
        body = self.body(line.indent, line.scope.with_vars(var))
        return For(var, start, extent_of(start, stop), kind, body, annotations)

    def index(self, line: _Line) -> Expr:
        e = line.expr()
        if e.dtype is not int64:
            line.fail(f"expected an int64 expression, found one of {e.dtype}")
        return e

    def condition(self, line: _Line) -> Expr:
        e = line.expr()
        if not e.dtype.is_bool or e.dtype.lanes != 1:
            line.fail(f"expected a condition, found an expression of {e.dtype}")
        return e

    def block(self, line: _Line) -> Stmt:
        name = line.name("the name of a block")
        annotations = line.annotations()
        line.end()
        outside = line.scope
        iters = []
        predicate, init = _TRUE, None
        while (head := self.inside(line)) is not None and any(head.is_statement(kind) for kind in ITER_KINDS):
            iters.append(self.iterator(head, outside))
            self.at += 1
        if (head := self.inside(line)) is not None and head.is_statement("where"):
            head.at += 1
            head.scope = outside
            predicate = self.condition(head)
            head.end()
            self.at += 1
        scope = outside.with_vars(*[it.var for it in iters])
        if (head := self.inside(line)) is not None and head.is_statement("init"):
            head.at += 1
            head.end()
            self.at += 1
            init = self.body(head.indent, scope)
        return Block(name, tuple(iters), predicate, init, self.body(line.indent, scope), annotations)

    def inside(self, line: _Line) -> _Line | None:
        """The next line, if it is indented deeper than this one."""
        following = self.peek()
        return following if following is not None and following.indent > line.indent else None

    def iterator(self, line: _Line, scope: _Scope) -> BlockIter:
        line.scope = scope
        kind = line.one_of("a kind of iterator", ITER_KINDS)
        var = Var(line.name("the name of an iterator"))
        line.expect(":")
        extent = self.index(line)
        line.expect("=")
        binding = self.index(line)
        line.end()
        return BlockIter(var, extent, kind, binding)

    def branch(self, line: _Line) -> Stmt:
        condition = self.condition(line)
        line.end()
        then = self.body(line.indent, line.scope)
        orelse = None
        following = self.peek()
        if following is not None and following.indent == line.indent and following.is_statement("else"):
            following.at += 1
            following.end()
            self.at += 1
            orelse = self.body(line.indent, line.scope)
        return If(condition, then, orelse)

    def let(self, line: _Line) -> Stmt:
        name = line.name("the name of a variable")
        line.expect(":")
        dtype = line.dtype()
        line.expect("=")
        value = line.expr()
        line.end()
        if value.dtype is not dtype:
            line.fail(f"variable {name!r} is {dtype}, its value {value.dtype}")
        var = Var(name, dtype)
        return Let(var, value, self.body(line.indent, line.scope.with_vars(var)))

    def alloc_head(self, line: _Line) -> Buffer:
        line.expect("alloc")
        buffer = line.declaration()
        line.end()
        return buffer

    def alloc(self, line: _Line) -> Stmt:
        line.at = 0
        buffer = self.alloc_head(line)
        return Alloc(buffer, self.body(line.indent, line.scope.with_buffer(buffer)))

    def loop_while(self, line: _Line) -> Stmt:
        condition = self.condition(line)
        line.end()
        return While(condition, self.body(line.indent, line.scope))

    def check(self, line: _Line) -> Stmt:
        condition = self.condition(line)
        line.expect(",")
        value = self.index(line)
        line.expect(",")
        message = line.string()
        line.end()
        return Check(condition, value, message)

    def barrier(self, line: _Line) -> Stmt:
        scope = line.one_of("a scope", BARRIER_SCOPES)
        line.end()
        return Barrier(scope)

    def evaluate(self, line: _Line) -> Stmt:
        call = line.expr()
        line.end()
        if type(call) is not Call:
            line.fail("expected a call of an intrinsic")
        return Evaluate(call)

    def nothing(self, line: _Line) -> Stmt:
        line.end()
        return Seq(())


_STATEMENTS = {
    "alloc": _Parser.alloc,
    "barrier": _Parser.barrier,
    "block": _Parser.block,
    "check": _Parser.check,
    "evaluate": _Parser.evaluate,
    "for": _Parser.loop,
    "if": _Parser.branch,
    "let": _Parser.let,
    "pass": _Parser.nothing,
    "while": _Parser.loop_while,
}
