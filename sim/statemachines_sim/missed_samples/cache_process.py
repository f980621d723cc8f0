"""CacheProcess: one life of a cache of any origin, somewhere in the network."""

from __future__ import annotations

from statemachines.kernel import Host, Message, Outgoing
from statemachines.missed_samples.cache import CACHE, CacheRecord, Published
from statemachines.missed_samples.message import Sample, Unnumbered
from statemachines_sim.cluster import SimCluster
from statemachines_sim.machine_process import MachineProcess, make_single_host
from statemachines_sim.missed_samples.section import SampleSection


class CacheProcess(MachineProcess):
    """`cache`: the party that queries go to."""

    def __init__(self, world: SimCluster, node: str, number: int, own: SampleSection) -> None:
        def host(process: MachineProcess) -> Host:
            places, retention_ms = own.cache_places, own.cache_retention_ms
            record = CacheRecord(history=own.cache_history, width=own.width, places=places, retention_ms=retention_ms)
            return make_single_host(process, CACHE, record)

        super().__init__(world, node, number, host)
        self.cache = self.main

    def handle(self, sender: str, to: str, message: Message, now_ns: int) -> list[Outgoing]:
        """It takes samples, and not heartbeats."""
        if isinstance(message, Sample):
            event = Published(to, message.source, message.first, message.last, False, self._env.now)
        elif isinstance(message, Unnumbered):
            event = Published(to, "", t_ns=self._env.now)
        else:
            return []
        return self.host.feed(self.main, event, now_ns)
