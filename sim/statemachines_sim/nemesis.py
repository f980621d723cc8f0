"""Nemesis: carries out a fault schedule, a SimPy process for each fault, and heals everything at the end of the safety
phase."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from statemachines_sim.cluster import SimCluster
from statemachines_sim.fault import Fault
from statemachines_sim.faults.kind import FaultKind


class Nemesis:
    """`done` counts the faults that took effect, by kind."""

    def __init__(self, world: SimCluster, kinds: Mapping[str, FaultKind], schedule: tuple[Fault, ...]) -> None:
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
                world.env.process(self._carry_out(fault))

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

    def _carry_out(self, fault: Fault) -> Generator[Any]:
        """One fault: it begins at its time and ends after it, unless all is healed before."""
        env, kind = self._world.env, self._kinds[fault.kind]
        yield env.timeout(fault.at_ns)
        if self._healed or not self._begin_now(fault) or kind.lasting:
            return
        yield env.timeout(fault.for_ns)
        if not self._healed:
            kind.end(self._world, fault)

    def _begin_now(self, fault: Fault) -> bool:
        if not self._kinds[fault.kind].begin(self._world, fault):
            return False
        self.done[fault.kind] = self.done.get(fault.kind, 0) + 1
        return True
