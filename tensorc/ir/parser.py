"""Reading the printed form of the IR back, by hand: the grammar of docs/ir.md; no eval."""

from __future__ import annotations

from collections.abc import Mapping

from tensorc.dtypes import int64
from tensorc.errors import ExpressionError
from tensorc.ir.expr import Add, Buffer, Call, Const, Expr, Sub, Var, const, index, is_const
from tensorc.ir.function import Function
from tensorc.ir.line import Line, Scope
from tensorc.ir.printer import RESERVED
from tensorc.ir.stmt import (
    ITER_KINDS,
    LOOP_KINDS,
    Alloc,
    Barrier,
    Block,
    BlockIter,
    Check,
    Evaluate,
    For,
    If,
    Let,
    LoopKind,
    Prefetch,
    Seq,
    Stmt,
    Store,
    While,
    seq,
)
from tensorc.ir.verifier import BARRIER_SCOPES

__all__ = ["parse", "parse_expr"]

_TRUE = const(True, "bool")


def parse(text: str) -> Function:
    """The function that a text shows.

    Raises ExpressionError, with the number of the line, for text outside the grammar, names that
    are not bound and operands whose dtypes do not fit.
    """
    return _Parser(text).function()


def parse_expr(text: str, names: Mapping[str, Var | Buffer], adopts: bool = False) -> Expr:
    """The expression that a text shows, over these names; raises as `parse` does. Where numbers
    adopt dtypes, each has that of the operand beside it, as in expressions of Python."""
    line = Line(1, text, 0)
    line.adopts = adopts
    line.scope = Scope(
        {name: thing for name, thing in names.items() if isinstance(thing, Var)},
        {name: thing for name, thing in names.items() if isinstance(thing, Buffer)},
    )
    result = line.expr()
    line.end()
    return result


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
            Line(number, line, len(line) - len(line.lstrip()))
            for number, line in enumerate(text.expandtabs().splitlines(), 1)
            if line.strip()
        ]
        self.at = 0

    def peek(self) -> Line | None:
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

    def declares(self, line: Line, indent: int) -> bool:
        """Whether a line is an `alloc` of the function, and no statement with a body."""
        following = self.lines[self.at + 1] if self.at + 1 < len(self.lines) else None
        deeper = following is not None and following.indent > line.indent
        return line.indent > indent and line.is_statement("alloc") and not deeper

    def params(self, line: Line) -> tuple[tuple[Buffer, ...], tuple[Buffer, ...], tuple[Var, ...]]:
        """The parameters, which may use the scalars and symbolic extents of one another."""
        line.expect("(")
        line.scope = Scope(self.symbols(line), {})
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

    def symbols(self, line: Line) -> dict[str, Var]:
        """The variables that the parameters declare: scalars, and names that are a whole extent."""
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

    def body(self, indent: int, scope: Scope) -> Stmt:
        """The statements that are indented deeper than `indent`."""
        first = self.peek()
        if first is None or first.indent <= indent:
            previous = self.lines[self.at - 1]
            raise ExpressionError(f"line {previous.row + 1}: expected an indented statement")
        stmts = []
        while (line := self.peek()) is not None and line.indent > indent:
            if line.indent != first.indent:
                line.fail(
                    f"expected {first.indent} spaces before the statement, found {line.indent}"
                )
            line.scope = scope
            self.at += 1
            stmts.append(self.stmt(line))
        return seq(*stmts)

    def stmt(self, line: Line) -> Stmt:
        for word, make in _STATEMENTS.items():
            if line.is_statement(word):
                line.at += 1
                return make(self, line)
        if line.tokens[0][0] != "name" or line.tokens[1][1] != "[":
            line.expected("a statement")
        return self.store(line)

    def store(self, line: Line) -> Stmt:
        buffer = line.buffer(line.name("a buffer"))
        line.expect("[")
        indices = line.list("]", line.expr)
        line.expect("=")
        value = line.expr()
        mask = line.expr() if line.accept("mask") else None
        stream = line.accept("stream")
        line.end()
        element = line.access(buffer, indices, mask)
        if value.dtype is not element.dtype:
            line.fail(f"a value of {value.dtype} is stored to elements of {element.dtype}")
        return Store(buffer, indices, value, mask, stream)

    def prefetch(self, line: Line) -> Stmt:
        buffer = line.buffer(line.name("a buffer"))
        line.expect("[")
        indices = line.list("]", line.expr)
        line.end()
        line.access(buffer, indices, None)
        return Prefetch(buffer, indices)

    def loop(self, line: Line) -> Stmt:
        name = line.name("the name of a loop")
        line.expect("in")
        start = self.index(line)
        line.expect("..")
        stop = self.index(line)
        kind: LoopKind = "serial"
        if line.tokens[line.at][0] == "name":
            kind = line.one_of("a loop kind", LOOP_KINDS)
        annotations = line.annotations()
        line.end()
        var = Var(name)
        body = self.body(line.indent, line.scope.with_vars(var))
        return For(var, start, extent_of(start, stop), kind, body, annotations)

    def index(self, line: Line) -> Expr:
        e = line.expr()
        if e.dtype is not int64:
            line.fail(f"expected an int64 expression, found one of {e.dtype}")
        return e

    def condition(self, line: Line) -> Expr:
        e = line.expr()
        if not e.dtype.is_bool or e.dtype.lanes != 1:
            line.fail(f"expected a condition, found an expression of {e.dtype}")
        return e

    def block(self, line: Line) -> Stmt:
        name = line.name("the name of a block")
        annotations = line.annotations()
        line.end()
        outside = line.scope
        iters: list[BlockIter] = []
        predicate: Expr = _TRUE
        init = None
        while (head := self.inside(line)) is not None and any(
            head.is_statement(kind) for kind in ITER_KINDS
        ):
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
        return Block(
            name, tuple(iters), predicate, init, self.body(line.indent, scope), annotations
        )

    def inside(self, line: Line) -> Line | None:
        """The next line, if it is indented deeper than this one."""
        following = self.peek()
        return following if following is not None and following.indent > line.indent else None

    def iterator(self, line: Line, scope: Scope) -> BlockIter:
        line.scope = scope
        kind = line.one_of("a kind of iterator", ITER_KINDS)
        var = Var(line.name("the name of an iterator"))
        line.expect(":")
        extent = self.index(line)
        line.expect("=")
        binding = self.index(line)
        line.end()
        return BlockIter(var, extent, kind, binding)

    def branch(self, line: Line) -> Stmt:
        condition = self.condition(line)
        line.end()
        then = self.body(line.indent, line.scope)
        orelse = None
        following = self.peek()
        if (
            following is not None
            and following.indent == line.indent
            and following.is_statement("else")
        ):
            following.at += 1
            following.end()
            self.at += 1
            orelse = self.body(line.indent, line.scope)
        return If(condition, then, orelse)

    def let(self, line: Line) -> Stmt:
        name = line.name("the name of a variable")
        line.expect(":")
        dtype = line.dtype()
        line.expect("=")
        value = line.expr()
        line.end()
        if value.dtype is not dtype:
            line.fail(f"variable {name!r} is {dtype}, its value {value.dtype}")
        var = Var(name, dtype, wraps=True)
        return Let(var, value, self.body(line.indent, line.scope.with_vars(var)))

    def alloc_head(self, line: Line) -> Buffer:
        line.expect("alloc")
        buffer = line.declaration()
        line.end()
        return buffer

    def alloc(self, line: Line) -> Stmt:
        scope = line.scope
        buffers: list[Buffer] = []
        while not buffers or line.accept(","):
            buffers.append(line.declaration())
            scope = scope.with_buffer(buffers[-1])
        line.end()
        return Alloc(tuple(buffers), self.body(line.indent, scope))

    def loop_while(self, line: Line) -> Stmt:
        condition = self.condition(line)
        line.end()
        return While(condition, self.body(line.indent, line.scope))

    def check(self, line: Line) -> Stmt:
        condition = self.condition(line)
        line.expect(",")
        value = self.index(line)
        line.expect(",")
        at = []
        while line.tokens[line.at][0] != "string":
            at.append(self.index(line))
            line.expect(",")
        message = line.string()
        line.end()
        return Check(condition, value, message, tuple(at))

    def barrier(self, line: Line) -> Stmt:
        scope = line.one_of("a scope", BARRIER_SCOPES)
        line.end()
        return Barrier(scope)

    def evaluate(self, line: Line) -> Stmt:
        call = line.expr()
        line.end()
        if type(call) is not Call:
            line.fail("expected a call of an intrinsic")
        return Evaluate(call)

    def nothing(self, line: Line) -> Stmt:
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
    "prefetch": _Parser.prefetch,
    "while": _Parser.loop_while,
}
