"""Computing a block inside its consumers, or inside its producer, instead of storing a buffer between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from tensorc.arith import Affine, Domain, IndexMap, affine, can_prove, simplify
from tensorc.ir.expr import (
    Buffer,
    Expr,
    IfThenElse,
    Load,
    Var,
    eq,
    index,
    is_const,
    logical_and,
)
from tensorc.ir.function import Function
from tensorc.ir.stmt import Block, If, Stmt, Store
from tensorc.ir.walk import (
    all_exprs,
    children,
    map_exprs,
    map_substmts,
    rewrite,
    substitute,
    substmts,
    variables,
    walk_expr,
)
from tensorc.schedule.dependence import common_sequence, position
from tensorc.schedule.legality import loaded, stored
from tensorc.schedule.locate import Place, blocks_below, find_block, refuse, remove, replace
from tensorc.schedule.regions import (
    assumed,
    block_domain,
    buffers_read,
    loads,
    readers,
    refuse_late_writer,
    writers,
)


def compute_inline(function: Function, block: str) -> Function:
    """Substitute a block's value into every place that loads it, and drop the block and its buffer.

    ``T[i, j] = f(i, j)`` ... ``C[x] = g(T[a(x), b(x)])``  ->  ``C[x] = g(f(a(x), b(x)))``

    Requires: the block has only spatial iterators and no init; its body is one store whose indices
    are its distinct iterators in any order; its predicate is true; it does not read what it writes;
    its buffer is internal and written by no other block; nothing that it reads is written after it.
    Where nothing reads the buffer, the block is only dropped.

    Raises ScheduleError where one of these does not hold.
    """
    place = find_block(function, block)
    store = _single_store(function, place.node)
    users = [find_block(function, each.name) for each in readers(function, store.buffer)]
    refuse_late_writer(function, place.node, users, f"compute_inline(block {block!r})")
    body = _inline(remove(place).body, store, Domain())
    allocs = tuple([buffer for buffer in function.allocs if buffer is not store.buffer])
    return function.with_(body=body, allocs=allocs)


def reverse_compute_inline(function: Function, block: str) -> Function:
    """Let the producer of what a block reads compute the block's value itself, and drop the block
    and the buffer between.

    ``T[i, j] = f(i, j)`` ... ``C[j, i] = g(T[i, j])``  ->  ``C[j, i] = g(f(i, j))``

    Where the block reads a part of what the producer writes, the producer stores just that. A sum is
    added up in the other buffer, where the block copies all of it.

    Requires: the block is complete (spatial, one store, its predicate true) and reads one internal
    buffer that one complete block, or a sum with its init, writes before it and that nothing else
    reads, at places that tell its iterators: `T[i, j]`, `T[j + 1, i]` or `T[i*8 + j]`; nothing from
    the producer's nest on touches what the block writes, nor writes what else it reads.

    Raises ScheduleError where one of these does not hold.
    """
    step = f"reverse_compute_inline(block {block!r})"
    place = find_block(function, block)
    store = _complete_store(place, step)
    source, indices = _only_producer(place, step)
    total = _total(source, store)
    made = _complete_store(source, step) if total is None else total
    _check_earlier(source, place, made.buffer, step)
    _check_served(place, store, indices, source, made, step)
    values = _solved(place.node, indices, made, source, step)
    node: Block = source.node
    domain = block_domain(node, Domain())
    new = [simplify(substitute(e, values), domain) for e in store.indices]

    def on_load(e: Expr) -> Expr | None:
        return made.value if type(e) is Load and e.buffer is made.buffer else None

    value = simplify(rewrite(substitute(store.value, values), on_load), domain)
    body: Stmt = Store(store.buffer, tuple(new), value)
    init: Stmt | None = None
    parts = _inside(place.node, indices, values, made, domain)
    if total is not None and node.init is not None:
        if parts:
            _complete_store(source, step)
        body, init = [_moved(part, made, store.buffer, tuple(new)) for part in (node.body, node.init)]
    for inside in parts:
        body = If(inside, body)
    notes = tuple(sorted({**dict(node.annotations), **dict(place.node.annotations)}.items()))
    function = replace(source, Block(node.name, node.iters, node.predicate, init, body, notes))
    function = remove(find_block(function, block))
    allocs = tuple([buffer for buffer in function.allocs if buffer is not made.buffer])
    return function.with_(allocs=allocs)


def _complete_store(place: Place, step: str) -> Store:
    """The store of a block that computes each element of one buffer by itself."""
    block, function = place.node, place.function
    store = block.body
    if block.init is not None or any(it.kind != "spatial" for it in block.iters):
        kind = next((it.kind for it in block.iters if it.kind != "spatial"), "reduce")
        reason = f"{block.name!r} has {kind} iterators; both blocks must be complete"
        refuse(function, f"{step}: {reason}", block.name)
    if type(store) is not Store:
        refuse(function, f"{step}: the body of {block.name!r} is not a single store", block.name)
    if loads(store, store.buffer):
        reason = f"{block.name!r} reads {store.buffer.name!r}, which it writes itself"
        refuse(function, f"{step}: {reason}", block.name)
    return store


def _total(source: Place, store: Store) -> Store | None:
    """The store of a producer that reduces from its init on, if `store` only copies its results: they
    may as well be added up where they go."""
    node: Block = source.node
    made, init = node.body, node.init
    if type(made) is not Store or type(init) is not Store or type(store.value) is not Load:
        return None
    own = [e for e in all_exprs(node) if type(e) is Load and e.buffer is made.buffer]
    places = [init.indices, *[e.indices for e in own]]
    is_one = init.buffer is made.buffer and all(each == made.indices for each in places)
    is_copy = store.value.buffer is made.buffer and store.buffer.dtype is made.buffer.dtype
    return made if is_one and is_copy and made.mask is init.mask is store.value.mask is None else None


def _moved(stmt: Stmt, made: Store, buffer: Buffer, indices: tuple[Expr, ...]) -> Stmt:
    """A store with the place that it stores to, and reads, in another buffer."""
    assert type(stmt) is Store  # as that of a total is

    def on_load(e: Expr) -> Expr | None:
        return Load(buffer, indices) if type(e) is Load and e.buffer is made.buffer else None

    return Store(buffer, indices, rewrite(stmt.value, on_load))


def _only_producer(place: Place, step: str) -> tuple[Place, tuple[Expr, ...]]:
    """The place of the block whose value a block takes up, and where it does."""
    function, block = place.function, place.node
    if not is_const(block.predicate, True):
        reason = "it has a predicate; inline it before its loops are split"
        refuse(function, f"{step}: {reason}", block.name)
    inner = [buffer for buffer in buffers_read(block) if buffer in function.allocs]
    found = [(b, writers(function, b)) for b in inner]
    single = [
        (b, made[0])
        for b, made in found
        if len(made) == 1 and all(r is block or r is made[0] for r in readers(function, b))
    ]
    if len(single) != 1:
        for buffer, made in found:
            _refuse_accumulated(place, buffer, made, step)
        names = ", ".join([repr(b.name) for b, _ in single]) or "none"
        reason = "it must read one internal buffer that one block writes and nothing else reads; "
        refuse(function, f"{step}: {reason}there are {names}", block.name)
    buffer, producer = single[0]
    places = {e.indices for e in all_exprs(block) if type(e) is Load and e.buffer is buffer}
    if len(places) != 1:
        reason = f"it reads {buffer.name!r} at {len(places)} places"
        refuse(function, f"{step}: {reason}; one is what a producer can serve", block.name)
    return find_block(function, producer.name), places.pop()


def _refuse_accumulated(place: Place, buffer: Buffer, made: Sequence[Block], step: str) -> None:
    """Refuse a buffer whose elements are not whole when they are first written."""
    producer = next((block for block in made if any(it.kind != "spatial" for it in block.iters)), None)
    producer = producer or next((block for block in made if loads(block.body, buffer)), None)
    if producer is not None:
        reason = f"{producer.name!r} makes the elements of {buffer.name!r} in several steps, and they are whole only "
        reason += f"after the last; to compute {place.node.name!r} beside it, use reverse_compute_at"
        refuse(place.function, f"{step}: {reason}", producer.name)


def _check_served(
    place: Place, store: Store, indices: tuple[Expr, ...], source: Place, made: Store, step: str
) -> None:
    """Refuse a block with points for which the producer makes no element: reads under a condition
    may be of places outside the buffer."""
    if _reads_always(store.value, made.buffer):
        return
    domain = block_domain(place.node, Domain())
    extents: dict[Expr, Expr] = {it.var: it.extent for it in source.node.iters}
    is_whole = (
        tuple([extents.get(i) for i in made.indices]) == made.buffer.shape
        and len(set(made.indices)) == len(made.indices)
        and all(
            can_prove(logical_and(each >= 0, each < extent), domain)
            for each, extent in zip(indices, made.buffer.shape)
        )
    )
    if not is_whole:
        reason = f"it reads {made.buffer.name!r} under a condition, so that some of its elements"
        refuse(place.function, f"{step}: {reason} come from no element of that", place.node.name)


def _reads_always(expr: Expr, buffer: Buffer) -> bool:
    if type(expr) is Load and expr.buffer is buffer:
        return True
    parts = (expr.condition,) if type(expr) is IfThenElse else children(expr)
    return any([_reads_always(part, buffer) for part in parts])


def _check_earlier(source: Place, place: Place, between: Buffer, step: str) -> None:
    """Refuse where the block may not run when its producer does."""
    function, block = place.function, place.node
    reason = f"it does not run after {source.node.name!r}, which makes what it reads"
    shared = common_sequence(source, place)
    if shared is None:
        refuse(function, f"{step}: {reason}", block.name)
    sequence = place.path[shared]
    first, last = [position(sequence, at.path[shared + 1]) for at in (source, place)]
    if first > last:
        refuse(function, f"{step}: {reason}", block.name)
    touched = (stored(block) | loaded(block)) - {between}
    for stmt in substmts(sequence)[first : last + 1]:
        for other in blocks_below(stmt):
            if other is block:
                continue
            for buffer in sorted(touched, key=lambda b: b.name):
                if buffer in stored(other) or (buffer in stored(block) and buffer in loaded(other)):
                    reason = f"{other.name!r}, which runs between, touches {buffer.name!r}"
                    refuse(function, f"{step}: {reason}", other.name)


def _solved(
    block: Block, indices: tuple[Expr, ...], made: Store, source: Place, step: str
) -> dict[Var, Expr]:
    """The iterators of a block, by what its producer stores to: where both touch one element."""
    spatial = [it for it in block.iters if not is_const(it.extent, 1)]
    values: dict[Var, Expr] = {it.var: index(0) for it in block.iters if it not in spatial}
    domain = block_domain(source.node, Domain())
    own = {it.var for it in spatial}  # other variables are extents, which are known
    for mine, its in zip(indices, made.indices):
        form = affine(mine)
        unknown = [atom for atom, _ in form.terms if not variables(atom) & own <= values.keys()]
        if len(unknown) == 1 and type(unknown[0]) is Var and form.coefficient(unknown[0]) == 1:
            rest = tuple([term for term in form.terms if term[0] is not unknown[0]])
            known = substitute(Affine(rest, form.constant).to_expr(), values)
            values[unknown[0]] = simplify(its - known, domain)
    if any(it.var not in values for it in spatial):
        iterators = tuple([it.var for it in spatial])
        fixed = {it.var: index(0) for it in block.iters if it not in spatial}
        map_ = IndexMap(iterators, tuple([substitute(e, fixed) for e in indices]))
        inverse = map_.inverse(assumed([it.extent for it in spatial]))
        if inverse is None:
            reason = "the places that it reads do not tell its iterators"
            refuse(source.function, f"{step}: {reason}", block.name)
        values = {**fixed, **dict(zip(iterators, inverse.apply(made.indices, domain)))}
    return values


def _inside(
    block: Block, indices: tuple[Expr, ...], values: dict[Var, Expr], made: Store, domain: Domain
) -> tuple[Expr, ...]:
    """Where an element that the producer makes is one that the block reads: what is loaded from data to
    tell, and what tells that there is such a place."""
    conditions: list[Expr] = []
    for it in block.iters:
        value = values[it.var]
        conditions += [value >= 0, value < it.extent]
    for mine, its in zip(indices, made.indices):
        conditions.append(eq(substitute(mine, values), its))
    held = [c for c in [simplify(c, domain) for c in conditions] if not is_const(c, True)]
    loading = [c for c in held if any(type(e) is Load for e in walk_expr(c))]
    parts = loading, [c for c in held if c not in loading]
    return tuple([logical_and(*part) for part in parts if part])


def _single_store(function: Function, block: Block) -> Store:
    """The store of a block that can be inlined."""
    step = f"compute_inline(block {block.name!r})"

    def deny(reason: str) -> NoReturn:
        refuse(function, f"{step}: {reason}", mark=block.name)

    store = block.body
    if block.init is not None or any(it.kind != "spatial" for it in block.iters):
        kind = next((it.kind for it in block.iters if it.kind != "spatial"), "reduce")
        deny(f"it has {kind} iterators; only a block without a reduction can be inlined")
    if type(store) is not Store:
        deny("its body is not a single store, which inlining needs")
    if not is_const(block.predicate, True):
        deny("it has a predicate; inline it before its loops are split")
    if any(buffer is store.buffer for buffer in function.outputs):
        deny(f"it writes the output {store.buffer.name!r}, which must be stored")
    if loads(store, store.buffer):
        deny(f"it reads {store.buffer.name!r}, which it writes itself")
    iterators = {it.var for it in block.iters}
    if set(store.indices) != iterators or len(store.indices) != len(iterators):
        reason = "the indices of its store are not exactly its iterators, each once"
        deny(f"{reason}; inline it before changing its layout")
    if len(writers(function, store.buffer)) > 1:
        others = ", ".join(w.name for w in writers(function, store.buffer) if w is not block)
        deny(f"{store.buffer.name!r} is also written by {others}")
    return store


def _inline(stmt: Stmt, store: Store, domain: Domain) -> Stmt:
    """The statement with loads of the stored buffer replaced by the stored value."""

    def on_load(e: Expr) -> Expr | None:
        if type(e) is not Load or e.buffer is not store.buffer:
            return None
        values = {var: value for var, value in zip(store.indices, e.indices) if type(var) is Var}
        return simplify(substitute(store.value, values), domain)

    inner_domain = block_domain(stmt, domain) if type(stmt) is Block else domain
    stmt = map_substmts(stmt, lambda inner: _inline(inner, store, inner_domain))
    return map_exprs(stmt, lambda e: rewrite(e, on_load))
