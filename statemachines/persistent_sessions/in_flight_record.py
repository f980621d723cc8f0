"""InFlightRecord: a message of QoS 1 or 2 under its packet id."""

from __future__ import annotations

import msgspec

from statemachines.kernel import Status
from statemachines.persistent_sessions.message import Queued


class InFlightStatus(Status):
    """`taken` and `received` wait for a commit."""

    TAKEN = "taken"
    SENT = "sent"
    RECEIVED = "received"
    RELEASED = "released"
    DONE = "done"


TAKEN, SENT, RECEIVED, RELEASED, DONE = InFlightStatus


class InFlightRecord(msgspec.Struct, frozen=True, gc=False):
    """One packet id, what it carries, and how far the client has it; `place`: how many were in flight before it."""

    packet: int
    client: str
    queued: Queued
    place: int = 0
    status: InFlightStatus = TAKEN
