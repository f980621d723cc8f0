"""ClientProcess: base of subscribers and publishers: dials a node, and another when that one is gone or silent."""

from __future__ import annotations

import random
from abc import abstractmethod
from typing import Any

from statemachines.kernel import Event, Host, Message, Outgoing, incarnation
from statemachines.persistent_sessions.message import Ping
from statemachines_sim.cluster import SimCluster
from statemachines_sim.network import Packet
from statemachines_sim.node_life import NodeLife
from statemachines_sim.persistent_sessions.section import SessionSection
from statemachines_sim.persistent_sessions.watch import SessionWatch
from statemachines_sim.persistent_sessions.wires import NODES, wires_of
from statemachines_sim.units import MS, S

PING_NS = 1 * S
REDIAL_MS = (10, 200)
CONNECTIONS = 10_000
"""Of one life, at most."""


class ClientProcess(NodeLife):
    """`connection`: over which it talks to `life` of a node ("": none); each has a name of its own.
    `has_session`: a node keeps a session for it."""

    world: SimCluster

    has_session = False

    def __init__(self, world: SimCluster, node: str, number: int, own: SessionSection) -> None:
        super().__init__(world, node, number)
        self.host = Host()
        self.own = own
        self.wires = wires_of(world)
        self.chance = random.Random(f"{world.seed}/{self.life}")
        self.end_ns = int(world.scenario.phases.safety_s * S)
        self.connection = self.server = ""
        self._number = number
        self._dialled = 0
        self._place = self.chance.randrange(1_000)
        self._heard_ns = 0

    @property
    def watch(self) -> SessionWatch:
        """Who judges it."""
        found: Any = self.world.watch
        return found  # type: ignore[no-any-return]

    def start(self) -> None:
        self.dial_in(self.chance.randint(1, 500))

    @property
    def attempt(self) -> int:
        """Counts its connections, those of earlier lives too."""
        return self._number * CONNECTIONS + self._dialled

    # -- the connection -------------------------------------------------------------------------------------------

    def dial_in(self, delay_ms: int) -> None:
        """Dial the next node after a while."""
        self.after(delay_ms * MS, self._dial)

    def hang_up(self, away_ms: int = 0) -> None:
        """Go without a word, and dial anew after so long (0: soon)."""
        if self.connection:
            self.wires.close(self.connection, self.server)
            self.lose_node(self.connection, away_ms)

    def lose_node(self, connection: str, away_ms: int = 0) -> None:
        """The connection is gone."""
        if connection == self.connection:
            self.connection = self.server = ""
            self.handle_close()
            self.dial_in(away_ms or self.chance.randint(*REDIAL_MS))

    def say(self, message: Message) -> None:
        """To the node."""
        self._network.send(self.node, self.connection, self.server, message, self._env.now)

    @abstractmethod
    def handle_open(self) -> None:
        """It is connected to a node."""

    @abstractmethod
    def handle_close(self) -> None:
        """It is not any more."""

    @abstractmethod
    def hear(self, message: Message) -> None:
        """The node has said something."""

    def _dial(self) -> None:
        if self.connection:
            return
        nodes = sorted(one for one in self.world.processes if one.startswith(NODES))
        self._place += 1
        there = self.world.living(nodes[self._place % len(nodes)]) if nodes else None
        if there is None:
            self.dial_in(self.chance.randint(*REDIAL_MS))
            return
        self._dialled += 1
        self.connection = incarnation(self.node, self.attempt)
        self.server = there.life
        self._heard_ns = self.local_now()
        self.handle_open()
        self._ping(self.connection)

    def _ping(self, connection: str) -> None:
        if connection != self.connection:
            return
        if self.local_now() - self._heard_ns > self.own.silent_ms * MS:
            self.hang_up()
            return
        self.say(Ping())
        self.after(PING_NS, lambda: self._ping(connection))

    # -- as a process ---------------------------------------------------------------------------------------------

    def receive(self, packet: Packet) -> None:
        if self.is_paused or self.wires.accepts(packet, self):
            super().receive(packet)

    def handle(self, sender: str, to: str, message: Message, now_ns: int) -> list[Outgoing]:
        if to == self.connection:
            self._heard_ns = now_ns
            self.hear(message)
        return []

    def route_answer(self, party: str, answer: Any, now_ns: int) -> list[Outgoing]:
        return []

    def route_tell(self, party: str, event: Event) -> None:
        """It has no machines."""
