"""The main job, on real input: sharpen a photograph, multiply matrices, convolve, and a safe softmax; then tune.

Each result is checked against NumPy, and one table tells the times. At the end one operator is tuned for ten seconds.
Run it with `make demo`; pictures go to out/.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from matplotlib import cbook
from PIL import Image
from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import autotune
import tensorc as tc
from tensorc import ops, te

OUT = Path("out")
TUNING_SECONDS = 10


def sharpen(height: int, width: int, amount: float = 1.5):
    """An unsharp mask: the image plus `amount` times its difference from a 5x5 binomial blur, edges repeated."""
    image = te.placeholder((height, width, 3), "uint8", name="image")
    taps = (1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16)
    light = te.compute((height, width, 3), lambda y, x, c: te.cast(image[y, x, c], "float32"), name="light")

    def clamp(i, extent):
        return te.maximum(te.minimum(i, extent - 1), 0)

    across = te.compute(
        (height, width, 3),
        lambda y, x, c: sum(tap * light[y, clamp(x + d - 2, width), c] for d, tap in enumerate(taps)),
        name="across",
    )
    blur = te.compute(
        (height, width, 3),
        lambda y, x, c: sum(tap * across[clamp(y + d - 2, height), x, c] for d, tap in enumerate(taps)),
        name="blur",
    )

    def sharp(y, x, c):
        value = light[y, x, c] + amount * (light[y, x, c] - blur[y, x, c])
        return te.cast(te.round(te.maximum(te.minimum(value, 255.0), 0.0)), "uint8")

    return [image, te.compute((height, width, 3), sharp, name="sharp")]


def numpy_sharpen(image: np.ndarray, amount: float = 1.5) -> np.ndarray:
    taps = np.array([1, 4, 6, 4, 1], np.float32) / 16
    light = image.astype(np.float32)
    wide = np.pad(light, ((0, 0), (2, 2), (0, 0)), mode="edge")
    across = sum(tap * wide[:, d : d + image.shape[1]] for d, tap in enumerate(taps))
    tall = np.pad(across, ((2, 2), (0, 0), (0, 0)), mode="edge")
    blur = sum(tap * tall[d : d + image.shape[0]] for d, tap in enumerate(taps))
    return np.rint(np.clip(light + np.float32(amount) * (light - blur), 0, 255)).astype(np.uint8)


def matmul(n: int):
    """C(i, j) = sum over k of A(i, k) * B(k, j)."""
    a = te.placeholder((n, n), "float32", name="A")
    b = te.placeholder((n, n), "float32", name="B")
    k = te.reduce_axis(n, name="k")
    return [a, b, te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]


def convolution(hw: int, ci: int, co: int):
    """A 3x3 convolution of ResNet-50 with padding 1, data (h, w, ci) and weights (kh, kw, ci, co)."""
    data = te.placeholder((hw, hw, ci), "float32", name="data")
    weight = te.placeholder((3, 3, ci, co), "float32", name="weight")

    def padded(y, x, c):
        inside = te.logical_and(y >= 1, y < hw + 1, x >= 1, x < hw + 1)
        return te.if_then_else(inside, data[y - 1, x - 1, c], 0.0)

    pad = te.compute((hw + 2, hw + 2, ci), padded, name="pad")
    kh, kw = te.reduce_axis(3, name="kh"), te.reduce_axis(3, name="kw")
    c = te.reduce_axis(ci, name="c")

    def value(y, x, o):
        return te.sum(pad[y + kh, x + kw, c] * weight[kh, kw, c, o], axis=(kh, kw, c))

    return [data, weight, te.compute((hw, hw, co), value, name="conv")]


def numpy_convolution(data: np.ndarray, weight: np.ndarray) -> np.ndarray:
    pad = np.pad(data, ((1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(pad, (3, 3), axis=(0, 1))
    return np.tensordot(windows, weight, axes=((3, 4, 2), (0, 1, 2)))


def softmax(rows: int, columns: int):
    """exp(x - max(x)) over its sum, row by row: safe for any finite input."""
    x = te.placeholder((rows, columns), "float32", name="x")
    k, r = te.reduce_axis(columns, name="k"), te.reduce_axis(columns, name="r")
    top = te.compute((rows,), lambda i: te.max(x[i, k], axis=k), name="top")
    e = te.compute((rows, columns), lambda i, j: te.exp(x[i, j] - top[i]), name="e")
    total = te.compute((rows,), lambda i: te.sum(e[i, r], axis=r), name="total")
    return [x, te.compute((rows, columns), lambda i, j: e[i, j] / total[i], name="softmax")]


def numpy_softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def best(function, *arrays, seconds: float = 0.5) -> float:
    """The median time of a call, over at least three calls and about so many seconds."""
    times = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        function(*arrays)
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def jobs():
    rng = np.random.default_rng(0)

    def normal(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    with cbook.get_sample_data("grace_hopper.jpg") as file:
        photo = np.asarray(Image.open(file).convert("RGB"))
    height, width, _ = photo.shape
    yield f"photo {width}x{height}", sharpen(height, width), (photo,), numpy_sharpen
    yield "matmul 1024", matmul(1024), (normal(1024, 1024), normal(1024, 1024)), np.matmul
    yield "conv 3x3 28x28x128", convolution(28, 128, 128), (
        normal(28, 28, 128), normal(3, 3, 128, 128),
    ), numpy_convolution  # fmt: skip
    yield "softmax 1024x1024", softmax(1024, 1024), (normal(1024, 1024) * 10,), numpy_softmax


def difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The greatest difference, relative to the greatest value; of bytes, one step is rounding."""
    if ours.dtype == np.uint8:
        return float(np.abs(ours.astype(int) - theirs.astype(int)).max() > 1)
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def tune(console: Console) -> None:
    """Tune a convolution of ResNet-50 and print and draw its curve."""
    from matplotlib import pyplot

    X, W = te.placeholder((1, 7, 7, 512), name="X"), te.placeholder((3, 3, 512, 512), name="W")
    result = autotune.tune([X, W, ops.conv2d(X, W, padding=1, name="C")], seconds=TUNING_SECONDS)
    told = f"{result.seconds * 1e3:.3f} ms, {result.speedup:.2f}x the default; {len(result.history)} schedules measured"
    console.print(f"\nconv 3x3 7x7x512, tuned: {told}")
    slowest = max(seconds for _, seconds in result.curve)
    for at, seconds in result.curve:
        console.print(f"{at:5.1f} s  {seconds * 1e3:7.3f} ms  {'#' * round(40 * seconds / slowest)}")
    figure, axes = pyplot.subplots(figsize=(7, 4))
    tried = [(trial.at, trial.measurement.seconds * 1e3) for trial in result.history if trial.measurement.samples]
    axes.plot(*zip(*tried), "o", color="0.7", markersize=4, label="a schedule")
    ends = [*result.curve, (result.history[-1].at, result.curve[-1][1])]
    axes.step([at for at, _ in ends], [seconds * 1e3 for _, seconds in ends], where="post", label="the best so far")
    axes.set(xlabel="seconds of tuning", ylabel="ms", yscale="log", title="conv 3x3 7x7x512")
    axes.legend()
    figure.tight_layout()
    figure.savefig(OUT / "tuning.png", dpi=120)
    console.print(f"Its curve: {OUT / 'tuning.png'}")


def main() -> int:
    OUT.mkdir(exist_ok=True)
    table = Table(title="tensorc, checked against NumPy; times in ms", box=box.SIMPLE, padding=(0, 1, 0, 0))
    for column in ("job", "build", "tensorc", "NumPy", "speed", "GFLOP/s", "GB/s", "of limit"):
        table.add_column(column, justify="left" if column == "job" else "right", no_wrap=True)
    failed = False
    with Progress() as progress:
        task = progress.add_task("starting", total=4)
        for name, tensors, arrays, reference in jobs():
            progress.update(task, description=name)
            start = time.perf_counter()
            kernel = tc.build(tensors)
            build = time.perf_counter() - start
            result = kernel(*arrays)
            expected = reference(*arrays)
            if difference(result, expected) > 1e-4:
                failed = True
                progress.console.print(f"[red]{name}: differs from NumPy")
            timing = kernel.time(*arrays, result)
            theirs = best(reference, *arrays)
            compute_bound = timing.peak_fraction > timing.bandwidth_fraction
            share, of = (timing.peak_fraction, "peak") if compute_bound else (timing.bandwidth_fraction, "copy")
            limit = f"{share:.0%} {of}"
            table.add_row(
                name, f"{build * 1e3:.0f}", f"{timing.seconds * 1e3:.3f}", f"{theirs * 1e3:.3f}",
                f"{theirs / timing.seconds:.1f}x", f"{timing.gflops:.1f}", f"{timing.gbps:.1f}", limit,
            )  # fmt: skip
            if "photo" in name:
                Image.fromarray(arrays[0]).save(OUT / "before.png")
                Image.fromarray(result).save(OUT / "after.png")
            progress.advance(task)
    console = Console()
    console.print(table)
    console.print("photo: an unsharp mask; conv: of ResNet-50. The limit is this machine's FMA peak or copy bandwidth.")
    console.print(f"The photograph before and after: {OUT / 'before.png'}, {OUT / 'after.png'}")
    tune(console)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
