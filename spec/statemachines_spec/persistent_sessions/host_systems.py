"""Systems of whole nodes in which rare rows of the process `SESSION_HOST` are taken, one kind in each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Event
from statemachines.persistent_sessions.life_record import LOCKING
from statemachines.persistent_sessions.life_request import LockClient
from statemachines.persistent_sessions.session_host_parties import LIVES
from statemachines.persistent_sessions.session_host_record import LeaveClient, LoseClient
from statemachines.persistent_sessions.takeover_message import BeginTakeover
from statemachines_spec.explorer.actor import Actor, Envelope, Reaction, Watch
from statemachines_spec.explorer.process_steps import ProcessParts
from statemachines_spec.explorer.property import Always, Property
from statemachines_spec.explorer.system import System, at_most
from statemachines_spec.persistent_sessions.node_systems import (
    LIAR,
    FalseClaim,
    LyingNode,
    NodeSetting,
    SessionNodeActor,
    build,
)

DRIVER = "driver"


class HostCall(Event, frozen=True, gc=False):
    """The driver of the `node` calls this."""

    node: str
    call: Any


class DriverLocal(msgspec.Struct, frozen=True, gc=False):
    """It remembers nothing."""


class Driver(Actor):
    """What the connections of clients say to their nodes: any of these `calls`, at any moment."""

    def __init__(self, calls: tuple[HostCall, ...]) -> None:
        super().__init__(DRIVER)
        self.calls = calls

    def initial(self) -> DriverLocal:
        return DriverLocal()

    def inputs(self, local: DriverLocal) -> tuple[Any, ...]:
        return self.calls

    def react(self, local: DriverLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        return Reaction(local, (), (Envelope("", event.node, event.call),))

    def describe(self, local: DriverLocal) -> str:
        return "calls"

    def bounds(self) -> dict[str, str]:
        return {"calls": "; ".join(f"{type(one.call).__name__} of {one.call.owner}" for one in self.calls)}


class StrangeNode(LyingNode):
    """It asks an owner for the session of a client that is not connected there."""

    def inputs(self, local: Any) -> tuple[Any, ...]:
        return (FalseClaim("a~1/1", BeginTakeover("stranger", f"{LIAR}~1/1", 9)),)


SYSTEMS: dict[str, tuple[str, NodeSetting, tuple[HostCall, ...]]] = {
    "node-link-breaks": (
        "the path from a node to the owner at another breaks, and what is on it is lost",
        NodeSetting(at=("a",), messages=(0, 2), breaks=1),
        (),
    ),
    "node-overtaken": (
        "a client connects again while its earlier connection waits for the lock",
        NodeSetting(at=("a", "a"), messages=(1, 0), slow=(LockClient,)),
        (),
    ),
    "node-leaves": (
        "a client leaves a node or is lost, also when it has gone, and goes to another node",
        NodeSetting(at=("a", "b"), messages=(1, 0), later=True),
        (HostCall("a", LeaveClient("a~1/1")), HostCall("a", LoseClient("a~1/1"))),
    ),
    "node-asks-twice": (
        "an owner asks twice to take over from a client that leaves, and is refused twice",
        NodeSetting(at=("a", "b"), messages=(0, 0), later=True, repeats=True),
        (HostCall("a", LeaveClient("a~1/1")), HostCall("a", LoseClient("a~1/1"))),
    ),
    "node-asked-for-another": (
        "a node asks an owner for the session of another client",
        NodeSetting(at=("a",), messages=(1, 0), lies=1),
        (),
    ),
}
"""Name -> (about, bounds, what the driver of a node may call)."""

CALLS_MAX = 2


def system(name: str) -> System:
    """The system called so."""
    about, setting, calls = SYSTEMS[name]
    made = build(name, about, setting)
    actors = tuple(StrangeNode() if isinstance(one, LyingNode) else one for one in made.actors)
    if calls:
        made = replace(made, budgets=(*made.budgets, at_most("calls of clients that go", CALLS_MAX, HostCall)))
        actors = (*actors, Driver(calls))
    return replace(made, actors=actors, properties=(*made.properties, *waiting_properties(made)))


def waiting_properties(made: System) -> Iterator[Property]:
    """PS-203 of each node."""
    text = "of the connections of one client at a node the last one alone waits for the lock"
    for node in made.actors:
        if isinstance(node, SessionNodeActor):
            yield Always(f"WAITS {node.name}", text, (node.view(count_waiting, 3),), lambda waiting: waiting < 2)


def count_waiting(parts: ProcessParts) -> int:
    """Connections that wait for the lock, 2 for more."""
    return min(2, sum(one.kind == LIVES.name and one.party.record.status is LOCKING for one in parts.parties))
