"""Small programs of every family with their answers, for tests that build them for many machines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tensorc import schedule, te
from tensorc.intrinsics import find
from tensorc.ir import interpret
from tensorc.schedule import Schedule
from tests.test_dtypes_matrix import elementwise, reductions, same, small, values


@dataclass(frozen=True, slots=True)
class Program:
    """Tensors and inputs for them; `exact` says that every order of the arithmetic gives the same. `schedule` is
    None for the default one."""

    name: str
    tensors: list[te.Tensor]
    inputs: tuple[np.ndarray, ...]
    exact: bool = True
    schedule: Schedule | None = None

    def answers(self) -> tuple[np.ndarray, ...]:
        """What the interpreter has for it."""
        result = interpret(te.lower(self.tensors), *self.inputs)
        return result if isinstance(result, tuple) else (result,)

    def check(self, results: tuple[np.ndarray, ...]) -> None:
        """Compare with the interpreter's answers."""
        answers = self.answers()
        assert len(results) == len(answers)
        for got, expected in zip(results, answers):
            if self.exact:
                same(got, expected, self.name)
            else:
                np.testing.assert_allclose(got, expected, 2e-6, 1e-30, err_msg=self.name)


def programs() -> list[Program]:
    """A few of every family."""
    return [matmul("float32"), matmul("bfloat16"), matmul("float16"), dot_int8(), convolution(), softmax(), best(),
            transposed("float32"), transposed("int8"),
            *basics("int8"), *basics("uint64"), *basics("bool"), *basics("float16"), *basics("bfloat16"),
            *basics("float64")]  # fmt: skip


def matmul(name: str) -> Program:
    M, N, K = 19, 37, 23
    A, B = te.placeholder((M, K), name, name="A"), te.placeholder((K, N), name, name="B")
    k = te.reduce_axis(K, name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return Program(f"matmul_{name}", [A, B, C], (small(name, (M, K), 1), small(name, (K, N), 2)))


def dot_int8() -> Program:
    M, N, K = 5, 21, 40
    A, B = te.placeholder((M, K), "uint8", name="A"), te.placeholder((N, K), "int8", name="B")
    k = te.reduce_axis(K, name="k")

    def dot(i, j):
        return te.sum(te.cast(A[i, k], "int32") * te.cast(B[j, k], "int32"), axis=k)

    a = np.random.default_rng(3).integers(0, 255, (M, K), np.uint8, endpoint=True)
    b = np.random.default_rng(4).integers(-128, 127, (N, K), np.int8, endpoint=True)
    return Program("dot_int8", [A, B, te.compute((M, N), dot, name="C")], (a, b))


def tile_products() -> list[Program]:
    """Products of matrices by the tensor intrinsics of AArch64."""
    rows = [tile_product(f"arm.{name}", 1, 4, 4) for name in ("sdot", "udot", "usdot")]
    return [*rows, *[tile_product(f"arm.{name}", 2, 2, 8) for name in ("smmla", "ummla", "usmmla")]]


def tile_product(intrin: str, m: int, n: int, k: int) -> Program:
    """A product of packed matrices whose tiles of m x n x k an intrinsic computes."""
    a, b, c = [param.dtype.name for param in find(intrin).meaning.params]
    M, N, K = 3, 5, 4  # tiles
    A, B = te.placeholder((M, K, m, k), a, name="A"), te.placeholder((N, K, n, k), b, name="B")
    r, q = te.reduce_axis(K, name="r"), te.reduce_axis(k, name="q")

    def product(i, j, x, y):
        return te.sum(te.cast(A[i, r, x, q], c) * te.cast(B[j, r, y, q], c), axis=(r, q))

    C = te.compute((M, N, m, n), product, name="C")
    s = schedule([A, B, C])
    i, j, x, y, outer, inner = s.loops("C")
    s.reorder(i, j, outer, x, y, inner)
    s.tensorize(x if m > 1 else y, intrin)
    rng = np.random.default_rng(5)
    data = [rng.integers(t.dtype.min, t.dtype.max, t.shape, t.dtype.numpy, endpoint=True) for t in (A, B)]
    return Program(intrin.replace(".", "_"), [A, B, C], tuple(data), schedule=s)


def convolution() -> Program:
    C, H, W, O, R = 3, 9, 18, 5, 3
    X, F = te.placeholder((C, H, W), name="X"), te.placeholder((O, C, R, R), name="F")
    c, y, x = te.reduce_axis(C, name="c"), te.reduce_axis(R, name="y"), te.reduce_axis(R, name="x")

    def padded(c, i, j):
        inside = te.all(i >= 1, i <= H, j >= 1, j <= W)
        return te.if_then_else(inside, X[c, i - 1, j - 1], 0.0)

    P = te.compute((C, H + 2, W + 2), padded, name="P")
    Y = te.compute((O, H, W), lambda o, i, j: te.sum(P[c, i + y, j + x] * F[o, c, y, x], axis=(c, y, x)), name="Y")
    return Program("convolution", [X, F, Y], (small("float32", (C, H, W), 5), small("float32", (O, C, R, R), 6)))


def softmax() -> Program:
    M, N = 4, 45
    A = te.placeholder((M, N), name="A")
    k, l = te.reduce_axis(N, name="k"), te.reduce_axis(N, name="l")
    top = te.compute((M,), lambda i: te.max(A[i, k], axis=k), name="top")
    e = te.compute((M, N), lambda i, j: te.exp(A[i, j] - top[i]), name="e")
    total = te.compute((M,), lambda i: te.sum(e[i, l], axis=l), name="total")
    S = te.compute((M, N), lambda i, j: e[i, j] / total[i], name="S")
    a = np.random.default_rng(7).standard_normal((M, N)).astype(np.float32) * 9
    return Program("softmax", [A, S], (a,), exact=False)


def transposed(name: str) -> Program:
    """A matrix across, with tiles that are whole and some that are not."""
    X = te.placeholder((37, 50), name, name="X")
    C = te.compute((50, 37), lambda i, j: X[j, i], name="C")
    return Program(f"transpose_{name}", [X, C], (small(name, (37, 50), 4),))


def best() -> Program:
    M, N = 6, 50
    A = te.placeholder((M, N), name="A")
    k = te.reduce_axis(N, name="k")
    B = te.compute((M,), lambda i: te.argmax(A[i, k], axis=k), name="B")
    return Program("best", [A, B], (small("float32", (M, N), 8),))


def basics(name: str) -> list[Program]:
    """Every operation, cast and reduction of a dtype."""
    operations = Program(f"operations_{name}", elementwise(name)[0], (values(name, 1), values(name, 2)))
    return [operations, Program(f"reductions_{name}", reductions(name)[0], (small(name, (7, 45), 3),))]
