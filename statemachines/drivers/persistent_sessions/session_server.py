"""SessionServer: the clients of a node, wherever they are, and what they want of it.

A visitor is a client that is connected, as a subscriber, a publisher or both.  What it says becomes calls of the
machines and requests to the database; what these say in turn is brought to it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from statemachines.drivers.authority import Authority
from statemachines.drivers.clock import Clock
from statemachines.drivers.complaint_log import RateLimitedLog
from statemachines.drivers.identity import Identity
from statemachines.drivers.message_head import decode_head
from statemachines.drivers.persistent_sessions.client_requests import (
    NOT_ALLOWED,
    ClientConnection,
    ClientRequests,
    ClientRights,
    Say,
    SayAll,
)
from statemachines.drivers.persistent_sessions.group_rows import ReadGroups
from statemachines.drivers.persistent_sessions.life_requests import DropWill, OpenWithWill
from statemachines.drivers.persistent_sessions.machine_requests import Page, ReadPage
from statemachines.drivers.persistent_sessions.node_messages import (
    PUBLISHER,
    ClientMessage,
    DirectMessages,
    FrontConnect,
    FrontPublish,
    FrontSubscribe,
    OptionsWanted,
    PacketReleased,
    RetainedPublisher,
    SessionWill,
    WillDropped,
)
from statemachines.drivers.persistent_sessions.outbox import UNACKNOWLEDGED_MAX, Outbox, Soon, UnstoredMessages, at_once
from statemachines.drivers.persistent_sessions.request_queue import RequestQueue
from statemachines.drivers.persistent_sessions.route_rows import ReadFilters
from statemachines.drivers.persistent_sessions.route_trie import unknown_group
from statemachines.drivers.persistent_sessions.sql import StoreRequest
from statemachines.drivers.runtime import Runtime
from statemachines.drivers.topic import check_name, is_shared
from statemachines.kernel import (
    Answer,
    ConfigurationError,
    Event,
    Message,
    RemoteProtocolError,
    Request,
    life_of,
    name_of,
)
from statemachines.persistent_sessions.life_record import CONNECTED, Accepted, SessionClosed
from statemachines.persistent_sessions.life_request import OpenSession
from statemachines.persistent_sessions.message import (
    KINDS,
    Acknowledgement,
    ConnectWanted,
    Delivered,
    Farewell,
    FrontAcknowledged,
    GroupRefused,
    LeaveWanted,
    MessageExpired,
    Ping,
    Pong,
    Puback,
    Pubcomp,
    Publish,
    PublishStored,
    PublishWanted,
    PublishWithHead,
    Pubrec,
    Pubrel,
    SubscribeWanted,
    UnsubscribeWanted,
    Welcome,
    Written,
    fold_acknowledgements,
    list_packets,
)
from statemachines.persistent_sessions.request import Fence, PutRows, ReadPending
from statemachines.persistent_sessions.session_host_parties import life_of_owner, owner_of
from statemachines.persistent_sessions.session_host_process import SessionHost
from statemachines.persistent_sessions.times import MS

if TYPE_CHECKING:
    from statemachines.drivers.persistent_sessions.group_membership import GroupMembership

logger = logging.getLogger("gapless")

PUBLISHER_MARK: Final = PUBLISHER.encode()

HELD_MAX: Final = 1_000
"""Direct messages that wait while their client subscribes."""

SILENT_NS: Final = 15_000_000_000
"""A client that has said nothing for so long is gone."""


class SessionServer:
    """`host`, `runtime`, `desk`: of the node; `say(party, message)`: over its transport; `lease_ms`: a store that has
    not answered for so long is out of reach; `authority` says what clients may do, and `identify(party)` who one over
    the transport is; `say_directly` to a node what may be lost (None: `say`); `say_all` to a client over the transport
    (None: `say`, for each); `soon` calls back when what comes at once
    is there: what a client acknowledges in one turn of the loop is one turn of the machines."""

    def __init__(
        self,
        host: SessionHost,
        runtime: Runtime,
        desk: RequestQueue,
        say: Callable[[str, Message], bool],
        clock: Clock,
        lease_ms: int,
        soon: Soon = at_once,
        authority: Authority | None = None,
        identify: Callable[[str], Identity] = lambda party: Identity(),
        say_directly: Callable[[str, Message], bool] | None = None,
        say_all: Callable[[str, Sequence[Delivered | Pubrel | PublishStored]], bool] | None = None,
    ) -> None:
        self.visitors: dict[str, ClientConnection] = {}
        """By the life of the client."""
        self.expired = 0
        """Messages that were over before they were sent to a session here."""
        self.withheld = 0
        """Messages that came by a filter that the client may not subscribe any more."""
        self.authority = authority or Authority()
        self.authority.on_reload = self.review_all
        self._identify = identify
        self.is_cut_off = False
        """The store does not answer: clients are sent to other nodes."""
        self._host = host
        self._runtime = runtime
        self._desk = desk
        self._say = say
        self._say_all = say_all
        self._clock = clock
        self._lease_ns = lease_ms * MS
        self._soon = soon
        self.direct = DirectMessages(host.id, self._deliver_directly, say_directly or say, clock)
        """What goes to clients past the database."""
        self.messages = UnstoredMessages(host, runtime, desk, soon, self.direct.send)
        """On their way into the database."""
        self.carrier: GroupMembership | None = None
        """What brings messages of groups into sessions (None: nothing does)."""
        self._without_groups = RateLimitedLog(clock)
        """Sessions that subscribe groups, where nothing brings their messages."""
        self.session_ended = asyncio.Event()
        """A connection has ended here, or taken a session: a will may be due."""
        self._wills: dict[str, SessionWill] = {}
        """Owner that opens a session -> the will of its client."""
        self._owners: dict[str, str] = {}
        """Owner -> life of its client."""
        self._given_up: dict[str, Say] = {}
        """Clients that were given up, and whose connections are still there."""
        self._closing: list[Say] | None = None
        """Who is to be told that the node ends; None: it does not."""
        self.requests = requests = ClientRequests(
            host, desk, self.messages, self._tell, self._tell_stored, self._deliver, lambda: self.carrier
        )
        """What clients publish and subscribe."""
        self._kinds: dict[type[Message], Callable[[str, ClientConnection, Any], None]] = {
            ConnectWanted: self._connect,
            FrontConnect: self._connect,
            WillDropped: self._drop_will,
            SubscribeWanted: requests.subscribe,
            FrontSubscribe: requests.subscribe,
            OptionsWanted: requests.find_options,
            FrontPublish: requests.publish,
            PacketReleased: requests.release,
            UnsubscribeWanted: requests.unsubscribe,
            PublishWanted: requests.publish,
            PublishWithHead: requests.publish,
            LeaveWanted: self._leave,
            Ping: lambda life, visitor, asked: self._tell(life, Pong()),
            Puback: self._acknowledge,
            FrontAcknowledged: self._acknowledge,
            Pubrec: self._acknowledge,
            Pubcomp: self._acknowledge,
        }

    # -- visitors -------------------------------------------------------------------------------------------------

    def enter(
        self, party: str, say: Say | None = None, identity: Identity | None = None, deliver: SayAll | None = None
    ) -> ClientConnection:
        """The visitor that speaks as this party; `say` and `deliver` to it (None: `say`, for each) where it is not over
        the transport, as `identity` (None: it is of this process, and may do everything)."""
        life = life_of(party)
        visitor = self.visitors.get(life)
        if visitor is None:
            is_near = say is not None
            if say is None:
                say, identity = (lambda message: self._say(party, message)), self._identify(party)
                deliver = None if self._say_all is None else partial(self._say_all, party)
            visitor = ClientConnection(
                say, deliver or partial(say_each, say), self._clock(), ClientRights(self.authority, identity)
            )
            visitor.answers = None if is_near or deliver is None else []
            self.visitors[life] = visitor
        return visitor

    def hear(self, party: str, message: ClientMessage) -> None:
        """A client has said something; one that was given up takes itself for connected, and hears that it is not."""
        if self._closing is not None:
            return
        life = party if party in self.visitors else life_of(party)
        say = self._given_up.get(life)
        if say is not None:
            say(Farewell("lost"))
            return
        visitor = self.visitors.get(life) or self.enter(party)
        if self.is_cut_off:
            self._turn_away(life)
            return
        visitor.heard_ns = self._clock()
        kind = type(message)
        if visitor.acknowledged and kind not in KINDS:
            self._take_acknowledged(visitor)  # what it says next comes behind
        self._kinds[kind](life, visitor, message)

    def lose(self, life: str) -> None:
        """The connection of this life is gone, and its client, if it was here."""
        self._given_up.pop(life, None)
        self._forget(life)

    def _give_up(self, life: str) -> None:
        """The client counts as gone, whatever its connection does."""
        self._given_up[life] = self.visitors[life].say
        self._forget(life)

    def _forget(self, life: str) -> None:
        visitor = self.visitors.pop(life, None)
        if visitor is None:
            return
        visitor.rights.close()
        self._take_acknowledged(visitor)
        if visitor.courier is not None:
            visitor.courier.close()
        owner = visitor.owner
        if owner:
            self._owners.pop(owner, None)
            self._end_carrying(owner)
            self._runtime.act(lambda now_ns: self._host.lose(owner, now_ns))

    def lose_silent(self) -> None:
        """Whoever has said nothing for long is gone."""
        now_ns = self._clock()
        for life in [one for one, visitor in self.visitors.items() if now_ns - visitor.heard_ns > SILENT_NS]:
            self._give_up(life)

    def watch_store(self) -> bool:
        """While the store has not answered for a lease, send every client to another node (PS-331).  Others take this
        node for dead by then, and nothing can be stored or committed here.  True: that begins or ends now."""
        asked_ns = self._desk.asked_ns
        is_silent = asked_ns is not None and self._clock() - asked_ns >= self._lease_ns
        if is_silent == self.is_cut_off:
            return False
        self.is_cut_off = is_silent
        if is_silent:
            if self.carrier is not None:
                self.carrier.give_up()
            for life in list(self.visitors):
                self._turn_away(life)
        return True

    def _turn_away(self, life: str) -> None:
        self._tell(life, Farewell("no_store"))
        if life in self.visitors:
            self._give_up(life)

    def close(self) -> None:
        """The node ends: every session is left here, and nobody is heard any more.  Nobody is told yet: who goes
        elsewhere locks its session there, and what it has acknowledged here would not be committed any more."""
        self._closing = [visitor.say for visitor in self.visitors.values()]
        for life in list(self.visitors):
            self.lose(life)

    def farewell(self) -> None:
        """Whoever was here when it was closed goes elsewhere."""
        while self._closing:
            self._closing.pop()(Farewell("closing"))

    def _tell(self, life: str, message: Message) -> None:
        """One that there is no room for ends the connection: nothing may be missing in it."""
        visitor = self.visitors.get(life)
        if visitor is not None and not visitor.say(message):
            self._give_up(life)

    def _tell_stored(self, life: str, message: PublishStored) -> None:
        """A message of the client is stored: what is stored together is answered together."""
        visitor = self.visitors.get(life)
        if visitor is None or visitor.answers is None:
            self._tell(life, message)
            return
        visitor.answers.append(message)
        if len(visitor.answers) == 1:
            self._desk.deferred.defer(partial(self._tell_answers, life, visitor))

    def _tell_answers(self, life: str, visitor: ClientConnection) -> None:
        answers, visitor.answers = visitor.answers or [], []
        if self.visitors.get(life) is visitor and not visitor.deliver(answers):
            self._give_up(life)

    def _deliver_directly(self, owner: str, message: Delivered) -> bool:
        """To the client of this owner; False: it is not connected yet or any more, or too much is held for it."""
        life = self._owners.get(owner, "")
        visitor = self.visitors.get(life)
        if visitor is None or visitor.courier is None or not visitor.courier.is_welcome:
            return False
        if not visitor.subscribing:
            self._deliver(life, message)
        elif len(visitor.held) < HELD_MAX:
            visitor.held.append(message)
        else:
            return False
        return True

    def _deliver(self, life: str, message: Delivered | Pubrel) -> None:
        self._deliver_all(life, (message,))

    def _deliver_all(self, life: str, messages: Sequence[Delivered | Pubrel]) -> None:
        """To a subscriber; of QoS 0 what there is no room for is dropped."""
        visitor = self.visitors.get(life)
        if visitor is None:
            return
        denied, released = visitor.rights.denied, visitor.rights.withheld
        ready: list[Delivered | Pubrel] = []
        hidden: list[Delivered | Pubrel] = []
        for one in messages:
            if isinstance(one, Pubrel):
                (hidden if one.packet in released else ready).append(one)
            elif one.filter in denied or (one.head is not None and self._is_revoked(one, one.head)):
                hidden.append(one)
            else:
                ready.append(one)
        if ready and not visitor.deliver(ready):
            self._give_up(life)
        for one in hidden:
            self._withhold(life, visitor, one)

    def _is_revoked(self, message: Delivered, head: bytes) -> bool:
        """Whether it was retained, and who published it may not any more (PS-526)."""
        if self.authority.is_open or PUBLISHER_MARK not in head:
            return False
        found = dict(decode_head(head).headers).get(PUBLISHER)
        if found is None:
            return False
        try:
            known = msgspec.json.decode(found, type=RetainedPublisher)
        except msgspec.DecodeError:  # a header that an application has called so
            return False
        return not self.authority.still_allows(known.identity, "publish", known.client, message.topic)

    def _withhold(self, life: str, visitor: ClientConnection, message: Delivered | Pubrel) -> None:
        """It counts as acknowledged, and the client never sees it (PS-455)."""
        if isinstance(message, Pubrel):
            visitor.rights.withheld.discard(message.packet)
            self._acknowledge(life, visitor, Pubcomp(message.packet))
            return
        self.withheld += 1
        if message.packet:
            self._count_as_acknowledged(life, visitor, message.packet, message.qos)

    def _count_as_acknowledged(self, life: str, visitor: ClientConnection, packet: int, qos: int) -> None:
        """A message that the client does not see; of QoS 2 it does not see the release either."""
        if qos == 2:
            visitor.rights.withheld.add(packet)
        self._acknowledge(life, visitor, Pubrec(packet) if qos == 2 else Puback(packet))

    # -- what machines say ----------------------------------------------------------------------------------------

    def bring(self, brought: Iterable[tuple[str, Publish | Pubrel]]) -> None:
        """Messages, each for the client of an owner."""
        for owner, its in groupby(brought, itemgetter(0)):
            messages = [message for _, message in its]
            visitor = self.visitors.get(self._owners.get(owner, ""))
            if visitor is not None and visitor.courier is not None:
                visitor.courier.bring(messages)
            if self.carrier is not None:
                for one in messages:
                    if isinstance(one, Publish) and one.filter[:1] == "$" and is_shared(one.filter):
                        self.carrier.hand_out(owner, one)

    def route_tell(self, party: str, event: Event) -> None:
        """What the host tells its application."""
        match event:
            case Written(message, _):
                self.messages.settle(message)
            case MessageExpired():
                self.expired += 1
            case Accepted(session, present):
                self.session_ended.set()
                self._accept(owner_of(party), session, present)
            case SessionClosed(_, why):
                self.session_ended.set()
                self._wills.pop(owner_of(party), None)
                self._end(owner_of(party), why)

    def _accept(self, owner: str, session: str, present: bool) -> None:
        """Say so, once it is known which of its filters the client may still subscribe (PS-454)."""
        life = self._owners.get(owner, "")
        visitor = self.visitors.get(life)
        if visitor is None or not present or not visitor.rights.is_limited:
            self._welcome(life, owner, session, present)
            return
        rights = visitor.rights

        def answer() -> None:
            if rights.is_stranger:
                self._expel(life)
            else:
                self._welcome(life, owner, session, present)

        def take(found: tuple[str, ...]) -> None:
            rights.review(found, answer)

        self._desk.give(ReadFilters(session), take)

    def _welcome(self, life: str, owner: str, session: str, present: bool) -> None:
        visitor = self.visitors.get(life)
        if visitor is None or self._owners.get(owner) != life:
            return  # it has gone meanwhile
        self._tell(life, Welcome(session, present))
        visitor = self.visitors.get(life)
        if visitor is not None and visitor.courier is not None:
            visitor.courier.welcome()
            self._begin_carrying(owner)
            self._tell_denied(owner, visitor.rights.denied)

    def _tell_denied(self, owner: str, filters: Iterable[str]) -> None:
        for one in sorted(filters):
            self.refuse_group(owner, one, NOT_ALLOWED)

    def is_denied(self, owner: str, topic_filter: str) -> bool:
        """Whether the client of this owner may not subscribe it, though its session does."""
        visitor = self.visitors.get(self._owners.get(owner, ""))
        return visitor is not None and topic_filter in visitor.rights.denied

    def review_all(self) -> None:
        """Permissions have changed: ask again what each client was allowed (PS-454)."""
        for life, visitor in list(self.visitors.items()):
            visitor.rights.forget()
            visitor.rights.review_client(partial(self._expel, life), partial(self._review_filters, life))

    def _expel(self, life: str) -> None:
        self._tell(life, Farewell("denied"))
        if life in self.visitors:
            self._give_up(life)

    def _review_filters(self, life: str) -> None:
        """Of a client that is connected; of one that is about to be they are looked at then."""
        visitor = self.visitors[life]
        node = self._host.nodes.get(life_of_owner(visitor.owner))
        if node is None or node.record.status is not CONNECTED:
            return
        owner, rights, session, token = visitor.owner, visitor.rights, node.record.session, node.record.token

        def renew(before: frozenset[str]) -> None:
            if self._owners.get(owner) != life:
                return
            if rights.is_stranger:
                self._expel(life)
                return
            denied = rights.denied - before
            self._tell_denied(owner, denied)
            if self.carrier is not None:
                for one in denied:
                    self.carrier.leave(owner, one)
                self.carrier.renew(owner, session, token)

        self._desk.give(ReadFilters(session), lambda found: rights.review(found, partial(renew, rights.denied)))

    def _begin_carrying(self, owner: str) -> None:
        node = self._host.nodes.get(life_of_owner(owner))
        if node is None:
            return
        if self.carrier is not None:
            self.carrier.begin(owner, node.record.session, node.record.token)
            return

        session = node.record.session

        def take(found: tuple[str, ...]) -> None:
            for one in found:
                self.refuse_group(owner, one, str(unknown_group(one)))
            if found and self._without_groups.count_event():
                what = "session %s subscribes %s of groups, and this node knows none: none of that comes to it here; "
                what += "run all nodes with --group-leader and --group-store (%d such sessions so far)"
                logger.warning(what, session, ", ".join(found), self._without_groups.count)

        self._desk.give(ReadGroups(session), take)

    def refuse_group(self, owner: str, topic_filter: str, why: str) -> None:
        """The session subscribes it, and nothing of it comes while it is live here."""
        self._tell(self._owners.get(owner, ""), GroupRefused(topic_filter, why))

    def _end_carrying(self, owner: str) -> None:
        if self.carrier is not None:
            self.carrier.end(owner)

    def _end(self, owner: str, why: str) -> None:
        self._end_carrying(owner)
        life = self._owners.pop(owner, "")
        visitor = self.visitors.get(life)
        if visitor is None or visitor.courier is None:
            return
        visitor.courier.close()
        visitor.owner, visitor.courier = "", None
        self._tell(life, Farewell(why))

    # -- what clients say -----------------------------------------------------------------------------------------

    def _connect(self, life: str, visitor: ClientConnection, asked: ConnectWanted) -> None:
        try:
            check_name("client_id", asked.client)
        except ConfigurationError as error:
            self._tell(life, Farewell("refused"))
            raise RemoteProtocolError("session_node", "-", name_of(ConnectWanted), "", str(error)) from error
        visitor.rights.ask(
            "connect", "", partial(self._begin, life, visitor, asked), partial(self._expel, life), asked.client
        )

    def _begin(self, life: str, visitor: ClientConnection, asked: ConnectWanted) -> None:
        if visitor.owner:
            self._tell(life, Farewell("refused"))
            return
        visitor.rights.connect(asked.client)
        owner = visitor.owner = self._host.next_owner
        self._owners[owner] = life
        if isinstance(asked, FrontConnect) and asked.will is not None:
            self._wills[owner] = asked.will
        visitor.courier = Outbox(
            self._desk,
            self.messages.payloads,
            partial(self._deliver_all, life),
            lambda message: self._miss(owner, message),
            self._soon,
        )
        given = {name: getattr(asked, name) for name in ("clean", "expiry_ms", "instance", "attempt")}
        self._runtime.act(
            lambda now_ns: self._host.connect(asked.client, asked.receive_maximum, now_ns=now_ns, **given)
        )

    def _drop_will(self, life: str, visitor: ClientConnection, asked: WillDropped) -> None:
        """It may be stored already, or on its way."""
        owner = visitor.owner
        self._wills.pop(owner, None)
        visitor.rights.do_in_turn(lambda: self._desk.give(DropWill(owner), lambda answer: None))

    def prepare_request(self, request: Request) -> Request | StoreRequest[Any]:
        """As the database is asked: rows go with their messages, and rows come with payloads that will be wanted."""
        if isinstance(request, ReadPending | Fence):
            return ReadPage(request, UNACKNOWLEDGED_MAX)
        if isinstance(request, OpenSession):
            will = self._wills.pop(request.owner, None)
            return request if will is None else OpenWithWill(request, will)
        return self.messages.with_message(request) if isinstance(request, PutRows) else request

    def answers_of(self, found: tuple[Answer, ...] | Page) -> tuple[Answer, ...]:
        """What a machine is answered; payloads that have come with it are kept."""
        if not isinstance(found, Page):
            return found
        self.messages.payloads.put_all(found.payloads)
        for message in found.gone:
            self.messages.payloads.drop(message)
        return found.answers

    def _leave(self, life: str, visitor: ClientConnection, asked: LeaveWanted) -> None:
        visitor.rights.do_in_turn(partial(self._end_session, visitor, asked))

    def _end_session(self, visitor: ClientConnection, asked: LeaveWanted) -> None:
        owner = visitor.owner
        if visitor.courier is not None:
            visitor.courier.close()
        self._runtime.act(lambda now_ns: self._host.leave(owner, now_ns, asked.expiry_ms))

    def _acknowledge(self, life: str, visitor: ClientConnection, asked: Acknowledgement | FrontAcknowledged) -> None:
        visitor.acknowledged.append(asked)
        if len(visitor.acknowledged) == 1:
            self._soon(lambda: self._take_acknowledged(visitor))

    def _take_acknowledged(self, visitor: ClientConnection) -> None:
        """What has come together, in its order."""
        asked, visitor.acknowledged = visitor.acknowledged, []
        if asked and visitor.owner and visitor.courier is not None:
            self._feed(visitor.owner, fold_acknowledgements(asked))
            visitor.courier.acknowledge(list_packets(asked))

    def _miss(self, owner: str, message: Publish) -> None:
        """A message was deleted before it could be brought.  Of QoS 0 no state holds it, so that may have been for its
        age; any other counts as acknowledged."""
        life = self._owners.get(owner, "")
        visitor = self.visitors.get(life)
        if message.packet and visitor is not None:
            self._count_as_acknowledged(life, visitor, message.packet, message.qos)
        elif not message.packet and message.left_ns is not None:
            self.expired += 1

    def _feed(self, owner: str, asked: Sequence[Acknowledgement]) -> None:
        self._runtime.act(lambda now_ns: self._host.acknowledge(owner, asked, now_ns))


def say_each(say: Say, messages: Iterable[Delivered | Pubrel]) -> bool:
    """Say one behind the other (`SayAll`)."""
    return all(say(one) or not one.packet for one in messages)
