"""Mutants that a clause allows: what exploration does not notice, since nobody could."""

from __future__ import annotations

from typing import Final

from statemachines_spec.protocol import AllowedMutants

ALLOWED: Final = (
    AllowedMutants(
        ("publisher/0/after-1",),
        "MS-30",
        "heartbeats are sent never or always, never both: either may be asked first",
    ),
    AllowedMutants(
        ("publisher/5/to-periodic", "publisher/6/to-periodic"),
        "MS-31",
        "the timer that entering anew sets is set for the same time by the row",
    ),
    AllowedMutants(
        ("reliability_cache/0/after-1",),
        "MS-40",
        "what is unnumbered and not for the cache either is nothing to it whichever is asked first",
    ),
    AllowedMutants(
        ("subscriber/6/after-7",),
        "MS-55",
        "a heartbeat has a number beyond the wire or none, never both: either may be asked first",
    ),
    AllowedMutants(
        ("subscriber/7/after-8",),
        "MS-64",
        "who is known is not one too many, and who is one too many is not known: either may be asked first",
    ),
    AllowedMutants(
        ("subscriber/13/after-21",),
        "MS-56",
        "a query is about every source or about one, never both: either may be asked first",
    ),
    AllowedMutants(
        ("source/7/to-history",),
        "MS-14",
        "it stays in history either way, and no timer belongs to that",
    ),
    AllowedMutants(
        ("sample_queue.take_in/3/gte-is-gt", "sample_queue.take_in/6/1-is-0", "sample_queue.take_in/9/0-is-1"),
        "MS-43",
        "what is below a full queue, or one too many of a long range, is taken in and goes at once as the lowest, in "
        "the same step; and of the lowest range of a full queue every number is there already",
    ),
    AllowedMutants(
        ("sample_queue._timely/2/1-is-2",),
        "MS-44",
        "behind a range comes a number that is not kept, of which no time is known",
    ),
)
