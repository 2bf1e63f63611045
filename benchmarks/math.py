"""Elementwise functions over 2^20 elements, in float32 and, where named so, float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.workload import Workload
from tensorc import te
from tensorc.ir.intrinsic import TABLE

COUNT = 1 << 20
NUMPY = {f"a{name}": f"arc{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")}
DOMAIN = {
    "log": (0, 4), "log2": (0, 4), "log10": (0, 4), "log1p": (-1, 4), "rsqrt": (0, 4), "sqrt": (0, 4),
    "acosh": (1, 5), "asin": (-1, 1), "acos": (-1, 1), "atanh": (-1, 1),
}  # fmt: skip
NAMES = (
    "exp", "exp2", "exp10", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "cbrt", "sin", "cos", "tan",
    "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "sigmoid",
)  # fmt: skip


def _numpy(name: str) -> Callable | None:
    match name:
        case "rsqrt":
            return lambda x: 1 / np.sqrt(x)
        case "sigmoid":
            return lambda x: 1 / (1 + np.exp(-x))
        case "exp10":
            return lambda x: np.power(x.dtype.type(10), x)
        case _:
            return getattr(np, NUMPY.get(name, name), None)


def _torch(name: str) -> Callable | None:
    def function(x):
        import torch

        return getattr(torch, name)(x)

    return None if name in ("cbrt", "exp10") else function


def _jax(name: str) -> Callable:
    def function(x):
        import jax
        import jax.numpy as jnp

        for place in (jnp, jax.lax, jax.scipy.special, jax.nn):
            if hasattr(place, NUMPY.get(name, name)):
                return getattr(place, NUMPY.get(name, name))(x)
        return jnp.power(10.0, x)

    return function


def elementwise(name: str, dtype: str) -> Workload:
    """A function of each element; the peers allocate their results."""
    low, high = DOMAIN.get(name, (-4, 4))

    def inputs():
        return [np.random.default_rng(0).uniform(low, high, COUNT).astype(dtype)]

    def tensors():
        a = te.placeholder((COUNT,), dtype, name="A")
        return [a, te.compute((COUNT,), lambda i: getattr(te, name)(a[i]), name="B")]

    peers = {"numpy": _numpy(name), "torch": _torch(name)}
    if dtype == "float32":  # JAX computes in float32 unless it is told otherwise
        peers["jax"] = _jax(name)
    peers = {peer: function for peer, function in peers.items() if function is not None}
    return Workload(name if dtype == "float32" else f"{name}.{dtype}", inputs, tensors, TABLE[name].meaning, peers)


WORKLOADS = {
    workload.name: workload
    for workload in (
        *[elementwise(name, "float32") for name in NAMES],
        *[elementwise(name, "float64") for name in ("exp", "log", "sin", "tanh", "erf", "erfc")],
    )
}
