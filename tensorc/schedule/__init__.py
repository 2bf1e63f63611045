"""Checked rewrites of loop nests."""

from tensorc.schedule.recipes.choose import Planned, Planner
from tensorc.schedule.recipes.custom import recipe
from tensorc.schedule.recipes.outlines import outlines
from tensorc.schedule.schedule import Schedule
from tensorc.schedule.trace import Trace

__all__ = ["Planned", "Planner", "Schedule", "Trace", "outlines", "recipe"]
