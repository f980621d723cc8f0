"""CollectorRecord: where a round of the collector is, and what it came to."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from statemachines.kernel import Call, Effects, Event, Status, TimerFired, TraceColumns
from statemachines.persistent_sessions.collector_request import ForgetClient, RowKey
from statemachines.persistent_sessions.graces import Graces


class Collect(Call, frozen=True, gc=False):
    """A round, now."""


class RoundDue(TimerFired, frozen=True, gc=False):
    """Time for the next round."""


class RoundEnded(Event, frozen=True, gc=False):
    """To the host: what the round has deleted, and how many clients it has forgotten; `whole`: it came to its end."""

    rows: int
    messages: int
    whole: bool
    clients: int = 0


class MessageLost(Event, frozen=True, gc=False):
    """To the host: retention has removed a message that so many rows would still have brought to a client."""

    columns: ClassVar = TraceColumns(key="message")

    message: str
    rows: int


class CollectorStatus(Status):
    """`finding` and `forgetting` clients, `reading` and `deleting` rows, then `scanning` and `removing` messages."""

    IDLE = "idle"
    FINDING = "finding"
    FORGETTING = "forgetting"
    READING = "reading"
    DELETING = "deleting"
    SCANNING = "scanning"
    REMOVING = "removing"


IDLE, FINDING, FORGETTING, READING, DELETING, SCANNING, REMOVING = CollectorStatus
BUSY = (FINDING, FORGETTING, READING, DELETING, SCANNING, REMOVING)


class CollectorRecord(msgspec.Struct, frozen=True, gc=False):
    """`seen`: the last client that was read; `after`: the last row; `last`: the place of the last message; `todo`: the
    clients that are to be forgotten of those that were read last, the first being under way.  `clients`, `rows`,
    `messages`: how many this round has forgotten, or deleted."""

    graces: Graces
    status: CollectorStatus = IDLE
    after: RowKey | None = None
    last: str = ""
    todo: tuple[ForgetClient, ...] = ()
    rows: int = 0
    messages: int = 0
    seen: str = ""
    clients: int = 0


Done = tuple[CollectorRecord, Effects]
