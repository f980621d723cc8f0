"""Lossy host: a leader host that loses so many messages, on their way in or out, and no more (L5).

In a lossy network something may be lost for ever, and nothing is promised of what is acknowledged at last.  Here loss
is a fault like others: a budget says how often, and which message it meets is anybody's choice.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Event, is_fresh
from statemachines_spec.explorer.actor import Envelope, Reaction, Watch
from statemachines_spec.explorer.system import System
from statemachines_spec.shared_subscriptions.leader_host import LeaderHost, LeaderHostLocal


class Lose(Event, frozen=True, gc=False):
    """The next message to this host is lost, or (`out`) all that it sends next."""

    out: bool


class LosingLocal(LeaderHostLocal, frozen=True, gc=False):
    """`loses`: what is about to be lost."""

    loses: Lose | None = None


class LosingHost(LeaderHost):
    """As it is; what it loses comes on top."""

    local_type = LosingLocal

    def inputs(self, local: LeaderHostLocal) -> tuple[Any, ...]:
        assert isinstance(local, LosingLocal)
        return (*super().inputs(local), *((Lose(False), Lose(True)) if local.loses is None else ()))

    def react(self, local: LeaderHostLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        assert isinstance(local, LosingLocal)
        if isinstance(envelope.event, Lose):
            return Reaction(replace(local, loses=envelope.event))
        if local.loses == Lose(False) and is_fresh(envelope.sender):
            return Reaction(replace(local, loses=None))
        reaction = super().react(local, envelope, watch)
        if reaction is None or local.loses != Lose(True) or not reaction.sends:
            return reaction
        return Reaction(replace(reaction.local, loses=None), (), reaction.calls)


def losing(system: System) -> System:
    """The same system, whose leader hosts lose messages."""
    actors = tuple(_losing(actor) if isinstance(actor, LeaderHost) else actor for actor in system.actors)
    return replace(system, actors=actors)


def _losing(host: LeaderHost) -> LosingHost:
    return LosingHost(
        host.name,
        host.configuration,
        fsm=host.fsm,
        at_once=host.at_once,
        registrations=host.registrations,
        grants=host.grants,
        silent=tuple(sorted(host.silent)),
    )
