"""Shapes, tensors and accesses of random programs: what their expressions read."""

from __future__ import annotations

import random

from tests.fuzz.programs import FLOATS, INTEGERS, Code, Definition, Input, Stage

EXTENTS = (0, 1, 2, 3, 5, 7, 15, 16, 17, 31, 33, 48, 63, 64, 65, 100)
AXES = ("i", "j", "k", "l")
Axis = tuple[str, str, int]  # name, the text of its extent, its extent
_ARITHMETIC = (
    "{} * 3 + 1",
    "{} + 5",
    "{} - 7",
    "{} * 2",
    "({} << 1)",
    "9 - {}",
    "{} * 4611686018427387905",
)
_DETOURS = (  # conditions that seem to tell a range, and do not where arithmetic wraps
    ("({} * 4 >= 0)", "({} * 4 < {n} * 4)"),
    ("({} + 9 >= 9)", "({} + 9 < {n} + 9)"),
    ("({} - 1 >= -1)", "({} - 1 < {n} - 1)"),
    ("({} * {} >= 0)", "(-{} > -({n}))"),
    ("(2 * {} + 1 >= 1)", "(2 * {} + 1 < 2 * ({n}))"),
)


class Accesses:
    """Inputs and stages, and loads from them; a stage has about `budget` instances at most."""

    def __init__(self, rng: random.Random, budget: int):
        self.rng = rng
        self.budget = budget
        self.dims: dict[str, int] = {}
        self.inputs: list[Input] = []
        self.stages: list[Definition] = []
        self.results: list[
            tuple[str, tuple[str, ...], str]
        ] = []  # name, shape and dtype, to be read
        self.reduce_axes: list[tuple[str, str]] = []  # of the stage that is being made
        self.is_exact = rng.random() < 0.6
        kinds = ("float32",) * 6 + ("float64",) * 2 + ("float16", "bfloat16") * 2
        self.dtype = rng.choice((*kinds, *INTEGERS))

    # Shapes.

    def dim(self, most: int) -> str:
        """The name of an extent of at most `most`."""
        known = [name for name, value in self.dims.items() if value <= most]
        if known and self.rng.random() < 0.5:
            return self.rng.choice(known)
        fitting = [n for n in EXTENTS if n <= most and (n or self.rng.random() < 0.1)]
        name = f"N{len(self.dims)}"
        self.dims[name] = self.rng.choice(fitting or [1])
        return name

    def shape(self, rank: int, budget: int) -> tuple[str, ...]:
        dims = []
        for _ in range(rank):
            dims.append(self.dim(max(1, budget)))
            budget //= max(1, self.dims[dims[-1]])
        self.rng.shuffle(dims)
        return tuple(dims)

    def value_of(self, text: str) -> int:
        return eval(text, {}, self.dims)

    def axes(self, shape: tuple[str, ...], names: tuple[str, ...] = AXES) -> list[Axis]:
        return [(name, text, self.value_of(text)) for name, text in zip(names, shape)]

    def reduce_axis(self, extent: str) -> Axis:
        name = f"r{len(self.stages)}_{len(self.reduce_axes)}"
        self.reduce_axes.append((name, extent))
        return name, extent, self.value_of(extent)

    # Tensors.

    def input(self, shape: tuple[str, ...], dtype: str) -> str:
        """An input of this shape, an old one or a new one."""
        for each in self.inputs:
            if (each.shape, each.dtype) == (shape, dtype) and self.rng.random() < 0.5:
                return each.name
        small = ("small", "small", "powers") if dtype in FLOATS else ("small", "wide")
        values = ("normal", "normal", "special") if dtype in FLOATS else ("small", "wide")
        return self.new_input(shape, dtype, self.rng.choice(small if self.is_exact else values))

    def new_input(self, shape: tuple[str, ...], dtype: str, values: str) -> str:
        name = f"A{len(self.inputs)}"
        self.inputs.append(Input(name, shape, dtype, values))
        return name

    def add(self, shape: tuple[str, ...], body: Code, axes: tuple[str, ...] = AXES) -> None:
        name = f"S{len(self.stages)}"
        self.stages.append(Stage(name, shape, axes[: len(shape)], tuple(self.reduce_axes), body))
        self.results.append((name, shape, body.dtype))

    def any_tensor(self, dtype: str) -> tuple[str, tuple[str, ...], str] | None:
        """A tensor to read, mostly one of this dtype: name, shape and dtype."""
        every = [(each.name, each.shape, each.dtype) for each in self.inputs]
        every += self.results * 3
        same = [each for each in every if each[2] == dtype]
        if same and self.rng.random() < 0.9:
            return self.rng.choice(same)
        return self.rng.choice(every) if every and self.rng.random() < 0.3 else None

    # Accesses.

    def load(self, dtype: str, scope: list[Axis]) -> Code:
        """An element of this dtype, of a tensor that there is or of a new input."""
        found = self.any_tensor(dtype)
        if found is None:
            shape = tuple([text for _, text, _ in scope if self.rng.random() < 0.7][-4:])
            found = (self.input(shape, dtype), shape, dtype)
        name, shape, own = found
        access = self.access(name, shape, own, scope)
        if access is None:
            return self.const(dtype)
        return access if own == dtype else self.cast(access, dtype)

    def access(self, name: str, shape, dtype: str, scope: list[Axis]) -> Code | None:
        """A load in bounds, guarded where it needs to be; None where there is nothing to load."""
        indices, conditions = [], []
        for text in shape:
            found = self.index(text, scope)
            if found is None:
                return None
            index, condition = found
            indices.append(index)
            conditions += condition
        load = load_of(name, indices, dtype)
        if not conditions:
            return load
        return self.guarded(conditions, load, dtype)

    def guarded(self, conditions: list[Code], load: Code, dtype: str) -> Code:
        other = self.const(dtype)
        if len(conditions) == 1:
            return Code("te.if_then_else({}, {}, {})", (conditions[0], load, other), dtype)
        if self.rng.random() < 0.3:  # one guard in another
            for condition in conditions:
                load = Code("te.if_then_else({}, {}, {})", (condition, load, other), dtype)
            return load
        holes = ", ".join(["{}"] * len(conditions))
        return Code(
            f"te.if_then_else(te.all({holes}), {{}}, {{}})", (*conditions, load, other), dtype
        )

    def const(self, dtype: str) -> Code:
        rng = self.rng
        if dtype == "bool":
            return Code(f"te.const({rng.random() < 0.5})", (), dtype)
        if dtype in FLOATS:
            odd = rng.choice((0.1, -2.7, 1e-3)) if not self.is_exact else 0.5
            return Code(
                f'te.const({rng.choice((0.0, 1.0, -1.0, 2.0, 3.0, odd))}, "{dtype}")', (), dtype
            )
        low = 0 if dtype.startswith("u") else -3
        return Code(f'te.const({rng.choice((0, 1, 2, 7, low))}, "{dtype}")', (), dtype)

    def cast(self, value: Code, dtype: str) -> Code:
        return value if value.dtype == dtype else Code(f'te.cast({{}}, "{dtype}")', (value,), dtype)

    def index(self, text: str, scope: list[Axis]) -> tuple[Code, list[Code]] | None:
        """An index into a dimension, and the conditions under which it is inside."""
        size, rng = self.value_of(text), self.rng
        choices = [(8, index_of(name)) for name, own, _ in scope if own == text]
        for name, _, extent in scope:
            if extent <= size:
                choices += [(2, index_of(name)), (1, index_of(f"{text} - 1 - {name}"))]
            if extent and 2 * extent - 1 <= size:
                choices.append((3, index_of(f"{name} * 2")))
            if extent and 2 * extent <= size:
                choices.append((3, index_of(f"{name} * 2 + 1")))
            if size and extent > size:
                choices.append((1, index_of(f"{name} % ({text})")))
                choices.append((1, index_of(f"{name} // {-(-extent // size)}")))
        if size:
            choices += [(1, index_of(f"{text} - 1")), (1, index_of("0"))]
        if size and scope:
            name = rng.choice(scope)[0]
            shifted = f"{name} {rng.choice('+-')} {rng.randint(1, 3)}"
            choices.append((1, index_of(f"te.maximum(te.minimum({shifted}, {text} - 1), 0)")))
        if scope and (not choices or rng.random() < 0.12):
            return self._guarded_index(text, scope)
        if size and rng.random() < 0.06:
            return self._loaded_index(text, size, scope)
        if not choices:
            return None
        weights = [weight for weight, _ in choices]
        return rng.choices([index for _, index in choices], weights)[0], []

    def _guarded_index(self, text: str, scope: list[Axis]) -> tuple[Code, list[Code]]:
        rng = self.rng
        name = rng.choice(scope)[0]
        index = rng.choice((f"{name} - 1", f"{name} + 2", f"{name} * 2 - 1", f"3 - {name}"))
        return index_of(index), [
            condition_of(f"({index}) >= 0"),
            condition_of(f"({index}) < {text}"),
        ]

    def _loaded_index(self, text: str, size: int, scope: list[Axis]) -> tuple[Code, list[Code]]:
        """An index from an input of its own: checked as the kernel runs, promised, or guarded."""
        rng = self.rng
        axes = [axis for axis in scope if rng.random() < 0.6][-2:]
        form = rng.choice(("check", "check", "stray", "assume", "guard", "detour", "arithmetic"))
        dtype = rng.choice(("int32", "int64", "uint8") if size < 128 else ("int32", "int64"))
        if form in ("detour", "arithmetic"):
            dtype = rng.choice(("int64", "int64", "uint64", "int32"))
        values = {
            "guard": "small",
            "detour": "edges",
            "arithmetic": "edges",
            "stray": f"stray {text}",
        }
        shape = tuple([own for _, own, _ in axes])
        name = self.new_input(shape, dtype, values.get(form, f"below {text}"))
        load = load_of(name, [index_of(each) for each, _, _ in axes], "index")
        if form in ("check", "stray"):
            return load, []
        if form == "assume":
            return Code(f"te.assume({{}}, 0, {text})", (load,)), []
        wide = Code('te.cast({}, "int64")', (load,))
        if form == "guard":
            return load, [condition_of(f"({wide} >= 0)"), condition_of(f"({wide} < {text})")]
        if form == "arithmetic":
            index = Code(rng.choice(_ARITHMETIC), (wide,))
            return index, [condition_of(f"({index} >= 0)"), condition_of(f"({index} < {text})")]
        detour = rng.choice(_DETOURS)
        return wide, [condition_of(each.replace("{}", str(wide)).format(n=text)) for each in detour]


def index_of(text: str) -> Code:
    return Code(text)


def condition_of(text: str) -> Code:
    return Code(text, (), "bool")


def load_of(name: str, indices: list[Code], dtype: str) -> Code:
    holes = ", ".join(["{}"] * len(indices)) or "()"
    return Code(f"{name}[{holes}]", tuple(indices), dtype)
