"""Kinds of faults that only persistent sessions have: nodes that lie, that blink, that lose their connections; and a
database whose clock is set back, or leaps ahead."""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from statemachines.kernel import Message
from statemachines.persistent_sessions.message import MarkerWanted, Queued
from statemachines.persistent_sessions.request import EpochRows
from statemachines.persistent_sessions.takeover_record import BeginTakeover, EndTakeover, TakeoverEnded
from statemachines_sim.cluster import SimCluster
from statemachines_sim.fault import Fault
from statemachines_sim.faults.fault_sampler import FaultSampler
from statemachines_sim.faults.kind import FaultKind
from statemachines_sim.faults.processes import Pause
from statemachines_sim.persistent_sessions.node_process import SessionNodeProcess
from statemachines_sim.persistent_sessions.wires import NODES, wires_of
from statemachines_sim.units import MS, S

HUGE = 1 << 40
HOUR_NS = 3_600 * S


class ByzantinePeer(FaultKind):
    """What it stores is true, and what it claims of others and hands over is not."""

    name = "liar"
    about = "a node claims sessions under tokens that it made up, and hands over rows that nobody has stored"

    def begin(self, world: SimCluster, fault: Fault) -> bool:
        process = world.living(fault.target)
        if not isinstance(process, SessionNodeProcess) or process.forge is not None:
            return False
        world.note(self.name, fault.target)
        chance = Random(f"{world.seed}/{self.name}/{fault.at_ns}")
        process.forge = lambda to, message: forge_message(message, chance)
        return True

    def end(self, world: SimCluster, fault: Fault) -> None:
        process = world.living(fault.target)
        if isinstance(process, SessionNodeProcess):
            world.note(f"end_{self.name}", fault.target)
            process.forge = None


def forge_message(message: Message, chance: Random) -> Message:
    """What a liar sends in its place, half of the time."""
    if chance.random() < 0.5:
        return message
    match message:
        case BeginTakeover() | EndTakeover() | MarkerWanted():
            return replace(message, token=message.token + chance.choice((-1, 1, 7, HUGE)))
        case TakeoverEnded():
            return replace(message, found=tuple(falsify_rows(one, chance) for one in message.found))
    return message


def falsify_rows(found: EpochRows, chance: Random) -> EpochRows:
    """Rows left out, twice, under other numbers or epochs, or of messages that nobody has."""
    rows = list(found.rows)
    match chance.randrange(5):
        case 0:
            rows = rows[1:]
        case 1:
            rows = [*rows, *rows[-1:]]
        case 2:
            rows = [replace(one, number=one.number + 1) for one in rows]
        case 3:
            rows = [*rows, Queued(rows[-1].number + 1 if rows else 1, "no message", "home/+")]
        case 4:
            return replace(found, epoch=found.epoch + 1)
    return replace(found, rows=tuple(rows))


class Stopped(Pause):
    """A whole machine stands still: the process, and what had arrived at it."""

    name = "stopped"
    about = "stands still until its leases have ended, goes on for a moment, and stands still again"

    def draw(self, pot: FaultSampler) -> Fault:
        return Fault(self.name, pot.at_ns, int(1.2 * pot.longest_ns), pot.target())

    def begin(self, world: SimCluster, fault: Fault) -> bool:
        if not super().begin(world, fault):
            return False
        for share in (3, 6):
            world.after(fault.for_ns * share // 9, self._blink, world, fault.target)
        return True

    def _blink(self, world: SimCluster, node: str) -> None:
        process = world.living(node)
        if process is not None and process.is_paused:
            process.resume()
            world.after(1 * MS, process.pause)


class Reset(FaultKind):
    """The wires between two nodes, both ways."""

    name = "reset"
    hits = "a node"
    about = "every connection of the node breaks at once; what was on its way is lost, and all can dial anew"

    def begin(self, world: SimCluster, fault: Fault) -> bool:
        process = world.living(fault.target)
        if not isinstance(process, SessionNodeProcess) or process.sessions is None:
            return False
        world.note(self.name, fault.target)
        found = wires_of(world)
        for life in list(process.reception.visitors):
            found.break_up((life, process.life))
        for node, other in sorted(world.processes.items()):
            if node.startswith(NODES) and node != fault.target:
                found.break_up((process.life, node))
                found.break_up((other.life, fault.target))
        return True


class SetBack(FaultKind):
    """What counts by this clock waits until it has caught up: the store's own time does not go back."""

    name = "set_back"
    hits = "the database"
    about = "its clock is set back, by a minute at most"
    unit = "ns"

    def draw(self, pot: FaultSampler) -> Fault:
        return Fault(self.name, pot.at_ns, 0, pot.target(), amount=pot.chance.randrange(S, 60 * S))

    def begin(self, world: SimCluster, fault: Fault) -> bool:
        world.note(self.name, fault.target, back_ns=fault.amount)
        world.clocks.jump(fault.target, -fault.amount)
        return True


class LeapAhead(FaultKind):
    """Nothing that lived by the clock of before may be gone by that of after."""

    name = "leap_ahead"
    hits = "the database"
    about = "its clock leaps ahead by hours or days, while nodes run"
    unit = "ns"

    def draw(self, pot: FaultSampler) -> Fault:
        return Fault(self.name, pot.at_ns, 0, pot.target(), amount=pot.chance.randrange(HOUR_NS, 48 * HOUR_NS))

    def begin(self, world: SimCluster, fault: Fault) -> bool:
        world.note(self.name, fault.target, ahead_ns=fault.amount)
        world.clocks.jump(fault.target, fault.amount)
        return True


OF_NODES = (ByzantinePeer(), Stopped(), Reset())
FAULTS = (*OF_NODES, SetBack(), LeapAhead())
"""In the order of the documents."""
