"""PersistentSession: a client of sessions that survive it, its connection, and its node.

    async with PersistentSession("tablet", nodes=["10.0.0.1:7601", "10.0.0.2:7601"]) as session:
        await session.subscribe("news/+")
        async for message in session:
            print(message.topic, message.payload)
            message.acknowledge()

Where its node dies it goes to the next, and on with the same session: nothing that was published meanwhile is missing.
What it had not acknowledged comes again, and says so (`dup`).

Received message: a message in the hands of an application.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Protocol, Self

import msgspec

from statemachines.drivers.credentials import NONE, Credentials
from statemachines.drivers.lives import chance_bits
from statemachines.drivers.message_head import Header, decode_head
from statemachines.drivers.persistent_sessions.node_link import NodeGuide, NodeUnreachable, places_of
from statemachines.drivers.persistent_sessions.session_node import SessionNode
from statemachines.drivers.topic import check_filter, check_name
from statemachines.kernel import ConfigurationError, Event, GaplessError, LocalProtocolError, Message, Node, Send, Tell
from statemachines.persistent_sessions.client_inbox import (
    CLIENT_INBOX,
    AcknowledgeMessage,
    ClientInboxRecord,
    ConnectionBegun,
    ConnectionEnded,
)
from statemachines.persistent_sessions.life_record import KEEP
from statemachines.persistent_sessions.message import (
    ConnectWanted,
    Delivered,
    Farewell,
    GroupRefused,
    LeaveWanted,
    Pubrel,
    Refused,
    Subscribed,
    SubscribeWanted,
    UnsubscribeWanted,
    Welcome,
)


class Acknowledger(Protocol):
    """What messages came over: a `PersistentSession`."""

    client_id: str

    def acknowledge(self, message: Received) -> None:
        """The application is done with it."""


class Received(msgspec.Struct, frozen=True, eq=False):
    """`topic`, `payload`, the `filter` that it matches, `qos`; `dup`: it may have come before, under the same `packet`
    (0: QoS 0).  `expiry`: seconds that were left of its time when the node handed it out, 0 for one that comes again
    when they were over (None: it does not expire).  `session`: that was handed it, over its
    `connection` of this number, as message number `n`."""

    topic: str
    payload: bytes
    filter: str
    qos: int
    dup: bool
    packet: int
    expiry: float | None
    session: Acknowledger
    connection: int
    n: int
    head: bytes | None = None
    """Its headers, key and timestamp, encoded (`message_head`)."""

    @classmethod
    def of(cls, message: Delivered, session: Acknowledger, connection: int, n: int) -> Received:
        """What came over this connection of the session, as message number `n`."""
        return cls(
            message.topic,
            message.payload,
            message.filter,
            message.qos,
            message.dup,
            message.packet,
            None if message.expiry_ms is None else message.expiry_ms / 1_000,
            session,
            connection,
            n,
            message.head,
        )

    @property
    def headers(self) -> tuple[Header, ...]:
        """Names and values, in the order in which they were published: `dict(message.headers)`.

        Raises `ConfigurationError`, as `key` and `timestamp` do, where the node has sent something else.
        """
        return decode_head(self.head).headers

    @property
    def key(self) -> bytes | None:
        """What it is about, if its publisher said so."""
        return decode_head(self.head).key

    @property
    def timestamp(self) -> float | None:
        """Seconds since the epoch, if its publisher said so."""
        return decode_head(self.head).timestamp

    def acknowledge(self) -> None:
        """The application is done with it: it need not come again.  A second time changes nothing."""
        self.session.acknowledge(self)


logger = logging.getLogger("gapless")


QOS_0_MAX: Final = 10_000
"""Messages of QoS 0 that wait for the application; those beyond are dropped, as QoS 0 may be."""

IN_HAND_MAX: Final = 64 * 2**20
"""Their bytes, unless the application says otherwise."""

LEAVE_S: Final = 5.0


class SessionTaken(GaplessError):
    """Another connection has this client id now, or has discarded its session."""


class SessionLost(GaplessError):
    """The session has expired while no node could be reached: what was published since is not for it."""


class StoreIsFull(GaplessError):
    """The store keeps as many sessions as it may, and this client had none: it was not connected."""


class AccessDenied(GaplessError):
    """The client may not connect under this client id, or not any more."""


class SubscribeRefused(GaplessError):
    """The node did not subscribe or unsubscribe a filter, and why."""


FAILURES: Final[dict[str, tuple[type[GaplessError], str]]] = {
    **dict.fromkeys(
        ("superseded", "discarded"),
        (SessionTaken, "the session of {client} is {why}: another connection has its client id"),
    ),
    "full": (
        StoreIsFull,
        "no session for {client}: the store keeps as many as it may; let others expire or discard them, or raise "
        "--max-sessions of its nodes",
    ),
    "denied": (
        AccessDenied,
        "{client} may not connect: its node does not allow that; see --permissions there, or take a name of its "
        "certificate",
    ),
}
"""Why a connection ends that is not to be made again."""


class PersistentSession:
    """`client_id`: whose session it is, on whatever node; `node` of this process, or `nodes` as HOST:PORT, of which it
    uses one at a time; `clean_start`: discard a session of before; `expiry_ms`: so long the session outlives its
    connection (0: not at all, -1: for ever); `receive_maximum`: so many messages may be unacknowledged; `patience_s`:
    how long entering waits for a node; `buffer_bytes`: bytes of messages that may wait for the application, beyond
    which those of QoS 0 are dropped (of others a node sends 1 MiB at most before some are acknowledged); `name`,
    `credentials`: as of `SessionPublisher`.

    `present`: the session was there before.  Entering it raises `NodeUnreachable` where no node has connected it in
    time, `AccessDenied` where it may not connect under its id, `StoreIsFull` where there is no room for a session.
    """

    def __init__(
        self,
        client_id: str,
        *,
        node: SessionNode | None = None,
        nodes: Sequence[str] = (),
        clean_start: bool = False,
        expiry_ms: int = 3_600_000,
        receive_maximum: int = 500,
        patience_s: float = 60.0,
        buffer_bytes: int = IN_HAND_MAX,
        name: str | None = None,
        credentials: Credentials = NONE,
    ) -> None:
        if expiry_ms < -1:
            raise ConfigurationError("expiry_ms", expiry_ms, "must be -1 (for ever), 0, or milliseconds")
        if not 1 <= receive_maximum <= 65_535:
            raise ConfigurationError("receive_maximum", receive_maximum, "must be 1 to 65535")
        if isinstance(buffer_bytes, bool) or not isinstance(buffer_bytes, int) or buffer_bytes < 1:
            raise ConfigurationError("buffer_bytes", buffer_bytes, "must be a number of bytes, at least 1")
        self.client_id = check_name("client_id", client_id)
        self.present = False
        self.session = ""
        """Its id, which no other session ever has."""
        self.refused_groups: dict[str, str] = {}
        """Filters of groups that the session subscribes and of which nothing comes over this connection, and why."""
        self._clean = clean_start
        self._expiry_ms = expiry_ms
        self._receive_maximum = receive_maximum
        self._patience_s = patience_s
        self._guide = NodeGuide(
            places_of(node, nodes),
            opened=self._connect,
            heard=self._hear,
            closed=self._disconnected,
            name=name,
            credentials=credentials,
        )
        self._instance, self._attempts = f"{chance_bits():016x}", 0
        self._welcome = asyncio.Event()
        self._connected = False
        self._left = asyncio.Event()
        self._came = asyncio.Event()
        self._waiting: deque[Received] = deque()
        self._buffer_bytes = buffer_bytes
        self._waiting_bytes = 0
        self._connection = 0
        self._inbox = Node(CLIENT_INBOX, ClientInboxRecord(client_id), name=client_id, now_ns=0)
        self._count = 0
        self._wanted: dict[int, tuple[SubscribeWanted | UnsubscribeWanted, asyncio.Future[None]]] = {}
        self._failure: GaplessError | None = None

    # -- for the application --------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._task = asyncio.ensure_future(self._guide.run())
        try:
            async with asyncio.timeout(self._patience_s):
                await self._welcome.wait()
        except BaseException as error:
            await self._stop()
            if isinstance(error, TimeoutError):
                what = f"no node has connected {self.client_id!r} within {self._patience_s:g} s"
                raise NodeUnreachable(what, self._guide.refusal) from error
            raise
        self._raise_failure()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.leave()

    async def leave(self, expiry_ms: int = KEEP) -> None:
        """Leave; the session outlives that as it was said, or by `expiry_ms` (not from 0 to more).  Leaving the `async
        with` does it too."""
        if self._connected:
            self._guide.say(LeaveWanted(expiry_ms))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LEAVE_S):
                    await self._left.wait()
        await self._stop()

    async def abort(self) -> None:
        """Go without a word, as if the process had died.  In place of leaving the `async with`."""
        self._connected = False
        await self._stop()

    async def subscribe(self, topic_filter: str, qos: int = 1) -> None:
        """What is published to a topic that matches, from when this returns, comes here.  `$share/GROUP/FILTER`: the
        session is a member of the group while it is connected, and what the group's streams give it comes here too
        (PS-260).  Raises `ConfigurationError` for what is no filter, `SubscribeRefused` where the node does not take
        it: one of a group where its nodes know none (PS-220).  Where the session comes to such a node later,
        `refused_groups` says so (PS-285)."""
        if qos not in (0, 1, 2):
            raise ConfigurationError("qos", qos, "must be 0, 1 or 2")
        self._count += 1
        await self._change(SubscribeWanted(self._count, check_filter(topic_filter), qos))

    async def unsubscribe(self, topic_filter: str) -> None:
        """What is published from when this returns does not come by this filter any more."""
        self._count += 1
        await self._change(UnsubscribeWanted(self._count, check_filter(topic_filter)))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Received:
        """The next message; raises `SessionTaken` and `SessionLost` behind the last."""
        while not self._waiting:
            self._raise_failure()
            if self._task.done():
                raise StopAsyncIteration
            self._came.clear()
            await self._came.wait()
        message = self._waiting.popleft()
        self._waiting_bytes -= size_of(message)
        return message

    # -- the connection -------------------------------------------------------------------------------------------

    async def _change(self, wanted: SubscribeWanted | UnsubscribeWanted) -> None:
        self._raise_failure()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wanted[wanted.n] = (wanted, done)
        if self._connected:
            self._guide.say(wanted)
        try:
            await done
        finally:
            self._wanted.pop(wanted.n, None)

    def _connect(self) -> None:
        self._attempts += 1
        self._feed(ConnectionBegun())
        self._guide.say(
            ConnectWanted(
                self.client_id, self._clean, self._expiry_ms, self._receive_maximum, self._instance, self._attempts
            )
        )

    def _disconnected(self) -> None:
        """What was not acknowledged comes again, of QoS 1 whether the application has had it or not."""
        self._connected = False
        self.refused_groups.clear()
        self._connection += 1
        self._feed(ConnectionEnded())
        self._waiting = deque(one for one in self._waiting if one.qos != 1)
        self._waiting_bytes = sum(map(size_of, self._waiting))

    def _hear(self, message: Message) -> None:
        match message:
            case Welcome(session, present):
                self._begin(session, present)
            case Delivered():
                self._take(message)
            case Pubrel():
                self._feed(message)
            case Subscribed(n):
                self._settle(n, None)
            case Refused(n, why):
                self._settle(n, SubscribeRefused(why))
            case GroupRefused(topic_filter, why):
                self.refused_groups[topic_filter] = why
                logger.warning("%s subscribes %s, and nothing of it comes: %s", self.client_id, topic_filter, why)
            case Farewell(why):
                self._end(why)

    def _begin(self, session: str, present: bool) -> None:
        if self.session and session != self.session:
            self._fail(SessionLost(f"the session of {self.client_id!r} has expired; connect anew, and subscribe again"))
            return
        if not self._welcome.is_set():
            self.present = present
        self.session, self._clean, self._connected = session, False, True
        self._welcome.set()
        for wanted, _ in list(self._wanted.values()):
            self._guide.say(wanted)

    def _take(self, message: Delivered) -> None:
        size = size_of(message)
        is_full = len(self._waiting) >= QOS_0_MAX or self._waiting_bytes + size > self._buffer_bytes
        if not message.packet and self._waiting and is_full:
            return
        if n := self._feed(message):
            self._waiting.append(Received.of(message, self, self._connection, n))
            self._waiting_bytes += size
            self._came.set()

    def _feed(self, event: Event) -> int:
        """To the inbox; the number of the message that it has for the application (0: none)."""
        n = 0
        for effect in self._inbox.take(event, 0):
            if isinstance(effect, Send):
                self._guide.say(effect.message)
            elif isinstance(effect, Tell):
                n = effect.event.n  # type: ignore[attr-defined]
        return n

    def acknowledge(self, message: Received) -> None:
        """The application is done with it, once; one of QoS 1 that came over a connection that is gone comes again
        anyway.

        Raises `LocalProtocolError` for a message of another session.
        """
        if message.session is not self:
            why = f"packet {message.packet} was handed over by the session of {message.session.client_id!r}"
            rule = f"{why}; call acknowledge() of the message itself"
            raise LocalProtocolError("persistent_session", self.client_id, "acknowledge", "PS-313", rule)
        self._feed(AcknowledgeMessage(message.packet, message.n))

    def _settle(self, n: int, error: GaplessError | None) -> None:
        wanted, done = self._wanted.get(n, (None, None))
        if wanted is None or done is None or done.done():
            return
        if error is None:
            self.refused_groups.pop(wanted.filter, None)
            done.set_result(None)
        else:
            done.set_exception(error)

    def _end(self, why: str) -> None:
        if why in FAILURES:
            failure, text = FAILURES[why]
            self._fail(failure(text.format(client=repr(self.client_id), why=why)))
        elif why in ("left", "refused"):
            self._left.set()
        else:
            self._guide.leave_node()

    def _fail(self, error: GaplessError) -> None:
        self._failure = error
        self._connected = False
        self._task.cancel()
        self._welcome.set()
        self._came.set()
        for n in list(self._wanted):
            self._settle(n, error)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._came.set()


def size_of(message: Delivered | Received) -> int:
    """Bytes of its payload and head."""
    return len(message.payload) + len(message.head or b"")
