"""SampleViolation: what a closed system says was broken, and how it names what the observers say."""

from __future__ import annotations

from enum import Enum

from statemachines.missed_samples.properties import Broken


class SampleViolation(Enum):
    """What was broken."""

    ORDER = "a number is delivered or reported that is settled"
    REPORT = "a number is passed over in silence"
    INVENTED = "what is delivered has not come, or what is reported was never heard of"
    NOGAP = "a number is reported missed that has come"
    HASTY = "a number is reported missed that was not asked for often enough"
    PROMPT = "what can be delivered, or is convicted, waits"
    BOUND = "more is held than may be"
    QUIET = "a query is sent, and nothing is missing"
    ASKED = "a query does not ask for what is missing"
    COUNT = "what is dropped is not counted"
    TIMING = "a timer is set for another moment than it should"
    TIMERS = "a timer does not run that should, or runs that should not"
    FORGOTTEN = "a source is forgotten that is not silent, or is remembered though it is"
    HISTORY = "something happens while the first query is open, or what came with it is not first"
    PLACES = "a source is turned away that has a place, or taken in where there is none, or in silence"
    REPLIES = "a cache does not answer with what it should have kept"
    QUEUES = "a cache has more queues than it may, or lets one go that was not silent, or in silence"


ALSO = {"ONCE": "ORDER", "ISOLATION": "PROMPT"}
"""A system has one property for what is told again and too late, and one for what waits."""
COUNT_OF_PLACES = {"COUNT": "PLACES"}
COUNT_OF_QUEUES = {"COUNT": "QUEUES"}
"""That a system counts what is turned away, or not kept, is part of what it promises of places and queues."""


def name_violations(broken: Broken, names: dict[str, str] = ALSO) -> set[SampleViolation]:
    """What the observers say."""
    return {SampleViolation[names.get(one.name, one.name)] for one in broken}
