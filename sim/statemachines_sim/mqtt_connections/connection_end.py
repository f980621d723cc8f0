"""ConnectionEnd: the server's end of one simulated MQTT connection: the machine, and the session of the drivers.

It stands in the process of the client, and what it says to the node of sessions goes over the client's wire: a node
that dies takes both with it, and what is lost between client and node is lost here.  What a client sends in one moment
is read together, as it is from a socket (MQ-210, MQ-235).
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from statemachines.drivers.mqtt_connections.client_decoder import RUN_MAX, ClientDecoder, take_message
from statemachines.drivers.mqtt_connections.mqtt_session import MqttSession
from statemachines.drivers.persistent_sessions.node_link import NodeLink
from statemachines.kernel import Event, Message, Node
from statemachines.mqtt_codec import PacketError
from statemachines.mqtt_connections.connection import MQTT_CONNECTION
from statemachines.mqtt_connections.connection_record import CLOSED, CONNECTED, MqttConnectionRecord, MqttSettings
from statemachines.mqtt_connections.session_event import ServerStopping
from statemachines.mqtt_connections.takeover_limit import TakeoverLimit

CLIENT = "mqtt-client"
"""Whom a connection sends packets to: the client in its process."""

WITHOUT_GROUPS: Any = SimpleNamespace(groups=None, shares_streams=False)
"""What a session asks of its node itself."""


class SimulatedSession(MqttSession):
    """The session of the drivers; `say` brings a message to the node of sessions."""

    def __init__(self, end: Any, name: str, say: Callable[[Message], bool]) -> None:
        super().__init__(WITHOUT_GROUPS, end, TakeoverLimit(), None, True)
        self._name, self._bring = name, say

    def enter_node(self) -> NodeLink:
        return NodeLink(self._bring, None, lambda: None)

    def leave_node(self, link: NodeLink) -> None:
        """The client hangs up."""

    def name_connection(self) -> str:
        return self._name


class SimulatedConnectionEnd:
    """What `ClientStream` is over a socket.

    Args:
        node: the machine, which is in the host of the process.
        feed: has the process feed it an event.
        say: brings a message to the node of sessions.
        defer: calls it later in this moment, when the client has sent all that it sends now.
    """

    def __init__(
        self,
        node: Node[Any],
        feed: Callable[[str, Event], None],
        say: Callable[[Message], bool],
        defer: Callable[[Callable[[], None]], None],
    ) -> None:
        self.certified: frozenset[str] = frozenset()
        self.error: PacketError | None = None
        self.has_room = True
        self.farewell = ""
        """Why the node of sessions has ended the session ("": it has not)."""
        self._node, self._feed, self._defer = node, feed, defer
        self._decoder = ClientDecoder()
        self._is_waiting = False
        self.session = SimulatedSession(self, node.name, say)

    @classmethod
    def make_machine(cls, name: str, settings: MqttSettings, **given: Any) -> Node[Any]:
        """The machine of a connection that has begun."""
        return Node(MQTT_CONNECTION, MqttConnectionRecord(CLIENT, settings), name=name, **given)

    @property
    def record(self) -> MqttConnectionRecord:
        """Of the machine."""
        record: MqttConnectionRecord = self._node.record
        return record

    @property
    def is_connected(self) -> bool:
        """Whether packets are taken."""
        return self.record.status is CONNECTED

    @property
    def is_over(self) -> bool:
        """Whether the connection has ended."""
        return self.record.status is CLOSED

    def feed(self, event: Event) -> None:
        """An event for the machine."""
        self._feed(self._node.name, event)

    def take_bytes(self, data: bytes) -> None:
        """The client sends them."""
        self._decoder.feed(data)
        self._read_later()

    def _read_later(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self._defer(self.read)

    def read(self) -> None:
        """Feeds the machine what has come, while the session has room."""
        self._is_waiting = False
        while self.has_room and not self.is_over:
            _, message = take_message(self._decoder, self.record, RUN_MAX)
            if message is None:
                return
            self.feed(message)

    def set_room(self, has_room: bool) -> None:
        """Whether the session takes more of the client."""
        self.has_room = has_room
        if has_room:
            self._read_later()

    def stop(self, reason_code: int) -> None:
        """The server ends the connection."""
        self.feed(ServerStopping(reason_code))
