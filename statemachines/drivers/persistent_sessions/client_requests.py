"""PublishRequests: what the clients of a node publish, until it is stored and they are answered.

SubscriptionRequests: what the clients of a node want to subscribe, or not any more.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from statemachines.drivers.message_head import decode_head
from statemachines.drivers.persistent_sessions.client_connection import NOT_ALLOWED, ClientConnection, Tell
from statemachines.drivers.persistent_sessions.host_requests import ReadStoreTime
from statemachines.drivers.persistent_sessions.node_messages import (
    FrontPublish,
    FrontSubscribe,
    OptionsFound,
    OptionsWanted,
    PacketReleased,
    PublishUnmatched,
    RetainedBrought,
    RetainHandling,
)
from statemachines.drivers.persistent_sessions.outbox import UnstoredMessage, UnstoredMessages
from statemachines.drivers.persistent_sessions.payloads import Payload
from statemachines.drivers.persistent_sessions.request_queue import RequestQueue
from statemachines.drivers.persistent_sessions.route_rows import (
    FILTERS_MAX,
    FrontSubscribed,
    PacketsFound,
    PublisherPacket,
    PutMessage,
    ReadOptions,
    ReadPackets,
    ReleasePacket,
    RetainedFull,
    Routes,
    Subscribe,
    SubscribeFront,
    Unsubscribe,
)
from statemachines.drivers.persistent_sessions.route_trie import check_private, is_for_owner, is_for_session
from statemachines.drivers.topic import check_filter, check_topic_text, is_shared
from statemachines.kernel import ConfigurationError
from statemachines.persistent_sessions.life_record import CONNECTED, LifeRecord
from statemachines.persistent_sessions.message import (
    Delivered,
    PublishStored,
    PublishWanted,
    PublishWithHead,
    Refused,
    Subscribed,
    SubscribeWanted,
    UnsubscribeWanted,
)
from statemachines.persistent_sessions.session_host import SessionHost
from statemachines.persistent_sessions.session_host_parties import life_of_owner
from statemachines.persistent_sessions.session_host_record import MatchedMessage

if TYPE_CHECKING:
    from statemachines.drivers.persistent_sessions.group_membership import GroupMembership

PUBLISHES_MAX: Final = 100_000
"""Messages of publishers that are on their way into the database, of all publishers together."""

PUBLISHED_BYTES_MAX: Final = 256 * 2**20
"""The same, in bytes of payload."""

PUBLISHER_MAX: Final = 1_000
"""Messages of one publisher that are on their way into the database: so long others wait behind it."""

PUBLISHER_BYTES_MAX: Final = 4 * 2**20
"""The same, in bytes of payload; one message may be larger."""

NOT_LOCAL: Final = frozenset[tuple[str, str]]()
"""Subscriptions that are not to have the message, where there are none."""

NO_RETAINED: Final = "as many messages are retained as may be, or bytes of them"


class PublishRequests:
    """`host`, `desk`: of the node; `messages` on their way into the database; `tell` answers a client, and
    `tell_stored` tells it that a message is stored."""

    def __init__(
        self,
        host: SessionHost,
        desk: RequestQueue,
        messages: UnstoredMessages,
        tell: Tell,
        tell_stored: Callable[[str, PublishStored], None],
    ) -> None:
        self._host = host
        self._desk = desk
        self._messages = messages
        self._tell = tell
        self._tell_stored = tell_stored
        self._publishing = 0
        self._publishing_bytes = 0

    def publish(self, life: str, visitor: ClientConnection, asked: PublishWanted) -> None:
        size = len(asked.payload)
        try:
            check_topic_text(asked.topic)
            if isinstance(asked, PublishWithHead) and asked.head:
                decode_head(asked.head)
                size += len(asked.head)
        except ConfigurationError as error:
            self._tell(life, Refused(asked.n, str(error)))
            return
        if not self._has_room(visitor, size):
            self._tell(life, Refused(asked.n, "busy"))
            return
        self._count(visitor, 1, size)
        given = (life, visitor, asked, size)
        if visitor.rights.may_at_once("publish", asked.topic):
            self._store(*given)
            return
        visitor.rights.ask("publish", asked.topic, partial(self._store, *given), partial(self._refuse, *given))

    def _refuse(self, life: str, visitor: ClientConnection, asked: PublishWanted, size: int) -> None:
        self._count(visitor, -1, -size)
        self._tell(life, Refused(asked.n, f"the topic {NOT_ALLOWED}"))

    def _store(self, life: str, visitor: ClientConnection, asked: PublishWanted, size: int) -> None:
        message = self._messages.new_message()
        head = (asked.head or None) if isinstance(asked, PublishWithHead) else None
        retain, packet, without = False, None, NOT_LOCAL
        if isinstance(asked, FrontPublish):
            retain = asked.retain
            packet = self._packet_of(visitor, asked.packet) if asked.packet else None
            without = self._not_local(visitor, asked.not_by) if asked.not_by else without
        stored = partial(self._answer, life, visitor, asked, size)

        def take(its: Routes | RetainedFull | None) -> None:
            if not isinstance(its, tuple):
                self._count(visitor, -1, -size)
                if its is not None:  # else another connection has the session, and repeats what was not answered
                    self._tell(life, Refused(asked.n, NO_RETAINED))
                return
            payload = Payload(asked.topic, asked.payload, head)
            if is_for_owner(its):
                self._messages.send_directly(payload, asked.expiry_ms, its)
            if not is_for_session(its):
                # A group's stream or an owner may have it, and a filter of its own may match.
                stored(is_matched=bool(its or without))
                return
            since_ns = visitor.since_ns or 0
            unstored = UnstoredMessage(payload, stored, packet is not None)
            self._messages.hand(message, unstored, self._messages.hand_to(its, asked.qos), since_ns)

        if visitor.since_ns is None:
            self._ask_since(visitor)
        given = (message, asked.topic, asked.payload, asked.qos, asked.expiry_ms, head, retain)
        publisher = visitor.rights.publisher if retain else b""
        self._desk.give(PutMessage(*given, packet, without, publisher=publisher), take)

    def _ask_since(self, visitor: ClientConnection) -> None:
        """What it has published at other nodes was stored before it publishes here: the time is answered first."""

        def take(since_ns: int) -> None:
            visitor.since_ns = since_ns

        visitor.since_ns = 0
        self._desk.give(ReadStoreTime(), take)

    def release(self, life: str, visitor: ClientConnection, asked: PacketReleased) -> None:
        """The client is answered when that is durable; one whose session another has is not."""
        released = self._packet_of(visitor, asked.packet)
        if released is not None:
            self._desk.give(ReleasePacket(released), lambda is_done: self._tell(life, asked) if is_done else None)

    def _packet_of(self, visitor: ClientConnection, number: int) -> PublisherPacket | None:
        """The packet id, under the token of the session; None: there is none."""
        node = self._host.nodes.get(life_of_owner(visitor.owner)) if number else None
        return None if node is None else PublisherPacket(node.record.session, node.record.token, number)

    def _not_local(self, visitor: ClientConnection, filters: frozenset[str]) -> frozenset[tuple[str, str]]:
        """The subscriptions by which the session of this client is not to have its own message."""
        node = self._host.nodes.get(life_of_owner(visitor.owner))
        return frozenset() if node is None else frozenset((node.record.session, one) for one in filters)

    def _answer(
        self, life: str, visitor: ClientConnection, asked: PublishWanted, size: int, *, is_matched: bool = True
    ) -> None:
        """It is stored, or nobody is there that it is for."""
        self._count(visitor, -1, -size)
        if not is_matched and isinstance(asked, FrontPublish):
            self._tell(life, PublishUnmatched(asked.n))
        else:
            self._tell_stored(life, PublishStored(asked.n))

    def _has_room(self, visitor: ClientConnection, size: int) -> bool:
        """Whether a payload may be on its way as well: of this publisher, and of all."""
        if visitor.publishing >= PUBLISHER_MAX or self._publishing >= PUBLISHES_MAX:
            return False
        if visitor.publishing and visitor.bytes + size > PUBLISHER_BYTES_MAX:
            return False
        return self._publishing_bytes + size <= PUBLISHED_BYTES_MAX

    def _count(self, visitor: ClientConnection, messages: int, size: int) -> None:
        visitor.publishing += messages
        visitor.bytes += size
        self._publishing += messages
        self._publishing_bytes += size


WHY_NOT_CHANGED: Final = {
    False: "another connection has the session",
    None: f"the session has {FILTERS_MAX} filters, and may not have more; unsubscribe one",
}

CHANGES_MAX: Final = 100
"""Subscriptions and their ends of one client that are on their way into the database."""

WISHES_MAX: Final = CHANGES_MAX + PUBLISHER_MAX
"""What one client wants, and waits for permission: it has no more under way than that."""


class SubscriptionRequests:
    """`host`, `desk`: of the node; `messages` on their way into the database; `tell` answers a client, and
    `deliver` brings it a message; `find_carrier()`: what brings messages of groups into sessions (None: nothing
    does)."""

    def __init__(
        self,
        host: SessionHost,
        desk: RequestQueue,
        messages: UnstoredMessages,
        tell: Tell,
        deliver: Callable[[str, Delivered], object],
        find_carrier: Callable[[], GroupMembership | None],
    ) -> None:
        self._host = host
        self._desk = desk
        self._messages = messages
        self._tell = tell
        self._deliver = deliver
        self._find_carrier = find_carrier

    def subscribe(self, life: str, visitor: ClientConnection, asked: SubscribeWanted) -> None:
        def give(at: LifeRecord, take: Callable[[bool | None], None]) -> None:
            request = Subscribe(at.session, at.token, check_filter(asked.filter), asked.qos)
            carrier = self._find_carrier()
            if carrier is not None and is_shared(asked.filter):
                if isinstance(asked, FrontSubscribe):  # of a group no retained message comes
                    given = (request.session, request.token, request.filter, request.qos, asked.options)
                    request = SubscribeFront(*given, RetainHandling.NEVER)
                carrier.subscribe(visitor.owner, request, take, lambda why: refuse(at, why))
            else:
                check_private(asked.filter)
                if isinstance(asked, FrontSubscribe):
                    self._subscribe_front(life, visitor, request, asked, take)
                else:
                    self._desk.give(request, take)

        def refuse(at: LifeRecord, why: str) -> None:
            visitor.changes -= 1
            self._tell(life, Refused(asked.n, why))

        def act() -> None:
            visitor.rights.subscribe(asked.filter)
            self._change_routes(life, visitor, asked, give)

        if visitor.rights.wishes >= WISHES_MAX:
            self._tell(life, Refused(asked.n, "busy"))
            return
        refused = Refused(asked.n, f"the filter {NOT_ALLOWED}")
        visitor.rights.ask("subscribe", asked.filter, act, lambda: self._tell(life, refused))

    def _subscribe_front(
        self,
        life: str,
        visitor: ClientConnection,
        asked: Subscribe,
        wanted: FrontSubscribe,
        take: Callable[[bool | None], None],
    ) -> None:
        """Direct messages wait until the retained ones are sent: nobody has an older value after a newer one."""

        def take_all(found: FrontSubscribed) -> None:
            brought = RetainedBrought(len(found.retained))
            left = sum(one.qos > 0 for one in found.retained)

            def note_stored() -> None:
                nonlocal left
                left -= 1
                if not left:
                    self._tell(life, replace(brought, are_stored=True))

            if brought.count:
                self._tell(life, brought)
            take(found.done)
            if brought.count and not left:
                self._tell(life, replace(brought, are_stored=True))
            for one in found.retained:
                if one.qos:
                    handed = MatchedMessage(asked.session, asked.filter, one.qos, one.until_ns)
                    self._messages.hand(one.message, UnstoredMessage(one.payload, note_stored, True), [handed])
                else:
                    topic, data, head = one.payload
                    self._deliver(life, Delivered(0, topic, data, asked.filter, 0, False, one.expiry_ms, head))
            visitor.subscribing -= 1
            if not visitor.subscribing:
                held, visitor.held = visitor.held, []
                for message in held:
                    self._deliver(life, message)

        visitor.subscribing += 1
        given = (asked.session, asked.token, asked.filter, asked.qos)
        self._desk.give(SubscribeFront(*given, wanted.options, wanted.handling, self._messages.new_message()), take_all)

    def unsubscribe(self, life: str, visitor: ClientConnection, asked: UnsubscribeWanted) -> None:
        def give(at: LifeRecord, take: Callable[[bool | None], None]) -> None:
            carrier = self._find_carrier()
            if carrier is not None:
                carrier.leave(visitor.owner, asked.filter)
            self._desk.give(Unsubscribe(at.session, at.token, check_filter(asked.filter)), take)
            visitor.rights.unsubscribe(asked.filter)

        if visitor.rights.wishes >= WISHES_MAX:
            self._tell(life, Refused(asked.n, "busy"))
            return
        visitor.rights.do_in_turn(lambda: self._change_routes(life, visitor, asked, give))

    def _change_routes(
        self,
        life: str,
        visitor: ClientConnection,
        asked: SubscribeWanted | UnsubscribeWanted,
        give: Callable[[LifeRecord, Callable[[bool | None], None]], None],
    ) -> None:
        node = self._host.nodes.get(life_of_owner(visitor.owner))
        if node is None or node.record.status is not CONNECTED:
            self._tell(life, Refused(asked.n, "no session is connected here"))
            return
        if visitor.changes >= CHANGES_MAX:
            self._tell(life, Refused(asked.n, "busy"))
            return

        def take(done: bool | None) -> None:
            visitor.changes -= 1
            self._tell(life, Subscribed(asked.n) if done else Refused(asked.n, WHY_NOT_CHANGED[done]))

        visitor.changes += 1
        try:
            give(node.record, take)
        except ConfigurationError as error:
            visitor.changes -= 1
            self._tell(life, Refused(asked.n, str(error)))

    def find_options(self, life: str, visitor: ClientConnection, asked: OptionsWanted) -> None:
        node = self._host.nodes.get(life_of_owner(visitor.owner))
        if node is None:
            self._tell(life, Refused(asked.n, "no session is connected here"))
            return
        filters: dict[str, int] = {}

        def take(found: PacketsFound) -> None:
            answer = OptionsFound(asked.n, filters, found.packets)
            self._messages.finish(found.unfinished, lambda: self._tell(life, answer))

        self._desk.give(ReadOptions(node.record.session), filters.update)
        self._desk.give(ReadPackets(node.record.session), take)
