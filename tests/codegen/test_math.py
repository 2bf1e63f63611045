"""Intrinsics: exact where IEEE says so, within their documented error elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc.codegen.llvm import assembly
from tensorc.dtypes import dtype
from tensorc.errors import UnsupportedError
from tensorc.ir import Call, parse
from tensorc.ir.intrinsic import TABLE, call
from tensorc.target import Target
from tests.codegen.jit import check, edge_values, elementwise, run

FLOATS = ("float32", "float64", "float16", "bfloat16")
EXACT = ("sqrt", "floor", "ceil", "trunc", "round", "abs", "isnan", "isfinite", "isinf")

INEXACT = sorted(
    name
    for name, intrinsic in TABLE.items()
    if name not in EXACT and not intrinsic.reduces and intrinsic.kinds == ("float",)
)


@pytest.mark.parametrize("lanes", (1, 8))
@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("name", EXACT)
def test_exact(name, kind, lanes):
    values = np.resize(edge_values(kind), 24)
    out = "bool" if name.startswith("is") else kind
    check(elementwise(lambda x: call(name, x), out, kind, count=24, lanes=lanes), values)


@pytest.mark.parametrize("lanes", (1, 8))
@pytest.mark.parametrize("kind", ("int8", "int64", "uint16"))
def test_abs_of_integers(kind, lanes):
    values = np.resize(edge_values(kind), 24)
    check(elementwise(lambda x: call("abs", x), kind, kind, count=24, lanes=lanes), values)


@pytest.mark.parametrize("lanes", (1, 8))
@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("name", INEXACT)
def test_close_to_numpy(name, kind, lanes):
    intrinsic = TABLE[name]
    generator = np.random.default_rng(1)
    inputs = [
        generator.uniform(0.1, 4, 64).astype(dtype(kind).numpy) for _ in range(intrinsic.arity)
    ]
    out = np.zeros(64, dtype(kind).numpy)
    run(
        elementwise(
            lambda *x: call(name, *x), kind, *[kind] * intrinsic.arity, count=64, lanes=lanes
        ),
        *inputs,
        out,
    )
    expected = intrinsic.meaning(*[array.astype(np.float64) for array in inputs])
    eps = {"float32": 2.0**-23, "float64": 2.0**-52, "float16": 2.0**-10, "bfloat16": 2.0**-7}[kind]
    np.testing.assert_allclose(out.astype(np.float64), expected, rtol=4 * eps, atol=eps)


@pytest.mark.parametrize("lanes", (1, 16))
def test_exp_of_float32(lanes):
    generator = np.random.default_rng(2)
    x = np.concatenate(
        [
            generator.uniform(-110, 90, 20000),
            generator.uniform(-1, 1, 20000),
            generator.uniform(-104, -87, 8000),
            [
                0.0,
                -0.0,
                np.inf,
                -np.inf,
                np.nan,
                88.72283,
                88.72284,
                -103.97,
                -104.0,
                1e38,
                -1e38,
                1e-40,
            ],
        ]
    ).astype(np.float32)
    x = np.resize(x, 48064)
    out = np.zeros_like(x)
    run(
        elementwise(lambda v: call("exp", v), "float32", "float32", count=len(x), lanes=lanes),
        x,
        out,
    )
    with np.errstate(all="ignore"):
        exact = np.exp(x.astype(np.longdouble))
        expected = exact.astype(np.float32)
    special = ~np.isfinite(expected) | (expected == 0)
    np.testing.assert_array_equal(out[special], expected[special])
    unit = np.spacing(np.abs(expected[~special])).astype(np.longdouble)
    assert (np.abs(out[~special] - exact[~special]) / unit).max() <= 1.0


@pytest.mark.parametrize("lanes", (1, 4, 8, 16, 5))
def test_exp_needs_no_libm(lanes):
    function = elementwise(lambda v: call("exp", v), "float32", "float32", count=80, lanes=lanes)
    for target in (
        Target.host(),
        Target("cpu", mcpu="x86-64-v3"),
        Target("cpu", mcpu="neoverse-n1"),
    ):
        assert "exp" not in assembly(function, target).replace("tensorc_", "")


@pytest.mark.parametrize("lanes", (2, 5, 16, 32))
@pytest.mark.parametrize("kind", (*FLOATS, "int8", "int32", "int64", "uint8"))
@pytest.mark.parametrize("name", ("reduce_add", "reduce_mul", "reduce_min", "reduce_max"))
def test_reductions(name, kind, lanes):
    values = np.arange(lanes) % 3 - 1
    if name == "reduce_mul":
        values = np.where(np.arange(lanes) < 6, values + 2, 1)
    values = values.astype(dtype(kind).numpy)
    function = parse(f"""
function f(a: {kind}[{lanes}], out b: {kind}[1])
  b[0] = {name}(a[ramp(0, 1, {lanes})])
""")
    check(function, values)


@pytest.mark.parametrize("place", (0, 3, 15))
@pytest.mark.parametrize("name", ("reduce_min", "reduce_max"))
def test_reductions_propagate_nan(name, place):
    values = np.arange(16, dtype=np.float32)
    values[place] = np.nan
    function = parse(f"""
function f(a: float32[16], out b: float32[1])
  b[0] = {name}(a[ramp(0, 1, 16)])
""")
    assert np.isnan(check(function, values)).all()


@pytest.mark.parametrize("name", ("reduce_and", "reduce_or"))
@pytest.mark.parametrize("values", ([0] * 8, [1] * 8, [0, 1] * 4))
def test_reductions_of_bools(name, values):
    function = parse(f"""
function f(a: bool[8], out b: bool[1])
  b[0] = {name}(a[ramp(0, 1, 8)])
""")
    check(function, np.array(values, bool))


def test_an_unknown_intrinsic_is_refused():
    function = elementwise(
        lambda v: Call("warp_shuffle", (v,), v.dtype), "float32", "float32", count=1
    )
    with pytest.raises(
        UnsupportedError, match="'warp_shuffle': the LLVM code generator has no implementation"
    ):
        run(function, np.zeros(1, np.float32), np.zeros(1, np.float32))
