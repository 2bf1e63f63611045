"""What a code generator makes and a runtime loads: machine code with all that a caller must know of it."""

from __future__ import annotations

import builtins
from dataclasses import dataclass

ABI = 1  # raised when the signature of a compiled function changes


@dataclass(frozen=True, slots=True)
class Param:
    """One buffer argument.

    `shape` holds an int for a constant extent and the name of a scalar for a symbolic one; `strides` is None for the
    contiguous layout, else likewise in elements. `alignment` in bytes.
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

    It returns 0; after a failed check another number, and `error` {const char *message; int64 value}
    is filled in; the message is a constant of the code, ended by a zero byte.
    `buffers` follow `params`; `scalars` holds the named scalars in order and then the greatest number of threads to
    use. `workspace` is aligned to 64 bytes and holds `workspace` + threads * `thread_workspace` bytes. `flops` and
    `bytes` are those of the unscheduled definition. `code` is a relocatable object ("object") for `triple`,
    made for `cpu` with `features` as LLVM names them. `bitcode` is the same as LLVM bitcode, which `export` makes
    libraries of; empty: there is none.
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
