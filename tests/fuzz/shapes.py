"""Small programs of the shapes that rare steps are for: stencils in a row, borders, neighbours that
do not depend on one another, consumers that rearrange, products of odd extents."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.fuzz.programs import FLOATS, Code, Input, Program, Stage

DTYPES = ("float32", "float32", "float32", "float64", "int32", "int16", "uint8")


def shaped(rng: random.Random) -> Program:
    """A program of one of the shapes."""
    makers: tuple[Callable[[_Shape], None], ...] = (
        stencils, stencils, padded, padded, siblings, siblings, epilogue, rearranged, rearranged,
        product, sums,
    )  # fmt: skip
    shape = _Shape(rng)
    rng.choice(makers)(shape)
    return shape.program()


class _Shape:
    """Collects the extents, inputs and stages of one program."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.dtype = rng.choice(DTYPES)
        self.dims: dict[str, int] = {}
        self.inputs: list[Input] = []
        self.stages: list[Stage] = []
        self.outputs: set[str] = set()

    def program(self) -> Program:
        """What was collected; the last stage is an output, another one now and then."""
        names = [stage.name for stage in self.stages]
        more = [name for name in names if self.rng.random() < 0.08]
        kept = self.outputs | {names[-1], *more}
        outputs = tuple([name for name in names if name in kept])
        return Program(tuple(self.dims.items()), tuple(self.inputs), tuple(self.stages), outputs)

    def dim(self, *extents: int) -> str:
        name = f"N{len(self.dims)}"
        self.dims[name] = self.rng.choice(extents)
        return name

    def input(self, *shape: str) -> str:
        name = f"A{len(self.inputs)}"
        kinds = ("small", "small", "powers") if self.dtype in FLOATS else ("small", "wide")
        self.inputs.append(Input(name, shape, self.dtype, self.rng.choice(kinds)))
        return name

    def stage(self, shape: tuple[str, ...], axes: str, body: Code, *reduce_axes) -> str:
        name = f"S{len(self.stages)}"
        self.stages.append(Stage(name, shape, tuple(axes), reduce_axes, body))
        return name

    def load(self, name: str, *indices: str) -> Code:
        holes = ", ".join(["{}"] * len(indices))
        return Code(f"{name}[{holes}]", tuple([Code(each) for each in indices]), self.dtype)

    def const(self) -> Code:
        return Code(f'te.const({self.rng.choice((0, 1, 2, 3))}, "{self.dtype}")', (), self.dtype)

    def two(self, a: Code, b: Code) -> Code:
        forms = ("({} + {})", "({} + {})", "({} * {})", "({} - {})", "te.maximum({}, {})")
        return Code(self.rng.choice(forms), (a, b), self.dtype)

    def spatial(self) -> tuple[str, ...]:
        """The extents of one or two axes."""
        if self.rng.random() < 0.4:
            return (self.dim(9, 16, 17, 33, 40),)
        return self.dim(5, 6, 8, 9, 12), self.dim(5, 7, 8, 9, 16)


def stencils(p: _Shape) -> None:
    """Two or three stages, each of neighbours of the one before."""
    shape = p.spatial()
    axes = "ij"[: len(shape)]
    name = p.input(*shape)
    if p.rng.random() < 0.7:
        name = p.stage(shape, axes, p.two(p.load(name, *axes), p.const()))
    for _ in range(p.rng.choice((1, 1, 2))):
        shape, name = _stencil(p, shape, name)


def _stencil(p: _Shape, shape: tuple[str, ...], name: str) -> tuple[tuple[str, ...], str]:
    """Neighbours along one axis, or along all; the result is smaller by what they need."""
    axes = "ij"[: len(shape)]
    along = p.rng.choice([(0,), (0,), tuple(range(len(shape)))])
    reach = p.rng.choice((1, 2, 2))
    total = p.load(name, *axes)
    for _ in range(p.rng.choice((1, 2, 3))):
        moved = [f"{a} + {p.rng.randint(0, reach)}" if n in along else a for n, a in enumerate(axes)]
        total = p.two(total, p.load(name, *moved))
    moved = [f"{a} + {reach}" if n in along else a for n, a in enumerate(axes)]
    total = p.two(total, p.load(name, *moved))
    new = tuple([f"{text} - {reach}" if n in along else text for n, text in enumerate(shape)])
    return new, p.stage(new, axes, total)


def padded(p: _Shape) -> None:
    """A stage with a border, and mostly neighbours of its points."""
    rng, shape = p.rng, p.spatial()
    axes = "ij"[: len(shape)]
    source = p.input(*shape)
    if rng.random() < 0.3:
        source = p.stage(shape, axes, p.two(p.load(source, *axes), p.const()))
    along = rng.choice([(len(shape) - 1,), tuple(range(len(shape)))])
    left, right = rng.choice((0, 1, 1, 2)), rng.choice((1, 1, 2))
    conditions: list[Code] = []
    for n in along:
        inside = f"{axes[n]} - {left}"
        if left:
            forms = (f"({axes[n]} >= {left})", f"({inside} >= 0)")
            conditions.append(Code(rng.choice(forms), (), "bool"))
        conditions.append(Code(f"({inside} < {shape[n]})", (), "bool"))
    indices = [f"{a} - {left}" if n in along and left else a for n, a in enumerate(axes)]
    inside = Code(f"te.all({', '.join(['{}'] * len(conditions))})", tuple(conditions), "bool")
    body = Code("te.if_then_else({}, {}, {})", (inside, p.load(source, *indices), p.const()), p.dtype)
    new = tuple([f"{t} + {left + right}" if n in along else t for n, t in enumerate(shape)])
    name = p.stage(new, axes, body)
    if rng.random() < 0.8:
        _stencil(p, new, name)


def siblings(p: _Shape) -> None:
    """Stages that need one input, and not one another."""
    rng, shape = p.rng, p.spatial()
    axes = "ij"[: len(shape)]
    shared = p.input(*shape)
    for _ in range(rng.choice((2, 2, 3))):
        own = list(shape)
        if rng.random() < 0.3:
            axis = rng.randrange(len(own))
            own[axis] = f"{own[axis]} - {rng.choice((1, 3))}"
        other = p.input(*own) if rng.random() < 0.5 else shared
        body = p.two(p.load(shared, *axes), p.load(other, *axes))
        p.outputs.add(p.stage(tuple(own), axes, body))
    if rng.random() < 0.4:
        first, last = p.stages[0], p.stages[-1]
        if first.shape == last.shape:
            body = p.two(p.load(first.name, *axes), p.load(last.name, *axes))
            p.stage(first.shape, axes, body)
            p.outputs.clear()


def epilogue(p: _Shape) -> None:
    """A product, and what is done with each of its elements."""
    name = product(p)
    m, n = p.stages[-1].shape
    body = p.two(p.load(name, "i", "j"), p.load(p.input(n), "j"))
    name = p.stage((m, n), "ij", body)
    if p.rng.random() < 0.6:
        body = Code("te.maximum({}, {})", (p.load(name, "i", "j"), p.const()), p.dtype)
        p.stage((m, n), "ij", body)


def rearranged(p: _Shape) -> None:
    """A stage, and one that reads each of its elements once: in another order or shape, or some."""
    rng = p.rng
    m, n = p.dim(3, 4, 5, 8), p.dim(4, 6, 7, 8)
    a = p.input(m, n)
    name = p.stage((m, n), "ij", p.two(p.load(a, "i", "j"), p.const()))
    for _ in range(rng.choice((1, 1, 2))):
        if len(p.stages[-1].shape) == 1:
            break
        m, n = p.stages[-1].shape
        forms = [
            ((n, m), "ij", ("j", "i")),
            ((m, n), "ij", ("i", "j")),
            ((m, n), "ij", (f"{m} - 1 - i", "j")),
            ((f"{m} - 1", n), "ij", ("i + 1", "j")),
            ((f"{m} * {n}",), "i", (f"i // {n}", f"i % {n}")),
        ]
        shape, axes, indices = rng.choice(forms[:4] if "-" in m + n else forms)
        name = p.stage(shape, axes, p.two(p.load(name, *indices), p.const()))


def product(p: _Shape) -> str:
    """A matrix product of odd extents."""
    m, n, k = p.dim(3, 5, 7, 8, 9), p.dim(3, 6, 8, 10), p.dim(2, 4, 5, 7, 8)
    a, b = p.input(m, k), p.input(k, n)
    r = f"r{len(p.stages)}"
    term = Code("({} * {})", (p.load(a, "i", r), p.load(b, r, "j")), p.dtype)
    return p.stage((m, n), "ij", Code(f"te.sum({{}}, axis={r})", (term,), p.dtype), (r, k))


def sums(p: _Shape) -> None:
    """Reductions of one shape by several reducers, over one axis or two."""
    rng = p.rng
    m, k = p.dim(3, 5, 8), p.dim(4, 9, 12, 16)
    a = p.input(m, k)
    for number in range(rng.choice((1, 2))):
        r = f"r{number}"
        term = p.two(p.load(a, "i", r), p.const())
        name = rng.choice(("sum", "sum", "max", "min"))
        p.outputs.add(p.stage((m,), "i", Code(f"te.{name}({{}}, axis={r})", (term,), p.dtype), (r, k)))
