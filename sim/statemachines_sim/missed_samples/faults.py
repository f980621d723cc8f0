"""Kinds of faults that only missed samples have: of queries and their replies, of routers, of readers that are slow."""

from __future__ import annotations

from typing import Any

from statemachines.missed_samples.message import QUERY
from statemachines_sim.cluster import SimCluster
from statemachines_sim.fault import Fault
from statemachines_sim.faults.fault_sampler import FaultSampler
from statemachines_sim.faults.kind import FaultKind
from statemachines_sim.missed_samples.subscriber_process import SampleSubscriberProcess


class OfQueries(FaultKind):
    """Base of these: a share is hit."""

    hits = "queries"

    def possible(self, pot: FaultSampler) -> bool:
        return True

    def draw(self, pot: FaultSampler) -> Fault:
        return Fault(self.name, pot.at_ns, pot.for_ns, rate=pot.rate())

    def begin(self, world: SimCluster, fault: Fault) -> bool:
        fabric: Any = world.devices[QUERY]
        world.note(self.name, "", rate=fault.rate)
        fabric.faults.append(fault)
        return True

    def end(self, world: SimCluster, fault: Fault) -> None:
        fabric: Any = world.devices[QUERY]
        fabric.faults.remove(fault)
        world.note(f"end_{self.name}", "")


class LostReply(OfQueries):
    """Where the transport does not bring every one."""

    name = "lost_reply"
    about = "a share of the replies is lost, and their queries end well"


class LateReply(OfQueries):
    """Others overtake it."""

    name = "late_reply"
    about = "a share of the replies is overtaken, being up to 600 ms late"


class EarlyEnd(OfQueries):
    """Where the transport does not bring every one in time."""

    name = "early_end"
    about = "a share of the queries ends before the replies of a cache have come"


class EmptyEnd(OfQueries):
    """As a network does that is coming back."""

    name = "empty_end"
    about = "a share of the queries reaches no cache, and ends at once"


class StuckQuery(OfQueries):
    """Only the subscriber's own timeout helps."""

    name = "stuck_query"
    about = "a share of the queries never ends"


class RouterDeath(FaultKind):
    """Everything on it is cut off, queries and samples alike."""

    name = "router_death"
    hits = "a router"
    about = "dies, and those attached to it reach nobody until it comes back"

    def possible(self, pot: FaultSampler) -> bool:
        return True

    def draw(self, pot: FaultSampler) -> Fault:
        target = f"router-{pot.chance.randint(1, pot.scenario.own.routers)}"
        return Fault(self.name, pot.at_ns, pot.for_ns, target)

    def begin(self, world: SimCluster, fault: Fault) -> bool:
        fabric: Any = world.devices[QUERY]
        world.note(self.name, fault.target)
        fabric.kill_router(fault)
        return True

    def end(self, world: SimCluster, fault: Fault) -> None:
        fabric: Any = world.devices[QUERY]
        fabric.revive_router(fault)
        world.note(f"end_{self.name}", fault.target)


class SlowReader(FaultKind):
    """Congestion control that drops."""

    name = "slow_reader"
    about = "reads no more than one message in so many ms, and what comes meanwhile is dropped before it"
    unit = "ms"

    def draw(self, pot: FaultSampler) -> Fault:
        return Fault(self.name, pot.at_ns, pot.for_ns, pot.target(), amount=pot.chance.randint(5, 400))

    def begin(self, world: SimCluster, fault: Fault) -> bool:
        process = world.living(fault.target)
        if not isinstance(process, SampleSubscriberProcess):
            return False
        world.note(self.name, fault.target, ms=fault.amount)
        process.read_ms = fault.amount
        return True

    def end(self, world: SimCluster, fault: Fault) -> None:
        process = world.living(fault.target)
        if isinstance(process, SampleSubscriberProcess):
            process.read_ms = 0
        world.note(f"end_{self.name}", fault.target)


FAULTS = (LostReply(), LateReply(), EarlyEnd(), EmptyEnd(), StuckQuery(), RouterDeath(), SlowReader())
