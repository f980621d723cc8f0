"""MqttSession: what a connection tells its session, as messages to the node of sessions, and back.

The node owns the session, what is in flight in it, and its routes.  Here are packet ids of the client's own messages
and requests, until the node has answered them.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable
from typing import Any, Final
from uuid import uuid4

from statemachines.drivers.clock import steady_ns
from statemachines.drivers.identity import Identity
from statemachines.drivers.mqtt_connections.client_stream import ClientStream
from statemachines.drivers.mqtt_connections.dead_letters import DeadLetters
from statemachines.drivers.mqtt_connections.message_properties import (
    NO_OPTIONS,
    SubscriptionOptions,
    read_message,
    write_head,
    write_will_head,
)
from statemachines.drivers.password_file import PasswordFile
from statemachines.drivers.persistent_sessions.client_requests import NO_RETAINED, NOT_ALLOWED
from statemachines.drivers.persistent_sessions.node_link import NodeLink
from statemachines.drivers.persistent_sessions.node_messages import (
    FRONT_INSTANCE,
    DeliveryRun,
    FrontConnect,
    FrontPublish,
    FrontSubscribe,
    OptionsFound,
    OptionsWanted,
    PacketReleased,
    PublishUnmatched,
    RetainedBrought,
    RetainHandling,
    SessionWill,
    WillDropped,
)
from statemachines.drivers.persistent_sessions.route_trie import RouteTrie
from statemachines.drivers.persistent_sessions.session_node import SessionNode
from statemachines.drivers.topic import check_filter, check_topic_text, is_shared
from statemachines.kernel import ConfigurationError, Event, Message
from statemachines.mqtt_codec.codec_error import ProtocolViolation, ReasonCode
from statemachines.mqtt_codec.packet import MqttVersion, PublishPacket, WillMessage
from statemachines.mqtt_connections import session_event as s
from statemachines.mqtt_connections.connection_record import OPENING, IncomingStage
from statemachines.mqtt_connections.takeover_limit import TakeoverLimit
from statemachines.persistent_sessions.message import (
    Delivered,
    Farewell,
    FrontAcknowledged,
    LeaveWanted,
    Ping,
    Puback,
    Pubcomp,
    PublishStored,
    Pubrec,
    Pubrel,
    Refused,
    Subscribed,
    SubscribeWanted,
    UnsubscribeWanted,
    Welcome,
)
from statemachines.shared_subscriptions.stream_store import parse_filter

FOREVER_S: Final = 2**32 - 1
CLIENT_ID_MAX: Final = 1_024
"""Bytes of the longest client id: a database has it in an index."""

IN_FLIGHT_MAX: Final = 8_000
"""Messages that a client has not acknowledged: each costs more where there are more (MQ-212)."""

PUBLISHING_MAX: Final = 500
PUBLISHING_BYTES_MAX: Final = 2 * 2**20
"""Messages of a client that are on their way into the database, and their bytes: so long it is not read."""

FILTER_BYTES_MAX: Final = 1_024
FILTERS_MAX: Final = 1_000
"""Filters of one SUBSCRIBE that are looked at, as many as a session may have; beyond they are refused."""

WAITING_MAX: Final = 1_000
"""Deliveries that wait for the options of a session; beyond, messages of QoS 0 are dropped."""

CHANGES_MAX: Final = 8
"""Filters of a client that are on their way into the database; those behind wait."""

RETAINED_A_SECOND: Final = 5_000
"""Retained messages that the filters of a client bring; those behind wait (MQ-244)."""

REFUSALS: Final = {
    "refused": (ReasonCode.CLIENT_ID_INVALID, ReasonCode.PROTOCOL_ERROR),
    "full": (ReasonCode.QUOTA_EXCEEDED, ReasonCode.QUOTA_EXCEEDED),
    "closing": (ReasonCode.SERVER_UNAVAILABLE, ReasonCode.SERVER_SHUTTING_DOWN),
    "denied": (ReasonCode.NOT_AUTHORIZED, ReasonCode.NOT_AUTHORIZED),
    "no_store": (ReasonCode.SERVER_UNAVAILABLE, ReasonCode.SERVER_SHUTTING_DOWN),
}
"""Why a session ends -> what CONNACK says, and DISCONNECT.  Any other is 0x88 and 0x80."""

NO_CLIENT_ID: Final = {
    MqttVersion.V3_1_1: ReasonCode.CLIENT_ID_INVALID,
    MqttVersion.V5: ReasonCode.UNSPECIFIED_ERROR,
}
"""How an empty client id is refused: MQTT 5 leaves the code free (3.1.3.1), and mosquitto says this one."""

BRIDGE_STATE: Final = re.compile(r"\$SYS/broker/connection/[^/]+/state")
"""Where a bridge of mosquitto tells whether it is connected."""

TOO_LARGE: Final = ReasonCode.PACKET_TOO_LARGE

REFUSED_S: Final = 1.0
"""So late a client is refused that would try again at once."""

REFUSED_LATE: Final = {
    ReasonCode.NOT_AUTHORIZED: "its user name or password is wrong",
    ReasonCode.SERVER_UNAVAILABLE: "too many passwords wait to be verified",
    ReasonCode.QUOTA_EXCEEDED: "connections of its client id take each other over",
}
"""What the log says of it."""


class FilterChange:
    """A SUBSCRIBE or UNSUBSCRIBE that waits for the node: its codes, as far as they are known."""

    __slots__ = ("codes", "earlier", "is_subscribe", "open", "packet_id")

    def __init__(self, packet_id: int, count: int, is_subscribe: bool) -> None:
        self.packet_id = packet_id
        self.codes = [0] * count
        self.open = count
        self.is_subscribe = is_subscribe
        self.earlier: dict[int, tuple[str, SubscriptionOptions | None]] = {}
        """Of a filter that may be refused: what it had before."""


class MqttSession:
    """The session behind one connection.

    Args:
        node: that owns sessions.
        stream: of the client.
        takeovers: counts those of each client id.
        users: checks user names and passwords; None: there are none.
        allows_anonymous: a client without a user name may connect.
    """

    def __init__(
        self,
        node: SessionNode,
        stream: ClientStream,
        takeovers: TakeoverLimit,
        users: PasswordFile | None,
        allows_anonymous: bool,
    ) -> None:
        self._node = node
        self._stream = stream
        self._takeovers = takeovers
        self._letters = DeadLetters(node)
        self._users = users
        self.user: str | None = None
        """Whose password was right."""
        self._allows_anonymous = allows_anonymous
        self._link: NodeLink | None = None
        self._client_id = ""
        self._identity = Identity()
        self._count = 0
        self._publishing: dict[int, tuple[int, int]] = {}
        """Number of a message -> its packet id, and its bytes."""
        self._publishing_bytes = 0
        self._changes: dict[int, tuple[FilterChange, int]] = {}
        """Number of a filter that the node was asked for -> its change, and its place in it."""
        self._waiting: deque[tuple[SubscribeWanted | UnsubscribeWanted, FilterChange, int]] = deque()
        self._bringing = 0
        """Filters whose retained messages are not stored yet: meanwhile, and until the next time, those behind wait."""
        self._changes_from_ns = 0
        self._options: dict[str, SubscriptionOptions] = {}
        """Filter that the session subscribes -> its options."""
        self._identified: RouteTrie | None = None
        """Subscription identifiers of filters, in the place of sessions; None: there was none."""
        self._not_local: frozenset[str] = frozenset()
        """Filters by which the client does not get its own messages."""
        self._deliveries: list[Delivered | Pubrel] | None = None
        """What waits until the options are known; None: they are."""
        self._ready: list[PublishPacket] = []
        """Messages of QoS 1 and 2 for the client that have come in this turn of the loop."""
        self._stored: list[int] = []
        """Packet ids of messages of QoS 1 of the client that are stored, in this turn of the loop."""
        self._expected: dict[int, str] = {}
        """Packet id of a message of the node -> the answer of the client that is the next; "refused": it was."""
        self._tells: dict[type[Event], Callable[[Any], None]] = {
            s.SessionWanted: self._open,
            s.MessagePublished: lambda event: self._publish_all((event.packet,)),
            s.MessagesPublished: lambda event: self._publish_all(event.packets),
            s.MessageReleased: self._release,
            s.FiltersWanted: self._subscribe,
            s.FiltersUnwanted: self._unsubscribe,
            s.DeliveryAnswered: self._answer,
            s.DeliveryDropped: self._drop,
            s.MqttConnectionOver: self._end,
        }
        self._messages: dict[type[Message], Callable[[Any], None]] = {
            Welcome: self._welcome,
            Delivered: self._deliver,
            DeliveryRun: self._deliver_run,
            Pubrel: self._deliver_release,
            PublishStored: self._note_stored,
            PublishUnmatched: self._note_unmatched,
            PacketReleased: self._note_release,
            OptionsFound: self._take_options,
            Subscribed: self._note_change,
            RetainedBrought: self._note_retained,
            Refused: self._note_refusal,
            Farewell: self._note_end,
        }

    def take_tell(self, event: Event) -> None:
        """What the machine of the connection tells."""
        self._tells[type(event)](event)

    def enter_node(self) -> NodeLink:
        """A link to the node; a simulation has one of its own."""
        return NodeLink.local(self._node, self._take, lambda: None, self._identity, self._send_ready, hears_runs=True)

    def leave_node(self, link: NodeLink) -> None:
        """End the link, behind what was said over it."""
        asyncio.get_running_loop().call_soon(link.leave)

    def name_connection(self) -> str:
        """A name that no other connection has."""
        return str(uuid4())

    def ping(self) -> None:
        """The node hears that the client is there: the keep alive of MQTT is its own (MQ-51)."""
        self._say(Ping())

    def _say(self, message: Message) -> None:
        if self._link is not None:
            self._link.say(message)

    def take_message(self, message: Message) -> None:
        """What the node says."""
        self._take(message)
        self._send_ready()

    def _take(self, message: Message) -> None:
        """The same; messages for the client wait for those that come with them."""
        take = self._messages.get(type(message))
        if take is not None:
            kind = type(message)
            if (self._ready and kind not in (Delivered, DeliveryRun)) or (self._stored and kind is not PublishStored):
                self._send_ready()
            take(message)

    def _send_ready(self) -> None:
        """Messages that came together are one event for the machine, and so are those that were stored together."""
        if self._stored:
            stored, self._stored = self._stored, []
            self._stream.feed(s.PublishesStored(tuple(stored)))
        if self._ready:
            (first, *more), self._ready = self._ready, []
            self._stream.feed(s.DeliveryReady(first, tuple(more)))

    # -- the session ----------------------------------------------------------------------------------------------

    def _open(self, event: s.SessionWanted) -> None:
        record = self._stream.record
        if not event.client_id and not record.settings.assigns_client_ids:
            self._stream.feed(s.SessionRefused(NO_CLIENT_ID[record.version]))
        elif self._allows_anonymous and (event.user_name is None or self._users is None):
            self._connect(event)
        else:
            self._task = asyncio.ensure_future(self._check_user(event))

    async def _check_user(self, event: s.SessionWanted) -> None:
        """A wrong password is answered late: nobody tries many.  One that is not verified is not wrong (MQ-174)."""
        users, user, password = self._users, event.user_name, event.password
        address = self._stream.record.party.rpartition(":")[0]
        if users is None or (users.is_busy(user, address) and not users.is_known(user, password)):
            await self._refuse_late(ReasonCode.NOT_AUTHORIZED if users is None else ReasonCode.SERVER_UNAVAILABLE)
        elif await users.check_password(user, password, address):
            self.user = user
            self._connect(event)
        else:
            await self._refuse_late(ReasonCode.NOT_AUTHORIZED)

    async def _refuse_late(self, code: ReasonCode) -> None:
        await asyncio.sleep(REFUSED_S)
        if self._stream.record.status is OPENING:
            self._stream.error = ProtocolViolation(REFUSED_LATE[code], "3.1.4")
            self._stream.feed(s.SessionRefused(code))

    def _connect(self, event: s.SessionWanted) -> None:
        if self._stream.record.status is not OPENING:
            return
        self._client_id = event.client_id or f"auto-{uuid4()}"
        if len(self._client_id.encode()) > CLIENT_ID_MAX:
            self._stream.feed(s.SessionRefused(ReasonCode.CLIENT_ID_INVALID))
            return
        if self._takeovers.is_reached(self._client_id, steady_ns()):
            self._task = asyncio.ensure_future(self._refuse_late(ReasonCode.QUOTA_EXCEEDED))
            return
        if event.will is not None and (not is_topic(event.will.topic) or is_server_topic(event.will.topic)):
            self._stream.feed(s.SessionRefused(ReasonCode.TOPIC_NAME_INVALID))
            return
        names = frozenset() if event.user_name is None or self._users is None else frozenset({event.user_name})
        self._identity = Identity(names | self._stream.certified, bool(self._stream.certified))
        self._link = self.enter_node()
        expiry_ms, instance = milliseconds_of(event.expiry_s), f"{FRONT_INSTANCE}{self.name_connection()}"
        will = None if event.will is None else build_will(event.will, self._identity)
        most = min(event.receive_maximum, IN_FLIGHT_MAX)
        given = (self._client_id, event.clean_start, expiry_ms, most, instance)
        self._say(FrontConnect(*given, will=will))

    def _welcome(self, message: Welcome) -> None:
        if message.present:
            self._deliveries = []
            self._say(OptionsWanted(0))
        else:
            self._stream.feed(s.MqttSessionOpened(self._client_id, False))

    def _take_options(self, message: OptionsFound) -> None:
        for topic_filter, number in message.filters.items():
            self._set_options(topic_filter, SubscriptionOptions.of(number))
        self._stream.feed(s.MqttSessionOpened(self._client_id, True, message.packets))
        deliveries, self._deliveries = self._deliveries or [], None
        for one in deliveries:
            self._take(one)
        self._send_ready()

    def _note_end(self, message: Farewell) -> None:
        why = message.why
        link, self._link = self._link, None
        if why in ("superseded", "discarded"):
            self._takeovers.note_takeover(self._client_id, steady_ns())
            self._stream.feed(s.MqttSessionTaken())
        elif self._stream.record.status is OPENING:
            code, _ = REFUSALS.get(why, (ReasonCode.SERVER_UNAVAILABLE, 0))
            self._stream.feed(s.SessionRefused(code))
        else:
            _, code = REFUSALS.get(why, (0, ReasonCode.UNSPECIFIED_ERROR))
            self._stream.stop(code)
        if link is not None:
            self.leave_node(link)

    def _end(self, event: s.MqttConnectionOver) -> None:
        """The session is left, and lives on for as long as the client said."""
        link, self._link = self._link, None
        if event.reason_code == ReasonCode.PROTOCOL_ERROR:
            self._stream.error = self._stream.error or ProtocolViolation("a packet came that may not come then", "4.13")
        self._stream.set_room(True)
        if link is not None and not event.sends_will:
            link.say(WillDropped())
        if link is not None:
            link.say(LeaveWanted(milliseconds_of(event.expiry_s)))
            self.leave_node(link)

    # -- what the client publishes --------------------------------------------------------------------------------

    def _publish_all(self, packets: tuple[PublishPacket, ...]) -> None:
        """Behind a refusal that ends the connection nothing is published (MQ-243)."""
        for packet in packets:
            if not self._publish(packet):
                return

    def _publish(self, packet: PublishPacket) -> bool:
        """Whether the connection goes on: a refusal ends that of a client of 3.1.1."""
        try:
            check_topic_text(packet.topic)
        except ConfigurationError:
            is_share = packet.topic.startswith("$share/")
            code = ReasonCode.NOT_AUTHORIZED if is_share else ReasonCode.TOPIC_NAME_INVALID
            return self._answer_publish(packet.packet_id, code)
        if packet.topic.startswith("$") and is_server_topic(packet.topic):
            # 3.1.1 acknowledges what it does not take (3.3.5).
            is_5 = self._stream.record.version is MqttVersion.V5
            return self._answer_publish(packet.packet_id, ReasonCode.NOT_AUTHORIZED if is_5 else ReasonCode.SUCCESS)
        try:
            head = write_head(packet)
        except ConfigurationError:
            return self._answer_publish(packet.packet_id, ReasonCode.QUOTA_EXCEEDED)
        self._count += 1
        size = len(packet.payload) + len(packet.topic)
        self._publishing[self._count] = (packet.packet_id, size)
        self._publishing_bytes += size
        if not self._has_room():
            self._stream.set_room(False)
        expiry = packet.properties.message_expiry
        expiry_ms = None if expiry is None else max(1, expiry * 1_000)
        given = (self._count, packet.topic, packet.payload, packet.qos, expiry_ms, head, packet.retain)
        self._say(FrontPublish(*given, self._not_local, packet.packet_id if packet.qos == 2 else 0))
        return True

    def _has_room(self) -> bool:
        return len(self._publishing) < PUBLISHING_MAX and self._publishing_bytes < PUBLISHING_BYTES_MAX

    def _note_unmatched(self, message: PublishUnmatched) -> None:
        """PUBACK may say so; for PUBREC that would be one more code that refuses nothing."""
        packet_id, _ = self._publishing[message.n]
        is_qos_1 = self._stream.record.incoming.get(packet_id) is IncomingStage.STORING_1
        self._end_publish(message.n, ReasonCode.NO_MATCHING_SUBSCRIBERS if is_qos_1 else ReasonCode.SUCCESS)

    def _note_stored(self, message: PublishStored) -> None:
        packet_id = self._take_published(message.n)
        if self._stream.record.incoming.get(packet_id) is IncomingStage.STORING_1:
            self._stored.append(packet_id)
        else:
            self._answer_publish(packet_id, ReasonCode.SUCCESS)

    def _end_publish(self, n: int, code: int) -> None:
        self._answer_publish(self._take_published(n), code)

    def _take_published(self, n: int) -> int:
        """The packet id of a message that is on its way no more; 0: it has none."""
        packet_id, size = self._publishing.pop(n)
        self._publishing_bytes -= size
        if not self._stream.has_room and self._has_room() and not self._waiting:
            self._stream.set_room(True)
        return packet_id

    def _answer_publish(self, packet_id: int, code: int) -> bool:
        """Whether the connection goes on."""
        if not packet_id:
            return True
        self._stream.feed(s.PublishStoredAs(packet_id, code))
        return code < 0x80 or self._stream.record.version is MqttVersion.V5

    def _release(self, event: s.MessageReleased) -> None:
        self._say(PacketReleased(event.packet_id))

    def _note_release(self, message: PacketReleased) -> None:
        self._stream.feed(s.ReleaseStored(message.packet))

    # -- what it subscribes ---------------------------------------------------------------------------------------

    def _subscribe(self, event: s.FiltersWanted) -> None:
        change = FilterChange(event.packet_id, len(event.subscriptions), True)
        for place, one in enumerate(event.subscriptions):
            code = self._refuse_filter(one.filter, one.no_local) if place < FILTERS_MAX else ReasonCode.QUOTA_EXCEEDED
            if code:
                self._settle(change, place, code)
                continue
            options = SubscriptionOptions(one.no_local, one.retain_as_published, event.subscription_id or 0)
            change.earlier[place] = (one.filter, self._options.get(one.filter))
            self._set_options(one.filter, options)
            change.codes[place] = one.qos
            self._count += 1
            handling = RetainHandling(one.retain_handling)
            wanted = FrontSubscribe(self._count, one.filter, one.qos, options.number, handling)
            self._waiting.append((wanted, change, place))
        self._ask_changes()

    def _restore_options(self, change: FilterChange, place: int) -> None:
        """A refused subscription changes nothing: what is kept of a client does not grow by what it may not have."""
        topic_filter, options = change.earlier.get(place, ("", None))
        self._set_options(topic_filter, options or NO_OPTIONS)
        if options is None:
            self._options.pop(topic_filter)

    def _set_options(self, topic_filter: str, options: SubscriptionOptions) -> None:
        self._forget_id(topic_filter)
        self._options[topic_filter] = options
        if options.subscription_id:
            self._identified = self._identified or RouteTrie()
            self._identified.put(str(options.subscription_id), topic_filter, 0)
        if options.no_local:
            self._not_local |= {topic_filter}
        else:
            self._not_local -= {topic_filter}

    def _forget_id(self, topic_filter: str) -> None:
        if self._identified is not None:
            known = self._options.get(topic_filter, NO_OPTIONS)
            self._identified.remove(str(known.subscription_id), topic_filter)

    def _refuse_filter(self, topic_filter: str, is_not_local: bool) -> int:
        """The code for a filter that the node cannot have; 0: it can."""
        if len(topic_filter.encode()) > FILTER_BYTES_MAX:
            return ReasonCode.TOPIC_FILTER_INVALID
        try:
            check_filter(topic_filter)
        except ConfigurationError:
            return ReasonCode.TOPIC_FILTER_INVALID
        if not is_shared(topic_filter):
            return 0
        if not self._node.shares_streams:
            return ReasonCode.SHARED_NOT_SUPPORTED
        if is_not_local:  # of $queue/GROUP/FILTER: for the standard it is no group (MQ-222)
            return ReasonCode.IMPLEMENTATION_ERROR
        try:
            parse_filter(topic_filter)
        except ConfigurationError:
            return ReasonCode.TOPIC_FILTER_INVALID
        return 0

    def _unsubscribe(self, event: s.FiltersUnwanted) -> None:
        change = FilterChange(event.packet_id, len(event.filters), False)
        for place, one in enumerate(event.filters):
            self._forget_id(one)
            if self._options.pop(one, None) is None:
                self._settle(change, place, ReasonCode.NO_SUBSCRIPTION_EXISTED)
                continue
            self._not_local -= {one}
            self._count += 1
            self._waiting.append((UnsubscribeWanted(self._count, one), change, place))
        self._ask_changes()

    def _ask_changes(self) -> None:
        pause_ns = self._changes_from_ns - steady_ns()
        if self._waiting and not self._bringing and pause_ns > 0:
            asyncio.get_running_loop().call_later(pause_ns / 10**9, self._ask_changes)
        is_held = self._bringing > 0 or pause_ns > 0
        while self._waiting and len(self._changes) < CHANGES_MAX and not is_held:
            wanted, change, place = self._waiting.popleft()
            self._changes[wanted.n] = (change, place)
            self._say(wanted)
        if self._waiting:
            self._stream.set_room(False)
        elif self._has_room():
            self._stream.set_room(True)

    def _note_retained(self, message: RetainedBrought) -> None:
        """What one client subscribes again and again keeps no other one waiting."""
        if not message.are_stored:
            self._bringing += 1
            return
        self._bringing -= 1
        pause_ns = message.count * 10**9 // RETAINED_A_SECOND
        self._changes_from_ns = max(self._changes_from_ns, steady_ns()) + pause_ns
        self._ask_changes()

    def _note_change(self, message: Subscribed) -> None:
        change, place = self._changes.pop(message.n)
        self._settle(change, place, change.codes[place])
        self._ask_changes()

    def _note_refusal(self, message: Refused) -> None:
        if message.n in self._publishing:
            is_quota = message.why in ("busy", NO_RETAINED)
            code = ReasonCode.QUOTA_EXCEEDED if is_quota else ReasonCode.UNSPECIFIED_ERROR
            self._end_publish(message.n, ReasonCode.NOT_AUTHORIZED if NOT_ALLOWED in message.why else code)
            return
        refused = self._changes.pop(message.n, None)
        if refused is None:  # it asked for options; its session has ended, and a farewell says so
            return
        change, place = refused
        self._restore_options(change, place)
        has_quota = message.why == "busy" or "may not have more" in message.why
        code = ReasonCode.QUOTA_EXCEEDED if has_quota else ReasonCode.UNSPECIFIED_ERROR
        self._settle(change, place, ReasonCode.NOT_AUTHORIZED if NOT_ALLOWED in message.why else code)
        self._ask_changes()

    def _settle(self, change: FilterChange, place: int, code: int) -> None:
        change.codes[place] = code
        change.open -= 1
        if not change.open:
            kind = s.FiltersStored if change.is_subscribe else s.FiltersRemoved
            self._stream.feed(kind(change.packet_id, tuple(change.codes)))

    # -- what is delivered ----------------------------------------------------------------------------------------

    def _deliver(self, message: Delivered) -> None:
        if self._deliveries is not None:
            if message.packet or len(self._deliveries) < WAITING_MAX:
                self._deliveries.append(message)
            return
        packet_ids = () if self._identified is None else self._find_ids(message)
        packet = read_message(message, self._options.get(message.filter, NO_OPTIONS), packet_ids)
        if self._letters.is_on:
            self._letters.note_delivery(message)
        if message.packet:
            self._expected[message.packet] = "puback" if message.qos == 1 else "pubrec"
            self._ready.append(packet)
        else:
            self._send_ready()
            self._stream.feed(s.DeliveryReady(packet))

    def _deliver_run(self, message: DeliveryRun) -> None:
        """Plain messages, of which there may be thousands, take no call for each."""
        is_plain = self._deliveries is None and self._identified is None and not self._letters.is_on
        for one in message.messages:
            if is_plain and isinstance(one, Delivered) and one.packet and one.head is None and one.expiry_ms is None:
                self._expected[one.packet] = "puback" if one.qos == 1 else "pubrec"
                self._ready.append(PublishPacket(one.topic, one.payload, one.qos, False, one.dup, one.packet))
            else:
                self._take(one)

    def _find_ids(self, message: Delivered) -> tuple[int, ...]:
        """Identifiers of all subscriptions that the topic matches; of a message of a group, that of its own."""
        if self._identified is None:
            return ()
        if is_shared(message.filter):
            own = self._options.get(message.filter, NO_OPTIONS).subscription_id
            return (own,) if own else ()
        found = {int(route.session) for route in self._identified.match(message.topic)}
        return tuple(sorted(found))

    def _deliver_release(self, message: Pubrel) -> None:
        if self._deliveries is not None:
            self._deliveries.append(message)
            return
        packet_id = message.packet
        if self._expected.get(packet_id) == "refused":
            del self._expected[packet_id]
            self._say(Pubcomp(packet_id))
            return
        self._expected[packet_id] = "pubcomp"
        self._stream.feed(s.ReleaseReady(packet_id))

    def _answer(self, event: s.DeliveryAnswered) -> None:
        if event.more:
            self._answer_all((event.packet_id, *event.more))
            return
        packet_id, answer = event.packet_id, event.answer
        expected = self._expected.get(packet_id)
        if expected is None:
            return  # of an earlier connection, or of none
        if answer not in (expected, "pubrec" if expected == "pubcomp" else expected):
            self._stream.feed(s.UnexpectedAnswer())
        elif event.reason_code >= 0x80:
            self._letters.store(packet_id, event.reason_code, lambda: self._refuse(packet_id, answer))
        elif answer == "pubrec":
            self._say(Pubrec(packet_id))
        else:
            del self._expected[packet_id]
            self._letters.forget((packet_id,))
            self._say(Puback(packet_id) if answer == "puback" else Pubcomp(packet_id))

    def _answer_all(self, packet_ids: tuple[int, ...]) -> None:
        """PUBACKs of success that came together; nothing behind an unexpected one is heard."""
        expected, found = self._expected, []
        for one in packet_ids:
            answer = expected.get(one)
            if answer == "puback":
                del expected[one]
                found.append(one)
            elif answer is not None:
                self._stream.feed(s.UnexpectedAnswer())
                break
        self._letters.forget(found)
        self._say(FrontAcknowledged(tuple(found)))

    def _drop(self, event: s.DeliveryDropped) -> None:
        if event.packet_id:
            answer = self._expected[event.packet_id]
            self._letters.store(event.packet_id, TOO_LARGE, lambda: self._refuse(event.packet_id, answer))

    def _refuse(self, packet_id: int, answer: str) -> None:
        """The client does not take the message, and it is not sent again (MQTT-4.8.2-6)."""
        if answer == "pubrec":
            self._expected[packet_id] = "refused"
            self._say(Pubrec(packet_id))
        else:
            del self._expected[packet_id]
            self._say(Puback(packet_id) if answer == "puback" else Pubcomp(packet_id))


def is_topic(topic: str) -> bool:
    """Whether a node of sessions takes it."""
    try:
        check_topic_text(topic)
    except ConfigurationError:
        return False
    return True


def is_server_topic(topic: str) -> bool:
    """Whether clients do not publish there (4.7.2)."""
    return topic.startswith("$SYS/") and BRIDGE_STATE.fullmatch(topic) is None


def build_will(will: WillMessage, identity: Identity) -> SessionWill:
    """The will as a node of sessions has it."""
    properties = will.properties
    expiry = None if properties.message_expiry is None else max(1, properties.message_expiry * 1_000)
    delay = (properties.will_delay or 0) * 1_000
    return SessionWill(will.topic, will.payload, will.qos, will.retain, expiry, write_will_head(will), delay, identity)


def milliseconds_of(expiry_s: int) -> int:
    """The expiry as a node of sessions has it."""
    return -1 if expiry_s == FOREVER_S else expiry_s * 1_000
