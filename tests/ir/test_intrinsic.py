"""What intrinsics mean."""

from __future__ import annotations

import numpy as np

from tensorc.ir.intrinsic import TABLE


def test_fma_rounds_and_overflows_once():
    fma = TABLE["fma"].meaning
    large = 1.7e308
    assert fma(large, 2.0, -large) == large  # the product alone is past the largest
    assert fma(large, -2.0, 0.5 * large) == -np.inf and fma(np.inf, 1.0, -large) == np.inf
