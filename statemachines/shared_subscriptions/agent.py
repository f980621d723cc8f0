"""Agent: the Borrowers of one session, as a host of machines (source: "Shared Subscription Agent").

To subscribe is to declare the group.  When that is done it makes a borrower for the subscription; it hands events to
the one they are for, makes the next when one had to end itself (new id, the epoch that the claim names), and repeats
the last word of one of this life that is gone to leaders that talk to it still.  Borrowers know nothing of each other
and are told apart by their ids alone: after a quick unsubscribe and subscribe two of one group and filter live side by
side, one finishing, one connecting.

A borrower hears a leader only while the claim names it, as the group's `Witness` has read it; what anybody else says is
kept, not for long, until the claim was read again.

What its borrowers tell (`Install`, `Finish`, `Uninstall`, `LeaseBegan`, `LeaseEnded`, `Destroyed`) comes out as `Tell`,
for whoever has a session of its own; the `Handler` takes it in.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from statemachines.kernel import (
    Answer,
    ConfigurationError,
    Event,
    Fsm,
    Inward,
    LocalProtocolError,
    Node,
    Outgoing,
    Send,
    fresh,
    life_of,
)
from statemachines.kernel.node import Observer
from statemachines.shared_subscriptions.borrower import (
    BORROWER,
    BorrowerRecord,
    Destroyed,
    OnDisconnect,
    OnUnsubscribe,
    Start,
)
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.group import GROUP, DeclarationRefused, Declare, GroupDeclared, GroupRecord
from statemachines.shared_subscriptions.message import (
    Disconnect,
    Invalidate,
    LeaderConnectResponse,
    PingResponse,
    RelayedToBorrower,
    RelayedToLeader,
    Report,
    ToConsumer,
    Undeclared,
)
from statemachines.shared_subscriptions.names import check_filter, check_group
from statemachines.shared_subscriptions.relay import RelayingHost
from statemachines.shared_subscriptions.witness import (
    WITNESS,
    ClaimRead,
    Doubt,
    WitnessRecord,
    is_believed,
    is_misled,
)

LAST_WORDS_MAX = 64
"""Of so many borrowers that are gone the Agent remembers what they said last."""

DOUBTED_MAX = 64
"""Of so many messages of leaders that the claim may name by now the Agent waits to know, for each group; older ones are
dropped, as a network may."""

SUBSCRIPTIONS_MAX = 1_000
"""A session has no more subscriptions than this, those counted that are still finishing."""


class Shared(msgspec.Struct, frozen=True, gc=False):
    """What a client subscribes to together with others: `$shared/GROUP/FILTER`.  `at_delivery`: messages are
    acknowledged when they are handed over (fire and forget); `start_ns`: where the group begins if this declares it,
    in store time (0: everything stored; -1: now)."""

    group: str
    filter: str
    at_delivery: bool = False
    start_ns: int = -1


def is_ours(borrower: str, host: str) -> bool:
    """It is a borrower of this very life, not of another that goes by its name."""
    return life_of(borrower) == host


def speaker_of(sender: str, message: ToConsumer) -> str:
    """Whose words these are."""
    return message.leader if isinstance(message, RelayedToBorrower) else sender


class Agent(RelayingHost):
    """`host` is the incarnation of the process (`consumer-1~3`); `registries`: the nodes where leaders are found, one
    or several, asked in turn.

    A subscription goes by the id of its first borrower.  `shared`: those that have not ended; `parties`: id of
    each party that lives -> its subscription; `refused`: those whose group lives by other times; `recreated` counts the
    borrowers that had to end themselves.
    """

    def __init__(
        self,
        host: str,
        registries: str | tuple[str, ...],
        configuration: Configuration,
        *,
        observe: Observer | None = None,
        check: bool = False,
    ) -> None:
        super().__init__()
        self.host = host
        self.registries = (registries,) if isinstance(registries, str) else registries
        if not self.registries:
            raise ConfigurationError("registries", self.registries, "must name at least one leader host")
        self.configuration = configuration.check()
        self.shared: dict[str, Shared] = {}
        self.parties: dict[str, str] = {}
        self.refused: dict[str, DeclarationRefused] = {}
        self.recreated = 0
        self._party_of: dict[str, str] = {}
        self._last_words: dict[str, tuple[Report, ...]] = {}
        self._witnesses: dict[tuple[str, str], str] = {}
        self._doubted: dict[str, deque[tuple[str, ToConsumer]]] = {}
        self._observe = observe
        self._check = check
        self._number = 0
        self._declarations = 0
        self._witnessed = 0

    def on_subscribe(self, wanted: Shared, now_ns: int) -> tuple[str, list[Outgoing]]:
        """Begin: the id of the new subscription, and what to do.

        Raises `ConfigurationError` for a malformed group or filter, `LocalProtocolError` where there are too many
        subscriptions.
        """
        check_group(wanted.group)
        check_filter(wanted.filter, wanted.filter)
        self._check_room()
        subscription = self._fresh()
        self.shared[subscription] = wanted
        out = self.fire_first(now_ns)
        for party, event in self._begin(subscription, now_ns):
            out += self.feed(party, event, now_ns)
        return subscription, out

    def on_unsubscribe(self, subscription: str, now_ns: int) -> list[Outgoing]:
        """Finish what is in hand, then end; nothing happens if it has ended or is about to."""
        out = self.fire_first(now_ns)  # what goes on at once may put another borrower in the place of this one
        self._give_up(subscription)
        return out + self.feed(self.party_of(subscription), OnUnsubscribe(), now_ns)

    def on_disconnect(self, now_ns: int) -> list[Outgoing]:
        """The session goes: say what is known of every subscription, and end at once."""
        return [one for subscription in list(self._party_of) for one in self.on_leave(subscription, now_ns)]

    def on_leave(self, subscription: str, now_ns: int) -> list[Outgoing]:
        """The same for one subscription: its streams are free for others at once.  Nothing happens if it has ended."""
        out = self.fire_first(now_ns)
        self._give_up(subscription)
        return out + self.feed(self.party_of(subscription), OnDisconnect(), now_ns)

    def receive(self, sender: str, message: ToConsumer, now_ns: int) -> list[Outgoing]:
        """A message of a leader, or one that a follower relays, for one of our borrowers, living or gone.

        Those of other lives of this node are none of ours: one of them may still deliver under its lease, so nobody
        says for it that it is gone, and its leader waits for that lease to end.  What somebody says whom the claim does
        not name, as far as we know, waits until the claim was read.
        """
        if self._is_borrower(message.borrower):
            return self._hear(sender, message, now_ns)
        out = self.fire_first(now_ns)
        said = message.message if isinstance(message, RelayedToBorrower) else message
        if is_ours(said.borrower, self.host) and not isinstance(said, Undeclared):
            # The last word again: alone, an empty one could overtake it, and the progress in it would be lost.
            reports = self._last_words.get(said.borrower, ())
            farewell = Disconnect(said.borrower, said.epoch, said.registration, reports)
            back = Send(speaker_of(sender, message), farewell)
            if isinstance(message, RelayedToBorrower):
                back = self.relay_message(said.borrower, message.via, back)
            out.append((said.borrower, back))
        return out

    def relay_message(self, speaker: str, via: str, effect: Send) -> Send:
        return Send(via, RelayedToLeader(effect.to, via, effect.message))  # type: ignore[arg-type]

    def party_of(self, subscription: str) -> str:
        """What serves a subscription at the moment ("" = it has ended)."""
        return self._party_of.get(subscription, "")

    def borrower_of(self, subscription: str) -> str:
        """Its borrower of the moment ("" = its group is not declared yet, it stands by, or it has ended)."""
        party = self.party_of(subscription)
        return party if self._is_borrower(party) else ""

    def is_declared(self, subscription: str) -> bool:
        """The group of a subscription that has not ended is declared."""
        party = self.nodes.get(self.party_of(subscription))
        return party is not None and party.fsm is not GROUP

    def answer(self, party: str, answer: Answer, now_ns: int) -> list[Outgoing]:
        """What a store answered to one of our parties."""
        return self.feed(party, answer, now_ns)

    def route_tell(self, party: str, event: Event, now_ns: int) -> Inward | None:
        if isinstance(event, GroupDeclared):
            subscription = self.parties.pop(party)
            return self._borrow(subscription, subscription, 0, now_ns)
        if isinstance(event, ClaimRead):
            return self._believe(party)
        if isinstance(event, DeclarationRefused):
            self.refused[self.parties[party]] = event
            self._forget(party)
        if not isinstance(event, Destroyed):
            return None
        if event.recreate:
            self.recreated += 1
            self._remember(party, event.reports)
            return self._borrow(self.parties.pop(party), self._fresh(), event.epoch, now_ns)
        self._forget(party)
        self._remember(party, event.reports)
        return None

    # -- inside -------------------------------------------------------------------------------------------------

    def _begin(self, subscription: str, now_ns: int) -> Inward:
        """The first party of a new subscription declares the group."""
        wanted = self.shared[subscription]
        self._declarations += 1
        party = f"{self.host}/declare-{self._declarations}"
        self._enter(subscription, GROUP, GroupRecord(party, wanted.group, wanted.filter, self.configuration), now_ns)
        return ((party, Declare(wanted.start_ns)),)

    def _give_up(self, subscription: str) -> None:
        """The group is not even declared yet: there is nothing to finish."""
        party = self.party_of(subscription)
        if party in self.nodes and self.nodes[party].fsm is GROUP:
            self.remove(party)
            self._forget(party)

    def _forget(self, party: str) -> None:
        """The subscription that the party served has ended."""
        subscription = self.parties.pop(party)
        ended = self.shared.pop(subscription, None)
        del self._party_of[subscription]
        if ended is not None:
            self._dismiss_witness(ended)

    def _is_borrower(self, party: str) -> bool:
        node = self.nodes.get(party)
        return node is not None and node.fsm is BORROWER

    # -- whom to believe ----------------------------------------------------------------------------------------

    def _hear(self, sender: str, message: ToConsumer, now_ns: int) -> list[Outgoing]:
        """To the borrower, if the claim names who speaks; else it waits until the claim was read."""
        witness = self._witness_of(message.borrower)
        said = message.message if isinstance(message, RelayedToBorrower) else message
        if is_believed(witness, speaker_of(sender, message), said):
            self._note_way(message)
            return self.feed(said.borrower, said, now_ns)
        self._doubted[witness.id].append((sender, message))
        return self.feed(witness.id, Doubt(), now_ns)

    def _note_way(self, message: ToConsumer) -> None:
        """Whom a leader answers through a follower, that one speaks through it, too, until the leader itself answers a
        ping."""
        if isinstance(message, RelayedToBorrower) and isinstance(message.message, LeaderConnectResponse):
            for borrower in [borrower for borrower in self._detours if borrower not in self.nodes]:
                self.drop_detour(borrower)
            self.keep_detour(message.borrower, message.via)
        elif isinstance(message, PingResponse):
            self.drop_detour(message.borrower)

    def _highest_epoch(self, wanted: Shared, seen: int, now_ns: int) -> int:
        """What the store said last, and no borrower."""
        return self._witness(wanted, now_ns).epoch

    def _witness(self, wanted: Shared, now_ns: int) -> WitnessRecord:
        """That of a group and filter: one for all its borrowers, as long as there are any."""
        name = self._witnesses.get((wanted.group, wanted.filter), "")
        if not name:
            self._witnessed += 1
            name = f"{self.host}/witness-{self._witnessed}"
            self._witnesses[wanted.group, wanted.filter] = name
            self._doubted[name] = deque(maxlen=DOUBTED_MAX)
            self._add(WITNESS, WitnessRecord(name, wanted.group, wanted.filter, self.configuration), now_ns)
        record: WitnessRecord = self.nodes[name].record
        return record

    def _witness_of(self, borrower: str) -> WitnessRecord:
        wanted = self.shared[self.parties[borrower]]
        record: WitnessRecord = self.nodes[self._witnesses[wanted.group, wanted.filter]].record
        return record

    def _dismiss_witness(self, ended: Shared) -> None:
        """Unless another subscription is to the same."""
        place = (ended.group, ended.filter)
        if place in self._witnesses and all((one.group, one.filter) != place for one in self.shared.values()):
            name = self._witnesses.pop(place)
            del self._doubted[name]
            self.remove(name)

    def _believe(self, witness: str) -> Inward:
        """The claim was read: who follows somebody else begins anew, and what waited is heard if the claim names who
        said it."""
        record: WitnessRecord = self.nodes[witness].record
        place = (record.group, record.filter)
        for party, subscription in list(self.parties.items()):
            wanted = self.shared.get(subscription)
            if wanted is None or (wanted.group, wanted.filter) != place or not self._is_borrower(party):
                continue
            borrower: BorrowerRecord = self.nodes[party].record
            if is_misled(record, borrower):
                pair = (0, 0) if borrower.link is None else (borrower.link.epoch, borrower.link.registration)
                yield party, Invalidate(party, *pair)
        waiting = self._doubted[witness]
        for sender, one in waiting:
            said = one.message if isinstance(one, RelayedToBorrower) else one
            if is_believed(record, speaker_of(sender, one), said):
                self._note_way(one)
                yield said.borrower, said
        waiting.clear()

    # -- machines -----------------------------------------------------------------------------------------------

    def _borrow(self, subscription: str, borrower: str, seen: int, now_ns: int) -> Inward:
        """A new borrower for the subscription, and what makes it begin; `seen`: the epoch of the one before."""
        wanted = self.shared[subscription]
        epoch = self._highest_epoch(wanted, seen, now_ns)
        configuration = self.configuration
        record = BorrowerRecord(borrower, wanted.group, wanted.filter, self.registries, configuration, epoch=epoch)
        self._enter(subscription, BORROWER, record, now_ns)
        return ((borrower, Start()),)

    def _remember(self, borrower: str, reports: tuple[Report, ...]) -> None:
        if reports:
            self._last_words[borrower] = reports
        if len(self._last_words) > LAST_WORDS_MAX:
            del self._last_words[next(iter(self._last_words))]

    def _enter(self, subscription: str, fsm: Fsm[Any], record: Any, now_ns: int) -> None:
        """A machine that serves the subscription from now on."""
        self.parties[record.id] = subscription
        self._party_of[subscription] = record.id
        self._add(fsm, record, now_ns)

    def _add(self, fsm: Fsm[Any], record: Any, now_ns: int) -> None:
        self.add(Node(fsm, record, name=record.id, now_ns=now_ns, observe=self._observe, check=self._check))

    def _fresh(self) -> str:
        self._number += 1
        return fresh(self.host, self._number)

    def _check_room(self) -> None:
        if len(self._party_of) >= SUBSCRIPTIONS_MAX:
            why = f"a session has at most {SUBSCRIPTIONS_MAX} subscriptions; wait until some have ended, or use another"
            raise LocalProtocolError("agent", "-", "on_subscribe", "SS-174", why)
