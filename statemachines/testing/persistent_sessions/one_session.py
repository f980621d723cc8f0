"""OneSession: the database of one session, for a machine that is tested alone: writes in one order, reads of all."""

from __future__ import annotations

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
    MarkDelivered,
    PendingRead,
    Polled,
    PutMarker,
    PutRows,
    ReadPending,
    ReadRow,
    RowFenced,
    RowRead,
    RowsConfirmed,
    RowStored,
    RowUnclear,
    SessionLoaded,
    SessionState,
    StateCommitted,
    SubscribedLive,
    SubscribeLive,
    UnsubscribeLive,
    change_state,
)

SESSION = "s1"


class StoredEpochs(msgspec.Struct, frozen=True):
    """The newest epoch of each writer; rows and markers of each epoch; the state as it was committed last; how often
    something was `put`."""

    epochs: Map[str, int] = Map()
    rows: Map[tuple[str, int], EpochRows] = Map()
    state: SessionState = SessionState()
    put: int = 0

    def of(self, writer: str, epoch: int) -> EpochRows:
        """What is stored under an epoch."""
        return self.rows.get((writer, epoch), EpochRows(writer, epoch))

    def list_stored(self, writer: str) -> tuple[EpochRows, ...]:
        """What is stored of a writer ("": of all)."""
        return tuple(one for _, one in in_order(self.rows) if writer in ("", one.writer))


NOTHING: Final = StoredEpochs()


class OneSession:
    """The service "database".  `begun`: what is stored when a run begins."""

    name = DATABASE

    def __init__(self, begun: StoredEpochs = NOTHING) -> None:
        self._begun = begun

    def initial(self) -> StoredEpochs:
        """What is stored when a run begins."""
        return self._begun

    def apply(self, state: StoredEpochs, request: Request, now_ns: int) -> tuple[StoredEpochs, tuple[Answer, ...]]:
        """One transaction."""
        match request:
            case BeginEpoch():
                epoch = state.epochs.get(request.writer, 0) + 1
                return replace(state, epochs=state.epochs.set(request.writer, epoch)), (EpochBegun(epoch),)
            case PutRows() | PutMarker():
                return _put(replace(state, put=state.put + 1), request)
            case ReadRow():
                rows = state.of(request.writer, request.epoch).rows
                return state, (RowRead(any(row.number == request.number for row in rows)),)
            case LoadSession():
                return state, (SessionLoaded(SESSION, state.state),)
            case ReadPending(writer=""):
                return state, (PendingRead(state.list_stored("")),)
            case ReadPending():
                return state, (Polled(request.writer, state.list_stored(request.writer)),)
            case SubscribeLive():
                return state, (SubscribedLive(tuple(sorted(state.epochs))),)
            case Fence():
                return _fence(state, request)
            case ConfirmRows():
                there = ((one, state.of(one.writer, one.epoch).rows) for one in request.found)
                same = (replace(one, rows=tuple(row for row in one.rows if row in rows)) for one, rows in there)
                return state, (RowsConfirmed(tuple(same)),)
            case CommitState():
                return replace(state, state=change_state(state.state, request.change, 0)), (StateCommitted(),)
        assert isinstance(request, MarkDelivered | UnsubscribeLive)
        return state, ()


def _put(state: StoredEpochs, request: PutRows | PutMarker) -> tuple[StoredEpochs, tuple[Answer, ...]]:
    """Under the newest epoch, or not at all; a number that does not follow is somebody else's.  Of every third it is
    not known what became of it, and every sixth was not done."""
    newest = state.epochs.get(request.writer, request.epoch)
    if request.epoch < newest:
        return state, (RowFenced(newest),)
    if state.put % 6 == 0:
        return state, (RowUnclear(),)
    here = state.of(request.writer, request.epoch)
    if isinstance(request, PutMarker):
        here = replace(here, markers=(*here.markers, (request.token, request.n)))
    elif request.first_number == len(here.rows) + 1:
        here = replace(here, rows=(*here.rows, *request.rows))
    rows = state.rows.set((request.writer, request.epoch), here)
    return replace(state, rows=rows, epochs=state.epochs.set(request.writer, request.epoch)), (
        RowUnclear() if state.put % 3 == 0 else RowStored(),
    )


def _fence(state: StoredEpochs, request: Fence) -> tuple[StoredEpochs, tuple[Answer, ...]]:
    epoch = max(state.epochs.get(request.writer, 1), request.behind[0])
    below = max(request.below, epoch) if request.below else epoch + 1
    found = tuple(one for one in state.list_stored(request.writer) if request.behind[0] <= one.epoch < below)
    state = replace(state, epochs=state.epochs.set(request.writer, below))
    return state, (FencedRows(request.writer, below, request.n, found),)


def two_rows(*writers: str) -> StoredEpochs:
    """Two rows of each writer, and the markers that an owner with token 1 asks for first."""
    markers = tuple((1, n) for n in range(1, 4))
    rows = (Queued(1, "m1"), Queued(2, "m2"))
    return StoredEpochs(
        Map(dict.fromkeys(writers, 1)),
        Map({(writer, 1): EpochRows(writer, 1, rows, markers) for writer in writers}),
    )
