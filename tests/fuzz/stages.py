"""Random stages: elementwise, reductions, contractions, convolutions, stencils."""

from __future__ import annotations

from tests.fuzz.accesses import AXES, Axis, condition_of, index_of, load_of
from tests.fuzz.expressions import OF_TWO, UNARY, WHOLE, Expressions
from tests.fuzz.programs import FLOATS, INTEGERS, Code, Stage

REDUCERS = ("sum", "sum", "prod", "min", "max")
PAIR = (
    "te.comm_reducer(lambda x, y: (te.minimum(x[0], y[0]), x[1] + y[1]), "
    'lambda a, b: (te.max_value(a), te.const(0, b)), "pair")'
)
MANY = (
    "te.comm_reducer(lambda x, y: (te.maximum(x[0], y[0]), x[1] ^ y[1], {}), "
    'lambda a, b, c: (te.min_value(a), te.const(0, b), {}), "many")'
)
THIRD = {
    "bool": ("te.ne(x[2], y[2])", "te.const(False)"),
    "int16": ("x[2] * y[2]", "te.const(1, c)"),
    "float32": ("te.minimum(x[2], y[2])", "te.max_value(c)"),
}
ONLINE = (
    "te.comm_reducer(lambda x, y: (te.maximum(x[0], y[0]), x[1] * te.exp(x[0] - te.maximum(x[0], y[0])) "
    "+ y[1] * te.exp(y[0] - te.maximum(x[0], y[0]))), "
    'lambda a, b: (te.const(-1e4, a), te.const(0, b)), "online")'
)
OWN = (
    'te.comm_reducer(lambda x, y: x ^ y, lambda t: te.const(0, t), "xor")',
    'te.comm_reducer(lambda x, y: x | y, lambda t: te.const(0, t), "union")',
)
OWN_OF_FLOATS = ('te.comm_reducer(lambda x, y: -te.maximum(-x, -y), te.max_value, "least")',)


class Stages(Expressions):
    """Stages, each from an expression of its elements."""

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

    def functions(self) -> None:
        """Functions of elements, two deep, on data of every size."""
        rng = self.rng
        shape = self.shape(rng.choice((1, 1, 2)), self.budget // 4)
        scope = self.axes(shape)
        dtype = self.dtype if self.dtype in FLOATS else rng.choice(FLOATS)
        self.is_exact, was_exact = False, self.is_exact
        found = [self.expr(dtype, rng.choice((0, 0, 1)), scope) for _ in range(3)]
        self.is_exact = was_exact
        for _ in range(rng.choice((1, 2, 2))):
            if rng.random() < 0.3:
                found[0] = Code(rng.choice(OF_TWO), (found[0], found[1]), dtype)
            elif rng.random() < 0.1:
                found[0] = Code(rng.choice(WHOLE), (found[0],), dtype)
            else:
                found[0] = Code(f"te.{rng.choice(UNARY)}({{}})", (found[0],), dtype)
        self.add(shape, found[0])

    def reduction(self) -> None:
        shape = self.shape(self.rng.choice((0, 1, 1, 2, 3)), max(1, self.budget // 8))
        self.add(shape, self.reduced(self.dtype, shape, self.axes(shape)))

    def reduced(self, dtype: str, shape: tuple[str, ...], scope: list[Axis]) -> Code:
        """A reduction over one or two new axes."""
        new = self.new_axes(scope)
        names = ", ".join([name for name, _, _ in new])
        axis = names if len(new) == 1 else f"({names})"
        inside = [*scope, *new]
        depth = self.rng.choice((0, 1, 1, 2))
        roll = self.rng.random()
        if roll < 0.1:
            name = self.rng.choice(("any", "all"))
            options, parts = self.options("bool", scope, inside)
            body = (self.condition(depth, inside), *parts)
            found = Code(f"te.{name}({{}}, axis={axis}{options})", body, "bool")
            return self.cast(found, dtype)
        if roll < 0.3 and all([extent for _, _, extent in new]):
            return self.best(dtype, depth, inside, axis)
        inner = self.expr(dtype, depth, inside)
        options, parts = self.options(dtype, scope, inside)
        name = f"te.{self.rng.choice(REDUCERS)}"
        if self.rng.random() < 0.1:
            name = self.rng.choice(OWN if dtype in INTEGERS else OWN_OF_FLOATS)
        return Code(f"{name}({{}}, axis={axis}{options})", (inner, *parts), dtype)

    def options(
        self, dtype: str, scope: list[Axis], inside: list[Axis]
    ) -> tuple[str, tuple[Code, ...]]:
        """Which terms count, and what a reduction starts from."""
        options, parts = "", []
        if self.rng.random() < 0.15:
            options += ", where={}"
            parts.append(self.condition(1, inside))
        if self.rng.random() < 0.15:
            options += ", init={}"
            parts.append(self.expr(dtype, 1, scope))
        return options, tuple(parts)

    def new_axes(self, scope: list[Axis]) -> list[Axis]:
        """One or two reduce axes, some of them of a range that depends on the indices and on data."""
        left = self.budget
        for _, _, extent in scope:
            left //= max(1, extent)
        new: list[Axis] = []
        for text in self.shape(self.rng.choice((1, 1, 2)), left):
            is_range = self.rng.random() < 0.25
            new.append(
                self.range_axis(text, [*scope, *new]) if is_range else self.reduce_axis(text)
            )
        return new

    def range_axis(self, text: str, scope: list[Axis]) -> Axis:
        """A reduce axis whose values are some of those below `text`."""
        rng = self.rng
        own = [name for name, extent, _ in scope if extent == text]
        forms = ["length", "length", "promise", "constant"] + ["triangle", "rest"] * 2 * bool(own)
        rows = [(name, extent) for name, extent, _ in scope]
        forms += ["rows", "rows", "ends"] * bool(rows)
        form = rng.choice(forms)
        if form == "constant":
            ends = f"1, te.maximum({text}, 1)" if rng.random() < 0.5 else f"({text}) // 2, {text}"
        elif form in ("triangle", "rest"):
            name = rng.choice(own)
            ends = f"0, {name} + 1" if form == "triangle" else f"{name}, {text}"
        elif form in ("length", "promise"):
            load = self.ends(scope, text)
            ends = f"0, {load}" if form == "length" else f"0, te.assume({load}, 0, {text} + 1)"
        elif form == "rows":
            name, extent = rng.choice(rows)
            starts = self.new_input(
                (f"{extent} + 1",), rng.choice(("int32", "int64")), f"rising {text} + 1"
            )
            ends = f"{starts}[{name}], {starts}[{name} + 1]"
        else:
            ends = f"{self.ends(scope, text)}, {self.ends(scope, text)}"
        name = f"r{len(self.stages)}_{len(self.reduce_axes)}"
        self.reduce_axes.append((name, f"({ends})"))
        return name, text, self.value_of(text)

    def ends(self, scope: list[Axis], text: str) -> str:
        """A number of 0 .. text, from data over some of the axes."""
        axes = [axis for axis in scope if self.rng.random() < 0.6][-2:]
        dtype = self.rng.choice(("int32", "int64", "uint8"))
        name = self.new_input(tuple([extent for _, extent, _ in axes]), dtype, f"below {text} + 1")
        return str(load_of(name, [index_of(axis) for axis, _, _ in axes], "index"))

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

    def tuple(self) -> None:
        """Several tensors of different types, by one reduction."""
        rng = self.rng
        shape = self.shape(rng.choice((0, 1, 1, 2)), max(1, self.budget // 8))
        scope = self.axes(shape)
        new = self.new_axes(scope)
        if not all([extent for _, _, extent in new]):
            return self.reduction()
        inside = [*scope, *new]
        names = ", ".join([name for name, _, _ in new])
        axis = names if len(new) == 1 else f"({names})"
        depth = rng.choice((0, 1, 2))
        first = self.expr(self.dtype, depth, inside)
        roll = rng.random()
        if roll < 0.4:
            text = f"te.{rng.choice(('argmin', 'argmax'))}({{}}, axis={axis}, value=True)"
            body, dtypes = Code(text, (first,), "tuple"), ("int64", self.dtype)
        elif roll < 0.7 or self.is_exact or self.dtype not in FLOATS:
            reducer, dtypes = PAIR, (self.dtype, rng.choice(INTEGERS))
            parts = (first, self.expr(dtypes[1], 1, inside))
            if rng.random() < 0.5:
                dtypes = (*dtypes, rng.choice(tuple(THIRD)))
                parts = (*parts, self.expr(dtypes[2], 1, inside))
                reducer = MANY.format(*THIRD[dtypes[2]])
            holes = ", ".join(["{}"] * len(parts))
            body = Code(f"{reducer}(({holes}), axis={axis})", parts, "tuple")
        else:
            one = Code(f'te.const(1.0, "{self.dtype}")', (), self.dtype)
            body, dtypes = (
                Code(f"{ONLINE}(({{}}, {{}}), axis={axis})", (first, one), "tuple"),
                (self.dtype,) * 2,
            )
        name = f"S{len(self.stages)}"
        made = tuple([(f"{name}_{n}", dtype) for n, dtype in enumerate(dtypes)])
        self.stages.append(
            Stage(name, shape, AXES[: len(shape)], tuple(self.reduce_axes), body, made)
        )
        self.results += [(part, shape, dtype) for part, dtype in made]

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
                load_of(
                    name,
                    [*map(index_of, ("b",) * is_batched), index_of(i0), index_of(i1)],
                    self.dtype,
                )
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
            indices.append(index_of(index))
            if pad:
                conditions += [condition_of(f"({index}) >= 0"), condition_of(f"({index}) < {size}")]
        reduced = [name for name, _ in self.reduce_axes]
        weights = [index_of(name) for name in reduced]
        source_shape, weight_shape = tuple(spatial), tuple(window)
        names, shape = tuple("xy"[:ndim]), tuple(out)
        if channels:
            c, _, _ = self.reduce_axis(ci)
            reduced.append(c)
            if rng.random() < 0.5:
                source_shape, indices = (ci, *source_shape), [index_of(c), *indices]
                names, shape = ("o", *names), (co, *shape)
            else:
                source_shape, indices = (*source_shape, ci), [*indices, index_of(c)]
                names, shape = (*names, "o"), (*shape, co)
            weight_shape, weights = (co, ci, *weight_shape), [index_of("o"), index_of(c), *weights]
        load = load_of(self.input(source_shape, self.dtype), indices, self.dtype)
        if conditions:
            load = self.guarded(conditions, load, self.dtype)
        weight = load_of(self.input(weight_shape, self.dtype), weights, self.dtype)
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
            self.stencil(self.results[-1][1])

    def _pad(self, shape: tuple[str, ...]) -> None:
        """A tensor with a border."""
        name, indices, conditions = self.input(shape, self.dtype), [], []
        for axis, text in zip(AXES, shape):
            indices.append(index_of(f"{axis} - 1"))
            conditions += [condition_of(f"({axis} >= 1)"), condition_of(f"({axis} < {text} + 1)")]
        inside = Code(f"te.all({', '.join(['{}'] * len(conditions))})", tuple(conditions), "bool")
        parts = (inside, load_of(name, indices, self.dtype), self.const(self.dtype))
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
        found = [name for name, own, dtype in self.results if (own, dtype) == (shape, self.dtype)]
        if found:
            name = found[-1]
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
                indices.append(index_of(f"{axis} + {step + 1}"))
            elif mode == "clamp":
                indices.append(index_of(f"te.minimum(te.maximum({moved}, 0), {text} - 1)"))
            else:
                indices.append(index_of(moved))
                if step < 0:
                    conditions.append(condition_of(f"({moved} >= 0)"))
                elif step > 0:
                    conditions.append(condition_of(f"({moved} < {text})"))
        load = load_of(name, indices, self.dtype)
        return self.guarded(conditions, load, self.dtype) if conditions else load
