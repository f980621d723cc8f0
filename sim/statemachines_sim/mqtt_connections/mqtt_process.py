"""MqttProcess: what makes a simulated subscriber or publisher an MQTT client.

What the client says becomes packets, which go through the codec to the machine of its connection; what the connection
sends becomes what the client hears.

ConnectionEnd: the server's end of one simulated MQTT connection: the machine, and the session of the drivers.

It stands in the process of the client, and what it says to the node of sessions goes over the client's wire: a node
that dies takes both with it, and what is lost between client and node is lost here.  What a client sends in one moment
is read together, as it is from a socket (MQ-210, MQ-235).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any, Final

from msgspec.structs import replace

from statemachines.drivers.mqtt_connections.client_decoder import RUN_MAX, ClientDecoder, take_message
from statemachines.drivers.mqtt_connections.mqtt_session import FOREVER_S, MqttSession
from statemachines.drivers.persistent_sessions.node_link import NodeLink
from statemachines.kernel import Event, Message, Node, Outgoing
from statemachines.mqtt_codec import (
    ConnackPacket,
    ConnectPacket,
    Decoder,
    DisconnectPacket,
    PacketError,
    PacketProperties,
    PingreqPacket,
    PubackPacket,
    PubcompPacket,
    PublishPacket,
    PubrecPacket,
    PubrelPacket,
    SubackPacket,
    SubscribePacket,
    TopicSubscription,
    UnsubackPacket,
    UnsubscribePacket,
    encode,
)
from statemachines.mqtt_codec.packet import MqttVersion
from statemachines.mqtt_codec.packet_property import NO_PROPERTIES
from statemachines.mqtt_connections.client_packet import list_packets
from statemachines.mqtt_connections.connection import MQTT_CONNECTION
from statemachines.mqtt_connections.connection_record import CLOSED, CONNECTED, MqttConnectionRecord, MqttSettings
from statemachines.mqtt_connections.session_event import MqttConnectionOver, ServerStopping, TransportLost
from statemachines.mqtt_connections.takeover_limit import TakeoverLimit
from statemachines.persistent_sessions.message import (
    ConnectWanted,
    Delivered,
    Farewell,
    LeaveWanted,
    Ping,
    Puback,
    Pubcomp,
    PublishStored,
    PublishWanted,
    Pubrec,
    Pubrel,
    Refused,
    Subscribed,
    SubscribeWanted,
    UnsubscribeWanted,
    Welcome,
)
from statemachines.persistent_sessions.publication import CancelPublish
from statemachines_sim.cluster import SimCluster
from statemachines_sim.mqtt_connections.section import MqttSection
from statemachines_sim.persistent_sessions.client_process import ClientProcess
from statemachines_sim.persistent_sessions.publisher_process import SessionPublisherProcess
from statemachines_sim.persistent_sessions.subscriber_process import SessionSubscriberProcess

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


KEEP_ALIVE_S: Final = 10
V5: Final = MqttVersion.V5


class MqttProcess(ClientProcess):
    """`version` that it speaks; `end`: of its connection (None: it has none); `older`: ends of connections that it has
    given up, and whose node does not know that yet, by name."""

    own: MqttSection

    def __init__(self, world: SimCluster, node: str, number: int, own: MqttSection) -> None:
        super().__init__(world, node, number, own)
        self.version = MqttVersion(own.levels[int(node.rpartition("-")[2]) % len(own.levels)])
        self.end: SimulatedConnectionEnd | None = None
        self.older: dict[str, SimulatedConnectionEnd] = {}
        self._clients: dict[str, Decoder] = {}
        self._real_network = world.network
        outlet: Any = self
        self._network = outlet

    # -- the network ----------------------------------------------------------------------------------------------

    def send(self, node: str, party: str, to: str, message: Message, now_ns: int) -> None:
        """In place of the network's: a packet of a connection is for the client of this process."""
        if to != CLIENT:
            self._real_network.send(node, party, to, message, now_ns)
            return
        for packet in list_packets(message):
            for one in self._clients[party].feed(encode(packet, self.version)):
                if party == self.connection:
                    self.take_packet(one)

    def note_sent(self, *given: Any) -> Any:
        """As the network's."""
        return self._real_network.note_sent(*given)

    def handle(self, sender: str, to: str, message: Message, now_ns: int) -> list[Outgoing]:
        older = self.older.get(to)
        if older is not None:
            older.session.take_message(message)
        return super().handle(sender, to, message, now_ns)

    def hear(self, message: Message) -> None:
        """The node of sessions has said something: to the session of the connection."""
        if self.end is None:
            return
        if isinstance(message, Farewell):
            self.end.farewell = message.why
            if self.end.is_over:  # it was left, and that is done
                self.hear_client(message)
                return
        self.note_message(message)
        self.end.session.take_message(message)

    def note_message(self, message: Message) -> None:
        """What judges must know, and no packet says."""

    def route_tell(self, party: str, event: Event) -> None:
        end = self.end if party == self.connection else self.older.get(party)
        if end is None:
            return
        end.session.take_tell(event)
        if isinstance(event, MqttConnectionOver):
            self.older.pop(party, None)
            self.after(0, partial(self._remove, party))
            if party == self.connection and event.reason_code:
                self.after(0, partial(self._hang_up_from, party))

    def _remove(self, party: str) -> None:
        if party in self.host.nodes:
            self.host.remove(party)
        self._clients.pop(party, None)

    def _hang_up_from(self, connection: str) -> None:
        if connection == self.connection:
            self.hang_up()

    # -- the connection -------------------------------------------------------------------------------------------

    def lose_end(self) -> None:
        """The network connection is gone, and the connection hears of it."""
        end, self.end = self.end, None
        if end is not None and not end.is_over:
            end.feed(TransportLost())

    def connect(self, client: str, clean: bool, expiry_ms: int, receive_maximum: int) -> None:
        """A connection, and CONNECT over it."""
        name, server = self.connection, self.server
        world = self.world
        expiry_s = FOREVER_S if expiry_ms < 0 else expiry_ms // 1_000
        settings = MqttSettings(expiry_max_s=FOREVER_S, expiry_3_s=expiry_s)
        machine = SimulatedConnectionEnd.make_machine(
            name, settings, now_ns=self.local_now(), observe=self._observe, check=world.judging
        )
        self.host.add(machine)
        self._clients[name] = Decoder(self.version)
        self.end = SimulatedConnectionEnd(
            machine, self._feed, partial(self._bring, name, server), partial(self.after, 0)
        )
        properties = NO_PROPERTIES
        if self.version is V5:
            properties = PacketProperties(session_expiry=expiry_s, receive_maximum=receive_maximum)
        self.give_packet(ConnectPacket(client, self.version, clean, KEEP_ALIVE_S, properties=properties))

    def give_packet(self, packet: Any) -> None:
        """The client sends it."""
        end = self.end
        if end is None or not (end.is_connected or isinstance(packet, ConnectPacket)):
            return
        end.take_bytes(encode(packet, self.version))
        if isinstance(packet, ConnectPacket | DisconnectPacket):
            end.read()  # it waits for CONNACK, or closes the connection behind it

    def _bring(self, name: str, server: str, message: Message) -> bool:
        """To the node of sessions, while the wire is there."""
        if name == self.connection or name in self.older:
            self._real_network.send(self.node, name, server, message, self._env.now)
        return True

    def _feed(self, name: str, event: Event) -> None:
        if name in self.host.nodes:
            self.perform(self.host.feed(name, event, self.local_now()), self._env.now)

    def _observe(self, node: Any, event: Event, before: Any, step: Any, now_ns: int) -> None:
        self._recorder.step(node, event, before, step, now_ns)

    # -- what the client says and hears ---------------------------------------------------------------------------

    def say(self, message: Message) -> None:
        match message:
            case Ping():
                super().say(message)
                self.give_packet(PingreqPacket())
            case ConnectWanted(client, clean, expiry_ms, receive_maximum):
                self.connect(client, clean, expiry_ms, receive_maximum)
            case _:
                packet = pack_message(message, self.find_packet_id(message))
                if self.version is not V5 and isinstance(packet, DisconnectPacket | PublishPacket):
                    packet = replace(packet, properties=NO_PROPERTIES)
                self.give_packet(packet)

    def find_packet_id(self, message: Message) -> int:
        """Under which it is published; 0: it has none."""
        return 0

    @abstractmethod
    def hear_client(self, message: Message) -> None:
        """The client hears this."""

    def take_packet(self, packet: Any) -> None:
        """The client gets it."""
        match packet:
            case DisconnectPacket() | ConnackPacket():
                self.hear_client(Farewell(self._find_why()))
            case SubackPacket(packet_id=n, reason_codes=codes) | UnsubackPacket(packet_id=n, reason_codes=codes):
                self.hear_client(Subscribed(n) if max(codes, default=0) < 0x80 else Refused(n, f"{codes}"))

    def _find_why(self) -> str:
        return (self.end.farewell if self.end is not None else "") or "lost"


def pack_message(message: Message, packet_id: int = 0) -> Any:
    """The packet that says it; `packet_id` of a PUBLISH."""
    match message:
        case SubscribeWanted(n, topic_filter, qos):
            return SubscribePacket(n, (TopicSubscription(topic_filter, qos),))
        case UnsubscribeWanted(n, topic_filter):
            return UnsubscribePacket(n, (topic_filter,))
        case LeaveWanted(expiry_ms):
            expiry = PacketProperties() if expiry_ms else PacketProperties(session_expiry=0)
            return DisconnectPacket(0, expiry)
        case Puback(packet):
            return PubackPacket(packet)
        case Pubrec(packet):
            return PubrecPacket(packet)
        case Pubcomp(packet):
            return PubcompPacket(packet)
        case PublishWanted(_, topic, payload, qos, expiry_ms):
            expiry = PacketProperties(message_expiry=None if expiry_ms is None else -(-expiry_ms // 1_000))
            return PublishPacket(topic, payload, qos, packet_id=packet_id, properties=expiry)
    raise TypeError(f"no client of MQTT says {message!r}")


class MqttSubscriber(MqttProcess, SessionSubscriberProcess):
    """A subscriber with one filter: a packet does not say which filter brought it.  Some connections it gives up
    without ending them (`half_open`): its next one takes the session from them."""

    def note_message(self, message: Message) -> None:
        if isinstance(message, Welcome):
            self._welcome_session = message.session

    def hang_up(self, away_ms: int = 0) -> None:
        end, connection = self.end, self.connection
        is_kept = end is not None and end.is_connected and away_ms and self.chance.random() < self.own.half_open
        if not is_kept:
            super().hang_up(away_ms)
            return
        assert end is not None
        self.older[connection], self.end = end, None  # the client is gone from it, and nobody notices
        self.lose_node(connection, away_ms)

    def take_packet(self, packet: Any) -> None:
        match packet:
            case ConnackPacket(session_present=present, reason_code=0):
                is_clean = self._clean
                self.hear_client(Welcome(self._welcome_session, present))
                if is_clean and self.version is not V5:  # it ends with its connection
                    self.watch.leaving(self, True)
            case PublishPacket():
                (topic_filter,) = self.wanted
                given = (packet.topic, packet.payload, topic_filter, packet.qos, packet.dup)
                self.hear_client(Delivered(packet.packet_id, *given))
            case PubrelPacket(packet_id=packet_id):
                self.hear_client(Pubrel(packet_id))
            case _:
                super().take_packet(packet)

    def hear_client(self, message: Message) -> None:
        SessionSubscriberProcess.hear(self, message)

    def handle_close(self) -> None:
        SessionSubscriberProcess.handle_close(self)
        self.lose_end()


class MqttPublisher(MqttProcess, SessionPublisherProcess):
    """A publisher; of QoS 2 it hears when its packet id is free, and of QoS 0 nothing.  It begins clean at each
    connection, or (`keep`) in each life.  Then a message of QoS 2 keeps its name and its packet id, and one of QoS 1 is
    another message when it is published again."""

    has_session = True

    def __init__(self, world: SimCluster, node: str, number: int, own: MqttSection) -> None:
        super().__init__(world, node, number, own)
        self._numbers: dict[int, int] = {}
        """Packet id in use -> number of its message."""
        self._names: dict[int, str] = {}
        """Of messages of QoS 2 of this session."""
        self._received: set[int] = set()
        """Those of them that PUBREC has come for."""
        self._sent: list[int] = []
        """Messages of QoS 0 that have gone, and of which nothing more is heard."""
        self._is_known = False

    def handle_open(self) -> None:
        is_kept = self.own.keep and self._is_known
        self.connect(self.node, not is_kept, -1 if self.own.keep else 0, 10)

    def say(self, message: Message) -> None:
        super().say(message)
        if isinstance(message, PublishWanted) and not message.qos:
            self._sent.append(message.n)

    def _feed_window(self, event: Event) -> None:
        super()._feed_window(event)
        while self._sent:
            self._forget(self._sent.pop(0))

    def _forget(self, number: int) -> None:
        self.unanswered.pop(number, None)
        super()._feed_window(CancelPublish(number))

    def find_packet_id(self, message: Message) -> int:
        return self._id_of(message.n) if isinstance(message, PublishWanted) and message.qos else 0

    def _id_of(self, number: int) -> int:
        """The one that it has, or the lowest that is free: ids are soon used again."""
        known = next((one for one, of in self._numbers.items() if of == number), 0)
        packet_id = known or next(one for one in count(1) if one not in self._numbers)
        self._numbers[packet_id] = number
        return packet_id

    def take_packet(self, packet: Any) -> None:
        match packet:
            case ConnackPacket(session_present=present, reason_code=0):
                self._begin(present)
            case PubackPacket() | PubrecPacket() if packet.reason_code >= 0x80:
                number = self._release(packet.packet_id)
                self.hear_client(Refused(number, f"{packet.reason_code}"))
            case PubackPacket(packet_id=packet_id) | PubcompPacket(packet_id=packet_id):
                number = self._numbers[packet_id]
                self.hear_client(PublishStored(number))
                self._release(packet_id)
            case PubrecPacket(packet_id=packet_id):
                self._received.add(self._numbers[packet_id])
                self.give_packet(PubrelPacket(packet_id))
            case _:
                super().take_packet(packet)

    def _release(self, packet_id: int) -> int:
        """The packet id is free: nothing more comes of its message."""
        number = self._numbers.pop(packet_id)
        self._received.discard(number)
        self._names.pop(number, None)
        return number

    def _begin(self, present: bool) -> None:
        """Everything that is not answered, in its order, again or for the first time."""
        self.watch.check("FORGOTTEN", present or not (self.own.keep and self._is_known), f"{self.node} has no session")
        self._is_known = True
        if not present:
            self._numbers.clear()
            self._names.clear()
            self._received.clear()
        SessionPublisherProcess.handle_open(self)

    def _hand_over(self, number: int) -> None:
        item, name = self.unanswered[number], self._names.get(number)
        if name is not None:
            watch: Any = self.watch
            watch.observe_repeat()
        if number in self._received:
            self.give_packet(PubrelPacket(self._id_of(number)))
        elif name is not None:
            self.give_packet(PublishPacket(item.topic, name.encode(), 2, dup=True, packet_id=self._id_of(number)))
        elif self.end is not None and self.end.is_connected:
            if item.qos == 2 and self.own.keep:
                self._names[number] = f"{self.connection}/2:{number}"
            elif not item.qos:
                self._names[number] = f"{self.connection}/0:{number}"
            super()._hand_over(number)
            if not item.qos:
                del self._names[number]

    def _name(self, number: int) -> str:
        return self._names.get(number) or super()._name(number)

    def hear_client(self, message: Message) -> None:
        SessionPublisherProcess.hear(self, message)

    def handle_close(self) -> None:
        SessionPublisherProcess.handle_close(self)
        self.lose_end()
