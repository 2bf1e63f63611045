"""Loads and stores: addresses, and the best instruction for each shape of index."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensorc.codegen.llvm.builder import Value
from tensorc.codegen.llvm.context import (
    MAX_ALIGNMENT,
    Context,
    common_alignment,
    constant,
    emits,
    llvm_type,
    mangled,
    steps,
    vector_type,
)
from tensorc.codegen.llvm.expr import choose, constant_ramp, splat
from tensorc.dtypes import DType, bool_, int64
from tensorc.ir.expr import And, Buffer, Call, Expr, Load, Var, logical_and, wrap
from tensorc.ir.interpreter import evaluate
from tensorc.ir.stmt import Prefetch, Store
from tensorc.ir.walk import walk_expr

_WIDEST_STRIDE = 4  # up to here one wide load and a shuffle are cheaper than a gather
_LONGEST_STEP = 1 << 40  # in bytes, that a type of so many is named for
_STREAM_BYTES = 16  # what allocators align to, and the narrowest vector that goes past the caches
_STREAMING = ("x86_64", "aarch64")  # the machines that have such stores
_TRUE = "splat (i1 true)"
_MOST_BITS = 64  # of a mask that a register of numbers holds


def address(ctx: Context, buffer: Buffer, offset: Expr, extra: int = 0) -> tuple[Value, int]:
    """The address of an element, and what it is known to be a multiple of in bytes. Steps wrap as the
    arithmetic of addresses does.

    The terms are added from the outermost to the innermost variable, so that inner loops find
    their part of the sum made.
    """
    pointer = ctx.pointers[buffer]
    size = buffer.dtype.bytes
    terms, fixed = ctx.linear(offset)
    fixed += extra
    where, alignment = pointer.value, pointer.alignment
    moving = []
    variables = ctx.variables
    for atom, coefficient in terms:
        value = variables.get(atom)
        if value is None:
            value = ctx.emit(atom)
        if value.const is not None:
            fixed += coefficient * value.const
        else:
            moving.append((value.depth, value, wrap(coefficient * size, int64)))
    if len(moving) > 1:
        moving.sort(key=_depth)
    for _, value, step in moving:
        alignment = math.gcd(alignment, step)
        where = _advance(ctx, where, value, step)
    if fixed:
        skipped = wrap(fixed * size, int64)
        alignment = common_alignment(alignment, skipped)
        text = f"getelementptr i8, {where.typed}, i64 {skipped}"
        where = ctx.builder.hoist(text, "ptr", where.depth)
    return where, min(alignment, MAX_ALIGNMENT)


def _depth(term: tuple) -> int:
    return term[0]


def _advance(ctx: Context, where: Value, value: Value, step: int) -> Value:
    if not 0 <= step <= _LONGEST_STEP:
        value = ctx.builder.hoist(f"mul {value.typed}, {step}", "i64", value.depth)
        step = 1
    unit = "i8" if step == 1 else f"[{step} x i8]"
    text = f"getelementptr {unit}, {where.typed}, {value.typed}"
    return ctx.builder.hoist(text, "ptr", max(where.depth, value.depth))


@emits(Load)
def emit_load(ctx: Context, load: Load) -> Value:
    """The element or the vector of elements that a load names."""
    (offset,) = load.indices
    buffer, lanes = load.buffer, offset.dtype.lanes
    if lanes == 1:
        mask = None if load.mask is None else ctx.emit(load.mask)
        return _load_scalar(ctx, buffer, offset, mask)
    mask = _mask(ctx, load.mask, lanes)
    ramp = constant_ramp(offset)
    if ramp is None:
        return _gather(ctx, load, _lane_pointers(ctx, buffer, offset), mask)
    base, stride = ramp
    if stride == 0 and mask is None:
        return splat(ctx, _load_scalar(ctx, buffer, base, None), load.dtype)
    if stride == 1:
        return _load_contiguous(ctx, buffer, address(ctx, buffer, base), load.dtype, mask)
    if stride == -1:
        start = address(ctx, buffer, base, 1 - lanes)
        back = mask and _reverse(ctx, mask, lanes)
        return _reverse(ctx, _load_contiguous(ctx, buffer, start, load.dtype, back), lanes)
    if 1 < stride <= _WIDEST_STRIDE and mask is None:
        wide = load.dtype.with_lanes((lanes - 1) * stride + 1)
        value = _load_contiguous(ctx, buffer, address(ctx, buffer, base), wide, None)
        return _shuffle(ctx, value, [lane * stride for lane in range(lanes)])
    if 1 < stride <= _WIDEST_STRIDE and mask is not None and _has_masks(ctx, load.dtype):
        wide = load.dtype.with_lanes(lanes * stride)
        value = _load_contiguous(ctx, buffer, address(ctx, buffer, base), wide, _spread(ctx, mask, lanes, stride))
        return _shuffle(ctx, value, [lane * stride for lane in range(lanes)])
    return _gather(ctx, load, _strided_pointers(ctx, buffer, base, stride, lanes), mask)


def _has_masks(ctx: Context, dtype: DType) -> bool:
    """Whether a load under a mask is one instruction, which touches nothing where the mask is false."""
    enabled = ctx.module.target.enabled
    return "avx512bw" in enabled or (dtype.bytes >= 4 and "avx512f" in enabled)


def _spread(ctx: Context, mask: Value, lanes: int, stride: int) -> Value:
    """The lanes of a mask so many apart, and false between them."""
    places = [f"i32 {lanes if lane % stride else lane // stride}" for lane in range(lanes * stride)]
    order = f"<{lanes * stride} x i32> <{', '.join(places)}>"
    text = f"shufflevector {mask.typed}, {mask.type} zeroinitializer, {order}"
    return ctx.builder.hoist(text, vector_type("i1", lanes * stride), mask.depth)


def emit_store(ctx: Context, store: Store) -> None:
    """Write an element, or a vector of elements."""
    (offset,) = store.indices
    buffer, lanes = store.buffer, offset.dtype.lanes
    dtype = buffer.dtype.with_lanes(lanes)
    value = ctx.emit(store.value)
    mark_written(ctx, buffer)
    if lanes == 1:
        _store_scalar(ctx, buffer, offset, value)
        return
    if store.value.dtype.lanes == 1:
        value = splat(ctx, value, dtype)
    value = _to_memory(ctx, value, dtype)
    mask = _mask(ctx, store.mask, lanes)
    ramp = constant_ramp(offset)
    if ramp is None:
        _scatter(ctx, dtype, _lane_pointers(ctx, buffer, offset), value, mask)
        return
    base, stride = ramp
    if stride == 1:
        start = address(ctx, buffer, base)
        if store.stream and mask is None and ctx.module.target.triple.startswith(_STREAMING):
            _store_past_caches(ctx, start, value, dtype)
        else:
            _store_contiguous(ctx, start, value, dtype, mask)
    elif stride == -1:
        start = address(ctx, buffer, base, 1 - lanes)
        back = mask and _reverse(ctx, mask, lanes)
        _store_contiguous(ctx, start, _reverse(ctx, value, lanes), dtype, back)
    else:
        where = _strided_pointers(ctx, buffer, base, stride, lanes)
        _scatter(ctx, dtype, where, value, mask)


def emit_prefetch(ctx: Context, stmt: Prefetch) -> None:
    """Ask for the cache line of an element, wherever its address lies."""
    (offset,) = stmt.indices
    where, _ = address(ctx, stmt.buffer, offset)
    ctx.module.declare("llvm.prefetch.p0", "void (ptr, i32, i32, i32)")
    ctx.builder.do(f"call void @llvm.prefetch.p0({where.typed}, i32 0, i32 3, i32 1)")


def settle_streams(ctx: Context) -> None:
    """Let others see what was stored past the caches, before they are told that it is done."""
    if ctx.streams and ctx.module.target.triple.startswith("x86_64"):
        ctx.module.declare("llvm.x86.sse.sfence", "void ()")
        ctx.builder.do("call void @llvm.x86.sse.sfence()")


def mark_written(ctx: Context, buffer: Buffer) -> None:
    """What was read of a buffer no longer holds."""
    ctx.versions[buffer] = ctx.versions.get(buffer, 0) + 1


def _load_scalar(ctx: Context, buffer: Buffer, offset: Expr, mask: Value | None) -> Value:
    if mask is None or mask.const == 1:
        where, alignment = address(ctx, buffer, offset)
        kind = llvm_type(buffer.dtype, memory=True)
        text = f"load {kind}, {where.typed}, align {alignment}"
        return _from_memory(ctx, _read(ctx, buffer, text, kind, where.depth), buffer.dtype)
    zero = constant(0, buffer.dtype)
    return choose(
        ctx, mask, buffer.dtype, lambda: _load_scalar(ctx, buffer, offset, None), lambda: zero
    )


def _load_contiguous(
    ctx: Context, buffer: Buffer, start: tuple[Value, int], dtype: DType, mask: Value | None
) -> Value:
    where, alignment = start
    kind = llvm_type(dtype, memory=True)
    if mask is None:
        text = f"load {kind}, {where.typed}, align {alignment}"
        return _from_memory(ctx, _read(ctx, buffer, text, kind, where.depth), dtype)
    width = max(1, ctx.module.target.vector_bytes // dtype.scalar.bytes)
    if dtype.lanes <= width or dtype.lanes % width or ctx.module.target.has("avx512f"):
        return _from_memory(ctx, _load_masked(ctx, buffer, start, dtype, mask), dtype)
    # LLVM 22 reads parts that a wide mask switches off where others of it are known, and so takes them for values
    parts = []
    for first in range(0, dtype.lanes, width):
        part = dtype.with_lanes(width)
        at = ctx.builder.hoist(f"getelementptr i8, {where.typed}, i64 {first * dtype.scalar.bytes}", "ptr", where.depth)
        own = _lanes_of(ctx, mask, range(first, first + width))
        parts.append(_load_masked(ctx, buffer, (at, alignment), part, own))
    while len(parts) > 1:
        parts += [Value("poison", parts[0].type)] * (len(parts) % 2)
        pairs = zip(parts[::2], parts[1::2])
        parts = [_lanes_of(ctx, a, range(2 * _count(a)), b) for a, b in pairs]
    whole = parts[0] if _count(parts[0]) == dtype.lanes else _lanes_of(ctx, parts[0], range(dtype.lanes))
    return _from_memory(ctx, whole, dtype)


def _load_masked(
    ctx: Context, buffer: Buffer, start: tuple[Value, int], dtype: DType, mask: Value
) -> Value:
    where, alignment = start
    kind = llvm_type(dtype, memory=True)
    name = f"llvm.masked.load.{mangled(dtype, memory=True)}.p0"
    ctx.module.declare(name, f"{kind} (ptr, {mask.type}, {kind})")
    pointer = f"ptr align {alignment} {where.ref}"
    text = f"call {kind} @{name}({pointer}, {mask.typed}, {kind} zeroinitializer)"
    return _read(ctx, buffer, text, kind, max(where.depth, mask.depth))


def _count(value: Value) -> int:
    """The lanes of a vector."""
    return int(value.type[1:].split(" x ")[0])


def _lanes_of(ctx: Context, value: Value, lanes: Sequence[int], other: Value | None = None) -> Value:
    """Some lanes of a vector, or of two in a row."""
    element = value.type[1:-1].split(" x ")[1]
    second = f"{value.type} poison" if other is None else other.typed
    places = ", ".join([f"i32 {lane}" for lane in lanes])
    text = f"shufflevector {value.typed}, {second}, <{len(lanes)} x i32> <{places}>"
    depth = value.depth if other is None else max(value.depth, other.depth)
    return ctx.builder.hoist(text, f"<{len(lanes)} x {element}>", depth)


def _read(ctx: Context, buffer: Buffer, text: str, kind: str, depth: int) -> Value:
    return ctx.builder.load(text, kind, depth, buffer, ctx.versions.get(buffer, 0))


def _gather(ctx: Context, load: Load, where: tuple[Value, int], mask: Value | None) -> Value:
    places, alignment = where
    kind, lanes = llvm_type(load.dtype, memory=True), load.dtype.lanes
    mask = mask or Value(_TRUE, vector_type("i1", lanes))
    name = f"llvm.masked.gather.{mangled(load.dtype, memory=True)}.v{lanes}p0"
    ctx.module.declare(name, f"{kind} ({places.type}, {mask.type}, {kind})")
    pointers = f"{places.type} align {alignment} {places.ref}"
    text = f"call {kind} @{name}({pointers}, {mask.typed}, {kind} zeroinitializer)"
    value = _read(ctx, load.buffer, text, kind, max(places.depth, mask.depth))
    return _from_memory(ctx, value, load.dtype)


def _scatter(
    ctx: Context, dtype: DType, where: tuple[Value, int], value: Value, mask: Value | None
) -> None:
    places, alignment = where
    mask = mask or Value(_TRUE, vector_type("i1", dtype.lanes))
    name = f"llvm.masked.scatter.{mangled(dtype, memory=True)}.v{dtype.lanes}p0"
    ctx.module.declare(name, f"void ({value.type}, {places.type}, {mask.type})")
    pointers = f"{places.type} align {alignment} {places.ref}"
    ctx.builder.do(f"call void @{name}({value.typed}, {pointers}, {mask.typed})")


def _lane_pointers(ctx: Context, buffer: Buffer, offset: Expr) -> tuple[Value, int]:
    """One address a lane, and the alignment of each."""
    return _pointers(ctx, buffer, ctx.pointers[buffer].value, ctx.emit(offset), offset.dtype.lanes)


def _strided_pointers(
    ctx: Context, buffer: Buffer, base: Expr, stride: int, lanes: int
) -> tuple[Value, int]:
    """As `_lane_pointers`, from one address and constant offsets."""
    scalar = "i32" if abs(stride) * lanes < 1 << 31 else "i64"
    offsets = steps(lanes, stride, scalar)
    return _pointers(ctx, buffer, address(ctx, buffer, base)[0], offsets, lanes)


def _pointers(
    ctx: Context, buffer: Buffer, base: Value, offsets: Value, lanes: int
) -> tuple[Value, int]:
    kind = llvm_type(buffer.dtype, memory=True)
    text = f"getelementptr {kind}, {base.typed}, {offsets.typed}"
    places = ctx.builder.hoist(text, f"<{lanes} x ptr>", max(base.depth, offsets.depth))
    return places, math.gcd(buffer.dtype.bytes, ctx.pointers[buffer].alignment)


def _store_scalar(ctx: Context, buffer: Buffer, offset: Expr, value: Value) -> None:
    where, alignment = address(ctx, buffer, offset)
    ctx.builder.do(
        f"store {_to_memory(ctx, value, buffer.dtype).typed}, {where.typed}, align {alignment}"
    )


def _store_contiguous(
    ctx: Context, start: tuple[Value, int], value: Value, dtype: DType, mask: Value | None
) -> None:
    where, alignment = start
    if mask is None:
        ctx.builder.do(f"store {value.typed}, {where.typed}, align {alignment}")
        return
    name = f"llvm.masked.store.{mangled(dtype, memory=True)}.p0"
    ctx.module.declare(name, f"void ({value.type}, ptr, {mask.type})")
    ctx.builder.do(
        f"call void @{name}({value.typed}, ptr align {alignment} {where.ref}, {mask.typed})"
    )


def _store_past_caches(
    ctx: Context, start: tuple[Value, int], value: Value, dtype: DType
) -> None:
    """A store of parts of 16 bytes that lines do not pass through the caches for; where the address
    is no multiple of 16, an ordinary one."""
    where, alignment = start
    lanes = _STREAM_BYTES // dtype.scalar.bytes
    if dtype.lanes % lanes:
        _store_contiguous(ctx, start, value, dtype, None)
        return
    ctx.streams = True
    ctx.module.nontemporal = True
    if alignment % _STREAM_BYTES == 0:
        _store_parts(ctx, where, value, dtype, lanes)
        return
    build, depth = ctx.builder, where.depth
    number = build.hoist(f"ptrtoint {where.typed} to i64", "i64", depth)
    rest = build.hoist(f"and {number.typed}, {_STREAM_BYTES - 1}", "i64", depth)
    even = build.hoist(f"icmp eq {rest.typed}, 0", "i1", depth)
    labels = [build.label(what) for what in ("aligned", "unaligned", "stored")]
    build.end(f"br {even.typed}, label %{labels[0]}, label %{labels[1]}")
    build.start(labels[0])
    _store_parts(ctx, where, value, dtype, lanes)
    build.end(f"br label %{labels[2]}")
    build.start(labels[1])
    _store_contiguous(ctx, start, value, dtype, None)
    build.end(f"br label %{labels[2]}")
    build.start(labels[2])


def _store_parts(ctx: Context, where: Value, value: Value, dtype: DType, lanes: int) -> None:
    for first in range(0, dtype.lanes, lanes):
        part = _shuffle(ctx, value, list(range(first, first + lanes)))
        at = where
        if first:
            text = f"getelementptr i8, {where.typed}, i64 {first * dtype.scalar.bytes}"
            at = ctx.builder.emit(text, "ptr")
        ctx.builder.do(f"store {part.typed}, {at.typed}, align {_STREAM_BYTES}, !nontemporal !0")


def _from_memory(ctx: Context, value: Value, dtype: DType) -> Value:
    if not dtype.is_bool:
        return value
    return ctx.builder.pure(
        f"icmp ne {value.typed}, zeroinitializer", llvm_type(dtype), value.depth
    )


def _to_memory(ctx: Context, value: Value, dtype: DType) -> Value:
    if not dtype.is_bool:
        return value
    kind = llvm_type(dtype, memory=True)
    return ctx.builder.pure(f"zext {value.typed} to {kind}", kind, value.depth)


def _shuffle(ctx: Context, value: Value, order: list[int]) -> Value:
    places = ", ".join([f"i32 {place}" for place in order])
    kind = vector_type(value.type.split(" x ")[1][:-1], len(order))
    text = f"shufflevector {value.typed}, {value.type} poison, <{len(order)} x i32> <{places}>"
    return ctx.builder.pure(text, kind, value.depth)


def _reverse(ctx: Context, value: Value, lanes: int) -> Value:
    return _shuffle(ctx, value, list(range(lanes - 1, -1, -1)))


def _mask(ctx: Context, mask: Expr | None, lanes: int) -> Value | None:
    """The lanes to touch; None for all."""
    if mask is None:
        return None
    known, others = _conjuncts(mask)
    if known and others and lanes <= _MOST_BITS and _forgets_lanes(ctx):
        bits = _bits(logical_and(*known), lanes)
        mask = logical_and(*others)
    else:
        bits = (1 << lanes) - 1
    value = splat(ctx, ctx.emit(mask), bool_.with_lanes(lanes))
    if bits != (1 << lanes) - 1:
        text = f"and {value.typed}, {_untold(ctx, bits, lanes).ref}"
        value = ctx.builder.hoist(text, value.type, value.depth)
    return None if value.ref == _TRUE else value


def _forgets_lanes(ctx: Context) -> bool:
    """Whether LLVM (22) may take a lane of a mask for true that is known to be false, where the mask is known in part.

    It does where there are no registers for masks and a register of lanes is all false on one side of an `and` and all
    true on the other, as with an element that no lane reads and that is therefore known.
    """
    target = ctx.module.target
    return target.triple.startswith("x86_64") and "avx512f" not in target.enabled


def _conjuncts(mask: Expr) -> tuple[list[Expr], list[Expr]]:
    """The conditions that make a mask: those known for each lane, and the others."""
    if type(mask) is And:
        parts = [_conjuncts(mask.a), _conjuncts(mask.b)]
        return [e for known, _ in parts for e in known], [e for _, others in parts for e in others]
    return ([], [mask]) if any(type(e) in (Load, Var, Call) for e in walk_expr(mask)) else ([mask], [])


def _bits(mask: Expr, lanes: int) -> int:
    """The lanes of a mask that is known, as the bits of a number."""
    value = evaluate(mask, {})
    return sum(1 << lane for lane in range(lanes) if (value[lane] if mask.dtype.lanes > 1 else value))


def _untold(ctx: Context, bits: int, lanes: int) -> Value:
    """A mask that LLVM does not know."""
    build, kind = ctx.builder, vector_type("i1", lanes)
    number = build.hoist(f'call i64 asm "", "=r,0"(i64 {wrap(bits, int64)})', "i64", 0)
    if lanes < _MOST_BITS:
        number = build.hoist(f"trunc {number.typed} to i{lanes}", f"i{lanes}", 0)
    return build.hoist(f"bitcast {number.typed} to {kind}", kind, 0)
