"""Moving a producer under a loop of its consumer, where it computes just what is needed there."""

from __future__ import annotations

from tensorc.arith import Domain, IndexMap, can_prove, simplify
from tensorc.ir.expr import Buffer, Expr, Var, index, is_const, logical_and
from tensorc.ir.function import Function
from tensorc.ir.stmt import Block, BlockIter, For, Seq, Stmt, Store, annotate, seq
from tensorc.ir.walk import replace_body, walk
from tensorc.schedule.locate import (
    Place, all_blocks, blocks_below, constant, find_block, find_loop, fresh, loop_names, refuse, remove, replace,
)  # fmt: skip
from tensorc.schedule.regions import (
    Access, Span, accesses, buffers_read, buffers_written, larger, loads, readers, refuse_late_writer, smaller, unite,
    writers,
)  # fmt: skip

_LARGE = 1 << 31  # stands for a symbolic extent: a map that has an inverse on the larger shape has it on the smaller


def compute_at(function: Function, block: str, loop: str) -> Function:
    """Move a producer under a loop, just before its first consumer there, over the part that is needed there.

    ``for i: T[i] = f(i)`` ... ``for io: for ii: C = g(T[io*8 + ii])``
    ->  ``for io: {for T.i in 0..8: T[io*8 + T.i] = f(...); for ii: C = g(...)}``

    The part is computed anew in each iteration of `loop`. There is one new loop, named <block>.<iterator>, for each
    iterator: spatial ones run over what the consumers below `loop` read, reduce ones over their whole range; a loop
    of extent 1 is left out. Where the part may reach over the domain's end, the block gets a predicate and the new
    loop is annotated ("tail", "mask").

    Requires: the block is complete (spatial, not reading its own buffer) or a reduction with its init; its buffer is
    internal, written by it alone, and read only below `loop`; `loop` is not around the block already, nor vectorized;
    what the block reads is complete before that place and never changed afterwards.

    Raises ScheduleError where one of these does not hold.
    """
    what = f"compute_at(block {block!r}, loop {loop!r})"
    source, target = find_block(function, block), find_loop(function, loop)
    store = _movable(function, source, what)
    _check_target(function, source, target, store.buffer, what)
    refuse_late_writer(function, source.node, what)
    first = _first_consumer(function, source.node, target.node, store.buffer, what)

    domain = Place(function, (*target.path, target.node.body)).domain()
    needed = _needed(source.node, store, target.node, domain)
    function = remove(source)
    nest = _regenerate(source.node, needed, domain, loop_names(function))
    stmts = _stmts(target.node.body)
    body = seq(*stmts[:first], nest, *stmts[first:])
    return replace(find_loop(function, loop), replace_body(target.node, body))


def _stmts(body: Stmt) -> tuple[Stmt, ...]:
    return body.stmts if type(body) is Seq else (body,)


def _movable(function: Function, place: Place, what: str) -> Store:
    """The store of a complete or reduction block whose result stays inside the function."""
    block = place.node

    def deny(reason: str):
        refuse(function, f"{what}: {reason}", mark=block.name)

    written = buffers_written(block)
    if len(written) != 1:
        deny(f"the block must write one buffer, it writes {len(written)}")
    buffer = written[0]
    if buffer in function.params:
        deny(f"the block writes the output {buffer.name!r}; only a block whose result stays inside the function can move")
    others = [other.name for other in writers(function, buffer) if other is not block]
    if others:
        deny(f"{buffer.name!r} is also written by {', '.join(others)}; move the block before decomposing it")
    stores = [stmt for stmt in walk(block) if type(stmt) is Store]
    if any(store.indices != stores[0].indices for store in stores):
        deny("the block stores to several places, so what a part of it computes is not known")
    kinds = {it.kind for it in block.iters}
    if "ordered" in kinds or ("reduce" in kinds and block.init is None):
        deny("the block is neither complete nor a reduction with its init: its instances depend on those before")
    if kinds <= {"spatial"} and loads(block, buffer):
        deny(f"the block reads {buffer.name!r}, which it writes itself")
    return stores[0]


def _check_target(function: Function, source: Place, target: Place, buffer: Buffer, what: str) -> None:
    """Refuse a loop that cannot take the block."""
    loop = target.node
    if any(stmt is loop for stmt in source.path):
        refuse(function, f"{what}: the block is under that loop already", loop.var.name)
    for around in (*target.loops, loop):
        if around.kind == "vectorized":
            reason = f"loop {around.var.name!r} is vectorized; move the block before vectorizing"
            refuse(function, f"{what}: {reason}", around.var.name)
    consumers = [block for block in readers(function, buffer) if block is not source.node]
    if not consumers:
        refuse(function, f"{what}: nothing reads {buffer.name!r}", source.node.name)
    below = blocks_below(loop)
    for consumer in consumers:
        if not any(block is consumer for block in below):
            reason = f"{consumer.name!r} reads {buffer.name!r} outside of that loop; all consumers must be below it"
            refuse(function, f"{what}: {reason}", consumer.name)
    if loads(function.body, buffer) > loads(loop.body, buffer) + loads(source.node, buffer):
        refuse(function, f"{what}: the bounds of a loop outside of it read {buffer.name!r}", loop.var.name)


def _first_consumer(function: Function, block: Block, loop: For, buffer: Buffer, what: str) -> int:
    """Which statement directly under the loop reads the buffer first; what the block reads must be written before."""
    stmts = _stmts(loop.body)
    first = next(i for i, stmt in enumerate(stmts) if loads(stmt, buffer))
    blocks = all_blocks(function)
    place = blocks_below(Seq(stmts[first:]))[0]
    after = blocks[next(i for i, other in enumerate(blocks) if other is place) :]
    inputs = buffers_read(block)
    for other in after:
        for written in buffers_written(other):
            if other is not block and written in inputs:
                reason = f"it reads {written.name!r}, which {other.name!r} writes only after the place under that loop"
                refuse(function, f"{what}: {reason}", other.name)
    return first


def _needed(block: Block, store: Store, loop: For, domain: Domain) -> dict[Var, Span | None]:
    """The span of each spatial iterator over what is read below the loop; None for the whole range."""
    spatial = [it for it in block.iters if it.kind == "spatial"]
    uses = accesses(loop.body, store.buffer, domain)
    regions = [access.spans(_solve(store, spatial, access)) for access in uses]
    return dict(zip([it.var for it in spatial], unite(regions, domain)))


def _solve(store: Store, spatial: list[BlockIter], access: Access) -> tuple[Expr | None, ...]:
    """The iterators whose instance stores the element that an access loads; None for one that is not found.

    An iterator that is an index itself is read off; otherwise the map from iterators to the stored place is inverted,
    and the access put through it, so that a remapped buffer gives back plain indices:
    (k//512*512 + k%512) is k again.
    """
    found: dict[Var, Expr] = {}
    for stored, loaded in zip(store.indices, access.indices):
        if type(stored) is Var:
            found.setdefault(stored, loaded)
    if len(found) < len(spatial):
        inverse = IndexMap(tuple([it.var for it in spatial]), store.indices).inverse(
            tuple([constant(it.extent) or _LARGE for it in spatial])
        )
        if inverse is not None:
            outputs = inverse.apply(access.indices, access.domain)
            found = {**dict(zip([it.var for it in spatial], outputs)), **found}
    return tuple([found.get(it.var) for it in spatial])


def _regenerate(block: Block, needed: dict[Var, Span | None], domain: Domain, taken: set[str]) -> Stmt:
    """The block under new loops that cover the needed spans."""
    loops: list[tuple[Var, Expr, bool]] = []
    iters: list[BlockIter] = []
    conditions: list[Expr] = []
    inner = domain
    for it in block.iters:
        start, extent = _range(it, needed.get(it.var), domain)
        binding, guards = start, []
        if not is_const(extent, 1):
            var = Var(fresh(f"{block.name}.{it.var.name}", taken))
            taken.add(var.name)
            inner = inner.bind(var, 0, extent)
            binding = simplify(start + var, inner)
        if not can_prove(start >= 0, domain):
            guards.append(simplify(binding >= 0, inner))
        if not can_prove(start + extent <= it.extent, domain):
            guards.append(simplify(binding < it.extent, inner))
        if not is_const(extent, 1):
            loops.append((var, extent, bool(guards)))
        conditions += guards
        iters.append(BlockIter(it.var, it.extent, it.kind, binding))
    nest: Stmt = Block(block.name, tuple(iters), logical_and(*conditions), block.init, block.body, block.annotations)
    for var, extent, masked in reversed(loops):
        nest = For(var, index(0), extent, "serial", nest, annotate((), "tail", "mask") if masked else ())
    return nest


def _range(it: BlockIter, span: Span | None, domain: Domain) -> tuple[Expr, Expr]:
    """Start and extent of an iterator: a span of constant extent as it is, others cut to the domain."""
    whole = (index(0), it.extent)
    if it.kind == "reduce" or span is None:
        return whole
    extent = span.extent(domain)
    if is_const(extent):
        full = constant(it.extent)
        return whole if full is not None and extent.value >= full else (span.lo, extent)
    lo, hi = larger(span.lo, index(0), domain), smaller(span.hi, it.extent - 1, domain)
    extent = simplify(hi - lo + 1, domain)
    return (lo, extent) if is_const(extent) or not is_const(lo, 0) else whole
