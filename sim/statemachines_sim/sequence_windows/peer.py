"""Peer: base of the simulated publishers and receivers: a wall's clock beside the one that never steps, a window that
is looked at now and then, and an operator who says when the network has converged."""

from __future__ import annotations

import random
from abc import abstractmethod
from typing import Any

from statemachines.kernel import Event, Fsm, Host, Message, Node, Outgoing, Send, Tell
from statemachines.trace.row import event_row
from statemachines_sim.cluster import SimCluster
from statemachines_sim.node_life import NodeLife
from statemachines_sim.sequence_windows.operator import NAME, Operator
from statemachines_sim.sequence_windows.section import WindowSection
from statemachines_sim.sequence_windows.watch import LossWatch
from statemachines_sim.units import MS, S

POLL_NS = 250 * MS
"""How often a host looks at its window while nothing happens."""


class PeerProcess(NodeLife):
    """`chance`: its own stream of the seed."""

    world: SimCluster

    def __init__(self, world: SimCluster, node: str, number: int, own: WindowSection) -> None:
        super().__init__(world, node, number)
        self.host = Host()
        self.own = own
        self.chance = random.Random(f"{world.seed}/{self.life}")
        self.end_ns = int(world.scenario.phases.safety_s * S)

    @property
    def watch(self) -> LossWatch:
        """Who judges it."""
        found: Any = self.world.watch
        return found  # type: ignore[no-any-return]

    @property
    def operator(self) -> Operator:
        """Of its world."""
        found: Any = self.world.devices[NAME]
        return found  # type: ignore[no-any-return]

    def wall(self) -> int:
        """What its wall's clock shows."""
        return self.operator.wall(self)

    def start(self) -> None:
        """It hears from whoever starts it when the network has converged, if it has."""
        self.begin()
        if self.operator.converged_ns:
            self.converge(self.operator.converged_ns, self.operator.converged_at)
        self.after(self.chance.randrange(1, POLL_NS), self._poll)

    @abstractmethod
    def begin(self) -> None:
        """Its machines, and what it has to do."""

    @abstractmethod
    def converge(self, t_ns: int, at_ns: int) -> None:
        """The network has converged, at `t_ns` of the operator's wall's clock, which is `at_ns` of true time."""

    @abstractmethod
    def look(self) -> None:
        """See whether the window turns."""

    # -- machines -------------------------------------------------------------------------------------------------

    def add(self, fsm: Fsm[Any], record: Any, name: str) -> None:
        """A machine of its own."""
        world = self.world
        observe, now_ns = world.recorder.step, self.local_now()
        node = Node(fsm, record, name=f"{self.life}/{name}", now_ns=now_ns, observe=observe, check=world.judging)
        self.host.add(node)

    def record(self, name: str) -> Any:
        """What a machine of its own has."""
        return self.host.nodes[f"{self.life}/{name}"].record

    def feed(self, name: str, event: Event) -> list[Event]:
        """What a machine of its own tells when this happens to it.  None of them sends, or asks.

        Whose timer is due is fired first: what comes of that is told at once."""
        party, mine = f"{self.life}/{name}", []
        for who, effect in self.host.feed(party, event, self.local_now()):
            if isinstance(effect, Tell):
                if who == party:
                    mine.append(effect.event)
                else:
                    self.tell(who, effect.event)
        if self.host.moved:
            self.perform([], self.world.now)
        return mine

    def tell(self, party: str, event: Event, peer: str = "", machine: str = "") -> None:
        """For the trace, with all that the event says (`gapless show-loss` reads it), and for whoever judges."""
        now_ns = self.world.now
        if party in self.host.nodes:
            machine = self.host.nodes[party].fsm.full_name
        self._recorder.note(event_row(now_ns, self.node, party, "tell", event, peer, machine=machine, data=True))
        self.watch.tell(self, party, event, now_ns)

    def send(self, to: str, message: Message) -> None:
        """To whoever listens to `to`."""
        self.perform([(self.life, Send(to, message))], self.world.now)

    # -- as a process ---------------------------------------------------------------------------------------------

    def handle(self, sender: str, to: str, message: Message, now_ns: int) -> list[Outgoing]:
        return []

    def route_answer(self, party: str, answer: Any, now_ns: int) -> list[Outgoing]:
        return []

    def route_tell(self, party: str, event: Event) -> None:
        self.tell(party, event)

    def _poll(self) -> None:
        self.look()
        self.after(POLL_NS, self._poll)
