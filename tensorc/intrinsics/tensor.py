"""Tensor intrinsics: a small nest, and what may be run in its place."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tensorc.errors import ExpressionError, TensorcError
from tensorc.intrinsics.instructions import INSTRUCTIONS
from tensorc.ir.expr import Buffer, Call, Const, Load, Var
from tensorc.ir.function import Function
from tensorc.ir.interpreter import interpret
from tensorc.ir.parser import parse
from tensorc.ir.printer import show
from tensorc.ir.stmt import For, Stmt, Store
from tensorc.ir.verifier import verify
from tensorc.ir.walk import all_exprs
from tensorc.target import Target

TRIALS = 8
_ROUNDINGS = 64  # that the two sides of a pair may differ by, in units of the last place of the terms' sum


@dataclass(frozen=True, slots=True)
class TensorIntrin:
    """A pair (meaning, implementation) of functions over the same tiles.

    `loops` and `store` are the nest of the meaning, `instructions` those that the implementation calls. With `dense`,
    the elements of each tile must lie one after the other in memory, as in the tile's own row-major order.
    """

    name: str
    meaning: Function
    implementation: Function
    loops: tuple[For, ...]
    store: Store
    instructions: tuple[str, ...]
    dense: bool

    def runs_on(self, target: Target | None) -> bool:
        """Whether a processor has the instructions; None stands for any that could."""
        return target is None or all(INSTRUCTIONS[name].runs_on(target) for name in self.instructions)

    @property
    def needs(self) -> str:
        """The features that the instructions need, in words."""
        found = [INSTRUCTIONS[name] for name in self.instructions]
        words = [" or ".join([" and ".join(each) for each in one.features]) for one in found]
        return ", ".join(dict.fromkeys(words))

    @property
    def text(self) -> str:
        """All that code made with it depends on."""
        return f"{show(self.meaning)}\n{show(self.implementation)}\n{self.dense}"


_Source = tuple[str, str, bool]  # meaning, implementation, dense: what is read when it is asked for
_REGISTRY: dict[str, TensorIntrin | _Source] = {}


def names() -> tuple[str, ...]:
    """The tensor intrinsics that there are."""
    return tuple(_REGISTRY)


def find(name: str) -> TensorIntrin | None:
    """The tensor intrinsic of this name."""
    found = _REGISTRY.get(name)
    if isinstance(found, tuple):
        found = _REGISTRY[name] = _made(name, *found)
    return found


def declare(name: str, meaning: str, implementation: str, *, dense: bool = True) -> None:
    """As `tensor_intrin`, for pairs that the tests try out: they are read when they are first used."""
    if name in _REGISTRY:
        raise ExpressionError(f"tensor_intrin({name!r}): the name is taken")
    _REGISTRY[name] = meaning, implementation, dense


def tensor_intrin(
    name: str, meaning: Function | str, implementation: Function | str, *, dense: bool = True
) -> TensorIntrin:
    """Register what `tensorize(loop, name)` may put in the place of a nest.

    Both are functions of the IR, or their text, with the same parameters: tiles of constant shape, one of them the
    output. The meaning is loops of constant extents around one store, whose accesses are by the loops' variables, one a
    dimension. The implementation is a flat function (docs/ir.md, Stages), which may hold vectors, intrinsics and
    instructions, and gives accesses by offsets in the row-major tiles. The interpreter runs both on random tiles, and
    a pair that differs is refused: integers must agree exactly, floats but for the order of sums.

    Raises ExpressionError for a name that is taken, and for a pair that is not of this form, or not sound.
    """
    if name in _REGISTRY:
        raise ExpressionError(f"tensor_intrin({name!r}): the name is taken")
    made = _made(name, meaning, implementation, dense)
    try_out(made)
    _REGISTRY[name] = made
    return made


def _made(name: str, meaning: Function | str, implementation: Function | str, dense: bool) -> TensorIntrin:
    step = f"tensor_intrin({name!r})"
    first = _read(step, "meaning", meaning, "nest")
    second = _read(step, "implementation", implementation, "flat")
    _check_parameters(step, first, second)
    loops, store = _nest(step, first)
    called = dict.fromkeys([e.name for e in all_exprs(second.body) if type(e) is Call and e.name in INSTRUCTIONS])
    return TensorIntrin(name, first, second, loops, store, tuple(called), dense)


def _read(step: str, what: str, given: Function | str, stage: Literal["nest", "flat"]) -> Function:
    try:
        function = parse(given) if isinstance(given, str) else given
        if isinstance(function, Function):
            verify(function, stage)
            return function
        problem = f"{given!r} is no function of the IR"
    except TensorcError as error:
        problem = str(error)
    raise ExpressionError(f"{step}: the {what} is not well formed: {problem}")


def _check_parameters(step: str, meaning: Function, implementation: Function) -> None:
    for function in (meaning, implementation):
        if function.scalars or function.allocs or len(function.outputs) != 1:
            raise ExpressionError(f"{step}: {function.name} has scalars, internal buffers, or not one output")
        for param in function.params:
            if param.strides is not None or any(type(extent) is not Const for extent in param.shape):
                raise ExpressionError(f"{step}: the tile {param.name!r} has strides or symbolic extents")
    signatures = [
        [(p.name, p.dtype, p.shape, p in function.outputs) for p in function.params]
        for function in (meaning, implementation)
    ]
    if signatures[0] != signatures[1]:
        raise ExpressionError(f"{step}: the meaning and the implementation have different parameters")


def _nest(step: str, meaning: Function) -> tuple[tuple[For, ...], Store]:
    loops: list[For] = []
    stmt: Stmt = meaning.body
    while type(stmt) is For:
        if type(stmt.extent) is not Const or stmt.extent.value < 2 or stmt.start != Const(0, stmt.start.dtype):
            raise ExpressionError(f"{step}: the loop {stmt.var.name!r} of the meaning is not 0 .. 2 or more")
        loops.append(stmt)
        stmt = stmt.body
    if type(stmt) is not Store or stmt.mask is not None:
        raise ExpressionError(f"{step}: the meaning is not loops around one store")
    own = {loop.var: loop.extent for loop in loops}
    accesses = [(stmt.buffer, stmt.indices)]
    accesses += [(e.buffer, e.indices) for e in all_exprs(stmt) if type(e) is Load]
    for buffer, indices in accesses:
        if len(set(indices)) < len(indices) or [own.get(i) for i in indices if type(i) is Var] != list(buffer.shape):
            raise ExpressionError(f"{step}: {buffer.name!r} is not accessed by whole loops, one a dimension")
        if buffer is stmt.buffer and indices != stmt.indices:
            raise ExpressionError(f"{step}: {buffer.name!r} is read where it is not written")
    return tuple(loops), stmt


def try_out(intrin: TensorIntrin) -> None:
    """Raise ExpressionError for a pair whose sides differ on random tiles."""
    step = f"tensor_intrin({intrin.name!r})"
    rng = np.random.default_rng(0)
    output = intrin.meaning.outputs[0]
    for trial in range(TRIALS):
        tiles = [_random(rng, param, extreme=trial % 2 == 1) for param in intrin.meaning.params]
        try:
            wanted = interpret(intrin.meaning, *[tile.copy() for tile in tiles])
            found = interpret(intrin.implementation, *[tile.copy() for tile in tiles])
        except TensorcError as error:
            raise ExpressionError(f"{step}: trying it out failed: {error}") from None
        if not _agree(wanted, found, intrin, tiles):
            problem = f"the implementation gives another {output.name!r} than the meaning"
            raise ExpressionError(f"{step}: for random tiles {problem}")


def _random(rng: np.random.Generator, param: Buffer, extreme: bool) -> np.ndarray:
    shape, dtype = _shape(param), param.dtype
    if dtype.is_bool:
        return rng.integers(0, 2, shape).astype(dtype.numpy)
    if dtype.is_float:
        return rng.standard_normal(shape).astype(dtype.numpy)
    least, most = int(dtype.min), int(dtype.max)
    if extreme:
        return rng.choice(np.array([least, most, 0, 1], dtype.numpy), shape).reshape(shape)
    return rng.integers(least, most, shape, dtype.numpy, endpoint=True)


def _shape(param: Buffer) -> tuple[int, ...]:
    return tuple([extent.value for extent in param.shape if type(extent) is Const])


def _agree(wanted: np.ndarray, found: np.ndarray, intrin: TensorIntrin, tiles: list[np.ndarray]) -> bool:
    output = intrin.meaning.outputs[0]
    if not output.dtype.is_float:
        return np.array_equal(wanted, found)
    sizes = [np.asarray(np.abs(tile), tile.dtype) for tile in tiles]
    total = np.abs(interpret(intrin.meaning, *sizes)).astype(np.float64)  # of the magnitudes of the terms
    terms = math.prod([loop.extent.value for loop in intrin.loops if type(loop.extent) is Const])
    last_place = 2.0 ** -(10 if output.dtype.bits == 16 else 23 if output.dtype.bits == 32 else 52)
    limit = (terms + _ROUNDINGS) * last_place * (total + 1e-30)
    return bool(np.all(np.abs(wanted.astype(np.float64) - found.astype(np.float64)) <= limit))


