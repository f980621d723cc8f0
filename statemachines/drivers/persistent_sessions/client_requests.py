"""Client requests: what the clients of a node may do, publish and subscribe.

ClientRights: what one client may do, asked in the order in which it wants to do it.  What was allowed is not asked
again until the client connects anew, or permissions are read again.  While a hook decides, later requests wait.

ClientConnection: what a node knows of a client that is connected, and how it sends to it.

ClientRequests: publishes until they are stored and answered, and changes of subscriptions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from statemachines.drivers.authority import Authority
from statemachines.drivers.identity import Identity
from statemachines.drivers.lazy_queue import LazyQueue
from statemachines.drivers.message_head import decode_head
from statemachines.drivers.permission_file import Action
from statemachines.drivers.persistent_sessions.host_requests import ReadStoreTime
from statemachines.drivers.persistent_sessions.node_messages import (
    FrontPublish,
    FrontSubscribe,
    OptionsFound,
    OptionsWanted,
    PacketReleased,
    PublishUnmatched,
    RetainedBrought,
    RetainedPublisher,
    RetainHandling,
)
from statemachines.drivers.persistent_sessions.outbox import Outbox, UnstoredMessage, UnstoredMessages, call_behind
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
from statemachines.kernel import ConfigurationError, Message
from statemachines.persistent_sessions.life_record import CONNECTED, LifeRecord
from statemachines.persistent_sessions.message import (
    Acknowledgement,
    Delivered,
    FrontAcknowledged,
    PublishStored,
    PublishWanted,
    PublishWithHead,
    Pubrel,
    Refused,
    Subscribed,
    SubscribeWanted,
    UnsubscribeWanted,
)
from statemachines.persistent_sessions.session_host_parties import life_of_owner
from statemachines.persistent_sessions.session_host_process import SessionHost
from statemachines.persistent_sessions.session_host_record import MatchedMessage

if TYPE_CHECKING:
    from statemachines.drivers.persistent_sessions.group_membership import GroupMembership

ALLOWED_MAX: Final = 1_000
"""What is remembered as allowed, of one client."""

NOT_ALLOWED: Final = "is not allowed: no permission of this client covers it"

Act = Callable[[], None]


class Wish(NamedTuple):
    """What a client wants: `act` does it, `refuse` says that it may not (action None: it always may)."""

    action: Action | None
    client: str
    topic: str
    act: Act
    refuse: Act


class ClientRights:
    """`identity` of the client (None: it is of this process, and may do everything)."""

    def __init__(self, authority: Authority, identity: Identity | None) -> None:
        self.client = ""
        """The id that it has connected under."""
        self.denied: frozenset[str] = frozenset()
        """Filters that its session subscribes, and may not any more."""
        self.withheld: set[int] = set()
        """Packets of QoS 2 that the client was not sent, and that are not released yet."""
        self._authority = authority
        self._identity = identity
        self._wishes: LazyQueue[Wish] = LazyQueue()
        self._is_asking = False
        self._is_over = False
        self._round = 0
        """Counts how often permissions have changed."""
        self._allowed: set[tuple[Action, str]] = set()
        self._subscribed: set[str] = set()

    @property
    def is_limited(self) -> bool:
        """Whether anything of it may be refused, beside its client id."""
        return self._identity is not None and not self._authority.is_open

    @property
    def is_stranger(self) -> bool:
        """Whether its session may be that of another client: anybody may connect so, and it may not read all of it."""
        identity = self._identity
        return bool(self.denied) and identity is not None and not self._authority.owns_client(identity, self.client)

    @property
    def publisher(self) -> bytes:
        """Who publishes what it publishes, for a retained message (empty: nothing of it may be refused)."""
        if self._identity is None or not self.is_limited:
            return b""
        return msgspec.json.encode(RetainedPublisher(self._identity, self.client))

    @property
    def wishes(self) -> int:
        """How many wait."""
        return len(self._wishes)

    def close(self) -> None:
        """The client is gone: nothing of it is carried out any more, and what waits counts as refused."""
        self._is_over = True
        while self._wishes:
            self._wishes.popleft().refuse()

    def do_in_turn(self, act: Act) -> None:
        """What needs no permission, behind what was wanted before."""
        if not self._wishes:
            act()
            return
        self._wishes.append(Wish(None, "", "", act, lambda: None))

    def may_at_once(self, action: Action, topic: str) -> bool:
        """Whether it is known to be allowed, and nothing waits before it."""
        return (self._identity is None or (action, topic) in self._allowed) and self._wishes.items is None

    def ask(self, action: Action, topic: str, act: Act, refuse: Act, client: str | None = None) -> None:
        """Do it, or refuse it, behind what was wanted before."""
        if self.may_at_once(action, topic):
            act()
            return
        self._wishes.append(Wish(action, self.client if client is None else client, topic, act, refuse))
        self._go_on()

    def connect(self, client: str) -> None:
        """It is connected under this id from now on, and what was allowed before is asked again."""
        self.client = client
        self._allowed.clear()

    def subscribe(self, topic_filter: str) -> None:
        """Its session subscribes this filter, which it may."""
        self._subscribed.add(topic_filter)
        self.denied -= {topic_filter}

    def unsubscribe(self, topic_filter: str) -> None:
        """It does not any more."""
        self._subscribed.discard(topic_filter)

    def forget(self) -> None:
        """Permissions have changed."""
        self._round += 1
        self._allowed.clear()

    def review_client(self, refuse: Act, then: Act) -> None:
        """`then`, if it may still connect under its id."""
        if self._identity is None or not self.client:
            return
        take = partial(self._take_review, self._round, lambda: self.review_client(refuse, then), then, refuse)
        self._authority.check(self._identity, "connect", self.client, "", take)

    def _take_review(self, round_number: int, again: Act, then: Act, refuse: Act, is_allowed: bool) -> None:
        if self._is_over:
            return
        if round_number != self._round:
            again()
        elif is_allowed:
            then()
        else:
            refuse()

    def review(self, filters: Iterable[str], then: Act) -> None:
        """Ask whether it may subscribe each of these filters, and those of this connection; then `denied` is known."""
        identity = self._identity
        wanted = sorted({*filters, *self._subscribed})
        if identity is None or not wanted:
            self.denied = frozenset()
            then()
            return
        began, left, denied = self._round, len(wanted), set[str]()

        def take(topic_filter: str, is_allowed: bool) -> None:
            nonlocal left
            left -= 1
            if not is_allowed:
                denied.add(topic_filter)
            if left or self._is_over:
                return
            if began != self._round:
                self.review(wanted, then)
                return
            self.denied = frozenset(denied)
            then()

        for one in wanted:
            self._authority.check(identity, "subscribe", self.client, one, partial(take, one))

    def _go_on(self) -> None:
        while self._wishes and not self._is_asking:
            wish = self._wishes.first
            if self._identity is None or wish.action is None or (wish.action, wish.topic) in self._allowed:
                self._wishes.popleft()
                wish.act()
                continue
            self._is_asking = True
            take = partial(self._take, self._round)
            self._authority.check(self._identity, wish.action, wish.client, wish.topic, take)

    def _take(self, round_number: int, is_allowed: bool) -> None:
        self._is_asking = False
        if self._is_over:
            return
        if round_number == self._round:
            wish = self._wishes.popleft()
            if is_allowed and wish.action is not None:
                self._remember(wish.action, wish.topic)
            (wish.act if is_allowed else wish.refuse)()
        self._go_on()

    def _remember(self, action: Action, topic: str) -> None:
        if action == "connect":
            return
        if len(self._allowed) >= ALLOWED_MAX:
            self._allowed.clear()
        self._allowed.add((action, topic))


Say = Callable[[Message], bool]
"""Brings a message to a client; False: there was no room for it."""

SayAll = Callable[[Sequence[Delivered | Pubrel | PublishStored]], bool]
"""Brings messages to a client; of QoS 0 what there is no room for is dropped.  False: there was none for another."""

Tell = Callable[[str, Message], None]
"""Says a message to the client of a life, if it is still there."""


class ClientConnection:
    """A client: `say` to it, and `deliver` messages to it; `answers` about what it published go out together, if it is
    over the transport (None: each at once); when it was `heard_ns` last; `owner` of its session ("":
    none), and who brings it that session's messages; `rights`: what it may do; `changes` of its subscriptions, and
    messages it is `publishing` (and their `bytes`), that are under way; what it has `acknowledged` in this turn of the
    loop; `since_ns`: when it has published first, by the store's time (None: it has not; 0: that is being asked for).
    While it is `subscribing` so many filters that may bring retained messages, direct messages are `held` behind
    these."""

    __slots__ = (
        "acknowledged", "answers", "bytes", "changes", "courier", "deliver", "heard_ns", "held", "owner", "publishing",
        "rights", "say", "since_ns", "subscribing",
    )  # fmt: skip

    def __init__(self, say: Say, deliver: SayAll, heard_ns: int, rights: ClientRights) -> None:
        self.say = say
        self.deliver = deliver
        self.rights = rights
        self.heard_ns = heard_ns
        self.owner = ""
        self.changes = 0
        self.publishing = 0
        self.bytes = 0
        self.courier: Outbox | None = None
        self.since_ns: int | None = None
        self.answers: list[PublishStored] | None = None
        self.acknowledged: list[Acknowledgement | FrontAcknowledged] = []
        self.held: list[Delivered] = []
        self.subscribing = 0


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


WHY_NOT_CHANGED: Final = {
    False: "another connection has the session",
    None: f"the session has {FILTERS_MAX} filters, and may not have more; unsubscribe one",
}

CHANGES_MAX: Final = 100
"""Subscriptions and their ends of one client that are on their way into the database."""

WISHES_MAX: Final = CHANGES_MAX + PUBLISHER_MAX
"""What one client wants, and waits for permission: it has no more under way than that."""


class ClientRequests:
    """`host`, `desk`: of the node; `messages` on their way into the database; `tell` answers a client, `tell_stored`
    tells it that a message is stored, and `deliver` brings it a message; `find_carrier()`: what brings messages of
    groups into sessions (None: nothing does)."""

    def __init__(
        self,
        host: SessionHost,
        desk: RequestQueue,
        messages: UnstoredMessages,
        tell: Tell,
        tell_stored: Callable[[str, PublishStored], None],
        deliver: Callable[[str, Delivered], object],
        find_carrier: Callable[[], GroupMembership | None],
    ) -> None:
        self._host = host
        self._desk = desk
        self._messages = messages
        self._tell = tell
        self._tell_stored = tell_stored
        self._deliver = deliver
        self._find_carrier = find_carrier
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
            # What it has published at other nodes was stored before it publishes here: the time is answered first.
            visitor.since_ns = 0
            self._desk.give(ReadStoreTime(), partial(setattr, visitor, "since_ns"))
        given = (message, asked.topic, asked.payload, asked.qos, asked.expiry_ms, head, retain)
        publisher = visitor.rights.publisher if retain else b""
        self._desk.give(PutMessage(*given, packet, without, publisher=publisher), take)

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

    # -- subscriptions --------------------------------------------------------------------------------------------

    def subscribe(self, life: str, visitor: ClientConnection, asked: SubscribeWanted) -> None:
        if visitor.rights.wishes >= WISHES_MAX:
            self._tell(life, Refused(asked.n, "busy"))
            return
        refused = Refused(asked.n, f"the filter {NOT_ALLOWED}")
        act = partial(self._subscribe, life, visitor, asked)
        visitor.rights.ask("subscribe", asked.filter, act, partial(self._tell, life, refused))

    def _subscribe(self, life: str, visitor: ClientConnection, asked: SubscribeWanted) -> None:
        visitor.rights.subscribe(asked.filter)
        self._change_routes(life, visitor, asked, partial(self._give_subscribe, life, visitor, asked))

    def _give_subscribe(self, life: str, visitor: ClientConnection, asked: SubscribeWanted, at: LifeRecord) -> None:
        """Direct messages wait until the retained ones are sent: nobody has an older value after a newer one."""
        take = partial(self._take_change, life, visitor, asked.n)
        request = Subscribe(at.session, at.token, check_filter(asked.filter), asked.qos)
        carrier = self._find_carrier() if is_shared(asked.filter) else None
        if carrier is None:
            check_private(asked.filter)
        if isinstance(asked, FrontSubscribe):
            handling = asked.handling if carrier is None else RetainHandling.NEVER  # of a group nothing is retained
            first = self._messages.new_message() if carrier is None else "-"
            request = SubscribeFront(at.session, at.token, asked.filter, asked.qos, asked.options, handling, first)
        if carrier is not None:
            refuse = partial(self._refuse_change, life, visitor, asked.n)
            carrier.subscribe(visitor.owner, request, take, refuse)
        elif isinstance(asked, FrontSubscribe):
            visitor.subscribing += 1
            self._desk.give(request, partial(self._take_retained, life, visitor, request, take))
        else:
            self._desk.give(request, take)

    def _take_retained(
        self,
        life: str,
        visitor: ClientConnection,
        asked: Subscribe,
        take: Callable[[bool | None], None],
        found: FrontSubscribed,
    ) -> None:
        brought = RetainedBrought(len(found.retained))
        all_stored = partial(self._tell, life, replace(brought, are_stored=True))
        left = sum(one.qos > 0 for one in found.retained)
        if brought.count:
            self._tell(life, brought)
        take(found.done)
        if brought.count and not left:
            all_stored()
        note_stored = call_behind(left, all_stored)
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

    def unsubscribe(self, life: str, visitor: ClientConnection, asked: UnsubscribeWanted) -> None:
        if visitor.rights.wishes >= WISHES_MAX:
            self._tell(life, Refused(asked.n, "busy"))
            return
        give = partial(self._give_unsubscribe, life, visitor, asked)
        visitor.rights.do_in_turn(partial(self._change_routes, life, visitor, asked, give))

    def _give_unsubscribe(self, life: str, visitor: ClientConnection, asked: UnsubscribeWanted, at: LifeRecord) -> None:
        carrier = self._find_carrier()
        if carrier is not None:
            carrier.leave(visitor.owner, asked.filter)
        request = Unsubscribe(at.session, at.token, check_filter(asked.filter))
        self._desk.give(request, partial(self._take_change, life, visitor, asked.n))
        visitor.rights.unsubscribe(asked.filter)

    def _change_routes(
        self,
        life: str,
        visitor: ClientConnection,
        asked: SubscribeWanted | UnsubscribeWanted,
        give: Callable[[LifeRecord], None],
    ) -> None:
        node = self._host.nodes.get(life_of_owner(visitor.owner))
        if node is None or node.record.status is not CONNECTED:
            self._tell(life, Refused(asked.n, "no session is connected here"))
            return
        if visitor.changes >= CHANGES_MAX:
            self._tell(life, Refused(asked.n, "busy"))
            return
        visitor.changes += 1
        try:
            give(node.record)
        except ConfigurationError as error:
            self._refuse_change(life, visitor, asked.n, str(error))

    def _take_change(self, life: str, visitor: ClientConnection, n: int, done: bool | None) -> None:
        visitor.changes -= 1
        self._tell(life, Subscribed(n) if done else Refused(n, WHY_NOT_CHANGED[done]))

    def _refuse_change(self, life: str, visitor: ClientConnection, n: int, why: str) -> None:
        visitor.changes -= 1
        self._tell(life, Refused(n, why))

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
