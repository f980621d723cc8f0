"""Faults of processes: they die, stand still, or take late what was taken back."""

from __future__ import annotations

from statemachines_sim.cluster import Cluster
from statemachines_sim.fault import Fault
from statemachines_sim.faults.fault_sampler import BEGIN_NS, FaultSampler
from statemachines_sim.faults.kind import FaultKind


class Crash(FaultKind):
    """A process dies; its node comes back as its next life."""

    name = "crash"
    about = "dies with its memory, and comes back as its next life"
    lost: tuple[str, ...] = ("memory",)

    def begin(self, world: Cluster, fault: Fault) -> bool:
        process = world.living(fault.target)
        if process is None:
            return False
        world.note(self.name, fault.target, lost=self.lost)
        process.crash()
        return True

    def end(self, world: Cluster, fault: Fault) -> None:
        world.revive(fault.target)


class LostDisk(Crash):
    """A process dies for good."""

    name = "lost_disk"
    about = "dies with its disk, on which the number of its lives stood: a node of a new name comes in its place"
    lost = ("memory", "number of lives")

    def begin(self, world: Cluster, fault: Fault) -> bool:
        if not super().begin(world, fault):
            return False
        world.lose_disk(fault.target)
        return True


class DuplicateNode(FaultKind):
    """A life that comes twice, as from a copy of a disk or of a whole machine."""

    name = "twin"
    about = "a second process begins as the same life; the first goes on beside it, and ends when it learns of that"

    def begin(self, world: Cluster, fault: Fault) -> bool:
        if world.living(fault.target) is None or fault.target in world.earlier_lives:
            return False
        world.note(self.name, fault.target)
        world.start_duplicate(fault.target)
        return True

    def end(self, world: Cluster, fault: Fault) -> None:
        world.note(f"end_{self.name}", fault.target)
        world.supersede(fault.target)


class Pause(FaultKind):
    """A process stands still, and goes on with what has waited."""

    name = "pause"
    about = "stands still, from 50 ms to 16 s"

    def begin(self, world: Cluster, fault: Fault) -> bool:
        process = world.living(fault.target)
        if process is None or process.is_paused:
            return False
        world.note(self.name, fault.target)
        process.pause()
        return True

    def end(self, world: Cluster, fault: Fault) -> None:
        process = world.living(fault.target)
        if process is not None and process.is_paused:
            world.note("resume", fault.target)
            process.resume()


class LongPause(Pause):
    """Longer than every timeout, and over before everything heals."""

    name = "long_pause"
    about = "stands still for longer than every timeout of the protocol"

    def draw(self, pot: FaultSampler) -> Fault:
        lasts = int(pot.longest_ns * (1.05 + 0.5 * pot.chance.random()))
        return Fault(self.name, min(pot.at_ns, max(BEGIN_NS, pot.end_ns - lasts)), lasts, pot.target())


class Sleep(Pause):
    """A machine sleeps."""

    name = "sleep"
    about = "its machine sleeps, from 50 ms to 16 s; it looks at the time within a second of waking, or when it hears"

    def begin(self, world: Cluster, fault: Fault) -> bool:
        process = world.living(fault.target)
        if process is None or process.is_paused:
            return False
        world.note(self.name, fault.target)
        process.sleep()
        return True


class LateTimer(FaultKind):
    """Timers that were taken back fire."""

    name = "late_timer"
    about = "a share of the timers that it takes back fires all the same, once, as over the queue of an event loop"

    def draw(self, pot: FaultSampler) -> Fault:
        return Fault(self.name, pot.at_ns, pot.for_ns, pot.target(), rate=pot.rate())

    def begin(self, world: Cluster, fault: Fault) -> bool:
        process = world.living(fault.target)
        if process is None:
            return False
        world.note(self.name, fault.target, rate=fault.rate)
        process.begin_late(fault.rate)
        return True

    def end(self, world: Cluster, fault: Fault) -> None:
        world.note(f"end_{self.name}", fault.target)
        process = world.processes.get(fault.target)
        if process is not None:
            process.end_late()
