"""Process variants: the declared processes of shared subscriptions without a party that the environment stands for."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Arrived, Begin, Event, Fsm, Process
from statemachines.kernel.fsm import Step
from statemachines.shared_subscriptions.agent_process import WITNESSES, is_for_living, place_of, said_in, speaker_of
from statemachines.shared_subscriptions.agent_record import AgentRecord
from statemachines.shared_subscriptions.borrower import Destroyed
from statemachines.shared_subscriptions.message import Undeclared
from statemachines_spec.explorer.environment import Environment
from statemachines_spec.explorer.process_steps import copy_process


def leave_out_witness(process: Process[Any]) -> Process[Any]:
    """The process without its witness: the claim always names who speaks, and the epoch that the last borrower had
    seen."""
    return copy_process(process, NamedSpeakers(process.fsm), tuple(process.kinds.values()))


class NamedSpeakers(Fsm[Any]):
    """The machine as it is, in an environment that stands for the witness: whoever speaks is named by the claim."""

    def __init__(self, fsm: Fsm[Any]) -> None:
        vars(self).update(vars(fsm))
        self._shipped = fsm

    def step(self, record: AgentRecord, event: Event, now_ns: int) -> Step[Any]:
        if isinstance(event, Destroyed) and event.recreate:
            record = raise_epoch(record, event)
        if isinstance(event, Arrived) and is_for_living(record, event):
            step = self._step_named(record, event, now_ns)
        else:
            step = self._shipped.step(record, event, now_ns)
        effects = (one for one in step.effects if not (isinstance(one, Begin) and one.kind == WITNESSES.name))
        return replace(step, effects=tuple(effects))

    def _step_named(self, record: AgentRecord, event: Arrived, now_ns: int) -> Step[Any]:
        """The claim names the speaker for this one step."""
        place, said = place_of(record, event.message.borrower), said_in(event)
        known = record.claims[place]
        leader = "" if isinstance(said, Undeclared) else speaker_of(event.sender, event.message)
        named = replace(known, leader=leader, epoch=getattr(said, "epoch", 0))
        step = self._shipped.step(replace(record, claims=record.claims.set(place, named)), event, now_ns)
        left = replace(step.record.claims[place], leader=known.leader, epoch=known.epoch)
        return replace(step, record=replace(step.record, claims=step.record.claims.set(place, left)))


def raise_epoch(record: AgentRecord, event: Destroyed) -> AgentRecord:
    """The next borrower knows the highest epoch that one before it had seen."""
    place = place_of(record, event.borrower)
    claim = record.claims[place]
    claim = replace(claim, epoch=max(claim.epoch, event.epoch))
    return replace(record, claims=record.claims.set(place, claim))


NAMED_SPEAKERS = Environment(
    "the witness",
    "the claim names each speaker, and the highest epoch that the last borrower had seen",
    (leave_out_witness, NamedSpeakers, raise_epoch),
)
