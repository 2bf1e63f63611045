"""What a user may try and must not: each is refused by one sentence of the right class."""

import copy
import math
import pickle
import re

import numpy as np
import pytest

import tensorc as tc
from tensorc import te
from tensorc.ir import parse

LONG = "a" * 5000
STRIDED = "function f(A: float32[8] strides [2], out C: float32[8])\n  C[0] = A[0]\n"
n = te.var("n")
X = te.placeholder((8,), name="X")
Z = te.placeholder((8, 8), name="Z")
I = te.placeholder((8,), "int64", name="I")
Y = te.compute((8,), lambda i: X[i] + 1, name="Y")
k = te.reduce_axis(8, name="k")
S = te.compute((8,), lambda i: te.sum(Z[i, k], axis=k), name="S")
x = np.ones(8, "float32")


def compute(body):
    return te.compute((8,), body, name="B")


def doubled(value):
    for _ in range(40):
        value = value + value
    return value


def uneven():
    """A scan of two states of which one starts with one element, the other with two."""
    inits = [te.compute((start, 3), lambda t, i: 0.0, name=f"init{start}") for start in (1, 2)]
    states = [te.placeholder((5, 3), name=name) for name in "st"]
    updates = [te.compute((5, 3), lambda t, i, s=s: s[t - 1, i], name=f"update_{s.name}") for s in states]
    return te.scan(inits, updates, states)


def nest():
    return tc.schedule([Z, S])


@pytest.fixture(scope="module")
def kernel():
    return tc.build([X, Y])


NO_VALUE = "an expression has no value while it is being built"
NO_PARTS = "an expression is one element and has no parts; index the tensor, X[i, j]"
WHOLE = "tensor 'X' has no elements yet; index it in the function of a te.compute, X[...]"
TRUTH = "an expression has no truth value while it is being built"
EXPRESSIONS = [
    (lambda: te.placeholder((8,), name=LONG), "placeholder: name 'aaaaaaaaaaaaaaaaaaaa...' has 5000 letters, 200"),
    (lambda: te.var(LONG), "var: name 'aaaaaaaaaaaaaaaaaaaa...' has 5000 letters"),
    (lambda: te.reduce_axis(8, name=LONG), "reduce_axis: name 'aaaaaaaaaaaaaaaaaaaa...' has 5000 letters"),
    (lambda: tc.build([X, Y], name=LONG), "build: name 'aaaaaaaaaaaaaaaaaaaa...' has 5000 letters"),
    (lambda: te.placeholder((8,), name="é"), "placeholder: name 'é' is not a name"),
    (lambda: te.placeholder((8,), name="a b"), "placeholder: name 'a b' is not a name"),
    (lambda: te.placeholder((8,), name='"'), "placeholder: name '\"' is not a name"),
    (lambda: te.placeholder((8,), name=3), "placeholder: name 3 is not a name"),
    (lambda: te.placeholder((np.array([8]),)), "dimension 0: extent array([8]) is not an integer"),
    (lambda: te.placeholder(X), "shape Tensor(X: float32[8]) is not a tuple of extents"),
    (lambda: te.placeholder("8"), "dimension 0: extent '8' is not an integer"),
    (lambda: te.reduce_axis((0, np.array([8]))), "end array([8]) is not an integer"),
    (lambda: X[np.array([3])], "access X[...]: index 0 is array([3]), not an integer or an expression"),
    (lambda: X[1.5], "access X[...]: index 0 is 1.5, not an integer"),
    (lambda: X[1:3], "access X[...]: index 0 is slice(1, 3, None), not an integer"),
    (lambda: X[None], "access X[...]: index 0 is None, not an integer"),
    (lambda: X[...], "access X[...]: index 0 is Ellipsis, not an integer"),
    (lambda: X[X], "access X[...]: index 0 is Tensor(X: float32[8]), not an integer"),
    (lambda: X[True], "access X[...]: index 0 is True, not an integer"),
    (lambda: compute(lambda i: float(X[i])), f"float(): {NO_VALUE}; use te.cast"),
    (lambda: compute(lambda i: int(X[i])), f"int(): {NO_VALUE}; use te.cast"),
    (lambda: compute(lambda i: complex(X[i])), f"complex(): {NO_VALUE}"),
    (lambda: compute(lambda i: math.exp(X[i])), f"float(): {NO_VALUE}; use te.cast, and te.exp"),
    (lambda: compute(lambda i: np.float32(X[i])), f"np.array(): {NO_VALUE}"),
    (lambda: compute(lambda i: round(X[i])), f"round(): {NO_VALUE}; use te.round"),
    (lambda: compute(lambda i: round(X[i], 2)), f"round(): {NO_VALUE}; use te.round"),
    (lambda: compute(lambda i: math.floor(X[i])), f"math.floor(): {NO_VALUE}; use te.floor"),
    (lambda: compute(lambda i: math.ceil(X[i])), f"math.ceil(): {NO_VALUE}; use te.ceil"),
    (lambda: compute(lambda i: math.trunc(X[i])), f"math.trunc(): {NO_VALUE}; use te.trunc"),
    (lambda: compute(lambda i: X[i] @ X[i]), "a @ b: an expression is one element; a matrix product is te.sum"),
    (lambda: compute(lambda i: len(X[i])), f"len(): {NO_PARTS}"),
    (lambda: compute(lambda i: list(X[i])), f"iteration: {NO_PARTS}"),
    (lambda: compute(lambda i: X[i][0]), f"a[...]: {NO_PARTS}"),
    (lambda: compute(lambda i: 1 in X[i]), f"in: {NO_PARTS}"),
    (lambda: compute(lambda i: [1, 2][i]), f"an integer is needed: {NO_VALUE}"),
    (lambda: compute(lambda i: sum(X[j] for j in range(i))), f"an integer is needed: {NO_VALUE}; a loop over it"),
    (lambda: compute(lambda i: np.array(X[i])), f"np.array(): {NO_VALUE}"),
    (lambda: compute(lambda i: np.exp(X[i])), "np.exp: NumPy cannot compute with an expression; use te.exp"),
    (lambda: compute(lambda i: divmod(X[i], 2.0)), "a % b: operands are float32; use te.fmod for floats"),
    (lambda: f"{X[0]:.2f}", f"format '.2f': {NO_VALUE}"),
    (lambda: bool(X[0]), TRUTH),
    (lambda: X[0] and X[1], TRUTH),
    (lambda: not X[0], TRUTH),
    (lambda: max(X[0], X[1]), TRUTH),
    (lambda: len(X), f"len(): {WHOLE}"),
    (lambda: iter(X), f"iteration: {WHOLE}"),
    (lambda: X[0] in X, f"in: {WHOLE}"),
    (lambda: reversed(X), f"len(): {WHOLE}"),
    (lambda: bool(X), f"truth: {WHOLE}"),
    (lambda: X + 1, f"a + b: {WHOLE}"),
    (lambda: 1 - X, f"a - b: {WHOLE}"),
    (lambda: X * X, f"a * b: {WHOLE}"),
    (lambda: X @ X, f"a @ b: {WHOLE}"),
    (lambda: X > 0, f"a > b: {WHOLE}"),
    (lambda: -X, f"-a: {WHOLE}"),
    (lambda: abs(X), f"abs(): {WHOLE}"),
    (lambda: np.asarray(X), f"np.array(): {WHOLE}"),
    (lambda: np.sum(X), "np.add: tensor 'X' has no elements yet"),
    (lambda: te.compute((8,), min, name="B"), f"compute 'B': {min!r} does not tell its parameters"),
    (lambda: compute(lambda i: doubled(X[i])), "compute 'B': the body written out is 3298534883327 operations"),
    (lambda: compute(lambda i: I[i] ** I[i]), "a ** b: the exponent of int64 is not a number from 0 to 8; cast to a"),
    (lambda: compute(lambda i: I[i] ** -1), "a ** b: exponent -1 of int64 is not a number from 0 to 8; cast to a"),
    (lambda: te.function(parse(STRIDED), [X]), "function 'f': parameter 'A' has strides; tensors are contiguous"),
    (lambda: uneven(), "scan 'scan': the states 's' and 't' differ in their steps"),
    (lambda: parse("function f(A: float32[8])\n  pass\npass\n"), "line 3: expected the end of the function"),
    (lambda: X.__setitem__(0, 1.0), f"a[...] = b: {WHOLE}"),
    (lambda: compute(lambda i: X[i] + X), "Tensor(X: float32[8]) is neither an expression nor a number"),
    (lambda: te.const("a", "float32"), "'a' is not a number, which a literal of float32 must be"),
    (lambda: te.const(None, "int32"), "None is not a number, which a literal of int32 must be"),
    (lambda: te.const(1j, "float32"), "1j is not a number"),
    (lambda: te.const(X[0], "float32"), "an expression is not a number"),
    (lambda: te.const("a", "bool"), "'a' is not a number, which a literal of bool must be"),
    (lambda: te.function(nest().function, None), "function 'main': inputs None is not a list of tensors"),
    (lambda: te.scan(X, Y, X, axis=True), "scan 'scan': "),
    (lambda: tc.build(3), "arguments: 3 is not a list of tensors"),
    (lambda: tc.build([]), "lower: no tensor of the list is computed; list the results, too"),
    (lambda: tc.build({X, Y}), "arguments: a set has no order; give a list of tensors"),
    (lambda: tc.build([X, X]), "arguments: tensor 'X' is given twice"),
    (lambda: tc.build([X, Y, Y]), "arguments: tensor 'Y' is given twice"),
    (lambda: tc.build([X]), "lower: no tensor of the list is computed"),
    (lambda: tc.build([Y]), "lower: placeholder 'X' is read but not in the list of tensors; add it"),
    (lambda: tc.build([X[0]]), "arguments: argument 0 is the expression X[0], not a tensor"),
]
SCHEDULES = [
    (lambda: tc.Schedule(3), "Schedule takes a function of the IR, not int"),
    (lambda: tc.recipe(3), "recipe: 3 is no predicate; @tc.recipe(lambda group: ...) takes one"),
    (lambda: nest().trace.apply(3), "trace: 3 is neither a schedule nor a function of the IR"),
    (lambda: nest().perform([], ()), "no step is named []"),
    (lambda: nest().perform("split", ()), "split: a tuple of its arguments (loop, factors, tail) is needed, not ()"),
    (lambda: nest().perform("split", 3), "split: a tuple of its arguments (loop, factors, tail) is needed, not 3"),
    (lambda: nest().perform("fuse", (("S.i", "S.k"), 4)), "fuse: a tuple of its arguments (loops) is needed"),
    (lambda: nest().split("S.k", 2), "split(loop 'S.k'): factors must be a sequence"),
    (lambda: nest().split("S.k", (2.0, None)), "split(loop 'S.k'): factor 2.0 is no integer of 1 or more, nor None"),
    (lambda: nest().split("S.k", (np.float32(2), None)), "split(loop 'S.k'): factor 2.0 is no integer"),
    (lambda: nest().split("S.k", (np.int64(0), None)), "split(loop 'S.k'): factor 0 is no integer"),
    (lambda: nest().cache_read("S", np.int64(9)), "cache_read(block 'S', buffer 9)"),
]
ARGUMENTS = [
    (lambda kernel: kernel.time(x, seconds=None), "time: seconds is None, a positive number is needed"),
    (lambda kernel: kernel.time(x, seconds=math.nan), "time: seconds is nan, a positive number is needed"),
    (lambda kernel: kernel.time(x, seconds=math.inf), "time: seconds is inf, a positive number is needed"),
    (lambda kernel: kernel.time(x, seconds=-1), "time: seconds is -1, a positive number is needed"),
    (lambda kernel: kernel.time(x, repeat=0), "time: repeat is 0, a positive int is needed"),
    (lambda kernel: kernel.time(x, repeat="3"), "time: repeat is '3', a positive int is needed"),
    (lambda kernel: kernel.export(3), "export(3): a path is needed, a str or a Path"),
    (lambda kernel: kernel.export(b"x.so"), "export(b'x.so'): a path is needed"),
    (lambda kernel: kernel.export("x.unknown"), "export('x.unknown'): a name that ends in .so, .o or .a is needed"),
    (lambda kernel: kernel.export("x.so", name=3), "export: name is 3, a str is needed"),
    (lambda kernel: kernel.export("x.so", threads=1.5), "export: threads is 1.5, a positive int or None"),
    (lambda kernel: tc.Kernel(3), "kernels are made by tc.build, not of 3"),
    (lambda kernel: tc.build([X, Y], threads=1.5), "threads=1.5: a positive number is needed"),
    (lambda kernel: tc.build([X, Y], threads=True), "threads=True: a positive number is needed"),
    (lambda kernel: kernel(), "main(X: float32[8], out Y: float32[8]): 0 arguments were given, 1 or 2 needed"),
]


@pytest.mark.parametrize(("action", "message"), EXPRESSIONS)
def test_expressions(action, message):
    with pytest.raises(tc.ExpressionError, match=re.escape(message)):
        action()


@pytest.mark.parametrize(("action", "message"), SCHEDULES)
def test_schedules(action, message):
    with pytest.raises(tc.ScheduleError, match=re.escape(message)):
        action()


@pytest.mark.parametrize(("action", "message"), ARGUMENTS)
def test_kernels(kernel, action, message):
    with pytest.raises(tc.ArgumentError, match=re.escape(message)):
        action(kernel)


def test_numbers_of_numpy_are_numbers():
    A = te.placeholder((np.int64(8), np.uint8(4)), name="A")
    assert A.shape == (8, 4)
    assert A[np.int8(3), np.array(2)] == A[3, 2]
    assert te.const(np.float32(1.5), "float64") == te.const(1.5, "float64")
    s = nest()
    s.split("S.k", (np.int64(2), None))
    s.reorder_block_iters("S", np.array([1, 0]))
    s.annotate("S.i", "hint", np.int32(3))
    s.cache_read("S", np.int64(1))
    assert [step.args[1] for step in s.trace] == [(2, None), (1, 0), "hint", 1]
    assert tc.Trace.from_json(s.trace.json()) == s.trace
    assert np.array_equal(tc.build([X, Y], threads=np.int64(1))(x), x + 1)


def test_divmod_is_both_operations():
    quotient, rest = te.compute((8,), lambda i: divmod(I[i], 3), name="D")
    q, r = tc.build([I, quotient, rest])(np.arange(-4, 4))
    assert np.array_equal(q, np.arange(-4, 4) // 3) and np.array_equal(r, np.arange(-4, 4) % 3)


def test_a_kernel_is_copied_and_pickled(kernel):
    assert copy.copy(kernel) is kernel and copy.deepcopy([kernel])[0] is kernel
    again = pickle.loads(pickle.dumps(kernel))
    assert np.array_equal(again(x), x + 1)
    assert again.artifact == kernel.artifact and again.threads == kernel.threads
    with pytest.raises(tc.UnsupportedError, match="kernel main: loaded from an artifact, has no 'ir'"):
        again.source()


def test_names_in_functions_of_the_ir_may_be_long():
    text = "function f(XY: float32[8], out Y: float32[8])\n  for i in 0 .. 8\n    Y[i] = XY[i]"
    text = text.replace("Y", LONG).replace("[i]", f"[{LONG}i]").replace("for i", f"for {LONG}i")
    made = te.function(parse(text), [X])
    kernel = tc.build([X, made])
    assert np.array_equal(kernel(x), x)
    assert kernel.report() is not None


def test_variables_may_be_called_as_words_of_the_ir():
    for word in ("true", "not", "and", "for", "min"):
        size = te.var(word)
        P = te.placeholder((size,), name="P")
        Q = te.compute((size,), lambda i, P=P: P[i] + 1, name="Q")
        half = te.compute((size // 2,), lambda i, P=P: P[2 * i], name="half")
        q, h = tc.build([P, Q, half], cache=False)(x)
        assert np.array_equal(q, x + 1) and h.shape == (4,)
