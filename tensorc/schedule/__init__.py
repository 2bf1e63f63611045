"""Checked rewrites of loop nests."""

from tensorc.schedule.schedule import Schedule
from tensorc.schedule.trace import Trace

__all__ = ["Schedule", "Trace"]
