"""Lowering: the nests as text, their meaning by the interpreter, and the proof of every access."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc import te
from tensorc.errors import ExpressionError
from tensorc.ir import interpret, parse, show, verify
from tensorc.ir.printer import equal

RANDOM = np.random.default_rng(7)


def lower(*tensors, **options):
    """The function, verified, and read back from its own text."""
    function = te.lower(tensors, **options)
    verify(function)
    assert equal(parse(show(function)), function)
    return function


def run(tensors, *arrays):
    return interpret(lower(*tensors), *arrays)


def small(*shape, dtype="float32") -> np.ndarray:
    """Small whole numbers, on which float32 arithmetic is exact."""
    return RANDOM.integers(-4, 5, shape).astype(dtype)


def refused(message: str, error=ExpressionError):
    escaped = "".join(c if c.isalnum() or c == " " else "\\" + c for c in message)
    return pytest.raises(error, match=f"^{escaped}$")


# text


def test_a_matrix_product():
    A = te.placeholder((4, 8), name="A")
    B = te.placeholder((8, 5), name="B")
    k = te.reduce_axis(8, name="k")
    C = te.compute((4, 5), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    function = lower(A, B, C)
    assert show(function) == (
        """function main(A: float32[4, 8], B: float32[8, 5], out C: float32[4, 5])
  for C.i in 0 .. 4
    for C.j in 0 .. 5
      for C.k in 0 .. 8
        block C
          spatial i: 4 = C.i
          spatial j: 5 = C.j
          reduce k: 8 = C.k
          init
            C[i, j] = float32(0.0)
          C[i, j] = C[i, j] + A[i, k] * B[k, j]"""
    )
    a, b = small(4, 8), small(8, 5)
    np.testing.assert_array_equal(interpret(function, a, b), a @ b)


def test_stages_come_after_what_they_read_and_names_are_unique():
    A = te.placeholder((3,), name="A")
    one = te.compute((3,), lambda i: A[i] + 1.0, name="A")
    two = te.compute((3,), lambda i: one[i] * 2.0, name="A")
    assert show(lower(A, two, name="f")) == (
        """function f(A: float32[3], out A_1: float32[3])
  alloc A_2: float32[3]
  for A_2.i in 0 .. 3
    block A_2
      spatial i: 3 = A_2.i
      A_2[i] = A[i] + float32(1.0)
  for A_1.i in 0 .. 3
    block A_1
      spatial i: 3 = A_1.i
      A_1[i] = A_2[i] * float32(2.0)"""
    )


def test_a_tensor_named_like_a_loop_keeps_its_name():
    A = te.placeholder((3,), name="B.i")
    B = te.compute((3,), lambda i: A[i] + 1.0, name="B")
    assert "for B.i_1 in 0 .. 3" in show(lower(A, B))


def test_an_output_may_be_read_by_a_later_stage():
    A = te.placeholder((3,), name="A")
    B = te.compute((3,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((3,), lambda i: B[i] * 2.0, name="C")
    function = lower(C, A, B)
    assert [p.name for p in function.params] == ["C", "A", "B"]
    assert [p.name for p in function.outputs] == ["C", "B"] and function.allocs == ()
    c, b = interpret(function, np.arange(3, dtype="float32"))
    assert (b.tolist(), c.tolist()) == ([1, 2, 3], [2, 4, 6])


def test_symbolic_extents_flow_through():
    n, m = te.var("n"), te.var("m")
    A = te.placeholder((n, 2 * n), name="A")
    B = te.compute((n,), lambda i: A[i, i + n] + te.cast(m, "float32"), name="B")
    function = lower(A, B)
    assert show(function) == (
        """function main(A: float32[n, 2 * n], out B: float32[n], m: int64) where n >= 0
  for B.i in 0 .. n
    block B
      spatial i: n = B.i
      B[i] = A[i, i + n] + cast(float32, m)"""
    )
    a = small(3, 6)
    np.testing.assert_array_equal(
        interpret(function, a, scalars={"m": 2}), a[[0, 1, 2], [3, 4, 5]] + 2
    )


def test_an_identity_for_every_reducer_and_dtype():
    expected = {
        ("sum", "int8"): "int8(0)",
        ("prod", "float64"): "float64(1.0)",
        ("min", "float32"): "float32(inf)",
        ("max", "float32"): "float32(-inf)",
        ("min", "int8"): "int8(127)",
        ("max", "uint8"): "uint8(0)",
        ("max", "int64"): "-9223372036854775808",
    }
    for (reducer, dtype), identity in expected.items():
        A = te.placeholder((4,), dtype, name="A")
        k = te.reduce_axis(4, name="k")
        B = te.compute((), lambda A=A, k=k, name=reducer: getattr(te, name)(A[k], axis=k), name="B")
        assert f"B[] = {identity}\n" in show(lower(A, B))


def test_lowering_twice_gives_equal_functions():
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: A[i] + A[3 - i], name="B")
    first, second = lower(A, B), lower(A, B)
    assert equal(first, second) and first.params[0] is not second.params[0]


# meaning


def test_a_padded_convolution():
    X = te.placeholder((2, 3, 5, 5), name="X")
    W = te.placeholder((4, 3, 3, 3), name="W")
    c = te.reduce_axis(3, name="c")
    dy, dx = te.reduce_axis((-1, 2), name="dy"), te.reduce_axis((-1, 2), name="dx")

    def padded(n, ci, y, x):
        inside = te.all(y >= 0, y < 5, x >= 0, x < 5)
        return te.if_then_else(inside, X[n, ci, y, x], 0.0)

    Y = te.compute(
        (2, 4, 3, 3),
        lambda n, f, y, x: te.sum(
            padded(n, c, 2 * y + dy, 2 * x + dx) * W[f, c, dy + 1, dx + 1], axis=(c, dy, dx)
        ),
        name="Y",
    )
    x, w = small(2, 3, 5, 5), small(4, 3, 3, 3)
    wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
    np.testing.assert_array_equal(run([X, W, Y], x, w), np.einsum("ncyxij,fcij->nfyx", windows, w))


def test_a_softmax_in_one_definition():
    A = te.placeholder((3, 6), name="A")
    k, m = te.reduce_axis(6, name="k"), te.reduce_axis(6, name="l")

    def exp(i, j):
        return te.exp(A[i, j] - te.max(A[i, m], axis=m))

    S = te.compute((3, 6), lambda i, j: exp(i, j) / te.sum(exp(i, k), axis=k), name="S")
    function = lower(A, S)
    assert [buffer.name for buffer in function.allocs] == ["S_max", "S_sum"]
    a = RANDOM.normal(size=(3, 6)).astype("float32")
    e = np.exp(a - a.max(1, keepdims=True))
    np.testing.assert_allclose(interpret(function, a), e / e.sum(1, keepdims=True), rtol=1e-6)


def test_a_maximum_over_windows():
    A = te.placeholder((7,), name="A")
    r = te.reduce_axis(3, name="r")
    P = te.compute((5,), lambda i: te.max(A[i + r], axis=r), name="P")
    a = RANDOM.normal(size=7).astype("float32")
    expected = np.lib.stride_tricks.sliding_window_view(a, 3).max(1)
    np.testing.assert_array_equal(run([A, P], a), expected)
    a[2] = np.nan
    assert np.isnan(run([A, P], a)).tolist() == [True, True, True, False, False]


def test_two_reductions_in_one_body():
    A = te.placeholder((4, 8), name="A")
    k, m = te.reduce_axis(8, name="k"), te.reduce_axis(8, name="l")
    B = te.compute((4,), lambda i: te.sum(A[i, k], axis=k) * 2 - te.min(A[i, m], axis=m), name="B")
    a = small(4, 8)
    np.testing.assert_array_equal(run([A, B], a), a.sum(1) * 2 - a.min(1))


def test_two_reductions_of_one_kind_have_two_names():
    A = te.placeholder((4, 8), name="A")
    k, m = te.reduce_axis(8, name="k"), te.reduce_axis(4, name="l")
    B = te.compute((4, 8), lambda i, j: te.sum(A[i, k], axis=k) + te.sum(A[m, j], axis=m), name="B")
    function = lower(A, B)
    assert [buffer.name for buffer in function.allocs] == ["B_sum", "B_sum_1"]
    a = small(4, 8)
    np.testing.assert_array_equal(interpret(function, a), a.sum(1)[:, None] + a.sum(0))


def test_a_guarded_reduction():
    A = te.placeholder((4, 8), name="A")
    k = te.reduce_axis(8, name="k")
    B = te.compute(
        (6,), lambda i: te.if_then_else(i < 4, te.sum(A[i, k], axis=k) + 1, -1.0), name="B"
    )
    a = small(4, 8)
    np.testing.assert_array_equal(run([A, B], a), [*(a.sum(1) + 1), -1, -1])


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8"])
def test_integers(dtype):
    A = te.placeholder((4, 8), dtype, name="A")
    k = te.reduce_axis(8, name="k")
    B = te.compute((4,), lambda i: te.sum(A[i, k] * 3, axis=k) // 2 % 5, name="B")
    a = np.abs(small(4, 8, dtype=dtype))
    expected = (a * a.dtype.type(3)).sum(1, dtype=dtype) // 2 % 5
    np.testing.assert_array_equal(run([A, B], a), expected)


def test_bool():
    A = te.placeholder((4,), "bool", name="A")
    F = te.placeholder((4,), name="F")
    B = te.compute((4,), lambda i: te.any(A[i], F[i] > 0) ^ (i < 2), name="B")
    a, f = np.array([True, False, True, False]), np.array([1, 1, -1, -1], "float32")
    np.testing.assert_array_equal(run([A, F, B], a, f), (a | (f > 0)) ^ (np.arange(4) < 2))


def test_narrow_floats_round_once():
    H = te.placeholder((64,), "float16", name="H")
    k = te.reduce_axis(64, name="k")
    S = te.compute((), lambda: te.sum(H[k], axis=k), name="S")
    h = np.full(64, 100.1, "float16")
    assert run([H, S], h) == np.float16(h.astype("float32").sum(dtype="float32"))


def test_rank_0():
    S = te.placeholder((), name="S")
    T = te.compute((), lambda: S[()] * 2, name="T")
    assert "block T\n    T[] = S[] * float32(2.0)" in show(lower(S, T))
    assert run([S, T], np.array(3, "float32")) == 6
    k = te.reduce_axis(5, name="k")
    assert run([te.compute((), lambda: te.sum(te.cast(k, "float32"), axis=k), name="U")]) == 10


def test_empty_and_single_extents():
    A = te.placeholder((0, 1), name="A")
    B = te.compute((0, 1), lambda i, j: A[i, j + 7] + 1, name="B")  # never evaluated
    assert run([A, B], np.zeros((0, 1), "float32")).shape == (0, 1)
    k = te.reduce_axis(1, name="k")
    C = te.compute((1,), lambda i: te.sum(A[k, i], axis=k), name="C")
    with pytest.raises(ExpressionError, match="extent is 0"):
        te.lower([A, C])


@pytest.mark.parametrize("reducer, value", [("sum", 0), ("prod", 1), ("max", -np.inf)])
def test_a_reduction_over_nothing_gives_its_identity(reducer, value):
    A = te.placeholder((3, 0), name="A")
    k = te.reduce_axis(0, name="k")
    B = te.compute((3,), lambda i: getattr(te, reducer)(A[i, k], axis=k), name="B")
    assert run([A, B], np.zeros((3, 0), "float32")).tolist() == [value] * 3


def test_constant_tensors():
    assert run([te.compute((2,), lambda i: 3, dtype="int8")]).tolist() == [3, 3]
    assert run([te.compute((2,), lambda i: i * 2 + 1)]).tolist() == [1, 3]


def test_a_long_chain_of_stages():
    A = last = te.placeholder((2,), name="A")
    for _ in range(1500):
        last = te.compute((2,), lambda i, last=last: last[i] + 1.0, name="B")
    assert len(te.lower([A, last]).allocs) == 1499


# the proof of accesses

A = te.placeholder((100,), name="A")
M = te.placeholder((8, 8), name="M")
N = te.var("n")
X = te.placeholder((N,), name="X")


@pytest.mark.parametrize(
    "function",
    [
        lambda i: A[99 - i],
        lambda i: A[i // 2 + i % 2],
        lambda i: A[te.minimum(i + 5, 99)],
        lambda i: A[te.cast(i, "int32")],
        lambda i: A[0] + A[99],
        lambda i: te.if_then_else(i < 95, A[i + 5], 0.0),
        lambda i: te.if_then_else(i >= 95, 0.0, A[i + 5]),
        lambda i: te.if_then_else(te.any(i < 1, i > 98), 0.0, A[i - 1] + A[i + 1]),
        lambda i: te.if_then_else(te.logical_not(te.all(i >= 1, i < 99)), 0.0, A[i - 1] + A[i + 1]),
        lambda i: te.if_then_else(te.eq(i, 0), 0.0, A[i - 1]),
        lambda i: te.if_then_else(i >= 1, te.if_then_else(i < 99, A[i + 1] - A[i - 1], 0.0), 0.0),
        lambda i: te.if_then_else(te.all(i + 3 < 100, A[i] > 0), A[i + 3], 0.0),
        lambda i: M[i // 13, i % 8],
    ],
)
def test_accesses_that_are_proved(function):
    lower(A, M, te.compute((100,), function, name="B"))


def test_symbolic_accesses_that_are_proved():
    lower(X, te.compute((N,), lambda i: X[i] + X[N - 1 - i], name="B"))
    lower(X, te.compute((N,), lambda i: te.if_then_else(i + 1 < N, X[i + 1], 0.0), name="B"))


@pytest.mark.parametrize(
    "function, access, reads",
    [
        (lambda i: A[i + 5], "A[i + 5]", "5..104 of dimension 0, whose extent is 100"),
        (lambda i: A[i - 1], "A[i - 1]", "-1..98 of dimension 0, whose extent is 100"),
        (lambda i: A[100], "A[100]", "100 of dimension 0, whose extent is 100"),
        (lambda i: A[-1], "A[-1]", "-1 of dimension 0, whose extent is 100"),
        (lambda i: A[i * 2], "A[i * 2]", "0..198 of dimension 0, whose extent is 100"),
        (lambda i: M[0, i], "M[0, i]", "0..99 of dimension 1, whose extent is 8"),
        (lambda i: M[i // 12, 0], "M[i // 12, 0]", "0..8 of dimension 0, whose extent is 8"),
        (
            lambda i: te.select(i < 95, A[i + 5], 0.0),
            "A[i + 5]",
            "5..104 of dimension 0, whose extent is 100",
        ),
        (
            lambda i: te.if_then_else(i < 97, A[i + 5], 0.0),
            "A[i + 5]",
            "5..101 of dimension 0, whose extent is 100",
        ),
        (
            lambda i: te.if_then_else(i < 95, 0.0, A[i + 5]),
            "A[i + 5]",
            "100..104 of dimension 0, whose extent is 100",
        ),
        (
            lambda i: te.if_then_else(te.all(i < 95, A[i + 5] > 0), 1.0, 0.0),
            "A[i + 5]",
            "5..104 of dimension 0, whose extent is 100",
        ),
        (
            lambda i: A[te.minimum(i + 5, 100)],
            "A[min(i + 5, 100)]",
            "5..100 of dimension 0, whose extent is 100",
        ),
    ],
)
def test_accesses_that_leave_their_buffer(function, access, reads):
    B = te.compute((100,), function, name="B")
    with refused(
        f"compute 'B': access {access} reads index {reads}; guard it with te.if_then_else"
    ):
        te.lower([A, M, B])


def test_accesses_of_a_reduction_that_leave_their_buffer():
    k = te.reduce_axis((-1, 2), name="k")
    message = (
        "compute 'B': access A[i + (k - 1)] reads index -1..100 of dimension 0, whose extent is "
        "100; guard it with te.if_then_else"
    )
    for definition in (
        lambda i: te.sum(A[i + k], axis=k),
        lambda i: te.sum(A[i + k], axis=k) / 3,  # named as the user named it, not "B_sum"
    ):
        with refused(message):
            te.lower([A, te.compute((100,), definition, name="B")])


def test_symbolic_accesses_that_are_not_proved():
    tail = "of dimension 0, whose extent is n; guard it with te.if_then_else"
    with refused(f"compute 'B': access X[i + 1] reads index 1 or more {tail}"):
        te.lower([X, te.compute((N,), lambda i: X[i + 1], name="B")])
    with refused(f"compute 'B': access X[5 - i] reads index 5 or less {tail}"):
        te.lower([X, te.compute((N,), lambda i: X[5 - i], name="B")])


def test_indices_that_are_loaded():
    at = te.placeholder((100,), "int64", name="at")
    assert show(te.lower([X, at, te.compute((100,), lambda i: X[at[i]], name="B")])) == (
        "function main(X: float32[n], at: int64[100], out B: float32[100]) where n >= 0\n"
        "  alloc B_ok: bool[]\n"
        "  for B_ok.i in 0 .. 100\n"
        "    block B_ok {check = true}\n"
        "      reduce i: 100 = B_ok.i\n"
        "      init\n"
        "        B_ok[] = true\n"
        "      B_ok[] = B_ok[] and (at[i] >= 0 and at[i] < n)\n"
        "  block B_check {check = true}\n"
        "    if not B_ok[]\n"
        "      for B_check.i in 0 .. 100\n"
        "        check at[B_check.i] >= 0 and at[B_check.i] < n, at[B_check.i], B_check.i, n - 1, "
        '"access X[at[i]]: index {value} at i = {0} is outside 0..{1}"\n'
        "  for B.i in 0 .. 100\n"
        "    block B\n"
        "      spatial i: 100 = B.i\n"
        "      B[i] = X[at[i]]"
    )
    promised = te.compute((100,), lambda i: X[te.assume(at[i], 0, N)], name="B")
    assert "check" not in show(te.lower([X, at, promised]))


def random_access(source: te.Tensor) -> te.Tensor:
    """An affine access over a divisor, under a guard, with random numbers."""
    scale, offset = RANDOM.integers([-3, -4], [4, 12]).tolist()
    lo, hi, divisor = RANDOM.integers([0, 0, 1], [8, 9, 4]).tolist()

    def function(i):
        inside = te.all(i >= lo, i * divisor < hi)
        return te.if_then_else(inside, source[(i * scale + offset) // divisor], 0.0)

    return te.compute((8,), function, name="B")


def test_every_access_that_is_accepted_is_inside():
    """What is proved, the interpreter finds inside."""
    accepted = 0
    source = te.placeholder((10,), name="V")
    for _ in range(150):
        try:
            function = te.lower([source, random_access(source)])
        except ExpressionError:
            continue
        accepted += 1
        interpret(function, np.zeros(10, "float32"))
    assert 30 < accepted < 150


# other refusals


def test_arguments():
    P = te.placeholder((4,), name="P")
    Q = te.compute((4,), lambda i: P[i], name="Q")
    with refused("lower: placeholder 'P' is read but not in the list of tensors; add it"):
        te.lower([Q])
    with refused("lower: placeholder 'P' is read but not in the list of tensors; add it"):
        te.lower(Q)
    with refused("lower: no tensor of the list is computed; list the results, too"):
        te.lower([P])
    with refused("lower: no tensor of the list is computed; list the results, too"):
        te.lower([])
    with refused("arguments: tensor 'P' is given twice; list each tensor once"):
        te.lower([P, Q, P])
    with refused("arguments: argument 1 is 'Q', not a tensor"):
        te.lower([P, "Q"])
    name = "lower: name '' is not a name; it is letters, digits and _, in parts joined by dots"
    with refused(name):
        te.lower([P, Q], name="")


def test_variables_of_one_name():
    n, m = te.var("n"), te.var("n")
    P, Q = te.placeholder((n,), name="P"), te.placeholder((m,), name="Q")
    with refused("lower: two variables are named 'n'; use one te.var, or two names"):
        te.lower([P, Q, te.compute((n,), lambda i: P[i], name="R")])


def test_a_variable_with_a_name_that_calls_use():
    P = te.placeholder((4,), name="P")
    Q = te.compute((4,), lambda i: P[i] * te.cast(te.var("threads"), "float32"), name="Q")
    whole = "lower: variable 'threads' would be passed to the kernel by a name that calls use already; rename it"
    with refused(whole):
        te.lower([P, Q])


def test_a_variable_with_the_name_of_an_argument():
    x, y = te.var("P"), te.var("P_1")
    P = te.placeholder((4,), name="P")
    for var, other in ((x, "Q"), (y, "P")):
        Q = te.compute((4,), lambda i: P[i] * te.cast(var, "float32"), name=other)
        same = f"lower: variable {var.name!r} and a tensor have one name, by which the kernel takes them; rename one"
        with refused(same):
            te.lower([P, Q])
        with refused(same):
            te.symbols([P, Q])


def test_a_side_that_is_never_taken_needs_no_proof():
    b = te.placeholder((1, 1), name="B")
    te.lower([b, te.compute((1, 1), lambda i, j: te.if_then_else(j + 1 < 1, b[i, j + 1], 0.0), name="C")])
    te.lower([b, te.compute((1, 1), lambda i, j: te.if_then_else(j < 1, b[i, j], b[i, j + 1]), name="C")])
