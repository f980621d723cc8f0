"""Handler: all subscriptions of one session, shared and private (source: "Session Shared Subscription Handler").

One `Session` reads and delivers for all of them.  What it decides is the declared process `HANDLER`; here are the calls
of an application.  No input or output of its own: a driver feeds it and performs what comes out.  `Tell(Deliver)`,
`Tell(Acknowledged)`, `Tell(Ready)`, `Tell(ReadTo)`, `Tell(Suspended)`, `Tell(Resumed)` and `Tell(Ended)` are for the
application.
"""

from __future__ import annotations

from statemachines.kernel import ConfigurationError, Outgoing
from statemachines.kernel.node import Observer
from statemachines.shared_subscriptions.agent import Agent
from statemachines.shared_subscriptions.agent_record import BUFFER, Private, SharedFilter, SubscribeAlone
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.handler_process import HANDLER, SESSIONS
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
