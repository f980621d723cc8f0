"""PlayedDatabase: the database of one session, for a machine that is alone: in a Hypothesis test or `gapless conform`.

It takes any writer and any token.  Writes have one order, and reads are of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Answer, Map, Request, in_order
from statemachines.persistent_sessions.message import Queued
from statemachines.persistent_sessions.request import (
    DATABASE,
    BeginEpoch,
    CommitState,
    ConfirmRows,
    EpochBegun,
    EpochRows,
    Fence,
    FencedRows,
    LoadSession,
    Mark,
    MarkDelivered,
    NotOwner,
    PendingRead,
    Polled,
    PutMarker,
    PutRows,
    ReadPending,
    ReadRow,
    RowFenced,
    RowRead,
    RowsConfirmed,
    RowsDuplicate,
    RowStored,
    RowUnclear,
    SessionAbsent,
    SessionLoaded,
    SessionState,
    StateCommitted,
    SubscribedLive,
    SubscribeLive,
    UnsubscribeLive,
    change_state,
)
from statemachines.persistent_sessions.session_tables import SESSION

OWNER_REQUESTS: Final = (LoadSession, CommitState, SubscribeLive, Fence, ConfirmRows)


class PassTime(Request, frozen=True, gc=False):
    """The clock of the database goes on to `time_ns`."""

    time_ns: int


class ExpireSession(Request, frozen=True, gc=False):
    """The session has expired."""


class StrikeOff(Request, frozen=True, gc=False):
    """Another node has stored this message of QoS 2 for the session."""

    message: str


class StoredSession(msgspec.Struct, frozen=True):
    """The newest epoch of each writer; rows and markers of each epoch; the session's state as it was committed last;
    the highest `token` of an owner; what the clock shows, and reads: rows that were stored later are not
    shown yet; whether the session is there; writers that are `gone`; messages of QoS 2 that other nodes have stored
    (`struck`); how often something was `put`, where that is counted."""

    epochs: Map[str, int] = Map()
    rows: Map[tuple[str, int], EpochRows] = Map()
    state: SessionState = SessionState()
    token: int = 0
    time_ns: int = 0
    is_there: bool = True
    gone: tuple[str, ...] = ()
    struck: tuple[str, ...] = ()
    put: int = 0

    def of(self, writer: str, epoch: int) -> EpochRows:
        """What is stored under an epoch."""
        return self.rows.get((writer, epoch), EpochRows(writer, epoch))

    def list_stored(self, writer: str) -> tuple[EpochRows, ...]:
        """What is stored of a writer ("": of all)."""
        return tuple(one for _, one in in_order(self.rows) if writer in ("", one.writer))


class PlayedDatabase:
    """The service.  `held`: what is stored when an instance begins."""

    name = DATABASE

    def __init__(self, held: StoredSession) -> None:
        self._held = held

    def initial(self) -> StoredSession:
        """What is stored when an instance begins."""
        return self._held

    def apply(self, state: StoredSession, request: Request, now_ns: int) -> tuple[StoredSession, tuple[Answer, ...]]:
        """One transaction."""
        token = getattr(request, "token", state.token)
        if isinstance(request, OWNER_REQUESTS) and token < state.token:
            return state, (NotOwner(),)
        match request:
            case PassTime():
                return replace(state, time_ns=request.time_ns), ()
            case ExpireSession():
                return replace(state, is_there=False), ()
            case StrikeOff():
                return replace(state, struck=(*state.struck, request.message)), ()
            case BeginEpoch():
                epoch = state.epochs.get(request.writer, 0) + 1
                return replace(state, epochs=state.epochs.set(request.writer, epoch)), (EpochBegun(epoch),)
            case PutRows() | PutMarker():
                return self._put(state, request)
            case ReadRow():
                rows = state.of(request.writer, request.epoch).rows
                return state, (RowRead(any(row.number == request.number for row in rows)),)
            case LoadSession() if not state.is_there:
                return state, (SessionAbsent(),)
            case LoadSession():
                return replace(state, token=token), (SessionLoaded(SESSION, state.state, state.time_ns),)
            case ReadPending():
                return state, (_read(state, request),)
            case SubscribeLive():
                return state, (SubscribedLive(tuple(sorted(state.epochs)), state.gone, state.time_ns),)
            case Fence():
                return _fence(state, request)
            case ConfirmRows():
                there = ((one, state.of(one.writer, one.epoch).rows) for one in request.found)
                same = (replace(one, rows=tuple(row for row in one.rows if row in rows)) for one, rows in there)
                return state, (RowsConfirmed(tuple(same)),)
            case CommitState():
                after = change_state(state.state, request.change, state.time_ns)
                return replace(state, state=after, token=token), (StateCommitted(state.time_ns),)
        assert isinstance(request, MarkDelivered | UnsubscribeLive)
        return state, ()

    def _put(self, state: StoredSession, request: PutRows | PutMarker) -> tuple[StoredSession, tuple[Answer, ...]]:
        """Under the newest epoch, or not at all; what is there already stays."""
        newest = state.epochs.get(request.writer, request.epoch)
        if request.epoch < newest:
            return state, (RowFenced(newest),)
        here = state.of(request.writer, request.epoch)
        if isinstance(request, PutRows):
            struck = tuple(row.number for row in request.rows if row.qos == 2 and row.message in state.struck)
            if struck:
                return state, (RowsDuplicate(struck),)
        if isinstance(request, PutMarker):
            mark = (request.token, request.n)
            here = here if mark in here.markers else replace(here, markers=(*here.markers, mark))
        elif all(row.number != request.first_number for row in here.rows):
            here = replace(here, rows=(*here.rows, *request.rows))
        rows, epochs = state.rows.set((request.writer, request.epoch), here), state.epochs
        return replace(state, rows=rows, epochs=epochs.set(request.writer, request.epoch)), (RowStored(),)


class UnclearDatabase(PlayedDatabase):
    """Of every third row or marker it is not known what became of it, and every sixth is not stored."""

    def _put(self, state: StoredSession, request: PutRows | PutMarker) -> tuple[StoredSession, tuple[Answer, ...]]:
        state = replace(state, put=state.put + 1)
        after, answers = super()._put(state, request)
        if state.put % 3 or not isinstance(answers[0], RowStored):
            return after, answers
        return after if state.put % 6 else state, (RowUnclear(),)


def _first(
    found: tuple[EpochRows, ...], behind: tuple[int, int], most: int, until_ns: int = 2**63
) -> tuple[tuple[EpochRows, ...], bool]:
    """The first `most` rows behind a place (0: all), stored until then, and whether there are more."""
    kept: list[EpochRows] = []
    left, more = most, False
    for one in found:
        rows = tuple(row for row in one.rows if (one.epoch, row.number) > behind and row.stored_ns <= until_ns)
        shown = rows[:left] if most else rows
        more = more or len(shown) < len(rows)
        left -= len(shown)
        kept.append(replace(one, rows=shown))
    return tuple(kept), more


def _read(state: StoredSession, request: ReadPending) -> Answer:
    found: list[EpochRows] = []
    for writer in sorted({one.writer for one in state.list_stored(request.writer)}):
        behind = max(request.behind, state.state.taken.get(writer, (0, 0)))
        found += _first(state.list_stored(writer), behind, request.rows, state.time_ns)[0]
    time_ns = state.time_ns
    return (
        Polled(request.writer, tuple(found), time_ns) if request.writer else PendingRead(tuple(found), time_ns, time_ns)
    )


def _fence(state: StoredSession, request: Fence) -> tuple[StoredSession, tuple[Answer, ...]]:
    epoch = max(state.epochs.get(request.writer, 1), request.behind[0])
    below = max(request.below, epoch) if request.below else epoch + 1
    found = tuple(one for one in state.list_stored(request.writer) if request.behind[0] <= one.epoch < below)
    shown, more = _first(found, request.behind, request.rows)
    state = replace(state, epochs=state.epochs.set(request.writer, below), token=max(state.token, request.token))
    return state, (FencedRows(request.writer, below, request.n, shown, more),)


def fail_unclear(request: Request) -> Iterator[Answer]:
    """Nobody knows whether the row is stored."""
    if isinstance(request, PutRows | PutMarker):
        yield RowUnclear()


def store_rows(
    rows: dict[str, int], marks: tuple[Mark, ...] = (), state: SessionState | None = None, **message: int
) -> StoredSession:
    """So many rows of each writer under its first epoch, the messages of the kind `message`, and these markers."""
    there = {
        (writer, 1): EpochRows(
            writer, 1, tuple(make_row(writer, number, **message) for number in range(1, count + 1)), marks
        )
        for writer, count in rows.items()
    }
    return StoredSession(Map(dict.fromkeys(rows, 1)), Map(there), state or SessionState())


def make_row(writer: str, number: int, qos: int = 1, until_ns: int = 0, stored_ns: int = 0) -> Queued:
    """The row with this number."""
    return Queued(number, f"{writer}-{number}", "a/#", qos, until_ns, stored_ns)


def two_rows(*writers: str) -> StoredSession:
    """Two rows of each writer, and the markers that an owner with token 1 asks for first."""
    markers = tuple((1, n) for n in range(1, 4))
    rows = (Queued(1, "m1"), Queued(2, "m2"))
    return StoredSession(
        Map(dict.fromkeys(writers, 1)),
        Map({(writer, 1): EpochRows(writer, 1, rows, markers) for writer in writers}),
    )
