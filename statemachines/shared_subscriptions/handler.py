"""Handler: all subscriptions of one session, shared and private, as a host of machines (source: "Session Shared
Subscription Handler").

One `Session` reads and delivers for all of them.  What a subscription's machine (a `Borrower`, or a `Private`) tells
goes to the session; the progress that the session reports goes to the machine it was read for.  No input or output of
its own: a driver feeds it and performs what comes out; `Tell(Deliver)`, `Tell(Acknowledged)`, `Tell(Ready)`,
`Tell(ReadTo)`, `Tell(Suspended)`, `Tell(Resumed)` and `Tell(Ended)` are for the application.
"""

from __future__ import annotations

from typing import Final

import msgspec

from statemachines.kernel import ConfigurationError, Event, Inward, Map, Outgoing, fresh
from statemachines.kernel.node import Observer
from statemachines.shared_subscriptions.agent import Agent, Shared
from statemachines.shared_subscriptions.borrower import Destroyed, GiveBack, LeaseBegan, LeaseEnded, Start
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.private_subscription import NOW, PRIVATE, PrivateRecord
from statemachines.shared_subscriptions.session import (
    SESSION,
    Ack,
    Admit,
    Dismiss,
    Kept,
    Progressed,
    ReadsFailed,
    ReadsSucceed,
    SessionRecord,
    Take,
    check_ack,
    list_kept,
)
from statemachines.shared_subscriptions.standby import STANDBY, Resume, StandbyRecord
from statemachines.shared_subscriptions.stream import Finish, Install, StreamProgress, Uninstall
from statemachines.shared_subscriptions.stream_store import Fetched, check_filter

BUFFER: Final = 256
"""Messages per stream that may be fetched ahead of what is acknowledged, where nobody says otherwise."""

TO_SESSION = (Install, Finish, Uninstall, LeaseBegan, LeaseEnded)


class Private(msgspec.Struct, frozen=True, gc=False):
    """What a client subscribes to alone: streams whose topic matches `filter` ("" = only those in `progress`).

    `start_ns`: where streams begin that are there already, `BEGINNING`, `NOW` or a time of the store; `progress`:
    stream -> next offset to read, as `ReadTo` told it in an earlier life.  `at_delivery` as for `Shared`.
    """

    filter: str
    start_ns: int = NOW
    progress: Map[str, int] = Map()
    at_delivery: bool = False


class Handler(Agent):
    """`host` is the incarnation of the process (`consumer-1~3`); `registries`: the nodes where leaders are found;
    `buffer`: messages per stream that may be fetched ahead of what is acknowledged."""

    def __init__(
        self,
        host: str,
        registries: str | tuple[str, ...],
        configuration: Configuration,
        *,
        buffer: int = BUFFER,
        observe: Observer | None = None,
        check: bool = False,
    ) -> None:
        super().__init__(host, registries, configuration, observe=observe, check=check)
        if buffer < 1:
            raise ConfigurationError("buffer", buffer, "must be at least 1 message")
        self.session = fresh(host, 0)
        patience_ns, retry_ns = configuration.validity_ms * MS, configuration.find_leader_ms * MS
        record = SessionRecord(self.session, buffer=buffer, patience_ns=patience_ns, retry_ns=retry_ns)
        self._add(SESSION, record, 0)

    # -- subscriptions ------------------------------------------------------------------------------------------

    def on_subscribe(self, wanted: Shared | Private, now_ns: int) -> tuple[str, list[Outgoing]]:
        """Begin: the id of the new subscription, and what to do.

        Raises `ConfigurationError` for a malformed filter, `LocalProtocolError` where there are too many subscriptions.
        """
        if isinstance(wanted, Shared):
            return super().on_subscribe(wanted, now_ns)
        if wanted.filter or not wanted.progress:
            check_filter(wanted.filter, wanted.filter)
        if any(at < 0 for at in wanted.progress.values()):
            raise ConfigurationError("progress", dict(wanted.progress), "must be offsets of streams, none below 0")
        self._check_room()
        subscription = self._fresh()
        renew_ns = self.configuration.renew_streams_ms * MS
        record = PrivateRecord(subscription, wanted.filter, wanted.start_ns, renew_ns, progress=wanted.progress)
        out = self.fire_first(now_ns)
        self._enter(subscription, PRIVATE, record, now_ns)
        out += self.feed(self.session, Admit(subscription, True, wanted.at_delivery), now_ns)
        out += self.feed(subscription, Start(), now_ns)
        return subscription, out

    def subscription_of(self, owner: str) -> str:
        """The subscription that an owner of messages reads for ("" = it is gone)."""
        return self.parties.get(owner, "")

    # -- messages -----------------------------------------------------------------------------------------------

    def take(self, limit: int, now_ns: int) -> list[Outgoing]:
        """Hand over at most `limit` messages of one stream: `Tell(Deliver)` comes out, or nothing."""
        return self.feed(self.session, Take(limit), now_ns)

    def take_in(self, answer: Fetched, now_ns: int) -> tuple[list[Outgoing], tuple[Kept, ...]]:
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

    def acknowledge(self, owner: str, stream: str, grant: int, first: int, last: int, now_ns: int) -> list[Outgoing]:
        """Messages `first`..`last`, delivered for `owner` under `grant`, are dealt with."""
        return self.feed(self.session, Ack(owner, stream, grant, first, last), now_ns)

    # -- between the machines -----------------------------------------------------------------------------------

    def route_tell(self, party: str, event: Event, now_ns: int) -> Inward | None:
        if isinstance(event, TO_SESSION):
            return ((self.session, event),)
        if isinstance(event, Progressed):
            progress = StreamProgress(event.stream, event.grant, event.progress, event.finished)
            return ((event.owner, progress),)
        if isinstance(event, ReadsFailed):
            return [(party, GiveBack()) for party in self.parties if self._is_borrower(party)]
        if isinstance(event, ReadsSucceed):
            return [(party, Resume()) for party in self.parties if self.nodes[party].fsm is STANDBY]
        if isinstance(event, Destroyed):
            ended = "" if event.recreate else self.parties[party]
            followed = super().route_tell(party, event, now_ns)
            return ((self.session, Dismiss(party, ended)), *(followed or ()))
        return super().route_tell(party, event, now_ns)

    def _borrow(self, subscription: str, borrower: str, seen: int, now_ns: int) -> Inward:
        """Where the session cannot read, somebody stands by in the place of the borrower."""
        wanted, trial = self.shared[subscription], self.reads.trial
        if trial:
            self._enter(subscription, STANDBY, StandbyRecord(borrower, subscription, trial[0].stream, seen), now_ns)
            begun: Inward = ((borrower, Start()),)
        else:
            begun = super()._borrow(subscription, borrower, seen, now_ns)
        return ((self.session, Admit(borrower, False, wanted.at_delivery)), *begun)
