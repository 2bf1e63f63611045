"""Every distinct depthwise convolution of MobileNet-V2, batch 1, with channels second and with channels last."""

from __future__ import annotations

from benchmarks.operators.conv import depthwise
from benchmarks.workload import by_name, shapes_of

WORKLOADS = by_name(
    [
        depthwise(f"{layout} {hw} {c} s{stride}", hw, hw, c, 3, stride, 1, channels_last=layout == "NHWC")
        for layout in ("NCHW", "NHWC")
        for hw, c, stride in [
            (at["hw"], at["c"], at["stride"]) for at in shapes_of("networks", "mobilenet_v2_depthwise", "shapes")
        ]
    ]
)
