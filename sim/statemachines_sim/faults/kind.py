"""FaultKind: everything about one kind of fault: its words, how it is drawn, what it does and how that is undone."""

from __future__ import annotations

from abc import ABC, abstractmethod

from statemachines_sim.cluster import Cluster
from statemachines_sim.fault import Fault
from statemachines_sim.faults.fault_sampler import FaultSampler


class FaultKind(ABC):
    """Base of the kinds.  `name` as in scenarios, schedules and traces; `hits`: whom, in words; `about`: what happens;
    `unit` of `Fault.amount` ("" = it has none); `from_start`: it lasts from the beginning on; `lasting`: it goes on to
    the end of the run, and what must come true at last must come true all the same.
    """

    name: str = ""
    hits: str = "a process"
    about: str = ""
    unit: str = ""
    from_start: bool = False
    lasting: bool = False

    def possible(self, pot: FaultSampler) -> bool:
        """Whether there is somebody to hit."""
        return bool(pot.targets())

    def draw(self, pot: FaultSampler) -> Fault:
        """One fault of this kind."""
        return Fault(self.name, pot.at_ns, pot.for_ns, pot.target())

    def prepare(self, world: Cluster, fault: Fault) -> None:
        """The fault is in the schedule of this world, which has not begun."""

    @abstractmethod
    def begin(self, world: Cluster, fault: Fault) -> bool:
        """Do it; whether it took effect."""

    def end(self, world: Cluster, fault: Fault) -> None:
        """Undo it, unless everything has healed before."""
