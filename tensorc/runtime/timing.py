"""How long a kernel takes, and how much of the machine it uses.

Only ratios measured in alternation mean anything on a shared machine: `measure` takes a sample of
the kernel and a sample of each meter in turn. The meters are small modules of our own: fused
multiply-adds on enough independent vector accumulators to fill the pipeline, and a copy of arrays
larger than the last cache.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from tensorc.runtime import cpu, threads
from tensorc.target import Target

__all__ = ["Timing", "bandwidth", "measure", "peak"]

_SAMPLE_SECONDS = 200e-6  # short kernels are called until this much has passed
_PEAK_SECONDS = 300e-6
_LEAST_SAMPLES = 3
_METER_ROUNDS = 9  # meters are sampled in so many rounds at most


@dataclass(frozen=True, slots=True)
class Timing:
    """Measured calls of a kernel.

    `seconds` is the median time of a call, `spread` the interquartile range over the median,
    `samples` the sorted times. `peak` (FLOP/s) and `bandwidth` (bytes/s) are what the meters gave
    beside it, on as many threads.
    """

    seconds: float
    spread: float
    samples: tuple[float, ...]
    calls: int  # in a sample
    threads: int
    flops: int
    bytes: int
    peak: float
    bandwidth: float

    @property
    def median(self) -> float:
        """Seconds of a call."""
        return self.seconds

    @property
    def gflops(self) -> float:
        return self.flops / self.seconds / 1e9

    @property
    def gbps(self) -> float:
        """GB/s of the arrays, each counted once."""
        return self.bytes / self.seconds / 1e9

    @property
    def peak_fraction(self) -> float:
        """Of the machine's multiply-adds."""
        return self.flops / self.seconds / self.peak

    @property
    def bandwidth_fraction(self) -> float:
        """Of the speed of a copy in memory; arrays that stay in a cache go past 1."""
        return self.bytes / self.seconds / self.bandwidth

    @property
    def roofline_fraction(self) -> float:
        """Of what the machine allows a kernel of so many FLOPs and bytes."""
        return max(self.peak_fraction, self.bandwidth_fraction)

    def __str__(self) -> str:
        return (
            f"{_seconds_text(self.seconds)} ± {self.spread:.0%}, {self.gflops:.1f} GFLOP/s "
            f"({self.peak_fraction:.0%} of peak), {self.gbps:.1f} GB/s "
            f"({self.bandwidth_fraction:.0%} of a copy), {self.threads} threads"
        )


def measure(
    call: Callable[[], object],
    *,
    flops: int,
    bytes: int,
    threads: int = 1,
    wide: bool = False,
    repeat: int = 20,
    seconds: float = 1.0,
) -> Timing:
    """Time `call` and the meters in alternating rounds; `wide` compares with float64 arithmetic."""
    call()  # the first finds caches, pages and threads cold
    start = time.perf_counter()
    call()
    once = max(time.perf_counter() - start, 1e-9)
    calls = max(1, math.ceil(_SAMPLE_SECONDS / once))
    rounds = max(_LEAST_SAMPLES, min(repeat, int(seconds / (calls * once))))
    every = max(1, rounds // _METER_ROUNDS)
    copier = _Copier(threads)
    samples, peaks, copies = [], [], []
    for number in range(rounds):
        if number % every == 0:
            peaks.append(_sample_peak(threads, wide))
            copies.append(copier.sample())
            call()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        samples.append((time.perf_counter() - start) / calls)
    samples.sort()
    first, middle, third = (float(value) for value in np.quantile(samples, (0.25, 0.5, 0.75)))
    return Timing(
        seconds=middle, spread=(third - first) / middle, samples=tuple(samples),
        calls=calls, threads=threads, flops=flops, bytes=bytes,
        peak=_median(peaks), bandwidth=_median(copies),
    )  # fmt: skip


def peak(threads: int | None = None, dtype: str = "float32", samples: int = 15) -> float:
    """FLOP/s of fused multiply-adds (each is two) on so many threads, for float32 or float64."""
    count = _count(threads)
    return _median([_sample_peak(count, dtype == "float64") for _ in range(samples)])


def bandwidth(threads: int | None = None, samples: int = 5) -> float:
    """Bytes/s of a copy that does not fit the caches, read and written bytes both counted."""
    copier = _Copier(_count(threads))
    return _median([copier.sample() for _ in range(samples)])


def _median(values: list[float]) -> float:
    return float(np.median(values))


def _count(count: int | None) -> int:
    return threads.default_threads() if count is None else count


def _sample_peak(count: int, wide: bool) -> float:
    meter = _meter()
    run = meter.fma64 if wide else meter.fma32
    run(8, count)  # wakes the threads
    start = time.perf_counter()
    run(meter.rounds(wide), count)
    took = time.perf_counter() - start
    return meter.flops(wide) * meter.rounds(wide) * count / took


class _Copier:
    """Two arrays that do not fit the caches together, and copies between them."""

    def __init__(self, count: int):
        self.count = count
        self.size = min(max(2 * Target.host().l3, 32 << 20), 128 << 20)
        self.source = np.ones(self.size, np.uint8)
        self.target = np.ones(self.size, np.uint8)

    def sample(self) -> float:
        copy = _meter().copy
        start = time.perf_counter()
        copy(self.target.ctypes.data, self.source.ctypes.data, self.size, self.count)
        return 2 * self.size / (time.perf_counter() - start)


class _Meter:
    """The compiled meters; they let go of Python's lock."""

    def __init__(self):
        target = Target.host()
        self._accumulators = 24 if target.vector_registers >= 32 else 12
        names = ("fma_float", "fma_double", "copy")
        launcher = {"tensorc_parallel_for": threads.parallel_for()}
        text = lambda: _meter_text(target, self._accumulators)
        library = cpu.helper("meter", text, names, launcher)
        run = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)
        self.fma32, self.fma64 = run(library["fma_float"]), run(library["fma_double"])
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self.copy = ctypes.CFUNCTYPE(None, pointer, pointer, number, number)(library["copy"])
        self._lanes = {False: target.lanes(4), True: target.lanes(8)}
        self._rounds: dict[bool, int] = {}

    def flops(self, wide: bool) -> int:
        """Of one round."""
        return 2 * self._accumulators * self._lanes[wide]

    def rounds(self, wide: bool) -> int:
        """How many rounds take about as long as a sample."""
        if wide not in self._rounds:
            run, tries = (self.fma64 if wide else self.fma32), 1000
            run(tries, 1)
            start = time.perf_counter()
            run(tries, 1)
            took = time.perf_counter() - start
            self._rounds[wide] = max(1, int(tries * _PEAK_SECONDS / took))
        return self._rounds[wide]


@cache
def _meter() -> _Meter:
    return _Meter()


def _meter_text(target: Target, accumulators: int) -> str:
    return "\n".join([
        _COPY,
        _fma_text("float", target.lanes(4), accumulators),
        _fma_text("double", target.lanes(8), accumulators),
    ])  # fmt: skip


def _fma_text(scalar: str, lanes: int, accumulators: int) -> str:
    """A task that runs `rounds` times one multiply-add on each accumulator, and its launcher."""
    vector = f"<{lanes} x {scalar}>"
    suffix = f"v{lanes}f{32 if scalar == 'float' else 64}"
    names = range(accumulators)
    start = [f"  %a{n} = phi {vector} [ %x, %entry ], [ %b{n}, %loop ]" for n in names]
    # a = a * x + y stays at the fixed point y / (1 - x): no overflow, no denormals.
    steps = [
        f"  %b{n} = call {vector} @llvm.fmuladd.{suffix}({vector} %a{n}, {vector} %x, {vector} %y)"
        for n in names
    ]
    sums = [f"  %s0 = fadd {vector} %b0, %b1"]
    sums += [f"  %s{n - 1} = fadd {vector} %s{n - 2}, %b{n}" for n in names if n > 1]
    return "\n".join([
        f"@x_{scalar} = global {scalar} 5.0e-1",
        f"@sink_{scalar} = global {vector} zeroinitializer, align 64",
        f"declare {vector} @llvm.fmuladd.{suffix}({vector}, {vector}, {vector})",
        f"define internal void @run_{scalar}(ptr %data, i64 %begin, i64 %end, i64 %slot) {{",
        "entry:",
        "  %each = load i64, ptr %data",
        "  %shares = sub i64 %end, %begin",
        "  %rounds = mul i64 %each, %shares",
        f"  %x0 = load volatile {scalar}, ptr @x_{scalar}",
        f"  %x1 = insertelement {vector} poison, {scalar} %x0, i32 0",
        f"  %x = shufflevector {vector} %x1, {vector} poison, <{lanes} x i32> zeroinitializer",
        f"  %y = fadd {vector} %x, %x",
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]",
        *start,
        *steps,
        "  %i1 = add i64 %i, 1",
        "  %more = icmp slt i64 %i1, %rounds",
        "  br i1 %more, label %loop, label %done",
        "done:",
        *sums,
        f"  store volatile {vector} %s{accumulators - 2}, ptr @sink_{scalar}",
        "  ret void",
        "}",
        f"define void @fma_{scalar}(i64 %rounds, i64 %threads) {{",
        "  %data = alloca i64",
        "  store i64 %rounds, ptr %data",
        f"  call void @tensorc_parallel_for(ptr @run_{scalar}, ptr %data, "
        "i64 %threads, i64 %threads)",
        "  ret void",
        "}",
    ])  # fmt: skip


_COPY = """
declare void @tensorc_parallel_for(ptr, ptr, i64, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; data: target, source, bytes, pieces
define internal void @run_copy(ptr %data, i64 %begin, i64 %end, i64 %slot) {
  %target = load ptr, ptr %data
  %source.p = getelementptr i64, ptr %data, i64 1
  %source = load ptr, ptr %source.p
  %size.p = getelementptr i64, ptr %data, i64 2
  %size = load i64, ptr %size.p
  %pieces.p = getelementptr i64, ptr %data, i64 3
  %pieces = load i64, ptr %pieces.p
  %first = mul i64 %size, %begin
  %from = sdiv i64 %first, %pieces
  %last = mul i64 %size, %end
  %to = sdiv i64 %last, %pieces
  %length = sub i64 %to, %from
  %t = getelementptr i8, ptr %target, i64 %from
  %s = getelementptr i8, ptr %source, i64 %from
  call void @llvm.memcpy.p0.p0.i64(ptr %t, ptr %s, i64 %length, i1 false)
  ret void
}

define void @copy(ptr %target, ptr %source, i64 %size, i64 %threads) {
  %data = alloca [4 x i64]
  store ptr %target, ptr %data
  %p1 = getelementptr i64, ptr %data, i64 1
  store ptr %source, ptr %p1
  %p2 = getelementptr i64, ptr %data, i64 2
  store i64 %size, ptr %p2
  %p3 = getelementptr i64, ptr %data, i64 3
  store i64 %threads, ptr %p3
  call void @tensorc_parallel_for(ptr @run_copy, ptr %data, i64 %threads, i64 %threads)
  ret void
}
"""


def _seconds_text(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
