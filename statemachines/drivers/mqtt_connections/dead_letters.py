"""DeadLetters: copies of the messages of groups that a client refuses, in the dead-letter topic of the groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from statemachines.drivers.message_head import add_headers
from statemachines.drivers.persistent_sessions.payloads import Payload
from statemachines.drivers.persistent_sessions.session_node import SessionNode
from statemachines.drivers.topic import is_shared
from statemachines.persistent_sessions.message import Delivered
from statemachines.shared_subscriptions.dead_letter import DeadLetter
from statemachines.shared_subscriptions.stream_store import matches, parse_filter

UNKNOWN_OFFSET: Final = -1
"""A message that is a session's does not say where in its stream it stood."""


class DeadLetters:
    """Of one connection to this node."""

    def __init__(self, node: SessionNode) -> None:
        self._node = node
        configuration = None if node.groups is None else node.groups.configuration
        self._topic = "" if configuration is None else configuration.dead_letter_topic
        self.is_on = bool(self._topic)
        """Messages of groups have a dead-letter topic."""
        self._in_flight: dict[int, Delivered] = {}
        """Messages of groups that the client has not answered, by packet id."""

    def note_delivery(self, message: Delivered) -> None:
        """The client gets it, and may refuse it."""
        self.forget((message.packet,))
        if message.packet and is_shared(message.filter):
            self._in_flight[message.packet] = message

    def forget(self, packet_ids: Iterable[int]) -> None:
        """The client has answered these."""
        if self._in_flight:
            for one in packet_ids:
                self._in_flight.pop(one, None)

    def store(self, packet_id: int, reason_code: int, take: Callable[[], None]) -> None:
        """The client refuses the message: `take` hears when its copy is durable, or that there is none."""
        message = self._in_flight.pop(packet_id, None)
        if message is None:
            take()
            return
        group, topic_filter = parse_filter(message.filter)
        if matches(topic_filter, self._topic):
            take()  # it would come back to the group
            return
        stream = f"/{message.topic}"
        letter = DeadLetter(group, topic_filter, stream, UNKNOWN_OFFSET, 1, f"refused with 0x{reason_code:02X}")
        head = add_headers(message.head, letter.as_headers())
        self._node.reception.messages.append(Payload(self._topic, message.payload, head), take)
