"""Random tensors that are made in order: scans, updates, and functions of the IR."""

from __future__ import annotations

from tests.fuzz.accesses import AXES, Axis, index_of, load_of
from tests.fuzz.programs import Code, External, Scan, Stage, State, Update
from tests.fuzz.stages import Stages

MOST_UPDATES = 150  # the instances of an update, which the reference runs one by one
REVERSE = """
function reverse(X: {t}[n], out Y: {t}[n])
  for i in 0 .. n
    Y[i] = X[n - 1 - i]
"""
TURN = """
function turn(X: {t}[m, n], out Y: {t}[n, m])
  for a in 0 .. n
    for b in 0 .. m
      block T
        spatial i: n = a
        spatial j: m = b
        Y[i, j] = X[m - 1 - j, i]
"""
BELOW = """
function below(X: {t}[n], out Y: {t}[n], out C: int64[n])
  for i in 0 .. n
    let x: {t} = X[i]
      Y[i] = x
      C[i] = 0
      for j in 0 .. i
        if X[j] < x
          C[i] = C[i] + 1
          Y[i] = min(Y[i], X[j])
"""
PREFIX = """
function prefix(X: {t}[n], out Y: {t}[n])
  alloc last: {t}[1]
  for i in 0 .. n
    block P
      ordered t: n = i
      Y[t] = X[t] + if_then_else(t > 0, last[0], {zero})
      last[0] = max(X[t], Y[t])
"""


class Ordered(Stages):
    """Tensors that are not told by an expression of each element."""

    def scan(self) -> None:
        """One or two states, computed step by step from those of the steps before."""
        rng = self.rng
        known = self.shape(rng.choice((0, 1, 1, 2)), max(1, self.budget // 16))
        first = rng.choice((1, 1, 1, 2))
        axis = rng.randint(0, len(known))
        steps = f"{self.dim(12)} + {rng.choice((first, first, 2))}"
        shape = (*known[:axis], steps, *known[axis:])
        begin = (*known[:axis], str(first), *known[axis:])
        dtypes = [self.dtype] * rng.choice((1, 1, 2))
        if len(dtypes) == 2 and rng.random() < 0.3:
            dtypes[1] = self.other(self.dtype)
        before = len(self.results)
        inits = [self._start(begin, dtype) for dtype in dtypes]
        del self.results[before:]
        states = [f"S{len(self.stages) + n}" for n in range(len(dtypes))]
        self.stages += [State(name, shape, dtype) for name, dtype in zip(states, dtypes)]
        given = list(zip(states, dtypes))
        if rng.random() < 0.25:  # a stage between a state and the next
            given.append((self._step(shape, axis, first, given, self.dtype), self.dtype))
        updates = [self._step(shape, axis, first, given, dtype, len(states)) for dtype in dtypes]
        name = f"S{len(self.stages)}"
        made = [(f"{name}_{n}", dtype) for n, dtype in enumerate(dtypes)]
        parts = tuple(made) if len(made) > 1 else ((name, dtypes[0]),)
        self.stages.append(
            Scan(name, parts, tuple(inits), tuple(updates), tuple(states), axis, shape)
        )
        self.results += [(part, shape, dtype) for part, dtype in parts]

    def _start(self, shape: tuple[str, ...], dtype: str) -> str:
        """What a scan starts from."""
        if self.rng.random() < 0.4:
            return self.input(shape, dtype)
        self.reduce_axes = []
        self.add(shape, self.expr(dtype, self.rng.choice((0, 1)), self.axes(shape)))
        return self.results[-1][0]

    def _step(self, shape, axis: int, first: int, given, dtype: str, states: int = 99) -> str:
        """A stage over the steps that reads states before, and the stage at hand after those."""
        rng = self.rng
        self.reduce_axes = []
        scope = self.axes(shape)
        time = scope[axis]
        inside = scope
        rest = [each for each in scope if each is not time]
        new = self.new_axes(scope) if rng.random() < 0.3 else []
        if new:
            inside = [*scope, *new]
        body: Code | None = None
        for name, own in rng.sample(given, rng.randint(1, len(given))):
            is_state = (name, own) in given[:states]
            at = f"{time[0]} - {rng.randint(1, first)}" if is_state else time[0]
            load = self._stepped(name, shape, axis, at, [*rest, *new], own)
            read = self.cast(load, dtype)
            body = read if body is None else Code("({} + {})", (body, read), dtype)
        assert body is not None
        if dtype == "bool":
            read = body.operands[-1] if body.operands else body
            body = Code("te.ne({}, {})", (read, self.leaf("bool", inside)), "bool")
        else:
            text = rng.choice(("({} + {})", "({} - {})", "te.maximum({}, {})", "({} * {})"))
            body = Code(text, (body, self.expr(dtype, rng.choice((0, 1, 2)), inside)), dtype)
            if new:
                names = ", ".join([each for each, _, _ in new])
                body = Code(
                    f"te.{rng.choice(('sum', 'max', 'min'))}({{}}, axis=({names},))", (body,), dtype
                )
        name = f"S{len(self.stages)}"
        axes = AXES[: len(shape)]
        self.stages.append(Stage(name, shape, axes, tuple(self.reduce_axes), body))
        return name

    def _stepped(self, name: str, shape, axis: int, at: str, scope: list[Axis], dtype: str) -> Code:
        """A load at a step, and anywhere else along the other axes."""
        indices, conditions = [], []
        for number, text in enumerate(shape):
            if number == axis:
                indices.append(index_of(at))
                continue
            found = self.index(text, scope)
            index, condition = found if found is not None else (index_of("0"), [])
            indices.append(index)
            conditions += condition
        load = load_of(name, indices, dtype)
        return self.guarded(conditions, load, dtype) if conditions else load

    def update(self) -> None:
        """A tensor after stores in order: histograms, scatters, sums along chains."""
        rng = self.rng
        found = [each for each in self.results if each[2] == self.dtype and 0 < len(each[1]) < 4]
        if not found or rng.random() < 0.3:
            shape = self.shape(rng.choice((1, 1, 2)), 300)
            self.add(shape, self.expr(self.dtype, rng.choice((0, 0, 1)), self.axes(shape)))
            found = self.results[-1:]
        tensor, shape, dtype = rng.choice(found)
        self.reduce_axes = []
        left = MOST_UPDATES
        for _, extent in [(text, self.value_of(text)) for text in shape]:
            left = left if extent else 1
        new = [self.reduce_axis(text) for text in self.shape(rng.choice((1, 1, 2)), left)]
        places, conditions = [], []
        for text in shape:
            each = self._place(text, new)
            if each is None:
                return self.pointwise()
            places.append(each[0])
            conditions += each[1]
        value = self.expr(dtype, rng.choice((0, 1, 2)), new)
        if rng.random() < 0.6 and dtype != "bool":
            text = rng.choice(("({} + {})", "({} + {})", "te.maximum({}, {})", "({} * {})"))
            value = Code(text, (load_of(tensor, places, dtype), value), dtype)
        if rng.random() < 0.3:
            conditions.append(self.condition(1, new))
        where = None
        if conditions:
            holes = ", ".join(["{}"] * len(conditions))
            where = Code(f"te.all({holes})", tuple(conditions), "bool")
        name = f"S{len(self.stages)}"
        axes = tuple(self.reduce_axes)
        self.stages.append(Update(name, dtype, shape, tensor, axes, tuple(places), value, where))
        self.results.append((name, shape, dtype))

    def _place(self, text: str, scope: list[Axis]):
        size = self.value_of(text)
        if size and self.rng.random() < 0.4:
            return self._loaded_index(text, size, scope)
        return self.index(text, scope)

    def function(self) -> None:
        """What a function of the IR makes of a tensor."""
        rng = self.rng
        text = rng.choice((REVERSE, TURN, BELOW, PREFIX))
        dtype = self.dtype
        if dtype in ("float16", "bfloat16") and text in (BELOW, PREFIX):
            text = REVERSE  # arithmetic on them is rounded at once, which lowering never does
        rank = 2 if text is TURN else 1
        found = [each for each in self.results if each[2] == dtype and len(each[1]) == rank]
        found = [each for each in found if self._size(each[1]) <= MOST_UPDATES]
        if found and rng.random() < 0.7:
            given, shape, _ = rng.choice(found)
        else:
            shape = self.shape(rank, 64)
            given = self.input(shape, dtype)
        name = f"S{len(self.stages)}"
        parts: tuple[tuple[str, str], ...] = ((name, dtype),)
        if text is BELOW:
            parts = ((f"{name}_0", dtype), (f"{name}_1", "int64"))
        result = shape[::-1] if text is TURN else shape
        body = text.format(t=dtype, zero=f"{dtype}(0)")
        self.stages.append(External(name, parts, result, body, (given,)))
        self.results += [(part, result, kind) for part, kind in parts]

    def _size(self, shape: tuple[str, ...]) -> int:
        size = 1
        for text in shape:
            size *= self.value_of(text)
        return size
