"""Faults of remote stores: they fail, are slow, die, tear a batch, or lose their last moments."""

from __future__ import annotations

from statemachines_sim.cluster import SimCluster
from statemachines_sim.devices.remote_store import RemoteStore
from statemachines_sim.fault import Fault
from statemachines_sim.faults.fault_sampler import BEGIN_NS, FaultSampler
from statemachines_sim.faults.kind import FaultKind
from statemachines_sim.units import MS, S

DAY_S = 86_400


class OfStore(FaultKind):
    """Base of these."""

    hits = "a store"


class StoreFails(OfStore):
    """All stores at once."""

    name = "store"
    hits = "all stores"
    about = "a share of the requests to all stores fails, half of them after they took effect"

    def draw(self, pot: FaultSampler) -> Fault:
        return Fault(self.name, pot.at_ns, pot.for_ns, rate=pot.rate())

    def begin(self, world: SimCluster, fault: Fault) -> bool:
        world.note(self.name, "", rate=fault.rate)
        for name, store in stores(world).items():
            if self.name in world.fixtures[name].faults:
                store.faults.append(fault)
        return True

    def end(self, world: SimCluster, fault: Fault) -> None:
        end_of(world, fault)


class SlowStore(OfStore):
    """Some requests wait."""

    name = "slow_store"
    about = "a share of the requests to a store waits before it is carried out; the amount is the most"
    unit = "ns"

    def draw(self, pot: FaultSampler) -> Fault:
        amount = pot.chance.choice((100, 500, 2_000, 20_000)) * MS
        return Fault(self.name, pot.at_ns, pot.for_ns, pot.target(), rate=pot.rate(), amount=amount)

    def begin(self, world: SimCluster, fault: Fault) -> bool:
        world.note(self.name, fault.target, rate=fault.rate, most_ns=fault.amount)
        stores(world)[fault.target].faults.append(fault)
        return True

    def end(self, world: SimCluster, fault: Fault) -> None:
        end_of(world, fault)


class StoreCut(FaultKind):
    """One node does not reach a store that all others reach."""

    name = "store_cut"
    hits = "a node and a store"
    about = (
        "what the node asks of the store never arrives, or what it answers does not come back, and 2.5 s later it"
        " gives the request up; others are served"
    )

    def possible(self, pot: FaultSampler) -> bool:
        return bool(pot.nodes() and pot.devices())

    def draw(self, pot: FaultSampler) -> Fault:
        ends = [pot.chance.choice(pot.nodes()), pot.chance.choice(pot.devices())]
        pot.chance.shuffle(ends)
        return Fault(self.name, pot.at_ns, pot.for_ns, ends[0], ends[1])

    def begin(self, world: SimCluster, fault: Fault) -> bool:
        world.cut(fault.target, fault.peer, self.name)
        return True

    def end(self, world: SimCluster, fault: Fault) -> None:
        world.mend(fault.target, fault.peer, self.name)


class StoreCrash(OfStore):
    """A store dies."""

    name = "store_crash"
    about = "dies, and comes back with what was committed; who waits for an answer gets a failure"

    def begin(self, world: SimCluster, fault: Fault) -> bool:
        store = stores(world)[fault.target]
        if store.down:
            return False
        world.note(self.name, fault.target, "", **self.details(fault))
        store.crash(fault.amount)
        return True

    def details(self, fault: Fault) -> dict[str, object]:
        """What is lost."""
        return {"lost": ["memory"]}

    def end(self, world: SimCluster, fault: Fault) -> None:
        restart(world, fault)


class PowerLoss(StoreCrash):
    """A store dies, and its disk lies."""

    name = "power_loss"
    about = "dies with the commits of its last moments: there is no disk under them"
    unit = "ns"

    def draw(self, pot: FaultSampler) -> Fault:
        back = pot.chance.choice((100, 1_000, 3_000)) * MS
        # Not so far that what was set up in the beginning is gone: that is as if nobody had come.
        amount = min(back, max(pot.at_ns - BEGIN_NS, 0))
        return Fault(self.name, pot.at_ns, pot.for_ns, choose_only_store(pot), amount=amount)

    def prepare(self, world: SimCluster, fault: Fault) -> None:
        stores(world)[fault.target].keep_past()

    def details(self, fault: Fault) -> dict[str, object]:
        return {"lost": ["memory", "what was not on disk yet"], "last_ns": fault.amount}


class WallStep(OfStore):
    """Somebody sets the wall clock of a store."""

    name = "wall_step"
    about = "its wall clock is set, ahead or back, by a second to a day; what it takes for the time never goes back"
    unit = "ns"

    def draw(self, pot: FaultSampler) -> Fault:
        amount = pot.chance.choice((-1, 1)) * pot.chance.choice((1, 20, 60, DAY_S)) * S
        return Fault(self.name, pot.at_ns, 0, choose_only_store(pot), amount=amount)

    def begin(self, world: SimCluster, fault: Fault) -> bool:
        world.note(self.name, fault.target, by_ns=fault.amount)
        stores(world)[fault.target].set_clock(fault.amount)
        return True


class TornWrite(OfStore):
    """A store dies within a batch."""

    name = "torn_write"
    about = "dies in the midst of the next batch, at any record, and undoes what has no end mark"

    def draw(self, pot: FaultSampler) -> Fault:
        return Fault(self.name, pot.at_ns, pot.for_ns, choose_only_store(pot))

    def begin(self, world: SimCluster, fault: Fault) -> bool:
        world.note(self.name, fault.target)
        stores(world)[fault.target].tear_next()
        return True

    def end(self, world: SimCluster, fault: Fault) -> None:
        if not restart(world, fault):
            stores(world)[fault.target].tear_next(False)


def stores(world: SimCluster) -> dict[str, RemoteStore]:
    """The devices that can be hit so."""
    return {name: device for name, device in world.devices.items() if isinstance(device, RemoteStore)}


def choose_only_store(pot: FaultSampler) -> str:
    """The one store that has the fault, or one of them."""
    targets = pot.targets()
    return targets[0] if len(targets) == 1 else pot.chance.choice(targets)


def restart(world: SimCluster, fault: Fault) -> bool:
    """A store that is down comes back."""
    store = stores(world)[fault.target]
    if store.down:
        world.note("restart", fault.target)
        store.restart()
        return True
    return False


def end_of(world: SimCluster, fault: Fault) -> None:
    """Requests are not hit any more."""
    for store in stores(world).values():
        store.faults = [one for one in store.faults if one is not fault]
    world.note(f"end_{fault.kind}", fault.target)
