"""ClientConnection: what a node knows of a client that is connected, and how it says something to it.

ClientRights: what one client may do, asked in the order in which it wants to do it.

What was allowed is not asked again until the client connects anew, or permissions are read again.  While a hook thinks,
what the client wants next waits behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec

from statemachines.drivers.authority import Authority
from statemachines.drivers.identity import Identity
from statemachines.drivers.lazy_queue import LazyQueue
from statemachines.drivers.permission_file import Action
from statemachines.drivers.persistent_sessions.node_messages import RetainedPublisher
from statemachines.drivers.persistent_sessions.outbox import Outbox
from statemachines.kernel import Message
from statemachines.persistent_sessions.acknowledgements import Acknowledgement, FrontAcknowledged
from statemachines.persistent_sessions.message import Delivered, PublishStored, Pubrel

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


def do_nothing() -> None:
    """Nobody is told."""


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
        self._wishes.append(Wish(None, "", "", act, do_nothing))

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
