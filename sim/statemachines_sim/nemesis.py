"""Nemesis: carries out a fault schedule, and heals everything at the end of the safety phase."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statemachines_sim.fault import (
    CLOCK_KINDS,
    DEATHS,
    NETWORK_KINDS,
    PAUSES,
    STORE_DEATHS,
    Fault,
)
from statemachines_sim.local_clock import LocalClock
from statemachines_sim.process import Process
from statemachines_sim.shared_subscriptions.consumer import Consumer
from statemachines_sim.shared_subscriptions.leader_host import LeaderHost

if TYPE_CHECKING:
    from statemachines_sim.world import World


HITS = ("slow_consumer", "late_timer", "halt", "unsubscribe")
"""What else hits a process."""


class Nemesis:
    """`done` counts the faults that took effect, by kind."""

    def __init__(self, world: World, schedule: tuple[Fault, ...]) -> None:
        self._world = world
        self._healed = False
        self._clocks: dict[str, LocalClock] = {}
        self._drifts: dict[str, list[Fault]] = {}
        self.done: dict[str, int] = {}
        if any(fault.kind in CLOCK_KINDS for fault in schedule):
            world.recorder.true_clock = world.env
        for fault in schedule:
            if fault.kind == "power_loss":
                world.stores[fault.target].keep_past()
            if fault.kind == "skew":
                self._begin_now(fault)  # from the beginning on: no process has started
            else:
                world.env.timeout(fault.at_ns, fault).callbacks.append(self._begin)

    def clock_of(self, node: str) -> LocalClock | None:
        """The node's own clock, where it is not the true one; it outlives the processes of the node."""
        return self._clocks.get(node)

    def heal(self) -> None:
        """No more faults; what is down comes back, what stands still goes on, every wire is whole, every clock runs at
        its true rate."""
        self._healed = True
        world = self._world
        world.network.heal()
        for store in world.stores.values():
            store.end_faults()
        self._note("heal", "")
        for node in sorted(self._drifts):
            self._run_at(node, 0)
        for node in world.dead:
            world.revive(node)
        for node in sorted(world.processes):
            process = world.processes[node]
            if isinstance(process, Consumer):
                process.slow = 1
            process.end_late()
            if process.paused:
                self._note("resume", node)
                process.resume()
            if isinstance(process, Consumer) and process.left_for_a_while:
                process.come_back()

    # -- beginning ----------------------------------------------------------------------------------------------

    def _begin(self, event: Any) -> None:
        fault: Fault = event._value
        if not self._healed and self._begin_now(fault):
            self._world.env.timeout(fault.for_ns, fault).callbacks.append(self._end)

    def _begin_now(self, fault: Fault) -> bool:
        if not self._apply(fault):
            return False
        self.done[fault.kind] = self.done.get(fault.kind, 0) + 1
        return True

    def _apply(self, fault: Fault) -> bool:
        """Whether it took effect."""
        kind = fault.kind
        if kind in DEATHS or kind in PAUSES or kind in HITS:
            return self._hit_process(fault, self._world.processes.get(fault.target))
        if kind in STORE_DEATHS:
            return self._kill_store(fault)
        if kind in CLOCK_KINDS:
            self._set_clock(fault)
        elif kind in NETWORK_KINDS:
            self._note(kind, "", rate=fault.rate)
            self._world.network.begin(fault)
        elif kind == "partition":
            self._note(kind, fault.target, fault.peer)
            cuts = self._world.network.cuts
            cuts[fault.target, fault.peer] = cuts.get((fault.target, fault.peer), 0) + 1
        elif kind == "store":
            self._note(kind, "", rate=fault.rate)
            for store in self._world.stores.values():
                store.faults.append(fault)
        elif kind == "slow_store":
            self._note(kind, fault.target, rate=fault.rate, most_ns=fault.amount)
            self._world.stores[fault.target].faults.append(fault)
        else:  # torn_write
            self._note(kind, fault.target)
            self._world.stores[fault.target].tear_next()
        return True

    def _hit_process(self, fault: Fault, process: Process | None) -> bool:
        if process is None or not process.alive:
            return False
        if fault.kind == "crash" or fault.kind == "leader_crash":
            self._note(fault.kind, fault.target, lost=["memory"])
            process.crash()
        elif fault.kind == "lost_disk":
            self._note(fault.kind, fault.target, lost=["memory", "number of lives"])
            process.crash()
            self._world.bury(fault.target)
        elif fault.kind == "slow_consumer":
            if not isinstance(process, Consumer) or process.slow > 1:
                return False
            self._note(fault.kind, fault.target, times=fault.amount)
            process.slow = fault.amount
        elif fault.kind == "late_timer":
            self._note(fault.kind, fault.target, rate=fault.rate)
            process.begin_late(fault.rate)
        elif fault.kind == "halt":
            return self._halt(fault, process)
        elif fault.kind == "unsubscribe":
            if not isinstance(process, Consumer) or process.left:
                return False
            self._note("unsubscribe", fault.target)
            process.leave_for_a_while()
        elif process.paused:
            return False
        else:
            self._note(fault.kind, fault.target)
            process.pause()
        return True

    def _halt(self, fault: Fault, process: Process) -> bool:
        if not isinstance(process, LeaderHost) or process.paused or not process.host.nodes:
            return False
        self._note(fault.kind, fault.target)
        process.halt()
        return True

    def _kill_store(self, fault: Fault) -> bool:
        store = self._world.stores[fault.target]
        if store.down:
            return False
        if fault.kind == "power_loss":
            self._note(fault.kind, fault.target, lost=["memory", "what was not on disk yet"], last_ns=fault.amount)
        else:
            self._note(fault.kind, fault.target, lost=["memory"])
        store.crash(fault.amount)
        return True

    # -- ending -------------------------------------------------------------------------------------------------

    def _end(self, event: Any) -> None:
        fault: Fault = event._value
        if self._healed:
            return
        world = self._world
        process = world.processes.get(fault.target)
        kind = fault.kind
        if kind in DEATHS:
            world.revive(fault.target)
        elif kind in PAUSES:
            if process is not None and process.alive and process.paused:
                self._note("resume", fault.target)
                process.resume()
        elif kind == "slow_consumer":
            if isinstance(process, Consumer):
                process.slow = 1
            self._note(f"end_{kind}", fault.target)
        elif kind == "late_timer":
            self._note(f"end_{kind}", fault.target)
            if process is not None:
                process.end_late()
        elif kind == "unsubscribe":
            if isinstance(process, Consumer) and process.alive and process.left_for_a_while:
                self._note("subscribe", fault.target)
                process.come_back()
        elif kind == "partition":
            self._mend(fault)
        elif kind == "drift":
            self._end_drift(fault)
        elif kind in NETWORK_KINDS:
            world.network.end(fault)
            self._note(f"end_{kind}", "")
        elif kind not in CLOCK_KINDS and kind != "halt":
            self._end_of_store(fault)

    def _end_of_store(self, fault: Fault) -> None:
        stores = self._world.stores
        if fault.kind in STORE_DEATHS or fault.kind == "torn_write":
            store = stores[fault.target]
            if store.down:
                self._note("restart", fault.target)
                store.restart()
            elif fault.kind == "torn_write":
                store.tear_next(False)
            return
        for store in stores.values():
            store.faults = [one for one in store.faults if one is not fault]
        self._note(f"end_{fault.kind}", fault.target)

    def _mend(self, fault: Fault) -> None:
        cuts = self._world.network.cuts
        left = cuts[fault.target, fault.peer] - 1
        if left:
            cuts[fault.target, fault.peer] = left
        else:
            del cuts[fault.target, fault.peer]
        self._note("end_partition", fault.target, fault.peer)

    # -- clocks -------------------------------------------------------------------------------------------------

    def _set_clock(self, fault: Fault) -> None:
        node = fault.target
        if fault.kind == "drift":
            self._note(fault.kind, node, ppm=fault.amount)
            self._drifts.setdefault(node, []).append(fault)
            self._run_at(node, fault.amount)
            return
        self._note(fault.kind, node, ahead_ns=fault.amount)
        self._own_clock(node).jump(self._world.env.now, fault.amount)
        self._changed(node)

    def _end_drift(self, fault: Fault) -> None:
        """The drift that began last of those that go on is the one that counts."""
        drifts = self._drifts[fault.target]
        drifts.remove(fault)
        self._note("end_drift", fault.target)
        self._run_at(fault.target, drifts[-1].amount if drifts else 0)

    def _run_at(self, node: str, ppm: int) -> None:
        self._own_clock(node).drift(self._world.env.now, ppm)
        self._changed(node)

    def _own_clock(self, node: str) -> LocalClock:
        clock = self._clocks.get(node)
        if clock is None:
            clock = self._clocks[node] = LocalClock()
        return clock

    def _changed(self, node: str) -> None:
        world = self._world
        if node in world.stores:
            world.stores[node].clock = self._clocks[node]
        elif node in world.processes:
            world.processes[node].clock = self._clocks[node]
            world.processes[node].clock_changed()

    def _note(self, fault: str, node: str, peer: str = "", **details: object) -> None:
        self._world.recorder.fault(self._world.env.now, node, fault, peer, **details)
