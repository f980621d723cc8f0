"""Private subscription: a subscription of one session that shares with nobody (source: "Session Shared Subscription
Handler").

The counterpart of a Borrower for the session's proper streams: it finds them itself, in the stream store, and their
progress is the application's to keep, which is told of it.  So no leader, no lease and no grants take part (grant 0).

    idle -> listing -> reading -> listing ... -> destroyed

With a filter the store is asked every renew_streams for streams that match; without one the streams are those that the
application has progress of.  Those are read from there on.  Where others begin that the first whole listing finds,
`start_ns` says; a stream that appears later is read from its first message, and not before all that is known of earlier
generations of its shard has been read to the end.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    STAY,
    Ask,
    Effects,
    Event,
    Fsm,
    Ignore,
    Invariant,
    Map,
    Row,
    Status,
    Stop,
    Tell,
    Timer,
    TimerFired,
    TraceColumns,
    in_order,
    keys_in_order,
)
from statemachines.shared_subscriptions.borrower import Destroyed, OnDisconnect, OnUnsubscribe, Start
from statemachines.shared_subscriptions.configuration import MS
from statemachines.shared_subscriptions.message import END_OF_STREAM
from statemachines.shared_subscriptions.stream import Install, StreamProgress, Uninstall
from statemachines.shared_subscriptions.stream_store import SERVICE, FetchFailed, ListStreams, StreamsListed

STREAMS_PER_PAGE = 1_000
"""A listing asks for at most so many streams at a time."""

BEGINNING = 0
NOW = 2**63 - 1
"""`start_ns`: everything that is stored, or nothing of it; times of the store between these are points of it."""


class ReadTo(Event, frozen=True, gc=False):
    """To the application, which keeps it: of `stream` all below `progress` is acknowledged, or was there before."""

    columns: ClassVar = TraceColumns(key="stream", first="progress")

    subscription: str
    stream: str
    progress: int


class RenewTimer(TimerFired, frozen=True, gc=False):
    """Time to look for new streams."""


class PrivateStatus(Status):
    """Whether a listing is open."""

    IDLE = "idle"
    LISTING = "listing"
    READING = "reading"
    DESTROYED = "destroyed"


IDLE, LISTING, READING, DESTROYED = PrivateStatus
LIVING = (LISTING, READING)


class PrivateRecord(msgspec.Struct, frozen=True, gc=False):
    """One private subscription.  `filter`: of topics ("" = only streams in `progress`); `progress`: stream -> next
    offset to read, of every stream that is known; `installed`: those that the session reads.  `list_n`, `after`: the
    listing that is open, and how far it has come; `seen`: stream -> rank (shard, generation) of what it has found;
    `listed`: some listing was whole."""

    id: str
    filter: str
    start_ns: int
    renew_ns: int = 1_000 * MS
    status: PrivateStatus = IDLE
    progress: Map[str, int] = Map()
    installed: Map[str, bool] = Map()
    list_n: int = 0
    after: str = ""
    seen: Map[str, tuple[int, int]] = Map()
    listed: bool = False


# -- guards ---------------------------------------------------------------------------------------------------------


def has_filter(record: PrivateRecord, event: Event) -> bool:
    return record.filter != ""


def is_page(record: PrivateRecord, event: StreamsListed) -> bool:
    return event.n == record.list_n and event.more


def is_last_page(record: PrivateRecord, event: StreamsListed) -> bool:
    return event.n == record.list_n and not event.more


def is_open(record: PrivateRecord, event: FetchFailed) -> bool:
    return event.n == record.list_n


def has_ended(record: PrivateRecord, event: StreamProgress) -> bool:
    return event.progress == END_OF_STREAM and advances(record, event)


def advances(record: PrivateRecord, event: StreamProgress) -> bool:
    """Of a stream that is read, and further than what is known."""
    return event.stream in record.installed and event.progress > record.progress[event.stream]


# -- actions --------------------------------------------------------------------------------------------------------


def install_known(record: PrivateRecord, event: Start, now_ns: int) -> tuple[PrivateRecord, Effects]:
    return install(record, [stream for stream, at in in_order(record.progress) if at != END_OF_STREAM])


def install(record: PrivateRecord, streams: list[str]) -> tuple[PrivateRecord, Effects]:
    installed = record.installed
    for stream in streams:
        installed = installed.set(stream, True)
    tells = tuple(Tell(Install(record.id, stream, 0, record.progress[stream])) for stream in streams)
    return replace(record, installed=installed), tells


def ask_first_page(record: PrivateRecord, event: Event, now_ns: int) -> tuple[PrivateRecord, Effects]:
    return ask_page(replace(record, after="", seen=Map()))


def ask_page(record: PrivateRecord) -> tuple[PrivateRecord, Effects]:
    record = replace(record, list_n=record.list_n + 1)
    start_ns = BEGINNING if record.listed else record.start_ns
    return record, (Ask(SERVICE, ListStreams(record.list_n, record.filter, start_ns, record.after, STREAMS_PER_PAGE)),)


def add_page_and_go_on(record: PrivateRecord, event: StreamsListed, now_ns: int) -> tuple[PrivateRecord, Effects]:
    record, told = add_page(record, event)
    record, asked = ask_page(replace(record, after=event.streams[-1].stream))
    return record, told + asked


def add_last_page(record: PrivateRecord, event: StreamsListed, now_ns: int) -> tuple[PrivateRecord, Effects]:
    """The listing is whole: what it did not find any more is dropped, and whose turn it is is read."""
    record, told = add_page(record, event)
    record, dropped = drop_unseen(record) if record.listed else (record, ())
    record, installed = install(record, streams_in_turn(record))
    return replace(record, seen=Map(), listed=True), told + dropped + installed


def add_page(record: PrivateRecord, event: StreamsListed) -> tuple[PrivateRecord, Effects]:
    """Where a new stream begins is its progress; the application is told, since a later life goes on from there."""
    progress, seen = record.progress, record.seen
    told: list[Tell] = []
    for info in event.streams:
        seen = seen.set(info.stream, (info.shard, info.generation))
        if info.stream not in progress:
            progress = progress.set(info.stream, info.first)
            told.append(Tell(ReadTo(record.id, info.stream, info.first)))
    return replace(record, progress=progress, seen=seen), tuple(told)


def drop_unseen(record: PrivateRecord) -> tuple[PrivateRecord, Effects]:
    progress, installed = record.progress, record.installed
    effects: list[Tell] = []
    for stream in [stream for stream in keys_in_order(progress) if stream not in record.seen]:
        progress = progress.delete(stream)
        if stream in installed:
            installed = installed.delete(stream)
            effects.append(Tell(Uninstall(record.id, stream, 0)))
    return replace(record, progress=progress, installed=installed), tuple(effects)


def streams_in_turn(record: PrivateRecord) -> list[str]:
    """Not read yet, not read to the end, and of the earliest generation of their shard that has such streams."""
    unread = [(stream, rank) for stream, rank in in_order(record.seen) if record.progress[stream] != END_OF_STREAM]
    earliest: dict[int, int] = {}
    for _, (shard, generation) in unread:
        earliest[shard] = min(generation, earliest.get(shard, generation))
    return [
        stream
        for stream, (shard, generation) in unread
        if generation == earliest[shard] and stream not in record.installed
    ]


def keep_progress(record: PrivateRecord, event: StreamProgress, now_ns: int) -> tuple[PrivateRecord, Effects]:
    record = replace(record, progress=record.progress.set(event.stream, event.progress))
    return record, (Tell(ReadTo(record.id, event.stream, event.progress)),)


def keep_end(record: PrivateRecord, event: StreamProgress, now_ns: int) -> tuple[PrivateRecord, Effects]:
    record, effects = keep_progress(record, event, now_ns)
    record = replace(record, installed=record.installed.delete(event.stream))
    return record, (Tell(Uninstall(record.id, event.stream, 0)), *effects)


def go(record: PrivateRecord, event: Event, now_ns: int) -> tuple[PrivateRecord, Effects]:
    return record, (Tell(Destroyed(record.id, False, 0)), Stop())


EVERY = (IDLE, LISTING, READING)

# fmt: off
ROWS = (
    #   on              from     to         do                  when          clause
    Row(Start,          IDLE,    LISTING,   ask_first_page,     has_filter,   "SS-190"),
    Row(Start,          IDLE,    READING,   install_known,      None,         "SS-190"),
    Row(StreamsListed,  LISTING, STAY,      add_page_and_go_on, is_page,      "SS-191"),
    Row(StreamsListed,  LISTING, READING,   add_last_page,      is_last_page, "SS-191"),
    Row(FetchFailed,    LISTING, READING,   None,               is_open,      "SS-192"),
    Row(RenewTimer,     READING, LISTING,   ask_first_page,     has_filter,   "SS-191"),
    Row(StreamProgress, LIVING,  STAY,      keep_end,           has_ended,    "SS-193"),
    Row(StreamProgress, LIVING,  STAY,      keep_progress,      advances,     "SS-193"),
    Row(OnUnsubscribe,  EVERY,   DESTROYED, go,                 None,         "SS-194"),
    Row(OnDisconnect,   EVERY,   DESTROYED, go,                 None,         "SS-194"),
    Ignore((Start,),                      LIVING,          "SS-190"),
    Ignore((StreamsListed, FetchFailed),  EVERY,           "SS-192"),
    Ignore((RenewTimer,),                 EVERY,           "SS-192"),
    Ignore((StreamProgress,),             EVERY,           "SS-193"),
)
# fmt: on


def is_known(record: PrivateRecord) -> bool:
    """Of every stream that is read, and of every one that a listing has found, a progress is known."""
    return all(name in record.progress for name in (*keys_in_order(record.installed), *keys_in_order(record.seen)))


def is_touched_known(record: PrivateRecord, event: Event) -> bool:
    names = [info.stream for info in event.streams] if isinstance(event, StreamsListed) else []
    return all(name in record.progress for name in names if name in record.seen or name in record.installed)


PRIVATE = Fsm(
    "private",
    protocol="shared_subscriptions",
    record=PrivateRecord,
    states=PrivateStatus,
    initial=IDLE,
    final=(DESTROYED,),
    rows=ROWS,
    timers=(Timer("renew", RenewTimer, (READING,), lambda record: record.renew_ns),),
    invariants=(Invariant("progress-known", "SS-191", is_known, is_touched_known),),
)
