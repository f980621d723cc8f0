"""Private subscription: a subscription of one session that shares with nobody (source: "Session Shared Subscription
Handler").

The counterpart of a Borrower for the session's proper streams: it finds them itself, in the stream store, and their
progress is the application's to keep, which is told of it.  So no leader, no lease and no grants take part (grant 0).

    idle -> listing -> reading -> listing ... -> destroyed

With a filter the store is asked every renew_streams for streams that match; without one the streams are those that the
application has progress of.  Those are read from there on.  Where others begin that the first whole listing finds,
`start_ns` says; a stream that appears later is read from its first message, and not before all that is known of earlier
generations of its shard has been read to the end.

What the process of a session keeps of its subscriptions, of the claims that they rely on, and of borrowers that are
gone; and the calls that it takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final, Literal

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    STAY,
    Ask,
    Call,
    Effects,
    Event,
    Fsm,
    Ignore,
    Invariant,
    LookAt,
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
from statemachines.shared_subscriptions.configuration import MS, Configuration, Detours
from statemachines.shared_subscriptions.group_store import Order
from statemachines.shared_subscriptions.message import END_OF_STREAM, Report, ToConsumer
from statemachines.shared_subscriptions.stream import Install, StreamLink, StreamProgress, Uninstall
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


LAST_WORDS_MAX: Final = 64
"""Of so many borrowers that are gone a session remembers what they said last."""

DOUBTED_MAX: Final = 64
"""So many messages of leaders that the claim may name by now wait, for each group; older ones are dropped, as a network
may."""

SUBSCRIPTIONS_MAX: Final = 1_000
"""A session has no more subscriptions than this, those counted that are still finishing."""

BUFFER: Final = 256
"""Messages per stream that may be fetched ahead of what is acknowledged, where nobody says otherwise."""

Place = tuple[str, str]
"""(group, filter)"""


class SharedFilter(msgspec.Struct, frozen=True, gc=False):
    """What a client subscribes to together with others: `$shared/GROUP/FILTER`.  `at_delivery`: messages are
    acknowledged when they are handed over (fire and forget); `start_ns`: where the group begins if this declares it,
    in store time (0: everything stored; -1: now); `order`: of its messages, as in a `Declare`."""

    group: str
    filter: str
    at_delivery: bool = False
    start_ns: int = -1
    order: Order | Literal[""] = ""


class Private(msgspec.Struct, frozen=True, gc=False):
    """What a client subscribes to alone: streams whose topic matches `filter` ("" = only those in `progress`).

    `start_ns`: where streams begin that are there already, `BEGINNING`, `NOW` or a time of the store; `progress`:
    stream -> next offset to read, as `ReadTo` told it in an earlier life.  `at_delivery` as for `Shared`.
    """

    filter: str
    start_ns: int = NOW
    progress: Map[str, int] = Map()
    at_delivery: bool = False


class SubscribeShared(Call, frozen=True, gc=False):
    """The application subscribes together with others; the id of the subscription is the next running number."""

    wanted: SharedFilter


class SubscribeAlone(Call, frozen=True, gc=False):
    """The application subscribes alone."""

    wanted: Private


class EndSubscription(Call, frozen=True, gc=False):
    """Finish what is in hand of the subscription, then end it."""

    subscription: str


class LeaveSubscription(Call, frozen=True, gc=False):
    """Say what is known of the subscription, and end it at once."""

    subscription: str


class LeaveAll(Call, frozen=True, gc=False):
    """The session goes: the same for every subscription."""


class GroupReady(Call, frozen=True, gc=False):
    """The group that `party` was to declare is declared."""

    party: str


class Undeclarable(Call, frozen=True, gc=False):
    """The group that `party` was to declare lives by other times."""

    party: str


class ClaimFound(Call, frozen=True, gc=False):
    """`witness` has read the claim: it names `leader` under `epoch` ("": nobody)."""

    columns: ClassVar = TraceColumns(term="epoch")

    witness: str
    leader: str
    epoch: int


class BorrowerView(msgspec.Struct, frozen=True, gc=False):
    """What a process sees of a borrower: whom it follows, and the highest epoch that it knows."""

    link: StreamLink | None
    epoch: int


class CheckLink(LookAt, frozen=True, gc=False):
    """To itself: the claim was read; whether this borrower follows somebody else."""


class HearDoubted(Call, frozen=True, gc=False):
    """To itself: the claim of this group and filter was read; what waited for that is heard, or never."""

    place: Place


class AgentStatus(Status):
    """A session has one state: it is there."""

    OPEN = "open"


OPEN = AgentStatus.OPEN


class ServedSubscription(msgspec.Struct, frozen=True, gc=False):
    """A subscription.  `number` in its id; `group`: "" for one that shares with nobody; `party` that serves it at the
    moment, of this `kind`; `turn`: when that began, as a running number."""

    number: int
    group: str
    filter: str
    at_delivery: bool
    party: str
    kind: str
    turn: int

    @property
    def place(self) -> Place:
        """What it is to."""
        return self.group, self.filter


class ClaimKnown(msgspec.Struct, frozen=True, gc=False):
    """The claim of a group and filter as its `witness` has read it last; `doubted`: what waits until it is read again,
    with its senders, the latest of it."""

    witness: str
    leader: str = ""
    epoch: int = 0
    doubted: tuple[tuple[str, ToConsumer], ...] = ()

    def doubt(self, sender: str, message: ToConsumer, most: int) -> ClaimKnown:
        """With one more that waits, of the latest `most`."""
        return replace(self, doubted=(*self.doubted, (sender, message))[-most:])


class LastWords(msgspec.Struct, frozen=True, gc=False):
    """What a borrower that is gone said last."""

    borrower: str
    reports: tuple[Report, ...]


class AgentRecord(msgspec.Struct, frozen=True, gc=False):
    """A session.

    `id`: the life of the process; `registries`: the nodes where leaders are found; `buffer` of its session, if it has
    one; `doubted_max`: so many messages of leaders wait for a claim; `number`, `declarations`,
    `witnesses`, `turn`: running numbers; `recreated`: how many borrowers had to end themselves; `subscriptions` that
    have not ended, by id; `parties`: party -> subscription; `claims`, and `places`: witness -> its key among them;
    `words` of borrowers that are gone, the oldest first; `detours` to leaders; `unread`: a stream that cannot be read,
    while nothing can be (""); `late`: a stream of which a message was not acknowledged in time, while the application
    asks for nothing ("").
    """

    id: str
    registries: tuple[str, ...]
    configuration: Configuration
    buffer: int = 0
    doubted_max: int = DOUBTED_MAX
    status: AgentStatus = OPEN
    number: int = 0
    declarations: int = 0
    witnesses: int = 0
    turn: int = 0
    recreated: int = 0
    subscriptions: Map[str, ServedSubscription] = Map()
    parties: Map[str, str] = Map()
    claims: Map[Place, ClaimKnown] = Map()
    places: Map[str, Place] = Map()
    words: tuple[LastWords, ...] = ()
    detours: Detours = Detours()
    unread: str = ""
    late: str = ""

    @property
    def is_away(self) -> bool:
        """The session can read nothing, or its application takes nothing."""
        return self.unread != "" or self.late != ""

    def serve(self, subscription: str, party: str, kind: str) -> AgentRecord:
        """The subscription is served by this party from now on."""
        known = self.subscriptions[subscription]
        turn = self.turn + 1
        parties = self.parties.delete(known.party) if known.party in self.parties else self.parties
        served = self.subscriptions.set(subscription, replace(known, party=party, kind=kind, turn=turn))
        detours = self.detours.drop(known.party)
        parties = parties.set(party, subscription)
        return replace(self, turn=turn, subscriptions=served, parties=parties, detours=detours)

    def end(self, party: str) -> AgentRecord:
        """The subscription that the party served has ended."""
        subscriptions = self.subscriptions.delete(self.parties[party])
        detours = self.detours.drop(party)
        return replace(self, subscriptions=subscriptions, parties=self.parties.delete(party), detours=detours)

    def remember(self, borrower: str, reports: tuple[Report, ...]) -> AgentRecord:
        """Its last words, if it had any."""
        return replace(self, words=(*self.words, LastWords(borrower, reports))[-LAST_WORDS_MAX:]) if reports else self

    def words_of(self, borrower: str) -> tuple[Report, ...]:
        """What a borrower that is gone said last."""
        return next((one.reports for one in self.words if one.borrower == borrower), ())

    def kind_of(self, party: str) -> str:
        """What kind of party serves a subscription ("": it serves none, or is gone)."""
        subscription = self.parties.get(party)
        return "" if subscription is None else self.subscriptions[subscription].kind

    def served_by(self, *kinds: str) -> Iterator[ServedSubscription]:
        """The subscriptions that parties of these kinds serve, in the order in which those began."""
        served = [one for _, one in in_order(self.subscriptions) if one.kind in kinds]
        return iter(sorted(served, key=lambda one: one.turn))

    def in_order(self) -> list[tuple[str, ServedSubscription]]:
        """All subscriptions, by their numbers."""
        return sorted(in_order(self.subscriptions), key=lambda pair: pair[1].number)
