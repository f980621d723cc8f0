"""LeaderHost: a simulated process with a registry."""

from __future__ import annotations

from statemachines.kernel import Event, Message, Outgoing, RemoteProtocolError, node_of
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.failed_deliveries import MessageDropped, StreamParked
from statemachines.shared_subscriptions.leader import LEADER
from statemachines.shared_subscriptions.message import check_sender
from statemachines.shared_subscriptions.registry import Registry
from statemachines_sim.cluster import SimCluster
from statemachines_sim.node_life import NodeLife


class LeaderNodeLife(NodeLife):
    """One leader host."""

    world: SimCluster

    host: Registry

    def __init__(self, world: SimCluster, node: str, number: int, configuration: Configuration, alone: bool) -> None:
        super().__init__(world, node, number)
        self.host = Registry(self.life, configuration, alone=alone, observe=world.recorder.step, check=world.judging)

    def start(self) -> None:
        """It waits for borrowers."""

    def handle(self, sender: str, to: str, message: Message, now_ns: int) -> list[Outgoing]:
        try:
            check_sender(sender, to, message, is_leader_host(self.world, sender))
            return self.host.receive(sender, to, message, now_ns)
        except RemoteProtocolError:
            if sender not in self.world.watch.liars:  # type: ignore[attr-defined]
                raise
            return []  # as a node does with what its protocol does not take

    def route_answer(self, party: str, answer: object, now_ns: int) -> list[Outgoing]:
        return self.host.feed(party, answer, now_ns)  # type: ignore[arg-type]

    def halt(self) -> None:
        """Every leader stops in good order, as if an operator had asked for it."""
        self._run(lambda: self.perform(self.host.halt(self.local_now()), self._env.now))

    def route_tell(self, party: str, event: Event) -> None:
        """What a group gives up is noted.  A leader resigned: the next `leader_wanted` starts another."""
        if isinstance(event, MessageDropped | StreamParked):
            self._recorder.tell(self._env.now, self.node, party, LEADER.full_name, event)


def is_leader_host(world: SimCluster, party: str) -> bool:
    """Whether it lives on one."""
    return isinstance(world.processes.get(node_of(party)), LeaderNodeLife)
