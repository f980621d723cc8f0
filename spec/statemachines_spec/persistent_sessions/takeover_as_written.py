"""As written: a takeover by the words of the source ("Current implementation"), where it stalls or loses messages.

What differs from the shipped machines: the state goes from process to process, and is stored nowhere meanwhile; a
message is marked when it is sent; and nothing is said of an owner that dies between the begin and the end, or of a new
one that dies with the state.  Only where there is no process at the begin, the database is asked.
"""

from __future__ import annotations

from msgspec.structs import replace

from statemachines.kernel import ANY, STAY, Ask, Effects, Fsm, Ignore, Message, Row, Send, Tell
from statemachines.persistent_sessions.message import Live, Puback, Publish, Queued
from statemachines.persistent_sessions.request import (
    DATABASE,
    LoadSession,
    NotOwner,
    PendingRead,
    ReadPending,
    SessionLoaded,
    SubscribedLive,
    SubscribeLive,
)
from statemachines.persistent_sessions.resume_record import (
    LOADING,
    NEW,
    NORMAL,
    READING,
    STOPPED,
    SUBSCRIBING,
    SYNCING,
    TAKING,
    YIELDING,
    Resumed,
    ResumeSession,
    ResumeStatus,
)
from statemachines.persistent_sessions.takeover_message import BeginTakeover, EndTakeover, TakeoverRefused
from statemachines.persistent_sessions.writer_flow_record import LinkLost, WriterDown, WriterUp
from statemachines_spec.persistent_sessions.as_written import SessionRecordAsWritten, send_and_mark, send_from_database

InFlight = tuple[int, Queued]


class StateGiven(Message, frozen=True, gc=False):
    """To the new owner: the session state; what comes from now on is kept."""

    session: str
    packets: int
    in_flight: tuple[InFlight, ...]


class PendingsGiven(Message, frozen=True, gc=False):
    """To the new owner: what has come since."""

    pendings: tuple[Live, ...]


class TakingAsWritten(SessionRecordAsWritten, frozen=True, gc=False):
    """`old`: the owner of before; what is `in_flight`; `kept`: live messages of the overlap."""

    old: str = ""
    in_flight: tuple[InFlight, ...] = ()
    kept: tuple[Live, ...] = ()


Done = tuple[TakingAsWritten, Effects]


# -- guards ---------------------------------------------------------------------------------------------------------


def is_live(record: TakingAsWritten, event: ResumeSession) -> bool:
    return bool(record.old)


# -- actions --------------------------------------------------------------------------------------------------------


def with_sent(record: TakingAsWritten, done: tuple[SessionRecordAsWritten, Effects]) -> Done:
    """What was sent is in flight."""
    after, effects = done
    sent = (one.message for one in effects if isinstance(one, Send))
    flying = tuple((one.packet, Queued(0, one.message, one.filter)) for one in sent if isinstance(one, Publish))
    return replace(record, packets=after.packets, sent=after.sent, in_flight=(*record.in_flight, *flying)), effects


def send_live(record: TakingAsWritten, event: Live, now_ns: int) -> Done:
    return with_sent(record, send_and_mark(record, event.writer, event.epoch, (event.queued,)))


def end_packet(record: TakingAsWritten, event: Puback, now_ns: int) -> Done:
    return replace(record, in_flight=tuple(one for one in record.in_flight if one[0] != event.packet)), ()


def load(record: TakingAsWritten, event: ResumeSession | TakeoverRefused, now_ns: int) -> Done:
    return record, (Ask(DATABASE, LoadSession(record.client, record.id, record.token)),)


def subscribe(record: TakingAsWritten, event: SessionLoaded, now_ns: int) -> Done:
    record = replace(record, session=event.session)
    return record, (Ask(DATABASE, SubscribeLive(event.session, record.id, record.token)),)


def read(record: TakingAsWritten, event: SubscribedLive, now_ns: int) -> Done:
    return record, (Ask(DATABASE, ReadPending(record.session)),)


def send_pending(record: TakingAsWritten, event: PendingRead, now_ns: int) -> Done:
    record, effects = with_sent(record, send_from_database(record, event.found))
    return record, (*effects, Tell(Resumed(record.session)))


def ask_begin(record: TakingAsWritten, event: ResumeSession, now_ns: int) -> Done:
    return record, (Send(record.old, BeginTakeover(record.client, record.id, record.token)),)


def give_state(record: TakingAsWritten, event: BeginTakeover, now_ns: int) -> Done:
    return record, (Send(event.to, StateGiven(record.session, record.packets, record.in_flight)),)


def inherit(record: TakingAsWritten, event: StateGiven, now_ns: int) -> Done:
    record = replace(record, session=event.session, packets=event.packets, in_flight=event.in_flight)
    return record, (Ask(DATABASE, SubscribeLive(event.session, record.id, record.token)),)


def ask_end(record: TakingAsWritten, event: SubscribedLive, now_ns: int) -> Done:
    return record, (Send(record.old, EndTakeover(record.client, record.id, record.token)),)


def keep(record: TakingAsWritten, event: Live, now_ns: int) -> Done:
    return replace(record, kept=(*record.kept, event)), ()


def give_pendings(record: TakingAsWritten, event: EndTakeover, now_ns: int) -> Done:
    return record, (Send(event.to, PendingsGiven(record.kept)),)


def deliver(record: TakingAsWritten, event: PendingsGiven, now_ns: int) -> Done:
    """What is in flight again, what the owner of before had kept, and what has come here."""
    effects: Effects = tuple(
        Send(record.client, Publish(packet, one.message, one.filter, 1, True)) for packet, one in record.in_flight
    )
    for live in (*event.pendings, *record.kept):
        record, more = send_live(record, live, now_ns)
        effects = (*effects, *more)
    return replace(record, kept=()), (*effects, Tell(Resumed(record.session)))


# fmt: off
ROWS = (
    #   on               from         to           do             when     clause
    Row(ResumeSession,   NEW,         TAKING,      ask_begin,     is_live, "as written"),
    Row(ResumeSession,   NEW,         LOADING,     load,          None,    "as written"),
    Row(SessionLoaded,   LOADING,     SUBSCRIBING, subscribe,     None,    "as written"),
    Row(SubscribedLive,  SUBSCRIBING, READING,     read,          None,    "as written"),
    Row(PendingRead,     READING,     NORMAL,      send_pending,  None,    "as written"),
    Row(TakeoverRefused, TAKING,      LOADING,     load,          None,    "as written"),
    Row(StateGiven,      TAKING,      STAY,        inherit,       None,    "as written"),
    Row(SubscribedLive,  TAKING,      SYNCING,     ask_end,       None,    "as written"),
    Row(Live,            SYNCING,     STAY,        keep,          None,    "as written"),
    Row(PendingsGiven,   SYNCING,     NORMAL,      deliver,       None,    "as written"),
    Row(Live,            NORMAL,      STAY,        send_live,     None,    "as written"),
    Row(Puback,          NORMAL,      STAY,        end_packet,    None,    "as written"),
    Row(BeginTakeover,   NORMAL,      YIELDING,    give_state,    None,    "as written"),
    Row(Live,            YIELDING,    STAY,        keep,          None,    "as written"),
    Row(EndTakeover,     YIELDING,    STOPPED,     give_pendings, None,    "as written"),
    Row(NotOwner,        ANY,         STOPPED,     None,          None,    "as written"),
    Ignore((ResumeSession, SessionLoaded, SubscribedLive, PendingRead, StateGiven, PendingsGiven, Live, Puback,
            BeginTakeover, EndTakeover, TakeoverRefused, WriterUp, WriterDown, LinkLost), ANY, "as written"),
)
# fmt: on


TAKING_AS_WRITTEN = Fsm(
    "takeover_as_written",
    record=TakingAsWritten,
    states=ResumeStatus,
    initial=NEW,
    final=(STOPPED,),
    rows=ROWS,
)
"""The source, word for word."""
