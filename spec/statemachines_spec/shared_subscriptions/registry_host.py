"""RegistryHost: a LeaderHost whose registry is the shipped process: it finds, starts and forgets leaders by its table.

Its environment is that of a `LeaderHost`: what is relayed to it is answered directly, and a claim grows old.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Ask, Event, Fsm, incarnation
from statemachines.shared_subscriptions.claim import ClaimEnd
from statemachines.shared_subscriptions.group_store import SERVICE as GROUP_STORE
from statemachines.shared_subscriptions.message import LeaderWanted
from statemachines.shared_subscriptions.registry_process import LEADERS, REGISTRY, RegistryRecord
from statemachines_spec.explorer.actor import Crash, Envelope, Reaction, Watch
from statemachines_spec.explorer.party import InternedParty, LateFiring, fire_late
from statemachines_spec.explorer.process_steps import PartsTurn, ProcessPart, ProcessParts, ProcessSteps
from statemachines_spec.shared_subscriptions.leader_host import (
    RUNNING,
    HostLocal,
    LeaderHost,
    Watched,
    renumber_leader,
)
from statemachines_spec.shared_subscriptions.process_variants import use_machine


class RegistryLocal(HostLocal, frozen=True, gc=False):
    """`own`: what the process knows."""

    own: InternedParty | None = None

    def parts(self) -> ProcessParts:
        """The process."""
        assert self.own is not None
        return ProcessParts(self.own, () if self.party is None else (ProcessPart(LEADERS.name, self.party),))


class RegistryHost(LeaderHost):
    """As a `LeaderHost`; without a tick."""

    def __init__(self, name: str, *options: Any, **more: Any) -> None:
        super().__init__(name, *options, **more)
        self.process = use_machine(REGISTRY, LEADERS.name, self.fsm)
        self.steps = ProcessSteps(self.process, late=self.late)

    def initial(self) -> RegistryLocal:
        return self._begun(1)

    def _begun(self, life: int) -> RegistryLocal:
        record = RegistryRecord(incarnation(self.name, life), self.configuration, alone=self.alone)
        return RegistryLocal(RUNNING, life, 0, 0, None, own=self.steps.begin(record).own)

    @property
    def machines(self) -> tuple[Fsm[Any], ...]:
        return self.process.machines

    def react(self, local: HostLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        if isinstance(envelope.event, Crash):
            return Reaction(self._begun(local.life + 1))
        if isinstance(envelope.event, LateFiring) and local.mode is RUNNING and local.party is not None:
            party, event = fire_late(self.fsm, local.party.party, envelope.event)
            return self._step(replace(local, party=self.steps.intern(party)), [event], watch)
        return super().react(local, envelope, watch)

    def canonical(self, local: HostLocal) -> HostLocal:
        if local.party is None:
            return local
        awaited = local.awaited
        named = self.steps.changed(local.party, f"{bool(awaited)}", lambda record: renumber_leader(record, awaited))
        return replace(local, party=named)

    # -- reactions ----------------------------------------------------------------------------------------------

    def _changed(self, party: Any, record: Any) -> Any:
        return self.steps.intern(replace(party.party, record=record))

    def _want(self, local: HostLocal, event: LeaderWanted, watch: Watch | None) -> Reaction:
        assert isinstance(local, RegistryLocal)
        turn = PartsTurn(self.steps, local.parts(), watch)
        turn.receive(event.borrower, self.name, event)
        return self._finish(local, turn, watch)

    def _refuse(self, local: HostLocal, envelope: Envelope) -> Reaction:
        assert isinstance(local, RegistryLocal)
        turn = PartsTurn(self.steps, local.parts(), None)
        turn.receive(envelope.sender, envelope.to, envelope.event)
        reaction = self._finish(local, turn, None)
        if self.by_name:
            return reaction
        return replace(reaction, sends=tuple(replace(one, sender=envelope.to) for one in reaction.sends))

    def _step(self, local: HostLocal, events: list[Event], watch: Watch | None) -> Reaction:
        assert isinstance(local, RegistryLocal)
        turn = PartsTurn(self.steps, local.parts(), watch)
        for event in events if local.party is not None else ():
            turn.feed(local.party.record.id, event)
        return self._finish(local, turn, watch)

    def _finish(self, before: RegistryLocal, turn: PartsTurn, watch: Watch | None) -> Reaction:
        local = self._local(before, turn)
        sends: list[Envelope] = []
        calls: list[Envelope] = []
        was_ripe = before.party is not None and before.party.record.ripe
        if local.party is not None and local.party.record.ripe and not was_ripe:
            calls.append(Envelope("", GROUP_STORE, Watched(local.party.record.found.stamp)))
        if local.passed and self._is_armed(local, "claim_end"):
            # Armed for a moment that is over: it fires before anything else.
            turn.feed(local.party.record.id, ClaimEnd())
            local = self._local(replace(local, passed=0), turn)
        for name, effect in turn.out:
            self._perform(name, effect, sends, calls)
        asks = sum(isinstance(effect, Ask) for _, effect in turn.out)
        if local.party is None:
            return Reaction(replace(local, awaited=0, passed=0), tuple(sends), tuple(calls))
        local = replace(local, awaited=local.awaited + asks)
        return Reaction(self._settled(local, local.party.record.id), tuple(sends), tuple(calls))

    @staticmethod
    def _local(before: RegistryLocal, turn: PartsTurn) -> RegistryLocal:
        parts = turn.parts()
        return replace(before, number=parts.own.record.number, own=parts.own, party=parts.of_kind(LEADERS.name))
