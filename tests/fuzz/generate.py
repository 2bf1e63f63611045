"""Random programs: from a random number generator to te code that lowering should accept."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from tests.fuzz.programs import FLOATS, INTEGERS, Case, Code, Input, Program, Stage, pruned
from tests.fuzz.shapes import shaped

EXTENTS = (0, 1, 2, 3, 5, 7, 15, 16, 17, 31, 33, 48, 63, 64, 65, 100)
CPUS = (None, "x86-64-v2", "x86-64-v3", "x86-64-v4")
UNARY = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan", "tanh",
    "erf", "sigmoid",
)  # fmt: skip
REDUCERS = ("sum", "sum", "prod", "min", "max")
PAIR = (
    "te.comm_reducer(lambda x, y: (te.minimum(x[0], y[0]), x[1] + y[1]), "
    'lambda a, b: (te.max_value(a), te.const(0, b)), "pair")'
)
AXES = ("i", "j", "k", "l")
Axis = tuple[str, str, int]  # name, the text of its extent, its extent


def case(seed: int, cpus: tuple[str | None, ...] = CPUS, by_hand: bool = False) -> Case:
    """The case of a seed; `by_hand` schedules it by random steps."""
    rng = random.Random(seed)
    if by_hand and rng.random() < 0.5:
        program = shaped(rng)
    else:
        program = Generator(rng, 700 if by_hand else 5000).program()
    return Case(
        replace(program, symbolic=_symbolic(program, random.Random(seed))),
        mcpu=rng.choice(cpus),
        threads=rng.choice((1, 1, 2)),
        seed=seed,
        steps=() if by_hand else None,
        random_steps=rng.choice((4, 8, 12, 20)) if by_hand else 0,
    )


def _symbolic(program: Program, rng: random.Random) -> tuple[str, ...]:
    """The extents that are left open: of most programs none, else all or some."""
    share = rng.choice((0, 0, 0.5, 1))
    return tuple([name for name, _ in program.dims if rng.random() < share])


class Generator:
    """Makes one program; a stage has about `budget` instances at most."""

    def __init__(self, rng: random.Random, budget: int):
        self.rng = rng
        self.budget = budget
        self.dims: dict[str, int] = {}
        self.inputs: list[Input] = []
        self.stages: list[Stage] = []
        self.dtypes: dict[str, str] = {}
        self.reduce_axes: list[tuple[str, str]] = []  # of the stage that is being made
        self.is_exact = rng.random() < 0.6
        self.dtype = rng.choice(("float32",) * 5 + ("float64",) * 2 + INTEGERS)

    def program(self) -> Program:
        makers: tuple[Callable[[], None], ...] = (
            self.pointwise, self.pointwise, self.reduction, self.contraction, self.convolution,
            self.stencil, self.chain,
        )  # fmt: skip
        for _ in range(self.rng.choice((1, 1, 2, 2, 3, 4))):
            self.reduce_axes = []
            self.rng.choice(makers)()
        names = [stage.name for stage in self.stages]
        outputs = {names[-1], *[name for name in names if self.rng.random() < 0.25]}
        ordered = tuple([name for name in names if name in outputs])
        return pruned(
            Program(tuple(self.dims.items()), tuple(self.inputs), tuple(self.stages), ordered)
        )

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
        kind = self.rng.choice(small if self.is_exact else values)
        name = f"A{len(self.inputs)}"
        self.inputs.append(Input(name, shape, dtype, kind))
        return name

    def add(self, shape: tuple[str, ...], body: Code, axes: tuple[str, ...] = AXES) -> None:
        name = f"S{len(self.stages)}"
        reduce_axes = tuple(self.reduce_axes)
        self.stages.append(Stage(name, shape, axes[: len(shape)], reduce_axes, body))
        self.dtypes[name] = body.dtype

    def any_tensor(self, dtype: str) -> tuple[str, tuple[str, ...], str] | None:
        """A tensor to read, mostly one of this dtype: name, shape and dtype."""
        every = [(each.name, each.shape, each.dtype) for each in self.inputs]
        stages = [(each.name, each.shape, self.dtypes[each.name]) for each in self.stages]
        every += stages * 3
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
        load = _load(name, indices, dtype)
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

    def index(self, text: str, scope: list[Axis]) -> tuple[Code, list[Code]] | None:
        """An index into a dimension, and the conditions under which it is inside."""
        size, rng = self.value_of(text), self.rng
        choices = [(8, _index(name)) for name, own, _ in scope if own == text]
        for name, _, extent in scope:
            if extent <= size:
                choices += [(2, _index(name)), (1, _index(f"{text} - 1 - {name}"))]
            if extent and 2 * extent - 1 <= size:
                choices.append((3, _index(f"{name} * 2")))
            if extent and 2 * extent <= size:
                choices.append((3, _index(f"{name} * 2 + 1")))
            if size and extent > size:
                choices.append((1, _index(f"{name} % ({text})")))
                choices.append((1, _index(f"{name} // {-(-extent // size)}")))
        if size:
            choices += [(1, _index(f"{text} - 1")), (1, _index("0"))]
        if size and scope:
            name = rng.choice(scope)[0]
            shifted = f"{name} {rng.choice('+-')} {rng.randint(1, 3)}"
            choices.append((1, _index(f"te.maximum(te.minimum({shifted}, {text} - 1), 0)")))
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
        return _index(index), [_condition(f"({index}) >= 0"), _condition(f"({index}) < {text}")]

    def _loaded_index(self, text: str, size: int, scope: list[Axis]) -> tuple[Code, list[Code]]:
        """An index from an input of its own: checked as the kernel runs, promised, or guarded."""
        rng = self.rng
        axes = [axis for axis in scope if rng.random() < 0.6][-2:]
        dtype = rng.choice(("int32", "int64", "uint8") if size < 128 else ("int32", "int64"))
        form = rng.choice(("check", "check", "assume", "guard"))
        name = f"A{len(self.inputs)}"
        values = "small" if form == "guard" else f"below {text}"
        self.inputs.append(Input(name, tuple([own for _, own, _ in axes]), dtype, values))
        load = _load(name, [_index(each) for each, _, _ in axes], "index")
        if form == "check":
            return load, []
        if form == "assume":
            return Code(f"te.assume({{}}, 0, {text})", (load,)), []
        wide = str(Code('te.cast({}, "int64")', (load,)))
        return load, [_condition(f"({wide} >= 0)"), _condition(f"({wide} < {text})")]

    # Expressions.

    def expr(self, dtype: str, depth: int, scope: list[Axis]) -> Code:
        if depth <= 0:
            return self.leaf(dtype, scope)
        if self.rng.random() < 0.12:
            return self.choice(dtype, depth, scope)
        if self.rng.random() < 0.1:
            return self.cast(self.expr(self.other(dtype), depth - 1, scope), dtype)
        if dtype == "bool":
            return self.condition(depth, scope)
        return (self.float_op if dtype in FLOATS else self.int_op)(dtype, depth, scope)

    def leaf(self, dtype: str, scope: list[Axis]) -> Code:
        roll = self.rng.random()
        if roll < 0.1:
            return self.const(dtype)
        if roll < 0.18 and scope:
            return self.cast(Code(self.rng.choice(scope)[0], (), "int64"), dtype)
        return self.load(dtype, scope)

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

    def other(self, dtype: str) -> str:
        others = (
            "bool",
            "int32",
            "float32",
            "float64",
            "uint8",
            "int64",
            self.rng.choice(INTEGERS),
        )
        return self.rng.choice([each for each in others if each != dtype])

    def choice(self, dtype: str, depth: int, scope: list[Axis]) -> Code:
        name = self.rng.choice(("select", "if_then_else"))
        parts = self.condition(depth - 1, scope), *self.two(dtype, depth, scope)
        return Code(f"te.{name}({{}}, {{}}, {{}})", parts, dtype)

    def condition(self, depth: int, scope: list[Axis]) -> Code:
        roll = self.rng.random()
        if roll < 0.2 and depth > 1:
            name = self.rng.choice(("te.all({}, {})", "te.any({}, {})", "te.logical_not({})"))
            count = name.count("{}")
            return Code(name, tuple(self.condition(depth - 1, scope) for _ in range(count)), "bool")
        if roll < 0.3 and scope:
            name, text, _ = self.rng.choice(scope)
            relation = self.rng.choice(("< 3", "> 0", f"< {text} - 1", "% 2 < 1", ">= 1"))
            return _condition(f"({name} {relation})")
        dtype = self.rng.choice((self.dtype, self.dtype, "float32", "int32"))
        if roll < 0.4 and dtype in FLOATS:
            name = self.rng.choice(("isnan", "isinf", "isfinite"))
            return Code(f"te.{name}({{}})", (self.expr(dtype, depth - 1, scope),), "bool")
        name = self.rng.choice(("{} < {}", "{} <= {}", "{} > {}", "{} >= {}", "te.eq", "te.ne"))
        text = f"{name}({{}}, {{}})" if name.startswith("te.") else f"({name})"
        return Code(text, self.two(dtype, depth, scope), "bool")

    def two(self, dtype: str, depth: int, scope: list[Axis]) -> tuple[Code, Code]:
        return self.expr(dtype, depth - 1, scope), self.expr(dtype, depth - 2, scope)

    def float_op(self, dtype: str, depth: int, scope: list[Axis]) -> Code:
        rng = self.rng
        plain = ("({} + {})", "({} - {})", "({} * {})", "te.minimum({}, {})", "te.maximum({}, {})")
        one = ("(-{})", "te.abs({})", "te.floor({})", "te.ceil({})", "te.trunc({})", "te.round({})")
        rough = ("({} / {})", "te.pow({}, {})", "te.fmod({}, {})", "te.copysign({}, {})")
        roll = rng.random()
        if roll < 0.65:
            return Code(rng.choice(plain), self.two(dtype, depth, scope), dtype)
        if roll < 0.8 or self.is_exact:
            return Code(rng.choice(one), (self.expr(dtype, depth - 1, scope),), dtype)
        if roll < 0.87:
            return Code(rng.choice(rough), self.two(dtype, depth, scope), dtype)
        name = rng.choice(UNARY)
        return Code(f"te.{name}({{}})", (self.expr(dtype, depth - 1, scope),), dtype)

    def int_op(self, dtype: str, depth: int, scope: list[Axis]) -> Code:
        rng = self.rng
        if rng.random() < 0.1:
            one = ("(-{})", "te.abs({})") if not dtype.startswith("u") else ("(-{})",)
            return Code(rng.choice(one), (self.expr(dtype, depth - 1, scope),), dtype)
        common = ("({} + {})", "({} - {})", "({} * {})", "te.minimum({}, {})", "te.maximum({}, {})")
        rare = (
            "({} // {})",
            "({} % {})",
            "({} & {})",
            "({} | {})",
            "({} ^ {})",
            "({} << {})",
            "({} >> {})",
        )
        text = rng.choice(common if rng.random() < 0.55 else rare)
        return Code(text, self.two(dtype, depth, scope), dtype)

    # Stages.

    def pointwise(self) -> None:
        """Elementwise expressions and rearrangements, sometimes with a reduction inside."""
        rank = self.rng.choice((0, 1, 1, 2, 2, 2, 3, 4))
        shape = self.shape(rank, self.budget)
        scope = self.axes(shape)
        dtype = self.dtype if self.rng.random() < 0.8 else self.other(self.dtype)
        body = self.expr(dtype, self.rng.choice((0, 1, 2, 3, 4)), scope)
        if dtype != "bool" and self.rng.random() < 0.25:
            body = Code("({} + {})", (body, self.reduced(dtype, shape, scope)), dtype)
        self.add(shape, body)

    def reduction(self) -> None:
        shape = self.shape(self.rng.choice((0, 1, 1, 2, 3)), max(1, self.budget // 8))
        self.add(shape, self.reduced(self.dtype, shape, self.axes(shape)))

    def reduced(self, dtype: str, shape: tuple[str, ...], scope: list[Axis]) -> Code:
        """A reduction over one or two new axes."""
        left = self.budget
        for _, _, extent in scope:
            left //= max(1, extent)
        new = [self.reduce_axis(text) for text in self.shape(self.rng.choice((1, 1, 2)), left)]
        names = ", ".join([name for name, _, _ in new])
        axis = names if len(new) == 1 else f"({names})"
        inside = [*scope, *new]
        depth = self.rng.choice((0, 1, 1, 2))
        roll = self.rng.random()
        if roll < 0.1:
            name = self.rng.choice(("any", "all"))
            found = Code(f"te.{name}({{}}, axis={axis})", (self.condition(depth, inside),), "bool")
            return self.cast(found, dtype)
        if roll < 0.3 and all([extent for _, _, extent in new]):
            return self.best(dtype, depth, inside, axis)
        inner = self.expr(dtype, depth, inside)
        options, parts = "", [inner]
        if self.rng.random() < 0.15:
            options += ", where={}"
            parts.append(self.condition(1, inside))
        if self.rng.random() < 0.15:
            options += ", init={}"
            parts.append(self.expr(dtype, 1, scope))
        return Code(f"te.{self.rng.choice(REDUCERS)}({{}}, axis={axis}{options})", tuple(parts), dtype)

    def best(self, dtype: str, depth: int, inside: list[Axis], axis: str) -> Code:
        """A value of a reducer of tuples."""
        if self.rng.random() < 0.7:
            name, value = self.rng.choice(("argmin", "argmax")), self.expr(dtype, depth, inside)
            if self.rng.random() < 0.3:
                return Code(f"te.{name}({{}}, axis={axis}, value=True)[1]", (value,), dtype)
            return self.cast(Code(f"te.{name}({{}}, axis={axis})", (value,), "int64"), dtype)
        other = self.rng.choice(("int32", "uint8", "int64"))
        parts = (self.expr(dtype, depth, inside), self.expr(other, 1, inside))
        pair = Code(f"{PAIR}(({{}}, {{}}), axis={axis})[{{}}]", (*parts, Code("0")), dtype)
        if self.rng.random() < 0.5:
            return pair
        return self.cast(Code(pair.text, (*parts, Code("1")), other), dtype)

    def contraction(self) -> None:
        """A matrix product, batched or not, of either layout of its operands and its result."""
        rng = self.rng
        batch = self.shape(rng.choice((0, 0, 1)), 5)
        left = self.budget
        for text in batch:
            left //= max(1, self.value_of(text))
        m, n, k = self.shape(3, left)
        names = ("b", "i", "j") if batch else ("i", "j")
        r, _, _ = self.reduce_axis(k)
        a = (m, k, "i", r) if rng.random() < 0.6 else (k, m, r, "i")
        b = (k, n, r, "j") if rng.random() < 0.6 else (n, k, "j", r)
        has_batch = bool(batch) and rng.random() < 0.8
        loads = []
        for (d0, d1, i0, i1), is_batched in ((a, bool(batch)), (b, has_batch)):
            name = self.input((*(batch if is_batched else ()), d0, d1), self.dtype)
            loads.append(
                _load(name, [*map(_index, ("b",) * is_batched), _index(i0), _index(i1)], self.dtype)
            )
        product: Code = Code("({} * {})", tuple(loads), self.dtype)
        body = Code(f"te.sum({{}}, axis={r})", (product,), self.dtype)
        shape = (*batch, m, n)
        if rng.random() < 0.25 and not self.is_exact:
            body = Code("({} * {})", (body, self.const(self.dtype)), self.dtype)
        self.add(shape, body, names)

    def convolution(self) -> None:
        """1 or 2 dimensions, stride, dilation and a padding by guards, channels on either side."""
        rng = self.rng
        ndim = rng.choice((1, 1, 2))
        channels = rng.choice((True, True, False))
        small = self.budget < 2000
        ci, co = self.dim(5 if ndim == 2 or small else 17), self.dim(5 if small else 17)
        spatial, window, out, indices, conditions = [], [], [], [], []
        for axis in range(ndim):
            size = self.dim((7 if small else 17) if ndim == 2 else 65)
            w, s, d = rng.choice((1, 2, 3)), rng.choice((1, 1, 2)), rng.choice((1, 1, 2))
            pad = rng.choice((0, 1, 2))
            span = (w - 1) * d + 1
            if self.value_of(size) + 2 * pad < span:
                pad = span
            spatial.append(size)
            window.append(str(w))
            out.append(f"({size} + {2 * pad - span}) // {s} + 1")
            position = "xy"[axis]
            r, _, _ = self.reduce_axis(str(w))
            index = f"{position} * {s} + {r} * {d}" + (f" - {pad}" if pad else "")
            indices.append(_index(index))
            if pad:
                conditions += [_condition(f"({index}) >= 0"), _condition(f"({index}) < {size}")]
        reduced = [name for name, _ in self.reduce_axes]
        weights = [_index(name) for name in reduced]
        source_shape, weight_shape = tuple(spatial), tuple(window)
        names, shape = tuple("xy"[:ndim]), tuple(out)
        if channels:
            c, _, _ = self.reduce_axis(ci)
            reduced.append(c)
            if rng.random() < 0.5:
                source_shape, indices = (ci, *source_shape), [_index(c), *indices]
                names, shape = ("o", *names), (co, *shape)
            else:
                source_shape, indices = (*source_shape, ci), [*indices, _index(c)]
                names, shape = (*names, "o"), (*shape, co)
            weight_shape, weights = (co, ci, *weight_shape), [_index("o"), _index(c), *weights]
        load = _load(self.input(source_shape, self.dtype), indices, self.dtype)
        if conditions:
            load = self.guarded(conditions, load, self.dtype)
        weight = _load(self.input(weight_shape, self.dtype), weights, self.dtype)
        product = Code("({} * {})", (load, weight), self.dtype)
        axis = reduced[0] if len(reduced) == 1 else f"({', '.join(reduced)})"
        self.add(shape, Code(f"te.sum({{}}, axis={axis})", (product,), self.dtype), names)

    def chain(self) -> None:
        """A stage, and the neighbours of its points; or of those of a padded tensor."""
        rng = self.rng
        shape = self.shape(rng.choice((1, 2, 2)), self.budget // 2)
        if rng.random() < 0.4:
            self._pad(shape)
        else:
            self.add(shape, self.expr(self.dtype, rng.choice((1, 2)), self.axes(shape)))
        self.reduce_axes = []
        for _ in range(rng.choice((1, 1, 2))):
            self.stencil(self.stages[-1].shape)

    def _pad(self, shape: tuple[str, ...]) -> None:
        """A tensor with a border."""
        name, indices, conditions = self.input(shape, self.dtype), [], []
        for axis, text in zip(AXES, shape):
            indices.append(_index(f"{axis} - 1"))
            conditions += [_condition(f"({axis} >= 1)"), _condition(f"({axis} < {text} + 1)")]
        inside = Code(f"te.all({', '.join(['{}'] * len(conditions))})", tuple(conditions), "bool")
        parts = (inside, _load(name, indices, self.dtype), self.const(self.dtype))
        body = Code("te.if_then_else({}, {}, {})", parts, self.dtype)
        self.add(tuple([f"{text} + 2" for text in shape]), body)

    def stencil(self, shape: tuple[str, ...] = ()) -> None:
        """Neighbours of a point, inside by guards, by clamps, or by a smaller result; those of the
        last stage of a shape, if one has it."""
        rng = self.rng
        rank = rng.choice((1, 2, 2, 3))
        shape = shape or self.shape(rank, self.budget // 2)
        if 0 in [self.value_of(text) for text in shape]:
            return self.pointwise()
        found = [each for each in self.stages if each.shape == shape]
        if found and self.dtypes[found[-1].name] == self.dtype:
            name = found[-1].name
        else:
            name = self.input(shape, self.dtype)
        mode = rng.choice(("guard", "clamp", "valid", *("valid",) * (3 if found else 0)))
        if mode == "valid" and min(self.value_of(text) for text in shape) < 3:
            mode = "clamp"
        total = None
        for _ in range(rng.choice((2, 3, 5))):
            point = self._neighbour(name, shape, mode)
            if total is None:
                total = point
            else:
                total = Code(
                    rng.choice(("({} + {})", "({} + {})", "te.maximum({}, {})")),
                    (total, point),
                    self.dtype,
                )
        result = tuple([f"{text} - 2" for text in shape]) if mode == "valid" else shape
        self.add(result, total)

    def _neighbour(self, name: str, shape: tuple[str, ...], mode: str) -> Code:
        indices, conditions = [], []
        for axis, text in zip(AXES, shape):
            step = self.rng.choice((-1, 0, 0, 1))
            moved = axis if step == 0 else f"{axis} {'+' if step > 0 else '-'} 1"
            if mode == "valid":
                indices.append(_index(f"{axis} + {step + 1}"))
            elif mode == "clamp":
                indices.append(_index(f"te.minimum(te.maximum({moved}, 0), {text} - 1)"))
            else:
                indices.append(_index(moved))
                if step < 0:
                    conditions.append(_condition(f"({moved} >= 0)"))
                elif step > 0:
                    conditions.append(_condition(f"({moved} < {text})"))
        load = _load(name, indices, self.dtype)
        return self.guarded(conditions, load, self.dtype) if conditions else load


def _index(text: str) -> Code:
    return Code(text)


def _condition(text: str) -> Code:
    return Code(text, (), "bool")


def _load(name: str, indices: list[Code], dtype: str) -> Code:
    holes = ", ".join(["{}"] * len(indices)) or "()"
    return Code(f"{name}[{holes}]", tuple(indices), dtype)
