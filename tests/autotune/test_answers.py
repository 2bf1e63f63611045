"""Answers that are right, and how wrong ones are told."""

from __future__ import annotations

import ml_dtypes  # noqa: F401 - gives NumPy its bfloat16
import numpy as np

import tensorc as tc
from autotune.answers import Answer
from tensorc import te


def answer(values, dtype: str = "float32", terms: float = 1.0) -> tuple[Answer, np.ndarray]:
    right = np.array(values).astype(dtype)
    x = te.placeholder(right.shape, dtype, name="X")
    function = tc.schedule([x, te.compute(right.shape, lambda *at: x[at], name="Y")]).function
    return Answer(function, [right], terms), right


def test_the_first_difference_is_named():
    made, right = answer([[1.0, 2.0], [3.0, 4.0]])
    found = right.copy()
    assert made.differs([found], ["Y"]) == ""
    found[1] += 1
    assert made.differs([found], ["Y"]) == "Y[1, 0] is 4.0, 3.0 is right; 2 of 4 elements differ"
    assert made.differs([found], ["Y"], [np.array([[True, True], [False, False]])]) == ""


def test_rounding_is_no_difference_for_floats():
    made, right = answer([1.0, -3.0, 0.0])
    assert made.differs([right * np.float32(1 + 2e-6)], ["Y"]) == ""
    assert made.differs([right * np.float32(1 + 1e-4)], ["Y"]).startswith("Y[0] is 1.0001")
    assert made.differs([np.array([1, -3, -0.0], np.float32)], ["Y"]) == ""
    long, right = answer([1.0, -3.0, 0.0], terms=1e6)
    assert long.differs([right * np.float32(1 + 1e-4)], ["Y"]) == ""


def test_integers_are_exact():
    made, right = answer([10**9, 5], "int64")
    found = right + np.array([1, 0])
    assert made.differs([found], ["Y"]) == "Y[0] is 1000000001, 1000000000 is right; 1 of 2 elements differ"


def test_narrow_floats_differ_by_their_own_roundings():
    made, right = answer([1.0, 100.0], "bfloat16")
    near = (right.astype("float32") * 1.008).astype(right.dtype)
    assert made.differs([near], ["Y"]) == ""
    assert made.differs([(near.astype("float32") * 1.1).astype(right.dtype)], ["Y"])


def test_what_is_no_number_must_stay_so():
    made, right = answer([np.nan, np.inf, 1.0])
    assert not made.is_finite and made.differs([right.copy()], ["Y"]) == ""
    assert made.differs([np.array([0, np.inf, 1], np.float32)], ["Y"]).startswith("Y[0] is 0.0, nan is right")
    assert made.differs([np.array([np.nan, -np.inf, 1], np.float32)], ["Y"]).startswith("Y[1] is -inf, inf is right")
    assert made.differs([np.array([np.nan, np.inf, np.nan], np.float32)], ["Y"]).startswith("Y[2] is nan, 1.0 is right")
