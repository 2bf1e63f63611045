"""The autotuner's package: a guest of tensorc that uses its public names."""

from autotune.cluster import RayRunner
from autotune.measure import LocalRunner

__all__ = ["LocalRunner", "RayRunner"]
