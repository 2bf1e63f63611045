"""What the emitters share: the module being made, the function at hand, types and literals."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from tensorc.arith import Domain, affine
from tensorc.codegen.llvm.builder import Builder, Value
from tensorc.dtypes import DType
from tensorc.ir.expr import Buffer, Expr, Var
from tensorc.target import Target

MAX_ALIGNMENT = 64


@dataclass(slots=True)
class Module:
    """One compiled function with its helpers.

    `offsets` places each workspace buffer, in bytes; these and the two sizes are over the scalars. `parts` are the ids
    of statements that become functions of their own.
    """

    symbol: str
    target: Target
    offsets: dict[Buffer, Expr]
    workspace: Expr
    thread_workspace: Expr
    declarations: dict[str, str] = field(default_factory=dict)
    functions: list[str] = field(default_factory=list)
    constants: list[str] = field(default_factory=list)
    linear: dict[Expr, tuple] = field(default_factory=dict)
    written: dict[int, frozenset[Buffer]] = field(default_factory=dict)
    parallel: bool = False
    tasks: int = 0
    nontemporal: bool = False
    parts: set[int] = field(default_factory=set)

    def declare(self, name: str, signature: str) -> None:
        """Declare an external function: `signature` is "result (arguments) attributes"."""
        if name not in self.declarations:
            result, rest = signature.split(" (", 1)
            self.declarations[name] = f"declare {result} @{name}({rest}"

    def text_constant(self, text: str) -> Value:
        """The address of a text in UTF-8, ended by a zero byte."""
        data = text.encode() + b"\0"
        name = f"@text{len(self.constants)}"
        escaped = "".join([f"\\{byte:02X}" for byte in data])
        self.constants.append(
            f'{name} = private unnamed_addr constant [{len(data)} x i8] c"{escaped}"'
        )
        return Value(name, "ptr")

    def text(self) -> str:
        head = f'target triple = "{self.target.triple}"'
        tail = "\n".join([*self.constants, *self.declarations.values()])
        if self.nontemporal:
            tail += "\n!0 = !{i32 1}"
        return "\n\n".join([head, *self.functions, tail]) + "\n"


@dataclass(slots=True)
class Pointer:
    """The address of a buffer, its alignment, and whether the function never writes the buffer."""

    value: Value
    alignment: int
    readonly: bool = False


@dataclass(slots=True)
class Context:
    """The state of the emission of one LLVM function.

    `slice` is the memory for "global" buffers, `flag` inside a task the address of the word that
    tells of a failed check. `versions` counts the writes to each buffer, `memo` holds the values of
    expressions since the last change of memory or variables, `loops` the loops around the place;
    `streams` tells that stores go past the caches.
    """

    module: Module
    builder: Builder
    variables: dict[Var, Value]
    pointers: dict[Buffer, Pointer]
    slice: Value
    error: Value
    threads: Value
    flag: Value | None = None
    versions: dict[Buffer, int] = field(default_factory=dict)
    memo: dict[Expr, Value] = field(default_factory=dict)
    loops: list[tuple[Var, Expr, Expr]] = field(default_factory=list)
    streams: bool = False

    def emit(self, expr: Expr) -> Value:
        """The value of an expression at the current place."""
        if type(expr) is Var:
            return self.variables[expr]
        value = self.memo.get(expr)
        if value is None:
            value = self.memo[expr] = EMITTERS[type(expr)](self, expr)
        return value

    def linear(self, index: Expr) -> tuple:
        """The linear form of an index expression: ((atom, coefficient), ...), constant."""
        form = self.module.linear.get(index)
        if form is None:
            parts = affine(index)
            form = self.module.linear[index] = (parts.terms, parts.constant)
        return form

    def domain(self) -> Domain:
        """What the loops around the current place tell of their variables."""
        domain = Domain()
        for var, start, extent in self.loops:
            domain = domain.bind(var, start, extent)
        return domain


EMITTERS: dict[type[Expr], Callable[[Context, Expr], Value]] = {}


def emits(*kinds: type[Expr]):
    """Register a function as the emitter of these kinds of expressions."""

    def register(emitter):
        for kind in kinds:
            EMITTERS[kind] = emitter
        return emitter

    return register


_SCALARS = {
    "bool": "i1", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "i8", "uint16": "i16", "uint32": "i32", "uint64": "i64",
    "float16": "i16", "bfloat16": "i16", "float32": "float", "float64": "double",
}  # fmt: skip
_TYPES: dict[tuple[str, bool], str] = {}


def llvm_type(dtype: DType, memory: bool = False) -> str:
    """The type of a value in registers or in memory; 16-bit floats are held as their bits."""
    key = (dtype.name, memory)
    text = _TYPES.get(key)
    if text is None:
        scalar = "i8" if memory and dtype.is_bool else _SCALARS[dtype.scalar.name]
        text = _TYPES[key] = vector_type(scalar, dtype.lanes)
    return text


def vector_type(scalar: str, lanes: int) -> str:
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


_MANGLED = {"float": "f32", "double": "f64"}


def mangled(dtype: DType, memory: bool = False) -> str:
    """The suffix that names a type in overloaded intrinsics."""
    scalar = llvm_type(dtype.scalar, memory)
    name = _MANGLED.get(scalar, scalar)
    return name if dtype.lanes == 1 else f"v{dtype.lanes}{name}"


def constant(value, dtype: DType) -> Value:
    """A literal, in every lane of a vector dtype."""
    scalar = llvm_type(dtype.scalar)
    number = None if dtype.is_float else int(value)
    if dtype.is_float:
        ref = _float_text(value, dtype)
    elif dtype.is_bool:
        ref = "true" if value else "false"
    else:
        ref = str(number)
    if dtype.lanes == 1:
        return Value(ref, scalar, 0, number)
    return Value(f"splat ({scalar} {ref})", llvm_type(dtype))


def _float_text(value: float, dtype: DType) -> str:
    match dtype.scalar.name:
        case "float16":
            return str(struct.unpack("<H", struct.pack("<e", value))[0])
        case "bfloat16":
            return str(struct.unpack("<I", struct.pack("<f", value))[0] >> 16)
        case _:
            return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def index(value: int) -> Value:
    """An int64 literal."""
    return Value(str(value), "i64", 0, value)


def steps(lanes: int, stride: int = 1, scalar: str = "i64") -> Value:
    """The vector 0, stride, 2*stride, ..."""
    elements = ", ".join([f"{scalar} {lane * stride}" for lane in range(lanes)])
    return Value(f"<{elements}>", vector_type(scalar, lanes))


def common_alignment(alignment: int, offset: int) -> int:
    """What an address is aligned to that lies `offset` bytes from one aligned to `alignment`."""
    return math.gcd(alignment, offset) if offset else alignment
