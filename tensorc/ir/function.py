"""The unit of compilation: a function over buffers."""

from __future__ import annotations

from dataclasses import field

from tensorc.ir.expr import Buffer, Expr, Node, Var, node
from tensorc.ir.stmt import Stmt


@node
class Function(Node):
    """Statements over buffers that the caller gives.

    `params` are those buffers in the order of a call, `outputs` those of them that are written, `scalars` the integer
    parameters that no shape determines, `allocs` the internal buffers that no `Alloc` has placed yet. `assumptions`
    are conditions over the scalars and extents that the caller vouches for. `is_proved` tells of one whose accesses
    are known to stay in their buffers; it is no part of what the function is.
    """

    name: str
    params: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    scalars: tuple[Var, ...]
    allocs: tuple[Buffer, ...]
    body: Stmt
    assumptions: tuple[Expr, ...] = ()
    is_proved: bool = field(default=False, kw_only=True)

    def with_(self, **changes) -> Function:
        """A function that differs in the named fields; the very same one where none of them differs."""
        if all([value is getattr(self, name) for name, value in changes.items()]):
            return self
        fields = {name: getattr(self, name) for name in self._fields}
        return Function(**{"is_proved": self.is_proved, **fields, **changes})
