"""Random programs: from a random number generator to te code that lowering should accept."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from tests.fuzz.accesses import EXTENTS
from tests.fuzz.ordered import Ordered
from tests.fuzz.programs import Case, Program, pruned
from tests.fuzz.shapes import shaped

CPUS = (None, "x86-64-v2", "x86-64-v3", "x86-64-v4")


def case(seed: int, cpus: tuple[str | None, ...] = CPUS, by_hand: bool = False) -> Case:
    """The case of a seed; `by_hand` schedules it by random steps."""
    rng = random.Random(seed)
    if by_hand and rng.random() < 0.55:
        program = shaped(rng)
    else:
        program = Generator(rng, 700 if by_hand else 5000).program()
    program = replace(program, symbolic=_symbolic(program, random.Random(seed)))
    return Case(
        program,
        mcpu=rng.choice(cpus),
        threads=rng.choice((1, 1, 2)),
        seed=seed,
        steps=() if by_hand else None,
        random_steps=rng.choice((6, 12, 18, 26)) if by_hand else 0,
        others=_others(program, random.Random(seed)),
    )


def _symbolic(program: Program, rng: random.Random) -> tuple[str, ...]:
    """The extents that are left open: of most programs none, else all or some."""
    share = rng.choice((0, 0, 0.5, 1))
    return tuple([name for name, _ in program.dims if rng.random() < share])


def _others(program: Program, rng: random.Random) -> tuple[tuple[tuple[str, int], ...], ...]:
    """Other values of the extents that are left open: some are 0 or 1, none is more than it was."""
    if not program.symbolic:
        return ()
    found = []
    for few in ((0, 1), (1, 1, 0, 2, 3), EXTENTS):
        dims = [
            (name, min(value, rng.choice(few)) if name in program.symbolic else value)
            for name, value in program.dims
        ]
        found.append(tuple(dims))
    return tuple(found[: rng.randint(1, 3)])


class Generator(Ordered):
    """Makes one program."""

    def program(self) -> Program:
        makers: tuple[Callable[[], None], ...] = (
            self.pointwise, self.pointwise, self.pointwise, self.functions, self.functions,
            self.reduction, self.reduction, self.contraction, self.convolution, self.stencil,
            self.chain, self.tuple, self.scan, self.update, self.function,
        )  # fmt: skip
        for _ in range(self.rng.choice((1, 1, 2, 2, 3, 4))):
            self.reduce_axes = []
            self.rng.choice(makers)()
        names = [name for name, _, _ in self.results]
        outputs = {names[-1], *[name for name in names if self.rng.random() < 0.25]}
        ordered = tuple([name for name in names if name in outputs])
        return pruned(
            Program(tuple(self.dims.items()), tuple(self.inputs), tuple(self.stages), ordered)
        )
