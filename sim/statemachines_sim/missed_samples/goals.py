"""Goals: what must be true of missed samples in the end, once everything has healed."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from statemachines.missed_samples.message import QUERY, Sample, Unnumbered
from statemachines.missed_samples.properties import Broken, judge_memory
from statemachines_sim.cluster import SimCluster
from statemachines_sim.missed_samples.owed_samples import OwedSamples
from statemachines_sim.missed_samples.section import SampleSection, number_of
from statemachines_sim.missed_samples.timed_source import TimedSource
from statemachines_sim.units import S

SHORT_MS = 10_000
"""Who forgets sooner than this is waited for until it has forgotten."""


class Goals:
    """`sent`: how many numbers each source has given."""

    def __init__(self, own: SampleSection, owed: OwedSamples, sent: dict[str, int]) -> None:
        self._own = own
        self._owed = owed
        self._sent = sent

    def judge(self, world: SimCluster, node: str, sources: dict[str, TimedSource]) -> Broken:
        """What the subscriber on `node` has not reached."""
        for source, one in sorted(sources.items()):
            broken = one.seen.judge_settled()
            if self._own.tells_its_end and self._lives(world, source) and not self._is_stuck(world, source):
                broken += one.seen.judge_tail(self._sent.get(source, 0))
            if self._is_to_forget(world, one):
                broken += one.seen.judge_forgotten(silent=True, kept=True)
            if broken:
                return tuple(replace(found, detail=f"{source}, {found.detail}") for found in broken)
        if self._own.forgets and sources:
            return judge_memory(len(sources))
        return self._judge_kept(world, node, sources)

    def _is_to_forget(self, world: SimCluster, one: TimedSource) -> bool:
        """Its publisher is dead, and the subscriber forgets soon."""
        soon = self._own.recovery.retention_ms <= SHORT_MS
        return soon and one.seen.began >= 0 and not self._lives(world, one.source)

    def _judge_kept(self, world: SimCluster, node: str, sources: dict[str, TimedSource]) -> Broken:
        """Who asks unprompted comes by everything that a cache keeps of a known source, whoever is dead."""
        for _, process in sorted(world.processes.items()) if self._own.recovery.period_ms else ():
            cache: Any = getattr(process, "cache", "")
            if not cache or not process.alive:
                continue
            for source, queue in self._owed.interesting(node, process.host.nodes[cache].record):
                one = sources.get(source)
                if one is None or self._is_stuck(world, source):
                    continue
                last = self._owed.number(source, self._owed.numbers(source, queue)[-1])
                broken = one.seen.judge_reached(last)
                if broken:
                    return broken
        return ()

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
