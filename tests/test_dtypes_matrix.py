"""Every dtype through every basic operation and every cast, in vectors with tails, as the interpreter has them."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest

import tensorc as tc
from tensorc import te
from tensorc.dtypes import dtype
from tensorc.ir import interpret

ml_dtypes = pytest.importorskip("ml_dtypes")

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
ALL = ("bool", *INTEGERS, *FLOATS)
N = 83  # vectors of every length, and a tail


def values(name: str, seed: int, n: int = N) -> np.ndarray:
    """Numbers of all sizes, the extreme ones and the special ones among them."""
    kind, rng = dtype(name), np.random.default_rng(seed)
    if kind.is_bool:
        return rng.random(n) < 0.5
    if kind.is_int:
        wide = rng.integers(kind.min, kind.max, n, kind.numpy, endpoint=True)
        mixed = np.where(rng.random(n) < 0.5, wide, wide % 100)
        special = [kind.min, kind.max, 0, 1, kind.max - 1, kind.max // 2]
    else:
        scale = 2.0 ** rng.integers(-12, 12, n)
        mixed = rng.standard_normal(n) * np.where(rng.random(n) < 0.3, scale, 1)
        largest = float(ml_dtypes.finfo(kind.numpy).max)
        special = [0.0, -0.0, np.inf, -np.inf, np.nan, largest, -largest, 1e-40, 1e-7, 0.5, 1.5, 2.5, 3e9, -3e9, 1e19]
    result = np.array(mixed).astype(kind.numpy)
    with np.errstate(over="ignore"):
        result[: len(special)] = rng.permutation(np.array(special, mixed.dtype if kind.is_int else None))
    return result


def small(name: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Numbers whose sums are exact."""
    kind = dtype(name)
    low = 0 if kind.is_uint or kind.is_bool else -3
    return np.random.default_rng(seed).integers(low, 2 if kind.is_bool else 4, shape).astype(kind.numpy)


def same(got: np.ndarray, expected: np.ndarray, what: str) -> None:
    """Bit for bit, up to the bits of a NaN and the sign of a zero."""
    assert got.dtype == expected.dtype, what
    if got.dtype.kind in "biu":
        np.testing.assert_array_equal(got, expected, what)
    else:
        np.testing.assert_array_equal(got.astype(np.float64), expected.astype(np.float64), what)


def operations(name: str) -> dict[str, Callable]:
    """Functions of two elements."""
    kind = dtype(name)
    found: dict[str, Callable] = {"equal": te.eq, "select": lambda a, b: te.select(te.ne(a, b), b, a)}
    if kind.is_bool:
        found |= {"and": te.logical_and, "or": te.logical_or, "xor": lambda a, b: a ^ b, "not": lambda a, b: ~a}
    else:
        found |= {
            "min": te.minimum,
            "max": te.maximum,
            "less": te.lt,
            "guard": lambda a, b: te.if_then_else(a >= b, a, b),
        }
        found |= {
            "add": lambda a, b: a + b,
            "sub": lambda a, b: a - b,
            "mul": lambda a, b: a * b,
            "neg": lambda a, b: -a,
        }
    if kind.is_float:
        found |= {"div": lambda a, b: a / b, "chain": lambda a, b: (a * b) / (a + b)}
    if kind.is_int:
        found |= {"floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b, "bits": lambda a, b: (a & b) ^ (a | 3)}
        found |= {"left": lambda a, b: a << (b & 7), "right": lambda a, b: a >> (b & 7)}
    return found | {f"cast_{to}": lambda a, b, to=to: te.cast(a, to) for to in ALL}


NUMPY: dict[str, Callable] = {
    "min": np.minimum, "max": np.maximum, "less": np.less, "equal": np.equal, "add": np.add, "sub": np.subtract,
    "mul": np.multiply, "neg": lambda a, b: -a, "div": np.divide, "and": np.logical_and, "or": np.logical_or,
    "xor": np.logical_xor, "not": lambda a, b: ~a,
    "select": lambda a, b: np.where(a != b, b, a), "guard": lambda a, b: np.where(a >= b, a, b),
    "bits": lambda a, b: (a & b) ^ (a | 3), "left": lambda a, b: a << (b & 7), "right": lambda a, b: a >> (b & 7),
}  # fmt: skip


def by_numpy(what: str, a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """What NumPy has for it; None where its meaning is another."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if what in NUMPY:
            return NUMPY[what](a, b)
        if what.startswith("cast_"):
            to = dtype(what.removeprefix("cast_"))
            if not to.is_int or a.dtype.kind in "biu":
                return a.astype(to.numpy)
    return None


def elementwise(name: str):
    """(tensors, operations): every operation on two vectors, each one output of one kernel."""
    A, B = te.placeholder((N,), name, name="A"), te.placeholder((N,), name, name="B")
    found = operations(name)
    outputs = [te.compute((N,), lambda i: f(A[i], B[i]), name=f"C_{what}") for what, f in found.items()]
    return [A, B, *outputs], tuple(found)


def reductions(name: str):
    """(tensors, functions of NumPy): sums and extremes along rows and along columns."""
    rows, columns = 7, 45
    A = te.placeholder((rows, columns), name, name="A")
    i, j = te.reduce_axis(rows, name="ri"), te.reduce_axis(columns, name="rj")
    kind = dtype(name)
    if kind.is_bool:
        reducers = {"all": (te.all, np.all), "any": (te.any, np.any)}
    else:
        reducers = {"sum": (te.sum, np.sum), "max": (te.max, np.max), "min": (te.min, np.min)}
        if kind.bits < 64:
            wide = "float64" if kind.is_float else "int64"
            reducers["wide"] = (
                lambda e, axis: te.sum(te.cast(e, wide), axis=axis),
                lambda a, axis: a.astype(wide).sum(axis),
            )
    outputs, expected = [], []
    for what, (f, plain) in reducers.items():
        outputs.append(te.compute((rows,), lambda r: f(A[r, j], axis=j), name=f"R_{what}"))
        outputs.append(te.compute((columns,), lambda c: f(A[i, c], axis=i), name=f"S_{what}"))
        expected += [(what, plain, 1), (what, plain, 0)]
    return [A, *outputs], expected


def check_elementwise(name: str, **options) -> tc.Kernel:
    tensors, names = elementwise(name)
    a, b = values(name, 1), values(name, 2)
    expected = interpret(te.lower(tensors), a, b)
    kernel = tc.build(tensors, threads=1, **options)
    for what, got, exact in zip(names, kernel(a, b), expected):
        same(got, exact, f"{what} of {name}")
    return kernel


def check_reductions(name: str, **options) -> None:
    tensors, functions = reductions(name)
    a = small(name, (7, 45), 3)
    exact = interpret(te.lower(tensors), a)
    for (what, plain, axis), got, oracle in zip(functions, tc.build(tensors, threads=1, **options)(a), exact):
        same(got, oracle, f"{what} of {name}")
        terms = a.astype(np.float32) if name in FLOATS and what != "wide" else a
        same(got, np.asarray(plain(terms, axis)).astype(got.dtype), f"{what} of {name}")


@pytest.mark.parametrize("name", ALL)
def test_operations_and_casts(name):
    check_elementwise(name)


@pytest.mark.parametrize("name", ALL)
def test_interpreter_and_numpy_agree(name):
    tensors, names = elementwise(name)
    a, b = values(name, 1), values(name, 2)
    for what, got in zip(names, interpret(te.lower(tensors), a, b)):
        expected = by_numpy(what, a, b)
        if expected is not None:
            same(got, expected, f"{what} of {name}")


@pytest.mark.parametrize("name", ALL)
def test_reductions(name):
    check_reductions(name)


FUNCTIONS = ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan", "tanh", "erf",
             "sigmoid", "floor", "ceil", "trunc", "round", "abs")  # fmt: skip


@pytest.mark.parametrize("name", ("float16", "bfloat16"))
def test_functions_of_narrow_floats(name):
    A = te.placeholder((N,), name, name="A")
    outputs = [te.compute((N,), lambda i, f=f: getattr(te, f)(A[i]), name=f"C_{f}") for f in FUNCTIONS]
    outputs.append(te.compute((N,), lambda i: te.pow(te.abs(A[i]), A[i]), name="C_pow"))
    a = values(name, 5)
    a[np.abs(a.astype(np.float32)) > 1e9] = 3
    exact = interpret(te.lower([A, *outputs]), a)
    for what, got, oracle in zip((*FUNCTIONS, "pow"), tc.build([A, *outputs], threads=1)(a), exact):
        eps = float(ml_dtypes.finfo(got.dtype).eps)
        np.testing.assert_allclose(got.astype(np.float32), oracle.astype(np.float32), 2 * eps, 1e-30, err_msg=what)


@pytest.mark.parametrize("name", ("float16", "bfloat16"))
def test_a_rounding_between_two_stages_stays_where_a_schedule_joins_them(name):
    A = te.placeholder((N,), name, name="A")
    B = te.compute((N,), lambda i: A[i] * A[i], name="B")
    C = te.compute((N,), lambda i: B[i] / 3 + te.cast(A[i] * 7, name), name="C")
    a = values(name, 6)
    expected = interpret(te.lower([A, C]), a)
    s = tc.schedule([A, C])
    s.compute_inline("B")
    same(tc.build(s)(a), expected, name)
    same(tc.build([A, C])(a), expected, name)


@pytest.mark.parametrize("name", ("float16", "bfloat16"))
def test_matrices_of_narrow_floats_accumulate_in_float32(name):
    M, K = 33, 65
    A, B = te.placeholder((M, K), name, name="A"), te.placeholder((K, N), name, name="B")
    k = te.reduce_axis(K, name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    a, b = small(name, (M, K), 7), small(name, (K, N), 8)
    a[0], b[:, 0] = 1, 32  # 2080 is no sum that could be reached in bfloat16
    kernel = tc.build([A, B, C])
    same(kernel(a, b), (a.astype(np.float32) @ b.astype(np.float32)).astype(a.dtype), name)
    assert f"cast(float32x{tc.Target('cpu').lanes(4)}," in kernel.source("flat")


@pytest.mark.parametrize("name", ("float16", "bfloat16"))
def test_narrow_tensors_of_torch(name):
    torch = pytest.importorskip("torch")
    A, B = te.placeholder((N,), name, name="A"), te.placeholder((N,), name, name="B")
    C = te.compute((N,), lambda i: (A[i] + B[i]) * A[i], name="C")
    kernel = tc.build([A, B, C])
    a, b = (torch.randn(N, dtype=getattr(torch, name)) for _ in range(2))
    expected = ((a.float() + b.float()) * a.float()).to(a.dtype)
    c = torch.empty_like(a)
    kernel(a, b, c)
    assert torch.equal(c, expected) and torch.equal(kernel(a, b), expected)


def test_the_sign_of_a_half_from_float64_calls_no_library():
    """logaddexp ends in float64, asin takes the sign of its argument: LLVM would convert the float64 itself."""
    a = te.placeholder((2,), "float16", name="A")
    b = te.compute((2,), lambda i: te.asin(te.logaddexp(te.const(-1.0, "float16"), a[i])), name="B")
    kernel = tc.build(tc.schedule([a, b]), tc.Target.host())
    data = np.float16([-8, -2])
    wanted = np.arcsin(np.logaddexp(-1.0, data.astype("f8")))
    assert np.allclose(kernel(data).astype("f8"), wanted, rtol=2e-3)
