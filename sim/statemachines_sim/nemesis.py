"""Nemesis: carries out a fault schedule, and heals everything at the end of the safety phase."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from statemachines_sim.cluster import Cluster
from statemachines_sim.fault import Fault
from statemachines_sim.faults.kind import FaultKind


class Nemesis:
    """`done` counts the faults that took effect, by kind."""

    def __init__(self, world: Cluster, kinds: Mapping[str, FaultKind], schedule: tuple[Fault, ...]) -> None:
        self._world = world
        self._kinds = kinds
        self._healed = False
        self.done: dict[str, int] = {}
        for fault in schedule:
            kind = self._kinds[fault.kind]
            kind.prepare(world, fault)
            if kind.from_start:
                self._begin_now(fault)  # no process has started
            else:
                world.env.timeout(fault.at_ns, fault).callbacks.append(self._begin)

    def heal(self) -> None:
        """No more faults but those that last; what is down comes back, what stands still goes on, every other wire is
        whole, every clock runs at its true rate."""
        self._healed = True
        world = self._world
        world.network.heal()
        for device in world.devices.values():
            device.heal()
        world.note("heal", "")
        world.clocks.heal()
        for node in sorted(world.earlier_lives):
            world.note("end_twin", node)
            world.supersede(node)
        for node in world.dead:
            world.revive(node)
        for node in sorted(world.processes):
            world.processes[node].heal()

    def _begin(self, event: Any) -> None:
        fault: Fault = event._value
        if not self._healed and self._begin_now(fault) and not self._kinds[fault.kind].lasting:
            self._world.env.timeout(fault.for_ns, fault).callbacks.append(self._end)

    def _begin_now(self, fault: Fault) -> bool:
        if not self._kinds[fault.kind].begin(self._world, fault):
            return False
        self.done[fault.kind] = self.done.get(fault.kind, 0) + 1
        return True

    def _end(self, event: Any) -> None:
        fault: Fault = event._value
        if not self._healed:
            self._kinds[fault.kind].end(self._world, fault)
