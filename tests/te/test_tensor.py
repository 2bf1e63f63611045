"""Tensors and their definitions: what reads back, how bodies become stages, every refusal."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from tensorc import te
from tensorc.errors import ExpressionError, UnsupportedError
from tensorc.ir.expr import Buffer, Cast, Const, Load, Mul, Ramp, Var, index
from tensorc.ir.printer import show

A = te.placeholder((4, 8), name="A")


def refused(message: str, error=ExpressionError):
    """The context in which exactly this sentence is raised."""
    return pytest.raises(error, match="^" + _escaped(message) + "$")


def _escaped(text: str) -> str:
    return "".join(c if c.isalnum() or c == " " else "\\" + c for c in text)


def body(function, shape=(4,), **options) -> te.Tensor:
    return te.compute(shape, function, name="B", **options)


def test_a_placeholder_reads_back():
    assert (A.shape, A.ndim, A.dtype.name, A.name) == ((4, 8), 2, "float32", "A")
    assert A.is_placeholder and A.inputs == () and A.axes == ()
    assert repr(A) == "Tensor(A: float32[4, 8])"


def test_shapes_may_be_ints_lists_numpy_ints_or_symbols():
    n = te.var("n")
    assert te.placeholder(3).shape == (3,)
    assert te.placeholder([2, np.int32(3)]).shape == (2, 3)
    assert te.placeholder(()).shape == ()
    assert te.placeholder((0, 5)).shape == (0, 5)
    assert te.placeholder((index(7),)).shape == (7,)
    assert te.placeholder((n, 4)).shape == (n, 4)
    assert repr(te.placeholder((n, 4), "int8", name="N")) == "Tensor(N: int8[n, 4])"
    assert type(te.placeholder((np.int64(5000),)).shape[0]) is int


def test_an_access_is_a_load_from_the_tensors_buffer():
    i = te.var("i")
    load = A[i, 3]
    assert type(load) is Load and load.buffer is A.buffer and load.indices == (i, index(3))
    assert type(te.placeholder((), name="S")[()]) is Load
    assert type(A[te.cast(i, "int32"), np.int16(2)].indices[0]) is Cast


def test_iterators_are_named_by_the_functions_parameters():
    assert [a.name for a in te.compute((4, 8), lambda row, col: A[row, col]).axes] == ["row", "col"]
    assert [a.name for a in te.compute((4, 8), lambda *at: A[at]).axes] == ["at0", "at1"]
    assert [a.name for a in te.compute((4, 8), lambda i, *at: A[(i, *at)]).axes] == ["i", "at0"]
    assert [a.name for a in te.compute((4,), lambda i, T=A: T[i, 0]).axes] == ["i"]
    assert [a.name for a in te.compute((4,), lambda i, **more: A[i, 0]).axes] == ["i"]
    partial = functools.partial(lambda T, i, j: T[i, j], A)
    assert [a.name for a in te.compute((4, 8), partial).axes] == ["i", "j"]


def test_a_computed_tensor_reads_back():
    k = te.reduce_axis(8, name="k")
    row = te.compute((4,), lambda i: te.sum(A[i, k], axis=k), name="row")
    assert row.reducer == "sum" and row.inputs == (A,) and row.dtype is A.dtype
    assert [a.name for a in row.reduce_axes] == ["k"] and row.reduce_extents == (index(8),)
    assert all(type(v) is Var for v in (*row.axes, *row.reduce_axes))
    assert row.body == A[row.axes[0], row.reduce_axes[0]]


def test_numbers_are_bodies():
    assert body(lambda i: 1).dtype.name == "int64"
    assert body(lambda i: 1.5).dtype.name == "float32"
    assert body(lambda i: True).dtype.name == "bool"
    assert body(lambda i: 1, dtype="float64").body == te.const(1, "float64")
    assert body(lambda i: np.float64(2)).dtype.name == "float64"


def test_a_range_that_does_not_start_at_0_is_shifted():
    k = te.reduce_axis((-1, 2), name="k")
    shifted = body(lambda i: te.sum(A[i, k + 1], axis=k))
    assert shifted.reduce_extents == (index(3),)
    assert show(shifted.body) == "A[i, k - 1 + 1]"
    up = te.reduce_axis((2, 5), name="k")
    assert show(body(lambda i: te.sum(A[i, up], axis=up)).body) == "A[i, k + 2]"


def test_one_reduce_axis_may_serve_two_tensors():
    k = te.reduce_axis(8, name="k")
    one, two = [te.compute((4,), lambda i: te.sum(A[i, k], axis=k), name=n) for n in ("C", "D")]
    assert one.reduce_axes[0] is not two.reduce_axes[0]


def test_reduce_axes_without_a_name_are_told_apart():
    k, m = te.reduce_axis(4), te.reduce_axis(8)
    tensor = te.compute((), lambda: te.sum(A[k, m], axis=(k, m)))
    assert [axis.name for axis in tensor.reduce_axes] == ["k", "k_1"]
    tensor = te.compute((4,), lambda k: te.sum(A[k, m], axis=m))
    assert [axis.name for axis in (*tensor.axes, *tensor.reduce_axes)] == ["k", "k_1"]


def test_a_reduction_in_a_larger_body_becomes_a_stage():
    k = te.reduce_axis(8, name="k")
    mean = body(lambda i, j: te.sum(A[i, k], axis=k) / 8 + A[i, j], (4, 8))
    hidden, other = mean.inputs
    assert other is A and (hidden.name, hidden.origin) == ("B_sum", "B")
    assert hidden.shape == (4,)  # only the iterators that it reads
    assert show(mean.body) == "B_sum[i] / float32(8.0) + A[i, j]"


def test_two_reductions_become_two_stages_and_equal_ones_one():
    k, m = te.reduce_axis(8, name="k"), te.reduce_axis(8, name="l")
    two = body(lambda i: te.sum(A[i, k], axis=k) + te.max(A[i, m], axis=m))
    assert [t.name for t in two.inputs] == ["B_sum", "B_max"]
    one = body(lambda i: te.sum(A[i, k], axis=k) * te.sum(A[i, k], axis=k))
    assert len(one.inputs) == 1


def test_a_reduction_in_a_reduction_becomes_a_stage_over_the_outer_axis():
    k, m = te.reduce_axis(4, name="k"), te.reduce_axis(8, name="l")
    best = te.compute((), lambda: te.max(te.sum(A[k, m], axis=m), axis=k), name="B")
    (hidden,) = best.inputs
    assert best.reducer == "max" and show(best.body) == "B_sum[k]"
    assert hidden.name == "B_sum" and hidden.shape == (4,) and show(hidden.body) == "A[k, l]"


def test_a_guard_goes_with_the_reduction_that_it_guards():
    k = te.reduce_axis(8, name="k")
    tensor = te.compute(
        (9, 5),
        lambda i, j: te.if_then_else(te.all(i < 4, j < 2), te.sum(A[i, k], axis=k) + 1, 0.0),
        name="B",
    )
    (hidden,) = tensor.inputs
    assert show(hidden.body) == "if_then_else(i < 4 and j < 2, A[i, k], float32(0.0))"
    other = te.compute(
        (4, 5), lambda i, j: te.if_then_else(j < 2, te.sum(A[i, k], axis=k), 0.0), name="B"
    )
    assert show(other.inputs[0].body) == "A[i, k]"  # the guard is about another axis
    by_data = body(lambda i: te.if_then_else(A[i, 0] > 0, te.sum(A[i, k], axis=k), 0.0))
    assert show(by_data.inputs[1].body) == "A[i, k]"
    otherwise = body(lambda i: te.if_then_else(i >= 4, 1.0, te.prod(A[i, k], axis=k)), (9,))
    assert show(otherwise.inputs[0].body) == "if_then_else(not i >= 4, A[i, k], float32(1.0))"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats_are_summed_in_float32_and_rounded_once(dtype):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    H = te.placeholder((4, 8), dtype, name="H")
    k = te.reduce_axis(8, name="k")
    tensor = body(lambda i: te.sum(-H[i, k] * te.exp(H[i, k]) * 2, axis=k))
    (hidden,) = tensor.inputs
    assert tensor.dtype.name == dtype and tensor.reducer is None
    assert show(tensor.body) == f"cast({dtype}, B_sum[i])"
    assert hidden.dtype.name == "float32" and hidden.reducer == "sum"
    negative, load = "cast(float32, -H[i, k])", "cast(float32, H[i, k])"
    assert show(hidden.body) == f"{negative} * exp({load}) * float32(2.0)"
    largest = body(lambda i: te.max(H[i, k], axis=k))
    assert largest.dtype.name == dtype and largest.inputs[0].dtype.name == "float32"


@pytest.mark.parametrize(
    "function, text",
    [
        (lambda h, f: h * h + 1, "cast(float16, {h} * {h} + float32(1.0))"),
        (lambda h, f: -h, "-H[i]"),
        (lambda h, f: te.select(f > 0, h, 1.0), "select(F[i] > float32(0.0), H[i], float16(1.0))"),
        (lambda h, f: te.select(h > 0, h * 2, h), "cast(float16, select({h} > float32(0.0), {h} * float32(2.0), {h}))"),
        (lambda h, f: h + 1 > h, "{h} + float32(1.0) > {h}"),
        (lambda h, f: te.isinf(h * h), "isinf({h} * {h})"),
        (lambda h, f: te.cast(h * h, "float64"), "cast(float64, {h} * {h})"),
        (lambda h, f: te.cast(h * h, "float16") + h, "cast(float16, cast(float32, cast(float16, {h} * {h})) + {h})"),
        (lambda h, f: te.cast(h, "float16"), "H[i]"),
        (lambda h, f: te.cast(f, "float16"), "cast(float16, F[i])"),
        (
            lambda h, f: te.exp(h) + te.cast(f, "float16"),
            "cast(float16, exp({h}) + cast(float32, cast(float16, F[i])))",
        ),
    ],
)
def test_narrow_floats_are_computed_in_float32_as_far_as_to_the_store(function, text):
    H, F = te.placeholder((8,), "float16", name="H"), te.placeholder((8,), name="F")
    tensor = te.compute((8,), lambda i: function(H[i], F[i]), name="B")
    assert show(tensor.body) == text.format(h="cast(float32, H[i])")


def test_reducers_of_narrow_floats_combine_float32():
    H = te.placeholder((4, 8), "float16", name="H")
    k = te.reduce_axis(8, name="k")
    place, value = te.compute((4,), lambda i: te.argmax(H[i, k], axis=k, value=True), name="B")
    assert (place.dtype.name, value.dtype.name) == ("int64", "float16")
    assert [t.dtype.name for t in value.inputs[0].siblings] == ["int64", "float32"]
    only = te.compute((4,), lambda i: te.argmin(H[i, k], axis=k), name="B")
    assert only.reducer == "argmin" and only.dtype.name == "int64"


def test_a_tensor_is_not_iterable():
    with pytest.raises(ExpressionError, match="iteration: tensor 'A' has no elements yet"):
        iter(A)


def test_a_chain_of_operations_up_to_the_limit_is_defined():
    def chain(length: int):
        def function(i):
            value = A[i, 0]
            for _ in range(length):
                value = value + 1.0
            return value

        return function

    assert body(chain(190)).inputs == (A,)
    message = (
        "compute 'B': the body is 5002 operations deep, more than 200; make a tensor of a part of "
        "it, or a reduction of a long sum"
    )
    with refused(message):
        body(chain(5000))


def test_what_is_shared_in_python_is_not_written_out_without_end():
    def doubled(i):
        value = A[i, 0]
        for _ in range(60):
            value = value * value
        return value

    with pytest.raises(ExpressionError, match=r"the body written out is .* more than 100000"):
        body(doubled)


# refusals


@pytest.mark.parametrize("name", ["", "2x", "a b", "a-b", ".a", "a.", None, 3, "é"])
def test_names(name):
    tail = f"name {name!r} is not a name; it is letters, digits and _, in parts joined by dots"
    with refused(f"placeholder: {tail}"):
        te.placeholder((1,), name=name)
    with refused(f"compute: {tail}"):
        te.compute((1,), lambda i: 1.0, name=name)
    with refused(f"var: {tail}"):
        te.var(name)
    if name is not None:
        with refused(f"reduce_axis: {tail}"):
            te.reduce_axis(1, name=name)


@pytest.mark.parametrize(
    "shape, message",
    [
        ((-1,), "dimension 0: extent -1 is negative; an extent is 0 or more"),
        ((4, 2.5), "dimension 1: extent 2.5 is not an integer"),
        ((True,), "dimension 0: extent True is not an integer"),
        (("4",), "dimension 0: extent '4' is not an integer"),
        ((2**63,), f"dimension 0: extent {2**63} does not fit int64, which ends at {2**63 - 1}"),
        (None, "shape None is not a tuple of extents"),
        ((te.const(2.0),), "dimension 0: extent 2.0 is not an integer"),
        ((A[0, 0],), "dimension 0: the extent is float32, not an integer"),
        (
            (te.reduce_axis(3, name="k"),),
            "dimension 0: the extent depends on iterator 'k'; it may depend on te.var only",
        ),
        ((2**40, 2**30), f"it takes {2**72} bytes, more than int64 can count ({2**63 - 1})"),
    ],
)
def test_shapes(shape, message):
    with refused(f"placeholder 'X': {message}"):
        te.placeholder(shape, name="X")
    if message.startswith("dimension"):
        with refused(f"compute 'X': {message}"):
            te.compute(shape, lambda *i: 1.0, name="X")


def test_the_size_of_a_computed_tensor_counts_its_own_dtype():
    assert te.compute((2**62,), lambda i: True).shape == (2**62,)
    with refused(f"compute 'X': it takes {2**64} bytes, more than int64 can count ({2**63 - 1})"):
        te.compute((2**62,), lambda i: 1.0, name="X")


def test_dtypes():
    with refused("placeholder 'X': dtype float32x4 is a vector; elements of a tensor are scalars"):
        te.placeholder((1,), "float32x4", name="X")
    with pytest.raises(ExpressionError, match="dtype 'float31': unknown"):
        te.placeholder((1,), "float31")
    with refused("compute 'B': the body is float32, dtype asks for int32; cast the body"):
        body(lambda i: A[i, 0], dtype="int32")
    with refused("compute 'B': literal 1.5 is no int32: cast one of the operands"):
        body(lambda i: 1.5, dtype="int32")
    message = (
        "var 'n': dtype float32 is not supported, only int64; pass other scalars as a tensor of "
        "shape ()"
    )
    with refused(message, UnsupportedError):
        te.var("n", "float32")


@pytest.mark.parametrize(
    "indices, message",
    [
        ((0,), "1 indices for 2 dimensions; give one a dimension"),
        ((0, 0, 0), "3 indices for 2 dimensions; give one a dimension"),
        ((0, 1.0), "index 1 is 1.0, not an integer or an expression"),
        ((True, 0), "index 0 is True, not an integer or an expression"),
        ((slice(None), 0), "index 0 is slice(None, None, None), not an integer or an expression"),
        ((0, te.const(1.0)), "index 1 is float32; cast it to an integer"),
        ((te.const(True), 0), "index 0 is bool; cast it to an integer"),
    ],
)
def test_indices(indices, message):
    with refused(f"access A[...]: {message}"):
        A[indices]


@pytest.mark.parametrize(
    "function, message",
    [
        (3, "3 is not callable; give a function of the indices"),
        (
            lambda i, j: A[i, j],
            "the function takes 2 indices, the shape has 1 dimensions; give one parameter a "
            "dimension",
        ),
        (
            lambda: 1.0,
            "the function takes 0 indices, the shape has 1 dimensions; give one parameter a "
            "dimension",
        ),
        (
            lambda *, i: A[i, 0],
            "parameter 'i' is keyword-only; indices come by position",
        ),
        (
            lambda é: A[0, 0],
            "iterator: name 'é' is not a name; it is letters, digits and _, in parts joined by "
            "dots",
        ),
        (lambda i: A, "the function returns tensor 'A' itself; index it, A[...]"),
        (lambda i: None, "the function returns None; it must return an expression"),
        (lambda i: (), "the function returns no expression, but an empty tuple"),
        (lambda i: "A", "'A' is neither an expression nor a number"),
        (
            lambda i: Ramp(index(0), index(1), 4),
            "the body is the vector int64x4; an element is a scalar",
        ),
        (
            lambda i: Load(Buffer("raw", (4,), "float32"), (i,)),
            "buffer 'raw' belongs to no tensor; read tensors",
        ),
    ],
)
def test_functions(function, message):
    with refused(f"compute 'B': {message}"):
        body(function)


def test_functions_without_a_signature():
    with pytest.raises(ExpressionError, match=r"compute 'B': .* does not tell its parameters"):
        body(min)


def test_iterators_stay_in_their_definition():
    leaked = []
    body(lambda i: leaked.append(i) or A[i, 0])
    with refused("compute 'B': iterator 'i' belongs to another compute; use the function's own"):
        body(lambda j: A[leaked[0], 0])


def test_reduce_axes_stay_in_their_reduction():
    k, m = te.reduce_axis(8, name="k"), te.reduce_axis(8, name="l")
    message = (
        "compute 'B': reduce axis 'k' is used outside of a reduction over it; name it in axis= of "
        "te.sum or its kin"
    )
    for function in (
        lambda i: A[i, k],
        lambda i: te.sum(A[i, m] + A[i, k], axis=m),
        lambda i: te.sum(A[i, k], axis=k) + A[i, k],
    ):
        with refused(message):
            body(function)


def test_an_axis_is_reduced_once():
    k = te.reduce_axis(8, name="k")
    with refused("te.sum: axis 'k' is given twice; each axis is reduced once"):
        te.sum(A[0, k], axis=(k, k))
    message = (
        "compute 'B': axis 'k' is reduced twice, one reduction in another; declare a second axis"
    )
    with refused(message):
        body(lambda i: te.sum(te.sum(A[i, k], axis=k), axis=k))


def test_a_reduce_axis_has_a_name_of_its_own():
    i, k, m = te.reduce_axis(8, name="i"), te.reduce_axis(8, name="k"), te.reduce_axis(8, name="k")
    tail = "is named as another iterator here; give it a name of its own"
    with refused(f"compute 'B': reduce axis 'i' {tail}"):
        te.compute((4,), lambda i_, i=i: te.sum(A[i_, i], axis=i), name="ok")
        te.compute((4,), lambda i, r=i: te.sum(A[i, r], axis=r), name="B")
    with refused(f"compute 'B': reduce axis 'k' {tail}"):
        te.compute((), lambda: te.sum(A[0, k] * A[0, m], axis=(k, m)), name="B")


@pytest.mark.parametrize(
    "extent, message",
    [
        (-1, "extent -1 is negative; an extent is 0 or more"),
        (1.5, "extent 1.5 is not an integer"),
        ((1, 2, 3), "a range has two ends, (lo, hi), not 3"),
        ((0.5, 2), "the lower end 0.5 is not an integer"),
        ((0, 2.5), "the upper end 2.5 is not an integer"),
        ((te.cast(te.var("n"), "float32"), 2), "the lower end is float32, not an integer"),
        ((3, 1), "the range (3, 1) ends before it starts"),
        ((-(2**63) - 1, 1), f"the lower end {-(2**63) - 1} does not fit int64"),
        (
            (-(2**63), 2**62),
            f"extent {2**63 + 2**62} does not fit int64, which ends at {2**63 - 1}",
        ),
    ],
)
def test_reduce_axes(extent, message):
    with refused(f"reduce_axis 'k': {message}"):
        te.reduce_axis(extent, name="k")


def test_a_reduce_axis_may_be_symbolic_or_empty():
    n = te.var("n")
    assert te.reduce_axis(n).extent is n
    assert show(te.reduce_axis((2, n)).extent) == "n - 2"
    assert te.reduce_axis((5, 5)).extent == index(0)


@pytest.mark.parametrize("reducer", ["sum", "prod", "min", "max"])
def test_reducers(reducer):
    reduce = getattr(te, reducer)
    k = te.reduce_axis(8, name="k")
    hint = f"; for two values use te.{reducer}imum" if reducer in ("min", "max") else ""
    with refused(f"te.{reducer}: it reduces over axes, and axis= is missing{hint}"):
        reduce(A[0, k])
    with refused(f"te.{reducer}: axis is a float32 expression, not a te.reduce_axis{hint}"):
        reduce(A[0, k], A[1, k])
    with refused(f"te.{reducer}: axis is 3, not a te.reduce_axis{hint}"):
        reduce(A[0, k], 3)
    with refused(f"te.{reducer}: axis is empty; give at least one te.reduce_axis"):
        reduce(A[0, k], axis=())
    with refused(f"te.{reducer}: axis 'i' is an axis of the result, not a te.reduce_axis{hint}"):
        body(lambda i: reduce(A[i, 0], axis=i))
    with refused(f"te.{reducer}: the value is tensor 'A' itself; index it, A[...]"):
        reduce(A, axis=k)
    with refused(f"te.{reducer}: the value is bool; cast it to a number"):
        reduce(A[0, k] > 0, axis=k)
    assert body(lambda i: reduce(A[i, k], k)).reducer == reducer


def test_python_conditions_are_refused():
    with pytest.raises(ExpressionError, match="an expression has no truth value"):
        body(lambda i: A[i, 0] if i < 2 else A[i, 1])
    with pytest.raises(ExpressionError, match="an expression has no truth value"):
        body(lambda i: te.if_then_else(i > 0 and i < 2, A[i, 0], 0.0))


def test_a_definition_leaves_literals_alone():
    tensor = body(lambda i: A[i, 0] * 2)
    assert type(tensor.body) is Mul and type(tensor.body.b) is Const
