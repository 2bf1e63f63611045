"""Every function in float32 against float64 over all magnitudes, on machines with and without FMA."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tensorc import te
from tensorc.build import build
from tensorc.ir.intrinsic import TABLE, call
from tensorc.target import Target
from tests.codegen.jit import elementwise, run
from tests.codegen.ulp import ulps

BOUND = {"exp": 2, "log": 2}  # of the others 4
UNARY = sorted(
    name
    for name, intrinsic in TABLE.items()
    if intrinsic.kinds == ("float",) and intrinsic.arity == 1 and not intrinsic.reduces
    if not intrinsic.native and not name.startswith("is")
)
BINARY = ("atan2", "copysign", "fmod", "hypot", "ldexp", "logaddexp", "pow")
LANES = {"x86-64": 4, "x86-64-v2": 4, "x86-64-v3": 8, "x86-64-v4": 16}
SPECIAL = [0.0, 1.0, 1.5, 2.0, 0.5, 3.0, math.inf, math.nan, 1e-45, 2.0**-126, 3.4e38]
SPECIAL += [2.0**24, 2.0**24 - 1, 2.0**23 + 1]


def targets() -> list[str]:
    return [name for name in LANES if Target("cpu", mcpu=name).is_host]


@pytest.fixture(scope="module")
def patterns() -> np.ndarray:
    """A million floats, spread evenly over the bit patterns, and the special ones."""
    spread = (np.arange(1 << 20, dtype=np.uint64) * 4099 % (1 << 32)).astype(np.uint32).view(np.float32)
    special = np.array([*SPECIAL, *[-value for value in SPECIAL]], np.float32)
    return np.resize(np.concatenate([spread, special]), (1 << 20) + 32)


def exact(name: str, *arrays: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return TABLE[name].meaning(*[array.astype(np.float64) for array in arrays])


def worst(out: np.ndarray, expected: np.ndarray, *inputs: np.ndarray) -> tuple:
    errors = ulps(out, expected)
    at = int(errors.argmax())
    return errors[at], [array[at] for array in inputs], out[at], expected[at]


@pytest.mark.parametrize("name", UNARY)
def test_one_argument(name, patterns):
    expected = exact(name, patterns)
    for target in targets():
        out = np.zeros_like(patterns)
        function = elementwise(
            lambda x: call(name, x), "float32", "float32", count=len(patterns), lanes=LANES[target]
        )
        run(function, patterns, out, target=Target("cpu", mcpu=target))
        error = worst(out, expected, patterns)
        assert error[0] <= BOUND.get(name, 4), f"{target}: {error}"


def argument_pairs(name: str) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of special numbers, random bit patterns, and what suits the function."""
    generator, count = np.random.default_rng(5), 1 << 14
    signed = [*SPECIAL, *[-value for value in SPECIAL]]
    grid = np.meshgrid(signed, signed)
    bits = [generator.integers(0, 1 << 32, count, np.uint32).view(np.float32) for _ in range(2)]
    near = [generator.uniform(-4, 4, count) for _ in range(2)]
    whole = [generator.integers(-20, 20, count) for _ in range(2)]
    power = [generator.uniform(0.5, 2, count), generator.uniform(-150, 150, count)]
    far = [np.exp(generator.uniform(-80, 80, count)), generator.uniform(-3, 3, count)]
    sides = [
        np.concatenate([part.ravel().astype(np.float32) for part in parts])
        for parts in zip(grid, bits, near, whole, power, far)
    ]
    if name == "ldexp":
        sides[1] = np.rint(np.nan_to_num(np.clip(sides[1], -400, 400)))
    size = len(sides[0]) // 16 * 16
    return sides[0][:size], sides[1][:size]


@pytest.mark.parametrize("name", BINARY)
def test_two_arguments(name):
    a, b = argument_pairs(name)
    expected = exact(name, a, b)
    for target in targets():
        out = np.zeros_like(a)
        function = elementwise(
            lambda x, y: call(name, x, y), *["float32"] * 3, count=len(a), lanes=LANES[target]
        )
        run(function, a, b, out, target=Target("cpu", mcpu=target))
        error = worst(out, expected, a, b)
        assert error[0] <= 4, f"{target}: {error}"


@pytest.mark.parametrize("target", ("x86-64-v3", "x86-64-v4"))
@pytest.mark.parametrize("name", UNARY)
def test_a_scalar_gives_what_lanes_give(name, target, patterns):
    if target not in targets():
        pytest.skip(f"this machine is no {target}")
    x = patterns[:: 1 << 7][:4608].copy()
    results = []
    for lanes in (1, 8, 24, 32):
        out = np.zeros_like(x)
        function = elementwise(lambda v: call(name, v), "float32", "float32", count=len(x), lanes=lanes)
        run(function, x, out, target=Target("cpu", mcpu=target))
        results.append(out)
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


def test_values_that_must_be_exact():
    whole = np.arange(-16, 16, dtype=np.float32)
    powers = {
        "exp2": (whole, 2.0**whole),
        "log2": (2.0**whole, whole),
        "exp10": (whole[16:27], 10.0 ** whole[16:27]),
        "log10": (10.0 ** whole[16:27], whole[16:27]),
        "cbrt": (whole**3, whole),
        "tanh": (np.array([20, 10, -10, np.inf], np.float32), np.array([1, 1, -1, 1])),
        "cos": (np.zeros(1, np.float32), np.ones(1)),
    }
    for name, (x, expected) in powers.items():
        x = np.resize(x.astype(np.float32), 32)
        out = np.zeros_like(x)
        run(elementwise(lambda v: call(name, v), "float32", "float32", count=32, lanes=8), x, out)
        np.testing.assert_array_equal(out, np.resize(expected, 32), err_msg=name)


CHUNK = 1 << 22


def distance(name: str, bits) -> te.Tensor:
    """By how many ulp float32 is off float64 for each bit pattern; 1e9 for a wrong NaN or zero."""

    def at(i):
        x = te.reinterpret(bits[i], "float32")
        near, true = te.cast(call(name, x), "float64"), call(name, te.cast(x, "float64"))
        exponent = te.reinterpret(te.reinterpret(true, "int64") & (0x7FF << 52), "float64")
        unit = te.minimum(te.maximum(exponent, 2.0**-126), 2.0**127) * 2.0**-23
        end = 2.0**128
        bounded = [te.minimum(te.maximum(value, -end), end) for value in (near, true)]
        error = te.abs(bounded[0] - bounded[1]) / unit
        differ = te.ne(te.reinterpret(near, "int64") >> 63, te.reinterpret(true, "int64") >> 63)
        wrong = te.logical_or(
            te.ne(te.cast(te.isnan(near), "int32"), te.cast(te.isnan(true), "int32")),
            te.logical_and(te.eq(true, 0), te.eq(near, 0), differ),
        )
        error = te.select(te.isnan(true), te.const(0, "float64"), error)
        return te.cast(te.select(wrong, te.const(1e9, "float64"), error), "float32")

    return te.compute((CHUNK,), at, name="error")


@pytest.mark.large
@pytest.mark.parametrize("name", UNARY)
def test_all_bit_patterns(name):
    """The reference is the function in float64, which test_math_float64 compares with exact results."""
    bits = te.placeholder((CHUNK,), "uint32", name="bits")
    kernel = build([bits, distance(name, bits)], threads=1)
    errors = np.zeros(CHUNK, np.float32)
    for start in range(0, 1 << 32, CHUNK):
        pattern = np.arange(start, start + CHUNK, dtype=np.uint32)
        kernel(pattern, errors)
        at = int(errors.argmax())
        x = pattern[at : at + 1].view(np.float32)[0]
        assert errors[at] <= BOUND.get(name, 4), f"{name}({x!r}): {errors[at]} ulp"
