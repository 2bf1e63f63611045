from __future__ import annotations

import numpy as np
import pytest

from tensorc.errors import ArgumentError
from tensorc.runtime import Timing, bandwidth, load, peak
from tests.runtime import kernels


def test_a_kernel_is_timed_beside_the_machine():
    kernel = load(kernels.add())
    a, b, c = np.arange(16, dtype="f4"), np.ones(16, "f4"), np.zeros(16, "f4")
    timing = kernel.time(a, b, c, repeat=5, seconds=0.05)
    assert (c == a + 1).all()
    assert timing.samples[0] <= timing.seconds <= timing.samples[-1]
    assert timing.median == timing.seconds > 0 and timing.spread >= 0 and timing.calls > 1
    assert 0 < timing.peak_fraction < 1 and timing.peak > 1e8 and timing.bandwidth > 1e8
    assert timing.gflops == pytest.approx(16 / timing.seconds / 1e9)
    with pytest.raises(ArgumentError):
        kernel.time(a, b, a)


def test_the_numbers_of_a_timing():
    timing = Timing(
        seconds=2e-3, spread=0.01, samples=(2e-3,), calls=1, threads=2,
        flops=4_000_000, bytes=8_000_000, peak=8e9, bandwidth=16e9,
    )  # fmt: skip
    assert timing.gflops == pytest.approx(2) and timing.gbps == pytest.approx(4)
    assert timing.peak_fraction == pytest.approx(0.25)
    assert timing.bandwidth_fraction == timing.roofline_fraction == pytest.approx(0.25)
    assert str(timing) == (
        "2 ms ± 1%, 2.0 GFLOP/s (25% of peak), 4.0 GB/s (25% of a copy), 2 threads"
    )


def test_meters():
    assert peak(1, samples=3) > 1e8
    assert peak(1, "float64", samples=3) > 1e8
    assert bandwidth(1, samples=1) > 1e8
