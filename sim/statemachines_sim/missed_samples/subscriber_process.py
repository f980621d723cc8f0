"""SubscriberProcess: one life of a subscriber; it may be slow, and then its network drops what it does not read."""

from __future__ import annotations

from statemachines.kernel import Event, Host, Message, Outgoing
from statemachines.missed_samples.subscriber import SUBSCRIBER
from statemachines.missed_samples.subscriber_record import Subscribe, SubscriberRecord
from statemachines_sim.cluster import SimCluster
from statemachines_sim.machine_process import MachineProcess, make_single_host
from statemachines_sim.missed_samples.section import SampleSection
from statemachines_sim.network import Packet
from statemachines_sim.units import MS


class SampleSubscriberProcess(MachineProcess):
    """`read_ms`: how long it takes for a message (0: no time)."""

    def __init__(self, world: SimCluster, node: str, number: int, own: SampleSection) -> None:
        def host(process: MachineProcess) -> Host:
            return make_single_host(process, SUBSCRIBER, SubscriberRecord(own.recovery, own.history, own.width))

        super().__init__(world, node, number, host, start=Subscribe())
        self.read_ms = 0
        self._busy_until_ns = 0

    def heal(self) -> None:
        super().heal()
        self.read_ms = 0

    def receive(self, packet: Packet) -> None:
        now_ns = self._env.now
        if self.read_ms and not self.is_paused:
            if now_ns < self._busy_until_ns:
                self.world.network.drop(packet)
                return
            self._busy_until_ns = now_ns + self.read_ms * MS
        super().receive(packet)

    def handle(self, sender: str, to: str, message: Message, now_ns: int) -> list[Outgoing]:
        """Everything that comes under a key is for its machine."""
        return self.host.feed(self.main, message, now_ns)

    def route_tell(self, party: str, event: Event) -> None:
        super().route_tell(party, event)
        self.heard.clear()  # a long run tells more than anybody keeps
