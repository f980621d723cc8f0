"""What missed samples say to the simulator: who takes part, what may go wrong, who judges.

CacheProcess: one life of a cache of any origin, somewhere in the network.

StrangerProcess: somebody who makes up the ids of sources, each for one sample.

SubscriberProcess: one life of a subscriber; it may be slow, and then its network drops what it does not read.

PublisherProcess: one life of a publisher with the cache beside it.

Kinds of faults that only missed samples have: of queries and their replies, of routers, of readers that are slow.

SampleFabric: the network of queries: each reaches the caches that it concerns, whose replies and end come back.

Replies are late and overtake each other.  Where every reply comes the end is the last word; under faults replies are
lost, ends come before them, at once and empty, or never.  What a publisher keeps on its disk, and who has died of the
routers, is here as well.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

from statemachines.kernel import Event, Host, Message, Node, Outgoing, Request, Send
from statemachines.missed_samples.cache import CACHE, CacheQuery, CacheRecord, Published, Reply
from statemachines.missed_samples.keys import matches
from statemachines.missed_samples.message import EVERY_SOURCE, QUERY, Query, QueryEnded, QueryGoesOn, Sample, Unnumbered
from statemachines.missed_samples.publisher import PUBLISHER, Declare, Publish, PublisherRecord, Stamped
from statemachines.missed_samples.selector import query_text
from statemachines.missed_samples.serial_number import wrap_number
from statemachines.missed_samples.source_record import Appeared, Disappeared
from statemachines.missed_samples.subscriber import SUBSCRIBER
from statemachines.missed_samples.subscriber_record import Subscribe, SubscriberRecord
from statemachines_sim import node_life
from statemachines_sim.cluster import Fixture, Role, SimCluster, Watch
from statemachines_sim.fault import Fault
from statemachines_sim.faults.fault_sampler import FaultSampler
from statemachines_sim.faults.kind import FaultKind
from statemachines_sim.judge import Judge
from statemachines_sim.local_clock import LocalClock
from statemachines_sim.machine_process import MachineProcess, make_single_host
from statemachines_sim.missed_samples.section import SampleSection, check, number_of
from statemachines_sim.missed_samples.watch import PROPERTIES, SampleWatch
from statemachines_sim.network import Packet
from statemachines_sim.node_life import NodeLife
from statemachines_sim.protocol import SimProtocol
from statemachines_sim.scenario import Scenario
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


class CacheProcess(MachineProcess):
    """`cache`: the party that queries go to."""

    def __init__(self, world: SimCluster, node: str, number: int, own: SampleSection) -> None:
        def host(process: MachineProcess) -> Host:
            places, retention_ms = own.cache_places, own.cache_retention_ms
            record = CacheRecord(history=own.cache_history, width=own.width, places=places, retention_ms=retention_ms)
            return make_single_host(process, CACHE, record)

        super().__init__(world, node, number, host)
        self.cache = self.main

    def handle(self, sender: str, to: str, message: Message, now_ns: int) -> list[Outgoing]:
        """It takes samples, and not heartbeats."""
        if isinstance(message, Sample):
            event = Published(to, message.source, message.first, message.last, False, self._env.now)
        elif isinstance(message, Unnumbered):
            event = Published(to, "", t_ns=self._env.now)
        else:
            return []
        return self.host.feed(self.main, event, now_ns)


class StrangerProcess(MachineProcess):
    """Until the faults are over."""

    def __init__(self, world: SimCluster, node: str, number: int, own: SampleSection) -> None:
        super().__init__(world, node, number, lambda process: Host())
        self.own = own
        self._made_up = 0
        self._chance = random.Random(f"{world.seed}/{self.life}")
        self._end_ns = int(world.scenario.phases.safety_s * S)

    def start(self) -> None:
        self._go_on()

    def _go_on(self) -> None:
        if self.world.now >= self._end_ns:
            return
        self._made_up += 1
        sample = Sample(f"made-up-{self._made_up}", 0, 0)
        self._network.send(self.node, self.main, self._chance.choice(self.own.key_names), sample, self._env.now)
        low, high = self.own.strangers_ms
        self.after(self._chance.randint(low * MS, high * MS), self._go_on)


class SampleSubscriberProcess(MachineProcess):
    """`read_ms`: how long it takes for a message (0: no time)."""

    def __init__(self, world: SimCluster, node: str, number: int, own: SampleSection) -> None:
        def host(process: MachineProcess) -> Host:
            return make_single_host(process, SUBSCRIBER, SubscriberRecord(own.recovery, own.history, own.width))

        super().__init__(world, node, number, host, start=Subscribe())
        self.read_ms = 0
        self._busy_until_ns = 0

    def heal(self) -> None:
        super().heal()
        self.read_ms = 0

    def receive(self, packet: Packet) -> None:
        now_ns = self._env.now
        if self.read_ms and not self.is_paused:
            if now_ns < self._busy_until_ns:
                self.world.network.drop(packet)
                return
            self._busy_until_ns = now_ns + self.read_ms * MS
        super().receive(packet)

    def handle(self, sender: str, to: str, message: Message, now_ns: int) -> list[Outgoing]:
        """Everything that comes under a key is for its machine."""
        return self.host.feed(self.main, message, now_ns)

    def route_tell(self, party: str, event: Event) -> None:
        super().route_tell(party, event)
        self.heard.clear()  # a long run tells more than anybody keeps


class SamplePublisherProcess(MachineProcess):
    """Publishes at a pace of its own until the faults are over.  `source`: its id; `cache`: the party that queries go
    to.  What it has numbered is on its disk before it is sent."""

    def __init__(self, world: SimCluster, node: str, number: int, own: SampleSection) -> None:
        self.own = own
        self.key = own.key_of(node)
        super().__init__(world, node, number, self._host, start=Declare())
        self.cache = f"{self.life}/cache"
        self._chance = random.Random(f"{world.seed}/{self.life}")
        self._end_ns = int(world.scenario.phases.safety_s * S)

    def _host(self, process: MachineProcess) -> Host:
        own, world = self.own, self.world
        self.source = self.node if own.continues else self.life
        fabric: Any = world.devices[QUERY]
        fabric.owners[self.source] = self.node
        sent = fabric.disk.get(self.node, own.begin) if own.continues else own.begin
        record = PublisherRecord(self.source, self.key, own.beats, own.beat_ms, own.width, next=sent)
        host = make_single_host(process, PUBLISHER, record)
        kept = CacheRecord(self.source, local=True, history=own.own_history, width=own.width)
        now_ns, observe = self.local_now(), world.recorder.step
        cache = Node(CACHE, kept, name=f"{self.life}/cache", now_ns=now_ns, observe=observe, check=world.judging)
        host.add(cache)
        return host

    def start(self) -> None:
        super().start()
        if self.own.tokens:
            self._say(Appeared(self.source, True))
        self.after(self._pace(), self._go_on)

    def crash(self) -> None:
        super().crash()
        if self.own.tokens:
            self._say(Disappeared(self.source))

    def route_tell(self, party: str, event: Event) -> None:
        super().route_tell(party, event)
        self.heard.clear()
        if isinstance(event, Stamped):
            fabric: Any = self.world.devices[QUERY]
            fabric.disk[self.node] = event.last + 1
            first = wrap_number(event.first, self.own.width)
            last = first + event.last - event.first
            published = Published(self.key, event.source, first, last, True, self._env.now)
            self.feed(published, self.cache)

    def _say(self, token: Event) -> None:
        """Every subscriber that is there hears of its token a little later."""
        for _, process in sorted(self.world.processes.items()):
            if isinstance(process, SampleSubscriberProcess) and process.alive:
                self.world.after(self._chance.randint(1, 50) * MS, process.feed, token)

    def _pace(self) -> int:
        low, high = self.own.publish_ms
        return self._chance.randint(low * MS, high * MS)

    def _go_on(self) -> None:
        if self.world.now >= self._end_ns:
            return
        low, high = self.own.burst
        self.feed(Publish(self._chance.randint(low, high)))
        if self._chance.random() < self.own.unnumbered:
            self._network.send(self.node, self.main, self.key, Unnumbered(), self._env.now)
        self.after(self._pace(), self._go_on)


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


OF_PEERS = ("crash", "pause", "long_pause", "late_timer", "partition")
"""No clock is compared with another's: how wrong they are changes only how long things take."""
OF_READERS = (*OF_PEERS, "slow_reader")


class MissedSim(SimProtocol[SampleSection]):
    """The value of the registration."""

    name = "missed_samples"
    section = SampleSection
    properties = PROPERTIES
    faults = FAULTS
    scenarios = "statemachines_sim:scenarios/missed_samples"

    def check(self, own: SampleSection, scenario: Scenario) -> None:
        check(own, scenario)

    def cast(self, own: SampleSection) -> tuple[Role, ...]:
        """Publishers talk to subscribers and caches, and caches to subscribers."""

        def of(
            kind: Callable[[SimCluster, str, int, SampleSection], NodeLife],
        ) -> Callable[[SimCluster, str, int], NodeLife]:
            return lambda world, node, number: kind(world, node, number, own)

        late = tuple(int(at * S) for at in own.join_subscribers_s)
        strangers = int(own.strangers_ms[1] > 0)
        return (
            Role("cache", of(CacheProcess), own.caches, faults=OF_PEERS, talks_to=("subscriber",)),
            Role("subscriber", of(SampleSubscriberProcess), own.subscribers, late, faults=OF_READERS),
            Role(
                "publisher",
                of(SamplePublisherProcess),
                own.publishers,
                faults=OF_PEERS,
                talks_to=("cache", "subscriber"),
            ),
            Role("stranger", of(StrangerProcess), strangers, faults=()),
        )

    def devices(self, own: SampleSection) -> tuple[Fixture, ...]:
        return (sample_fabric(own),)

    def longest_ns(self, own: SampleSection) -> int:
        return own.recovery.pacing.history_ms * MS

    def play(self, own: SampleSection, world: SimCluster, chance: Random) -> None:
        """A sample goes to every cache, and to every subscriber that is interested in its key."""

        def route(to: str) -> list[str]:
            return [
                node
                for node in world.processes
                if node.startswith("cache-")
                or (node.startswith("subscriber-") and matches(own.expression_of(node), to))
            ]

        world.network.route_by(route)

    def watch(self, own: SampleSection, judge: Judge) -> Watch:
        return SampleWatch(own, judge)


SIM = MissedSim()
