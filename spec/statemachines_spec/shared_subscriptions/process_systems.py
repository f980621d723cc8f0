"""Process systems: the systems of shared subscriptions whose consumers and leader hosts are the shipped processes.

    gapless check statemachines_spec.shared_subscriptions.process_systems:false_timeouts --size ci

They have the bounds of the systems of the same names, in which an Agent and a registry are written by hand.  Without a
borrower that leaves with reports they have the same states and transitions; where one does, its last words are said
again with what it had read (SS-175), which the doubles leave out.
"""

from __future__ import annotations

from msgspec.structs import replace

from statemachines_spec.explorer.actor import Actor
from statemachines_spec.explorer.system import System
from statemachines_spec.shared_subscriptions import systems
from statemachines_spec.shared_subscriptions.agent_consumer import AgentConsumer
from statemachines_spec.shared_subscriptions.consumer import Consumer
from statemachines_spec.shared_subscriptions.leader_host import LeaderHost
from statemachines_spec.shared_subscriptions.registry_host import RegistryHost


def system(name: str, size: str = "ci", variant: str = "settled") -> System:
    """The system of that name, on the shipped processes."""
    made = systems.system(name, size, variant)
    arguments = {"name": name, "size": size, "variant": variant}
    actors = tuple(use_process(actor) for actor in made.actors)
    return replace(made, actors=actors, origin=(f"{__name__}:system", arguments))


def use_process(actor: Actor) -> Actor:
    """The component with the shipped process in the place of what is written by hand, where it has such a one."""
    if type(actor) is Consumer:
        return AgentConsumer(
            actor.name,
            actor.configuration,
            fsm=actor.fsm,
            registry=actor.registry,
            lives=actor.lives,
            pings=actor.pings,
            offsets=actor.offsets,
            faults=actor.faults,
            silent=tuple(sorted(actor.silent)),
            late=actor.late,
        )
    if type(actor) is LeaderHost:
        return RegistryHost(
            actor.name,
            actor.configuration,
            fsm=actor.fsm,
            at_once=actor.at_once,
            lives=actor.lives,
            leaders=actor.leaders,
            registrations=actor.registrations,
            grants=actor.grants,
            epochs=actor.epochs,
            faults=actor.faults,
            silent=tuple(sorted(actor.silent)),
            late=actor.late,
            ages=actor.ages,
            by_name=actor.by_name,
            alone=actor.alone,
        )
    return actor


def false_timeouts(size: str = "ci", variant: str = "settled") -> System:
    """Pings and borrowers are given up although nobody is dead."""
    return system("false-timeouts", size, variant)


def unsubscribe(size: str = "ci", variant: str = "settled") -> System:
    """A consumer unsubscribes while it holds streams."""
    return system("unsubscribe", size, variant)


def leader_crash(size: str = "ci", variant: str = "settled") -> System:
    """A leader host crashes; the next leader waits until every lease from before has ended."""
    return system("leader-crash", size, variant)
