"""Kinds of faults that only sequence windows have: wall's clocks that somebody sets, and a network that settles."""

from __future__ import annotations

from typing import Any

from statemachines_sim.cluster import Cluster
from statemachines_sim.fault import Fault
from statemachines_sim.faults.clocks import OfClock
from statemachines_sim.faults.fault_sampler import FaultSampler
from statemachines_sim.faults.network import Loss
from statemachines_sim.sequence_windows.operator import NAME
from statemachines_sim.units import S

STEP_NS = 3_600 * S
WRONG_NS = 12 * 3_600 * S
"""Two clocks that are wrong to both sides are a day apart, and a receiver believes two."""


class SetWall(OfClock):
    """Two small steps are as likely as two large ones: within a frame, over some, and by up to an hour."""

    name = "set_wall"
    about = "the wall's clock is set ahead or back, by up to an hour, while the one that never steps goes on"

    def draw(self, pot: FaultSampler) -> Fault:
        most = pot.chance.choice((5 * S, 60 * S, STEP_NS))
        return Fault(self.name, pot.at_ns, 0, pot.target(), amount=pot.chance.randint(-most, most))

    def begin(self, world: Cluster, fault: Fault) -> bool:
        world.note(self.name, fault.target, by_ns=fault.amount)
        operator: Any = world.devices[NAME]
        operator.step_wall(fault.target, fault.amount)
        return True

    def end(self, world: Cluster, fault: Fault) -> None:
        """Nobody sets it right."""


class WrongWall(SetWall):
    """From the beginning on."""

    name = "wrong_wall"
    about = "the wall's clock is wrong by a constant, by up to twelve hours to either side"
    from_start = True

    def draw(self, pot: FaultSampler) -> Fault:
        return Fault(self.name, 0, pot.end_ns, pot.target(), amount=pot.chance.randint(-WRONG_NS, WRONG_NS))


class Unsettled(Loss):
    """What JOIN assumes: a network that has converged loses nothing."""

    name = "unsettled"
    about = "a share of all messages is lost, until the operator says that the network has converged"

    def possible(self, pot: FaultSampler) -> bool:
        return bool(pot.scenario.own.converge_s)

    def draw(self, pot: FaultSampler) -> Fault:
        end = int(min(pot.scenario.own.converge_s) * S)
        return Fault(self.name, 1, end - 2, rate=pot.rate())


FAULTS = (SetWall(), WrongWall(), Unsettled())
