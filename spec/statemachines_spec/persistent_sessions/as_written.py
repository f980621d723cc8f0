"""As written: an owner that resumes by the words of the source, where they lose messages, repeat them or stall.

What differs from the shipped machines: pending are all rows that are not marked as delivered; what is sent from the
database is cut by message id, and ids are stamped before a writer sees the message; a message is sent when it is
there, and marked afterwards; nobody doubts a writer, and a read that shows the marker is believed to be whole.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    ANY,
    STAY,
    Ask,
    Effects,
    Fsm,
    Ignore,
    Map,
    Row,
    Send,
    SetTimer,
    Tell,
    Timer,
    keys_in_order,
)
from statemachines.persistent_sessions.message import Live, LiveMarker, MarkerWanted, Puback, Publish, Queued
from statemachines.persistent_sessions.request import (
    DATABASE,
    EpochRows,
    LoadSession,
    MarkDelivered,
    PendingRead,
    Polled,
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
    Resumed,
    ResumeSession,
    ResumeStatus,
)
from statemachines.persistent_sessions.times import MS
from statemachines.persistent_sessions.writer_flow_record import LinkLost, PollDue, WriterDown, WriterUp

POLL_NS = 10 * MS


class FlowAsWritten(msgspec.Struct, frozen=True, gc=False):
    """One writer: `marked`: its marker came live; `synced`: it was found in the database; what came live between."""

    marked: bool = False
    synced: bool = False
    buffer: tuple[Live, ...] = ()


class SessionRecordAsWritten(msgspec.Struct, frozen=True, gc=False):
    """The session at the owner `id`; `sent`: the ids that this owner has sent from the database."""

    id: str
    client: str
    token: int
    status: ResumeStatus = NEW
    session: str = ""
    flows: Map[str, FlowAsWritten] = Map()
    sent: tuple[str, ...] = ()
    packets: int = 0


Done = tuple[SessionRecordAsWritten, Effects]


def send_and_mark(record: SessionRecordAsWritten, writer: str, epoch: int, rows: tuple[Queued, ...]) -> Done:
    """Send, and mark."""
    effects: Effects = ()
    for row in rows:
        record = replace(record, packets=record.packets + 1, sent=tuple(sorted({*record.sent, row.message})))
        publish = Send(record.client, Publish(record.packets, row.message, row.filter, row.qos, False))
        effects = (*effects, publish, Ask(DATABASE, MarkDelivered(record.session, writer, epoch, row.number)))
    return record, effects


def send_from_database(record: SessionRecordAsWritten, found: tuple[EpochRows, ...]) -> Done:
    """What this owner has not sent yet; the marker's id is later than every id here, which was stamped before."""
    effects: Effects = ()
    for one in found:
        rows = tuple(row for row in one.rows if row.message not in record.sent)
        record, more = send_and_mark(record, one.writer, one.epoch, rows)
        effects = (*effects, *more)
    return record, effects


def shows_marker(record: SessionRecordAsWritten, event: Polled) -> bool:
    return any((record.token, 1) in one.markers for one in event.found)


def is_waited_for(record: SessionRecordAsWritten, event: Live | LiveMarker) -> bool:
    return event.writer in record.flows and not record.flows[event.writer].marked


def is_synced(record: SessionRecordAsWritten, event: Live) -> bool:
    return event.writer in record.flows and record.flows[event.writer].synced


def is_buffered(record: SessionRecordAsWritten, event: Live) -> bool:
    return event.writer in record.flows and not is_synced(record, event)


def is_last(record: SessionRecordAsWritten, event: Polled) -> bool:
    others = (flow for writer, flow in record.flows.items() if writer != event.writer)
    return shows_marker(record, event) and all(flow.synced for flow in others)


def has_no_writers(record: SessionRecordAsWritten, event: SubscribedLive) -> bool:
    return not event.writers and not event.gone


def load(record: SessionRecordAsWritten, event: ResumeSession, now_ns: int) -> Done:
    return record, (Ask(DATABASE, LoadSession(record.client, record.id, record.token)),)


def read(record: SessionRecordAsWritten, event: SessionLoaded, now_ns: int) -> Done:
    return replace(record, session=event.session), (Ask(DATABASE, ReadPending(event.session)),)


def send_pending(record: SessionRecordAsWritten, event: PendingRead, now_ns: int) -> Done:
    record, effects = send_from_database(record, event.found)
    return record, (*effects, Ask(DATABASE, SubscribeLive(record.session, record.id, record.token)))


def ask_markers(record: SessionRecordAsWritten, event: SubscribedLive, now_ns: int) -> Done:
    writers = (*event.writers, *event.gone)
    record = replace(record, flows=Map({writer: FlowAsWritten() for writer in writers}))
    wanted = MarkerWanted(record.session, record.id, record.token, 1)
    return record, tuple(Send(writer, wanted) for writer in keys_in_order(record.flows))


def finish_alone(record: SessionRecordAsWritten, event: SubscribedLive, now_ns: int) -> Done:
    return record, (Tell(Resumed(record.session)),)


def with_flow(record: SessionRecordAsWritten, writer: str, flow: FlowAsWritten) -> SessionRecordAsWritten:
    return replace(record, flows=record.flows.set(writer, flow))


def start_sync(record: SessionRecordAsWritten, event: LiveMarker, now_ns: int) -> Done:
    record = with_flow(record, event.writer, replace(record.flows[event.writer], marked=True))
    return record, (Ask(DATABASE, ReadPending(record.session, event.writer)),)


def keep(record: SessionRecordAsWritten, event: Live, now_ns: int) -> Done:
    flow = record.flows[event.writer]
    return with_flow(record, event.writer, replace(flow, buffer=(*flow.buffer, event))), ()


def send_live(record: SessionRecordAsWritten, event: Live, now_ns: int) -> Done:
    return send_and_mark(record, event.writer, event.epoch, (event.queued,))


def poll(record: SessionRecordAsWritten, event: PollDue, now_ns: int) -> Done:
    return record, (Ask(DATABASE, ReadPending(record.session, event.key)),)


def send_and_poll(record: SessionRecordAsWritten, event: Polled, now_ns: int) -> Done:
    record, effects = send_from_database(record, event.found)
    return record, (*effects, SetTimer("poll", now_ns + POLL_NS, event.writer))


def finalize(record: SessionRecordAsWritten, event: Polled, now_ns: int) -> Done:
    """What is in the database before the marker, then what came live behind it."""
    record, effects = send_from_database(record, event.found)
    buffer = record.flows[event.writer].buffer
    record = with_flow(record, event.writer, FlowAsWritten(True, True))
    for one in buffer:
        record, more = send_and_mark(record, one.writer, one.epoch, (one.queued,))
        effects = (*effects, *more)
    return record, effects


def finish(record: SessionRecordAsWritten, event: Polled, now_ns: int) -> Done:
    record, effects = finalize(record, event, now_ns)
    return record, (*effects, Tell(Resumed(record.session)))


OPEN = (SYNCING, NORMAL)

# fmt: off
ROWS = (
    #   on              from         to           do             when            clause
    Row(ResumeSession,  NEW,         LOADING,     load,          None,           "as written"),
    Row(SessionLoaded,  LOADING,     READING,     read,          None,           "as written"),
    Row(PendingRead,    READING,     SUBSCRIBING, send_pending,  None,           "as written"),
    Row(SubscribedLive, SUBSCRIBING, NORMAL,      finish_alone,  has_no_writers, "as written"),
    Row(SubscribedLive, SUBSCRIBING, SYNCING,     ask_markers,   None,           "as written"),
    Row(LiveMarker,     SYNCING,     STAY,        start_sync,    is_waited_for,  "as written"),
    Row(Live,           SYNCING,     STAY,        None,          is_waited_for,  "as written"),
    Row(Live,           SYNCING,     STAY,        keep,          is_buffered,    "as written"),
    Row(Live,           OPEN,        STAY,        send_live,     is_synced,      "as written"),
    Row(PollDue,        SYNCING,     STAY,        poll,          None,           "as written"),
    Row(Polled,         SYNCING,     NORMAL,      finish,        is_last,        "as written"),
    Row(Polled,         SYNCING,     STAY,        finalize,      shows_marker,   "as written"),
    Row(Polled,         SYNCING,     STAY,        send_and_poll, None,           "as written"),
    Ignore((ResumeSession, SessionLoaded, PendingRead, SubscribedLive, LiveMarker, Live, PollDue, Polled, Puback,
            WriterUp, WriterDown, LinkLost), ANY,                                "as written"),
)
# fmt: on


AS_WRITTEN = Fsm(
    "resume_as_written",
    record=SessionRecordAsWritten,
    states=ResumeStatus,
    initial=NEW,
    final=(STOPPED,),
    rows=ROWS,
    timers=(Timer("poll", PollDue, (SYNCING,), lambda record: POLL_NS, on_entry=False),),
)
"""The source, word for word."""
