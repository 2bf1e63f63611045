"""Linear forms and index maps."""

from __future__ import annotations

import itertools

import pytest

from tensorc.arith import Affine, Domain, IndexMap, affine, is_injective, simplify
from tensorc.errors import ExpressionError
from tensorc.ir import show
from tensorc.ir.expr import Cast, Min, Mul, Neg, Sub, Var, floordiv, index, int64, minimum, mod
from tests.arith.semantics import evaluate

I, J, K, N = (Var(name) for name in "ijkn")


def test_terms_come_in_order_of_appearance_and_cancelled_ones_go():
    form = affine(J * 3 + I * 8 - J + 5 - K + K)
    assert form.terms == ((J, 2), (I, 8)) and form.constant == 5
    assert show(form.to_expr()) == "j * 2 + i * 8 + 5"


def test_coefficients():
    form = affine((I * 8 + J) * 4 + floordiv(J, 3))
    assert [form.coefficient(e) for e in (I, J, K, floordiv(J, 3))] == [32, 4, 0, 1]


@pytest.mark.parametrize(
    "expr, text",
    [
        (I - I, "0"),
        (Neg(I) - 3, "-i - 3"),
        (5 - I, "5 - i"),
        (Neg(I) + J, "j - i"),
        (Neg(I * 2), "i * -2"),
        (I << 3, "i * 8"),
        ((I + 1) * (J + 2), "i * j + i * 2 + j + 2"),
        (N * I - I * N + K, "k"),
        (index(7), "7"),
    ],
)
def test_expressions_of_forms(expr, text):
    assert show(affine(expr).to_expr()) == text


def test_what_is_not_linear_is_an_atom_as_it_stands():
    atom = Min(I + 0, Sub(J, J))
    assert affine(atom * 2 + 1) == Affine(((atom, 2),), 1)
    product = Mul(I, J)
    assert affine(product).coefficient(product) == 1


def test_integers_that_wrap_are_atoms():
    narrow = Var("s", "int32")
    assert affine(narrow + narrow).terms == ((narrow + narrow, 1),)
    assert affine(Cast(narrow, int64) + 1).coefficient(Cast(narrow, int64)) == 1


# ---- index maps ----

INVERTIBLE = [
    (lambda i, j: (i // 8, j, i % 8), (64, 5)),
    (lambda i, j: (i // 8, j, i % 8), (60, 5)),
    (lambda i, j: (j, i), (6, 10)),
    (lambda i, j: i * 10 + j, (6, 10)),
    (lambda i, j: (i * 16 + j,), (6, 10)),
    (lambda i, j: ((i * 10 + j) // 4, (i * 10 + j) % 4), (6, 10)),
    (lambda i, j: (i, i + j), (6, 10)),
    (lambda i, j: (5 - i, j * 3), (6, 10)),
    (lambda i, j: (i // 4, i // 2 % 2, j + 3, i % 2), (7, 10)),
    (lambda i, j: (i // 2 * 5 + j // 2, i % 2 * 2 + j % 2), (6, 10)),
    (lambda i, j: (i // 2 * 5 + 4 - j // 2, i % 2 * 2 + 1 - j % 2), (6, 10)),
    (lambda i, j: (i % 6, j // 16, j % 16), (6, 10)),
    (lambda i, j: (j,), (1, 10)),
]


@pytest.mark.parametrize("function, shape", INVERTIBLE)
def test_inverse(function, shape):
    mapping = IndexMap.from_function(function, 2)
    assert mapping.is_injective(shape)
    inverse = mapping.inverse(shape)
    for point in itertools.product(*map(range, shape)):
        there = mapping.apply(point)
        assert [back.value for back in inverse.apply(there)] == list(point)


def test_inverse_is_short():
    inverse = IndexMap.from_function(lambda i, j: (i // 8, j, i % 8), 2).inverse((64, 10))
    assert [show(output) for output in inverse.outputs] == ["o0 * 8 + o2", "o1"]
    inverse = IndexMap.from_function(lambda i, j: i * 10 + j, 2).inverse((6, 10))
    assert [show(output) for output in inverse.outputs] == ["o0 // 10", "o0 % 10"]


NOT_INVERTIBLE = [
    lambda i, j: i * 9 + j,
    lambda i, j: (i // 4, j, i % 2),
    lambda i, j: (i,),
    lambda i, j: (i + j, j // 2),
    lambda i, j: (minimum(i * 4, 6) + j,),
    lambda i, j: (i % 3, j),
]


@pytest.mark.parametrize("function", NOT_INVERTIBLE)
def test_maps_that_lose_something_have_no_inverse(function):
    mapping = IndexMap.from_function(function, 2)
    assert not mapping.is_injective((6, 10))
    assert mapping.inverse((6, 10)) is None


def test_injectivity_is_never_claimed_wrongly():
    pieces = [I, J, I * 2, I // 2, I % 2, J // 3, J % 3, I * 10 + J, I + J, (I * 10 + J) // 4, (I * 10 + J) % 4, J % 4]
    for exprs in itertools.product(pieces, repeat=2):
        seen = {
            tuple(evaluate(expr, {I: i, J: j}) for expr in exprs)
            for i, j in itertools.product(range(6), range(10))
        }
        assert not is_injective(exprs, {I: 6, J: 10}) or len(seen) == 60


def test_injectivity_of_block_bindings():
    assert is_injective([I * 8 + J, K], {I: 4, J: 8, K: 3})
    assert not is_injective([I * 8 + J, K], {I: 4, J: 9, K: 3})
    assert is_injective([I * 8 + J], {I: N, J: 8, K: 1})
    assert not is_injective([I], {I: 4, J: 2})
    fused = Var("f")
    assert is_injective([fused // 12, fused // 3 % 4, fused % 3], {fused: 60})


def test_image():
    mapping = IndexMap.from_function(lambda i, j: (i // 8, j, i % 8), 2)
    assert mapping.image((60, 10)) == (8, 10, 8)
    assert mapping.image((4, 10)) == (1, 10, 4)


def test_image_must_start_at_0():
    with pytest.raises(ExpressionError, match="output 0 runs from 1 to 6 over the shape \\(6,\\)"):
        IndexMap.from_function(lambda i: i + 1, 1).image((6,))


def test_a_wrong_number_of_indices():
    with pytest.raises(ExpressionError, match="it takes 2 indices, not 1"):
        IndexMap.from_function(lambda i, j: i + j, 2).apply((I,))


def test_apply_simplifies_in_a_domain():
    mapping = IndexMap.from_function(lambda i, j: (i // 8, j, i % 8), 2)
    domain = Domain().bind(J, 0, 8)
    assert [show(e) for e in mapping.apply((I * 8 + J, K), domain)] == ["i", "k", "j"]
    assert mapping.apply((I, K)) == (floordiv(I, 8), K, mod(I, 8))
    assert simplify(mapping.apply((I, 0))[1]) == index(0)
