"""Places in a loop nest: finding them by name, replacing them, and marking one in an error."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise
from typing import NoReturn

from tensorc.arith import Domain, can_prove
from tensorc.errors import ScheduleError
from tensorc.ir.empty import starting_loops
from tensorc.ir.expr import Const, Expr, Var, index, logical_not, maximum
from tensorc.ir.function import Function
from tensorc.ir.printer import show
from tensorc.ir.stmt import Alloc, Block, For, If, Let, Seq, Stmt, annotation, seq
from tensorc.ir.walk import map_substmts, substmts, walk
from tensorc.schedule.listing import of_refusal


@dataclass(frozen=True, slots=True)
class Place:
    """A node of a function with the way to it: `path` leads from `function.body` to the node,
    both included."""

    function: Function
    path: tuple[Stmt, ...]

    @property
    def node(self):
        return self.path[-1]

    @property
    def loops(self) -> tuple[For, ...]:
        """The loops around the node, outermost first, without the node itself."""
        return tuple([stmt for stmt in self.path[:-1] if type(stmt) is For])

    def domain(self) -> Domain:
        """What is known at the node: the function's assumptions, the loops around it, and the
        conditions around it."""
        domain = root_domain(self.function)
        for i, stmt in enumerate(self.path[:-1]):
            domain = _enter(domain, stmt, self.path[i + 1])
        return domain

    def start_domain(self) -> Domain:
        """What is known where blocks at or below the node may start, which is before loops that reduce
        over nothing."""
        starting = starting_loops(self.node)
        domain = root_domain(self.function)
        for i, stmt in enumerate(self.path[:-1]):
            if type(stmt) is For:
                domain = bind_start(domain, stmt.var, stmt.start, stmt.extent, starting)
            else:
                domain = _enter(domain, stmt, self.path[i + 1])
        return domain

    def up_to(self, node: Stmt) -> Place:
        """The place of a node on the path."""
        at = next(i for i, stmt in enumerate(self.path) if stmt is node)
        return Place(self.function, self.path[: at + 1])

    def conditions_from(self, node: Stmt) -> tuple[Expr, ...]:
        """The conditions of `if` statements between a node on the path and the place."""
        inside = self.path[len(self.up_to(node).path) - 1 :]
        return tuple([
            stmt.condition if child is stmt.then else logical_not(stmt.condition)
            for stmt, child in pairwise(inside)
            if type(stmt) is If
        ])  # fmt: skip


def _enter(domain: Domain, stmt: Stmt, child: Stmt) -> Domain:
    match stmt:
        case For(var, start, extent):
            return domain.bind(var, start, extent)
        case If(condition, then):
            return domain.given(condition if child is then else logical_not(condition))
        case Let(var, value) if value.dtype.is_int:
            return domain.bind(var, value, 1)
        case _:
            return domain


def bind_start(
    domain: Domain, var: Var, start: Expr, extent: Expr, starting: Collection[Var]
) -> Domain:
    """The domain inside a loop, in which loops of `starting` are not known to have an iteration.

    One that has no second is not taken for a number either: bindings would forget it, and with it that nothing runs.
    """
    if var in starting:
        extent = index(2) if can_prove(extent <= 1, domain) else maximum(extent, 1)
    return domain.bind(var, start, extent)


def root_domain(function: Function) -> Domain:
    """What is known everywhere in a function: its assumptions, and that extents of buffers are
    not negative."""
    domain = Domain()
    for condition in function.assumptions:
        domain = domain.given(condition)
    symbolic = {
        e: None
        for buffer in (*function.params, *function.allocs)
        for e in buffer.shape
        if type(e) is Var
    }
    for extent in symbolic:
        domain = domain.given(extent >= 0)
    return domain


def _places(stmt: Stmt, path: tuple[Stmt, ...]) -> Iterator[tuple[Stmt, ...]]:
    """The paths to every loop and block in program order, none inside blocks."""
    path = (*path, stmt)
    if type(stmt) is For:
        yield path
        yield from _places(stmt.body, path)
    elif type(stmt) is Block:
        yield path
    else:
        for inner in substmts(stmt):
            yield from _places(inner, path)


def _path_to(stmt: Stmt, kind: type, name: str) -> tuple[Stmt, ...] | None:
    """The path from a statement to the first loop or block of a name at or below it."""
    own = stmt.var.name if type(stmt) is For else stmt.name if type(stmt) is Block else None
    if type(stmt) is kind and own == name:
        return (stmt,)
    for inner in () if type(stmt) is Block else substmts(stmt):
        path = _path_to(inner, kind, name)
        if path is not None:
            return (stmt, *path)
    return None


def find_loop(function: Function, name: str) -> Place:
    """The place of the loop of this name; raises ScheduleError if there is none."""
    path = _path_to(function.body, For, name)
    if path is not None:
        return Place(function, path)
    _unknown(function, "loop", name, [loop.var.name for loop in all_loops(function)])


def find_block(function: Function, name: str) -> Place:
    """The place of the block of this name; raises ScheduleError if there is none."""
    path = _path_to(function.body, Block, name)
    if path is not None:
        return Place(function, path)
    _unknown(function, "block", name, [block.name for block in all_blocks(function)])


def _unknown(function: Function, what: str, name, known: list[str]) -> NoReturn:
    if not isinstance(name, str):
        refuse(function, f"a {what} is given by its name, not by {name!r}")
    close = get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known) or 'none'}"
    refuse(function, f"no {what} is named {name!r}; {hint}")


def all_loops(function: Function) -> tuple[For, ...]:
    """Every loop outside blocks, in program order."""
    return loops_below(function.body)


def all_blocks(function: Function) -> tuple[Block, ...]:
    """Every block in program order."""
    return blocks_below(function.body)


def loops_below(stmt: Stmt) -> tuple[For, ...]:
    """The loops in a statement, itself included, in program order."""
    return tuple([found for found in _loops_and_blocks(stmt) if type(found) is For])


def blocks_below(stmt: Stmt) -> tuple[Block, ...]:
    """The blocks in a statement, itself included, in program order."""
    return tuple([found for found in _loops_and_blocks(stmt) if type(found) is Block])


def _loops_and_blocks(stmt: Stmt) -> list[Stmt]:
    """The loops and blocks in a statement, itself included, in program order, none inside blocks."""
    found: list[Stmt] = []
    stack = [stmt]
    while stack:
        stmt = stack.pop()
        if type(stmt) is For or type(stmt) is Block:
            found.append(stmt)
        if type(stmt) is not Block:
            stack.extend(reversed(substmts(stmt)))
    return found


def block_places(place: Place) -> tuple[Place, ...]:
    """The places of the blocks at and below `place`, in program order."""
    above = place.path[:-1]
    paths = [path for path in _places(place.node, above) if type(path[-1]) is Block]
    return tuple([Place(place.function, path) for path in paths])


def loops_above(function: Function, block: str) -> tuple[For, ...]:
    """The loops around the block of this name, outermost first."""
    return find_block(function, block).loops


def chain(loop: For) -> tuple[For, ...]:
    """The loop and those below it for as long as each is the only child of the one above."""
    found = [loop]
    while type(found[-1].body) is For:
        found.append(found[-1].body)
    return tuple(found)


def version_of(place: Place) -> Place:
    """The place of the innermost branch of an `if` that a node lies in, else of the whole body:
    blocks outside never run together with it."""
    at = 0
    for depth, stmt in enumerate(place.path[:-1]):
        if type(stmt) is If and stmt.orelse is not None:
            at = depth + 1
    return Place(place.function, place.path[: at + 1])


def replace(place: Place, new: Stmt) -> Function:
    """The function with the node at `place` replaced; sequences are spliced."""
    old, path = place.path[-1], place.path[:-1]
    for parent in reversed(path):
        swapped = _swap(parent, old, new)
        if swapped is parent:
            return place.function
        old, new = parent, swapped
    return place.function if new is old else place.function.with_(body=new)


def _swap(parent: Stmt, old: Stmt, new: Stmt) -> Stmt:
    return map_substmts(parent, lambda child: new if child is old else child)


def remove(place: Place) -> Function:
    """The function without the node at `place`, nor the loops and guards around it that are left
    empty."""
    path = place.path
    while len(path) > 1 and _is_emptied(path[-2]):
        path = path[:-1]
    return replace(Place(place.function, path), Seq(()))


def _is_emptied(parent: Stmt) -> bool:
    match parent:
        case For() | Let() | Alloc():
            return True
        case If(_, _, orelse):
            return orelse is None
        case _:
            return False


def insert_before(place: Place, new: Stmt) -> Function:
    """The function with `new` just before the node at `place`."""
    return replace(place, seq(new, place.node))


def insert_after(place: Place, new: Stmt) -> Function:
    """The function with `new` just after the node at `place`."""
    return replace(place, seq(place.node, new))


def fresh(name: str, taken: Iterable[str]) -> str:
    """The name itself, or with the first number that makes it new."""
    taken = set(taken)
    if name not in taken:
        return name
    number = 1
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"


def loop_names(function: Function) -> set[str]:
    """The names of variables that are not block iterators: loops, lets, scalars and symbolic
    extents."""
    names = {stmt.var.name for stmt in walk(function.body) if isinstance(stmt, (For, Let))}
    names.update(var.name for var in function.scalars)
    names.update(e.name for buffer in function.params for e in buffer.shape if type(e) is Var)
    return names


def block_names(function: Function) -> set[str]:
    """The names of the blocks, those in blocks included."""
    return {stmt.name for stmt in walk(function.body) if type(stmt) is Block}


def buffer_names(function: Function) -> set[str]:
    """The names of the parameters and of internal buffers, placed or not."""
    names = {buffer.name for buffer in (*function.params, *function.allocs)}
    names.update(buffer.name for stmt in walk(function.body) if type(stmt) is Alloc for buffer in stmt.buffers)
    return names


def fresh_loop(function: Function, name: str) -> str:
    """A name for a new loop, as close to `name` as possible."""
    return fresh(name, loop_names(function))


def fresh_block(function: Function, name: str) -> str:
    """A name for a new block, as close to `name` as possible."""
    return fresh(name, block_names(function))


def fresh_buffer(function: Function, name: str) -> str:
    """A name for a new buffer, as close to `name` as possible."""
    return fresh(name, buffer_names(function))


def constant(expr: Expr) -> int | None:
    """The value of an integer literal, else None."""
    return expr.value if type(expr) is Const else None


def starts_at_zero(loop: For) -> bool:
    """Whether the loop counts from 0."""
    return loop.start == index(0)


def restated(message: str, error: Exception, function: Function | None = None) -> ScheduleError:
    """Another sentence for an error, with the nest that it shows, or that of a function."""
    new = ScheduleError(message)
    if function is not None:
        new.nest = of_refusal(show(function), message)
        new.__notes__ = [new.nest]
        return new
    new.nest, new.__notes__ = getattr(error, "nest", ""), list(getattr(error, "__notes__", []))
    return new


def kind_text(loop: For) -> str:
    """The kind of a loop as sentences name it: "parallel", or "bound to threadIdx.x"."""
    return f"bound to {annotation(loop, 'thread')}" if loop.kind == "thread" else loop.kind


def refuse(function: Function, message: str, mark: str | None = None) -> NoReturn:
    """Raise ScheduleError with the printed nest as a note, the loop, block or buffer named
    `mark` marked in it, and those underlined that the message names in quotes."""
    error = ScheduleError(message)
    # add_note came with Python 3.11; what it does is this, and tracebacks print it from there on.
    error.nest = of_refusal(show(function, mark=mark), message)
    error.__notes__ = [error.nest]
    raise error
