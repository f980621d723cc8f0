"""Nemesis: carries out a fault schedule, and heals everything at the end of the safety phase."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statemachines_sim.fault import Fault

if TYPE_CHECKING:
    from statemachines_sim.world import World

NETWORK_KINDS = ("loss", "duplicate", "hold_back")


class Nemesis:
    """`done` counts the faults that took effect, by kind."""

    def __init__(self, world: World, schedule: tuple[Fault, ...]) -> None:
        self._world = world
        self._healed = False
        self.done: dict[str, int] = {}
        for fault in schedule:
            world.env.timeout(fault.at_ns, fault).callbacks.append(self._begin)

    def heal(self) -> None:
        """No more faults; what is down comes back, what stands still goes on, every wire is whole."""
        self._healed = True
        self._world.network.heal()
        for store in self._world.stores.values():
            store.faults.clear()
        self._note("heal", "")
        for node in sorted(self._world.processes):
            process = self._world.processes[node]
            if not process.alive:
                self._world.restart(node)
            elif process.paused:
                self._note("resume", node)
                process.resume()

    def _begin(self, event: Any) -> None:
        fault: Fault = event._value
        if self._healed or not self._apply(fault):
            return
        self.done[fault.kind] = self.done.get(fault.kind, 0) + 1
        self._world.env.timeout(fault.for_ns, fault).callbacks.append(self._end)

    def _apply(self, fault: Fault) -> bool:
        world = self._world
        process = world.processes.get(fault.target)
        match fault.kind:
            case "crash" | "leader_crash":
                if process is None or not process.alive:
                    return False
                self._note(fault.kind, fault.target)
                process.crash()
            case "pause":
                if process is None or not process.alive or process.paused:
                    return False
                self._note("pause", fault.target)
                process.pause()
            case "partition":
                self._note("partition", fault.target, fault.peer)
                cuts = world.network.cuts
                cuts[fault.target, fault.peer] = cuts.get((fault.target, fault.peer), 0) + 1
            case "store":
                self._note("store", "")
                for store in world.stores.values():
                    store.faults.append(fault)
            case _:
                self._note(fault.kind, "")
                world.network.begin(fault)
        return True

    def _end(self, event: Any) -> None:
        if self._healed:
            return
        fault: Fault = event._value
        world = self._world
        process = world.processes.get(fault.target)
        match fault.kind:
            case "crash" | "leader_crash":
                if process is not None and not process.alive:
                    world.restart(fault.target)
            case "pause":
                if process is not None and process.alive and process.paused:
                    self._note("resume", fault.target)
                    process.resume()
            case "partition":
                self._mend(fault)
            case "store":
                for store in world.stores.values():
                    store.faults.remove(fault)
                self._note("end_store", "")
            case _:
                world.network.end(fault)
                self._note(f"end_{fault.kind}", "")

    def _mend(self, fault: Fault) -> None:
        cuts = self._world.network.cuts
        left = cuts[fault.target, fault.peer] - 1
        if left:
            cuts[fault.target, fault.peer] = left
        else:
            del cuts[fault.target, fault.peer]
        self._note("end_partition", fault.target, fault.peer)

    def _note(self, fault: str, node: str, peer: str = "") -> None:
        self._world.recorder.fault(self._world.env.now, node, fault, peer)
