"""Wires: connections between clients and nodes, and between nodes: a loss on one breaks it, and its ends hear of that.

A connection carries everything once and in order until something is lost; nothing that was sent behind that arrives any
more.  A client then dials anew.  The link from one node to another is there again as soon as the break was heard of.
With `raw` nodes have no such links: what one sends another may be lost, or come twice, and nobody is told.
"""

from __future__ import annotations

import random
from typing import Any

from statemachines.kernel import ConfigurationError, Request, life_of, node_of
from statemachines_sim.cluster import Cluster, Fixture
from statemachines_sim.local_clock import LocalClock
from statemachines_sim.network import Packet
from statemachines_sim.node_life import NodeLife, Reply
from statemachines_sim.units import MS

NAME = "wires"
NODES = "node-"
HEARD_MS = (20, 1_000)
"""How long it takes until an end hears that its connection is broken."""

Wire = tuple[str, str]
"""(connection of a client, life of a node), or (life of the sending node, name of the node that it sends to)."""


class Wires:
    """A device that nobody asks; `broken`: those that carry nothing now."""

    clock: LocalClock | None = None

    def __init__(self, world: Cluster, raw: bool) -> None:
        self.broken: set[Wire] = set()
        self._world = world
        self._raw = raw
        self._chance = random.Random(f"{world.seed}/{NAME}")
        self._last: dict[Wire, int] = {}
        self._first: dict[Wire, int] = {}
        self._drop = world.network.drop
        world.network.drop = self.drop  # type: ignore[method-assign]

    # -- from the network and the processes -----------------------------------------------------------------------

    def drop(self, packet: Packet) -> None:
        """The network has lost this one."""
        self._drop(packet)
        self.break_up(_wire(packet[3], packet[4]))

    def accepts(self, packet: Packet, process: NodeLife) -> bool:
        """Whether what arrives at the process comes over a connection that is whole, and for the first time."""
        _, _, _, sender, to, msg, *_ = packet
        wire = _wire(sender, to)
        if self._raw and is_link(wire):
            return True
        if not is_link(wire) and NODES in to[: len(NODES)] and life_of(to) != process.life:
            self.break_up(wire)  # it was dialled in an earlier life
            return False
        path = (life_of(sender), node_of(to))
        if wire in self.broken or msg <= self._last.get(path, -1) or msg < self._first.get(path, 0):
            return False
        self._last[path] = msg
        return True

    def reaches(self, process: NodeLife, party: str) -> bool:
        """Whether the process is connected to the node of the party, in the life that the party is of."""
        there = self._world.living(node_of(party))
        return there is not None and there.life == life_of(party) and (process.life, there.node) not in self.broken

    def refuse(self, sender: str, life: str) -> None:
        """This life of a node listens to nobody yet: a client that has dialled finds out, and dials again."""
        wire = _wire(sender, life)
        if not is_link(wire):
            self.break_up(wire)

    def close(self, connection: str, life: str) -> None:
        """A client hangs up; the node hears of it, unless what the client sends does not reach it."""
        wire = (connection, life)
        if wire not in self.broken:
            self.broken.add(wire)
            if (node_of(connection), node_of(life)) not in self._world.network.cuts:
                self._later(self._tell_node, wire)

    def break_up(self, wire: Wire) -> None:
        """Nothing arrives over it any more, and its ends hear of that, each in its time."""
        if wire in self.broken or (self._raw and is_link(wire)):
            return
        self.broken.add(wire)
        if is_link(wire):
            self._later(self._mend, wire)
        else:
            self._later(self._tell_node, wire)
            self._later(self._tell_client, wire)

    # -- as a device ----------------------------------------------------------------------------------------------

    def ask(self, process: NodeLife, party: str, request: Request, reply: Reply) -> None:
        raise ConfigurationError("service", NAME, "answers nobody: no machine asks for a connection")

    def heal(self) -> None:
        """What is broken was heard of, or will be."""

    # -- inside ---------------------------------------------------------------------------------------------------

    def _later(self, tell: Any, wire: Wire) -> None:
        self._world.after(self._chance.randint(*HEARD_MS) * MS, tell, wire)

    def _mend(self, wire: Wire) -> None:
        """The node hears that it was cut off from the other; what was sent before never arrives."""
        sender, node = wire
        self._first[wire] = self._world.network.next_number(node_of(sender))
        self.broken.discard(wire)
        process: Any = self._world.living(node)
        if process is not None:
            process.run(lambda: process.lose_link(node_of(sender)))

    def _tell_node(self, wire: Wire) -> None:
        connection, life = wire
        process: Any = self._world.living(node_of(life))
        if process is not None and process.life == life:
            process.run(lambda: process.lose_client(connection))

    def _tell_client(self, wire: Wire) -> None:
        connection, _ = wire
        process: Any = self._world.living(node_of(connection))
        if process is not None:
            process.run(lambda: process.lose_node(connection))


def is_link(wire: Wire) -> bool:
    """It is from one node to another."""
    return wire[0].startswith(NODES)


def _wire(sender: str, to: str) -> Wire:
    one, other = life_of(sender), life_of(to)
    if one.startswith(NODES) and other.startswith(NODES):
        return one, node_of(to)
    return (other, one) if one.startswith(NODES) else (one, other)


def wires_of(world: Cluster) -> Wires:
    """The connections of a world."""
    found: Any = world.devices[NAME]
    return found  # type: ignore[no-any-return]


def wires(raw: bool) -> Fixture:
    """The connections of a run."""
    return Fixture(NAME, lambda world: Wires(world, raw), faults=())
