"""The schedule: a function that is being rewritten, and the trace of the steps so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from types import MappingProxyType
from typing import Any

from tensorc.arith import checked
from tensorc.errors import ScheduleError
from tensorc.ir.expr import Expr
from tensorc.ir.function import Function
from tensorc.ir.printer import show
from tensorc.schedule.listing import Listing, after_step
from tensorc.schedule.locate import (
    Place,
    all_blocks,
    block_names,
    constant,
    find_block,
    find_loop,
    loop_names,
    refuse,
    restated,
)  # fmt: skip
from tensorc.schedule.navigation import child_blocks, consumers, output_blocks, producers
from tensorc.schedule.scopes import Scope, function_at
from tensorc.schedule.trace import PRIMITIVES, Step, Trace, map_text, perform, plain


@dataclass(frozen=True, slots=True)
class LoopRef:
    """A loop of a schedule and of its copies, by name."""

    name: str
    lineage: object = field(repr=False)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class BlockRef:
    """A block of a schedule and of its copies, by name."""

    name: str
    lineage: object = field(repr=False)

    def __str__(self) -> str:
        return self.name


_Past = tuple[Function, Trace, Any]  # the nest and the steps before the last one, and what was before that


class Schedule:
    """A loop nest and the steps that have been made on it.

    `function` is the nest as it is now, `origin` as it was at first, `trace` the steps between
    them. Steps take loops and blocks as handles (from `loops`, `block` and other steps) or as
    names. A step that is refused raises ScheduleError, with the nest in a note, and leaves the
    schedule as it was. The functions in `tensorc.schedule.primitives` say what each step does and
    requires.

    Of a default schedule, `recipes` names the recipe of each block, and `decisions` holds the answers
    to the recipes' questions, by the names of block and knob; of one by hand, both are empty.
    """

    __slots__ = ("_lineage", "_past", "decisions", "function", "origin", "recipes", "trace")

    def __init__(self, function: Function):
        if not isinstance(function, Function):
            raise ScheduleError(
                f"Schedule takes a function of the IR, not {type(function).__name__}"
            )
        self.function = self.origin = checked(function)
        self.trace = Trace()
        self.decisions: Mapping[str, Any] = MappingProxyType({})
        self.recipes: Mapping[str, str] = MappingProxyType({})
        self._lineage = object()
        self._past: _Past | None = None

    def copy(self) -> Schedule:
        """A schedule that goes its own way from here; handles of one are good for the other."""
        new = Schedule(self.function)
        new._lineage = self._lineage
        new.become(self)
        return new

    def become(self, other: Schedule) -> None:
        """Be as another schedule is now; handles stay good."""
        self.function, self.origin, self.trace = other.function, other.origin, other.trace
        self.decisions, self.recipes, self._past = other.decisions, other.recipes, other._past

    def undo(self, steps: int = 1) -> None:
        """Take back the last steps. Raises ScheduleError where there are not so many."""
        self.become(self._before(f"undo({steps!r})", steps))

    def at(self, step: int) -> Schedule:
        """The schedule as it was after so many steps; counted from the end where negative. Raises
        ScheduleError where there are not so many."""
        taken = None if type(step) is not int else -step if step < 0 else len(self.trace) - step
        return self._before(f"at({step!r})", taken)

    def _before(self, what: str, steps) -> Schedule:
        if type(steps) is not int or not 0 <= steps <= len(self.trace):
            many = "1 step" if len(self.trace) == 1 else f"{len(self.trace)} steps"
            raise ScheduleError(f"{what}: the schedule has {many}")
        found = self.copy()
        for _ in range(steps):
            past = found._past
            assert past is not None  # each step has left one
            found.function, found.trace, found._past = past
        return found

    def show(self) -> Listing:
        """The text of the nest as it is now. Printed to a terminal or shown in a notebook, the lines
        that the last step made or changed are highlighted."""
        past = self._past
        return after_step(show(self.function), None if past is None else lambda: show(past[0]))

    def _repr_html_(self) -> str:
        last = f"<code>{escape(str(self.trace.steps[-1]))}</code>" if self.trace.steps else ""
        return f"{last}{self.show()._repr_html_()}"

    def __repr__(self) -> str:
        return f"Schedule({self.function.name!r}, {len(self.trace)} steps)"

    # What there is.

    def block(self, name: str) -> BlockRef:
        """The block of this name."""
        return BlockRef(
            self._found("block", self._name(name, BlockRef)).node.name, self._lineage
        )

    def blocks(self) -> list[BlockRef]:
        """The blocks, in program order; `child_blocks` tells those in a block."""
        return [BlockRef(block.name, self._lineage) for block in all_blocks(self.function)]

    def loops(self, block: BlockRef | str) -> list[LoopRef]:
        """The loops around a block, outermost first."""
        found = self._found("block", self._name(block, BlockRef)).loops
        return [LoopRef(loop.var.name, self._lineage) for loop in found]

    def extent(self, loop: LoopRef | str) -> int | None:
        """The extent of a loop, None where it is not constant."""
        return constant(self._found("loop", self._name(loop, LoopRef)).node.extent)

    def producers(self, block: BlockRef | str) -> list[BlockRef]:
        """The blocks that write what a block reads, in program order."""
        name = self._name(block, BlockRef)
        return self._blocks(producers(function_at(self.function, "block", name), name))

    def consumers(self, block: BlockRef | str) -> list[BlockRef]:
        """The blocks that read what a block writes, in program order."""
        name = self._name(block, BlockRef)
        return self._blocks(consumers(function_at(self.function, "block", name), name))

    def child_blocks(self, place: LoopRef | BlockRef | str) -> list[BlockRef]:
        """The blocks below a loop, or in a block, in program order."""
        name = self._place(place)
        return self._blocks(child_blocks(function_at(self.function, "place", name), name))

    def output_blocks(self, block: BlockRef | str | None = None) -> list[BlockRef]:
        """The blocks that write outputs of the function, in program order, or those in a block that write what
        is used outside of it."""
        if block is None:
            return self._blocks(output_blocks(self.function))
        place = self._found("block", self._name(block, BlockRef))
        inner = Scope(Place(place.function, (*place.path, place.node.body)))
        return self._blocks(output_blocks(inner.function()))

    # Steps.

    def split(
        self, loop: LoopRef | str, factors: Sequence[int | None], tail: str = "auto"
    ) -> tuple[LoopRef, ...]:
        """Split a loop into nested ones, outermost first; one factor may be None. See
        `primitives.loops.split`."""
        return self._loops("split", self._name(loop, LoopRef), factors, tail)

    def fuse(self, *loops: LoopRef | str) -> LoopRef:
        """Make one loop of nested ones, given outermost first. See `primitives.loops.fuse`."""
        return self._loops("fuse", self._names(loops))[0]

    def reorder(self, *loops: LoopRef | str) -> None:
        """Put loops in this order, outermost first. See `primitives.loops.reorder`."""
        self.perform("reorder", (self._names(loops),))

    def parallel(self, loop: LoopRef | str) -> None:
        """Share the iterations of a loop among threads. See `primitives.loops.parallel`."""
        self.perform("parallel", (self._name(loop, LoopRef),))

    def vectorize(self, loop: LoopRef | str) -> None:
        """Make the iterations of a loop the lanes of vectors. See `primitives.loops.vectorize`."""
        self.perform("vectorize", (self._name(loop, LoopRef),))

    def unroll(self, loop: LoopRef | str) -> None:
        """Repeat the body of a loop instead of looping. See `primitives.loops.unroll`."""
        self.perform("unroll", (self._name(loop, LoopRef),))

    def bind(self, loop: LoopRef | str, thread_axis: str) -> None:
        """Bind a loop to an axis of hardware threads, such as "threadIdx.x". See
        `primitives.binding`."""
        self.perform("bind", (self._name(loop, LoopRef), thread_axis))

    def prefetch(self, place: LoopRef | BlockRef | str, buffer, offset: int = 1) -> None:
        """Ask for what a loop, or that around a block, will read of a buffer some iterations later.
        See `primitives.memory`."""
        self.perform("prefetch", (self._place(place), _buffer(buffer), offset))

    def stream(self, block: BlockRef | str) -> None:
        """Let the stores of a block go past the caches. See `primitives.memory`."""
        self.perform("stream", (self._name(block, BlockRef),))

    def loop_partition(
        self, loop: LoopRef | str, factors: Sequence[int | None]
    ) -> tuple[LoopRef, ...]:
        """Cut the range of a loop into consecutive loops. See `primitives.versions`."""
        return self._loops("loop_partition", self._name(loop, LoopRef), factors)

    def specialize(self, condition) -> list[BlockRef]:
        """Make a version of the function for where a condition holds, such as "n % 8 == 0"; its
        blocks are returned. See `primitives.versions`."""
        text = show(condition) if isinstance(condition, Expr) else condition
        return self._blocks(self.perform("specialize", (text,)))

    def merge(self, *loops: LoopRef | str) -> LoopRef:
        """Make one loop of loops in nests side by side. See `primitives.siblings`."""
        return self._loops("merge", self._names(loops))[0]

    def fission(self, loop: LoopRef | str, after: BlockRef | str) -> tuple[LoopRef, ...]:
        """Make two loops of one, the second of what follows a block. See `primitives.siblings`."""
        return self._loops("fission", self._name(loop, LoopRef), self._name(after, BlockRef))

    def add_unit_loop(self, place: LoopRef | BlockRef | str) -> LoopRef:
        """Put a loop of one iteration around a loop or a block. See `primitives.annotations`."""
        return self._loops("add_unit_loop", self._place(place))[0]

    def reorder_block_iters(self, block: BlockRef | str, order: Sequence[int]) -> None:
        """Put the iterators of a block in another order. See `primitives.annotations`."""
        self.perform("reorder_block_iters", (self._name(block, BlockRef), order))

    def annotate(self, place: LoopRef | BlockRef | str, key: str, value) -> None:
        """Write a note on a loop or a block. See `primitives.annotations`."""
        self.perform("annotate", (self._place(place), key, value))

    def unannotate(self, place: LoopRef | BlockRef | str, key: str) -> None:
        """Take a note off a loop or a block. See `primitives.annotations`."""
        self.perform("unannotate", (self._place(place), key))

    def rfactor(self, loop: LoopRef | str, factor_axis: int = 0) -> BlockRef:
        """Let each iteration of a reduce loop have a result of its own, reduced afterwards. See
        `primitives.rfactor`."""
        return self._block("rfactor", self._name(loop, LoopRef), factor_axis)

    def decompose_reduction(self, block: BlockRef | str, loop: LoopRef | str) -> BlockRef:
        """Initialise a reduction in a block of its own. See `primitives.reduction`."""
        return self._block(
            "decompose_reduction", self._name(block, BlockRef), self._name(loop, LoopRef)
        )

    def compute_inline(self, block: BlockRef | str) -> None:
        """Compute a block where its values are used. See `primitives.inlining`."""
        self.perform("compute_inline", (self._name(block, BlockRef),))

    def reverse_compute_inline(self, block: BlockRef | str) -> None:
        """Compute a block where what it reads is made. See `primitives.inlining`."""
        self.perform("reverse_compute_inline", (self._name(block, BlockRef),))

    def reverse_compute_at(self, block: BlockRef | str, loop: LoopRef | str) -> None:
        """Compute in a loop what a block can of what is ready there. See `primitives.placement`."""
        self.perform("reverse_compute_at", (self._name(block, BlockRef), self._name(loop, LoopRef)))

    def compute_with(
        self, block: BlockRef | str, other: BlockRef | str, loop: LoopRef | str
    ) -> None:
        """Run the nest of a block in the loops of another one's. See `primitives.siblings`."""
        names = (self._name(block, BlockRef), self._name(other, BlockRef))
        self.perform("compute_with", (*names, self._name(loop, LoopRef)))

    def set_scope(self, block: BlockRef | str, buffer, scope: str) -> None:
        """Let an internal buffer live in another memory. See `primitives.storage`."""
        self.perform("set_scope", (self._name(block, BlockRef), _buffer(buffer), scope))

    def storage_align(
        self, block: BlockRef | str, buffer, axis: int, factor: int, offset: int = 0
    ) -> None:
        """Let rows of an internal buffer lie `offset` more than a multiple of `factor` elements
        apart. See `primitives.storage`."""
        name = self._name(block, BlockRef)
        self.perform("storage_align", (name, _buffer(buffer), axis, factor, offset))

    def compute_at(self, block: BlockRef | str, loop: LoopRef | str) -> None:
        """Compute in a loop what it needs of a block. See `primitives.placement`."""
        self.perform("compute_at", (self._name(block, BlockRef), self._name(loop, LoopRef)))

    def cache_read(
        self, block: BlockRef | str, buffer, scope: str = "global", dtype: str | None = None
    ) -> BlockRef:
        """Let a block read a copy of a buffer (a name, or a read's number), in the dtype that it
        casts the elements to if one is given. See `primitives.caching`."""
        return self._block("cache_read", self._name(block, BlockRef), _buffer(buffer), scope, dtype)

    def cache_write(
        self, block: BlockRef | str, scope: str = "global", buffer: Any = 0
    ) -> BlockRef:
        """Let a block write to a buffer that is copied afterwards; of several, the one of this name or
        number. See `primitives.caching`."""
        return self._block("cache_write", self._name(block, BlockRef), scope, _buffer(buffer))

    def stage(
        self,
        place: LoopRef | BlockRef | str,
        buffer,
        window: str | None = None,
        mode: str = "auto",
        scope: str = "global",
    ) -> list[BlockRef]:
        """Let a loop or block work on a copy of a window: `"A[io*8 : io*8 + 8, 0:16]"`. See
        `primitives.staging`."""
        args = (self._place(place), _buffer(buffer), window, mode, scope)
        return self._blocks(self.perform("stage", args))

    def blockize(self, loop: LoopRef | str) -> BlockRef:
        """Make one block of a loop and all below it. See `primitives.blocking`."""
        return self._block("blockize", self._name(loop, LoopRef))

    def tensorize(self, place: LoopRef | BlockRef | str, intrin: str) -> BlockRef:
        """Run a loop and all below it by a tensor intrinsic, such as "x86.vpdpbusd.512". See
        `primitives.tensorize`."""
        return self._block("tensorize", self._place(place), intrin)

    def substitute(
        self, block: BlockRef | str, replacement: Function | str, check: bool = True
    ) -> list[BlockRef]:
        """Put another function in the place of a block's nest, which is trusted and tried out. See
        `primitives.substitution`."""
        text = show(replacement) if isinstance(replacement, Function) else replacement
        return self._blocks(self.perform("substitute", (self._name(block, BlockRef), text, check)))

    def rolling_buffer(self, block: BlockRef | str, buffer) -> None:
        """Compute in a loop only what the iteration before did not. See `primitives.rolling`."""
        self.perform("rolling_buffer", (self._name(block, BlockRef), _buffer(buffer)))

    def reindex(self, block: BlockRef | str, buffer) -> BlockRef:
        """Let a block use a copy of a buffer that its own iterators index. See
        `primitives.reindexing`."""
        return self._block("reindex", self._name(block, BlockRef), _buffer(buffer))

    def reindex_cache_read(
        self, block: BlockRef | str, buffer, scope: str, index_map
    ) -> BlockRef:
        """Let a block read a copy of a buffer whose places are a map of its iterators. See
        `primitives.reindexing`."""
        return self._mapped("reindex_cache_read", block, buffer, scope, index_map)

    def reindex_cache_write(
        self, block: BlockRef | str, buffer, scope: str, index_map
    ) -> BlockRef:
        """Let a block write to a copy of a buffer whose places are a map of its iterators. See
        `primitives.reindexing`."""
        return self._mapped("reindex_cache_write", block, buffer, scope, index_map)

    def transform_layout(
        self, block: BlockRef | str, buffer, index_map, pad_value: int | float | None = None
    ) -> None:
        """Lay an internal buffer out anew: `lambda i, j: (i // 8, j, i % 8)`. See
        `primitives.layout`."""
        name = _buffer(buffer)
        known = (*self.function.params, *self.function.allocs)
        ndim = next((len(each.shape) for each in known if each.name == name), 0)
        text = map_text(index_map, ndim)
        self.perform("transform_layout", (self._name(block, BlockRef), name, text, pad_value))

    def transform_block_layout(self, block: BlockRef | str, index_map) -> None:
        """Count a block's points by other iterators: `lambda n, h, c: (n * 8 + h, c)`. See
        `primitives.domains`."""
        name = self._name(block, BlockRef)
        ndim = len(self._found("block", name).node.iters)
        self.perform("transform_block_layout", (name, map_text(index_map, ndim)))

    def pad_einsum(self, block: BlockRef | str, padding: Sequence[int]) -> list[BlockRef]:
        """Round the extents of a product of tensors up to multiples. See `primitives.padding`."""
        return self._blocks(self.perform("pad_einsum", (self._name(block, BlockRef), padding)))

    def decompose_padding(self, block: BlockRef | str, loop: LoopRef | str) -> BlockRef:
        """Fill the padding that a block makes in a block of its own. See `primitives.padding`."""
        return self._block(
            "decompose_padding", self._name(block, BlockRef), self._name(loop, LoopRef)
        )

    def perform(self, primitive: str, args: tuple[Any, ...]) -> tuple[str, ...]:
        """One step by name, as traces hold it; returns the names of what it made."""
        if not isinstance(primitive, str) or primitive not in PRIMITIVES:
            raise ScheduleError(
                f"no step is named {primitive!r}; there are {', '.join(PRIMITIVES)}"
            )
        args = plain(args)
        try:
            function, made = perform(self.function, primitive, args)
        except ScheduleError as error:
            self._explain_gone(primitive, args, error)
            raise
        self._past = (self.function, self.trace, self._past)
        self.function = function
        self.trace = self.trace.then(Step(primitive, args, made))
        return made

    def _explain_gone(self, primitive: str, args: tuple[Any, ...], error: ScheduleError) -> None:
        """Say it if a step was refused since an earlier one has replaced its loop."""
        there = loop_names(self.function) | block_names(self.function)
        for name in _loops_in(primitive, args) if isinstance(args, tuple) else ():
            for step in self.trace.steps if name not in there else ():
                if step.primitive in ("split", "fuse", "merge", "loop_partition") and name in _loops_in(
                    step.primitive, step.args
                ):
                    made = ", ".join(map(repr, step.results))
                    text = f"{primitive}: loop {name!r} is gone, {step} replaced it by {made}"
                    raise restated(text, error, self.function) from error

    def _loops(self, primitive: str, *args) -> tuple[LoopRef, ...]:
        return tuple([LoopRef(name, self._lineage) for name in self.perform(primitive, args)])

    def _block(self, primitive: str, *args) -> BlockRef:
        return BlockRef(self.perform(primitive, args)[0], self._lineage)

    def _mapped(self, primitive: str, block, buffer, scope: str, index_map) -> BlockRef:
        name = self._name(block, BlockRef)
        text = map_text(index_map, len(self._found("block", name).node.iters))
        return self._block(primitive, name, _buffer(buffer), scope, text)

    def _found(self, kind: str, name: str) -> Place:
        """The place of a loop or a block, in what the block around it does where there is one."""
        function = function_at(self.function, kind, name)
        return (find_loop if kind == "loop" else find_block)(function, name)

    def _blocks(self, names) -> list[BlockRef]:
        return [BlockRef(name, self._lineage) for name in names]

    def _place(self, given) -> str:
        return self._name(given, BlockRef if isinstance(given, BlockRef) else LoopRef)

    def _name(self, given, kind: type[LoopRef] | type[BlockRef]) -> str:
        what = "loop" if kind is LoopRef else "block"
        if isinstance(given, str):
            return given
        if not isinstance(given, kind):
            refuse(self.function, f"a {what} is needed, not {given!r}")
        if given.lineage is not self._lineage:
            refuse(self.function, f"{what} {given.name!r} belongs to another schedule")
        return given.name

    def _names(self, loops) -> tuple[str, ...]:
        return tuple([self._name(loop, LoopRef) for loop in loops])


def _buffer(buffer):
    return buffer if isinstance(buffer, (str, int)) else plain(getattr(buffer, "name", buffer))


def _loops_in(primitive: str, args: tuple[Any, ...]) -> list[str]:
    found: list[str] = []
    for (_, kind), value in zip(PRIMITIVES[primitive].arguments, args):
        if kind == "loops":
            found.extend(value)
        elif kind in ("loop", "place"):
            found.append(value)
    return found
