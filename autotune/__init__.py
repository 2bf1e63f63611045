"""The autotuner: schedules that are quicker than the default, found by measuring. A guest of tensorc.

    result = autotune.tune([A, B, C], seconds=10, database="tune.db")
    kernel = result.kernel                     # or tc.build([A, B, C], schedules=autotune.Database("tune.db"))
"""

from __future__ import annotations

from autotune.cluster import RayRunner
from autotune.database import Database, Record
from autotune.explain import explain
from autotune.measure import LocalRunner
from autotune.record import Candidate, Measurement, Trial, Workload
from autotune.search import Exhaustive, Random, Search
from autotune.space import Space
from autotune.tune import Result, tune

__all__ = [
    "Candidate",
    "Database",
    "Exhaustive",
    "LocalRunner",
    "Measurement",
    "Random",
    "RayRunner",
    "Record",
    "Result",
    "Search",
    "Space",
    "Trial",
    "Workload",
    "explain",
    "tune",
]
