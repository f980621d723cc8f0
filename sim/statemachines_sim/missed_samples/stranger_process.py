"""StrangerProcess: somebody who makes up the ids of sources, each for one sample."""

from __future__ import annotations

import random

from statemachines.kernel import Host
from statemachines.missed_samples.message import Sample
from statemachines_sim.cluster import SimCluster
from statemachines_sim.machine_process import MachineProcess
from statemachines_sim.missed_samples.section import SampleSection
from statemachines_sim.units import MS, S


class StrangerProcess(MachineProcess):
    """Until the faults are over."""

    def __init__(self, world: SimCluster, node: str, number: int, own: SampleSection) -> None:
        super().__init__(world, node, number, lambda process: Host())
        self.own = own
        self._made_up = 0
        self._chance = random.Random(f"{world.seed}/{self.life}")
        self._end_ns = int(world.scenario.phases.safety_s * S)

    def start(self) -> None:
        self._go_on()

    def _go_on(self) -> None:
        if self.world.now >= self._end_ns:
            return
        self._made_up += 1
        sample = Sample(f"made-up-{self._made_up}", 0, 0)
        self._network.send(self.node, self.main, self._chance.choice(self.own.key_names), sample, self._env.now)
        low, high = self.own.strangers_ms
        self.after(self._chance.randint(low * MS, high * MS), self._go_on)
