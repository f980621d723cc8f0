"""WillSender: publishes the wills of clients that were lost, at once or after their delay.

It keeps wills in memory: those of a node that dies are not sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final

from statemachines.drivers.clock import steady_ns
from statemachines.drivers.mqtt_connections.message_properties import write_will_head
from statemachines.drivers.persistent_sessions.front_message import FrontPublish
from statemachines.drivers.persistent_sessions.node_link import NodeLink
from statemachines.drivers.persistent_sessions.session_node import SessionNode
from statemachines.drivers.rate_limited_log import RateLimitedLog
from statemachines.kernel import Message
from statemachines.mqtt_codec.packet import WillMessage
from statemachines.persistent_sessions.client_message import Ping, PublishStored, Refused

logger = logging.getLogger("gapless")

SENDING_MAX: Final = 100
"""Wills that are on their way into the database; those behind wait."""


class WillSender:
    """The wills of one node."""

    def __init__(self, node: SessionNode) -> None:
        self._delayed: dict[str, tuple[asyncio.TimerHandle, WillMessage]] = {}
        """Client id -> when its will is due, and the will."""
        self._waiting: deque[WillMessage] = deque()
        self._sending = 0
        self._count = 0
        self._refused = RateLimitedLog(steady_ns)
        self._link = NodeLink.local(node, self._take_message, lambda: None)

    def send(self, client_id: str, will: WillMessage, delay_s: int) -> None:
        """The client is lost: send its will after so many seconds."""
        self.discard(client_id)
        if delay_s > 0:
            handle = asyncio.get_running_loop().call_later(delay_s, self._send_delayed, client_id)
            self._delayed[client_id] = (handle, will)
        else:
            self._publish(will)

    def settle(self, client_id: str, is_session_over: bool) -> None:
        """The client connects again before its will was due: the will is sent if the session of before is over, and
        else it is not."""
        if is_session_over:
            self._send_delayed(client_id)
        else:
            self.discard(client_id)

    def discard(self, client_id: str) -> None:
        """The will is not sent, if there is one."""
        found = self._delayed.pop(client_id, None)
        if found is not None:
            found[0].cancel()

    def ping(self) -> None:
        """The node hears that the sender is there."""
        self._link.say(Ping())

    async def close(self) -> None:
        """Wills that are not due yet are not sent."""
        for client_id in list(self._delayed):
            self.discard(client_id)
        await self._link.close()

    def _send_delayed(self, client_id: str) -> None:
        found = self._delayed.pop(client_id, None)
        if found is not None:
            found[0].cancel()
            self._publish(found[1])

    def _publish(self, will: WillMessage) -> None:
        self._waiting.append(will)
        self._send_waiting()

    def _send_waiting(self) -> None:
        while self._waiting and self._sending < SENDING_MAX:
            will = self._waiting.popleft()
            self._sending += 1
            self._count += 1
            expiry = will.properties.message_expiry
            expiry_ms = None if expiry is None else max(1, expiry * 1_000)
            given = (self._count, will.topic, will.payload, will.qos, expiry_ms, write_will_head(will), will.retain)
            self._link.say(FrontPublish(*given))

    def _take_message(self, message: Message) -> None:
        if not isinstance(message, PublishStored | Refused):
            return
        self._sending -= 1
        if isinstance(message, Refused) and self._refused.count_event():
            logger.warning("a will was not stored: %s (%d such wills so far)", message.why, self._refused.count)
        self._send_waiting()
