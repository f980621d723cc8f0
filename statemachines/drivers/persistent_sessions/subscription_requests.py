"""SubscriptionRequests: what the clients of a node want to subscribe, or not any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from statemachines.drivers.persistent_sessions.client_connection import ClientConnection, Tell
from statemachines.drivers.persistent_sessions.client_rights import NOT_ALLOWED
from statemachines.drivers.persistent_sessions.front_message import (
    FrontSubscribe,
    OptionsFound,
    OptionsWanted,
    RetainedBrought,
    RetainHandling,
)
from statemachines.drivers.persistent_sessions.host_request import (
    FrontSubscribed,
    PacketsFound,
    ReadOptions,
    ReadPackets,
    Subscribe,
    SubscribeFront,
    Unsubscribe,
)
from statemachines.drivers.persistent_sessions.publish_requests import PUBLISHER_MAX
from statemachines.drivers.persistent_sessions.request_queue import RequestQueue
from statemachines.drivers.persistent_sessions.route_rows import FILTERS_MAX
from statemachines.drivers.persistent_sessions.topic import check_private
from statemachines.drivers.persistent_sessions.unstored_messages import UnstoredMessage, UnstoredMessages
from statemachines.drivers.topic import check_filter, is_shared
from statemachines.kernel import (
    ConfigurationError,
)
from statemachines.persistent_sessions.life_record import CONNECTED, LifeRecord
from statemachines.persistent_sessions.message import (
    Delivered,
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
