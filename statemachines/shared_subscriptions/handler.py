"""Handler: all subscriptions of one session, shared and private (source: "Session Shared Subscription Handler").

One `Session` reads and delivers for all of them.  What it decides is the declared process `HANDLER`; here are the calls
of an application.  No input or output of its own: a driver feeds it and performs what comes out.  `Tell(Deliver)`,
`Tell(Acknowledged)`, `Tell(Ready)`, `Tell(ReadTo)`, `Tell(Suspended)`, `Tell(Resumed)` and `Tell(Ended)` are for the
application.

Agent: the Borrowers of one session, for those who have a session of their own (source: "Shared Subscription Agent").

To subscribe is to declare the group.  When that is done it makes a borrower for the subscription; it hands events to
the one they are for, makes the next when one had to end itself (new id, the epoch that the claim names), and repeats
the last word of one of this life that is gone to leaders that talk to it still.  Borrowers know nothing of each other
and are told apart by their ids alone: after a quick unsubscribe and subscribe two of one group and filter live side by
side, one finishing, one connecting.

What it decides is the declared process `AGENT`.  Here are the calls of an application, each an event of that process,
and what may be read of it.

Subscription: a session with one shared subscription at a time, for an application that wants no more.

It may be started again as soon as it is unsubscribed: what is in hand is finished beside the new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any, Literal

from statemachines.kernel import ConfigurationError, Outgoing, Process, ProcessRunner
from statemachines.kernel.node import Observer
from statemachines.shared_subscriptions.agent_process import AGENT, BORROWERS, DECLARERS
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.group_store import Order
from statemachines.shared_subscriptions.handler_process import HANDLER, SESSIONS
from statemachines.shared_subscriptions.names import check_filter, check_group
from statemachines.shared_subscriptions.private_subscription import (
    BUFFER,
    AgentRecord,
    EndSubscription,
    LeaveAll,
    LeaveSubscription,
    Private,
    SharedFilter,
    SubscribeAlone,
    SubscribeShared,
)
from statemachines.shared_subscriptions.returned_messages import check_nack
from statemachines.shared_subscriptions.session import (
    Ack,
    CountedBatch,
    Nack,
    SessionRecord,
    Take,
    check_ack,
    list_kept,
)
from statemachines.shared_subscriptions.stream_store import Fetched


class Agent(ProcessRunner):
    """`life` is the incarnation of the process (`consumer-1~3`); `registries`: the nodes where leaders are found, one
    or several, asked in turn.  A subscription goes by the id of its first borrower."""

    PROCESS: Process[AgentRecord] = AGENT

    def __init__(
        self,
        life: str,
        registries: str | tuple[str, ...],
        configuration: Configuration,
        *,
        buffer: int = 0,
        observe: Observer | None = None,
        check: bool = False,
    ) -> None:
        registries = (registries,) if isinstance(registries, str) else registries
        if not registries:
            raise ConfigurationError("registries", registries, "must name at least one leader host")
        record = AgentRecord(life, registries, configuration.check(), buffer)
        super().__init__(self.PROCESS, record, observe=observe, check=check)

    # -- calls --------------------------------------------------------------------------------------------------

    def subscribe(self, wanted: SharedFilter, now_ns: int) -> tuple[str, list[Outgoing]]:
        """Begin: the id of the new subscription, and what to do.

        Raises `ConfigurationError` for a malformed group or filter, `LocalProtocolError` where there are too many
        subscriptions.
        """
        return self._begin(SubscribeShared(wanted), now_ns)

    def unsubscribe(self, subscription: str, now_ns: int) -> list[Outgoing]:
        """Finish what is in hand, then end; nothing happens if it has ended or is about to."""
        return self.call(EndSubscription(subscription), now_ns)

    def leave(self, subscription: str, now_ns: int) -> list[Outgoing]:
        """Finish what is not in hand, say what is known of it, and end it at once: its streams are free for others.
        Nothing happens if it has ended."""
        return [*self.unsubscribe(subscription, now_ns), *self.call(LeaveSubscription(subscription), now_ns)]

    def leave_all(self, now_ns: int) -> list[Outgoing]:
        """The session goes: the same for every subscription."""
        finished = [self.unsubscribe(subscription, now_ns) for subscription, _ in self.record.in_order()]
        return [*chain.from_iterable(finished), *self.call(LeaveAll(), now_ns)]

    def _begin(self, call: Any, now_ns: int) -> tuple[str, list[Outgoing]]:
        number = self.record.number + 1
        out = self.call(call, now_ns)
        return self.process.kinds[BORROWERS.name].id_of(self.id, number), out

    # -- what may be read ---------------------------------------------------------------------------------------

    @property
    def parties(self) -> Mapping[str, str]:
        """The id of each party that serves a subscription -> that subscription."""
        parties: Mapping[str, str] = self.record.parties
        return parties

    def has_subscription(self, subscription: str) -> bool:
        """It has not ended."""
        return subscription in self.record.subscriptions

    def party_of(self, subscription: str) -> str:
        """What serves a subscription at the moment ("" = it has ended)."""
        known = self.record.subscriptions.get(subscription)
        return "" if known is None else known.party

    def borrower_of(self, subscription: str) -> str:
        """Its borrower of the moment ("" = its group is not declared yet, it stands by, or it has ended)."""
        known = self.record.subscriptions.get(subscription)
        return known.party if known is not None and known.kind == BORROWERS.name else ""

    def is_being_declared(self, subscription: str) -> bool:
        """It waits for its group to be declared."""
        known = self.record.subscriptions.get(subscription)
        return known is not None and known.kind == DECLARERS.name


class Handler(Agent):
    """As `Agent`; `buffer`: messages per stream that may be fetched ahead of what is acknowledged."""

    PROCESS = HANDLER

    def __init__(
        self,
        life: str,
        registries: str | tuple[str, ...],
        configuration: Configuration,
        *,
        buffer: int = BUFFER,
        observe: Observer | None = None,
        check: bool = False,
    ) -> None:
        if buffer < 1:
            raise ConfigurationError("buffer", buffer, "must be at least 1 message")
        super().__init__(life, registries, configuration, buffer=buffer, observe=observe, check=check)
        self.session = SESSIONS.id_of(life)

    def subscribe(self, wanted: SharedFilter | Private, now_ns: int) -> tuple[str, list[Outgoing]]:
        """Begin: the id of the new subscription, and what to do.

        Raises `ConfigurationError` for a malformed filter, `LocalProtocolError` where there are too many subscriptions.
        """
        if isinstance(wanted, SharedFilter):
            return super().subscribe(wanted, now_ns)
        return self._begin(SubscribeAlone(wanted), now_ns)

    def subscription_of(self, owner: str) -> str:
        """The subscription that an owner of messages reads for ("" = it is gone)."""
        return self.parties.get(owner, "")

    def place_of(self, owner: str) -> tuple[str, str]:
        """The group and filter that an owner of messages reads for; no group where it is private, or gone."""
        known = self.record.subscriptions.get(self.subscription_of(owner))
        return ("", "") if known is None else known.place

    def take_messages(self, limit: int, now_ns: int) -> list[Outgoing]:
        """Hand over at most `limit` messages of one stream: `Tell(Deliver)` comes out, or nothing."""
        return self.feed(self.session, Take(limit), now_ns)

    def take_in(self, answer: Fetched, now_ns: int) -> tuple[list[Outgoing], tuple[CountedBatch, ...]]:
        """Messages were fetched: what to do, and what of them the session has counted (their payloads are the
        driver's)."""
        out = self.fire_first(now_ns)  # it may end a lease, and then nothing is counted
        counted = list_kept(self.reads, answer)
        return out + self.feed(self.session, answer, now_ns), counted

    @property
    def reads(self) -> SessionRecord:
        """What the session knows."""
        record: SessionRecord = self.nodes[self.session].record
        return record

    def check_ack(self, owner: str, stream: str, grant: int, first: int, last: int) -> None:
        """Raises `LocalProtocolError` where the session would refuse to `acknowledge` them."""
        check_ack(self.reads, Ack(owner, stream, grant, first, last))

    def give_back(self, message: Nack, now_ns: int) -> list[Outgoing]:
        """A message that was handed over was not dealt with."""
        return self.feed(self.session, message, now_ns)

    def check_nack(self, message: Nack, failed: int) -> None:
        """Raises `LocalProtocolError` where the session would refuse to `give_back` it, or where it was handed over
        again since it had failed so often."""
        check_nack(self.reads, message, failed)

    def acknowledge(self, owner: str, stream: str, grant: int, first: int, last: int, now_ns: int) -> list[Outgoing]:
        """Messages `first`..`last`, delivered for `owner` under `grant`, are dealt with."""
        return self.feed(self.session, Ack(owner, stream, grant, first, last), now_ns)


class Subscription(Handler):
    """`life` is the incarnation of the process (`consumer-1~3`); `registries`: the nodes where leaders are found
    (`leader-1`); `start_ns`, `at_delivery` as for `Shared`."""

    def __init__(
        self,
        life: str,
        group: str,
        topic_filter: str,
        registries: str | tuple[str, ...],
        configuration: Configuration,
        *,
        start_ns: int = -1,
        at_delivery: bool = False,
        order: Order | Literal[""] = "",
        buffer: int = BUFFER,
        observe: Observer | None = None,
        check: bool = False,
    ) -> None:
        super().__init__(life, registries, configuration, buffer=buffer, observe=observe, check=check)
        check_group(group)
        check_filter(topic_filter, topic_filter)
        self.wanted = SharedFilter(group, topic_filter, at_delivery, start_ns, order)
        self.subscription = ""

    @property
    def borrower(self) -> str:
        """The borrower of the moment ("" = not begun, the group is not declared yet, or ended)."""
        return self.borrower_of(self.subscription)

    @property
    def is_ended(self) -> bool:
        """The last borrower is gone for good: nothing will be delivered any more."""
        return self.subscription != "" and not self.has_subscription(self.subscription)

    def start(self, now_ns: int) -> list[Outgoing]:
        """Subscribe: declare the group, then look for its leader."""
        self.subscription, out = self.subscribe(self.wanted, now_ns)
        return out

    def end(self, now_ns: int) -> list[Outgoing]:
        """Finish what is in hand, then end."""
        return self.unsubscribe(self.subscription, now_ns)
