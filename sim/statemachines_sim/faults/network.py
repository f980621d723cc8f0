"""Faults of the network: a share of all messages is hit, or one direction between two nodes is cut."""

from __future__ import annotations

from abc import abstractmethod

from statemachines_sim.cluster import Cluster
from statemachines_sim.fault import Fault
from statemachines_sim.faults.fault_sampler import FaultSampler
from statemachines_sim.faults.kind import FaultKind
from statemachines_sim.slow_link import SlowLink
from statemachines_sim.units import MS, S

OVERTAKEN_NS = 400 * MS
COPY_NS = 3 * S
HELD_BACK_NS = 10 * S


class OfNetwork(FaultKind):
    """Base of these: of the faults that go on, the first whose share a message falls into hits it."""

    hits = "the network"

    def possible(self, pot: FaultSampler) -> bool:
        return True

    def draw(self, pot: FaultSampler) -> Fault:
        return Fault(self.name, pot.at_ns, pot.for_ns, rate=pot.rate())

    def begin(self, world: Cluster, fault: Fault) -> bool:
        world.note(self.name, "", rate=fault.rate)
        world.network.begin(fault, self.delays)
        return True

    def end(self, world: Cluster, fault: Fault) -> None:
        world.network.end(fault)
        world.note(f"end_{self.name}", "")

    @abstractmethod
    def delays(self, delay: int, hit: float) -> tuple[int, ...]:
        """After what delays a message arrives that would take `delay`; none: never.  `hit`: where in the share of the
        fault it lies, from 0 to 1."""


class Loss(OfNetwork):
    """Never arrives."""

    name = "loss"
    about = "a share of all messages is lost"

    def delays(self, delay: int, hit: float) -> tuple[int, ...]:
        return ()


class Duplicate(OfNetwork):
    """Arrives twice."""

    name = "duplicate"
    about = "a share arrives twice, the copy up to 3 s late"

    def delays(self, delay: int, hit: float) -> tuple[int, ...]:
        return (delay + int(hit * COPY_NS), delay)


class Reorder(OfNetwork):
    """Is overtaken."""

    name = "reorder"
    about = "a share is overtaken, being up to 400 ms late"

    def delays(self, delay: int, hit: float) -> tuple[int, ...]:
        return (delay + int(hit * OVERTAKEN_NS),)


class HoldBack(OfNetwork):
    """Heavy-tailed delay."""

    name = "hold_back"
    about = "heavy-tailed delay: a share is held back up to 10 s, most of it for less than 1 s"

    def delays(self, delay: int, hit: float) -> tuple[int, ...]:
        return (delay + int(hit**3 * HELD_BACK_NS),)


class Unreachable(FaultKind):
    """A way that does not work any more, for longer than every period; `target` or `peer` may be a whole role."""

    name = "unreachable"
    hits = "one direction between two roles"
    about = "what nodes of one role say to a node of another (or ask a store) never arrives, and nothing heals that"
    lasting = True

    def possible(self, pot: FaultSampler) -> bool:
        return bool(pot.scenario.unreachable)

    def draw(self, pot: FaultSampler) -> Fault:
        return Fault(self.name, pot.at_ns, pot.end_ns, *pot.one_way())

    def begin(self, world: Cluster, fault: Fault) -> bool:
        world.cut_for_good(fault.target, fault.peer, self.name)
        return True


class Slow(FaultKind):
    """Of two on one node the later counts, and its end ends both."""

    name = "slow_link"
    hits = "a link to a node"
    about = "carries so many bytes a second: what is sent to the node waits for what is before it, or finds no room"
    unit = "bytes/s"

    def possible(self, pot: FaultSampler) -> bool:
        return bool(pot.everybody())

    def draw(self, pot: FaultSampler) -> Fault:
        target = pot.chance.choice(pot.everybody())
        return Fault(self.name, pot.at_ns, pot.for_ns, target, amount=int(10 ** pot.chance.uniform(4, 6)))

    def begin(self, world: Cluster, fault: Fault) -> bool:
        world.note(self.name, fault.target, bytes_per_s=fault.amount)
        world.network.slow_down(fault.target, SlowLink(fault.amount))
        return True

    def end(self, world: Cluster, fault: Fault) -> None:
        world.network.slow.pop(fault.target, None)
        world.note(f"end_{self.name}", fault.target)


class Partition(FaultKind):
    """Cuts of the same direction add up."""

    name = "partition"
    hits = "one direction"
    about = "what one node sends to another never arrives; the other direction is whole"

    def possible(self, pot: FaultSampler) -> bool:
        return bool(pot.sides())

    def draw(self, pot: FaultSampler) -> Fault:
        return Fault(self.name, pot.at_ns, pot.for_ns, *pot.ends())

    def begin(self, world: Cluster, fault: Fault) -> bool:
        world.cut(fault.target, fault.peer)
        return True

    def end(self, world: Cluster, fault: Fault) -> None:
        world.mend(fault.target, fault.peer)
