"""AgentConsumer: a Consumer whose Agent is the shipped process: borrowers follow each other, and last words are said
again, by its table.

The witness is left out.  In its place stands an environment: the claim always names who speaks, and the epoch that the
last borrower had seen.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Ask, Event, Fsm, Send, fresh, incarnation
from statemachines.shared_subscriptions.agent_process import AGENT, BORROWERS
from statemachines.shared_subscriptions.agent_record import (
    AgentRecord,
    EndSubscription,
    GroupReady,
    Shared,
    SubscribeShared,
)
from statemachines.shared_subscriptions.borrower import OnUnsubscribe
from statemachines_spec.explorer.actor import Crash, Envelope, Reaction, Watch
from statemachines_spec.explorer.party import InternedParty, LateFiring, fire_late
from statemachines_spec.explorer.process_steps import PartsTurn, ProcessPart, ProcessParts, ProcessSteps
from statemachines_spec.shared_subscriptions.consumer import (
    CRASHED,
    ENDED,
    FILTER,
    GOING_ON,
    GROUP,
    RUNNING,
    Consumer,
    ConsumerLocal,
)
from statemachines_spec.shared_subscriptions.process_variants import leave_out_witness, use_machine


class AgentLocal(ConsumerLocal, frozen=True, gc=False):
    """`own`: what the process knows."""

    own: InternedParty | None = None

    def parts(self) -> ProcessParts:
        """The process."""
        assert self.own is not None
        return ProcessParts(self.own, () if self.party is None else (ProcessPart(BORROWERS.name, self.party),))


class AgentConsumer(Consumer):
    """As a `Consumer`; without a tick."""

    def __init__(self, name: str, *options: Any, **more: Any) -> None:
        super().__init__(name, *options, **more)
        self.host = incarnation(name, 1)
        self.process = leave_out_witness(use_machine(AGENT, BORROWERS.name, self.fsm))
        self.steps = ProcessSteps(self.process, late=self.late)

    def initial(self) -> AgentLocal:
        parts = subscribe(self.steps, AgentRecord(self.host, (self.registry,), self.configuration))
        return self._local(AgentLocal(RUNNING, 1, 0, None), parts)

    @property
    def machines(self) -> tuple[Fsm[Any], ...]:
        return self.process.machines

    def react(self, local: ConsumerLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        assert isinstance(local, AgentLocal)
        event = envelope.event
        if isinstance(event, Crash):
            return Reaction(AgentLocal(CRASHED, local.number, 0, None))
        if envelope.sender and local.mode in (*GOING_ON, ENDED):
            turn = PartsTurn(self.steps, local.parts(), watch)
            turn.receive(envelope.sender, envelope.to, event)
            return self._over(local, self._done(local, turn), watch)
        if isinstance(event, LateFiring):
            party, event = fire_late(self.fsm, local.party.party, event)
            local = replace(local, party=self.steps.intern(party))
            return self._over(local, self._step(local, [event], watch), watch)
        return super().react(local, envelope, watch)

    def _step(self, local: ConsumerLocal, events: list[Event], watch: Watch | None) -> Reaction:
        assert isinstance(local, AgentLocal)
        turn = PartsTurn(self.steps, local.parts(), watch)
        for event in events if local.party is not None else ():
            if isinstance(event, OnUnsubscribe):
                turn.feed(self.host, EndSubscription(turn.record.parties[local.party.record.id]))
            else:
                turn.feed(local.party.record.id, event)
        return self._done(local, turn)

    def _done(self, before: AgentLocal, turn: PartsTurn) -> Reaction:
        sends = tuple(Envelope(party, one.to, one.message) for party, one in turn.out if isinstance(one, Send))
        parts = limit_lives(self.steps, turn.parts(), self.lives)
        beyond = fresh(self.host, self.lives + 1)
        local = self._settled(self._local(before, parts))
        return Reaction(local, tuple(one for one in sends if one.sender != beyond))

    @staticmethod
    def _local(before: AgentLocal, parts: ProcessParts) -> AgentLocal:
        own, party = parts.own, parts.of_kind(BORROWERS.name)
        if party is None:
            return AgentLocal(ENDED, own.record.number, 0, None, own=own)
        return replace(before, number=own.record.number, own=own, party=party)


def limit_lives(steps: ProcessSteps, parts: ProcessParts, lives: int) -> ProcessParts:
    """The process, whose subscription ends in place of a borrower beyond `lives`."""
    if parts.own.record.number <= lives:
        return parts
    own = steps.changed(parts.own, "ended", lambda record: end_subscription(record, lives))
    return ProcessParts(own, tuple(one for one in parts.parties if one.kind != BORROWERS.name))


def end_subscription(record: AgentRecord, lives: int) -> AgentRecord:
    (party,) = record.parties
    return replace(record.end(party), number=lives, turn=lives + 1, recreated=lives - 1)


def subscribe(
    steps: ProcessSteps, record: AgentRecord, topic_filter: str = FILTER, at_delivery: bool = False
) -> ProcessParts:
    """Subscribed to a group that is declared, the first leader_wanted lost: the timer asks again."""
    turn = PartsTurn(steps, steps.begin(record), None)
    turn.feed(record.id, SubscribeShared(Shared(GROUP, topic_filter, at_delivery)))
    declarer = next(party for party, effect in turn.out if isinstance(effect, Ask))
    turn.feed(record.id, GroupReady(declarer))
    turn.remove(declarer)
    return turn.parts()
