"""Where an internal buffer lives, and how far apart its rows lie."""

from __future__ import annotations

from tensorc.ir.expr import Buffer
from tensorc.ir.function import Function
from tensorc.ir.verifier import SCOPES
from tensorc.ir.walk import replace_buffers
from tensorc.schedule.locate import find_block, refuse
from tensorc.schedule.regions import buffers_read, buffers_written


def set_scope(function: Function, block: str, buffer: str | int, scope: str) -> Function:
    """Let an internal buffer live in another memory: `buffer`, by name or by number of the block's
    writes.

    alloc T: float32[8, 8]   with "local"   ->   alloc T: float32[8, 8] @local

    Requires a buffer that the block touches and that is no parameter, and a scope: global (the
    workspace), local (the stack or registers of a thread), shared, warp or fragment. On a CPU global
    and local are the same wish: the stack, if it fits. Raises ScheduleError where a requirement is
    not met.
    """
    step = f"set_scope(block {block!r}, buffer {buffer!r})"
    old = _internal(function, block, buffer, step)
    if scope not in SCOPES:
        refuse(function, f"{step}: scope {scope!r} is unknown; known are {', '.join(SCOPES)}", block)
    return function if old.scope == scope else _replaced(function, old, old.with_(scope=scope))


def storage_align(
    function: Function, block: str, buffer: str | int, axis: int, factor: int, offset: int = 0
) -> Function:
    """Let rows of an internal buffer lie `offset` more than a multiple of `factor` elements apart.

    alloc T: float32[8, 32]   with axis 0, 32 and 1   ->   alloc T: float32[8, 32] pad[0: 32 + 1]

    So rows do not fall on the same banks or sets of a cache, or each starts at the beginning of a
    line. The rule holds for the part of the buffer that is kept in the end. `buffer` is a name or
    the number of one of the block's writes; a rule for the same axis is replaced.

    Requires a buffer that the block touches and that is no parameter, one of its axes (from the end,
    if negative), a factor of 1 or more, and an offset from 0 to below the factor. Raises
    ScheduleError where a requirement is not met.
    """
    step = f"storage_align(block {block!r}, buffer {buffer!r})"
    old = _internal(function, block, buffer, step)
    ndim = len(old.shape)
    if type(axis) is not int or not -ndim <= axis < ndim:
        axes = f"{-ndim} to {ndim - 1}" if ndim else "none, the buffer has no axes"
        refuse(function, f"{step}: axis {axis!r} is not one of {axes}", block)
    if type(factor) is not int or factor < 1:
        refuse(function, f"{step}: factor {factor!r} is no integer of 1 or more", block)
    if type(offset) is not int or not 0 <= offset < factor:
        message = f"offset {offset!r} is no integer from 0 to {factor - 1}, below the factor"
        refuse(function, f"{step}: {message}", block)
    rules = {at: (at, by, more) for at, by, more in old.padding}
    rules[axis % ndim] = (axis % ndim, factor, offset)
    return _replaced(function, old, old.with_(padding=tuple([rules[at] for at in sorted(rules)])))


def _internal(function: Function, block: str, buffer: str | int, step: str) -> Buffer:
    """The internal buffer that a block touches under a name, or writes by number."""
    node = find_block(function, block).node
    written = buffers_written(node)
    touched = dict.fromkeys((*written, *buffers_read(node)))
    if type(buffer) is int and 0 <= buffer < len(written):
        found: Buffer | None = written[buffer]
    else:
        found = next((known for known in touched if known.name == buffer), None)
    if found is None:
        names = ", ".join([repr(known.name) for known in touched])
        refuse(function, f"{step}: the block does not touch that buffer; it touches {names}", block)
    if found not in function.allocs:
        fix = "cache_write" if found in function.outputs else "cache_read"
        reason = "it is a parameter, whose memory the caller gives"
        refuse(function, f"{step}: {reason}; cache it first with {fix}", block)
    return found


def _replaced(function: Function, old: Buffer, new: Buffer) -> Function:
    allocs = tuple([new if known is old else known for known in function.allocs])
    return function.with_(body=replace_buffers(function.body, {old: new}), allocs=allocs)
