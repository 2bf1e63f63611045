"""What makes tensors other than by an expression of each element: scans, updates and functions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tensorc.ir.expr import Expr, Var
from tensorc.ir.stmt import Stmt

if TYPE_CHECKING:
    from tensorc.te.nest import Nests
    from tensorc.te.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Description:
    """All of a maker that is no tensor, for `canonical_text`: tensors by number, expressions over `axes`.

    `is_checked` says that the kernel checks more than indices, and names tensors in an error.
    """

    word: str
    tensors: tuple[Tensor, ...] = ()
    axes: tuple[Var, ...] = ()
    exprs: tuple[Expr, ...] = ()
    is_checked: bool = False


@dataclass(eq=False, slots=True)
class Maker:
    """`tensors` made at once from `inputs`; `hidden` ones are part of how, each after what it reads.

    `ranges` are the starts and extents of axes of its own.
    """

    inputs: tuple[Tensor, ...]
    scalars: tuple[Var, ...] = ()
    hidden: tuple[Tensor, ...] = ()
    ranges: tuple[Expr, ...] = ()
    tensors: tuple[Tensor, ...] = field(default=(), init=False)

    def makes(self, tensors: tuple[Tensor, ...]) -> None:
        """Say which tensors these are."""
        self.tensors = tensors
        for tensor in tensors:
            tensor.siblings = tensors

    def nests(self, into: Nests) -> list[Stmt]:
        """The statements that write the tensors."""
        raise NotImplementedError

    def description(self) -> Description:
        """What tells this maker from others."""
        raise NotImplementedError
