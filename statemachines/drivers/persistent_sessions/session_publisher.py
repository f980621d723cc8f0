"""SessionPublisher: hands messages to the nodes of sessions; each is stored when `publish` returns.

async with SessionPublisher(nodes=["10.0.0.1:7601", "10.0.0.2:7601"]) as publisher:
    await publisher.publish("news/today", b"hello", qos=1)
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from statemachines.drivers.credentials import NONE, Credentials
from statemachines.drivers.message_head import Headers, encode_head, make_head
from statemachines.drivers.persistent_sessions.node_guide import NodeGuide, places_of
from statemachines.drivers.persistent_sessions.payloads import PAYLOAD_MAX
from statemachines.drivers.persistent_sessions.session_node import SessionNode
from statemachines.drivers.persistent_sessions.topic import check_topic
from statemachines.kernel import ConfigurationError, GaplessError, Message
from statemachines.persistent_sessions.client_message import (
    MESSAGE_EXPIRY_MAX_S,
    PublishStored,
    PublishWanted,
    PublishWithHead,
    Refused,
)

WINDOW: Final = 1_000
"""Messages of one publisher that are not stored yet; `publish` waits beyond."""

WINDOW_BYTES: Final = 2 * 2**20
"""The same, in bytes: all of it must fit into the buffer of a connection when it is handed to the next node."""

OVERHEAD: Final = 100
"""Bytes that a message takes beside topic and payload, at most."""


def milliseconds_of(expiry: float) -> int:
    """Of seconds, rounded up; raises `ConfigurationError` for what is no message expiry."""
    is_number = isinstance(expiry, int | float) and not isinstance(expiry, bool)
    if not is_number or not 0 < expiry <= MESSAGE_EXPIRY_MAX_S:
        rule = f"must be seconds, more than 0 and at most {MESSAGE_EXPIRY_MAX_S}; leave it out for no expiry"
        raise ConfigurationError("expiry", expiry, rule)
    return math.ceil(expiry * 1_000)


class PublishRefused(GaplessError):
    """The node did not store a message: `busy`, or why."""


class SessionPublisher:
    """`node` of this process, or `nodes` as HOST:PORT, of which it uses one at a time; `name`: as a certificate of its
    own says it (else of chance); `credentials`: what a node must prove, and what we show it.

    Messages of one publisher are stored in the order of its calls.  Where its node dies what is not stored yet is
    handed to the next: such a message may then be stored twice.
    """

    def __init__(
        self,
        *,
        node: SessionNode | None = None,
        nodes: Sequence[str] = (),
        name: str | None = None,
        credentials: Credentials = NONE,
    ) -> None:
        self._guide = NodeGuide(
            places_of(node, nodes),
            opened=self._say_all,
            heard=self._hear,
            closed=lambda: None,
            name=name,
            credentials=credentials,
        )
        self._turn = asyncio.Lock()
        self._waiting = 0
        """So many calls wait for room, or behind one that does."""
        self._stored = asyncio.Event()
        self._size = 0
        self._count = 0
        self._unstored: dict[int, tuple[PublishWanted, asyncio.Future[None]]] = {}

    async def __aenter__(self) -> Self:
        self._task = asyncio.ensure_future(self._guide.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        for _, stored in self._unstored.values():
            stored.cancel()

    async def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 1,
        expiry: float | None = None,
        *,
        headers: Headers | None = None,
        key: bytes | None = None,
        timestamp: float | None = None,
    ) -> None:
        """Store it for every session that subscribes the topic; waits until that is done, however long no node can be
        reached.

        `expiry`: seconds, from when it is stored and by the clock of the database; whom it was not sent to by then it
        is not sent any more (None: it does not expire).  `headers`: names and values, `key`: what it is about,
        `timestamp`: seconds since the epoch; as of `Publisher.publish`.

        Raises `ConfigurationError` for what cannot be published, `PublishRefused` where the node did not take it.
        """
        check_topic(topic)
        if qos not in (0, 1, 2):
            raise ConfigurationError("qos", qos, "must be 0, 1 or 2")
        if not isinstance(payload, bytes):
            rule = f"must be bytes, not {type(payload).__name__}; encode it first, or copy it with bytes()"
            raise ConfigurationError("payload", type(payload).__name__, rule)
        is_plain = headers is None and key is None and timestamp is None
        head = None if is_plain else encode_head(make_head(headers, key, timestamp))
        content = len(payload) + len(head or b"")
        if content > PAYLOAD_MAX:
            rule = f"must have at most {PAYLOAD_MAX} bytes, with its headers"
            raise ConfigurationError("payload", f"{content} bytes", rule)
        expiry_ms = None if expiry is None else milliseconds_of(expiry)
        size = OVERHEAD + len(topic.encode()) + content
        given = (topic, payload, qos, expiry_ms, head, size)
        if self._waiting or not self._has_room(size):
            wanted, stored = await self._say_in_turn(*given)
        else:
            wanted, stored = self._say(*given)
        try:
            await stored
        finally:
            self._unstored.pop(wanted.n, None)
            self._size -= size
            if self._waiting:
                self._stored.set()

    def _has_room(self, size: int) -> bool:
        """Whether a message of so many bytes may be on its way as well."""
        return not self._unstored or (len(self._unstored) < WINDOW and self._size + size <= WINDOW_BYTES)

    async def _say_in_turn(
        self, topic: str, payload: bytes, qos: int, expiry_ms: int | None, head: bytes | None, size: int
    ) -> tuple[PublishWanted, asyncio.Future[None]]:
        """As `_say`: those that wait for room go in the order of their calls."""
        self._waiting += 1
        try:
            async with self._turn:
                while not self._has_room(size):
                    self._stored.clear()
                    await self._stored.wait()
                return self._say(topic, payload, qos, expiry_ms, head, size)
        finally:
            self._waiting -= 1

    def _say(
        self, topic: str, payload: bytes, qos: int, expiry_ms: int | None, head: bytes | None, size: int
    ) -> tuple[PublishWanted, asyncio.Future[None]]:
        """The next message, to the node, and what is done when it is stored."""
        self._count += 1
        given = (self._count, topic, payload, qos, expiry_ms)
        wanted = PublishWanted(*given) if head is None else PublishWithHead(*given, head)
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unstored[wanted.n] = (wanted, stored)
        self._size += size
        self._guide.say(wanted)
        return wanted, stored

    def _say_all(self) -> None:
        """A new connection: whatever is not stored yet, in its order."""
        for wanted, _ in list(self._unstored.values()):
            self._guide.say(wanted)

    def _hear(self, message: Message) -> None:
        if isinstance(message, PublishStored | Refused):
            _, stored = self._unstored.get(message.n, (None, None))
            if stored is None or stored.done():
                return
            if isinstance(message, Refused):
                stored.set_exception(PublishRefused(message.why))
            else:
                stored.set_result(None)
        else:
            self._guide.leave_node()
