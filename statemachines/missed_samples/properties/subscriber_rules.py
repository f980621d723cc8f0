"""Subscriber rules: properties of a subscriber that need no memory of one source."""

from __future__ import annotations

from statemachines.kernel import BrokenProperty
from statemachines.missed_samples.message import Query
from statemachines.missed_samples.properties.settled_numbers import Broken
from statemachines.missed_samples.recovery import MS, Recovery
from statemachines.missed_samples.subscriber_record import History


def owes_tail(sent: int, settled: int) -> bool:
    """TAIL: more was sent than is delivered or reported."""
    return sent > settled


def judge_whole(missed: bool) -> Broken:
    """WHOLE: something is reported missed, where nothing may be."""
    return (BrokenProperty("WHOLE", "something is reported missed where nothing may be"),) if missed else ()


def judge_memory(kept: int) -> Broken:
    """FORGOTTEN: so many sources are kept, where each was silent for a retention and is not known to live."""
    return (BrokenProperty("FORGOTTEN", f"{kept} silent sources are kept"),) if kept else ()


def judge_unwanted(opened: bool) -> Broken:
    """QUIET: a query about every source is sent, and the first query is `opened`."""
    return () if opened else (BrokenProperty("QUIET", "history is asked for that nobody wants"),)


def judge_first_query(query: Query, wanted: History, tries: int) -> Broken:
    """ASKED: a query about every source asks for the history that is wanted, as the next of so many `tries`."""
    if (query.n, query.newest, query.age_ms) == (tries + 1, wanted.newest, wanted.age_ms):
        return ()
    return (BrokenProperty("ASKED", f"{query} asks for another history than {wanted}"),)


def judge_hole(still_ns: int, recovery: Recovery) -> Broken:
    """LIVE: a hole is known for so long, and nothing that was missing has come meanwhile."""
    longest = (recovery.retries + 2) * (max(recovery.timeout_ms, recovery.timeout_max_ms) + recovery.backoff_max_ms)
    if still_ns <= longest * MS:
        return ()
    return (BrokenProperty("LIVE", f"a hole lasts for {still_ns // MS} ms in vain"),)
