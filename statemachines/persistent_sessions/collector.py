"""Collector: deletes what no session needs any more (source: "Garbage collection of persistent data").

`idle -> finding <-> forgetting -> reading <-> deleting -> scanning <-> removing -> idle`: first clients that have not
come back before their sessions expired, then rows, page by page, then messages.  What is to go of a page is one
transaction, and each page stands by itself: a collector may stop after any, and begin anywhere.

Graces: how long the collector leaves alone what nobody seems to need (page: "Garbage collection").

CollectorRecord: where a round of the collector is, and what it came to.

What the collector asks of the database, and what it answers (page: "Garbage collection", "Connect, clean start,
expiry").

What an event makes of a Collector: the guards and actions of its table (`collector`).

Rules of the collector: what is garbage, and on what its deletion depends (source: "Garbage collection of
persistent data").
"""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    STAY,
    Answer,
    Ask,
    Call,
    ConfigurationError,
    Effects,
    Event,
    Fsm,
    Ignore,
    Invariant,
    Request,
    Row,
    Status,
    Tell,
    Timer,
    TimerFired,
    TraceColumns,
)
from statemachines.persistent_sessions.request import DATABASE
from statemachines.persistent_sessions.times import MS, Times

KEYS = ("marker_ms", "message_ms", "abandon_ms", "retention_ms", "dead_ms", "round_ms", "page")


NEVER_MS: Final = 2**40 - 1
"""A retention that no message reaches: nothing is deleted while a session that lives wants it, unless that has too much
of it."""


class Graces(msgspec.Struct, frozen=True):
    """Milliseconds since the commit of a row, by the clock of the database.  `marker_ms`: of a marker; `message_ms`:
    of a message to which nothing refers, and of a lone mark; `abandon_ms`: of what says that a session is abandoned:
    a writer stores nothing for it later than that; `retention_ms`: of any message.  `dead_ms`: an owner that has not
    said for so long that its session lives is none any more (as in `LifeTimes`).  `round_ms` from the end of a round to
    the next; `page`: so many clients, rows or messages are read at once.  `times`: those of the owners.

    `ConfigurationError` names the value that cannot be.
    """

    marker_ms: int = 60_000
    message_ms: int = 60_000
    abandon_ms: int = 300_000
    retention_ms: int = NEVER_MS
    dead_ms: int = 5_000
    round_ms: int = 10_000
    page: int = 100
    times: Times = Times()

    def __post_init__(self) -> None:
        for key in KEYS:
            if getattr(self, key) < 1:
                raise ConfigurationError(key, getattr(self, key), "at least 1")
        if self.marker_ms <= self.times.resume_ms:
            rule = f"more than resume_ms, which is {self.times.resume_ms}: a resume may wait for the marker so long"
            raise ConfigurationError("marker_ms", self.marker_ms, rule)
        if self.message_ms >= self.retention_ms:
            rule = f"less than retention_ms, which is {self.retention_ms}"
            raise ConfigurationError("message_ms", self.message_ms, rule)


GRACES: Final = Graces()
"""Those of a node that is told nothing else."""


class Tag(Status):
    """What a row of the table of session messages is."""

    ABANDONED = "abandoned"
    UNDELIVERED = "undelivered"
    DELIVERED = "delivered"
    MARKER = "marker"


class Only(Status):
    """On what a deletion depends, in the transaction of the deletion: what was read of others may have changed since.

    `unpaired`: the undelivered row of the same place is gone; `alone`: the session has no other row; `unreferenced`:
    no row and no session state refers to the message; `unheld`: no session state does; `over`: no session state does,
    and every row that refers to it says that it is over.
    """

    ALWAYS = "always"
    UNPAIRED = "unpaired"
    ALONE = "alone"
    UNREFERENCED = "unreferenced"
    UNHELD = "unheld"
    OVER = "over"


class RowKey(msgspec.Struct, frozen=True, gc=False):
    """The key of a row, in the order in which a table is read: `session`, `writer` ("": abandoned), `epoch`, `number`
    (0: a marker), `tag`, and `token` and `n` of a marker."""

    session: str
    writer: str = ""
    epoch: int = 0
    number: int = 0
    tag: Tag = Tag.UNDELIVERED
    token: int = 0
    n: int = 0


class StoredRow(msgspec.Struct, frozen=True, gc=False):
    """A row as it was read.  `age_ms` since its commit; `abandoned`: its session is; `paired`: of an undelivered and a
    delivered row of one place both are there; `taken`: the session state has it; `alone`: the session has no other."""

    key: RowKey
    age_ms: int
    abandoned: bool = False
    paired: bool = False
    taken: bool = False
    alone: bool = False

    @property
    def waits(self) -> bool:
        """Whether it is still to be delivered."""
        return self.key.tag is Tag.UNDELIVERED and not (self.abandoned or self.paired or self.taken)


class StoredMessage(msgspec.Struct, frozen=True, gc=False):
    """A message as it was read: `referenced` by a row, or `held` by the state of a session, in flight or queued;
    `over`: rows refer to it, and it is over, as they say, by the clock of the database."""

    message: str
    age_ms: int
    referenced: bool = False
    held: bool = False
    over: bool = False


class StoredClient(msgspec.Struct, frozen=True, gc=False):
    """A client as it was read; it is `over` if it has no session, or one that has expired, and nobody has it locked."""

    client: str
    over: bool


class ReadClients(Request, frozen=True, gc=False):
    """The next `limit` clients behind the id `after` ("": from the first on), in their order.  An owner that has not
    said for `dead_ms` that its session lives is none any more."""

    columns: ClassVar = TraceColumns(key="after")

    after: str
    limit: int
    dead_ms: int


class ClientsRead(Answer, frozen=True, gc=False):
    """To `ReadClients`; none: there are no more."""

    clients: tuple[StoredClient, ...]


class ReadRows(Request, frozen=True, gc=False):
    """The next `limit` rows behind the key `after` (None: from the first on), in their order.  Not `waiting`: rows that
    wait are left out, but for one that may be the last of the answer: it says where the next page begins."""

    after: RowKey | None
    limit: int
    waiting: bool = True


class RowsRead(Answer, frozen=True, gc=False):
    """To `ReadRows`; none: there are no more."""

    rows: tuple[StoredRow, ...]


class ReadMessages(Request, frozen=True, gc=False):
    """The next `limit` messages behind the place `after` ("": from the first on) that are `age_ms` old or older, in an
    order of the database."""

    columns: ClassVar = TraceColumns(key="after")

    after: str
    limit: int
    age_ms: int = 0


class MessagesRead(Answer, frozen=True, gc=False):
    """To `ReadMessages`; none: there are no more.  `place` of the last one: the next page is behind it."""

    messages: tuple[StoredMessage, ...]
    place: str = ""


class ForgetClient(Request, frozen=True, gc=False):
    """Forget the client if it still is over: its session is abandoned, and whoever has a token of it is superseded.
    One transaction."""

    columns: ClassVar = TraceColumns(key="client")

    client: str
    dead_ms: int


class RowDeletion(msgspec.Struct, frozen=True, gc=False):
    """Delete the row, if what `only` says is so."""

    row: RowKey
    only: Only


class MessageDeletion(msgspec.Struct, frozen=True, gc=False):
    """Delete the message, if what `only` says is so."""

    message: str
    only: Only


class DeletePage(Request, frozen=True, gc=False):
    """Delete what is to go of a page of rows, or of messages, as if one after the other: one transaction."""

    rows: tuple[RowDeletion, ...] = ()
    messages: tuple[MessageDeletion, ...] = ()


class PageDeleted(Answer, frozen=True, gc=False):
    """To `DeletePage`: how many rows were deleted; of each message that was deleted its id, and how many rows were
    still to be taken that refer to it."""

    rows: int = 0
    messages: tuple[tuple[str, int], ...] = ()


class ClientForgotten(Answer, frozen=True, gc=False):
    """To `ForgetClient`: whether it was `done`."""

    done: bool


class CollectFailed(Answer, frozen=True, gc=False):
    """To whatever the collector asks: perhaps it was done, perhaps not."""


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


def row_garbage(row: StoredRow, graces: Graces) -> RowDeletion | None:
    """How the row is deleted; None: it is needed, or may be.

    That a session is abandoned, a row delivered or taken, or old, stays so: nothing is asked again.
    """
    match row.key.tag:
        case Tag.UNDELIVERED:
            is_due, only = not row.waits, Only.ALWAYS
        case Tag.DELIVERED:
            is_due = row.abandoned or row.paired or row.age_ms >= graces.message_ms
            only = Only.ALWAYS if row.abandoned else Only.UNPAIRED
        case Tag.MARKER:
            is_due, only = row.abandoned or row.age_ms >= graces.marker_ms, Only.ALWAYS
        case Tag.ABANDONED:
            is_due = row.alone and row.age_ms >= graces.abandon_ms
            only = Only.ALONE
    return RowDeletion(row.key, only) if is_due else None


def message_garbage(one: StoredMessage, graces: Graces) -> MessageDeletion | None:
    """How the message is deleted; None: it is needed, or may be."""
    if one.held:
        return None
    if one.age_ms >= graces.retention_ms:
        return MessageDeletion(one.message, Only.UNHELD)
    if one.age_ms < graces.message_ms or (one.referenced and not one.over):
        return None
    return MessageDeletion(one.message, Only.OVER if one.over else Only.UNREFERENCED)


def clients_over(record: CollectorRecord, event: ClientsRead) -> tuple[ForgetClient, ...]:
    """Who of the page is forgotten."""
    return tuple(ForgetClient(one.client, record.graces.dead_ms) for one in event.clients if one.over)


def garbage_rows(record: CollectorRecord, event: RowsRead) -> tuple[RowDeletion, ...]:
    """What of the page goes, in its order: of a pair the undelivered row stands first."""
    found = (row_garbage(row, record.graces) for row in event.rows)
    return tuple(one for one in found if one is not None)


def garbage_messages(record: CollectorRecord, event: MessagesRead) -> tuple[MessageDeletion, ...]:
    found = (message_garbage(one, record.graces) for one in event.messages)
    return tuple(one for one in found if one is not None)


# -- guards ---------------------------------------------------------------------------------------------------------


def has_clients_over(record: CollectorRecord, event: ClientsRead) -> bool:
    return bool(clients_over(record, event))


def has_more_clients(record: CollectorRecord, event: ClientsRead) -> bool:
    """A page that is not empty: there may be another behind it."""
    return bool(event.clients)


def has_garbage(record: CollectorRecord, event: RowsRead) -> bool:
    return any(row_garbage(row, record.graces) is not None for row in event.rows)


def has_more(record: CollectorRecord, event: RowsRead) -> bool:
    """A page that is not empty: there may be another behind it."""
    return bool(event.rows)


def has_unneeded(record: CollectorRecord, event: MessagesRead) -> bool:
    return bool(garbage_messages(record, event))


def has_more_messages(record: CollectorRecord, event: MessagesRead) -> bool:
    return bool(event.messages)


def has_more_to_do(record: CollectorRecord, event: ClientForgotten) -> bool:
    return len(record.todo) > 1


# -- actions --------------------------------------------------------------------------------------------------------


def find(record: CollectorRecord) -> Done:
    return record, (Ask(DATABASE, ReadClients(record.seen, record.graces.page, record.graces.dead_ms)),)


def read(record: CollectorRecord) -> Done:
    return record, (Ask(DATABASE, ReadRows(record.after, record.graces.page, waiting=False)),)


def scan_messages(record: CollectorRecord) -> Done:
    """No message goes that is younger than the grace of messages."""
    return record, (Ask(DATABASE, ReadMessages(record.last, record.graces.page, record.graces.message_ms)),)


def forget_first(record: CollectorRecord) -> Done:
    return record, (Ask(DATABASE, record.todo[0]),)


def begin_round(record: CollectorRecord, event: Event, now_ns: int) -> Done:
    return find(replace(record, clients=0, rows=0, messages=0))


def forget_clients(record: CollectorRecord, event: ClientsRead, now_ns: int) -> Done:
    return forget_first(replace(record, seen=event.clients[-1].client, todo=clients_over(record, event)))


def find_on(record: CollectorRecord, event: ClientsRead, now_ns: int) -> Done:
    return find(replace(record, seen=event.clients[-1].client))


def read_first(record: CollectorRecord, event: ClientsRead, now_ns: int) -> Done:
    """The next round begins with the first client again; rows of those that were forgotten go in this one."""
    return read(replace(record, seen=""))


def delete_rows(record: CollectorRecord, event: RowsRead, now_ns: int) -> Done:
    asked = DeletePage(rows=garbage_rows(record, event))
    return replace(record, after=event.rows[-1].key), (Ask(DATABASE, asked),)


def read_on(record: CollectorRecord, event: RowsRead, now_ns: int) -> Done:
    return read(replace(record, after=event.rows[-1].key))


def scan(record: CollectorRecord, event: RowsRead, now_ns: int) -> Done:
    """The next round begins with the first row again."""
    return scan_messages(replace(record, after=None))


def count_forgotten(record: CollectorRecord, event: ClientForgotten) -> CollectorRecord:
    """The first is done with, whether it was there or not."""
    return replace(record, todo=record.todo[1:], clients=record.clients + event.done)


def count_and_forget(record: CollectorRecord, event: ClientForgotten, now_ns: int) -> Done:
    return forget_first(count_forgotten(record, event))


def count_and_find(record: CollectorRecord, event: ClientForgotten, now_ns: int) -> Done:
    return find(count_forgotten(record, event))


def count_and_read(record: CollectorRecord, event: PageDeleted, now_ns: int) -> Done:
    return read(replace(record, rows=record.rows + event.rows))


def remove_messages(record: CollectorRecord, event: MessagesRead, now_ns: int) -> Done:
    asked = DeletePage(messages=garbage_messages(record, event))
    return replace(record, last=event.place), (Ask(DATABASE, asked),)


def scan_on(record: CollectorRecord, event: MessagesRead, now_ns: int) -> Done:
    return scan_messages(replace(record, last=event.place))


def count_and_scan(record: CollectorRecord, event: PageDeleted, now_ns: int) -> Done:
    """What clients will miss is told."""
    lost = (Tell(MessageLost(message, rows)) for message, rows in event.messages if rows)
    record, effects = scan_messages(replace(record, messages=record.messages + len(event.messages)))
    return record, (*lost, *effects)


def make_round_ended(record: CollectorRecord, *, whole: bool) -> RoundEnded:
    return RoundEnded(record.rows, record.messages, whole, record.clients)


def end_round(record: CollectorRecord, event: Event, now_ns: int) -> Done:
    return replace(record, last=""), (Tell(make_round_ended(record, whole=True)),)


def break_off(record: CollectorRecord, event: Event, now_ns: int) -> Done:
    """What is left waits for the next round, which begins where this one was."""
    return replace(record, todo=()), (Tell(make_round_ended(record, whole=False)),)


# fmt: off
ROWS = (
    #   on             from      to        do                when               clause
    Row(RoundDue,      IDLE,     FINDING,  begin_round,      None,              "PS-80"),
    Row(Collect,       IDLE,     FINDING,  begin_round,      None,              "PS-80"),
    Row(ClientsRead,   FINDING,  FORGETTING, forget_clients, has_clients_over,  "PS-120"),
    Row(ClientsRead,   FINDING,  STAY,     find_on,          has_more_clients,  "PS-82"),
    Row(ClientsRead,   FINDING,  READING,  read_first,       None,              "PS-82"),
    Row(ClientForgotten, FORGETTING, STAY, count_and_forget, has_more_to_do,    "PS-121"),
    Row(ClientForgotten, FORGETTING, FINDING, count_and_find, None,             "PS-121"),
    Row(RowsRead,      READING,  DELETING, delete_rows,      has_garbage,       "PS-81"),
    Row(RowsRead,      READING,  STAY,     read_on,          has_more,          "PS-82"),
    Row(RowsRead,      READING,  SCANNING, scan,             None,              "PS-82"),
    Row(PageDeleted,   DELETING, READING,  count_and_read,   None,              "PS-83"),
    Row(MessagesRead,  SCANNING, REMOVING, remove_messages,  has_unneeded,      "PS-84"),
    Row(MessagesRead,  SCANNING, STAY,     scan_on,          has_more_messages, "PS-82"),
    Row(MessagesRead,  SCANNING, IDLE,     end_round,        None,              "PS-82"),
    Row(PageDeleted,   REMOVING, SCANNING, count_and_scan,   None,              "PS-85"),
    Row(CollectFailed, BUSY,     IDLE,     break_off,        None,              "PS-86"),
    Ignore((RoundDue, Collect),   BUSY,                                         "PS-80"),
    Ignore((CollectFailed,),      IDLE,                                         "PS-86"),
    Ignore((ClientsRead,), (IDLE, FORGETTING, READING, DELETING, SCANNING, REMOVING), "PS-87"),
    Ignore((RowsRead,), (IDLE, FINDING, FORGETTING, DELETING, SCANNING, REMOVING), "PS-87"),
    Ignore((MessagesRead,), (IDLE, FINDING, FORGETTING, READING, DELETING, REMOVING), "PS-87"),
    Ignore((PageDeleted,), (IDLE, FINDING, FORGETTING, READING, SCANNING),      "PS-87"),
    Ignore((ClientForgotten,), (IDLE, FINDING, READING, DELETING, SCANNING, REMOVING), "PS-87"),
)
# fmt: on


# -- invariants -----------------------------------------------------------------------------------------------------


def has_one_page_to_do(record: CollectorRecord) -> bool:
    """It has clients to forget while it forgets, and never more than were read at once."""
    return bool(record.todo) == (record.status is FORGETTING) and len(record.todo) <= record.graces.page


COLLECTOR = Fsm(
    "collector",
    protocol="persistent_sessions",
    record=CollectorRecord,
    states=CollectorStatus,
    initial=IDLE,
    rows=ROWS,
    timers=(Timer("round", RoundDue, (IDLE,), lambda record: record.graces.round_ms * MS),),
    invariants=(Invariant("has-one-page-to-do", "PS-88", has_one_page_to_do),),
)
