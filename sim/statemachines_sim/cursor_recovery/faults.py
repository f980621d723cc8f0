"""Kinds of faults that only cursor recovery has: deaths before a chosen access, and faults of its clocks."""

from __future__ import annotations

from statemachines_sim.cluster import SimCluster
from statemachines_sim.cursor_recovery.queue_process import QueueProcess
from statemachines_sim.cursor_recovery.section import QueueSection
from statemachines_sim.fault import Fault
from statemachines_sim.faults import Crash
from statemachines_sim.faults.clocks import Drift, Skew
from statemachines_sim.faults.fault_sampler import FaultSampler
from statemachines_sim.local_clock import PPM

MOST_ACCESSES = 60
"""More than an operation makes that nobody disturbs."""


class Cut(Crash):
    """Deaths are spread over accesses, not over time: nobody rests away the moment that matters."""

    name = "cut"
    hits = "a process"
    about = "dies before one of its next accesses, and comes back as its next life"
    unit = "accesses"

    def draw(self, pot: FaultSampler) -> Fault:
        amount = pot.chance.randint(1, MOST_ACCESSES)
        return Fault(self.name, pot.at_ns, pot.for_ns, pot.target(), amount=amount)

    def begin(self, world: SimCluster, fault: Fault) -> bool:
        process = world.living(fault.target)
        if not isinstance(process, QueueProcess) or process.doomed_in:
            return False
        process.doomed_in = fault.amount
        return True

    def end(self, world: SimCluster, fault: Fault) -> None:
        process = world.living(fault.target)
        if isinstance(process, QueueProcess):
            process.doomed_in = 0
        super().end(world, fault)


class StoppedClock(Drift):
    """A monotonic clock that does not count the time in which the machine sleeps."""

    name = "stopped_clock"
    hits = "the memory"
    about = "the clock that all processes share stands still, while they go on"

    def draw(self, pot: FaultSampler) -> Fault:
        return Fault(self.name, pot.at_ns, pot.for_ns, pot.target(), amount=-PPM)


class ApartClock(Skew):
    """Processes in time namespaces of their own."""

    name = "apart_clock"
    hits = "a process"
    about = "its clock is ahead of the others' by a constant, by up to three thresholds"

    def draw(self, pot: FaultSampler) -> Fault:
        own: QueueSection = pot.scenario.own
        return Fault(self.name, 0, pot.end_ns, pot.target(), amount=pot.chance.randrange(3 * own.queue.threshold_ns))


FAULTS = (Cut(), StoppedClock(), ApartClock())
