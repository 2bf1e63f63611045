"""What a loop or a block carries besides its meaning: notes, and the order of iterators."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from tensorc.ir.expr import Var, index
from tensorc.ir.function import Function
from tensorc.ir.stmt import PREFETCH, Block, For
from tensorc.ir.stmt import annotate as with_annotation
from tensorc.schedule.locate import (
    Place,
    block_names,
    find_block,
    find_loop,
    fresh_loop,
    loop_names,
    refuse,
    replace,
)

# What steps write; so are "identity." and a number, "prefetch." and the name of a buffer.
OWN = ("ordered", "stream", "tail", "tensorize", "thread")


def annotate(function: Function, place: str, key: str, value) -> Function:
    """Write a note on a loop or a block, for those who read it later: a pass, a tool, a person.

    for v in 0 .. 8: B   with ("hint", 3)   ->   for v in 0 .. 8 {hint = 3}: B

    A note of that name is replaced. Requires a name for the note, and a value that is a number, a
    string or a bool. Notes of the steps themselves ("tail", "thread", "identity.0") are not for
    writing. Raises ScheduleError where a requirement is not met.
    """
    step = f"annotate({place!r}, {key!r})"
    at = _found(function, place)
    _check_key(step, function, place, key)
    if not isinstance(value, (bool, int, float, str)):
        refuse(function, f"{step}: {value!r} is no number, string or bool", place)
    return _with(at, key, value)


def unannotate(function: Function, place: str, key: str) -> Function:
    """Take a note off a loop or a block.

    for v in 0 .. 8 {hint = 3}: B   with "hint"   ->   for v in 0 .. 8: B

    Requires that it is there, and that `annotate` may write it. Raises ScheduleError where it is not.
    """
    step = f"unannotate({place!r}, {key!r})"
    at = _found(function, place)
    _check_key(step, function, place, key)
    known = [name for name, _ in at.node.annotations]
    if key not in known:
        close = get_close_matches(key, known, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(known) or 'none'}"
        refuse(function, f"{step}: there is no such note; {hint}", place)
    return _with(at, key, None)


def _found(function: Function, name: str) -> Place:
    is_block = name in block_names(function)
    if is_block and name in loop_names(function):
        refuse(function, f"{name!r} is the name of a loop and of a block", name)
    return find_block(function, name) if is_block else find_loop(function, name)


def _check_key(step: str, function: Function, place: str, key) -> None:
    if not isinstance(key, str) or not key:
        refuse(function, f"{step}: a note needs a name, a string", place)
    if key in OWN or key.startswith(("identity.", PREFETCH)):
        refuse(function, f"{step}: steps write that note themselves, and rely on it", place)


def _with(at: Place, key: str, value) -> Function:
    node = at.node
    notes = with_annotation(node.annotations, key, value)
    if type(node) is For:
        return replace(at, For(node.var, node.start, node.extent, node.kind, node.body, notes))
    return replace(
        at, Block(node.name, node.iters, node.predicate, node.init, node.body, notes)
    )


def add_unit_loop(function: Function, place: str) -> tuple[Function, str]:
    """Put a loop of one iteration around a loop or a block.

    block C   ->   for C.u in 0 .. 1: block C

    Requires nothing. Returns the function and the loop's name, the block's (or that of the block
    that the loop is named after) with ".u". Raises ScheduleError where there is no such place.
    """
    at = _found(function, place)
    name = fresh_loop(function, f"{place.partition('.')[0] if type(at.node) is For else place}.u")
    return replace(at, For(Var(name), index(0), index(1), "serial", at.node)), name


def reorder_block_iters(function: Function, block: str, order: Sequence[int]) -> Function:
    """Put the iterators of a block in another order: iterator `order[n]` comes to place n.

    block C { i; j; k }   with (2, 0, 1)   ->   block C { k; i; j }

    Nothing is computed otherwise. Requires each number from 0 to that of the iterators once. Raises
    ScheduleError where they are not.
    """
    step = f"reorder_block_iters(block {block!r})"
    at = find_block(function, block)
    node: Block = at.node
    count = len(node.iters)
    if not isinstance(order, (list, tuple)) or sorted(order, key=str) != sorted(
        range(count), key=str
    ):
        names = ", ".join([it.var.name for it in node.iters])
        message = f"{order!r} is no order of the {count} iterators {names}: give each of their "
        refuse(function, f"{step}: {message}numbers, from 0, once", block)
    iters = tuple([node.iters[number] for number in order])
    return replace(
        at, Block(node.name, iters, node.predicate, node.init, node.body, node.annotations)
    )
