"""Registry: finds or starts the leader of a group and filter, in its process (source: "Registry").

Borrowers address `leader_wanted` to the node; everything later to the leader itself, by its id.  Whoever talks to a
leader that is gone is told so.  No input or output of its own: a driver feeds it and performs what comes out.
"""

from __future__ import annotations

from statemachines.kernel import (
    Answer,
    ConfigurationError,
    Event,
    Inward,
    Node,
    Outgoing,
    RemoteProtocolError,
    Send,
    fresh,
    is_fresh,
)
from statemachines.kernel.node import Observer
from statemachines.shared_subscriptions.claim import Halt, StartLeader
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.leader import LEADER, Resigned
from statemachines.shared_subscriptions.leader_record import LeaderRecord
from statemachines.shared_subscriptions.message import (
    Invalidate,
    LeaderWanted,
    Ping,
    RelayedToBorrower,
    RelayedToLeader,
    ToLeaderHost,
    UpdateProgress,
)
from statemachines.shared_subscriptions.names import check_filter, check_group
from statemachines.shared_subscriptions.relay import RelayingHost

LEADERS_MAX = 10_000
"""A process leads no more groups than this; who asks for another is not answered."""


class Registry(RelayingHost):
    """`host` is the incarnation of the process (`leader-1~3`); `alone`: no other host could lead in its place."""

    def __init__(
        self,
        host: str,
        configuration: Configuration,
        *,
        alone: bool = False,
        observe: Observer | None = None,
        check: bool = False,
    ) -> None:
        super().__init__()
        self.host = host
        self.alone = alone
        self.configuration = configuration.check()
        self.leaders: dict[tuple[str, str], str] = {}
        self._let_go: dict[tuple[str, str], int] = {}
        self._observe = observe
        self._check = check
        self._number = 0
        self._closing = False

    def receive(self, to: str, message: ToLeaderHost, now_ns: int) -> list[Outgoing]:
        """A message of a borrower, to a leader by its id or (`leader_wanted`) to whoever leads its group; or one that
        is relayed.

        A follower elsewhere relays `leader_wanted` to the holder of the claim by its id: if that one is gone, nobody
        answers, since passing it on again could go round in a circle.
        """
        if isinstance(message, RelayedToLeader) and to == message.leader:
            return self._hear_around(message, now_ns)
        if to in self.nodes:
            return self.feed(to, message, now_ns)
        if isinstance(message, LeaderWanted):
            return self.fire_first(now_ns) if is_fresh(to) else self._want(message, now_ns)
        out = self.fire_first(now_ns)
        if isinstance(message, Ping | UpdateProgress):
            gone = Invalidate(message.borrower, message.epoch, message.registration)
            out.append((self.host, Send(message.borrower, gone)))  # that leader may have been of another life
        return out

    def answer(self, party: str, answer: Answer, now_ns: int) -> list[Outgoing]:
        """What a store answered to the leader `party`."""
        return self.feed(party, answer, now_ns)

    def close(self, now_ns: int) -> list[Outgoing]:
        """The host ends: every leader gives its claim up, and no other is started; it is done when `nodes` is empty.

        Whoever asks for a leader meanwhile asks the next host: one started here would take the claim that was just
        given up, and keep it beyond the end of the host.
        """
        self._closing = True
        return self.halt(now_ns)

    def halt(self, now_ns: int) -> list[Outgoing]:
        """Every leader gives its claim up; whoever asks next starts another."""
        return [one for party in sorted(self.nodes) for one in self.feed(party, Halt(), now_ns)]

    def route_tell(self, party: str, event: Event, now_ns: int) -> Inward | None:
        if isinstance(event, Resigned) and self.leaders.get((event.group, event.filter)) == event.leader:
            self.leaders.pop((event.group, event.filter), None)
            if event.unfit and not self.alone:
                self._hold_back(event, now_ns)
        return None

    def relay_message(self, speaker: str, via: str, effect: Send) -> Send:
        return Send(via, RelayedToBorrower(speaker, via, effect.message))  # type: ignore[arg-type]

    def _hear_around(self, event: RelayedToLeader, now_ns: int) -> list[Outgoing]:
        """A follower relays it to a leader of ours: for a validity the borrower is reached through that follower."""
        message, via = event.message, event.via
        if event.leader in self.nodes:
            self.keep_detour(message.borrower, via, now_ns + self.configuration.validity_ms * MS)
            return self._answer_around(lambda: self.feed(event.leader, message, now_ns))
        out = self.fire_first(now_ns)
        if isinstance(message, Ping | UpdateProgress):
            gone = Invalidate(message.borrower, message.epoch, message.registration)
            out.append((self.host, Send(via, RelayedToBorrower(self.host, via, gone))))
        return out

    def _hold_back(self, event: Resigned, now_ns: int) -> None:
        """Its leader could not serve: another host takes the claim, if one lives, before this one tries again."""
        wait_ms = self.configuration.claim_ttl_ms + self.configuration.find_leader_ms
        self._let_go = {place: until for place, until in self._let_go.items() if until > now_ns}
        self._let_go[event.group, event.filter] = now_ns + wait_ms * MS

    def _want(self, message: LeaderWanted, now_ns: int) -> list[Outgoing]:
        party = self.leaders.get((message.group, message.filter))
        if party is not None:
            return self.feed(party, message, now_ns)
        if self._closing or len(self.leaders) >= LEADERS_MAX:
            return self.fire_first(now_ns)
        try:
            check_group(message.group)
            check_filter(message.filter, message.filter)
        except ConfigurationError as error:
            raise RemoteProtocolError("registry", "-", "leader_wanted", "", str(error)) from error
        party = self._start(message.group, message.filter, now_ns)
        out = self.feed(party, StartLeader(), now_ns)
        return out + self.feed(party, message, now_ns)

    def _start(self, group: str, topic_filter: str, now_ns: int) -> str:
        self._number += 1
        party = fresh(self.host, self._number)
        waits_ns = self._let_go.get((group, topic_filter), 0)
        record = LeaderRecord(party, group, topic_filter, self.configuration, alone=self.alone, not_before_ns=waits_ns)
        self.leaders[group, topic_filter] = party
        self.add(Node(LEADER, record, name=party, now_ns=now_ns, observe=self._observe, check=self._check))
        return party
