"""Moves of writers and of the owner of a session, and the requests that they make of them."""

from __future__ import annotations

from hypothesis import strategies as st
from session_databases import MESSAGES, WRITERS

from statemachines.kernel import Map
from statemachines.persistent_sessions.in_flight_record import InFlightRecord, InFlightStatus
from statemachines.persistent_sessions.message import Queued
from statemachines.persistent_sessions.request import (
    BeginEpoch,
    CommitState,
    ConfirmRows,
    EpochBegun,
    EpochRows,
    Fence,
    FencedRows,
    LoadSession,
    MarkDelivered,
    PutMarker,
    PutRows,
    ReadPending,
    ReadRow,
    RowStored,
    SessionLoaded,
    SessionState,
    StateChange,
    StateCommitted,
    SubscribeLive,
    UnsubscribeLive,
    change_state,
)

S = "s1"


def queued(number, message=None):
    return Queued(number, message or f"m{number}", "a/+", 1)


WRITER = st.sampled_from(WRITERS)
TOKEN = st.integers(1, 3)
SMALL = st.integers(1, 4)
PAGE = st.integers(0, 3)
RANGE = st.lists(st.sampled_from(MESSAGES), min_size=1, max_size=3)
BEHIND = st.tuples(st.integers(1, 4), st.integers(0, 3))
MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), WRITER),
        st.tuples(st.just("row"), WRITER, st.integers(0, 2), RANGE),
        st.tuples(st.just("row"), WRITER, st.just(0), RANGE),
        st.tuples(st.just("marker"), WRITER, st.integers(0, 1), TOKEN, SMALL),
        st.tuples(st.just("read"), WRITER, SMALL, SMALL),
        st.tuples(st.just("load"), TOKEN),
        st.tuples(st.just("pending"), st.sampled_from(("", *WRITERS)), PAGE, BEHIND),
        st.tuples(st.just("subscribe"), TOKEN),
        st.tuples(st.just("unsubscribe"), TOKEN),
        st.tuples(st.just("fence"), WRITER, BEHIND, st.integers(0, 4), TOKEN, PAGE),
        st.tuples(st.just("take"), WRITER, SMALL, SMALL, TOKEN),
        st.tuples(st.just("queue"), st.integers(0, 3), st.integers(0, 3), TOKEN),
        st.tuples(st.just("packet"), SMALL, st.sampled_from(list(InFlightStatus)), TOKEN),
        st.tuples(st.just("mark"), WRITER, SMALL, SMALL, st.integers(0, 4)),
        st.tuples(st.just("live"), WRITER, st.booleans()),
        st.tuples(st.just("confirm"), WRITER, SMALL, st.lists(st.sampled_from(MESSAGES), max_size=4), TOKEN),
    ),
    max_size=30,
)


class Player:
    """Makes requests of moves: what a writer and an owner that keep to the protocol would ask."""

    def __init__(self):
        self.epochs = dict.fromkeys(WRITERS, 0)
        self.last = {}
        self.state = SessionState()
        self.count = 0

    def request(self, kind, *given):
        return getattr(self, kind)(*given)

    def begin(self, writer):
        return BeginEpoch(S, writer)

    def row(self, writer, back, messages):
        epoch = self.epochs[writer] - back
        numbered = enumerate(messages, self.last.get((writer, epoch), 0) + 1)
        return PutRows(S, writer, epoch, tuple(queued(*one) for one in numbered)) if epoch > 0 else None

    def marker(self, writer, back, token, n):
        epoch = self.epochs[writer] - back
        return PutMarker(S, writer, epoch, self.last.get((writer, epoch), 0) + 1, token, n) if epoch > 0 else None

    def read(self, writer, epoch, number):
        return ReadRow(S, writer, epoch, number)

    def load(self, token):
        return LoadSession("c1", "owner", token)

    def pending(self, writer, rows, behind):
        return ReadPending(S, writer, rows, behind if writer else (0, 0))

    def subscribe(self, token):
        return SubscribeLive(S, "owner", token)

    def unsubscribe(self, token):
        return UnsubscribeLive(S, token)

    def fence(self, writer, behind, below, token, rows):
        return Fence(S, writer, behind, below, token, 1, rows)

    def confirm(self, writer, epoch, rows, token):
        """Rows that follow each other, as an owner that yields keeps them."""
        rows = tuple(queued(place, message) for place, message in enumerate(rows, 1))
        return ConfirmRows(S, token, (EpochRows(writer, epoch, rows),))

    def take(self, writer, epoch, number, token):
        return CommitState(S, token, StateChange(Map({writer: (epoch, number)}), places=self.state.places))

    def queue(self, gone, more, token):
        added = tuple(queued(self.count + place, MESSAGES[place]) for place in range(more))
        self.count += more
        dequeued = min(gone, len(self.state.queued))
        return CommitState(S, token, StateChange(dequeued=dequeued, queued=added, places=self.state.places))

    def packet(self, packet, status, token):
        places = self.state.places
        if status is InFlightStatus.DONE:
            return CommitState(S, token, StateChange(ended=(packet,), places=places + 1))
        one = InFlightRecord(packet, "c1", queued(packet), places, status)
        return CommitState(S, token, StateChange(packets=(one,), places=places + 1))

    def mark(self, writer, epoch, number, last):
        return MarkDelivered(S, writer, epoch, number, last if last >= number else 0)

    def learn(self, asked, answers):
        """What they know from the answers."""
        for answer in answers:
            match asked, answer:
                case BeginEpoch(), EpochBegun(epoch):
                    self.epochs[asked.writer] = epoch
                case Fence(), FencedRows(writer, below):
                    self.epochs[writer] = max(self.epochs[writer], below)
                case PutRows(), RowStored():
                    self.last[asked.writer, asked.epoch] = asked.last_number
                case CommitState(), StateCommitted():
                    self.state = change_state(self.state, asked.change, 0)
                case LoadSession(), SessionLoaded(_, state):
                    assert state == self.state
