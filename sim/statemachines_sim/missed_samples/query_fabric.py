"""SampleFabric: the network of queries: each reaches the caches that it concerns, whose replies and end come back.

Replies are late and overtake each other.  Where every reply comes the end is the last word; under faults replies are
lost, ends come before them, at once and empty, or never.  What a publisher keeps on its disk, and who has died of the
routers, is here as well.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from typing import Any

from statemachines.kernel import Request, Send
from statemachines.missed_samples.cache import CacheQuery, Reply
from statemachines.missed_samples.message import EVERY_SOURCE, QUERY, Query, QueryEnded, QueryGoesOn, Sample
from statemachines.missed_samples.selector import query_text
from statemachines.missed_samples.serial_number import wrap_number
from statemachines_sim import node_life
from statemachines_sim.cluster import Fixture, SimCluster
from statemachines_sim.fault import Fault
from statemachines_sim.local_clock import LocalClock
from statemachines_sim.missed_samples.section import SampleSection, number_of
from statemachines_sim.node_life import NodeLife
from statemachines_sim.units import MS, S

TRANSPORT_NS = 10 * S
"""A query whose caches have died, or are cut off, ends after this, and not well."""
PART = 16
"""So many samples of a reply come together over a slow link."""
LATE_NS = 600 * MS
"""So late a reply is at most, which a fault hits."""


class RunningQuery:
    """A query under way; `left`: so many caches have not answered; `brought`: as in `QueryEnded`, so far."""

    def __init__(self, query: Query, asker: str, party: str, reply: node_life.Reply, left: int) -> None:
        self.query = query
        self.asker = asker
        self.party = party
        self.reply = reply
        self.left = left
        self.brought = 0
        self.ended = False


class SampleFabric:
    """The device that subscribers ask.  `disk`: how many samples each publisher has numbered; `owners`: the node of
    each source; `cuts` of the routers that are dead."""

    clock: LocalClock | None = None

    def __init__(self, world: SimCluster, own: SampleSection) -> None:
        self._world = world
        self._own = own
        self._chance = random.Random(f"{world.seed}/{QUERY}")
        self.faults: list[Fault] = []
        self.disk: dict[str, int] = {}
        self.owners: dict[str, str] = {}
        self.cuts: dict[Fault, list[tuple[str, str]]] = {}
        self.under_way = 0

    # -- as a device ------------------------------------------------------------------------------------------------

    def ask(self, process: NodeLife, party: str, request: Request, reply: node_life.Reply) -> None:
        """The query sets out now."""
        assert isinstance(request, Query)
        if self._judging is not None:
            self._judging.observe_query(party, request, self._world.now)
        if self._is_stuck(request.source) or self._hits("stuck_query"):
            return
        nodes = () if self._hits("empty_end") else tuple(self._reached(request.source, process.node))
        asked = RunningQuery(request, process.node, party, reply, len(nodes))
        for node in nodes:
            self._later(self._delay(), partial(self._reach, asked, node))
        self._later(TRANSPORT_NS if nodes else self._delay(), partial(self._end, asked, False))

    def heal(self) -> None:
        """Queries about publishers that are stuck for ever still never end."""
        self.faults.clear()
        self.cuts.clear()

    # -- caches -------------------------------------------------------------------------------------------------------

    def _reached(self, source: str, asker: str) -> Iterator[str]:
        """The nodes with a cache that the query concerns, and that are not cut off."""
        for node in sorted(self._world.processes):
            concerned = node.startswith("cache-") or (
                node.startswith("publisher-") and source in (EVERY_SOURCE, *self._sources_of(node))
            )
            if concerned and self._world.living(node) and not self._is_cut(asker, node):
                yield node

    def _sources_of(self, node: str) -> list[str]:
        return [source for source, owner in self.owners.items() if owner == node]

    def _reach(self, asked: RunningQuery, node: str) -> None:
        process = self._world.living(node)
        if process is not None and not self._is_cut(asked.asker, node):
            process.run(partial(self._answer, asked, process))

    def _answer(self, asked: RunningQuery, process: Any) -> None:
        if self._is_cut(process.node, asked.asker):
            return
        own, query = self._own, asked.query
        text = query_text(query, own.width)
        expression = own.expression_of(asked.asker)
        watch = self._judging
        if watch is not None and not asked.ended:
            record = process.host.nodes[process.cache].record
            watch.owed.reach(asked.party, asked.asker, query, record, self._world.now)
        event = CacheQuery(asked.asker, query.n, query.source, expression, text, self._world.now)
        out = process.host.feed(process.cache, event, process.local_now())
        replies = [one.message for _, one in out if isinstance(one, Send) and isinstance(one.message, Reply)]
        process.perform([one for one in out if not isinstance(one[1], Send)], self._world.now)
        slow = asked.asker in self._world.network.slow
        self._bring(
            asked, [part for one in replies for part in (split_reply(one, own.width) if slow else self._parts(one))]
        )

    def _parts(self, reply: Reply) -> list[Sample]:
        """A reply comes whole, or sample by sample."""
        if self._chance.random() < 0.5 or reply.last - reply.first > 20:
            return [Sample(reply.source, reply.first, reply.last)]
        sns = [wrap_number(sn, self._own.width) for sn in range(reply.first, reply.last + 1)]
        return [Sample(reply.source, sn, sn) for sn in sns]

    def _bring(self, asked: RunningQuery, samples: list[Sample]) -> None:
        last = self._delay()
        early = self._hits("early_end")
        slow = self._world.network.slow
        for sample in samples:
            delay = self._delay() + (self._chance.randrange(LATE_NS) if self._hits("late_reply") else 0)
            last = last if early else max(last, delay)
            if asked.asker in slow:  # a cache waits with its answer while the link is full
                delay = slow[asked.asker].pass_through(self._world.now, delay, sample, waits=True) or 0
                last = last if early else max(last, delay)
            lost = self._hits("lost_reply")
            if self._judging is not None and (lost or delay > last):
                self._judging.owed.lose(asked.party, asked.query, sample.source, sample.first, sample.last)
            if not lost:
                self._later(delay, partial(self._reply, asked, sample))
        self._later(last, partial(self._done, asked))

    def _reply(self, asked: RunningQuery, sample: Sample) -> None:
        """A reply has come."""
        query = asked.query
        asked.brought = max(asked.brought, query.reach_of(sample.last, self._own.width))
        asked.reply(sample)  # type: ignore[arg-type]
        if not asked.ended:
            asked.reply(QueryGoesOn(query.source, query.n))

    def _done(self, asked: RunningQuery) -> None:
        """One of the caches has said all that it has."""
        asked.left -= 1
        if asked.query.source == EVERY_SOURCE:
            asked.brought = max(asked.brought, 1)
        if not asked.left:
            self._end(asked, True)

    def _end(self, asked: RunningQuery, well: bool) -> None:
        if not asked.ended:
            asked.ended = True
            if asked.left and self._judging is not None:
                self._judging.owed.forgive(asked.party, asked.query)
            asked.reply(QueryEnded(asked.query.source, asked.query.n, asked.brought if well else 0))

    @property
    def _judging(self) -> Any:
        """Who judges; None: nobody does."""
        return self._world.watch if self._world.watching else None

    # -- faults -------------------------------------------------------------------------------------------------------

    def _hits(self, kind: str) -> bool:
        """One draw for each fault of this kind that goes on."""
        return any(self._chance.random() < fault.rate for fault in self.faults if fault.kind == kind)

    def _is_stuck(self, source: str) -> bool:
        node = self.owners.get(source, "")
        return bool(node) and number_of(node) <= self._own.stuck

    def _is_cut(self, one: str, other: str) -> bool:
        return (one, other) in self._world.network.cuts

    # -- routers ------------------------------------------------------------------------------------------------------

    def kill_router(self, fault: Fault) -> None:
        """Who is attached to it reaches nobody, and nobody reaches them."""
        router = number_of(fault.target)
        nodes = sorted(self._world.processes)
        mine = [node for node in nodes if number_of(node) % self._own.routers == router - 1]
        pairs = {pair for node in mine for other in nodes if other != node for pair in ((node, other), (other, node))}
        self.cuts[fault] = sorted(pairs)
        cuts = self._world.network.cuts
        for pair in self.cuts[fault]:
            cuts[pair] = cuts.get(pair, 0) + 1

    def revive_router(self, fault: Fault) -> None:
        """It is there again."""
        cuts = self._world.network.cuts
        for pair in self.cuts.pop(fault, ()):
            cuts[pair] -= 1
            if not cuts[pair]:
                del cuts[pair]

    # -- inside -------------------------------------------------------------------------------------------------------

    def _later(self, delay: int, do: Any) -> None:
        self.under_way += 1
        self._world.after(delay, self._do, do)

    def _do(self, do: Any) -> None:
        self.under_way -= 1
        do()

    def _delay(self) -> int:
        low, high = self._world.scenario.network.delay_ms
        return self._chance.randint(low * MS, high * MS)


def split_reply(reply: Reply, width: int) -> list[Sample]:
    """Over a slow link a reply comes in parts."""
    found = []
    for first in range(reply.first, reply.last + 1, PART):
        sn, more = wrap_number(first, width), min(PART - 1, reply.last - first)
        found.append(Sample(reply.source, sn, sn + more))
    return found


def sample_fabric(own: SampleSection) -> Fixture:
    """The network of queries of a run."""
    return Fixture(QUERY, lambda world: SampleFabric(world, own), faults=())
