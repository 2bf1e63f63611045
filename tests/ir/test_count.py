"""Operations and bytes of definitions."""

from __future__ import annotations

from tensorc import te
from tensorc.ir.count import count
from tensorc.ir.expr import Buffer, Load, Var, index
from tensorc.ir.function import Function
from tensorc.ir.printer import show
from tensorc.ir.stmt import For, Store

A = te.placeholder((4, 8), name="A")
N = te.placeholder((8,), "int32", name="N")


def work(function, shape=(4,), inputs=(A,)) -> tuple[int, int]:
    return count(te.lower([*inputs, te.compute(shape, function, name="B")]))


def test_a_matrix_product_is_two_operations_a_term():
    B = te.placeholder((8, 5), name="B")
    k = te.reduce_axis(8)
    C = te.compute((4, 5), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    assert count(te.lower([A, B, C])) == (2 * 4 * 5 * 8, 4 * (4 * 8 + 8 * 5 + 4 * 5))


def test_every_reducer_combines_with_one_operation():
    k = te.reduce_axis(8)
    for reducer in (te.sum, te.prod, te.min, te.max):
        assert work(lambda i, reducer=reducer: reducer(A[i, k], axis=k))[0] == 32


def test_what_counts_and_what_does_not():
    assert work(lambda i: -A[i, 0] * 2 + te.exp(A[i, 1]) / 3)[0] == 4 * 5
    assert work(lambda i: A[i, i * 2 % 8])[0] == 0
    assert work(lambda i: te.cast(i * 3 + 1, "float32") + A[i, 0])[0] == 4
    assert work(lambda i: te.select(A[i, 0] > A[i, 1], A[i, 0], 0.0))[0] == 0
    assert work(lambda i: te.select(A[i, 0] + 1 > 0, A[i, 0] * 2, A[i, 0] * 3))[0] == 12
    assert work(lambda i: te.minimum(A[i, 0], te.cast(N[i] & 3, "float32")), (4,), (A, N))[0] == 8
    assert work(lambda i: i * 2 + 1)[0] == 0


def test_a_guard_counts_as_its_costlier_side():
    assert work(lambda i: te.if_then_else(i < 2, A[i, 0] * 2 + 1, A[i, 0] * 2))[0] == 8
    assert work(lambda i: te.if_then_else(i < 2, 0.0, A[i, 0] * 2 + 1))[0] == 8


def test_bytes_are_those_of_the_parameters():
    k = te.reduce_axis(8)
    flops, size = work(lambda i: te.sum(A[i, k], axis=k) / 8)
    assert (flops, size) == (32 + 4, 4 * (32 + 4))
    assert work(lambda: True, (), ()) == (0, 1)
    assert work(lambda i: A[i, 0] + 1, (0,)) == (0, 4 * 32)


def test_what_is_shared_counts_as_often_as_it_is_written():
    def function(i):
        value = A[i, 0] + 1
        for _ in range(10):
            value = value * value
        return value

    assert work(function)[0] == 4 * (2**10 + 2**10 - 1)


def test_loops_without_blocks_count_by_their_extents():
    buffer, i = Buffer("X", (6,), "float32"), Var("i")
    store = Store(buffer, (i,), Load(buffer, (i,)) + 1)
    function = Function(
        "f", (buffer,), (buffer,), (), (), For(i, index(0), index(6), "serial", store)
    )
    assert count(function) == (6, 24)


def test_symbolic_extents_give_expressions_over_them():
    n = te.var("n")
    X = te.placeholder((n,), name="X")
    operations, size = work(lambda i: X[i] + 1, (n,), (X,))
    assert (show(operations), show(size)) == ("max(n, 0)", "4 * max(n, 0) + 4 * max(n, 0)")
