"""The parties of a node of sessions: their kinds, their ids, and those that every life begins with."""

from __future__ import annotations

from typing import Any, Final

from statemachines.kernel import (
    Begin,
    Effects,
    PartyKind,
)
from statemachines.persistent_sessions.collector import COLLECTOR, CollectorRecord
from statemachines.persistent_sessions.resume import RESUME
from statemachines.persistent_sessions.session_host_record import (
    SessionHostRecord,
)
from statemachines.persistent_sessions.session_life import SESSION_LIFE
from statemachines.persistent_sessions.writer import WRITER

Record = SessionHostRecord
Done = tuple[SessionHostRecord, Effects]

CLIENTS_MAX: Final = 1_000_000
"""Clients that are connected to one node."""
BUSY_WRITERS_MAX: Final = 10_000_000
"""A writer that is busy does not go, so there may be more of them than `writers_max`."""


def record_of(record: Any) -> Any:
    """What a party shows: all of it."""
    return record


LIVES = PartyKind("life", SESSION_LIFE, most=CLIENTS_MAX, suffix="/life", view=record_of)
RESUMES = PartyKind("resume", RESUME, most=CLIENTS_MAX, view=record_of)
WRITERS = PartyKind("writer", WRITER, most=BUSY_WRITERS_MAX, view=record_of)
COLLECTORS = PartyKind("collector", COLLECTOR, most=1, number="collector")


def life_of_owner(owner: str) -> str:
    """The party that is the session life of an owner."""
    return f"{owner}{LIVES.suffix}"


def owner_of(party: str) -> str:
    """The owner whose session life or resume this is."""
    return party.removesuffix(LIVES.suffix)


def begin_collector(record: Record) -> Effects:
    """Unless it is told to collect nothing."""
    if record.graces is None:
        return ()
    return (Begin(COLLECTORS.id_of(record.id), COLLECTORS.name, CollectorRecord(record.graces)),)
