"""Faults of clocks, of a process or a device.  Machines see nothing but their own clock; traces are in true time."""

from __future__ import annotations

from statemachines_sim.cluster import Cluster
from statemachines_sim.fault import Fault
from statemachines_sim.faults.fault_sampler import FaultSampler
from statemachines_sim.faults.kind import FaultKind
from statemachines_sim.units import S


class OfClock(FaultKind):
    """Base of these: from the beginning on, steps are stamped by the true clock."""

    hits = "a clock"
    unit = "ns"

    def prepare(self, world: Cluster, fault: Fault) -> None:
        world.recorder.true_clock = world.env


class Jump(OfClock):
    """A leap ahead; drift that is drawn in the same run leaves half of the tolerance to it."""

    name = "jump"
    about = "leaps ahead, by no more than the protocol tolerates"

    def draw(self, pot: FaultSampler) -> Fault:
        target = pot.target()
        bounds = pot.tolerance(target)
        most = max(bounds.jumps_ns // max(pot.count, 1), 2) if bounds.jumps_ns else bounds.jump_ns
        return Fault(self.name, pot.at_ns, 0, target, amount=pot.chance.randrange(1, most))

    def begin(self, world: Cluster, fault: Fault) -> bool:
        world.note(self.name, fault.target, ahead_ns=fault.amount)
        world.clocks.jump(fault.target, fault.amount)
        return True


class FarJump(Jump):
    """A leap by seconds."""

    name = "far_jump"
    about = "leaps ahead by seconds, by more than the protocol tolerates"

    def draw(self, pot: FaultSampler) -> Fault:
        return Fault(self.name, pot.at_ns, 0, pot.target(), amount=pot.chance.randrange(S, 60 * S))


class Skew(Jump):
    """A constant."""

    name = "skew"
    about = "is ahead by a constant, from the beginning on"
    from_start = True

    def draw(self, pot: FaultSampler) -> Fault:
        return Fault(self.name, 0, pot.end_ns, pot.target(), amount=pot.chance.randrange(3_600 * S))


class Drift(OfClock):
    """A wrong rate; of several that go on, the one that began last counts."""

    name = "drift"
    about = "runs fast or slow, within what the protocol tolerates"
    unit = "ppm"

    def draw(self, pot: FaultSampler) -> Fault:
        target = pot.target()
        jumps = pot.scenario.faults.get("jump", (0, 0))[1] > 0
        most = pot.tolerance(target).drift_ppm // (1 + jumps)
        return Fault(
            self.name, pot.at_ns, pot.for_ns, target, amount=pot.chance.choice((-most, -most // 2, most // 2, most))
        )

    def begin(self, world: Cluster, fault: Fault) -> bool:
        world.note(self.name, fault.target, ppm=fault.amount)
        world.clocks.begin_drift(fault)
        return True

    def end(self, world: Cluster, fault: Fault) -> None:
        world.note(f"end_{self.name}", fault.target)
        world.clocks.end_drift(fault)
