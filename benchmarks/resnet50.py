"""Every distinct convolution of ResNet-50, batch 1, with channels second and with channels last."""

from __future__ import annotations

from benchmarks.operators.conv import conv
from benchmarks.workload import Workload, by_name, shapes_of


def workload(layout: str, hw: int, ci: int, co: int, kernel: int, stride: int, padding: int) -> Workload:
    name = f"{layout} {hw} {ci}-{co} {kernel}x{kernel}" + (f" s{stride}" if stride > 1 else "")
    return conv(name, (hw, hw), ci, co, kernel, stride, padding, channels_last=layout == "NHWC")


WORKLOADS = by_name(
    [
        workload(layout, **shape)
        for layout in ("NCHW", "NHWC")
        for shape in shapes_of("networks", "resnet50_conv2d", "shapes")
    ]
)
