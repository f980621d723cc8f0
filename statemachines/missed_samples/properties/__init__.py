"""The properties of missed samples, judged once: simulator, explorer and Hypothesis feed these observers.

`spec/missed_samples/properties.md` has their text.  What needs a global instant, or the contents of every cache, is
judged where those are seen: the observers take it as an argument.
"""

from __future__ import annotations

from statemachines.missed_samples.properties.observed_cache import ObservedCache, judge_replies, judge_room
from statemachines.missed_samples.properties.observed_source import AskedNumbers, ObservedSource, judge_hole
from statemachines.missed_samples.properties.settled_numbers import Broken, SettledNumbers

PROPERTIES: tuple[str, ...] = (
    "ORDER", "ONCE", "REPORT", "INVENTED", "NOGAP", "HASTY", "PROMPT", "HISTORY", "BOUND", "QUIET", "ASKED", "COUNT",
    "FORGOTTEN", "ISOLATION", "LIVE", "QUEUES", "REPLIES",
)  # fmt: skip
"""What the observers here judge."""

__all__ = [
    "PROPERTIES",
    "AskedNumbers",
    "Broken",
    "ObservedCache",
    "ObservedSource",
    "SettledNumbers",
    "judge_hole",
    "judge_replies",
    "judge_room",
]
