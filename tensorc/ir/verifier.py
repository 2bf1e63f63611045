"""What a function may hold at each stage; what breaks it is a bug of the step that made it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NoReturn

from tensorc.dtypes import DType, int64
from tensorc.errors import InternalError
from tensorc.ir.expr import (
    EQ,
    NE,
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
    Mod,
    Neg,
    Not,
    Or,
    Ramp,
    Select,
    ShiftLeft,
    ShiftRight,
    Var,
    const,
)
from tensorc.ir.function import Function
from tensorc.ir.intrinsic import TABLE
from tensorc.ir.printer import show
from tensorc.ir.stmt import (
    ITER_KINDS,
    LOOP_KINDS,
    MOST_PLACES,
    THREAD_AXES,
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
    annotation,
)
from tensorc.ir.walk import children, variables

__all__ = ["expr_problem", "verify"]

Stage = Literal["nest", "flat"]
SCOPES = ("global", "local", "shared", "warp", "fragment")
BARRIER_SCOPES = ("global", "shared", "warp")

_INTEGER_ONLY = frozenset((FloorDiv, Mod, BitAnd, BitOr, BitXor, ShiftLeft, ShiftRight))
_LOGIC = frozenset((And, Or))


def verify(function: Function, stage: Stage = "nest") -> None:
    """Check a function against docs/ir.md; raises InternalError, which names the statement."""
    if stage not in ("nest", "flat"):
        raise InternalError(f"verify: stage {stage!r} is neither 'nest' nor 'flat'")
    _Verifier(function, stage == "flat").function()


def expr_problem(e: Expr) -> str | None:
    """What is wrong with one node, its operands taken to be right; None if nothing is."""
    if isinstance(e, Binary):
        return _binary_problem(e)
    check = _PROBLEMS.get(type(e))
    return check(e) if check is not None else None


def _binary_problem(e: Binary) -> str | None:
    dtype, cls = e.a.dtype, type(e)
    if dtype is not e.b.dtype:
        return f"the operands of {cls.symbol} are {dtype} and {e.b.dtype}"
    if cls in _LOGIC:
        return None if dtype.is_bool else f"the operands of {cls.symbol} are {dtype}, not bool"
    if dtype.is_bool and cls is not EQ and cls is not NE:
        return f"the operands of {cls.symbol} are bool, which has no arithmetic"
    if cls in _INTEGER_ONLY and not dtype.is_int:
        return f"the operands of {cls.symbol} are {dtype}, not integers"
    if cls is Div and not dtype.is_float:
        return f"the operands of / are {dtype}, not floats"
    return None


def _const_problem(e: Const) -> str | None:
    dtype, value = e.dtype, e.value
    if dtype is int64:
        fits = type(value) is int and -(1 << 63) <= value < 1 << 63
    elif dtype.lanes != 1:
        return f"a literal is of the vector type {dtype}; broadcast a scalar"
    elif dtype.is_bool:
        fits = type(value) is bool
    elif dtype.is_int:
        fits = type(value) is int and dtype.min <= value <= dtype.max
    else:
        fits = isinstance(value, float) and (dtype.bits == 64 or const(value, dtype) == e)
    return None if fits else f"the literal {value!r} is no value of {dtype}"


def _not_problem(e: Not) -> str | None:
    return None if e.dtype.is_bool else f"the operand of not is {e.dtype}, not bool"


def _neg_problem(e: Neg) -> str | None:
    return "the operand of - is bool, which has no arithmetic" if e.dtype.is_bool else None


def _cast_problem(e: Cast) -> str | None:
    if e.dtype.lanes == e.value.dtype.lanes:
        return None
    return f"a cast from {e.value.dtype} to {e.dtype} changes the number of lanes"


def _choice_problem(e: Select | IfThenElse) -> str | None:
    name = "select" if type(e) is Select else "if_then_else"
    condition = e.condition.dtype
    if e.true.dtype is not e.false.dtype:
        return f"the sides of {name} are {e.true.dtype} and {e.false.dtype}"
    if not condition.is_bool:
        return f"the condition of {name} is {condition}, not bool"
    if condition.lanes != 1 and type(e) is IfThenElse:
        return f"the condition of if_then_else is {condition}: only one lane can guard"
    if condition.lanes not in (1, e.dtype.lanes):
        return f"the condition of select is {condition}, its sides are {e.dtype}"
    return None


def _load_problem(e: Load) -> str | None:
    return _indices_problem(e.indices) or _mask_problem(e.mask, e.dtype)


def _indices_problem(indices: tuple[Expr, ...]) -> str | None:
    lanes = 1
    for index in indices:
        dtype = index.dtype
        if dtype is int64:
            continue
        if dtype.scalar is not int64:
            return f"an index is {dtype}, not int64"
        if lanes not in (1, dtype.lanes):
            return f"indices have {lanes} and {dtype.lanes} lanes"
        lanes = dtype.lanes
    return None


def _mask_problem(mask: Expr | None, dtype: DType) -> str | None:
    if mask is None or (mask.dtype.is_bool and mask.dtype.lanes == dtype.lanes):
        return None
    return f"the mask of a {dtype} access is {mask.dtype}"


def _call_problem(e: Call) -> str | None:
    intrinsic = TABLE.get(e.name)
    if intrinsic is None:
        return f"intrinsic {e.name!r} is unknown"
    problem = intrinsic.problem([arg.dtype for arg in e.args])
    if problem is not None:
        return problem
    dtype = e.args[0].dtype
    if e.dtype is not intrinsic.result(dtype):
        return f"{e.name} of {dtype} is {intrinsic.result(dtype)}, not {e.dtype}"
    return None


def _ramp_problem(e: Ramp) -> str | None:
    if e.base.dtype is not e.stride.dtype or not e.base.dtype.is_int or e.base.dtype.lanes != 1:
        dtypes = f"{e.base.dtype} and {e.stride.dtype}"
        return f"base and stride of ramp are {dtypes}, not scalars of one integer type"
    return _lanes_problem(e.lanes)


def _broadcast_problem(e: Broadcast) -> str | None:
    if e.value.dtype.lanes != 1:
        return f"broadcast takes a scalar, not {e.value.dtype}"
    return _lanes_problem(e.lanes)


def _lanes_problem(lanes: int) -> str | None:
    return (
        None if type(lanes) is int and lanes > 1 else f"a vector has at least 2 lanes, not {lanes}"
    )


_PROBLEMS: dict[type, Callable[..., str | None]] = {
    Broadcast: _broadcast_problem,
    Call: _call_problem,
    Cast: _cast_problem,
    Const: _const_problem,
    IfThenElse: _choice_problem,
    Load: _load_problem,
    Neg: _neg_problem,
    Not: _not_problem,
    Ramp: _ramp_problem,
    Select: _choice_problem,
}


class _Verifier:
    """What is visible at the statement at hand, and the names that are taken."""

    def __init__(self, function: Function, flat: bool):
        self.of = function
        self.flat = flat
        self.at: Stmt | None = None
        self.visible: set[Var] = set()
        self.hidden: dict[Var, str] = {}  # loops around a block, by the block's name
        self.loops: list[For] = []
        self.threads: list[For] = []  # the loops around that are bound to thread axes, blocks or not
        self.bound: set[Var] = set()
        self.buffers: set[Buffer] = set()
        self.live: set[Buffer] = set()
        self.inputs: set[Buffer] = set(function.params) - set(function.outputs)
        self.taken: dict[str, set[str]] = {"loop": set(), "block": set(), "buffer": set()}

    def fail(self, problem: str) -> NoReturn:
        place = "" if self.at is None else f", at '{show(self.at).splitlines()[0]}'"
        raise InternalError(f"function {self.of.name}{place}: {problem}")

    def unique(self, what: str, name: str) -> None:
        if name in self.taken[what]:
            self.fail(f"two {what}s are named {name!r}")
        self.taken[what].add(name)

    def bind(self, var: Var) -> None:
        if var in self.bound:
            self.fail(f"variable {var.name!r} is bound twice")
        self.bound.add(var)
        self.visible.add(var)

    # the function

    def function(self) -> None:
        f = self.of
        outputs = set(f.outputs)
        if f.outputs != tuple([p for p in f.params if p in outputs]):
            self.fail("the outputs are not parameters in their order")
        for scalar in f.scalars:
            if scalar.dtype is not int64:
                self.fail(f"scalar {scalar.name!r} is {scalar.dtype}, not int64")
            self.bind(scalar)
        for buffer in f.params:
            for e in (*buffer.shape, *(buffer.strides or ())):
                new = variables(e) - self.bound
                self.bound |= new
                self.visible |= new
        for buffer in (*f.params, *f.allocs):
            self.buffer(buffer)
        if f.allocs and self.flat:
            self.fail(f"internal buffer {f.allocs[0].name!r} is not placed by an alloc statement")
        for assumption in f.assumptions:
            self.condition("an assumption", assumption)
        self.stmt(f.body)

    def buffer(self, buffer: Buffer) -> None:
        if buffer in self.buffers:
            self.fail(f"buffer {buffer.name!r} is declared twice")
        self.buffers.add(buffer)
        self.live.add(buffer)
        if not self.flat:
            self.unique("buffer", buffer.name)
        if buffer.scope not in SCOPES:
            known = ", ".join(SCOPES)
            self.fail(
                f"buffer {buffer.name!r} is in scope {buffer.scope!r}, which is none of {known}"
            )
        if buffer.dtype.lanes != 1:
            self.fail(f"buffer {buffer.name!r} is of the vector type {buffer.dtype}")
        if buffer.strides is not None and len(buffer.strides) != len(buffer.shape):
            counts = f"{len(buffer.shape)} axes and {len(buffer.strides)} strides"
            self.fail(f"buffer {buffer.name!r} has {counts}")
        for axis, factor, offset in buffer.padding:
            if not (0 <= axis < len(buffer.shape) and 0 <= offset < factor):
                self.fail(f"buffer {buffer.name!r}: pad[{axis}: {factor} + {offset}] is no rule")
        for e in (*buffer.shape, *(buffer.strides or ())):
            self.index(f"the shape of {buffer.name!r}", e)

    # expressions

    def expr(self, e: Expr) -> None:
        if type(e) is Var:
            if e not in self.visible:
                self.unseen(e)
            return
        if type(e) is Load:
            self.access(e.buffer, e.indices)
        for operand in children(e):
            self.expr(operand)
        problem = expr_problem(e)
        if problem is not None:
            self.fail(problem)
        if not self.flat and (type(e) is Ramp or type(e) is Broadcast):
            self.fail(f"vector '{show(e)}' before the loops are flat")

    def unseen(self, var: Var) -> NoReturn:
        block = self.hidden.get(var)
        if block is not None:
            self.fail(f"block {block!r} reads the loop {var.name!r} other than through an iterator")
        self.fail(f"variable {var.name!r} is not bound here")

    def access(self, buffer: Buffer, indices: tuple[Expr, ...]) -> None:
        if buffer not in self.live:
            self.fail(f"buffer {buffer.name!r} is not declared here")
        wanted = 1 if self.flat else len(buffer.shape)
        if len(indices) != wanted:
            many = "index" if wanted == 1 else "indices"
            self.fail(f"buffer {buffer.name!r} takes {wanted} {many}, not {len(indices)}")

    def condition(self, what: str, e: Expr) -> None:
        self.expr(e)
        if not e.dtype.is_bool or e.dtype.lanes != 1:
            self.fail(f"{what} is {e.dtype}, not bool")

    def index(self, what: str, e: Expr) -> None:
        self.expr(e)
        if e.dtype is not int64:
            self.fail(f"{what} is {e.dtype}, not int64")

    # statements

    def stmt(self, s: Stmt) -> None:
        check = _CHECKS.get(type(s))
        if check is None:
            self.fail(f"{type(s).__name__} is no statement of the IR")
        self.at = s
        check(self, s)

    def seq(self, s: Seq) -> None:
        if len(s.stmts) == 1 or any(type(inner) is Seq for inner in s.stmts):
            self.fail("a sequence of one statement, or in a sequence; seq() makes none")
        for inner in s.stmts:
            self.stmt(inner)

    def store(self, s: Store) -> None:
        self.access(s.buffer, s.indices)
        for e in (*s.indices, s.value):
            self.expr(e)
        if s.buffer in self.inputs:
            self.fail(f"parameter {s.buffer.name!r} is written but no output")
        dtype = Load(s.buffer, s.indices).dtype
        if s.value.dtype is not dtype:
            self.fail(f"a value of {s.value.dtype} is stored to elements of {dtype}")
        if s.mask is not None:
            self.expr(s.mask)
        problem = _indices_problem(s.indices) or _mask_problem(s.mask, dtype)
        if problem is not None:
            self.fail(problem)

    def prefetch(self, s: Prefetch) -> None:
        self.access(s.buffer, s.indices)
        for e in s.indices:
            self.expr(e)
        problem = _indices_problem(s.indices)
        if problem is not None:
            self.fail(problem)
        if any(e.dtype.lanes > 1 for e in s.indices):
            self.fail("a prefetch is of one element; its indices are vectors")

    def loop(self, s: For) -> None:
        if s.var.dtype is not int64:
            self.fail(f"the loop's variable is {s.var.dtype}, not int64")
        self.index("the start of the loop", s.start)
        self.index("the extent of the loop", s.extent)
        self.annotations(s.annotations)
        if s.kind not in LOOP_KINDS:
            self.fail(f"loop kind {s.kind!r} is none of {', '.join(LOOP_KINDS)}")
        if s.kind in ("vectorized", "unrolled") and type(s.extent) is not Const:
            self.fail(f"the extent of a loop that is {s.kind} must be constant")
        if s.kind == "thread" and annotation(s, "thread") not in THREAD_AXES:
            self.fail(
                "the annotation 'thread' of a thread loop must name its axis, such as 'threadIdx.x'"
            )
        self.axis_once(s)
        self.bind(s.var)
        if self.flat:
            self.flat_loop(s)
        else:
            self.unique("loop", s.var.name)
        self.loops.append(s)
        if s.kind == "thread":
            self.threads.append(s)
        self.stmt(s.body)
        self.loops.pop()
        if s.kind == "thread":
            self.threads.pop()
        self.visible.discard(s.var)

    def axis_once(self, s: For) -> None:
        axis = annotation(s, "thread") if s.kind == "thread" else None
        for loop in self.threads if axis is not None else ():
            if annotation(loop, "thread") == axis:
                self.fail(f"it lies in loop {loop.var.name!r} of the same thread axis, {axis}")

    def flat_loop(self, s: For) -> None:
        if s.kind == "vectorized":
            self.fail("a vectorized loop where vectors should be")
        outer = [loop for loop in self.loops if loop.kind == "parallel"]
        if s.kind == "parallel" and outer:
            self.fail(f"a parallel loop in the parallel loop {outer[0].var.name!r}")

    def annotations(self, annotations) -> None:
        keys = [key for key, _ in annotations]
        if keys != sorted(set(keys)):
            self.fail(f"annotations {', '.join(keys)} are not sorted, each once")
        for key, value in annotations:
            if not isinstance(value, (bool, int, float, str)):
                self.fail(f"annotation {key!r} is {value!r}, not a number, string or bool")

    def block(self, s: Block) -> None:
        if self.flat:
            self.fail("a block after the loops are flat")
        self.unique("block", s.name)
        self.annotations(s.annotations)
        for it in s.iters:
            if it.kind not in ITER_KINDS:
                self.fail(
                    f"iterator {it.var.name!r} is {it.kind!r}, none of {', '.join(ITER_KINDS)}"
                )
            if it.var.dtype is not int64:
                self.fail(f"iterator {it.var.name!r} is {it.var.dtype}, not int64")
            self.index(f"the extent of iterator {it.var.name!r}", it.extent)
            self.index(f"the binding of iterator {it.var.name!r}", it.binding)
        self.condition("the predicate", s.predicate)
        visible, hidden, loops = self.visible, self.hidden, self.loops
        around = {loop.var for loop in loops}
        self.visible, self.hidden, self.loops = (
            visible - around,
            {**hidden, **dict.fromkeys(around, s.name)},
            [],
        )
        for it in s.iters:
            self.bind(it.var)
        for inner in (s.init, s.body):
            if inner is not None:
                self.stmt(inner)
        self.visible, self.hidden, self.loops = visible, hidden, loops

    def branch(self, s: If) -> None:
        self.condition("the condition", s.condition)
        self.stmt(s.then)
        if s.orelse is not None:
            self.stmt(s.orelse)

    def let(self, s: Let) -> None:
        self.expr(s.value)
        if s.value.dtype is not s.var.dtype:
            self.fail(f"variable {s.var.name!r} is {s.var.dtype}, its value {s.value.dtype}")
        self.bind(s.var)
        self.stmt(s.body)
        self.visible.discard(s.var)

    def alloc(self, s: Alloc) -> None:
        for buffer in s.buffers:
            self.buffer(buffer)
        self.stmt(s.body)
        self.live.difference_update(s.buffers)

    def loop_while(self, s: While) -> None:
        self.condition("the condition", s.condition)
        self.stmt(s.body)

    def check(self, s: Check) -> None:
        self.condition("the condition", s.condition)
        self.index("the value", s.value)
        for at in s.at:
            self.index("a place", at)
        if len(s.at) > MOST_PLACES:
            self.fail(f"a check of {len(s.at)} places; {MOST_PLACES} are the most")

    def barrier(self, s: Barrier) -> None:
        if s.scope not in BARRIER_SCOPES:
            self.fail(f"barrier scope {s.scope!r} is none of {', '.join(BARRIER_SCOPES)}")

    def evaluate(self, s: Evaluate) -> None:
        if type(s.call) is not Call:
            self.fail("evaluate takes a call of an intrinsic")
        self.expr(s.call)


_CHECKS: dict[type, Callable[..., None]] = {
    Alloc: _Verifier.alloc,
    Barrier: _Verifier.barrier,
    Block: _Verifier.block,
    Check: _Verifier.check,
    Evaluate: _Verifier.evaluate,
    For: _Verifier.loop,
    If: _Verifier.branch,
    Let: _Verifier.let,
    Prefetch: _Verifier.prefetch,
    Seq: _Verifier.seq,
    Store: _Verifier.store,
    While: _Verifier.loop_while,
}
