"""Watch: the properties of missed samples, judged in every run from what came, what was asked for, and what was told.

It takes part in nothing.  Of a subscriber's record only this is read: which sources it keeps, when a timer or a token
says that one may be forgotten, and what it counts; of a cache's, what is in its queues.

Tell judge: whether a subscriber may tell its application what it tells: samples and losses, in order, each once.

Goals: what must be true of missed samples in the end, once everything has healed.

Owed samples: what caches had when queries reached them, and what therefore has to come before these end.

Whoever carries a query looks into the cache, and not at its answer: everything that the subscriber is interested in and
has asked for is owed, whatever it was answered.  What the network loses of that is owed no longer.

Reader: what a judge knows of one life of a subscriber, from what came to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Event, Node, Step
from statemachines.missed_samples.cache import CACHE, CacheRecord, LetGo, NotKept
from statemachines.missed_samples.message import (
    EVERY_SOURCE,
    QUERY,
    Deliver,
    DeliverUnnumbered,
    Heartbeat,
    Missed,
    Query,
    QueryEnded,
    Sample,
    TurnedAway,
    Unnumbered,
)
from statemachines.missed_samples.properties import (
    AskedNumbers,
    Broken,
    ObservedSource,
    ObservedStrangers,
    judge_hole,
    judge_memory,
    judge_places,
    judge_publication,
    judge_unwanted,
    judge_whole,
)
from statemachines.missed_samples.publisher import PUBLISHER, Publish
from statemachines.missed_samples.recovery import MS
from statemachines.missed_samples.sample_queue import SampleQueue
from statemachines.missed_samples.serial_number import unwrap_number, wrap_number
from statemachines.missed_samples.source_record import (
    Appeared,
    Disappeared,
    Overdue,
    PeriodOver,
    QueryTimeout,
    RetentionOver,
)
from statemachines.missed_samples.subscriber import SUBSCRIBER
from statemachines.missed_samples.subscriber_record import HistoryTimeout
from statemachines_sim import cluster
from statemachines_sim.cluster import SimCluster
from statemachines_sim.judge import Judge
from statemachines_sim.missed_samples.cache_judge import CacheJudge, NumberOf
from statemachines_sim.missed_samples.section import SampleSection, number_of
from statemachines_sim.missed_samples.timed_source import TimedSource
from statemachines_sim.node_life import NodeLife
from statemachines_sim.units import S

Numbers = dict[str, set[int]]
"""By source: numbers that the publisher has counted."""


class OwedSamples:
    """Of the queries that are under way, by subscriber, source and number.  `number(source, sn)`: which of the
    publisher's numbers one of the wire is."""

    def __init__(self, own: SampleSection, number: NumberOf) -> None:
        self._own = own
        self.number = number
        self._open: dict[tuple[str, str, int], Numbers] = {}

    def reach(self, party: str, node: str, query: Query, record: CacheRecord, now_ns: int) -> None:
        """A query of `party`, on `node`, is at a cache."""
        owed = self._open.setdefault((party, query.source, query.n), {})
        for source, queue in self.interesting(node, record):
            if query.source in (source, EVERY_SOURCE):
                if query.source == EVERY_SOURCE:
                    found = self._of_history(self.numbers(source, queue), queue, now_ns)
                else:
                    found = self._of_window(query, queue)
                owed.setdefault(source, set()).update(self.number(source, sn) for sn in found)

    def lose(self, party: str, query: Query, source: str, first: int, last: int) -> None:
        """A reply, with numbers of the wire, does not come, or too late."""
        number = self.number(source, first)
        owed = self._open.get((party, query.source, query.n), {})
        owed.get(source, set()).difference_update(range(number, number + last - first + 1))

    def forgive(self, party: str, query: Query) -> None:
        """Not every cache could answer: nothing is owed."""
        self._open.pop((party, query.source, query.n), None)

    def end(self, party: str, source: str, n: int) -> Numbers:
        """The query has ended: all this should have come."""
        return self._open.pop((party, source, n), {})

    def observe_death(self, party: str) -> None:
        """The subscriber is gone."""
        for query in [one for one in self._open if one[0] == party]:
            del self._open[query]

    def interesting(self, node: str, record: CacheRecord) -> Iterator[tuple[str, SampleQueue]]:
        """What a cache has under keys that the subscriber on `node` is interested in."""
        expression = self._own.expression_of(node)
        for (source, key), queue in sorted(record.queues.items()):
            if expression in ("demo/*", key):
                yield source, queue

    def numbers(self, source: str, queue: SampleQueue) -> list[int]:
        """All numbers in a queue, as the wire has them, in their order."""
        width = self._own.width
        return [wrap_number(number, width) for first, last in queue.kept for number in range(first, last + 1)]

    def _of_window(self, query: Query, queue: SampleQueue) -> list[int]:
        """Those that a query is about, from the highest on: a queue may be long."""
        width = self._own.width
        low = unwrap_number(wrap_number(query.first, width), queue.top, width)
        high = low + query.last - query.first if query.has_end else queue.top
        parts = (range(min(last, high), max(first, low) - 1, -1) for first, last in reversed(queue.kept))
        numbers = islice(chain.from_iterable(parts), query.newest or None)
        return [wrap_number(number, width) for number in numbers]

    def _of_history(self, sns: list[int], queue: SampleQueue, now_ns: int) -> list[int]:
        """Those that the scenario says a subscriber wants at first."""
        wanted = self._own.history
        if wanted is None:
            return []
        if wanted.age_ms:
            kept = (number for first, last in queue.kept for number in range(first, last + 1))
            since = now_ns - wanted.age_ms * MS
            sns = [sn for sn, number in zip(sns, kept, strict=True) if queue.times.get(number, -1) >= since]
        return sns[-wanted.newest :] if wanted.newest else sns


class SampleReader:
    """`number(source, sn)`: what the wire's number stands for.  `sources` by name; `touched`: those of them that the
    last step was about; `history`: the first query is open, or sent again soon, after so many `tries`; `strangers`:
    what is turned away, or has no source; `gone`: who was turned away, or forgotten; `periodic`: who is asked
    unprompted; `met`: how many first contacts there were; `free_since_ns`: holes last from then on at most."""

    def __init__(self, own: SampleSection, number: Callable[[str, int], int]) -> None:
        self.sources: dict[str, TimedSource] = {}
        self.history = own.history is not None
        self.touched: set[str] = set()
        self.strangers = ObservedStrangers()
        self.gone: set[str] = set()
        self.periodic = ""
        self.met = 0
        self.free_since_ns = 0
        self.tries = 0
        self._own = own
        self._number = number

    def note(self, event: Event, now_ns: int) -> None:
        """It came."""
        match event:
            case Sample(source, first, last):
                one = self._meet(event, source)
                if one is not None:
                    number = self._number(source, first)
                    one.take(number, number + last - first, now_ns)
                    self.touched.add(source)
            case Heartbeat(source, last):
                one = self._meet(event, source)
                if one is not None and last >= 0:
                    number = self._number(source, last)
                    one.beat(number, now_ns)
                    self.touched.add(source)
            case Appeared(source, new):
                one = self._meet(event, source)
                if one is not None:
                    one.seen = replace(one.seen, alive=True, new=new if one.seen.began < 0 else one.seen.new)
            case Disappeared(source):
                if source in self.sources:
                    one = self.sources[source]
                    one.seen = replace(one.seen, alive=False)
            case QueryEnded(source, n, brought):
                if source == EVERY_SOURCE:
                    if brought > 0 or (n == self.tries and self._was_last_try):
                        self._end_history(now_ns)
                elif source in self.sources:
                    self.sources[source].end_query(n, brought, now_ns)
                    self.touched.add(source)
            case QueryTimeout(key):
                if key in self.sources:
                    self.sources[key].time_out(now_ns)
                    self.touched.add(key)
            case Overdue(key):
                if key in self.sources:
                    self.sources[key].give_up(now_ns)
                    self.touched.add(key)
            case HistoryTimeout():
                if self._was_last_try:
                    self._end_history(now_ns)
            case PeriodOver(key):
                self.periodic = key
            case Unnumbered():
                self.strangers = self.strangers.observe_unnumbered()

    @property
    def _was_last_try(self) -> bool:
        return self.tries > self._own.recovery.retries

    def forget(self, source: str) -> None:
        """It is not known any more."""
        self.gone.add(source)
        del self.sources[source]

    def _meet(self, event: Event, source: str) -> TimedSource | None:
        """What is known of its source, where that has a place."""
        one = self.sources.get(source)
        if one is None and len(self.sources) < self._own.recovery.sources:
            one = self.sources[source] = TimedSource(source, self.history, self._own.recovery)
            self.met += 1
        elif one is None:
            self.strangers = self.strangers.observe_stranger(event, self._own.width)
            if isinstance(event, Sample):
                self.gone.add(source)
        return one

    def _end_history(self, now_ns: int) -> None:
        """Holes last from now on."""
        if self.history:
            self.history = False
            self.free_since_ns = now_ns
        for source, one in self.sources.items():
            one.end_history()
            self.touched.add(source)


class ToldJudge:
    """`report(where, broken)` takes what is broken; `counts`: "delivered", "missed" and "longest_ms"."""

    def __init__(self, own: SampleSection, report: Callable[[str, Broken], None], counts: dict[str, int]) -> None:
        self._own = own
        self._report = report
        self._counts = counts

    def tell(
        self,
        reader: SampleReader,
        process: NodeLife,
        party: str,
        told: Deliver | Missed,
        first: int,
        last: int,
        now_ns: int,
    ) -> None:
        """Numbers `first` to `last`, as the publisher counts them, are told."""
        one = reader.sources.get(told.source)
        if one is None:
            broken = ObservedSource().observe_delivered(first, last)[1]
        else:
            self.judge_wait(reader, process, one, now_ns)
            broken = one.deliver(first, last) if isinstance(told, Deliver) else one.miss(first, last)
        missed = isinstance(told, Missed)
        if self._own.whole:
            broken += judge_whole(missed)
        self._counts["missed" if missed else "delivered"] += last - first + 1
        if broken:
            self._report(f"{party}, {type(told).__name__} of {told.source}", broken)

    def judge_wait(self, reader: SampleReader, process: NodeLife, one: TimedSource, now_ns: int) -> None:
        """LIVE, from when something that was missing has come; who stands still, or holds what is ahead of the first
        query's end, is given that time."""
        waited = one.waiting_ns(now_ns, reader.free_since_ns)
        self._counts["longest_ms"] = max(self._counts["longest_ms"], waited // MS)
        if not process.is_paused:
            self._report(process.life, judge_hole(min(waited, now_ns - one.moved_ns), one.recovery))


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


PROPERTIES = (
    "NOGAP", "ORDER", "ONCE", "REPORT", "INVENTED", "HASTY", "QUIET", "ASKED", "LIVE", "ISOLATION", "TAIL", "BOUND",
    "PLACES", "FORGOTTEN", "WHOLE", "REPLIES", "QUEUES", "COUNT", "TIMING",
)  # fmt: skip
COUNTED = (
    "published", "delivered", "missed", "unnumbered", "queries", "turned_away", "not_kept", "let_go", "met",
    "forgotten", "most_sources", "longest_ms",
)  # fmt: skip
"""What a run counts, over all subscribers; `met`: first contacts; `longest_ms`: what was waited for longest."""

ALSO = {"HISTORY": "ORDER"}
"""A run has one property for what is told too early and too late."""


class SampleWatch(cluster.Watch):
    """The properties of `spec/missed_samples/properties.md`."""

    always_hears = False

    def __init__(self, own: SampleSection, judge: Judge) -> None:
        super().__init__(judge)
        self.own = own
        self.readers: dict[str, SampleReader] = {}
        self.sent: dict[str, int] = {}
        self.caches = CacheJudge(self._report, self._number)
        self.owed = OwedSamples(own, self._number)
        self.goals = Goals(own, self.owed, self.sent)
        self._counts = dict.fromkeys(COUNTED, 0)
        self._told = ToldJudge(own, self._report, self._counts)

    def begin(self, world: SimCluster) -> None:
        self._world = world

    def _report(self, where: str, broken: Broken) -> None:
        for one in broken if self.judging else ():
            self.judge.report_broken(ALSO.get(one.name, one.name), f"{where}: {one.detail}")

    # -- steps --------------------------------------------------------------------------------------------------------

    def step(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        if node.fsm is PUBLISHER and isinstance(event, Publish):
            record = step.record
            self._report(record.source, judge_publication(record.next, self.sent.get(record.source, -1)))
            self._counts["published"] += event.count
            self.sent[record.source] = record.next
        elif node.fsm is CACHE:
            self.caches.step(node.name, event, step.record)
        elif node.fsm is SUBSCRIBER:
            reader = self.readers.setdefault(node.name, SampleReader(self.own, self._number))
            self._judge_last(reader, node.name)
            if isinstance(event, QueryEnded):
                self._judge_owed(reader, node.name, event)
            self._note(reader, event, now_ns)
            self._close(reader, node.name, event, step.record.sources, now_ns)
            self._judge_places(reader, node.name, step.record)
            self._judge_counts(reader, node.name, event, step.record)

    def _judge_last(self, reader: SampleReader, where: str) -> None:
        """What the step before should have told."""
        for source in sorted(reader.touched):
            one = reader.sources.get(source)
            if one is not None:
                self._report(f"{where}, {source}", one.seen.judge_step(one.recovery) + one.judge_idle())
        reader.touched.clear()
        self._report(where, reader.strangers.judge_silence())
        reader.periodic = ""

    def _note(self, reader: SampleReader, event: Event, now_ns: int) -> None:
        met = reader.met
        reader.note(event, now_ns)
        self._counts["met"] += reader.met - met
        self._counts["most_sources"] = max(self._counts["most_sources"], len(reader.sources))

    def _judge_owed(self, reader: SampleReader, where: str, ended: QueryEnded) -> None:
        """What the caches had that the query reached has come by now."""
        for one, numbers in sorted(self.owed.end(where, ended.source, ended.n).items()):
            known = reader.sources.get(one)
            if known is not None or one not in reader.gone:
                seen = ObservedSource() if known is None else known.seen
                self._report(f"{where}, {one}", seen.judge_owed(numbers))

    def _close(self, reader: SampleReader, where: str, event: Event, kept: Any, now_ns: int) -> None:
        """Whether a source should be forgotten, and what is forgotten."""
        source = event.key if isinstance(event, RetentionOver) else getattr(event, "source", "")
        one = reader.sources.get(source)
        if not isinstance(event, RetentionOver | Disappeared) or one is None or source in kept:
            return
        least = self.own.recovery.retention_ms * MS if one.seen.began >= 0 else 0
        self._report(f"{where}, {source}", one.seen.judge_forgotten(now_ns - one.heard_ns >= least))
        self._counts["forgotten"] += 1
        reader.forget(source)

    def _judge_places(self, reader: SampleReader, where: str, record: Any) -> None:
        """As many sources are kept as should be: whoever is pushed out, or taken in beyond the limit, shows."""
        self._report(where, judge_places(len(record.sources), len(reader.sources)))

    def _judge_counts(self, reader: SampleReader, where: str, event: Event, record: Any) -> None:
        """What is dropped, and what is turned away, is counted."""
        source = getattr(event, "source", "")
        one, kept = reader.sources.get(source), record.sources.get(source)
        if isinstance(event, Sample) and one is not None and kept is not None:
            self._report(f"{where}, {source}", one.seen.judge_count(kept.dropped))
        elif isinstance(event, Sample | Heartbeat | Appeared) and one is None:
            self._report(where, reader.strangers.judge_count(record.turned_away))

    # -- queries ------------------------------------------------------------------------------------------------------

    def observe_query(self, party: str, query: Query, now_ns: int) -> None:
        """A subscriber sent a query."""
        self._counts["queries"] += 1
        reader = self.readers[party]
        if query.source == EVERY_SOURCE:
            self._report(party, judge_unwanted(reader.history))
            reader.tries = query.n
            return
        first = self._number(query.source, query.first)
        periodic = reader.periodic == query.source
        asked = AskedNumbers(query.n, first, first + query.last - query.first, query.newest, periodic)
        one = reader.sources.get(query.source)
        if one is None:  # it is known to nobody: nothing of it is missing
            self._report(f"{party}, {query.source}", ObservedSource().observe_query(asked, self.own.recovery)[1])
            return
        hasty = one.is_hasty(now_ns)
        self._report(f"{party}, {query.source}", one.ask(asked, now_ns))
        if hasty and self.judging:
            detail = f"{party} asks for {query.source} at {now_ns}, and should rest until {one.rests_until_ns}"
            self.judge.report_broken("TIMING", detail)

    # -- what is told -------------------------------------------------------------------------------------------------

    def tell(self, process: NodeLife, party: str, event: Event, now_ns: int) -> None:
        if not self.judging:
            return  # nobody has said what came
        match event:
            case Deliver(source, first, last) | Missed(source, first, last):
                number = self._number(source, first)
                reader = self.readers[party]
                self._told.tell(reader, process, party, event, number, number + last - first, now_ns)
            case TurnedAway(_, first, last):
                self._tell_stranger(party, event)
                self._counts["turned_away"] += last - first + 1
            case DeliverUnnumbered():
                self._tell_stranger(party, event)
                self._counts["unnumbered"] += 1
            case NotKept(_, _, first, last):
                self.caches.tell(party, event)
                self._counts["not_kept"] += last - first + 1
            case LetGo():
                self.caches.tell(party, event)
                self._counts["let_go"] += 1

    def _tell_stranger(self, party: str, event: TurnedAway | DeliverUnnumbered) -> None:
        reader = self.readers[party]
        reader.strangers, broken = reader.strangers.observe_told(event)
        self._report(party, broken)

    # -- lives --------------------------------------------------------------------------------------------------------

    def fault(self, kind: str, node: str, now_ns: int) -> None:
        process = self._world.processes.get(node)
        if kind == "resume" and process is not None and process.life in self.readers:
            self.readers[process.life].free_since_ns = now_ns

    def observe_death(self, process: NodeLife, now_ns: int) -> None:
        self.readers.pop(process.life, None)
        self.caches.observe_death(process.life)
        self.owed.observe_death(process.life)

    def missing(self, world: SimCluster) -> cluster.Missing | None:
        if is_early(world):
            return "LIVE", "samples are still on their way"
        for life, reader in sorted(self.readers.items()):
            process = next(one for _, one in sorted(world.processes.items()) if one.life == life)
            self._judge_last(reader, life)
            for _, one in sorted(reader.sources.items()):
                self._told.judge_wait(reader, process, one, world.now)
            broken = self.goals.judge(world, process.node, reader.sources)
            if broken:
                return broken[0].name, f"{life}: {broken[0].detail}"
        return None

    def _number(self, source: str, sn: int) -> int:
        """Which of the publisher's numbers it is: of those that there are, the one that the wire calls so."""
        width = self.own.width
        sent = self.sent.get(source, 1)
        return sn if width == 64 else sent - ((sent - sn) & ((1 << width) - 1))

    def tally(self) -> dict[str, int]:
        return self._counts
