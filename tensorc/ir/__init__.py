"""The intermediate representation: expressions, statements and functions; docs/ir.md is its grammar and meaning."""

from tensorc.ir.expr import (
    EQ, GE, GT, LE, LT, NE, Add, And, Binary, BitAnd, BitOr, BitXor, Broadcast, Buffer, Call, Cast, Compare, Const,
    Div, Expr, FloorDiv, IfThenElse, Load, Max, Min, Mod, Mul, Neg, Not, Or, Ramp, Select, ShiftLeft, ShiftRight, Sub,
    Var, broadcast, cast, const, eq, if_then_else, index, logical_and, logical_not, logical_or, maximum, minimum, ne,
    select,
)  # fmt: skip
from tensorc.ir.function import Function
from tensorc.ir.interpreter import interpret
from tensorc.ir.parser import parse, parse_expr
from tensorc.ir.printer import equal, show
from tensorc.ir.stmt import (
    Alloc, Barrier, Block, BlockIter, Check, Evaluate, For, If, Let, Seq, Stmt, Store, While, seq,
)  # fmt: skip
from tensorc.ir.verifier import verify

__all__ = [
    "EQ", "GE", "GT", "LE", "LT", "NE", "Add", "Alloc", "And", "Barrier", "Binary", "BitAnd", "BitOr", "BitXor",
    "Block", "BlockIter", "Broadcast", "Buffer", "Call", "Cast", "Check", "Compare", "Const", "Div", "Evaluate",
    "Expr", "FloorDiv", "For", "Function", "If", "IfThenElse", "Let", "Load", "Max", "Min", "Mod", "Mul", "Neg", "Not",
    "Or", "Ramp", "Select", "Seq", "ShiftLeft", "ShiftRight", "Stmt", "Store", "Sub", "Var", "While", "broadcast",
    "cast", "const", "eq", "equal", "if_then_else", "index", "interpret", "logical_and", "logical_not", "logical_or",
    "maximum", "minimum", "ne", "parse", "parse_expr", "select", "seq", "show", "verify",
]  # fmt: skip
