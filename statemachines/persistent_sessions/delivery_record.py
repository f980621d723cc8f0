"""DeliveryRecord: the session state in its owner's hands, and what of it is not committed yet."""

from __future__ import annotations

import msgspec

from statemachines.kernel import Effects, Map, Status
from statemachines.kernel.row import ChildStep
from statemachines.persistent_sessions.message import Pubrec, Queued
from statemachines.persistent_sessions.request import SessionState
from statemachines.persistent_sessions.writer_flow_record import Take


class DeliveryStatus(Status):
    """`committing` waits for the database."""

    READY = "ready"
    COMMITTING = "committing"


READY, COMMITTING = DeliveryStatus


class Change(msgspec.Struct, frozen=True, gc=False):
    """What waits for the next commit: messages that are taken, or a packet that the client has received."""

    take: Take | None = None
    received: Pubrec | None = None


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """To be sent when it is committed: the message in flight under `packet`, or (0) one of QoS 0."""

    packet: int
    queued: Queued


class DeliveryRecord(msgspec.Struct, frozen=True, gc=False):
    """`state` as it is committed, or being committed, but for packets that have `ended` since; the `outgoing` messages
    of that commit, the packets that are `received` with it, and the rows that are done with it (`marks`); `inbox`: what
    waits for the next.  `lost`: how many were taken that retention had removed; `expired`: how many were over before
    they were sent.  `loaded_ns`: what the clock of the database showed when the state was loaded."""

    session: str
    client: str
    token: int
    receive_maximum: int
    state: SessionState = SessionState()
    status: DeliveryStatus = READY
    ended: Map[int, bool] = Map()
    outgoing: tuple[Outgoing, ...] = ()
    received: tuple[int, ...] = ()
    marks: tuple[Take, ...] = ()
    inbox: tuple[Change, ...] = ()
    lost: int = 0
    expired: int = 0
    loaded_ns: int = 0


Done = tuple[DeliveryRecord, Effects]
Delegated = tuple[DeliveryRecord, Effects, tuple[ChildStep, ...]]
