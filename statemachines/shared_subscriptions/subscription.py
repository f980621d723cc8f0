"""Subscription: one shared subscription of one session, as a host of machines (source: "Agent").

A `Session` that reads and delivers, and the `Borrower` of the moment that holds its streams.  It carries what they tell
each other, makes the next borrower when one ends itself (new id, highest epoch seen), and answers leaders that talk to
a borrower that is gone.  No input or output of its own: a driver feeds it and performs what comes out.
"""

from __future__ import annotations

from typing import Any

from statemachines.kernel import Answer, Event, Fsm, Host, Inward, Node, Outgoing, Send, fresh
from statemachines.kernel.node import Observer
from statemachines.shared_subscriptions.borrower import (
    BORROWER,
    BorrowerRecord,
    Destroyed,
    LeaseBegan,
    LeaseEnded,
    OnDisconnect,
    OnUnsubscribe,
    Start,
)
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.group import (
    GROUP,
    DeclarationRefused,
    Declare,
    GroupDeclared,
    GroupRecord,
)
from statemachines.shared_subscriptions.message import Disconnect, LeaderMessage, Undeclared
from statemachines.shared_subscriptions.session import SESSION, Ack, SessionRecord, Take
from statemachines.shared_subscriptions.stream import Finish, Install, StreamProgress, Uninstall
from statemachines.shared_subscriptions.stream_store import check_filter

TO_SESSION = (Install, Finish, Uninstall, LeaseBegan, LeaseEnded)


class Subscription(Host):
    """`host` is the incarnation of the process (`consumer-1~3`), `registry` where leaders are found (`leader-1`).  To
    subscribe is to declare the group: it begins at `start_ns` of store time (0: everything stored; -1: now), unless it
    is declared already.

    `ended` is set when the last borrower is gone for good: nothing will be delivered any more; `refused`: because
    the group lives by other times.  `recreated` counts
    the borrowers that had to end themselves.
    """

    def __init__(
        self,
        host: str,
        group: str,
        topic_filter: str,
        registry: str,
        configuration: Configuration,
        *,
        start_ns: int = -1,
        buffer: int = 256,
        observe: Observer | None = None,
        check: bool = False,
    ) -> None:
        super().__init__()
        check_filter(topic_filter, topic_filter)
        self.host = host
        self.group = group
        self.filter = topic_filter
        self.registry = registry
        self.configuration = configuration.check()
        self.ended = False
        self.refused: DeclarationRefused | None = None
        self.recreated = 0
        self._start_ns = start_ns
        self._buffer = buffer
        self._observe = observe
        self._check = check
        self._number = 0
        self._epoch = 0
        self.session = fresh(host, 0)
        self.borrower = ""

    def start(self, now_ns: int) -> list[Outgoing]:
        """Subscribe: declare the group, then look for its leader."""
        self._add(SESSION, SessionRecord(self.session, buffer=self._buffer), now_ns)
        self._number += 1
        group = GroupRecord(fresh(self.host, self._number), self.group, self.filter, self.configuration)
        self._add(GROUP, group, now_ns)
        return self.feed(group.id, Declare(self._start_ns), now_ns)

    def receive(self, sender: str, message: LeaderMessage, now_ns: int) -> list[Outgoing]:
        """A message of a leader, for one of our borrowers, living or gone."""
        if message.borrower in self.nodes:
            return self.feed(message.borrower, message, now_ns)
        if isinstance(message, Undeclared):
            return []
        farewell = Disconnect(message.borrower, message.epoch, message.registration)
        return [*self.fire(now_ns), (message.borrower, Send(sender, farewell))]

    def answer(self, party: str, answer: Answer, now_ns: int) -> list[Outgoing]:
        """What a store answered to `party`."""
        return self.feed(party, answer, now_ns)

    def take(self, limit: int, now_ns: int) -> list[Outgoing]:
        """Hand over at most `limit` messages of one stream: `Tell(Deliver)` comes out, or nothing."""
        return self.feed(self.session, Take(limit), now_ns)

    def acknowledge(self, stream: str, grant: int, first: int, last: int, now_ns: int) -> list[Outgoing]:
        """Messages `first`..`last`, delivered under `grant`, are dealt with."""
        return self.feed(self.session, Ack(stream, grant, first, last), now_ns)

    def unsubscribe(self, now_ns: int) -> list[Outgoing]:
        """Finish what is in hand, then end."""
        if not self.borrower:
            return self._give_up(now_ns)
        # What is due first: it may end the borrower of the moment, and the next one must hear of it then.
        return self.fire(now_ns) + self.feed(self.borrower, OnUnsubscribe(), now_ns)

    def disconnect(self, now_ns: int) -> list[Outgoing]:
        """Say what is known, and end at once."""
        if not self.borrower:
            return self._give_up(now_ns)
        return self.fire(now_ns) + self.feed(self.borrower, OnDisconnect(), now_ns)

    def told(self, party: str, event: Event, now_ns: int) -> Inward | None:
        if isinstance(event, TO_SESSION):
            return ((self.session, event),)
        if isinstance(event, StreamProgress):
            return ((self.borrower, event),)
        if isinstance(event, Destroyed):
            return self._replace(event, now_ns)
        if isinstance(event, GroupDeclared) and not self.ended:
            self._borrow(now_ns)
            return ((self.borrower, Start()),)
        if isinstance(event, DeclarationRefused):
            self.ended, self.refused = True, event
        return None

    def _give_up(self, now_ns: int) -> list[Outgoing]:
        """The group is not even declared yet."""
        self.ended = True
        return self.fire(now_ns)

    def _replace(self, event: Destroyed, now_ns: int) -> Inward | None:
        """The lease went with the borrower; the next one begins.  If this was the last, the application is told."""
        self._epoch = max(self._epoch, event.epoch)
        if not event.recreate:
            self.ended = True
            return None
        self.recreated += 1
        self._borrow(now_ns)
        return ((self.session, LeaseEnded(event.borrower)), (self.borrower, Start()))

    def _borrow(self, now_ns: int) -> None:
        self._number += 1
        self.borrower = fresh(self.host, self._number)
        record = BorrowerRecord(
            self.borrower, self.group, self.filter, self.registry, self.configuration, epoch=self._epoch
        )
        self._add(BORROWER, record, now_ns)

    def _add(self, fsm: Fsm[Any], record: Any, now_ns: int) -> None:
        self.add(Node(fsm, record, name=record.id, now_ns=now_ns, observe=self._observe, check=self._check))
