"""What writers, sessions and clients say to each other.

What a client and the node that it is connected to say to each other, beside the packets of `message`.

A client dials a node.  As a subscriber it asks to be connected, hears that it is, subscribes, and gets messages, which
it acknowledges; as a publisher it hands messages over, and hears of each when it is stored.  Nothing of this is
between machines: `SessionHost` and those around it turn it into calls of them.

Will: the message that is sent for a client when its connection has ended, and when it is due.

Acknowledgements: what a client has said of the packets that it has, as a node takes it.

Fan-out: rows of a message that comes to each subscription once, of which some node has still to store each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, ClassVar, Final, NamedTuple, Protocol, TypeVar

import msgspec

from statemachines.kernel import Event, Message, TraceColumns
from statemachines.persistent_sessions.life_request import NEVER
from statemachines.persistent_sessions.times import MS

Count = Annotated[int, msgspec.Meta(ge=0, le=2**61)]
"""An epoch, a number, a token: what a peer may say of them; no database counts so far."""
Qos = Annotated[int, msgspec.Meta(ge=0, le=2)]
Instant = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""Nanoseconds, by the clock of the database; 0: never."""


class Queued(msgspec.Struct, frozen=True, gc=False):
    """A message for a session under its number; `message` is its id ("": retention has removed it), `filter` a
    subscription that it matches, and `more` the others by which it comes under this number.  From `until_ns` on it is
    over (0: it does not expire).  `stored_ns`: when its row was committed, later than that of every row that was
    committed before (0: unknown)."""

    number: Count
    message: str
    filter: str = ""
    qos: Qos = 1
    until_ns: Instant = 0
    stored_ns: Instant = 0
    more: tuple[str, ...] = ()

    @property
    def copies(self) -> int:
        """How often the message comes: once for each subscription."""
        return 1 + len(self.more)


def unfold_row(row: Queued) -> tuple[Queued, ...]:
    """Its copies, each by one subscription, as a session state has them: `stored_ns` is of the row alone."""
    return tuple(Queued(row.number, row.message, one, row.qos, row.until_ns) for one in (row.filter, *row.more))


def is_over(queued: Queued, now_ns: int) -> bool:
    """Its time is over, where the clock of the database shows this."""
    return 0 < queued.until_ns <= now_ns


def time_left(queued: Queued, now_ns: int) -> int | None:
    """Nanoseconds until it is over, 0 where it is; None: it does not expire."""
    return max(queued.until_ns - now_ns, 0) if queued.until_ns else None


class MarkerWanted(Message, frozen=True, gc=False):
    """To a writer: show a marker, live to `to` and in the database.  `token` of the owner of the session, and which of
    its markers to this writer it is: later ones are greater."""

    columns: ClassVar = TraceColumns(key="session", term="token", first="n")

    session: str
    to: str
    token: Count
    n: Count


class Live(Message, frozen=True, gc=False):
    """From a writer: a message whose row it has stored.  Its publisher has published at this node since `since_ns`, by
    the clock of the database (0: unknown): what it published elsewhere is older."""

    columns: ClassVar = TraceColumns(key="writer", term="epoch", first="number")

    session: str
    writer: str
    epoch: Count
    queued: Queued
    since_ns: Instant = 0

    @property
    def number(self) -> int:
        """The number of its row."""
        return self.queued.number


class LiveMarker(Message, frozen=True, gc=False):
    """From a writer: what follows has the number `k`, and more."""

    columns: ClassVar = TraceColumns(key="writer", term="epoch", first="k")

    session: str
    writer: str
    epoch: Count
    k: Count
    token: Count
    n: Count


class Publish(Message, frozen=True, gc=False):
    """To the client; a `packet` of 0 is QoS 0.  `left_ns`: so long it goes on to be of use (None: for ever)."""

    columns: ClassVar = TraceColumns(key="message", grant="again", first="packet")

    packet: int
    message: str
    filter: str
    qos: int
    dup: bool
    left_ns: int | None = None

    @property
    def again(self) -> int:
        """1: it is a repetition."""
        return int(self.dup)


class Pubrel(Message, frozen=True, gc=False):
    """To the client: it may forget the packet."""

    columns: ClassVar = TraceColumns(first="packet")

    packet: int


class Puback(Message, frozen=True, gc=False):
    """From the client: QoS 1, it has the message; within a node, which folds what comes together, also those under the
    packets behind it, up to `last` (0: it alone)."""

    columns: ClassVar = TraceColumns(first="packet", last="until")

    packet: int
    last: int = 0

    @property
    def until(self) -> int:
        """The last packet that it is about."""
        return self.last or self.packet


class Pubrec(Message, frozen=True, gc=False):
    """From the client: QoS 2, it has the message, and keeps its packet in mind."""

    columns: ClassVar = TraceColumns(first="packet")

    packet: int


class Pubcomp(Message, frozen=True, gc=False):
    """From the client: QoS 2, it has forgotten the packet."""

    columns: ClassVar = TraceColumns(first="packet")

    packet: int


class MessageExpired(Event, frozen=True, gc=False):
    """Of a session: at `time_ns`, by the clock of the database, a message was over that had not been sent yet.  It
    counts as done, and is not sent."""

    columns: ClassVar = TraceColumns(key="message", grant="qos", first="until_ns", last="time_ns")

    message: str
    filter: str
    qos: int
    until_ns: int
    time_ns: int


class Written(Event, frozen=True, gc=False):
    """To the publisher's connection: the row is stored, and this message may be acknowledged."""

    columns: ClassVar = TraceColumns(key="message")

    message: str
    filter: str


Number = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""Counts what a client asks for; the answer has the same."""
Packet = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
Expiry = Annotated[int, msgspec.Meta(ge=-1, le=2**53)]
"""Milliseconds; -1: never, and where a client leaves: as it said when it connected."""
INSTANCE_MAX: Final = 64
"""Characters of what tells a client from others with its client id."""
MESSAGE_EXPIRY_MAX_S: Final = 2**32 - 1
"""The longest message expiry interval of MQTT 5."""
Head = Annotated[bytes, msgspec.Meta(max_length=16_384)]
"""Headers, key and timestamp of a message, encoded: no machine reads them."""
MessageExpiry = Annotated[int, msgspec.Meta(ge=1, le=MESSAGE_EXPIRY_MAX_S * 1_000)]
"""Milliseconds."""


# -- from a client ----------------------------------------------------------------------------------------------------


class ConnectWanted(Message, frozen=True, gc=False):
    """Connect `client`; `clean`: with no session of before; its session outlives the connection by `expiry_ms`; so
    many messages may be unacknowledged at a time.  `instance`: who connects, of all that ever have this client id ("":
    it does not say); `attempt`: counts its connections."""

    client: str
    clean: bool
    expiry_ms: Expiry
    receive_maximum: Annotated[int, msgspec.Meta(ge=1, le=65_535)]
    instance: Annotated[str, msgspec.Meta(max_length=INSTANCE_MAX)] = ""
    attempt: Number = 0


class SubscribeWanted(Message, frozen=True, gc=False):
    """Subscribe a filter; once more changes its QoS."""

    n: Number
    filter: str
    qos: Qos


class UnsubscribeWanted(Message, frozen=True, gc=False):
    """Nothing is routed by this filter any more."""

    n: Number
    filter: str


class PublishWanted(Message, frozen=True, gc=False):
    """Store a message for every session that subscribes its topic; when it has been stored for `expiry_ms`, it is sent
    to none that it was not sent to before (None: it does not expire)."""

    n: Number
    topic: str
    payload: bytes
    qos: Qos
    expiry_ms: MessageExpiry | None = None


class PublishWithHead(PublishWanted, frozen=True, gc=False):
    """The same, of a message that has headers, a key or a timestamp, encoded as `head`.  A node that does not know
    heads refuses it."""

    head: Head = b""


class LeaveWanted(Message, frozen=True, gc=False):
    """The client leaves; its session outlives that by `expiry_ms` (-1: as it was said)."""

    expiry_ms: Expiry


class Ping(Message, frozen=True, gc=False):
    """Whoever does not answer is taken for dead."""


# -- to a client ------------------------------------------------------------------------------------------------------


class Welcome(Message, frozen=True, gc=False):
    """The client is connected; `present`: its session was there before."""

    session: str
    present: bool


class Subscribed(Message, frozen=True, gc=False):
    """`SubscribeWanted` or `UnsubscribeWanted` number `n` is stored: what is published from now on is routed by it."""

    n: Number


class Delivered(Message, frozen=True, gc=False):
    """A message; a `packet` of 0 is QoS 0, `dup`: it may have come before, under the same packet.  `expiry_ms`: what
    was left of its time when it was handed out (None: it does not expire); `head`: its headers, key and timestamp,
    encoded (None: it has none)."""

    packet: Packet
    topic: str
    payload: bytes
    filter: str
    qos: Qos
    dup: bool
    expiry_ms: Annotated[int, msgspec.Meta(ge=0)] | None = None
    head: Head | None = None


class PublishStored(Message, frozen=True, gc=False):
    """`PublishWanted` number `n` is stored for every session that it is for."""

    n: Number


class Refused(Message, frozen=True, gc=False):
    """Number `n` was not carried out, and why."""

    n: Number
    why: str


class GroupRefused(Message, frozen=True, gc=False):
    """The session subscribes this filter of a group, and nothing of it comes over this connection, and why.  The
    subscription stays."""

    filter: str
    why: str


class Farewell(Message, frozen=True, gc=False):
    """The connection is over: left, refused, superseded, discarded, lost, timeout, failed, full, closing,
    no_store."""

    why: str


class Pong(Message, frozen=True, gc=False):
    """To `Ping`."""


class StoredWill(NamedTuple):
    """The will of a connection: it is sent `delay_ms` after that ended, or when the session ends.  `due_ns`: when, by
    the clock of the database (0: the connection has not ended)."""

    connection: bytes
    delay_ms: int
    due_ns: int


def due_after(delay_ms: int, expiry_ms: int, ended_ns: int) -> int:
    """When a will is due whose connection ended then, of a session that outlives it by `expiry_ms`."""
    is_shorter = expiry_ms != NEVER and expiry_ms < delay_ms
    return ended_ns + (expiry_ms if is_shorter else delay_ms) * MS


def due_at_end(will: StoredWill, expiry_ms: int, ended_ns: int) -> int:
    """When the will is due whose connection, or session, ended then: no later than it was."""
    due_ns = due_after(will.delay_ms, expiry_ms, ended_ns)
    return min(due_ns, will.due_ns or due_ns)


class FrontAcknowledged(Message, frozen=True, gc=False):
    """From a front within the process: the client has acknowledged these packets of QoS 1, in this order."""

    packets: tuple[int, ...]


Acknowledgement = Puback | Pubrec | Pubcomp
KINDS: Final = frozenset((Puback, Pubrec, Pubcomp, FrontAcknowledged))


def fold_acknowledgements(asked: Iterable[Acknowledgement | FrontAcknowledged]) -> list[Acknowledgement]:
    """The same, packets of QoS 1 that follow each other as one; how many a client says that it means is not heard."""
    found: list[Acknowledgement] = []
    packets: list[int] = []
    for one in asked:
        if isinstance(one, FrontAcknowledged):
            packets += one.packets
        elif isinstance(one, Puback):
            packets.append(one.packet)
        else:
            found += _fold_packets(packets)
            packets = []
            found.append(one)
    return found + _fold_packets(packets)


def _fold_packets(packets: list[int]) -> list[Acknowledgement]:
    runs: list[Acknowledgement] = []
    place = 0
    while place < len(packets):
        first, begin = packets[place], place
        while place < len(packets) and packets[place] == first + place - begin:
            place += 1
        runs.append(Puback(first, packets[place - 1] if place - begin > 1 else 0))
    return runs


def list_packets(asked: Iterable[Acknowledgement | FrontAcknowledged]) -> list[int]:
    """The packets of messages that the client has."""
    found: list[int] = []
    for one in asked:
        if isinstance(one, FrontAcknowledged):
            found += one.packets
        elif not isinstance(one, Pubcomp):
            found.append(one.packet)
    return found


class MatchedRoute(Protocol):
    """A subscription that a topic matches; `is_single`: of those of the session that are, one gets the message."""

    @property
    def session(self) -> str: ...
    @property
    def qos(self) -> int: ...
    @property
    def is_single(self) -> bool: ...


R = TypeVar("R", bound=MatchedRoute)

OpenRow = tuple[str, str]
"""(message, filter): a row that is still to be stored for a session."""


def rows_once(rows: Iterable[Queued], once: Collection[str]) -> list[Queued]:
    """Those of these rows whose message comes to each subscription once."""
    return [row for row in rows if row.message in once]


def find_duplicates(rows: Iterable[Queued], open_rows: Collection[OpenRow]) -> tuple[int, ...]:
    """Numbers of those of these rows that are not to be stored: they are, or stand twice among them."""
    left = set(open_rows)
    duplicates = []
    for row in rows:
        if (row.message, row.filter) in left:
            left.remove((row.message, row.filter))
        else:
            duplicates.append(row.number)
    return tuple(duplicates)


def choose_routes(routes: Sequence[R]) -> tuple[R, ...]:
    """Of the single ones of a session the one with the highest quality, and all others; in their order."""
    best: dict[str, R] = {}
    for one in routes:
        if one.is_single and (one.session not in best or best[one.session].qos < one.qos):
            best[one.session] = one
    return tuple(one for one in routes if not one.is_single or best[one.session] is one)


def find_volatile(routes: Iterable[R], qos: int) -> list[R]:
    """The single ones by which a message of this QoS comes with QoS 0: it is for a connected client alone."""
    return [one for one in routes if one.is_single and min(one.qos, qos) == 0]


def leave_out_absent(routes: Iterable[R], absent: Collection[str]) -> tuple[R, ...]:
    """The routes without the single ones of absent sessions."""
    return tuple(one for one in routes if not (one.is_single and one.session in absent))
