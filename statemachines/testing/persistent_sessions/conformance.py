"""Conformance: the roles of persistent sessions that others may implement.

Conformance: what others may do otherwise who implement the Writer, and what is told to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from statemachines.kernel import Event, Request
from statemachines.persistent_sessions.message import Live, LiveMarker, MarkerWanted, Written
from statemachines.persistent_sessions.request import (
    BeginEpoch,
    EpochBegun,
    Fence,
    PutMarker,
    PutRows,
    ReadRow,
    RowFenced,
    RowRead,
    RowsDuplicate,
    RowStored,
    RowUnclear,
)
from statemachines.persistent_sessions.session_tables import SESSION
from statemachines.persistent_sessions.writer import WRITER
from statemachines.persistent_sessions.writer_record import (
    BEGINNING,
    MARKING,
    READING,
    STORING,
    Hand,
    HandRange,
    LiveGone,
    LiveKnown,
    RangeWritten,
    Start,
    WriterRecord,
)
from statemachines.testing.conformance import role
from statemachines.testing.conformance.interface import Alphabet
from statemachines.testing.conformance.relation import Relation, Repeated
from statemachines.testing.conformance.role import ConformanceRole, PlayedService
from statemachines.testing.persistent_sessions.conformance_session import SESSION_ROLE
from statemachines.testing.persistent_sessions.played_database import (
    PlayedDatabase,
    StoredSession,
    StrikeOff,
    fail_unclear,
)
from statemachines_spec.explorer.actor import Timing

NAME: Final = "w1"
OWNERS: Final = {1: "owner-1~1/1", 2: "owner-2~1/1"}
"""By their tokens."""

EPOCHS_MAX: Final = 2

RELATION: Final = Relation(repeated=(Repeated("live", "PS-341"), Repeated("live_marker", "PS-341")))

ALPHABET: Final = Alphabet(
    takes=(
        Start, Hand, HandRange, MarkerWanted, LiveKnown, LiveGone,
        EpochBegun, RowStored, RowsDuplicate, RowFenced, RowUnclear, RowRead,
    ),
    sends=(Live, LiveMarker),
    asks=(BeginEpoch, PutRows, PutMarker, ReadRow),
    tells=(Written, RangeWritten),
)  # fmt: skip


def say_rows(record: WriterRecord) -> Iterator[Event]:
    """What publishers hand over, one after the other, and an owner that is live and wants one marker."""
    yield from (Start(), LiveKnown(OWNERS[1], 1), MarkerWanted(SESSION, OWNERS[1], 1, 1))
    yield Hand("m2", "b", 2, 7) if record.last else Hand("m1", "a/#", 1, 0)
    yield HandRange((Hand("m3", "c", 1, 0), Hand("m4", "a/#", 2, 7)))


def say_markers(record: WriterRecord) -> Iterator[Event]:
    """What two owners want, and other nodes make known."""
    yield from (Start(), Hand("m1", "a/#", 1, 0))
    for token, owner in OWNERS.items():
        yield from (MarkerWanted(SESSION, owner, token, n) for n in (1, 2))
        yield from (LiveKnown(owner, token), LiveGone(token))


def say_answers(record: WriterRecord) -> Iterator[Event]:
    """Answers that come a second time, to a writer that is busy with other things."""
    yield from (Start(), Hand("m1", "a/#", 1, 0), MarkerWanted(SESSION, OWNERS[1], 1, 1))
    if record.status is not BEGINNING:
        yield EpochBegun(EPOCHS_MAX + 1)
    if record.status not in (STORING, MARKING):
        yield from (RowStored(), RowsDuplicate((1,)), RowFenced(EPOCHS_MAX + 1), RowUnclear())
    if record.status is not READING:
        yield from (RowRead(True), RowRead(False))


def fence_writer(state: StoredSession) -> Iterator[Request]:
    """An owner fences the writer."""
    epoch = state.epochs.get(NAME, 0)
    if 0 < epoch < EPOCHS_MAX:
        yield Fence(SESSION, NAME, (epoch, 0), 0, 1, 1)


def strike_rows(state: StoredSession) -> Iterator[Request]:
    """Another node stores messages of QoS 2 for the session: their rows are struck off."""
    yield from (StrikeOff(message) for message in ("m2", "m4") if message not in state.struck)


def has_few(rows: int, inbox: int) -> Callable[[Any], bool]:
    """So few rows, and so few jobs that wait."""
    return lambda record: record.last <= rows and len(record.inbox) + (record.waiting is not None) <= inbox


SOUND: Final = (PlayedService(PlayedDatabase(StoredSession())),)
UNCLEAR: Final = (PlayedService(PlayedDatabase(StoredSession()), fail_unclear, fence_writer),)

STRUCK: Final = (PlayedService(PlayedDatabase(StoredSession()), others=strike_rows),)

TIMING: Final = Timing(1_000_000_000)

FIRST: Final = WriterRecord(SESSION, NAME)

STARTS: Final = (
    role.Start("rows", FIRST, say_rows, has_few(2, 2), SOUND),
    role.Start("rows that are fail_unclear", FIRST, say_rows, has_few(1, 1), UNCLEAR),
    role.Start("markers", FIRST, say_markers, has_few(1, 1), SOUND),
    role.Start("rows that another node has stored", FIRST, say_rows, has_few(2, 1), STRUCK),
    role.Start("answers that come twice", FIRST, say_answers, has_few(1, 1), UNCLEAR),
)

WRITER_ROLE: Final = ConformanceRole(
    WRITER, STARTS, TIMING, RELATION, given=("session", "writer"), alphabet=ALPHABET
)  # fmt: skip


ROLES: Final = {"session": SESSION_ROLE, "writer": WRITER_ROLE}
