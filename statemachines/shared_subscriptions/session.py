"""Session: what a consumer does with the streams it was granted (source: "Session Shared Subscription Handler").

The scheduler of one subscription: it fetches from the stream store what its borrower told it to read, hands messages to
the application while the lease holds, collects acknowledgements and reports the progress of fully acknowledged
prefixes.  One fetch is open at a time, for some streams in turn.

    paused -> waiting -> fetching -> waiting ... ; the end of the lease pauses it from anywhere

Per stream there is a `Reading`: offsets only; payloads are the driver's, which keeps them by (stream, grant, offset).
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    STAY,
    Ask,
    Call,
    Effects,
    Event,
    Fifo,
    Fsm,
    Ignore,
    Invariant,
    Map,
    Refuse,
    Row,
    SetTimer,
    Status,
    Tell,
    Timer,
    TimerFired,
    in_order,
)
from statemachines.shared_subscriptions.borrower import LeaseBegan, LeaseEnded
from statemachines.shared_subscriptions.configuration import MS
from statemachines.shared_subscriptions.message import END_OF_STREAM
from statemachines.shared_subscriptions.stream import Finish, Install, StreamProgress, Uninstall
from statemachines.shared_subscriptions.stream_store import SERVICE, Batch, Fetch, Fetched, FetchFailed, Slice

SLICES_PER_FETCH = 32
"""A fetch asks for at most so many streams."""


class Take(Call, frozen=True, gc=False):
    """From the application: hand over at most `limit` messages, of one stream."""

    limit: int


class Ack(Call, frozen=True, gc=False):
    """From the application: messages `first`..`last` of this grant are dealt with."""

    stream: str
    grant: int
    first: int
    last: int


class Deliver(Event, frozen=True, gc=False):
    """To the application: messages `first`..`last`."""

    stream: str
    grant: int
    first: int
    last: int


class Acknowledged(Event, frozen=True, gc=False):
    """To whoever keeps account: `first`..`last` are acknowledged under the grant that delivered them."""

    stream: str
    grant: int
    first: int
    last: int


class Ready(Event, frozen=True, gc=False):
    """To the driver: something can be taken."""


class PollTimer(TimerFired, frozen=True, gc=False):
    """Look again whether there is something new."""


class SessionStatus(Status):
    """Whether the lease holds, and whether a fetch is open."""

    PAUSED = "paused"
    WAITING = "waiting"
    FETCHING = "fetching"


PAUSED, WAITING, FETCHING = SessionStatus
LEASED = (WAITING, FETCHING)


class Reading(msgspec.Struct, frozen=True, gc=False):
    """One stream being read.  progress <= delivered <= fetched are next offsets: all below is acknowledged, handed
    over, buffered by the driver.  `acked`: ranges acknowledged out of order, first -> last."""

    stream: str
    grant: int
    progress: int
    delivered: int
    fetched: int
    acked: Map[int, int] = Map()
    finishing: bool = False
    ended: bool = False
    queued: bool = False


class SessionRecord(msgspec.Struct, frozen=True):
    """The scheduler.  `to_fetch`, `to_take`: streams whose turn it is to be fetched from, delivered from; `buffer`: how
    far (messages per stream) it may fetch ahead of what is acknowledged; `asked`: the streams of the open fetch."""

    id: str
    poll_ns: int = 20 * MS
    buffer: int = 256
    status: SessionStatus = PAUSED
    fetch_n: int = 0
    asked: tuple[str, ...] = ()
    readings: Map[str, Reading] = Map()
    to_fetch: Fifo = Fifo()
    to_take: Fifo = Fifo()


# -- guards ---------------------------------------------------------------------------------------------------------


def is_installed(record: SessionRecord, event: Finish | Uninstall | Ack) -> bool:
    reading = record.readings.get(event.stream)
    return reading is not None and reading.grant == event.grant


def is_idle(record: SessionRecord, event: Finish) -> bool:
    """Installed, and nothing of it is in the application's hands."""
    reading = record.readings.get(event.stream)
    return reading is not None and reading.grant == event.grant and reading.progress == reading.delivered


def is_new(record: SessionRecord, event: Install) -> bool:
    reading = record.readings.get(event.stream)
    return reading is None or event.grant > reading.grant


def was_delivered(record: SessionRecord, event: Ack) -> bool:
    reading = record.readings.get(event.stream)
    return reading is not None and reading.grant == event.grant and event.first <= event.last < reading.delivered


def is_stale(record: SessionRecord, event: Ack) -> bool:
    """Of a grant that is not installed (any more): the next owner delivers it again."""
    return not is_installed(record, event)


def has_to_fetch(record: SessionRecord, event: PollTimer) -> bool:
    return bool(record.to_fetch)


def is_open(record: SessionRecord, event: Fetched | FetchFailed) -> bool:
    return event.n == record.fetch_n


# -- actions --------------------------------------------------------------------------------------------------------


def add(record: SessionRecord, event: Install, now_ns: int) -> tuple[SessionRecord, Effects]:
    at = event.progress
    reading = Reading(event.stream, event.grant, at, at, at)
    record = replace(record, readings=record.readings.set(event.stream, reading))
    return queue_fetch(record, event.stream), ()


def add_and_poll(record: SessionRecord, event: Install, now_ns: int) -> tuple[SessionRecord, Effects]:
    record, _ = add(record, event, now_ns)
    return record, (SetTimer("poll", now_ns),)


def queue_fetch(record: SessionRecord, stream: str) -> SessionRecord:
    """Put the stream at the end of the fetch queue, unless it is there or has no room or no future."""
    reading = record.readings.get(stream)
    if reading is None or reading.queued or reading.finishing or reading.ended:
        return record
    if 2 * (reading.fetched - reading.progress) > record.buffer:
        return record
    return replace(
        record,
        readings=record.readings.set(stream, replace(reading, queued=True)),
        to_fetch=record.to_fetch.push(stream),
    )


def begin(record: SessionRecord, event: LeaseBegan, now_ns: int) -> tuple[SessionRecord, Effects]:
    effects: Effects = (SetTimer("poll", now_ns),)
    return record, (*effects, Tell(Ready())) if record.to_take else effects


def fetch(record: SessionRecord, event: PollTimer, now_ns: int) -> tuple[SessionRecord, Effects]:
    """Ask for the next streams in the queue, once for each: one that was uninstalled and installed again while it
    waited stands there twice."""
    slices: dict[str, Slice] = {}
    queue = record.to_fetch
    while queue and len(slices) < SLICES_PER_FETCH:
        stream, queue = queue.pop()
        reading = record.readings.get(stream)
        if reading is not None and reading.queued and stream not in slices:
            room = record.buffer - (reading.fetched - reading.progress)
            slices[stream] = Slice(stream, reading.grant, reading.fetched, room)
    record = replace(record, to_fetch=queue, fetch_n=record.fetch_n + 1, asked=tuple(slices))
    return record, (Ask(SERVICE, Fetch(record.fetch_n, tuple(slices.values()))),)


def take_in(record: SessionRecord, event: Fetched, now_ns: int) -> tuple[SessionRecord, Effects]:
    """Count what came; look again at once if anything did."""
    idle = not record.to_take
    some = False
    record = unask(record)
    effects: Effects = ()
    for batch in event.batches:
        record, came, told = take_in_batch(record, batch)
        effects += told
        some = some or came
    for batch in event.batches:
        record = queue_fetch(record, batch.stream)
    if some:
        effects = (SetTimer("poll", now_ns), *effects)
    return record, (*effects, Tell(Ready())) if idle and record.to_take else effects


def take_in_batch(record: SessionRecord, batch: Batch) -> tuple[SessionRecord, bool, Effects]:
    reading = record.readings.get(batch.stream)
    if reading is None or reading.grant != batch.grant or reading.finishing or batch.first != reading.fetched:
        return record, False, ()
    came = batch.last >= batch.first
    waiting = reading.fetched > reading.delivered
    reading = replace(reading, fetched=batch.last + 1, ended=batch.ended)
    record = replace(record, readings=record.readings.set(batch.stream, reading))
    if came and not waiting:
        record = queue_take(record, batch.stream)
    told = report(reading) if reading.ended and reading.progress == reading.fetched else ()
    return record, came, told


def queue_take(record: SessionRecord, stream: str) -> SessionRecord:
    return replace(record, to_take=record.to_take.push(stream))


def unask(record: SessionRecord) -> SessionRecord:
    """The open fetch is over: its streams may be queued again."""
    readings = record.readings
    for stream in record.asked:
        reading = readings.get(stream)
        if reading is not None:
            readings = readings.set(stream, replace(reading, queued=False))
    return replace(record, readings=readings, asked=())


def give_up_fetch(record: SessionRecord, event: Event, now_ns: int) -> tuple[SessionRecord, Effects]:
    """The answer will not count: ask for the same streams again."""
    asked = record.asked
    record = replace(unask(record), fetch_n=record.fetch_n + 1)
    for stream in asked:
        record = queue_fetch(record, stream)
    return record, ()


def hand_over(record: SessionRecord, event: Take, now_ns: int) -> tuple[SessionRecord, Effects]:
    """The next range of the stream whose turn it is; what was uninstalled meanwhile is passed by."""
    queue = record.to_take
    while queue:
        stream, queue = queue.pop()
        reading = record.readings.get(stream)
        if reading is None or reading.finishing or reading.delivered == reading.fetched:
            continue
        last = min(reading.fetched, reading.delivered + event.limit) - 1
        deliver = Deliver(stream, reading.grant, reading.delivered, last)
        reading = replace(reading, delivered=last + 1)
        if reading.delivered < reading.fetched:
            queue = queue.push(stream)
        return replace(record, readings=record.readings.set(stream, reading), to_take=queue), (Tell(deliver),)
    return replace(record, to_take=queue), ()


def acknowledge(record: SessionRecord, event: Ack, now_ns: int) -> tuple[SessionRecord, Effects]:
    record, effects = acknowledge_range(record, event)
    return queue_fetch(record, event.stream), effects


def acknowledge_and_poll(record: SessionRecord, event: Ack, now_ns: int) -> tuple[SessionRecord, Effects]:
    """As `acknowledge`; room for more is used at once."""
    before = len(record.to_fetch)
    record, effects = acknowledge(record, event, now_ns)
    return record, effects if len(record.to_fetch) == before else (*effects, SetTimer("poll", now_ns))


def acknowledge_range(record: SessionRecord, event: Ack) -> tuple[SessionRecord, Effects]:
    """Keep the range; report the progress if the fully acknowledged prefix grew."""
    reading = record.readings[event.stream]
    before = reading.progress
    reading = join(reading, event.first, event.last)
    record = replace(record, readings=record.readings.set(event.stream, reading))
    told: Effects = (Tell(Acknowledged(event.stream, event.grant, event.first, event.last)),)
    return record, told + report(reading) if reading.progress > before else told


def join(reading: Reading, first: int, last: int) -> Reading:
    """The reading with `first`..`last` acknowledged: the prefix grows over all that has become contiguous."""
    acked, progress = reading.acked, reading.progress
    if first > progress:
        known = acked.get(first, first - 1)
        return replace(reading, acked=acked.set(first, max(known, last)))
    progress = max(progress, last + 1)
    while acked:
        covered = min(begin for begin, _ in in_order(acked))
        if covered > progress:
            break
        progress = max(progress, acked[covered] + 1)
        acked = acked.delete(covered)
    return replace(reading, progress=progress, acked=acked)


def report(reading: Reading) -> Effects:
    """The progress, to the borrower: final when the stream is to be finished and nothing is in hand."""
    progress = END_OF_STREAM if reading.ended and reading.progress == reading.fetched else reading.progress
    final = reading.finishing and reading.progress == reading.delivered
    return (Tell(StreamProgress(reading.stream, reading.grant, progress, final)),)


def finish_idle(record: SessionRecord, event: Finish, now_ns: int) -> tuple[SessionRecord, Effects]:
    record, _ = finish(record, event, now_ns)
    return record, report(record.readings[event.stream])


def finish(record: SessionRecord, event: Finish, now_ns: int) -> tuple[SessionRecord, Effects]:
    reading = replace(record.readings[event.stream], finishing=True)
    return replace(record, readings=record.readings.set(event.stream, reading)), ()


def drop(record: SessionRecord, event: Uninstall, now_ns: int) -> tuple[SessionRecord, Effects]:
    return replace(record, readings=record.readings.delete(event.stream)), ()


EVERY = (PAUSED, WAITING, FETCHING)

# fmt: off
ROWS = (
    #   on           from      to        do                    when           clause
    Row(LeaseBegan,  PAUSED,   WAITING,  begin,                None,          "SS-100"),
    Row(LeaseEnded,  WAITING,  PAUSED,   None,                 None,          "SS-101"),
    Row(LeaseEnded,  FETCHING, PAUSED,   give_up_fetch,        None,          "SS-101"),
    Row(Install,     (PAUSED, FETCHING), STAY, add,            is_new,        "SS-102"),
    Row(Install,     WAITING,  STAY,     add_and_poll,         is_new,        "SS-102"),
    Row(PollTimer,   WAITING,  FETCHING, fetch,                has_to_fetch,  "SS-103"),
    Row(Fetched,     FETCHING, WAITING,  take_in,              is_open,       "SS-104"),
    Row(FetchFailed, FETCHING, WAITING,  give_up_fetch,        is_open,       "SS-105"),
    Row(Take,        LEASED,   STAY,     hand_over,            None,          "SS-106"),
    Row(Ack,         WAITING,  STAY,     acknowledge_and_poll, was_delivered, "SS-107"),
    Row(Ack,         (PAUSED, FETCHING), STAY, acknowledge,    was_delivered, "SS-107"),
    Row(Ack,         EVERY,    STAY,     None,                 is_stale,      "SS-108"),
    Row(Finish,      EVERY,    STAY,     finish_idle,          is_idle,       "SS-109"),
    Row(Finish,      EVERY,    STAY,     finish,               is_installed,  "SS-109"),
    Row(Uninstall,   EVERY,    STAY,     drop,                 is_installed,  "SS-110"),
    Refuse((Ack,),                       EVERY,                "SS-107"),
    Ignore((Take,),                      PAUSED,               "SS-106"),
    Ignore((LeaseBegan,),                LEASED,               "SS-100"),
    Ignore((LeaseEnded,),                PAUSED,               "SS-101"),
    Ignore((Install, Finish, Uninstall), EVERY,                "SS-110"),
    Ignore((PollTimer,),                 EVERY,                "SS-103"),
    Ignore((Fetched, FetchFailed),       EVERY,                "SS-104"),
)
# fmt: on


# -- invariants -----------------------------------------------------------------------------------------------------


def offsets_in_order(record: SessionRecord) -> bool:
    """progress <= delivered <= fetched, and never more ahead than the buffer."""
    return all(keeps_order(record, reading) for _, reading in in_order(record.readings))


def keeps_order(record: SessionRecord, reading: Reading | None) -> bool:
    return reading is None or (
        reading.progress <= reading.delivered <= reading.fetched <= reading.progress + record.buffer
    )


def touched_in_order(record: SessionRecord, event: Event) -> bool:
    stream = getattr(event, "stream", None)
    return stream is None or keeps_order(record, record.readings.get(stream))


SESSION = Fsm(
    "session",
    record=SessionRecord,
    states=SessionStatus,
    initial=PAUSED,
    rows=ROWS,
    timers=(Timer("poll", PollTimer, (WAITING,), lambda record: record.poll_ns),),
    invariants=(Invariant("offsets-in-order", "SS-106", offsets_in_order, touched_in_order),),
)
