"""Goals: what must be true of missed samples in the end, once everything has healed."""

from __future__ import annotations

from typing import Any

from statemachines.missed_samples.message import QUERY, Sample, Unnumbered
from statemachines.missed_samples.recovery import MS
from statemachines_sim import cluster
from statemachines_sim.cluster import SimCluster
from statemachines_sim.missed_samples.owed_samples import Owed
from statemachines_sim.missed_samples.section import Section, number_of
from statemachines_sim.missed_samples.timed_source import TimedSource
from statemachines_sim.units import S

SHORT_MS = 10_000
"""Who forgets sooner than this is waited for until it has forgotten."""


class Goals:
    """`sent`: how many numbers each source has given."""

    def __init__(self, own: Section, owed: Owed, sent: dict[str, int]) -> None:
        self._own = own
        self._owed = owed
        self._sent = sent

    def open(self, world: SimCluster, node: str, sources: dict[str, TimedSource]) -> cluster.Missing | None:
        """The first that the subscriber on `node` has not reached."""
        life = world.processes[node].life
        for source, one in sorted(sources.items()):
            if one.seen.has_hole and not one.seen.waits:
                return "LIVE", f"{life} waits for {one.seen.next} of {source}"
            if self._owes_tail(world, one):
                return "TAIL", f"{life} has heard {one.seen.next} of {self._sent[source]} of {source}"
            if self._is_to_forget(world, one):
                silent = world.now - one.heard_ns
                return "FORGOTTEN", f"{life} keeps {source}, which is dead and silent for {silent // MS} ms"
        if self._own.forgets and sources:
            held = sum(one.seen.held_count for one in sources.values())
            return "FORGOTTEN", f"{life} keeps {len(sources)} sources, and {held} samples"
        return self._owes_kept(world, node, sources)

    def _owes_tail(self, world: SimCluster, one: TimedSource) -> bool:
        """A publisher that lives, and that is not stuck, has sent more."""
        lives = self._lives(world, one.source) and not self._is_stuck(world, one.source)
        return self._own.tells_its_end and lives and one.seen.began >= 0 and one.seen.next < self._sent[one.source]

    def _is_to_forget(self, world: SimCluster, one: TimedSource) -> bool:
        """Its publisher is dead, and the subscriber, which forgets soon, has no token of it."""
        soon = self._own.recovery.retention_ms <= SHORT_MS
        return soon and one.seen.began >= 0 and not one.seen.alive and not self._lives(world, one.source)

    def _owes_kept(self, world: SimCluster, node: str, sources: dict[str, TimedSource]) -> cluster.Missing | None:
        """Who asks unprompted comes by everything that a cache keeps of a known source, whoever is dead."""
        for name, process in sorted(world.processes.items()) if self._own.recovery.period_ms else ():
            cache: Any = getattr(process, "cache", "")
            if not cache or not process.alive:
                continue
            for source, queue in self._owed.interesting(node, process.host.nodes[cache].record):
                one = sources.get(source)
                if one is None or one.seen.began < 0 or self._is_stuck(world, source):
                    continue
                last = self._owed.number(source, self._owed.numbers(source, queue)[-1])
                if last >= one.seen.next:
                    return "NOGAP", f"{name} has {last} of {source}, and {node} has heard {one.seen.next}"
        return None

    def _lives(self, world: SimCluster, source: str) -> bool:
        owner = self._owner(world, source)
        return bool(owner) and getattr(world.living(owner), "source", "") == source

    def _is_stuck(self, world: SimCluster, source: str) -> bool:
        owner = self._owner(world, source)
        return bool(owner) and number_of(owner) <= self._own.stuck

    def _owner(self, world: SimCluster, source: str) -> str:
        fabric: Any = world.devices[QUERY]
        return str(fabric.owners.get(source, ""))


def is_early(world: SimCluster) -> bool:
    """Samples may still be on their way; heartbeats are for ever."""
    if world.now < int(world.scenario.phases.safety_s * S) + S:
        return True
    return any(isinstance(message, Sample | Unnumbered) for message in world.network.messages_in_flight())
