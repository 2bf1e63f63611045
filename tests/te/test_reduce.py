"""Reducers in definitions: what they lower to, what they give, and what is refused."""

import numpy as np
import pytest

from tensorc import te
from tensorc.errors import ExpressionError
from tensorc.ir.interpreter import interpret
from tensorc.ir.parser import parse
from tensorc.ir.printer import show
from tensorc.ir.verifier import verify

A = te.placeholder((4, 6), "float32", name="A")
B = te.placeholder((4,), "float32", name="B")
N = te.placeholder((4, 6), "int32", name="N")
k = te.reduce_axis(6, name="k")


def lowered(*tensors):
    function = te.lower(list(tensors))
    verify(function, "nest")
    assert show(parse(show(function))) == show(function)
    return function


def run(function, *arrays):
    return interpret(function, *arrays)


def data(shape=(4, 6)):
    return np.random.default_rng(0).integers(-3, 4, shape).astype("float32")


def test_the_nest_of_a_reducer_of_two():
    best = te.comm_reducer(
        lambda x, y: (x[0] + y[0], te.maximum(x[1], y[1])),
        lambda a, b: (te.const(0, a), te.min_value(b)),
        name="both",
    )
    S, M = te.compute((4,), lambda i: best((A[i, k], N[i, k]), axis=k), name="C")
    assert (S.name, M.name) == ("C.v0", "C.v1") and S.siblings == (S, M) and S.reducer == "both"
    assert (S.dtype.name, M.dtype.name) == ("float32", "int32")
    assert (
        show(lowered(A, N, S, M))
        == """function main(A: float32[4, 6], N: int32[4, 6], out C.v0: float32[4], out C.v1: int32[4])
  for C.i in 0 .. 4
    for C.k in 0 .. 6
      block C {identity.0 = 0.0, identity.1 = -2147483648}
        spatial i: 4 = C.i
        reduce k: 6 = C.k
        init
          C.v0[i] = float32(0.0)
          C.v1[i] = int32(-2147483648)
        let C.v0.term: float32 = A[i, k]
          let C.v1.term: int32 = N[i, k]
            let C.v0.next: float32 = C.v0[i] + C.v0.term
              let C.v1.next: int32 = max(C.v1[i], C.v1.term)
                C.v0[i] = C.v0.next
                C.v1[i] = C.v1.next"""
    )


def test_an_operation_stays_one_store():
    total = te.comm_reducer(lambda x, y: x + y, lambda dtype: te.const(0, dtype), name="total")
    mine = te.compute((4,), lambda i: total(A[i, k], axis=k), name="C")
    theirs = te.compute((4,), lambda i: te.sum(A[i, k], axis=k), name="C")
    assert show(lowered(A, mine)) == show(lowered(A, theirs))
    assert te.canonical_text([A, mine]) == te.canonical_text([A, theirs])


def test_a_reducer_of_one_value():
    least = te.comm_reducer(
        lambda x, y: te.select(te.abs(x) < te.abs(y), x, y), lambda dtype: te.max_value(dtype)
    )
    C = te.compute((4,), lambda i: least(A[i, k] + 0.5, axis=k), name="C")
    found = run(lowered(A, C), data())
    np.testing.assert_array_equal(abs(found), abs(data() + 0.5).min(1))


def test_old_values_combine_before_any_is_stored():
    """A product of complex numbers reads both old parts for each new one."""
    product = te.comm_reducer(
        lambda x, y: (x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]),
        lambda a, b: (te.const(1, a), te.const(0, b)),
        name="product",
    )
    R, I = te.compute((4,), lambda i: product((A[i, k], A[i, 5 - k]), axis=k), name="C")
    a = data()
    expected = np.prod(a + 1j * a[:, ::-1], axis=1)
    real, imaginary = run(lowered(A, R, I), a)
    np.testing.assert_array_equal(real + 1j * imaginary, expected)


@pytest.mark.parametrize("name", ["argmin", "argmax"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint8", "int64"])
def test_the_best_index(name, dtype):
    X = te.placeholder((5, 6), dtype, name="X")
    x = np.random.default_rng(1).integers(0, 4, (5, 6)).astype(dtype)
    if dtype.startswith("float"):
        x[1, 3:5] = np.nan
        x[2] = -np.inf
        x[3] = np.inf
    C = te.compute((5,), lambda i: getattr(te, name)(X[i, k], axis=k), name="C")
    assert C.dtype.name == "int64" and C.name == "C"
    np.testing.assert_array_equal(run(lowered(X, C), x), getattr(np, name)(x, 1))
    C, V = te.compute((5,), lambda i: getattr(te, name)(X[i, k], axis=k, value=True), name="C")
    index, value = run(lowered(X, C, V), x)
    np.testing.assert_array_equal(index, getattr(np, name)(x, 1))
    np.testing.assert_array_equal(value, getattr(np, name[3:])(x, 1))


def test_an_index_in_several_axes_is_a_position():
    i, j = te.reduce_axis((0, 4), name="i"), te.reduce_axis((0, 6), name="j")
    C = te.compute((), lambda: te.argmax(A[i, j], axis=(i, j)), name="C")
    assert run(lowered(A, C), data()) == np.argmax(data())
    j = te.reduce_axis((2, 6), name="j")
    C = te.compute((), lambda: te.argmin(A[0, j], axis=j), name="C")
    assert run(lowered(A, C), data()) == 2 + np.argmin(data()[0, 2:])  # the axis's own value


def test_conditions():
    a = data()
    any_ = te.compute((4,), lambda i: te.any(A[i, k] > 2, axis=k), name="C")
    all_ = te.compute((4,), lambda i: te.all(A[i, k] > -3, axis=k), name="D")
    assert any_.dtype.name == "bool"
    found = run(lowered(A, any_, all_), a)
    np.testing.assert_array_equal(found[0], (a > 2).any(1))
    np.testing.assert_array_equal(found[1], (a > -3).all(1))
    assert show(te.any(A[0, 0] > 2, A[0, 1] > 2)) == "A[0, 0] > float32(2.0) or A[0, 1] > float32(2.0)"


def cases():
    a, b = data(), data((4,))
    on = a > 0
    zero, inf = np.float32(0), np.float32(np.inf)
    yield "sum", A, np.where(on, a, zero).sum(1), b + a.sum(1)
    yield "prod", A, np.where(on, a, 1).prod(1), b * a.prod(1)
    yield "min", A, np.where(on, a, inf).min(1), np.minimum(b, a.min(1))
    yield "max", A, np.where(on, a, -inf).max(1), np.maximum(b, a.max(1))


@pytest.mark.parametrize("name, X, masked, started", tuple(cases()))
def test_where_and_init(name, X, masked, started):
    reduce = getattr(te, name)
    C = te.compute((4,), lambda i: reduce(X[i, k], axis=k, where=X[i, k] > 0), name="C")
    np.testing.assert_array_equal(run(lowered(X, C), data()), masked)
    C = te.compute((4,), lambda i: reduce(X[i, k], axis=k, init=B[i]), name="C")
    np.testing.assert_array_equal(run(lowered(X, B, C), data(), data((4,))), started)


def test_where_and_init_of_conditions_and_indices():
    a, b = data(), data((4,))
    C = te.compute((4,), lambda i: te.any(A[i, k] > 2, axis=k, where=k > 3, init=B[i] > 0), name="C")
    np.testing.assert_array_equal(run(lowered(A, B, C), a, b), (a[:, 4:] > 2).any(1) | (b > 0))
    C = te.compute((4,), lambda i: te.all(A[i, k] > 0, axis=k, where=k > 3), name="C")
    np.testing.assert_array_equal(run(lowered(A, C), a), (a[:, 4:] > 0).all(1))
    C = te.compute((4,), lambda i: te.argmax(A[i, k], axis=k, where=k > 3), name="C")
    np.testing.assert_array_equal(run(lowered(A, C), a), 4 + a[:, 4:].argmax(1))
    C = te.compute((4,), lambda i: te.argmax(A[i, k], axis=k, init=(-1, B[i])), name="C")
    expected = np.where(b >= a.max(1), -1, a.argmax(1))
    np.testing.assert_array_equal(run(lowered(A, B, C), a, b), expected)


def test_where_guards_the_access():
    C = te.compute((4,), lambda i: te.sum(A[i, k + 1], axis=k, where=k < 5), name="C")
    np.testing.assert_array_equal(run(lowered(A, C), data()), data()[:, 1:].sum(1))


def test_nothing_to_reduce_gives_what_it_starts_from():
    none = te.reduce_axis(0, name="none")
    C = te.compute((4,), lambda i: te.sum(A[i, none], axis=none, init=B[i]), name="C")
    np.testing.assert_array_equal(run(lowered(A, B, C), data(), data((4,))), data((4,)))
    C = te.compute((4,), lambda i: te.any(A[i, none] > 0, axis=none), name="C")
    assert not run(lowered(A, C), data()).any()
    C = te.compute((4,), lambda i: te.argmax(A[i, none], axis=none, init=(7, 0.0)), name="C")
    np.testing.assert_array_equal(run(lowered(A, C), data()), [7] * 4)


def test_a_reduction_inside_an_expression():
    C = te.compute((4,), lambda i: te.argmax(A[i, k], axis=k) * 2, name="C")
    assert C.inputs[0].name == "C_argmax.v0" and C.inputs[0].stage == "C_argmax"
    np.testing.assert_array_equal(run(lowered(A, C), data()), data().argmax(1) * 2)
    C = te.compute(
        (4,),
        lambda i: te.if_then_else(i > 0, te.sum(A[i - 1, k], axis=k, init=B[i - 1]), 0.0),
        name="C",
    )
    a, b = data(), data((4,))
    np.testing.assert_array_equal(run(lowered(A, B, C), a, b)[1:], (a.sum(1) + b)[:-1])


def test_values_of_one_reduction_share_a_stage():
    pair = lambda i: te.argmax(A[i, k], axis=k, value=True)
    V, I = te.compute((4,), lambda i: pair(i)[::-1], name="C")
    assert (V.dtype.name, V.name, I.name) == ("float32", "C.v1", "C.v0") and V.siblings == (I, V)
    D = te.compute((4,), lambda i: te.cast(pair(i)[0], "float32") + pair(i)[1], name="D")
    assert len(D.inputs) == 2 and D.inputs[0].siblings == D.inputs[1].siblings


def test_tuples_of_expressions():
    P, Q = te.compute((4, 6), lambda *i: (A[i] + 1, te.cast(A[i], "int64") * 2), name="C")
    assert (P.name, Q.name) == ("C.v0", "C.v1") and Q.dtype.name == "int64"
    p, q = run(lowered(A, P, Q), data())
    np.testing.assert_array_equal(p, data() + 1)
    np.testing.assert_array_equal(q, data() * 2)
    (only,) = te.compute((4,), lambda i: (te.sum(A[i, k], axis=k),), name="C")
    assert only.reducer == "sum"
    S, M = te.compute((4,), lambda i: (te.sum(A[i, k], axis=k), te.max(A[i, k], axis=k)), name="C")
    assert S.siblings == (S,) and M.siblings == (M,)
    X = te.compute((4, 6), lambda i, *rest: A[(i, *rest)] * B[i], name="C")
    np.testing.assert_array_equal(run(lowered(A, B, X), data(), data((4,))), data() * data((4,))[:, None])


def test_the_key_tells_reducers_apart():
    def text(fcombine, identity=0, init=None):
        reduce = te.comm_reducer(fcombine, lambda dtype: te.const(identity, dtype), name="r")
        C = te.compute((4,), lambda i: reduce(A[i, k], axis=k, init=init), name="C")
        return te.canonical_text([A, C])

    near = lambda x, y: te.select(x < y, x, y)
    texts = [
        text(near), text(lambda x, y: te.select(x < y, y, x)), text(near, 1), text(near, 0, 2.0),
        text(lambda x, y: x + y), text(lambda x, y: x * y),
    ]  # fmt: skip
    assert len(set(texts)) == len(texts) and text(near) == text(near)
    pair = te.compute((4,), lambda i: te.argmax(A[i, k], axis=k, value=True), name="C")
    assert te.canonical_text([A, *pair]) != te.canonical_text([A, *pair[::-1]])
    assert te.canonical_text([A, pair[0]]) != te.canonical_text([A, pair[1]])


pair = te.comm_reducer(lambda x, y: (x[0] + y[0], x[1]), lambda a, b: (te.const(0, a), te.const(0, b)), "pair")


def one(fcombine=lambda x, y: x, fidentity=lambda dtype: te.const(0, dtype)):
    return te.comm_reducer(fcombine, fidentity, "r")(A[0, k], axis=k)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: te.argmax(A[0, k]), "te.argmax: it reduces over axes, and axis= is missing"),
        (lambda: te.argmax(A, axis=k), "te.argmax: the value is tensor 'A' itself; index it, A[...]"),
        (
            lambda: te.argmin(A[0, k] > 0, axis=k),
            "te.argmin: the value is bool; cast it to a number",
        ),
        (
            lambda: te.argmax(A[0, 0], axis=te.reduce_axis(0, name="e")),
            "te.argmax: axis 'e' is empty, and there is no index to give; give init=",
        ),
        (lambda: te.any(A[0, k], axis=k), "te.any: the value is float32, not bool; compare it"),
        (
            lambda: te.all(A[0, k] > 0, A[1, k] > 0, axis=k),
            "te.all: it reduces one condition over axes, not 2; join them first",
        ),
        (
            lambda: te.any(A[0, 0] > 0, init=True),
            "te.any: where= and init= belong to a reduction; give axis=",
        ),
        (lambda: te.sum(A[0, k] > 0, axis=k), "te.sum: the value is bool; cast it to a number"),
        (lambda: te.sum(A[0, k], axis=k, where=A[0, k]), "te.sum: where is float32, not a condition"),
        (lambda: te.sum(A[0, k], axis=k, init=N[0, 0]), "te.sum: init is int32, the value float32; cast it"),
        (lambda: te.sum(A[0, k], axis=k, init=B), "te.sum: the value is tensor 'B' itself; index it, B[...]"),
        (
            lambda: te.sum(A[0, k], axis=k, init=A[0, k]),
            "te.sum: init reads axis 'k'; it is the value before the first term",
        ),
        (
            lambda: te.argmax(A[0, k], axis=k, init=0.0),
            "te.argmax: init has 1 value, the reduction takes 2 values",
        ),
        (lambda: pair((), axis=k), "te.pair: the tuple of values is empty"),
        (
            lambda: pair((A[0, k], A[0, k])),
            "te.pair: it reduces over axes, and axis= is missing",
        ),
        (
            lambda: te.comm_reducer(1, lambda dtype: 0, "r"),
            "comm_reducer 'r': fcombine 1 is not callable",
        ),
        (
            lambda: te.comm_reducer(lambda x, y: x, None, "r"),
            "comm_reducer 'r': fidentity None is not callable",
        ),
        (
            lambda: one(lambda x, y: (x, y)),
            "comm_reducer 'r': fcombine gives 2 values, the reduction takes 1 value",
        ),
        (
            lambda: one(lambda x, y: te.cast(x, "int32")),
            "comm_reducer 'r': fcombine gives int32 where float32 is reduced; cast it",
        ),
        (
            lambda: one(lambda x, y: "x"),
            "comm_reducer 'r': fcombine: 'x' is neither an expression nor a number",
        ),
        (
            lambda: one(lambda x, y: x + B[0]),
            "comm_reducer 'r': fcombine reads tensor 'B'; it may read its two arguments only",
        ),
        (
            lambda: one(lambda x, y: x + te.cast(k, "float32")),
            "comm_reducer 'r': fcombine reads 'k'; it may read its two arguments only",
        ),
        (
            lambda: one(lambda x, y: te.sum(x, axis=k)),
            "comm_reducer 'r': fcombine holds a reduction; it combines two values",
        ),
        (
            lambda: one(fidentity=lambda dtype: B[0]),
            "comm_reducer 'r': fidentity gives an expression that is no constant",
        ),
        (
            lambda: one(fidentity=lambda dtype: te.const(0, "int8")),
            "comm_reducer 'r': fidentity gives int8 where float32 is reduced; cast it",
        ),
        (
            lambda: te.compute((4,), lambda i: ((A[i, 0], A[i, 1]), A[i, 0]), name="C"),
            "compute 'C': the function returns a tuple in a tuple; an element of the tuple is one "
            "expression",
        ),
        (
            lambda: te.compute((4,), lambda i: (A[i, 0], None), name="C"),
            "compute 'C': the function returns None; it must return an expression",
        ),
        (
            lambda: te.compute((4, 6), lambda i: A[i, 0], name="C"),
            "compute 'C': the function takes 1 indices, the shape has 2 dimensions; give one "
            "parameter a dimension",
        ),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ExpressionError) as caught:
        make()
    assert str(caught.value) == message
