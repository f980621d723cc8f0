"""Private: a subscription of one session that shares with nobody (source: "Session Shared Subscription Handler").

The counterpart of a Borrower for the session's proper streams: it finds them itself, in the stream store, and their
progress is the application's to keep, which is told of it.  So no leader, no lease and no grants take part (grant 0).

    idle -> listing -> reading -> listing ... -> destroyed

Streams that the application has progress of are read from there on, at once.  With a filter the store is asked every
renew_streams for streams that match.  Where those begin that the first whole listing finds, `start` says; a stream
that appears later is read from its first message.
"""

from __future__ import annotations

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
    offset to read, of every stream that is known; `list_n`, `after`: the listing that is open, and how far it has come;
    `seen`: what it has found; `listed`: some listing was whole."""

    id: str
    filter: str
    start_ns: int
    renew_ns: int = 1_000 * MS
    status: PrivateStatus = IDLE
    progress: Map[str, int] = Map()
    list_n: int = 0
    after: str = ""
    seen: Map[str, bool] = Map()
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
    return event.progress > record.progress.get(event.stream, END_OF_STREAM)


# -- actions --------------------------------------------------------------------------------------------------------


def install_known(record: PrivateRecord, event: Start, now_ns: int) -> tuple[PrivateRecord, Effects]:
    return record, tuple(
        Tell(Install(record.id, stream, 0, at)) for stream, at in in_order(record.progress) if at != END_OF_STREAM
    )


def install_known_and_list(record: PrivateRecord, event: Start, now_ns: int) -> tuple[PrivateRecord, Effects]:
    record, effects = install_known(record, event, now_ns)
    record, asked = ask_first_page(record, event, now_ns)
    return record, effects + asked


def ask_first_page(record: PrivateRecord, event: Event, now_ns: int) -> tuple[PrivateRecord, Effects]:
    return ask_page(replace(record, after="", seen=Map()))


def ask_page(record: PrivateRecord) -> tuple[PrivateRecord, Effects]:
    record = replace(record, list_n=record.list_n + 1)
    start_ns = BEGINNING if record.listed else record.start_ns
    return record, (Ask(SERVICE, ListStreams(record.list_n, record.filter, start_ns, record.after, STREAMS_PER_PAGE)),)


def add_page_and_go_on(record: PrivateRecord, event: StreamsListed, now_ns: int) -> tuple[PrivateRecord, Effects]:
    record, installed = add_page(record, event)
    record, asked = ask_page(replace(record, after=event.streams[-1].stream))
    return record, installed + asked


def add_last_page(record: PrivateRecord, event: StreamsListed, now_ns: int) -> tuple[PrivateRecord, Effects]:
    """The listing is whole: what it did not find of what was known is gone from the store."""
    known = keys_in_order(record.progress) if record.listed else []
    record, effects = add_page(record, event)
    progress = record.progress
    for stream in known:
        if stream not in record.seen:
            progress = progress.delete(stream)
            effects = (*effects, Tell(Uninstall(record.id, stream, 0)))
    return replace(record, progress=progress, seen=Map(), listed=True), effects


def add_page(record: PrivateRecord, event: StreamsListed) -> tuple[PrivateRecord, Effects]:
    """Install what is new."""
    progress, seen = record.progress, record.seen
    effects: list[Tell] = []
    for info in event.streams:
        seen = seen.set(info.stream, True)
        if info.stream not in progress:
            progress = progress.set(info.stream, info.first)
            effects.append(Tell(Install(record.id, info.stream, 0, info.first)))
            effects.append(Tell(ReadTo(record.id, info.stream, info.first)))
    return replace(record, progress=progress, seen=seen), tuple(effects)


def keep_progress(record: PrivateRecord, event: StreamProgress, now_ns: int) -> tuple[PrivateRecord, Effects]:
    record = replace(record, progress=record.progress.set(event.stream, event.progress))
    return record, (Tell(ReadTo(record.id, event.stream, event.progress)),)


def keep_end(record: PrivateRecord, event: StreamProgress, now_ns: int) -> tuple[PrivateRecord, Effects]:
    record, effects = keep_progress(record, event, now_ns)
    return record, (Tell(Uninstall(record.id, event.stream, 0)), *effects)


def go(record: PrivateRecord, event: Event, now_ns: int) -> tuple[PrivateRecord, Effects]:
    return record, (Tell(Destroyed(record.id, False, 0)), Stop())


EVERY = (IDLE, LISTING, READING)

# fmt: off
ROWS = (
    #   on              from     to         do                      when          clause
    Row(Start,          IDLE,    LISTING,   install_known_and_list, has_filter,   "SS-190"),
    Row(Start,          IDLE,    READING,   install_known,          None,         "SS-190"),
    Row(StreamsListed,  LISTING, STAY,      add_page_and_go_on,     is_page,      "SS-191"),
    Row(StreamsListed,  LISTING, READING,   add_last_page,          is_last_page, "SS-191"),
    Row(FetchFailed,    LISTING, READING,   None,                   is_open,      "SS-192"),
    Row(RenewTimer,     READING, LISTING,   ask_first_page,         has_filter,   "SS-191"),
    Row(StreamProgress, LIVING,  STAY,      keep_end,               has_ended,    "SS-193"),
    Row(StreamProgress, LIVING,  STAY,      keep_progress,          advances,     "SS-193"),
    Row(OnUnsubscribe,  EVERY,   DESTROYED, go,                     None,         "SS-194"),
    Row(OnDisconnect,   EVERY,   DESTROYED, go,                     None,         "SS-194"),
    Ignore((Start,),                      LIVING,          "SS-190"),
    Ignore((StreamsListed, FetchFailed),  EVERY,           "SS-192"),
    Ignore((RenewTimer,),                 EVERY,           "SS-192"),
    Ignore((StreamProgress,),             EVERY,           "SS-193"),
)
# fmt: on


def seen_is_known(record: PrivateRecord) -> bool:
    """Of every stream that a listing has found, a progress is known."""
    return all(stream in record.progress for stream in keys_in_order(record.seen))


def touched_is_known(record: PrivateRecord, event: Event) -> bool:
    if not isinstance(event, StreamsListed):
        return True
    return all(info.stream in record.progress for info in event.streams if info.stream in record.seen)


PRIVATE = Fsm(
    "private",
    record=PrivateRecord,
    states=PrivateStatus,
    initial=IDLE,
    final=(DESTROYED,),
    rows=ROWS,
    timers=(Timer("renew", RenewTimer, (READING,), lambda record: record.renew_ns),),
    invariants=(Invariant("seen-is-known", "SS-191", seen_is_known, touched_is_known),),
)
