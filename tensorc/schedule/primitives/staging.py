"""Working on a copy of a window of a buffer within a loop."""

from __future__ import annotations

from collections.abc import Sequence

from tensorc.arith import Domain, can_prove, simplify
from tensorc.errors import ExpressionError
from tensorc.ir.expr import Buffer, Expr, Var, as_index, index
from tensorc.ir.function import Function
from tensorc.ir.parser import parse_expr
from tensorc.ir.printer import show
from tensorc.ir.walk import replace_buffers
from tensorc.schedule.dependence import refuse_early_start
from tensorc.schedule.locate import (
    Place,
    block_names,
    block_places,
    blocks_below,
    find_block,
    find_loop,
    fresh_block,
    fresh_buffer,
    insert_after,
    insert_before,
    loop_names,
    refuse,
    replace,
)
from tensorc.schedule.primitives.caching import cache_of, check_used
from tensorc.schedule.regions import Span, accesses, buffers_read, buffers_written, clamp, keep_ranges
from tensorc.schedule.windows import (
    check_parallel,
    fills_window,
    is_defined,
    name_of,
    needed,
    trimmed,
    window_nest,
)

MODES = ("auto", "in", "out", "inout")


def stage(
    function: Function,
    place: str,
    buffer: str,
    window: str | None = None,
    mode: str = "auto",
    scope: str = "global",
) -> tuple[Function, tuple[str, ...]]:
    """Let a loop or block work on a copy of a window of a buffer, which is filled just before it, or
    written back just after it, or both.

    ``for io: for ii: C[io*8 + ii] += ...``, window ``"C[io*8 : io*8 + 8]"``
    ->  ``for io: {for ax0 in 0..8: C_stage[io*8 + ax0] = C[io*8 + ax0];
    for ii: C_stage[io*8 + ii] += ...;  for ax0 in 0..8: C[io*8 + ax0] = C_stage[io*8 + ax0]}``

    `window` names the buffer, and for each dimension a range ``first : end`` or one index, over the
    loops around `place`; without it, it is what `place` touches. The copy, <buffer>_stage, is
    indexed like the buffer; only the window of it takes memory. `mode` "in" fills it by a block
    <buffer>_stage, "out" writes it back by a block <buffer>_stage_out, "inout" does both; "auto" does
    what is needed. Returns the function and the names of the new blocks.

    Requires: all that `place` touches of the buffer lies in the window; for "in", it does not write
    the buffer; for "out", it writes the whole window before it reads it; no loop around `place` is
    vectorized, and iterations of parallel ones still touch different elements.

    Raises ScheduleError where one of these does not hold.
    """
    step = f"stage({place!r}, buffer {buffer!r})"
    at = _find(function, place)
    old = _touched(at, buffer, step)
    _check_around(at, mode, step)
    domain = at.domain()
    spans = needed(at, old, domain) if window is None else _parsed(at, old, window, domain, step)
    if window is not None:
        _check_inside(at, old, spans, domain, step)
    spans = tuple([trimmed(span, extent) for span, extent in zip(spans, old.shape)])
    reads_in, writes_out = _direction(at, old, spans, domain, mode, step)
    if reads_in:
        _check_defined(at, old, spans, domain, step)
        for block in blocks_below(at.node):
            refuse_early_start(at, block, old, step)

    copy = cache_of(function, old, scope, step).with_(
        name=fresh_buffer(function, f"{old.name}_stage")
    )
    staged = keep_ranges(at.node, lambda stmt: replace_buffers(stmt, {old: copy}))
    check_used(function, staged, copy, old, step)
    if old in buffers_read(staged) and old in buffers_written(at.node):
        refuse(function, f"{step}: how far loops go there depends on {old.name!r}, which is written there", place)
    changed = replace(at, staged)
    changed = changed.with_(allocs=(*function.allocs, copy))
    made: list[str] = []
    if reads_in:
        made.append(fresh_block(changed, copy.name))
        nest = window_nest(changed, made[-1], old, copy, spans, domain)
        changed = insert_before(_find(changed, place), nest)
    if writes_out:
        made.append(fresh_block(changed, f"{copy.name}_out"))
        nest = window_nest(changed, made[-1], copy, old, spans, domain)
        changed = insert_after(_find(changed, place), nest)
    check_parallel(at, changed, step)
    return changed, tuple(made)


def _find(function: Function, name: str) -> Place:
    if name not in block_names(function) or name in loop_names(function):
        return find_loop(function, name)
    return find_block(function, name)


def _touched(at: Place, buffer: str, step: str) -> Buffer:
    known = dict.fromkeys((*buffers_written(at.node), *buffers_read(at.node)))
    old = next((each for each in known if each.name == buffer), None)
    if old is None:
        names = ", ".join([repr(each.name) for each in known]) or "none"
        reason = f"nothing there touches that buffer; it touches {names}"
        refuse(at.function, f"{step}: {reason}", name_of(at))
    return old


def _check_around(at: Place, mode: str, step: str) -> None:
    if mode not in MODES:
        known = ", ".join(MODES)
        refuse(at.function, f"{step}: mode {mode!r} is unknown; known are {known}", name_of(at))
    for loop in at.loops:
        if loop.kind == "vectorized":
            reason = f"it lies in the vectorized loop {loop.var.name!r}; stage before vectorizing"
            refuse(at.function, f"{step}: {reason}", loop.var.name)


def _parsed(at: Place, old: Buffer, window: str, domain: Domain, step: str) -> tuple[Span, ...]:
    """The window that a text such as ``A[i*8 : i*8 + 8, 0:16]`` names."""
    name, _, rest = str(window).strip().partition("[")
    parts = _split(rest[:-1], ",") if rest.endswith("]") else []
    if name.strip() != old.name or len(parts) != len(old.shape):
        example = ", ".join(["first : end"] * len(old.shape))
        reason = f"the window {window!r} is not of the form {old.name}[{example}]"
        refuse(at.function, f"{step}: {reason}", name_of(at))
    names = {loop.var.name: loop.var for loop in at.loops}
    names.update({var.name: var for var in at.function.scalars})
    shapes = [e for b in at.function.params for e in b.shape if type(e) is Var]
    names.update({var.name: var for var in shapes})
    spans = []
    for part, extent in zip(parts, old.shape):
        ends = _split(part, ":")
        try:
            if len(ends) == 1:
                first = _read(ends[0], names)
                spans.append(Span(first, first))
                continue
            lo = _read(ends[0], names) if ends[0].strip() else index(0)
            end = _read(ends[1], names) if ends[1].strip() else extent
        except ExpressionError as error:
            problem = error
        else:
            spans.append(Span(simplify(lo, domain), simplify(end - 1, domain)))
            continue
        reason = f"the window {window!r} is not over the loops around it: "
        reason += str(problem).removeprefix("line 1: ")
        refuse(at.function, f"{step}: {reason}", name_of(at))
    return tuple(spans)


def _read(text: str, names) -> Expr:
    return as_index(parse_expr(text.strip(), names))


def _check_defined(
    at: Place, old: Buffer, spans: Sequence[Span], domain: Domain, step: str
) -> None:
    """Refuse to fill the copy with elements that may not have been written."""
    if is_defined(at, old, spans, domain):
        return
    reason = f"not every element of the window of {old.name!r} is known to be written before"
    writing = [p.node for p in block_places(at) if old in buffers_written(p.node)]
    reduces = any(each.init is not None for each in writing)
    fix = "; decompose the reduction first" if reduces else ""
    refuse(at.function, f"{step}: {reason}{fix}", name_of(at))


def _split(text: str, mark: str) -> list[str]:
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == mark and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _check_inside(at: Place, old: Buffer, spans, domain: Domain, step: str) -> None:
    for access in accesses(at.node, old, domain):
        for each, span, extent in zip(access.indices, spans, old.shape):
            found = access.span(each)
            if found is not None and _lies_in(found, span, domain):
                continue
            if not _lies_in(clamp(found, extent, access.domain), span, domain):
                reason = f"it touches {old.name!r} at the index {show(access.over_loops(each))}"
                end = simplify(span.hi + 1, domain)
                window = f"which is not known to lie in {show(span.lo)} : {show(end)}"
                refuse(at.function, f"{step}: {reason}, {window}", name_of(at))


def _lies_in(inner: Span, outer: Span, domain: Domain) -> bool:
    return can_prove(inner.lo >= outer.lo, domain) and can_prove(inner.hi <= outer.hi, domain)


def _direction(
    at: Place, old: Buffer, spans: Sequence[Span], domain: Domain, mode: str, step: str
) -> tuple[bool, bool]:
    """Whether the copy is filled before and written back after."""
    is_written = old in buffers_written(at.node)
    if not is_written:
        if mode in ("out", "inout"):
            reason = f"nothing there writes {old.name!r}; mode 'in' copies it"
            refuse(at.function, f"{step}: {reason}", name_of(at))
        return True, False
    if mode == "in":
        reason = f"it writes {old.name!r}, which must be written back: mode 'inout'"
        refuse(at.function, f"{step}: {reason}", name_of(at))
    is_filled = mode != "inout" and fills_window(at, old, spans, domain)
    if mode == "out" and not is_filled:
        reason = "not every element of the window is known to be written before it is read; "
        refuse(at.function, f"{step}: {reason}mode 'inout' fills it first", name_of(at))
    return not is_filled, True
