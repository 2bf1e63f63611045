"""What memory limits: functions of each element, sums, and what is normalised by them. JAX fuses by itself."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from benchmarks.workload import Workload, expression, normal
from tensorc import ops, te


def erf(x: np.ndarray) -> np.ndarray:
    """By the standard library: NumPy has none."""
    return np.frompyfunc(math.erf, 1, 1)(x).astype(x.dtype)


def unary(name: str, function: str, shape: tuple[int, ...]) -> Workload:
    """A function that all have under one name, such as exp."""

    def in_torch(x):
        import torch

        return getattr(torch, function)(x)

    def in_jax(x):
        import jax.numpy as jnp

        return getattr(jnp, function)(x)

    peers = {"numpy": getattr(np, function), "torch": in_torch, "jax": in_jax}
    tensors = expression(lambda x: ops.elementwise(getattr(te, function), x), shape)
    return Workload(name, normal(shape), tensors, getattr(np, function), peers)


def gelu(name: str, shape: tuple[int, ...]) -> Workload:
    """x * Phi(x), by erf."""
    peers = {"torch": _torch("gelu"), "jax": _jax_gelu}
    return Workload(name, normal(shape), expression(ops.gelu, shape), _gelu, peers)


def bias_gelu_residual(name: str, shape: tuple[int, int]) -> Workload:
    """gelu(x + bias) + residual."""
    shapes = (shape, (shape[1],), shape)

    def in_torch(x, bias, residual):
        from torch.nn.functional import gelu

        return gelu(x + bias).add_(residual)

    operator = lambda x, bias, residual: ops.add(ops.gelu(ops.bias_add(x, bias)), residual)
    peers = {"torch": in_torch, "jax": lambda x, bias, residual: _jax_gelu(x + bias) + residual}
    reference = lambda x, bias, residual: _gelu(x + bias) + residual
    return Workload(name, normal(*shapes), expression(operator, *shapes), reference, peers)


def softmax(name: str, shape: tuple[int, int]) -> Workload:
    """Over the last axis."""

    def in_torch(x):
        import torch

        return torch.softmax(x, -1)

    def in_jax(x):
        import jax

        return jax.nn.softmax(x)

    peers = {"numpy": _softmax, "torch": in_torch, "jax": in_jax}
    return Workload(name, normal(shape), expression(ops.softmax, shape), _softmax, peers, terms=shape[1])


def layer_norm(name: str, shape: tuple[int, int]) -> Workload:
    """Over the last axis."""
    shapes = (shape, shape[1:], shape[1:])

    def reference(x, gamma, beta):
        away = x - x.mean(-1, keepdims=True)
        return away / np.sqrt((away * away).mean(-1, keepdims=True) + 1e-5) * gamma + beta

    def in_jax(x, gamma, beta):
        import jax
        import jax.numpy as jnp

        away = x - jnp.mean(x, -1, keepdims=True)
        return away * jax.lax.rsqrt(jnp.mean(away * away, -1, keepdims=True) + 1e-5) * gamma + beta

    peers = {"numpy": reference, "torch": _torch("layer_norm", shape[1:]), "jax": in_jax}
    return Workload(name, normal(*shapes), expression(ops.layer_norm, *shapes), reference, peers, terms=shape[1])


def rms_norm(name: str, shape: tuple[int, int]) -> Workload:
    """Over the last axis."""
    shapes = (shape, shape[1:])

    def reference(x, weight):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight

    def in_jax(x, weight):
        import jax
        import jax.numpy as jnp

        return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * weight

    in_torch = lambda x, weight: _torch("rms_norm", shape[1:])(x, weight, 1e-5)
    peers = {"numpy": reference, "torch": in_torch, "jax": in_jax}
    return Workload(name, normal(*shapes), expression(ops.rms_norm, *shapes), reference, peers, terms=shape[1])


def total(name: str, shape: tuple[int, int], axis: int) -> Workload:
    """The sums along one axis."""
    function = lambda x: x.sum(axis)
    peers = {"numpy": function, "torch": function, "jax": function}
    tensors = expression(lambda x: ops.sum(x, axis), shape)
    return Workload(name, normal(shape), tensors, function, peers, terms=shape[axis])


def norm(name: str, shape: tuple[int, int, int]) -> Workload:
    """The root of the sum of squares of each matrix."""

    def in_torch(x):
        import torch

        return torch.linalg.vector_norm(x, dim=(1, 2))

    def in_jax(x):
        import jax.numpy as jnp

        return jnp.sqrt((x * x).sum((1, 2)))

    reference = lambda x: np.sqrt((x * x).sum((1, 2)))
    peers = {"numpy": reference, "torch": in_torch, "jax": in_jax}
    tensors = expression(lambda x: ops.norm(x, (1, 2)), shape)
    return Workload(name, normal(shape), tensors, reference, peers, terms=shape[1] * shape[2])


def _torch(name: str, *first) -> Callable:
    def function(x, *others):
        import torch.nn.functional as F

        return getattr(F, name)(x, *first, *others)

    return function


def _jax_gelu(x):
    import jax

    return jax.nn.gelu(x, approximate=False)


def _gelu(x):
    return x * 0.5 * (1 + erf(x * 0.5**0.5))


def _softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
