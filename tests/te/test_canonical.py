"""The canonical text: the same for renamed definitions, different for different ones."""

from __future__ import annotations

import math
import struct

import pytest

from tensorc import te
from tensorc.errors import ExpressionError


def matmul(names=("A", "B", "C", "k"), m=4, n=5, k=6, dtype="float32", reducer=te.sum):
    A = te.placeholder((m, k), dtype, name=names[0])
    B = te.placeholder((k, n), dtype, name=names[1])
    r = te.reduce_axis(k, name=names[3])
    C = te.compute((m, n), lambda i, j: reducer(A[i, r] * B[r, j], axis=r), name=names[2])
    return [A, B, C]


def unary(function, shape=(8,), dtype="float32", out=None):
    A = te.placeholder(shape, dtype, name="A")
    return [A, te.compute(out or shape, lambda *i: function(A, *i), name="B")]


def text(tensors) -> str:
    return te.canonical_text(tensors)


def test_the_text_of_a_matrix_product():
    assert text(matmul()).split("\n") == [
        "arguments 0 1 2",
        "float32[int64(4),int64(6)]",
        "float32[int64(6),int64(5)]",
        "float32[int64(4),int64(5)] Add float32(0.0)[int64(6)] n2;load 0 i0 i2;load 1 i2 i1;Mul n0 n1",
    ]


def test_names_do_not_matter():
    assert text(matmul()) == text(matmul(("X", "X", "Y.z", "k0")))
    n, m = te.var("n"), te.var("m")
    assert text(unary(lambda A, i: A[i], (n,))) == text(unary(lambda A, x: A[x], (m,)))


def test_sharing_in_python_does_not_matter():
    def shared(A, i):
        value = A[i] + 1.0
        return value * value

    assert text(unary(shared)) == text(unary(lambda A, i: (A[i] + 1.0) * (A[i] + 1.0)))


DIFFERENT = [
    matmul(),
    matmul(m=5),
    matmul(k=7),
    matmul(dtype="float64"),
    matmul(reducer=te.max),
    [matmul()[n] for n in (0, 1, 2)][::-1],
    unary(lambda A, i: A[i] + 1.0),
    unary(lambda A, i: 1.0 + A[i]),
    unary(lambda A, i: A[i] - 1.0),
    unary(lambda A, i: A[i] + 2.0),
    unary(lambda A, i: A[i] + 0.0),
    unary(lambda A, i: A[i] + -0.0),
    unary(lambda A, i: A[i] + math.nan),
    unary(lambda A, i: A[i] + te.const(struct.unpack("d", b"\1" * 6 + b"\xf8\x7f")[0], "float32")),
    unary(lambda A, i: A[i] + math.inf),
    unary(lambda A, i: A[7 - i]),
    unary(lambda A, i: te.exp(A[i])),
    unary(lambda A, i: te.exp2(A[i])),
    unary(lambda A, i: -A[i]),
    unary(lambda A, i: te.cast(A[i], "int32")),
    unary(lambda A, i: te.cast(A[i], "int64")),
    unary(lambda A, i: te.select(i < 2, A[i], 0.0)),
    unary(lambda A, i: te.if_then_else(i < 2, A[i], 0.0)),
    unary(lambda A, i: te.if_then_else(i <= 2, A[i], 0.0)),
    unary(lambda A, i: te.if_then_else(te.logical_not(i < 2), A[i], 0.0)),
    unary(lambda A, i: A[i], dtype="bool"),
    unary(lambda A, i: 1, dtype="bool"),
    unary(lambda A, i: True, dtype="bool"),
    unary(lambda A, i: A[i], (te.var("n"),)),
    unary(lambda A, i, j: A[i, j], (4, 4)),
    unary(lambda A, i, j: A[j, i], (4, 4)),
    unary(lambda A, i: A[i] + A[0]),
    unary(lambda A, i: te.cast(te.var("n"), "float32") + A[i]),
]


def test_different_definitions_have_different_texts():
    texts = [text(tensors) for tensors in DIFFERENT]
    for one, (tensors, known) in enumerate(zip(DIFFERENT, texts)):
        assert texts.index(known) == one, f"{tensors} and {DIFFERENT[texts.index(known)]}"


def test_which_tensors_are_arguments_matters():
    A, B = unary(lambda A, i: A[i] + 1.0)
    C = te.compute((8,), lambda i: B[i] * 2.0, name="C")
    texts = {text(tensors) for tensors in ([A, C], [A, B, C], [A, C, B], [B, A, C], [C, A, B])}
    assert len(texts) == 5


def test_the_same_operand_twice_is_not_two_operands():
    A, B = [te.placeholder((8,), name=name) for name in "AB"]
    twice = te.compute((8,), lambda i: A[i] + A[i])
    both = te.compute((8,), lambda i: A[i] + B[i])
    assert text([A, B, twice]) != text([A, B, both])


def test_two_symbols_are_not_one():
    def pair(n, m):
        A = te.placeholder((n, m), name="A")
        return [A, te.compute((n, m), lambda i, j: A[i, j])]

    n, m = te.var("n"), te.var("n")
    assert text(pair(n, m)) != text(pair(n, n)) and text(pair(n, m)) == text(pair(m, n))


def test_hidden_stages_are_part_of_the_text():
    k = te.reduce_axis(8, name="k")

    def scaled(reducer):
        return unary(lambda A, i: A[i] / reducer(A[k], axis=k))

    assert text(scaled(te.sum)) == text(scaled(te.sum)) != text(scaled(te.max))


def test_long_chains_of_stages_are_no_recursion():
    tensors = [te.placeholder((8,), name="A")]
    for _ in range(3000):
        last = tensors[-1]
        tensors.append(te.compute((8,), lambda i, last=last: last[i] + 1.0, name="B"))
    assert text([tensors[0], tensors[-1]]).count("\n") == 3001


def test_arguments_are_checked():
    A, B = unary(lambda A, i: A[i])
    with pytest.raises(ExpressionError, match="arguments: argument 1 is 3, not a tensor"):
        text([A, 3])
    with pytest.raises(ExpressionError, match="arguments: tensor 'A' is given twice; list each"):
        text([A, A, B])
    with pytest.raises(ExpressionError, match="arguments: 3 is not a list of tensors"):
        text(3)
