"""Kinds of faults that only shared subscriptions have: of leader hosts, and of consumers' applications."""

from __future__ import annotations

from random import Random

from statemachines.shared_subscriptions import stream_store
from statemachines_sim.cluster import SimCluster
from statemachines_sim.fault import Fault
from statemachines_sim.faults import Crash, FaultKind
from statemachines_sim.faults.fault_sampler import FaultSampler
from statemachines_sim.forged_message import Forger
from statemachines_sim.shared_subscriptions.consumer import ConsumerNode
from statemachines_sim.shared_subscriptions.leader_host import LeaderNodeLife


class LeaderCrash(Crash):
    """The same as a crash, counted by itself."""

    name = "leader_crash"
    hits = "a leader host"


class SlowConsumer(FaultKind):
    """An application works slower."""

    name = "slow_consumer"
    hits = "a consumer"
    about = "its application works slower"
    unit = "times"

    def draw(self, pot: FaultSampler) -> Fault:
        return Fault(self.name, pot.at_ns, pot.for_ns, pot.target(), amount=pot.chance.choice((3, 10, 30)))

    def begin(self, world: SimCluster, fault: Fault) -> bool:
        process = world.living(fault.target)
        if not isinstance(process, ConsumerNode) or process.slow > 1:
            return False
        world.note(self.name, fault.target, times=fault.amount)
        process.slow = fault.amount
        return True

    def end(self, world: SimCluster, fault: Fault) -> None:
        process = world.processes.get(fault.target)
        if isinstance(process, ConsumerNode):
            process.slow = 1
        world.note(f"end_{self.name}", fault.target)


class Halt(FaultKind):
    """Leaders stop in good order."""

    name = "halt"
    hits = "a leader host"
    about = "its leaders are told to stop in good order; who is asked next starts another"

    def draw(self, pot: FaultSampler) -> Fault:
        return Fault(self.name, pot.at_ns, 0, pot.target())

    def begin(self, world: SimCluster, fault: Fault) -> bool:
        process = world.living(fault.target)
        if not isinstance(process, LeaderNodeLife) or process.is_paused or not process.host.nodes:
            return False
        world.note(self.name, fault.target)
        process.halt()
        return True


class Unsubscribe(FaultKind):
    """A client goes, and comes back."""

    name = "unsubscribe"
    hits = "a consumer"
    about = "its client unsubscribes, and subscribes again when the fault ends"

    def begin(self, world: SimCluster, fault: Fault) -> bool:
        process = world.living(fault.target)
        if not isinstance(process, ConsumerNode) or process.left:
            return False
        world.note(self.name, fault.target)
        process.leave_for_a_while()
        return True

    def end(self, world: SimCluster, fault: Fault) -> None:
        process = world.living(fault.target)
        if isinstance(process, ConsumerNode) and process.left_for_a_while:
            world.note("subscribe", fault.target)
            process.come_back()


class Lie(FaultKind):
    """A consumer reports progress that nothing stored covers."""

    name = "lie"
    hits = "a consumer"
    about = "it reports more of a stream than is stored, and of another that it has ended"

    def draw(self, pot: FaultSampler) -> Fault:
        return Fault(self.name, pot.at_ns, 0, pot.target())

    def begin(self, world: SimCluster, fault: Fault) -> bool:
        process = world.living(fault.target)
        if not isinstance(process, ConsumerNode) or process.is_paused or not process.lies():
            return False
        world.note(self.name, fault.target)
        process.lie()
        return True


class Forge(FaultKind):
    """A consumer lies in whatever it says."""

    name = "forge"
    hits = "a consumer"
    about = "of a share of what it says to leaders one field says something else, any field of any message"

    def draw(self, pot: FaultSampler) -> Fault:
        return Fault(self.name, pot.at_ns, pot.for_ns, pot.target(), rate=pot.rate())

    def begin(self, world: SimCluster, fault: Fault) -> bool:
        process = world.living(fault.target)
        if not isinstance(process, ConsumerNode) or process.forges:
            return False
        world.note(self.name, fault.target, rate=fault.rate)
        process.begin_forging(
            Forger(Random(f"{world.seed}/{process.life}/{fault.at_ns}"), list_names(world)), fault.rate
        )
        return True

    def end(self, world: SimCluster, fault: Fault) -> None:
        process = world.processes.get(fault.target)
        if process is not None:
            process.end_forging()
        world.note(f"end_{self.name}", fault.target)


class Mute(FaultKind):
    """A consumer answers no grant."""

    name = "mute"
    hits = "a consumer"
    about = "it answers no grant that comes, and says everything else"

    def begin(self, world: SimCluster, fault: Fault) -> bool:
        process = world.living(fault.target)
        if not isinstance(process, ConsumerNode) or process.mute:
            return False
        world.note(self.name, fault.target)
        process.mute = True
        return True

    def end(self, world: SimCluster, fault: Fault) -> None:
        process = world.processes.get(fault.target)
        if isinstance(process, ConsumerNode):
            process.mute = False
        world.note(f"end_{self.name}", fault.target)


class Unreadable(FaultKind):
    """A consumer has lost the stream store."""

    name = "unreadable"
    hits = "a consumer"
    about = (
        "what it asks of the stream store fails for twice the longest period; its leader and the others notice nothing"
    )

    def draw(self, pot: FaultSampler) -> Fault:
        return Fault(self.name, pot.at_ns, 2 * pot.longest_ns, pot.target())

    def begin(self, world: SimCluster, fault: Fault) -> bool:
        world.cut(fault.target, stream_store.SERVICE, self.name)
        return True

    def end(self, world: SimCluster, fault: Fault) -> None:
        world.mend(fault.target, stream_store.SERVICE, self.name)


class Pretend(FaultKind):
    """A stranger speaks as a leader."""

    name = "pretend"
    hits = "a consumer"
    about = "a stranger answers it as the leader of an epoch that nobody will reach, and says whatever a leader may"

    def draw(self, pot: FaultSampler) -> Fault:
        return Fault(self.name, pot.at_ns, 0, pot.target())

    def begin(self, world: SimCluster, fault: Fault) -> bool:
        process = world.living(fault.target)
        if not isinstance(process, ConsumerNode) or process.is_paused or not process.host.borrower:
            return False
        world.note(self.name, fault.target)
        process.hear_pretender()
        return True


def list_names(world: SimCluster) -> list[str]:
    """Every party that lives, and every stream: a liar may have heard of them."""
    parties = [party for _, process in sorted(world.processes.items()) for party in process.host.nodes]
    return parties + sorted(world.devices[stream_store.SERVICE].state.by_id)  # type: ignore[attr-defined]


FAULTS = (LeaderCrash(), SlowConsumer(), Halt(), Unsubscribe(), Lie(), Forge(), Mute(), Pretend(), Unreadable())
