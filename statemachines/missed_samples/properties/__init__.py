"""The properties of missed samples, judged once: simulator, explorer and Hypothesis feed these observers.

`spec/missed_samples/properties.md` has their text.  What needs a global instant, or the contents of every cache, is
seen by one method alone: the observers take it as an argument.
"""

from __future__ import annotations

from statemachines.missed_samples.properties.observed_cache import (
    ObservedCache,
    ObservedStrangers,
    judge_places,
    judge_replies,
    judge_room,
)
from statemachines.missed_samples.properties.observed_source import (
    AskedNumbers,
    ObservedSource,
    judge_first_query,
    judge_hole,
    judge_memory,
    judge_unwanted,
    judge_whole,
    owes_tail,
)
from statemachines.missed_samples.properties.settled_numbers import Broken, SettledNumbers, judge_publication

PROPERTIES: tuple[str, ...] = (
    "ORDER", "ONCE", "REPORT", "INVENTED", "NOGAP", "HASTY", "PROMPT", "HISTORY", "BOUND", "QUIET", "ASKED", "COUNT",
    "FORGOTTEN", "PLACES", "QUEUES", "REPLIES", "WHOLE", "LIVE", "ISOLATION", "TAIL",
)  # fmt: skip
"""What the observers here judge."""

__all__ = [
    "PROPERTIES",
    "AskedNumbers",
    "Broken",
    "ObservedCache",
    "ObservedSource",
    "ObservedStrangers",
    "SettledNumbers",
    "judge_first_query",
    "judge_hole",
    "judge_memory",
    "judge_places",
    "judge_publication",
    "judge_replies",
    "judge_room",
    "judge_unwanted",
    "judge_whole",
    "owes_tail",
]
