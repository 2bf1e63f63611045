"""Running a tile of a nest by a tensor intrinsic."""

from __future__ import annotations

from difflib import get_close_matches
from typing import NoReturn

from tensorc.intrinsics import find, match, names
from tensorc.intrinsics.tensor import TensorIntrin
from tensorc.ir.expr import is_const
from tensorc.ir.function import Function
from tensorc.ir.stmt import Block, For, Stmt, annotate, annotation
from tensorc.ir.walk import replace_body, walk
from tensorc.schedule.locate import Place, block_names, find_block, loop_names, refuse, replace
from tensorc.schedule.primitives.blocking import ORDERED, block_of, dissolved

NOTE = "tensorize"  # the annotation of a block that names its intrinsic
PADDING = ", or make the extents whole tiles by pad_einsum first"


def tensorize(function: Function, place: str, intrin: str) -> tuple[Function, str]:
    """Run a loop and all below it, or a block that `blockize` made, by a registered tensor intrinsic.

    ``for jo: for ko: for j in 0..16: for r in 0..4: block C {C[jo*16 + j] += A[ko*4 + r] * B[jo, ko, j, r]}``
    ->  ``for jo: for ko: block C_o {tensorize = "x86.vpdpbusd.512"} {the same loops}``

    The block keeps the nest, as plain statements, which stays its meaning; lowering puts the implementation in its
    place where the target has the instructions, and else runs the nest as it is. Its loops are no loops of the schedule
    any more; the loops around it are as before. Returns the function and the block's name.

    Requires: what `blockize` requires; the nest is that of the intrinsic's meaning, but for names, the order of loops,
    and the sides of sums and products; the elements of each tile lie in memory as the intrinsic wants them; what is
    written is not read as another operand.

    Raises ScheduleError where one of these does not hold, and for a name that is not registered.
    """
    step = f"tensorize({place!r}, {intrin!r})"
    found = find(intrin) if isinstance(intrin, str) else None
    if found is None:
        _refuse_unknown(function, step, place, intrin)
    block = place
    if place in loop_names(function) or place not in block_names(function):
        function, block = block_of(function, place, step, PADDING)
    at = find_block(function, block)
    node = dissolved(at.node)
    _check(at, node, found, step)
    init = None if node.init is None else _in_vectors(node.init)
    notes = annotate(node.annotations, NOTE, intrin)
    return replace(at, Block(node.name, node.iters, node.predicate, init, node.body, notes)), block


def _refuse_unknown(function: Function, step: str, place: str, intrin) -> NoReturn:
    close = get_close_matches(str(intrin), names(), 1)
    hint = f"did you mean {close[0]!r}?" if close else "tensorc.intrinsics.names() tells which there are"
    refuse(function, f"{step}: no tensor intrinsic has that name; {hint}", place)


def _check(at: Place, node: Block, intrin: TensorIntrin, step: str) -> None:
    if annotation(node, NOTE) is not None:
        refuse(at.function, f"{step}: the block is tensorized already", node.name)
    if annotation(node, ORDERED):
        refuse(at.function, f"{step}: the loops in it run in order, one iteration after the other", node.name)
    if not is_const(node.predicate, True):
        refuse(at.function, f"{step}: the block has a predicate; choose factors that divide{PADDING}", node.name)
    for each in at.loops:
        if each.kind == "vectorized":
            refuse(at.function, f"{step}: it lies in the vectorized loop {each.var.name!r}", node.name)
    if any(type(stmt) is Block for part in (node.init, node.body) if part is not None for stmt in walk(part)):
        refuse(at.function, f"{step}: a block in it has a condition or a start of its own", node.name)
    result = match(intrin, node.body)
    if isinstance(result, str):
        refuse(at.function, f"{step}: the nest is not that of the intrinsic: {result}", node.name)


def _in_vectors(stmt: Stmt) -> Stmt:
    """The loops of an init with the innermost in vectors."""
    if type(stmt) is not For:
        return stmt
    if type(stmt.body) is For:
        return replace_body(stmt, _in_vectors(stmt.body))
    return For(stmt.var, stmt.start, stmt.extent, "vectorized", stmt.body, stmt.annotations)
