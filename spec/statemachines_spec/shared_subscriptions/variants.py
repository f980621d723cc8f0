"""Variants: the settled protocol, and rules of the source that are unsafe as written, substituted in its tables.

Process variants: the declared processes of shared subscriptions without a party that the environment stands for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Arrived, Begin, ConfigurationError, Delegate, Event, Fsm, Map, Process, Row, in_order
from statemachines.kernel.fsm import Step
from statemachines.shared_subscriptions.agent_process import WITNESSES, is_for_living, place_of, said_in, speaker_of
from statemachines.shared_subscriptions.borrower import BORROWER, Destroyed
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.message import Undeclared
from statemachines.shared_subscriptions.private_subscription import AgentRecord
from statemachines.shared_subscriptions.stream import ABSENT
from statemachines_spec.bug import redeclare
from statemachines_spec.explorer.environment import Environment
from statemachines_spec.explorer.process_steps import copy_process
from statemachines_spec.explorer.variant import substitute_rows

VARIANTS = {
    "settled": "the protocol as it is shipped",
    "as_written": "the source: a borrower that deleted a stream has forgotten the number of its grant",
    "at_once": "the source: a stream is handed over without waiting for a lease to end (exclusive = false)",
}


def borrower(variant: str) -> Fsm[Any]:
    """The Borrower of a variant."""
    check_variant(variant)
    return substitute_rows(BORROWER, _forgetful) if variant == "as_written" else BORROWER


@contextmanager
def in_place(variant: str) -> Iterator[None]:
    """The shipped Borrower itself has the rules of the variant until the block ends: for hosts that know no other."""
    check_variant(variant)
    with ExitStack() as stack:
        if variant == "as_written":
            redeclare(stack, BORROWER, lambda row: [_forgetful(row) if isinstance(row, Row) else row])
        yield


def configuration(variant: str) -> Configuration:
    """The configuration of a variant.  Failed deliveries are counted in systems of their own."""
    check_variant(variant)
    return Configuration(exclusive=variant != "at_once", count_deliveries=False)


def check_variant(variant: str) -> str:
    """Itself; raises `ConfigurationError` for a variant that does not exist."""
    if variant not in VARIANTS:
        raise ConfigurationError("variant", variant, f"unknown; there are: {', '.join(VARIANTS)}")
    return variant


def _forgetful(row: Row) -> Row:
    """Every row that passes an event on to a stream: "it deletes all the stream-related data", its number included."""
    if not isinstance(row.do, Delegate):
        return row
    run = row.do.run

    @wraps(run)  # the table is the same, to the name: traces of it are judged by the shipped one
    def run_and_forget(record: Any, event: Event, now_ns: int) -> Any:
        after, effects, children = run(record, event, now_ns)
        held = Map({stream: child for stream, child in in_order(after.streams) if child.status is not ABSENT})
        return replace(after, streams=held), effects, children

    return Row(row.on, row.source, row.to, Delegate(run_and_forget), row.when, row.clause)


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
