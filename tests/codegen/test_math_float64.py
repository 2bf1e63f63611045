"""Every function in float64 against many more digits, on machines with and without FMA."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tensorc.ir.intrinsic import TABLE, call
from tensorc.target import Target
from tests.codegen.jit import elementwise, run

mp = pytest.importorskip("mpmath")
COUNT = 160  # of arguments of each kind
LANES = {"x86-64-v2": 2, "x86-64-v3": 4, "x86-64-v4": 8}
BOUND = {"exp": 2, "log": 2}  # of the others 4
UNARY = {
    "exp": mp.exp,
    "exp2": lambda x: mp.mpf(2) ** x,
    "exp10": lambda x: mp.mpf(10) ** x,
    "expm1": mp.expm1,
    "log": mp.log,
    "log2": lambda x: mp.log(x) / mp.log(2),
    "log10": lambda x: mp.log(x) / mp.log(10),
    "log1p": mp.log1p,
    "rsqrt": lambda x: 1 / mp.sqrt(x),
    "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)),
    "sin": mp.sin,
    "cos": mp.cos,
    "tan": mp.tan,
    "asin": mp.asin,
    "acos": mp.acos,
    "atan": mp.atan,
    "sinh": mp.sinh,
    "cosh": mp.cosh,
    "tanh": mp.tanh,
    "asinh": mp.asinh,
    "acosh": mp.acosh,
    "atanh": mp.atanh,
    "erf": mp.erf,
    "erfc": mp.erfc,
    "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
}
BINARY = {
    "pow": mp.power,
    "hypot": mp.hypot,
    "atan2": mp.atan2,
    "logaddexp": lambda a, b: mp.log(mp.exp(a) + mp.exp(b)),
}
DOMAIN = {
    "exp": (-745, 709.7),
    "exp2": (-1074, 1023.9),
    "exp10": (-323, 308.2),
    "expm1": (-60, 709.7),
    "log": (0, math.inf),
    "log2": (0, math.inf),
    "log10": (0, math.inf),
    "log1p": (-1, math.inf),
    "rsqrt": (0, math.inf),
    "asin": (-1, 1),
    "acos": (-1, 1),
    "acosh": (1, math.inf),
    "atanh": (-1, 1),
    "sinh": (-710.4, 710.4),
    "cosh": (-710.4, 710.4),
    "erf": (-6, 6),
    "erfc": (-6, 27.2),
    "sigmoid": (-745, 50),
}
# Close to multiples of pi/2, the last the closest of all (Muller, Elementary Functions).
NEAR_MULTIPLES = [math.pi, math.pi / 2, 355.0, 1e6 * math.pi, 1e22, 1.7e308, 6381956970095103.0 * 2.0**797]
SPECIAL = [0.0, 1.0, 2.0, 0.5, 3.0, 1.5, math.inf, math.nan, 5e-324, 2.0**-1022, 1.7e308, 2.0**53, 2.0**53 - 1]


def targets() -> list[str]:
    return [name for name in LANES if Target("cpu", mcpu=name).is_host]


def arguments(name: str) -> np.ndarray:
    """Numbers of the function's domain: of all magnitudes, about 1, and evenly spread."""
    generator = np.random.default_rng(6)
    low, high = DOMAIN.get(name, (-math.inf, math.inf))
    signs = generator.choice([-1, 1], 2 * COUNT)
    exponents = np.concatenate([generator.integers(-1074, 1023, COUNT), generator.integers(-40, 10, COUNT)])
    spread = np.ldexp(generator.uniform(1, 2, 2 * COUNT), exponents) * signs
    even = generator.uniform(max(low, -50), min(high, 50), COUNT)
    wide = generator.uniform(max(low, -800), min(high, 800), COUNT)
    values = np.concatenate([spread, even, wide, 1 + generator.uniform(-0.4, 0.6, COUNT), NEAR_MULTIPLES])
    values = values[(values > low) & (values < high)]
    return np.resize(values, len(values) // 8 * 8 + 8)


def errors(out: np.ndarray, exact: list) -> np.ndarray:
    """In ulp; exact zeros and results out of range must be right."""

    def error(computed: float, true) -> float:
        if true == 0 or not math.isfinite(computed):
            return 0.0 if computed == float(true) else math.inf
        unit = mp.mpf(2) ** (max(mp.frexp(true)[1] - 1, -1022) - 52)
        return float(abs(mp.mpf(computed) - true) / unit)

    return np.array([error(float(computed), true) for computed, true in zip(out, exact)])


@pytest.mark.parametrize("name", UNARY)
def test_one_argument(name):
    x = arguments(name)
    with mp.workprec(1200 if name in ("sin", "cos", "tan") else 160):
        exact = [UNARY[name](mp.mpf(value)) for value in x.tolist()]
    with mp.workprec(160):
        for target in targets():
            out = np.zeros_like(x)
            function = elementwise(lambda v: call(name, v), "float64", "float64", count=len(x), lanes=LANES[target])
            run(function, x, out, target=Target("cpu", mcpu=target))
            error = errors(out, exact)
            at = int(error.argmax())
            assert error[at] <= BOUND.get(name, 4), f"{target}: {name}({x[at]!r}) is off by {error[at]} ulp"


@pytest.mark.parametrize("name", BINARY)
def test_two_arguments(name):
    generator = np.random.default_rng(7)
    a = np.concatenate([np.exp(generator.uniform(-300, 300, COUNT)), generator.uniform(0.5, 2, 2 * COUNT)])
    b = np.concatenate([generator.uniform(-2, 2, 2 * COUNT), generator.uniform(-900, 900, COUNT)])
    with mp.workprec(160):
        exact = [BINARY[name](mp.mpf(x), mp.mpf(y)) for x, y in zip(a.tolist(), b.tolist())]
        for target in targets():
            out = np.zeros_like(a)
            lanes = LANES[target]
            function = elementwise(lambda x, y: call(name, x, y), *["float64"] * 3, count=len(a), lanes=lanes)
            run(function, a, b, out, target=Target("cpu", mcpu=target))
            error = errors(out, exact)
            at = int(error.argmax())
            assert error[at] <= 4, f"{target}: {name}({a[at]!r}, {b[at]!r}) is off by {error[at]} ulp"


@pytest.mark.parametrize("name", [*UNARY, *BINARY, "fmod", "copysign", "ldexp"])
def test_special_values(name):
    signed = [*SPECIAL, *[-value for value in SPECIAL]]
    arity = TABLE[name].arity
    grid = np.meshgrid(*[signed] * arity)
    inputs = [np.resize(side.ravel(), -(-side.size // 8) * 8) for side in grid]
    if name == "ldexp":
        inputs[1] = np.clip(np.nan_to_num(inputs[1]), -3000, 3000).round()
    with np.errstate(all="ignore"):
        expected = TABLE[name].meaning(*inputs)
    for target in targets():
        out = np.zeros_like(inputs[0])
        function = elementwise(
            lambda *x: call(name, *x), *["float64"] * (arity + 1), count=len(out), lanes=LANES[target]
        )
        run(function, *inputs, out, target=Target("cpu", mcpu=target))
        with np.errstate(all="ignore"):
            close = np.abs(out - expected) <= 4 * np.spacing(np.abs(expected))
        same = np.isnan(out) & np.isnan(expected)
        same |= ((out == expected) | close) & (np.signbit(out) == np.signbit(expected))
        at = int(same.argmin())
        assert same.all(), f"{target}: {name}({[side[at] for side in inputs]}) = {out[at]}, not {expected[at]}"


@pytest.mark.parametrize("target", LANES)
def test_fmod_is_exact(target):
    if target not in targets():
        pytest.skip(f"this machine is no {target}")
    generator, count = np.random.default_rng(8), 1 << 12
    patterns = [generator.integers(0, 1 << 64, count, np.uint64).view(np.float64) for _ in range(2)]
    tiny = np.ldexp(generator.uniform(-1, 1, count), -1040)
    near = [generator.uniform(-1e6, 1e6, count), generator.uniform(-10, 10, count)]
    a = np.concatenate([patterns[0], patterns[0], near[0]])
    b = np.concatenate([patterns[1], tiny, near[1]])
    out = np.zeros_like(a)
    function = elementwise(lambda x, y: call("fmod", x, y), *["float64"] * 3, count=len(a), lanes=LANES[target])
    run(function, a, b, out, target=Target("cpu", mcpu=target))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(out, np.fmod(a, b))
