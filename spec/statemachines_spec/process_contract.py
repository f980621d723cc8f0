"""Contract of a process: one shipped process among everything that may be said to it, and what it owes to those who say
it.

As in a contract of one machine (`contract`), a counterpart stands for everybody else.  It calls the process, speaks to
it as a node (`Arrived`), and answers its parties as stores do (`PartyInput`).  It is told all that leaves the process,
as envelopes: who says it, to whom, and what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from statemachines.kernel import (
    Arrived,
    ConfigurationError,
    Event,
    LocalProtocolError,
    Process,
    RemoteProtocolError,
    name_of,
)
from statemachines_spec.contract import COUNTERPART, MACHINE, Counterpart, Did, HeardEvent, RuleTally, Say
from statemachines_spec.explorer.actor import Actor, Envelope, Passed, Reaction, Watch
from statemachines_spec.explorer.fsm_actor import RUNNING
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.party import PartyInput
from statemachines_spec.explorer.process_actor import ProcessActor, ProcessActorLocal
from statemachines_spec.explorer.process_steps import ProcessParts, ProcessSteps
from statemachines_spec.explorer.system import System

Said = tuple[Envelope, ...]


class RefusedCall(Event, frozen=True, gc=False):
    """The process refuses what it was called with, or what a peer has said; `error`: as which error."""

    error: str


class WholeProcess(ProcessActor):
    """`process` from the value on that `begin` gives; `told`: what it may tell the application.  All else as for a
    `ProcessActor`."""

    def __init__(
        self,
        process: Process[Any],
        begin: Callable[[ProcessSteps], ProcessParts],
        told: tuple[type[Event], ...],
        **given: Any,
    ) -> None:
        super().__init__(MACHINE, process, str, tells=dict.fromkeys(told, COUNTERPART), **given)
        self._begin = begin

    def initial(self) -> ProcessActorLocal:
        return ProcessActorLocal(RUNNING, 1, self._begin(self.steps))

    def react(self, local: ProcessActorLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        try:
            reaction = super().react(local, translate(envelope), watch)
        except (ConfigurationError, LocalProtocolError, RemoteProtocolError) as error:
            refused = Envelope(MACHINE, COUNTERPART, RefusedCall(type(error).__name__))
            reaction = Reaction(local, (), (refused,))
        if reaction is None or isinstance(event, Passed):
            return reaction
        said = (*reaction.sends, *reaction.calls)
        kinds = tuple(kind for one in (event, *(one.event for one in said)) for kind in list_kinds(one))
        return Reaction(reaction.local, (), (Envelope(MACHINE, COUNTERPART, Did(event, said, kinds)),))


def translate(envelope: Envelope) -> Envelope:
    """What is said, as the process takes it: a message of a node, an event of a party, or a call."""
    match envelope.event:
        case Arrived(sender, to, message):
            return Envelope(sender, to, message)
        case PartyInput():
            return envelope
    return envelope if isinstance(envelope.event, Passed) else Envelope("", MACHINE, envelope.event)


def list_kinds(event: Any) -> Iterator[str]:
    """What an event is called, and what it carries: some have the same fields."""
    yield name_of(type(event))
    for field in ("event", "message"):
        carried = getattr(event, field, None)
        if isinstance(carried, msgspec.Struct):
            yield from list_kinds(carried)


class ProcessCounterpart(Counterpart):
    """Everybody else around a process."""

    def inputs(self, local: HeardEvent) -> tuple[Any, ...]:
        return () if local.broken else tuple(Say(one, tuple(list_kinds(one))) for one in self.says(local.known))


def process_contract(
    name: str, about: str, process: WholeProcess, counterpart: ProcessCounterpart, *others: Actor
) -> System:
    """The closed system of the two; `others`: a clock, where time is counted."""
    bounds = {"counterpart": (type(counterpart).__doc__ or "").partition("\n")[0]}
    actors = (process, counterpart, RuleTally(), *others)
    return System(name, about, actors, Network(1), counterpart.properties(), bounds=bounds)


def find_said(said: Said, kind: type[Any]) -> tuple[Any, ...]:
    """What is said of this kind, in its order."""
    return tuple(one.event for one in said if isinstance(one.event, kind))
