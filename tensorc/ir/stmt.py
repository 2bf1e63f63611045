"""Statements of the IR; docs/ir.md gives their grammar and meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tensorc.ir.expr import Buffer, Call, Expr, Node, Var, node

LoopKind = Literal["serial", "parallel", "vectorized", "unrolled", "thread"]
IterKind = Literal["spatial", "reduce", "ordered"]
LOOP_KINDS: tuple[LoopKind, ...] = ("serial", "parallel", "vectorized", "unrolled", "thread")
THREAD_AXES = tuple([f"{of}.{axis}" for of in ("blockIdx", "threadIdx", "vthread") for axis in "xyz"])
MOST_PLACES = 14  # numbers that a failed check may report besides its value
ITER_KINDS: tuple[IterKind, ...] = ("spatial", "reduce", "ordered")
PREFETCH = "prefetch."  # begins the annotation of a loop; the name of a buffer follows
Annotations = tuple[tuple[str, "int | float | str | bool"], ...]


class Stmt(Node):
    """An action on buffers."""

    __slots__ = ()


@node
class Store(Stmt):
    """Write a value (vector where the indices are vectors) to a buffer; lanes off in `mask` are not touched.

    `stream` is a wish that the elements go to memory past the caches.
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr
    mask: Expr | None = None
    stream: bool = False


@node
class Prefetch(Stmt):
    """A wish that an element be brought into the caches; it need not exist, and nothing is read."""

    buffer: Buffer
    indices: tuple[Expr, ...]


@node
class Seq(Stmt):
    """Statements one after the other; empty, it does nothing."""

    stmts: tuple[Stmt, ...]


@node
class For(Stmt):
    """The body for each value of `var` from `start`, `extent` times; `var` is the loop's identity.

    `annotations` are sorted (key, value) pairs; a "thread" loop names its axis under "thread", for example
    "blockIdx.x".
    """

    var: Var
    start: Expr
    extent: Expr
    kind: LoopKind
    body: Stmt
    annotations: Annotations = ()


@node
class If(Stmt):
    """`then` where the condition holds, else `orelse`."""

    condition: Expr
    then: Stmt
    orelse: Stmt | None = None


@node
class Let(Stmt):
    """The body with `var` standing for a value that is computed once."""

    var: Var
    value: Expr
    body: Stmt


@node
class Alloc(Stmt):
    """The body with memory for buffers, whose contents are undefined at first.

    There is one for all buffers of equal lives, so that functions of many stages do not become deep.
    """

    buffers: tuple[Buffer, ...]
    body: Stmt


@node
class While(Stmt):
    """The body for as long as the condition holds."""

    condition: Expr
    body: Stmt


@node
class Check(Stmt):
    """Fail the call with `message` where the condition does not hold; `value` is the offending number.

    A message that holds "{value}" is a template: the value stands there, and the numbers `at` where "{0}", "{1}" ...
    are. To any other message the value is added. There are at most `MOST_PLACES` numbers `at`.
    """

    condition: Expr
    value: Expr
    message: str
    at: tuple[Expr, ...] = ()


@node
class Barrier(Stmt):
    """Every thread that shares `scope` ("shared", "warp" or "global") arrives before any goes on."""

    scope: str


@node
class Evaluate(Stmt):
    """An intrinsic called for its effect."""

    call: Call


@dataclass(frozen=True, slots=True)
class BlockIter:
    """One axis of a block's domain: `var` from 0 to `extent`, bound to the loops around it by `binding`."""

    var: Var
    extent: Expr
    kind: IterKind
    binding: Expr


@node
class Block(Stmt):
    """One computation over its iterators' domain; an instance runs for each iteration of the loops around it.

    An instance is skipped where `predicate` (over the loops' variables) does not hold. `init` runs before the body
    in the instances whose reduce iterators are all 0. Bodies read loops only through the iterators.
    """

    name: str
    iters: tuple[BlockIter, ...]
    predicate: Expr
    init: Stmt | None
    body: Stmt
    annotations: Annotations = ()


def seq(*stmts: Stmt) -> Stmt:
    """The statements as one: nested sequences flattened, a single one unwrapped."""
    flat: list[Stmt] = []
    for stmt in stmts:
        if type(stmt) is Seq:
            flat.extend(stmt.stmts)
        else:
            flat.append(stmt)
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def annotation(stmt: For | Block, key: str, default=None):
    """The value of an annotation, or the default."""
    return dict(stmt.annotations).get(key, default)


def annotate(annotations: Annotations, key: str, value) -> Annotations:
    """Annotations with `key` set; a value of None removes it."""
    items = dict(annotations)
    if value is None:
        items.pop(key, None)
    else:
        items[key] = value
    return tuple(sorted(items.items()))
