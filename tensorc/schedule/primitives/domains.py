"""Giving a block other iterators: the same points, counted in another way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tensorc.arith import Domain, IndexMap, simplify
from tensorc.ir.expr import Expr, Load, Var, index, is_const
from tensorc.ir.function import Function
from tensorc.ir.printer import show
from tensorc.ir.stmt import Block, BlockIter, For, Stmt, Store
from tensorc.ir.walk import (
    map_exprs,
    map_substmts,
    rewrite,
    substitute,
    uses,
    variables,
)
from tensorc.schedule.locate import (
    Place,
    find_block,
    fresh,
    kind_text,
    loop_names,
    loops_below,
    refuse,
    replace,
    root_domain,
    starts_at_zero,
)
from tensorc.schedule.primitives.layout import as_map, image_of
from tensorc.schedule.regions import assumed


def transform_block_layout(
    function: Function, block: str, index_map: Callable | IndexMap
) -> Function:
    """Count the points of a block by other iterators, in loops of their own.

    ``for n: for h: for c: block {n, h, c}``, map ``lambda n, h, c: (n*8 + h, c)``
    ->  ``for n_h: for c: block {n_h, c}``, where n is ``n_h // 8`` and h is ``n_h % 8``

    `index_map` takes one index for each iterator of the block, in their order, and returns the new
    ones; a loop <block>.<iterator> is made for each, in this order. An index that is an iterator
    itself keeps its name, others are named by those that they are made of. With `reindex`, a
    convolution becomes a matrix product.

    Requires: each iterator is bound to a serial loop of its own, over its whole extent, and these
    are the innermost loops around the block, with nothing else in them; the map is a bijection on
    the extents; each new iterator is made of iterators of one kind, none of them ordered.

    Raises ScheduleError where one of these does not hold.
    """
    step = f"transform_block_layout(block {block!r})"
    place = find_block(function, block)
    node: Block = place.node
    loops = own_loops(place, step)
    index_map = as_map(function, index_map, len(node.iters), step)
    if len(index_map.inputs) != len(node.iters):
        reason = f"the map takes {len(index_map.inputs)} indices, the block has {len(node.iters)}"
        refuse(function, f"{step}: {reason} iterators", block)
    domain = root_domain(function)
    extents = tuple([it.extent for it in node.iters])
    shape = image_of(function, index_map, extents, domain, step)
    kinds = [_kind(place, index_map, output, step) for output in index_map.outputs]
    inverse = _inverse(place, index_map, extents, shape, step)
    _check_first(place, index_map, kinds, step)

    new = _iterators(node, index_map, shape)
    inner = domain
    for var, extent in zip(new, shape):
        inner = inner.bind(var, 0, extent)
    values = dict(zip([it.var for it in node.iters], inverse.apply(new, inner)))
    taken = loop_names(function) - {loop.var.name for loop in loops}
    bound = []
    for var in new:
        bound.append(Var(fresh(f"{block}.{var.name}", taken)))
        taken.add(bound[-1].name)
    iters = tuple(map(BlockIter, new, shape, kinds, bound))
    nest: Stmt = Block(
        block,
        iters,
        node.predicate,
        node.init and reiterated(node.init, values, inner),
        reiterated(node.body, values, inner),
        node.annotations,
    )
    for var, extent in zip(reversed(bound), reversed(shape)):
        nest = For(var, index(0), extent, "serial", nest)
    return replace(place.up_to(loops[0] if loops else node), nest)


def own_loops(place: Place, step: str) -> tuple[For, ...]:
    """The loops that the iterators of a block are bound to, each to one of its own and over its
    whole extent; refused where they are others, or hold something else."""
    function, node = place.function, place.node
    if not is_const(node.predicate, True):
        reason = "it has a predicate; do this before its loops are split"
        refuse(function, f"{step}: {reason}", node.name)
    moving = [it for it in node.iters if not (is_const(it.extent, 1) and is_const(it.binding, 0))]
    inner = place.path[len(place.path) - 1 - len(moving) : -1] if moving else ()
    path = tuple([stmt for stmt in inner if type(stmt) is For])
    by_var = {loop.var: loop for loop in path}
    for it in moving:
        loop = by_var.pop(it.binding, None) if type(it.binding) is Var else None
        if loop is None:
            reason = f"the iterator {it.var.name!r} is not bound to an innermost loop of its own"
            fix = "do this before splitting, fusing or moving"
            refuse(function, f"{step}: {reason}; {fix}", node.name)
        if not starts_at_zero(loop) or loop.extent != it.extent:
            reason = f"the loop does not run over the whole iterator {it.var.name!r}"
            refuse(function, f"{step}: {reason}", loop.var.name)
        if loop.kind != "serial":
            reason = f"loop {loop.var.name!r} is {kind_text(loop)}; do this while it is serial"
            refuse(function, f"{step}: {reason}", loop.var.name)
        if any(uses(loop.extent, (other.var,)) for other in loops_below(path[0])):
            reason = f"the extent of its iterator {it.var.name!r} depends on other iterators"
            refuse(function, f"{step}: {reason}", node.name)
    return path


def _kind(place: Place, index_map: IndexMap, output: Expr, step: str):
    """The kind of a new iterator: that of those that it is made of."""
    node: Block = place.node
    used = [it for it, var in zip(node.iters, index_map.inputs) if uses(output, (var,))]
    if used and all(it.kind == "reduce" for it in used):
        return "reduce"  # one of a single value as well, as long as there is an init
    kinds = {it.kind for it in used if not is_const(it.extent, 1)}
    if "ordered" in kinds or len(kinds) > 1:
        names = " and ".join(sorted(kinds))
        reason = f"the new iterator {show(output)} is made of {names} ones"
        refuse(place.function, f"{step}: {reason}; it must be all spatial or all reduce", node.name)
    return kinds.pop() if kinds else "spatial"


def _inverse(place: Place, index_map: IndexMap, extents, shape, step: str) -> IndexMap:
    function, name = place.function, place.node.name
    inverse = index_map.inverse(assumed(extents))
    if inverse is None:
        reason = "the map may send several points of the block to one"
        refuse(function, f"{step}: {reason}", name)
    count, box = index(1), index(1)
    for extent in extents:
        count = count * extent
    for extent in shape:
        box = box * extent
    domain = root_domain(function)
    if simplify(count - box, domain) != index(0):
        reason = f"the map sends {show(simplify(count, domain))} points into a box of "
        reason += f"{show(simplify(box, domain))}; it must be onto: pad the block first"
        refuse(function, f"{step}: {reason}", name)
    return inverse


def _check_first(place: Place, index_map: IndexMap, kinds: Sequence[str], step: str) -> None:
    """Refuse where the first step of the reduction, in which `init` runs, is not the first."""
    outputs = index_map.apply([index(0)] * len(index_map.inputs))
    for kind, output, value in zip(kinds, index_map.outputs, outputs):
        if kind == "reduce" and not is_const(value, 0):
            reason = f"the new reduce iterator {show(output)} is not 0 where the old ones are"
            refuse(place.function, f"{step}: {reason}", place.node.name)


def _iterators(block: Block, index_map: IndexMap, shape: Sequence[Expr]) -> list[Var]:
    """New iterators, named by those that they are made of."""
    names = {var: it.var.name for var, it in zip(index_map.inputs, block.iters)}
    found: list[Var] = []
    for axis, output in enumerate(index_map.outputs):
        used = [name for var, name in names.items() if var in variables(output)]
        name = fresh("_".join(used) or f"ax{axis}", [var.name for var in found])
        found.append(Var(name))
    return found


def reiterated(stmt: Stmt, values: Mapping[Var, Expr], domain: Domain) -> Stmt:
    """A statement with variables replaced, and the indices of its accesses simplified."""

    def tidy(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple([simplify(each, domain) for each in indices])

    def on_load(e: Expr) -> Expr | None:
        return Load(e.buffer, tidy(e.indices), e.mask) if type(e) is Load else None

    def visit(s: Stmt) -> Stmt:
        s = map_substmts(map_exprs(s, lambda e: rewrite(substitute(e, values), on_load)), visit)
        return Store(s.buffer, tidy(s.indices), s.value, s.mask) if type(s) is Store else s

    return visit(stmt)
