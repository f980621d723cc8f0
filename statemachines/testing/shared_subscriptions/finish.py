"""Finish: what must come true once nothing is wrong any more (L1 to L9 of the page), and stay true.

A system is healed and left to itself until it has settled; then one more consumer joins and more is published, and in
that steady time nobody may be kicked and no claim be lost.
"""

from __future__ import annotations

from statemachines.shared_subscriptions import group_store
from statemachines.testing.shared_subscriptions.system import System
from statemachines_sim.judge import Violation

S = 1_000_000_000
SETTLE_NS = 60 * S
"""Far more than every timeout one after the other, in the quick configuration."""

STEADY_NS = 2 * S
"""Longer than a claim and a revoke timeout."""

MOVES_MAX = 30_000
CHUNK = 100


def finish(system: System) -> None:
    """Heal the system and see it settle, twice; a property that does not come true is its `broken`."""
    if system.broken is not None:
        return
    system.heal()
    settle(system)
    rest(system)
    if system.broken is None:
        system.monitors.settle()
        system.tale.say("one more joins, and more is published; nothing is wrong")
        for stream in sorted(system.published):
            system.publish(stream.partition("/")[2], 2)
        system.restart("consumer-9")
        settle(system)
        rest(system)


def rest(system: System) -> None:
    """Long enough for every claim and revoke of before to have come to its end."""
    end = system.now + STEADY_NS
    while system.broken is None and system.now < end and system.deadline() is not None:
        system.run(CHUNK)


def settle(system: System) -> None:
    """Run until everything that must come true is true."""
    end, moves = system.now + SETTLE_NS, system.moves + MOVES_MAX
    while system.broken is None and (missing := find_unsettled(system)) is not None:
        if system.now > end or system.moves > moves:
            system.broken = Violation(*missing)
            return
        system.run(CHUNK)


def find_unsettled(system: System) -> tuple[str, str] | None:
    """The first property that is not true yet, and why."""
    for process in system.consumers():
        if process.left and not process.host.is_ended:
            return "L7", f"{process.life} unsubscribed, and has not ended"
    if all(process.left for process in system.consumers()):
        return None
    if not system.monitors.list_unacknowledged() and (stream := find_uncommitted(system)):
        return "L5", f"{stream}: acknowledged, and no leader has committed it"
    return system.missing()


def find_uncommitted(system: System) -> str:
    """A stream whose progress the leader has still to commit ("": none)."""
    leader = system.leader()
    if leader is None:
        return ""
    for stream, count in sorted(system.published.items()):
        stored = system.states[group_store.SERVICE].get(leader.key(f"progress:{stream}"))
        if stored is None or stored.value < count:
            return stream
    return ""
