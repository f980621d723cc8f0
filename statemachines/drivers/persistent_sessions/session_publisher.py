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
from statemachines.drivers.persistent_sessions.node_link import NodeGuide, places_of
from statemachines.drivers.persistent_sessions.payloads import PAYLOAD_MAX
from statemachines.drivers.persistent_sessions.session_node import SessionNode
from statemachines.drivers.topic import check_topic
from statemachines.kernel import ConfigurationError, Event, GaplessError, Message, Node, Send, Tell
from statemachines.persistent_sessions.message import (
    MESSAGE_EXPIRY_MAX_S,
    PublishStored,
    PublishWanted,
    PublishWithHead,
    Refused,
)
from statemachines.persistent_sessions.publication import (
    PUBLICATION,
    CancelPublish,
    HandMessage,
    MessageRefused,
    MessageStored,
    NodeLost,
    NodeReached,
    PublicationRecord,
    PublishPayload,
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
            opened=lambda: self._feed(NodeReached()),
            heard=self._hear,
            closed=lambda: self._feed(NodeLost()),
            name=name,
            credentials=credentials,
        )
        record = PublicationRecord("publisher", WINDOW, WINDOW_BYTES)
        self._window = Node(PUBLICATION, record, name=record.id, now_ns=0)
        self._unstored: dict[int, tuple[PublishWanted, asyncio.Future[None]]] = {}

    async def __aenter__(self) -> Self:
        self._task = asyncio.ensure_future(self._guide.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        for _, stored in list(self._unstored.values()):
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
        n = self._window.record.count + 1
        given = (n, topic, payload, qos, expiry_ms)
        wanted = PublishWanted(*given) if head is None else PublishWithHead(*given, head)
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unstored[n] = (wanted, stored)
        try:
            self._feed(PublishPayload(OVERHEAD + len(topic.encode()) + content))
            await stored
        finally:
            del self._unstored[n]
            if stored.cancelled():
                self._feed(CancelPublish(n))

    def _feed(self, event: Event) -> None:
        """Nothing comes back while a message is handed over: a node is heard in a later turn of the loop."""
        for effect in self._window.take(event, 0):
            if type(effect) is Send:
                assert isinstance(effect.message, HandMessage)
                self._guide.say(self._unstored[effect.message.n][0])
            elif type(effect) is Tell:
                self._end(effect.event)

    def _end(self, event: Event) -> None:
        """A call of `publish` is over."""
        assert isinstance(event, MessageStored | MessageRefused)
        _, stored = self._unstored[event.n]
        if stored.done():
            return  # its call was cancelled a moment ago
        if isinstance(event, MessageRefused):
            stored.set_exception(PublishRefused(event.why))
        else:
            stored.set_result(None)

    def _hear(self, message: Message) -> None:
        if isinstance(message, PublishStored | Refused):
            self._feed(message)
        else:
            self._guide.leave_node()
