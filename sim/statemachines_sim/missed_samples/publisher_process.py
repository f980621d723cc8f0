"""PublisherProcess: one life of a publisher with the cache beside it."""

from __future__ import annotations

import random
from typing import Any

from statemachines.kernel import Event, Host, Node
from statemachines.missed_samples.cache import CACHE, CacheRecord, Published
from statemachines.missed_samples.message import QUERY, Unnumbered
from statemachines.missed_samples.publisher import PUBLISHER, Declare, Publish, PublisherRecord, Stamped
from statemachines.missed_samples.serial_number import wrap_number
from statemachines.missed_samples.source_record import Appeared, Disappeared
from statemachines_sim.cluster import SimCluster
from statemachines_sim.machine_process import MachineProcess, make_single_host
from statemachines_sim.missed_samples.section import SampleSection
from statemachines_sim.missed_samples.subscriber_process import SampleSubscriberProcess
from statemachines_sim.units import MS, S


class SamplePublisherProcess(MachineProcess):
    """Publishes at a pace of its own until the faults are over.  `source`: its id; `cache`: the party that queries go
    to.  What it has numbered is on its disk before it is sent."""

    def __init__(self, world: SimCluster, node: str, number: int, own: SampleSection) -> None:
        self.own = own
        self.key = own.key_of(node)
        super().__init__(world, node, number, self._host, start=Declare())
        self.cache = f"{self.life}/cache"
        self._chance = random.Random(f"{world.seed}/{self.life}")
        self._end_ns = int(world.scenario.phases.safety_s * S)

    def _host(self, process: MachineProcess) -> Host:
        own, world = self.own, self.world
        self.source = self.node if own.continues else self.life
        fabric: Any = world.devices[QUERY]
        fabric.owners[self.source] = self.node
        sent = fabric.disk.get(self.node, own.begin) if own.continues else own.begin
        record = PublisherRecord(self.source, self.key, own.beats, own.beat_ms, own.width, next=sent)
        host = make_single_host(process, PUBLISHER, record)
        kept = CacheRecord(self.source, local=True, history=own.own_history, width=own.width)
        now_ns, observe = self.local_now(), world.recorder.step
        cache = Node(CACHE, kept, name=f"{self.life}/cache", now_ns=now_ns, observe=observe, check=world.judging)
        host.add(cache)
        return host

    def start(self) -> None:
        super().start()
        if self.own.tokens:
            self._say(Appeared(self.source, True))
        self.after(self._pace(), self._go_on)

    def crash(self) -> None:
        super().crash()
        if self.own.tokens:
            self._say(Disappeared(self.source))

    def route_tell(self, party: str, event: Event) -> None:
        super().route_tell(party, event)
        self.heard.clear()
        if isinstance(event, Stamped):
            fabric: Any = self.world.devices[QUERY]
            fabric.disk[self.node] = event.last + 1
            first = wrap_number(event.first, self.own.width)
            last = first + event.last - event.first
            published = Published(self.key, event.source, first, last, True, self._env.now)
            self.feed(published, self.cache)

    def _say(self, token: Event) -> None:
        """Every subscriber that is there hears of its token a little later."""
        for _, process in sorted(self.world.processes.items()):
            if isinstance(process, SampleSubscriberProcess) and process.alive:
                self.world.after(self._chance.randint(1, 50) * MS, process.feed, token)

    def _pace(self) -> int:
        low, high = self.own.publish_ms
        return self._chance.randint(low * MS, high * MS)

    def _go_on(self) -> None:
        if self.world.now >= self._end_ns:
            return
        low, high = self.own.burst
        self.feed(Publish(self._chance.randint(low, high)))
        if self._chance.random() < self.own.unnumbered:
            self._network.send(self.node, self.main, self.key, Unnumbered(), self._env.now)
        self.after(self._pace(), self._go_on)
