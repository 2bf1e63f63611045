"""What a code generator makes and a runtime loads: machine code with all that a caller must know of it."""

from __future__ import annotations

import builtins
from dataclasses import dataclass

ABI = 2  # raised when the signature of a compiled function changes
ERROR_WORDS = 16  # of 8 bytes in the error record: the message, the value, and the places


@dataclass(frozen=True, slots=True)
class Param:
    """One buffer argument.

    `shape` holds an int for a constant extent, the name of a scalar for a symbolic one, and one of the artifact's
    `derived` for an expression; `strides` is None for the contiguous layout, else ints and names, in elements.
    `alignment` in bytes.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    is_output: bool
    strides: tuple[int | str, ...] | None = None
    alignment: int = 1


@dataclass(frozen=True, slots=True)
class Artifact:
    """A compiled function `int32 f(void **buffers, const int64 *scalars, void *workspace, error *e)`.

    It returns 0; after a failed check another number, and `error` {const char *message; int64 value, at[14]}
    is filled in as far as the check says; the message is a constant of the code, ended by a zero byte.
    `buffers` follow `params`; `scalars` holds the named scalars in order and then the greatest number of threads to
    use. `workspace` is aligned to 64 bytes and holds `workspace` + threads * `thread_workspace` bytes. `flops` and
    `bytes` are those of the unscheduled definition. `code` is a relocatable object ("object") for `triple`,
    made for `cpu` with `features` as LLVM names them. `bitcode` is the same as LLVM bitcode, which `export` makes
    libraries of; empty: there is none.

    Where numbers depend on the scalars, `sizes` is the symbol of `void g(const int64 *scalars, int64 *sizes)`, which
    writes `workspace`, `thread_workspace`, `flops`, `bytes` (these fields are 0 then) and the extents `derived`, whose
    texts are expressions over the scalars. Empty: the fields tell.

    `bound` are inputs of constant shapes that follow `params` in `buffers`; whoever loads the code holds them, and no
    call is given them.
    """

    name: str
    symbol: str
    params: tuple[Param, ...]
    scalars: tuple[str, ...]
    workspace: int
    thread_workspace: int
    flops: int
    bytes: int
    parallel: bool
    kind: str
    triple: str
    cpu: str
    code: builtins.bytes
    features: str = ""
    bitcode: builtins.bytes = b""
    sizes: str = ""
    derived: tuple[str, ...] = ()
    bound: tuple[Param, ...] = ()
