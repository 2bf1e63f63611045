"""The printed form of the IR: the grammar of docs/ir.md; `ir/parser.py` reads it back."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable

from tensorc.dtypes import int64
from tensorc.ir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Binary,
    BitAnd,
    BitOr,
    BitXor,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Div,
    Expr,
    FloorDiv,
    IfThenElse,
    Load,
    Max,
    Min,
    Mod,
    Mul,
    Neg,
    Not,
    Or,
    Ramp,
    Select,
    ShiftLeft,
    ShiftRight,
    Sub,
    Var,
)
from tensorc.ir.function import Function
from tensorc.ir.stmt import (
    Alloc,
    Barrier,
    Block,
    Check,
    Evaluate,
    For,
    If,
    Let,
    Prefetch,
    Seq,
    Stmt,
    Store,
    While,
)
from tensorc.ir.walk import children

__all__ = ["equal", "show"]

# Python's precedence, loosest first; the parser climbs the same table.
LEVELS: tuple[tuple[type, ...], ...] = (
    (Or,),
    (And,),
    (Not,),
    (EQ, NE, LT, LE, GT, GE),
    (BitOr,),
    (BitXor,),
    (BitAnd,),
    (ShiftLeft, ShiftRight),
    (Add, Sub),
    (Mul, Div, FloorDiv, Mod),
    (Neg,),
)
LEVEL: dict[type, int] = {cls: level for level, classes in enumerate(LEVELS, 1) for cls in classes}
COMPARISON = LEVEL[EQ]

# Operands of a comparison may not be comparisons; all other operators associate to the left.
_INFIX = {
    cls: (level, f" {cls.symbol} ", level + (level == COMPARISON), level + 1)
    for cls, level in LEVEL.items()
    if issubclass(cls, Binary)
}

NAME = re.compile(r"[^\W\d]\w*(?:\.\w+)*")
RESERVED = frozenset(
    ("and", "or", "not", "true", "false")
)  # no other word is ambiguous where a name may stand
_NAN = struct.pack("<d", math.nan)


def show(
    thing: Function | Stmt | Expr, *, mark: Stmt | Var | str | None = None, canonical: bool = False
) -> str:
    """The text of a function, statement or expression.

    `mark` puts a `>` in the margin of one statement's line: of this very node, of the loop over
    this variable, or of the loop, block or allocation of this name. `canonical` names everything
    by its order of appearance, so that the texts of two functions are the same where one
    consistent renaming makes them so.
    """
    printer = _Printer(canonical, mark)
    if isinstance(thing, Expr):
        return printer.expr(thing, 0)
    if isinstance(thing, Function):
        printer.function(thing)
    else:
        printer.stmt(thing, "")
    if mark is None:
        return "\n".join(printer.lines)
    margins = ("> " if number in printer.marked else "  " for number in range(len(printer.lines)))
    return "\n".join(margin + line for margin, line in zip(margins, printer.lines))


def equal(a: Function | Stmt | Expr, b: Function | Stmt | Expr) -> bool:
    """Whether two functions, statements or expressions are equal up to one consistent renaming."""
    return a is b or show(a, canonical=True) == show(b, canonical=True)


def number_text(value: int | float | bool) -> str:
    """A number as the parser reads it back, bit for bit; an odd NaN as the bits of its float64."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, float):
        return str(value)
    if not math.isnan(value):
        return repr(float(value))
    bits = struct.pack("<d", value)
    return "nan" if bits == _NAN else hex(int.from_bytes(bits, "little"))


def annotations_text(annotations) -> str:
    """Annotations with a space before them, or nothing."""
    if not annotations:
        return ""
    return (
        " {"
        + ", ".join([f"{_key_text(key)} = {_literal_text(value)}" for key, value in annotations])
        + "}"
    )


def _key_text(key: str) -> str:
    return key if NAME.fullmatch(key) else _string_text(key)


def _literal_text(value) -> str:
    return _string_text(value) if isinstance(value, str) else number_text(value)


def _string_text(value: str) -> str:
    return json.dumps(value)


def _clean(name: str) -> str:
    """The nearest name that the grammar allows."""
    if NAME.fullmatch(name):
        return f"{name}_" if name in RESERVED else name
    name = re.sub(r"[^\w.]", "_", name)
    name = re.sub(r"\.(?=\.|$)", "_", name)
    return name if NAME.fullmatch(name) else f"_{name}".replace("_.", "__", 1)


class _Printer:
    """Lines so far, and the names of what is visible: at no place do two things share one."""

    __slots__ = (
        "_blocks",
        "_buffers",
        "_used",
        "_vars",
        "canonical",
        "lines",
        "mark",
        "marked",
        "names",
    )

    def __init__(self, canonical: bool, mark):
        self.canonical = canonical
        self.mark = mark
        self.lines: list[str] = []
        self.marked: set[int] = set()
        self.names: dict[Var | Buffer, str] = {}
        self._used: set[str] = set()
        self._vars = self._buffers = 0
        self._blocks: dict[str, str] = {}

    # names

    def bind(self, var: Var) -> str:
        """A fresh name for a variable from here on."""
        if self.canonical:
            name = f"v{self._vars}" if var.dtype is int64 else f"v{self._vars}.{var.dtype}"
            self._vars += 1
        else:
            name = self._unique(var.name)
        self.names[var] = name
        return name

    def release(self, var: Var) -> None:
        self._used.discard(self.names.pop(var, None))

    def declare(self, buffer: Buffer) -> str:
        if self.canonical:
            name = f"b{self._buffers}"
            self._buffers += 1
        else:
            name = self._unique(buffer.name)
        self.names[buffer] = name
        return name

    def buffer_name(self, buffer: Buffer) -> str:
        name = self.names.get(buffer)
        if name is not None:
            return name
        if not self.canonical:
            return self.declare(buffer)
        name = self.names[buffer] = (
            "{" + self.buffer(buffer) + "}"
        )  # declared nowhere: what it is belongs to the text
        return name

    def block_name(self, name: str) -> str:
        if self.canonical:
            return self._blocks.setdefault(name, f"block{len(self._blocks)}")
        return name if NAME.fullmatch(name) else _clean(name)

    def _unique(self, name: str) -> str:
        name = base = _clean(name)
        number = 0
        while name in self._used:
            number += 1
            name = f"{base}_{number}"
        self._used.add(name)
        return name

    # expressions

    def expr(self, e: Expr, level: int) -> str:
        """The text of an expression, in parentheses where it binds looser than `level`."""
        cls = type(e)
        if isinstance(e, Binary) and cls in _INFIX:
            own, symbol, left, right = _INFIX[cls]
            text = self.expr(e.a, left) + symbol + self.expr(e.b, right)
            return f"({text})" if own < level else text
        if type(e) is Var:
            name = self.names.get(e)
            return self.bind(e) if name is None else name
        if type(e) is Const:
            return str(e.value) if e.dtype is int64 else _const_text(e)
        if type(e) is Load:
            text = f"{self.buffer_name(e.buffer)}[{self.list(e.indices)}]"
            return text if e.mask is None else f"{text} mask({self.expr(e.mask, 0)})"
        return _EXPRS.get(cls, _Printer._foreign)(self, e, level)

    def list(self, items: tuple[Expr, ...]) -> str:
        return ", ".join([self.expr(item, 0) for item in items])

    def _call(self, e: Call, level: int) -> str:
        return f"{e.name}({self.list(e.args)})"

    def _cast(self, e: Cast, level: int) -> str:
        return f"cast({e.dtype}, {self.expr(e.value, 0)})"

    def _not(self, e: Not, level: int) -> str:
        text = f"not {self.expr(e.value, LEVEL[Not])}"
        return f"({text})" if LEVEL[Not] < level else text

    def _neg(self, e: Neg, level: int) -> str:
        if type(e.value) is Const and e.value.dtype is int64:
            return f"-({e.value.value})"  # -3 is the literal
        return f"-{self.expr(e.value, LEVEL[Neg])}"

    def _ramp(self, e: Ramp, level: int) -> str:
        return f"ramp({self.expr(e.base, 0)}, {self.expr(e.stride, 0)}, {e.lanes})"

    def _broadcast(self, e: Broadcast, level: int) -> str:
        return f"broadcast({self.expr(e.value, 0)}, {e.lanes})"

    def _minimum(self, e: Min, level: int) -> str:
        return f"min({self.expr(e.a, 0)}, {self.expr(e.b, 0)})"

    def _maximum(self, e: Max, level: int) -> str:
        return f"max({self.expr(e.a, 0)}, {self.expr(e.b, 0)})"

    def _select(self, e: Select, level: int) -> str:
        return f"select({self.list((e.condition, e.true, e.false))})"

    def _if_then_else(self, e: IfThenElse, level: int) -> str:
        return f"if_then_else({self.list((e.condition, e.true, e.false))})"

    def _foreign(self, e: Expr, level: int) -> str:
        """A node of a layer above, such as a reduction: for messages, not for the parser."""
        if isinstance(e, Var):
            return e.name
        return f"{type(e).__name__}({self.list(children(e))})"

    # statements

    def function(self, f: Function) -> None:
        outputs = set(f.outputs)
        params = [f"out {self.buffer(p)}" if p in outputs else self.buffer(p) for p in f.params]
        params += [
            f"{self.names.get(scalar) or self.bind(scalar)}: {scalar.dtype}" for scalar in f.scalars
        ]
        name = "f" if self.canonical else _clean(f.name)
        where = f" where {self.list(f.assumptions)}" if f.assumptions else ""
        self.lines.append(f"function {name}({', '.join(params)}){where}")
        for buffer in f.allocs:
            if self.mark is not None:
                self._note(buffer)
            self.lines.append(f"  alloc {self.buffer(buffer)}")
        self.stmt(f.body, "  ")

    def buffer(self, buffer: Buffer) -> str:
        """The declaration of a buffer."""
        name = self.declare(buffer)
        text = f"{name}: {buffer.dtype}[{self.list(buffer.shape)}]"
        if buffer.strides is not None:
            text += f" strides[{self.list(buffer.strides)}]"
        if buffer.padding:
            rules = [f"{axis}: {factor} + {offset}" for axis, factor, offset in buffer.padding]
            text += f" pad[{', '.join(rules)}]"
        if buffer.scope != "global":
            text += f" @{buffer.scope}"
        if buffer.alignment != buffer.dtype.bytes:
            text += f" align {buffer.alignment}"
        return text

    def stmt(self, s: Stmt, indent: str) -> None:
        if self.mark is not None:
            self._note(s)
        _STMTS[type(s)](self, s, indent)

    def _note(self, s: Stmt | Buffer) -> None:
        mark = self.mark
        match s:
            case For():
                hit = s.var is mark or s.var.name == mark
            case Alloc():
                hit = any(buffer is mark or buffer.name == mark for buffer in s.buffers)
            case Block() | Buffer():
                hit = s.name == mark
            case _:
                hit = False
        if hit or s is mark:
            self.marked.add(len(self.lines))

    def _store(self, s: Store, indent: str) -> None:
        value = self.expr(s.value, 0)
        text = f"{indent}{self.buffer_name(s.buffer)}[{self.list(s.indices)}] = {value}"
        mask = "" if s.mask is None else f" mask {self.expr(s.mask, 0)}"
        self.lines.append(f"{text}{mask}{' stream' if s.stream else ''}")

    def _prefetch(self, s: Prefetch, indent: str) -> None:
        self.lines.append(f"{indent}prefetch {self.buffer_name(s.buffer)}[{self.list(s.indices)}]")

    def _seq(self, s: Seq, indent: str) -> None:
        for inner in s.stmts:
            self.stmt(inner, indent)
        if not s.stmts:
            self.lines.append(f"{indent}pass")

    def _for(self, s: For, indent: str) -> None:
        start, stop = self.expr(s.start, 0), self._stop(s.start, s.extent)
        kind = "" if s.kind == "serial" else f" {s.kind}"
        name = self.bind(s.var)
        self.lines.append(
            f"{indent}for {name} in {start} .. {stop}{kind}{annotations_text(s.annotations)}"
        )
        self.stmt(s.body, indent + "  ")
        self.release(s.var)

    def _stop(self, start: Expr, extent: Expr) -> str:
        """The end of a loop's range, of which `parser.extent_of` finds the very same extent."""
        if type(start) is Const:
            if start.value == 0:
                return self.expr(extent, 0)
            if type(extent) is Const and int64.min <= start.value + extent.value <= int64.max:
                return str(start.value + extent.value)
        if type(extent) is Sub and extent.b == start:  # a .. a + (b - a)  ->  a .. b
            stop = extent.a
            both_const = type(start) is Const and type(stop) is Const
            if not both_const and not (type(stop) is Add and stop.a == start):
                return self.expr(stop, 0)
        return self.expr(Add(start, extent), 0)

    def _block(self, s: Block, indent: str) -> None:
        inner = indent + "  "
        self.lines.append(
            f"{indent}block {self.block_name(s.name)}{annotations_text(s.annotations)}"
        )
        for it in s.iters:
            extent, binding = self.expr(it.extent, 0), self.expr(it.binding, 0)
            self.lines.append(f"{inner}{it.kind} {self.bind(it.var)}: {extent} = {binding}")
        if not (type(s.predicate) is Const and s.predicate.value is True):
            self.lines.append(f"{inner}where {self.expr(s.predicate, 0)}")
        if s.init is not None:
            self.lines.append(f"{inner}init")
            self.stmt(s.init, inner + "  ")
        self.stmt(s.body, inner)
        for it in s.iters:
            self.release(it.var)

    def _if(self, s: If, indent: str) -> None:
        self.lines.append(f"{indent}if {self.expr(s.condition, 0)}")
        self.stmt(s.then, indent + "  ")
        if s.orelse is not None:
            self.lines.append(f"{indent}else")
            self.stmt(s.orelse, indent + "  ")

    def _let(self, s: Let, indent: str) -> None:
        value = self.expr(s.value, 0)
        self.lines.append(f"{indent}let {self.bind(s.var)}: {s.var.dtype} = {value}")
        self.stmt(s.body, indent + "  ")
        self.release(s.var)

    def _alloc(self, s: Alloc, indent: str) -> None:
        self.lines.append(f"{indent}alloc {', '.join([self.buffer(buffer) for buffer in s.buffers])}")
        self.stmt(s.body, indent + "  ")

    def _while(self, s: While, indent: str) -> None:
        self.lines.append(f"{indent}while {self.expr(s.condition, 0)}")
        self.stmt(s.body, indent + "  ")

    def _check(self, s: Check, indent: str) -> None:
        operands = self.list((s.condition, s.value, *s.at))
        self.lines.append(f"{indent}check {operands}, {_string_text(s.message)}")

    def _barrier(self, s: Barrier, indent: str) -> None:
        self.lines.append(f"{indent}barrier {s.scope}")

    def _evaluate(self, s: Evaluate, indent: str) -> None:
        self.lines.append(f"{indent}evaluate {self.expr(s.call, 0)}")


def _const_text(e: Const) -> str:
    if e.dtype.is_bool:
        return "true" if e.value else "false"
    return f"{e.dtype}({number_text(float(e.value) if e.dtype.is_float else e.value)})"


_EXPRS: dict[type, Callable[..., str]] = {
    Broadcast: _Printer._broadcast,
    Call: _Printer._call,
    Cast: _Printer._cast,
    IfThenElse: _Printer._if_then_else,
    Max: _Printer._maximum,
    Min: _Printer._minimum,
    Neg: _Printer._neg,
    Not: _Printer._not,
    Ramp: _Printer._ramp,
    Select: _Printer._select,
}

_STMTS: dict[type, Callable[..., None]] = {
    Alloc: _Printer._alloc,
    Barrier: _Printer._barrier,
    Block: _Printer._block,
    Check: _Printer._check,
    Evaluate: _Printer._evaluate,
    For: _Printer._for,
    If: _Printer._if,
    Let: _Printer._let,
    Prefetch: _Printer._prefetch,
    Seq: _Printer._seq,
    Store: _Printer._store,
    While: _Printer._while,
}
