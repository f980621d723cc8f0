"""What a node asks of the database beside its machines: subscriptions, messages, that it lives, what others did."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from statemachines.drivers.persistent_sessions.node_messages import RetainHandling, SessionWill
from statemachines.drivers.persistent_sessions.payloads import Payload, SharedOrigin
from statemachines.drivers.persistent_sessions.route_trie import Route
from statemachines.kernel import Answer
from statemachines.persistent_sessions.life_request import OpenSession
from statemachines.persistent_sessions.message import Queued
from statemachines.persistent_sessions.request import Fence, PutRows, ReadPending


class HostRequest(msgspec.Struct, frozen=True):
    """Base of all."""


class Subscribe(HostRequest, frozen=True):
    """Answered with True; False: a higher token has been here; None: the session has as many filters as it may."""

    session: str
    token: int
    filter: str
    qos: int


class SubscribeFront(Subscribe, frozen=True):
    """As `Subscribe`, of a front: `options` stay with the filter; ids of retained messages that it brings begin with
    `message`.  Answered with `FrontSubscribed`."""

    options: int
    handling: RetainHandling
    message: str = "-"


class RetainedMessage(NamedTuple):
    """A retained message; `until_ns`: from when on it is over (0: it does not expire)."""

    payload: Payload
    qos: int
    until_ns: int
    message: str = ""
    """Its id, as a message for the subscription."""
    expiry_ms: int | None = None
    """What is left of its time (None: it does not expire)."""


class FrontSubscribed(NamedTuple):
    """`done`, as `Subscribe` is answered; the retained messages that the subscription brings."""

    done: bool | None
    retained: tuple[RetainedMessage, ...] = ()


class ReadOptions(HostRequest, frozen=True):
    """Which filters does the session subscribe?  Answered with filter -> its options."""

    session: str


class Unsubscribe(HostRequest, frozen=True):
    """As `Subscribe`."""

    session: str
    token: int
    filter: str


class PublisherPacket(NamedTuple):
    """A packet id of QoS 2 of the client that publishes, and the token of its session."""

    session: str
    token: int
    packet: int


class PutMessage(HostRequest, frozen=True):
    """Store a message, if any session subscribes it; answered with the routes that it matches, a tuple of `Route`,
    which say from when on it is over: `expiry_ms` from now, by the clock of the database (None: never).  A route
    without a session is a group to whose stream the message was appended, or the owner of a session that gets the
    message directly, with QoS 0."""

    id: str
    topic: str
    payload: bytes
    qos: int
    expiry_ms: int | None = None
    head: bytes | None = None
    retain: bool = False
    """Keep it as the retained message of its topic.  Answered with `RetainedFull` where there is no room for that, and
    nothing was done; a will is stored nevertheless."""
    packet: PublisherPacket | None = None
    """Keep the packet id, and store each row of the message once, whichever node does.  Answered with None: a higher
    token has been here, and nothing was done."""

    without: frozenset[tuple[str, str]] = frozenset()
    """(session, filter): subscriptions that do not get it."""
    will: str = ""
    """It is the will of this connection, which is deleted ("": none).  Answered with None: somebody has sent it."""
    publisher: bytes = b""
    """Of a message to be retained: who publishes it, as JSON of `RetainedPublisher` (empty: anybody may)."""
    is_appended: bool = False
    """Append it to the stream of its topic, whether or not a group is there for it."""

    @property
    def needs_room(self) -> bool:
        """It is stored if there is room for it among the retained messages, and else not."""
        return self.retain and bool(self.payload) and not self.will

    @property
    def is_once(self) -> bool:
        """It comes to each subscription once."""
        return self.packet is not None or bool(self.will)

    @property
    def has_rows_alone(self) -> bool:
        """Where there are no groups, nothing is kept of it but rows of sessions, which come in a later request."""
        return not (self.retain or self.will or self.is_appended) and self.packet is None

    @property
    def is_read(self) -> bool:
        """Its routes are looked up, and rows bring the message where some session is to have it."""
        return self.qos == 0 and self.has_rows_alone and self.expiry_ms is None


class OpenWithWill(HostRequest, frozen=True):
    """Open the session, and keep the will of its connection.  Answered as `OpenSession` is."""

    opened: OpenSession
    will: SessionWill


class DropWill(HostRequest, frozen=True):
    """The will of the connection is not sent."""

    connection: str


class DueWill(NamedTuple):
    """A will that is to be sent, of a connection of this client."""

    connection: str
    client: str
    will: SessionWill


class DueWills(NamedTuple):
    """Some of the wills that are due; `has_ended`: nodes have ended that had wills (`EndWills`)."""

    wills: tuple[DueWill, ...]
    has_ended: bool


class FindDueWills(HostRequest, frozen=True):
    """Answered with `DueWills`."""


class EndWills(HostRequest, frozen=True):
    """Say of wills whose nodes have ended when they are due."""


class RetainedFull(msgspec.Struct, frozen=True):
    """As many messages are retained as may be, or bytes of them."""


class ReleasePacket(HostRequest, frozen=True):
    """The client has released the packet id.  Answered with True; False: a higher token has been here."""

    packet: PublisherPacket


class UnfinishedMessage(NamedTuple):
    """A message that comes to each subscription once, and the rows of it that are still to be stored."""

    message: str
    payload: Payload
    routes: tuple[Route, ...]


class PacketsFound(NamedTuple):
    """Packet ids of QoS 2 that a client has not released, and what is unfinished of their messages."""

    packets: tuple[int, ...]
    unfinished: tuple[UnfinishedMessage, ...]


class ReadPackets(HostRequest, frozen=True):
    """Which packet ids has the client of the session published and not released?  Answered with `PacketsFound`."""

    session: str


class ReadUnfinished(HostRequest, frozen=True):
    """Answered with `UnfinishedMessage` of those messages that are unfinished for `age_ms` and more, some of them."""

    age_ms: int


class DeclareGroup(HostRequest, frozen=True):
    """A session is about to subscribe the filter of a group: keep the group, which ends when nobody subscribes it for
    long, unless it is declared otherwise.  Answered with "", or why there may not be one more."""

    session: str
    filter: str


class ListIdleGroups(HostRequest, frozen=True):
    """Which groups that only such subscriptions declared has no session subscribed for `expiry_ms`?  They count as
    being destroyed from now on.  Answered with a tuple of their filters."""

    expiry_ms: int


class ForgetGroup(HostRequest, frozen=True):
    """The group was destroyed: what is kept of it here goes, too."""

    filter: str


class ReadReturned(HostRequest, frozen=True):
    """Messages of these groups that sessions which have ended never acknowledged; answered with group -> some of them,
    as (id, message), the oldest first."""

    groups: tuple[str, ...]


class ReadStoreTime(HostRequest, frozen=True):
    """What time is it, by the store's time?  Later than every commit before; answered with nanoseconds."""


class ReadGroups(HostRequest, frozen=True):
    """Which filters of groups does the session subscribe?  Answered with a tuple of them."""

    session: str


class ReadFilters(HostRequest, frozen=True):
    """Which filters does the session subscribe?  Answered with a tuple of them."""

    session: str


class CountWaiting(HostRequest, frozen=True):
    """How many messages that came by this filter wait in the database, in no client's hands yet?  Answered with a
    number, `most` at most; with that, too, where too many rows wait to be looked through."""

    session: str
    filter: str
    most: int


class PutCarried(HostRequest, frozen=True):
    """Store messages of a group's stream for this session alone, as (id, payload), if it still subscribes the filter
    and no higher token has been here; answered with the quality of the subscription, or None: it does not."""

    session: str
    token: int
    filter: str
    messages: tuple[tuple[str, Payload], ...]


class StoreRows(HostRequest, frozen=True):
    """Store a range of rows, and again those of their messages that are gone: nobody referred to them until now.
    `payloads` by the ids of the messages; `once`: those that come to each subscription once; `origins` of those that
    are of groups.  Answered as `PutRows` is, or with a `Page` that says which messages some session has already: their
    rows bring nothing."""

    put: PutRows
    payloads: dict[str, Payload]
    once: frozenset[str] = frozenset()
    origins: dict[str, SharedOrigin] = {}


class DropRows(HostRequest, frozen=True):
    """Rows `first` to `last` of this writer and epoch have no message any more, for this session, unless it has taken
    them; answered with how many had one."""

    session: str
    writer: str
    epoch: int
    first: int
    last: int


class ReadPage(HostRequest, frozen=True):
    """Read rows, and with them the payloads that are no larger than their share of `bytes_max`: they need not be read
    again to be delivered.  Answered with a `Page`."""

    rows: ReadPending | Fence
    bytes_max: int


class Page(msgspec.Struct, frozen=True):
    """`answers`, as to the request for the rows alone; `payloads` by the ids of their messages; `gone`: messages
    that bring nothing, since another session has them."""

    answers: tuple[Answer, ...]
    payloads: dict[str, Payload] = {}
    gone: frozenset[str] = frozenset()


class ReadPayloads(HostRequest, frozen=True):
    """Answered with id -> payload, or None for one that is not there: of the first of them, as many as have
    `bytes_max` bytes of payload, and a few more; those behind are to be asked for again."""

    ids: tuple[str, ...]
    bytes_max: int


class Beat(HostRequest, frozen=True):
    """The node lives for `lease_ms` from now on."""

    node: str
    lease_ms: int


class ReadNodes(HostRequest, frozen=True):
    """Answered with a tuple of the names of nodes that live, by the clock of the database."""


class ShowMarker(HostRequest, frozen=True):
    """Store a marker in the place of a writer of another node, at the end of what it has stored; answered with
    `Shown`, or None: there is no such writer."""

    session: str
    writer: str
    token: int
    n: int


class ShownMarker(msgspec.Struct, frozen=True):
    """The marker stands before number `k` of `epoch`."""

    epoch: int
    k: int


class WatchedSession(msgspec.Struct, frozen=True):
    """A session that is live here: what is followed of each writer of other nodes, as (writer, epoch, number)."""

    session: str
    token: int
    followed: tuple[tuple[str, int, int], ...]


class Look(HostRequest, frozen=True):
    """What have others done?  `node` is ours; answered with a `Seen` for each."""

    node: str
    watched: tuple[WatchedSession, ...]


class LagAnswer(msgspec.Struct, frozen=True):
    """`superseded`: a higher token has been there, or the session is gone; `writers` of other nodes that have begun;
    `rows` behind what is followed, as (writer, epoch, row)."""

    session: str
    superseded: bool
    writers: tuple[str, ...] = ()
    rows: tuple[tuple[str, int, Queued], ...] = ()


Routes = tuple[Route, ...]
