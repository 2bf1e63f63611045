"""From a scheduled loop nest to flat, vector, threaded code; `pipeline.py` is the contents page."""

from tensorc.passes.pipeline import PASSES, lower

__all__ = ["PASSES", "lower"]
