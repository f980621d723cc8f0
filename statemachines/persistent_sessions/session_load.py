"""SessionLoad: how much an owner has in its hands."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from statemachines.persistent_sessions.resume_record import ResumeRecord


class SessionLoad(NamedTuple):
    """Of some sessions: how many are `resumed`, and messages in flight, `queued` for the client, and `blocked`."""

    resumed: int
    in_flight: int
    queued: int
    blocked: int


def measure_load(records: Iterable[ResumeRecord | None]) -> SessionLoad:
    """The load of these owners; None has nothing."""
    found = [one for one in records if one is not None]
    deliveries = [one.delivery for one in found if one.delivery is not None]
    return SessionLoad(
        len(deliveries),
        sum(len(one.state.packets) for one in deliveries),
        sum(len(one.state.queued) for one in deliveries),
        sum(len(queue) for one in found for queue in one.blocked_rows.values()),
    )
