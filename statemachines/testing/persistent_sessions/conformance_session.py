"""Conformance: what others may do otherwise who implement the owner of a session, and what is told to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from statemachines.kernel import Event, Map, Request, in_order
from statemachines.persistent_sessions.in_flight_record import RECEIVED, RELEASED, SENT, InFlightRecord
from statemachines.persistent_sessions.message import (
    Live,
    LiveMarker,
    MarkerWanted,
    MessageExpired,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
)
from statemachines.persistent_sessions.request import (
    CommitState,
    ConfirmRows,
    EpochRows,
    Fence,
    FencedRows,
    LoadSession,
    MarkDelivered,
    NotOwner,
    PendingRead,
    Polled,
    PutMarker,
    ReadPending,
    RowsConfirmed,
    SessionAbsent,
    SessionLoaded,
    SessionState,
    StateCommitted,
    SubscribedLive,
    SubscribeLive,
    UnsubscribeLive,
)
from statemachines.persistent_sessions.resume import RESUME
from statemachines.persistent_sessions.resume_record import (
    ConnectionLost,
    Discarded,
    Resumed,
    ResumeEnded,
    ResumeRecord,
    ResumeSession,
    Yielded,
)
from statemachines.persistent_sessions.session_tables import SESSION
from statemachines.persistent_sessions.takeover_record import (
    BeginTakeover,
    EndTakeover,
    TakenOver,
    TakeoverBegun,
    TakeoverEnded,
    TakeoverRefused,
)
from statemachines.persistent_sessions.times import Times
from statemachines.persistent_sessions.writer_flow import LinkLost, WriterDown, WriterUp
from statemachines.testing.conformance import role
from statemachines.testing.conformance.interface import Alphabet
from statemachines.testing.conformance.relation import Before, Ranged, Relation, Repeated, Unordered
from statemachines.testing.conformance.role import ConformanceRole, PlayedService
from statemachines.testing.persistent_sessions.played_database import (
    ExpireSession,
    PassTime,
    PlayedDatabase,
    StoredSession,
    make_row,
    store_rows,
)
from statemachines.testing.persistent_sessions.wire_session import WIRE_SESSION
from statemachines_spec.explorer.actor import Timing

OWNER: Final = "owner-1~1/1"
CLIENT: Final = "c1"
TOKEN: Final = 2
BEFORE: Final = "owner-9~1/1"
AFTER: Final = "owner-2~1/1"
LATER: Final = "owner-3~1/1"
WRITER: Final = "w1"
OTHER: Final = "w2"
EPOCHS_MAX: Final = 2
ROWS_MAX: Final = 5

MS: Final = 1_000_000
TICK_NS: Final = 1_000 * MS
PERIODS: Final = {
    "poll_ms": 2_000,
    "repeat_ms": 1_000,
    "marker_ms": 4_000,
    "begin_ms": 3_000,
    "end_ms": 3_000,
    "resume_ms": 6_000,
    "lock_ms": 8_000,
    "orphan_ms": 8_000,
}
SHORT: Final = {
    "poll_ms": 1_000,
    "repeat_ms": 1_000,
    "marker_ms": 2_000,
    "begin_ms": 2_000,
    "end_ms": 2_000,
    "resume_ms": 3_000,
    "lock_ms": 5_000,
    "orphan_ms": 5_000,
}
TIMES: Final = Times(**PERIODS, receive_maximum=4)
HASTY: Final = Times(**SHORT, receive_maximum=4)
FEW: Final = Times(**SHORT, receive_maximum=2)
NARROW: Final = Times(**SHORT, receive_maximum=1, queue=1, resume_buffer=1, handover=1)

RELATION: Final = Relation(
    before=(Before("mark_delivered", "publish", "", "PS-343"),),
    unordered=(Unordered("confirm_rows", "found", "PS-344"), Unordered("takeover_ended", "found", "PS-344")),
    repeated=(
        Repeated("marker_wanted", "PS-345"),
        Repeated("begin_takeover", "PS-345"),
        Repeated("end_takeover", "PS-345"),
    ),
    ranged=(Ranged("mark_delivered", "number", "last", "PS-346", alone=0),),
)

ALPHABET: Final = Alphabet(
    takes=(
        ResumeSession, ConnectionLost, Discarded, Live, LiveMarker, WriterUp, WriterDown, LinkLost,
        Puback, Pubrec, Pubcomp, BeginTakeover, EndTakeover, TakeoverBegun, TakeoverEnded, TakeoverRefused,
        SessionLoaded, SessionAbsent, PendingRead, SubscribedLive, StateCommitted, Polled, FencedRows,
        RowsConfirmed, NotOwner,
    ),
    sends=(
        MarkerWanted, Publish, Pubrel, BeginTakeover, EndTakeover, TakeoverBegun, TakeoverEnded, TakeoverRefused,
    ),
    asks=(
        LoadSession, ReadPending, SubscribeLive, CommitState, MarkDelivered, Fence, ConfirmRows, UnsubscribeLive,
    ),
    tells=(Resumed, ResumeEnded, Yielded, TakenOver, MessageExpired),
)  # fmt: skip

Told = Callable[[ResumeRecord], Iterator[Event]]


# -- what is told ---------------------------------------------------------------------------------------------------


def connect(record: ResumeRecord) -> Iterator[Event]:
    """A client connects."""
    yield ResumeSession()


def say_rows(qos: int, most: int, until_ns: int = 0) -> Told:
    """A writer that has stored up to `most` messages: it sends the next ones, and shows the markers that it was asked
    for."""

    def say(record: ResumeRecord) -> Iterator[Event]:
        yield ResumeSession()
        flow = record.flows.get(WRITER)
        if flow is None:
            return
        epoch, behind = flow.epoch, max(flow.taken, flow.k + len(flow.buffer) - 1)
        for number in range(max(behind, 1), min(behind + 2, most) + 1):
            yield Live(SESSION, WRITER, epoch, make_row(WRITER, number, qos, until_ns))
        if flow.status.value == "waiting":
            yield LiveMarker(SESSION, WRITER, epoch, most, TOKEN, flow.n)

    return say


def say_strays(record: ResumeRecord) -> Iterator[Event]:
    """Messages that come too early, or of other epochs, and markers that nobody waits for."""
    flow = record.flows.get(WRITER)
    epoch, n, number = (
        (1, 1, 1) if flow is None else (flow.epoch, flow.n, max(flow.taken, flow.k + len(flow.buffer)) + 1)
    )
    for other in (epoch - 1, epoch, epoch + 1):
        if 0 < other <= EPOCHS_MAX:
            yield LiveMarker(SESSION, WRITER, other, number, TOKEN, n)
            yield Live(SESSION, WRITER, other, make_row(WRITER, number))
    yield LiveMarker(SESSION, WRITER, epoch, number, TOKEN, n - 1)
    yield LiveMarker(SESSION, WRITER, epoch, number, TOKEN - 1, n)
    if flow is not None and flow.taken:
        yield Live(SESSION, WRITER, epoch, make_row(WRITER, flow.taken))


def show_marker(ahead: int = 1) -> Told:
    """The writer shows the marker that it was asked for last, with so many messages before it that are still to be
    read."""

    def say(record: ResumeRecord) -> Iterator[Event]:
        yield ResumeSession()
        flow = record.flows.get(WRITER)
        if flow is not None and flow.status.value == "waiting":
            k = flow.taken + 1 + ahead * (flow.epoch == 1)
            yield LiveMarker(SESSION, WRITER, flow.epoch, k, TOKEN, flow.n)

    return say


def say_news(record: ResumeRecord) -> Iterator[Event]:
    """What is heard of the writer's node."""
    yield from (WriterUp(WRITER), WriterDown(WRITER), LinkLost(WRITER))


def break_path(record: ResumeRecord) -> Iterator[Event]:
    """The path to the writer's node break_path."""
    yield LinkLost(WRITER)


def say_while_fenced(record: ResumeRecord) -> Iterator[Event]:
    """The writer is reported dead, and more is heard of its node while it is fenced."""
    flow = record.flows.get(WRITER)
    if flow is not None and flow.status.value in ("fencing", "draining"):
        yield from (*say_news(record), Live(SESSION, WRITER, 2, make_row(WRITER, 1)))
    elif flow is not None:
        yield WriterDown(WRITER)


def say_next_epoch(record: ResumeRecord) -> Iterator[Event]:
    """The writer is reported dead, and is heard under its next epoch."""
    yield WriterDown(WRITER)
    if any(flow.status.value in ("fencing", "draining") for flow in record.flows.values()):
        yield from (WriterUp(WRITER), Live(SESSION, WRITER, 2, make_row(WRITER, 1)))
        yield LiveMarker(SESSION, WRITER, 2, 1, TOKEN, 1)


def say_late_row(record: ResumeRecord) -> Iterator[Event]:
    """The last row of the writer comes live, of a publisher that came before the rows of other writers, or after."""
    for since_ns in (1, 7):
        yield Live(SESSION, WRITER, 1, make_row(WRITER, 3, stored_ns=7), since_ns)


def acknowledge_first(record: ResumeRecord) -> Iterator[Event]:
    """A client acknowledges in order."""
    if record.delivery is not None:
        sent = [one.packet for _, one in in_order(record.delivery.state.packets) if one.status is SENT]
        yield from map(Puback, sent[:1])


def acknowledge(record: ResumeRecord) -> Iterator[Event]:
    """What a client may say of what it was sent, and of one packet that it was not."""
    delivery = record.delivery
    if delivery is None:
        return
    packets = [one for _, one in in_order(delivery.state.packets)]
    for one in packets:
        if one.status in (SENT, RECEIVED, RELEASED):
            yield from (Puback(one.packet), Pubrec(one.packet), Pubcomp(one.packet))
    if len(packets) > 1:
        yield Puback(packets[0].packet, packets[-1].packet)
    yield Puback(60_000)


def end_connection(record: ResumeRecord) -> Iterator[Event]:
    """The connection goes, or the session is discarded."""
    yield from (ConnectionLost(), Discarded())


def meet_others(record: ResumeRecord) -> Iterator[Event]:
    """What is heard of a writer that nothing was known of."""
    if record.status.value in ("syncing", "normal"):
        yield from (Live(SESSION, OTHER, 1, make_row(OTHER, 1)), WriterUp(OTHER), WriterDown(OTHER), LinkLost(OTHER))


def answer_as_owner_before(record: ResumeRecord) -> Iterator[Event]:
    """What the owner of before answers, and what one of an earlier takeover does."""
    yield ResumeSession()
    rows = (EpochRows(WRITER, 1, (make_row(WRITER, 1), make_row(WRITER, 2))),)
    for token in (TOKEN - 1, TOKEN):
        yield from (TakeoverBegun(CLIENT, token), TakeoverRefused(CLIENT, token), TakeoverEnded(CLIENT, token))
        yield TakeoverEnded(CLIENT, token, rows)
    flow = record.flows.get(WRITER)
    if flow is not None and flow.status.value == "waiting":
        yield LiveMarker(SESSION, WRITER, flow.epoch, 3, TOKEN, flow.n)
    if record.status.value == "taking":
        yield from (
            Live(SESSION, WRITER, 1, make_row(WRITER, 1)),
            WriterUp(WRITER),
            WriterDown(WRITER),
            LinkLost(WRITER),
        )


def claim_as_later_owners(record: ResumeRecord) -> Iterator[Event]:
    """What owners that come after say."""
    yield from (BeginTakeover(CLIENT, AFTER, TOKEN + 1), BeginTakeover(CLIENT, LATER, TOKEN + 2))
    yield from (BeginTakeover(CLIENT, BEFORE, TOKEN), BeginTakeover("c2", AFTER, TOKEN + 1))
    yield from (EndTakeover(CLIENT, AFTER, TOKEN + 1), EndTakeover(CLIENT, LATER, TOKEN + 2))


def say_all(*some: Told) -> Told:
    """All that these say."""

    def say(record: ResumeRecord) -> Iterator[Event]:
        for one in some:
            yield from one(record)

    return say


# -- what others ask of the database --------------------------------------------------------------------------------


def store_markers(most: int) -> Callable[[StoredSession], Iterator[Request]]:
    """The writer stores markers that it was asked for."""

    def ask(state: StoredSession) -> Iterator[Request]:
        epoch = state.epochs.get(WRITER, 0)
        there = state.of(WRITER, epoch).markers if epoch else ()
        if epoch == 1 and len(there) < most:
            yield PutMarker(SESSION, WRITER, epoch, 1, TOKEN, len(there) + 1)

    return ask


def pass_time(state: StoredSession) -> Iterator[Request]:
    """The clock of the database reaches the end of the first message, and reads show all that is stored."""
    if state.time_ns < 5:
        yield PassTime(9)


def supersede(state: StoredSession) -> Iterator[Request]:
    """The session expires, or a later owner has it."""
    yield ExpireSession()
    yield LoadSession(CLIENT, AFTER, TOKEN + 1)


def answer_twice(record: ResumeRecord) -> Iterator[Event]:
    """Answers that come a second time."""
    status = record.status.value
    delivery = record.delivery
    if status != "loading":
        yield from (SessionLoaded(SESSION, SessionState()), SessionAbsent())
    if status != "reading":
        yield PendingRead(())
    if status != "subscribing":
        yield SubscribedLive((WRITER,))
    if delivery is None or delivery.status.value == "ready":
        yield StateCommitted()
    flow = record.flows.get(WRITER)
    if flow is None or flow.status.value != "syncing":
        yield Polled(WRITER, ())
    yield FencedRows(WRITER, 9, 0, ())
    yield Polled("w9", ())
    if record.takeover is None or record.takeover.status.value != "confirming":
        yield RowsConfirmed(())


def keep_in_flight(*packets: tuple[int, int, Any], queued: int = 0) -> SessionState:
    """A committed state with these in flight: packet, QoS, and how far the client has it; and so many behind them."""
    kept = {
        packet: InFlightRecord(packet, CLIENT, make_row("w0", packet, qos), packet - 1, status)
        for packet, qos, status in packets
    }
    behind = tuple(make_row("w0", len(packets) + place, 2 - place % 2) for place in range(1, queued + 1))
    return SessionState(Map({"w0": (1, len(packets) + queued)}), Map(kept), behind, len(packets))


def make_session(times: Times = TIMES, old: str = "") -> ResumeRecord:
    """A session that comes back."""
    return ResumeRecord(OWNER, CLIENT, TOKEN, times, old)


def has_few(most: int) -> Callable[[Any], bool]:
    """So many markers and fences of each writer, and few messages."""
    return lambda record: all(
        flow.n <= most and max(flow.taken, flow.k - 1) + len(flow.buffer) <= ROWS_MAX for flow in record.flows.values()
    )


def play_database(held: StoredSession, others: Any = None) -> tuple[PlayedService, ...]:
    """The database of the start."""
    played = PlayedDatabase(held)
    return (PlayedService(played),) if others is None else (PlayedService(played, others=others),)


SESSION_BACK: Final = make_session(HASTY)

TIMING: Final = Timing(
    TICK_NS, ("resume", "lull", "catch_up", "orphan", "repeat", "marker", "poll", "again", "begin", "end")
)  # fmt: skip

MARKS: Final = tuple((TOKEN, n) for n in range(1, 5))
"""Markers that the database shows, whenever it is read."""


def make_start(
    name: str, told: Told, held: StoredSession, most: int, record: ResumeRecord = SESSION_BACK, others: Any = None
) -> Any:
    """A start in which so many markers are asked for."""
    return role.Start(name, record, told, has_few(most), play_database(held, others))


TIMED: Final = StoredSession(
    Map({WRITER: 1}),
    Map({
        (writer, epoch): EpochRows(
            writer, epoch, tuple(make_row(writer, number, stored_ns=at) for number, at in enumerate(times, 1)), MARKS
        )
        for writer, epoch, times in ((WRITER, 1, (1, 4, 7)), (OTHER, 1, (2, 3, 8)), ("w3", 1, (6,)), ("w3", 2, (9,)))
    }),
    time_ns=4,
    gone=(OTHER,),
)  # fmt: skip
"""Rows of three writers, by their store times; one is gone, and of another reads show nothing yet."""

STARTS: Final = (
    make_start("no session", say_all(connect, end_connection, answer_twice), store_rows({}), 1, others=supersede),
    make_start(
        "messages of a writer",
        say_all(say_rows(1, 2), end_connection, answer_twice),
        store_rows({WRITER: 1}),
        1,
        make_session(TIMES),
        store_markers(1),
    ),
    make_start("messages astray", say_all(show_marker(), say_strays), store_rows({WRITER: 2}, MARKS), 2),
    make_start(
        "a writer that dies and comes back", say_all(show_marker(), say_news), store_rows({WRITER: 1}, MARKS), 3
    ),
    make_start("a path that breaks", say_all(say_rows(1, 3), break_path), store_rows({WRITER: 2}, MARKS), 2),
    make_start(
        "a writer that lives while it is fenced",
        say_all(show_marker(), say_next_epoch),
        store_rows({WRITER: 1}, MARKS),
        3,
    ),
    make_start("several writers", say_all(say_rows(1, 1), meet_others), store_rows({WRITER: 1}, MARKS), 1),
    make_start(
        "acknowledgements",
        say_all(connect, acknowledge),
        store_rows({}, state=keep_in_flight((1, 1, SENT), queued=3)),
        0,
        make_session(FEW),
    ),
    make_start(
        "exactly once",
        say_all(connect, acknowledge),
        store_rows({}, state=keep_in_flight((1, 2, RELEASED), (2, 2, RECEIVED), queued=2)),
        0,
        make_session(FEW),
    ),
    make_start(
        "a message that is received while others are committed",
        say_all(say_rows(0, 1), acknowledge),
        store_rows({WRITER: 0}, MARKS, keep_in_flight((1, 2, SENT))),
        1,
    ),
    make_start(
        "messages whose time ends", say_rows(1, 3, 5), store_rows({WRITER: 2}, MARKS, until_ns=5), 1, others=pass_time
    ),
    make_start(
        "a client that is slow",
        say_all(say_rows(1, 3), acknowledge_first),
        store_rows({WRITER: 2}, MARKS),
        1,
        make_session(NARROW),
    ),
    make_start(
        "a client that keeps what it has",
        say_all(show_marker(3), acknowledge_first),
        store_rows({WRITER: 5}, MARKS, keep_in_flight((1, 1, SENT), (2, 1, SENT), (3, 1, SENT))),
        1,
    ),
    make_start(
        "a dead writer of a slow client",
        say_all(connect, say_while_fenced, acknowledge_first),
        store_rows({WRITER: 3}, MARKS),
        3,
        make_session(NARROW),
    ),
    make_start(
        "messages astray for a slow client",
        say_all(show_marker(2), say_strays, acknowledge_first),
        store_rows({WRITER: 3}, MARKS),
        2,
        make_session(NARROW),
    ),
    make_start(
        "a session that is taken over",
        say_all(answer_as_owner_before, end_connection),
        store_rows({WRITER: 2}, MARKS),
        1,
        make_session(old=BEFORE),
    ),
    make_start(
        "a session without writers that is taken over",
        say_all(answer_as_owner_before, claim_as_later_owners),
        store_rows({}, state=keep_in_flight((1, 1, SENT), queued=1)),
        1,
        make_session(old=BEFORE),
    ),
    make_start(
        "owners that come after",
        say_all(say_rows(1, 2), claim_as_later_owners),
        store_rows({WRITER: 1}, MARKS),
        1,
        others=supersede,
    ),
    make_start("writers whose rows are merged", say_all(show_marker(0), say_late_row), TIMED, 2, others=pass_time),
)

SESSION_ROLE: Final = ConformanceRole(
    RESUME, STARTS, TIMING, RELATION, given=("id", "client", "token", "times", "old"), alphabet=ALPHABET,
    wire=WIRE_SESSION,
)  # fmt: skip
